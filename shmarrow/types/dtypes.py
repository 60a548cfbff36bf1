"""The types of numpy's dtypes."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from shmarrow.errors import InvalidType, shown
from shmarrow.types import base
from shmarrow.types.base import DataType, DType
from shmarrow.types.descriptors import TIME_UNIT, simple_types
from shmarrow.types.primitive import FixedSizeBinaryType, bool_, date32, timestamp

if TYPE_CHECKING:
    import numpy.typing as npt

__all__ = ["from_numpy_dtype"]


def from_numpy_dtype(dtype: npt.DTypeLike) -> DataType:
    """The type of values of a dtype, or of what numpy makes one of, such as ``"M8[ms]"``.

    Raises
    ------
    InvalidType
        If there is none, or numpy has no such dtype.
    """
    if not isinstance(dtype, np.dtype):
        try:
            dtype = np.dtype(dtype)
        except (TypeError, ValueError) as error:
            raise InvalidType(f"expected a numpy dtype, found {shown(dtype)}: {error}") from None
    found = base.by_dtype().get(dtype.newbyteorder("<"))
    if found is None and dtype.kind == "V" and dtype.names is None and dtype.subdtype is None:
        found = FixedSizeBinaryType(dtype.itemsize)
    if found is None:
        raise InvalidType(f"there is no Arrow type for the numpy dtype {dtype}")
    return found


def by_dtype() -> dict[DType, DataType]:
    """The types that numpy has a dtype for; :func:`shmarrow.types.base.by_dtype` keeps them."""
    return {
        np.dtype("<M8[D]"): date32(),
        np.dtype("bool"): bool_(),
        # Of two types with one dtype the first, and milliseconds are moments rather than days.
        **{
            type.numpy_dtype: type
            for type in reversed([*simple_types().values(), *map(timestamp, TIME_UNIT.values)])
            if type.numpy_dtype is not None and type.descriptor.values != "date"
        },
    }
