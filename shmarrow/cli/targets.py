"""The TARGET of the commands that look into Arrow data: a file, a stream, a tensor, an object of a store, a pipe.

Invariants:

* a path or a name is mapped; a pipe is read in order where a command needs no more than its batches, and otherwise goes
  through a temporary file;
* what is not Arrow's is recognized by its first bytes, and the error says what reads or converts it.
"""

from __future__ import annotations

import argparse
import errno
import glob
import os
import shlex
import stat
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from importlib.util import find_spec
from typing import Any, NamedTuple

import shmarrow as sa
from shmarrow.buffer import Bytes
from shmarrow.cli.arguments import limits_of
from shmarrow.cli.report import WrongUsage
from shmarrow.errors import Limits, printable, storage_error
from shmarrow.ipc.file.footer import MAGIC
from shmarrow.ipc.file.reader import RecordBatchFileReader
from shmarrow.ipc.message.decode import message_at
from shmarrow.segment import SHM_DIRECTORY, SHM_SCHEME
from shmarrow.sources import open_source
from shmarrow.sources.base import name_of
from shmarrow.sources.formats import HEAD, recognized

ROWS = ("file", "stream", "other rows")
_CONVERTED = ("a Parquet file", "an ORC file", "text, such as CSV", "JSON text", "a safetensors file")
"""Formats that ``shmarrow convert`` reads, as :func:`shmarrow.sources.formats.recognized` names them."""
_TEXTS = {".csv": "text, such as CSV", ".jsonl": "JSON text", ".ndjson": "JSON text"}
"""Names of text formats by suffix, for text of one column, which has no separators to recognize it by."""


class Target(NamedTuple):
    """The data that a command reads.

    Attributes
    ----------
    name : str
        What messages call it.
    kind : str
        ``"file"``, ``"stream"``, ``"tensor"``, ``"sparse tensor"`` or ``"bundle"``; ``"other rows"`` for a file of
        another format, such as Parquet, whose rows pyarrow reads.
    source : object
        What readers take: a source of mapped bytes, a pipe, or the path of another format's file.
    data : uint8 ndarray or None
        All bytes; None for what is read in order.
    """

    name: str
    kind: str
    source: Any
    data: Any


@contextmanager
def open_bytes(word: str, trust: bool = False) -> Iterator[Any]:
    """A source with all bytes of a target; standard input goes through a temporary file.

    Raises
    ------
    ObjectNotFound
        If there is nothing of this name.
    InvalidData
        If the bytes are recognized as those of another format.
    """
    with ExitStack() as stack:
        yield _source(word, trust, pipe_in(word, stack), stack)


@contextmanager
def open_target(word: str, trust: bool = False, in_order: bool = False) -> Iterator[Target]:
    """A target, and what kind of data it is.

    Parameters
    ----------
    word : str
        The argument of the command.
    trust : bool
        Accept a store of other users.
    in_order : bool
        Whether a pipe may be read batch by batch.

    Raises
    ------
    InvalidData
        If the bytes are not Arrow's.
    """
    with ExitStack() as stack:
        pipe = pipe_in(word, stack)
        if pipe is not None and in_order:
            from shmarrow.sources.pipes import opened

            found = opened(pipe)
            pipe, name = found.file, found.name
            if found.head and not found.head.startswith(MAGIC):
                _refuse(name, found.head)
                yield Target(name, "stream", pipe, None)
                return
        if in_order and pipe is None and _has_other_rows(word):
            yield Target(word, "other rows", word, None)
            return
        source = _source(word, trust, pipe, stack)
        yield Target(source.name, kind_of(source.data, source.name), source, source.data)


def _has_other_rows(word: str) -> bool:
    """Whether a target is a file of rows of another format, and pyarrow is here, which reads these."""
    if not os.path.isfile(word) or not find_spec("pyarrow"):
        return False
    with open(word, "rb") as file:
        what, _ = recognized(file.read(HEAD))
    suffix = os.path.splitext(word)[1].lower()
    return what in ("a Parquet file", "an ORC file") or (what.startswith(("text", "JSON text")) and suffix in _TEXTS)


