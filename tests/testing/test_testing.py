"""The public testing tools: the table of cases, the check of readers, the contract of stores, strategies."""

from __future__ import annotations

import os
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from processes import python

import shmarrow as sa
from shmarrow import testing
from shmarrow.testing import strategies

pa = pytest.importorskip("pyarrow")


# --- cases ------------------------------------------------------------------------------------------------------


def test_cases_have_names_of_their_own_and_every_layout() -> None:
    cases = testing.cases()
    assert len({case.name for case in cases}) == len(cases)
    assert {case.type.layout for case in cases} >= {
        "null", "primitive", "binary", "binary_view", "list", "list_view", "fixed_size_list", "struct", "dense_union",
        "sparse_union", "dictionary", "run_end_encoded",
    }  # fmt: skip
    assert {case.name for case in cases} - {case.name for case in testing.cases(writable=True)} == {
        f"dictionary-dictionary{variant}" for variant in ("", "-nulls", "-all-null", "-empty")
    }
    assert testing.case("spec-binary").values == [b"joe", None, None, b"mark"]
    assert str(testing.case("spec-binary")) == "spec-binary"
    with pytest.raises(sa.InvalidArgument, match="no case is named 'spec-bin'"):
        testing.case("spec-bin")


@pytest.mark.parametrize(
    ("one", "other", "equal"),
    [
        (float("nan"), float("nan"), True),
        (0.0, -0.0, False),
        (1, 1.0, False),
        (1, True, False),
        ([1, None], [1, None], True),
        ({"a": 1, "b": 2}, {"b": 2, "a": 1}, False),
        (np.datetime64(1, "ns"), np.datetime64(1, "us"), False),
    ],
)
def test_exact(one: Any, other: Any, equal: bool) -> None:
    assert (testing.exact(one) == testing.exact(other)) is equal


# --- readers ----------------------------------------------------------------------------------------------------


def by_pyarrow(path: str) -> Any:
    with pa.memory_map(path) as source:
        opened = pa.ipc.open_file if source.read(6) == b"ARROW1" else pa.ipc.open_stream
        source.seek(0)
        return opened(source).read_all()


PLAIN = ("file-plain", "stream-plain")


def test_a_right_reader() -> None:
    count = len(testing.cases(writable=True))
    assert testing.check_reader(by_pyarrow, forms=["file-zstd", "stream-batches"]) == 2 * count
    assert testing.check_reader(by_pyarrow, cases=testing.cases()[:5]) == 4 * 5


def test_a_wrong_reader_is_told_what_is_wrong() -> None:
    cases = [testing.case(name) for name in ("int8", "int8-nulls", "float64", "bool")]

    def read(path: str) -> Any:
        table = by_pyarrow(path)
        if table.schema.field("x").type == pa.float64():
            raise NotImplementedError("no floats")
        values = table["x"].to_pylist()
        return {"x": [0 if value is None else value for value in values]}

    with pytest.raises(AssertionError) as raised:
        testing.check_reader(read, cases=cases, forms=PLAIN)
    said = str(raised.value).splitlines()
    assert said[0] == "4 problems, 4 cases read correctly:"
    assert said[1:3] == [
        "  file-plain/int8-nulls (int8): slot 1: expected None, found 0",
        "  stream-plain/int8-nulls (int8): slot 1: expected None, found 0",
    ]
    assert said[3] == f"  file-plain/float64 ({sa.float64()}): NotImplementedError: no floats"
    lacks = {"*/float64": "no floats", "*-nulls": "no nulls"}
    assert testing.check_reader(read, cases=cases, forms=PLAIN, lacks=lacks) == 4
    with pytest.raises(AssertionError, match=r"file-plain/bool is read correctly, but in lacks\['\*/bool'\]"):
        testing.check_reader(read, cases=cases, forms=PLAIN, lacks={**lacks, "*/bool": "no bools"})
    with pytest.raises(AssertionError, match=r"lacks\['\*/int9'\] matches no case"):
        testing.check_reader(read, cases=cases, forms=PLAIN, lacks={**lacks, "*/int9": "no such type"})


@pytest.mark.parametrize(
    ("found", "problem"),
    [
        (7, "InvalidType: read must return an object with __arrow_c_stream__.*found int"),
        ({"y": []}, r"expected the column 'x', found \['y'\]"),
        ({"x": [True]}, "expected 11 values, found 1"),
    ],
)
def test_what_readers_return(found: Any, problem: str) -> None:
    with pytest.raises(AssertionError, match=problem):
        testing.check_reader(lambda path: found, cases=[testing.case("bool")])


def test_readers_of_the_first_batch_only_are_caught() -> None:
    def read(path: str) -> Any:
        table = by_pyarrow(path)
        return pa.Table.from_batches(table.to_batches()[:1], table.schema)

    int8 = testing.case("int8")
    assert testing.check_reader(read, cases=[int8], forms=PLAIN) == 2
    with pytest.raises(
        AssertionError, match=r"2 problems, 2 cases read correctly:\n  file-batches/int8 .*expected 9 val"
    ):
        testing.check_reader(read, cases=[int8])


def test_readers_that_miss_a_replaced_dictionary_are_caught() -> None:
    def read(path: str) -> Any:
        first, *others = by_pyarrow(path)["x"].chunks
        return {
            "x": sum((first.dictionary.take(each.indices).to_pylist() for each in others), first.to_pylist()),
        }

    case = [testing.case("dictionary-int8")]
    assert testing.check_reader(read, cases=case, forms=[*PLAIN, "file-batches"]) == 3
    with pytest.raises(AssertionError, match=r"stream-batches/dictionary-int8 .*slot .*: expected"):
        testing.check_reader(read, cases=case)


