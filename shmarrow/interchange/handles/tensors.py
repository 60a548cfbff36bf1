"""Serialization of dense and sparse tensors in handles, as places and offsets.

Opened tensors are validated before the first view: all elements are within the bounds of their place, and the ends and
counts of sparse indices are checked as by a reader.
"""

from __future__ import annotations

from math import prod
from typing import Any, NamedTuple

import numpy as np

from shmarrow.errors import EXPANDED_VALUES, InvalidData, shown
from shmarrow.interchange.handles.columns import schema_bytes, schema_of
from shmarrow.interchange.handles.places import Locator, Memory
from shmarrow.tensor import (
    SparseCOOTensor,
    SparseCSCMatrix,
    SparseCSFTensor,
    SparseCSRMatrix,
    SparseMatrix,
    SparseTensor,
    Tensor,
)
from shmarrow.tensor.dense import MAX_DIMENSIONS, as_dim_names
from shmarrow.tensor.element import ML_DTYPES, Element, NDArray, as_element
from shmarrow.tensor.sparse import checked_shape
from shmarrow.types import Field, Schema, as_metadata

_FORMS: dict[str, Any] = {
    form.form: form for form in (SparseCOOTensor, SparseCSRMatrix, SparseCSCMatrix, SparseCSFTensor)
}


class Elements(NamedTuple):
    """An ndarray: place and offset of its first byte, dtype by name unless known otherwise, shape and strides."""

    place: int
    start: int
    dtype: str
    shape: tuple[int, ...]
    strides: tuple[int, ...]


