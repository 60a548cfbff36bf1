"""The forms in which the same batches can be written: file and stream, with each option that changes the bytes.

Rules kept here: a form is a name, whether it is a file, and options; suites pick forms by name, and write and read
whole tables through :func:`write` and :func:`read`.
"""

from __future__ import annotations

import io
from typing import Any

import cases
import numpy as np

import shmarrow as sa
from shmarrow.ipc import IpcWriteOptions

WRITABLE = [case for case in cases.CASES if not case.name.startswith("dictionary-dictionary")]
"""All cases but those whose dictionary's values are dictionary-encoded themselves: no field can say that."""

OPTIONS: dict[str, IpcWriteOptions] = {
    "plain": IpcWriteOptions(),
    "v4": IpcWriteOptions(metadata_version="V4"),
    "legacy": IpcWriteOptions(metadata_version="V4", use_legacy_format=True),
    "big-endian": IpcWriteOptions(endianness="big"),
    "lz4": IpcWriteOptions(compression="lz4"),
    "zstd": IpcWriteOptions(compression="zstd"),
    "align-8": IpcWriteOptions(alignment=8),
    "small-big-zstd": IpcWriteOptions(compression="zstd", endianness="big", alignment=8, use_legacy_format=True),
}

FORMS: dict[str, tuple[bool, IpcWriteOptions]] = {
    f"{kind}-{name}": (kind == "file", options) for kind in ("file", "stream") for name, options in OPTIONS.items()
}


def write(form: str, batches: list[Any], schema: Any, **arguments: Any) -> bytes:
    """The bytes of batches in a form."""
    is_file, options = FORMS[form]
    sink = io.BytesIO()
    make = sa.ipc.new_file if is_file else sa.ipc.new_stream
    with make(sink, schema, options, **arguments) as writer:
        for batch in batches:
            writer.write_batch(batch)
    return sink.getvalue()


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


def file_of(*batches: sa.RecordBatch) -> bytes:
    """Batches as a file."""
    return write("file-plain", list(batches), batches[0].schema)


def stream_of(*batches: sa.RecordBatch) -> bytes:
    """Batches as a stream."""
    return write("stream-plain", list(batches), batches[0].schema)
