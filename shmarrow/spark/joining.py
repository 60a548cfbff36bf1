# SPDX-License-Identifier: Apache-2.0
"""Lookups: columns of a shared frame for the rows of a DataFrame, by key; a join without a shuffle.

Invariants:

* only the keys are sent to the workers, and only the columns that were looked up come back, in pieces of bounded size;
* Spark computes them once: it neither moves filters below them nor repeats them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from shmarrow.columns import several
from shmarrow.errors import InvalidArgument, InvalidType, full_name, optional, shown
from shmarrow.spark.frame import SharedFrame
from shmarrow.spark.jobs import session_for
from shmarrow.spark.key_index import FrameIndex, frame_index
from shmarrow.spark.results import PIECE_BYTES, SparkCaster
from shmarrow.spark.types import unwrapped
from shmarrow.types.consumers import kind_of

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame
    from pyspark.sql.types import StructField

_INTEGERS = {"tinyint", "smallint", "int", "bigint"}
_HOWS = ("left", "inner", "semi", "anti")


def lookup(
    df: DataFrame,
    frame: SharedFrame,
    on: str | Iterable[str] | Mapping[str, str],
    columns: Iterable[int | str] | None = None,
    *,
    how: str = "left",
) -> DataFrame:
    """Join a DataFrame with a shared frame by key: the right side of the join is in shared memory.

    Parameters
    ----------
    df : DataFrame
        The rows to look up, classic or of Spark Connect. They stay in their partitions.
    frame : SharedFrame
        Rows with unique keys, all of which every worker can attach: on a cluster, one of :func:`share_table`.
    on : str, iterable of str, or mapping
        The columns that are the key, of the same names in both; or a mapping of names in ``df`` to names in ``frame``.
        They have the same types, or are integers of any sizes: text, binary, booleans, dates, times and decimals.
    columns : iterable of int or str, optional
        The columns of the frame to add, by default all that are not the key.
    how : str
        ``"left"`` keeps all rows; the new columns are null where the frame does not have the key, and where the key, or
        a part of it, is null. ``"inner"`` keeps only rows whose key it has. ``"semi"`` and ``"anti"`` keep the rows
        whose key it has, or has not, and add no columns.

    Returns
    -------
    DataFrame
        The columns of ``df``, then the new ones, evaluated lazily, and once: filters that come after it are not moved
        before it, so put those that do not need the new columns into ``df``.

    Raises
    ------
    FieldNotFound
        If the frame has no such column.
    InvalidArgument
        If there is no key, ``how`` is another, or ``df`` has a column of the name of a new one; as in Spark, names have
        no case.
    InvalidType
        If the types of keys differ, or are not supported.
    InvalidData
        If the frame has a key twice; names it. Where this process does not see the frame, jobs fail instead.

    Notes
    -----
    The index takes about as much memory as the keys and 24 bytes for each, once on each host.
    """
    if not isinstance(frame, SharedFrame) or not hasattr(df, "mapInArrow"):
        raise InvalidType(
            f"lookup takes a DataFrame of Spark and a shared frame, found {full_name(df)} and {full_name(frame)}"
        )
    if how not in _HOWS:
        raise InvalidArgument(f"how: expected one of {', '.join(map(repr, _HOWS))}, found {shown(how)}")
    spark = session_for(df.sparkSession, "lookup(df, frame, on)")
    functions = optional("pyspark.sql.functions")
    from pyspark.sql.types import BooleanType, StructField, StructType

    mine, theirs = _names(on)
    keys = [frame.schema.index_of(name) for name in theirs]
    given = [df[f"`{name.replace('`', '``')}`"] for name in mine]
    for left, right, i in zip(df.select(given).schema, frame.struct_of(keys), keys, strict=True):
        _check_key(left, right, frame.schema.field(i).type)
    index, seen = frame_index(frame, theirs, spark), "shmarrow_looked_up"
    rows_only = how in ("semi", "anti")
    if rows_only and columns is not None:
        raise InvalidArgument(f"how={how!r} adds no columns, but columns= names some")
    rest: Iterable[Any] = [] if rows_only else [i for i in range(len(frame.schema)) if i not in keys]
    chosen = rest if columns is None else several(columns, "positions and names")
    indices = [frame.schema.index_of(key) for key in chosen]
    added = StructType(
        [StructField(each.name, each.dataType, True, each.metadata) for each in frame.struct_of(indices)]
    )
    if not rows_only:
        _check_names(df.columns, added.names)
    task = LookupTask(index, tuple(indices), None if rows_only else SparkCaster(added))
    udf = functions.arrow_udf(_udf(task, len(keys)), BooleanType() if rows_only else added).asNondeterministic()
    rows = df.select("*", udf(*given).alias(seen))
    if rows_only:
        return rows.where(seen if how == "semi" else f"NOT {seen}").drop(seen)
    rows = rows if how == "left" else rows.where(f"{seen} IS NOT NULL")
    return rows.select("*", f"{seen}.*").drop(seen)


def _names(on: Any) -> tuple[list[str], list[str]]:
    """Return the names of the key in the DataFrame, and in the frame."""
    pairs = (
        on if isinstance(on, Mapping) else {name: name for name in ([on] if isinstance(on, str) else several(on, "on"))}
    )
    if not pairs or not all(isinstance(name, str) for pair in pairs.items() for name in pair):
        raise InvalidArgument(f"on must name the columns of the key, found {on!r}")
    return list(pairs), list(pairs.values())


def _check_names(names: Sequence[str], added: Sequence[str]) -> None:
    if not added:
        raise InvalidArgument("there is no column to add: the frame has only the key, or columns is empty")
    known = {name.lower() for name in names}
    for name in added:
        if name.lower() in known:
            raise InvalidArgument(
                f"the DataFrame has a column {name!r}, too: rename it, or choose others with columns="
            )
        known.add(name.lower())


def _check_key(left: StructField, right: StructField, type: Any) -> None:
    """Check the types of a key in the DataFrame and in the frame, and its type in Arrow."""
    mine, theirs = left.dataType.simpleString(), right.dataType.simpleString()
    integers = mine in _INTEGERS and (theirs in _INTEGERS or kind_of(unwrapped(type)) == "uint64")
    if mine != theirs and not integers:
        raise InvalidType(
            f"key {left.name!r}: it is {mine} in the DataFrame, and {theirs} in the frame; cast one of them"
        )


# --- in the workers ---------------------------------------------------------------------------------------------


class LookupTask(NamedTuple):
    """What the tasks of a lookup do: find keys in an index, and take columns at these positions in Spark's types.

    Without a caster, they only tell which keys there are.
    """

    by: FrameIndex
    columns: tuple[int, ...]
    caster: SparkCaster | None


def _udf(task: LookupTask, count: int) -> Any:
    """Return a function for Spark, which tells by annotations that it gets and gives iterators of Arrow's arrays."""

    def looked_up(batches):  # type: ignore[no-untyped-def]
        return look_up(task, batches)

    one: Any = optional("pyarrow").Array
    keys: Any = one if count == 1 else tuple[one, ...]
    looked_up.__annotations__ = {"batches": Iterator[keys], "return": Iterator[one]}  # objects, as Spark looks for them
    return looked_up


