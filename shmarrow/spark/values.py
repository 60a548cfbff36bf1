# SPDX-License-Identifier: Apache-2.0
"""Values of broadcasts and of ``once``: as objects of a store, and in the cache of a process.

A store keeps what it can as it is, and all else pickled. A pickled value is a bundle: its pickle, and beside that each
of its large buffers, such as those of numpy arrays and torch tensors (pickle protocol 5, out of band). They are not
copied when it is unpickled, but lie in shared memory, read-only.

Each process caches the values that it has attached, so that later tasks and calls get them in microseconds. Invariants:

* a value is returned only while its object exists; the caller of :func:`cache` provides the check;
* adding a value drops those whose objects are gone, so that their memory is freed;
* there are no locks: threads that attach to the same object at once map it twice, and one mapping is kept.
"""

from __future__ import annotations

import pickle
import sys
import warnings
from collections.abc import Callable, Hashable, Mapping
from typing import Any, Final

import numpy as np

from shmarrow.errors import InvalidArgument, InvalidType, ShmarrowError, full_name, shown
from shmarrow.layout.dlpack import check_storage

PICKLED = b"shmarrow:pickled"
"""The key in the metadata of a bundle with a pickled value; its value is the number of buffers."""
LARGE = 1 << 12
"""The size in bytes from which buffers are beside the pickle."""


def as_name(name: object) -> str:
    """Check a name that a caller gives, of which the name of an object is made."""
    if not isinstance(name, str):
        raise InvalidType(f"name must be a string, found {shown(name)}")
    if not 0 < len(name.encode(errors="surrogatepass")) <= 200:
        raise InvalidArgument(f"name must have 1 to 200 bytes in UTF-8, found {shown(name)}")
    return name


def as_stored(value: Any) -> Any:
    """Return what represents a value in a store: the value itself, or a bundle that :func:`as_given` restores.

    Raises
    ------
    InvalidType
        If no store can keep it, and it cannot be pickled.
    """
    from shmarrow import capsules
    from shmarrow.objects.encode import encode

    if capsules.has_stream(value):  # some can be read once only
        return value
    if _is_state_dict(value):
        return _pickled(value)
    try:
        encode(value)
    except (InvalidType, InvalidArgument) as error:
        return _pickled(value, error)
    return value


def as_given(stored: Any) -> Any:
    """Restore a value from an object of a store; large arrays lie in the memory of the object."""
    if type(stored).__name__ == "Bundle":
        metadata = stored.metadata or {}
        if PICKLED in metadata:
            buffers = [stored[str(i)].to_numpy() for i in range(int(metadata[PICKLED]))]
            return pickle.loads(stored["pickle"].to_numpy(), buffers=buffers)
    return stored


def _is_state_dict(value: Any) -> bool:
    """Whether a value is a mapping of names to torch tensors, which a store would keep as a bundle."""
    torch = sys.modules.get("torch")
    if torch is None or not isinstance(value, Mapping) or not value:
        return False
    return all(isinstance(each, torch.Tensor) for each in value.values())


def _pickled(value: Any, refused: Exception | None = None) -> Any:
    from shmarrow.ipc.tensor.bundle import NamedTensors
    from shmarrow.spark._pyspark import pickled

    buffers: list[np.ndarray[Any, Any]] = []
    arrays: dict[Any, np.ndarray[Any, Any]] = {}
    """The memory of tensors; tensors that have it in common, such as tied weights, do so afterwards."""

    def take(buffer: pickle.PickleBuffer) -> bool:
        raw = np.frombuffer(buffer.raw(), np.uint8)
        if len(raw) >= LARGE:
            buffers.append(raw)
        return len(raw) < LARGE  # whether it is written into the pickle

    def reduce(each: Any) -> Any:
        torch = sys.modules.get("torch")
        if torch is None or type(each) is not torch.Tensor or each.layout is not torch.strided:
            return NotImplemented
        if each.is_meta or each.is_quantized:
            return NotImplemented
        check_storage(each)
        plain = each.detach().cpu().resolve_conj().resolve_neg().contiguous()
        raw = arrays.setdefault((plain.data_ptr(), plain.nbytes), plain.flatten().view(torch.uint8).numpy())
        return _tensor, (raw, plain.dtype, tuple(plain.shape), each.requires_grad)

    try:
        data = pickled(value, take, reduce)
    except Exception as error:
        why = "" if refused is None else f"a store does not keep it ({refused}), and "
        raise InvalidType(
            f"cannot share {full_name(value)}: {why}it cannot be pickled ({type(error).__name__}: {error})"
        ) from error
    tensors = {"pickle": np.frombuffer(data, np.uint8), **{str(i): each for i, each in enumerate(buffers)}}
    return NamedTensors(tensors, {PICKLED: str(len(buffers)).encode()})


def _tensor(raw: np.ndarray[Any, Any], dtype: Any, shape: tuple[int, ...], requires_grad: bool) -> Any:
    """Return a tensor over the memory of an array."""
    import torch

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # torch has no read-only tensors
        return torch.from_numpy(raw).view(dtype).reshape(shape).requires_grad_(requires_grad)


# --- the cache of a process -------------------------------------------------------------------------------------

MISSING: Final = object()
_CACHE: dict[Hashable, tuple[Any, Callable[[], bool]]] = {}


def cached(key: Hashable) -> Any:
    """Return the value of a key, or ``MISSING``."""
    found = _CACHE.get(key)
    return found[0] if found is not None and _exists(found[1]) else MISSING


def cache(key: Hashable, value: Any, exists: Callable[[], bool]) -> Any:
    """Cache a value for as long as ``exists`` returns True, and return the cached value."""
    for other, found in list(_CACHE.items()):
        if not _exists(found[1]):
            drop(other)
    return _CACHE.setdefault(key, (value, exists))[0]


def drop(key: Hashable) -> None:
    """Drop a value from the cache; existing references stay valid."""
    _CACHE.pop(key, None)


def _exists(check: Callable[[], bool]) -> bool:
    try:
        return check()
    except ShmarrowError:  # its store was destroyed, or closed
        return False
