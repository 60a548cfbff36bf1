# SPDX-License-Identifier: Apache-2.0
"""Union layouts ("Union Layout"): each slot has a value of one of several children, selected by a type id.

In a sparse union, each child has a slot for every slot of the union; in a dense union, offsets locate the child's slot.
Unions have no validity bitmap: a slot is null if the child's slot is.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Self

import numpy as np

from shmarrow import errors
from shmarrow.buffer import Bytes, Indices, Mask, NDArray
from shmarrow.errors import InvalidArgument, InvalidData, InvalidType, renumbered
from shmarrow.layout.arguments import as_array, exact_integers
from shmarrow.layout.array import Array, nulls
from shmarrow.layout.construct import (
    blank_mask,
    frozen,
    items_of,
    join_arrays,
    make_array,
    one_null,
    read_only,
    view_of,
)
from shmarrow.layout.preview import Budget
from shmarrow.layout.runs import CHUNK, same_at
from shmarrow.layout.struct import match
from shmarrow.types import DataType, Field, union

_ID = np.dtype("i1")
_OFFSET = np.dtype("<i4")


class UnionArray(Array):
    """Array of unions: values of several types."""

    __slots__ = ()
    layouts = ("dense_union", "sparse_union")

    @property
    def type_ids(self) -> NDArray:
        """Type ids, int8 of shape (length,); a read-only view."""
        return view_of(self._buffers[0], _ID, self._offset, self._length)

    @property
    def _dense(self) -> bool:
        return bool(self._type.mode == "dense")

    @property
    def offsets(self) -> NDArray:
        """Slot of the child for each slot, int32 of shape (length,); in a sparse union, its own position."""
        if self._dense:
            return view_of(self._buffers[1], _OFFSET, self._offset, self._length)
        return np.arange(self._offset, self._offset + self._length)

    def field(self, index: int) -> Array:
        """Return a child array by position; in a sparse union, sliced like this array."""
        self._type.field(index)
        child = self._children[index]
        return child if self._dense else child.slice(self._offset, self._length)

    def _child_numbers(self) -> Indices:
        """The position of each slot's child, from checked type ids."""
        table = np.full(256, -1, np.int64)
        table[list(self._type.type_codes)] = np.arange(len(self._type.type_codes))
        numbers = table[self.type_ids.view(np.uint8)]
        if len(numbers) and int(numbers.min()) < 0:
            raise self._wrong_id(int(numbers.argmin()))
        return numbers

    def _locate(self, index: int) -> tuple[Any, int]:
        number = int(self.slice(index, 1)._child_numbers()[0])
        child, at = self._children[number], int(self.offsets[index]) if self._dense else self._offset + index
        if not 0 <= at < len(child):
            raise self._beyond(index, at, number)
        return child, at

    def _value(self, index: int) -> Any:
        child, at = self._locate(index)
        return child[at]

    def _value_preview(self, index: int, budget: Budget) -> str:
        child, at = self._locate(index)
        return str(child._item_preview(at, budget))

    def _each(self) -> list[tuple[Indices, int, Indices]]:
        """For each child in use: the union's slots, the child's number, and the checked child's slots."""
        numbers = self._child_numbers()
        offsets = self.offsets
        parts = []
        for number in range(len(self._children)):
            slots = np.flatnonzero(numbers == number)
            if not len(slots):
                continue
            at = offsets[slots].astype(np.int64)
            self._check_within(at, slots, number)
            parts.append((slots, number, at))
        return parts

    def _pylist(self, valid: Mask | None) -> list[Any]:
        result: list[Any] = [None] * self._length
        for slots, number, at in self._each():
            # Slots may share child slots, which are then converted only once.
            distinct, places = np.unique(at, return_inverse=True)
            with renumbered(_first_use, slots, places):
                values = self._children[number]._take(distinct).to_pylist()
            for slot, place in zip(slots.tolist(), places.tolist(), strict=True):
                result[slot] = values[place]
        return result

    def _gather(self, indices: Indices) -> Any:
        ids = frozen(self.type_ids[indices])
        if self._dense:
            offsets = frozen(self.offsets[indices])
            return make_array(self._type, len(indices), [ids, offsets], 0, 0, self._children)._in_order()
        children = [child.slice(self._offset, self._length)._take(indices) for child in self._children]
        return make_array(self._type, len(indices), [ids], 0, 0, children)

    def _in_order(self) -> Any:
        """The same slots of a dense union, with children gathered in the order of the slots."""
        offsets = np.zeros(self._length, _OFFSET)
        children = [child.slice(0, 0) for child in self._children]
        for slots, number, at in self._each():
            offsets[slots] = np.arange(len(slots))
            children[number] = self._children[number]._take(at)
        return self._with(offset=0, buffers=[frozen(self.type_ids), read_only(offsets)], children=children)

    def trim(self) -> Self:
        ids = frozen(self.type_ids)
        if not self._dense:
            children = [child.slice(self._offset, self._length).trim() for child in self._children]
            return self._with(offset=0, buffers=[ids], null_count=0, children=children)
        offsets = self.offsets
        children = [child.slice(0, 0) for child in self._children]
        rebased = offsets
        for slots, number, at in self._each():
            low, high = int(at.min()), int(at.max()) + 1
            if low:
                rebased = rebased.copy() if rebased is offsets else rebased
                rebased[slots] = at - low
            children[number] = self._children[number].slice(low, high - low)
        return self._with(
            offset=0, buffers=[ids, frozen(rebased)], null_count=0, children=[child.trim() for child in children]
        )

    @classmethod
    def _join(cls, arrays: Sequence[Any]) -> Any:
        type = arrays[0].type
        ids = np.concatenate([array.type_ids for array in arrays])
        children = [join_arrays([array._children[i] for array in arrays]) for i in range(len(type.fields))]
        if type.mode == "sparse":
            return make_array(type, len(ids), [read_only(ids)], 0, 0, children)
        shifts = np.zeros(len(type.fields), np.int64)
        parts = []
        for array in arrays:
            moved = array.offsets + (shifts[array._child_numbers()] if len(shifts) else 0)
            parts.append(moved)
            shifts += np.array([len(child) for child in array._children], np.int64)
        offsets = np.concatenate(parts)
        if len(offsets) and int(offsets.max()) >= 1 << 31:
            raise InvalidData(f"{type}: a child of {int(offsets.max()) + 1} values exceeds the reach of the offsets")
        return make_array(type, len(ids), [read_only(ids), frozen(offsets.astype(_OFFSET))], 0, 0, children)

    def _same(self, other: Any, live: Mask | None) -> bool:
        differ = self.type_ids != other.type_ids
        if (differ if live is None else differ & live).any():
            return False
        mine, theirs = self._used(live), other._used(live)
        if self._dense:
            return all(
                same_at(self._children[number], at, other._children[number], theirs[number][1])
                for number, (_, at) in mine.items()
            )
        for number, (slots, _) in mine.items():
            used = np.zeros(self._length, np.bool_)
            used[slots] = True
            left, right = self.field(number), other.field(number)
            if not left._equal(right, None if len(slots) == self._length else used):
                return False
        return True

    def _used(self, live: Mask | None) -> dict[int, tuple[Indices, Indices]]:
        """For each child that live slots use: these slots, and the checked child's slots."""
        result = {}
        for slots, number, at in self._each():
            if live is not None:
                selected = live[slots]
                slots, at = slots[selected], at[selected]
            if len(slots):
                result[number] = (slots, at)
        return result

    def _codes(self) -> Indices:
        from shmarrow.layout.codes import of_keys, pairs, slot_codes

        bound = max([len(child) for child in self._children], default=0)
        keys = np.zeros(self._length, np.uint64)
        for slots, number, at in self._each():
            child = self._children[number]
            if len(child) > 2 * len(at):
                used, at = np.unique(at, return_inverse=True)
                child = child._take(used)
            codes = slot_codes(child)[at]
            keys[slots] = pairs(np.full(len(slots), number), codes, bound)
        return of_keys(keys, None)

    def _cast(self, target: Any, safe: bool) -> Any:
        """Cast children matched by name, between dense and sparse unions."""
        if target.layout not in self.layouts:
            return None
        places, left = match(self._type.fields, target.fields)
        if left:
            names = [self._type.fields[i].name for i in left[:8]]
            raise InvalidType(f"cannot cast {self._type} to {target}: it has no children named {names}")
        parts = {number: (slots, at) for slots, number, at in self._each()}
        for field, place in zip(target.fields, places, strict=True):
            if place in parts:  # check that the cast exists before values are repeated
                _cast_child(self._children[place].slice(0, 0), field, safe)
        dense, length = target.mode == "dense", self._length
        ids = np.full(length, target.type_codes[0] if target.type_codes else 0, _ID)
        offsets = np.zeros(length, _OFFSET)
        children = []
        for field, code, place in zip(target.fields, target.type_codes, places, strict=True):
            if place not in parts:
                children.append(nulls(0 if dense else length, field.type))
                continue
            slots, at = parts[place]
            ids[slots] = code
            offsets[slots] = np.arange(len(slots))
            child = _cast_child(self._children[place]._take(at), field, safe)
            if not dense and len(slots) < length:
                used = np.zeros(length, np.bool_)
                used[slots] = True
                child = child._take(offsets, used)
            children.append(child)
        buffers: list[Bytes | None] = [read_only(ids), frozen(offsets)] if dense else [read_only(ids)]
        return make_array(target, length, buffers, 0, 0, children)

    def _referenced_only(self) -> Any:
        return self._with(children=[child._referenced_only() for child in self._children])

    def _referenced_children(self) -> Sequence[Any]:
        if not self._dense:
            return [child.slice(self._offset, self._length) for child in self._children]
        spans = [(number, int(at.min()), int(at.max()) + 1) for _, number, at in self._each()]
        return [self._children[number].slice(low, high - low) for number, low, high in spans]

    def _windowed(self) -> Any:
        if self._dense:
            return self
        windows = [child.slice(self._offset, self._length) for child in self._children]
        return self._on_windows(windows, self.type_ids.view(np.uint8))

    def _check_structure(self) -> None:
        if self._dense:
            return
        for field, child in zip(self._type.fields, self._children, strict=True):
            if len(child) < self._offset + self._length:
                raise InvalidData(
                    f"{self._type}: child {field.name!r} needs {self._offset + self._length} slots but has {len(child)}"
                )

    def _check_references(self) -> None:
        codes = list(self._type.type_codes)
        last = dict.fromkeys(codes, 0)  # the last child slot so far
        for first in range(0, self._length, CHUNK):
            ids = self.type_ids[first : first + CHUNK]
            for id in np.flatnonzero(np.bincount(ids.view(np.uint8), minlength=256)).astype(_ID).tolist():
                if id not in last:
                    raise self._wrong_id(first + int((ids == id).argmax()))
                if self._dense:
                    slots = np.flatnonzero(ids == id) + first
                    self._check_order(self.offsets[slots], slots, codes.index(id), last[id])
                    last[id] = int(self.offsets[slots[-1]])

    def _check_order(self, at: NDArray, slots: Indices, number: int, last: int) -> None:
        """Check that offsets into one child are in range and do not decrease."""
        self._check_within(at, slots, number)
        at = np.append(last, at)
        back = at[1:] < at[:-1]
        if back.any():
            i = int(back.argmax())
            raise InvalidData(f"{self._type}: the offsets into a child decrease from {int(at[i])} to {int(at[i + 1])}")

    def _check_within(self, at: NDArray, slots: Indices, number: int) -> None:
        size = len(self._children[number])
        if int(at.min()) < 0 or int(at.max()) >= size:
            wrong = int(((at < 0) | (at >= size)).argmax())
            raise self._beyond(int(slots[wrong]), int(at[wrong]), number)

    def _beyond(self, index: int, at: int, number: int) -> InvalidData:
        text = f"{self._type}: the value is in row {at} of child {number}, which has {len(self._children[number])}"
        return InvalidData(text, where=[("row", index)])

    def _wrong_id(self, index: int) -> InvalidData:
        expected = list(self._type.type_codes)
        text = f"{self._type}: expected one of the type ids {expected}, found {int(self.type_ids[index])}"
        return InvalidData(text, where=[("row", index)])

    def _referenced(self, live: Mask | None) -> Iterator[tuple[Field | None, Any, Mask | None]]:
        for slots, number, at in self._each():
            child = self._children[number]
            used = blank_mask(child)
            used[at if live is None else at[live[slots]]] = True
            yield self._type.fields[number], child, used

    def _logical_nulls(self) -> Mask | None:
        result = np.zeros(self._length, np.bool_)
        for slots, number, at in self._each():
            missing = self._children[number]._logical_nulls()
            if missing is not None:
                result[slots] = missing[at]
        return result if result.any() else None

    @classmethod
    def _nulls(cls, type: DataType, length: int) -> Any:
        if not type.fields:
            raise InvalidType(f"{type}: a union without children cannot have nulls")
        number = next((i for i, field in enumerate(type.fields) if field.nullable), 0)
        ids = read_only(np.full(length, type.type_codes[number], np.int8))  # type: ignore[attr-defined]
        if type.mode == "dense":  # type: ignore[attr-defined]
            sizes = [min(length, 1) if i == number else 0 for i in range(len(type.fields))]
            children = [nulls(size, field.type) for size, field in zip(sizes, type.fields, strict=True)]
            buffers: list[Bytes | None] = [ids, read_only(np.zeros(4 * length, np.uint8))]
            return make_array(type, length, buffers, 0, 0, children)
        return make_array(type, length, [ids], 0, 0, [nulls(length, field.type) for field in type.fields])

    def _with_nulls(self, valid: Mask) -> Self:
        """A copy with nulls where ``valid`` is False, for the validity bitmaps of metadata version 4."""
        if not self._type.fields:
            raise InvalidData(f"{self._type}: a union without children cannot have nulls, found {int((~valid).sum())}")
        ids = self.type_ids.copy()
        ids[~valid] = self._type.type_codes[0]
        if self._dense:
            first = join_arrays([self._children[0], one_null(self._type.fields[0].type)])
            offsets = np.where(valid, self.offsets, len(first) - 1).astype(_OFFSET)
            buffers = [read_only(ids), frozen(offsets)]
            return self._with(offset=0, buffers=buffers, children=[first, *self._children[1:]])._in_order()
        array = self._take(np.arange(self._length))
        children = [child._take(np.arange(len(valid)), valid) for child in array._children]
        return self._with(offset=0, buffers=[read_only(ids)], children=children)

    @classmethod
    def from_pylist(cls, type: Any, values: Sequence[Any], valid: Mask | None) -> Self:
        """Create a union; each value goes to the first child that holds it exactly, None to the first nullable one.

        Raises
        ------
        InvalidType
            If no child holds a value exactly.
        """
        from shmarrow.layout.values import array_from_pylist, choose

        numbers = choose(type, values)
        objects = np.fromiter(values, object, len(values))
        dense = type.mode == "dense"
        offsets = np.zeros(len(values), _OFFSET)
        children = []
        for number, field in enumerate(type.fields):
            chosen = numbers == number
            slots = np.flatnonzero(chosen)
            offsets[slots] = np.arange(len(slots))
            child = array_from_pylist(objects[slots].tolist(), field.type)
            children.append(
                child if dense or len(slots) == len(values) else child._take(np.where(chosen, offsets, 0), chosen)
            )
        ids = np.array(type.type_codes or [0], np.int8)[numbers]
        buffers: list[Bytes | None] = [read_only(ids)]
        if dense:
            buffers.append(frozen(offsets))
        return cls._made(type, len(values), buffers, 0, 0, children)

    @classmethod
    def from_dense(
        cls,
        types: Any,
        value_offsets: Any,
        children: Sequence[Any],
        field_names: Sequence[str] | None = None,
        type_codes: Sequence[int] | None = None,
        type: DataType | str | None = None,
    ) -> Self:
        """Create a dense union from type ids, offsets and children; zero-copy for the right dtypes.

        Parameters
        ----------
        types : integer ndarray, integer Array or sequence of int
            Type id of each slot, shape (n,).
        value_offsets : integer ndarray, integer Array or sequence of int
            Slot of the child for each slot, shape (n,).
        children : sequence of Array, or of anything that :func:`shmarrow.array` accepts
            Children of any lengths.
        field_names : sequence of str, optional
            Names of the children; "0", "1" and so on by default.
        type_codes : sequence of int, optional
            Type ids of the children; 0, 1 and so on by default.
        type : DataType or str, optional
            Type of the union, instead of names and type ids.

        Raises
        ------
        InvalidArgument
            If the numbers of offsets and type ids differ, or those of names or type codes and children.
        InvalidType
            If the type is not a dense union, or type ids or offsets are not integers.
        InvalidData
            If a child has the wrong type.
        """
        union_type, arrays = cls._over("dense", children, field_names, type_codes, type)
        ids = exact_integers(types, _ID, "type ids")
        at = exact_integers(value_offsets, _OFFSET, "offsets")
        if len(at) != len(ids):
            raise InvalidArgument(f"{union_type}: {len(ids)} type ids but {len(at)} offsets")
        result: Self = make_array(union_type, len(ids), [frozen(ids), frozen(at)], 0, 0, arrays)
        result.validate()
        return result

    @classmethod
    def from_sparse(
        cls,
        types: Any,
        children: Sequence[Any],
        field_names: Sequence[str] | None = None,
        type_codes: Sequence[int] | None = None,
        type: DataType | str | None = None,
    ) -> Self:
        """Create a sparse union from type ids and children of the same length; zero-copy for the right dtypes.

        Parameters and errors are as in :meth:`from_dense`; a child of the wrong length raises InvalidData.
        """
        union_type, arrays = cls._over("sparse", children, field_names, type_codes, type)
        ids = exact_integers(types, _ID, "type ids")
        if any(len(child) != len(ids) for child in arrays):
            raise InvalidData(
                f"{union_type}: {len(ids)} type ids but children of {[len(child) for child in arrays][:8]}"
            )
        result: Self = make_array(union_type, len(ids), [frozen(ids)], 0, 0, arrays)
        result.validate()
        return result

    @classmethod
    def _over(
        cls,
        mode: str,
        children: Sequence[Any],
        names: Sequence[str] | None,
        codes: Sequence[int] | None,
        type: DataType | str | None,
    ) -> tuple[Any, list[Any]]:
        """The type of a union over children, and the children as arrays."""
        children = items_of(children, "children")
        if type is not None:
            union_type: Any = cls._expect(type)
            if union_type.mode != mode:
                raise InvalidType(f"expected a {mode} union, found {union_type}")
            if names is not None or codes is not None:
                raise InvalidArgument(f"{union_type}: the type already has names and type ids; pass either")
            if len(children) != len(union_type.fields):
                raise InvalidArgument(f"{union_type}: {len(union_type.fields)} fields for {len(children)} children")
            types = [field.type for field in union_type.fields]
            pairs = zip(children, types, strict=True)
            return union_type, [as_array(child, f"child {i}", type) for i, (child, type) in enumerate(pairs)]
        arrays = [as_array(child, f"child {i}") for i, child in enumerate(children)]
        names = [str(i) for i in range(len(arrays))] if names is None else list(names)
        if len(names) != len(arrays):
            raise InvalidArgument(f"UnionArray: {len(names)} names for {len(arrays)} children")
        fields = [Field(name, child.type) for name, child in zip(names, arrays, strict=True)]
        return union(fields, mode, codes), arrays


def _first_use(row: int, slots: Indices, places: Indices) -> int:
    """The first slot whose place is this row of a child."""
    return int(slots[(places == row).argmax()])


def _cast_child(child: Any, field: Field, safe: bool) -> Any:
    with errors.at("child", field.name):
        return child._cast_to(field.type, safe)
