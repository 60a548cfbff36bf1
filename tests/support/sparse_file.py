"""A file of over a terabyte that takes few pages of memory: messages, and holes where their bodies would be."""

from __future__ import annotations

import struct
from pathlib import Path

import forms
import numpy as np
import wire

from shmarrow.ipc.flatbuffers import builder
from shmarrow.ipc.flatbuffers.tables import STRUCTS


def sparse_file(path: Path, count: int = 100_000, rows: int = 700_000) -> None:
    """Write it; of many batches only the first 2,000 and the last 20 are there."""
    schema = forms.write("stream-plain", [], forms.numbers(0).schema)[:-8]
    start = 8 + len(schema)
    buffers = [(0, 0), (0, 8 * rows), (0, 0), (8 * rows, 8 * rows)]
    body = 16 * rows
    header = wire.batch_header(rows, [(rows, 0)] * 2, buffers)
    message = wire.framed(
        builder.encode("Message", {"version": 4, "header": ("RecordBatch", header), "bodyLength": body})
    )
    blocks = np.zeros(count, STRUCTS["Block"])
    blocks["offset"] = start + np.arange(count) * (len(message) + body)
    blocks["metaDataLength"], blocks["bodyLength"] = len(message), body
    fields = [
        {"name": "i", "type": ("Int", {"bitWidth": 64, "is_signed": True})},
        {"name": "f", "type": ("FloatingPoint", {"precision": 2})},
    ]
    counts = [{"key": "shmarrow:row_counts", "value": f"{count}*{rows}"}]
    footer = builder.encode(
        "Footer", {"version": 4, "schema": {"fields": fields}, "recordBatches": blocks, "custom_metadata": counts}
    )
    with path.open("wb") as file:
        file.write(b"ARROW1\0\0" + schema)
        for number in {*range(min(count, 2000)), *range(count - 20, count)}:
            file.seek(start + number * (len(message) + body))
            file.write(message)
        file.seek(start + count * (len(message) + body))
        file.write(footer + struct.pack("<i6s", len(footer), b"ARROW1"))
