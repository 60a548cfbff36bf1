"""``shmarrow validate``: everything that is wrong with an Arrow object, each with its offset and what to do about it.

Invariants:

* two independent checks are made: the walk over all bytes (``shmarrow.xray``), and the readers with their own checks;
* no finding ends them: the next column, message or tensor is looked at wherever it can still be found.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from contextlib import suppress
from itertools import islice
from typing import Any

from shmarrow import xray
from shmarrow.cli.report import render, reporting, shell_hint
from shmarrow.cli.targets import add_memory, add_target, limits_of, open_bytes, refuse_others
from shmarrow.errors import DEFAULT_LIMITS, InvalidData, ShmarrowError, Unsupported, counted, printable
from shmarrow.ipc.file.footer import HEAD
from shmarrow.ipc.file.reader import RecordBatchFileReader
from shmarrow.ipc.schema.decode import encoded_fields
from shmarrow.sources import open_source
from shmarrow.xray import Finding, Overview
from shmarrow.xray.messages import read_batch

_MOST = 1000
_FAILING = ("error", "warning")
"""Findings of these severities make the exit status 1."""
_REMEDIES = ((Unsupported, "write it with another type or version"),)
_AGAIN = "write the object again; what has no finding can be read"


def validate_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of ``validate``."""
    add_target(parser)
    add_memory(parser)
    parser.add_argument("--full", action="store_true", help="also check values: UTF-8, offsets, indices, ranges, nulls")
    parser.add_argument(
        "--limit", type=_limit, default=_MOST, metavar="N", help=f"stop after N findings; default: {_MOST}"
    )


def _limit(text: str) -> int:
    if not text.isascii() or not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"expected a number from 1 on, found {text!r}")
    return int(text)


@reporting
def validate(arguments: argparse.Namespace) -> int:
    """Print what is wrong with an object; the exit status is 1 if there are errors or warnings."""
    with open_bytes(arguments.target, arguments.trust) as (name, source):
        refuse_others(name, source.data)
        overview = Overview(source, limits_of(arguments))
        found: list[dict[str, Any]] = []
        for each in islice(findings(overview, source, arguments.full), arguments.limit):
            found.append(each._asdict())
            if not arguments.json:
                _print(found[-1])
    counts = {severity: sum([each["severity"] == severity for each in found]) for severity in (*_FAILING, "note")}
    valid = not any(counts[severity] for severity in _FAILING)
    complete = len(found) < arguments.limit
    document = {
        "target": arguments.target, "kind": overview.kind, "valid": valid, "full": arguments.full,
        "complete": complete, **{f"{severity}s": number for severity, number in counts.items()}, "findings": found,
    }  # fmt: skip
    what = ", ".join([counted(number, severity) for severity, number in counts.items() if number]) or "no findings"
    checked = "structure and values" if arguments.full else "structure; --full checks values, too"
    end = "" if complete else f"; stopped after {len(found)} findings, see --limit"
    render(arguments.json, document, f"{printable(arguments.target)}: {overview.kind}, {what} ({checked}){end}")
    return 0 if valid else 1


def _print(found: dict[str, Any]) -> None:
    place = f"[{found['start']}, {found['end']})"
    message, remedy = printable(found["message"]), printable(found["remedy"])
    if sys.stdout.isatty():
        print(f"{found['severity']:8} {place}: {message}\n         to do: {remedy}")
    else:
        print(found["severity"], found["start"], found["end"], message, remedy, sep="\t")


# --- findings -----------------------------------------------------------------------------------------------------


def findings(overview: Overview, source: Any, full: bool) -> Iterator[Finding]:
    """Find what is wrong: by the walk over the bytes, then by the readers where the walk found no error.

    Parameters
    ----------
    overview : Overview
        The object.
    source : Source
        Its bytes.
    full : bool
        Whether values are checked.
    """
    errors = []
    for each in xray.findings(overview):
        if each.severity == "error":
            errors.append((each.start, each.end))
        yield each
    for each in _read(overview, source, full):
        if not any(start < each.end and each.start < max(end, start + 1) for start, end in errors):
            yield each


def _read(overview: Overview, source: Any, full: bool) -> Iterator[Finding]:
    kinds = {"tensor": _read_tensors, "sparse tensor": _read_tensors, "bundle": _read_bundle}
    return kinds.get(overview.kind, _read_batches)(overview, source, full)


def _finding(overview: Overview, start: int, end: int, error: ShmarrowError) -> Finding:
    remedy = shell_hint(error) or next((text for kind, text in _REMEDIES if isinstance(error, kind)), _AGAIN)
    return Finding(start, max(start, end), "error", error.problem.removeprefix(f"{overview.name}: "), remedy)


