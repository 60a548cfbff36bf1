"""Compressed bodies: each buffer by itself, LZ4 frames or ZSTD ("Compression").

A compressed buffer is its decompressed size as a 64-bit number and the compressed bytes; a size of -1 says that the
bytes are stored as they are. Rules kept here:

* the size that a buffer claims is checked against the limits before anything is allocated, and against what comes out;
* the codecs release the interpreter, so buffers that do not depend on each other go through a small pool of threads;
* fresh memory costs a third of what LZ4 does, so what decompressed arrays leave behind is used again, up to 512 MiB;
  until then the kernel may take it back at any time.
"""

from __future__ import annotations

import functools
import itertools
import os
import struct
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from shmarrow.buffer import Bytes, padded
from shmarrow.errors import InvalidArgument, InvalidData, LimitExceeded, Limits
from shmarrow.ipc.batch.memory import _POOLED, _memory
from shmarrow.ipc.flatbuffers.tables import ENUMS
from shmarrow.ipc.options import IpcWriteOptions
from shmarrow.layout.memory import EMPTY

if TYPE_CHECKING:
    from concurrent.futures import ThreadPoolExecutor

_LENGTH = struct.Struct("<q")
_NAMES = {number: name for name, number in ENUMS["CompressionType"].items()}


class Decompressor:
    """Decompresses the buffers of one batch.

    Calling it with a buffer's bytes and its index gives the decompressed bytes: a copy, or a view where the buffer is
    stored raw.
    """

    __slots__ = ("_codec", "_left", "_limits")

    def __init__(self, codec: str, limits: Limits) -> None:
        self._codec = codec
        self._limits = limits
        self._left = limits.decompressed_bytes

    def forget(self) -> None:
        """Start to count anew: the limit holds for one column at a time."""
        self._left = self._limits.decompressed_bytes

    def all(self, parts: Sequence[Bytes], indices: Sequence[int]) -> list[Bytes]:
        """Many buffers at once, on a few threads where that pays; the limit holds for all of them together."""
        sizes = [self._claim(data, index) for data, index in zip(parts, indices, strict=True)]
        self.forget()
        # Small ones share a piece of memory; each large one has its own, so that who keeps it keeps nothing else.
        rooms = [padded(size) if 0 < size < _POOLED else 0 for size in sizes]
        ends = list(itertools.accumulate(rooms))
        if sum([size for size in sizes if size > 0]) < _WORTH_THREADS:
            return [self._open(*item) for item in zip(parts, indices, sizes, strict=True)]
        arena = _memory(ends[-1])
        spans = zip(ends, rooms, sizes, strict=True)
        targets = [arena[end - room : end - room + size] if room else None for end, room, size in spans]
        return list(pool().map(self._open, parts, indices, sizes, targets))

    def __call__(self, data: Bytes, index: int) -> Bytes:
        return self._open(data, index, self._claim(data, index))

    def _claim(self, data: Bytes, index: int) -> int:
        """The size that a buffer says it holds, -1 for a raw one, after a check against the limit."""
        if len(data) < 8:
            raise InvalidData(f"compressed buffer {index} needs 8 bytes for its length but has {len(data)}")
        (size,) = _LENGTH.unpack_from(data.data, 0)
        if size < -1:
            raise InvalidData(f"compressed buffer {index} says that it holds {size} bytes")
        if size > self._left:
            raise LimitExceeded(
                f"compressed buffer {index} says that it holds {size} bytes, "
                f"over what Limits.decompressed_bytes = {self._limits.decompressed_bytes} leaves"
            )
        self._left -= max(size, 0)
        return int(size)

    def _open(self, data: Bytes, index: int, size: int, target: Bytes | None = None) -> Bytes:
        if size == -1:
            return data[8:]
        if not size:
            return EMPTY
        return decompress(self._codec, data[8:], size, f"compressed buffer {index}", target)


