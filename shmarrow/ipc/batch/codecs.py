"""Body compression: buffers compressed individually with LZ4 frame or ZSTD ("Compression").

A compressed buffer is its decompressed size as int64, followed by the compressed bytes; a size of -1 marks a buffer
that is stored raw. Invariants:

* the declared size is checked against the limits before allocation, and against the actual size after decompression;
* codecs release the GIL, so buffers are decompressed on a small thread pool when that pays;
* each decompressed buffer has its own allocation, so keeping one keeps no other alive.
"""

from __future__ import annotations

import _thread
import functools
import os
import struct
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from shmarrow.buffer import Bytes
from shmarrow.errors import InvalidData, LimitExceeded, Limits
from shmarrow.ipc.batch.memory import allocate
from shmarrow.ipc.flatbuffers.tables import ENUMS
from shmarrow.ipc.options import IpcWriteOptions
from shmarrow.layout.memory import EMPTY

if TYPE_CHECKING:
    from concurrent.futures import ThreadPoolExecutor

_LENGTH = struct.Struct("<q")
_NAMES = {number: name for name, number in ENUMS["CompressionType"].items()}


class Decompressor:
    """Decompresses buffers of a batch. Immutable: threads may share one."""

    __slots__ = ("_codec", "_limits")

    def __init__(self, codec: str, limits: Limits) -> None:
        self._codec = codec
        self._limits = limits

    def columns(self, columns: Sequence[Sequence[tuple[int, Bytes]]], at_most: int | None = None) -> dict[int, Bytes]:
        """Decompress the buffers of some columns, by index: copies, or views of buffers stored raw.

        Parameters
        ----------
        columns : sequence of sequences of (int, uint8 ndarray)
            The index and bytes of each buffer of each column. The limit applies per column.
        at_most : int, optional
            For a dictionary, the bytes left of ``Limits.dictionary_bytes``.

        Raises
        ------
        InvalidData
            If a buffer breaks the format.
        LimitExceeded
            If the buffers of a column declare more than ``Limits.decompressed_bytes`` or ``at_most``.
        """
        buffers = [buffer for column in columns for buffer in column]
        sizes = [size for column in columns for size in self._claims(column, at_most)]
        threads = len(buffers) > 1 and sum(sizes) >= _WORTH_THREADS
        found = in_threads(self._open, buffers, sizes) if threads else list(map(self._open, buffers, sizes))
        return {index: data for (index, _), data in zip(buffers, found, strict=True)}

    def _claims(self, column: Sequence[tuple[int, Bytes]], at_most: int | None) -> list[int]:
        """The declared sizes of a column's buffers, checked against the limits."""
        claims = [self._claim(index, data) for index, data in column]
        total, most = sum([size for size in claims if size > 0]), self._limits.decompressed_bytes
        if total > most:
            raise LimitExceeded(
                f"compressed buffers {column[0][0]} to {column[-1][0]} declare {total} bytes, "
                f"more than Limits.decompressed_bytes = {most}"
            )
        if at_most is not None and total > at_most + 8 * len(column):
            raise LimitExceeded(
                f"compressed buffers {column[0][0]} to {column[-1][0]} declare {total} bytes, "
                f"more than the {at_most} left of Limits.dictionary_bytes = {self._limits.dictionary_bytes}"
            )
        return claims

    def _claim(self, index: int, data: Bytes) -> int:
        """The declared decompressed size of a buffer; -1 if stored raw."""
        if len(data) < 8:
            raise InvalidData(f"compressed buffer {index} needs 8 bytes for its length, found {len(data)}")
        size: int = _LENGTH.unpack_from(data.data, 0)[0]
        if size < -1:
            raise InvalidData(f"compressed buffer {index} declares {size} bytes")
        if size > _MOST_RATIO[self._codec] * (len(data) + 64):
            raise InvalidData(
                f"compressed buffer {index}: {len(data)} bytes of {self._codec} cannot hold the declared {size}"
            )
        return size

    def _open(self, buffer: tuple[int, Bytes], size: int) -> Bytes:
        index, data = buffer
        if size == -1:
            return data[8:]
        return decompress(self._codec, data[8:], size, f"compressed buffer {index}") if size else EMPTY


def decompressor(codec: int, method: int, where: str, limits: Limits) -> Decompressor:
    """The decompressor for the codec and method of a BodyCompression table."""
    if codec not in _NAMES:
        raise InvalidData(f"{where}: compression codec {codec}, expected one of {sorted(_NAMES)}")
    if method not in ENUMS["BodyCompressionMethod"].values():
        raise InvalidData(f"{where}: body compression method {method}, expected 0")
    return Decompressor(_NAMES[codec], limits)


