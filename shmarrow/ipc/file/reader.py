"""Reader of the file format ("IPC File Format"): random access to batches through the footer.

Invariants:

* opening only reads the footer's root; a batch is located by its block, in constant time;
* dictionaries may be anywhere in the file and are read on first use. Each id has one dictionary and deltas, in the
  order of the footer;
* every block is checked to be between the magic and the footer before use;
* a source that is not mapped or in memory is read by ranges: the end of the file, the metadata of a batch, the buffers
  of accessed columns.
"""

from __future__ import annotations

import weakref
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from operator import index as as_index
from typing import TYPE_CHECKING, Any, Self, SupportsIndex

import numpy as np

from shmarrow.batch import RecordBatch
from shmarrow.buffer import NDArray
from shmarrow.capsules import PyCapsule
from shmarrow.errors import IndexOutOfRange, InvalidData, Limits, at
from shmarrow.habits import missing, no_batch
from shmarrow.ipc.batch.decode import check_zero_copy, dictionary_body, open_batch
from shmarrow.ipc.batch.header import BatchHeader, read_message
from shmarrow.ipc.file.footer import ROW_COUNTS, STATISTICS, RowCounts, decode_row_counts, read_footer
from shmarrow.ipc.message.decode import Message, message_at
from shmarrow.ipc.schema.lazy import LazySchema
from shmarrow.sources.base import Source
from shmarrow.state_machine import CLOSE, CLOSED, OPEN, READ, StateMachine, Transitions
from shmarrow.types import Metadata, Schema, as_metadata

if TYPE_CHECKING:
    from shmarrow.ipc.batch.dictionaries import Dictionary
    from shmarrow.ipc.stream.state import IpcStats
    from shmarrow.tables import RecordBatchReader, RecordBatchWithMetadata, Table

TRANSITIONS: Transitions = {OPEN: {READ: OPEN, CLOSE: CLOSED}, CLOSED: {CLOSE: CLOSED}}
"""States of a reader. Reads can always be repeated, so no error is final."""

_HIDDEN = (ROW_COUNTS, STATISTICS)
"""The keys of the footer's metadata that are not the user's."""

_GROUP = 1 << 23
"""Approximate size of one read when all batches are read by ranges."""


class _File:
    """Everything that references a file's bytes; dropped as a whole on close.

    Attributes
    ----------
    data : uint8 ndarray or SourceRange
        All bytes before the footer, which blocks may refer to.
    ranged : bool
        Whether ``data`` is a SourceRange.
    footer : Footer
        What the footer says.
    version : Version or None
        As :attr:`~shmarrow.sources.Source.version`.
    """

    __slots__ = ("_shared", "data", "footer", "limits", "name", "ranged", "version")

    def __init__(self, source: Source, limits: Limits) -> None:
        self.name = source.name
        self.limits = limits
        self.ranged = source.data is None
        self.version = source.version()
        self._shared = None if source.mapping is None else source.mapping.shared
        self.footer = read_footer(source, limits)
        end = self.footer.end
        self.data: Any = source.data
        if self.data is None:
            from shmarrow.sources.ranges import SourceRange

            self.data = SourceRange(source, 0, end)
        else:
            self.data = self.data[:end]

    def message(self, block: Any, where: str) -> tuple[BatchHeader | Message, Any]:
        """The message of a block, and its body."""
        offset, metadata, size = block.item()
        found = message_at(self.data, offset, where, self.limits, block=(metadata, size), parse=read_message)
        assert found is not None
        part = slice(found.body, found.end)
        body = self.data.part(part) if self.ranged else self.data[part]
        return found.message, body if self._shared is None else self._shared.body(body)

    def fetch(self, blocks: NDArray, bodies: bool = False) -> None:
        """Prefetch the metadata of many messages, and optionally their bodies, if the file is read by ranges."""
        if self.ranged:
            starts, sizes = blocks["offset"], blocks["metaDataLength"] + (blocks["bodyLength"] if bodies else 0)
            good = (starts >= 0) & (sizes >= 0) & (starts <= len(self.data) - sizes)
            self.data.fetch(np.stack([starts, starts + sizes], axis=1)[good].tolist())


def _known_rows(file: _File) -> RowCounts | None:
    """The row counts of all batches, if the footer has them."""
    hint = file.footer.metadata.get(ROW_COUNTS)
    return None if hint is None else decode_row_counts(hint, len(file.footer.batches))


