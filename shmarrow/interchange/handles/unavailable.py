"""A placeholder for an object whose handle cannot be opened: it raises the error when it is used.

An error during unpickling ends the thread or process that receives messages, and with it a whole pool. So the error is
raised in the task, or the caller, that the object was meant for.
"""

from __future__ import annotations

import copy
from typing import Any, NoReturn

from shmarrow.batch import RecordBatch
from shmarrow.chunked import ChunkedArray
from shmarrow.errors import ShmarrowError, printable
from shmarrow.ipc.tensor.bundle import Bundle
from shmarrow.layout import Array
from shmarrow.tables import Table
from shmarrow.tensor import SparseTensor, Tensor

_CLASSES = (Array, Bundle, ChunkedArray, RecordBatch, SparseTensor, Table, Tensor)


class Unavailable:
    """Placeholder for an object that was removed, replaced or unreachable when it was received.

    Parameters
    ----------
    kind : str
        Kind of its handle.
    error : ShmarrowError
        Why the handle cannot be opened. Any use of the placeholder raises it; ``repr`` shows it.
    """

    __slots__ = ("_error", "_kind")

    def __init__(self, kind: str, error: ShmarrowError) -> None:
        self._kind = kind
        self._error = error

    def _refuse(self, *_: object, **__: object) -> NoReturn:
        raise copy.copy(self._error)  # a new one each time, as callers add to it

    def __getattr__(self, name: str) -> Any:
        """Raise for methods when they are called, as a bound method may be part of a message; for all else at once."""
        of_classes = [getattr(cls, name) for cls in _CLASSES if hasattr(cls, name)]
        if not any(map(callable, of_classes)) and (name.startswith("__") or of_classes):
            self._refuse()
        return self._refuse

    def __reduce__(self) -> tuple[object, ...]:
        return Unavailable, (self._kind, self._error)

    def __repr__(self) -> str:
        return f"<{self._kind.replace('_', ' ')}, not available: {printable(str(self._error))}>"

    __hash__ = None  # type: ignore[assignment]


_SPECIAL = """
    array arrow_c_array arrow_c_schema arrow_c_stream bool contains dlpack dlpack_device enter eq exit getitem iter len
"""
for _name in _SPECIAL.split():
    setattr(Unavailable, f"__{_name}__", Unavailable._refuse)
