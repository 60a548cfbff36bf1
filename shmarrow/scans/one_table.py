# SPDX-License-Identifier: Apache-2.0
"""A scan: many files, streams and tables as one table, read when its rows are asked for.

Invariants:

* a scan is a value: it never changes, can be read any number of times, and is pickled as its sources, not their rows.
  Their names are absolute, so it is the same after a change of directory, and in another process;
* making one lists its sources and reads the schema of the first; each is opened when its rows are reached, and stays
  mapped, without a descriptor, as long as this scan or one made from it lives;
* of each batch, first the columns that filters name are built; the others only where rows are left, and only those that
  were asked for.
"""

from __future__ import annotations

import errno
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import count, takewhile
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from shmarrow.buffer import Indices, Mask
from shmarrow.capsules import PyCapsule
from shmarrow.columns import RecordBatch, RecordBatchReader, Table, checked_schema, fields_at, several
from shmarrow.errors import (
    DEFAULT_LIMITS,
    FieldNotFound,
    IndexOutOfRange,
    InvalidArgument,
    InvalidData,
    Limits,
    ObjectNotFound,
    ShmarrowError,
    StorageError,
    as_limits,
    at,
    counted,
    shown,
)
from shmarrow.habits import Hinted
from shmarrow.ipc import RecordBatchFileReader
from shmarrow.layout import Array
from shmarrow.layout.order import plain_type
from shmarrow.memory.mappings import SMALL
from shmarrow.scans.filters import Bounds, Filter, columns_of, matching, parse, possible
from shmarrow.scans.fitting import Fit, fitting
from shmarrow.scans.keys import key_values
from shmarrow.scans.sources import Fragment, find_arrow, open_fragment, version_of
from shmarrow.types import DataType, Field, Schema
from shmarrow.types.schema import with_nulls

if TYPE_CHECKING:
    import polars as pl
    import pyarrow.dataset as ds

    from shmarrow.interchange.write import Written

_LEAST_SPLIT = 1 << 20
_NO_ROWS = Table(Schema([]), [])
"""What is read of a source that is left out."""


def scan(
    source: Any,
    *,
    columns: Iterable[str | int] | None = None,
    filters: Any = None,
    schema: Schema | None = None,
    partitioning: str | None = "hive",
    names: str | Iterable[str] | None = None,
    limits: Limits = DEFAULT_LIMITS,
    unchecked: bool = False,
    survive: bool = False,
    on_error: str | Callable[[str, ShmarrowError], object] = "raise",
) -> Scan:
    """Read many files and streams as one table, as far as their rows are asked for.

    Parameters
    ----------
    source : path, ``shm:NAME``, pattern, directory, ``STORE/NAME``, Store, reader, table, or list of these
        Arrow files and streams, compressed or not. Of a directory all files are read, also those in its directories,
        except names that begin with ``.`` or ``_``.
    columns : sequence of str or int, optional
        The columns to read, in this order; by default all.
    filters : list of (column, operator, value), or list of such lists, optional
        The rows to read, as for pyarrow's Parquet: those that fulfil all conditions, or all of any list. The operators
        are ``=`` or ``==``, ``!=``, ``<``, ``<=``, ``>``, ``>=``, ``in``, ``not in``. A null matches nothing, but
        ``(column, "is null")``; there is ``(column, "is not null")``, too.
    schema : Schema, optional
        The columns of the result, by default those of the first source, and of its directories; where that has only
        nulls, without a type, of the next that has one. A column that a source lacks is null, one that the schema lacks
        is left out; a column of another type is cast.
    partitioning : str, optional
        ``"hive"`` makes columns of directories like ``day=2024-01-01``, below the one that is given, or from the first
        part with a wildcard on; None makes none.
    names : str or sequence of str, optional
        Objects of a store: a pattern such as ``"train-*"``, or names; by default all.
    limits : Limits, optional
        Bounds on what is accepted.
    unchecked : bool
        True skips the checks of values before arrays are exported, see :func:`shmarrow.ipc.open_file`.
    survive : bool
        True keeps the values of views if a file is truncated, see :func:`shmarrow.ipc.open_file`; not for stores, whose
        objects never change.
    on_error : str or callable
        What becomes of a file or object that cannot be opened when it is reached: ``"raise"``; ``"skip"`` leaves it out
        with a warning that names it; a function gets its name and the error, and may raise one.

    Returns
    -------
    Scan

    Raises
    ------
    ObjectNotFound
        If there is nothing of a name, nothing matches a pattern, or a directory has no files.
    InvalidType
        If a source is none of these, or a filter compares a column with a value of another kind.
    InvalidData
        If the first source is not Arrow data, or the type of a column cannot hold the value of a filter.
    FieldNotFound
        If a column does not exist.

    Examples
    --------
    >>> import shmarrow as sa
    >>> made = sa.scan([sa.table({"x": [1, 2, 3]}), sa.table({"x": [4, 5]})], filters=[("x", ">", 2)])
    >>> made.to_table().to_pylist()
    [{'x': 3}, {'x': 4}, {'x': 5}]
    """
    if partitioning not in ("hive", None):
        raise InvalidArgument(f"partitioning is 'hive' or None, found {shown(partitioning)}")
    if on_error not in ("raise", "skip") and not callable(on_error):
        raise InvalidArgument(f"on_error is 'raise', 'skip' or a function, found {shown(on_error)}")
    fragments, skipped = find_arrow(source, names)
    if partitioning is None:
        fragments = [fragment._replace(keys=()) for fragment in fragments]
    if survive:
        fragments = [fragment._replace(survive=_is_file(fragment)) for fragment in fragments]
    made = Scan(
        fragments, None if schema is None else checked_schema(schema), as_limits(limits, unchecked), on_error, skipped
    )
    made = made if filters is None else made.where(filters)
    return made if columns is None else made.select(columns)