def _read_batches(overview: Overview, source: Any, full: bool) -> Iterator[Finding]:
    """Read all columns of all batches, and their dictionaries."""
    from shmarrow.ipc.stream.reader import MappedStreamReader

    footer = overview.footer
    try:
        if overview.kind == "file" and footer is not None:
            reader: Any = RecordBatchFileReader(source, overview.limits)
        else:  # a file without a footer has the messages of a stream
            start = HEAD if overview.kind == "file" else 0
            reader = MappedStreamReader(open_source(overview.data[start:]), overview.limits)
    except ShmarrowError as error:
        yield _finding(overview, *(footer or (0, overview.size)), error)
        return
    dictionaries = _Dictionaries(overview, reader, full)
    for number in range(len(overview.blocks)):
        offset, metadata, body = overview.blocks[number].tolist()
        try:
            batch = reader.get_batch(number)
        except IndexError:
            return  # the reader of a stream ends where a message breaks the format, which the walk has found
        except ShmarrowError as error:
            yield _finding(overview, offset, offset + metadata + body, error)
            continue
        yield from dictionaries.check(number)
        for column in range(batch.num_columns):
            field = batch.schema.field(column)
            try:
                array = batch.column(column)
                array.validate(full=full)
                if full and field.required and array.null_count:
                    raise InvalidData(f"the field is not nullable but has {counted(array.null_count, 'null')}")
            except ShmarrowError as error:
                if dictionaries.caused(error, column):
                    continue
                if ("column", column, field.name) not in error.where:
                    error.where = ("batch", number), ("column", column, field.name), *error.where
                yield _finding(overview, *_extent(overview, number, column), error)


class _Dictionaries:
    """Checks each dictionary once, before the batches that use it."""

    def __init__(self, overview: Overview, reader: Any, full: bool) -> None:
        self._overview = overview
        self._reader = reader
        self._full = full
        self._fields = {each.dictionary_id: each.values for each in encoded_fields(overview.wires)}
        self._checked: dict[int, Any] = {}
        self._messages: list[str] = []
        self._extents: list[tuple[int, int, int]] | None = None

    def check(self, number: int) -> Iterator[Finding]:
        """Check the dictionaries of a batch that have not been checked yet."""
        reader, overview = self._reader, self._overview
        try:
            pairs = list(reader._dictionaries_of(number).items())
        except ShmarrowError as error:  # those of a file are read together
            if not self._messages:
                self._messages.append(str(error))
                first = overview.dictionaries[0].tolist() if len(overview.dictionaries) else [0, 0, overview.size]
                yield _finding(overview, first[0], sum(first), error)
            return
        for id, dictionary in pairs:
            if self._checked.get(id) is dictionary or self._fields.get(id) is None:
                continue
            self._checked[id] = dictionary
            try:
                dictionary.array(self._fields[id]).validate(full=self._full)
            except ShmarrowError as error:
                self._messages.append(str(error))
                error.where = ("dictionary", id), *error.where
                yield _finding(overview, *self._extent(id, number), error)

    def caused(self, error: ShmarrowError, column: int) -> bool:
        """Whether an error of a column is that of one of its dictionaries, which was reported already."""
        if not self._messages or not encoded_fields(self._overview.wires[column : column + 1]):
            return False
        return str(error).endswith(tuple(self._messages))

    def _extent(self, id: int, number: int) -> tuple[int, int]:
        """Locate the message of a dictionary: the last one before a batch of a stream, the first one of a file."""
        overview = self._overview
        if self._extents is None:
            self._extents = []
            for offset, length, body in overview.dictionaries.tolist():
                with suppress(ShmarrowError):
                    batch = read_batch(overview.data, offset, length, "", DEFAULT_LIMITS)
                    self._extents.append((batch.message.header["id"], offset, offset + length + body))
        places = [(start, end) for each, start, end in self._extents if each == id]
        before = [place for place in places if place[0] < overview.blocks[number, 0]]
        if overview.kind == "stream" and before:
            return before[-1]
        return places[0] if places else (0, overview.size)


def _extent(overview: Overview, number: int, column: int) -> tuple[int, int]:
    """Locate the buffers of a column in a batch; the whole message if its metadata cannot be read."""
    offset, metadata, body = overview.blocks[number].tolist()
    try:
        batch = overview.batch(number)
        pairs = zip(overview.roles_of(batch), batch.buffers.tolist(), strict=False)
        places = [(start, start + size) for role, (start, size) in pairs if role.column == column and size > 0]
    except ShmarrowError:
        places = []
    if not places or min(places)[0] < 0 or max(end for _, end in places) > body:
        return offset, offset + metadata + body
    return batch.body + min(places)[0], batch.body + max(end for _, end in places)


def _read_bundle(overview: Overview, source: Any, full: bool) -> Iterator[Finding]:
    """Read all tensors of a bundle."""
    from shmarrow.ipc.tensor.bundle import load_tensors

    try:
        bundle = load_tensors(overview.data, limits=overview.limits)
        names = list(bundle)
    except ShmarrowError as error:
        yield _finding(overview, 0, overview.size, error)
        return
    for name in names:
        try:
            bundle[name].validate(full=full)
        except ShmarrowError as error:
            yield _finding(overview, 0, overview.size, error)


def _read_tensors(overview: Overview, source: Any, full: bool) -> Iterator[Finding]:
    """Read all tensor messages."""
    from shmarrow.ipc.tensor.reader import read_tensors

    try:
        for tensor in read_tensors(overview.data):
            tensor.validate(full=full)
    except ShmarrowError as error:
        yield _finding(overview, 0, overview.size, error)
