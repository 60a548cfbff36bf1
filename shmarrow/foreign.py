"""Accept other libraries' objects with the Arrow PyCapsule interface wherever ours are expected.

Invariants:

* an object is recognised by the methods of its class, so no library is imported to ask;
* what reads them stands far above those who ask, and is put into :data:`READERS` by ``interchange``;
* pandas' objects are left to those who know its marks for null.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from shmarrow.errors import InvalidType, full_name, not_expected

SCHEMA, ARRAY, STREAM = "__arrow_c_schema__", "__arrow_c_array__", "__arrow_c_stream__"

READERS: dict[str, Callable[[Any], Any]] = {}
"""By the name of a class of ours in lower case, what makes one from an object that has the interface."""

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
    "Schema": "a schema has no rows; pass schema.empty_table()",
    "DuckDBPyConnection": "pass what its .sql(...) returns",
    "Dataset": "pass .to_table(), or .scanner().to_reader() to read it batch by batch",
    "Scanner": "pass .to_table(), or .to_reader() to read it batch by batch",
    "ParquetFile": "pass .read()",
}
"""What turns objects that only promise data into data, by the names of their classes, alone or with the package."""


def has_schema(obj: Any) -> bool:
    """Whether another library's object exports its type by ``__arrow_c_schema__``."""
    return _has(obj, SCHEMA)


def has_data(obj: Any) -> bool:
    """Whether another library's object exports an array or a stream."""
    return _has(obj, STREAM) or _has(obj, ARRAY)


def has_stream(obj: Any) -> bool:
    """Whether another library's object exports a stream."""
    return _has(obj, STREAM)


def _has(obj: Any, method: str) -> bool:
    kind = obj.__class__
    return hasattr(kind, method) and kind.__module__.partition(".")[0] not in ("pandas", "shmarrow")


def read(kind: str, obj: Any) -> Any:
    """Import another library's object, without copying, as a ``type``, ``field``, ``schema``, ``array`` and so on.

    Raises
    ------
    InvalidType
        If the object is of another kind.
    InvalidData
        If what it gives breaks the rules of the C data interface.
    Unsupported
        If it has a type that is unknown here.
    """
    return READERS[kind](obj)


def comparable(obj: Any, kind: Any, name: str) -> Any:
    """Return the operand of ``equals`` as a ``kind``, importing another library's object.

    Raises
    ------
    InvalidType
        If it is neither; an object of ours of another kind is not converted.
    """
    if isinstance(obj, kind):
        return obj
    if has_schema(obj) if name in ("type", "field", "schema") else has_data(obj):
        return read(name, obj)
    error = not_expected(f"a shmarrow.{kind.__name__} to compare with", obj)
    convertible = isinstance(obj, (list, tuple)) or full_name(obj).partition(".")[0] in ("shmarrow", "pandas", "numpy")
    hint = f"; shmarrow.{name}(...) converts it" if convertible and name not in ("type", "field", "schema") else ""
    if name == "schema" and hasattr(type(obj), "schema"):
        hint = "; pass its .schema"
    raise InvalidType(f"{error}{hint}")


def next_step(obj: Any) -> str:
    """Return the hint for an object that must be asked for its data first; empty for any other."""
    names = [full_name(obj), *[base.__name__ for base in type(obj).__mro__]]
    found = next((_NEXT_STEP[name] for name in names if name in _NEXT_STEP), "")
    return f"; {found}" if found else ""
