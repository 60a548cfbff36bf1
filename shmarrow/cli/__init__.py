"""The command line, ``shmarrow``: each command is one row of :data:`COMMANDS`.

Rules kept here:

* a command's module adds its arguments to a parser and runs on what was parsed; it is imported when its command is
  named, so that no command waits for the imports of another;
* results go to standard output; progress and errors to standard error, with ``--json`` each error as one JSON object;
* the exit status is the command's own, 1 after one of our errors, which is printed as one line without a traceback, 2
  after wrong usage, 130 after Ctrl-C.
"""

from __future__ import annotations

import argparse
import importlib
import os
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import NamedTuple, NoReturn

import shmarrow
from shmarrow.cli.report import INTERRUPTED, USAGE, Interrupted, WrongUsage, print_error
from shmarrow.errors import ShmarrowError, printable, storage_error


class Command(NamedTuple):
    """A command: its name, one line of help, its module, and the functions that add its arguments and run it."""

    name: str
    help: str
    module: str
    arguments: str = "add_arguments"
    run: str = "run"


def _of_data(name: str, help: str, module: str) -> Command:
    return Command(name, help, module, f"{name}_arguments", name)


def _of_store(name: str, help: str, module: str = "cli.store") -> Command:
    return Command(name, help, module, f"{name}_arguments", name)


COMMANDS = (
    _of_data("inspect", "describe a file: schema, rows, nulls, bytes, compression, alignment", "cli.inspect"),
    _of_data("validate", "check a file, and list what is wrong with it", "cli.validate"),
    Command("xray", "explain every byte of a file", "cli.xray"),
    _of_data("schema", "print the fields and their types", "cli.rows"),
    _of_data("head", "print the first rows", "cli.rows"),
    _of_data("sample", "print rows picked at random", "cli.rows"),
    _of_data("cat", "print all rows", "cli.rows"),
    _of_data("count", "count the rows", "cli.rows"),
    _of_data("diff", "compare two files: schemas, numbers of rows, values", "cli.diff"),
    Command("demo", "share a real data set between Spark's workers and readers", "cli.demo"),
    Command("convert", "convert a file to another format", "cli.convert"),
    Command("integration", "convert and compare as Arrow's integration tests do", "integration.commands"),
    _of_store("ls", "list the objects of a store, or the stores in shared memory"),
    _of_store("info", "say what is known of an object"),
    _of_store("put", "place a file in a store"),
    _of_store("get", "write an object of a store to a file"),
    _of_store("rm", "remove objects of a store"),
    _of_store("wait", "wait until objects are there"),
    _of_store("watch", "tell what is published and deleted", "cli.stores"),
    _of_store("stats", "say how much a store holds, how much room there is, and who has what attached", "cli.stores"),
    _of_store("evict", "remove objects that nobody has attached, those used longest ago", "cli.stores"),
    _of_store("gc", "remove what nobody needs: orphans, what has expired, leftovers", "cli.stores"),
    _of_store("destroy", "remove a store with all its objects", "cli.stores"),
    Command("completion", "print the completion script of a shell", "cli.completion"),
    Command("top", "show what the stores of this host hold and do, once a second", "cli.top"),
)


class _Parser(argparse.ArgumentParser):
    """A parser that reports wrong usage as JSON where the command line asks for that."""

    as_json = False

    def error(self, message: str) -> NoReturn:
        if not self.as_json:
            super().error(printable(message))
        print_error(WrongUsage(message), True)
        sys.exit(USAGE)


def parser(words: Sequence[str], whole: bool = False) -> argparse.ArgumentParser:
    """The parser of a command line.

    Parameters
    ----------
    words : sequence of str
        The command line. Only the command that it begins with is imported, and only its parser is made.
    whole : bool
        Import all commands.
    """
    made = _Parser("shmarrow", description="A memory-mapped, shared-memory Arrow store.")
    made.as_json = _as_json(words)
    made.add_argument("--version", action="version", version=f"shmarrow {shmarrow.__version__}")
    commands = made.add_subparsers(title="commands", metavar="COMMAND", required=True)
    for command in [each for each in COMMANDS if each.name in words[:1] and not whole] or COMMANDS:
        description = f"{command.help[0].upper()}{command.help[1:]}."
        sub = commands.add_parser(command.name, help=command.help, description=description)
        sub.as_json = made.as_json
        if whole or command.name in words:
            module = importlib.import_module(f"shmarrow.{command.module}")
            getattr(module, command.arguments)(sub)
            sub.set_defaults(run=getattr(module, command.run))
    return made


def _as_json(words: Sequence[str]) -> bool:
    """Whether results and errors are to be JSON; ``integration`` has an option of that name that takes a file."""
    return "--json" in words and words[0] != "integration"


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; gives the exit status.

    Parameters
    ----------
    argv : sequence of str, optional
        The arguments; those of the process where it is not given.
    """
    words = list(sys.argv[1:] if argv is None else argv)
    if words[:1] == ["--json"]:  # an option of the commands
        words = [*words[1:], "--json"]
    for file in (sys.stdout, sys.stderr):
        with suppress(AttributeError, ValueError):  # whatever the encoding is, names can be printed
            file.reconfigure(errors="backslashreplace")  # type: ignore[union-attr]
    arguments = parser(words).parse_args(words)
    run: Callable[[argparse.Namespace], int] = arguments.run
    try:
        status = run(arguments)
        if sys.stdout is not None:
            sys.stdout.flush()
        return status
    except ShmarrowError as error:
        print_error(error, _as_json(words))
        return 1
    except KeyboardInterrupt:
        print_error(Interrupted("interrupted"), _as_json(words))
        return INTERRUPTED
    except BrokenPipeError:
        # Whoever read our output has seen enough; Python would complain again when it flushes.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except OSError as error:
        print_error(storage_error(error, "write to", "standard output"), _as_json(words))
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
