"""The columns of a file or a stream, measured for ``shmarrow inspect``: rows, nulls, bytes, alignment.

Invariants:

* everything comes from the metadata of batches, read with :class:`shmarrow.xray.Overview`; of compressed buffers the
  first 8 bytes are read too, which tell the size that they decompress to;
* a batch that breaks the format is left out and counted; ``shmarrow validate`` tells what is wrong with it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from shmarrow.errors import ShmarrowError

if TYPE_CHECKING:
    import numpy.typing as npt

    from shmarrow.xray import Overview
    from shmarrow.xray.messages import Batch

    Numbers = npt.NDArray[np.int64]

ALIGNED = 64


class Measured(NamedTuple):
    """Totals of all batches that can be read.

    Attributes
    ----------
    rows : int
        Their rows.
    broken : int
        How many batches cannot be read.
    lengths, nulls : list of int
        For each field node.
    stored, plain : list of int
        For each buffer: bytes as stored, and bytes when decompressed.
    used : list of bool
        For each buffer whether it ever has bytes.
    alignment : list of int
        For each buffer the largest power of two up to 64 that the offsets of all are multiples of.
    """

    rows: int
    broken: int
    lengths: list[int]
    nulls: list[int]
    stored: list[int]
    plain: list[int]
    used: list[bool]
    alignment: list[int]


def measure(found: Overview, progress: Callable[[int], None]) -> Measured:
    """Read the metadata of all batches; ``progress`` is told their number."""
    roles = len(found.buffer_roles)
    sums = np.zeros((3, roles), object)  # Python ints: hostile lengths add up to more than 64 bits
    totals = np.zeros((found.num_nodes, 2), object)
    offsets = np.zeros(roles, np.int64)
    rows = broken = 0
    for number in range(len(found.blocks)):
        progress(number)
        try:
            batch = found.batch(number)
        except ShmarrowError:
            broken += 1
            continue
        owners = _owners(found, batch)
        if len(owners) != len(batch.buffers) or len(batch.nodes) != found.num_nodes:
            broken += 1
            continue
        rows += max(batch.rows, 0)
        totals += batch.nodes.clip(0, None).astype(object)
        starts, lengths = batch.buffers[:, 0] + batch.body, batch.buffers[:, 1].clip(0, found.size)
        used = lengths > 0
        for row, values in enumerate((lengths, _decompressed(found, starts, lengths, used), used)):
            made = np.zeros(roles, np.int64)
            np.add.at(made, owners, values)
            sums[row] += made.astype(object)
        np.bitwise_or.at(offsets, owners, np.where(used, starts, 0))
    low = (offsets | ALIGNED) & -(offsets | ALIGNED)
    lengths, nulls, stored, plain = [row.tolist() for row in (*totals.T, *sums[:2])]
    return Measured(rows, broken, lengths, nulls, stored, plain, sums[2].astype(bool).tolist(), low.tolist())


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
