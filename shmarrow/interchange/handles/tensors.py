# SPDX-License-Identifier: Apache-2.0
"""Serialization of dense and sparse tensors in handles, as references to objects and offsets in them.

Opened tensors are validated before the first view: all elements are within the bounds of their object, and the ends and
counts of sparse indices are checked as by a reader.
"""

from __future__ import annotations

from math import prod
from typing import Any, NamedTuple

import numpy as np

from shmarrow.buffer import DType, NDArray
from shmarrow.errors import EXPANDED_VALUES, InvalidData, shown
from shmarrow.interchange.handles.columns import schema_bytes, schema_of
from shmarrow.interchange.handles.objects import HandleObjects, Locator
from shmarrow.memory.split import FILE_STRIDE
from shmarrow.tensor import Tensor
from shmarrow.tensor.dense import MAX_DIMENSIONS, as_dim_names
from shmarrow.tensor.element import ML_DTYPES, Element, as_element
from shmarrow.tensor.sparse import FORMS, checked_shape
from shmarrow.types import Field, Schema, as_metadata


class Elements(NamedTuple):
    """An ndarray: the place of its first byte, dtype by name unless known otherwise, shape and strides."""

    place: int
    dtype: str
    shape: tuple[int, ...]
    strides: tuple[int, ...]


class TensorParts(NamedTuple):
    """A tensor.

    Attributes
    ----------
    schema : bytes
        The Schema message of one field, of the element type.
    ml_dtype : str or None
        As :attr:`shmarrow.Tensor.ml_dtype`.
    storage : Elements
        The elements, or the values of a sparse tensor.
    dim_names, metadata
        As in the tensor.
    form : str
        The format of a sparse tensor; empty for a dense one.
    shape : tuple of int
        The shape of a sparse tensor.
    arrays : tuple of Elements
        The arrays of the index of a sparse tensor.
    axis_order, is_canonical
        As in a sparse tensor.
    """

    schema: bytes
    ml_dtype: str | None
    storage: Elements
    dim_names: tuple[str, ...]
    metadata: tuple[tuple[bytes, bytes], ...] | None
    form: str = ""
    shape: tuple[int, ...] = ()
    arrays: tuple[Elements, ...] = ()
    axis_order: tuple[int, ...] = ()
    is_canonical: bool = False


def describe(tensor: Any, locator: Locator) -> TensorParts:
    """Serialize a tensor."""
    schema = schema_bytes(Schema([Field("elements", tensor.type)]))
    metadata = None if tensor.metadata is None else tuple(tensor.metadata.items())
    storage = _elements(tensor.storage, locator)
    dense = TensorParts(schema, tensor.ml_dtype, storage, tensor.dim_names, metadata)
    if isinstance(tensor, Tensor):
        return dense
    return dense._replace(
        form=tensor.form,
        shape=tensor.shape,
        arrays=tuple([_elements(part, locator) for part in tensor.index]),
        axis_order=tensor.axis_order,
        is_canonical=tensor.is_canonical,
    )


def _elements(array: NDArray, locator: Locator) -> Elements:
    name = "" if array.dtype.kind == "V" else array.dtype.str
    place = locator.find(array) if array.size else None
    if place is None:
        data = np.ascontiguousarray(array)
        place, _ = locator.buffer(data.reshape(-1).view("u1") if data.size else np.empty(0, "u1"))
        return Elements(place, name, array.shape, data.reshape(array.shape).strides)
    return Elements(place, name, array.shape, array.strides)


def restore(parts: object, memory: HandleObjects) -> Any:
    """Restore a tensor serialized by :func:`describe`."""
    if not isinstance(parts, TensorParts) or not isinstance(parts.arrays, tuple):
        raise InvalidData(f"a damaged handle: expected a tensor, found {shown(parts)}")
    element = _element(parts)
    storage = _array(parts.storage, element.dtype, memory)
    if not parts.form and (parts.form != "" or parts.shape or parts.arrays or parts.axis_order):
        raise InvalidData(f"a damaged handle: a dense tensor with the parts of a sparse one, form {shown(parts.form)}")
    names, metadata = (
        as_dim_names(parts.dim_names, len(parts.shape or storage.shape)),
        as_metadata(None if parts.metadata is None else dict(parts.metadata)),
    )
    if not parts.form:
        return Tensor(storage, element, names, metadata)
    cls = FORMS.get(parts.form)
    if cls is None or storage.ndim != 1:
        raise InvalidData(f"a damaged handle: no sparse form {shown(parts.form)} of {storage.ndim} dimensions")
    shape = checked_shape(parts.shape, storage.itemsize)
    index = [_array(part, None, memory) for part in parts.arrays]
    order, canonical = parts.axis_order, bool(parts.is_canonical)
    return cls(shape, index, storage, element, order, canonical, names, metadata)


def _element(parts: TensorParts) -> Element:
    type = schema_of(parts.schema).field(0).type
    if parts.ml_dtype is None:
        return as_element(type)
    element = as_element(parts.ml_dtype) if parts.ml_dtype in ML_DTYPES else None
    if element is None or element.type != type:
        raise InvalidData(f"a damaged handle: elements of {shown(parts.ml_dtype)} over {type}")
    return element


def _array(elements: object, dtype: DType | None, memory: HandleObjects) -> NDArray:
    """Return an ndarray over its object, after checking that all elements are in bounds."""
    if not isinstance(elements, Elements):
        raise InvalidData(f"a damaged handle: expected an ndarray, found {shown(elements)}")
    place, name, shape, strides = elements
    if dtype is None:
        if name not in _INDEX_DTYPES:
            raise InvalidData(f"a damaged handle: an index of dtype {shown(name)}")
        dtype = np.dtype(name)
    numbers = [place, *shape, *strides]
    if (
        len(shape) != len(strides)
        or len(shape) > MAX_DIMENSIONS
        or not all(isinstance(number, int) and 0 <= number < 1 << 63 for number in numbers)
    ):
        raise InvalidData(f"a damaged handle: an ndarray at {place} of shape {shown(shape)}, strides {shown(strides)}")
    if 0 in shape:
        return np.empty(shape, dtype)
    number, start = divmod(place, FILE_STRIDE)
    end = start + sum((size - 1) * step for size, step in zip(shape, strides, strict=True)) + dtype.itemsize
    data = memory.data(number)
    if end > len(data):
        raise InvalidData(f"a damaged handle: an ndarray needs the bytes [{start}, {end}) of {len(data)}")
    if prod(shape) > max(len(data), EXPANDED_VALUES):  # possible with strides of 0
        raise InvalidData(f"a damaged handle: {prod(shape)} elements in the {len(data)} bytes of their object")
    try:
        return np.ndarray(shape, dtype, data, start, strides)
    except ValueError as error:  # more elements than numpy supports
        raise InvalidData(f"a damaged handle: {error}") from None


_INDEX_DTYPES = {f"{order}{kind}{size}" for order in "<|" for kind in "iu" for size in (1, 2, 4, 8)}
