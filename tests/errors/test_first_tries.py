"""What users of pyarrow, pandas and Polars type first: a sentence says what does it, and probes find nothing."""

from __future__ import annotations

import copy
import pickle
from typing import Any

import numpy as np
import pytest

import shmarrow as sa
from shmarrow.habits import HINTS
from shmarrow.spark import FileSet, SharedFrame
from shmarrow.spark.app_store import AppStore

pl = pytest.importorskip("polars")
pd = pytest.importorskip("pandas")
pytest.importorskip("duckdb")
pytest.importorskip("pyarrow")

TABLE = sa.table({"x": [1, 2, 9], "g": ["a", "b", "a"]})


@pytest.fixture
def things(tmp_path: Any) -> dict[str, list[Any]]:
    for name, new in (("x.arrow", sa.ipc.new_file), ("x.arrows", sa.ipc.new_stream)):
        with new(tmp_path / name, TABLE.schema) as writer:
            writer.write(TABLE)
    readers = [sa.ipc.open_file(tmp_path / "x.arrow"), sa.ipc.open_stream(tmp_path / "x.arrows"), TABLE.to_reader()]
    readers.append(sa.ipc.open_stream(open(tmp_path / "x.arrows", "rb")))  # noqa: SIM115
    store = sa.Store(tmp_path / "store")
    return {
        "store": [store],
        "ring": [sa.Ring(tmp_path / "ring", like=TABLE.to_batches()[0])],
        "shmarrow": [sa],
        "frame": [SharedFrame(AppStore("shm:nowhere", "", 0, 0), f"frame-{'0' * 16}", TABLE.schema, [])],
        "files": [object.__new__(FileSet)],
        "table": [TABLE],
        "batch": TABLE.to_batches(),
        "reader": readers,
        "scan": [sa.scan(TABLE)],
        "column": [TABLE["x"], TABLE["x"].chunk(0), TABLE["g"].chunk(0).dictionary_encode()],
    }


@pytest.mark.parametrize(
    "kind", ["table", "batch", "reader", "scan", "column", "store", "ring", "frame", "files", "shmarrow"]
)
def test_a_sentence_says_what_does_it(kind: str, things: dict[str, list[Any]]) -> None:
    names = {name for kinds, names, _ in HINTS if kind in kinds.split() for name in names.split()}
    assert names
    for thing in things[kind]:
        for name in names - set(dir(type(thing))) - set(dir(thing) if kind == "shmarrow" else ()):
            assert not hasattr(thing, name)
            with pytest.raises(AttributeError, match=f"has no attribute .{name}.; .*`") as refused:
                getattr(thing, name)
            assert (refused.value.name, refused.value.obj is thing) == (name, kind != "shmarrow")


def test_first_tries(things: dict[str, list[Any]]) -> None:
    for call, match in (
        (lambda: TABLE.group_by("g"), r"`polars.DataFrame\(table\).group_by"),
        (lambda: TABLE.to_batches()[0].sort_by("x"), r"`polars.DataFrame\(batch\).sort"),
        (lambda: things["scan"][0].sum(), r"`scan.to_polars\(\)` is a lazy frame"),
        (lambda: things["scan"][0].columns, r"`scan.schema.names`"),
        (lambda: TABLE["x"].sum(), r"`polars.Series\(column\).sum`"),
        (lambda: things["reader"][0].to_polars(), r"`polars.DataFrame\(reader\)`"),
    ):
        with pytest.raises(AttributeError, match=match):
            call()
    with pytest.raises(sa.InvalidType, match=r"filters such as \[\('x', '>', 1\)\]"):
        things["scan"][0].where("x > 2")
    with pytest.raises(sa.InvalidType, match="kind must be a class"):
        sa.open(b"", kind="table")  # type: ignore[call-overload]
    column = TABLE["x"].chunk(0)
    for compute in (
        lambda x: x > 5, lambda x: x >= 5, lambda x: x >= x, lambda x: x + 1, lambda x: 1 - x, lambda x: -x,
        lambda x: x & x, lambda x: ~x, lambda x: x / 2,
    ):  # fmt: skip
        for some in (TABLE["x"], column):
            with pytest.raises(sa.InvalidType, match=r"no operators.*to_numpy\(\) > 5 is a mask for filter"):
                compute(some)
    with pytest.raises(sa.InvalidType, match=r"a bool for each row, found False; column.to_numpy\(\) == 5"):
        TABLE.filter(TABLE["x"] == 5)
    for reader in things["reader"]:
        with pytest.raises(sa.InvalidType, match=r"reader.read_all\(\)\['x'\] is a column"):
            reader["x"]


def test_what_the_sentences_say_is_so() -> None:
    assert TABLE.filter(TABLE["x"].to_numpy() > 5).to_pydict() == {"x": [9], "g": ["a"]}
    assert TABLE.head(2).to_pydict() == {"x": [1, 2], "g": ["a", "b"]}
    assert TABLE.to_batches()[0].head(9).num_rows == 3
    assert pl.DataFrame(TABLE).group_by("g").agg(pl.col("x").sum()).sort("g")["x"].to_list() == [10, 2]
    assert pl.Series(TABLE["x"]).sum() == pl.Series(TABLE["x"].chunk(0)).sum() == 12
    assert (np.array([1, 2, 3]) < TABLE["x"].chunk(0)).tolist() == [False, False, True]


def test_probes_find_nothing(things: dict[str, list[Any]]) -> None:
    for thing in [each for kind in things for each in things[kind] if kind != "shmarrow"]:
        for name in ("__torch_function__", "__array_ufunc__", "__dataframe__", "_repr_png_", "__deepcopy__", "nothing"):
            assert getattr(thing, name, None) is None
        with pytest.raises(AttributeError, match=r"has no attribute 'nothing'$"):
            _ = thing.nothing
    for thing in (TABLE, TABLE.to_batches()[0], TABLE["x"], TABLE["x"].chunk(0)):
        assert copy.copy(thing) == copy.deepcopy(thing) == pickle.loads(pickle.dumps(thing)) == thing
