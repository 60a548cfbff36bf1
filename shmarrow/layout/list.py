"""Variable-size list layout ("Variable-size List Layout"), with 32-bit or 64-bit offsets, and maps.

Slot ``i`` holds the child's slots ``[offsets[i], offsets[i + 1])``. A map is a list of structs of a key, which is not
null, and an item; physically there is no difference.
"""

from __future__ import annotations

import itertools
import operator
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from shmarrow.bitmap import Mask
from shmarrow.errors import InvalidData, InvalidType
from shmarrow.layout.array import Array, _check_no_nulls, checked_mask, concat_arrays, make_array, spread
from shmarrow.layout.binary import (
    check_ends,
    checked_offsets,
    exact_integers,
    joined_offsets,
    offsets_view,
    same_lengths,
    trimmed_offsets,
)
from shmarrow.layout.memory import Indices, check_expansion, frozen, offsets_of, ranges, validity_of
from shmarrow.layout.preview import Budget
from shmarrow.types import DataType, EncodedType, Field, FixedSizeBinaryType, IntervalType

if TYPE_CHECKING:
    import numpy.typing as npt


class ListArray(Array):
    """Lists of any length."""

    __slots__ = ()
    layouts: ClassVar[tuple[str, ...]] = ("list", "large_list")

    @property
    def values(self) -> Any:
        """The child array as it is in memory, whatever the slice."""
        return self._children[0]

    @property
    def offsets(self) -> npt.NDArray[Any]:
        """The offsets of shape (length + 1,), int32 or int64; a read-only view."""
        return offsets_view(self)

    def flatten(self) -> Any:
        """The values of all lists that are not null, one list after another."""
        if self.null_count:
            return self.drop_null().flatten()
        offsets = checked_offsets(self, len(self.values), "values")
        return self.values.slice(int(offsets[0]), int(offsets[-1] - offsets[0]))

    def _bounds(self, index: int) -> tuple[int, int]:
        start, end = self.offsets[index : index + 2].tolist()
        if not 0 <= start <= end <= len(self.values):
            raise InvalidData(f"{self._type}: slot {index} holds [{start}, {end}) of {len(self.values)} values")
        return start, end

    def _value(self, index: int) -> Any:
        start, end = self._bounds(index)
        return self._run(start, end - start)

    def _value_preview(self, index: int, budget: Budget) -> str:
        start, end = self._bounds(index)
        return str(self.values.slice(start, end - start)._preview(budget))

    def _run(self, start: int, length: int) -> list[Any]:
        """A run of the child's slots as Python objects."""
        items: list[Any] = self.values.slice(start, length).to_pylist()
        return items

    def _pylist(self, mask: Mask | None) -> list[Any]:
        offsets = checked_offsets(self, len(self.values), "values")
        first, last = int(offsets[0]), int(offsets[-1])
        items = self._run(first, last - first)
        bounds = (offsets - first).tolist()
        return [items[start:end] for start, end in itertools.pairwise(bounds)]

    def _gather(self, indices: Indices) -> Any:
        offsets = checked_offsets(self, len(self.values), "values")
        starts = offsets[indices].astype(np.int64)
        lengths = offsets[indices + 1] - starts
        ends = offsets_of(lengths, self._type.offset_dtype, f"{self._type} lists")
        child = self.values.take(ranges(starts, lengths))
        return make_array(self._type, len(indices), [None, frozen(ends)], 0, 0, [child])

    def trim(self) -> Any:
        offsets, run = trimmed_offsets(self, len(self.values))
        child = self.values.slice(run.start, run.stop - run.start).trim()
        buffers = [self._trimmed_validity(), frozen(offsets)]
        return self._with(offset=0, buffers=buffers, null_count=self.null_count, children=[child])

    @classmethod
    def _join(cls, arrays: Sequence[Any]) -> Any:
        offsets = joined_offsets(arrays, [len(array.values) for array in arrays])
        child = concat_arrays([array.values for array in arrays])
        return make_array(arrays[0].type, len(offsets) - 1, [None, frozen(offsets)], 0, 0, [child])

    def _same(self, other: Any, live: Mask | None) -> bool:
        mine = checked_offsets(self, len(self.values), "values")
        theirs = checked_offsets(other, len(other.values), "values")
        sides = ((self, mine), (other, theirs))
        valid = self._live(live)
        if same_lengths(mine, theirs):
            left, right = (each.values.slice(int(at[0]), int(at[-1] - at[0])) for each, at in sides)
            if live is None and left._equal(right, None):
                return True
            return valid is not None and bool(left._equal(right, spread(valid, np.diff(mine), left)))
        if valid is None:
            return False
        slots = np.flatnonzero(valid)
        sizes = mine[slots + 1].astype(np.int64) - mine[slots]
        if not np.array_equal(sizes, theirs[slots + 1] - theirs[slots]):
            return False
        left, right = (each.values.take(ranges(at[slots].astype(np.int64), sizes)) for each, at in sides)
        return bool(left._equal(right, None))

    def _check_structure(self) -> None:
        check_ends(self, len(self.values), "values")

    def _check_references(self) -> None:
        checked_offsets(self, len(self.values), "values")

    def _referenced(self, live: Mask | None) -> Iterator[tuple[Field | None, Any, Mask | None]]:
        offsets = self.offsets
        first, last = int(offsets[0]), int(offsets[-1])
        child = self.values.slice(first, last - first)
        yield self._type.fields[0], child, spread(live, np.diff(offsets), child)

    @classmethod
    def from_pylist(cls, type: Any, values: Sequence[Any], mask: Mask | None) -> Any:
        lengths, items = flatten_lists(type, values)
        offsets = offsets_of(lengths, type.offset_dtype, f"{type} lists")
        validity, nulls = validity_of(mask)
        child = cls._child(type, items)
        return make_array(type, len(values), [validity, frozen(offsets)], nulls, 0, [child])

    @staticmethod
    def _child(type: Any, items: list[Any]) -> Any:
        from shmarrow.layout.build import array_from_pylist

        return array_from_pylist(items, type.fields[0].type)

    @classmethod
    def from_arrays(cls, type: Any, offsets: Any, values: Any, mask: Mask | None = None) -> Any:
        """Lists from offsets of shape (n + 1,) and the child array; copies nothing that fits.

        Raises
        ------
        InvalidData
            If the ends of the offsets do not lie within the child, or its type is not that of the lists' items.
        InvalidArgument
            If the mask has another length.
        """
        cls._expect(type, values=values)
        typed = exact_integers(offsets, type.offset_dtype, "offsets")
        if not len(typed):
            raise InvalidData(f"{type}: offsets have the shape (n + 1,), found none")
        validity, nulls = validity_of(None if mask is None else checked_mask(mask, len(typed) - 1))
        result = make_array(type, len(typed) - 1, [validity, frozen(typed)], nulls, 0, [values])
        result.validate()
        return result


