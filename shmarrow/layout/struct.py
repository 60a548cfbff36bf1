# SPDX-License-Identifier: Apache-2.0
"""Struct layout ("Struct Layout"): one child array per field, each with a slot for every slot of the struct."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Self

import numpy as np

from shmarrow.buffer import Indices, Mask, NDArray
from shmarrow.casts import kinds_of, listed
from shmarrow.errors import InvalidArgument, InvalidData, InvalidType, LimitExceeded, at, printable, renumbered, shown
from shmarrow.layout.arguments import as_array, masked_validity
from shmarrow.layout.array import Array, nulls
from shmarrow.layout.construct import (
    check_expansion,
    check_slots,
    items_of,
    join_arrays,
    make_array,
    validity_of,
    zeros,
)
from shmarrow.layout.listing import LISTING
from shmarrow.layout.preview import Budget
from shmarrow.types import DataType, Field, struct

_NONE = type(None)


class StructArray(Array):
    """Array of structs: records of named fields."""

    __slots__ = ()
    layouts = ("struct",)

    def field(self, key: int | str) -> Array:
        """Return a child array by position or name, sliced like this array; copies nothing.

        The struct's own nulls are not applied to it.
        """
        field = self._type.field(key)
        index = self._type.fields.index(field) if isinstance(key, str) else key
        return self._children[index].slice(self._offset, self._length)

    def flatten(self) -> list[Array]:
        """Return the child arrays, sliced like this array, with the struct's nulls applied.

        Copies only validity bitmaps that change.
        """
        valid = self._mask()
        return self._windows() if valid is None else [_under(child, valid) for child in self._windows()]

    def to_structured_array(self) -> np.ndarray[Any, np.dtype[np.void]]:
        """Return a structured ndarray of shape (length,); see :meth:`shmarrow.RecordBatch.to_structured_array`.

        The fields of a null struct are null.
        """
        return structured_array([field.name for field in self._type.fields], self.flatten(), self._length)

    def _windows(self) -> list[Any]:
        return [child.slice(self._offset, self._length) for child in self._children]

    def _value(self, index: int) -> Any:
        with renumbered(lambda row: index):
            values = [child[self._offset + index] for child in self._children]
        return self._row(self._type.names, values)

    @staticmethod
    def _row(names: list[str], values: Sequence[Any]) -> Any:
        row = dict(zip(names, values, strict=True))
        return row if len(row) == len(names) else list(zip(names, values, strict=True))

    def _value_preview(self, index: int, budget: Budget) -> str:
        parts = []
        for field, child in zip(self._type.fields, self._children, strict=True):
            if not budget.take():
                parts.append("...")
                break
            parts.append(f"{printable(field.name)}: {child._item_preview(self._offset + index, budget)}")
        return "{" + ", ".join(parts) + "}"

    def _pylist(self, valid: Mask | None) -> list[Any]:
        names = self._type.names
        if not names:
            check_expansion(self._length, str(self._type))
            return [{} for _ in range(self._length)]
        columns = []
        for name, child in zip(names, self._windows(), strict=True):
            with at("field", name):
                columns.append(child.to_pylist())
        if len(set(names)) == len(names):
            return list(map(dict, map(zip, itertools.repeat(names), zip(*columns, strict=True))))
        return list(map(list, map(zip, itertools.repeat(names), zip(*columns, strict=True))))

    def _gather(self, indices: Indices) -> Any:
        children = [child._take(indices) for child in self._windows()]
        return make_array(self._type, len(indices), [None], 0, 0, children)

    def _copied_bytes(self, counts: NDArray) -> float:
        return sum([float(child._storage._copied_bytes(counts)) for child in self._windows()])

    def trim(self) -> Self:
        children = [child.trim() for child in self._windows()]
        validity = self._trimmed_validity()
        return self._with(offset=0, buffers=[validity], null_count=self.null_count, children=children)

    @classmethod
    def _join(cls, arrays: Sequence[Any]) -> Any:
        type = arrays[0].type
        children = [join_arrays([array._children[i] for array in arrays]) for i in range(len(type.fields))]
        return make_array(type, sum(map(len, arrays)), [None], 0, 0, children)

    def _same(self, other: Any, live: Mask | None) -> bool:
        pairs = list(zip(self._windows(), other._windows(), strict=True))
        if live is None and all(mine._equal(theirs, None) for mine, theirs in pairs):
            return True
        valid = self._live(live)
        return valid is not None and all(mine._equal(theirs, valid) for mine, theirs in pairs)

    def _codes(self) -> Indices:
        from shmarrow.layout import codes

        return codes.of_parts([codes.slot_codes(child) for child in self._windows()], self._length, self._mask())

    def _cast(self, target: Any, safe: bool) -> Any:
        """Cast field by field, matched by name; duplicate names are matched in order."""
        if target.layout != "struct":
            return None
        places, left = match(self._type.fields, target.fields)
        for field, place in zip(target.fields, places, strict=True):
            if place is None and not field.nullable:
                raise InvalidType(f"cannot cast {self._type} to {target}: {field} is missing and not nullable")
        if left and safe:
            names = [self._type.fields[i].name for i in left[:8]]
            raise InvalidType(f"cannot cast {self._type} to {target}: the fields {names} would be lost")
        return self._cast_fields(target, places, safe)

    def _cast_fields(self, target: Any, places: Sequence[int | None], safe: bool) -> Any:
        """Structs with the target's fields, cast from those at ``places``; None gives nulls."""
        windows = self._windows()
        children = []
        for field, place in zip(target.fields, places, strict=True):
            with at("field", field.name):
                child = self._nulls_of(field) if place is None else windows[place]._cast_to(field.type, safe)
            children.append(child)
        return make_array(target, self._length, [self._trimmed_validity()], self.null_count, 0, children)

    def _nulls_of(self, field: Field) -> Any:
        check_slots(self)
        return nulls(self._length, field.type)

    def _referenced_only(self) -> Any:
        mask, windows = self._mask(), self._windows()
        if mask is not None:
            windows = [child._take(np.arange(self._length), mask) for child in windows]
        children = [child._referenced_only() for child in windows]
        return self._with(offset=0, buffers=[self._trimmed_validity()], children=children)

    def _referenced_children(self) -> Sequence[Any]:
        return self._windows()

    def _windowed(self) -> Any:
        return self._on_windows(self._windows(), self._trimmed_validity())

    def _check_structure(self) -> None:
        for field, child in zip(self._type.fields, self._children, strict=True):
            if len(child) < self._offset + self._length:
                raise InvalidData(
                    f"{self._type}: child {field.name!r} needs {self._offset + self._length} slots but has {len(child)}"
                )

    def _referenced(self, live: Mask | None) -> Iterator[tuple[Field | None, Any, Mask | None]]:
        for field, child in zip(self._type.fields, self._windows(), strict=True):
            yield field, child, live

    @classmethod
    def _nulls(cls, type: DataType, length: int) -> Any:
        return zeros(type, length, length)

    @classmethod
    def from_pylist(cls, type: Any, values: Sequence[Any], valid: Mask | None) -> Self:
        validity, count = validity_of(valid)
        children = [
            _child(field.type, column, valid)
            for column, field in zip(columns_of(type, values), type.fields, strict=True)
        ]
        return cls._made(type, len(values), [validity], count, 0, children)

    @classmethod
    def from_arrays(
        cls,
        arrays: Sequence[Any],
        names: Sequence[str] | None = None,
        fields: Sequence[Field] | None = None,
        mask: Any = None,
        type: DataType | str | None = None,
    ) -> Self:
        """Create structs from child arrays of equal length; zero-copy for arrays.

        Parameters
        ----------
        arrays : sequence of Array, or of anything that :func:`shmarrow.array` accepts
            One child per field.
        names : sequence of str, optional
            Names of the fields; their types are those of the arrays.
        fields : sequence of Field, optional
            Fields, instead of names.
        mask : bool array, optional
            Shape (n,), True where a struct is null. Determines the length for structs without fields.
        type : DataType or str, optional
            Type of the array, instead of names and fields.

        Raises
        ------
        InvalidData
            If the children differ in length, do not match the types of the fields, or have nulls in a non-nullable
            field.
        InvalidType
            If the type is not a struct type.
        InvalidArgument
            If not exactly one of names, fields and type is given, the number of names or fields differs from that of
            the arrays, or the length of the mask is wrong.
        """
        arrays = items_of(arrays, "arrays")
        if [names, fields, type].count(None) != 2:
            raise InvalidArgument("StructArray: expected one of names, fields and type")
        if names is not None:
            children = [as_array(child, f"child {i}") for i, child in enumerate(arrays)]
            names = items_of(names, "names")
            if len(names) != len(children):
                raise InvalidArgument(f"StructArray: {len(names)} names for {len(children)} arrays")
            struct_type: Any = struct([Field(name, child.type) for name, child in zip(names, children, strict=True)])
        else:
            struct_type = cls._expect(struct(fields or ()) if type is None else type)
            if len(arrays) != len(struct_type.fields):
                raise InvalidArgument(f"{struct_type}: {len(struct_type.fields)} fields for {len(arrays)} arrays")
            children = [
                as_array(child, f"child {field.name!r}", field.type)
                for child, field in zip(arrays, struct_type.fields, strict=True)
            ]
        lengths = {len(child) for child in children} or {0 if mask is None else len(mask)}
        if len(lengths) > 1:
            raise InvalidData(
                f"{struct_type}: the children of a struct must have the same length, found {sorted(lengths)[:8]}"
            )
        length = lengths.pop()
        validity, count = masked_validity(mask, length)
        return cls._of_parts(struct_type, length, [validity], count, 0, children)


