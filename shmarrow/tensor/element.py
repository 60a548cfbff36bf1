"""The elements of tensors: which types they can have, and how those travel.

Rules kept here:

* an element takes whole bytes and has no nulls, so it has one of the fixed-width types; a bool takes a byte;
* on the wire a type that every implementation of tensors reads, an integer or a float, stands for the others: bools,
  dates, times and small decimals travel as integers of the same size, with the type itself in the message's metadata;
* floats that Arrow has no type for, such as bfloat16, are integers to Arrow in memory too, and carry their name.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

import numpy as np

from shmarrow import types
from shmarrow.errors import CopyRequired, InvalidArgument, InvalidData, InvalidType, MissingExtra, shown
from shmarrow.layout import Array
from shmarrow.types import DataType, Metadata
from shmarrow.types.descriptors import parse_format
from shmarrow.types.extension import ExtensionType

if TYPE_CHECKING:
    import numpy.typing as npt

NDArray: TypeAlias = "npt.NDArray[Any]"
DType = np.dtype[Any]

ELEMENT_KEY = b"shmarrow:element"
"""The key in a message's metadata that says what its integers stand for."""

ML_DTYPES: dict[str, DType] = {
    "bfloat16": np.dtype("<u2"),
    **{
        f"float8_{name}": np.dtype("u1")
        for name in ("e3m4", "e4m3", "e4m3b11fnuz", "e4m3fn", "e4m3fnuz", "e5m2", "e5m2fnuz", "e8m0fnu")
    },
}
"""Floats of machine learning that Arrow has no type for, by the names that ``ml_dtypes`` gives them."""


class Element(NamedTuple):
    """What the elements of a tensor are.

    Attributes
    ----------
    type : DataType
        Their Arrow type.
    ml_dtype : str or None
        One of :data:`ML_DTYPES`, where the integers of ``type`` are the bits of such floats.
    """

    type: DataType
    ml_dtype: str | None = None

    @property
    def dtype(self) -> DType:
        """The dtype of the elements as they lie in memory."""
        return _dtype_of(self.type)

    @property
    def numpy_dtype(self) -> DType:
        """The dtype that numpy users see."""
        return self.dtype if self.ml_dtype is None else _ml_dtype(self.ml_dtype)

    def __str__(self) -> str:
        return self.ml_dtype or str(self.type)


def checked_type(type: DataType) -> DataType:
    """The type, if elements of a tensor can have it."""
    _dtype_of(type)
    return type


@lru_cache(256)
def _dtype_of(type: DataType) -> DType:
    """The dtype of one element of a type.

    Raises
    ------
    InvalidType
        If elements of a tensor cannot have this type.
    """
    if type.layout == "bool":
        return np.dtype(bool)
    storage = type.storage
    if type.layout != "primitive" or isinstance(type, ExtensionType) or storage is None or not storage.itemsize:
        raise InvalidType(f"a tensor holds values of a fixed number of bytes, at least one, found {type}")
    if storage.subdtype is not None:  # decimals of several words
        return np.dtype((np.void, storage.itemsize))
    dtype: DType = type.numpy_dtype or storage
    return dtype


def _ml_dtype(name: str) -> DType:
    try:
        import ml_dtypes
    except ImportError as error:
        raise MissingExtra(
            f"ml_dtypes is needed for elements of {name}: pip install 'shmarrow[tensor]' ({error}); "
            "the attribute `storage` has the bits as integers without it"
        ) from None
    dtype: DType = np.dtype(getattr(ml_dtypes, name))
    return dtype


@lru_cache(256)
def element_of(dtype: DType) -> Element:
    """The element that a numpy dtype is, byte order aside.

    Raises
    ------
    InvalidType
        If Arrow has no fixed-width type for it.
    """
    if dtype.name in ML_DTYPES:
        storage = ML_DTYPES[dtype.name]
        return Element(types.IntType(8 * storage.itemsize, False), dtype.name)
    if dtype.kind == "c":
        raise InvalidType(
            f"Arrow has no type for {dtype}; view the array as real and imaginary parts in a last dimension of 2: "
            f"array.view('f{dtype.itemsize // 2}').reshape(*array.shape, 2)"
        )
    from shmarrow.types.dtypes import from_numpy_dtype

    return Element(checked_type(from_numpy_dtype(dtype)))


def as_element(type: DataType | DType | str) -> Element:
    """The element that a type, a numpy dtype or the name of either is."""
    if isinstance(type, str) and type in ML_DTYPES:
        return Element(types.IntType(8 * ML_DTYPES[type].itemsize, False), type)
    if isinstance(type, (DataType, str)):
        return Element(checked_type(types.as_type(type)))
    try:
        return element_of(np.dtype(type))
    except TypeError:
        raise InvalidType(f"expected a type, a dtype or the name of one, found {shown(type)}") from None