def _source(word: str, trust: bool, pipe: Any, stack: ExitStack) -> Any:
    """The source of a target, or of a pipe."""
    if pipe is None:
        source = _located(word, trust)
    else:
        from shmarrow.sources.pipes import spooled

        source = open_source(spooled(pipe, stack))
        source.name = name_of(pipe)
    stack.callback(source.close)
    refuse_others(source.name, source.data)
    return source


def _located(word: str, trust: bool) -> Any:
    """The source of a path or a name; errors tell how to name objects of a store."""
    from shmarrow.xray import target

    try:
        return target.open_target(word, trust)
    except (sa.StorageError, sa.InvalidArgument) as error:
        from shmarrow.store.protocol import CONTROL

        path = word.replace(SHM_SCHEME, f"{SHM_DIRECTORY}/", 1) if word.startswith(SHM_SCHEME) else word
        if os.path.isfile(f"{path}/{CONTROL}"):
            where = word.rstrip("/")
            error.hint = f"{where} is a store: `shmarrow names {where}` lists its objects, {where}/NAME is one of them"
        elif path == word and word[:1] not in "./~" and os.path.exists(f"{SHM_DIRECTORY}/{word.partition('/')[0]}"):
            error.hint = f"did you mean {SHM_SCHEME + word!r}?"
        raise


def pipe_in(word: str, stack: ExitStack) -> Any:
    """The binary file object of ``-``, a pipe or a device; None for what can be mapped."""
    return _standard("stdin") if word == "-" else _pipe(word, "rb", stack)


def pipe_out(word: str, stack: ExitStack) -> Any:
    """The binary file object of ``-``, a pipe or a device; None for what is published as a whole."""
    return _standard("stdout") if word == "-" else _pipe(word, "wb", stack)


def _standard(name: str) -> Any:
    file = getattr(sys, name)
    if file is None:
        raise storage_error(OSError(errno.EBADF, "it is closed"), "use", f"standard {name.removeprefix('std')}put")
    return file.buffer


def _pipe(word: str, mode: str, stack: ExitStack) -> Any:
    if word.startswith("shm:"):
        return None
    try:
        kind = os.stat(word).st_mode
    except (OSError, ValueError):
        return None
    if stat.S_ISREG(kind) or stat.S_ISDIR(kind):
        return None
    try:
        return stack.enter_context(open(word, mode, buffering=0))
    except OSError as error:
        raise storage_error(error, "open", word) from None


def kind_of(data: Bytes, name: str) -> str:
    """Determine the kind of Arrow data.

    Raises
    ------
    InvalidData
        If they are none.
    """
    if data[: len(MAGIC)].tobytes() == MAGIC:
        return "bundle" if _is_bundle(data) else "file"
    found = message_at(data, 0, name)
    kind = "" if found is None else found.message.kind
    return {"Tensor": "tensor", "SparseTensor": "sparse tensor"}.get(kind, "stream")


def _is_bundle(data: Bytes) -> bool:
    from shmarrow.ipc.tensor import BUNDLE_KEY

    try:
        with sa.ipc.open_file(data) as reader:
            return BUNDLE_KEY in (reader.metadata or {})
    except sa.ShmarrowError:
        return False  # whoever reads the file says what is wrong with it


def refuse_others(name: str, data: Bytes) -> None:
    """Refuse bytes that are not Arrow's where their format is recognized; the error says what reads it."""
    head = data[:HEAD].tobytes()
    if not head:
        raise sa.InvalidData(f"{name} is empty: expected an Arrow file, a stream or a tensor")
    if not head.startswith(MAGIC):
        _refuse(name, head)


