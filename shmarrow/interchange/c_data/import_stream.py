"""Record batches and chunks from an ``ArrowArrayStream`` of the C stream interface, one at a time.

Invariants:

* the functions of a stream are called without the GIL, as a producer may wait for threads that need it;
* they write into structures that nanoarrow allocates, whose capsules release them whatever happens;
* one thread at a time uses a stream. It is released at its end, after an error, when its reader is closed, or with its
  capsule, whichever comes first, and only once.
"""

from __future__ import annotations

import ctypes
import errno
import os
import struct
from typing import Any

from shmarrow.chunked import ChunkedArray
from shmarrow.errors import InvalidData, InvalidType, ShmarrowError, StorageError, Unsupported, counted, full_name
from shmarrow.interchange.c_data import interrupts
from shmarrow.interchange.c_data.import_array import Importer, batch_at
from shmarrow.interchange.c_data.import_schema import field_at, schema_at, text_of
from shmarrow.interchange.c_data.structs import STREAM, ask, nanoarrow, pointer
from shmarrow.states import CLOSE, END, ENDED, READ, SEQUENTIAL, NotCopied, StateMachine, Turn
from shmarrow.tables import RecordBatchReader
from shmarrow.types import Schema

_STRUCT = struct.Struct("<5Q")
_GET = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p)
_LAST_ERROR = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p)
_RELEASE = ctypes.CFUNCTYPE(None, ctypes.c_void_p)
assert _STRUCT.size == STREAM.itemsize

_ERRORS: dict[int, type[ShmarrowError]] = {errno.EINVAL: InvalidData, errno.ENOSYS: Unsupported}
"""The errors for what a producer says; any other number of it is one of the operating system."""


class CStream:
    """The functions of an ``ArrowArrayStream`` in its capsule.

    Parameters
    ----------
    capsule : PyCapsule
        Named ``arrow_array_stream``; nobody else may use it.
    what : str
        The producer, for error messages.

    Notes
    -----
    Thread safety: threads may share a stream; each array goes to one of them. A forked child can only close its copy.
    """

    def __init__(self, capsule: Any, what: str) -> None:
        try:
            self._address = pointer(capsule, "arrow_array_stream")
        except InvalidType as error:
            raise InvalidType(f"{what} does not give an Arrow array: {error}") from None
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
        self._turn = Turn(f"the stream of {what}")
        native = nanoarrow()
        self._empty = native._schema.CSchema.allocate()
        self._allocate = native._array.CArray.allocate
        self.schema = native._schema.CSchema.allocate()
        """What keeps the schema; its address is ``schema._addr()``."""
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
        """What keeps the next array, at the address ``_addr()``; None at the end.

        Raises
        ------
        InvalidData, Unsupported, StorageError
            If the producer fails, with its message. The stream cannot go on then.
        Closed, Failed
            After that, or after :meth:`close`.
        """
        self.states.go(READ)
        with self._turn:
            self.states.go(READ)  # another thread may have closed it in the meantime, or failed
            if self.states.state == ENDED:
                return None
            made = self._allocate(self._empty)
            try:
                self._call(self._get_next, made._addr(), f"batch {self._count}")
            except BaseException as error:
                self.states.fail(error)
                self._release()
                raise
            if not made.is_valid():
                self.states.go(END)
                self._release()
                return None
            self._count += 1
            return made

    def fail(self, error: BaseException) -> None:
        """Note that something that the stream gave cannot be used, so that no later call goes on without it."""
        with self._turn:
            self.states.fail(error)
            self._release()

    def close(self) -> None:
        """Release the stream, after the call that another thread is in; arrays that were handed out stay."""
        if self.states.inherited:  # the producer's threads are not there
            self.states.go(CLOSE)
            return
        with self._turn:
            self.states.go(CLOSE)
            self._release()

    def _release(self) -> None:
        release = self._members()[3]
        if release:
            _RELEASE(release)(self._address)


class ImportedReader(NotCopied, RecordBatchReader):
    """Reads record batches from the stream of another library, each when it is asked for.

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


# --- what others call -------------------------------------------------------------------------------------------


def open_c_stream(obj: Any, what: str = "") -> RecordBatchReader:
    """A reader of the record batches of an object, none of which is asked for yet.

    Parameters
    ----------
    obj : object
        A capsule named ``arrow_array_stream``, or an object with ``__arrow_c_stream__``.
    what : str
        What it is, for error messages; the class of the object by default.

    Raises
    ------
    InvalidType
        If it is nothing of the kind, or its stream is one of single columns.
    InvalidData, Unsupported, StorageError
        If the producer fails, with its message.
    MissingExtra
        If nanoarrow is not installed.
    """
    return ImportedReader(_stream(obj, what))


def chunks_from_stream(obj: Any, what: str = "") -> ChunkedArray:
    """All arrays of a stream as the chunks of one column; rows of several columns are structs.

    The arguments and errors are those of :func:`open_c_stream`.
    """
    stream = _stream(obj, what)
    try:
        type, importer, chunks = field_at(stream.schema._addr()).type, Importer(), []
        while (found := stream.next()) is not None:
            chunks.append(importer.array(found, found._addr(), type))
    finally:
        stream.close()
    return ChunkedArray(chunks, type)


def _stream(obj: Any, what: str) -> CStream:
    what = what or full_name(obj)
    if hasattr(obj, "__arrow_c_stream__"):
        obj = ask(obj, "__arrow_c_stream__")
    return CStream(obj, what)
