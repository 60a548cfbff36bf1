"""Import of record batches and chunks, one at a time, from an ``ArrowArrayStream`` of the C stream interface.

Invariants:

* the functions of a stream are called without the GIL, as a producer may wait for threads that need it;
* they write into structures allocated by nanoarrow, whose capsules always release them;
* a stream is used by one thread at a time. It is released exactly once: at its end, after an error, when its reader is
  closed, or with its capsule, whichever comes first.
"""

from __future__ import annotations

import ctypes
import errno
import os
import struct
from typing import Any

from shmarrow.capsules import PyCapsule
from shmarrow.chunked import ChunkedArray
from shmarrow.errors import InvalidData, ShmarrowError, StorageError, Unsupported, at, counted, full_name
from shmarrow.interchange.c_data import interrupts
from shmarrow.interchange.c_data.import_array import Importer, batch_at
from shmarrow.interchange.c_data.import_schema import field_at, schema_at, text_of
from shmarrow.interchange.c_data.structs import STREAM, ask, pointer
from shmarrow.optional import optional
from shmarrow.state_machine import CLOSE, SEQUENTIAL, NotCopied, StateMachine
from shmarrow.tables import RecordBatchReader
from shmarrow.types import Schema

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
        native = optional("nanoarrow")
        self._empty = native._schema.CSchema.allocate()
        self._allocate = native._array.CArray.allocate
        self.schema = native._schema.CSchema.allocate()
        """The owner of the schema, whose address is ``schema._addr()``."""
        try:
            self._call(_GET(get_schema), self.schema._addr(), "its schema")
        except ShmarrowError:
            self._release()
            raise

    def _members(self) -> tuple[int, ...]:
        return _STRUCT.unpack(ctypes.string_at(self._address, _STRUCT.size))

    def _call(self, function: Any, address: int, wanted: str) -> None:
        code = function(self._address, address)
        if code:
            interrupts.check()
            found = self._last_error(self._address) if self._last_error is not None else 0
            text = text_of(found or 0).decode(errors="replace") or os.strerror(code)
            interrupts.raise_named(text)
            message = f"{self.what} failed to produce {wanted}: {text}"
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
        made = self._allocate(self._empty)
        try:
            self._call(self._get_next, made._addr(), f"batch {self._count}")
        except BaseException:
            self._release()
            raise
        if not made.is_valid():
            self._release()
            return None
        self._count += 1
        return made

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


class ImportedReader(NotCopied, RecordBatchReader):
    """Reads record batches on demand from another library's stream.

    Attributes
    ----------
    schema : Schema
        The schema of all batches.

    Notes
    -----
    Thread safety: threads may share a reader; each batch goes to one of them. A forked child can only close its copy.
    """

    def __init__(self, stream: CStream) -> None:
        self._stream = stream
        self._importer = Importer()
        try:
            self.schema: Schema = schema_at(stream.schema, stream.schema._addr())
        except ShmarrowError:
            stream.close()
            raise

    def read_next_batch(self) -> Any:
        found = self._stream.next()
        if found is None:
            raise StopIteration
        try:
            return batch_at(found, found._addr(), self.schema, self._importer)
        except BaseException as error:
            self._fail(error)
            raise

    def _fail(self, error: BaseException) -> None:
        self._stream.fail(error)

    def close(self) -> None:
        self._stream.close()

    def __repr__(self) -> str:
        columns = counted(len(self.schema), "column")
        return f"<ImportedReader of {self._stream.what}: {columns}, {self._stream.states.state}>"


# --- entry points -----------------------------------------------------------------------------------------------


def open_c_stream(obj: object, what: str = "") -> RecordBatchReader:
    """Open a reader over the record batches of an object, without requesting any yet.

    Parameters
    ----------
    obj : object
        A capsule named ``arrow_array_stream``, or an object with ``__arrow_c_stream__``.
    what : str
        Its name in error messages; the class of the object by default.

    Raises
    ------
    InvalidType
        If it is neither, or a stream of single columns.
    InvalidData, Unsupported, StorageError
        If the producer fails, with its message.
    MissingExtra
        If nanoarrow is not installed.
    """
    return ImportedReader(_stream(obj, what))


def chunks_from_stream(obj: object, what: str = "") -> ChunkedArray:
    """Read all arrays of a stream as a chunked array; rows become structs.

    Arguments and errors as :func:`open_c_stream`.
    """
    stream = _stream(obj, what)
    try:
        type, importer, chunks = field_at(stream.schema._addr()).type, Importer(), []
        while (found := stream.next()) is not None:
            chunks.append(importer.array(found, found._addr(), type))
    finally:
        stream.close()
    return ChunkedArray(chunks, type)


def _stream(obj: object, what: str) -> CStream:
    what = what or full_name(obj)
    if hasattr(obj, "__arrow_c_stream__"):
        obj = ask(obj, "__arrow_c_stream__")
    return CStream(obj, what)
