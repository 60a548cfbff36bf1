"""The structures of the C data and stream interfaces as numpy dtypes, and the capsules that hold them.

Invariants:

* exported structures are laid out in numpy memory and then copied by nanoarrow, whose release callbacks are compiled
  code: a callback written in Python would lose a pending exception, and crash after interpreter shutdown;
* imported structures are moved out of their capsules, as the specification requires, into memory of nanoarrow, whose
  compiled code releases them once. A second consumer of the capsule finds them released.
"""

from __future__ import annotations

import ctypes
from functools import cache, partial
from typing import Any

import numpy as np

from shmarrow.buffer import NDArray
from shmarrow.capsules import PyCapsule
from shmarrow.errors import InvalidArgument, InvalidData, InvalidType, ShmarrowError, full_name
from shmarrow.optional import optional

SCHEMA = np.dtype(
    [
        ("format", "<u8"), ("name", "<u8"), ("metadata", "<u8"), ("flags", "<i8"), ("n_children", "<i8"),
        ("children", "<u8"), ("dictionary", "<u8"), ("release", "<u8"), ("private_data", "<u8"),
    ]
)  # fmt: skip
"""``struct ArrowSchema``; pointers are addresses."""

ARRAY = np.dtype(
    [
        ("length", "<i8"), ("null_count", "<i8"), ("offset", "<i8"), ("n_buffers", "<i8"), ("n_children", "<i8"),
        ("buffers", "<u8"), ("children", "<u8"), ("dictionary", "<u8"), ("release", "<u8"), ("private_data", "<u8"),
    ]
)  # fmt: skip
"""``struct ArrowArray``."""

STREAM = np.dtype(
    [("get_schema", "<u8"), ("get_next", "<u8"), ("get_last_error", "<u8"), ("release", "<u8"), ("private_data", "<u8")]
)
"""``struct ArrowArrayStream``."""


def offset_of(struct: np.dtype[np.void], member: str) -> int:
    """Return the offset of a member in a structure, in bytes."""
    fields = struct.fields
    assert fields is not None
    return fields[member][1]


DICTIONARY_ORDERED, NULLABLE, MAP_KEYS_SORTED = 1, 2, 4
"""The flags of a schema."""


class KeptAlive:
    """Owner of the memory that structures point to, alive while any of them is in use.

    A consumer may drop the last reference on any thread, even while an exception is pending. So this class has no
    ``__del__``.
    """

    __slots__ = ("__weakref__", "kept")

    def __init__(self, kept: Any) -> None:
        self.kept = kept


class _AddressRange:
    """The array interface of memory at an address."""

    __slots__ = ("__array_interface__", "owner")

    def __init__(self, address: int, count: int, typestr: str, owner: Any) -> None:
        self.owner = owner
        self.__array_interface__ = {"shape": (count,), "typestr": typestr, "data": (address, True), "version": 3}


def array_at(address: int, count: int, typestr: str, owner: Any = None) -> NDArray:
    """Return memory at an address as a read-only ndarray, which keeps ``owner`` alive."""
    return np.asarray(_AddressRange(address, count, typestr, owner))


def address_of(data: NDArray) -> int:
    """Return the address of an ndarray's memory."""
    address: int = data.view(np.uint8).__array_interface__["data"][0]  # of structures, it would also describe them
    return address


@cache
def native() -> Any:
    """Return nanoarrow; MissingExtra if it is not installed."""
    return optional("nanoarrow")


_pointer = ctypes.pythonapi.PyCapsule_GetPointer
_pointer.restype = ctypes.c_void_p
_pointer.argtypes = (ctypes.py_object, ctypes.c_char_p)


def pointer(capsule: PyCapsule, name: str) -> int:
    """Return the pointer in a capsule named ``arrow_schema``, ``arrow_array`` or ``arrow_array_stream``.

    Raises
    ------
    InvalidType
        If it is not a capsule of this name.
    """
    try:
        return int(_pointer(capsule, name.encode()))
    except (ValueError, TypeError, ctypes.ArgumentError):
        raise InvalidType(f"expected a PyCapsule named {name!r}, found {full_name(capsule)}") from None


def move(capsule: PyCapsule, name: str) -> Any:
    """Move a structure out of its capsule.

    Parameters
    ----------
    capsule : PyCapsule
        The capsule of a structure, which is then marked as released.
    name : str
        ``arrow_schema`` or ``arrow_array``.

    Returns
    -------
    nanoarrow.c_schema.CSchema or nanoarrow.c_array.CArray
        The new owner, which releases the structure; its address is ``_addr()``.

    Raises
    ------
    InvalidType
        If it is not a capsule of this name.
    InvalidData
        If the structure has been released, or moved by another consumer.
    MissingExtra
        If nanoarrow is not installed.
    """
    source = pointer(capsule, name)
    allocate, words = _room(name)
    made = allocate()
    at, target = words.from_address(source), words.from_address(made._addr())
    # Of all threads that import the capsule, in any library, only one gets the callback: CPython does not switch
    # threads between these two lines, neither of which calls a function.
    release = at[-2]
    at[-2] = 0
    if not release:
        kind = "ArrowSchema" if name == "arrow_schema" else "ArrowArray"
        raise InvalidData(f"the {kind} has already been released; each capsule can be imported once")
    ctypes.memmove(target, at, ctypes.sizeof(words))
    target[-2] = release
    return made


@cache
def _room(name: str) -> tuple[Any, Any]:
    """Return the allocator of a structure and its ctypes array type; the last words are ``release`` and its data."""
    new_schema = native()._schema.CSchema.allocate
    if name == "arrow_schema":
        return new_schema, ctypes.c_uint64 * (SCHEMA.itemsize // 8)
    return partial(native()._array.CArray.allocate, new_schema()), ctypes.c_uint64 * (ARRAY.itemsize // 8)


def ask(obj: object, method: str) -> Any:
    """Call a PyCapsule interface method of another library's object.

    Raises
    ------
    InvalidArgument
        If the method raises, with its error as the cause: it was read before, for example, or its query failed.
    """
    try:
        return getattr(obj, method)()
    except ShmarrowError:
        raise
    except Exception as error:
        raise InvalidArgument(f"{full_name(obj)}.{method}() failed: {type(error).__name__}: {error}") from error
