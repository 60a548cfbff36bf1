# SPDX-License-Identifier: Apache-2.0
"""The command line, ``shmarrow``: each command is one row of :data:`COMMANDS`.

Invariants:

* a command's module adds its arguments to a parser and runs it; only the module of the command that is run is imported,
  so that no command waits for the imports of another;
* results go to standard output; progress and errors to standard error, with ``--json`` each error as one JSON object;
* the exit status is the command's own; after one of our errors, which is printed as one line without a traceback, that
  of :func:`shmarrow.cli.command.exit_status`; 0 if the reader of a pipe has closed it.
"""

from __future__ import annotations

import argparse
import errno
import importlib
import os
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any, NamedTuple, NoReturn

import shmarrow
from shmarrow.cli.command import USAGE, Declared, Interrupted, Run, WrongUsage, print_error
from shmarrow.errors import ShmarrowError, printable, storage_error

FILES = "files, streams, tensors and objects of stores"
STORES = "stores"
_OPTIONS = ("--help", "--version")
OTHERS = "others"
_NO_OUTPUT = "redirect it to /dev/null to discard it"


class Command(NamedTuple):
    """One command: its name, which is also that of its function; the module with that; group and line in the help."""

    name: str
    module: str
    group: str
    help: str


COMMANDS = (
    Command("inspect", "inspect", FILES, "describe an object: schema, rows, nulls, sizes, compression, alignment"),
    Command("validate", "validate", FILES, "check the structure, or with --full the values too, and list all problems"),
    Command("xray", "xray", FILES, "explain every byte"),
    Command("schema", "schemas", FILES, "print the names and types of the columns"),
    Command("head", "rows", FILES, "print the first rows"),
    Command("cat", "rows", FILES, "print all rows"),
    Command("count", "rows", FILES, "print the number of rows"),
    Command("diff", "diff", FILES, "compare the schemas, row counts and values of two files"),
    Command("convert", "convert", FILES, "convert to another file format"),
    Command("names", "objects", STORES, "list the objects of a store, or the stores in shared memory"),
    Command("info", "objects", STORES, "print what the store knows of an object, such as its age; or describe a ring"),
    Command("put", "objects", STORES, "add a file to a store"),
    Command("get", "objects", STORES, "copy an object to a file"),
    Command("delete", "objects", STORES, "delete objects"),
    Command("wait", "objects", STORES, "wait until objects exist"),
    Command("watch", "stores", STORES, "print objects as they are published and deleted"),
    Command("stats", "stores", STORES, "show the size, free space, settings and attached processes of a store"),
    Command("evict", "stores", STORES, "evict the least recently used objects that no process has attached"),
    Command("collect", "stores", STORES, "delete orphaned and expired objects, and what killed writers left behind"),
    Command("rescue", "stores", STORES, "copy the objects of a damaged store into another one"),
    Command("destroy", "stores", STORES, "delete a store and all its objects"),
    Command("top", "top", STORES, "show the stores and rings of this host, refreshed every second"),
    Command("integration", "integration", OTHERS, "run the commands of Arrow's integration tests"),
    Command("completion", "completion", OTHERS, "print the completion script for a shell"),
)


HABITS = {
    "head": "tail",
    "inspect": "show meta metadata describe",
    "count": "rowcount wc",
    "validate": "check",
    "names": "ls list store",
    "delete": "rm",
    "collect": "gc",
    "put": "add cp",
    "--version": "version -V -v",
}
"""For each command the words that other tools have for it."""


class _Parser(argparse.ArgumentParser):
    """A parser that reports usage errors as JSON if the command line has ``--json``."""

    as_json = False

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        """Parse all words; a command refuses those it does not know, with its own usage."""
        found, others = super().parse_known_args(args, namespace)
        if others:
            self.error(f"unrecognized arguments: {' '.join(others)}")
        return found, others

    def error(self, message: str) -> NoReturn:
        if not self.as_json:
            super().error(printable(message))
        sys.exit(print_error(WrongUsage(message), True))


