"""Epochs that go on: every state, in every number of workers, and with the epochs that are set meanwhile."""

from __future__ import annotations

import json
from itertools import pairwise
from typing import Any

import numpy as np
import pytest

import shmarrow as sa

torch = pytest.importorskip("torch")

from torch.utils.data import DataLoader, get_worker_info  # noqa: E402

from shmarrow.torch import BatchDataset, IterableBatchDataset, collate  # noqa: E402

pytestmark = pytest.mark.processes

ROWS, SIZE = 330, 32
WORKERS = [(0, False), (1, True), (2, False), (2, True)]
TABLE = sa.table({"x": np.arange(ROWS)})


def made(ranks: tuple[int, int] = (0, 1), shuffle: bool = True, **options: Any) -> IterableBatchDataset:
    rank, world_size = ranks
    options = {"seed": 5, "block_rows": 10, **options}
    return IterableBatchDataset(TABLE, SIZE, shuffle=shuffle, rank=rank, world_size=world_size, **options)


def rows(batches: Any) -> list[list[int]]:
    return [batch["x"].tolist() for batch in batches]


def epoch_of(number: int, **options: Any) -> list[list[int]]:
    data = made(**options)
    data.set_epoch(number)
    return rows(data)


def state_after(count: int | None, **options: Any) -> tuple[list[list[int]], Any]:
    """The first batches of epoch 2, all if None, and the state after them."""
    data = made(**options)
    data.set_epoch(2)
    batches = iter(data)
    begun = rows(batches) if count is None else rows(next(batches) for _ in range(count))
    return begun, json.loads(json.dumps(data.state_dict()))


@pytest.mark.parametrize(("workers", "persistent"), WORKERS)
@pytest.mark.parametrize("count", [1, 11, None])
def test_a_state_of_this_process_goes_on_in_any_workers(count: int | None, workers: int, persistent: bool) -> None:
    begun, state = state_after(count)
    whole = epoch_of(2)
    for changes in ([], [(1, 3)], [(0, 3)]):  # which epoch is set before which iteration
        data = made()
        data.load_state_dict(state)
        loader = data.loader(num_workers=workers, persistent_workers=persistent)
        for number in range(2):
            epochs = [epoch for at, epoch in changes if at <= number]
            if (number, *epochs[-1:]) in changes:
                data.set_epoch(epochs[-1])
            expected = epoch_of(epochs[-1]) if epochs else whole
            if number == 0 and not epochs and count is not None:
                expected = whole[len(begun) :]
            assert rows(loader) == expected


@pytest.mark.parametrize("ranks", [(0, 1), (1, 3)])
@pytest.mark.parametrize("shuffle", [False, True])
def test_a_state_goes_on_in_this_process(ranks: tuple[int, int], shuffle: bool) -> None:
    whole = epoch_of(2, ranks=ranks, shuffle=shuffle)
    for count in range(len(whole) + 1):
        begun, state = state_after(count, ranks=ranks, shuffle=shuffle)
        data = made(ranks, shuffle)
        data.load_state_dict(state)
        assert data.state_dict() == state
        assert begun + rows(data) == whole
        assert rows(data) == whole
    _, state = state_after(None, ranks=ranks, shuffle=shuffle)
    assert (state["epoch"], state["batches"]) == (2, 0)


@pytest.mark.parametrize(("workers", "persistent"), WORKERS[1:])
@pytest.mark.parametrize("count", [0, 5, 11])
def test_states_of_workers_go_on_in_as_many(count: int, workers: int, persistent: bool) -> None:
    """As torchdata's StatefulDataLoader has them: each worker loads its own before it iterates."""

    def with_state(batch: Any) -> tuple[Any, int, Any]:
        info: Any = get_worker_info()
        return batch["x"].tolist(), info.id, json.dumps(info.dataset.state_dict())

    data = made(transform=with_state)
    data.set_epoch(2)
    states = [{**data.state_dict(), "worker": i, "workers": workers} for i in range(workers)]
    begun = []
    for numbers, worker, state in list(data.loader(num_workers=workers))[:count]:
        begun.append(numbers)
        states[worker] = json.loads(state)

    def load(worker: int) -> None:
        info: Any = get_worker_info()
        info.dataset.load_state_dict(states[worker])

    whole = epoch_of(2)
    for epochs in ([None, None], [None, 3], [3, 4]):
        data = made()
        loader = data.loader(num_workers=workers, persistent_workers=persistent, worker_init_fn=load)
        for first, epoch in zip((True, False), epochs, strict=True):
            if epoch is not None:
                data.set_epoch(epoch)
            expected = whole if epoch is None else epoch_of(epoch)
            if first and epoch is None:
                assert sorted(begun + rows(loader)) == sorted(whole)
            elif persistent or epoch is not None:  # new workers load the state again
                assert rows(loader) == expected


def test_a_state_of_something_else_is_refused() -> None:
    state = made().state_dict()
    for other, text in (
        ({"batch_size": 16}, "with batch_size 16, expected 32"),
        ({"rank": 1}, "with rank 1, expected 0"),
        ({"worker": 1, "workers": 2}, "with worker 1, expected 0"),
        ({"epoch": -1}, "epoch must be at least 0"),
    ):
        with pytest.raises(sa.InvalidArgument, match=text):
            made().load_state_dict({**state, **other})
    with pytest.raises(sa.InvalidType, match="batches must be an int, found None"):
        made().load_state_dict({name: value for name, value in state.items() if name != "batches"})


# --- loaders ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("workers", [0, 2])
def test_a_loader_has_batches_as_they_are(workers: int) -> None:
    data = made(shuffle=False)
    assert rows(data.loader(num_workers=workers)) == rows(data)
    for loader in (DataLoader(data, batch_size=4, num_workers=workers), DataLoader(data, num_workers=workers)):
        with pytest.raises(sa.InvalidArgument, match=r"batches of this data set's batches.*batch_size=None.*loader\("):
            next(iter(loader))
    joined = DataLoader(data, 4, collate_fn=lambda batches: torch.cat([batch["x"] for batch in batches]))
    assert [len(numbers) for numbers in joined] == [4 * SIZE, 4 * SIZE, ROWS - 8 * SIZE]
    assert rows(DataLoader(data, None, num_workers=workers)) == rows(data)


@pytest.mark.parametrize("workers", [0, 2])
def test_a_loader_gathers_the_rows_of_a_batch_at_once(workers: int) -> None:
    table = sa.table(
        {"x": np.arange(100), "word": [str(i) for i in range(100)], "tags": [[i, None] for i in range(100)]}
    )
    data = BatchDataset(table)
    loaders = [
        data.loader(10, num_workers=workers),
        DataLoader(data, 10, num_workers=workers),
        DataLoader(data, 10, num_workers=workers, collate_fn=collate),
    ]
    for loader in loaders:
        for start, batch in enumerate(loader):
            assert batch["x"].tolist() == list(range(start * 10, start * 10 + 10))
            assert batch["word"][3] == f"{start * 10 + 3}"
            assert batch["tags"][3] == [start * 10 + 3, None]
    shuffled = [i for batch in data.loader(10, shuffle=True, num_workers=workers) for i in batch["x"].tolist()]
    assert sorted(shuffled) == list(range(100))
    assert any(one > other for one, other in pairwise(shuffled))
    changed = BatchDataset(table, transform=lambda some: some["x"] * 2)
    for loader in (changed.loader(10, num_workers=workers), DataLoader(changed, 10, num_workers=workers)):
        assert torch.cat(list(loader)).tolist() == list(range(0, 200, 2))
