"""Between processes: a batch as an argument of a pool."""

from __future__ import annotations

import multiprocessing
import os
from typing import Any

import numpy as np
from harness.bench import Bench, Operation, timed
from harness.figures import faster

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


PARTS = {"pool": pool_rows}
