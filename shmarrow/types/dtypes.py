"""Arrow types for numpy dtypes."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from shmarrow.buffer import DType
from shmarrow.errors import InvalidType, shown
from shmarrow.types import base
from shmarrow.types.base import DataType
from shmarrow.types.descriptors import TIME_UNIT, simple_types
from shmarrow.types.primitive import FixedSizeBinaryType, bool_, date32, timestamp

if TYPE_CHECKING:
    import numpy.typing as npt

__all__ = ["from_numpy_dtype"]


def from_numpy_dtype(dtype: npt.DTypeLike) -> DataType:
    """Return the type for a numpy dtype, or anything ``np.dtype`` accepts, such as ``"M8[ms]"``.

    Raises
    ------
    InvalidType
        If numpy does not know the dtype, or no Arrow type corresponds to it.
    """
    if not isinstance(dtype, np.dtype):
        try:
            dtype = np.dtype(dtype)
        except (TypeError, ValueError) as error:
            raise InvalidType(f"expected a numpy dtype, found {shown(dtype)}: {error}") from None
    type = base.by_dtype().get(dtype.newbyteorder("<"))
    if type is None and dtype.kind == "V" and dtype.names is None and dtype.subdtype is None:
        type = FixedSizeBinaryType(dtype.itemsize)
    if type is None:
        raise InvalidType(f"no Arrow type for the numpy dtype {dtype}")
    return type


def by_dtype() -> dict[DType, DataType]:
    """Types that have a numpy dtype; cached by :func:`shmarrow.types.base.by_dtype`."""
    return {
        np.dtype("<M8[D]"): date32(),
        np.dtype("bool"): bool_(),
        # The first type with a dtype wins, and M8[ms] is a timestamp rather than date64.
        **{
            type.numpy_dtype: type
            for type in reversed([*simple_types().values(), *map(timestamp, TIME_UNIT.values)])
            if type.numpy_dtype is not None and type.descriptor.values != "date"
        },
    }
