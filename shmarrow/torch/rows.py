# SPDX-License-Identifier: Apache-2.0
"""Conversion of rows of files, stores and tables to tensors.

The type of a column, not its values, decides whether it is a tensor or a list in every batch.

The assignment of rows to the batches of an epoch is a pure function of the seed and the epoch:

* an epoch is one sequence of batches, the same for all ranks and workers; each gets every n-th of them. So each row is
  in one batch of one worker of one rank, and the batches of a rank do not depend on its number of workers;
* shuffling permutes blocks of consecutive rows, then mixes the rows of groups of blocks: random enough for training,
  while rows that are read together stay close in memory.
"""

from __future__ import annotations

import errno
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from shmarrow.buffer import Indices
from shmarrow.columns.chunked import ChunkedArray
from shmarrow.columns.names import several
from shmarrow.columns.table import Table, table
from shmarrow.errors import (
    DEFAULT_LIMITS,
    CopyRequired,
    ExportRefused,
    FieldNotFound,
    InvalidArgument,
    InvalidType,
    StorageError,
    optional,
    shown,
)
from shmarrow.interchange.handles import Handle
from shmarrow.layout import nulls
from shmarrow.scans.sources import find, open_fragment
from shmarrow.torch.gather import Gather, Numbers, is_gathered, numbers_of
from shmarrow.types import DataType
from shmarrow.types.schema import difference