_PART = 1 << 20
# Maximum compression ratio of each codec; a larger declared size is invalid.
_MOST_RATIO = {"LZ4_FRAME": 256, "ZSTD": 1 << 16}


def decompress(codec: str, data: Bytes, size: int, what: str) -> Bytes:
    """Decompress to exactly ``size`` bytes of newly allocated memory.

    Raises
    ------
    InvalidData
        If the bytes are not a frame of the codec, or decompress to another size.
    """
    target = allocate(size)
    try:
        found = _DECOMPRESS[codec](data.data, target)
    except (RuntimeError, ValueError, OverflowError, MemoryError) as error:
        raise InvalidData(f"{what}: invalid {codec} frame: {error or type(error).__name__}") from None
    if found != size:
        raise InvalidData(f"{what}: expected {size} decompressed bytes, found {'more' if found > size else found}")
    target.flags.writeable = False
    return target


def _decompress_lz4(data: memoryview, target: Bytes) -> int:
    """Decompress an LZ4 frame into the target; returns the bytes written, plus one if the target was too small."""
    library = _lz4_library() if len(target) >= _WORTH_CALLING else None
    return _decompress_lz4_pieces(data, target) if library is None else _decompress_lz4_whole(library, data, target)


@functools.cache
def _lz4_library() -> Any:
    """The C library bundled with the lz4 package; None if its symbols are not exported."""
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
_WORTH_CALLING = 1 << 18
"""Minimum size to call the C library directly: three times as fast for 1 MiB, but three times as slow for 4 KiB."""


def _decompress_lz4_whole(library: Any, data: memoryview, target: Bytes) -> int:
    """As :func:`_decompress_lz4`, directly into the target; the package's own API makes an extra copy."""
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
    """As :func:`_decompress_lz4`, with the package's own API."""
    import lz4.frame

    context = lz4.frame.create_decompression_context()
    done, size = 0, len(target)
    rest: Any = data
    while True:
        # Small pieces stay in the CPU cache, so copying them costs less than decompressing one large piece.
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
    """Decompress a ZSTD frame; as :func:`_decompress_lz4`."""
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
    """Compress buffers for a body; buffers that do not shrink enough are stored raw, empty ones stay empty."""
    make = _compressor(options)

    def one(data: Bytes) -> Bytes:
        if not len(data):
            return data
        packed = make(data.data)
        if len(packed) >= len(data) * (1 - options.min_space_savings):
            return np.concatenate([np.frombuffer(_LENGTH.pack(-1), np.uint8), data])
        return np.frombuffer(_LENGTH.pack(len(data)) + packed, np.uint8)

    if options.use_threads and len(buffers) > 1 and sum(map(len, buffers)) > _WORTH_THREADS:
        return in_threads(one, buffers)
    return [one(data) for data in buffers]


def _compressor(options: IpcWriteOptions) -> Callable[[memoryview], bytes]:
    level = options.compression_level
    if options.compression == "lz4":
        import lz4.frame

        return lambda data: lz4.frame.compress(data, compression_level=level or 0, store_size=True)
    import zstandard

    found = 1 if level is None else level
    return lambda data: zstandard.ZstdCompressor(level=found).compress(data)


# --- threads ----------------------------------------------------------------------------------------------------

_WORTH_THREADS = 1 << 20
_pool: ThreadPoolExecutor | None = None
_pool_lock = _thread.allocate_lock()


def in_threads(function: Callable[..., Any], *arguments: Sequence[Any]) -> list[Any]:
    """Like ``list(map(...))`` on a thread pool; on the calling thread if no thread can be started."""
    try:
        results = pool().map(function, *arguments)
    except RuntimeError:  # no more threads, or the interpreter is shutting down
        return list(map(function, *arguments))
    return list(results)


def pool() -> ThreadPoolExecutor:
    """The thread pool for compression, created on first use; a forked child creates its own."""
    global _pool
    if _pool is None:
        from concurrent.futures import ThreadPoolExecutor

        with _pool_lock:
            if _pool is None:
                usable = os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else range(os.cpu_count() or 1)
                _pool = ThreadPoolExecutor(min(len(usable), 8), "shmarrow-codec")
    return _pool


def _forget_pool() -> None:
    """After a fork: the child has no pool threads, and the lock's owner may not exist in it."""
    global _pool, _pool_lock
    _pool, _pool_lock = None, _thread.allocate_lock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_pool)
