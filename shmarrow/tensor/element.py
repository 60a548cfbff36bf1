# SPDX-License-Identifier: Apache-2.0
"""Element types of tensors and their encoding in messages.

Invariants:

* elements have a fixed-width type of whole bytes and no nulls; a bool takes a byte;
* messages only use types that every implementation reads, integers and floats: bools, dates, times and small decimals
  are written as integers of their size, with the actual type in the message's metadata;
* floats without an Arrow type, such as bfloat16, are integers in memory too, with their name in the metadata.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np

from shmarrow import capsules, types
from shmarrow.buffer import DType, NDArray
from shmarrow.errors import CopyRequired, InvalidArgument, InvalidData, InvalidType, MissingExtra, optional, shown
from shmarrow.types import DataType, ExtensionType, Metadata
from shmarrow.types.descriptors import parse_format

ELEMENT_KEY = b"shmarrow:element"
"""The metadata key for the actual element type."""

ML_DTYPES: dict[str, DType] = {
    "bfloat16": np.dtype("<u2"),
    **{
        f"float8_{name}": np.dtype("u1")
        for name in ("e3m4", "e4m3", "e4m3b11fnuz", "e4m3fn", "e4m3fnuz", "e5m2", "e5m2fnuz", "e8m0fnu")
    },
    **dict.fromkeys(("float4_e2m1fn", "float6_e2m3fn", "float6_e3m2fn"), np.dtype("u1")),
    **{f"{kind}{bits}": np.dtype("u1") for kind in ("int", "uint") for bits in (1, 2, 4)},
}
"""Machine-learning numbers without an Arrow type, by their ``ml_dtypes`` name, and how they are stored.