def match(fields: Sequence[Field], targets: Sequence[Field]) -> tuple[list[int | None], list[int]]:
    """Return for each wanted field the position of the one with its name, or None, and the unmatched positions.

    Duplicate names are matched in order.
    """
    left: dict[str, list[int]] = {}
    for i, field in enumerate(fields):
        left.setdefault(field.name, []).append(i)
    places = [left[field.name].pop(0) if left.get(field.name) else None for field in targets]
    return places, sorted(i for rest in left.values() for i in rest)


def _child(type: DataType, column: Sequence[Any], valid: Mask | None) -> Any:
    """Build one child; unions, which have no validity, are built from the slots of valid structs only."""
    from shmarrow.layout.values import array_from_pylist

    if valid is None or type.layout not in ("dense_union", "sparse_union"):
        return array_from_pylist(column, type)
    present = array_from_pylist(list(itertools.compress(column, valid.tolist())), type)
    return present._take(np.maximum(np.cumsum(valid) - 1, 0), valid)


def _under(child: Any, valid: Mask) -> Any:
    """The child, null where ``valid`` is False."""
    if not LISTING[child.type.layout].has_validity:
        return child._take(np.arange(len(child)), valid)
    return child.trim()._masked(child._valid() & valid)


def columns_of(type: Any, values: Sequence[Any]) -> list[list[Any]]:
    """Return the values of each field; rows are dicts, whose missing keys are None, tuples, or lists of pairs."""
    names = type.names
    distinct = set(names)
    from shmarrow.layout.values import columns_of_dicts

    width = len(names)
    kinds = kinds_of(values)
    if len(distinct) == width and kinds <= {dict, _NONE}:
        no_row = dict.fromkeys(names)
        dicts = [no_row if value is None else value for value in values] if _NONE in kinds else values
        whole = columns_of_dicts(dicts)
        if whole is not None and distinct == whole.keys():
            return [whole[name] for name in names]
        if all(map(distinct.issuperset, dicts)):
            return [[row.get(name) for row in dicts] for name in names]
    empty = (None,) * width
    rows = []
    for value in values:
        if value is None:
            rows.append(empty)
        elif isinstance(value, Mapping):
            if not distinct.issuperset(value):
                raise InvalidType(f"{type}: no field for {sorted(map(shown, set(value) - distinct))[:8]}")
            rows.append(tuple([value.get(name) for name in names]))
        elif isinstance(value, (tuple, list)) and len(items := listed(value)) == width:
            pairs = width and all(
                isinstance(item, tuple) and len(item) == 2 and item[0] == name
                for item, name in zip(items, names, strict=True)
            )
            rows.append(tuple([item[1] for item in items] if pairs else items))
        else:
            raise InvalidType(f"{type}: expected a dict or a tuple of {width}, found {shown(value)}")
    return [list(column) for column in zip(*rows, strict=True)] if rows else [[] for _ in names]


# --- structured ndarrays -----------------------------------------------------------------------------------------


def structured_array(names: Sequence[str], columns: Sequence[Any], length: int) -> np.ndarray[Any, np.dtype[np.void]]:
    """Implement :meth:`shmarrow.RecordBatch.to_structured_array`.

    Raises
    ------
    InvalidArgument
        If a column name is duplicate or empty.
    LimitExceeded
        If memory runs out.
    """
    parts = [_part(column) for column in columns]
    fields = [(name, part.dtype, part.shape[1:]) for name, part in zip(names, parts, strict=True)]
    if len({*names, ""}) <= len(names):
        raise InvalidArgument(f"the fields of a structured array need distinct, non-empty names, found {list(names)}")
    try:
        array = np.empty(length, np.dtype(fields))
    except MemoryError:
        raise LimitExceeded(f"no memory for {length} records of {len(names)} fields") from None
    except ValueError as error:
        raise InvalidArgument(f"numpy has no structured dtype for {list(names)}: {error}") from None
    for name, part in zip(names, parts, strict=True):
        array[name] = part
    return array


def _part(column: Any) -> NDArray:
    if isinstance(column, StructArray) and not column.null_count:
        return column.to_structured_array()
    return column.to_numpy(zero_copy_only=False)
