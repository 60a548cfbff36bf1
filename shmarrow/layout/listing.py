"""The buffer listing of the columnar format as a table ("Buffer Listing for Each Layout").

For each layout its buffers in order. One walk reads record batches by these rows and one writes them; structural
validation, byte swapping, all-null arrays and the C data interface use the same rows. The children of a layout are the
``fields`` of its type.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from shmarrow.types import DataType


class Row(NamedTuple):
    """One buffer of a layout.

    Attributes
    ----------
    role : str
        ``validity``, ``values``, ``offsets``, ``sizes``, ``type_ids``, ``views`` or ``data``.
    bits : int
        Bits a slot takes; 0 where the type says it; -1 where the number of bytes does not depend on the slots.
    extra : int
        Slots beyond the array's length: 1 for offsets that mark both ends.
    """

    role: str
    bits: int
    extra: int = 0


class Layout(NamedTuple):
    """One row of the listing.

    Attributes
    ----------
    buffers : tuple of Row
        The buffers in order.
    variadic : bool
        Whether any number of data buffers may follow.
    """

    buffers: tuple[Row, ...]
    variadic: bool = False

    @property
    def has_validity(self) -> bool:
        return bool(self.buffers) and self.buffers[0].role == "validity"


_VALIDITY = Row("validity", 1)
_DATA = Row("data", -1)

LISTING: dict[str, Layout] = {
    "null": Layout(()),
    "bool": Layout((_VALIDITY, Row("values", 1))),
    "primitive": Layout((_VALIDITY, Row("values", 0))),
    "binary": Layout((_VALIDITY, Row("offsets", 32, 1), _DATA)),
    "large_binary": Layout((_VALIDITY, Row("offsets", 64, 1), _DATA)),
    "binary_view": Layout((_VALIDITY, Row("views", 128)), variadic=True),
    "list": Layout((_VALIDITY, Row("offsets", 32, 1))),
    "large_list": Layout((_VALIDITY, Row("offsets", 64, 1))),
    "map": Layout((_VALIDITY, Row("offsets", 32, 1))),
    "list_view": Layout((_VALIDITY, Row("offsets", 32), Row("sizes", 32))),
    "large_list_view": Layout((_VALIDITY, Row("offsets", 64), Row("sizes", 64))),
    "fixed_size_list": Layout((_VALIDITY,)),
    "struct": Layout((_VALIDITY,)),
    "sparse_union": Layout((Row("type_ids", 8),)),
    "dense_union": Layout((Row("type_ids", 8), Row("offsets", 32))),
    "dictionary": Layout((_VALIDITY, Row("values", 0))),
    "run_end_encoded": Layout(()),
}


VALIDITY_IN_V4 = ("dense_union", "sparse_union", "run_end_encoded")
"""Layouts that have a validity bitmap in metadata version 4 and none in version 5, as Arrow C++ writes and reads them.
"""


def bytes_needed(row: Row, type: DataType, slots: int) -> int:
    """Bytes that a buffer has at least when ``slots`` slots are used."""
    if row.bits > 1:
        return (slots + row.extra) * (row.bits >> 3)
    if row.bits == 1:
        return (slots + 7) >> 3
    return slots * type.byte_width if row.bits == 0 else 0


def swapped(row: Row, type: DataType, data: np.ndarray) -> np.ndarray:
    """A copy of a buffer with the bytes of its numbers in the other order ("Byte Order"); itself where it has none.

    Bytes after the last whole slot are dropped. Swapping twice gives the same bytes again, but for views: the two
    directions differ there, as their lengths say which of two forms they have, see :func:`swapped_views`.
    """
    if row.bits == 0:
        dtype = type.storage
        assert dtype is not None
        if dtype.subdtype is not None:  # wide decimals: words of one number
            size = dtype.itemsize
            return _read_only(np.ascontiguousarray(data[: len(data) // size * size].reshape(-1, size)[:, ::-1]))
    elif row.bits in (32, 64):
        dtype = np.dtype(f"<i{row.bits >> 3}")
    else:
        return data
    if dtype.itemsize <= 1 or (dtype.kind == "V" and dtype.names is None):
        return data
    whole = data[: len(data) // dtype.itemsize * dtype.itemsize]
    return _read_only(whole.view(dtype.newbyteorder(">")).astype(dtype))


def swapped_views(data: np.ndarray, to_big: bool) -> np.ndarray:
    """A copy of a views buffer with its lengths, buffer indices and offsets in the other byte order."""
    words = data[: len(data) // 16 * 16].view("<u4").reshape(-1, 4).copy()
    swapped_lengths = words[:, 0].byteswap()
    long = (words[:, 0] if to_big else swapped_lengths) > 12
    words[:, 0] = swapped_lengths
    words[long, 2:] = words[long, 2:].byteswap()
    return _read_only(words)


def _read_only(data: np.ndarray) -> np.ndarray:
    flat = data.reshape(-1).view("u1")
    flat.flags.writeable = False
    return flat
