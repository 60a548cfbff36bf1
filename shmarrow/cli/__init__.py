"""The command line, ``shmarrow``: each command is one row of :data:`COMMANDS`.

Rules kept here:

* a command's module adds its arguments to a parser and runs on what was parsed; what only one command needs it imports
  when it runs, so that no command waits for the imports of another;
* results go to standard output; progress and errors to standard error;
* the exit status is the command's own, 1 after one of our errors, which is printed as one line without a traceback, 2
  after wrong usage, 130 after Ctrl-C.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable, Sequence
from typing import NamedTuple

import shmarrow
from shmarrow.cli import convert, demo, store
from shmarrow.errors import ShmarrowError
from shmarrow.integration import commands as integration

INTERRUPTED = 130  # what shells say of a program that Ctrl-C ended: 128 + SIGINT


class Command(NamedTuple):
    """A command: its name, one line of help, what adds its arguments, and what runs it and gives the exit status."""

    name: str
    help: str
    add_arguments: Callable[[argparse.ArgumentParser], None]
    run: Callable[[argparse.Namespace], int]


COMMANDS = (
    Command("demo", "share a real data set between Spark's workers and readers", demo.add_arguments, demo.run),
    Command("convert", "convert a file to another format", convert.add_arguments, convert.run),
    Command(
        "integration", "convert and compare as Arrow's integration tests do", integration.add_arguments, integration.run
    ),
    Command("ls", "list the objects of a store, or the stores in shared memory", store.ls_arguments, store.ls),
    Command("info", "say what is known of an object", store.info_arguments, store.info),
    Command("put", "place a file in a store", store.put_arguments, store.put),
    Command("get", "write an object of a store to a file", store.get_arguments, store.get),
    Command("rm", "remove objects of a store", store.rm_arguments, store.rm),
    Command("gc", "remove what nobody needs: orphans, what has expired, leftovers", store.gc_arguments, store.gc),
    Command("watch", "tell what is published and deleted", store.watch_arguments, store.watch),
    Command("stats", "say how much a store holds, and how much room there is", store.stats_arguments, store.stats),
)


def parser() -> argparse.ArgumentParser:
    """The parser of all commands."""
    made = argparse.ArgumentParser("shmarrow", description="A memory-mapped, shared-memory Arrow store.")
    made.add_argument("--version", action="version", version=f"shmarrow {shmarrow.__version__}")
    commands = made.add_subparsers(title="commands", metavar="COMMAND", required=True)
    for command in COMMANDS:
        description = f"{command.help[0].upper()}{command.help[1:]}."
        sub = commands.add_parser(command.name, help=command.help, description=description)
        command.add_arguments(sub)
        sub.set_defaults(run=command.run)
    return made


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; gives the exit status.

    Parameters
    ----------
    argv : sequence of str, optional
        The arguments; those of the process where it is not given.
    """
    arguments = parser().parse_args(argv)
    run: Callable[[argparse.Namespace], int] = arguments.run
    try:
        return run(arguments)
    except ShmarrowError as error:
        print(f"shmarrow: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("shmarrow: interrupted", file=sys.stderr)
        return INTERRUPTED
    except BrokenPipeError:
        # Whoever read our output has seen enough; Python would complain again when it flushes.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
