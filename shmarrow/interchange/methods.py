"""The methods that arrays, columns and schemas have for other tools, each imported when it is called."""

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


def columns_for_consumer(self: T, name: str = "", *, lossy: str | Iterable[str] = ()) -> T:
    """Cast the columns to types that another tool accepts.

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
        Over all batches of a file, which may be read any number of times; else over those that are left, and closing
        it closes this reader.

    Raises
    ------
    Unsupported
        If the tool has no type for a column; says which name for ``lossy`` would help, if one does.
    InvalidData
        When a batch is read, if a value does not fit the new type; likewise.
    InvalidArgument
        If ``name`` is none of the tools, or nothing of a kind in ``lossy`` is ever lost.
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
        If the tool has no type for a column; says which name for ``lossy`` would help, if one does.
    InvalidArgument
        If ``name`` is no tool of the table, or nothing of a kind in ``lossy`` is ever lost.
    """
    from shmarrow.interchange.for_consumer import schema

    return schema(self, name, lossy)


# --- pandas -----------------------------------------------------------------------------------------------------


def array_to_pandas(self: Any, *, arrow_backed: bool = False, writable: bool = False, **options: Any) -> pd.Series:
    """Convert to a ``pandas.Series``, through pyarrow.

    Integers, floats, timestamps and durations without nulls, in one chunk, are used in place and are read-only unless
    ``writable`` is True. Everything else is copied: integers with nulls become floats, booleans take a byte each, text
    becomes pandas' own.

    Parameters
    ----------
    arrow_backed : bool
        True gives a series of dtype ``pandas.ArrowDtype``, which keeps type and nulls, and copies nothing.
    writable : bool
        True gives values that can be assigned to, which nobody else sees; numbers of a mapped object are in private
        pages of it, so only the pages that are written cost memory. See :meth:`Array.to_numpy`.
    **options
        Options of ``pyarrow.Array.to_pandas``, such as ``zero_copy_only`` or ``strings_to_categorical``.

    Returns
    -------
    pandas.Series
        Shape (n,). Dictionaries become categories; views, runs and what else pandas has not are cast first, as
        ``for_consumer("pandas")`` does.

    Raises
    ------
    Unsupported
        If pandas has no form for the type: unions, and intervals of months or of days.
    InvalidData
        If the array breaks the format's rules in a way that leads other code out of its buffers.
    CopyRequired
        With ``zero_copy_only=True``, if the values would be copied.
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

    Columns of integers, floats, timestamps and durations without nulls, in one batch, are used in place and are
    read-only unless ``writable`` is True. Everything else is copied: integers with nulls become floats, booleans take a
    byte each, text becomes pandas' own, and several batches are put together.

    Parameters
    ----------
    arrow_backed : bool
        True gives columns of dtype ``pandas.ArrowDtype``, which keep types and nulls, and copies nothing.
    ignore_metadata : bool
        True leaves out what the schema's metadata say of index, labels and dtypes, as :meth:`from_pandas` wrote them;
        every column stays a column.
    writable : bool
        True gives a frame that can be assigned to, which nobody else sees; columns of numbers of a mapped object are in
        private pages of it, so only the pages that are written cost memory. Columns with a time zone, categories and
        other dtypes of pandas' own are copied.
    **options
        Options of ``pyarrow.Table.to_pandas``, such as ``zero_copy_only`` or ``strings_to_categorical``; unlike there,
        ``split_blocks`` is True unless given, as blocks of several columns are copies.

    Returns
    -------
    pandas.DataFrame
        Dictionaries become categories; views, runs and what else pandas has not are cast first, as
        ``for_consumer("pandas")`` does.

    Raises
    ------
    Unsupported
        If pandas has no form for a type: unions, and intervals of months or of days.
    InvalidData
        If a column breaks the format's rules in a way that leads other code out of its buffers, or the schema's
        metadata do not fit the columns.
    CopyRequired
        With ``zero_copy_only=True``, if a column would be copied.
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
    """The columns and the index of a ``pandas.DataFrame``, from which :meth:`to_pandas` restores it.

    :func:`shmarrow.table` and :func:`shmarrow.record_batch` do the same with a frame. pyarrow is needed for columns
    that pandas keeps in pyarrow's memory only: text and Arrow-backed ones.

    Parameters
    ----------
    df : pandas.DataFrame
        The frame. Numbers, timestamps and category codes are used in place; see :func:`shmarrow.array`.
    schema : Schema, optional
        Fields matched with columns by name; what has another type is cast.
    preserve_index : bool, optional
        True makes every index a column, False drops it. By default a ``RangeIndex`` stands in the metadata alone, and
        all others become columns.
    columns : sequence of labels, optional
        The columns to take; all by default.
    metadata : mapping, optional
        More metadata for the schema.

    Returns
    -------
    RecordBatch or Table
        Labels become text. The metadata have ``b"pandas"``, as pyarrow and pandas write it.

    Raises
    ------
    InvalidType
        If ``df`` is no DataFrame, or there is no type for a column.
    InvalidData
        If a value does not fit its type in the schema.
    InvalidArgument
        If the names of columns and schema differ.
    FieldNotFound
        If the frame lacks one of ``columns``, or one that the schema names.
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
"""The names that these functions have as methods, and in messages."""
