"""``shmarrow integration``: the commands that Arrow's cross-language integration tests call ("Integration Testing").

Invariants:

* ``validate`` compares a JSON document with an Arrow file: schema, metadata, batch boundaries, every value. NaN equals
  NaN. The exit status is 0 if they are equal; differences go to standard output, each with its place and both values;
* the two stream commands default to standard input and output, as in pipelines;
* outputs overwrite existing files, as the tests run repeatedly; pipes and devices, such as ``/dev/stdout``, are read
  and written in place.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from itertools import islice
from typing import Any

import shmarrow
from shmarrow.cli.cells import values_of
from shmarrow.cli.diff import schema_differences, unequal
from shmarrow.cli.schemas import children, text_pairs
from shmarrow.cli.targets import pipe_in, pipe_out
from shmarrow.integration.json import read_json, write_json

_SHOWN = 20
_MODE = 0o644


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the commands of the integration tests."""
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)

    def add(name: str, help: str, action: Callable[[argparse.Namespace, ExitStack], int]) -> argparse.ArgumentParser:
        made = commands.add_parser(name, help=help, description=f"{help[0].upper()}{help[1:]}.")
        made.set_defaults(action=action)
        return made

    for name, help, action in (
        ("arrow-to-json", "write the contents of an Arrow file as JSON", _arrow_to_json),
        ("json-to-arrow", "write the contents of a JSON document as an Arrow file", _json_to_arrow),
        ("validate", "compare an Arrow file with a JSON document; exit with 0 if they are equal", _validate),
    ):
        command = add(name, help, action)
        command.add_argument("--arrow", metavar="FILE", required=True, help="the Arrow file")
        command.add_argument("--json", metavar="FILE", required=True, help="the JSON document, or compressed as .gz")
    command = add("stream-to-file", "write the batches of a stream as a file", _stream_to_file)
    _add_ends(command, "--stream", "--arrow")
    command = add("file-to-stream", "write the batches of a file as a stream", _file_to_stream)
    _add_ends(command, "--arrow", "--stream")


def _add_ends(command: argparse.ArgumentParser, source: str, sink: str) -> None:
    for option, name, side in ((source, "source", "input"), (sink, "sink", "output")):
        where = command.add_mutually_exclusive_group()
        where.add_argument(name, nargs="?", metavar=name.upper(), help=f"a file; standard {side} if left out, or -")
        where.add_argument(option, metavar="FILE", dest=f"{name}_option", help=f"the same as {name.upper()}")


def run(arguments: argparse.Namespace) -> int:
    """Run the parsed command; returns the exit status."""
    action: Callable[[argparse.Namespace, ExitStack], int] = arguments.action
    with ExitStack() as stack:
        return action(arguments, stack)


# --- the commands ------------------------------------------------------------------------------------------------


def _open_file(name: str, stack: ExitStack) -> Any:
    return stack.enter_context(shmarrow.ipc.open_file(pipe_in(name, stack) or name))


def _arrow_to_json(arguments: argparse.Namespace, stack: ExitStack) -> int:
    reader, sink = _open_file(arguments.arrow, stack), pipe_out(arguments.json, stack) or arguments.json
    write_json(sink, reader.read_all(), overwrite=True, mode=_MODE)
    return 0


def _json_to_arrow(arguments: argparse.Namespace, stack: ExitStack) -> int:
    table = read_json(pipe_in(arguments.json, stack) or arguments.json)
    sink = pipe_out(arguments.arrow, stack) or arguments.arrow
    with shmarrow.ipc.new_file(sink, table.schema, overwrite=True, mode=_MODE) as writer:
        writer.write_table(table)
    return 0


def _validate(arguments: argparse.Namespace, stack: ExitStack) -> int:
    json = read_json(pipe_in(arguments.json, stack) or arguments.json)
    found = _differences(json, _open_file(arguments.arrow, stack).read_all())
    shown = list(islice(found, _SHOWN))
    for line in shown:
        print(line)
    if next(found, None) is not None:
        print(f"and more than these {_SHOWN} differences")
    return 1 if shown else 0


def _stream_to_file(arguments: argparse.Namespace, stack: ExitStack) -> int:
    return _copy(arguments, stack, shmarrow.ipc.open_stream, shmarrow.ipc.new_file)


def _file_to_stream(arguments: argparse.Namespace, stack: ExitStack) -> int:
    return _copy(arguments, stack, shmarrow.ipc.open_file, shmarrow.ipc.new_stream)


def _copy(
    arguments: argparse.Namespace, stack: ExitStack, open_source: Callable[..., Any], new_sink: Callable[..., Any]
) -> int:
    source = arguments.source_option or arguments.source or "-"
    target = arguments.sink_option or arguments.sink or "-"
    reader = stack.enter_context(open_source(pipe_in(source, stack) or source))
    sink = pipe_out(target, stack) or target
    with new_sink(sink, reader.schema, overwrite=True, mode=_MODE) as writer:
        for batch in reader:
            writer.write_batch(batch)
    return 0


# --- comparing ---------------------------------------------------------------------------------------------------


def _differences(json: Any, arrow: Any) -> Iterator[str]:
    """Yield a line per difference between two tables; per column and batch only the first row that differs."""
    found = list(schema_differences(json.schema, arrow.schema))
    for each in found:
        where = "the schema" if each["field"] is None else f"column {each['field']!r}"
        yield f"{where}: {each['what']}: {_both(each['left'], each['right'])}"
    if found:
        return
    for mine, theirs in zip(json.schema, arrow.schema, strict=True):
        nested = _metadata(mine), _metadata(theirs)
        if nested[0] != nested[1]:
            yield f"column {mine.name!r}: metadata of nested fields: {_both(*nested)}"
    if len(json.batches) != len(arrow.batches):
        yield f"batches: {_both(len(json.batches), len(arrow.batches))}"
    for i, (left, right) in enumerate(zip(json.batches, arrow.batches, strict=False)):
        if left.num_rows != right.num_rows:
            yield f"batch {i}: rows: {_both(left.num_rows, right.num_rows)}"
            continue
        for name, mine, theirs in zip(json.schema.names, left.columns, right.columns, strict=True):
            first = next(unequal(mine, theirs), None)
            if first is not None:
                start, x, y, rows = first
                values = [values_of(each.take(rows[:1]))[0] for each in (x, y)]
                yield f"batch {i}, column {name!r}, row {start + int(rows[0])}: {_both(*values)}"


def _metadata(field: Any) -> list[Any]:
    """The metadata of the fields in a field, nested as they are."""
    return [[text_pairs(child.metadata), *_metadata(child)] for child in children(field.type)]


def _both(mine: Any, theirs: Any) -> str:
    return f"the JSON has {_shown(mine)}, the file {_shown(theirs)}"


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 200 else f"{text[:200]}... ({len(text)} characters)"
