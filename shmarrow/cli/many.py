# SPDX-License-Identifier: Apache-2.0
"""What several words lead to, or one that is a directory, a store or a pattern: sources that commands look into."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

import shmarrow as sa
from shmarrow.cli.command import WrongUsage, limits_of, progress_line
from shmarrow.errors import printable
from shmarrow.memory import SHM_DIRECTORY, SHM_SCHEME
from shmarrow.scans.sources import Fragment, find, has_store, is_exact_name, open_fragment, without_others


@contextmanager
def hinting(word: str) -> Iterator[None]:
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


def many_sources(arguments: argparse.Namespace, word: str) -> list[Fragment] | None:
    """What several targets, a directory, a store, a pattern or objects of a store lead to; None for one file."""
    words = [word, *getattr(arguments, "others", ())]  # diff takes one
    if words == ["-"]:
        return None
    with hinting(word):
        parts = [without_others(each, find(each, None, arguments.accept_users))[0] for each in words]
    fragments = [fragment for part in parts for fragment in part]
    return None if is_exact_name(word, fragments) else fragments


def scanned(arguments: argparse.Namespace, word: str) -> Any:
    """A scan of what :func:`many_sources` finds; None for one file or object."""
    fragments = many_sources(arguments, word)
    return None if fragments is None else scan_of(arguments, fragments)


def scan_of(arguments: argparse.Namespace, fragments: Sequence[Fragment]) -> Any:
    """A scan of sources, with the columns that ``--columns`` names."""
    from shmarrow.scans.one_table import Scan

    scan = Scan(fragments, None, limits_of(arguments))
    names = names_of(arguments)
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


def names_of(arguments: argparse.Namespace) -> list[str] | None:
    """The names of ``--columns``."""
    columns = getattr(arguments, "columns", None)
    names = None if columns is None else columns.split(",")
    if names is not None and "" in names:
        raise WrongUsage(f"--columns expects names separated by commas, found {columns!r}")
    return names
