"""Between processes: batches as arguments of a pool, and the memory of torch's DataLoader workers."""

from __future__ import annotations

import multiprocessing
import os
from typing import Any

import numpy as np
from harness.bench import Bench, Operation, timed
from harness.figures import faster
from harness.memory import fresh

import shmarrow as sa

MIB = 1 << 20


def last_value(batch: Any) -> float:
    """The work of a worker: it looks at both ends of a column of a batch."""
    values = batch.column(0).to_numpy()
    return float(values[0] + values[-1])


def pool_rows(bench: Bench) -> None:
    size = (64 if bench.quick else 1024) * MIB
    path = bench.scratch / "argument.arrow"
    columns = {f"c{i}": np.arange(size // 64, dtype=np.float64) for i in range(8)}
    ours = sa.record_batch(columns)
    with sa.ipc.new_file(path, ours.schema) as writer:
        writer.write(ours)
    mapped = sa.ipc.open_file(path).get_batch(0)
    context = multiprocessing.get_context("fork")
    with context.Pool(1) as pool, context.Pool(1) as peer:

        def settled(operation: Operation, given: Any) -> float:
            """Seconds that a task takes; then wait, as a worker frees what it got after it has answered."""
            seconds = timed(operation, given)
            for each in (pool, peer):
                each.apply(os.getpid)
            return seconds

        bench.row(
            f"a batch of {size // MIB} MiB as an argument of a Pool",
            {
                "shmarrow": lambda _: pool.apply(last_value, (mapped,)),
                "pickled": lambda _: peer.apply(last_value, (ours,)),
            },
            faster(1000),
            1,
            time=settled,
        )


WORKERS = """
import os, sys
import numpy as np
import torch
from torch.utils.data import DataLoader
import shmarrow as sa
from shmarrow.torch import IterableBatchDataset

def read(batch):
    return int(batch["x"].sum()), os.getpid()

def pss(pids):
    lines = [line for pid in pids for line in open(f"/proc/{pid}/smaps_rollup")]
    return 1024 * sum(int(line.split()[1]) for line in lines if line.startswith("Pss:"))

if __name__ == "__main__":
    data = IterableBatchDataset(sys.argv[1], 1 << 16, transform=read, shuffle=True, block_rows=1 << 14)
    loader = DataLoader(data, batch_size=None, num_workers=4, persistent_workers=True)
    for epoch in range(2):  # each worker reads rows all over the table
        data.set_epoch(epoch)
        pids = {pid for _, pid in loader}
    print(pss(pids | {os.getpid()}))
"""


def worker_rows(bench: Bench) -> None:
    """The memory of a process and four workers that read a table, less that of the same processes over a tiny one."""
    size = (64 if bench.quick else 1024) * MIB
    totals = []
    for name, rows in (("tiny", 1 << 18), ("large", size // 8)):
        path = bench.scratch / f"{name}.arrow"
        with sa.ipc.new_file(path, sa.schema({"x": sa.int64()})) as writer:
            for first in range(0, rows, 1 << 18):
                writer.write(sa.record_batch({"x": np.arange(first, min(first + (1 << 18), rows))}))
        totals.append(fresh(WORKERS, path)[0])
    ours = totals[1] - totals[0]
    what = f"4 DataLoader workers over {size // MIB} MiB: PSS of all processes, above that over a tiny table"
    bench.limit(what, [ours], 1.05 * size, "bytes")


PARTS = {"pool": pool_rows, "workers": worker_rows}