@pytest.mark.parametrize(("name", "type"), [("int32", pa.int64()), ("string", pa.large_string())])
def test_other_types_are_caught(name: str, type: Any) -> None:
    def read(path: str) -> Any:
        return by_pyarrow(path).cast(pa.schema({"x": type}))

    with pytest.raises(AssertionError, match=f"4 problems, 0 cases .*\n.*: expected the type {name}, found {type}"):
        testing.check_reader(read, cases=[testing.case(name)])
    assert testing.check_reader(read, cases=[testing.case(name)], types=False) == 4


@pytest.mark.parametrize("nothing", ["cases", "forms"])
def test_a_check_of_nothing_is_refused(nothing: str) -> None:
    with pytest.raises(sa.InvalidArgument, match=f"expected at least one {nothing[:-1]}, found none"):
        testing.check_reader(by_pyarrow, **{nothing: []})


def test_forms_that_do_not_exist() -> None:
    with pytest.raises(sa.InvalidArgument, match=r"expected forms among file-plain, .*, found 'file'"):
        testing.check_reader(by_pyarrow, forms=["file"])


# --- stores -----------------------------------------------------------------------------------------------------


class TestSharedMemory(testing.StoreContract):
    @pytest.fixture
    def store(self, shm_name: str) -> Any:
        with sa.Store(shm_name) as store:
            yield store
            assert set(testing.check_store(shm_name)) == set(store.names())


class Forgetful(dict[str, Any]):
    """A store that breaks its promises: what is put is not copied, and replaced without being asked."""

    def put(self, name: str, value: Any, *, overwrite: bool = False) -> None:
        self[name] = value

    def get(self, name: str) -> Any:  # type: ignore[override]
        return self[name]

    def names(self, prefix: str = "") -> list[str]:
        return [name for name in self if name.startswith(prefix)]

    def delete(self, name: str) -> None:
        del self[name]


@pytest.mark.parametrize(
    ("test", "keeps"),
    [
        ("test_objects_of_every_type_come_back", True),
        ("test_tables_keep_their_batches", True),
        ("test_arrays_of_any_shape_come_back", True),
        ("test_missing_names", True),
        ("test_readers_keep_what_is_deleted", True),
        ("test_objects_do_not_change_with_what_was_put", False),
        ("test_names", False),
        ("test_existing_names_are_replaced_on_request_only", False),
        ("test_what_cannot_be_stored_is_refused", False),
    ],
)
def test_the_contract_tells_stores_apart(test: str, keeps: bool) -> None:
    check = getattr(testing.StoreContract(), test)
    if keeps:
        check(Forgetful())
    else:
        with pytest.raises((AssertionError, pytest.fail.Exception)):
            check(Forgetful())


class InPlace:
    """A store that writes pickles under their final names."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def put(self, name: str, value: Any, *, overwrite: bool = False) -> None:
        with (self.folder / name).open("wb" if overwrite else "xb") as file:
            pickle.dump(value, file)

    def get(self, name: str) -> Any:
        return pickle.loads((self.folder / name).read_bytes())

    def names(self, prefix: str = "") -> list[str]:
        return sorted(path.name for path in self.folder.iterdir() if path.name.startswith(prefix))

    def __contains__(self, name: str) -> bool:
        return (self.folder / name).exists()


@pytest.mark.parametrize("test", ["test_puts_that_fail_leave_the_old_object", "test_readers_see_whole_objects_only"])
def test_the_contract_wants_atomic_puts(tmp_path: Path, test: str) -> None:
    with pytest.raises((AssertionError, pickle.UnpicklingError, EOFError)):
        getattr(testing.StoreContract(), test)(InPlace(tmp_path))


@pytest.mark.parametrize(
    ("at", "problem"),
    [
        (0, "expected the control file of a store, version 2, found"),
        (None, "no object has the files"),
        (-1, "fewer than its header"),
    ],
)
def test_files_that_are_not_those_of_a_store(tmp_path: Path, at: int | None, problem: str) -> None:
    with sa.Store(tmp_path / "store") as store:
        store.put("x", 1)
    assert list(testing.check_store(tmp_path / "store")) == ["x"]
    control = tmp_path / "store" / "control"
    control.chmod(0o600)
    if at is None:
        (tmp_path / "store" / f"{1 << 40:016x}").touch()
    elif at < 0:
        os.truncate(control, 100)
    else:
        with control.open("r+b") as file:
            file.seek(at)
            file.write(b"?")
    with pytest.raises(sa.InvalidData, match=problem):
        testing.check_store(tmp_path / "store")


def test_no_store(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        testing.check_store(tmp_path / "none")


# --- strategies -------------------------------------------------------------------------------------------------


@settings(max_examples=20, suppress_health_check=[HealthCheck.too_slow])
@given(strategies.tables(), strategies.arrays("int8", min_size=1, max_size=3))
def test_strategies(table: sa.Table, array: sa.Array) -> None:
    table.validate(full=True)
    assert 1 <= table.num_columns <= 4
    assert 1 <= len(array) <= 3
    assert array.type == sa.int8()
    assert len(table.to_pylist()) == table.num_rows


# --- without the extra ------------------------------------------------------------------------------------------


@pytest.mark.processes
def test_without_the_extra() -> None:
    code = """
import sys
sys.modules["hypothesis"] = sys.modules["pytest"] = None
import shmarrow
assert "shmarrow.testing" not in sys.modules
from shmarrow import testing
assert len(testing.cases()) > 300
for name in ("strategies", "StoreContract"):
    try:
        getattr(testing, name)
    except shmarrow.MissingExtra as error:
        assert "pip install 'shmarrow[testing]'" in str(error)
        print(name)
"""
    assert python(code).split() == ["strategies", "StoreContract"]
