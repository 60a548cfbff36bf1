"""From shared memory to a GPU: pageable, pinned, and beside what torch.load and safetensors do.

The data are in memory already (``/dev/shm``) for all sides. A transfer ends when the GPU has the last byte.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from harness.bench import Bench, Operation, Skipped
from safetensors.torch import load_file, save_file

import shmarrow as sa


def transfer(bench: Bench) -> None:
    if not torch.cuda.is_available():
        raise Skipped("torch sees no CUDA device")
    size = 1 << 27 if bench.quick else 1 << 30
    values = torch.from_numpy(np.random.default_rng(1).random(size // 4, dtype="f4"))
    paths = {kind: bench.scratch / kind for kind in ("arrow", "pt", "safetensors")}
    sa.ipc.write_tensor(sa.Tensor.from_torch(values), paths["arrow"])
    torch.save(values, paths["pt"])
    save_file({"values": values}, paths["safetensors"])
    mapped: Any = sa.ipc.read_tensor(paths["arrow"])

    def sent(send: Callable[[], Any]) -> Operation:
        def operation(_: Any) -> Any:
            result = send()
            torch.cuda.synchronize()
            return result

        return operation

    def pinned_once() -> Any:
        with mapped.pinned():
            return mapped.to_torch("cuda")

    peers: dict[str, Operation] = {
        "torch.load(mmap=True)": sent(lambda: torch.load(paths["pt"], mmap=True).to("cuda")),
        "safetensors": sent(lambda: load_file(paths["safetensors"], device="cuda")),
        "torch.load": sent(lambda: torch.load(paths["pt"]).to("cuda")),
        "torch, from its own pageable memory": sent(lambda: values.to("cuda")),
    }
    text = f"{size >> 20:,} MiB to a GPU"
    attached = sent(lambda: sa.ipc.read_tensor(paths["arrow"]).to_torch("cuda"))
    bench.row(f"{text}, attached and sent", {"shmarrow": attached, **peers}, None, 2)
    bench.row(f"{text}, pinned for one transfer", {"shmarrow": sent(pinned_once), **peers}, None, 2)
    with mapped.pinned():
        bench.row(f"{text}, pinned before", {"shmarrow": sent(lambda: mapped.to_torch("cuda")), **peers}, None, 2)
        assert torch.equal(mapped.to_torch("cuda").cpu(), values)


PARTS = {"transfer": transfer}
