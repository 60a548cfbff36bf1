"""Features that Spark computes, and a torch training loop on the same host that reads them in place.

``share`` leaves the features in shared memory, put there by Spark's Python workers. The training process maps them, and
so do its DataLoader workers, and other trainers: there is one copy for all of them, and nothing goes through the driver
or a file. ``train_with_distributor`` runs the same loop in several processes with Spark's TorchDistributor.

Run it with ``python examples/training.py``; it needs ``pip install 'shmarrow[spark,torch]'`` and Java 17.
"""

from __future__ import annotations

from typing import Any

import torch
from local_session import local_session
from torch.utils.data import DataLoader

from shmarrow.spark import SharedFrame, share
from shmarrow.torch import IterableBatchDataset

FEATURES = ("distance", "hour", "weekend")


def features(spark: Any, rows: int) -> Any:
    """Rides with three features and a fare, as any Spark query may give them."""
    rides = spark.range(rows).selectExpr(
        "float(pmod(hash(id, 1), 1000) / 1000) AS distance",
        "float(pmod(hash(id, 2), 24) / 24) AS hour",
        "float(pmod(hash(id, 3), 7) >= 5) AS weekend",
    )
    return rides.selectExpr("*", "float(3 + 2 * distance - hour + 1.5 * weekend) AS fare")


def train(frame: SharedFrame, epochs: int = 8, workers: int = 0) -> list[float]:
    """Fit a linear model; the weights of the features, and the constant.

    Parameters
    ----------
    frame : SharedFrame
        The features. In a process group of ``torch.distributed`` each rank takes its part of the batches.
    epochs : int
        How often each row is used.
    workers : int
        Processes that prepare batches.
    """
    distributed = torch.distributed.is_initialized()
    data = IterableBatchDataset(frame, batch_size=200, shuffle=True, drop_last=True)
    model: Any = torch.nn.Linear(len(FEATURES), 1)
    torch.nn.init.zeros_(model.weight)
    torch.nn.init.zeros_(model.bias)
    if distributed:
        model = torch.nn.parallel.DistributedDataParallel(model)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.1)
    for epoch in range(epochs):
        data.set_epoch(epoch)
        for batch in DataLoader(data, batch_size=None, num_workers=workers):
            given = torch.stack([batch[name] for name in FEATURES], dim=1)
            loss = torch.nn.functional.mse_loss(model(given)[:, 0], batch["fare"])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    linear = model.module if distributed else model
    return [*linear.weight[0].tolist(), linear.bias.item()]


def train_with_distributor(frame: SharedFrame, processes: int = 2, epochs: int = 8) -> list[float]:
    """The same in several processes on the driver's host, that share gradients; what the first of them found."""
    from pyspark.ml.torch.distributor import TorchDistributor

    distributor = TorchDistributor(num_processes=processes, local_mode=True, use_gpu=False)
    found: list[float] = distributor.run(_train_as_rank, frame, epochs)
    return found


def _train_as_rank(frame: SharedFrame, epochs: int) -> list[float]:
    torch.distributed.init_process_group("gloo")
    try:
        return train(frame, epochs)
    finally:
        torch.distributed.destroy_process_group()


def main() -> None:
    """Train with rides that are made up, after Spark has stopped."""
    spark = local_session(workers=2)
    with share(features(spark, 200_000)) as frame:
        spark.stop()  # the features stay
        print("2 × distance - hour + 1.5 × weekend + 3:", [round(weight, 2) for weight in train(frame, workers=2)])


if __name__ == "__main__":
    main()