``ml_dtypes`` itself stores those of less than 8 bits as a byte each.
"""


class Element(NamedTuple):
    """The element type of a tensor.

    Attributes
    ----------
    type : DataType
        The Arrow type.
    ml_dtype : str or None
        One of :data:`ML_DTYPES`, if the integers of ``type`` are the bits of such floats.
    """

    type: DataType
    ml_dtype: str | None = None

    @property
    def dtype(self) -> DType:
        """The dtype of the stored elements."""
        return _dtype_of(self.type)

    @property
    def numpy_dtype(self) -> DType:
        """The dtype presented to numpy."""
        return self.dtype if self.ml_dtype is None else _ml_dtype(self.ml_dtype)

    def __str__(self) -> str:
        return self.ml_dtype or str(self.type)


def checked_type(type: DataType) -> DataType:
    """Check that a type can be an element type."""
    _dtype_of(type)
    return type


def _dtype_of(type: DataType) -> DType:
    """The dtype of one element of a type.

    Raises
    ------
    InvalidType
        If it cannot be an element type.
    """
    if type == types.bool_():
        return np.dtype(bool)
    storage = type.storage
    if storage is None or not storage.itemsize or isinstance(type, (ExtensionType, types.DictionaryType)):
        raise InvalidType(f"the elements of a tensor must have a fixed width of at least one byte, found {type}")
    if storage.subdtype is not None:  # decimals of several words
        return np.dtype((np.void, storage.itemsize))
    return type.numpy_dtype or storage


def _ml_dtype(name: str) -> DType:
    return np.dtype(getattr(optional("ml_dtypes", "without it, use the integers of `storage`"), name))


def element_of(dtype: DType) -> Element:
    """The element type of a numpy dtype, ignoring byte order.

    Raises
    ------
    InvalidType
        If Arrow has no fixed-width type for it.
    """
    from shmarrow.types.primitive import from_numpy_dtype

    if dtype.kind == "T":
        raise InvalidType(f"the elements of a tensor have a fixed width, found {dtype}", hint="use an array of strings")
    if dtype.name in ML_DTYPES:
        storage = ML_DTYPES[dtype.name]
        return Element(types.IntType(8 * storage.itemsize, False), dtype.name)
    if dtype.kind == "c":
        raise InvalidType(
            f"Arrow has no type for {dtype}; view the array as real and imaginary parts in a last dimension of 2: "
            f"array.view('f{dtype.itemsize // 2}').reshape(*array.shape, 2)"
        )
    return Element(checked_type(from_numpy_dtype(dtype)))


def as_element(type: DataType | DType | str) -> Element:
    """The element type given as a type, a numpy dtype, or the name of either."""
    if isinstance(type, str) and type in ML_DTYPES:
        return Element(types.IntType(8 * ML_DTYPES[type].itemsize, False), type)
    if isinstance(type, (DataType, str)):
        return Element(checked_type(types.as_type(type)))
    try:
        dtype = np.dtype(type)
    except TypeError:
        raise InvalidType(f"expected a type, a dtype or the name of one, found {shown(type)}") from None
    return element_of(dtype)


@lru_cache(256)
def _stored(dtype: DType) -> tuple[Element, DType]:
    """The element type of ndarrays of a dtype, and the dtype of what is stored."""
    element = element_of(dtype)
    return element, element.dtype


def as_storage(values: NDArray, type: DataType | None) -> tuple[NDArray, Element]:
    """Convert an ndarray to a tensor's storage, as a view if possible; also returns the element type.

    Parameters
    ----------
    values : ndarray
        Of any dtype with a fixed-width Arrow type.
    type : DataType, optional
        The Arrow type, if not implied by the dtype: dates and decimals over integers.
    """
    if type is None:
        element, dtype = _stored(values.dtype)
    else:
        element = Element(types.as_type(type))
        dtype = element.dtype
    if values.dtype == dtype:
        return values, element
    if element.ml_dtype is not None:
        return values.view(dtype), element
    if values.dtype.newbyteorder("<") == dtype:
        return values.astype(dtype), element
    if values.dtype == _DAYS and element.type == types.date32():
        if np.isnat(values).any():
            raise InvalidData("a tensor cannot hold nulls, found NaT")
        days = values.astype(np.int64)
        if days.size and not (int(days.min()) >= -(1 << 31) and int(days.max()) < 1 << 31):
            raise InvalidData("days must fit into 32 bits, found one beyond 2**31 from 1970")
        return days.astype(dtype), element
    if values.dtype.kind not in "iuV" or (type is not None and element.type.descriptor.values in ("integer", "float")):
        raise InvalidType(f"elements of {element} must have dtype {dtype}, found {values.dtype}; see ndarray.astype")
    if values.dtype.itemsize != dtype.itemsize or not values.dtype.isnative:
        raise InvalidType(
            f"elements of {element} must be native integers of {dtype.itemsize} bytes, found {values.dtype}"
        )
    return values.view(dtype), element


_DAYS = np.dtype("M8[D]")


def element_values(storage: NDArray, element: Element) -> NDArray:
    """A view of the elements as numbers if numpy has a dtype for them, else as stored."""
    if element.ml_dtype is None:
        return storage
    try:
        return storage.view(element.numpy_dtype)
    except MissingExtra:
        return storage


def read_only(array: NDArray) -> NDArray:
    """Return a read-only view."""
    view = array.view()
    view.flags.writeable = False
    return view


def checked_bools(array: NDArray) -> NDArray:
    """Check that bools are bytes of 0 or 1; returns the array."""
    if array.dtype.kind == "b" and array.size and array.view(np.uint8).max() > 1:
        raise InvalidData(f"a bool must be a byte of 0 or 1, found {int(array.view(np.uint8).max())}")
    return array


# --- from other values ------------------------------------------------------------------------------------------


def as_ndarray(value: Any) -> NDArray:
    """Convert a value to an ndarray; columns without copying.

    Raises
    ------
    CopyRequired
        If a column has nulls, or its values have no zero-copy numpy form.
    InvalidType
        If it is a masked array.
    """
    from shmarrow.build import array
    from shmarrow.layout.dlpack import ndarray_of

    if isinstance(value, np.ma.MaskedArray):
        raise InvalidType("a tensor cannot hold nulls; fill the masked array first: array.filled()")
    if isinstance(getattr(value, "dtype", None), np.dtype) or not capsules.is_column(value):
        return ndarray_of(value)
    column = array(value, from_pandas=False)
    if column.null_count:
        raise CopyRequired(f"a tensor cannot hold nulls, and the column has {column.null_count}; replace them first")
    return column.to_numpy(zero_copy_only=True)


# --- encoding ------------------------------------------------------------------------------------------------


def to_wire(element: Element) -> tuple[DataType, Metadata]:
    """The type of elements in messages, and the metadata with their actual type."""
    type = element.type
    if element.ml_dtype is not None:
        return type, {ELEMENT_KEY: element.ml_dtype.encode()}
    kind = type.descriptor.values
    if kind in ("integer", "float", "interval", "bytes") or (kind == "decimal" and type.bit_width > 64):
        return type, {}
    return types.IntType(8 * element.dtype.itemsize, True), {ELEMENT_KEY: type.format.encode()}


def from_wire(type: DataType, metadata: Metadata | None, where: str) -> tuple[Element, Metadata | None]:
    """The element type for a message's type and metadata, and the remaining metadata.

    An unknown name, from a later version, is ignored.
    """
    try:
        element = Element(type)
        dtype = element.dtype
    except InvalidType as error:
        raise InvalidData(f"{where}: {error}") from None
    if dtype.kind == "b":
        raise InvalidData(f"{where}: bool elements are bits, but strides count bytes; expected a type of whole bytes")
    name = metadata.get(ELEMENT_KEY) if metadata else None
    if metadata is None or name is None:
        return element, metadata
    meant = _named_element(name)
    if meant is None:
        return element, metadata
    if meant.dtype.itemsize != dtype.itemsize or type.descriptor.values != "integer":
        raise InvalidData(f"{where}: the elements are stored as {type}, which cannot represent {name!r}")
    left = {key: value for key, value in metadata.items() if key != ELEMENT_KEY}
    return meant, left or None


def _named_element(name: bytes) -> Element | None:
    """The element type named in the metadata: a C data interface format string, or one of ML_DTYPES."""
    try:
        text = name.decode()
        element = as_element(text) if text in ML_DTYPES else Element(parse_format(text))
        return element if to_wire(element)[1] == {ELEMENT_KEY: name} else None
    except (UnicodeDecodeError, InvalidArgument, InvalidType):
        return None
