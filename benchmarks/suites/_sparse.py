"""A valid Arrow file of a terabyte that takes little memory: between the headers of its batches there are holes.

pyarrow writes a small file with as many batches, and one with a single large batch. The footer of the first gets new
offsets and lengths, and the header of the second is written wherever they point. Bodies are never written, so they
read as zeros.
"""

from __future__ import annotations

import io
import os
from pathlib import Path

import numpy as np
import pyarrow as pa

BLOCK = np.dtype([("offset", "<i8"), ("metadata", "<i4"), ("padding", "<i4"), ("body", "<i8")])
"""A ``Block`` of the footer: where a message starts, and how long its two parts are."""

PAGE = 4096


def _file(columns: int, rows: int, batches: int) -> bytes:
    names = [f"c{i}" for i in range(columns)]
    batch = pa.record_batch([pa.array(np.zeros(rows))] * columns, names)
    sink = io.BytesIO()
    with pa.ipc.new_file(sink, batch.schema) as writer:
        for _ in range(batches):
            writer.write_batch(batch)
    return sink.getvalue()


def _footer(data: bytes) -> bytes:
    length = int.from_bytes(data[-10:-6], "little")
    return data[-10 - length : -10]


def _blocks(footer: bytes, first: int, count: int) -> slice:
    """Return the length of the vector of blocks in a footer, and the offset of its first block."""
    start = footer.index(count.to_bytes(4, "little") + first.to_bytes(8, "little")) + 4
    return slice(start, start + count * BLOCK.itemsize)


def write(path: Path, size: int, batches: int, columns: int = 5) -> None:
    """Write the file: ``size`` bytes or a little more, in so many batches of float64 columns."""
    rows = size // batches // columns // 8 // 64 * 64
    small, large = _file(columns, 1, batches), _file(columns, rows, 1)
    schema_end = large.index(b"\xff\xff\xff\xff", 12)  # the second message
    footer = bytearray(_footer(small))
    where = _blocks(footer, small.index(b"\xff\xff\xff\xff", 12), batches)
    model = np.frombuffer(_footer(large)[_blocks(_footer(large), schema_end, 1)], BLOCK)[0]
    header = large[schema_end : schema_end + int(model["metadata"])]
    # Each header starts at the beginning of a page, so that none takes two.
    stride = -(-(len(header) + int(model["body"])) // PAGE) * PAGE
    blocks = np.zeros(batches, BLOCK)
    blocks["offset"] = stride * np.arange(batches) + PAGE
    blocks["metadata"], blocks["body"] = model["metadata"], model["body"]
    footer[where] = blocks.tobytes()
    with path.open("wb") as file:
        file.write(large[:schema_end])
        for offset in blocks["offset"].tolist():
            os.pwrite(file.fileno(), header, offset)
        end = int(blocks["offset"][-1]) + stride
        file.seek(end)
        file.write(b"\xff\xff\xff\xff\0\0\0\0" + footer + len(footer).to_bytes(4, "little") + b"ARROW1")
