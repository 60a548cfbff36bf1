"""Errors as data: where an error occurred, its message and its hint, in every class and across processes."""

from __future__ import annotations

import copy
import copyreg
import errno
import multiprocessing
import pickle
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import shmarrow as sa
from shmarrow.errors import ShmarrowError, at, renumbered, row_of, storage_error

WHERE = (("data.arrow",), ("batch", 3), ("column", 2, "x"), ("row", 17))
TEXT = "data.arrow: batch 3: column 2 'x': row 17: expected 1, found 2; try again"


def classes(base: type[ShmarrowError] = ShmarrowError) -> list[type[ShmarrowError]]:
    """The classes of errors that the package exports."""
    found = [each for each in base.__subclasses__() if getattr(sa, each.__name__, None) is each]
    return [base, *[each for below in found for each in classes(below)]]


def raised(kind: type[ShmarrowError]) -> ShmarrowError:
    args = (errno.ENOSPC,) if issubclass(kind, OSError) else ()
    with pytest.raises(kind) as found, at("data.arrow"), at("batch", 3), at("column", 2, "x"):
        raise kind(*args, "expected 1, found 2", where=[("row", 17)], hint="try again")
    return found.value


@pytest.mark.parametrize("kind", classes())
def test_every_class_has_where_message_and_hint(kind: type[ShmarrowError]) -> None:
    error = raised(kind)
    assert (error.where, error.message, error.hint) == (WHERE, "expected 1, found 2", "try again")
    assert str(error) == TEXT
    assert TEXT in repr(error)