class Plan(NamedTuple):
    """Parameters of the division of rows into batches.

    Attributes
    ----------
    num_rows : int
        Number of rows.
    batch_size : int
        Rows per batch.
    shuffle : bool
        Whether the order is random.
    block_rows : int
        Rows per block.
    mixed_blocks : int
        Number of blocks whose rows are mixed.
    seed : int
        Determines the order, together with the epoch.
    drop_last : bool
        Whether batches that are not full, or that not every rank would get, are dropped.
    """

    num_rows: int
    batch_size: int
    shuffle: bool
    block_rows: int
    mixed_blocks: int
    seed: int
    drop_last: bool

    def num_batches(self, world_size: int = 1) -> int:
        """Return the number of batches of all ranks."""
        if not self.drop_last:
            return -(-self.num_rows // self.batch_size)
        return self.num_rows // self.batch_size // world_size * world_size

    def epoch(self, epoch: int) -> Epoch:
        """Return the order of the rows in one epoch."""
        return Epoch(self, epoch)


class Epoch:
    """The batches of one epoch; not thread-safe, and fastest if batches are requested in increasing order."""

    def __init__(self, plan: Plan, epoch: int) -> None:
        self._plan = plan
        self._epoch = epoch
        if plan.shuffle:
            count = -(-plan.num_rows // plan.block_rows)
            self._blocks: Indices = self._random(0).permutation(count)
            sizes = np.minimum(plan.block_rows, plan.num_rows - self._blocks * plan.block_rows)
            groups = np.add.reduceat(sizes, np.arange(0, count, plan.mixed_blocks)) if count else sizes
            self._starts: Indices = np.concatenate([[0], np.cumsum(groups)])
            self._group = -1
            self._rows: Indices = np.empty(0, np.int64)

    def _random(self, part: int) -> np.random.Generator:
        return np.random.default_rng([self._plan.seed, self._epoch, part])

    def batch(self, number: int) -> Indices | range:
        """Return the rows of a batch; a range if they are consecutive."""
        plan = self._plan
        start = number * plan.batch_size
        stop = min(start + plan.batch_size, plan.num_rows)
        if not plan.shuffle:
            return range(start, stop)
        first = int(np.searchsorted(self._starts, start, "right")) - 1
        parts = []
        while start < stop:
            low, high = self._starts[first : first + 2].tolist()
            parts.append(self._mixed(first)[start - low : min(stop, high) - low])
            start, first = min(stop, high), first + 1
        return np.concatenate(parts) if len(parts) > 1 else parts[0]

    def _mixed(self, group: int) -> Indices:
        """Return the rows of a group of blocks in random order; the last group is cached for the next batch."""
        if group != self._group:
            plan = self._plan
            blocks = self._blocks[group * plan.mixed_blocks : (group + 1) * plan.mixed_blocks]
            rows = (blocks[:, None] * plan.block_rows + np.arange(plan.block_rows)).reshape(-1)
            rows = rows[rows < plan.num_rows]
            self._random(group + 1).shuffle(rows)
            self._group, self._rows = group, rows
        return self._rows


Column = int | str


def table_of(source: Any, names: str | Iterable[str] | None, columns: Iterable[Column] | None) -> Table:
    """Return all rows of a source, see :class:`shmarrow.torch.BatchDataset`."""
    tables = [_read(open_fragment(fragment, DEFAULT_LIMITS)) for fragment in find(_readable(source), names)]
    if not tables:
        raise InvalidArgument("the source is empty: expected at least one table, batch or file")
    if columns is not None:
        keys = several(columns, "positions and names")
        tables = [part.select(keys) for part in tables]
    first = tables[0].schema
    for number, part in enumerate(tables):
        if not part.schema.equals(first):
            raise InvalidType(
                f"part {number} of the source has other columns than the first: {difference(part.schema, first)}",
                hint="shmarrow.scan brings sources to the columns of the first",
            )
    return Table(first, [batch for part in tables for batch in part.batches if batch.num_rows])


def _read(reader: Any) -> Table:
    """All rows of a reader or a table."""
    return reader if isinstance(reader, Table) else reader.read_all()


def _readable(source: Any) -> Any:
    """A source that can be read again: a handle is opened, and scans and streams are read."""
    if isinstance(source, (list, tuple)):
        return [_readable(part) for part in source]
    source = source.open() if isinstance(source, Handle) else source
    return table(source) if hasattr(type(source), "read_all") and not hasattr(source, "get_batch") else source


def share_of(
    source: Any, names: str | Iterable[str] | None, columns: Iterable[Column] | None, rank: int, world_size: int
) -> Table:
    """Return the contiguous share of one rank; all shares have equal size and overlap if needed."""
    by_rows = world_size > 1 and hasattr(type(source), "read_rows")  # a shared frame attaches only those needed
    whole = None if by_rows else table_of(source, names, columns)
    num_rows = source.num_rows if whole is None else whole.num_rows
    count = -(-num_rows // world_size)
    start = min(rank * num_rows // world_size, num_rows - count)
    if whole is None:
        return table_of(source.read_rows(start, start + count), names, columns)
    return whole if world_size == 1 else whole.slice(start, count)


# --- columns as tensors -----------------------------------------------------------------------------------------


class RowOptions(NamedTuple):
    """Options of :class:`shmarrow.torch.BatchDataset` that say what columns become."""

    lists: str
    padding: float
    decode: Mapping[str, Callable[[Any], Any]]


class Lists(NamedTuple):
    """Lists of different lengths, one after the other.

    Attributes
    ----------
    values : Tensor
        The values of all lists.
    offsets : Tensor
        int64, shape (rows + 1,): list ``i`` is ``values[offsets[i]:offsets[i + 1]]``.
    """

    values: Any
    offsets: Any


def row_options(lists: str, padding: float, decode: Mapping[str, Callable[[Any], Any]] | None) -> RowOptions:
    """Check the options."""
    if lists not in LISTS:
        raise InvalidArgument(f"lists must be one of {list(LISTS)}, found {shown(lists)}")
    if decode is not None and not (isinstance(decode, Mapping) and all(map(callable, decode.values()))):
        raise InvalidType(f"decode must be a mapping of columns to functions, found {shown(decode)}")
    return RowOptions(lists, padding, dict(decode or {}))


def forms_of(table: Table, options: RowOptions) -> list[Callable[[Any, str], Any]]:
    """Return for each column the function of column and name that gives what it becomes."""
    names = table.column_names
    if len(set(names)) < len(names):
        raise InvalidArgument("batches are dicts, and two columns have the same name; choose with columns=")
    unknown = [name for name in options.decode if name not in names]
    if unknown:
        raise FieldNotFound(f"decode names {unknown[0]!r}, which is none of the columns {', '.join(names[:20])}")
    return [_form(field.type, options.decode.get(field.name), options) for field in table.schema]


def _form(type: DataType, decode: Callable[[Any], Any] | None, options: RowOptions) -> Callable[[Any, str], Any]:
    if decode is not None:
        return partial(_decoded, decode)
    if _is_tensor(type):
        return _tensor
    if type.layout in ("list", "large_list") and _is_tensor(type.fields[0].type):
        return LISTS[options.lists](options)
    return _values


def _is_tensor(type: DataType) -> bool:
    try:
        nulls(0, type).to_torch()
    except (CopyRequired, ExportRefused, InvalidType):
        return False
    return True


class TableRows:
    """The rows of a table, as tensors and lists.

    Attributes
    ----------
    table : Table
        All rows.
    """

    def __init__(self, table: Table, options: RowOptions) -> None:
        self.table = table
        self._options = options
        self._forms = forms_of(table, options)
        batches = table.batches
        self._starts = np.cumsum([0, *(batch.num_rows for batch in batches)])
        self._gathers = [
            Gather(type, partial(_column, batches, i), len(batches)) if is_gathered(type) else None
            for i, type in enumerate(table.schema.types)
        ]
        self._names = table.column_names
        self._numbers = [
            Numbers(*form, partial(_column, batches, i), len(batches))
            if (form := numbers_of(type)) and self._forms[i] is _tensor
            else None
            for i, type in enumerate(table.schema.types)
        ]

    def __reduce__(self) -> tuple[Any, ...]:
        return TableRows, (self.table, self._options)

    def get(self, rows: Any) -> dict[str, Any]:
        """Return some rows as a dict of one tensor or list per column.

        Parameters
        ----------
        rows : range or int64 ndarray
            A range within one batch is not copied; other rows are gathered.
        """
        table = self.table
        if isinstance(rows, range):
            columns: list[Any] = table.slice(rows.start, len(rows)).columns
        else:
            numbers = np.searchsorted(self._starts, rows, "right") - 1
            local = rows - self._starts[numbers]
            whole = [None if each is None else each.take(numbers, local) for each in self._numbers]
            columns = [
                None if values is not None or gather is None else gather.take(numbers, local)
                for values, gather in zip(whole, self._gathers, strict=True)
            ]
            rest = [i for i, column in enumerate(columns) if column is None and whole[i] is None]
            for i, column in zip(rest, table.select(rest).take(rows).columns if rest else (), strict=True):
                columns[i] = column
            from_numpy = optional("torch").from_numpy
            return {
                name: form(column, name) if values is None else from_numpy(values)
                for name, values, column, form in zip(self._names, whole, columns, self._forms, strict=True)
            }
        return {name: form(column, name) for name, column, form in zip(self._names, columns, self._forms, strict=True)}


def _values(column: Any, _: str) -> list[Any]:
    found: list[Any] = column.to_pylist()
    return found


def _decoded(decode: Callable[[Any], Any], column: Any, _: str) -> Any:
    """The values of a column, each decoded; stacked if they are tensors or ndarrays of one shape."""
    torch = optional("torch")
    found = [decode(value) for value in column.to_pylist()]
    arrays = [torch.as_tensor(each) for each in found if isinstance(each, (torch.Tensor, np.ndarray))]
    alike = len({(each.shape, each.dtype) for each in arrays}) == 1
    return torch.stack(arrays) if alike and len(arrays) == len(found) else found


def _flat(column: Any, name: str) -> tuple[Any, Any]:
    """The values of all lists of a column as a tensor, and the lengths of the lists."""
    array: Any = column.combine_chunks() if isinstance(column, ChunkedArray) else column
    if array.null_count:
        raise CopyRequired(f"column {name!r} has nulls, which are no lists; fill_null() the column first")
    return _tensor(ChunkedArray([array.flatten()]), name), array.value_lengths().to_numpy().astype(np.int64)


def _offsets(column: Any, name: str) -> Lists:
    values, lengths = _flat(column, name)
    return Lists(values, optional("torch").from_numpy(np.concatenate([[0], np.cumsum(lengths)])))


def _padded(padding: float, column: Any, name: str) -> Any:
    values, lengths = _flat(column, name)
    torch = optional("torch")
    places = torch.from_numpy(np.arange(lengths.max(initial=0)) < lengths[:, None])
    padded = torch.full((*places.shape, *values.shape[1:]), padding, dtype=values.dtype)
    padded[places] = values
    return padded


LISTS: dict[str, Callable[[RowOptions], Callable[[Any, str], Any]]] = {
    "values": lambda _: _values,
    "offsets": lambda _: _offsets,
    "padded": lambda options: partial(_padded, options.padding),
}
"""What lists of different lengths become."""


def _column(batches: Sequence[Any], column: int, number: int) -> Any:
    return batches[number].column(column)


def _tensor(column: Any, name: str) -> Any:
    values, copied = column, True
    if isinstance(column, ChunkedArray):
        copied = column.num_chunks != 1
        values = column.combine_chunks() if copied else column.chunk(0)
    if values.null_count:
        if values.type.numpy_dtype is None or values.type.numpy_dtype.kind != "f":
            raise CopyRequired(
                f"column {name!r} has nulls, which a tensor of {values.type} cannot hold; fill_null() the column "
                "first, or leave it out with columns="
            )
        return optional("torch").from_numpy(np.array(values.to_numpy(zero_copy_only=False)))
    # Gathered or combined values are private memory already, so writing needs no other copy.
    if copied and values.type.layout != "bool":
        return values.to_torch(writable=False)
    try:
        return values.to_torch()
    except StorageError as error:
        if error.errno != errno.ENOMEM:
            raise
        # The caller keeps tens of thousands of batches, each a mapping; further batches are copies.
        return values.to_torch(writable=False).clone()


def row_of(batch: Mapping[str, Any], row: int) -> dict[str, Any]:
    """Return one row of a batch: tensors without the first dimension, and elements of lists."""
    return {
        name: values.values[values.offsets[row] : values.offsets[row + 1]] if isinstance(values, Lists) else values[row]
        for name, values in batch.items()
    }


def checked_count(value: Any, what: str, least: int) -> int:
    """Check an integer argument."""
    if isinstance(value, bool) or not isinstance(value, (int, np.integer)):
        raise InvalidType(f"{what} must be an int, found {shown(value)}")
    if value < least:
        raise InvalidArgument(f"{what} must be at least {least}, found {value}")
    return int(value)
