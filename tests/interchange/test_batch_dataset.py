"""Data sets for torch's DataLoader: each row once, whatever the ranks and workers; the same order for the same seed.

Invariants: real DataLoaders with worker processes, by fork, as a new process would import torch first; expected
rows come from the numbers that were written.
"""

from __future__ import annotations

import multiprocessing
import os
import pickle
from functools import cache
from multiprocessing.reduction import ForkingPickler
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from environment import torch_or_skip

import shmarrow as sa
from shmarrow.memory import mappings

torch = torch_or_skip()
from torch.utils.data import BatchSampler, DataLoader, RandomSampler  # noqa: E402

from shmarrow.torch import BatchDataset, IterableBatchDataset, collate  # noqa: E402

ROWS, PART = 1000, 137
pytestmark = pytest.mark.filterwarnings("ignore:This DataLoader will create")


def part(start: int, stop: int) -> sa.RecordBatch:
    x = np.arange(start, stop)
    words = [f"w{i}" for i in x]
    pairs = sa.array([[i, -i] for i in x.tolist()], sa.list_(sa.float32(), 2))
    return sa.record_batch({"x": x, "half": x / 2, "even": x % 2 == 0, "word": words, "pair": pairs})


def write(at: Any, start: int = 0, stop: int = ROWS, make: Any = sa.ipc.new_file) -> str:
    with make(at, part(0, 1).schema) as writer:
        for first in range(start, stop, PART):
            writer.write(part(first, min(first + PART, stop)))
    return str(at)


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> str:
    return write(tmp_path_factory.mktemp("rows") / "rows.arrow")


def xs(batches: Any) -> list[int]:
    return [x for batch in batches for x in batch["x"].tolist()]


# --- map-style --------------------------------------------------------------------------------------------------


def test_rows_and_slices(path: str) -> None:
    data = BatchDataset(path)
    assert len(data) == ROWS
    row = data[7]
    assert {name: value.tolist() if hasattr(value, "tolist") else value for name, value in row.items()} == {
        "x": 7,
        "half": 3.5,
        "even": False,
        "word": "w7",
        "pair": [7, -7],
    }
    assert data[-1]["x"].item() == ROWS - 1
    for rows in (slice(130, 140), slice(None, None, 301), [900, 3, 500, 3], np.array([999, 0]), torch.tensor([5])):
        found = data[rows]
        expected = np.atleast_1d(np.arange(ROWS)[rows]).tolist()
        assert found["x"].tolist() == expected
        assert found["x"].dtype is torch.int64
        assert found["half"].tolist() == [x / 2 for x in expected]
        assert found["even"].dtype is torch.bool
        assert found["word"] == [f"w{x}" for x in expected]
        assert found["pair"].shape == (len(expected), 2)


def test_with_samplers(path: str) -> None:
    data = BatchDataset(path, columns=["x", "pair"], transform=lambda batch: {**batch, "twice": batch["x"] * 2})
    loaders = [
        DataLoader(data, batch_size=64, shuffle=True, collate_fn=collate, num_workers=2),
        DataLoader(data, batch_size=64, shuffle=True),
        DataLoader(data, batch_size=None, sampler=BatchSampler(RandomSampler(data), 64, drop_last=False)),
    ]
    for loader in loaders:
        batches = list(loader)
        assert [len(batch["x"]) for batch in batches] == [64] * 15 + [40]
        assert sorted(xs(batches)) == list(range(ROWS))
        assert xs(batches) != list(range(ROWS))
        for batch in batches:
            assert torch.equal(batch["twice"], batch["x"] * 2)
            assert torch.equal(batch["pair"][:, 1].long(), -batch["x"])
            assert set(batch) == {"x", "pair", "twice"}


