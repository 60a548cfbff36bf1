# SPDX-License-Identifier: Apache-2.0
"""Body compression: buffers compressed individually with LZ4 frame or ZSTD ("Compression").

A compressed buffer is its decompressed size as int64, followed by the compressed bytes; a size of -1 marks a buffer
that is stored raw. Invariants:

* the declared size is checked against the limits before allocation, and against the actual size after decompression;
* a frame is complete, and all of its buffer: nothing is cut or follows it;
* codecs release the GIL, so a few threads share the work on large buffers;
* each decompressed buffer has its own allocation, so keeping one keeps no other alive.
"""

from __future__ import annotations

import mmap
import os
import struct
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np

from shmarrow.buffer import EMPTY, U1, Bytes
from shmarrow.errors import DEFAULT_LIMITS, MORE_MEMORY, InvalidData, LimitExceeded, Limits
from shmarrow.ipc.compression import CODECS, Codec
from shmarrow.ipc.flatbuffers.tables import ENUMS
from shmarrow.ipc.options import IpcWriteOptions

if TYPE_CHECKING:
    from concurrent.futures import ThreadPoolExecutor

_LENGTH = struct.Struct("<q")
_NUMBERED = {ENUMS["CompressionType"][codec.member]: codec for codec in CODECS.values()}


class Decompressor:
    """Decompresses buffers of a batch. Immutable: threads may share one."""

    __slots__ = ("_codec", "_limits")

    def __init__(self, codec: Codec, limits: Limits) -> None:
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
        try:
            parts = in_threads(self._open, buffers, sizes) if threads else list(map(self._open, buffers, sizes))
            return {index: data for (index, _), data in zip(buffers, parts, strict=True)}
        except MemoryError:
            raise LimitExceeded(f"not enough memory to decompress {sum(sizes)} bytes") from None

    def _claims(self, column: Sequence[tuple[int, Bytes]], at_most: int | None) -> list[int]:
        """The declared sizes of a column's buffers, checked against the limits."""
        claims = [self._claim(index, data) for index, data in column]
        total = sum([size for size in claims if size > 0])
        most = self._limits.most_decompressed(sum([len(data) for _, data in column]))
        if total > most:
            raise LimitExceeded(
                f"compressed buffers {column[0][0]} to {column[-1][0]} declare {total} bytes, "
                f"more than Limits.decompressed_bytes = {most}",
                hint=MORE_MEMORY,
            )
        if at_most is not None and total > at_most + 8 * len(column):
            raise LimitExceeded(
                f"compressed buffers {column[0][0]} to {column[-1][0]} declare {total} bytes, "
                f"more than the {at_most} left of Limits.dictionary_bytes = {self._limits.dictionary_bytes}",
                hint=MORE_MEMORY,
            )
        return claims

    def _claim(self, index: int, data: Bytes) -> int:
        """The declared decompressed size of a buffer; -1 if stored raw."""
        if len(data) < 8:
            raise InvalidData(f"compressed buffer {index} needs 8 bytes for its length, found {len(data)}")
        size: int = _LENGTH.unpack_from(data.data, 0)[0]
        if size < -1:
            raise InvalidData(f"compressed buffer {index} declares {size} bytes")
        if size > self._codec.most_ratio * (len(data) + 64):
            raise InvalidData(
                f"compressed buffer {index}: {len(data)} bytes of {self._codec.member} cannot hold the declared {size}"
            )
        return size

    def _open(self, buffer: tuple[int, Bytes], size: int) -> Bytes:
        index, data = buffer
        if size == -1:
            return data[8:]
        return decompress(self._codec, data[8:], size, f"compressed buffer {index}") if size else EMPTY


def decompressor(codec: int, method: int, where: str, limits: Limits) -> Decompressor:
    """The decompressor for the codec and method of a BodyCompression table."""
    if codec not in _NUMBERED:
        raise InvalidData(f"{where}: compression codec {codec}, expected one of {sorted(_NUMBERED)}")
    if method not in ENUMS["BodyCompressionMethod"].values():
        raise InvalidData(f"{where}: body compression method {method}, expected 0")
    return Decompressor(_NUMBERED[codec], limits)


def codec_name(number: int) -> str:
    """Return the name of a codec in options, by its number in the BodyCompression table."""
    return _NUMBERED[number].name if number in _NUMBERED else f"codec {number}"


