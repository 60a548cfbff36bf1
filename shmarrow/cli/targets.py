# SPDX-License-Identifier: Apache-2.0
"""The TARGET of the commands that look into Arrow data: a file, a stream, a tensor, an object of a store, a pipe.

Invariants:

* a path or a name is mapped; a pipe is read in order where a command needs no more than its batches, and otherwise goes
  through a temporary file;
* what is not Arrow's is recognized by its first bytes, and the error says what reads or converts it.
"""

from __future__ import annotations

import argparse
import errno
import os
import stat
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any, NamedTuple

import shmarrow as sa
from shmarrow.cli.command import WrongUsage, limits_of, progress_line
from shmarrow.errors import DEFAULT_LIMITS, Limits, printable, storage_error
from shmarrow.ipc.contents import Contents, contents, expect_arrow
from shmarrow.memory import SHM_DIRECTORY, SHM_SCHEME, name_of, open_source, recognized
from shmarrow.memory.formats import OF_PYARROW
from shmarrow.scans.sources import (
    Fragment,
    find,
    has_store,
    leads_to_one,
    open_fragment,
    the_one,
    without_others,
)

ROWS = ("file", "stream", "other rows")


@contextmanager
def open_bytes(word: str, accept_users: bool = False) -> Iterator[Any]:
    """A source with all bytes of a target; standard input goes through a temporary file.

    Raises
    ------
    ObjectNotFound
        If there is nothing of this name.
    """
    with ExitStack() as stack:
        yield _source(word, accept_users, pipe_in(word, stack), stack)


@contextmanager
def open_target(
    word: str,
    accept_users: bool = False,
    in_order: bool = False,
    limits: Limits = DEFAULT_LIMITS,
    foreign: bool = False,
) -> Iterator[Contents]:
    """A target, and what kind of data it is.

    Parameters
    ----------
    word : str
        The argument of the command.
    accept_users : bool
        Accept a store of other users.
    in_order : bool
        Whether its rows are read in order: a pipe batch by batch, and other formats by pyarrow.
    limits : Limits
        Bounds on what is accepted.
    foreign : bool
        Whether other formats are read anyway.

    Raises
    ------
    InvalidData
        If the bytes are not Arrow's.
    """
    with ExitStack() as stack:
        pipe = pipe_in(word, stack)
        if pipe is not None and in_order:
            from shmarrow.memory.pipes import opened

            name, head, _, pipe = opened(pipe)
            if recognized(head).kind != "arrow":
                expect_arrow(head, name)
                reader = stack.enter_context(sa.ipc.open_stream(pipe, limits=limits))
                yield Contents(name, "stream", reader)
                _note_rest(name, reader)
                return
        source = _source(word, accept_users, pipe, stack)
        if (in_order or foreign) and pipe is None and recognized(source.data, word).kind in OF_PYARROW:
            from shmarrow.interchange.convert import open_rows

            yield Contents(word, "other rows", stack.enter_context(open_rows(word)))
            return
        found = contents(source, limits)
        yield found
        if found.kind == "stream" and in_order:
            _note_rest(found.name, found.content)


def _note_rest(name: str, reader: Any) -> None:
    if reader.bytes_follow():
        text = "bytes follow the end of the stream, perhaps a second one, and were not read"
        print(f"shmarrow: note: {printable(name)}: {text}", file=sys.stderr)


def _source(word: str, accept_users: bool, pipe: Any, stack: ExitStack) -> Any:
    """The source of a target, or of a pipe."""
    if pipe is None:
        with _hints(word):
            source = the_one(word, accept_users).map(attach=False)
    else:
        from shmarrow.memory import spooled

        source = open_source(spooled(pipe, stack))
        source.name = name_of(pipe)
    stack.callback(source.close)
    return source


@contextmanager
def _hints(word: str) -> Iterator[None]:
    """Errors in the block tell how to name a shared object, or those of a store."""
    try:
        yield
    except (sa.StorageError, sa.InvalidArgument) as error:
        path = word.replace(SHM_SCHEME, f"{SHM_DIRECTORY}/", 1) if word.startswith(SHM_SCHEME) else word
        if has_store(path):
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