def _is_file(fragment: Fragment) -> bool:
    """Return True; InvalidArgument for what is not a file outside stores."""
    if fragment.store is not None or not isinstance(fragment.where, str):
        raise InvalidArgument(f"survive=True is for files outside stores, found {fragment}")
    return True


class Scan(Hinted):
    """Many sources as one table; made by :func:`shmarrow.scan`.

    Attributes
    ----------
    schema : Schema
        The columns that are read.

    Notes
    -----
    Thread safety: may be shared, and forked. A source is seen as it was when it was first reached: one that is
    replaced meanwhile is seen by a new scan.
    """

    _kind = "scan"

    __slots__ = (
        "_columns", "_filters", "_first", "_fragments", "_full", "_keys", "_limits", "_on_error", "_readers",
        "_skipped", "_skips", "schema"
    )  # fmt: skip
    schema: Schema
    _filters: tuple[Filter, ...]
    _skips: tuple[Filter, ...]
    """Filters that only tell which sources and batches are not worth reading."""

    def __init__(
        self, fragments: Sequence[Fragment], schema: Schema | None, limits: Limits, on_error: Any = "raise",
        skipped: Iterable[str] = (),
    ) -> None:  # fmt: skip
        self._fragments = tuple(fragments)
        self._limits = limits
        self._on_error = on_error
        self._skipped = list(skipped)
        self._readers: dict[int, Any] = {}
        self._first: Schema | None = None
        self._filters = self._skips = ()
        names = list(dict.fromkeys(name for fragment in self._fragments for name, _ in fragment.keys))
        texts = {name: [dict(one.keys).get(name) for one in self._fragments] for name in names}
        if schema is None:
            keys: dict[str, DataType] = {}
            for name in names:
                with at("column", name):
                    keys[name] = key_values(texts[name]).type
            schema = self._schema_of_first(keys)
        self._full = self.schema = schema
        self._columns: Sequence[int] = range(len(schema))
        self._keys: dict[int, Array] = {}
        for i in [schema.index_of(name) for name in names if name in schema]:
            key = schema.field(i)
            with at("column", key.name):
                self._keys[i] = key_values(texts[key.name], key.type)

    def _schema_of_first(self, keys: dict[str, DataType]) -> Schema:
        if not self._fragments:
            raise ObjectNotFound(2, "there are no files to take a schema from", hint="pass one with schema=")
        readers = map(self._reader, range(len(self._fragments)))
        first = next((reader for reader in readers if reader is not _NO_ROWS), None)
        if first is None:
            raise ObjectNotFound(2, "all sources were left out", hint="pass a schema with schema=")
        schema: Schema = first.schema
        self._first = schema
        if len(self._fragments) > 1:
            schema = with_nulls(schema)
        untyped = {field.name for field in schema if field.type.layout == "null"} - keys.keys()
        while untyped and (reader := next(readers, None)) is not None:
            for its in reader.schema:
                if its.name in untyped and its.type.layout != "null" and schema.names.count(its.name) == 1:
                    self._first = None  # no file has this schema
                    untyped.remove(its.name)
                    schema = schema.set(schema.index_of(its.name), its.with_nullable(True))
        for name, type in keys.items():
            field = Field(name, type)
            schema = schema.set(schema.index_of(name), field) if name in schema else schema.append(field)
        return schema

    def _with(self, **changes: Any) -> Self:
        made = object.__new__(type(self))
        for name in Scan.__slots__:
            setattr(made, name, changes.get(name, getattr(self, name)))
        return made

    # --- other scans ---

    def select(self, columns: Iterable[str | int]) -> Self:
        """Return a scan of some of the columns, by name or position, in this order.

        Raises
        ------
        FieldNotFound
            If a column does not exist.
        """
        indices = [self.schema.index_of(key) for key in several(columns, "positions and names")]
        return self._with(schema=fields_at(self.schema, indices), _columns=[self._columns[i] for i in indices])

    def where(self, filters: Any) -> Self:
        """Return a scan of the rows that fulfil these filters, besides those that it has; see :func:`shmarrow.scan`.

        They may name any column of the sources, whether it is selected or not. Errors as :func:`shmarrow.scan`.
        """
        return self._with(_filters=(*self._filters, parse(filters, self._full)))

    def _skipping(self, filter: Filter) -> Self:
        """Return a scan without the sources and batches that cannot have such rows; all others are read as before."""
        return self._with(_skips=(*self._skips, filter)) if filter else self

    # --- rows ---

    @property
    def sources(self) -> list[str]:
        """The absolute paths and names of the sources that may have rows, as far as their directories tell."""
        return [str(self._fragments[i]) for i in self._kept()]

    @property
    def skipped(self) -> list[str]:
        """The names of the files that were left out: so far by ``on_error``; and of directories, those of others.

        These have the suffix of another format, such as ``.json``, ``.md`` or ``.txt``, and do not begin as Arrow data.
        """
        return list(self._skipped)

    def __iter__(self) -> Iterator[RecordBatch]:
        for number in self._kept():
            yield from self._batches(number, self._columns, self.schema)

    def head(self, n: int = 5) -> Table:
        """Return the first ``n`` rows, reading no more sources than they are in."""
        return Table(self.schema, list(_first_rows(self, n)))

    def count_rows(self) -> int:
        """Return the number of rows, from metadata where no filter has to look at values."""
        needed = [i for i in columns_of(self._filters) if i not in self._keys]
        if not needed:
            return sum([reader.num_rows for reader in self._opened()])
        empty = Schema([])
        return sum([batch.num_rows for number in self._kept() for batch in self._batches(number, [], empty)])

    def to_table(self) -> Table:
        """Return all rows as a table; what needs no filter and no cast consists of views of the sources."""
        self._opened()
        return Table(self.schema, list(self))

    read_all = to_table
    """Alias of :meth:`to_table`, as readers have it."""

    def to_reader(self) -> RecordBatchReader:
        """Return a reader over the batches, each read when it is asked for."""
        return RecordBatchReader.from_batches(self.schema, self)

    def write(self, where: Any, **options: Any) -> Written:
        """Write the rows as :func:`shmarrow.write` does, whose options and errors these are, a batch at a time."""
        from shmarrow.interchange.write import write

        return write(self, where, **options)

    def to_polars(self) -> pl.LazyFrame:
        """Return a lazy frame of Polars: a query reads the columns that it needs, and only as many rows.

        Comparisons of its predicate with literals skip sources by their directories, and batches by their statistics.

        Raises
        ------
        MissingExtra
            If polars is not installed.
        """
        from shmarrow.scans.polars import lazy_frame

        return lazy_frame(self)

    def to_dataset(self) -> ds.Dataset:
        """Return a dataset of pyarrow: DuckDB, DataFusion and others read the columns that a query needs.

        Comparisons of its filters with literals, and null tests, skip sources by their directories, and batches by
        their statistics; pyarrow applies filters to the rows.

        Raises
        ------
        MissingExtra
            If pyarrow is not installed.
        """
        from shmarrow.scans.dataset import dataset_of

        return dataset_of(self)

    def __arrow_c_stream__(self, requested_schema: PyCapsule | None = None, **unknown: object) -> PyCapsule:
        """Export all rows as a PyCapsule ``arrow_array_stream``, any number of times, each batch when it is read.

        Parameters and errors as for :meth:`Table.__arrow_c_stream__`.
        """
        return self.to_reader().__arrow_c_stream__(requested_schema, **unknown)

    def plan(self, *, max_bytes: int | None = None, tasks: int = 1) -> list[Split]:
        """Divide the scan into splits, which tasks of this or other processes read; in the order of the rows.

        What directories and statistics rule out is in none of them. Each source is opened, to read its footer.

        Parameters
        ----------
        max_bytes : int, optional
            The most bytes of record batches in one split, unless it has only one; by default a source is one split.
        tasks : int
            More than 1 lowers ``max_bytes``, to 1 MiB at the least, so that there are about as many splits or more.

        Raises
        ------
        ObjectNotFound, StorageError, InvalidData
            If a source is not there, cannot be read, or is not Arrow data.

        Examples
        --------
        >>> import shmarrow as sa
        >>> scan = sa.scan([sa.table({"x": [1, 2, 3]}), sa.table({"x": [4, 5]})])
        >>> [split.num_rows for split in scan.plan()]
        [3, 2]
        """
        every = map(self._split, self._kept())
        wholes = [split for split in every if split.batches != ()]
        if tasks > 1:
            share = max(sum([whole.nbytes for whole in wholes]) // tasks, _LEAST_SPLIT)
            max_bytes = share if max_bytes is None else min(max_bytes, share)
        return wholes if max_bytes is None else [split for whole in wholes for split in whole._divided(max_bytes)]

    # --- one source ---

    def _split(self, number: int) -> Split:
        """All batches of a source that may have rows."""
        fragment = self._fragments[number]
        version = None if fragment.store is None else version_of(fragment, None)  # before the object is looked up
        reader = self._reader(number) if fragment.store is None else open_fragment(fragment, self._limits, SMALL)
        version = version_of(fragment, reader) if version is None else version
        keys = {i: values._take(np.array([number])) for i, values in self._keys.items()}
        scan = self._with(_fragments=(fragment,), _keys=keys, _readers={0: reader})
        if not isinstance(reader, RecordBatchFileReader):
            rows, size = (reader.num_rows, reader.nbytes) if isinstance(reader, Table) else (None, 0)
            return Split(scan, None, rows, size if version is None else version[0], version)
        whole = Split(scan, (), None, 0, version)
        sizes = reader._block_sizes()
        return whole._of(takewhile(lambda batch: batch < len(sizes), self._possible(number, reader)))

    def _kept(self) -> Sequence[int]:
        """The numbers of the sources that may have rows, as far as their directories tell."""
        filters = self._filters + self._skips
        if not filters or not self._keys:
            return range(len(self._fragments))

        def bounds(column: int) -> Bounds | None:
            values = self._keys.get(column)
            return None if values is None else _exactly(values)

        kept: Sequence[int] = np.flatnonzero(possible(filters, bounds, len(self._fragments))).tolist()
        return kept

    def _reader(self, number: int) -> Any:
        """The reader of a source, which is opened once."""
        found = self._readers.get(number)
        if found is None:
            try:
                opened = open_fragment(self._fragments[number], self._limits, SMALL)
            except (InvalidData, StorageError) as error:
                self._leave_out(number, error)
                opened = _NO_ROWS
            found = self._readers.setdefault(number, opened)
        return found

    def _leave_out(self, number: int, error: ShmarrowError) -> None:
        """Do what ``on_error`` says about a source that cannot be opened."""
        name = str(self._fragments[number])
        if self._on_error == "raise":
            if len(self._fragments) > 1:
                advice = "a pattern such as 'DIRECTORY/**/*.arrow', or on_error='skip', leaves it out"
                error.hint = advice if error.hint is None else f"{error.hint}; {advice}"
            raise error
        if self._on_error == "skip":
            warnings.warn(f"{name} is left out of the scan: {error}", stacklevel=2)
        else:
            self._on_error(name, error)
        self._skipped.append(name)

    def _opened(self) -> list[Any]:
        """The readers of all sources that may have rows: opening them one after the other is faster than in between."""
        return [self._reader(number) for number in self._kept()]

    def _batches(
        self, number: int, columns: Sequence[int], schema: Schema, batches: Iterable[int] | None = None
    ) -> Iterator[RecordBatch]:
        """The batches of a source, by default all that may have rows, with the rows that fulfil the filters."""
        reader = self._reader(number)
        fit = self._fit(number, reader.schema, columns, schema)
        chosen = _each(reader, self._possible(number, reader) if batches is None else batches)
        if not self._filters:
            yield from map(fit, chosen)
            return
        needed = columns_of(self._filters)
        named = self._fit(number, reader.schema, needed, fields_at(self._full, needed))
        for batch in chosen:
            if len(rows := self._matching(named(batch), needed)):
                yield _rows(fit(batch), rows)

    def _possible(self, number: int, reader: Any) -> Iterable[int]:
        """The numbers of the batches that may have rows, as far as statistics tell."""
        filters = self._filters + self._skips
        statistics = getattr(reader, "statistics", None) if filters else None
        if statistics is None:
            return count()

        def bounds(column: int) -> Bounds | None:
            if column in self._keys:
                return _exactly(self._keys[column].slice(number, 1)._take(np.zeros(statistics.num_rows, np.int64)))
            field = self._full.field(column)
            if field.name not in statistics.schema:
                return None
            nulls, least, greatest, *nan = statistics.column(field.name).flatten()
            if least.type != plain_type(field.type):
                return None
            no = np.zeros(statistics.num_rows, np.bool_)
            return Bounds(least, greatest, no, nulls.values > 0, nan[0].values if nan else no)

        kept: Iterable[int] = np.flatnonzero(possible(filters, bounds, statistics.num_rows)).tolist()
        return kept

    def _matching(self, batch: RecordBatch, columns: list[int]) -> Indices:
        """The positions of the rows that fulfil the filters, in a batch of the columns that these name."""
        rows: Mask = matching(self._filters, lambda i: batch.column(columns.index(i)), batch.num_rows)
        return np.flatnonzero(rows)

    def _fit(self, number: int, found: Schema, columns: Sequence[int], schema: Schema) -> Fit:
        """Return what brings batches of a source, whose schema was found, to some columns of the scan."""
        same = self._first is not None and found.equals(self._first)
        if same:
            self._first = found  # from the second on, files of one schema share it, and it need not be compared again
        if same and not self._keys and columns == range(len(found)):
            return lambda batch: batch._with_schema(schema)
        keys = {to: self._keys[i].slice(number, 1) for to, i in enumerate(columns) if i in self._keys}
        places = [-1 if to in keys else i if same else self._place(found, i) for to, i in enumerate(columns)]
        return fitting(str(self._fragments[number]), found, places, schema, keys)

    def _place(self, found: Schema, i: int) -> int:
        """The position of a column of the scan in a source; -1 if it lacks it."""
        name = self._full.field(i).name
        try:
            return found.index_of(name) if name in found else -1
        except FieldNotFound:  # several columns of a name are those at the same positions, where all names are the same
            if found.names != self._full.names:
                raise
            return i

    def __reduce__(self) -> tuple[Any, ...]:
        state = {name: getattr(self, name) for name in Scan.__slots__ if name not in ("_readers", "_first")}
        return _unpickled, (state,)

    def __repr__(self) -> str:
        parts = counted(len(self._fragments), "source"), counted(len(self.schema), "column")
        return f"<Scan of {', '.join(parts)}{', filtered' if self._filters else ''}>"


@dataclass(frozen=True, slots=True)
class Split:
    """A part of a scan that one task reads: batches of one source; made by :meth:`Scan.plan`.

    Iterating over it gives its batches, with the scan's columns, and the rows that fulfil its filters. It is pickled as
    the name of its source, or with its rows if that is a table in memory.

    Attributes
    ----------
    scan : Scan
        The scan of this source alone.
    batches : tuple of int or None
        The numbers of the record batches in the file; None for all of a stream or a table.
    num_rows : int or None
        The number of rows in these batches before filters; None if the file's footer does not tell.
    nbytes : int
        The size of these batches in the file, or of the stream or table.
    """

    scan: Scan
    batches: tuple[int, ...] | None
    num_rows: int | None
    nbytes: int
    _version: tuple[int, int] | None = field(repr=False)

    @property
    def source(self) -> str:
        """The absolute path or the name of the file or object."""
        return str(self.scan._fragments[0])

    @property
    def values(self) -> dict[str, Any]:
        """The columns of directories, with their values."""
        return {self.scan._full.field(i).name: value[0] for i, value in self.scan._keys.items()}

    @property
    def source_schema(self) -> Schema:
        """The schema of the source itself; errors as iterating over the split."""
        schema: Schema = self._reader().schema
        return schema

    def __iter__(self) -> Iterator[RecordBatch]:
        """Read the batches, any number of times.

        Raises
        ------
        ObjectNotFound
            If the source is not there any more.
        StorageError
            If it was changed after the scan was planned.
        InvalidData
            If it is broken.
        """
        self._reader()
        return self.scan._batches(0, self.scan._columns, self.scan.schema, self.batches)

    def to_table(self) -> Table:
        """Return the rows as a table; errors as iterating over the split."""
        return Table(self.scan.schema, list(self))

    def _reader(self) -> Any:
        """The reader of the source as it was when the scan was planned."""
        was_open = 0 in self.scan._readers
        reader = self.scan._reader(0)
        if not was_open and version_of(self.scan._fragments[0], reader) != self._version:
            self.scan._readers.clear()
            raise StorageError(
                errno.ESTALE, f"{self.source} was changed after the query was planned; run the query again"
            )
        return reader

    def _divided(self, max_bytes: int) -> Iterator[Split]:
        """Splits of up to so many bytes, or of one batch."""
        if self.batches is None or self.nbytes <= max_bytes:
            yield self
            return
        sizes = self._reader()._block_sizes()
        part: list[int] = []
        size = 0
        for batch in self.batches:
            if part and size + sizes[batch] > max_bytes:
                yield self._of(part)
                part, size = [], 0
            part.append(batch)
            size += sizes[batch]
        yield self._of(part)

    def _of(self, batches: Iterable[int]) -> Split:
        """A split of these batches of the same file."""
        reader, chosen = self._reader(), tuple(batches)
        rows = reader._block_rows()
        count = None if rows is None else sum([rows[i] for i in chosen])
        sizes = reader._block_sizes()
        return replace(self, batches=chosen, num_rows=count, nbytes=sum([sizes[i] for i in chosen]))


def _unpickled(state: dict[str, Any]) -> Scan:
    made = object.__new__(Scan)
    for name, value in {**state, "_readers": {}, "_first": None}.items():
        setattr(made, name, value)
    return made


def _exactly(values: Any) -> Bounds:
    """The bounds of parts that have one value each."""
    nulls, no = values.is_null().values, np.zeros(len(values), np.bool_)
    return Bounds(values, values, nulls, nulls, no, exact=True)


def _each(reader: Any, numbers: Iterable[int]) -> Iterator[RecordBatch]:
    """The batches of a table or a reader with these numbers, as far as there are any: they are not counted first."""
    if isinstance(reader, Table):
        yield from reader.batches
        return
    for number in numbers:
        try:
            batch = reader.get_batch(number)
        except IndexOutOfRange:
            return
        yield batch


def _first_rows(batches: Iterable[RecordBatch], n: int) -> Iterator[RecordBatch]:
    left = n
    for batch in batches if n > 0 else ():
        yield batch.slice(0, left)
        left -= batch.num_rows
        if left <= 0:
            return


def _rows(batch: RecordBatch, rows: Indices) -> RecordBatch:
    """The rows at ascending positions, not none; a slice where they follow each other."""
    if int(rows[-1]) - int(rows[0]) == len(rows) - 1:
        return batch.slice(int(rows[0]), len(rows))
    return batch._rows(rows, None)
