"""Data sets for ``torch.utils.data.DataLoader`` over mapped files, stores and tables, shared by all of its workers.

:class:`BatchDataset` is map-style, for samplers; :class:`IterableBatchDataset` yields whole batches, in order or
shuffled, and divides them between ranks and workers. Both travel to worker processes as handles: whatever the size of
the data, and whatever the start method, they are in memory once.
"""

from __future__ import annotations

from shmarrow.torch.datasets import BatchDataset, IterableBatchDataset, collate

__all__ = ["BatchDataset", "IterableBatchDataset", "collate"]
