"""The columns of a file or a stream, measured for ``shmarrow inspect``: rows, nulls, bytes, alignment.

Invariants:

* everything comes from the metadata of batches, read with :class:`shmarrow.xray.Overview`; of compressed buffers the
  first 8 bytes are read too, which tell the size that they decompress to;
* all batches are read where that is cheap; otherwise a sample, evenly spaced, whose sums are scaled up;
* a batch that breaks the format is left out and counted; ``shmarrow validate`` tells what is wrong with it.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from shmarrow.errors import ShmarrowError
from shmarrow.ipc.file.footer import ROW_COUNTS

if TYPE_CHECKING:
    import numpy.typing as npt

    from shmarrow.xray import Overview
    from shmarrow.xray.messages import Batch

    Numbers = npt.NDArray[np.int64]

_PAIRS = 1 << 21
"""Nodes and buffers that are read without asking for ``--exact``."""
_BATCHES = 20_000
"""Batches whose columns are read without asking for ``--exact``."""
_COUNTED = 100_000
"""Batches whose rows are counted without asking for it."""
_PREFIXES = 1 << 11
"""Compressed buffers whose size is looked up, in objects larger than :data:`_SMALL`."""
_SMALL = 1 << 26
_SAMPLE = 128
ALIGNED = 64


class Measured(NamedTuple):
    """Totals of all batches; of a sample, scaled up.

    Attributes
    ----------
    batches, read, broken : int
        How many batches there are, how many of them were read, and how many more could not be.
    lengths, nulls : list of int
        For each field node.
    stored, plain : list of int
        For each buffer: bytes as stored, and bytes when decompressed.
    used : list of bool
        For each buffer whether it ever has bytes.
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
    used: list[bool]
    alignment: list[int]

    @property
    def exact(self) -> bool:
        """Whether all batches were read."""
        return self.read + self.broken == self.batches


def measure(found: Overview, exact: bool = False) -> Measured:
    """Read the metadata of batches: all, or a sample of them.

    Parameters
    ----------
    found : Overview
        The object.
    exact : bool
        Read all, whatever it takes.
    """
    count, roles = len(found.blocks), len(found.buffer_roles)
    sums = np.zeros((3, roles), object)  # Python ints: hostile lengths add up to more than 64 bits
    totals = np.zeros((found.num_nodes, 2), object)
    offsets = np.zeros(roles, np.int64)
    read = broken = 0
    for number in _chosen(found, exact):
        try:
            batch = found.batch(number)
        except ShmarrowError:
            broken += 1
            continue
        owners = _owners(found, batch)
        if len(owners) != len(batch.buffers) or len(batch.nodes) != found.num_nodes:
            broken += 1
            continue
        read += 1
        totals += batch.nodes.clip(0, None).astype(object)
        starts, lengths = batch.buffers[:, 0] + batch.body, batch.buffers[:, 1].clip(0, found.size)
        used = lengths > 0
        for row, values in enumerate((lengths, _decompressed(found, starts, lengths, used), used)):
            made = np.zeros(roles, np.int64)
            np.add.at(made, owners, values)
            sums[row] += made.astype(object)
        np.bitwise_or.at(offsets, owners, np.where(used, starts, 0))
    low = (offsets | ALIGNED) & -(offsets | ALIGNED)
    share = 1 if read + broken == count or not read else count / read
    lengths, nulls, stored, plain = [[round(each * share) for each in row] for row in (*totals.T, *sums[:2])]
    return Measured(count, read, broken, lengths, nulls, stored, plain, sums[2].astype(bool).tolist(), low.tolist())


def _chosen(found: Overview, exact: bool) -> Sequence[int]:
    """The batches to read."""
    count, roles = len(found.blocks), max(len(found.buffer_roles), 1)
    most = min(_PAIRS // (roles + found.num_nodes), _BATCHES)
    if found.compression and found.size > _SMALL:
        most = min(most, _PREFIXES // roles)
    if exact or count <= max(most, 1):
        return range(count)
    return np.unique(np.linspace(0, count - 1, max(1, min(most, _SAMPLE))).astype(int)).tolist()


def _owners(found: Overview, batch: Batch) -> Numbers:
    """The number of the role of each buffer."""
    counts = iter(batch.variadic)
    return np.repeat(
        np.arange(len(found.buffer_roles)), [next(counts, 0) if role.variadic else 1 for role in found.buffer_roles]
    )


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
    return (measured.lengths[0] if measured.lengths else 0), not count
