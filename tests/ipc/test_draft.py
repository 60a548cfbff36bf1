"""Drafts: batches that are filled in place, in a file or in shared memory, and read by us, pyarrow and polars."""

from __future__ import annotations

import io
import os
import stat
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import lab
import numpy as np
import pyarrow as pa
import pytest
from processes import ended, forked

import shmarrow as sa
from shmarrow import segment
from shmarrow.ipc import Draft, new_draft

FILLED = sa.schema(
    [
        sa.field("x", sa.float64()),
        sa.field("n", sa.int16(), nullable=False),
        sa.field("s", sa.string()),
        sa.field("b", sa.large_binary()),
        sa.field("f", sa.bool_()),
        sa.field("t", sa.timestamp("us", tz="UTC")),
        sa.field("p", sa.struct([("u", sa.int32()), ("v", sa.string())])),
        sa.field("l", sa.list_(sa.float32(), 2)),
        sa.field("d", sa.decimal128(10, 2)),
        sa.field("z", sa.null()),
        sa.field("w", sa.binary(3)),
    ],
    metadata={"of": "the schema"},
)
SIZES = {"s": 4, "b": 3, "p.v": 3}
ONE = sa.schema([("x", sa.int64())])


@pytest.fixture(params=["shm", "path"])
def where(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """A location of this test's own; its folder may hold nothing else afterwards."""
    if request.param == "shm":
        yield request.getfixturevalue("shm_name")
        return
    yield str(tmp_path / "draft.arrow")
    assert set(os.listdir(tmp_path)) <= {"draft.arrow"}


def read(where: str) -> sa.RecordBatch:
    with sa.ipc.open_file(where) as file:
        return file.get_batch(0)


def read_by_pyarrow(where: str) -> pa.Table:
    with segment.attach(where) as found:
        table = pa.ipc.open_file(found.data).read_all()
    table.validate(full=True)
    return table


def fill(draft: Draft) -> None:
    draft["x"][:] = [0.5, 1.5, 2.5]
    draft["n"][:] = [1, 2, 3]
    draft["s"].offsets[:] = [0, 2, 2, 4]
    draft["s"].data[:] = np.frombuffer(b"abcd", "u1")
    draft["b"].offsets[:] = [0, 1, 2, 3]
    draft["b"].data[:] = [0, 127, 255]
    draft["f"][:] = [True, False, True]
    draft["t"][:] = np.array(["2024-02-29", "1970-01-01", "1969-12-31"], "M8[us]")
    draft["p.u"][:] = [7, 8, 9]
    offsets, data = draft["p.v"]
    offsets[:] = [0, 1, 2, 3]
    data[:] = np.frombuffer(b"uvw", "u1")
    draft["l"][:] = [[1, 2], [3, 4], [5, 6]]
    draft["d"][:] = [[150, 0], [0, 0], [225, 0]]
    draft["w"].view("u1").reshape(3, 3)[:] = [[97, 98, 99]] * 3
    draft.valid("s")[1] = False
    draft.valid("f")[2] = False
    draft.valid("p")[0] = False
    draft.valid("l.item")[5] = False
    assert draft.valid("x").all()  # asked for, and none is null


def test_all_types(where: str) -> None:
    with new_draft(where, FILLED, 3, bytes=SIZES) as draft:
        assert (draft.name, draft.schema, draft.num_rows) == (where, FILLED, 3)
        assert draft.columns == ["x", "n", "s", "b", "f", "t", "p.u", "p.v", "l", "l.item", "d", "w"] == list(draft)
        with pytest.raises(sa.ObjectNotFound):
            segment.attach(where)
        fill(draft)
    got = read(where)
    got.validate(full=True)
    expected = {
        "x": [0.5, 1.5, 2.5],
        "n": [1, 2, 3],
        "s": ["ab", None, "cd"],
        "b": [b"\0", b"\x7f", b"\xff"],
        "f": [True, False, None],
        "p": [None, {"u": 8, "v": "v"}, {"u": 9, "v": "w"}],
        "l": [[1.0, 2.0], [3.0, 4.0], [5.0, None]],
        "z": [None] * 3,
        "w": [b"abc"] * 3,
    }
    assert got.schema == FILLED
    assert got.schema.metadata == {b"of": b"the schema"}
    assert {name: got[name].to_pylist() for name in expected} == expected
    assert [str(value) for value in got["d"].to_pylist()] == ["1.50", "0.00", "2.25"]
    assert [value.isoformat() for value in got["t"].to_pylist()] == [
        "2024-02-29T00:00:00+00:00", "1970-01-01T00:00:00+00:00", "1969-12-31T00:00:00+00:00"
    ]  # fmt: skip
    theirs = read_by_pyarrow(where)
    assert [theirs[name].null_count for name in theirs.column_names] == [0, 0, 1, 0, 1, 0, 1, 0, 0, 3, 0]
    assert theirs.drop_columns(["d", "t"]).to_pydict() == expected
    with segment.attach(where) as found:
        frame = pytest.importorskip("polars").read_ipc(found.data.tobytes(), columns=["x", "s", "f", "p"])
    assert frame.to_dict(as_series=False) == {name: expected[name] for name in ("x", "s", "f", "p")}


def test_a_column_of_tensors(where: str) -> None:
    type = sa.fixed_shape_tensor(sa.float32(), (2, 2))
    with new_draft(where, sa.schema([("t", type), ("n", sa.int8())]), 3) as draft:
        draft["t"][:] = np.arange(12).reshape(3, 4)
    got = read(where)
    assert got["t"].type == type
    assert got["t"].to_numpy().reshape(3, 4).tolist() == np.arange(12.0).reshape(3, 4).tolist()


def test_large_columns(where: str) -> None:
    rows = (1 << 22) + 3  # more than what is mapped page by page
    with new_draft(where, ONE, rows) as draft:
        assert not draft["x"].any()
        draft["x"][:] = np.arange(rows)
        draft.valid("x")[-1] = False
    assert np.array_equal(read(where)["x"].values, np.arange(rows))
    column = read_by_pyarrow(where)["x"]
    assert (column.null_count, column[-2].as_py(), column[-1].as_py()) == (1, rows - 2, None)


def test_no_rows_and_no_columns(where: str) -> None:
    for schema, sizes in (
        (FILLED, dict.fromkeys(SIZES, 0)),
        (sa.schema([("f", sa.bool_()), ("z", sa.null())]), None),
        (sa.schema({}), {}),
    ):
        with new_draft(where, schema, 0, sizes, overwrite=True):
            pass
        assert read(where).num_rows == read_by_pyarrow(where).num_rows == 0
    with new_draft(where, sa.schema({}), 7, overwrite=True):
        pass
    assert read(where).num_rows == 7


def test_bits_alone(where: str) -> None:
    with new_draft(
        where, sa.schema([("f", sa.bool_()), ("g", sa.list_(sa.bool_(), 3)), ("z", sa.null())]), 10
    ) as draft:
        draft["f"][::3] = True
        draft["g"][:, 1] = True
        draft.valid("g")[:9] = False
    flags = {"f": [True, False, False] * 3 + [True], "g": [None] * 9 + [[False, True, False]], "z": [None] * 10}
    assert read(where).to_pydict() == flags
    assert read_by_pyarrow(where).to_pydict() == flags


def test_nothing_is_left_of_what_is_not_published(where: str) -> None:
    with pytest.raises(RuntimeError, match="no"), new_draft(where, FILLED, 3, bytes=SIZES):
        raise RuntimeError("no")
    draft = new_draft(where, FILLED, 3, bytes=SIZES)
    draft.abort()
    draft.abort()
    for call in (draft.__enter__, lambda: draft["x"], lambda: draft.valid("x")):
        with pytest.raises(sa.Closed, match=r"the draft '.*' is closed"):
            call()
    strings = sa.schema([("s", sa.string())])
    for offsets in ([0, 3, 2, 4], [0, 1, 2, 5], [-1, 1, 2, 4]):
        draft = new_draft(where, strings, 3, bytes={"s": 4})
        draft["s"].offsets[:] = offsets
        with pytest.raises(sa.InvalidData, match=r"column 's': offsets must increase from 0 to at most 4"):
            draft.close()
    with pytest.raises(sa.ObjectNotFound):
        segment.attach(where)


def test_once_published(where: str) -> None:
    with new_draft(where, sa.schema([("x", sa.int64()), ("s", sa.string())]), 3, {"s": 2}) as draft:
        columns = [draft["x"], *draft["s"], draft.valid("x")]
    for column in columns:
        with pytest.raises(ValueError, match="read-only"):
            column[0] = 2
    assert read(where).to_pydict() == {"x": [0, 0, 0], "s": ["", "", ""]}


def test_names_that_are_taken(where: str) -> None:
    shared = where.startswith("shm:")
    for number in range(2):
        with new_draft(where, ONE, 1, overwrite=True, mode=0o440) as draft:
            draft["x"][:] = number
    assert read(where).to_pydict() == {"x": [1]}
    assert stat.S_IMODE(os.stat(where.replace("shm:", "/dev/shm/")).st_mode) == 0o440
    with pytest.raises(sa.ObjectExists):
        new_draft(where, ONE, 1, overwrite=False)
    if shared:  # the default for a shm: name; a path is replaced, as by new_file
        with pytest.raises(sa.ObjectExists):
            new_draft(where, ONE, 1)
    else:
        new_draft(where, ONE, 1).close()
        assert read(where).to_pydict() == {"x": [0]}


def test_what_cannot_be_filled(where: str) -> None:
    string, wide = sa.schema([("x", sa.string())]), sa.list_(sa.null(), (1 << 31) - 1)
    cases: list[tuple[Any, dict[str, Any], type[Exception], str]] = [
        (sa.schema([("x", sa.list_(sa.int64()))]), {}, sa.Unsupported, r"column 'x': list<.*cannot be filled in place"),
        (sa.schema([("x", sa.dictionary(sa.int8(), sa.string()))]), {}, sa.Unsupported, "column 'x': dictionary"),
        (sa.schema([("x", sa.struct([("y", sa.string_view())]))]), {}, sa.Unsupported, r"column 'x\.y': string_view"),
        (string, {}, sa.InvalidArgument, r"variable size, \['x'\], found \[\]"),
        (string, {"bytes": {"x": -1}}, sa.InvalidArgument, "the bytes of column 'x', at least 0, found -1"),
        (string, {"bytes": {"x": 1 << 31}}, sa.InvalidArgument, "found 2147483648; use large_string"),
        (ONE, {"bytes": {"x": 3}}, sa.InvalidArgument, r"variable size, \[\], found \['x'\]"),
        (ONE, {"num_rows": -1}, sa.InvalidArgument, "the number of rows, at least 0, found -1"),
        (ONE, {"num_rows": 1 << 63}, sa.LimitExceeded, "at most 2"),
        (ONE, {"num_rows": 1 << 61}, sa.LimitExceeded, "a batch of at most"),
        (ONE, {"num_rows": 1 << 50}, sa.StorageError, "cannot reserve"),
        (sa.schema([("x", sa.list_(wide, 8))]), {"num_rows": 1 << 40}, sa.LimitExceeded, "slots, found"),
        (sa.schema([("x.y", sa.int8()), ("x", sa.struct({"y": sa.int8()}))]), {}, sa.InvalidArgument, "two have the"),
    ]
    for schema, options, error, text in cases:
        with pytest.raises(error, match=text):
            new_draft(where, schema, **{"num_rows": 2, **options})
    for place in (io.BytesIO(), 3, None):
        with pytest.raises(sa.InvalidType, match="must be a path or shm:NAME, found"):
            new_draft(place, ONE, 1)  # type: ignore[arg-type]
    with new_draft(where, sa.schema([sa.field("x", sa.int64(), nullable=False), ("z", sa.null())]), 1) as draft:
        for name in ("y", 3, ["x"]):
            with pytest.raises(sa.FieldNotFound, match=r"no column .* it has x"):
                draft[name]  # type: ignore[index]
        with pytest.raises(sa.FieldNotFound, match="null, which has no values"):
            draft["z"]
        for name in ("x", "z"):
            with pytest.raises(sa.InvalidArgument, match="cannot hold nulls"):
                draft.valid(name)


@pytest.mark.processes
def test_a_full_file_system(tmp_path: Path) -> None:
    """The space of columns, truth values and footer is taken first, that of a validity when it is asked for."""
    schema = sa.schema([("x", sa.int64()), ("f", sa.bool_())])
    rows = 100_000  # 800,000 bytes, 12,500 of truth values, and as many of each validity
    with lab.small_tmpfs(tmp_path / "small", 1 << 20) as folder:

        def fill(free: int) -> None:
            with open(folder / "filler", "wb") as file, suppress(OSError):
                os.posix_fallocate(file.fileno(), 0, os.statvfs(folder).f_bavail * 4096 - free)

        for size in (rows * 8 - 4096, rows * 8 + 4096):
            fill(size)
            with pytest.raises(sa.StoreFull, match="cannot reserve"):
                new_draft(folder / "a", schema, rows)
            assert os.listdir(folder) == ["filler"]
            os.unlink(folder / "filler")
        draft = new_draft(folder / "a", schema, rows)
        draft["x"][:] = np.arange(rows)
        draft["f"][::2] = True
        draft.valid("x")[::2] = False
        fill(0)
        assert os.statvfs(folder).f_bavail == 0
        with pytest.raises(sa.StoreFull, match="cannot reserve"):
            draft.valid("f")
        draft.close()
        file = pa.ipc.open_file(pa.memory_map(str(folder / "a")))
        theirs = file.read_all()
        assert theirs["x"].null_count == rows // 2
        assert theirs["x"][1::2].to_numpy().tolist() == list(range(1, rows, 2))
        assert theirs["f"].to_pylist() == [True, False] * (rows // 2)
        del theirs, file


@pytest.mark.processes
def test_a_forked_child_fills_and_does_not_publish(where: str) -> None:
    with new_draft(where, ONE, 2) as draft:
        column = draft["x"]

        def fill() -> None:
            column[0] = 7
            draft.close()

        assert ended(forked(fill)) == 0
        column[1] = 8
    assert read(where).to_pydict() == {"x": [7, 8]}
