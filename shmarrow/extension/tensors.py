# SPDX-License-Identifier: Apache-2.0
"""Tensors of fixed or variable shape (canonical extension types, "Fixed shape tensor", "Variable shape tensor")."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Self

import numpy as np

from shmarrow import types
from shmarrow.buffer import Mask, NDArray
from shmarrow.errors import IndexOutOfRange, InvalidArgument, InvalidData, Unsupported, shown
from shmarrow.extension.array import ExtensionArray
from shmarrow.extension.canonical import as_json, checked_text, children_of, parameters_of
from shmarrow.layout import Array
from shmarrow.layout.construct import make_array, validity_of
from shmarrow.types import DataType, ExtensionType, Field, from_numpy_dtype

_MOST_DIMENSIONS = 63
"""numpy's limit, less one for the rows."""


class _TensorType(ExtensionType):
    """Base of tensor types: names of the physical dimensions, and their logical order.

    Attributes
    ----------
    dim_names : tuple of str or None
        Name of each physical dimension.
    permutation : tuple of int or None
        Physical dimension of each logical one; None if the orders are the same.
    """

    __slots__ = ("dim_names", "permutation")

    dim_names: tuple[str, ...] | None
    permutation: tuple[int, ...] | None

    def logical(self, tensor: NDArray, first: int = 0) -> NDArray:
        """Return the logical view of an ndarray in physical order; dimensions before ``first`` are not permuted."""
        if self.permutation is None:
            return tensor
        return tensor.transpose(*range(first), *[first + axis for axis in self.permutation])

    def physical(self, tensor: NDArray, first: int = 0) -> NDArray:
        """Return the physical view of an ndarray in logical order."""
        if self.permutation is None:
            return tensor
        axes = [first + self.permutation.index(axis) for axis in range(len(self.permutation))]
        return tensor.transpose(*range(first), *axes)

    def _text(self, **parameters: Any) -> str:
        shown = {**parameters, "permutation": self.permutation, "dim_names": self.dim_names}
        parts = [f"{name}={_shown(value)}" for name, value in shown.items() if value is not None]
        return f"extension<{self.extension_name}[{', '.join(parts)}]>"


def _shown(value: Any) -> str:
    if not isinstance(value, tuple):
        return str(value)
    return f"[{','.join(['null' if part is None else str(part) for part in value])}]"


# --- fixed shape ------------------------------------------------------------------------------------------------


class FixedShapeTensorType(_TensorType):
    """Tensors of one shape, each a fixed-size list of its elements in row-major order (``arrow.fixed_shape_tensor``).

    Attributes
    ----------
    shape : tuple of int
        Physical shape of each tensor.
    """

    __slots__ = ("shape",)
    extension_name = "arrow.fixed_shape_tensor"

    def __init__(
        self,
        storage_type: DataType,
        shape: Sequence[int],
        dim_names: Sequence[str] | None = None,
        permutation: Sequence[int] | None = None,
    ) -> None:
        super().__init__(storage_type)
        what = self.extension_name
        self.shape: tuple[int, ...] = _sizes(what, "shape", shape)
        self.dim_names = _dim_names(what, dim_names, len(self.shape))
        self.permutation = _permutation(what, permutation, len(self.shape))
        if not isinstance(storage_type, types.FixedSizeListType):
            raise InvalidArgument(f"{what}: the storage must be a fixed-size list, found {storage_type}")
        if math.prod(self.shape) != storage_type.list_size:
            raise InvalidArgument(
                f"{what}: tensors of the shape {list(self.shape)[:64]} have {math.prod(self.shape)} elements, "
                f"but the storage has lists of {storage_type.list_size}"
            )

    @property
    def value_type(self) -> DataType:
        """Type of the elements."""
        return self.storage_type.fields[0].type

    @property
    def logical_shape(self) -> tuple[int, ...]:
        """Logical shape of each tensor."""
        return self.shape if self.permutation is None else tuple([self.shape[axis] for axis in self.permutation])

    def serialize(self) -> bytes:
        names, order = _listed(self.dim_names), _listed(self.permutation)
        return as_json({"shape": list(self.shape), "dim_names": names, "permutation": order})

    @classmethod
    def deserialize(cls, storage_type: DataType, serialized: bytes) -> FixedShapeTensorType:
        parameters = parameters_of(cls.extension_name, serialized)
        return cls(storage_type, parameters.get("shape"), parameters.get("dim_names"), parameters.get("permutation"))  # type: ignore[arg-type]

    def from_python(self, value: Any) -> Any:
        if not isinstance(value, np.ndarray):
            return value
        if value.shape != self.logical_shape:
            raise InvalidData(f"{self}: expected tensors of the shape {self.logical_shape}, found {value.shape}")
        return self.physical(value).reshape(-1).tolist()

    def _key(self) -> tuple[Any, ...]:
        return (self.storage_type, self.shape, self.dim_names, self.permutation)

    def _name(self) -> str:
        return self._text(value_type=self.value_type, shape=self.shape)