class RecordBatchFileReader:
    """Reads a file with random access to batches, building columns on first use without copying.

    Made by :func:`open_file`.

    Attributes
    ----------
    schema : Schema
        The schema of all batches; usable after closing.

    Notes
    -----
    Thread safety: threads may share a reader. A forked child may use its copy, except for a file object, whose position
    it shares with its parent. A reader of a path or a ``shm:`` name is pickled by name and reopened on unpickling;
    others cannot be pickled.
    """

    def __init__(
        self,
        source: Source,
        limits: Limits,
        zero_copy_only: bool = False,
        included_fields: Iterable[int | str] | None = None,
    ) -> None:
        self._source = source
        self._limits = limits
        self._zero_copy_only = zero_copy_only
        self._arguments: Any = None
        if included_fields is not None:
            from shmarrow.column_names import several

            self._arguments = several(included_fields, "positions and names")
        self._states = StateMachine(f"the reader of {source.name}", TRANSITIONS, shared=source.data is not None)
        try:
            self._file: _File | None = _File(source, limits)
            self._full_schema = self._file.footer.schema
            self._dictionaries: _FileDictionaries | None = _FileDictionaries(self._file, self._full_schema)
            self._included, self._schema = None, self._full_schema
            if self._arguments is not None:
                from shmarrow.column_names import included

                self._included, self._schema = included(self._full_schema, self._arguments)
        except BaseException:
            self._file = None
            source.close()
            raise

    @property
    def schema(self) -> Schema:
        """The schema of all batches."""
        return self._schema._detach()

    def _opened(self) -> _File:
        file = self._file
        if file is None or (file.ranged and self._states.inherited):
            self._states.go(READ)
        assert file is not None
        return file

    @property
    def num_record_batches(self) -> int:
        """Number of record batches."""
        return len(self._opened().footer.batches)

    @property
    def metadata(self) -> Metadata | None:
        """The footer's metadata; None if it has none."""
        found = {key: value for key, value in self._opened().footer.metadata.items() if key not in _HIDDEN}
        return as_metadata(found) if found else None

    @property
    def statistics(self) -> RecordBatch | None:
        """Statistics of the batches, if the file has any; see ``statistics`` of :func:`shmarrow.ipc.new_file`.

        A row for each batch; a column for each column that was measured, a struct of ``nulls`` (int64), ``least`` and
        ``greatest`` (bounds of the values; null where there are none, or unknown), and for floats ``nan`` (bool).

        Raises
        ------
        InvalidData
            If the statistics are invalid.
        """
        file = self._opened()
        value = file.footer.metadata.get(STATISTICS)
        if value is None:
            return None
        from shmarrow.ipc.file.statistics import decode

        with at(file.name):
            return decode(value, self._full_schema, len(file.footer.batches), self._limits)

    @property
    def dictionaries(self) -> Mapping[int, Dictionary]:
        """The file's dictionaries by id."""
        found = self._dictionaries
        if found is None:
            raise self._states.refusal()
        return found

    @property
    def num_rows(self) -> int:
        """Number of rows in all batches.

        Read from the footer of files written by shmarrow, otherwise from the metadata of all batches. The footer's
        counts are only used here: reading a batch checks column lengths against the batch itself.
        """
        file = self._opened()
        counts = _known_rows(file)
        return sum([n * rows for n, rows in (self._count_rows() if counts is None else counts)])

    def count_rows(self) -> int:
        """Return :attr:`num_rows`; pyarrow's name."""
        return self.num_rows

    @property
    def stats(self) -> IpcStats:
        """Number of messages in the file, by kind, according to its footer; pyarrow counts those that were read so far.

        A file of several dictionaries reads their metadata, to tell deltas from others.
        """
        from shmarrow.ipc.stream.state import IpcStats

        file = self._opened()
        batches, parts = len(file.footer.batches), len(file.footer.dictionaries)
        deltas = parts - len(self.dictionaries) if parts > 1 else 0
        return IpcStats(1 + parts + batches, batches, parts, deltas, 0)

    def _dictionaries_of(self, number: int) -> Mapping[int, Dictionary]:
        """The dictionaries of a batch by id: those of the file."""
        return self.dictionaries

    def _block_sizes(self) -> list[int]:
        """The size of each batch with its metadata, according to the footer."""
        file = self._opened()
        sizes = file.footer.batches["metaDataLength"] + file.footer.batches["bodyLength"]
        return sizes.clip(0, len(file.data)).tolist()

    def _count_rows(self) -> RowCounts:
        """The row counts of all batches, from their own metadata."""
        from shmarrow.ipc.file.row_counts import row_counts

        file = self._opened()
        file.fetch(file.footer.batches)
        rows = np.full(len(file.footer.batches), -1) if file.ranged else row_counts(file.data, file.footer.batches)
        for i in np.flatnonzero(rows < 0).tolist():
            rows[i] = self._batch(file, self.dictionaries, i).num_rows
        ends = np.flatnonzero(np.append(rows[1:] != rows[:-1], True)) if len(rows) else rows
        return list(zip(np.diff(ends, prepend=-1).tolist(), rows[ends].tolist(), strict=True))

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:
            raise missing(self, "reader", name)

    def get_batch(self, index: SupportsIndex) -> RecordBatch:
        """Return the batch at position ``index``; negative positions count from the end.

        Raises
        ------
        IndexOutOfRange
            If the index is out of range.
        InvalidData
            If its block or message is invalid.
        Closed
            After :meth:`close`.
        """
        file = self._opened()
        count = len(file.footer.batches)
        try:
            number = range(count)[as_index(index)]
        except TypeError:
            raise no_batch(index) from None
        except IndexError:
            raise IndexOutOfRange(f"no batch {index}: {file.name} has {count}") from None
        return self._read(file, self.dictionaries, number)

    get_record_batch = get_batch
    """Alias of :meth:`get_batch`, as in pyarrow."""

    def get_batch_with_custom_metadata(self, index: SupportsIndex) -> RecordBatchWithMetadata:
        """Return a batch and its metadata. Errors as :meth:`get_batch`."""
        from shmarrow.tables import with_metadata

        return with_metadata(self.get_batch(index))

    def _batch(self, file: _File, dictionaries: Mapping[int, Dictionary], number: int) -> RecordBatch:
        """Read a batch with all columns."""
        where = f"{file.name}: batch {number}"
        message, body = file.message(file.footer.batches[number], where)
        origin = file.version, number
        return open_batch(message, body, self._full_schema, dictionaries, where, self._limits, origin)

    def _read(self, file: _File, dictionaries: Mapping[int, Dictionary], number: int) -> RecordBatch:
        """Read a batch with the included columns."""
        batch = self._batch(file, dictionaries, number)
        if self._zero_copy_only:
            check_zero_copy(batch, f"{file.name}: batch {number}")
        return batch if self._included is None else batch._arranged(self._schema, self._included, {})

    def _lasting(self) -> Iterator[RecordBatch]:
        """Iterate over all batches; if the file is in memory or mapped, they can be read after closing."""
        file, dictionaries = self._opened(), self.dictionaries
        if file.ranged:
            return iter(self)
        return (self._read(file, dictionaries, i) for i in range(len(file.footer.batches)))

    def __repr__(self) -> str:
        from shmarrow import display

        file = self._file
        batches = None if file is None else len(file.footer.batches)
        rows = None
        with suppress(InvalidData):
            counts = None if file is None else _known_rows(file)
            rows = None if counts is None else sum([n * rows for n, rows in counts])
        return display.line(
            self, f"of {self._source.name}", *display.holding(batches, rows, len(self._schema)), self._states.state
        )

    def _repr_html_(self) -> str:
        from shmarrow import display

        return display.reader_html(self)

    def __len__(self) -> int:
        return self.num_record_batches

    def __getitem__(self, index: SupportsIndex) -> RecordBatch:
        return self.get_batch(index)

    def __iter__(self) -> Iterator[RecordBatch]:
        for i in range(self.num_record_batches):
            yield self.get_batch(i)

    def read_all(self) -> Table:
        """Return all batches as a table, without copying. A file read by ranges is fetched now."""
        from shmarrow.tables import Table

        file = self._opened()
        return Table(self.schema, list(self._read_ranges(file) if file.ranged else self))

    def validate(self, full: bool = False) -> None:
        """Check all batches, see :meth:`RecordBatch.validate`; with ``full`` also the footer's statistics.

        Raises
        ------
        InvalidData
            With the batch and the column, what was expected and what was found.
        """
        statistics = self.statistics if full else None
        for number in range(self.num_record_batches):
            with at("batch", number):
                batch = self.get_batch(number)
                batch.validate(full=full)
                if statistics is not None:
                    _check_statistics(statistics, number, batch)

    def for_consumer(self, name: str = "", *, lossy: str | Iterable[str] = ()) -> RecordBatchReader:
        """Return a reader over all batches that casts each to types that another tool accepts.

        Any number of such readers may be made. Parameters and errors as for :meth:`RecordBatchReader.for_consumer`.
        """
        from shmarrow.tables import batches_for

        return batches_for(self.schema, self._lasting(), name, lossy)

    def __arrow_c_stream__(self, requested_schema: PyCapsule | None = None, **unknown: object) -> PyCapsule:
        """Export all batches as a PyCapsule ``arrow_array_stream``, any number of times.

        Parameters and errors as for :meth:`Table.__arrow_c_stream__`.
        """
        from shmarrow.layout.c_stream import export_batches

        return export_batches(self.schema, self._lasting(), requested_schema, **unknown)

    def _read_ranges(self, file: _File) -> Iterator[RecordBatch]:
        """Iterate over all batches with their columns, fetching many small ones in one read."""
        count = len(file.footer.batches)
        step = max(1, _GROUP * count // len(file.data))
        for first in range(0, count, step):
            file.fetch(file.footer.batches[first : first + step], bodies=self._included is None)
            for i in range(first, min(first + step, count)):
                batch = self.get_batch(i)
                batch.columns  # noqa: B018
                yield batch

    def close(self) -> None:
        """Release the mapping; existing arrays and batches keep the mapping alive.

        The caller's file object stays open; if it is read by ranges, columns not accessed before become unreadable.
        Calling it again has no effect.
        """
        self._states.go(CLOSE)
        self._full_schema._detach()
        self._file = self._dictionaries = None
        self._source.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __reduce__(self) -> tuple[object, ...]:
        from shmarrow.ipc import open_file
        from shmarrow.ipc.stream.reader import reopened

        return reopened(
            open_file,
            self._source,
            self._limits,
            zero_copy_only=self._zero_copy_only,
            included_fields=self._arguments,
        )


def _check_statistics(statistics: RecordBatch, number: int, batch: RecordBatch) -> None:
    """Check what statistics say about the columns of a batch."""
    from shmarrow.ipc.file.statistics import check

    for name, column in zip(batch.schema.names, batch.columns, strict=True):
        with at("column", name):
            check(statistics, number, name, column)


class _FileDictionaries(Mapping[int, "Dictionary"]):
    """The dictionaries of a file by id, read on first access.

    References the bytes, not the reader, as batches may outlive their reader. Racing threads all get the first
    completed set; there is no lock that a fork could leave held.
    """

    def __init__(self, file: _File, schema: Schema) -> None:
        self._file = file
        self._schema = schema

    def _read(self) -> Mapping[int, Dictionary]:
        found: Mapping[int, Dictionary] | None = self.__dict__.get("_by_id")
        return self.__dict__.setdefault("_by_id", self._read_blocks()) if found is None else found

    def _read_blocks(self) -> Mapping[int, Dictionary]:
        from shmarrow.ipc.batch.dictionaries import Dictionary, DictionaryBudget

        file = self._file
        found: dict[int, Dictionary] = {}
        budget = DictionaryBudget(file.limits)
        total = 0
        blocks = file.footer.dictionaries
        file.fetch(blocks)
        source = LazySchema.of(self._schema)
        if len(blocks) and source.nested_dictionaries:
            source.dictionary_wires()  # none refers to itself
        # Nested dictionaries may be anywhere in the file, so each gets the whole set, by weak reference to avoid a
        # cycle.
        all_of_them = weakref.proxy(self)
        for i, block in enumerate(blocks):
            where = f"{file.name}: dictionary block {i}"
            message, body = file.message(block, where)
            total += message.body_length
            if total > len(file.data):
                raise InvalidData(f"{where}: the blocks overlap, they add up to {total} of {len(file.data)} bytes")
            kind = "RecordBatch" if isinstance(message, BatchHeader) else message.kind
            if isinstance(message, BatchHeader) or kind != "DictionaryBatch":
                raise InvalidData(f"{where} is a {kind} message, expected a DictionaryBatch")
            content, id, delta = dictionary_body(message, body, self._schema, all_of_them, file.name, file.limits)
            if id in found and not delta:
                raise InvalidData(f"{where} replaces dictionary {id}; a file has one dictionary per id, and deltas")
            if delta and id not in found:
                raise InvalidData(f"{where}: a delta for dictionary {id}, which does not precede it")
            found[id] = Dictionary(id, content, found.get(id), i, budget)
        return found

    def __getitem__(self, id: int) -> Dictionary:
        return self._read()[id]

    def __iter__(self) -> Iterator[int]:
        return iter(self._read())

    def __len__(self) -> int:
        return len(self._read())
