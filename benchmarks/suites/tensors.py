"""Tensors handed from process to process, and bundles, beside the peers.

Another process holds the tensor: it placed it in shared memory once, in the form of each side, and pickles it whenever
that side asks. What is timed is what the receiver does, from the name of the object to the first element. It has seen
a tensor of this shape and type before; the first of its kind takes some 50 µs more.
"""

from __future__ import annotations

import multiprocessing
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing.shared_memory import SharedMemory
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import safetensors.numpy
from harness.bench import Bench, Operation
from harness.figures import AS_FAST, Faster, Point, faster
from safetensors import safe_open

import shmarrow as sa

WIDTH = 1 << 12
NAME = "weight"


# --- handing over -----------------------------------------------------------------------------------------------


def hold(size: int, folder: Path, requests: Any, queue: Any) -> None:
    """The process that has the tensor: place it for each side, then pickle it as often as it is asked to."""
    array = np.arange(size // 4, dtype="f4").reshape(-1, WIDTH)
    sa.ipc.write_tensor(sa.Tensor.from_numpy(array), folder / "ours")
    with pa.OSFile(str(folder / "pyarrow"), "wb") as sink:
        pa.ipc.write_tensor(pa.Tensor.from_numpy(array), sink)
    safetensors.numpy.save_file({NAME: array}, folder / "safetensors")
    shared = SharedMemory(create=True, size=size)
    np.ndarray(array.shape, array.dtype, shared.buf)[:] = array
    requests.send(shared.name)
    while requests.recv():
        queue.put(array)
    shared.close()
    shared.unlink()


@contextmanager
def holder(size: int, folder: Path) -> Iterator[tuple[Any, Any, str]]:
    """A running holder: its pipe, its queue, and the name of its shared memory."""
    context = multiprocessing.get_context("spawn")
    queue = context.Queue()
    here, there = context.Pipe()
    process = context.Process(target=hold, args=(size, folder, there, queue))
    process.start()
    try:
        yield here, queue, here.recv()
    finally:
        here.send(False)
        process.join()


def ours(path: Path) -> Any:
    array = sa.ipc.read_tensor(path).to_numpy()
    return array, array[0, 0]


def pyarrows(path: Path) -> Any:
    with pa.memory_map(str(path)) as source:
        array = pa.ipc.read_tensor(source).to_numpy()
    return array, array[0, 0]


def safetensors_of(path: Path) -> Any:
    with safe_open(path, "pt") as opened:  # for torch it maps the file, for numpy it copies
        tensor = opened.get_tensor(NAME)
    return tensor, tensor[0, 0]


def shared_memory(name: str, shape: tuple[int, ...]) -> Any:
    shared = SharedMemory(name)
    array = np.ndarray(shape, "f4", shared.buf)
    return shared, array[0, 0]


def handoff(bench: Bench) -> None:
    """From the name to the first element, beside all others."""
    for size in (1 << 20, 1 << 27) if bench.quick else (1 << 20, 1 << 25, 1 << 30):
        folder = bench.scratch / f"handoff-{size}"
        folder.mkdir()
        _handoff(bench, size, folder)
        shutil.rmtree(folder)


def _handoff(bench: Bench, size: int, folder: Path) -> None:
    what = f"{size >> 20:,} MiB between processes: name to first element"
    point = Point("Hand a tensor to another process", "bytes", size)
    shape = (size // 4 // WIDTH, WIDTH)
    largest = size >= 1 << 27
    with holder(size, folder) as (pipe, queue, name):

        def pickled(turn: int) -> Any:
            pipe.send(True)
            array = queue.get()
            return array, array[0, 0]

        mine: dict[str, Operation] = {"shmarrow": lambda turn: ours(folder / "ours")}
        # One at a time, as what a gigabyte leaves in the caches of the processor would slow down whoever comes next.
        required = faster(1000) if largest else None
        bench.row(what, mine | {"pickle, queue": pickled}, required, 1 if largest else 10, point=point)
        others: dict[str, Operation] = {
            "pyarrow read_tensor": lambda turn: pyarrows(folder / "pyarrow"),
            "safetensors": lambda turn: safetensors_of(folder / "safetensors"),
            "shared_memory": lambda turn: shared_memory(name, shape),
        }
        for peer, operation in others.items():
            required = Faster(0.9, "0.9 times as fast") if peer == "safetensors" else AS_FAST
            bench.row(what, mine | {peer: operation}, required if largest else None, 20, block=10, point=point)


# --- bundles ----------------------------------------------------------------------------------------------------


def bundles(bench: Bench) -> None:
    """Open a state dict and have one tensor of it."""
    count = 1000
    tensors = {f"model.layers.{i}.weight": np.full((64, 64), i, "f4") for i in range(count)}
    wanted = f"model.layers.{count * 7 // 10}.weight"
    path, theirs = bench.scratch / "bundle", bench.scratch / "bundle.safetensors"
    sa.save_tensors(tensors, path)
    safetensors.numpy.save_file(tensors, theirs)

    def peer(turn: int) -> Any:
        with safe_open(theirs, "np") as opened:
            return opened.get_tensor(wanted)

    bench.row(
        f"open {count:,} tensors and have one",
        {"shmarrow": lambda turn: sa.load_tensors(path)[wanted].to_numpy(), "safetensors": peer},
        faster(3),
        10,
        block=10,
    )


PARTS = {"bundles": bundles, "handoff": handoff}