class MapArray(ListArray):
    """Maps: lists of (key, item) pairs."""

    __slots__ = ()
    layouts = ("map",)

    @property
    def _entries(self) -> Any:
        return self._children[0]

    @property
    def keys(self) -> Any:
        """The keys of all maps as they are in memory."""
        return self._entries.field(0)

    @property
    def items(self) -> Any:
        """The items of all maps as they are in memory."""
        return self._entries.field(1)

    def _run(self, start: int, length: int) -> list[Any]:
        keys, items = self.keys.slice(start, length).to_pylist(), self.items.slice(start, length).to_pylist()
        return list(zip(keys, items, strict=True))

    def _under(self, type: Any) -> Any:
        """The same maps under an equal type, whose fields may have other names."""
        entries = self._children[0]._with(type=type.entries_field.type)
        return self._with(type=type, children=[entries])

    @classmethod
    def _join(cls, arrays: Sequence[Any]) -> Any:
        return super()._join([array._under(arrays[0].type) for array in arrays])

    def _takes(self, field: Field, found: DataType) -> bool:
        """Entries may have fields of other names, which are no part of a map's type."""
        wanted = field.type.fields
        return found.layout == "struct" and [(each.type, each.nullable) for each in found.fields] == [
            (each.type, each.nullable) for each in wanted
        ]

    def _check_nullability(self, live: Mask | None) -> None:
        for field, entries, used in self._referenced(self._live(live)):
            assert field is not None
            where = f"{self._type}: the entries and the keys of a map are not null"
            _check_no_nulls(field.name, entries, used, where)
            _check_no_nulls(self._type.key_field.name, entries.field(0), used, where)
        super()._check_nullability(live)

    def _check_values(self) -> None:
        if self._type.keys_sorted:
            self._check_order()

    def _check_order(self) -> None:
        """Within each map that is not null no key is smaller than the one before it, where keys have an order."""
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
        if missing is not None:  # reported as nulls
            falls &= ~(missing[1:] | missing[:-1])
        if falls.any():
            i = int(falls.argmax())
            raise InvalidData(
                f"{self._type}: slot {int(owner[i])} has the key {keys[i + 1]!r:.80} behind {keys[i]!r:.80}, "
                "but the type says that keys are sorted"
            )

    @staticmethod
    def _child(type: Any, items: list[Any]) -> Any:
        from shmarrow.layout.build import array_from_pylist

        entries = type.entries_field.type
        pairs = [pair_of(type, item) for item in items]
        keys = array_from_pylist([pair[0] for pair in pairs], entries.fields[0].type)
        if keys.null_count:
            raise InvalidData(f"{type}: a key is None")
        values = array_from_pylist([pair[1] for pair in pairs], entries.fields[1].type)
        return make_array(entries, len(pairs), [None], 0, 0, [keys, values])