def decompress(codec: Codec, data: Bytes, size: int, what: str) -> Bytes:
    """Decompress a frame to exactly ``size`` bytes of newly allocated memory.

    The frame must be complete, with its end mark and checksum, and nothing may follow it.

    Raises
    ------
    InvalidData
        If the bytes are not such a frame of the codec, or decompress to another size.
    LimitExceeded
        If there is not enough memory.
    """
    try:
        target = np.empty(size, U1)
        length = codec.decompress(data.data, target)
    except MemoryError:
        raise LimitExceeded(f"{what}: not enough memory to decompress {size} bytes") from None
    except (RuntimeError, ValueError, OverflowError) as error:
        raise InvalidData(f"{what}: invalid {codec.member} frame: {error or type(error).__name__}") from None
    if length != size:
        raise InvalidData(f"{what}: expected {size} decompressed bytes, found {'more' if length > size else length}")
    target.flags.writeable = False
    return target


# --- writing ----------------------------------------------------------------------------------------------------


def compress(buffers: Sequence[Bytes], starts: Sequence[int], options: IpcWriteOptions) -> list[Bytes]:
    """Compress buffers for a body; buffers that do not shrink enough are stored raw, empty ones stay empty.

    Parameters
    ----------
    starts : sequence of int
        The first buffer of each column.

    Raises
    ------
    LimitExceeded
        If there is not enough memory, or a column shrinks so much that readers refuse it by default.
    """

    def one(data: Bytes) -> Bytes:
        if not len(data):
            return data
        packed = codec.compress(data.data, options.compression_level)
        if len(packed) >= len(data) * (1 - options.min_space_savings):
            return np.concatenate([np.frombuffer(_LENGTH.pack(-1), np.uint8), data])
        return np.frombuffer(_LENGTH.pack(len(data)) + packed, np.uint8)

    total = sum(map(len, buffers))
    try:
        codec = CODECS[str(options.compression)]
        if options.use_threads and len(buffers) > 1 and total > _WORTH_THREADS:
            packed = in_threads(one, buffers)
        else:
            packed = [one(data) for data in buffers]
    except (MemoryError, RuntimeError, OverflowError) as error:  # what the codecs raise if they cannot allocate
        raise LimitExceeded(f"cannot compress {total} bytes: {str(error) or 'not enough memory'}") from None
    if total > DEFAULT_LIMITS.most_decompressed(0):
        for column, (start, stop) in enumerate(pairwise([*starts, len(buffers)])):
            size, small = (sum(map(len, each[start:stop])) for each in (buffers, packed))
            if size > DEFAULT_LIMITS.most_decompressed(small):
                raise LimitExceeded(
                    f"column {column}: its {size} bytes shrink to {small}, which readers refuse by default, as "
                    "malicious data may do that, too; see Limits.decompressed_bytes",
                    hint="write batches of fewer rows, or without compression",
                )
    return packed


# --- threads ----------------------------------------------------------------------------------------------------

_WORTH_THREADS = 1 << 20
_MOST_THREADS = 8
_ROOM = 160 << 20
"""Address space that each thread must find before it is started: for its stack, and up to 128 MiB of glibc's arena."""
_executor: ThreadPoolExecutor | None = None


def in_threads(function: Callable[..., Any], *arguments: Sequence[Any]) -> list[Any]:
    """Like ``list(map(...))``, on a few threads if there are any. The function must not have side effects.

    The threads are started on first use. A forked child has none of its parent's, and starts its own.
    """
    global _executor
    executor = _executor = _executor or _start_threads()
    if executor is not None:
        with suppress(RuntimeError):  # the interpreter is shutting down
            return list(executor.map(function, *arguments))
    return list(map(function, *arguments))


def _start_threads() -> ThreadPoolExecutor | None:
    """Start all threads before there is work, so that nothing waits for a thread that cannot start."""
    usable = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    count = min(usable, _MOST_THREADS)
    if count < 2:
        return None
    gate = threading.Event()
    executor = None
    try:
        from concurrent.futures import ThreadPoolExecutor

        executor = ThreadPoolExecutor(count, "shmarrow-codec")
        # Thread.start() waits forever for a thread that dies because there is no memory, so look for some first.
        mmap.mmap(-1, count * _ROOM).close()
        for _ in range(count):
            executor.submit(gate.wait)  # starts another thread, as those before it are busy
    except (ImportError, OSError, RuntimeError, MemoryError):
        if executor is not None:
            executor.shutdown(wait=False)
        return None
    finally:
        gate.set()
    return executor


def _forget_threads() -> None:
    global _executor
    _executor = None


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_threads)