def decompressor(codec: int, method: int, where: str, limits: Limits) -> Decompressor:
    """What decompresses the buffers of a batch, by the numbers in its BodyCompression table."""
    if codec not in _NAMES:
        raise InvalidData(f"{where}: compression codec {codec}, expected one of {sorted(_NAMES)}")
    if method not in ENUMS["BodyCompressionMethod"].values():
        raise InvalidData(f"{where}: body compression method {method}, expected 0")
    return Decompressor(_NAMES[codec], limits)


_PART = 1 << 20
# No frame of a codec decompresses to more than so many times its own bytes, so a claim beyond is known to be wrong.
_MOST_RATIO = {"LZ4_FRAME": 256, "ZSTD": 1 << 16}


def decompress(codec: str, data: Bytes, size: int, what: str, target: Bytes | None = None) -> Bytes:
    """Exactly ``size`` decompressed bytes, in the memory given or in their own.

    Raises
    ------
    InvalidData
        If the bytes are no frame of the codec, or hold fewer or more bytes.
    """
    if size > _MOST_RATIO[codec] * (len(data) + 64):
        raise InvalidData(f"{what}: {len(data)} bytes of {codec} cannot hold the {size} that it says")
    try:
        if target is None:
            target = _memory(size)
        found = _DECOMPRESS[codec](data.data, target)
    except (RuntimeError, ValueError, OverflowError, MemoryError) as error:
        raise InvalidData(f"{what}: no {codec} frame of {size} bytes: {error or type(error).__name__}") from None
    if found != size:
        raise InvalidData(f"{what}: expected {size} decompressed bytes, found {'more' if found > size else found}")
    target.flags.writeable = False
    return target


def _decompress_lz4(data: memoryview, target: Bytes) -> int:
    """Fill the target from an LZ4 frame; gives how many bytes came, and one more if there was no room for all."""
    library = _lz4_library()
    return _decompress_lz4_pieces(data, target) if library is None else _decompress_lz4_whole(library, data, target)


@functools.cache
def _lz4_library() -> Any:
    """The C library that the package lz4 carries, where that lets others call it; else None."""
    import ctypes

    import lz4.frame

    try:
        library = ctypes.CDLL(lz4.frame._frame.__file__)
        size, pointer = ctypes.c_size_t, ctypes.c_void_p
        for name, result, arguments in (
            ("LZ4F_createDecompressionContext", size, (pointer, ctypes.c_uint)),
            ("LZ4F_decompress", size, (pointer, pointer, pointer, pointer, pointer, pointer)),
            ("LZ4F_isError", ctypes.c_uint, (size,)),
            ("LZ4F_getErrorName", ctypes.c_char_p, (size,)),
            ("LZ4F_freeDecompressionContext", size, (pointer,)),
        ):
            function = getattr(library, name)
            function.restype, function.argtypes = result, arguments
    except (OSError, AttributeError):
        return None
    return library


_LZ4F_VERSION = 100


def _decompress_lz4_whole(library: Any, data: memoryview, target: Bytes) -> int:
    """As :func:`_decompress_lz4`, straight into the target: what the package itself offers makes a copy first."""
    from ctypes import byref, c_size_t, c_void_p

    source = np.frombuffer(data, np.uint8)
    spill = np.empty(1, np.uint8)
    start, total = source.ctypes.data, len(source)
    place, over, size = target.ctypes.data, spill.ctypes.data, len(target)
    context, read, done = c_void_p(), 0, 0
    if library.LZ4F_isError(library.LZ4F_createDecompressionContext(byref(context), _LZ4F_VERSION)):
        raise MemoryError
    try:
        while True:
            wrote, took = c_size_t(size - done or 1), c_size_t(total - read)
            into = place + done if done < size else over
            left = library.LZ4F_decompress(context, into, byref(wrote), start + read, byref(took), None)
            if library.LZ4F_isError(left):
                raise RuntimeError(library.LZ4F_getErrorName(left).decode())
            if wrote.value and done == size:
                return size + 1
            done, read = done + wrote.value, read + took.value
            if not left or not (wrote.value or took.value):
                return done
    finally:
        library.LZ4F_freeDecompressionContext(context)


