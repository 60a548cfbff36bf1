"""The command line, ``shmarrow``: each command is one row of :data:`COMMANDS`.

Invariants:

* a command's module adds its arguments to a parser and runs it; only the module of the command that is run is imported,
  so that no command waits for the imports of another;
* results go to standard output; progress and errors to standard error, with ``--json`` each error as one JSON object;
* the exit status is the command's own; after one of our errors, which is printed as one line without a traceback, that
  of :func:`shmarrow.cli.report.exit_status`; 0 if the reader of a pipe has closed it.
"""

from __future__ import annotations

import argparse
import errno
import importlib
import os
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any, NamedTuple, NoReturn

import shmarrow
from shmarrow.cli.report import INTERRUPTED, USAGE, Interrupted, WrongUsage, exit_status, print_error
from shmarrow.errors import ShmarrowError, printable, storage_error

FILES = "files, streams, tensors and objects of stores"
STORES = "stores"
_OPTIONS = ("--help", "--version")
OTHERS = "others"
_NO_OUTPUT = "redirect it to /dev/null to discard it"


class Command(NamedTuple):
    """One command: name, one-line help, module, the functions that add its arguments and run it, group in the help."""

    name: str
    help: str
    module: str
    arguments: str = "add_arguments"
    run: str = "run"
    group: str = OTHERS


def _of_data(name: str, help: str, module: str = "cli.rows") -> Command:
    return Command(name, help, module, f"{name}_arguments", name, FILES)


def _of_store(name: str, help: str, module: str = "cli.store") -> Command:
    return Command(name, help, module, f"{name}_arguments", name, STORES)


COMMANDS = (
    _of_data("inspect", "describe an object: schema, rows, nulls, sizes, compression, alignment", "cli.inspect"),
    _of_data("validate", "check the structure, or with --full the values too, and list all problems", "cli.validate"),
    Command("xray", "explain every byte", "cli.xray", group=FILES),
    _of_data("schema", "print the names and types of the columns"),
    _of_data("head", "print the first rows"),
    _of_data("sample", "print random rows"),
    _of_data("cat", "print all rows"),
    _of_data("count", "print the number of rows"),
    _of_data("diff", "compare the schemas, row counts and values of two files", "cli.diff"),
    Command("convert", "convert to another file format", "cli.convert", group=FILES),
    _of_store("names", "list the objects of a store, or the stores in shared memory"),
    _of_store("info", "print what the store knows of an object: size, age, owner, pins; or describe a ring"),
    _of_store("put", "add a file to a store"),
    _of_store("get", "copy an object to a file"),
    _of_store("delete", "delete objects"),
    _of_store("wait", "wait until objects exist"),
    _of_store("watch", "print objects as they are published and deleted", "cli.stores"),
    _of_store("stats", "show the size, free space, settings and attached processes of a store", "cli.stores"),
    _of_store("evict", "evict the least recently used objects that no process has attached", "cli.stores"),
    _of_store("collect", "delete orphaned and expired objects, and what killed writers left behind", "cli.stores"),
    _of_store("rebuild", "rebuild the catalog of a store that was found damaged", "cli.stores"),
    _of_store("destroy", "delete a store and all its objects", "cli.stores"),
    Command("top", "show the stores and rings of this host, refreshed every second", "cli.top", group=STORES),
    Command("demo", "share a real data set between Spark's workers and other processes", "cli.demo"),
    Command("integration", "run the commands of Arrow's integration tests", "cli.integration"),
    Command("completion", "print the completion script for a shell", "cli.completion"),
)


HABITS = {
    "tail": "`shmarrow head` prints the first rows, `shmarrow sample` random ones",
    "show": "`shmarrow inspect` describes an object, `shmarrow head` prints its rows",
    "meta": "`shmarrow inspect` describes an object",
    "metadata": "`shmarrow inspect` describes an object",
    "describe": "`shmarrow inspect` describes an object",
    "rowcount": "`shmarrow count` prints the number of rows",
    "wc": "`shmarrow count` prints the number of rows",
    "check": "`shmarrow validate` checks an object",
    "ls": "`shmarrow names` lists stores and their objects",
    "list": "`shmarrow names` lists stores and their objects",
    "rm": "`shmarrow delete` deletes objects, `shmarrow destroy` a store",
    "gc": "`shmarrow collect` deletes what is orphaned or expired",
    "add": "`shmarrow put` adds a file to a store",
    "cp": "`shmarrow put` and `shmarrow get` copy files to and from stores",
    "store": "each command for stores has a name of its own, such as `shmarrow names` and `shmarrow stats`",
    "version": "`shmarrow --version` prints the version",
    "-V": "`shmarrow --version` prints the version",
    "-v": "`shmarrow --version` prints the version",
}
"""Words that other tools have for commands, and what to use here."""


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
        print_error(WrongUsage(message), True)
        sys.exit(USAGE)


def parser(words: Sequence[str], whole: bool = False) -> argparse.ArgumentParser:
    """Build the parser for a command line.

    Parameters
    ----------
    words : sequence of str
        The command line. Only the command that it begins with is imported, and only its parser is made.
    whole : bool
        Import all commands.
    """
    made = _Parser(
        "shmarrow",
        usage="shmarrow [-h] [--version] COMMAND ...",
        description="A memory-mapped, shared-memory Arrow store, and tools for Arrow files.",
    )
    made.as_json = _as_json(words)
    made.add_argument("--version", action="version", version=f"shmarrow {shmarrow.__version__}")
    made.formatter_class = argparse.RawDescriptionHelpFormatter
    made.epilog = _listing()
    commands = made.add_subparsers(
        metavar="COMMAND", required=True, prog="shmarrow", help=None if whole else argparse.SUPPRESS
    )
    for command in [each for each in COMMANDS if each.name in words[:1] and not whole] or COMMANDS:
        description = f"{command.help[0].upper()}{command.help[1:]}."
        listed: dict[str, Any] = {"help": command.help} if whole else {}  # the epilog lists them, in groups
        sub = commands.add_parser(command.name, description=description, **listed)
        sub.as_json = made.as_json
        if whole or command.name in words:
            module = importlib.import_module(f"shmarrow.{command.module}")
            getattr(module, command.arguments)(sub)
            sub.set_defaults(run=getattr(module, command.run))
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
    if first in HABITS:
        hint = HABITS[first]
    else:
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
        print_error(closed, _as_json(words))
        return exit_status(closed)
    if not words:
        parser(words).print_help(sys.stderr)
        return USAGE
    try:
        _refuse_unknown(words)
        arguments = parser(words).parse_args(words)
        run: Callable[[argparse.Namespace], int] = arguments.run
        status = run(arguments)
        if sys.stdout is not None:
            sys.stdout.flush()
        return status
    except ShmarrowError as error:
        print_error(error, _as_json(words))
        return exit_status(error)
    except KeyboardInterrupt:
        print_error(Interrupted("interrupted"), _as_json(words))
        return INTERRUPTED
    except BrokenPipeError:
        # The reader of our output, such as `head`, has seen enough; Python would fail again when it flushes.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except OSError as error:
        failed = storage_error(error, "write to", "standard output")
        print_error(failed, _as_json(words))
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return exit_status(failed)
