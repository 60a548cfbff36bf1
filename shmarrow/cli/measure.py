"""The columns of a file or a stream, measured for ``shmarrow inspect``: rows, nulls, bytes, alignment.

Invariants:

* everything comes from the metadata of batches, read with :class:`shmarrow.xray.Overview`; of compressed buffers the
  first 8 bytes are read too, which tell the size that they decompress to;
* all batches are read where that is cheap; otherwise a sample, evenly spaced, whose sums are scaled up;
* a batch that breaks the format is left out and counted; ``shmarrow validate`` tells what is wrong with it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from shmarrow.errors import ShmarrowError
from shmarrow.ipc.file.footer import ROW_COUNTS

if TYPE_CHECKING:
    import numpy.typing as npt

    from shmarrow.xray import Overview

    Numbers = npt.NDArray[np.int64]

_PAIRS = 1 << 21
"""Nodes and buffers that are read without asking for ``--exact``."""
_BATCHES = 20_000
"""Batches whose columns are read without asking for ``--exact``."""
_COUNTED = 100_000
"""Batches whose rows are counted without asking for it."""
_LISTED = 1 << 12
"""Batches that are read one by one, where their numbers of buffers differ."""
_PREFIXES = 1 << 11
"""Compressed buffers whose size is looked up, in objects larger than :data:`_SMALL`."""
_SMALL = 1 << 26
_SAMPLE = 128
ALIGNED = 64


class Measured(NamedTuple):
    """Totals of the batches that were read.

    Attributes
    ----------
    batches, read, broken : int
        How many batches there are, how many of them were read, and how many more could not be.
    lengths, nulls : list of int
        For each field node.
    stored, plain, used : list of int
        For each buffer: bytes as stored, bytes when decompressed, and how many of them are not empty.
    alignment : list of int
        For each buffer the largest power of two up to 64 that the offsets of all are multiples of.
    """

    batches: int
    read: int
    broken: int
    lengths: list[int]
    nulls: list[int]
    stored: list[int]
    plain: list[int]
    used: list[int]
    alignment: list[int]

    @property
    def exact(self) -> bool:
        """Whether all batches were read."""
        return self.read + self.broken == self.batches

    def scaled(self, number: int) -> int:
        """A sum over the batches that were read, for all of them."""
        return number if self.exact or not self.read else round(number * (self.batches / self.read))


def measure(found: Overview, exact: bool = False) -> Measured:
    """Read the metadata of batches: all, or a sample of them.

    Parameters
    ----------
    found : Overview
        The object.
    exact : bool
        Read all, whatever it takes.
    """
    count = len(found.blocks)
    chosen = _chosen(found, exact)
    roles, nodes = len(found.buffer_roles), len(found.nodes)
    sums = np.zeros((3, roles), object)  # Python ints: hostile lengths add up to more than 64 bits
    totals = np.zeros((2, nodes), object)
    offsets = np.zeros(roles, np.int64)
    read = broken = 0
    for node_rows, buffers, owners in _read(found, chosen):
        if node_rows is None:
            broken += 1
            continue
        read += len(node_rows)
        totals += (
            node_rows.clip(0, None).sum(axis=0, dtype=float).T.astype(object)
            if _wild(node_rows)
            else node_rows.sum(axis=0).T
        )
        starts, lengths = buffers[..., 0], buffers[..., 1].clip(0, found.size)
        used = lengths > 0
        each = (lengths, _decompressed(found, starts, lengths, used), used)
        for row, values in enumerate(each):
            sums[row] += _by_role(values, owners, roles)
        bits = np.where(used, starts, 0)
        np.bitwise_or.at(offsets, owners, np.bitwise_or.reduce(bits, axis=0))
    low = (offsets | ALIGNED) & -(offsets | ALIGNED)
    return Measured(
        count, read, broken, _ints(totals[0]), _ints(totals[1]), _ints(sums[0]), _ints(sums[1]), _ints(sums[2]),
        low.tolist(),
    )  # fmt: skip


def _ints(row: Any) -> list[int]:
    return [int(each) for each in row]


def _wild(nodes: Numbers) -> bool:
    return bool(len(nodes)) and bool(nodes.size) and int(np.abs(nodes).max()) > 1 << 40


def _by_role(values: Any, owners: Numbers, roles: int) -> Any:
    """Sums of shape (roles,) of values of shape (batches, buffers)."""
    made = np.zeros(roles, np.int64)
    np.add.at(made, owners, values.sum(axis=0, dtype=np.int64))
    return made.astype(object)


def _chosen(found: Overview, exact: bool) -> Sequence[int]:
    """The batches to read."""
    count, roles = len(found.blocks), max(len(found.buffer_roles), 1)
    most = min(_PAIRS // (roles + len(found.nodes)), _BATCHES) if found.regular else _LISTED
    if found.compression and found.size > _SMALL:
        most = min(most, _PREFIXES // roles)
    if exact or count <= max(most, 1):
        return range(count)
    return np.unique(np.linspace(0, count - 1, max(1, min(most, _SAMPLE))).astype(int)).tolist()  # type: ignore[no-any-return]


def _read(found: Overview, chosen: Sequence[int]) -> Iterator[tuple[Any, Any, Any]]:
    """Nodes, buffers and their roles of some batches at a time; None for a batch that cannot be read."""
    roles = len(found.buffer_roles)
    if found.regular:
        owners = np.arange(roles)
        step = max(1, (1 << 18) // max(roles, 1)) if isinstance(chosen, range) else 1
        for first in range(0, len(chosen), step):
            start = chosen[first]
            stop = chosen[min(first + step, len(chosen)) - 1] + 1
            try:
                yield found.field_nodes(start, stop), found.buffers(start, stop), owners
            except ShmarrowError:
                yield from (one for number in range(start, stop) for one in _one(found, number))
        return
    for number in chosen:
        yield from _one(found, number)


def _one(found: Overview, number: int) -> Iterator[tuple[Any, Any, Any]]:
    try:
        batch = found.batch(number)
        counts = iter(batch.variadic)
        repeats = [next(counts, 0) if role.variadic else 1 for role in found.buffer_roles]
        owners = np.repeat(np.arange(len(repeats)), np.array(repeats, np.int64).clip(0, len(batch.buffers)))
        if len(owners) != len(batch.buffers) or len(batch.nodes) != len(found.nodes):
            yield None, None, None
            return
        buffers = np.array(batch.buffers, np.int64).reshape(1, -1, 2)
        buffers[..., 0] += batch.body
        yield np.array(batch.nodes, np.int64).reshape(1, -1, 2), buffers, owners
    except ShmarrowError:
        yield None, None, None


def _decompressed(found: Overview, starts: Numbers, lengths: Numbers, used: Any) -> Numbers:
    """The sizes of buffers when decompressed; as stored where they are not compressed."""
    if not found.compression:
        return lengths
    made = lengths.copy()
    where = np.nonzero(used & (lengths >= 8) & (starts >= 0) & (starts <= found.size - 8))
    at = starts[where]
    sizes = found.data[at[:, None] + np.arange(8)].view("<i8")[:, 0]
    made[where] = np.where(sizes < 0, lengths[where] - 8, sizes).clip(0, 1 << 40)
    return made


def row_total(found: Overview, measured: Measured, exact: bool = False) -> tuple[int, bool]:
    """The number of rows, and whether it is exact: from the footer, from the columns' lengths, or from the batches."""
    count = len(found.blocks)
    if ROW_COUNTS not in (found.metadata or {}) and measured.exact and not measured.broken and measured.lengths:
        return measured.lengths[0], True
    if ROW_COUNTS in (found.metadata or {}) or exact or count <= _COUNTED:
        with suppress(ShmarrowError):
            return int(found.rows().sum()), True
    lengths = measured.lengths[:1] or [0]
    return measured.scaled(lengths[0]), not count
