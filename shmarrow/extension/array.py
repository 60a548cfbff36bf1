# SPDX-License-Identifier: Apache-2.0
"""Arrays of extension types: the buffers and children of their storage, with the extension type.

Invariants:

* in memory, an extension array is its storage, so code that walks buffers and children needs no special case; gather,
  join and checks are delegated to a view as the storage array;
* Python values are those of the extension: the type converts them from and to the storage's values;
* types with additional accessors have their own array class, which names the type.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Self

from shmarrow.buffer import Indices, Mask, NDArray
from shmarrow.errors import InvalidData, InvalidType, ShmarrowError, clip, shown
from shmarrow.layout import Array
from shmarrow.layout.array import nulls
from shmarrow.layout.construct import array_class
from shmarrow.layout.preview import Budget
from shmarrow.types import DataType, ExtensionType, Field


class ExtensionArray(Array, of=ExtensionType):
    """Array of an extension type.

    A subclass for the arrays of a type names it: ``class PointArray(ExtensionArray, of=PointType)``.
    """

    __slots__ = ()

    @property
    def storage(self) -> Array:
        """Array of the storage type over the same buffers; zero-copy."""
        return self._storage

    @property
    def _storage(self) -> Array:
        return self._with(type=self._type.storage_type)

    def _part(self, name: str) -> Any:
        """A field of the storage, an array of structs."""
        structs: Any = self._storage
        return structs.field(name)

    @classmethod
    def from_storage(cls, type: Any, storage: Any) -> Self:
        """Create an array of an extension type from its storage array; zero-copy.

        Raises
        ------
        InvalidType
            If ``type`` is not an extension type, or ``storage`` does not have its storage type.
        """
        if not isinstance(type, ExtensionType):
            raise InvalidType(f"expected an ExtensionType, found {shown(type)}")
        if not isinstance(storage, Array) or storage.type != type.storage_type:
            storage_type = storage.type if isinstance(storage, Array) else storage.__class__.__name__
            raise InvalidType(f"{type}: expected a storage array of {type.storage_type}, found {storage_type}")
        of_storage: Any = storage
        return of_storage._with(type=type)

    def _under(self, storage: Any) -> Any:
        return storage._with(type=self._type)

    # --- delegated to the storage ---

    def _count_nulls(self) -> int:
        return self._storage._count_nulls()

    def _valid(self) -> Mask:
        return self._storage._valid()

    def _to_numpy(self, zero_copy_only: bool) -> NDArray:
        """The values of the storage as an ndarray."""
        return self._storage.to_numpy(zero_copy_only)

    def _gather(self, indices: Indices) -> Any:
        return self._under(self._storage._gather(indices))

    def _gather_valid(self, indices: Indices, valid: Mask) -> Any:
        return self._under(self._storage._gather_valid(indices, valid))

    def trim(self) -> Self:
        return self._under(self._storage.trim())

    @classmethod
    def _join(cls, arrays: Sequence[Any]) -> Any:
        storages = [array.storage for array in arrays]
        return arrays[0]._under(type(storages[0])._join(storages))

    def _same(self, other: Any, live: Mask | None) -> bool:
        return self._storage._same(other.storage, live)

    def _codes(self) -> Indices:
        from shmarrow.layout import codes

        return codes.slot_codes(self.storage)

    def _run_starts(self) -> Indices:
        return self._storage._run_starts()

    def _cast(self, target: Any, safe: bool) -> Any:
        return self._storage._cast_to(target, safe)

    def _referenced_only(self) -> Any:
        return self._under(self._storage._referenced_only())

    @classmethod
    def _cast_from(cls, array: Any, target: Any, safe: bool) -> Any:
        """Cast from the storage, or from the same extension and parameters over different storage."""
        source = array.type
        if isinstance(source, ExtensionType):
            if source.__class__ is not target.__class__ or source.serialize() != target.serialize():
                from shmarrow.casts import storage

                raise storage.no_cast(source, target)
            array = array.storage
        return cls.from_storage(target, array._cast_to(target.storage_type, safe))

    def _check_structure(self) -> None:
        self._storage._check_structure()

    def _check_references(self) -> None:
        self._storage._check_references()

    def _check_values(self) -> None:
        self._storage._check_values()

    def _safe_values(self) -> Any:
        storage = self._storage
        safe = storage._safe_values()
        return self if safe is storage else self._under(safe)

    def _windowed(self) -> Any:
        storage = self._storage
        window = storage._windowed()
        return self if window is storage else self._under(window)

    def _takes(self, field: Field, child_type: DataType) -> bool:
        return self._storage._takes(field, child_type)

    def _check_nullability(self, live: Mask | None) -> None:
        self._storage._check_nullability(live)

    def _logical_nulls(self) -> Mask | None:
        return self._storage._logical_nulls()

    # --- Python values ---

    def _item(self, index: int) -> Any:
        value = self._storage._item(index)
        return converted(self._type, self._type.to_python, [value], index)[0]

    def _pylist(self, valid: Mask | None) -> list[Any]:
        values: list[Any] = self._storage.to_pylist()
        if not _converts(self._type):
            return values
        return converted(self._type, self._type.to_python, values)

    def _item_preview(self, index: int, budget: Budget) -> str:
        if not _converts(self._type):
            return self._storage._item_preview(index, budget)
        try:
            value = self._item(index)
            return "null" if value is None else clip(str(value), 100)
        except Exception:  # user code: a failing conversion must not break the preview
            return self._storage._item_preview(index, budget)

    @classmethod
    def from_pylist(cls, type: Any, values: Sequence[Any], valid: Mask | None) -> Self:
        from shmarrow.casts import kinds_of
        from shmarrow.casts.python import exact_bytes

        items = converted(type, type.from_python, values)
        items = list(exact_bytes(type.storage_type, items, kinds_of(items)))
        storage = array_class(type.storage_type).from_pylist(type.storage_type, items, valid)
        return cls.from_storage(type, storage)

    @classmethod
    def from_numpy(cls, type: Any, values: NDArray, valid: Mask | None = None) -> Self:
        """Create an array from an ndarray that converts to the storage type; copies only if the storage does.

        Parameters
        ----------
        type : ExtensionType
            The type.
        values : ndarray
            Shape (n,); if of dtype object, the extension's Python values.
        valid : bool ndarray, optional
            False where a slot is null.
        """
        from shmarrow.layout.values import array_from_numpy, array_from_pylist

        if values.dtype.kind == "O" and values.ndim == 1:
            keep = [True] * len(values) if valid is None else valid.tolist()
            items = [item if kept else None for item, kept in zip(values.tolist(), keep, strict=True)]
            return array_from_pylist(items, type)
        return cls.from_storage(type, array_from_numpy(values, type.storage_type, valid))

    @classmethod
    def _nulls(cls, type: Any, length: int) -> Any:
        return cls.from_storage(type, nulls(length, type.storage_type))


def converted(type: Any, convert: Callable[[Any], Any], values: Sequence[Any], first: int = 0) -> list[Any]:
    """Convert values with an extension type's conversion, None to None; ``first`` is the number of the first slot.

    Raises
    ------
    InvalidData
        If the conversion raises anything but one of our errors.
    """
    items: list[Any] = []
    try:
        for value in values:
            items.append(None if value is None else convert(value))
    except ShmarrowError:
        raise
    except Exception as error:
        slot = len(items)
        text = f"{type}: {convert.__name__}({shown(values[slot])}) raised {shown(error)}"
        raise InvalidData(text, where=[("row", first + slot)]) from error
    return items


def _converts(type: Any) -> bool:
    return type.__class__.to_python is not ExtensionType.to_python
