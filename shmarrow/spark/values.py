"""Values of broadcasts and of ``once`` as objects of a store: what a store keeps as it is, and all else pickled.

A pickled value is a bundle: its pickle, and beside that each of its large buffers, such as those of numpy arrays
(pickle protocol 5, out of band). They are not copied when it is unpickled, but lie in shared memory, read-only.
"""

from __future__ import annotations

import pickle
from typing import Any

import numpy as np

from shmarrow.errors import InvalidArgument, InvalidType, full_name

PICKLED = b"shmarrow:pickled"
"""The key in the metadata of a bundle with a pickled value; its value is the number of buffers."""
LARGE = 1 << 12
"""The size in bytes from which buffers are beside the pickle."""


def as_stored(value: Any) -> Any:
    """Return what represents a value in a store: the value itself, or a bundle that :func:`as_given` restores.

    Raises
    ------
    InvalidType
        If no store can keep it, and it cannot be pickled.
    """
    from shmarrow import capsules
    from shmarrow.objects.encode import encode
    from shmarrow.spark.state_dict import is_state_dict, to_bundle

    if is_state_dict(value):
        return to_bundle(value)
    if capsules.has_stream(value):  # some can be read once only
        return value
    try:
        encode(value)
    except (InvalidType, InvalidArgument) as error:
        return _pickled(value, error)
    return value


def as_given(stored: Any) -> Any:
    """Restore a value from an object of a store; large arrays lie in the memory of the object."""
    if type(stored).__name__ == "Bundle":
        from shmarrow.spark.state_dict import STATE_DICT, from_bundle

        metadata = stored.metadata or {}
        if STATE_DICT in metadata:
            return from_bundle(stored)
        if PICKLED in metadata:
            buffers = [stored[str(i)].to_numpy() for i in range(int(metadata[PICKLED]))]
            return pickle.loads(stored["pickle"].to_numpy(), buffers=buffers)
    return stored


def _pickled(value: Any, refused: Exception) -> Any:
    from shmarrow.ipc.tensor.bundle import NamedTensors
    from shmarrow.spark._pyspark import pickled

    buffers: list[np.ndarray[Any, Any]] = []

    def take(buffer: pickle.PickleBuffer) -> bool:
        raw = np.frombuffer(buffer.raw(), np.uint8)
        if len(raw) >= LARGE:
            buffers.append(raw)
        return len(raw) < LARGE  # whether it is written into the pickle

    try:
        data = pickled(value, take)
    except Exception as error:
        raise InvalidType(
            f"cannot share {full_name(value)}: a store does not keep it ({refused}), and it cannot be pickled "
            f"({type(error).__name__}: {error})"
        ) from error
    tensors = {"pickle": np.frombuffer(data, np.uint8), **{str(i): each for i, each in enumerate(buffers)}}
    return NamedTensors(tensors, {PICKLED: str(len(buffers)).encode()})
