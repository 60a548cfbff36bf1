"""Batches of cases, and their bytes in each form of ``cases.forms``."""

from __future__ import annotations

import io
import struct
from typing import Any

import numpy as np
import pytest
from cases.forms import FORMS
from cases.forms import write as write
from cases.table import cases

import shmarrow as sa

WRITABLE = cases(writable=True)
SPARSE: dict[str, Any] = {
    "coo": sa.SparseCOOTensor,
    "csr": sa.SparseCSRMatrix,
    "csc": sa.SparseCSCMatrix,
    "csf": sa.SparseCSFTensor,
}


def read(form: str, data: Any) -> Any:
    """The table in bytes of a form."""
    opened = sa.ipc.open_file(data) if FORMS[form][0] else sa.ipc.open_stream(data)
    with opened:
        return opened.read_all()


def batch_of(*cases: Any) -> Any:
    """One batch with a column for each case, all of one length."""
    columns = [case.array() for case in cases]
    return sa.record_batch(columns, names=[case.name for case in cases])


def together(cases: Any, limit: int = 40) -> list[Any]:
    """Batches that have all cases as columns, those of the same length beside each other."""
    by_length: dict[int, list[Any]] = {}
    for case in cases:
        by_length.setdefault(len(case.values), []).append(case)
    return [
        batch_of(*group[start : start + limit])
        for _, group in sorted(by_length.items())
        for start in range(0, len(group), limit)
    ]


def numbers(length: int = 10) -> sa.RecordBatch:
    """A batch of two columns of numbers."""
    return sa.record_batch({"i": np.arange(length), "f": np.arange(length) / 4})


def _written(ipc: Any, new: str, batches: Any, options: dict[str, Any]) -> bytes:
    sink = io.BytesIO()
    with getattr(ipc, new)(sink, batches[0].schema, options=ipc.IpcWriteOptions(**options)) as writer:
        for batch in batches:
            writer.write(batch)
    return sink.getvalue()


def file_of(*batches: Any, **options: Any) -> bytes:
    """Batches and tables as a file, written with options of ``IpcWriteOptions``."""
    return _written(sa.ipc, "new_file", batches, options)


def stream_of(*batches: Any, **options: Any) -> bytes:
    """Batches and tables as a stream, written with options of ``IpcWriteOptions``."""
    return _written(sa.ipc, "new_stream", batches, options)


def peers_file(*batches: Any, **options: Any) -> bytes:
    """Batches and tables of pyarrow as the file that it writes."""
    return _written(pytest.importorskip("pyarrow").ipc, "new_file", batches, options)


def peers_stream(*batches: Any, **options: Any) -> bytes:
    """Batches and tables of pyarrow as the stream that it writes."""
    return _written(pytest.importorskip("pyarrow").ipc, "new_stream", batches, options)


def message_of(tensor: Any, options: Any = None) -> bytes:
    """A tensor as a message, whose size is what was said before."""
    sink = io.BytesIO()
    size = sa.ipc.write_tensor(tensor, sink, options)
    assert size == len(sink.getvalue()) == sa.ipc.get_tensor_size(tensor, options)
    return sink.getvalue()


def for_cpp(tensor: Any) -> bytes:
    """A message of a sparse tensor as Arrow C++ has it: for a CSF index, numbers of elements in place of bytes."""
    data = message_of(tensor)
    if isinstance(tensor, sa.SparseCSFTensor):
        start = 0
        for part in tensor.index:
            old, new = struct.pack("<2q", start, part.nbytes), struct.pack("<2q", start, len(part))
            place = data.rindex(old, 0, 2048)  # the vectors of structs come last
            data = data[:place] + new + data[place + 16 :]
            start += -(-part.nbytes // 64) * 64
    return data


def broken_file(good: dict[str, Any], *broken: str) -> bytes:
    """A file of one batch of good columns, then columns of strings that are an error when they are built."""
    batch = sa.record_batch(good)
    count = batch.num_rows
    texts = {name: ["x" * (1000 + number)] * count for number, name in enumerate(broken)}
    data = file_of(sa.record_batch({**{name: batch.column(name) for name in batch.schema.names}, **texts}))
    for number in range(len(broken)):
        offsets = np.arange(count + 1, dtype="<i4") * (1000 + number)
        assert data.count(offsets.tobytes()) == 1
        data = data.replace(offsets.tobytes(), offsets[:-1].tobytes() + b"\xff\xff\xff\x7f")
    return data


def coded(indices: list[int | None], words: list[Any], type: str = "string") -> Any:
    """A dictionary array of int8 indices."""
    return sa.DictionaryArray.from_arrays(sa.array(indices, sa.int8()), sa.array(words, type))


def nested_dictionaries(words: list[str], rows: list[list[int]], indices: list[int]) -> sa.RecordBatch:
    """A dictionary of lists whose items are dictionary-encoded."""
    flat = coded([i for row in rows for i in row], words)
    ends = np.cumsum([0, *map(len, rows)]).astype("i4")
    lists = sa.ListArray.from_arrays(ends, flat, sa.list_(flat.type))
    return sa.record_batch([sa.DictionaryArray.from_arrays(sa.array(indices, sa.int8()), lists)], names=["d"])
