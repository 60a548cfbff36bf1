"""``shmarrow integration``: the commands that Arrow's cross-language integration tests call ("Integration Testing").

Invariants:

* ``validate`` compares a JSON document with an Arrow file: schema, metadata, batch boundaries, every value. NaN equals
  NaN. The exit status is 0 if they are equal; differences go to standard output, each with its path, row and both
  values;
* the two stream commands default to standard input and output, as in pipelines;
* outputs overwrite existing files, as the tests run repeatedly; pipes and devices, such as ``/dev/stdout``, are read
  and written in place.
"""

from __future__ import annotations

import argparse
import os
import stat
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import islice
from typing import Any

import shmarrow
from shmarrow.errors import storage_error
from shmarrow.integration.json import read_json, write_json
from shmarrow.types import Field, MapType
from shmarrow.types.extension import ExtensionType

_SHOWN = 20
_ROWS = 1024
_MODE = 0o644


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the commands of the integration tests."""
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)

    def add(name: str, help: str, action: Callable[[argparse.Namespace], int]) -> argparse.ArgumentParser:
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
    action: Callable[[argparse.Namespace], int] = arguments.action
    return action(arguments)


# --- the commands ------------------------------------------------------------------------------------------------


def _arrow_to_json(arguments: argparse.Namespace) -> int:
    with _source(arguments.arrow) as source, _sink(arguments.json) as sink, shmarrow.ipc.open_file(source) as reader:
        write_json(sink, reader.read_all(), overwrite=True, mode=_MODE)
    return 0


def _json_to_arrow(arguments: argparse.Namespace) -> int:
    with _source(arguments.json) as source, _sink(arguments.arrow) as sink:
        table = read_json(source)
        with shmarrow.ipc.new_file(sink, table.schema, overwrite=True, mode=_MODE) as writer:
            writer.write_table(table)
    return 0


def _validate(arguments: argparse.Namespace) -> int:
    with (
        _source(arguments.json) as json,
        _source(arguments.arrow) as arrow,
        shmarrow.ipc.open_file(arrow) as reader,
    ):
        found = differences(read_json(json), reader.read_all())
        shown = list(islice(found, _SHOWN))
        for line in shown:
            print(line)
        if next(found, None) is not None:
            print(f"and more than these {_SHOWN} differences")
    return 1 if shown else 0


def _stream_to_file(arguments: argparse.Namespace) -> int:
    return _copy(arguments, shmarrow.ipc.open_stream, shmarrow.ipc.new_file)


def _file_to_stream(arguments: argparse.Namespace) -> int:
    return _copy(arguments, shmarrow.ipc.open_file, shmarrow.ipc.new_stream)


def _copy(arguments: argparse.Namespace, open_source: Callable[..., Any], new_sink: Callable[..., Any]) -> int:
    source_name = arguments.source_option or arguments.source or "-"
    sink_name = arguments.sink_option or arguments.sink or "-"
    with (
        _source(source_name) as source,
        _sink(sink_name) as sink,
        open_source(source) as reader,
        new_sink(sink, reader.schema, overwrite=True, mode=_MODE) as writer,
    ):
        for batch in reader:
            writer.write_batch(batch)
    return 0


@contextmanager
def _source(name: str) -> Iterator[Any]:
    """Return the name for a reader, or the opened pipe or device of that name."""
    if name == "-":
        yield sys.stdin.buffer
    elif _is_special(name):
        with _open(name, "rb") as file:
            yield file
    else:
        yield name


@contextmanager
def _sink(name: str) -> Iterator[Any]:
    """Return the name for a writer, or the opened pipe or device of that name."""
    if name == "-":
        yield sys.stdout.buffer
    elif _is_special(name):
        with _open(name, "wb") as file:
            yield file
    else:
        # A writer replaces the named file, which must not be a link such as /dev/stdout.
        yield os.path.realpath(name) if os.path.islink(name) else name


def _is_special(name: str) -> bool:
    try:
        mode = os.stat(name).st_mode
    except OSError:
        return False
    return not stat.S_ISREG(mode) and not stat.S_ISDIR(mode)


def _open(name: str, mode: str) -> Any:
    try:
        return open(name, mode)
    except OSError as error:
        raise storage_error(error, "open", name) from None


# --- comparing ---------------------------------------------------------------------------------------------------


def differences(json: shmarrow.Table, arrow: shmarrow.Table) -> Iterator[str]:
    """Yield a line per difference between two tables; per column and batch only the first differing value."""
    if len(json.schema) != len(arrow.schema):
        yield _line("the schema", "fields", len(json.schema), len(arrow.schema))
        return
    if (json.schema.metadata or {}) != (arrow.schema.metadata or {}):
        yield _line("the schema", "metadata", json.schema.metadata, arrow.schema.metadata)
    unlike = False
    for i, (mine, theirs) in enumerate(zip(json.schema, arrow.schema, strict=True)):
        yield from _field_differences(mine, theirs, f"field {i} {mine.name!r}")
        unlike |= mine != theirs
    if len(json.batches) != len(arrow.batches):
        yield _line("the data", "batches", len(json.batches), len(arrow.batches))
    if unlike:
        return
    for i, (left, right) in enumerate(zip(json.batches, arrow.batches, strict=False)):
        if left.num_rows != right.num_rows:
            yield _line(f"batch {i}", "rows", left.num_rows, right.num_rows)
            continue
        for k, name in enumerate(json.schema.names):
            found = _column_difference(left.column(k), right.column(k), name)
            if found is not None:
                yield f"batch {i}, column {k}, {found}"


def _line(where: str, what: str, mine: Any, theirs: Any) -> str:
    return f"{where}: {what}: the JSON has {_shown(mine)}, the file {_shown(theirs)}"


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 200 else f"{text[:200]}... ({len(text)} characters)"


def _field_differences(mine: Field, theirs: Field, path: str, named: bool = True) -> Iterator[str]:
    """Yield the differences between two fields and their children; field names within lists and maps are ignored."""
    if named and mine.name != theirs.name:
        yield _line(path, "name", mine.name, theirs.name)
    if mine.nullable != theirs.nullable:
        yield _line(path, "nullable", mine.nullable, theirs.nullable)
    if (mine.metadata or {}) != (theirs.metadata or {}):
        yield _line(path, "metadata", mine.metadata, theirs.metadata)
    if _parameters(mine.type) != _parameters(theirs.type):
        yield _line(path, "type", mine.type, theirs.type)
        return
    named = not isinstance(mine.type, MapType) and not hasattr(mine.type, "value_field")
    for left, right in zip(_children(mine.type), _children(theirs.type), strict=True):
        yield from _field_differences(left, right, f"{path}.{left.name}", named)


def _children(type: Any) -> tuple[Field, ...]:
    return (type.key_field, type.item_field) if isinstance(type, MapType) else type.fields


def _parameters(type: Any) -> list[Any]:
    """Return what identifies a type, except its child fields, of which only the number counts."""
    if isinstance(type, ExtensionType):
        return [type.__class__, type.serialize(), *_parameters(type.storage_type)]
    if not type.fields:
        return [type]
    return [type.__class__, len(type.fields), *[getattr(type, each.name) for each in type.descriptor.parameters]]


def _column_difference(mine: Any, theirs: Any, path: str) -> str | None:
    """Return the first difference between two arrays of the same type and length, or None."""
    for start in range(0, len(mine), _ROWS):
        left, right = mine.slice(start, _ROWS), theirs.slice(start, _ROWS)
        if left.equals(right):
            continue
        for i, (x, y) in enumerate(zip(left.to_pylist(), right.to_pylist(), strict=True)):
            found = _value_difference(x, y, path)
            if found is not None:
                return _line(f"row {start + i}", *found)
            if x == y and not left.slice(i, 1).equals(right.slice(i, 1)):
                return _line(f"row {start + i}", f"{path}, in another child of a union", x, y)
    return None


def _value_difference(mine: Any, theirs: Any, path: str) -> tuple[str, Any, Any] | None:
    """Return the innermost differing values and their path, or None."""
    if mine.__class__ is theirs.__class__:
        if isinstance(mine, dict) and list(mine) == list(theirs):
            return _first([(f"{path}.{key}", mine[key], theirs[key]) for key in mine])
        if isinstance(mine, (list, tuple)) and len(mine) == len(theirs):
            return _first([(f"{path}[{i}]", x, y) for i, (x, y) in enumerate(zip(mine, theirs, strict=True))])
        if mine == theirs or (mine != mine and theirs != theirs):
            return None
    return path, mine, theirs


def _first(pairs: list[tuple[str, Any, Any]]) -> tuple[str, Any, Any] | None:
    found = (_value_difference(mine, theirs, path) for path, mine, theirs in pairs)
    return next((item for item in found if item is not None), None)
