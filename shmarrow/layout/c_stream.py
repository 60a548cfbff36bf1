# SPDX-License-Identifier: Apache-2.0
"""``ArrowArrayStream`` of the C stream interface: to and from record batches and the chunks of a column.

Invariants of import:

* the functions of a stream are called without the GIL, as a producer may wait for threads that need it;
* they write into structures allocated by nanoarrow, whose capsules always release them;
* a stream is used by one thread at a time. It is released exactly once: at its end, after an error, when its reader is
  closed, or with its capsule, whichever comes first.

The callbacks of an exported stream must be compiled code, see ``c_structs``. They come from one of two libraries:

* a few batches become a ``nanoarrow`` stream, built with all structures up front. This is used for chunked arrays, and
  for tables and files of at most 16 batches that are at hand: it needs only nanoarrow, and an error in any batch
  reaches the caller as our exception;
* more batches, batches that must be fetched or decompressed first, and those of single-pass readers are produced one
  by one on the consumer's demand. ``nanoarrow`` has no stream over an iterator; ``pyarrow`` has one, and imports each
  batch from our capsules. Errors then arrive as the consumer's own type, with our message.
"""

from __future__ import annotations

import ctypes
import errno
import os
import struct
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain, islice
from typing import Any

from shmarrow.capsules import ARRAY, PyCapsule
from shmarrow.errors import (
    Failed,
    InvalidData,
    InvalidType,
    ShmarrowError,
    StorageError,
    Unsupported,
    at,
    full_name,
    optional,
)
from shmarrow.layout.c_array import (
    ExportedBatch,
    Importer,
    Tree,
    array_from_capsules,
    array_tree,
    batch_tree,
    capsules,
    in_schema,
    refuse,
    requested,
)
from shmarrow.layout.construct import array_class, join_arrays
from shmarrow.memory import CLOSE, READ, SEQUENTIAL, StateMachine
from shmarrow.types import DataType, Schema, null
from shmarrow.types.c_schema import (
    STREAM,
    ask,
    field_at,
    native,
    pointer,
    schema_schema,
    text_of,
    type_from_capsule,
    type_schema,
)

_STRUCT = struct.Struct("<5Q")
_GET = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p)
_LAST_ERROR = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p)
_RELEASE = ctypes.CFUNCTYPE(None, ctypes.c_void_p)
assert _STRUCT.size == STREAM.itemsize

_ERRORS: dict[int, type[ShmarrowError]] = {errno.EINVAL: InvalidData, errno.ENOSYS: Unsupported}
"""Our errors for a producer's error codes; any other code is an errno of the operating system."""


class CStream:
    """The functions of an ``ArrowArrayStream`` in its capsule.

    Parameters
    ----------
    capsule : PyCapsule
        Named ``arrow_array_stream``; must not be used elsewhere.
    what : str
        The producer, for error messages.

    Notes
    -----
    Thread safety: threads may share a stream; each array goes to one of them. A forked child can only close its copy.
    """

    def __init__(self, capsule: PyCapsule, what: str) -> None:
        with at(f"{what} did not return an Arrow array"):
            self._address = pointer(capsule, "arrow_array_stream")
        get_schema, get_next, last_error, release, _ = self._members()
        if not release:
            raise InvalidData(
                f"{what}: the ArrowArrayStream has already been released; each capsule can be imported once"
            )
        if not (get_schema and get_next):
            raise InvalidData(f"{what}: the ArrowArrayStream lacks a function: get_schema or get_next is NULL")
        self.what = what
        self._capsule = capsule
        self._get_next = _GET(get_next)
        self._last_error = _LAST_ERROR(last_error) if last_error else None
        self._count = 0
        self.states = StateMachine(f"the stream of {what}", SEQUENTIAL)
        modules = native()
        self._empty = modules._schema.CSchema.allocate()
        self._allocate = modules._array.CArray.allocate
        self.schema = modules._schema.CSchema.allocate()
        """The owner of the schema, whose address is ``schema._addr()``."""
        try:
            self._call(_GET(get_schema), self.schema._addr(), "its schema")
        except ShmarrowError:
            self._release()
            raise

    def _members(self) -> tuple[int, ...]:
        return _STRUCT.unpack(ctypes.string_at(self._address, _STRUCT.size))

    def _call(self, function: Any, address: int, item: str) -> None:
        code = function(self._address, address)
        if code:
            text_at = self._last_error(self._address) if self._last_error is not None else 0
            text = text_of(text_at or 0).decode(errors="replace") or os.strerror(code)
            message = f"{self.what} failed to produce {item}: {text}"
            kind = _ERRORS.get(code)
            raise StorageError(code, message) if kind is None else kind(message)

    def next(self) -> Any:
        """Return the owner of the next array, whose address is ``_addr()``; None at the end.

        Raises
        ------
        InvalidData, Unsupported, StorageError
            If the producer fails, with its message. The stream is then unusable.
        Closed, Failed
            After :meth:`close` or an earlier error.
        """
        return self.states.read(self._next)

    def _next(self) -> Any:
        array = self._allocate(self._empty)
        try:
            self._call(self._get_next, array._addr(), f"batch {self._count}")
        except BaseException:
            self._release()
            raise
        if not array.is_valid():
            self._release()
            return None
        self._count += 1
        return array

    def fail(self, error: BaseException) -> None:
        """Fail the stream because an array from it is unusable, so that no later call skips it."""
        self.states.admit()
        with self.states.turn:
            self.states.fail(error)
            self._release()

    def close(self) -> None:
        """Release the stream, once any call in another thread has returned; arrays already returned stay valid."""
        if self.states.inherited:  # the producer's threads do not exist in a forked child
            self.states.go(CLOSE)
            return
        self.states.admit()  # not in the middle of a call of the producer
        with self.states.turn:
            self.states.go(CLOSE)
            self._release()

    def _release(self) -> None:
        release = self._members()[3]
        if release:
            _RELEASE(release)(self._address)