class FixedShapeTensorArray(ExtensionArray, of=FixedShapeTensorType):
    """Array of tensors of one shape, which together form one ndarray.

    ``to_pylist()`` returns each tensor as a flat list of elements in physical order.
    """

    __slots__ = ()

    def to_numpy_ndarray(self) -> NDArray:
        """Return all tensors as one ndarray of shape ``(length, *logical_shape)``; a read-only view.

        Raises
        ------
        CopyRequired
            If tensors or elements are null, or the elements have no zero-copy numpy form.
        """
        flat = self._storage.to_numpy(True)
        try:
            tensors = flat.reshape(self._length, *self._type.shape)
        except ValueError as error:
            raise InvalidData(f"{self._type}: invalid shape for an ndarray: {error}") from None
        return self._type.logical(tensors, 1)

    def _to_numpy(self, zero_copy_only: bool) -> NDArray:
        """Return :meth:`to_numpy_ndarray`; with nulls, the storage's ndarray if a copy is allowed."""
        if zero_copy_only or not self.null_count:
            return self.to_numpy_ndarray()
        return super()._to_numpy(False)

    def tensor(self, index: int) -> NDArray | None:
        """Return one tensor as an ndarray of its logical shape, a read-only view; None for null."""
        _check_index(self, index)
        row = self.slice(index, 1)
        return None if row.null_count else row.to_numpy_ndarray()[0]

    @classmethod
    def from_numpy_ndarray(cls, values: NDArray, dim_names: Sequence[str] | None = None) -> Self:
        """Create tensors from an ndarray of shape (length, ...); zero-copy unless it has gaps or negative strides.

        The memory order of the dimensions is kept, and recorded as the type's permutation.

        Parameters
        ----------
        values : ndarray
            At least one dimension; the first one, the rows, must have the largest stride.
        dim_names : sequence of str, optional
            Name of each dimension except the first, in the order of ``values``.

        Raises
        ------
        InvalidArgument
            If the elements of a row are not contiguous in memory.
        """
        if not isinstance(values, np.ndarray) or not values.ndim:
            raise InvalidArgument(f"expected an ndarray of at least one dimension, found {shown(values)}")
        order = sorted(range(values.ndim), key=lambda axis: -values.strides[axis])
        if not values.size:
            order = list(range(values.ndim))
        if order[0] != 0:
            raise InvalidArgument(
                f"the first dimension must have the largest stride, found the strides {values.strides}; "
                "copy with numpy.ascontiguousarray"
            )
        axes = [axis - 1 for axis in order[1:]]
        shape = [values.shape[1:][axis] for axis in axes]
        names = dim_names
        if dim_names is not None and len(dim_names) == len(axes):
            names = [dim_names[axis] for axis in axes]
        permutation = [axes.index(axis) for axis in range(len(axes))]
        type = fixed_shape_tensor(from_numpy_dtype(values.dtype), shape, names, permutation)
        return cls.from_numpy(type, values)

    @classmethod
    def from_numpy(cls, type: Any, values: NDArray, valid: Mask | None = None) -> Self:
        """Create tensors from an ndarray in the form of :meth:`to_numpy_ndarray`; copies unless it is in row order."""
        from shmarrow.layout.values import array_from_numpy

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