def as_storage(values: NDArray, type: DataType | None) -> tuple[NDArray, Element]:
    """An ndarray as the elements of a tensor have it in memory, a view where it can be; and its element.

    Parameters
    ----------
    values : ndarray
        Of any dtype that Arrow has a fixed-width type for.
    type : DataType, optional
        The type that the values stand for, where it is not that of the dtype: dates and decimals over integers.
    """
    found = element_of(values.dtype) if type is None else Element(types.as_type(type))
    dtype = found.dtype
    if values.dtype == dtype:
        return values, found
    if found.ml_dtype is not None:
        return values.view(dtype), found
    if values.dtype.newbyteorder("<") == dtype:
        return values.astype(dtype), found
    if values.dtype == _DAYS and isinstance(found.type, types.DateType) and found.type.unit == "day":
        if np.isnat(values).any():
            raise InvalidData("a tensor has no nulls, and these days have NaT among them")
        days = values.astype(np.int64)
        if days.size and not (int(days.min()) >= -(1 << 31) and int(days.max()) < 1 << 31):
            raise InvalidData("a tensor's days have 32 bits, and some of these are further from 1970 than 2**31 days")
        return days.astype(dtype), found
    if isinstance(type, (types.IntType, types.FloatType)) or values.dtype.kind not in "iuV":
        raise InvalidType(f"elements of {found} are values of {dtype}, found {values.dtype}; see ndarray.astype")
    if values.dtype.itemsize != dtype.itemsize or not values.dtype.isnative:
        raise InvalidType(f"elements of {found} take {dtype.itemsize} bytes of native integers, found {values.dtype}")
    return values.view(dtype), found


_DAYS = np.dtype("M8[D]")


def element_values(storage: NDArray, element: Element) -> NDArray:
    """Elements as numbers where numpy can take them for such, else as they lie in memory; a view."""
    if element.ml_dtype is None:
        return storage
    try:
        return storage.view(element.numpy_dtype)
    except MissingExtra:
        return storage


def checked_bools(array: NDArray) -> NDArray:
    """An array whose bools, if it has any, are bytes of 0 and 1."""
    if array.dtype.kind == "b" and array.size and array.view(np.uint8).max() > 1:
        raise InvalidData(f"a bool must be a byte of 0 or 1, found {int(array.view(np.uint8).max())}")
    return array


# --- from other values ------------------------------------------------------------------------------------------

_COLUMN = ("__arrow_c_array__", "__arrow_c_stream__", "__arrow_array__")


def is_column(value: Any) -> bool:
    """Whether a value is an array or a Series, of any package, that may have nulls, or types that numpy has not."""
    from shmarrow.chunked import ChunkedArray

    if isinstance(value, (Array, ChunkedArray)):
        return True
    if hasattr(value, "columns") or hasattr(value, "schema"):
        return False
    return any(hasattr(value, name) for name in _COLUMN) or type(value).__module__.partition(".")[0] == "pandas"


def as_ndarray(value: Any) -> NDArray:
    """The ndarray that a value has; of a column its values, without a copy.

    Raises
    ------
    CopyRequired
        If a column has nulls, which no ndarray has, or numpy has no zero-copy form of its values.
    """
    if isinstance(getattr(value, "dtype", None), np.dtype) or not is_column(value):
        return np.asarray(value)
    from shmarrow.build import array

    column = array(value, from_pandas=False)
    if column.null_count:
        raise CopyRequired(f"a tensor cannot hold nulls, and the column has {column.null_count}; replace them first")
    values: NDArray = column.to_numpy(zero_copy_only=True)
    return values


# --- on the wire ------------------------------------------------------------------------------------------------


def to_wire(element: Element) -> tuple[DataType, Metadata]:
    """The type that elements travel as, and the metadata that say what they are."""
    type = element.type
    if element.ml_dtype is not None:
        return type, {ELEMENT_KEY: element.ml_dtype.encode()}
    kind = type.descriptor.values
    if kind in ("integer", "float", "interval", "bytes") or (kind == "decimal" and type.bit_width > 64):
        return type, {}
    return types.IntType(8 * element.dtype.itemsize, True), {ELEMENT_KEY: type.format.encode()}


def from_wire(type: DataType, metadata: Metadata | None, where: str) -> tuple[Element, Metadata | None]:
    """The element that a message's type and metadata mean, and the metadata that are left.

    A name from a later version, which is not known here, leaves the elements what they travel as.
    """
    try:
        element = Element(type)
        dtype = element.dtype
    except InvalidType as error:
        raise InvalidData(f"{where}: {error}") from None
    if isinstance(type, types.BoolType):
        raise InvalidData(f"{where}: the elements are bool, which takes a bit; a tensor's strides count bytes")
    name = metadata.get(ELEMENT_KEY) if metadata else None
    if metadata is None or name is None:
        return element, metadata
    meant = _named_element(name)
    if meant is None:
        return element, metadata
    if meant.dtype.itemsize != dtype.itemsize or not isinstance(type, types.IntType):
        raise InvalidData(f"{where}: the elements are stored as {type}, which cannot represent {name!r}")
    left = {key: value for key, value in metadata.items() if key != ELEMENT_KEY}
    return meant, left or None


def _named_element(name: bytes) -> Element | None:
    """The element of a name in the metadata: a format string of the C data interface, or one of ML_DTYPES."""
    try:
        text = name.decode()
        found = as_element(text) if text in ML_DTYPES else Element(parse_format(text))
        return found if to_wire(found)[1] == {ELEMENT_KEY: name} else None
    except (UnicodeDecodeError, InvalidArgument, InvalidType):
        return None
