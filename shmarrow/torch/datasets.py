# SPDX-License-Identifier: Apache-2.0
"""Datasets for torch: map-style over rows, and iterable over batches."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, SupportsIndex, overload

import numpy as np

from shmarrow.errors import IndexOutOfRange, InvalidArgument, InvalidType, counted, optional, printable, shown
from shmarrow.layout.arguments import checked_positions
from shmarrow.torch.rows import Column, Plan, TableRows, checked_count, row_of, row_options, share_of, table_of

optional("torch")
import torch  # noqa: E402
from torch.utils.data import Dataset, IterableDataset, get_worker_info  # noqa: E402
from torch.utils.data._utils.collate import default_collate_fn_map  # noqa: E402

Batch = dict[str, Any]
Transform = Callable[[Batch], Any]
Decode = Callable[[Any], Any]


class BatchDataset(Dataset[Any]):  # type: ignore[misc]
    """A map-style dataset over the rows of mapped files, stores or tables.

    Columns of numbers, booleans, fixed-size lists of numbers or fixed-shape tensors become tensors; all others become
    Python values, unless ``lists`` or ``decode`` say otherwise. Nulls become NaN in columns of floats, and raise an
    error in other columns of tensors.

    Parameters
    ----------
    source : path, Store, Scan, Table, RecordBatch, reader, data frame, Handle, SharedFrame of Spark's, or list of them
        The rows. A path may be whatever :func:`shmarrow.scan` takes: a file, a directory, a pattern such as
        ``"data/*.arrow"``, a ``shm:`` name. All parts must have the same columns; those of a Scan are brought to the
        same. Tables and data frames may be of any library; a reader is read to the end.
    columns : sequence of str or int, optional
        Columns by name or position; by default all. Other columns are never read.
    transform : callable, optional
        Called with each batch, a dict, or each row if rows are selected one by one; returns the value to yield. A
        DataLoader has it called with batches. Runs in the workers, if any.
    names : str or sequence of str, optional
        Objects of a store: a pattern such as ``"train-*"``, or names; by default all.
    lists : str
        What lists of numbers become, whose lengths differ: ``"values"``, Python lists; ``"padded"``, a tensor of shape
        (rows, longest list of the batch, ...); or ``"offsets"``, a named tuple of the ``values`` of all lists and the
        ``offsets`` between which those of each row are. Nulls are an error in the latter two.
    padding : float
        The value after the end of padded lists.
    decode : mapping of str to callable, optional
        Functions for columns by name, such as of JPEG images: each is called with every value, such as its bytes or
        None, in the workers, if any. Tensors or ndarrays of one shape are stacked.
    rank, world_size : int, optional
        Rank of this process and number of processes; by default 0 and 1, even if ``torch.distributed`` is initialized,
        so that its DistributedSampler can be used instead. The dataset then contains one contiguous share of the rows,
        zero-copy: ``ceil(rows / world_size)`` for each rank, as ranks that train together need equal numbers. If the
        rows do not divide evenly, neighbouring shares may overlap by one row; none is left out. Of a shared frame, only
        the partitions with rows of this share are attached.

    Raises
    ------
    InvalidType
        If the source has another type, or its parts have different columns.
    InvalidArgument
        If the source is empty, or two columns have the same name; if the rank is not less than the world size, or only
        one of them is given.
    ObjectNotFound
        If a name does not exist, a pattern has no matches, or partitions of a frame were destroyed.
    MissingExtra
        On import, if torch is not installed.

    Notes
    -----
    A DataLoader gathers all rows of a batch in one operation::

        DataLoader(BatchDataset("train.arrow"), batch_size=256, shuffle=True, num_workers=4)

    Gathered rows are copies; slices are copy-on-write views.

    Thread safety: immutable; any number of threads may use it. Data in named memory are pickled to worker processes as
    a handle.
    """

    def __init__(
        self,
        source: Any,
        *,
        columns: Iterable[Column] | None = None,
        transform: Transform | None = None,
        names: str | Iterable[str] | None = None,
        lists: str = "values",
        padding: float = 0,
        decode: Mapping[str, Decode] | None = None,
        rank: int | None = None,
        world_size: int | None = None,
    ) -> None:
        options = row_options(lists, padding, decode)
        ranks = (0, 1) if rank is None and world_size is None else _ranks(rank, world_size)
        self.table = share_of(source, names, columns, *ranks)
        self.transform = transform
        self._rows = TableRows(self.table, options)

    def loader(self, batch_size: int, **options: Any) -> Any:
        """Return a DataLoader, which gathers the rows of each batch in one operation.

        Parameters
        ----------
        batch_size : int
            Rows per batch.
        options
            Passed on, such as ``shuffle=True``, ``num_workers=4`` or ``sampler``.
        """
        return torch.utils.data.DataLoader(self, batch_size, **options)

    def __len__(self) -> int:
        return self.table.num_rows

    def __getitem__(self, index: Any) -> Any:
        """Return a row by number as a dict of values, or rows by slice or numbers as a dict of tensors.

        Raises
        ------
        IndexOutOfRange
            If a row is out of range.
        InvalidType
            If the index is none of these.
        """
        if isinstance(index, slice):
            rows = range(len(self))[index]
            return self._batch(rows if rows.step == 1 else np.arange(rows.start, rows.stop, rows.step))
        if isinstance(index, torch.Tensor):
            index = index.numpy()
        if np.ndim(index):
            return self._batch(self._positions(index))
        try:
            row = range(len(self))[index]
        except IndexError:
            text = f"row {shown(index)} is out of range: the data set has {counted(len(self), 'row')}"
            raise IndexOutOfRange(text) from None
        except TypeError:
            raise InvalidType(f"rows are selected by int, slice or a sequence of ints, found {shown(index)}") from None
        found = row_of(self._rows.get(range(row, row + 1)), 0)
        return found if self.transform is None else self.transform(found)

    def _positions(self, index: Any) -> Any:
        positions, valid = checked_positions(index)
        if valid is not None and not valid.all():
            raise InvalidType("the row counts contain a null")
        if len(positions) and not 0 <= int(positions.min()) <= int(positions.max()) < len(self):
            row = next(int(row) for row in (positions.min(), positions.max()) if not 0 <= row < len(self))
            raise IndexOutOfRange(f"row {row} is out of range: the data set has {counted(len(self), 'row')}")
        return positions

    def _batch(self, rows: Any) -> Any:
        made = self._rows.get(rows)
        return made if self.transform is None else self.transform(made)

    def __getitems__(self, indices: Sequence[int]) -> GatheredRows:
        """Gather several rows for a DataLoader."""
        default = _collates_by_default(sys._getframe(1))
        return GatheredRows(self._rows.get(self._positions(indices)), len(indices), self.transform, default)

    def __repr__(self) -> str:
        return f"<BatchDataset of {len(self)} rows: {printable(', '.join(self.table.column_names[:20]))}>"


class GatheredRows(Sequence[Any]):
    """The result of ``__getitems__``: gathered rows, also accessible one by one for other collate functions."""

    def __init__(self, batch: Batch, length: int, transform: Transform | None, by_default: bool) -> None:
        self._gathered = batch
        self._length = length
        self._transform = transform
        self._by_default = by_default

    @property
    def batch(self) -> Any:
        """All rows as one batch, transformed."""
        return self._gathered if self._transform is None else self._transform(self._gathered)

    def __len__(self) -> int:
        return self._length

    @overload
    def __getitem__(self, index: SupportsIndex) -> Any: ...

    @overload
    def __getitem__(self, index: slice) -> Sequence[Any]: ...

    def __getitem__(self, index: Any) -> Any:
        numbers = range(self._length)[index]
        if isinstance(numbers, range):
            return [self[i] for i in numbers]
        row = Row(row_of(self._gathered, numbers))
        return row if self._by_default or self._transform is None else self._transform(row)


class Row(dict[str, Any]):
    """One of gathered rows, by which torch's default collation knows that they are a batch already."""