def fixed_shape_tensor(
    value_type: Field | DataType | str,
    shape: Sequence[int],
    dim_names: Sequence[str] | None = None,
    permutation: Sequence[int] | None = None,
) -> FixedShapeTensorType:
    """Create the type of tensors that all have the physical shape ``shape``."""
    count = math.prod(_sizes(FixedShapeTensorType.extension_name, "shape", shape))
    return FixedShapeTensorType(types.FixedSizeListType(value_type, count), shape, dim_names, permutation)


# --- variable shape ---------------------------------------------------------------------------------------------


class VariableShapeTensorType(_TensorType):
    """Tensors of the same number of dimensions, each with its own shape (``arrow.variable_shape_tensor``).

    Attributes
    ----------
    ndim : int
        Number of dimensions.
    uniform_shape : tuple of int or None, or None
        Size of each physical dimension that is the same in all tensors, None for the others.
    """

    __slots__ = ("ndim", "uniform_shape")
    extension_name = "arrow.variable_shape_tensor"

    def __init__(
        self,
        storage_type: DataType,
        dim_names: Sequence[str] | None = None,
        permutation: Sequence[int] | None = None,
        uniform_shape: Sequence[int | None] | None = None,
    ) -> None:
        super().__init__(storage_type)
        what = self.extension_name
        children = children_of(what, storage_type)
        data, shape = children.get("data"), children.get("shape")
        if (
            len(children) != 2
            or not isinstance(data, types.ListType)
            or not isinstance(shape, types.FixedSizeListType)
            or shape.value_type != types.int32()
        ):
            raise InvalidArgument(
                f"{what}: the storage must be a struct of a list 'data' and a fixed-size list of int32 'shape', "
                f"found {storage_type}"
            )
        self.ndim: int = shape.list_size
        _check_ndim(what, self.ndim)
        self.dim_names = _dim_names(what, dim_names, self.ndim)
        self.permutation = _permutation(what, permutation, self.ndim)
        self.uniform_shape: tuple[int | None, ...] | None = None
        if uniform_shape is not None:
            self.uniform_shape = _sizes(what, "uniform_shape", uniform_shape, null=True)
            if len(self.uniform_shape) != self.ndim:
                raise InvalidArgument(
                    f"{what}: uniform_shape must have {self.ndim} sizes, found {len(self.uniform_shape)}"
                )

    @property
    def value_type(self) -> DataType:
        """Type of the elements."""
        return self.storage_type.field("data").type.fields[0].type

    def serialize(self) -> bytes:
        names, order, uniform = _listed(self.dim_names), _listed(self.permutation), _listed(self.uniform_shape)
        return as_json({"dim_names": names, "permutation": order, "uniform_shape": uniform})

    @classmethod
    def deserialize(cls, storage_type: DataType, serialized: bytes) -> VariableShapeTensorType:
        parameters = parameters_of(cls.extension_name, serialized)
        return cls(
            storage_type, parameters.get("dim_names"), parameters.get("permutation"), parameters.get("uniform_shape")
        )

    def from_python(self, value: Any) -> Any:
        if not isinstance(value, np.ndarray):
            return value
        if value.ndim != self.ndim:
            raise InvalidData(f"{self}: expected tensors of {self.ndim} dimensions, found the shape {value.shape}")
        tensor = self.physical(value)
        return {"data": tensor.reshape(-1).tolist(), "shape": list(tensor.shape)}

    def _key(self) -> tuple[Any, ...]:
        return (self.storage_type, self.dim_names, self.permutation, self.uniform_shape)

    def _name(self) -> str:
        return self._text(value_type=self.value_type, ndim=self.ndim, uniform_shape=self.uniform_shape)