class Parts(NamedTuple):
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
    coordinates : tuple of Elements
        The index of a sparse tensor, in the order of :func:`_index_of`.
    order : tuple of int
        For CSF the axis order; for COO whether the coordinates are canonical.
    """

    schema: bytes
    ml_dtype: str | None
    storage: Elements
    dim_names: tuple[str, ...]
    metadata: tuple[tuple[bytes, bytes], ...] | None
    form: str = ""
    shape: tuple[int, ...] = ()
    coordinates: tuple[Elements, ...] = ()
    order: tuple[int, ...] = ()


def describe(tensor: Any, locator: Locator) -> Parts:
    """Serialize a tensor."""
    schema = schema_bytes(Schema([Field("elements", tensor.type)]))
    metadata = None if tensor.metadata is None else tuple(tensor.metadata.items())
    storage = _elements(tensor.storage, locator)
    dense = Parts(schema, tensor.ml_dtype, storage, tensor.dim_names, metadata)
    if isinstance(tensor, Tensor):
        return dense
    index = tuple([_elements(part, locator) for part in _index_of(tensor)])
    order: tuple[int, ...] = ()
    if isinstance(tensor, SparseCOOTensor):
        order = (int(tensor.is_canonical),)
    elif isinstance(tensor, SparseCSFTensor):
        order = tensor.axis_order
    return dense._replace(form=tensor.form, shape=tuple(tensor.shape), coordinates=index, order=order)


def _index_of(tensor: SparseTensor) -> tuple[NDArray, ...]:
    if isinstance(tensor, SparseCOOTensor):
        return (tensor.indices,)
    if isinstance(tensor, SparseMatrix):
        return tensor.indptr, tensor.indices
    assert isinstance(tensor, SparseCSFTensor)
    return (*tensor.indptr, *tensor.indices)


def _elements(array: NDArray, locator: Locator) -> Elements:
    name = "" if array.dtype.kind == "V" else array.dtype.str
    found = locator.place(array) if array.size else None
    if found is None:
        data = np.ascontiguousarray(array)
        place, start, _ = locator.buffer(data.reshape(-1).view("u1") if data.size else np.empty(0, "u1"))
        return Elements(place, start, name, array.shape, data.reshape(array.shape).strides)
    return Elements(*found, name, array.shape, array.strides)


def restore(parts: Any, memory: Memory) -> Any:
    """Restore a tensor serialized by :func:`describe`."""
    if not isinstance(parts, Parts) or not isinstance(parts.coordinates, tuple):
        raise InvalidData(f"a damaged handle: expected a tensor, found {shown(parts)}")
    element = _element(parts)
    storage = _array(parts.storage, element.dtype, memory)
    if not parts.form and (parts.form != "" or parts.shape or parts.coordinates or parts.order):
        raise InvalidData(f"a damaged handle: a dense tensor with the parts of a sparse one, form {shown(parts.form)}")
    names, metadata = (
        as_dim_names(parts.dim_names, len(parts.shape or storage.shape)),
        as_metadata(None if parts.metadata is None else dict(parts.metadata)),
    )
    if not parts.form:
        return Tensor(storage, element, names, metadata)
    cls = _FORMS.get(parts.form)
    if cls is None or storage.ndim != 1:
        raise InvalidData(f"a damaged handle: no sparse form {shown(parts.form)} of {storage.ndim} dimensions")
    shape = checked_shape(parts.shape, storage.itemsize)
    index = [_array(part, None, memory) for part in parts.coordinates]
    if cls is SparseCOOTensor and len(index) == len(parts.order) == 1:
        return SparseCOOTensor(shape, index[0], storage, element, bool(parts.order[0]), names, metadata)
    if issubclass(cls, SparseMatrix) and len(index) == 2:
        return cls(shape, index[0], index[1], storage, element, names, metadata)
    if cls is SparseCSFTensor and shape and all(part.ndim == 1 for part in index):
        levels = len(shape) - 1
        return SparseCSFTensor(shape, index[:levels], index[levels:], parts.order, storage, element, names, metadata)
    raise InvalidData(f"a damaged handle: a sparse tensor {parts.form} with {len(index)} parts of an index")


def _element(parts: Parts) -> Element:
    type = schema_of(parts.schema).field(0).type
    if parts.ml_dtype is None:
        return as_element(type)
    made = as_element(parts.ml_dtype) if parts.ml_dtype in ML_DTYPES else None
    if made is None or made.type != type:
        raise InvalidData(f"a damaged handle: elements of {shown(parts.ml_dtype)} over {type}")
    return made


def _array(elements: Any, dtype: np.dtype[Any] | None, memory: Memory) -> NDArray:
    """Return an ndarray over its place, after checking that all elements are in bounds."""
    if not isinstance(elements, Elements):
        raise InvalidData(f"a damaged handle: expected an ndarray, found {shown(elements)}")
    place, start, name, shape, strides = elements
    if dtype is None:
        if name not in _INDEX_DTYPES:
            raise InvalidData(f"a damaged handle: an index of dtype {shown(name)}")
        dtype = np.dtype(name)
    numbers = [start, *shape, *strides]
    if (
        len(shape) != len(strides)
        or len(shape) > MAX_DIMENSIONS
        or not all(isinstance(number, int) and 0 <= number < 1 << 63 for number in numbers)
    ):
        raise InvalidData(f"a damaged handle: an ndarray at {start} of shape {shown(shape)}, strides {shown(strides)}")
    if 0 in shape:
        return np.empty(shape, dtype)
    end = start + sum((size - 1) * step for size, step in zip(shape, strides, strict=True)) + dtype.itemsize
    data = memory.data(place)
    if end > len(data):
        raise InvalidData(f"a damaged handle: an ndarray needs the bytes [{start}, {end}) of {len(data)}")
    if prod(shape) > max(len(data), EXPANDED_VALUES):  # possible with strides of 0
        raise InvalidData(f"a damaged handle: {prod(shape)} elements in the {len(data)} bytes of their place")
    try:
        return np.ndarray(shape, dtype, data, start, strides)
    except ValueError as error:  # more elements than numpy supports
        raise InvalidData(f"a damaged handle: {error}") from None


_INDEX_DTYPES = {f"{order}{kind}{size}" for order in "<|" for kind in "iu" for size in (1, 2, 4, 8)}