def collate(rows: Any) -> Any:
    """Return gathered rows as one dict of tensors, transformed as a batch.

    The ``collate_fn`` where another data set stands between a DataLoader and a :class:`BatchDataset` with a
    ``transform``, such as ``torch.utils.data.Subset``; elsewhere torch's default does the same.
    """
    return rows.batch if isinstance(rows, GatheredRows) else torch.utils.data.default_collate(rows)


default_collate_fn_map[Row] = lambda rows, collate_fn_map: rows.batch


def _collates_by_default(frame: Any) -> bool:
    """Whether the caller is a DataLoader that makes batches by torch's own function."""
    fetcher = frame.f_locals.get("self")
    own = getattr(fetcher, "collate_fn", None) is torch.utils.data.default_collate
    return own and bool(getattr(fetcher, "auto_collation", False))


class IterableBatchDataset(IterableDataset[Any]):  # type: ignore[misc]
    """An iterable dataset over the batches of mapped files, stores or tables, divided among ranks and workers.

    An epoch is one sequence of batches, determined by the seed and the epoch. Its batches are assigned to the ranks
    round-robin, and those of a rank to its workers round-robin: each row occurs once per epoch over all ranks and
    workers, and a DataLoader yields the same batches in the same order for any number of workers.

    Parameters
    ----------
    source, columns, transform, names, lists, padding, decode
        As for :class:`BatchDataset`.
    batch_size : int
        Rows per batch. Pass ``batch_size=None`` to the DataLoader.
    shuffle : bool
        Shuffle the rows, differently in each epoch.
    seed : int
        Determines the order, together with the epoch.
    block_rows : int
        For shuffling: number of consecutive rows per block; the blocks are put in random order.
    mixed_blocks : int
        For shuffling: number of blocks whose rows are mixed. ``block_rows=1`` is a full shuffle.
    drop_last : bool
        Drop the last batch if it is not full, and batches that not every rank would get, so that all ranks have the
        same number of full batches. Otherwise no row is dropped, and ranks may differ by one batch.
    rank, world_size : int, optional
        Rank of this process and number of processes; by default those of ``torch.distributed`` if it is initialized
        when the dataset is created, otherwise 0 and 1.

    Raises
    ------
    InvalidArgument
        If a number is out of range, or only one of rank and world size is given. Other errors as for
        :class:`BatchDataset`.

    Examples
    --------
    >>> import shmarrow as sa
    >>> table = sa.table({"x": np.arange(10), "word": list("abcdefghij")})
    >>> for batch in IterableBatchDataset(table, batch_size=4):
    ...     print(batch["x"].tolist(), "".join(batch["word"]))
    [0, 1, 2, 3] abcd
    [4, 5, 6, 7] efgh
    [8, 9] ij
    """

    def __init__(
        self,
        source: Any,
        batch_size: int,
        *,
        columns: Iterable[Column] | None = None,
        transform: Transform | None = None,
        names: str | Iterable[str] | None = None,
        lists: str = "values",
        padding: float = 0,
        decode: Mapping[str, Decode] | None = None,
        shuffle: bool = False,
        seed: int = 0,
        block_rows: int = 1024,
        mixed_blocks: int = 64,
        drop_last: bool = False,
        rank: int | None = None,
        world_size: int | None = None,
    ) -> None:
        self.table = table_of(source, names, columns)
        self.transform = transform
        self._rows = TableRows(self.table, row_options(lists, padding, decode))
        self.plan = Plan(
            num_rows=self.table.num_rows,
            batch_size=checked_count(batch_size, "batch_size", 1),
            shuffle=bool(shuffle),
            block_rows=checked_count(block_rows, "block_rows", 1),
            mixed_blocks=checked_count(mixed_blocks, "mixed_blocks", 1),
            seed=checked_count(seed, "seed", 0),
            drop_last=bool(drop_last),
        )
        self.rank, self.world_size = _ranks(rank, world_size)
        # Shared memory, as persistent workers keep their copy of the dataset from the first epoch: the epoch, which
        # iteration uses the epoch that was set last, and which the state that was loaded last.
        self._epoch, self._used, self._resumed = torch.tensor([0, _MAIN, _NOBODY]).share_memory_()
        self._place = Position(self.epoch, 0, 0, *_worker())
        self._resumes = False

    def loader(self, **options: Any) -> Any:
        """Return a DataLoader of these batches; ``options`` such as ``num_workers`` are passed on."""
        return torch.utils.data.DataLoader(self, batch_size=None, **options)

    @property
    def epoch(self) -> int:
        """Number of the next epoch."""
        return int(self._epoch)

    def set_epoch(self, epoch: int) -> None:
        """Set the epoch, which determines the shuffling.

        Call it on all ranks before each epoch, with increasing numbers.

        Also takes effect in persistent workers.
        """
        self._epoch.fill_(checked_count(epoch, "epoch", 0))
        self._used.fill_(_NOBODY)

    def state_dict(self) -> dict[str, Any]:
        """Return where the iteration is, in this process; for :meth:`load_state_dict`.

        At the end of an epoch, that is the start of one: of the same, or of that which ``set_epoch`` sets.
        ``StatefulDataLoader`` of the package torchdata calls both, in its workers.
        """
        place = self._place if self._place.epoch == self.epoch else Position(self.epoch, 0, 0, *_worker())
        return {**place._asdict(), **self._order()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue where another data set was when it returned this state: the next iteration begins there.

        So do the workers of that iteration. If a later epoch is set for it, it begins at the start of that one.

        Raises
        ------
        InvalidArgument
            If that one had other rows or another order, or is of another rank or worker.

        Notes
        -----
        Where the same data set had later epochs in persistent workers, ``set_epoch`` leads back, too.
        """
        order = {**self._order(), **dict(zip(("worker", "workers"), _worker(), strict=True))}
        differs = next((name for name in order if state.get(name) != order[name]), None)
        if differs is not None:
            text = f"the state is of a data set with {differs} {shown(state.get(differs))}, expected {order[differs]}"
            raise InvalidArgument(text)
        epoch, earlier, batches = [checked_count(state.get(name), name, 0) for name in ("epoch", "earlier", "batches")]
        self._place = Position(epoch, earlier, batches, *_worker())
        self._resumes = True
        self._resumed.fill_(_NOBODY)
        # StatefulDataLoader loads a state when it is iterated, and the next epoch may have been set before.
        waiting = {_NOBODY} if get_worker_info() is None else {_NOBODY, _iteration()}
        if int(self._used) not in waiting or self.epoch < epoch:
            self._epoch.fill_(epoch)

    def _order(self) -> dict[str, Any]:
        return {**self.plan._asdict(), "rank": self.rank, "world_size": self.world_size}

    def __len__(self) -> int:
        """Return the number of batches of this rank."""
        return len(range(self.rank, self.plan.num_batches(self.world_size), self.world_size))

    def __iter__(self) -> Iterator[Any]:
        if _collates_by_default(sys._getframe(1)):
            hint = "pass batch_size=None to the DataLoader, or call data.loader(num_workers=...)"
            raise InvalidArgument("a DataLoader would make batches of this data set's batches", hint=hint)
        worker, workers = _worker()
        iteration = _iteration()
        if int(self._used) == _NOBODY:
            self._used.fill_(iteration)
        place, self._place = self._place, Position(self.epoch, 0, 0, worker, workers)
        if self._resumes and int(self._resumed) in (_NOBODY, iteration):
            self._resumed.fill_(iteration)
            if place.epoch == self.epoch:
                is_own = (place.worker, place.workers) == (worker, workers)
                self._place = place if is_own else self._place._replace(earlier=place.earlier + place.batches)
        self._resumes = False
        return self._batches(self._place)

    def _batches(self, place: Position) -> Iterator[Any]:
        """The batches of an epoch from a place on."""
        step = self.world_size * place.workers
        order = self.plan.epoch(place.epoch)
        first = self.rank + (place.earlier + place.worker) * self.world_size
        numbers = range(first, self.plan.num_batches(self.world_size), step)
        for done, number in enumerate(numbers[place.batches :], place.batches + 1):
            self._place = place._replace(batches=done)
            batch = self._rows.get(order.batch(number))
            yield batch if self.transform is None else self.transform(batch)
        if get_worker_info() is None:  # a worker may be done before the others
            self._place = place._replace(earlier=0, batches=0)

    def __repr__(self) -> str:
        return (
            f"<IterableBatchDataset of {self.plan.num_rows} rows in batches of {self.plan.batch_size}, "
            f"rank {self.rank} of {self.world_size}>"
        )


class Position(NamedTuple):
    """Where an iteration is.

    Attributes
    ----------
    epoch : int
        Its epoch.
    earlier : int
        How many of its batches were done before the others were divided among workers.
    batches : int
        How many more of its batches this worker has done.
    worker, workers : int
        The number of this worker and of all.
    """

    epoch: int
    earlier: int
    batches: int
    worker: int
    workers: int


_NOBODY, _MAIN = -1, -2
"""Which iteration used something: none yet, or those of the main process."""


def _iteration() -> int:
    """A number that all workers of one iteration of a DataLoader have, and no others."""
    info = get_worker_info()
    return _MAIN if info is None else info.seed - info.id


def _worker() -> tuple[int, int]:
    """Number of this worker and of all; 0 and 1 in the main process."""
    info = get_worker_info()
    return (0, 1) if info is None else (info.id, info.num_workers)


def _ranks(rank: int | None, world_size: int | None) -> tuple[int, int]:
    if (rank is None) != (world_size is None):
        raise InvalidArgument(f"rank and world_size go together, found {rank} and {world_size}")
    if rank is None or world_size is None:
        group = torch.distributed
        started = group.is_available() and group.is_initialized()
        return (group.get_rank(), group.get_world_size()) if started else (0, 1)
    world_size = checked_count(world_size, "world_size", 1)
    rank = checked_count(rank, "rank", 0)
    if rank >= world_size:
        raise InvalidArgument(f"rank {rank} of {world_size}: ranks are counted from 0")
    return rank, world_size
