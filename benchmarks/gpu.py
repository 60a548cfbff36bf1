"""Moves a tensor from shared memory to a GPU: pageable, pinned, and beside what torch.load and safetensors do.

``python benchmarks/gpu.py [--mib 1024] [--turns 7]``; it needs a CUDA device, and the package safetensors for its row.

The data are in memory already (``/dev/shm``) for all sides, and the sides take turns. Each time is the median of the
turns, the first of which warms up and is not counted. It ends when the GPU has the last byte.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np

import shmarrow as sa

Side = Callable[[], Any]


def measured(sides: dict[str, Side], turns: int, synchronize: Callable[[], None]) -> dict[str, float]:
    """Seconds that each side takes: the median of its turns."""
    times: dict[str, list[float]] = {name: [] for name in sides}
    for turn in range(turns + 1):
        for name in list(sides)[:: 1 if turn % 2 else -1]:
            synchronize()
            start = perf_counter()
            result = sides[name]()
            synchronize()
            seconds = perf_counter() - start
            del result
            if turn:
                times[name].append(seconds)
    return {name: statistics.median(found) for name, found in times.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--mib", type=int, default=1024, help="size of the tensor in MiB")
    parser.add_argument("--turns", type=int, default=7)
    arguments = parser.parse_args()
    try:
        import torch
    except ImportError:
        sys.exit("benchmarks/gpu.py: torch is not installed, so nothing was measured")
    if not torch.cuda.is_available():
        sys.exit("benchmarks/gpu.py: torch sees no CUDA device here, so nothing was measured")

    size = arguments.mib << 20
    with tempfile.TemporaryDirectory(dir="/dev/shm") as folder:
        values = torch.from_numpy(np.random.default_rng(1).random(size // 4, dtype="f4"))
        paths = {kind: Path(folder, kind) for kind in ("arrow", "pt", "safetensors")}
        sa.ipc.write_tensor(sa.Tensor.from_torch(values), paths["arrow"])
        torch.save(values, paths["pt"])
        mapped = sa.ipc.read_tensor(paths["arrow"])
        assert isinstance(mapped, sa.Tensor)

        def pinned_once() -> Any:
            with mapped.pinned():
                return mapped.to_torch("cuda")

        sides: dict[str, Side] = {
            "shmarrow, attached and sent": lambda: sa.ipc.read_tensor(paths["arrow"]).to_torch("cuda"),
            "shmarrow, pinned for one transfer": pinned_once,
            "torch.load(mmap=True)": lambda: torch.load(paths["pt"], mmap=True).to("cuda"),
            "torch.load": lambda: torch.load(paths["pt"]).to("cuda"),
            "torch, from its own pageable memory": lambda: values.to("cuda"),
        }
        try:
            from safetensors.torch import load_file, save_file
        except ImportError:
            print("safetensors is not installed; its row is left out")
        else:
            save_file({"values": values}, paths["safetensors"])
            sides["safetensors"] = lambda: load_file(paths["safetensors"], device="cuda")
        found = measured(sides, arguments.turns, torch.cuda.synchronize)
        with mapped.pinned():
            again = {"shmarrow, pinned before": lambda: mapped.to_torch("cuda")}
            found |= measured(again, arguments.turns, torch.cuda.synchronize)
            assert torch.equal(mapped.to_torch("cuda").cpu(), values)

    print(f"{torch.cuda.get_device_name()}, torch {torch.__version__}, {arguments.mib} MiB\n")
    print("| what | ms | GiB/s |\n| --- | --- | --- |")
    for name, seconds in sorted(found.items(), key=lambda item: item[1]):
        print(f"| {name} | {seconds * 1e3:.1f} | {size / seconds / 2**30:.1f} |")


if __name__ == "__main__":
    main()
