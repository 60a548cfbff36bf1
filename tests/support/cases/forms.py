"""The forms in which the same batches can be written: file and stream, with each option that changes the bytes."""

from __future__ import annotations

import io
from collections.abc import Iterable
from typing import Any

from shmarrow.columns.batch import RecordBatch
from shmarrow.ipc import IpcWriteOptions, new_file, new_stream
from shmarrow.types import Schema

OPTIONS: dict[str, IpcWriteOptions] = {
    "plain": IpcWriteOptions(),
    "v4": IpcWriteOptions(metadata_version="V4"),
    "legacy": IpcWriteOptions(metadata_version="V4", use_legacy_format=True),
    "big-endian": IpcWriteOptions(endianness="big"),
    "lz4": IpcWriteOptions(compression="lz4"),
    "zstd": IpcWriteOptions(compression="zstd"),
    "big-zstd": IpcWriteOptions(compression="zstd", endianness="big", use_legacy_format=True),
}

FORMS: dict[str, tuple[bool, IpcWriteOptions]] = {
    f"{kind}-{name}": (kind == "file", options) for kind in ("file", "stream") for name, options in OPTIONS.items()
}
"""By name, whether it is a file, and the options."""


def write(form: str, batches: Iterable[RecordBatch], schema: Schema, **arguments: Any) -> bytes:
    """Return batches as the bytes of a file or stream in one of the forms; further arguments are the writer's."""
    is_file, options = FORMS[form]
    sink = io.BytesIO()
    make: Any = new_file if is_file else new_stream
    with make(sink, schema, options, **arguments) as writer:
        for batch in batches:
            writer.write_batch(batch)
    return sink.getvalue()
