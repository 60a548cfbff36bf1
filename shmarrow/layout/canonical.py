"""Arrays of the canonical extension types that have more to say about their data; each type names its class.

They are imported when the types are.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from shmarrow.bitmap import Mask
from shmarrow.errors import CopyRequired, IndexOutOfRange, InvalidArgument, InvalidData
from shmarrow.extension import canonical
from shmarrow.layout.array import Array, make_array
from shmarrow.layout.extension import ExtensionArray

if TYPE_CHECKING:
    import numpy.typing as npt

# --- tensors ----------------------------------------------------------------------------------------------------


class FixedShapeTensorArray(ExtensionArray):
    """Tensors of one shape; together one ndarray.

    ``to_pylist()`` gives the elements of each tensor as a flat list in physical order.
    """

    __slots__ = ()

    def to_numpy_ndarray(self) -> npt.NDArray[Any]:
        """All tensors as one ndarray, its shape the length and then the logical shape; a read-only view.

        Raises
        ------
        CopyRequired
            If tensors or elements are null, or numpy has no zero-copy form of the elements.
        """
        flat = self.storage.to_numpy(True)
        try:
            tensors = flat.reshape(self._length, *self._type.shape)
        except ValueError as error:
            raise InvalidData(f"{self._type}: no ndarray has this shape: {error}") from None
        result: npt.NDArray[Any] = self._type.logical(tensors, 1)
        return result

    def to_numpy(self, zero_copy_only: bool = True) -> npt.NDArray[Any]:
        """The ndarray of :meth:`to_numpy_ndarray`; with nulls that of the storage, if it may be a copy."""
        if zero_copy_only or not self.null_count:
            return self.to_numpy_ndarray()
        return super().to_numpy(False)

    def tensor(self, index: int) -> npt.NDArray[Any] | None:
        """One tensor as an ndarray of its logical shape, a read-only view; None where it is null."""
        _check_index(self, index)
        row = self.slice(index, 1)
        return None if row.null_count else row.to_numpy_ndarray()[0]

    @classmethod
    def from_numpy_ndarray(cls, values: npt.NDArray[Any], dim_names: Sequence[str] | None = None) -> Any:
        """Tensors over an ndarray of shape (length, ...); copies only one that has gaps or runs backwards.

        The dimensions lie in memory as they do in ``values``; the type's permutation says in which order they are.

        Parameters
        ----------
        values : ndarray
            At least one dimension; the first one, the rows, has the largest stride.
        dim_names : sequence of str, optional
            A name for each dimension but the first, in the order of ``values``.

        Raises
        ------
        InvalidArgument
            If the elements of one row are not together in memory.
        """
        from shmarrow.types import from_numpy_dtype

        if not isinstance(values, np.ndarray) or not values.ndim:
            raise InvalidArgument(f"expected an ndarray of at least one dimension, found {values!r:.80}")
        order = sorted(range(values.ndim), key=lambda axis: -values.strides[axis])
        if not values.size:
            order = list(range(values.ndim))
        if order[0] != 0:
            raise InvalidArgument(
                f"the first dimension needs the largest stride, found the strides {values.strides}; "
                "copy with numpy.ascontiguousarray"
            )
        axes = [axis - 1 for axis in order[1:]]
        shape = [values.shape[1:][axis] for axis in axes]
        names = dim_names
        if dim_names is not None and len(dim_names) == len(axes):
            names = [dim_names[axis] for axis in axes]
        permutation = [axes.index(axis) for axis in range(len(axes))]
        type = canonical.fixed_shape_tensor(from_numpy_dtype(values.dtype), shape, names, permutation)
        return cls.from_numpy(type, values)

    @classmethod
    def from_numpy(cls, type: Any, values: npt.NDArray[Any], valid: Mask | None = None) -> Any:
        """Tensors over an ndarray as :meth:`to_numpy_ndarray` gives it; copies one in another order or with gaps."""
        from shmarrow.layout.from_values import array_from_numpy
        from shmarrow.layout.memory import validity_of

        if values.dtype.kind == "O" and values.ndim == 1:
            return super().from_numpy(type, values, valid)
        if values.shape[1:] != type.logical_shape:
            raise InvalidData(
                f"{type}: expected rows of the shape {type.logical_shape}, found an ndarray {values.shape}"
            )
        flat = np.ascontiguousarray(type.physical(values, 1)).reshape(-1)
        validity, count = validity_of(valid)
        child = array_from_numpy(flat, type.value_type)
        storage = make_array(type.storage_type, len(values), [validity], count, 0, [child])
        return cls.from_storage(type, storage)


class VariableShapeTensorArray(ExtensionArray):
    """Tensors of one number of dimensions, each with a shape of its own.

    ``to_pylist()`` gives dicts of ``data``, the elements in physical order, and ``shape``, the physical shape.
    """

    __slots__ = ()

    def shapes(self) -> npt.NDArray[np.int32]:
        """The physical shape of each tensor: int32 of shape (length, ndim), a view; null tensors have any."""
        sizes = self.storage.field("shape")._window().values
        return sizes.reshape(self._length, self._type.ndim)  # type: ignore[no-any-return]

    def tensor(self, index: int) -> npt.NDArray[Any] | None:
        """One tensor as an ndarray of its logical shape, a read-only view; None where it is null."""
        _check_index(self, index)
        return self.slice(index, 1).to_tensors()[0]  # type: ignore[no-any-return]

    def to_tensors(self) -> list[npt.NDArray[Any] | None]:
        """The tensors as ndarrays of their logical shapes, read-only views; None where a tensor is null.

        Raises
        ------
        InvalidData
            If a shape does not fit the number of elements.
        CopyRequired
            If elements are null, or numpy has no zero-copy form of them.
        """
        mask = self._mask()
        offsets, shapes = self._checked(mask)
        data = self.storage.field("data").values
        first, last = (int(offsets[0]), int(offsets[-1])) if len(offsets) else (0, 0)
        flat = data.slice(first, last - first).to_numpy(True)
        valid = [True] * self._length if mask is None else mask.tolist()
        starts, logical = (offsets - first).tolist(), self._type.logical
        try:
            return [
                logical(flat[starts[i] : starts[i + 1]].reshape(shape)) if valid[i] else None
                for i, shape in enumerate(shapes.tolist())
            ]
        except ValueError as error:
            raise InvalidData(f"{self._type}: no ndarray has such a shape: {error}") from None

    def _checked(self, valid: Mask | None) -> tuple[npt.NDArray[Any], npt.NDArray[Any]]:
        """Offsets into the elements, and shapes, after a check that they fit each other where ``valid`` is True."""
        from shmarrow.layout.binary import checked_offsets

        data, shape = self.storage.field("data"), self.storage.field("shape")
        offsets = checked_offsets(data, len(data.values), "elements")
        shapes = self.shapes()
        counts = np.diff(offsets)
        with np.errstate(over="ignore", invalid="ignore"):
            # Numbers of elements are below 2**31, where float64 is exact, and no larger product is rounded to one.
            wrong = shapes.astype(np.float64).prod(axis=1) != counts
        missing = (~shape._window()._valid()).reshape(shapes.shape)
        wrong |= (shapes < 0).any(axis=1) | missing.any(axis=1) | ~shape._valid() | ~data._valid()
        for axis, size in enumerate(self._type.uniform_shape or ()):
            if size is not None:
                wrong |= shapes[:, axis] != size
        if valid is not None:
            wrong &= valid
        if wrong.any():
            i = int(wrong.argmax())
            raise InvalidData(f"{self._type}: tensor {i} has the shape {shape[i]} and {int(counts[i])} elements")
        return offsets, shapes

    def _check_values(self) -> None:
        super()._check_values()
        self._checked(self._mask())


def _check_index(array: Array, index: int) -> None:
    if not 0 <= index < len(array):
        raise IndexOutOfRange(f"no tensor {index}: the array has {len(array)}")


# --- others -----------------------------------------------------------------------------------------------------


class Bool8Array(ExtensionArray):
    """Truth values of one byte each."""

    __slots__ = ()

    def to_numpy(self, zero_copy_only: bool = True) -> npt.NDArray[Any]:
        """The values as a bool ndarray of shape (length,); a view, unless there are bytes other than 0 and 1.

        With nulls, if it may be a copy, an object array of True, False and None.
        """
        if self.null_count:
            if zero_copy_only:
                raise CopyRequired(f"an array with {self.null_count} nulls has no zero-copy numpy form")
            result = np.empty(self._length, object)
            result[:] = self.to_pylist()
            return result
        values = self.storage.values
        if not len(values) or int(values.view(np.uint8).max()) <= 1:
            return values.view(np.bool_)  # type: ignore[no-any-return]
        if zero_copy_only:
            raise CopyRequired(f"{self._type}: a byte other than 0 and 1 is no numpy bool; pass zero_copy_only=False")
        return values != 0  # type: ignore[no-any-return]

    @classmethod
    def from_numpy(cls, type: Any, values: npt.NDArray[Any], valid: Mask | None = None) -> Any:
        """An array over bool or int8 values of shape (n,); copies nothing where they are contiguous."""
        return super().from_numpy(type, values.view(np.int8) if values.dtype == np.bool_ else values, valid)


class JsonArray(ExtensionArray):
    """Text that is JSON."""

    __slots__ = ()

    def parse(self) -> list[Any]:
        """The values as Python's ``json`` reads them; None where a slot is null, and for JSON's ``null``.

        Raises
        ------
        InvalidData
            If a text is not JSON, or nests too deep.
        """
        import json

        result: list[Any] = []
        for i, text in enumerate(self.to_pylist()):
            try:
                result.append(None if text is None else json.loads(text))
            except (ValueError, RecursionError) as error:
                raise InvalidData(f"{self._type}: slot {i} holds {text[:80]!r}, which is not JSON: {error}") from None
        return result

    def _check_values(self) -> None:
        super()._check_values()
        self.parse()


class VariantArray(ExtensionArray):
    """Values in Parquet's Variant encoding."""

    __slots__ = ()

    @property
    def metadata(self) -> Any:
        """The metadata of each value; copies nothing."""
        return self.storage.field("metadata")

    @property
    def value(self) -> Any:
        """The encoded values, or None where the type has no such field; copies nothing."""
        return self._optional("value")

    @property
    def typed_value(self) -> Any:
        """The shredded values, or None where the type has no such field; copies nothing."""
        return self._optional("typed_value")

    def _optional(self, name: str) -> Any:
        return self.storage.field(name) if name in self._type.storage_type.names else None