def parser(words: Sequence[str], completed: Mapping[str, Any] | None = None) -> argparse.ArgumentParser:
    """Build the parser for a command line.

    Parameters
    ----------
    words : sequence of str
        The command line. Only the command that it begins with is imported, and only its parser is made.
    completed : mapping of str to object, optional
        Import all commands, for shtab; by the names of arguments how they are completed.
    """
    whole = completed is not None
    made = _Parser(
        "shmarrow",
        usage="shmarrow [-h] [--version] COMMAND ...",
        description="A memory-mapped, shared-memory Arrow store, and tools for Arrow files.",
        epilog=_listing(),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    made.as_json = _as_json(words)
    made.add_argument("--version", action="version", version=f"shmarrow {shmarrow.__version__}")
    commands = made.add_subparsers(
        metavar="COMMAND", required=True, prog="shmarrow", help=None if whole else argparse.SUPPRESS
    )
    for command in [each for each in COMMANDS if each.name in words[:1] and not whole] or COMMANDS:
        description = f"{command.help[0].upper()}{command.help[1:]}."
        listed: dict[str, Any] = {"help": command.help} if whole else {}  # the epilog lists them, in groups
        sub = commands.add_parser(
            command.name, description=description, formatter_class=argparse.RawDescriptionHelpFormatter, **listed
        )
        sub.as_json = made.as_json
        if whole or command.name in words:
            declared: Declared = getattr(importlib.import_module(f"shmarrow.cli.{command.module}"), command.name)
            for names, options in declared.arguments:
                action = sub.add_argument(*names, **options)
                if completed and names[0] in completed:
                    action.complete = completed[names[0]]  # type: ignore[attr-defined]
            sub.epilog = declared.epilog
            sub.set_defaults(run=declared.run)
    return made


def _listing() -> str:
    """All commands by group, for ``--help``."""
    lines = []
    for group in (FILES, STORES, OTHERS):
        lines += [f"{group}:", *[f"  {each.name:12} {each.help}" for each in COMMANDS if each.group == group], ""]
    return "\n".join([*lines, "`shmarrow COMMAND --help` describes a command and its options."])


def _refuse_unknown(words: Sequence[str]) -> None:
    """Reject an unknown command or option in its place, with a suggestion.

    Raises
    ------
    WrongUsage
        If the first word is neither a command nor ``--help`` or ``--version``, or the start of one of these.
    """
    names = [command.name for command in COMMANDS]
    first = words[0]
    if first in (*names, "-h", "--json") or any(each.startswith(first) and len(first) > 2 for each in _OPTIONS):
        return
    close = [name for name, words in HABITS.items() if first in words.split()]
    if not close:
        from difflib import get_close_matches

        close = get_close_matches(first, [*names, *_OPTIONS], n=1)
    hint = f"did you mean {close[0]!r}?" if close else "`shmarrow --help` lists the commands"
    what = "no command is named"
    if first.startswith("-"):
        what = "unknown option"
        if any(word in names for word in words[1:]):
            what = "expected COMMAND before its options, found"
    raise WrongUsage(f"{what} {first!r}", hint=hint)


def _as_json(words: Sequence[str]) -> bool:
    """Whether to print JSON; the option ``--json`` of ``integration`` takes a file."""
    return "--json" in words and words[0] != "integration"


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and return its exit status.

    Parameters
    ----------
    argv : sequence of str, optional
        The arguments; default: those of the process.
    """
    words = list(sys.argv[1:] if argv is None else argv)
    if words[:1] == ["--json"]:  # an option of the commands
        words = [*words[1:], "--json"]
    if words[:1] == ["help"]:
        words = [*words[1:2], "--help"]
    for file in (sys.stdout, sys.stderr):
        with suppress(AttributeError, ValueError):  # print any name in any encoding
            file.reconfigure(errors="backslashreplace")  # type: ignore[union-attr]
    if sys.stdout is None:  # closed, as by `>&-`; the next file that is opened would get its descriptor
        closed = storage_error(OSError(errno.EBADF, "it is closed"), "write to", "standard output", _NO_OUTPUT)
        return print_error(closed, _as_json(words))
    if not words:
        parser(words).print_help(sys.stderr)
        return USAGE
    try:
        status = _run(words)
        if sys.stdout is not None:
            sys.stdout.flush()
        return status
    except BrokenPipeError:
        # The reader of our output, such as `head`, has seen enough; Python would fail again when it flushes.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except OSError as error:
        status = print_error(storage_error(error, "write to", "standard output"), _as_json(words))
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return status


def _run(words: Sequence[str]) -> int:
    """Run one command; of its errors, return the exit status."""
    try:
        _refuse_unknown(words)
        arguments = parser(words).parse_args(words)
        run: Run = arguments.run
        return run(arguments)
    except ShmarrowError as error:
        return print_error(error, _as_json(words))
    except KeyboardInterrupt:
        return print_error(Interrupted("interrupted"), _as_json(words))
