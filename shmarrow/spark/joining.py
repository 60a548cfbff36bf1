"""Lookups: columns of a shared frame for the rows of a DataFrame, by key; a left join without a shuffle.

Invariants:

* only the keys are sent to the workers, and only the columns that were looked up come back;
* the index of a frame is made by the first worker on each host that needs it, and is one of the frame's objects: all
  processes map it, and it ends with the frame.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from hashlib import sha256
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from shmarrow.buffer import NDArray
from shmarrow.build import array
from shmarrow.columns import Table, checked_schema, several
from shmarrow.errors import InvalidArgument, InvalidType, at, full_name, optional
from shmarrow.spark._pyspark import arrow_schema, is_local
from shmarrow.spark.delivery import explaining_limits
from shmarrow.spark.frame import SharedFrame
from shmarrow.spark.jobs import on_workers, session_for
from shmarrow.spark.key_index import find, index_of, keys_of
from shmarrow.spark.results import SparkCaster
from shmarrow.spark.values import MISSING, cache, cached
from shmarrow.types import DataType

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame
    from pyspark.sql.types import StructField

_INTEGERS = {"tinyint", "smallint", "int", "bigint"}
_KEYS = {"string", "binary", "boolean", "date", "timestamp", "timestamp_ntz", "decimal", "time"}
"""Spark's names for the types of keys, without their parameters."""


class Looking(NamedTuple):
    """What the tasks of a lookup know of it.

    Attributes
    ----------
    frame : SharedFrame
        The frame.
    keys : tuple of int
        The positions of its keys.
    types : tuple of DataType
        The types in which keys are compared.
    columns : tuple of int
        The positions of the columns to add.
    caster : SparkCaster
        The types of these in Spark.
    """

    frame: SharedFrame
    keys: tuple[int, ...]
    types: tuple[DataType, ...]
    columns: tuple[int, ...]
    caster: SparkCaster


def lookup(
    df: DataFrame,
    frame: SharedFrame,
    on: str | Iterable[str] | Mapping[str, str],
    columns: Iterable[int | str] | None = None,
) -> DataFrame:
    """Add columns of a shared frame to a DataFrame by key: a left join whose right side is in shared memory.

    Parameters
    ----------
    df : DataFrame
        The rows to look up, classic or of Spark Connect. All are kept, in their partitions.
    frame : SharedFrame
        Rows with unique keys, all of which every worker can attach: on a cluster, one of :func:`share_table`.
    on : str, iterable of str, or mapping
        The columns that are the key, of the same names in both; or a mapping of names in ``df`` to names in ``frame``.
        They have the same types, or are integers of any sizes: text, binary, booleans, dates, times and decimals.
    columns : iterable of int or str, optional
        The columns of the frame to add, by default all that are not the key.

    Returns
    -------
    DataFrame
        The columns of ``df``, then the new ones, evaluated lazily. These are null where the frame does not have the
        key, and where the key, or a part of it, is null.

    Raises
    ------
    FieldNotFound
        If the frame has no such column.
    InvalidArgument
        If there is no key, or ``df`` has a column of the name of a new one; as in Spark, names have no case.
    InvalidType
        If the types of keys differ, or are not supported.

    Notes
    -----
    When the DataFrame is computed, a key that the frame has twice is an error that names it. The first worker on each
    host makes the index, which takes about as much memory as the keys and 24 bytes for each.
    """
    if not isinstance(frame, SharedFrame) or not hasattr(df, "mapInArrow"):
        raise InvalidType(
            f"lookup takes a DataFrame of Spark and a shared frame, found {full_name(df)} and {full_name(frame)}"
        )
    spark = session_for(df.sparkSession, "lookup(df, frame, on)")
    functions = optional("pyspark.sql.functions")
    from pyspark.sql.types import LongType, StructField, StructType

    mine, theirs = _names(on)
    keys = [frame.schema.index_of(name) for name in theirs]
    rest: Iterable[Any] = [i for i in range(len(frame.schema)) if i not in keys]
    chosen = rest if columns is None else several(columns, "positions and names")
    indices = [frame.schema.index_of(key) for key in chosen]
    added = StructType(
        [StructField(each.name, each.dataType, True, each.metadata) for each in frame.struct_of(indices)]
    )
    _check_names(df.columns, added.names)
    given = [df[f"`{name.replace('`', '``')}`"] for name in mine]
    pairs = zip(df.select(given).schema, frame.struct_of(keys), strict=True)
    compared = [
        StructField(right.name, LongType() if _are_integers(left, right) else left.dataType) for left, right in pairs
    ]
    types = checked_schema(arrow_schema(StructType(compared), large=True)).types
    task = Looking(frame, tuple(keys), tuple(types), tuple(indices), SparkCaster(added))
    found = "shmarrow_looked_up"

    def looked_up(*batch):  # type: ignore[no-untyped-def]
        return look_up(task, *batch)

    Array = optional("pyarrow").Array
    looked_up.__annotations__ = {"batch": Array, "return": Array}  # objects, as Spark looks for them
    if not is_local(spark):  # indexes on other hosts end with the frame
        remove = partial(frame.store.delete_here, prefix=f"{frame.name}/")
        frame.kept(end=partial(on_workers, spark, remove), key="indexes")
    rows = df.select("*", functions.arrow_udf(looked_up, added)(*given).alias(found))
    return rows.select("*", f"{found}.*").drop(found)


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


