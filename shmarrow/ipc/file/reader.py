# SPDX-License-Identifier: Apache-2.0
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
from collections.abc import Iterable, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from shmarrow.columns import RecordBatch
from shmarrow.errors import DEFAULT_LIMITS, InvalidData, Limits, as_limits, at
from shmarrow.ipc.batch.decode import BatchHeader, dictionary_body, not_a_batch, open_batch, read_message
from shmarrow.ipc.file.footer import (
    BLOCK,
    ROW_COUNTS,
    STATISTICS,
    RowCounts,
    as_blocks,
    decode_row_counts,
    read_footer,
)
from shmarrow.ipc.message.decode import Message, message_at
from shmarrow.ipc.random_access import IndexedReader
from shmarrow.ipc.schema.lazy import LazySchema
from shmarrow.memory import Source, open_source
from shmarrow.types import Metadata, Schema, as_metadata

if TYPE_CHECKING:
    from shmarrow.columns import Table
    from shmarrow.ipc.batch.dictionaries import Dictionary
    from shmarrow.ipc.stream.state import IpcStats

_HIDDEN = (ROW_COUNTS, STATISTICS)
"""The keys of the footer's metadata that are not the user's."""


class FileBatches:
    """The batches and dictionaries of a file; see :class:`~shmarrow.ipc.random_access.Batches`.

    References the bytes, and is dropped as a whole when the reader is closed; batches whose columns have dictionaries
    keep it.

    Attributes
    ----------
    data : uint8 ndarray or SourceRange
        All bytes before the footer, which blocks may refer to.
    ranged : bool
        Whether the file is read by ranges, and ``data`` a SourceRange.
    footer : Footer
        What the footer says.
    schema : Schema
        The schema.
    """

    __slots__ = ("__weakref__", "_by_id", "_shared", "data", "footer", "limits", "name", "ranged", "schema")

    def __init__(self, source: Source, limits: Limits) -> None:
        self.name = source.name
        self.limits = limits
        self.ranged = source.data is None
        self._shared = None if source.mapping is None else source.mapping.shared
        self.footer = footer = read_footer(source, limits)
        self.schema = footer.schema
        self._by_id: dict[int, Dictionary] | None = None if len(footer.dictionaries) else {}
        if source.data is None:
            from shmarrow.memory import SourceRange

            self.data: Any = SourceRange(source, footer.end)  # type: ignore[arg-type]
        else:
            self.data = source.data[: footer.end]

    def _message(self, listed: Any, number: int, where: str) -> tuple[BatchHeader | Message, Any]:
        """The message of one of some blocks, and its body."""
        offset, metadata, size = BLOCK.unpack_from(listed, number * BLOCK.size)
        located = message_at(self.data, offset, where, self.limits, block=(metadata, size), parse=read_message)
        assert located is not None
        if self.ranged:
            return located.message, self.data.body(located.body, located.end)
        body = self.data[located.body : located.end]
        return located.message, body if self._shared is None else self._shared.body(body)

    def count(self) -> int:
        return len(self.footer.batches) // BLOCK.size

    def batch(self, number: int) -> RecordBatch | None:
        blocks = self.footer.batches
        if number * BLOCK.size >= len(blocks):
            return None
        where = f"{self.name}: batch {number}"
        message, body = self._message(blocks, number, where)
        return open_batch(message, body, self.schema, self, where, self.limits)

    def count_rows(self) -> int:
        counts = self.known_rows()
        return sum(map(self._rows, range(self.count()))) if counts is None else sum([n * rows for n, rows in counts])

    def known_rows(self) -> RowCounts | None:
        """The row counts of all batches, if the footer has them."""
        hint = self.footer.metadata.get(ROW_COUNTS)
        return None if hint is None else decode_row_counts(hint, self.count())

    def _rows(self, number: int) -> int:
        """The number of rows of a batch, from its own metadata."""
        where = f"{self.name}: batch {number}"
        message, _ = self._message(self.footer.batches, number, where)
        if isinstance(message, Message):
            raise not_a_batch(message, where)
        return message.length

    def get(self, id: int, /) -> Dictionary | None:
        """The dictionary of an id; None if there is none."""
        return self.dictionaries().get(id)

    def dictionaries(self) -> Mapping[int, Dictionary]:
        """The dictionaries by id, read on first use; racing threads all get the first complete set."""
        if self._by_id is None:
            by_id = self._read_dictionaries()
            if self._by_id is None:
                self._by_id = by_id
        return self._by_id

    def _read_dictionaries(self) -> dict[int, Dictionary]:
        from shmarrow.ipc.batch.dictionaries import Dictionary, DictionaryBudget

        by_id: dict[int, Dictionary] = {}
        budget = DictionaryBudget(self.limits)
        total = 0
        source = LazySchema.of(self.schema)
        if source.nested_dictionaries:
            source.dictionary_layouts()  # none refers to itself
        # Nested dictionaries may be anywhere in the file, so each gets the whole set, by weak reference to avoid a
        # cycle.
        all_of_them = weakref.proxy(self)
        for i in range(len(self.footer.dictionaries) // BLOCK.size):
            where = f"{self.name}: dictionary block {i}"
            message, body = self._message(self.footer.dictionaries, i, where)
            total += message.body_length
            if total > len(self.data):
                raise InvalidData(f"{where}: the blocks overlap, they add up to {total} of {len(self.data)} bytes")
            kind = "RecordBatch" if isinstance(message, BatchHeader) else message.kind
            if isinstance(message, BatchHeader) or kind != "DictionaryBatch":
                raise InvalidData(f"{where} is a {kind} message, expected a DictionaryBatch")
            content, id, delta = dictionary_body(message, body, self.schema, all_of_them, self.name, self.limits)
            if id in by_id and not delta:
                raise InvalidData(f"{where} replaces dictionary {id}; a file has one dictionary per id, and deltas")
            if delta and id not in by_id:
                raise InvalidData(f"{where}: a delta for dictionary {id}, which does not precede it")
            by_id[id] = Dictionary(id, content, by_id.get(id), i, budget)
        return by_id

    def dictionaries_of(self, number: int) -> Mapping[int, Dictionary]:
        return self.dictionaries()


class RecordBatchFileReader(IndexedReader):
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

    _batches: FileBatches | None
    _open = FileBatches

    @property
    def schema(self) -> Schema:
        """The schema of all batches."""
        return self._schema

    get_record_batch = IndexedReader.get_batch
    """Alias of :meth:`get_batch`, as in pyarrow."""

    @property
    def metadata(self) -> Metadata | None:
        """The footer's metadata; None if it has none."""
        metadata = {key: value for key, value in self._opened().footer.metadata.items() if key not in _HIDDEN}
        return as_metadata(metadata) if metadata else None

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
        file: FileBatches = self._opened()
        value = file.footer.metadata.get(STATISTICS)
        if value is None:
            return None
        from shmarrow.ipc.file.statistics import decode

        with at(file.name):
            return decode(value, self._full_schema, file.count(), self._limits)

    @property
    def dictionaries(self) -> Mapping[int, Dictionary]:
        """The file's dictionaries by id."""
        dictionaries: Mapping[int, Dictionary] = self._opened().dictionaries()
        return dictionaries

    @property
    def stats(self) -> IpcStats:
        """Number of messages in the file, by kind, according to its footer; pyarrow counts those that were read so far.

        A file of several dictionaries reads their metadata, to tell deltas from others.
        """
        from shmarrow.ipc.stream.state import IpcStats

        file: FileBatches = self._opened()
        batches, parts = file.count(), len(file.footer.dictionaries) // BLOCK.size
        deltas = parts - len(self.dictionaries) if parts > 1 else 0
        return IpcStats(1 + parts + batches, batches, parts, deltas, 0)

    def _block_sizes(self) -> list[int]:
        """The size of each batch with its metadata, according to the footer."""
        file: FileBatches = self._opened()
        found = as_blocks(file.footer.batches)
        sizes = found["metaDataLength"] + found["bodyLength"]
        return sizes.clip(0, len(file.data)).tolist()

    def _block_rows(self) -> list[int] | None:
        """The number of rows of each batch, if the footer has them."""
        counts = self._opened().known_rows()
        return None if counts is None else [rows for n, rows in counts for _ in range(n)]

    def __repr__(self) -> str:
        from shmarrow import display

        batches, count, rows = self._batches, None, None
        with suppress(InvalidData):
            count = None if batches is None else batches.count()
            counts = None if batches is None else batches.known_rows()
            rows = None if counts is None else sum([n * rows for n, rows in counts])
        return display.line(
            self, f"of {self._source.name}", *display.holding(count, rows, len(self._schema)), self._states.state
        )

    def read_all(self) -> Table:
        """Return all batches as a table, without copying. A file read by ranges is fetched now."""
        if not self._opened().ranged:
            return super().read_all()
        from shmarrow.columns import Table

        batches = []
        for batch in self:
            batch.columns  # noqa: B018
            batches.append(batch)
        return Table(self.schema, batches)

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

    def __reduce__(self) -> tuple[object, ...]:
        mapping = self._source.mapping
        survive = mapping is not None and mapping.survives
        return self._reopened(open_file, zero_copy_only=self._zero_copy_only, survive=survive)


def open_file(
    source: Any,
    *,
    limits: Limits = DEFAULT_LIMITS,
    memory_map: bool = True,
    zero_copy_only: bool = False,
    included_fields: Iterable[int | str] | None = None,
    unchecked: bool = False,
    survive: bool = False,
) -> RecordBatchFileReader:
    """Open a reader of the file format.

    Parameters
    ----------
    source : path, ``shm:NAME``, Segment, file object or bytes-like
        A path or a name is mapped; arrays are zero-copy views that keep the mapping alive. A seekable file object that
        cannot be mapped is read by ranges, as needed. :mod:`shmarrow.memory` has the full table.
    limits : Limits, optional
        Bounds on what is accepted.
    memory_map : bool
        False reads into memory instead of mapping, which protects against truncation by other processes.
    zero_copy_only : bool
        True rejects batches that cannot be read without a copy, such as compressed ones.
    included_fields : iterable of int and str, optional
        The columns to read, by position or name; all by default.
    unchecked : bool
        True skips the checks of values (offsets, views, indices, UTF-8) before arrays are exported to other libraries.
        Only for data written by your own code: malicious data could crash the process or leak its memory.
    survive : bool
        True keeps the values of views if another program truncates the mapped file, or opens it for writing, which then
        waits until its pages are copied into memory. Only for a file of this user by its path; see the guide on safety.

    Raises
    ------
    ObjectNotFound
        If the source does not exist.
    InvalidData
        If it is not an Arrow file.
    StorageError
        If the source cannot be read, or not be protected as ``survive`` asks.
    InvalidType
        If the source is a text-mode file or of an unsupported type.
    """
    limits = as_limits(limits, unchecked)
    return RecordBatchFileReader(
        open_source(source, memory_map, survive=survive), limits, included_fields, zero_copy_only
    )


def _check_statistics(statistics: RecordBatch, number: int, batch: RecordBatch) -> None:
    """Check what statistics say about the columns of a batch."""
    from shmarrow.ipc.file.statistics import check

    for name, column in zip(batch.schema.names, batch.columns, strict=True):
        with at("column", name):
            check(statistics, number, name, column)
