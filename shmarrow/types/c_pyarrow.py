# SPDX-License-Identifier: Apache-2.0
"""pyarrow in place of nanoarrow, where that is not installed: the same few classes, over pyarrow's compiled callbacks.

* memory for a structure is that of a capsule made by pyarrow, whose destructor releases what was moved into it;
* a schema is imported by pyarrow and exported again, so types that pyarrow lacks are refused;
* an array takes the place of one of pyarrow's that keeps our memory alive, is imported by pyarrow without copying a
  buffer, and exported again: then each child is a structure of its own that a consumer may move.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any

from shmarrow.errors import Unsupported, optional
from shmarrow.types import c_schema

_RELEASE = ctypes.CFUNCTYPE(None, ctypes.c_void_p)
_AT_RELEASE = -2
"""The place of the callback in the words of a structure; its data follow it."""


def _tree(memory: c_schema.KeptAlive, address: int, struct: Any) -> Any:
    """The words of the structures that are laid out from an address on, a row for each."""
    words = memory.kept[1]
    return words[(address - c_schema.address_of(words)) // 8 :].reshape(-1, struct.itemsize // 8)


def _words(struct: Any, address: int) -> Any:
    return (ctypes.c_uint64 * (struct.itemsize // 8)).from_address(address)


def _marks(struct: Any) -> tuple[Any, int]:
    """A callback that marks a structure of ours as released, and its address; pyarrow's import calls it, and no other.

    For a schema it is called when all is read, for the children of an array if it is refused.
    """

    def mark(address: int) -> None:
        _words(struct, address)[_AT_RELEASE] = 0

    callback = _RELEASE(mark)
    return callback, ctypes.cast(callback, ctypes.c_void_p).value or 0


_SCHEMA_MARK, _SCHEMA_MARK_AT = _marks(c_schema.SCHEMA)
_ARRAY_MARK, _ARRAY_MARK_AT = _marks(c_schema.ARRAY)


def _taken(take: Callable[..., Any], *structures: Any) -> Any:
    """Import structures into pyarrow; Unsupported if it has no such type."""
    try:
        return take(*structures)
    except (optional("pyarrow").ArrowException, KeyError) as error:  # KeyError: types without a Python class
        raise Unsupported(
            f"pyarrow has no type for this: {error}", hint="without nanoarrow, pyarrow exports: pip install nanoarrow"
        ) from None


class Room:
    """Memory for a structure, which is released with it.

    Parameters
    ----------
    capsule : PyCapsule
        The capsule of a structure that is not needed.
    struct : dtype
        :data:`~shmarrow.types.c_schema.SCHEMA` or ``ARRAY``.
    """

    def __init__(self, capsule: Any, struct: Any) -> None:
        self._capsule = capsule
        self._struct = struct
        self._address = c_schema.pointer(capsule, "arrow_schema" if struct is c_schema.SCHEMA else "arrow_array")
        _RELEASE(_words(struct, self._address)[_AT_RELEASE])(self._address)

    def _addr(self) -> int:
        return self._address

    def is_valid(self) -> bool:
        """Whether it holds a structure that is not released."""
        return bool(_words(self._struct, self._address)[_AT_RELEASE])


class PyarrowSchema:
    """A schema that is laid out in memory of ours, as pyarrow's field."""

    def __init__(self, memory: c_schema.KeptAlive, address: int) -> None:
        _tree(memory, address, c_schema.SCHEMA)[0, _AT_RELEASE] = _SCHEMA_MARK_AT
        self.field = _taken(optional("pyarrow").Field._import_from_c, address)

    @staticmethod
    def allocate() -> Room:
        """Return memory for an ``ArrowSchema``."""
        return Room(optional("pyarrow").null().__arrow_c_schema__(), c_schema.SCHEMA)

    def __arrow_c_schema__(self) -> Any:
        return self.field.__arrow_c_schema__()


class PyarrowArray:
    """An array that is laid out in memory of ours."""

    def __init__(self, memory: c_schema.KeptAlive, address: int, schema: PyarrowSchema) -> None:
        self._memory = memory
        self._address = address
        self._schema = schema

    @staticmethod
    def allocate(schema: object) -> Room:
        """Return memory for an ``ArrowArray``."""
        return Room(optional("pyarrow").nulls(0).__arrow_c_array__()[1], c_schema.ARRAY)

    def imported(self, kind: str) -> Any:
        """Return it as an object of a class of pyarrow, which keeps the memory alive."""
        pa = optional("pyarrow")
        tree = _tree(self._memory, self._address, c_schema.ARRAY)
        owner = pa.py_buffer(c_schema.array_at(self._address, tree.nbytes, "|u1", self._memory))
        capsule = pa.Array.from_buffers(pa.uint8(), 0, [None, owner]).__arrow_c_array__()[1]
        tree[:, _AT_RELEASE] = _ARRAY_MARK_AT
        target = _words(c_schema.ARRAY, c_schema.pointer(capsule, "arrow_array"))
        target[:_AT_RELEASE] = _words(c_schema.ARRAY, self._address)[:_AT_RELEASE]
        array = _taken(getattr(pa, kind)._import_from_c_capsule, self._schema.__arrow_c_schema__(), capsule)
        tree[:, _AT_RELEASE] = 0  # pyarrow has read the children, and releases them with their parent
        return array

    def __arrow_c_array__(self) -> Any:
        return self.imported("Array").__arrow_c_array__()


def stream(trees: Sequence[Any], schema: PyarrowSchema) -> Any:
    """Return the capsule of a stream of arrays, which are rows if the schema is that of a table."""
    pa = optional("pyarrow")
    field = schema.field
    if field.nullable:
        chunks = [PyarrowArray(tree.memory, tree.address, schema).imported("Array") for tree in trees]
        return pa.chunked_array(chunks, field.type).__arrow_c_stream__()
    batches = [PyarrowArray(tree.memory, tree.address, schema).imported("RecordBatch") for tree in trees]
    return pa.RecordBatchReader.from_batches(pa.schema(list(field.type), field.metadata), batches).__arrow_c_stream__()


_schema = SimpleNamespace(CSchema=PyarrowSchema)
_array = SimpleNamespace(CArray=PyarrowArray)
