# SPDX-License-Identifier: Apache-2.0
"""Writing rows into a directory of files, one directory for each value of the columns that partition them.

| in the directory | what it is |
| --- | --- |
| ``day=2024-01-01/part-00000-<job>.arrow`` | a file of the write that made the directory |
| ``job-<job>/day=2024-01-01/part-00000-<job>.arrow`` | a file of a later one |

Invariants:

* memory is bounded: rows are held up to a number of bytes, and files are open up to a number;
* scans see all files of a write or none of them, wherever its process is killed; an overwrite replaces what was there
  when it began, and nothing else. :mod:`shmarrow.scans.jobs` says how;
* the text in the name of a directory is that of the value, percent-encoded; a value that would be read as null is
  refused.
"""

from __future__ import annotations

import errno
import os
import resource
import shutil
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np

from shmarrow.columns import RecordBatch, concat_batches, several
from shmarrow.errors import (
    InvalidArgument,
    InvalidType,
    ObjectExists,
    shown,
    storage_error,
)
from shmarrow.interchange.arrow_file import ArrowFile, recut
from shmarrow.interchange.foreign import Rows
from shmarrow.ipc.options import IpcWriteOptions
from shmarrow.layout import nulls
from shmarrow.layout.codes import codes_of
from shmarrow.memory import open_sink, sync_directory
from shmarrow.scans import jobs
from shmarrow.scans.keys import directories_of
from shmarrow.scans.sources import found_with_schema, has_store
from shmarrow.types import schema

_HELD = 256 << 20
"""The most bytes of rows that wait to be written together."""
_PIECE = 64 << 20
"""Bytes of rows that are divided together."""
_LARGE = 1 << 20
"""Bytes from which rows are not copied to be written together with others."""


