# SPDX-License-Identifier: Apache-2.0
"""Maps ("Map" in "Data Types"): lists of structs of a non-null key and an item.

Physically a map is a list with 32-bit offsets ("Variable-size List Layout").
"""

from __future__ import annotations

import operator
from collections.abc import Sequence
from itertools import chain
from typing import Any, Self

import numpy as np

from shmarrow.buffer import Indices, Mask
from shmarrow.casts import kinds_of
from shmarrow.errors import InvalidData, InvalidType, at, counted, shown
from shmarrow.layout.arguments import as_array
from shmarrow.layout.array import Array
from shmarrow.layout.construct import array_class, check_expansion, make_array, refuse_type
from shmarrow.layout.list import ListArray
from shmarrow.layout.list_forms import BaseListArray, cast_lists
from shmarrow.layout.validation import check_no_nulls, check_required
from shmarrow.types import DataType, EncodedType, Field, StructType, map_


class MapArray(ListArray):
    """Array of maps: lists of (key, item) pairs."""

    __slots__ = ()
    layouts = ("map",)

    @property
    def _entries(self) -> Any:
        return self._children[0]

    @property
    def keys(self) -> Array:
        """Keys of all maps, regardless of slicing."""
        return self._entries.field(0)

    @property
    def items(self) -> Array:
        """Items of all maps, regardless of slicing."""
        return self._entries.field(1)

    def _elements(self, items: Any) -> list[Any]:
        return list(zip(items.field(0).to_pylist(), items.field(1).to_pylist(), strict=True))

    def _under(self, type: Any) -> Any:
        """The same maps with an equal type, whose field names may differ."""
        entries = self._children[0]._with(type=type.entries_field.type)
        return self._with(type=type, children=[entries])

    @classmethod
    def _join(cls, arrays: Sequence[Any]) -> Any:
        return super()._join([array._under(arrays[0].type) for array in arrays])

    def _takes(self, field: Field, child_type: DataType) -> bool:
        """Allow any field names in entries, which do not take part in equality of map types."""
        fields = field.type.fields
        return child_type.layout == "struct" and [(each.type, each.nullable) for each in child_type.fields] == [
            (each.type, each.nullable) for each in fields
        ]

    def _cast(self, target: Any, safe: bool) -> Any:
        return _cast_entries(self, target, safe)

    @classmethod
    def _cast_from(cls, array: Any, target: Any, safe: bool) -> Any:
        if not isinstance(array, BaseListArray):
            return super()._cast_from(array, target, safe)
        result = _cast_entries(array, target, safe)
        if result is None:
            raise InvalidType(
                f"cannot cast {array.type} to {target}: the entries of a map must be structs of two fields"
            )
        return result

    def _check_nullability(self, live: Mask | None) -> None:
        for field, entries, used in self._referenced(self._live(live)):
            assert field is not None
            with at("the entries and keys of a map must not be null"):
                check_no_nulls(self._type, field.name, entries, used)
                check_no_nulls(self._type, self._type.key_field.name, entries.field(0), used)
        super()._check_nullability(live)

    def _safe_values(self) -> Any:
        for what, part in (("entries", self._entries), ("keys", self.keys)):  # pyarrow aborts on nulls here
            if part.null_count and part._count_nulls():
                raise InvalidData(
                    f"{self._type}: the {what} of a map must not be null, found {counted(part.null_count, 'null')}"
                )
        return super()._safe_values()

    def _check_values(self) -> None:
        if self._type.keys_sorted:
            self._check_order()

    def _check_order(self) -> None:
        """Check that the keys of each map that is not null are sorted, if the key type has an order."""
        offsets = self.offsets
        first, last = int(offsets[0]), int(offsets[-1])
        keys = self.keys.slice(first, last - first)
        falls = _falls(keys)
        if falls is None or not falls.any():
            return
        owner = np.repeat(np.arange(self._length), np.diff(offsets))
        falls &= owner[1:] == owner[:-1]
        mask = self._mask()
        if mask is not None:
            falls &= mask[owner[1:]]
        missing = keys._logical_nulls()
        if missing is not None:  # reported elsewhere
            falls &= ~(missing[1:] | missing[:-1])
        if falls.any():
            i = int(falls.argmax())
            text = (
                f"{self._type}: the key {shown(keys[i + 1])} comes after {shown(keys[i])}, but the type has keys_sorted"
            )
            raise InvalidData(text, where=[("row", int(owner[i]))])

    @classmethod
    def from_arrays(  # type: ignore[override]  # as pyarrow's: keys and items for the child
        cls, offsets: Any, keys: Any, items: Any, type: DataType | str | None = None, mask: Any = None
    ) -> Self:
        """Create maps from offsets of shape (n + 1,), keys and items; copies only offsets of the wrong dtype.

        Parameters
        ----------
        offsets : integer Array, integer ndarray or sequence of int
            Start of each map, and end of the last one. A null offset makes its map null.
        keys, items : Array, or anything that :func:`shmarrow.array` accepts
            Keys and items of all maps, of equal length.
        type : DataType or str, optional
            Type of the array; by default, the map type of the keys and items.
        mask : bool array, optional
            Shape (n,), True where a map is null.

        Raises
        ------
        InvalidData
            If the first or last offset is out of range, a key is null, the numbers of keys and items differ, their
            types do not match ``type``, a non-nullable item is null, or keys are not sorted although ``type`` has
            ``keys_sorted``.
        InvalidType
            If the offsets are not integers, or the type is not a map type.
        InvalidArgument
            If the length of the mask is wrong, or offsets are null in addition to a mask.
        """
        refuse_type(offsets, "offsets")
        map_type: Any = None if type is None else cls._expect(type)
        expected = (None, None) if map_type is None else (map_type.key_field.type, map_type.item_field.type)
        parts = [as_array(keys, "keys", expected[0]), as_array(items, "items", expected[1])]
        if len(parts[0]) != len(parts[1]):
            raise InvalidData(
                f"the numbers of keys and items must be equal, found {len(parts[0])} keys and {len(parts[1])} items"
            )
        if parts[0].null_count:
            raise InvalidData(f"the keys of maps must not be null, found {counted(parts[0].null_count, 'null')}")
        map_type = map_type or map_(parts[0].type, parts[1].type)
        entries = make_array(map_type.entries_field.type, len(parts[0]), [None], 0, 0, parts)
        result: Self = cls._from_child(offsets, entries, map_type, mask)
        if map_type.keys_sorted or not map_type.item_field.nullable:
            check_required(result)
            result._check_values()
        return result

    @classmethod
    def from_pylist(cls, type: Any, values: Sequence[Any], valid: Mask | None) -> Self:
        """Create maps from dicts or lists of (key, item) pairs."""
        from shmarrow.layout.values import array_from_pylist

        lengths, keys, items = _pairs(type, values)
        entries = type.entries_field.type
        key_array = array_from_pylist(keys, entries.fields[0].type)
        missing = key_array._logical_nulls()
        if missing is not None and missing.any():
            slot = int(np.searchsorted(np.cumsum(lengths), int(missing.argmax()), "right"))
            raise InvalidData(f"{type}: a key is null", where=[("row", slot)])
        children = [key_array, array_from_pylist(items, entries.fields[1].type)]
        child = make_array(entries, len(keys), [None], 0, 0, children)
        return cls._from_items(type, lengths, child, valid)


