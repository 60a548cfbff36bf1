"""Pickling by handle in multiprocessing, joblib and distributed.

Invariants:

* nothing is imported for it, not even this file: reducers are registered when other code imports the module of the
  pickler, see :mod:`shmarrow.pickling`;
* objects without a handle are copied: those in private memory, or whose name was removed;
* unpickling a handle never raises, as pools and executors unpickle in threads that an error would end. A handle that
  cannot be opened becomes a placeholder that raises the error when it is used;
* a handle can only be opened on this host, so distributed gets one only if both ends are on the loopback interface.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable
from types import ModuleType
from typing import Any

from shmarrow import late
from shmarrow.errors import ShmarrowError
from shmarrow.pickling import add_pickler

_LOOPBACK = ("tcp://127.", "tcp://[::1]", "tls://127.", "tls://[::1]")


def reduced(value: Any) -> Any:
    """Reduce a value to its handle if it has one, otherwise to a copy; for use as ``__reduce__``."""
    try:
        return _open, (late.interchange.handles.handle(value),)
    except ShmarrowError:
        return value.__reduce_ex__(4)


def _open(handle: Any) -> Any:
    """Open a handle, or return a placeholder that raises the error when used: raising here would end the receiver."""
    try:
        return handle.open()
    except ShmarrowError as error:
        return late.interchange.handles.unavailable.Unavailable(handle.kind, error)


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
    """Return header and frames of a handle, or of a pickle with out-of-band buffers."""
    if _same_host(context):
        try:
            return {"handle": True}, [pickle.dumps(late.interchange.handles.handle(value), 5)]
        except ShmarrowError:
            pass
    buffers: list[pickle.PickleBuffer] = []
    data = pickle.dumps(value, 5, buffer_callback=buffers.append)
    return {"handle": False}, [data, *[buffer.raw() for buffer in buffers]]


def _deserialized(header: dict[str, Any], frames: list[Any]) -> Any:
    value = pickle.loads(frames[0], buffers=frames[1:])
    return _open(value) if header["handle"] else value


def _same_host(context: Any) -> bool:
    """Whether both ends of a connection of distributed are on the loopback interface, so that nothing is forwarded."""
    if not isinstance(context, dict):
        return False
    ends = [context.get(end) for end in ("sender", "recipient")]
    return all(isinstance(end, dict) and str(end.get("address", "")).startswith(_LOOPBACK) for end in ends)


_REGISTER: dict[str, Callable[[ModuleType], None]] = {
    "multiprocessing.reduction": with_multiprocessing,
    "joblib.externals.loky.backend.reduction": with_loky,
    "loky.backend.reduction": with_loky,
    "distributed.protocol.serialize": with_distributed,
}


def register(module: ModuleType) -> None:
    """Register handles with the pickler of a module, one of :data:`shmarrow.pickling.PICKLERS`."""
    _REGISTER[module.__name__](module)
