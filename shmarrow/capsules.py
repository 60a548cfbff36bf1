# SPDX-License-Identifier: Apache-2.0
"""Other libraries' objects that have the Arrow PyCapsule interface: how they are recognised and imported.

They are accepted wherever ours are expected. Invariants:

* an object is recognised by the methods of its class, so no library is imported to ask;
* pandas' objects are read by ``build`` and ``frames``, which know what pandas means by null and by its index.

The functions that import an object, such as ``read_field`` and ``read_table``, stand where its class does, and copy
nothing. They raise InvalidType if it is of another kind, InvalidData if it breaks the rules of the C data interface,
Unsupported if it has a type that is unknown here, and MissingExtra if nanoarrow is not installed.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias, TypeVar

from shmarrow.errors import InvalidType, full_name, not_expected

T = TypeVar("T")

PyCapsule: TypeAlias = object
"""A capsule of the Arrow PyCapsule interface; Python has a class for it from 3.13 on."""

SCHEMA, ARRAY, STREAM = "__arrow_c_schema__", "__arrow_c_array__", "__arrow_c_stream__"


def has_schema(obj: object) -> bool:
    """Whether another library's object exports its type by ``__arrow_c_schema__``."""
    return _has(obj, SCHEMA)


def has_data(obj: object) -> bool:
    """Whether another library's object exports an array or a stream."""
    return _has(obj, STREAM) or _has(obj, ARRAY)


def has_stream(obj: object) -> bool:
    """Whether another library's object exports a stream."""
    return _has(obj, STREAM)


def is_frame(obj: object) -> bool:
    """Whether an object is a ``pandas.DataFrame``, or of a subclass."""
    frames = [base for base in type(obj).__mro__ if base.__name__ == "DataFrame"]
    return any(base.__module__.partition(".")[0] == "pandas" for base in frames)


def is_column(obj: object) -> bool:
    """Whether an object is an array or a series of any library, which may have nulls and types that numpy lacks."""
    if hasattr(obj, "columns") or hasattr(obj, "schema"):
        return False
    return any(hasattr(obj, name) for name in _COLUMN) or type(obj).__module__.partition(".")[0] == "pandas"


_COLUMN = (ARRAY, STREAM, "__arrow_array__")


def _has(obj: object, method: str) -> bool:
    kind = obj.__class__
    return hasattr(kind, method) and kind.__module__.partition(".")[0] not in ("pandas", "shmarrow")


# --- other operands, and advice ---------------------------------------------------------------------------------


def comparable(obj: Any, kind: type[T], read: Callable[[Any], T]) -> T:
    """Return the operand of ``equals`` as a ``kind``, importing another library's object with ``read``.

    Raises
    ------
    InvalidType
        If it is neither; an object of ours of another kind is not converted.
    """
    if isinstance(obj, kind):
        return obj
    maker = _MAKERS.get(kind.__name__)
    if has_schema(obj) if maker is None else has_data(obj):
        return read(obj)
    error = not_expected(f"a shmarrow.{kind.__name__} to compare with", obj)
    convertible = isinstance(obj, (list, tuple)) or full_name(obj).partition(".")[0] in ("shmarrow", "pandas", "numpy")
    if kind.__name__ == "Schema" and hasattr(type(obj), "schema"):
        error.hint = "pass its .schema"
    elif convertible and maker:
        error.hint = f"shmarrow.{maker}(...) converts it"
    raise error


def single_column(obj: Any) -> InvalidType:
    """Return the error for a column without a name where a table is expected."""
    return InvalidType(f"a {full_name(obj)} is a single column", hint="give its name, as in {'name': values}")


_MAKERS = {"Array": "array", "ChunkedArray": "chunked_array", "RecordBatch": "record_batch", "Table": "table"}
"""The functions of this package that convert values, by the class that they return."""


def next_step(obj: object) -> str | None:
    """Return the hint for an object that must be asked for its data first; None for any other."""
    names = [full_name(obj), *[base.__name__ for base in type(obj).__mro__]]
    return next((_NEXT_STEP[name] for name in names if name in _NEXT_STEP), None)


_COMPUTE, _AGG = "call .compute() first", "call .agg(...) first"
_NEXT_STEP = {
    "LazyFrame": "call .collect() first",
    "LazyGroupBy": _AGG,
    "GroupBy": _AGG,
    "DataFrameGroupBy": _AGG,
    "SeriesGroupBy": _AGG,
    "dask.DataFrame": _COMPUTE,
    "dask.Series": _COMPUTE,
    "dask.Array": _COMPUTE,
    "dask.Bag": _COMPUTE,
    "pyspark.DataFrame": "call .toArrow() first",
    "Schema": "a schema has no rows; pass shmarrow.Table.from_batches([], schema)",
    "DuckDBPyConnection": "pass what its .sql(...) returns",
    "datasets.Dataset": 'pass .with_format("arrow")[:]',
    "datasets.DatasetDict": 'pass one of its splits, as in splits["train"].with_format("arrow")[:]',
    "Dataset": "pass .to_table(), or .scanner().to_reader() to read it batch by batch",
    "Scanner": "pass .to_table(), or .to_reader() to read it batch by batch",
    "ParquetFile": "pass .read()",
}
"""Calls that turn objects which only promise data into data, by class name, alone or with the package."""
