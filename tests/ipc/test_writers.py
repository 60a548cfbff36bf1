"""Writers of streams and files: large batches, slices, what is published and when, tables, sinks.

Invariants: what was written is held to pyarrow, to the footers' own numbers and to what stands in the folder; an
object that is not whole is seen by nobody.
"""

from __future__ import annotations

import io
import mmap
import os
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from cases import table as cases
from every import every
from forms import WRITABLE, numbers, stream_of
from wire import messages

import shmarrow as sa
from shmarrow.layout import make_array

# --- batches beyond 32 bits -----------------------------------------------------------------------------------------


class Sparse:
    """A file object that leaves holes where large pieces would be written."""

    def __init__(self, path: Path) -> None:
        self._file = open(path, "wb")  # noqa: SIM115

    def write(self, data: memoryview) -> int:
        if len(data) > 1 << 24:
            self._file.seek(len(data), os.SEEK_CUR)
        else:
            self._file.write(data)
        return len(data)

    def flush(self) -> None:
        self._file.truncate()
        self._file.close()


def _zeros(size: int) -> Any:
    """So many bytes of zero that take neither memory nor disk."""
    with tempfile.TemporaryFile() as hole:
        hole.truncate(size)
        return np.frombuffer(mmap.mmap(hole.fileno(), size, access=mmap.ACCESS_READ), "u1")


ROWS = (1 << 31) + 10
BEYOND: dict[str, Callable[[], Any]] = {
    "null": lambda: sa.nulls(ROWS, sa.null()),
    "int8": lambda: make_array(sa.int8(), ROWS, [None, _zeros(ROWS)], 0),
    "bool": lambda: make_array(sa.bool_(), ROWS, [None, _zeros((ROWS + 7) // 8)], 0),
    "large-string": lambda: make_array(sa.large_string(), ROWS, [None, _zeros(8 * (ROWS + 1)), np.zeros(0, "u1")], 0),
    "fixed-size-list": lambda: make_array(
        sa.list_(sa.int8(), 2), ROWS, [None], 0, 0, [make_array(sa.int8(), 2 * ROWS, [None, _zeros(2 * ROWS)], 0)]
    ),
}


@pytest.mark.parametrize("name", BEYOND)
def test_batches_of_more_rows_than_31_bits_count(name: str, tmp_path: Path) -> None:
    column = BEYOND[name]()
    path = tmp_path / "large"
    batch = sa.record_batch([column], names=["c"])
    with sa.ipc.new_file(Sparse(path), batch.schema) as writer:
        writer.write(batch)
    with sa.ipc.open_file(path) as reader:
        got = reader.get_batch(0)
        assert got.num_rows == ROWS
        got.validate()
        read = got.column(0)
        assert (len(read), read.null_count) == (ROWS, ROWS if name == "null" else 0)
        zero = {"null": None, "int8": 0, "bool": False, "large-string": "", "fixed-size-list": [0, 0]}[name]
        assert read[ROWS - 1] == zero
        assert read.slice(ROWS - 3).to_pylist() == [zero] * 3
        with pytest.raises(sa.IndexOutOfRange, match=str(ROWS)):
            read[ROWS]
    theirs = pa.ipc.open_file(pa.memory_map(str(path))).get_batch(0)
    assert theirs.num_rows == ROWS
    assert theirs.column(0)[ROWS - 1].as_py() == zero


# --- slices travel without what they do not need ---------------------------------------------------------------------


def _pasted(case: cases.Case) -> Any:
    return sa.concat_arrays([case.array()] * 100)


@every(WRITABLE)
def test_of_a_slice_only_what_is_needed_travels(case: cases.Case) -> None:
    if not case.values:
        return
    many = _pasted(case)
    whole = len(case.values)
    part = many.slice(37 * whole, whole)
    written = stream_of(sa.record_batch([part], names=["c"]))
    (batch,) = sa.ipc.open_stream(written)
    got = batch.column(0)
    got.validate(full=True)
    assert got.to_pylist() == case.values
    assert got.offset == 0
    # Dictionaries travel whole; of pasted ones there is more than one form.
    if not any(part.message.kind == "DictionaryBatch" for part in messages(written)):
        alone = stream_of(sa.record_batch([case.array()], names=["c"]))
        assert len(written) <= len(alone) + 64
    theirs = pa.ipc.open_stream(written).read_all()
    theirs.validate(full=True)


# --- writers --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("make", [sa.ipc.new_file, sa.ipc.new_stream])
def test_after_an_exception_nothing_is_published(make: Any, shm_name: str) -> None:
    batch = numbers()
    sink = io.BytesIO()
    for place in (shm_name, sink):
        with pytest.raises(KeyError), make(place, batch.schema) as writer:  # noqa: PT012
            writer.write(batch)
            raise KeyError
    with pytest.raises(sa.ObjectNotFound):
        sa.segment.attach(shm_name)
    assert not sink.closed
    with pytest.raises(sa.InvalidData, match=r"truncated|expected an Arrow"):
        sa.ipc.open_file(sink.getvalue() if make is sa.ipc.new_file else b"ARROW1\0\0" + sink.getvalue())


def test_tables_are_written_batch_by_batch_or_in_pieces() -> None:
    table = sa.Table.from_batches([numbers(10), numbers(3)])
    for size, expected in ((None, [10, 3]), (4, [4, 4, 2, 3]), (100, [10, 3])):
        sink = io.BytesIO()
        with sa.ipc.new_file(sink, table.schema) as writer:
            writer.write_table(table, max_chunksize=size)
        got = sa.ipc.open_file(sink.getvalue()).read_all()
        assert [batch.num_rows for batch in got.batches] == expected
        assert got.equals(table)
    assert [batch.num_rows for batch in sa.ipc.open_stream(stream_of(table, table.batches[0]))] == [10, 3, 10]
