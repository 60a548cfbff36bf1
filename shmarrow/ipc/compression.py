# SPDX-License-Identifier: Apache-2.0
"""The compression codecs of record batch bodies ("Compression"): one table, with all that differs between them."""

from __future__ import annotations

import sys
from collections.abc import Callable
from contextlib import suppress
from functools import cache
from importlib import import_module
from typing import Any, NamedTuple

import numpy as np

from shmarrow.buffer import Bytes
from shmarrow.errors import optional

_PART = 1 << 20
"""Bytes decompressed at once."""


class Codec(NamedTuple):
    """A codec.

    Attributes
    ----------
    name : str
        The name in options.
    member : str
        The member of CompressionType in Message.fbs.
    levels : tuple of int
        The first and the last level that are accepted, from fastest to smallest output.
    most_ratio : int
        The maximum compression ratio; a larger declared size is invalid.
    compress : callable
        Compresses bytes to a frame at a level, None for the default.
    decompress : callable
        Decompresses a frame, and all of it, into a target. Returns the number of bytes written, plus one if the target
        was too small.
    """

    name: str
    member: str
    levels: tuple[int, int]
    most_ratio: int
    compress: Callable[[memoryview, int | None], bytes]
    decompress: Callable[[memoryview, Bytes], int]


_CUT = "it is cut before its end mark or checksum"
_FOLLOWED = "{} bytes follow it"


def _compress_lz4(data: memoryview, level: int | None) -> bytes:
    return optional("lz4.frame").compress(data, compression_level=level or 0, store_size=True)


def _decompress_lz4(data: memoryview, target: Bytes) -> int:
    frame = optional("lz4.frame")
    context = frame.create_decompression_context()
    done, size = 0, len(target)
    ended = False
    while not ended:
        # Small pieces stay in the CPU cache, so copying them costs less than decompressing one large piece.
        piece, read, ended = frame.decompress_chunk(context, data, max_length=min(size - done, _PART) or 1)
        if piece and done == size:
            return size + 1
        if not (piece or read or ended):
            raise ValueError(_CUT)
        target[done : done + len(piece)] = np.frombuffer(piece, np.uint8)
        done += len(piece)
        data = data[read:]
    if data:
        raise ValueError(_FOLLOWED.format(len(data)))
    return done


@cache
def _zstd() -> Any:
    """The module that has ZSTD: that of the standard library, from Python 3.14 on, or the package zstandard."""
    if sys.version_info >= (3, 14):
        with suppress(ImportError):  # Python may be built without it
            return import_module("compression.zstd")
    return optional("zstandard")


def _compress_zstd(data: memoryview, level: int | None) -> bytes:
    zstd = _zstd()
    try:
        return zstd.compress(data, 1 if level is None else level)
    except zstd.ZstdError as error:
        raise RuntimeError(str(error)) from None


def _decompress_zstd(data: memoryview, target: Bytes) -> int:
    zstd = _zstd()
    try:
        return (_by_zstandard if hasattr(zstd, "frame_header_size") else _by_standard_library)(zstd, data, target)
    except zstd.ZstdError as error:
        raise ValueError(str(error)) from None


def _by_standard_library(zstd: Any, data: memoryview, target: Bytes) -> int:
    decompressor = zstd.ZstdDecompressor()
    done, size = 0, len(target)
    while not decompressor.eof:
        piece = decompressor.decompress(data, min(size - done, _PART) or 1)  # what it does not use, it keeps
        if piece and done == size:
            return size + 1
        if not (piece or decompressor.eof):
            raise ValueError(_CUT)
        target[done : done + len(piece)] = np.frombuffer(piece, np.uint8)
        done += len(piece)
        data = data[:0]
    if decompressor.unused_data:
        raise ValueError(_FOLLOWED.format(len(decompressor.unused_data)))
    return done


def _by_zstandard(zstandard: Any, data: memoryview, target: Bytes) -> int:
    done, size = 0, len(target)
    room = target.data
    # The package's reader ends without an error where the frame is cut, and does not say what it has read.
    rest = len(data) - _zstd_frame_size(zstandard, data)
    if rest:
        raise ValueError(_CUT if rest < 0 else _FOLLOWED.format(rest))
    reader = zstandard.ZstdDecompressor().stream_reader(data)
    while done < size and (got := reader.readinto(room[done:])):
        done += got
    return done + len(reader.read(1))


def _zstd_frame_size(zstandard: Any, data: memoryview) -> int:
    """The size of a ZSTD frame according to its headers (RFC 8878, section 3.1.1); more than the data if it is cut."""
    at: int = zstandard.frame_header_size(data)
    last = 0
    while not last:
        header = int.from_bytes(data[at : at + 3], "little")
        last, kind, size = header & 1, header >> 1 & 3, header >> 3
        at += 3 + (1 if kind == _ZSTD_RLE else size)
        if at > len(data):
            return at
    return at + 4 * zstandard.get_frame_parameters(data).has_checksum


_ZSTD_RLE = 1
"""The kind of a ZSTD block that is one byte, repeated."""


CODECS = {
    codec.name: codec
    for codec in (
        Codec("lz4", "LZ4_FRAME", (-65536, 16), 256, _compress_lz4, _decompress_lz4),
        Codec("zstd", "ZSTD", (-131072, 22), 1 << 16, _compress_zstd, _decompress_zstd),
    )
}
"""All codecs by name."""