def _refuse(name: str, head: bytes) -> None:
    what, hint = recognized(head)
    if not what or head[:4] == b"\xff\xff\xff\xff":
        return
    suffix = os.path.splitext(name)[1].lower()
    if what == "text" and suffix in _TEXTS:
        what = _TEXTS[suffix]
    if what.startswith(_CONVERTED):
        source = "-" if name == "standard input" else shlex.quote(name)
        missing = "" if what == "a safetensors file" or find_spec("pyarrow") else " (needs shmarrow[arrow])"
        hint = f"`shmarrow convert {source} OUT.arrow` makes it an Arrow file{missing}"
    raise sa.InvalidData(f"expected Arrow data, found {what}", where=[(name,)], hint=hint)


# --- rows ---------------------------------------------------------------------------------------------------------


def scanned(arguments: argparse.Namespace, word: str) -> Any:
    """A scan of several targets, a directory, a pattern or objects of a store; None for one file or object."""
    others = getattr(arguments, "others", ())  # of commands that take one target
    path = word.replace(SHM_SCHEME, f"{SHM_DIRECTORY}/", 1) if word.startswith(SHM_SCHEME) else word
    if os.path.isdir(path):
        from shmarrow.store.protocol import CONTROL

        is_many = not os.path.isfile(f"{path}/{CONTROL}")
    else:
        is_many = glob.has_magic(path) and not os.path.lexists(path)
    if not (is_many or others):
        return None
    names = _names(arguments)
    return sa.scan([word, *others], columns=names, limits=limits_of(arguments), trust=arguments.trust)


@contextmanager
def open_rows(arguments: argparse.Namespace, word: str, in_order: bool = False) -> Iterator[tuple[str, Any]]:
    """The name of a target, and a reader of its batches; errors are those of :func:`open_target`, :func:`rows_of`."""
    many = scanned(arguments, word)
    if many is not None:
        yield word, many
        return
    with open_target(word, arguments.trust, in_order) as target, rows_of(arguments, word, target) as reader:
        yield target.name, reader


@contextmanager
def rows_of(arguments: argparse.Namespace, word: str, target: Target) -> Iterator[Any]:
    """A reader of the batches, with the columns that ``--columns`` names.

    Raises
    ------
    InvalidData
        If the target holds no rows.
    FieldNotFound
        If a column is not there.
    """
    names = _names(arguments)
    if target.kind not in ROWS:
        raise sa.InvalidData(f"{target.name} is a {target.kind}, which has no rows; `shmarrow inspect {word}` shows it")
    with open_reader(target, limits_of(arguments)) as reader:
        yield reader if names is None else _Selected(reader, names)
        if target.kind == "stream" and reader.bytes_follow():
            text = "bytes follow the end of the stream, perhaps a second one, and were not read"
            print(f"shmarrow: note: {printable(target.name)}: {text}", file=sys.stderr)


def _names(arguments: argparse.Namespace) -> list[str] | None:
    """The names of ``--columns``."""
    columns = getattr(arguments, "columns", None)
    names = None if columns is None else columns.split(",")
    if names is not None and "" in names:
        raise WrongUsage(f"--columns expects names separated by commas, found {columns!r}")
    return names


def open_reader(target: Target, limits: Limits) -> Any:
    """The reader of a file or a stream."""
    if target.kind == "file":
        return RecordBatchFileReader(target.source, limits)
    if target.kind == "other rows":
        from shmarrow.interchange.convert import open_rows

        return open_rows(target.source)
    if target.data is None:
        return sa.ipc.open_stream(target.source, limits=limits)
    from shmarrow.ipc.stream.reader import MappedStreamReader

    return MappedStreamReader(target.source, limits)


class _Selected:
    """A reader with some of the columns, in the order they were asked for."""

    def __init__(self, reader: Any, names: Sequence[str]) -> None:
        self._reader = reader
        self._indices = [reader.schema.index_of(name) for name in names]
        self.schema = sa.schema([reader.schema.field(i) for i in self._indices])

    @property
    def num_rows(self) -> int:
        return int(self._reader.num_rows)

    def get_batch(self, number: int) -> Any:
        return self._reader.get_batch(number).select(self._indices)

    def __iter__(self) -> Iterator[Any]:
        for batch in self._reader:
            yield batch.select(self._indices)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._reader, name)
