# SPDX-License-Identifier: Apache-2.0
"""Run-end encoded layout ("Run-End Encoded Layout"): the end and the value of each run of equal values.

Run ``i`` covers the slots from the end of the previous run to ``run_ends[i]``. Slicing changes the array's offset and
length, never the children.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, Literal, Self

import numpy as np

from shmarrow.buffer import Indices, Mask, NDArray
from shmarrow.errors import InvalidData, LimitExceeded, counted, renumbered
from shmarrow.layout.arguments import as_array
from shmarrow.layout.array import Array, nulls
from shmarrow.layout.codes import codes_of, slot_codes
from shmarrow.layout.construct import (
    check_bits,
    check_slots,
    frozen,
    join_arrays,
    make_array,
    refuse_type,
    reuse_if_equal,
)
from shmarrow.layout.preview import Budget
from shmarrow.layout.runs import CHUNK, check_repeats, has_fixed_width
from shmarrow.types import DataType, ExtensionType, Field, RunEndEncodedType

if TYPE_CHECKING:
    from shmarrow.layout.primitive import PrimitiveArray


class RunEndEncodedArray(Array):
    """Run-end encoded array."""

    __slots__ = ()
    layouts = ("run_end_encoded",)

    @property
    def run_ends(self) -> PrimitiveArray:
        """Run ends as stored, regardless of slicing."""
        ends: Any = self._children[0]
        return ends

    @property
    def values(self) -> Array:
        """Values of all runs as stored, regardless of slicing."""
        return self._children[1]

    def _ends(self) -> NDArray:
        return self.run_ends.values

    def _window(self) -> tuple[int, Indices]:
        """The first run of the slice, and its run ends relative to the slice's first slot, checked."""
        if not self._length:
            return 0, np.empty(0, np.int64)
        ends = self._ends()
        first = _find(ends, self._offset, "right")
        last = _find(ends, self._offset + self._length, "left")
        window = ends[first : last + 1].astype(np.int64)
        if last >= min(len(ends), len(self.values)) or (np.diff(window) <= 0).any() or int(window[0]) <= self._offset:
            raise InvalidData(f"{self._type}: the run ends do not increase up to row {self._offset + self._length}")
        return first, np.minimum(window - self._offset, self._length)

    def decode(self) -> Array:
        """Decode to an array of the value type; a copy.

        Raises
        ------
        InvalidData
            If the run ends do not increase.
        LimitExceeded
            If memory runs out.
        """
        first, ends = self._window()
        return self._repeated(self.values.slice(first, len(ends)), ends)

    def _repeated(self, values: Any, ends: Indices) -> Any:
        """The values of runs with these ends, repeated to one per slot."""
        lengths = np.diff(ends, prepend=0)
        if not has_fixed_width(values):
            check_repeats(values, lengths, ends.nbytes)
        try:
            return values._take(np.repeat(np.arange(len(ends)), lengths))
        except (MemoryError, ValueError, OverflowError) as error:
            if isinstance(error, InvalidData):
                raise
            raise LimitExceeded(f"{self._type}: no memory for {self._length} values; take slices") from None

    def _codes(self) -> Indices:
        first, ends = self._window()
        codes = slot_codes(self.values.slice(first, len(ends)))
        sizes = np.diff(ends, prepend=0)
        return np.repeat(np.where(codes < 0, -1, (ends - sizes)[codes]), sizes)

    def _cast(self, target: Any, safe: bool) -> Any:
        """Cast the values of the runs, then repeat them: each is converted once."""
        first, ends = self._window()
        values = self._cast_values(first, ends, target, safe)
        check_slots(self)
        return self._repeated(values, ends)

    def _cast_values(self, first: int, ends: Indices, target: Any, safe: bool) -> Any:
        with renumbered(_start, ends):
            return self.values.slice(first, len(ends))._cast_to(target, safe)

    def _referenced_only(self) -> Any:
        first, ends = self._window()
        return self._build(ends, self.values.slice(first, len(ends))._referenced_only(), self._length)

    @classmethod
    def _cast_from(cls, array: Any, target: Any, safe: bool) -> Any:
        """Cast from another run-end-encoded type, or from values to be encoded."""
        if isinstance(array.type, ExtensionType) and array.type != target.value_type:
            return array.storage._cast_to(target, safe)
        if array.type.__class__ is not RunEndEncodedType:
            return RunEndEncodedArray._encode(array._cast_to(target.value_type, safe), target)
        first, ends = array._window()
        values = array._cast_values(first, ends, target.value_type, safe)
        return make_array(target, len(array), [], 0, 0, [_run_end_array(target, ends), values])

    def _to_numpy(self, zero_copy_only: bool) -> NDArray:
        if zero_copy_only:
            return super()._to_numpy(True)
        check_slots(self)
        return self.decode().to_numpy(False)

    def _masked_values(self) -> tuple[NDArray, Mask | None]:
        return self.decode()._storage._masked_values()

    def _run_of(self, index: int) -> int:
        run = _find(self._ends(), self._offset + index, "right")
        if run >= len(self.values):
            raise InvalidData(f"{self._type}: no run contains it", where=[("row", index)])
        return run

    def _value(self, index: int) -> Any:
        run = self._run_of(index)
        with renumbered(lambda row: index):
            return self.values[run]

    def _value_preview(self, index: int, budget: Budget) -> str:
        return str(self.values._item_preview(self._run_of(index), budget))

    def _pylist(self, valid: Mask | None) -> list[Any]:
        check_slots(self)
        first, ends = self._window()
        result: list[Any] = []
        with renumbered(_start, ends):
            values = self.values.slice(first, len(ends)).to_pylist()
        for value, length in zip(values, np.diff(ends, prepend=0).tolist(), strict=True):
            result += [value] * length
        return result

    def _gather(self, indices: Indices) -> Any:
        ends = self._ends()  # same dtype, as numpy would otherwise convert all ends
        runs = np.searchsorted(ends, (indices + self._offset).astype(ends.dtype), "right")
        starts = np.flatnonzero(np.diff(runs, prepend=-1))
        new_ends = np.append(starts[1:], len(indices)) if len(indices) else starts
        return self._build(new_ends, self.values._take(runs[starts]), len(indices))

    def _build(self, ends: Indices, values: Any, length: int) -> Any:
        return make_array(self._type, length, [], 0, 0, [_run_end_array(self._type, ends), values])

    def trim(self) -> Self:
        first, ends = self._window()
        ends = reuse_if_equal(self._ends()[first : first + len(ends)], ends)
        return self._build(ends, self.values.slice(first, len(ends)).trim(), self._length)

    @classmethod
    def _join(cls, arrays: Sequence[Any]) -> Any:
        parts = []
        base = 0
        for array in arrays:
            parts.append(array._ends().astype(np.int64) + base)
            base += len(array)
        values = join_arrays([array.values for array in arrays])
        return arrays[0]._build(np.concatenate(parts), values, base)

    def _same(self, other: Any, live: Mask | None) -> bool:
        (mine_first, mine), (their_first, theirs) = self._window(), other._window()
        if live is None and np.array_equal(mine, theirs):
            runs = len(mine)
            return bool(self.values.slice(mine_first, runs)._equal(other.values.slice(their_first, runs), None))
        ends = np.union1d(mine, theirs)
        left = self.values._take(mine_first + np.searchsorted(mine, ends, "left"))
        right = other.values._take(their_first + np.searchsorted(theirs, ends, "left"))
        used = None
        if live is not None and len(ends):
            used = np.logical_or.reduceat(live, np.concatenate(([0], ends[:-1])))
        return bool(left._equal(right, used))

    def _check_structure(self) -> None:
        ends = self.run_ends
        if ends.null_count:
            raise InvalidData(f"{self._type}: run ends must not be null, found {counted(ends.null_count, 'null')}")
        if len(self.values) < len(ends):
            raise InvalidData(f"{self._type}: {len(ends)} runs but {len(self.values)} values")
        last = int(ends.values[-1]) if len(ends) else 0
        if last < self._offset + self._length:
            raise InvalidData(f"{self._type}: {self._offset + self._length} slots but the last run ends at {last}")

    def _check_references(self) -> None:
        ends = self._ends()
        if len(ends) and int(ends[0]) <= 0:
            raise InvalidData(f"{self._type}: the first run ends at {int(ends[0])}, expected at least 1")
        for start in range(0, len(ends), CHUNK):
            part = ends[start : start + CHUNK + 1]
            back = part[1:] <= part[:-1]
            if back.any():
                i = start + int(back.argmax())
                raise InvalidData(
                    f"{self._type}: run end {i + 1} does not increase: {int(ends[i])}, then {int(ends[i + 1])}"
                )

    def _referenced(self, live: Mask | None) -> Iterator[tuple[Field | None, Any, Mask | None]]:
        first, ends = self._window()
        used = None
        if live is not None and len(ends):
            used = np.logical_or.reduceat(live, np.concatenate(([0], ends[:-1])))
        yield self._type.fields[1], self.values.slice(first, len(ends)), used

    def _referenced_children(self) -> Sequence[Any]:
        if not self._length:
            return [child.slice(0, 0) for child in self._children]
        first, last = self._run_of(0), self._run_of(self._length - 1)
        return [child.slice(first, last + 1 - first) for child in self._children]

    def _logical_nulls(self) -> Mask | None:
        first, ends = self._window()
        missing = self.values.slice(first, len(ends))._logical_nulls()
        if missing is None or not missing.any():
            return None
        check_bits(self)
        return np.repeat(missing, np.diff(ends, prepend=0))

    def unique(self) -> Self:
        first, ends = self._window()
        runs = codes_of(self.values.slice(first, len(ends)), with_null=True)[1]
        return self._take(np.concatenate(([0], ends))[runs])

    @classmethod
    def _nulls(cls, type: DataType, length: int) -> Any:
        ends = np.array([length] if length else [], np.int64)
        values = nulls(len(ends), type.fields[1].type)
        return make_array(type, length, [], 0, 0, [_run_end_array(type, ends), values])

    @classmethod
    def from_pylist(cls, type: Any, values: Sequence[Any], valid: Mask | None) -> Self:
        from shmarrow.layout.values import array_from_pylist

        return RunEndEncodedArray._encode(array_from_pylist(values, type.value_type), type)

    @classmethod
    def from_arrays(cls, run_ends: Any, values: Any, type: DataType | str | None = None) -> Self:
        """Create an array from run ends and values; zero-copy for arrays.

        Parameters
        ----------
        run_ends : integer Array, or anything that :func:`shmarrow.array` converts to one
            End of each run; the last one is the length.
        values : Array, or anything that :func:`shmarrow.array` accepts
            Value of each run.
        type : DataType or str, optional
            Type of the array; by default, inferred from both.

        Raises
        ------
        InvalidArgument
            If the run ends are not integers of 16, 32 or 64 bits.
        InvalidType
            If the type is not run-end encoded.
        InvalidData
            If the children do not match ``type``, the numbers of run ends and values differ, a run end is null, or the
            run ends do not increase from at least 1.
        """
        refuse_type(run_ends, "run ends")
        expected: Any = None if type is None else cls._expect(type)
        ends: Any = as_array(run_ends, "run ends", None if expected is None else expected.run_end_type)
        runs = as_array(values, "values", None if expected is None else expected.value_type)
        derived = RunEndEncodedType(ends.type, runs.type)
        length = max(int(ends.values[-1]), 0) if len(ends) else 0
        result: Self = make_array(expected or derived, length, [], 0, 0, [ends, runs])
        result.validate()
        if len(runs) != len(ends):
            raise InvalidData(f"{result.type}: {len(ends)} run ends for {len(runs)} values, expected one for each")
        result._check_references()
        return result

    @staticmethod
    def _encode(array: Any, type: DataType | str) -> Any:
        """Implement :meth:`Array.run_end_encode`; ``type`` is that of the run ends, or of the result."""
        target = type if isinstance(type, RunEndEncodedType) else RunEndEncodedType(type, array.type)
        check_slots(array)
        starts = array._run_starts()
        ends = np.append(starts[1:], len(array)) if len(array) else starts
        return make_array(target, len(array), [], 0, 0, [_run_end_array(target, ends), array._take(starts)])


def _start(run: int, ends: Indices) -> int:
    """The first row of a run, for :class:`renumbered`."""
    return int(ends[run - 1]) if run else 0


def _find(ends: NDArray, slot: int, side: Literal["left", "right"]) -> int:
    """Binary search for ``slot`` in run ends, in their dtype, as numpy would otherwise convert all of them."""
    return int(np.searchsorted(ends, ends.dtype.type(min(slot, np.iinfo(ends.dtype).max)), side))


def _run_end_array(type: DataType, ends: Indices) -> Any:
    end_type = type.fields[0].type
    assert end_type.storage is not None
    if len(ends) and int(ends[-1]) > np.iinfo(end_type.storage).max:
        raise InvalidData(f"{type}: {int(ends[-1])} slots exceed the reach of {end_type} run ends")
    return make_array(end_type, len(ends), [None, frozen(ends.astype(end_type.storage, copy=False))], 0)