def _pairs(type: Any, values: Sequence[Any]) -> tuple[Indices, list[Any], list[Any]]:
    """The length of each map, 0 for None, and flat lists of all keys and items."""
    if kinds_of(values) <= {dict, _NONE}:
        maps: list[dict[Any, Any]] = [{} if value is None else value for value in values]
        lengths = np.fromiter(map(len, maps), np.int64, len(maps))
        return lengths, list(chain.from_iterable(maps)), list(chain.from_iterable([each.values() for each in maps]))
    from shmarrow.layout.values import flatten_lists, pair_of

    lengths, pairs = flatten_lists(type, values)
    rows = [pair_of(type, pair) for pair in pairs]
    return lengths, [pair[0] for pair in rows], [pair[1] for pair in rows]


_NONE = type(None)


def _cast_entries(array: Any, target: Any, safe: bool) -> Any:
    """Cast lists of two-field structs, or maps, with fields matched by position, as map field names do not matter."""
    if not issubclass(array_class(target), BaseListArray):
        return None
    inner = target.fields[0].type
    if any(type.__class__ is not StructType or len(type.fields) != 2 for type in (array.type.fields[0].type, inner)):
        return None
    result = cast_lists(array, target, safe, lambda entries: entries._cast_fields(inner, [0, 1], safe))
    if getattr(target, "keys_sorted", False):
        result._check_order()
    return result


def _falls(keys: Any) -> Mask | None:
    """Whether each key is smaller than its predecessor, of shape (n - 1,); None if keys have no order.

    Numbers and times are in numeric order, strings and bytes in byte order.
    """
    keys = keys._storage
    if isinstance(keys.type, EncodedType):
        if len(keys) > 8 * keys.get_total_buffer_size():
            check_expansion(len(keys), str(keys.type))
        keys = keys.decode()
    kind = "bytes" if hasattr(keys.type, "text") else keys.type.descriptor.values
    if kind in ("", "interval"):
        return None
    if kind != "bytes" and keys.values.ndim == 1:
        return np.asarray(keys.values[1:] < keys.values[:-1])
    # Python's strings sort like their UTF-8, and its Decimals like the stored numbers.
    items = keys.to_pylist()
    if keys.null_count:
        blank = next((item for item in items if item is not None), None)
        items = [blank if item is None else item for item in items]
        if blank is None:
            return None
    return np.fromiter(map(operator.lt, items[1:], items), np.bool_, max(len(items) - 1, 0))