def open_stream(obj: object) -> CStream:
    """Open the stream of an object with ``__arrow_c_stream__``, or of its capsule.

    Raises
    ------
    InvalidType
        If it is neither.
    InvalidData, Unsupported, StorageError
        If the producer fails, with its message.
    MissingExtra
        If nanoarrow is not installed.
    """
    what = full_name(obj)
    return CStream(ask(obj, "__arrow_c_stream__") if hasattr(obj, "__arrow_c_stream__") else obj, what)


def read_chunks(obj: object) -> tuple[list[Any], DataType]:
    """Read all arrays of a stream, and their type; rows become structs. Errors as :func:`open_stream`."""
    stream = open_stream(obj)
    try:
        type, importer, chunks = field_at(stream.schema._addr()).type, Importer(), []
        while (array := stream.next()) is not None:
            chunks.append(importer.array(array, array._addr(), type))
    finally:
        stream.close()
    return chunks, type


def read_array(obj: object) -> Any:
    """Import an object as one array: zero-copy unless it has several chunks. Rows become structs."""
    if hasattr(obj, ARRAY):
        return array_from_capsules(*array_capsules(obj))
    chunks, type = read_chunks(obj)
    return join_arrays(chunks) if chunks else array_class(type)._nulls(type, 0)


def array_capsules(obj: object) -> tuple[PyCapsule, PyCapsule]:
    """Ask an object for the two capsules of an array."""
    pair = ask(obj, ARRAY)
    if not isinstance(pair, tuple) or len(pair) != 2:
        text = f"expected two capsules from __arrow_c_array__(), found {full_name(pair)}"
        raise InvalidType(f"{full_name(obj)} did not return an Arrow array: {text}")
    return pair


# --- exporting --------------------------------------------------------------------------------------------------

_FEW = 16
"""The most batches exported up front."""

_MOST_COLUMNS = 1 << 12
"""The most columns, over all batches, exported up front."""


def export_chunks(array: Any, requested_schema: PyCapsule | None = None, **unknown: object) -> PyCapsule:
    """Implement :meth:`ChunkedArray.__arrow_c_stream__`."""
    refuse(unknown)
    if requested_schema is not None:
        array = array.cast(type_from_capsule(requested_schema))
    return _at_once([array_tree(chunk) for chunk in array.chunks], type_schema(array.type))


def export_batches(
    schema: Schema, batches: Iterable[ExportedBatch], requested_schema: PyCapsule | None = None, **unknown: object
) -> PyCapsule:
    """Export batches as a stream: up front if they are few and in place, else one by one."""
    refuse(unknown)
    target = requested(schema, requested_schema)
    source = iter(batches)
    first = list(islice(source, _FEW + 1))
    few = len(first) == 1 or (len(first) <= _FEW and len(first) * len(target) <= _MOST_COLUMNS)
    if few and all(batch._is_cheap(i) for batch in first for i in range(len(batch.schema))):
        return export_all(target, first)
    return _one_by_one(target, chain(first, source))


def export_all(schema: Schema, batches: Iterable[ExportedBatch]) -> PyCapsule:
    """Export batches as a stream, all up front, for a consumer that reads all of them."""
    return _at_once([batch_tree(in_schema(batch, schema)) for batch in batches], schema_schema(schema))


def export_reader(reader: Any, requested_schema: PyCapsule | None = None, **unknown: object) -> PyCapsule:
    """Implement :meth:`RecordBatchReader.__arrow_c_stream__`."""
    refuse(unknown)
    return _one_by_one(requested(reader.schema, requested_schema), reader, reader._fail)


def _at_once(trees: Sequence[Tree], schema: Any) -> Any:
    modules = native()
    if hasattr(modules, "stream"):
        return modules.stream(trees, schema)
    # Streams take ownership of the structures, so these are copies; the schema is passed once, not with each batch.
    other = type_schema(null())
    arrays = [modules._array.CArray._import_from_c_capsule(*capsules(tree, other)) for tree in trees]
    own = modules._schema.CSchema._import_from_c_capsule(schema.__arrow_c_schema__())
    return modules._array_stream.CArrayStream.from_c_arrays(arrays, own, move=True, validate=False).__arrow_c_stream__()


class _Exported:
    """An iterator of pyarrow batches for one consumer; after an error it raises instead of ending."""

    def __init__(
        self, make: Callable[[Any], Any], schema: Schema, batches: Iterator[ExportedBatch], fail: Callable[..., None]
    ) -> None:
        self._make = make
        self._schema = schema
        self._batches = batches
        self._fail = fail
        self._states = StateMachine("the stream", SEQUENTIAL, shared=True)

    def __iter__(self) -> Iterator[Any]:
        return self

    def __next__(self) -> Any:
        try:
            self._states.go(READ)
            return self._make(in_schema(next(self._batches), self._schema))
        except StopIteration:
            raise
        except BaseException as error:
            self._states.fail(error)
            self._fail(error)
            if isinstance(error, Exception):
                raise
            raise Failed(f"{type(error).__name__} while a batch was read") from None


def _one_by_one(schema: Schema, batches: Iterable[ExportedBatch], fail: Callable[..., None] = lambda _: None) -> Any:
    pa = optional("pyarrow")
    exported = _Exported(pa.record_batch, schema, iter(batches), fail)
    return pa.RecordBatchReader.from_batches(pa.schema(schema), exported).__arrow_c_stream__()
