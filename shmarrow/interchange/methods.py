"""Methods of arrays, columns and schemas for other tools; their implementations are imported on first call."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from shmarrow.types import DataType, MetadataLike, Schema

if TYPE_CHECKING:
    import pandas as pd

    from shmarrow.layout import Array
    from shmarrow.tables import RecordBatchReader

T = TypeVar("T")


def array_for_consumer(self: T, name: str = "", *, lossy: str | Iterable[str] = ()) -> T:
    """Cast to a type that another tool accepts; returns the same object if none is needed.

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
        Only data that must change is copied.

    Raises
    ------
    Unsupported
        If the tool has no type for the values; names the ``lossy`` kind that would allow a cast, if any.
    InvalidData
        If a value does not fit the new type; likewise.
    InvalidArgument
        If ``name`` is unknown, or ``lossy`` names a kind that never loses anything.
    """
    from shmarrow.interchange.for_consumer import array

    result: T = array(self, name, lossy)
    return result


def columns_for_consumer(self: T, name: str = "", *, lossy: str | Iterable[str] = ()) -> T:
    """Cast the columns to types that another tool accepts.

    Columns that it accepts are neither built nor copied; if it accepts all of them, the same object is returned.

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
        Its schema is ``schema.for_consumer(name, lossy=lossy)``; it does not depend on the values.

    Raises
    ------
    Unsupported
        If the tool has no type for a column; names the ``lossy`` kind that would allow a cast, if any.
    InvalidData
        If a value does not fit the new type; likewise.
    InvalidArgument
        If ``name`` is unknown, or ``lossy`` names a kind that never loses anything.

    Examples
    --------
    >>> import shmarrow as sa
    >>> batch = sa.record_batch({"n": sa.array([1, 2], "uint64"), "s": sa.array(["a", "b"], "string_view")})
    >>> batch.for_consumer("spark").schema.types
    [DataType(decimal128(20, 0)), DataType(string)]
    """
    from shmarrow.interchange.for_consumer import columns

    result: T = columns(self, name, lossy)
    return result


def reader_for_consumer(self: Any, name: str = "", *, lossy: str | Iterable[str] = ()) -> RecordBatchReader:
    """Return a reader that casts each batch to types that another tool accepts.

    Parameters
    ----------
    name : str
        The tool; see :meth:`RecordBatch.for_consumer`.
    lossy : str or iterable of str
        Kinds of types whose values may lose something, or ``"all"``.

    Returns
    -------
    RecordBatchReader
        Of a file, over all batches, any number of times; of a stream, over the remaining batches, and closing it closes
        this reader.

    Raises
    ------
    Unsupported
        If the tool has no type for a column; names the ``lossy`` kind that would allow a cast, if any.
    InvalidData
        When a batch is read, if a value does not fit the new type; likewise.
    InvalidArgument
        If ``name`` is unknown, or ``lossy`` names a kind that never loses anything.
    """
    from shmarrow.tables import RecordBatchReader, mapped_batches

    wanted = schema_for_consumer(self.schema, name, lossy=lossy)
    once = isinstance(self, RecordBatchReader)
    batches: Any = self if once else self._lasting()
    return mapped_batches(
        wanted, batches, lambda batch: columns_for_consumer(batch, name, lossy=lossy), self.close if once else None
    )


def schema_for_consumer(self: Schema, name: str = "", *, lossy: str | Iterable[str] = ()) -> Schema:
    """Return the schema that ``for_consumer`` produces; the schema itself if no cast is needed.

    Parameters
    ----------
    name : str
        The tool; see :meth:`RecordBatch.for_consumer`.
    lossy : str or iterable of str
        Kinds of types whose values may lose something, or ``"all"``.

    Raises
    ------
    Unsupported
        If the tool has no type for a column; names the ``lossy`` kind that would allow a cast, if any.
    InvalidArgument
        If ``name`` is unknown, or ``lossy`` names a kind that never loses anything.
    """
    from shmarrow.interchange.for_consumer import schema

    return schema(self, name, lossy)


# --- pandas -----------------------------------------------------------------------------------------------------


def array_to_pandas(self: Any, *, arrow_backed: bool = False, writable: bool = False, **options: Any) -> pd.Series:
    """Convert to a ``pandas.Series``, through pyarrow.

    Integers, floats, timestamps and durations without nulls, in one chunk, are zero-copy and read-only unless
    ``writable`` is True. Everything else is copied: integers with nulls become floats, booleans one byte each, strings
    pandas' own strings.

    Parameters
    ----------
    arrow_backed : bool
        Return a series of dtype ``pandas.ArrowDtype``, which keeps type and nulls, zero-copy.
    writable : bool
        Return private, writable values. Numbers of a mapped object are copy-on-write, so only modified pages take
        memory. See :meth:`Array.to_numpy`.
    **options
        Options of ``pyarrow.Array.to_pandas``, such as ``zero_copy_only`` or ``strings_to_categorical``.

    Returns
    -------
    pandas.Series
        Shape (n,). Dictionaries become categories; views, runs and other types that pandas lacks are cast first, as by
        ``for_consumer("pandas")``.

    Raises
    ------
    Unsupported
        If pandas has no dtype for it: unions, and intervals of months or of days.
    InvalidData
        If the array violates the format such that other code would read outside its buffers.
    CopyRequired
        If ``zero_copy_only=True`` and the values need a copy.
    InvalidArgument
        If an option is unknown or wrong.
    MissingExtra
        If pandas or pyarrow is not installed.
    """
    from shmarrow.interchange.pandas import series

    made: pd.Series = series(self, arrow_backed, writable, options)
    return made


def columns_to_pandas(
    self: Any, *, arrow_backed: bool = False, ignore_metadata: bool = False, writable: bool = False, **options: Any
) -> pd.DataFrame:
    """Convert to a ``pandas.DataFrame``, through pyarrow.

    Columns of integers, floats, timestamps and durations without nulls, in one batch, are zero-copy and read-only
    unless ``writable`` is True. Everything else is copied: integers with nulls become floats, booleans one byte each,
    strings pandas' own strings, and several batches are concatenated.

    Parameters
    ----------
    arrow_backed : bool
        Return columns of dtype ``pandas.ArrowDtype``, which keep types and nulls, zero-copy.
    ignore_metadata : bool
        Ignore index, labels and dtypes in the schema's metadata, as written by :meth:`from_pandas`; every column
        remains a column.
    writable : bool
        Return a private, writable frame. Columns of numbers of a mapped object are copy-on-write, so only modified
        pages take memory. Columns with a time zone, categories and other pandas dtypes are copied.
    **options
        Options of ``pyarrow.Table.to_pandas``, such as ``zero_copy_only`` or ``strings_to_categorical``;
        ``split_blocks`` defaults to True, as blocks of several columns are copies.

    Returns
    -------
    pandas.DataFrame
        Dictionaries become categories; views, runs and other types that pandas lacks are cast first, as by
        ``for_consumer("pandas")``.

    Raises
    ------
    Unsupported
        If pandas has no dtype for a type: unions, and intervals of months or of days.
    InvalidData
        If a column violates the format such that other code would read outside its buffers, or the schema's metadata
        do not match the columns.
    CopyRequired
        If ``zero_copy_only=True`` and a column needs a copy.
    InvalidArgument
        If an option is unknown or wrong.
    MissingExtra
        If pandas or pyarrow is not installed.

    Examples
    --------
    >>> import shmarrow as sa
    >>> sa.table({"n": [1, 2], "s": ["a", None]}).to_pandas(arrow_backed=True).dtypes.tolist()
    [int64[pyarrow], string[pyarrow]]
    """
    from shmarrow.interchange.pandas import frame

    made: pd.DataFrame = frame(self, arrow_backed, ignore_metadata, writable, options)
    return made


def columns_from_pandas(
    cls: type[T],
    df: pd.DataFrame,
    schema: Schema | None = None,
    preserve_index: bool | None = None,
    columns: Sequence[Any] | None = None,
    *,
    metadata: MetadataLike | None = None,
) -> T:
    """Convert a ``pandas.DataFrame`` with its index; :meth:`to_pandas` restores it.

    :func:`shmarrow.table` and :func:`shmarrow.record_batch` do the same. Needs pyarrow only for columns that pandas
    stores in pyarrow's memory: strings and Arrow-backed columns.

    Parameters
    ----------
    df : pandas.DataFrame
        The frame. Numbers, timestamps and category codes are not copied; see :func:`shmarrow.array`.
    schema : Schema, optional
        Fields, matched with columns by name; columns of other types are cast.
    preserve_index : bool, optional
        True stores every index as a column, False drops it. By default a ``RangeIndex`` is stored in the metadata only,
        and all others as columns.
    columns : sequence of labels, optional
        Columns to convert; by default all.
    metadata : mapping, optional
        Additional metadata of the schema.

    Returns
    -------
    RecordBatch or Table
        Labels become strings. The metadata contain the key ``b"pandas"`` in pyarrow's format.

    Raises
    ------
    InvalidType
        If ``df`` is not a DataFrame, or Arrow has no type for a column.
    InvalidData
        If a value does not fit its type in the schema.
    InvalidArgument
        If the names of columns and schema differ.
    FieldNotFound
        If the frame lacks a column of ``columns`` or of the schema.
    """
    from shmarrow.errors import not_expected
    from shmarrow.inputs import from_frame

    if not hasattr(df, "iloc") or not hasattr(df, "columns"):
        raise not_expected("a pandas.DataFrame", df)
    kind: Any = cls
    made: T = from_frame(kind, df, schema, metadata, preserve_index=preserve_index, columns=columns)
    return made


def array_from_pandas(obj: Any, mask: Any = None, type: DataType | str | None = None, safe: bool = True) -> Array:
    """Make an array from a ``pandas.Series``, index or array; NaN and pandas' other missing values become null.

    The same as ``sa.array(obj, type, mask, from_pandas=True)``; see :func:`shmarrow.array` for the arguments.
    """
    from shmarrow.build import array

    made: Array = array(obj, type, mask, from_pandas=True, safe=safe)
    return made


def schema_pandas_metadata(self: Schema) -> dict[str, Any] | None:
    """Return the metadata about the original pandas DataFrame, or None.

    Raises
    ------
    InvalidData
        If it is not JSON, or not an object.
    """
    import json

    from shmarrow.build.frames import KEY
    from shmarrow.errors import InvalidData, shown

    text = (self.metadata or {}).get(KEY)
    if text is None:
        return None
    try:
        found = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise InvalidData(f"the metadata {shown(KEY)} are not JSON: {error}") from None
    if not isinstance(found, dict):
        raise InvalidData(f"the metadata {shown(KEY)} must be a JSON object, found {shown(found)}")
    return found


NAMES: dict[Any, str] = {
    array_for_consumer: "for_consumer",
    columns_for_consumer: "for_consumer",
    schema_for_consumer: "for_consumer",
    array_to_pandas: "to_pandas",
    columns_to_pandas: "to_pandas",
    array_from_pandas: "from_pandas",
    columns_from_pandas: "from_pandas",
}
"""The names of these functions as methods and in messages."""
