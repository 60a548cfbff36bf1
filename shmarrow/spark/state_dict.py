"""State dicts of torch: conversion to a bundle, and back over its memory.

Invariants:

* the metadata of the bundle record in JSON what a bundle cannot represent: names of shared tensors, complex tensors,
  and torch's own metadata;
* tensors that share memory, such as tied weights, are written once, and restored as one tensor;
* types that Arrow lacks are stored by their components, and restored;
* anything that cannot be restored exactly is rejected.
"""

from __future__ import annotations

import sys
from collections import OrderedDict
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from shmarrow.errors import InvalidType, shown

if TYPE_CHECKING:
    from shmarrow.ipc.tensor.bundle import Bundle, NamedTensors

STATE_DICT = b"shmarrow:state_dict"
"""The key in the metadata of a bundle that was made from a state dict."""


def is_state_dict(value: Any) -> bool:
    """Whether a value is a mapping of names to torch tensors; imports nothing."""
    torch = sys.modules.get("torch")
    if torch is None or not isinstance(value, Mapping):
        return False
    known = hasattr(value, "_metadata")  # also that of a module without parameters
    return (bool(value) or known) and all(isinstance(each, torch.Tensor) for each in value.values())


def to_bundle(state: Mapping[str, Any]) -> NamedTensors:
    """Convert a state dict to named tensors, with all else in their metadata; zero-copy on the CPU.

    Raises
    ------
    InvalidType
        If a tensor has no elements in memory, or is quantized, or torch's metadata cannot be represented in JSON.
    """
    import json

    from shmarrow.ipc.tensor.bundle import NamedTensors

    torch = sys.modules["torch"]
    tensors: dict[str, Any] = {}
    seen: dict[Any, str] = {}
    same: dict[str, str] = {}
    complex: list[str] = []
    for name, given in state.items():
        if given.is_meta or given.is_quantized:
            what = "on the device 'meta', without elements" if given.is_meta else f"quantized ({given.dtype})"
            raise InvalidType(
                f"tensor {shown(name)} is {what}: a broadcast carries dense and sparse tensors of numbers"
            )
        tensor = given.detach()
        if tensor.layout is torch.strided:
            bits = tensor.is_conj(), tensor.is_neg()
            place = tensor.device, tensor.data_ptr(), tensor.dtype, tensor.shape, tensor.stride(), bits
            first = seen.setdefault(place, name) if tensor.numel() else name
            if first != name:
                same[name] = first
                continue
            if tensor.is_complex():
                complex.append(name)
                tensor = torch.view_as_real(tensor.resolve_conj())
        tensors[name] = tensor
    own = getattr(state, "_metadata", None)
    try:
        kept = json.dumps({"names": list(state), "same": same, "complex": complex, "metadata": own})
        exact = own is None or json.loads(kept)["metadata"] == own
    except (TypeError, ValueError):
        exact = False
    if not exact:
        raise InvalidType(
            "the attribute _metadata of this state dict has no form in JSON; delete it, or pass dict(state), which "
            "has none"
        )
    return NamedTensors(tensors, {STATE_DICT: kept.encode()})


def from_bundle(bundle: Bundle) -> dict[str, Any]:
    """Restore the state dict of :func:`to_bundle`, over the memory of the bundle.

    torch has no read-only tensors: writing to one of these kills the process.
    """
    import json

    import torch

    import shmarrow.interchange.torch  # noqa: F401  (what torch takes of a tensor)

    said = json.loads((bundle.metadata or {})[STATE_DICT])
    tensors = bundle.to_torch(writable=False)
    for name in said["complex"]:
        tensors[name] = torch.view_as_complex(tensors[name])
    for name, first in said["same"].items():
        tensors[name] = tensors[first]
    ordered = {name: tensors[name] for name in said["names"]}
    if said["metadata"] is None:
        return ordered
    state: Any = OrderedDict(ordered)
    state._metadata = OrderedDict(said["metadata"])
    return state  # type: ignore[no-any-return]
