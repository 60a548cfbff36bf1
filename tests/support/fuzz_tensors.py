"""Mutated messages and bundles of tensors, for ``python tests/support/fuzz.py --tensors``."""

from __future__ import annotations

import io
import random
from typing import Any

import forms
import hostile
import numpy as np

import shmarrow as sa
from shmarrow.ipc import IpcWriteOptions


def _seeds() -> list[tuple[bytes, bool]]:
    """Bytes of messages or bundles, and whether they are a bundle."""
    dense = np.arange(12.0).reshape(3, 4) % 5
    cube = np.arange(24).reshape(2, 3, 4) % 3
    tensors: list[Any] = [
        sa.Tensor.from_numpy(dense, ["row", "column"], metadata={"k": "v"}),
        sa.Tensor.from_numpy(np.asfortranarray(cube)),
        sa.Tensor.from_numpy(np.array([True, False])),
        sa.SparseCOOTensor.from_dense(cube),
        sa.SparseCSRMatrix.from_dense(dense),
        sa.SparseCSCMatrix.from_dense(dense),
        sa.SparseCSFTensor.from_dense(cube),
    ]
    seeds = []
    for options in (None, IpcWriteOptions(use_legacy_format=True)):
        sink = io.BytesIO()
        for tensor in tensors:
            sa.ipc.write_tensor(tensor, sink, options)
            alone = io.BytesIO()
            sa.ipc.write_tensor(tensor, alone, options)
            seeds.append((alone.getvalue(), False))
        seeds.append((sink.getvalue(), False))
    seeds.append((forms.for_cpp(tensors[6]), False))
    for given in ({}, {"a": dense, "b": tensors[4], "é": tensors[6]}, {f"t{i}": np.arange(i) for i in range(9)}):
        sink = io.BytesIO()
        sa.save_tensors(given, sink, {"k": "v"})
        seeds.append((sink.getvalue(), True))
    return seeds


SEEDS = _seeds()


def mutation(number: int) -> tuple[bytes, bool]:
    """The mutated input of a number, and whether it is a bundle."""
    seed, is_bundle = SEEDS[number % len(SEEDS)]
    return hostile.changed(seed, random.Random(number), False, hostile.ANYWHERE), is_bundle


def exercise(data: bytes, is_bundle: bool) -> str:
    """All that a careless reader does; says whether it was ``read`` or ``refused``, and raises what is neither."""
    ways: list[Any] = [data, io.BufferedReader(io.BytesIO(data))]
    outcomes = []
    for source in ways:
        try:
            if is_bundle:
                bundle = sa.load_tensors(source)
                repr(bundle)
                "a" in bundle  # noqa: B015
                found = list(bundle.values())
                bundle.validate(full=True)
            else:
                found = list(sa.ipc.read_tensors(source))
        except sa.ShmarrowError:
            outcomes.append("refused")
            continue
        for tensor in found:
            try:
                repr(tensor)
                tensor.validate(full=True)
                if tensor.size < 1 << 16 if isinstance(tensor, sa.Tensor) else np.prod(tensor.shape) < 1 << 16:
                    tensor.to_numpy() if isinstance(tensor, sa.Tensor) else tensor.to_dense()
            except sa.ShmarrowError:
                outcomes.append("refused")
                break
        else:
            outcomes.append("read")
    assert outcomes[0] == outcomes[1], f"{outcomes[0]} from memory, {outcomes[1]} from a file object"
    return outcomes[0]
