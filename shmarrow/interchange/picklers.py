"""Handles where Python's tools pass objects between processes: multiprocessing, joblib, distributed.

Rules kept here:

* nothing is imported for it, this file neither: reducers are registered when somebody else imports the module that has
  the pickler, see ``interchange/__init__``;
* what cannot travel as a handle is copied: an object in the memory of this process, or one whose name is gone;
* unpickling a handle never raises: pools and executors unpickle in threads whose end is theirs. What cannot be opened
  arrives as an object that raises the error when it is used;
* a handle opens on this host only, so distributed gets one only where both ends are this host's loopback interface.
"""

from __future__ import annotations

from types import ModuleType
from typing import Any

from shmarrow.errors import ShmarrowError
from shmarrow.pickling import add_pickler

_LOOPBACK = ("tcp://127.", "tcp://[::1]", "tls://127.", "tls://[::1]")


def reduced(value: Any) -> Any:
    """As ``__reduce__``: a handle where the value can have one, else a copy."""
    from shmarrow.interchange.handles import handle

    try:
        return _open, (handle(value),)
    except ShmarrowError:
        return value.__reduce_ex__(4)


def _open(handle: Any) -> Any:
    """The object of a handle, or what raises the error when it is used: an error here would end the receiver."""
    try:
        return handle.open()
    except ShmarrowError as error:
        from shmarrow.interchange.gone import Gone

        return Gone(handle.kind, error)


def with_multiprocessing(module: ModuleType) -> None:
    """Register handles with the pickler of multiprocessing."""
    add_pickler(module.ForkingPickler.register, reduced)


def with_loky(module: ModuleType) -> None:
    """Register handles with the pickler of loky."""
    add_pickler(module.register, reduced)


# --- distributed ------------------------------------------------------------------------------------------------


def with_distributed(module: ModuleType) -> None:
    """Register handles with the serializers of distributed."""

    def register(cls: type, _: Any) -> None:
        module.dask_serialize.register(cls, _serialized)
        module.dask_deserialize.register(cls, _deserialized)

    add_pickler(register, reduced)


def _serialized(value: Any, context: Any = None) -> tuple[dict[str, Any], list[Any]]:
    """A header and frames: of a handle, or of a pickle with its buffers out of band."""
    import pickle

    from shmarrow.interchange.handles import handle

    if _same_host(context):
        try:
            return {"handle": True}, [pickle.dumps(handle(value), 5)]
        except ShmarrowError:
            pass
    buffers: list[pickle.PickleBuffer] = []
    data = pickle.dumps(value, 5, buffer_callback=buffers.append)
    return {"handle": False}, [data, *[buffer.raw() for buffer in buffers]]


def _deserialized(header: dict[str, Any], frames: list[Any]) -> Any:
    import pickle

    value = pickle.loads(frames[0], buffers=frames[1:])
    return _open(value) if header["handle"] else value


def _same_host(context: Any) -> bool:
    """Whether both ends of a connection of distributed are on this host, and nobody can pass on what goes over it."""
    if not isinstance(context, dict):
        return False
    ends = [context.get(end) for end in ("sender", "recipient")]
    return all(isinstance(end, dict) and str(end.get("address", "")).startswith(_LOOPBACK) for end in ends)
