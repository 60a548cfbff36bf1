# SPDX-License-Identifier: Apache-2.0
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
from shmarrow.cli.command import WrongUsage, argument, command
from shmarrow.cli.diff import schema_differences, unequal
from shmarrow.cli.rows import values_of
from shmarrow.cli.schemas import children, text_pairs
from shmarrow.cli.targets import pipe_in, pipe_out
from shmarrow.integration.json import read_json, write_json

_SHOWN = 20
_MODE = 0o644


# --- the commands ------------------------------------------------------------------------------------------------


def _open_file(name: str, stack: ExitStack) -> Any:
    return stack.enter_context(shmarrow.ipc.open_file(pipe_in(name, stack) or name))


def _arrow_to_json(stack: ExitStack, arrow: str, json: str) -> int:
    reader, sink = _open_file(arrow, stack), pipe_out(json, stack) or json
    write_json(sink, reader.read_all(), overwrite=True, mode=_MODE)
    return 0


def _json_to_arrow(stack: ExitStack, arrow: str, json: str) -> int:
    table = read_json(pipe_in(json, stack) or json)
    with shmarrow.ipc.new_file(pipe_out(arrow, stack) or arrow, table.schema, overwrite=True, mode=_MODE) as writer:
        writer.write_table(table)
    return 0


def _validate(stack: ExitStack, arrow: str, json: str) -> int:
    found = _differences(read_json(pipe_in(json, stack) or json), _open_file(arrow, stack).read_all())
    shown = list(islice(found, _SHOWN))
    for line in shown:
        print(line)
    if next(found, None) is not None:
        print(f"and more than these {_SHOWN} differences")
    return 1 if shown else 0


def _stream_to_file(stack: ExitStack, stream: str, arrow: str) -> int:
    reader = stack.enter_context(shmarrow.ipc.open_stream(pipe_in(stream, stack) or stream))
    return _copy(reader, shmarrow.ipc.new_file, pipe_out(arrow, stack) or arrow)


def _file_to_stream(stack: ExitStack, arrow: str, stream: str) -> int:
    return _copy(_open_file(arrow, stack), shmarrow.ipc.new_stream, pipe_out(stream, stack) or stream)


def _copy(reader: Any, new_sink: Callable[..., Any], sink: Any) -> int:
    with new_sink(sink, reader.schema, overwrite=True, mode=_MODE) as writer:
        for batch in reader:
            writer.write_batch(batch)
    return 0


_ACTIONS: dict[str, tuple[Callable[..., int], tuple[str, str]]] = {
    "arrow-to-json": (_arrow_to_json, ("arrow", "json")),
    "json-to-arrow": (_json_to_arrow, ("json", "arrow")),
    "validate": (_validate, ("json", "arrow")),
    "stream-to-file": (_stream_to_file, ("stream", "arrow")),
    "file-to-stream": (_file_to_stream, ("arrow", "stream")),
}
"""The commands: their functions, and the options that name what they read and write."""
_PIPES = ("stream-to-file", "file-to-stream")
"""Commands whose files may be named without options, and default to standard input and output."""


@command(
    argument("action", metavar="COMMAND", choices=tuple(_ACTIONS), help=", ".join(_ACTIONS)),
    argument("--arrow", metavar="FILE", help="the Arrow file"),
    argument("--json", metavar="FILE", help="the JSON document; one compressed by gzip is read, too"),
    argument("--stream", metavar="FILE", help="the stream"),
    argument("files", metavar="FILE", nargs="*", help="of the two commands for streams: the source and the sink"),
)
def integration(arguments: argparse.Namespace) -> int:
    """Run a command of the integration tests; returns the exit status."""
    run, ends = _ACTIONS[arguments.action]
    named = {end: getattr(arguments, end) for end in ends}
    unnamed = [end for end in ends if named[end] is None]
    pipes = arguments.action in _PIPES
    if len(arguments.files) > (len(unnamed) if pipes else 0):
        raise WrongUsage(f"{arguments.action} does not take {arguments.files[-1]!r}")
    if unnamed and not pipes:
        raise WrongUsage(f"{arguments.action} needs {' and '.join([f'--{end}' for end in unnamed])}")
    named |= dict(zip(unnamed, [*arguments.files, "-", "-"], strict=False))
    with ExitStack() as stack:
        return run(stack, **named)


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
