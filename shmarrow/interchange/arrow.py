"""From objects of any library with an Arrow interface: methods that give a pyarrow array, or capsules."""

from __future__ import annotations

from typing import Any

from shmarrow.chunked import ChunkedArray
from shmarrow.errors import InvalidType, full_name
from shmarrow.interchange.pyarrow import array_from_pyarrow, partner


def array_from_arrow(value: Any) -> Any:
    """The array over the buffers of an object that has an Arrow interface; a copy only where it has several chunks.

    Parameters
    ----------
    value : object
        A pyarrow array, or an object with a method ``__arrow_array__``, ``__arrow_c_array__`` or
        ``__arrow_c_stream__``. Rows of several columns become structs.

    Raises
    ------
    InvalidType
        If the object does not give what its method promises.
    Unsupported
        If its type is unknown here.
    MissingExtra
        If pyarrow is not installed.
    """
    pa = partner()
    if not isinstance(value, (pa.Array, pa.ChunkedArray)):
        whole = hasattr(value, "__arrow_array__") or hasattr(value, "__arrow_c_array__")
        try:
            value = pa.array(value) if whole else pa.chunked_array(value)
        except (pa.ArrowException, TypeError, ValueError) as error:
            raise InvalidType(f"{full_name(value)} does not give an Arrow array: {error}") from None
    made = array_from_pyarrow(value)
    return made.combine_chunks() if isinstance(made, ChunkedArray) else made