def _decompress_lz4_pieces(data: memoryview, target: Bytes) -> int:
    """As :func:`_decompress_lz4`, by what the package offers."""
    import lz4.frame

    context = lz4.frame.create_decompression_context()
    done, size = 0, len(target)
    rest: Any = data
    while True:
        # A piece that stays in the cache is copied faster than a large one is made.
        part, read, ended = lz4.frame.decompress_chunk(context, rest, max_length=min(size - done, _PART) or 1)
        if part:
            if done == size:
                return size + 1
            target[done : done + len(part)] = np.frombuffer(part, np.uint8)
            done += len(part)
        if ended or (not part and not read):
            return done
        rest = rest[read:]


def _decompress_zstd(data: memoryview, target: Bytes) -> int:
    """Fill the target from a ZSTD frame; as :func:`_decompress_lz4`."""
    import zstandard

    done, size = 0, len(target)
    room = target.data
    try:
        reader = zstandard.ZstdDecompressor().stream_reader(data)
        while done < size and (got := reader.readinto(room[done:])):
            done += got
        return done + len(reader.read(1))
    except zstandard.ZstdError as error:
        raise ValueError(str(error)) from None


_DECOMPRESS: dict[str, Callable[[memoryview, Bytes], int]] = {
    "LZ4_FRAME": _decompress_lz4,
    "ZSTD": _decompress_zstd,
}


# --- writing ----------------------------------------------------------------------------------------------------


def compress(buffers: Sequence[Bytes], options: IpcWriteOptions) -> list[Bytes]:
    """Buffers as they go into a compressed body; those that do not shrink enough are stored raw, empty ones empty."""
    make = _compressor(options)

    def one(data: Bytes) -> Bytes:
        if not len(data):
            return data
        packed = make(data.data)
        if len(packed) >= len(data) * (1 - options.min_space_savings):
            return np.concatenate([np.frombuffer(_LENGTH.pack(-1), np.uint8), data])
        return np.frombuffer(_LENGTH.pack(len(data)) + packed, np.uint8)

    if options.use_threads and len(buffers) > 1 and sum(map(len, buffers)) > _WORTH_THREADS:
        return list(pool().map(one, buffers))
    return [one(data) for data in buffers]


_WORTH_THREADS = 1 << 20


def _compressor(options: IpcWriteOptions) -> Callable[[memoryview], bytes]:
    level = options.compression_level
    if options.compression == "lz4":
        import lz4.frame

        found = _level("LZ4", 0 if level is None else level, lz4.frame.COMPRESSIONLEVEL_MAX)
        return lambda data: lz4.frame.compress(data, compression_level=found, store_size=True)
    import zstandard

    found = _level("ZSTD", 1 if level is None else level, zstandard.MAX_COMPRESSION_LEVEL)
    return lambda data: zstandard.ZstdCompressor(level=found).compress(data)


def _level(codec: str, level: int, top: int) -> int:
    if not isinstance(level, int) or not _FASTEST <= level <= top:
        raise InvalidArgument(f"a level of {codec} is an int from {_FASTEST} to {top}, found {level!r}")
    return level


_FASTEST = -(1 << 16)
"""The lowest level: negative ones trade size for speed."""


_POOL: tuple[int, ThreadPoolExecutor] | None = None


def pool() -> ThreadPoolExecutor:
    """The threads that compress and decompress; a forked child makes its own."""
    global _POOL
    if _POOL is None or _POOL[0] != os.getpid():
        from concurrent.futures import ThreadPoolExecutor

        workers = min(len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1, 8)
        _POOL = (os.getpid(), ThreadPoolExecutor(workers, "shmarrow-codec"))
    return _POOL[1]