# --- rows ---------------------------------------------------------------------------------------------------------


def many_sources(arguments: argparse.Namespace, word: str) -> list[Fragment] | None:
    """What several targets, a directory, a store, a pattern or objects of a store lead to; None for one file."""
    words = [word, *getattr(arguments, "others", ())]  # diff takes one
    if words == ["-"]:
        return None
    with _hints(word):
        parts = [without_others(each, find(each, None, arguments.accept_users))[0] for each in words]
    fragments = [fragment for part in parts for fragment in part]
    return None if leads_to_one(word, fragments) else fragments


def scanned(arguments: argparse.Namespace, word: str) -> Any:
    """A scan of what :func:`many_sources` finds; None for one file or object."""
    fragments = many_sources(arguments, word)
    return None if fragments is None else scan_of(arguments, fragments)


def scan_of(arguments: argparse.Namespace, fragments: Sequence[Fragment]) -> Any:
    """A scan of sources, with the columns that ``--columns`` names."""
    from shmarrow.scans.one_table import Scan

    scan = Scan(fragments, None, limits_of(arguments))
    names = _names(arguments)
    return scan if names is None else scan.select(names)


class Surveyed(NamedTuple):
    """One of many sources: what it holds, or what is wrong with it.

    Attributes
    ----------
    source : str
        Its name.
    rows, batches, nbytes : int
        The numbers of its rows and batches, and its size.
    schema : Schema or None
        Its columns.
    problem : ShmarrowError or None
        Why it cannot be read.
    """

    source: str
    rows: int = 0
    batches: int = 0
    nbytes: int = 0
    schema: Any = None
    problem: sa.ShmarrowError | None = None


def survey(arguments: argparse.Namespace, fragments: Sequence[Fragment]) -> list[Surveyed]:
    """Look into each of many sources, as far as its metadata go; one that cannot be read does not end it."""
    surveyed = []
    with progress_line(f"reading {printable(arguments.target)}: source", len(fragments)) as progress:
        for number, fragment in enumerate(fragments):
            progress(number)
            try:
                reader = open_fragment(fragment, limits_of(arguments))
                size = len(reader._source.data)
                surveyed.append(
                    Surveyed(str(fragment), reader.num_rows, reader.num_record_batches, size, reader.schema)
                )
            except sa.ShmarrowError as error:
                surveyed.append(Surveyed(str(fragment), problem=error))
    return surveyed


def named(source: str, problem: sa.ShmarrowError) -> str:
    """A problem with the name of its source."""
    text = problem.problem if problem.problem.startswith(source) else f"{source}: {problem.problem}"
    return text if problem.hint is None else f"{text}; {problem.hint}"


def report(arguments: argparse.Namespace, surveyed: Sequence[Surveyed]) -> tuple[list[dict[str, str]], int]:
    """Print the problems of sources to standard error, unless as JSON; returns them for that, and the exit status."""
    problems = [(each.source, each.problem) for each in surveyed if each.problem is not None]
    for source, problem in [] if arguments.json else problems:
        print(f"shmarrow: {printable(named(source, problem))}", file=sys.stderr)
    return [{"source": source, "message": problem.problem} for source, problem in problems], int(bool(problems))


@contextmanager
def open_rows(
    arguments: argparse.Namespace, word: str, in_order: bool = False, foreign: bool = False
) -> Iterator[tuple[str, Any]]:
    """The name of a target, and a reader of its batches; errors are those of :func:`open_target`, :func:`rows_of`."""
    many = scanned(arguments, word)
    if many is not None:
        yield word, many
        return
    with open_target(word, arguments.accept_users, in_order, limits_of(arguments), foreign) as target:
        yield target.name, rows_of(arguments, word, target)


def rows_of(arguments: argparse.Namespace, word: str, target: Contents) -> Any:
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
    return target.content if names is None else _Selected(target.content, names)


def _names(arguments: argparse.Namespace) -> list[str] | None:
    """The names of ``--columns``."""
    columns = getattr(arguments, "columns", None)
    names = None if columns is None else columns.split(",")
    if names is not None and "" in names:
        raise WrongUsage(f"--columns expects names separated by commas, found {columns!r}")
    return names


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
