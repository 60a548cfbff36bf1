"""The methods that arrays, columns and schemas have for other tools, each imported when it is called."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypeVar

from shmarrow.types import Schema

T = TypeVar("T")


def array_for_consumer(self: T, name: str, *, lossy: str | Iterable[str] = ()) -> T:
    """The same values as a type that another tool accepts; the same object if it accepts this one.

    Parameters
    ----------
    name : str
        The tool: ``"spark"``, ``"polars"``, ``"duckdb"``, ``"pandas"`` or ``"parquet"``.
    lossy : str or iterable of str
        Kinds of types whose values may lose something, such as ``"timestamp"`` or ``"decimal256"``, or ``"all"``.
        By default no value changes.

    Returns
    -------
    Array or ChunkedArray
        Only what has to change is copied.

    Raises
    ------
    Unsupported
        If the tool has no type for the values; says which name for ``lossy`` would help, if one does.
    InvalidData
        If a value does not fit the new type; likewise.
    InvalidArgument
        If ``name`` is none of these, or nothing of a kind in ``lossy`` is ever lost.
    """
    from shmarrow.interchange.for_consumer import array

    result: T = array(self, name, lossy)
    return result


def columns_for_consumer(self: T, name: str, *, lossy: str | Iterable[str] = ()) -> T:
    """The same rows with columns of types that another tool accepts.

    Columns of types that it accepts are not built and stay the same objects; if it accepts all, so does the whole.

    Parameters
    ----------
    name : str
        The tool: ``"spark"``, ``"polars"``, ``"duckdb"``, ``"pandas"`` or ``"parquet"``.
    lossy : str or iterable of str
        Kinds of types whose values may lose something, such as ``"timestamp"`` or ``"decimal256"``, or ``"all"``.
        By default no value changes.

    Returns
    -------
    RecordBatch or Table
        Its schema is ``schema.for_consumer(name, lossy=lossy)``, whatever the values are.

    Raises
    ------
    Unsupported
        If the tool has no type for a column; says which name for ``lossy`` would help, if one does.
    InvalidData
        If a value does not fit the new type; likewise.
    InvalidArgument
        If ``name`` is none of these, or nothing of a kind in ``lossy`` is ever lost.

    Examples
    --------
    >>> import shmarrow as sa
    >>> batch = sa.record_batch({"n": sa.array([1, 2], "uint64"), "s": sa.array(["a", "b"], "string_view")})
    >>> batch.for_consumer("spark").schema.types
    [decimal128(20, 0), string]
    """
    from shmarrow.interchange.for_consumer import columns

    result: T = columns(self, name, lossy)
    return result


def schema_for_consumer(self: Schema, name: str, *, lossy: str | Iterable[str] = ()) -> Schema:
    """The schema that rows of this one have after ``for_consumer``; itself if the tool accepts all its types.

    Parameters
    ----------
    name : str
        The tool; see :meth:`RecordBatch.for_consumer`.
    lossy : str or iterable of str
        Kinds of types whose values may lose something, or ``"all"``.

    Raises
    ------
    Unsupported
        If the tool has no type for a column; says which name for ``lossy`` would help, if one does.
    InvalidArgument
        If ``name`` is no tool of the table, or nothing of a kind in ``lossy`` is ever lost.
    """
    from shmarrow.interchange.for_consumer import schema

    return schema(self, name, lossy)
