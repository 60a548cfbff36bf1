# SPDX-License-Identifier: Apache-2.0
"""Datasets for ``torch.utils.data.DataLoader`` over mapped files, stores and tables, shared by all workers.

:class:`BatchDataset` is map-style, for samplers; :class:`IterableBatchDataset` yields whole batches, in order or
shuffled, divided among ranks and workers. Both are pickled to worker processes as handles, so the data are in memory
once, for any size and start method.
"""

from __future__ import annotations

from shmarrow.torch.datasets import BatchDataset, IterableBatchDataset, collate
from shmarrow.torch.rows import Lists

__all__ = ["BatchDataset", "IterableBatchDataset", "Lists", "collate"]
