"""Templates for messages of dense tensors, which mostly differ in a few numbers.

A cached message is keyed by all of its bytes except lengths, shape and strides, which are checked each time.
Entries are immutable and bounded.
"""

from __future__ import annotations

import struct
from typing import Any

from shmarrow.ipc.flatbuffers.reader import TableView
from shmarrow.tensor.dense import Shape, row_major

_MOST, _MOST_LAYOUTS = 256, 8


def number_places(message: TableView) -> list[int]:
    """Positions of the variable numbers in a Tensor message.

    In our builder's order: body size, data size, strides, and the shape from the last dimension.
    """
    table = message["header"][1]
    dimensions: list[Any] = list(table["shape"])
    strides = table.reader.follow(table.offset_of("strides"), "strides") + 4
    return [
        message.offset_of("bodyLength"),
        table.offset_of("data") + 8,
        *range(strides, strides + 8 * len(dimensions), 8),
        *[dimension.offset_of("size") for dimension in reversed(dimensions)],
    ]


class KnownForms:
    """Cache of decoded messages, by their bytes without those numbers.

    Notes
    -----
    Thread safety: may be shared; entries are immutable and depend on their key only.
    """

    def __init__(self) -> None:
        self._layouts: dict[int, tuple[struct.Struct, ...]] = {}
        self._headers: dict[tuple[bytes, ...], Any] = {}

    def __len__(self) -> int:
        return len(self._headers)

    def add(self, metadata: bytes, table: TableView, header: Any) -> None:
        """Cache the header of a message."""
        if table["header"][1]["strides"] is None or header.offset or 0 in header.shape:
            return
        places = number_places(table)
        gaps = [place - before for before, place in zip([0, *[place + 8 for place in places]], places, strict=False)]
        if min(places) < 8 or min(gaps) < 0:
            return  # written by another builder
        layout = struct.Struct("<" + "q".join([f"{size}s" for size in [*gaps, len(metadata) - places[-1] - 8]]))
        if len(self._headers) >= _MOST:
            self._headers.clear()
            self._layouts.clear()
        self._headers[layout.unpack(metadata)[0::2]] = header
        known = self._layouts.get(len(metadata), ())
        if all(layout.format != each.format for each in known):
            self._layouts[len(metadata)] = (*known[1 - _MOST_LAYOUTS :], layout)

    def find(self, metadata: bytes) -> Any:
        """The header of a message with contiguous elements, if its form is cached; else None."""
        for layout in self._layouts.get(len(metadata), ()):
            values = layout.unpack(metadata)
            known = self._headers.get(values[0::2])
            if known is not None:
                body, size, *numbers = values[1::2]
                dimensions = len(known.shape)
                strides, shape = tuple(numbers[:dimensions]), tuple(numbers[dimensions:][::-1])
                if not 0 < size <= body or not _together(shape, strides, known.dtype.itemsize, size):
                    return None
                return known._replace(shape=shape, strides=strides, data_end=size, body_length=body)
        return None


def _together(shape: Shape, strides: Shape, itemsize: int, size: int) -> bool:
    """Whether ``size`` bytes are exactly the elements, contiguous in row-major or column-major order."""
    total = itemsize
    for each in shape:
        if each <= 0:
            return False
        total *= each
    return total == size and (
        strides == row_major(shape, itemsize) or strides[::-1] == row_major(shape[::-1], itemsize)
    )