class TimestampWithOffsetArray(ExtensionArray):
    """Moments in UTC, each with the offset of its own zone."""

    __slots__ = ()

    @property
    def timestamps(self) -> Any:
        """The moments as a timestamp array in UTC; copies nothing."""
        return self.storage.field("timestamp")

    @property
    def offset_minutes(self) -> Any:
        """The offsets in minutes as an int16 array; a copy only where they are dictionary or run-end encoded."""
        offsets = self.storage.field("offset_minutes")
        return offsets if offsets.type.layout == "primitive" else offsets.decode()

    def _check_values(self) -> None:
        super()._check_values()
        offsets = self.offset_minutes
        low, high = self._type.LOWEST, self._type.HIGHEST
        values = offsets.values
        wrong = ((values < low) | (values > high)) & offsets._valid() & self._valid()
        if wrong.any():
            i = int(wrong.argmax())
            raise InvalidData(f"{self._type}: slot {i} is {int(values[i])} minutes off UTC, expected {low} to {high}")


canonical.FixedShapeTensorType.array_class = FixedShapeTensorArray
canonical.VariableShapeTensorType.array_class = VariableShapeTensorArray
canonical.Bool8Type.array_class = Bool8Array
canonical.JsonType.array_class = JsonArray
canonical.VariantType.array_class = VariantArray
canonical.TimestampWithOffsetType.array_class = TimestampWithOffsetArray
