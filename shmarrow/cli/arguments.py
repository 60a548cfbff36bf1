"""Commands and their arguments: each command is a function, declared with the arguments that it takes."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import Any, NamedTuple

from shmarrow.display import parse_size
from shmarrow.errors import Limits

Run = Callable[[argparse.Namespace], int]
Argument = tuple[tuple[str, ...], dict[str, Any]]
"""What ``ArgumentParser.add_argument`` takes."""

_MOST_SECONDS = 1e9
_DECOMPRESSED = 1 << 30


class Declared(NamedTuple):
    """A command: the function that runs it and returns its exit status, its arguments, and the end of its help."""

    run: Run
    arguments: tuple[Argument, ...]
    epilog: str


def argument(*names: str, **options: Any) -> Argument:
    """One argument of a command."""
    return names, options


def command(*arguments: Argument, epilog: str = "") -> Callable[[Run], Declared]:
    """Declare a command with its arguments."""
    return lambda run: Declared(run, arguments, epilog)


# --- values -------------------------------------------------------------------------------------------------------


def whole(least: int, what: str = "a number") -> Callable[[str], int]:
    """A parser of whole numbers from ``least`` on."""

    def parse(text: str) -> int:
        if not text.isascii() or not text.isdecimal() or int(text) < least:
            raise argparse.ArgumentTypeError(f"expected {what} from {least} on, found {text!r}")
        return int(text)

    return parse


def seconds(text: str) -> float:
    """Parse a number of seconds."""
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0 <= value <= _MOST_SECONDS:
        raise argparse.ArgumentTypeError(f"expected seconds from 0 to {_MOST_SECONDS:.0f}, found {text!r}")
    return value


def byte_size(text: str) -> int:
    """Parse a number of bytes with an optional unit."""
    found = parse_size(text)
    if found is None:
        raise argparse.ArgumentTypeError(f"expected bytes, such as 4096, 64K, 100M or 2GiB, found {text!r}")
    return found


# --- what several commands take -----------------------------------------------------------------------------------

JSON = argument("--json", action="store_true", help="print results and errors as JSON")
TRUST = argument("--trust", action="store_true", help="accept a store that other users own or may write to")
COLUMNS = argument("--columns", metavar="A,B", help="only these columns, in this order")
MEMORY = argument(
    "--max-decompressed",
    type=byte_size,
    default=_DECOMPRESSED,
    metavar="SIZE",
    help="refuse a column of a batch, or dictionaries, of more decompressed bytes; default: 1G",
)
OVERWRITE = argument("--overwrite", action="store_true", help="replace what has this name")
PREFIX = argument("--prefix", default="", help="only objects whose names start with PREFIX")


def target(name: str = "target", metavar: str = "TARGET") -> Argument:
    """A TARGET."""
    what = (
        "an Arrow file, stream or tensor: a path, shm:NAME, STORE/NAME (an object of a store), or - for standard input"
    )
    return argument(name, metavar=metavar, help=what)


TARGET = target(), JSON, TRUST
"""The arguments of a command that reads one target."""
TARGETS = (
    target(),
    argument(
        "others",
        nargs="*",
        default=(),
        metavar="TARGET",
        help="more of them: all are read as one table, as are directories and patterns",
    ),
    JSON,
    TRUST,
)
"""The arguments of a command that reads one target, or several as one table."""


def store(number: str | None = None, what: str = "the store: shm:NAME or a directory") -> tuple[Argument, ...]:
    """The arguments of a command on a store."""
    return argument("store", metavar="STORE", nargs=number, help=what), JSON, TRUST


def limits_of(arguments: argparse.Namespace) -> Limits:
    """The limits of readers: those of ``--max-decompressed``."""
    size = max(getattr(arguments, "max_decompressed", _DECOMPRESSED), 1)
    return Limits(decompressed_bytes=size, dictionary_bytes=size)
