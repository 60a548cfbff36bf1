"""Arguments of constructors and of selections: arrays, integers, positions and masks, from whatever callers have."""

from __future__ import annotations

from collections.abc import Callable
from operator import index
from typing import TYPE_CHECKING, Any

import numpy as np

from shmarrow import import_hooks
from shmarrow.bitmap import Mask
from shmarrow.buffer import Bytes
from shmarrow.convert import exact_items
from shmarrow.errors import IndexOutOfRange, InvalidArgument, InvalidData, InvalidType, LimitExceeded, counted, shown
from shmarrow.layout.array import Array
from shmarrow.layout.listing import LISTING
from shmarrow.layout.memory import EMPTY, Indices, frozen, validity_of
from shmarrow.types import DataType, int64

if TYPE_CHECKING:
    import numpy.typing as npt


def _no_builder(values: Any, type: DataType | None) -> Any:
    raise InvalidType(f"expected an Array, found {values.__class__.__name__}")


builder: Callable[[Any, DataType | None], Any] = _no_builder
"""What makes an array of any values: :func:`shmarrow.array`, which is above this package and is put here."""


def as_array(values: Any, what: str, type: DataType | None = None) -> Any:
    """An array as it is; anything else through :func:`shmarrow.array`, with ``type`` where given.

    Raises
    ------
    InvalidType
        If ``values`` is a type, which comes last.
    """
    if isinstance(values, Array):
        return values
    refuse_type(values, what)
    return builder(values, type)


def refuse_type(value: Any, what: str) -> None:
    """Refuse a type where values are expected."""
    if isinstance(value, DataType):
        raise InvalidType(f"expected {what}, found the type {value}; the type comes last, as type=")


def checked_size(size: Any, what: str) -> int:
    """A number of slots, at least 0.

    Raises
    ------
    InvalidType
        If it is not an int.
    InvalidArgument
        If it is negative.
    LimitExceeded
        If it is more than 2**63 - 1.
    """
    refuse_type(size, what)
    try:
        count = index(size)
    except TypeError:
        raise InvalidType(f"expected {what} as an int, found {shown(size)}") from None
    if count < 0:
        raise InvalidArgument(f"expected {what}, at least 0, found {shown(count)}")
    if count >> 63:
        raise LimitExceeded(f"expected {what}, at most 2**63 - 1, found {shown(count)}")
    return count


def unmasked(values: Any) -> Any:
    """A masked ndarray as an array with nulls, or its data where nothing is masked; anything else as it is."""
    if not isinstance(values, np.ma.MaskedArray):
        return values
    return builder(values, None) if values.ndim == 1 and np.ma.getmaskarray(values).any() else values.data


def exact_integers(values: Any, dtype: np.dtype[Any], what: str) -> npt.NDArray[Any]:
    """Integers of shape (n,) in another dtype that holds all of them; a view where they have it already.

    Raises
    ------
    InvalidType
        If they are not integers, or one is null.
    InvalidData
        If one does not fit the dtype.
    """
    values = unmasked(values)
    if isinstance(values, Array):
        if values.null_count or values.type.layout != "primitive":
            raise InvalidType(
                f"{what} must be integers that are not null, found {values.type}, {counted(values.null_count, 'null')}"
            )
        values = values.values  # type: ignore[attr-defined]
    refuse_type(values, what)
    try:
        given = np.asarray(values)
    except (TypeError, ValueError, OverflowError) as error:
        raise InvalidType(f"{what} are integers: {error}") from None
    if given.dtype.kind not in "iu" and given.size:
        raise InvalidType(f"{what} must be integers, found {given.dtype}")
    if given.ndim != 1:
        raise InvalidArgument(f"{what} have one dimension, found the shape {given.shape}")
    if given.dtype != dtype and given.size:
        info = np.iinfo(dtype)
        low, high = int(given.min()), int(given.max())
        if low < info.min or high > info.max:
            raise InvalidData(f"{what} run from {low} to {high}, which {dtype.name} does not hold")
    return np.ascontiguousarray(given, dtype)


def offsets_and_nulls(
    offsets: Any, dtype: np.dtype[Any], what: str = "offsets"
) -> tuple[npt.NDArray[Any], Mask | None]:
    """Offsets of shape (n,), and which of them are not null; None where all are not.

    A null offset is read as the next one that is not null.
    """
    offsets = unmasked(offsets)
    if getattr(offsets, "null_count", 0) or (isinstance(offsets, (list, tuple)) and None in offsets):
        offsets = as_array(offsets, what, int64())
        known = offsets._mask()
        if known is not None and offsets.type.layout == "primitive":
            nearest = np.where(known, np.arange(len(known)), len(known))
            nearest = np.minimum.accumulate(nearest[::-1])[::-1]
            values = np.append(offsets.values, offsets.values.dtype.type(0))[nearest]
            return exact_integers(values, dtype, what), known
    return exact_integers(offsets, dtype, what), None