class DirectoryWriter:
    """A directory being written, by one process.

    Parameters
    ----------
    rows : Rows
        What is written.
    where : str
        The path of the directory.
    options, statistics
        As for :class:`ArrowFile`.
    partition_by : sequence of str
        The columns whose values give directories, outermost first.
    max_rows, rows_per_batch : int or None
        The most rows of a file, and the rows of each batch of it.
    mode : str
        ``"error"``, ``"append"`` or ``"overwrite"``.
    permissions, durable
        As for :func:`shmarrow.write`.
    """

    def __init__(
        self,
        rows: Rows,
        where: str,
        options: IpcWriteOptions,
        statistics: bool | Iterable[str],
        partition_by: Sequence[str],
        max_rows: int | None,
        rows_per_batch: int | None,
        mode: str,
        permissions: int | None,
        durable: bool,
    ) -> None:
        self._keys = [rows.schema.index_of(name) for name in several(partition_by, "names of columns")]
        self._partition = [rows.schema.field(i).name for i in self._keys]
        directories_of(self._partition, [nulls(0, rows.schema.field(i).type) for i in self._keys])  # checks them
        self._others = [i for i in range(len(rows.schema)) if i not in self._keys]
        fields = [rows.schema.field(i) for i in self._others]
        self._rows = rows._replace(schema=schema(fields, rows.schema.metadata))
        self._options, self._statistics, self._max_rows = options, statistics, max_rows
        self._rows_per_batch = rows_per_batch
        self._permissions, self._durable = permissions, durable
        self._parts: dict[str, _Part] = {}
        self._waiting: list[RecordBatch] = []
        self._held = self._size = self.nbytes = 0
        self._most_open = max(8, min(512, resource.getrlimit(resource.RLIMIT_NOFILE)[0] // 2))
        self._path = os.path.abspath(where)
        self._job = jobs.new_job()
        self._is_there = os.path.isdir(self._path)
        if has_store(self._path):
            raise InvalidArgument(f"{where!r} is a store; Store.put writes objects of it")
        if os.path.lexists(self._path) and not os.path.isdir(self._path):  # another write may make it at any time
            raise ObjectExists(errno.EEXIST, f"cannot write a directory {where!r}: it is a file")
        if self._is_there and mode == "error" and any(name[0] not in "._" for name in os.listdir(self._path)):
            hint = 'mode="append" adds files, mode="overwrite" replaces those that are there'
            raise ObjectExists(errno.EEXIST, f"the directory {where!r} is not empty", hint=hint)
        if self._is_there and mode == "append":
            self._check_append()
        self._mode = mode

    def _check_append(self) -> None:
        """Check that the files that are there have the same columns, and their directories the same keys."""
        there, before = found_with_schema(self._path)
        if before is None:
            return
        keys, mine = [name for name, _ in there[0].keys], self._rows.schema
        partition = self._partition
        if keys != partition:
            raise InvalidArgument(
                f"cannot append to {self._path!r}, which is partitioned by {shown(keys)}, what is partitioned by "
                f"{shown(partition)}"
            )
        if {field.name: field.type for field in before} != {field.name: field.type for field in mine}:
            raise InvalidType(f"cannot append to {self._path!r}: {there[0]} has {before}, the rows have {mine}")

    def write(self) -> None:
        """Write all rows, and make them visible.

        Raises
        ------
        ObjectExists
            If somebody else has made the directory meanwhile, and nothing must be there.
        """
        above, name = os.path.split(self._path)
        if self._is_there:
            work = jobs.begin(self._path, self._job)
            if self._mode == "overwrite":
                jobs.plan_overwrite(self._path, self._job, f"job-{self._job}")
        else:
            work = os.path.join(above, f".{name}-{self._job}")
        self._folder = os.path.join(work, "whole")
        try:
            os.makedirs(self._folder)
            self._write()
            self._publish()
        except OSError as error:
            raise storage_error(error, "write to", self._path) from None
        finally:
            for part in self._parts.values():
                if part.file is not None:
                    part.file.writer.abort()
            shutil.rmtree(work, ignore_errors=True)
            if self._is_there:
                jobs.discard(self._path, self._job)

    def _write(self) -> None:
        for batch in self._rows.batches:
            self._add(batch)
        self._divide()
        if not self._parts and not self._keys:
            self._open(self._parts.setdefault("", _Part("")))  # no rows, and the columns are kept
        for part in self._parts.values():
            self._flush(part, last=True)
            self._close(part)

    def _publish(self) -> None:
        if not self._is_there:
            try:
                os.rename(self._folder, self._path)
            except OSError as error:
                if error.errno not in (errno.ENOTEMPTY, errno.EEXIST):
                    raise
                if self._mode == "error":
                    raise ObjectExists(errno.EEXIST, f"the directory {self._path!r} was made meanwhile") from None
                jobs.begin(self._path, self._job)
                self._is_there = True
        if self._is_there:
            jobs.publish(self._path, self._job, f"job-{self._job}", self._folder)
        if self._durable:
            for folder in (self._path, os.path.dirname(self._path)):
                sync_directory(folder)
        if self._mode == "overwrite":
            jobs.remove_replaced(self._path)

    def _add(self, batch: RecordBatch) -> None:
        """Hold rows, divide them once they are many, and write what is held once that is much."""
        size = max(batch.nbytes, 8 * batch.num_rows)  # which the numbers of the rows take
        pieces = max(1, size // _PIECE) if self._keys else 1
        rows = max(1, -(-batch.num_rows // pieces))
        for start in range(0, batch.num_rows, rows):
            self._waiting.append(batch.slice(start, rows))
            self._size += size // pieces
            self._held += size // pieces
            if self._size >= _PIECE or self._held >= _HELD:
                self._divide()
            if self._held >= _HELD:
                for part in self._parts.values():
                    self._flush(part)
                self._held = 0

    def _divide(self) -> None:
        """Give the rows that wait to the directories, in their order."""
        waiting, self._waiting, self._size = self._waiting, [], 0
        if not waiting:
            return
        for path, rows in self._divided(waiting):
            part = self._parts.get(path) or self._parts.setdefault(path, _Part(path))
            part.held.append(rows)

    def _divided(self, batches: list[RecordBatch]) -> Iterator[tuple[str, RecordBatch]]:
        """The rows of each directory, in their order, without the columns that its name gives."""
        parts = [batch.select(self._others) for batch in batches]
        if not self._keys:
            yield from (("", rows) for rows in parts)
            return
        keys = concat_batches([batch.select(self._keys) for batch in batches])
        codes, first = codes_of(keys.column(0) if len(self._keys) == 1 else keys.to_struct_array(), with_null=True)
        paths = directories_of(self._partition, keys.take(first).columns)
        if len(first) <= 1 << 16:
            codes = codes.astype(np.uint16)  # which are sorted in linear time
        if np.any(codes[1:] < codes[:-1]):
            order = np.argsort(codes, kind="stable")
            parts, codes = [concat_batches(parts).take(order)], codes[order]
        start = 0
        for rows in parts:
            mine, start = codes[start : start + rows.num_rows], start + rows.num_rows
            there = np.arange(mine[0], mine[-1] + 1)
            begin = 0
            for code, end in zip(there.tolist(), np.searchsorted(mine, there, "right").tolist(), strict=True):
                yield paths[code], rows.slice(begin, end - begin)
                begin = end

    def _flush(self, part: _Part, last: bool = False) -> None:
        """Write the rows that a part holds: small batches together, or in batches of the number that is asked for."""
        held, part.held = part.held, []
        size = self._rows_per_batch
        for batch in _joined(held) if size is None else recut(held, size):
            if size is not None and batch.num_rows < size and not last:
                part.held.append(batch)
                continue
            while batch.num_rows:
                left = batch.num_rows if self._max_rows is None else self._max_rows - part.rows
                if not left:
                    self._close(part)
                    continue
                self._open(part).write(batch.slice(0, left))
                part.rows += min(left, batch.num_rows)
                batch = batch.slice(left)

    def _open(self, part: _Part) -> ArrowFile:
        if part.file is None:
            busy = [other for other in self._parts.values() if other.file is not None]
            if len(busy) >= self._most_open:
                self._close(busy[0])
            folder = os.path.join(self._folder, part.path)
            os.makedirs(folder, exist_ok=True)
            path = os.path.join(folder, f"part-{part.files:05d}-{self._job}.arrow")
            part.sink = open_sink(path, mode=self._permissions, durable=self._durable)
            part.file = ArrowFile(self._rows, part.sink, self._options, self._statistics)
            part.files += 1
        return part.file

    def _close(self, part: _Part) -> None:
        if part.file is not None:
            part.file.writer.close()
            self.nbytes += part.sink.size
            part.file, part.rows = None, 0


class _Part:
    """What is written into one directory: the rows that it holds, and the file that is open."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.held: list[RecordBatch] = []
        self.file: ArrowFile | None = None
        self.sink: Any = None
        self.rows = self.files = 0


def _joined(batches: Sequence[RecordBatch]) -> Iterator[RecordBatch]:
    """The batches, adjacent ones together as long as they are small."""
    together: list[RecordBatch] = []
    size = 0
    for batch in batches:
        together.append(batch)
        size += batch.nbytes
        if size >= _LARGE:
            yield concat_batches(together) if len(together) > 1 else batch
            together, size = [], 0
    if together:
        yield concat_batches(together)
