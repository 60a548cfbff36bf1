# SPDX-License-Identifier: Apache-2.0
"""Random access to record batches: what readers of files and of streams in memory have in common.

A reader asks one question of its source: give me batch ``i``. What answers it (:class:`Batches`) references the bytes,
knows where each batch is and which dictionaries it sees, and is dropped as a whole when the reader is closed. Reading
changes nothing, so any number of iterations, tables and exports have all batches.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import partial
from itertools import count
from operator import index as as_index
from typing import TYPE_CHECKING, Any, Protocol, Self, SupportsIndex

from shmarrow.capsules import PyCapsule
from shmarrow.columns import RecordBatch, included, several
from shmarrow.errors import IndexOutOfRange, InvalidType, Limits
from shmarrow.habits import Hinted, no_batch
from shmarrow.ipc.batch.decode import check_zero_copy
from shmarrow.memory import CLOSE, CLOSED, OPEN, READ, Source, StateMachine, Transitions
from shmarrow.types import Schema

if TYPE_CHECKING:
    from shmarrow.columns import RecordBatchReader, RecordBatchWithMetadata, Table

TRANSITIONS: Transitions = {OPEN: {READ: OPEN, CLOSE: CLOSED}, CLOSED: {CLOSE: CLOSED}}
"""States of a reader. Reads can always be repeated, so no error is final."""


class Batches(Protocol):
    """The record batches of an open file or stream.

    Attributes
    ----------
    schema : Schema
        The schema of all of them.
    """

    schema: Schema

    def count(self) -> int:
        """Return the number of batches."""

    def batch(self, number: int) -> RecordBatch | None:
        """Return a batch with all columns; None if there are not as many. Its columns are built on access."""

    def count_rows(self) -> int:
        """Return the number of rows of all batches."""

    def dictionaries_of(self, number: int) -> Any:
        """Return the dictionaries that a batch sees, by id."""


class IndexedReader(Hinted):
    """A reader with random access to the batches of its source; the base of readers of files and of mapped streams."""

    _kind = "reader"

    _open: Callable[[Source, Limits], Batches]
    """Opens the batches of a source; a class."""

    def __init__(
        self,
        source: Source,
        limits: Limits,
        included_fields: Iterable[int | str] | None = None,
        zero_copy_only: bool = False,
    ) -> None:
        self._source = source
        self._limits = limits
        self._zero_copy_only = zero_copy_only
        self._batches: Any = None
        self._arguments = None if included_fields is None else several(included_fields, "positions and names")
        self._states = StateMachine(f"the reader of {source.name}", TRANSITIONS, shared=source.data is not None)
        try:
            self._batches = batches = self._open(source, limits)
            self._full_schema = batches.schema
            self._included, self._schema = None, self._full_schema
            if self._arguments is not None:
                self._included, self._schema = included(self._full_schema, self._arguments)
            self._is_plain = self._included is None and not zero_copy_only
        except BaseException:
            self._batches = None
            source.close()
            raise

    def _opened(self) -> Any:
        """The batches, as long as the reader is open in this process."""
        batches = self._batches
        if batches is None:
            self._states.go(READ)
        return batches

    @property
    def num_record_batches(self) -> int:
        """Number of record batches; for a stream, reads the headers of all messages once."""
        count: int = self._opened().count()
        return count

    @property
    def num_rows(self) -> int:
        """Number of rows in all batches.

        Read from the footer of files written by shmarrow, otherwise from the metadata of all batches. The footer's
        counts are only used here: reading a batch checks column lengths against the batch itself.
        """
        rows: int = self._opened().count_rows()
        return rows

    def count_rows(self) -> int:
        """Return :attr:`num_rows`; pyarrow's name."""
        return self.num_rows

    def get_batch(self, index: SupportsIndex) -> RecordBatch:
        """Return the batch at position ``index``; negative positions count from the end.

        Raises
        ------
        IndexOutOfRange
            If the index is out of range.
        InvalidData
            If its message is invalid, or for a stream, one before it.
        Closed
            After :meth:`close`.
        """
        batches = self._opened()
        try:
            number = as_index(index)
        except TypeError:
            raise no_batch(index) from None
        if number < 0:
            number += batches.count()
        batch = batches.batch(number) if number >= 0 else None
        if batch is None:
            raise IndexOutOfRange(f"no batch {index}: {self._source.name} has {batches.count()}")
        return batch if self._is_plain else self._selected(batch, number)

    def _selected(self, batch: RecordBatch, number: int) -> RecordBatch:
        """A batch with the included columns, for a reader that has all or some, or takes no copies."""
        if self._zero_copy_only:
            check_zero_copy(batch, f"{self._source.name}: batch {number}")
        return batch if self._included is None else batch._arranged(self._schema, self._included, {})

    def get_batch_with_custom_metadata(self, index: SupportsIndex) -> RecordBatchWithMetadata:
        """Return a batch and its metadata. Errors as :meth:`get_batch`."""
        from shmarrow.columns import with_metadata

        return with_metadata(self.get_batch(index))

    def __len__(self) -> int:
        return self.num_record_batches

    def __getitem__(self, index: SupportsIndex) -> RecordBatch:
        return self.get_batch(index)

    def __iter__(self) -> Iterator[RecordBatch]:
        """Iterate over all batches, each time anew."""
        for number in count():
            batch = self._opened().batch(number)
            if batch is None:
                return
            yield batch if self._is_plain else self._selected(batch, number)

    def _iter_after_close(self) -> Iterator[RecordBatch]:
        """Iterate over all batches; if the bytes are in memory or mapped, they can be read after closing."""
        batches = self._opened()
        every: Iterator[RecordBatch] = iter(partial(next, map(batches.batch, count())), None)
        return (self._selected(batch, number) for number, batch in enumerate(every))

    def read_all(self) -> Table:
        """Return all batches as a table, without copying."""
        from shmarrow.columns import Table

        return Table(self._schema, [batch for batch in self])  # noqa: C416 - no count first

    def for_consumer(self, name: str = "", *, lossy: str | Iterable[str] = ()) -> RecordBatchReader:
        """Return a reader over all batches that casts each to types that another tool accepts.

        Any number of such readers may be made. Parameters and errors as for :meth:`RecordBatchReader.for_consumer`.
        """
        from shmarrow.columns import batches_for

        return batches_for(self._schema, self._iter_after_close(), name, lossy)

    def __arrow_c_stream__(self, requested_schema: PyCapsule | None = None, **unknown: object) -> PyCapsule:
        """Export all batches as a PyCapsule ``arrow_array_stream``, any number of times.

        Parameters and errors as for :meth:`Table.__arrow_c_stream__`.
        """
        from shmarrow.layout.c_stream import export_batches

        return export_batches(self._schema, self._iter_after_close(), requested_schema, **unknown)

    def _dictionaries_of(self, number: int) -> Any:
        """The dictionaries of a batch by id."""
        return self._opened().dictionaries_of(number)

    def close(self) -> None:
        """Release the mapping; existing arrays and batches keep it alive.

        The caller's file object stays open; if it is read by ranges, columns not accessed before become unreadable.
        Calling it again has no effect.
        """
        self._states.go(CLOSE)
        self._batches = None
        self._source.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _reopened(self, opener: Any, **arguments: Any) -> tuple[Any, ...]:
        """Reduce the reader to its source's name and the function that opens it, for pickling."""
        return reopened(opener, self._source, self._limits, included_fields=self._arguments, **arguments)


def reopened(opener: Any, source: Source, limits: Limits, **arguments: Any) -> tuple[Any, ...]:
    """Reduce what was opened to its source's name and the function that opens it, for pickling."""
    if source.closed or source.location is None:
        raise InvalidType(
            f"the reader of {source.name} cannot be pickled or copied: only an open reader of a mapped path "
            "or shm: name can be reopened; pass on the name or the bytes"
        )
    return partial(opener, source.location, limits=limits, **arguments), ()
