"""The plan of a read: the schema of all files together, and the splits that tasks read.

Invariants:

* only metadata is read: footers, and of streams the messages' prefixes; of one batch, the first, also as much as tells
  how large its columns are;
* a Block is read by one task, except one that is larger than a split, whose rows are divided;
* a split names its files as the plan has seen them, see ``opening``.
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, NamedTuple

from shmarrow.errors import InvalidType, Unsupported, at, shown
from shmarrow.interchange.for_consumer import casting_for
from shmarrow.ipc import RecordBatchFileReader
from shmarrow.spark import types as spark
from shmarrow.spark.source.columns import Column, columns_for, no_column, spark_fields
from shmarrow.spark.source.listing import places
from shmarrow.spark.source.opening import Place, Seen, opened, seen
from shmarrow.spark.source.read_options import ReadOptions
from shmarrow.types import Schema

_LEAST_SPLIT = 1 << 20
_OPENING = 1 << 18
"""What opening a file counts for, in bytes read."""


class Piece(NamedTuple):
    """A part of a file.

    Attributes
    ----------
    file : Seen
        The file.
    first, stop : int
        The batches; all of them where ``stop`` is -1, as for streams.
    rows : tuple of int or None
        Which rows of the only batch.
    """

    file: Seen
    first: int
    stop: int
    rows: tuple[int, int] | None = None


@dataclass(frozen=True)
class Listed:
    """A file of the plan.

    Attributes
    ----------
    seen : Seen
        How it is known again.
    blocks : list of int
        The bytes of its record batches; one entry for all of a stream.
    is_file : bool
        Whether it has a footer.
    """

    seen: Seen
    blocks: list[int]
    is_file: bool


# --- schema -----------------------------------------------------------------------------------------------------


def planned_schema(options: ReadOptions) -> dict[str, Any]:
    """The Spark schema of all files of a read, in the JSON form of ``StructType``.

    Raises
    ------
    InvalidType
        If files do not have the same columns, or not of the same types.
    FieldNotFound, Unsupported
        If a column that was asked for is in none of them, or Spark has no type for it.
    """
    casting = casting_for("spark", options.lossy)
    files = places(options)
    if not files:
        raise InvalidType(
            f"there are no files in {', '.join(map(repr, options.paths))} to take a schema from; give one with "
            ".schema(...)"
        )
    merged: dict[str, dict[str, Any]] = {}
    first = None
    known: dict[Schema, list[dict[str, Any]]] = {}
    present: dict[str, Any] = {}
    for place in files:
        with opened(place) as (reader, _):
            schema = reader.schema
        present.update(dict.fromkeys(schema.names))
        fields = known.get(schema)
        if fields is None:
            with at(place):
                fields = known[schema] = spark_fields(schema, options, casting)
        _merge(merged, fields, place, first, options)
        first = first or place
    if options.columns is not None:
        for name in options.columns:
            if name not in merged:
                if name in present:
                    raise Unsupported(f"column {shown(name)} is dropped, as Spark has no type for it")
                raise no_column(name, list(present), str(first) if len(files) == 1 else "what is read")
        merged = {name: merged[name] for name in options.columns}
    return {"type": "struct", "fields": list(merged.values())}


def _merge(
    merged: dict[str, dict[str, Any]], fields: list[dict[str, Any]], place: Place, first: Place | None,
    options: ReadOptions,
) -> None:  # fmt: skip
    """Add the fields of a file to those of the files before it."""
    if first is None:
        merged.update({field["name"]: field for field in fields})
        return
    found = {field["name"]: field for field in fields}
    if not options.merge and found.keys() != merged.keys():
        missing = next((name for name in merged if name not in found), None)
        said = f"has no column {shown(missing)}, which {first} has"
        if missing is None:
            said = f"has a column {shown(next(name for name in found if name not in merged))}, which {first} lacks"
        raise InvalidType(
            f'{place} {said}; .option("mergeSchema", "true") reads all columns of all files, with nulls where one is '
            "missing"
        )
    for name, field in merged.items():
        other = found.get(name)
        if other is None:
            merged[name] = field | {"nullable": True}
        elif not spark.same_type(field["type"], other["type"]):
            raise InvalidType(
                f"{place}: column {shown(name)} is {spark.shown_type(other['type'])} in Spark, and "
                f"{spark.shown_type(field['type'])} in {first}: files that are read together must have the same types"
            )
        else:
            merged[name] = spark.merged_field(field, other)
    for name, field in found.items():
        if name not in merged:
            merged[name] = field | {"nullable": True}


# --- splits -----------------------------------------------------------------------------------------------------


def planned_splits(options: ReadOptions, wanted: Schema) -> list[tuple[Piece, ...]]:
    """What each task reads.

    Parameters
    ----------
    options : ReadOptions
        What is read.
    wanted : Schema
        What Spark expects, as its Arrow schema.

    Raises
    ------
    FieldNotFound, InvalidType, Unsupported
        If a file does not have the columns that Spark expects.
    """
    casting = casting_for("spark", options.lossy)
    files = []
    scale: float | None = None
    known: dict[Schema, list[Column]] = {}
    for place in places(options):
        with opened(place) as (reader, segment):
            schema = reader.schema
            columns = known.get(schema)
            if columns is None:
                with at(place):
                    columns = known[schema] = columns_for(schema, wanted, options, casting)
            is_file = isinstance(reader, RecordBatchFileReader)
            blocks: list[int] = reader._block_sizes() if is_file else [segment.size]
            if scale is None and any(blocks):
                scale = _scale(reader, blocks[0], columns)
            files.append(Listed(seen(place, segment), blocks, is_file))
    return list(_splits(files, options, 1.0 if scale is None else scale))


def _scale(reader: Any, block: int, columns: Sequence[Column]) -> float | None:
    """The bytes of the columns that are read, for each byte of the first batch; None if it has no rows."""
    batch = next(iter(reader), None)
    if batch is None or not batch.num_rows:
        return None
    if not isinstance(reader, RecordBatchFileReader):
        return 1.0
    nbytes: int = sum(batch.column(each.at).nbytes for each in columns if each.at >= 0)
    return max(nbytes / max(block, 1), 0.01)


def _splits(files: Sequence[Listed], options: ReadOptions, scale: float) -> Iterator[tuple[Piece, ...]]:
    """The pieces of all files in order, in splits of about the same size."""
    size = int(scale * sum(sum(file.blocks) for file in files)) + _OPENING * len(files)
    target = min(options.split_bytes, max(_LEAST_SPLIT, size // _cores()))
    pieces = [piece for file in files for piece in _pieces(file, scale, target)]
    total = sum(cost for _, cost in pieces)
    count = math.ceil(total / target)
    held: list[Piece] = []
    number = 0
    before = 0
    for piece, cost in pieces:
        mine = (2 * before + cost) * count // (2 * total)  # the split in which its middle lies
        before += cost
        if held and mine > number:
            yield tuple(held)
            held = []
        number = mine
        last = held[-1] if held else None
        if last is not None and last.file is piece.file and last.rows is None and piece.rows is None:
            held[-1] = last._replace(stop=piece.stop)
        else:
            held.append(piece)
    if held:
        yield tuple(held)


def _pieces(file: Listed, scale: float, target: int) -> Iterator[tuple[Piece, int]]:
    """The parts of a file that tasks can read by themselves, with their bytes."""
    for number, block in enumerate(file.blocks):
        cost = int(block * scale)
        piece = Piece(file.seen, number, number + 1 if file.is_file else -1)
        parts = _parts(piece, -(-cost // target)) if file.is_file and cost >= 2 * target else [piece]
        for part in parts:
            yield part, cost // len(parts) + (0 if number else _OPENING // len(parts))


def _parts(piece: Piece, count: int) -> list[Piece]:
    """The rows of a large batch in several pieces."""
    with opened(piece.file.place, was=piece.file) as (reader, _):
        rows = reader.get_batch(piece.first).num_rows
    count = max(1, min(count, rows))
    bounds = [rows * i // count for i in range(count + 1)]
    return [piece._replace(rows=(start, stop)) for start, stop in pairwise(bounds)]


def _cores() -> int:
    """How many tasks run at once at least, as far as is known here: as many as this host has processors."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
