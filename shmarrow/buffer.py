# SPDX-License-Identifier: Apache-2.0
"""Read-only byte buffers and their owners; alignment and padding.

Invariants:

* inside shmarrow a buffer is a one-dimensional ``uint8`` ndarray, marked read-only. Its ``base`` chain is its
  owner: as long as any view of it lives, the mapping or the object that holds the bytes lives too;
* users get the same bytes as :class:`Buffer`, which adds an address and a conversion to ``bytes``;
* what shmarrow writes is aligned to 64 bytes; what it reads may have any alignment.
"""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np

from shmarrow.errors import InvalidType, full_name

NDArray: TypeAlias = np.ndarray[tuple[Any, ...], np.dtype[Any]]
Bytes: TypeAlias = np.ndarray[tuple[Any, ...], np.dtype[np.uint8]]
Indices: TypeAlias = np.ndarray[tuple[Any, ...], np.dtype[np.int64]]
Mask: TypeAlias = np.ndarray[tuple[Any, ...], np.dtype[np.bool_]]
Words: TypeAlias = np.ndarray[tuple[Any, ...], np.dtype[np.uint64]]
DType: TypeAlias = np.dtype[Any]

ALIGNMENT = 64
PADDING = bytes(ALIGNMENT)
U1 = np.dtype("u1")
EMPTY: Bytes = np.empty(0, U1)
EMPTY.flags.writeable = False


def padded(size: int, alignment: int = ALIGNMENT) -> int:
    """Round ``size`` up to a multiple of ``alignment``, a power of two."""
    return (size + alignment - 1) & -alignment


def as_bytes(source: Any) -> Bytes:
    """View any object with the buffer protocol as a read-only ``uint8`` ndarray, without copying.

    Raises
    ------
    InvalidType
        If ``source`` has no buffer, or one that is not C-contiguous.
    """
    if isinstance(source, np.ndarray):
        if not source.flags.c_contiguous:
            raise InvalidType("expected a C-contiguous buffer, found an ndarray with gaps or another order")
        if source.dtype.hasobject:
            raise InvalidType(f"expected bytes, found an ndarray of {source.dtype}, which holds references")
        view = source.reshape(-1).view(U1)
    else:
        try:
            view = np.frombuffer(source, U1) if memoryview(source).nbytes else np.empty(0, U1)
        except TypeError:
            raise InvalidType(f"expected a bytes-like object, found {full_name(source)}") from None
        except (ValueError, BufferError) as error:
            raise InvalidType(f"expected a bytes-like object, found {type(source).__name__}: {error}") from None
    if view.flags.writeable:
        view = view.view()
        view.flags.writeable = False
    return view


class Buffer(Bytes):
    """A read-only buffer, as returned by ``Array.buffers()``; a view, never a copy.

    It is a ``uint8`` ndarray of shape (nbytes,) and supports the buffer protocol. The memory lives as long as the
    buffer does.
    """

    @property
    def address(self) -> int:
        """The address of the first byte."""
        return int(self.ctypes.data)

    def to_pybytes(self) -> bytes:
        """Return a copy of the bytes."""
        return self.tobytes()