def checked_positions(indices: Any) -> tuple[Indices, Mask | None]:
    """Positions of dtype int64 and shape (n,), and which of them are not null; None where all are not."""
    known: Mask | None = None
    indices = unmasked(indices)
    if isinstance(indices, np.ndarray) and indices.dtype == np.int64 and indices.ndim == 1:
        return indices, None
    if isinstance(indices, Array) and indices.type.layout == "primitive":
        known = indices._mask()
        values = np.asarray(indices.values)  # type: ignore[attr-defined]
        if known is not None and values.dtype.kind in "iu":
            values = np.where(known, values, 0)
    else:
        if getattr(indices, "null_count", 0):  # arrays of any library, which numpy would make floats of
            indices = indices.to_pylist()
        try:
            if isinstance(indices, (list, tuple)):
                indices = exact_items(indices)
                if None in indices:
                    known = np.array([index is not None for index in indices], np.bool_)
                    indices = [0 if index is None else index for index in indices]
                kinds = set(map(type, indices))
                if bool in kinds or np.bool_ in kinds:
                    values = np.empty(len(indices), np.bool_)
                else:
                    exact = all(issubclass(kind, (int, np.integer)) for kind in kinds)
                    values = np.array(indices, np.int64 if exact else None)
            else:
                values = np.asarray(indices)
        except OverflowError:
            raise IndexOutOfRange(
                f"an index of {shown(max(indices, key=abs))} is beyond what an array can have"
            ) from None
        except (TypeError, ValueError) as error:
            raise InvalidType(f"indices must be integers, found {indices.__class__.__name__}: {error}") from None
    if values.dtype.kind == "b":
        raise InvalidType(
            "indices must be positions, found truth values; filter(mask) gives the slots where a mask is True"
        )
    if isinstance(indices, (str, bytes)):
        raise InvalidType(f"indices must be integers, found {shown(indices)}")
    if values.ndim != 1:
        raise InvalidArgument(f"indices have the shape (n,), found {values.shape}")
    if not len(values):
        return np.empty(0, np.int64), None
    if values.dtype.kind not in "iu":
        raise InvalidType(f"indices must be integers, found {values.dtype}")
    if values.dtype.kind == "u" and int(values.max()) >= 1 << 63:
        raise IndexOutOfRange(f"an index of {int(values.max())} is beyond what an array can have")
    return values.astype(np.int64, copy=False), known


def checked_mask(mask: Any, length: int) -> Mask:
    """A mask as truth values of shape (length,).

    Raises
    ------
    InvalidType
        If it holds anything but truth values, None and nulls included.
    InvalidArgument
        If it has another shape.
    """
    refuse_type(mask, "a mask")
    mask = unmasked(mask)
    if getattr(mask, "null_count", 0):
        raise InvalidType(f"a mask holds True and False only, found {counted(mask.null_count, 'null')}")
    if isinstance(mask, (list, tuple)) and not (kinds := set(map(type, mask))) <= {bool, np.bool_}:
        found = sorted(kind.__name__ for kind in kinds)[:8]
        raise InvalidType(f"a mask holds truth values, found {', '.join(found)}")
    try:
        values = np.asarray(mask)
    except (TypeError, ValueError) as error:
        raise InvalidType(f"a mask holds truth values, found {mask.__class__.__name__}: {error}") from None
    if values.dtype != np.bool_ and values.size:
        raise InvalidType(f"a mask holds truth values, found {values.dtype}")
    if values.shape != (length,):
        raise InvalidArgument(f"the mask has the shape {values.shape}, expected ({length},)")
    return values.astype(np.bool_, copy=False)


def masked_validity(mask: Any, length: int, known: Mask | None = None) -> tuple[Bytes | None, int]:
    """A validity bitmap and its number of nulls, from a mask that is True for nulls or from the slots that are known.

    Raises
    ------
    InvalidArgument
        If both are given, or the mask has another length.
    InvalidType
        If the mask holds anything but truth values.
    """
    if mask is None:
        return validity_of(known)
    if known is not None:
        raise InvalidArgument("a mask and offsets that are null both say which slots are null; expected one of them")
    return validity_of(~checked_mask(mask, length))


def checked_parts(
    type: DataType, length: Any, buffers: Any, null_count: Any, offset: Any, children: Any
) -> tuple[int, list[Bytes | None], int, int, list[Array]]:
    """Length, buffers, null count, offset and children of an array, each of its kind; sizes are checked elsewhere.

    Raises
    ------
    InvalidType
        If one of them is of another kind, or the type has a dictionary.
    InvalidArgument
        If the length or the offset is negative.
    """
    if type.layout == "dictionary":
        raise InvalidType(f"{type}: buffers hold the indices only; use DictionaryArray.from_arrays")
    slots, first = checked_size(length, "a length"), checked_size(offset, "an offset")
    nulls = -1 if null_count == -1 else checked_size(null_count, "a null count")
    for child in items_of(children, "children"):
        if not isinstance(child, Array):
            raise InvalidType(f"{type}: children are Arrays, found {child.__class__.__name__}")
    rows, given = LISTING[type.layout].buffers, items_of(buffers, "buffers")
    if not LISTING[type.layout].has_validity and given and given[0] is None:
        given = given[1:]
    parts = [_as_bytes(type, data) for data in given]
    filled = [
        EMPTY if data is None and row.role != "validity" else data for row, data in zip(rows, parts, strict=False)
    ]
    return slots, [*filled, *parts[len(rows) :]], nulls, first, list(children)


def items_of(values: Any, what: str) -> list[Any]:
    """A sequence of arguments as a list; InvalidType for what is none."""
    refuse_type(values, what)
    try:
        return list(values)
    except TypeError:
        raise InvalidType(f"expected {what} as a sequence, found {values.__class__.__name__}") from None


def _as_bytes(type: DataType, data: Any) -> Bytes | None:
    if data is None:
        return None
    try:
        view = memoryview(data)
        return frozen(np.frombuffer(view.cast("B"), np.uint8)) if view.nbytes else EMPTY
    except (TypeError, ValueError, BufferError) as error:
        raise InvalidType(f"{type}: a buffer is contiguous bytes, found {data.__class__.__name__}: {error}") from None


import_hooks.arrived("layout.arguments")