class VariableShapeTensorArray(ExtensionArray, of=VariableShapeTensorType):
    """Array of tensors of the same number of dimensions, each with its own shape.

    ``to_pylist()`` returns dicts of ``data``, the elements in physical order, and ``shape``, the physical shape.
    """

    __slots__ = ()

    def shapes(self) -> NDArray:
        """Physical shape of each tensor, int32 of shape (length, ndim), unspecified for nulls; a view."""
        sizes: NDArray = self._part("shape")._window().values
        return sizes.reshape(self._length, self._type.ndim)

    def tensor(self, index: int) -> NDArray | None:
        """Return one tensor as an ndarray of its logical shape, a read-only view; None for null."""
        _check_index(self, index)
        return self.slice(index, 1).to_tensors()[0]

    def to_tensors(self) -> list[NDArray | None]:
        """Return the tensors as ndarrays of their logical shapes, read-only views; None for nulls.

        Raises
        ------
        InvalidData
            If a shape does not fit the number of elements.
        CopyRequired
            If elements are null, or have no zero-copy numpy form.
        """
        mask = self._mask()
        offsets, shapes = self._checked(mask)
        data = self._part("data").values
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
            raise InvalidData(f"{self._type}: invalid shape for an ndarray: {error}") from None

    def _checked(self, valid: Mask | None) -> tuple[NDArray, NDArray]:
        """Offsets into the elements, and shapes, checked to match where ``valid`` is True."""
        from shmarrow.layout.offsets import checked_offsets

        data, shape = self._part("data"), self._part("shape")
        offsets = checked_offsets(data, len(data.values), "elements")
        shapes = self.shapes()
        counts = np.diff(offsets)
        with np.errstate(over="ignore", invalid="ignore"):
            # Counts are below 2**31, exact in float64, and larger products cannot round to one.
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


def variable_shape_tensor(
    value_type: Field | DataType | str,
    ndim: int,
    dim_names: Sequence[str] | None = None,
    permutation: Sequence[int] | None = None,
    uniform_shape: Sequence[int | None] | None = None,
) -> VariableShapeTensorType:
    """Create the type of tensors of ``ndim`` dimensions, each with its own shape."""
    storage = types.struct({"data": types.list_(value_type), "shape": types.FixedSizeListType("int32", ndim)})
    return VariableShapeTensorType(storage, dim_names, permutation, uniform_shape)


# --- parameters -------------------------------------------------------------------------------------------------


def _sizes(what: str, name: str, sizes: Any, null: bool = False) -> tuple[Any, ...]:
    if not isinstance(sizes, (list, tuple)):
        raise InvalidArgument(f"{what}: {name} must be a list of sizes, found {shown(sizes)}")
    _check_ndim(what, len(sizes))
    for size in sizes:
        whole = isinstance(size, (int, np.integer)) and not isinstance(size, bool) and 0 <= size < 1 << 31
        if not whole and not (null and size is None):
            raise InvalidArgument(f"{what}: {name} must have sizes from 0 to {(1 << 31) - 1}, found {shown(size)}")
    return tuple([None if size is None else int(size) for size in sizes])


def _check_ndim(what: str, ndim: int) -> None:
    if ndim > _MOST_DIMENSIONS:
        raise Unsupported(f"{what}: expected at most {_MOST_DIMENSIONS} dimensions, found {ndim}")


def _dim_names(what: str, names: Any, ndim: int) -> tuple[str, ...] | None:
    if names is None:
        return None
    if not isinstance(names, (list, tuple)) or not all(isinstance(name, str) for name in names):
        raise InvalidArgument(f"{what}: dim_names must be a list of strings, found {shown(names)}")
    if len(names) != ndim:
        raise InvalidArgument(f"{what}: dim_names must have {ndim} names, one per dimension, found {len(names)}")
    for name in names:
        checked_text(what, "a dimension's name", name)
    return tuple(names)


def _permutation(what: str, order: Any, ndim: int) -> tuple[int, ...] | None:
    """A permutation, or None for the identity."""
    if order is None:
        return None
    axes = _sizes(what, "permutation", order)
    if len(axes) != ndim or sorted(axes) != list(range(ndim)):
        raise InvalidArgument(f"{what}: permutation must have each of 0 to {ndim - 1} once, found {list(axes)[:64]}")
    return None if axes == tuple(range(ndim)) else axes


def _listed(parameter: tuple[Any, ...] | None) -> list[Any] | None:
    return None if parameter is None else list(parameter)


def _check_index(array: Array, index: int) -> None:
    if not 0 <= index < len(array):
        raise IndexOutOfRange(f"no tensor {index}: the array has {len(array)}")