def _falls(keys: Any) -> Mask | None:
    """Whether each key is smaller than the one before it, of shape (n - 1,); None where keys have no order.

    Numbers and times are in their own order, text and bytes in that of their bytes.
    """
    if hasattr(keys, "storage"):
        keys = keys.storage
    if isinstance(keys.type, EncodedType):
        if len(keys) > 8 * keys.nbytes:
            check_expansion(len(keys), str(keys.type))
        keys = keys.decode()
    type = keys.type
    if type.layout in ("primitive", "bool") and type.__class__ not in (FixedSizeBinaryType, IntervalType):
        values = keys.values
        if values.ndim == 1:
            return np.asarray(values[1:] < values[:-1])
    elif type.layout not in ("binary", "large_binary", "binary_view") and type.__class__ is not FixedSizeBinaryType:
        return None
    # Characters are in the order of their UTF-8, and exact numbers in that of what they stand for.
    items = keys.to_pylist()
    if keys.null_count:
        blank = next((item for item in items if item is not None), None)
        items = [blank if item is None else item for item in items]
        if blank is None:
            return None
    return np.fromiter(map(operator.lt, items[1:], items), np.bool_, max(len(items) - 1, 0))


def pair_of(type: Any, item: Any) -> tuple[Any, Any]:
    """A (key, item) pair from a tuple, or from a dict of the two field names."""
    if isinstance(item, (tuple, list)) and len(item) == 2:
        return item[0], item[1]
    if isinstance(item, Mapping):
        names = [type.key_field.name, type.item_field.name]
        if set(item) == set(names):
            return item[names[0]], item[names[1]]
    raise InvalidType(f"{type}: expected a (key, item) pair, found {item!r:.80}")


def flatten_lists(type: Any, values: Sequence[Any]) -> tuple[Indices, list[Any]]:
    """The length of each list and all items one after another; None has no items."""
    lengths = np.zeros(len(values), np.int64)
    items: list[Any] = []
    for i, value in enumerate(values):
        if value is None:
            continue
        if isinstance(value, np.ndarray):
            value = value.tolist()
        elif isinstance(value, Mapping) and type.layout == "map":
            value = list(value.items())
        elif isinstance(value, Array):
            value = value.to_pylist()
        elif not isinstance(value, (list, tuple, range, set, frozenset)):
            raise InvalidType(f"{type}: cannot take {value!r:.80} of type {value.__class__.__name__}")
        lengths[i] = len(value)
        items += value
    return lengths, items
