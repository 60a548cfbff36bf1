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
from typing import Any

import shmarrow as sa
from shmarrow.cli.command import limits_of
from shmarrow.cli.many import hinting, names_of, scanned
from shmarrow.errors import DEFAULT_LIMITS, Limits, printable, storage_error
from shmarrow.ipc.contents import Contents, contents, expect_arrow
from shmarrow.memory import name_of, open_source, recognized
from shmarrow.memory.formats import OF_PYARROW
from shmarrow.scans.sources import find_one


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
        with hinting(word):
            source = find_one(word, accept_users).map(attach=False)
    else:
        from shmarrow.memory import spooled

        source = open_source(spooled(pipe, stack))
        source.name = name_of(pipe)
    stack.callback(source.close)
    return source


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
    names = names_of(arguments)
    reader = target.rows(f"`shmarrow inspect {word}` shows it")
    return reader if names is None else _Selected(reader, names)


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