@pytest.mark.parametrize("again", [copy.copy, lambda error: pickle.loads(pickle.dumps(error))])
@pytest.mark.parametrize("kind", classes())
def test_copies_are_equal_and_independent(
    kind: type[ShmarrowError], again: Callable[[Any], Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    # tblib, which distributed imports, copies every exception in its own way: two of them then share their attributes.
    monkeypatch.delitem(copyreg.dispatch_table, kind, raising=False)
    error: Any = raised(kind)
    other = again(error)
    assert type(other) is kind
    assert (other.args, other.where, other.hint, str(other)) == (error.args, WHERE, "try again", TEXT)
    if isinstance(error, OSError):
        assert other.errno == error.errno == errno.ENOSPC
    with pytest.raises(kind, match=r"^elsewhere: data"), at("elsewhere"):
        raise other
    assert str(error) == TEXT


def _fails(where: str) -> None:
    with at(where):
        raise sa.StoreFull(errno.ENOSPC, "no space", hint="remove something")


@pytest.mark.processes
def test_an_error_of_another_process_is_complete() -> None:
    with multiprocessing.get_context("spawn").Pool(1) as pool, pytest.raises(sa.StoreFull) as found:
        pool.apply(_fails, ("there",))
    assert (found.value.where, found.value.message, found.value.hint) == (
        (("there",),),
        "no space",
        "remove something",
    )
    assert found.value.errno == errno.ENOSPC


def test_the_error_stays_the_same_object_with_its_cause() -> None:
    error, cause = sa.InvalidData("expected 1, found 2"), KeyError("x")
    with pytest.raises(sa.InvalidData) as found, at("child", "a"), at("child", "b"):
        raise error from cause
    assert found.value is error
    assert error.__cause__ is cause
    assert str(error) == "child 'a': child 'b': expected 1, found 2"


def test_other_exceptions_pass_unchanged() -> None:
    with pytest.raises(KeyError, match=r"^'x'$"), at("batch", 3):
        raise KeyError("x")


def test_an_error_without_a_place_or_a_message() -> None:
    assert str(sa.InvalidData()) == ""
    assert str(sa.FieldNotFound("no 'x'")) == "no 'x'", "not its repr, as of a KeyError"
    assert str(sa.StorageError(errno.EIO, "broken")) == "broken"
    assert str(sa.StorageError("broken")) == "broken"


def test_names_in_a_place_are_short_and_printable() -> None:
    error = sa.InvalidData("no", where=[("column", np.int64(3), "x" * 1000), ("child", "a\nb\u202e")])
    assert str(error) == f"column 3 '{'x' * 79}: child 'a\\nb\\u202e': no"


def test_an_error_of_the_system_keeps_its_errno() -> None:
    with pytest.raises(sa.ObjectNotFound) as found, at("table"):
        raise storage_error(OSError(errno.ENOENT, "No such file"), "open", "data.arrow")
    assert found.value.errno == errno.ENOENT
    assert str(found.value) == "table: cannot open 'data.arrow': No such file"
    assert (found.value.strerror, found.value.message) == ("No such file", "No such file")


def test_where_leads_to_what_is_wrong() -> None:
    text = sa.array(["a", "b"])
    _, offsets, _ = text.buffers()
    broken = sa.Array.from_buffers(sa.string(), 2, [None, offsets, b"a\xff"])
    columns = [sa.StructArray.from_arrays([each], ["s"]) for each in (text, broken)]
    table = sa.Table.from_batches([sa.record_batch({"n": column}) for column in columns])
    with pytest.raises(sa.InvalidData) as found:
        table.validate(full=True)
    assert found.value.where[:3] == (("batch", 1), ("column", 0, "n"), ("child", "s"))
    with pytest.raises(sa.InvalidData) as found:
        table["n"].validate(full=True)
    assert found.value.where[:2] == (("chunk", 1), ("child", "s"))


SECONDS = sa.timestamp("s")
LATE = [sa.array([0, 2**40], SECONDS), sa.array([0, 0, 2**40], SECONDS)]
"""Columns with a last value that Python's datetime does not have."""
LISTS = sa.array([[0], None, [1, 2**40]])
PAIRS = sa.array([[0, 0], None, [1, 2**40]], sa.list_("int64", 2))

READS: dict[str, tuple[Callable[[], Any], tuple[tuple[Any, ...], ...]]] = {
    "chunks": (lambda: sa.chunked_array(LATE[::-1]).slice(0, 3).to_pylist(), (("row", 2),)),
    "second chunk": (lambda: sa.chunked_array([LATE[0][:1], LATE[1]]).to_pylist(), (("row", 3),)),
    "one": (lambda: LATE[0][1], (("row", 1),)),
    "iteration": (lambda: list(sa.concat_arrays([sa.array([0] * 3000, SECONDS), *LATE])), (("row", 3001),)),
    "struct": (lambda: sa.StructArray.from_arrays([LATE[1]], ["t"]).slice(1).to_pylist(), (("field", "t"), ("row", 1))),
    "one struct": (lambda: sa.StructArray.from_arrays([LATE[1]], ["t"]).slice(1)[1], (("row", 1),)),
    "dictionary": (lambda: sa.DictionaryArray.from_arrays([0, None, 1], LATE[0]).to_pylist(), (("row", 2),)),
    "nulls beside the last index of its type": (
        lambda: sa.DictionaryArray.from_arrays(
            sa.array([None, 255], "uint8"), sa.array([0] * 255 + [2**40], SECONDS)
        ).to_pylist(), (("row", 1),),
    ),
    "one of a dictionary": (lambda: sa.DictionaryArray.from_arrays([0, 1, 1], LATE[0])[2], (("row", 2),)),
    "unused value": (
        lambda: sa.DictionaryArray.from_arrays([0, 0], LATE[0]).to_pylist(), (("dictionary",), ("row", 1))
    ),
    "runs": (lambda: sa.RunEndEncodedArray.from_arrays([3, 4], LATE[0]).slice(1).to_pylist(), (("row", 2),)),
    "one of runs": (lambda: sa.RunEndEncodedArray.from_arrays([3, 9], LATE[0])[7], (("row", 7),)),
    "lists": (LISTS.cast(sa.list_(SECONDS)).slice(1).to_pylist, (("row", 1), ("item", 1))),
    "one list": (lambda: LISTS.cast(sa.list_(SECONDS)).slice(1)[1], (("row", 1), ("item", 1))),
    "list views": (LISTS.cast(sa.list_view(SECONDS)).slice(1).to_pylist, (("row", 1), ("item", 1))),
    "one list view": (lambda: LISTS.cast(sa.list_view(SECONDS)).slice(1)[1], (("row", 1), ("item", 1))),
    "lists of one size": (PAIRS.cast(sa.list_(SECONDS, 2)).slice(1).to_pylist, (("row", 1), ("item", 1))),
    "one of one size": (lambda: PAIRS.cast(sa.list_(SECONDS, 2)).slice(1)[1], (("row", 1), ("item", 1))),
    "lists of structs": (
        lambda: sa.array([[], [{"t": 0}, {"t": 2**40}]]).cast(sa.list_(sa.struct({"t": SECONDS}))).to_pylist(),
        (("field", "t"), ("row", 1), ("item", 1)),
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", READS)
def test_a_row_is_that_of_the_whole(case: str) -> None:
    read, where = READS[case]
    with pytest.raises(sa.InvalidData, match="36812-02-20") as found:
        read()
    assert found.value.where == where


def test_rows_of_a_part_become_rows_of_the_whole() -> None:
    with pytest.raises(sa.InvalidData) as found, at("column", "x"), renumbered(lambda row, first: row + first, 100):
        raise sa.InvalidData("no", where=[("field", "a"), ("row", 3), ("item", 3)])
    assert found.value.where == (("column", "x"), ("field", "a"), ("row", 103), ("item", 3))
    with pytest.raises(sa.InvalidData) as found, renumbered(lambda row: [("row", row // 2), ("item", row % 2)]):
        raise sa.InvalidData("no", where=[("row", 7)])
    assert found.value.where == (("row", 3), ("item", 1))


@pytest.mark.parametrize("where", [(), (("child", "item"), ("row", 3)), (("chunk", 1), ("row", 3))])
def test_rows_of_other_arrays_stay(where: tuple[tuple[Any, ...], ...]) -> None:
    error = sa.InvalidData("no", where=where)
    with pytest.raises(sa.InvalidData), renumbered(lambda row: row + 100):
        raise error
    assert error.where == where
    assert row_of(error) is None