def _are_integers(left: StructField, right: StructField) -> bool:
    """Check the types of a key in the DataFrame and in the frame."""
    mine, theirs = left.dataType.simpleString(), right.dataType.simpleString()
    if mine in _INTEGERS and theirs in _INTEGERS:
        return True
    if mine != theirs:
        raise InvalidType(
            f"key {left.name!r}: it is {mine} in the DataFrame, and {theirs} in the frame; cast one of them"
        )
    if mine.partition("(")[0] not in _KEYS:
        raise InvalidType(
            f"key {left.name!r}: {mine} is no type of keys; expected integers or {', '.join(sorted(_KEYS))}"
        )
    return False


# --- in the workers ---------------------------------------------------------------------------------------------


def look_up(task: Looking, *keys: Any) -> pa.Array:
    """Return the columns of a frame for a batch of keys, as one struct for each key."""
    import pyarrow

    index, table = _opened(task)
    rows = find(index, keys_of([array(key) for key in keys]))
    known = rows >= 0
    found = table._gathered(np.where(known, rows, 0), None if known.all() else known)
    batch = task.caster.cast_batch(found.batches[0])
    return pyarrow.StructArray.from_arrays(batch.columns, fields=list(task.caster.schema))


def _opened(task: Looking) -> tuple[dict[str, NDArray], Table]:
    """Return the index of a frame, and the columns to add; both map shared memory."""
    named = sha256(repr((task.keys, task.types)).encode()).hexdigest()[:16]
    name = f"{task.frame.name}/index-{named}"
    found = cached((name, task.columns))
    if found is not MISSING:
        opened: tuple[dict[str, NDArray], Table] = found
        return opened
    table = task.frame.read_all()
    store = task.frame.store.store()
    with explaining_limits(f"the index {name!r}"):
        bundle: Any = store.get_or_put(name, partial(_index, task, table), protect=True)
    index = {part: bundle[part].to_numpy() for part in bundle}
    made = index, table.select(task.columns)
    return cache((name, task.columns), made, partial(store.__contains__, name))


def _index(task: Looking, table: Table) -> dict[str, NDArray]:
    arrays = []
    for position, type in zip(task.keys, task.types, strict=True):
        with at("column", table.schema.names[position]):
            arrays.append(table.column(position).cast(type).combine_chunks())
    return index_of(arrays)
