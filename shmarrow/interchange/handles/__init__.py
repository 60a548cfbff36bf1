# SPDX-License-Identifier: Apache-2.0
"""Handles: references to objects in named memory, to pass between processes of a host instead of copies.

``objects`` finds the mapped objects behind memory and maps them again, ``columns`` and ``tensors`` describe where the
parts of a value are in them. ``shmarrow.pickling`` makes ``multiprocessing`` pass handles between processes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Generic, TypeVar

from shmarrow.columns import ChunkedArray, RecordBatch, Table
from shmarrow.errors import (
    DEFAULT_LIMITS,
    FrozenValues,
    InvalidArgument,
    InvalidData,
    InvalidType,
    ShmarrowError,
    full_name,
    printable,
    shown,
)
from shmarrow.interchange.handles.columns import ColumnWriter, open_arrays, open_batches
from shmarrow.interchange.handles.objects import INLINE, HandleObjects, Locator, ObjectRef
from shmarrow.layout import Array
from shmarrow.memory import boot_id, host_name, open_source
from shmarrow.memory.split import FILE_STRIDE

T = TypeVar("T")


class Handle(FrozenValues, Generic[T]):
    """The location of an object in shared memory or mapped files; made by :func:`handle`.

    A handle is small, immutable, hashable and picklable. It keeps nothing alive: :meth:`open` works as long as the
    objects exist under their names.

    Attributes
    ----------
    kind : str
        ``"record_batch"``, ``"table"``, ``"array"``, ``"chunked_array"``, ``"tensor"`` or ``"bundle"``.
    host : str
        Name of the host it was made on.
    boot : str
        Boot id of that host.
    refs : tuple of ObjectRef
        The mapped objects: name, device, inode, size and modification time of each.
    content : tuple or int
        The layout of the object in them.
    inline : bytes
        Small buffers that are in none of them, at most 64 KiB.
    """

    __slots__ = ("boot", "content", "host", "inline", "kind", "refs")
    kind: str
    host: str
    boot: str
    refs: tuple[ObjectRef, ...]
    content: tuple[Any, ...] | int
    inline: bytes

    def __init__(
        self,
        kind: str,
        host: str,
        boot: str,
        refs: tuple[ObjectRef, ...],
        content: tuple[Any, ...] | int,
        inline: bytes = b"",
    ) -> None:
        self._fix(locals())

    def open(self) -> T:
        """Open the object: a read-only view of the same memory, equal to the original.

        A process maps the memory once for all handles, and pins it in its store while arrays of it are alive. No data
        is copied. Columns of files and streams are built on demand.

        Raises
        ------
        ObjectNotFound
            If the object was removed, replaced or changed after the handle was made.
        StorageError
            If it is in the shared memory of another host, or the operating system refuses.
        InvalidData
            If the handle is damaged, or the data violates the format.

        Notes
        -----
        Thread safety: immutable; any thread may open it. Forked children may open inherited handles.
        """
        opener = _OPENERS.get(self.kind) if isinstance(self.kind, str) else None
        if opener is None:
            raise InvalidData(f"a damaged handle: no kind {shown(self.kind)}; there are {', '.join(_OPENERS)}")
        memory = HandleObjects(self.refs, self.inline, self.boot, self.host)
        try:
            return opener(self.content, memory)
        except ShmarrowError:
            raise
        except (AttributeError, LookupError, OverflowError, TypeError, ValueError) as error:
            raise InvalidData(f"a damaged handle: {type(error).__name__}: {error}") from None

    def __repr__(self) -> str:
        if not isinstance(self.kind, str) or self.kind not in _OPENERS or not isinstance(self.refs, tuple):
            return "<Handle, damaged>"
        names = ", ".join([printable(str(getattr(ref, "name", "?"))) for ref in self.refs[:3]])
        names += ", ..." if len(self.refs) > 3 else ""
        article = "an" if self.kind == "array" else "a"
        return f"<Handle of {article} {self.kind.replace('_', ' ')} in {names or 'no memory'}>"


def handle(value: T) -> Handle[T]:
    """Make a handle of an object in shared memory or mapped files.

    Objects from a store are in shared memory; those read from a path or a ``shm:`` name are mapped; so are their slices
    and selections of columns. Other processes of this host open the handle instead of receiving a copy.

    Parameters
    ----------
    value : RecordBatch, Table, Array, ChunkedArray, Tensor, SparseTensor or Bundle
        The object. Its buffers in private memory, at most 64 KiB, are copied into the handle.

    Returns
    -------
    Handle
        A few hundred bytes for batches of a file, whatever their size; else about 100 bytes per column.

    Raises
    ------
    InvalidArgument
        If more than 64 KiB is in private memory of this process, or an extension type is not registered.
    ObjectNotFound
        If the object was removed or replaced in the meantime.
    InvalidType
        If it is none of these objects.

    Notes
    -----
    ``multiprocessing``, ``concurrent.futures`` and torch's DataLoader pass such objects as handles automatically; for
    joblib, dask and all else, pass the handle. A handle does not keep its object alive: the sender must keep it until
    the receiver has opened the handle. If a pool, an executor or a queue cannot open it, the receiver gets a
    placeholder that raises the error when used.

    Handles grant no access: opening one requires permission to read the object, and fails if the object was replaced.
    Unpickling can run any code, so only accept pickled handles from trusted processes.

    Examples
    --------
    >>> import pickle
    >>> import shmarrow as sa
    >>> store = sa.Store("shm:shmarrow-handles")
    >>> name = store.put("numbers", sa.record_batch({"x": range(1000)}))
    >>> pickled = pickle.dumps(sa.handle(store.get("numbers")))  # to another process of this host
    >>> pickle.loads(pickled).open().num_rows
    1000
    >>> store.destroy()
    """
    locator = Locator()
    kind, content = _describe(value, locator)
    refs, inline = locator.finish()
    return Handle(kind, host_name(), boot_id(), refs, content, inline)


def reduced(value: Any) -> Any:
    """Reduce a value to its handle if it has one, otherwise to a copy; for use as ``__reduce__``."""
    try:
        return _open_later, (handle(value),)
    except ShmarrowError:
        return value.__reduce_ex__(4)


def _open_later(handle: Handle[Any]) -> Any:
    """Open a handle, or return a placeholder that raises the error when used.

    Raising here would end the receiver: pools and executors unpickle in threads of theirs.
    """
    from shmarrow.interchange.handles.columns import Unavailable

    try:
        return handle.open()
    except ShmarrowError as error:
        return Unavailable(handle.kind, error)


def _describe(value: object, locator: Locator) -> tuple[str, tuple[Any, ...] | int]:
    from shmarrow.ipc.tensor.bundle import Bundle
    from shmarrow.tensor import SparseTensor, Tensor

    if isinstance(value, RecordBatch):
        return "record_batch", ColumnWriter(locator).batches(value._schema, [value])
    if isinstance(value, Table):
        return "table", ColumnWriter(locator).batches(value._schema, value.batches)
    if isinstance(value, Array):
        return "array", ColumnWriter(locator).arrays(value.type, [value])
    if isinstance(value, ChunkedArray):
        return "chunked_array", ColumnWriter(locator).arrays(value.type, value.chunks)
    if isinstance(value, (Tensor, SparseTensor)):
        from shmarrow.interchange.handles.tensors import describe

        return "tensor", describe(value, locator)
    if isinstance(value, Bundle):
        data = value._index().source.data
        if data is None:
            raise InvalidArgument(
                "cannot make a handle: the bundle was not mapped from a path or a shm: name, so no other process can "
                "open it; save it to a file, or put it in a store, first"
            )
        place = locator.find(data)
        return "bundle", (locator.buffer(data)[0] if place is None else place) // FILE_STRIDE
    raise InvalidType(f"expected a batch, a table, an array, a tensor or a bundle, found {full_name(value)}")


def _only(items: Sequence[T]) -> T:
    if len(items) != 1:
        raise InvalidData(f"a damaged handle: expected one batch or array, found {len(items)}")
    return items[0]


def _open_tensor(content: object, memory: HandleObjects) -> Any:
    from shmarrow.interchange.handles.tensors import restore

    return restore(content, memory)


def _open_bundle(content: object, memory: HandleObjects) -> Any:
    from shmarrow.ipc.tensor.bundle import Bundle

    source = open_source(memory.data(content) if content == INLINE else memory.segment(content))
    return Bundle(source, DEFAULT_LIMITS)


_OPENERS: dict[str, Callable[[Any, HandleObjects], Any]] = {
    "record_batch": lambda content, memory: _only(open_batches(content, memory)[1]),
    "table": lambda content, memory: Table(*open_batches(content, memory)),
    "array": lambda content, memory: _only(open_arrays(content, memory).chunks),
    "chunked_array": open_arrays,
    "tensor": _open_tensor,
    "bundle": _open_bundle,
}