def look_up(task: LookupTask, batches: Iterator[Any]) -> Iterator[pa.Array]:
    """Yield a struct for each key, null where the frame does not have it, in pieces of bounded size."""
    import pyarrow

    index, caster = task.by, task.caster
    for keys in _joined(batches, index.width(task.columns)):
        rows = index.find(*keys)
        if caster is None:
            yield pyarrow.array(rows >= 0)
            continue
        for piece in index.pieces(rows):
            batch = caster.cast_batch(index.take_rows(piece, task.columns).batches[0])
            missing = pyarrow.array(piece < 0)
            yield pyarrow.StructArray.from_arrays(batch.columns, fields=list(caster.schema), mask=missing)


def _joined(batches: Iterator[Any], width: int) -> Iterator[tuple[pa.Array, ...]]:
    """Yield the keys of batches, an array for each column; of several together while their rows are few and small.

    They are counted with the ``width`` of what is looked up, and have about :data:`PIECE_BYTES` bytes.
    """
    import pyarrow

    held: list[Any] = []
    size = 0
    for keys in batches:
        each = keys if isinstance(keys, tuple) else (keys,)
        nbytes = len(each[0]) * width + sum(key.nbytes for key in each)
        if held and size + nbytes > PIECE_BYTES:
            yield tuple(map(pyarrow.concat_arrays, zip(*held, strict=True)))
            held, size = [], 0
        held.append(each)
        size += nbytes
    if held:
        yield tuple(map(pyarrow.concat_arrays, zip(*held, strict=True)))