# --- iterable ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("shuffle", [False, True])
@pytest.mark.parametrize("world", [1, 3])
def test_each_row_once_over_ranks(path: str, shuffle: bool, world: int) -> None:
    seen: list[int] = []
    for rank in range(world):
        data = IterableBatchDataset(path, 32, shuffle=shuffle, block_rows=10, rank=rank, world_size=world)
        batches = list(data)
        assert len(batches) == len(data)
        seen += xs(batches)
    assert sorted(seen) == list(range(ROWS))
    assert (seen == list(range(ROWS))) == (not shuffle and world == 1)


@pytest.mark.parametrize(("rows", "world"), [(ROWS, 1), (ROWS, 2), (ROWS, 7), (40, 40), (40, 43)])
def test_shares_of_ranks(path: str, rows: int, world: int) -> None:
    table = sa.ipc.open_file(path).read_all().slice(0, rows)
    shares = [BatchDataset(table, columns=["x"], rank=rank, world_size=world) for rank in range(world)]
    count = -(-rows // world)
    found = [share[:]["x"].tolist() for share in shares]
    assert {len(each) for each in found} == {count}
    assert all(each == list(range(each[0], each[0] + count)) for each in found)
    assert sorted({x for each in found for x in each}) == list(range(rows))
    assert [each[0] for each in found] == sorted(each[0] for each in found)
    if rows % world == 0:
        assert [x for each in found for x in each] == list(range(rows))


def test_a_share_is_a_view(path: str) -> None:
    share = BatchDataset(path, rank=1, world_size=2)
    assert len(ForkingPickler.dumps(share)) < 1000
    loader = DataLoader(share, batch_size=100, shuffle=True, num_workers=2, collate_fn=collate)
    assert sorted(xs(loader)) == list(range(ROWS // 2, ROWS))
    nothing = BatchDataset(sa.table({"x": np.arange(0)}), rank=1, world_size=2)
    assert len(nothing) == 0


@pytest.mark.parametrize(
    ("ranks", "message"),
    [
        ({"rank": 0}, "rank and world_size go together"),
        ({"world_size": 2}, "rank and world_size go together"),
        ({"rank": 2, "world_size": 2}, "rank 2 of 2: ranks are counted from 0"),
        ({"rank": 0, "world_size": 0}, "world_size must be at least 1"),
        ({"rank": -1, "world_size": 2}, "rank must be at least 0"),
    ],
)
def test_ranks_that_are_none(path: str, ranks: dict[str, int], message: str) -> None:
    for call in (lambda: BatchDataset(path, **ranks), lambda: IterableBatchDataset(path, 1, **ranks)):
        with pytest.raises(sa.InvalidArgument, match=message):
            call()


def test_workers_change_nothing(path: str) -> None:
    """The batches of a rank, and their order, are the same for any number of workers."""
    data = IterableBatchDataset(path, 30, shuffle=True, seed=5, block_rows=8, mixed_blocks=4, rank=1, world_size=2)
    data.set_epoch(3)
    expected = xs(data)
    assert len(set(expected)) == len(expected) == 490
    for workers in (1, 3):
        loader = DataLoader(data, batch_size=None, num_workers=workers)
        assert len(loader) == len(data)
        assert xs(loader) == expected


def test_epochs_and_seeds(path: str) -> None:
    orders = {}
    for seed in (1, 2):
        data = IterableBatchDataset(path, 100, shuffle=True, seed=seed, columns=["x"])
        for epoch in (0, 1):
            data.set_epoch(epoch)
            orders[seed, epoch] = xs(data)
            assert xs(data) == orders[seed, epoch]
    assert len({tuple(order) for order in orders.values()}) == 4
    again = IterableBatchDataset(path, 100, shuffle=True, seed=2, columns=["x"])
    loader = DataLoader(again, batch_size=None, num_workers=2, persistent_workers=True)
    for epoch in (0, 1):
        again.set_epoch(epoch)
        assert xs(loader) == orders[2, epoch]


def test_blocks_stay_together(path: str) -> None:
    """Without mixing, the rows of a block follow each other; with it they lie among those of some blocks."""
    order = xs(IterableBatchDataset(path, 1000, shuffle=True, block_rows=100, mixed_blocks=1))
    blocks = [sorted(order[i : i + 100]) for i in range(0, ROWS, 100)]
    assert sorted(blocks) == [list(range(i, i + 100)) for i in range(0, ROWS, 100)]
    assert blocks != sorted(blocks)
    assert all(order[i : i + 100] != blocks[i // 100] for i in range(0, ROWS, 100))


@pytest.mark.parametrize(("rows", "size", "world"), [(1000, 30, 4), (100, 100, 1), (99, 100, 1), (1000, 1000, 3)])
def test_drop_last(path: str, rows: int, size: int, world: int) -> None:
    """All ranks have the same number of full batches, and of the rest there is less than one for each."""
    table = sa.ipc.open_file(path).read_all().slice(0, rows)
    parts = [
        list(IterableBatchDataset(table, size, shuffle=True, drop_last=True, rank=rank, world_size=world))
        for rank in range(world)
    ]
    assert {len(batches) for batches in parts} == {rows // size // world}
    assert {len(batch["x"]) for batches in parts for batch in batches} <= {size}
    seen = [x for batches in parts for x in xs(batches)]
    assert len(set(seen)) == len(seen)
    assert rows - len(seen) < size * world


# --- sources ----------------------------------------------------------------------------------------------------


def test_sources(tmp_path: Path, shm_name: str) -> None:
    """Whatever ``sa.scan`` takes, which ``tests/scans`` shows; here those of each kind."""
    for number in range(3):
        write(tmp_path / f"part-{number}.arrow", number * 200, number * 200 + 200)
    pattern = str(tmp_path / "part-*.arrow")
    tables = [sa.ipc.open_file(tmp_path / f"part-{number}.arrow").read_all() for number in range(3)]
    sources: list[Any] = [
        pattern,
        tables,
        [batch for table in tables for batch in table.batches],
        [sa.handle(table) for table in tables],
        [pattern.replace("*", "[01]"), tables[2]],
    ]
    for source in sources:
        assert xs(IterableBatchDataset(source, 64)) == list(range(600))
        assert BatchDataset(source)[[599, 200]]["word"] == ["w599", "w200"]
    store = sa.Store(f"{shm_name}-store")
    for number, table in enumerate(tables):
        store.put(f"train-{number}", table)
    assert xs(IterableBatchDataset(store, 64, names="train-*")) == list(range(600))
    assert xs(IterableBatchDataset(store, 64, names=["train-2", "train-0"])) == [*range(400, 600), *range(200)]
    store.clear()


def test_wrong_arguments(path: str, tmp_path: Path) -> None:
    wrong: list[tuple[type[Exception], str, Any]] = [
        (sa.ObjectNotFound, "matches", lambda: BatchDataset(str(tmp_path / "*.arrow"))),
        (sa.ObjectNotFound, "nothing", lambda: BatchDataset(tmp_path / "nothing")),
        (sa.InvalidArgument, "empty", lambda: BatchDataset([])),
        (sa.InvalidType, "shmarrow.table", lambda: BatchDataset({"x": [1]})),
        (sa.InvalidType, "other columns", lambda: BatchDataset([path, sa.table({"x": [1]})])),
        (sa.FieldNotFound, "'z'", lambda: BatchDataset(path, columns=["z"])),
        (sa.InvalidArgument, "same name", lambda: BatchDataset(path, columns=["x", "x"])),
        (sa.InvalidArgument, "store", lambda: BatchDataset(path, names="x*")),
        (sa.InvalidArgument, "batch_size", lambda: IterableBatchDataset(path, 0)),
        (sa.InvalidType, "batch_size", lambda: IterableBatchDataset(path, 1.5)),
        (sa.InvalidArgument, "epoch", lambda: IterableBatchDataset(path, 1).set_epoch(-1)),
        (sa.IndexOutOfRange, "1000", lambda: BatchDataset(path)[ROWS]),
        (
            sa.IndexOutOfRange,
            "row 1000 is out of range: the data set has 1000 rows",
            lambda: BatchDataset(path)[[0, ROWS]],
        ),
        (sa.IndexOutOfRange, "row -1 is", lambda: BatchDataset(path)[[0, -1]]),
        (sa.InvalidType, "rows", lambda: BatchDataset(path)["x"]),
        (sa.InvalidType, "integers|positions", lambda: BatchDataset(path)[[0.5]]),
    ]
    for kind, text, call in wrong:
        with pytest.raises(kind, match=text):
            call()


def test_nulls() -> None:
    table = sa.table({"f": [1.5, None], "s": ["a", None]})
    batch = BatchDataset(table)[:]
    assert batch["s"] == ["a", None]
    assert batch["f"][0] == 1.5
    assert batch["f"][1].isnan()
    with pytest.raises(sa.CopyRequired, match=r"column 'i' has nulls.*fill_null"):
        BatchDataset(sa.table({"i": [1, None]}))[:]


def test_batches_may_be_changed(path: str) -> None:
    """Changes to a batch are seen nowhere else: in slices, gathered rows, and across batches."""
    data = BatchDataset(path)
    for rows in (slice(0, 5), slice(PART - 2, PART + 3), [5, 3, 900], list(range(ROWS))):
        before = data[rows]["x"].clone()
        changed = data[rows]
        changed["x"].mul_(0)
        changed["half"].zero_()
        changed["even"].zero_()
        changed["pair"].zero_()
        assert torch.equal(data[rows]["x"], before)
    assert sa.ipc.open_file(path).read_all()["x"].to_pylist() == list(range(ROWS))


def test_batches_that_are_kept_leave_mappings_to_the_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Private mappings are limited: one more tensor is an error that says so, one more batch is a copy."""
    limit = 4096  # of the 65,530 of most systems
    monkeypatch.setattr(mappings, "_most_mappings", cache(lambda: limit))
    rows, size = 1 << 17, 1 << 14  # 8 batches of 128 KiB
    with sa.ipc.new_file(tmp_path / "large", sa.schema({"x": sa.int64()})) as writer:
        writer.write(sa.record_batch({"x": np.arange(rows)}))
    data = IterableBatchDataset(tmp_path / "large", size)
    whole = data.table.column("x").chunk(0)
    one = whole.slice(0, size)
    many = [one.to_torch() for _ in range(limit * 7 // 8 - 100)]

    def more() -> None:
        while len(many) < limit:
            many.append(one.to_torch())

    with pytest.raises(sa.StorageError, match=rf"of the {limit:,} mappings .*vm\.max_map_count.*drop those"):
        more()
    del many[-5:]
    before = Path("/proc/self/maps").read_text().count("large")
    kept = list(data)
    assert Path("/proc/self/maps").read_text().count("large") == before + 5
    for batch in kept:
        batch["x"].add_(1)
    assert torch.equal(torch.cat([batch["x"] for batch in kept]), torch.arange(1, rows + 1))
    with pytest.raises(sa.StorageError, match="mappings"):
        whole.to_torch()
    assert xs(data) == list(range(rows))
    del kept, batch
    assert whole.to_torch()[5].item() == 5


def rank_of(queue: Any, rank: int, at: str, rows: str) -> None:
    torch.distributed.init_process_group("gloo", f"file://{at}", rank=rank, world_size=2)
    data = IterableBatchDataset(rows, 100)
    queue.put((data.rank, data.world_size, xs(data)))
    torch.distributed.destroy_process_group()


def test_ranks_of_torch_distributed(path: str, tmp_path: Path) -> None:
    """Without a rank, the data set takes those of the process group."""
    context = multiprocessing.get_context("fork")
    queue = context.SimpleQueue()
    arguments = [(queue, rank, str(tmp_path / "group"), path) for rank in range(2)]
    processes = [context.Process(target=rank_of, args=given) for given in arguments]
    for process in processes:
        process.start()
    found = sorted(queue.get() for _ in processes)
    for process in processes:
        process.join(30)
    assert [each[:2] for each in found] == [(0, 2), (1, 2)]
    assert sorted(found[0][2] + found[1][2]) == list(range(ROWS))
    assert found[1][2][:100] == list(range(100, 200))


# --- memory -----------------------------------------------------------------------------------------------------


def pss_of(name: str, pid: int) -> int:
    """The share of a file's pages, in bytes, that a process has mapped."""
    total, inside = 0, False
    with open(f"/proc/{pid}/smaps", encoding="utf-8") as maps:
        for line in maps:
            if "-" in line.split(" ", 1)[0]:
                inside = name in line
            elif inside and line.startswith("Pss:"):
                total += 1024 * int(line.split()[1])
    return total


def test_workers_share_the_memory(shm_name: str) -> None:
    """Four workers that have read all of 64 MiB share its pages, and a dataset is pickled for them as a handle."""
    size = 64 << 20
    with sa.ipc.new_file(shm_name, sa.schema({"x": sa.int64()})) as writer:
        for number in range(8):
            writer.write(sa.record_batch({"x": np.full(size // 64, number)}))
    name = shm_name.removeprefix("shm:")

    def report(batch: dict[str, Any]) -> tuple[int, int]:
        return os.getpid(), sum(int(chunk.to_numpy().sum()) for chunk in data.table.column("x").chunks)

    data = IterableBatchDataset(shm_name, size // 64, transform=report)
    loader = DataLoader(data, batch_size=None, num_workers=4, persistent_workers=True)
    found = list(loader)
    assert {everything for _, everything in found} == {28 * size // 64}
    workers = {pid for pid, _ in found} - {os.getpid()}
    assert len(workers) == 4
    shares = [pss_of(name, pid) for pid in workers]
    assert min(shares) > size // 10
    assert sum(shares) + pss_of(name, os.getpid()) <= 1.05 * os.stat(f"/dev/shm/{name}").st_size
    del loader
    plain = IterableBatchDataset(shm_name, 1024)
    assert len(ForkingPickler.dumps(plain)) < 5000
    assert pickle.loads(ForkingPickler.dumps(BatchDataset(shm_name)))[size // 8 - 1]["x"].item() == 7
    copied = pickle.loads(pickle.dumps(BatchDataset(data.table.slice(0, 5))))
    assert copied[:]["x"].tolist() == [0] * 5


# --- rows of other libraries, and readers -----------------------------------------------------------------------


def test_rows_of_any_library_are_a_source(path: str) -> None:
    pa, pd, pl = map(pytest.importorskip, ("pyarrow", "pandas", "polars"))
    values = {"x": [1, 2, 3], "even": [False, True, False]}
    with sa.ipc.open_file(path) as file, sa.ipc.open_file(path) as other:
        assert len(BatchDataset(file)) == ROWS
        assert len(BatchDataset(sa.RecordBatchReader.from_batches(other.schema, iter(other)))) == ROWS
    for source in (pa.table(values), pa.record_batch(values), pd.DataFrame(values), pl.DataFrame(values)):
        for found in (source, [source]):
            (batch,) = IterableBatchDataset(found, 4)
            assert batch["x"].tolist() == values["x"]
            assert batch["even"].tolist() == values["even"]
    with pytest.raises(sa.InvalidType, match=r"found polars\.LazyFrame; call \.collect\(\) first"):
        BatchDataset(pl.LazyFrame(values))
    with pytest.raises(sa.InvalidType, match=r"found dict; shmarrow\.table\(\.\.\.\) makes a table of values"):
        BatchDataset(values)
    with pytest.raises(sa.InvalidType, match="part 1 of the source has other columns than the first: missing: column"):
        BatchDataset([pa.table({"x": [1]}), pa.table({"y": [1]})])
