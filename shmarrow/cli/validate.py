# SPDX-License-Identifier: Apache-2.0
"""``shmarrow validate``: everything that is wrong with an Arrow object, each with its offset and what to do about it.

Invariants:

* two independent checks are made: the walk over all bytes (``shmarrow.xray``), and the readers with their own checks;
* no finding ends them: the next column, message or tensor is looked at wherever it can still be found.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from contextlib import closing, suppress
from itertools import islice
from typing import Any

from shmarrow import xray
from shmarrow.cli.command import (
    MEMORY,
    TARGETS,
    Grid,
    argument,
    command,
    limits_of,
    progress_line,
    render,
    shell_hint,
    whole,
)
from shmarrow.cli.many import many_sources, named
from shmarrow.cli.rows import within
from shmarrow.cli.targets import open_bytes
from shmarrow.errors import DEFAULT_LIMITS, InvalidData, ShmarrowError, Unsupported, counted, printable
from shmarrow.ipc.file.footer import HEAD
from shmarrow.ipc.file.reader import RecordBatchFileReader
from shmarrow.ipc.schema.lazy import encoded_fields
from shmarrow.memory import open_source
from shmarrow.scans.sources import Fragment
from shmarrow.xray import Finding, Overview
from shmarrow.xray.overviews import read_batch

_FAILING = ("error", "warning")
"""Findings of these severities make the exit status 1."""
_AGAIN = "write the object again; what has no finding can be read"


@command(
    *TARGETS,
    MEMORY,
    argument("--full", action="store_true", help="also check values: UTF-8, offsets, indices, ranges, nulls"),
    argument("--limit", type=whole(1), default=1000, metavar="N", help="stop after N findings in one; default: 1000"),
)
def validate(arguments: argparse.Namespace) -> int:
    """Print what is wrong with objects, each by itself; the exit status is 1 if there are errors or warnings."""
    fragments = many_sources(arguments, arguments.target)
    if fragments is None:
        with open_bytes(arguments.target, arguments.accept_users) as source:
            document, *text = _checked(arguments, arguments.target, source)
        render(arguments.json, document, *text)
        return int(not document["valid"])
    documents: list[Any] = []
    texts: list[Any] = []
    with progress_line(f"validate {printable(arguments.target)}: source", len(fragments)) as progress:
        for number, fragment in enumerate(fragments):
            progress(number)
            document, *text = _checked_fragment(arguments, fragment)
            documents.append(document)
            texts += [text[-1], *text[:-1]]
    bad = sum([not document["valid"] for document in documents])
    total = f"{counted(len(documents), 'source')}: {len(documents) - bad} valid, {bad} not"
    render(arguments.json, {"target": arguments.target, "valid": not bad, "sources": documents}, *texts, total)
    return int(bad > 0)


def _checked_fragment(arguments: argparse.Namespace, fragment: Fragment) -> list[Any]:
    """What :func:`_checked` returns for one of many sources, also where it cannot be opened."""
    try:
        with closing(fragment.map(attach=False)) as source:
            return _checked(arguments, str(fragment), source)
    except ShmarrowError as error:
        finding = Finding(0, 0, "error", error.problem, shell_hint(error) or "leave it out")
        document = {"target": str(fragment), "kind": None, "valid": False, "findings": [finding._asdict()]}
        return [document, printable(named(str(fragment), error))]


def _checked(arguments: argparse.Namespace, name: str, source: Any) -> list[Any]:
    """What is wrong with one object, as JSON and, after that, as text."""
    overview = Overview(source, limits_of(arguments))
    found = list(islice(findings(overview, source, arguments.full), arguments.limit))
    counts = {severity: sum([each.severity == severity for each in found]) for severity in (*_FAILING, "note")}
    complete = len(found) < arguments.limit
    document = {
        "target": name, "kind": overview.kind, "valid": not any(counts[severity] for severity in _FAILING),
        "full": arguments.full, "complete": complete,
        **{f"{severity}s": number for severity, number in counts.items()},
        "findings": [each._asdict() for each in found],
    }  # fmt: skip
    what = ", ".join([counted(number, severity) for severity, number in counts.items() if number]) or "no findings"
    checked = "structure and values" if arguments.full else "structure; --full checks values, too"
    end = "" if complete else f"; stopped after {len(found)} findings, see --limit"
    return [document, *_texts(found), f"{printable(name)}: {overview.kind}, {what} ({checked}){end}"]


def _texts(found: list[Finding]) -> Iterator[Grid | str]:
    if not sys.stdout.isatty():
        rows = [(each.severity, str(each.start), str(each.end), each.message, each.remedy) for each in found]
        yield Grid((), rows)
        return
    for each in found:
        yield f"{each.severity:8} [{each.start}, {each.end}): {printable(each.message)}"
        yield f"         to do: {printable(each.remedy)}"


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


def _finding(overview: Overview, start: int, end: int, error: ShmarrowError) -> Finding:
    again = "write it with another type or version" if isinstance(error, Unsupported) else _AGAIN
    problem = error.problem.removeprefix(f"{overview.name}: ")
    return Finding(start, max(start, end), "error", problem, shell_hint(error) or again)


def _read(overview: Overview, source: Any, full: bool) -> Iterator[Finding]:
    """Read everything with the readers."""
    if overview.kind in ("file", "stream"):
        yield from _read_batches(overview, source, full)
        return
    from shmarrow.ipc.tensor.bundle import load_tensors
    from shmarrow.ipc.tensor.reader import read_tensors

    try:
        if overview.kind == "bundle":
            bundle = load_tensors(overview.data, limits=overview.limits)
            for name in bundle:
                try:
                    bundle[name].validate(full=full)
                except ShmarrowError as error:
                    yield _finding(overview, 0, overview.size, error)
        else:
            for tensor in read_tensors(overview.data):
                tensor.validate(full=full)
    except ShmarrowError as error:
        yield _finding(overview, 0, overview.size, error)


def _read_batches(overview: Overview, source: Any, full: bool) -> Iterator[Finding]:
    """Read all columns of all batches, and their dictionaries."""
    from shmarrow.ipc.file.statistics import check
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
    statistics = None
    try:
        statistics = getattr(reader, "statistics", None) if full else None
    except ShmarrowError as error:
        yield _finding(overview, *(footer or (0, overview.size)), error)
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
                with within(("batch", number), ("column", column, field.name)):
                    array = batch.column(column)
                    array.validate(full=full)
                    if full and field.required and array.null_count:
                        raise InvalidData(f"the field is not nullable but has {counted(array.null_count, 'null')}")
                    if statistics is not None:
                        check(statistics, number, field.name, array)
            except ShmarrowError as error:
                if not dictionaries.caused(error, column):
                    yield _finding(overview, *_extent(overview, number, column), error)


class _Dictionaries:
    """Checks each dictionary once, before the batches that use it."""

    def __init__(self, overview: Overview, reader: Any, full: bool) -> None:
        self._overview = overview
        self._reader = reader
        self._full = full
        self._fields = {each.dictionary_id: each.values for each in encoded_fields(overview.layouts)}
        self._checked: dict[int, Any] = {}
        self._unreadable: set[int | None] = set()
        """The ids of dictionaries that cannot be read, so that no column with them can."""
        self._extents: list[tuple[int, int, int]] | None = None

    def check(self, number: int) -> Iterator[Finding]:
        """Check the dictionaries of a batch that have not been checked yet."""
        reader, overview = self._reader, self._overview
        try:
            pairs = list(reader._dictionaries_of(number).items())
        except ShmarrowError as error:  # those of a file are read together
            if not self._unreadable:
                self._unreadable.update(self._fields)
                first = overview.dictionaries[0].tolist() if len(overview.dictionaries) else [0, 0, overview.size]
                yield _finding(overview, first[0], sum(first), error)
            return
        for id, dictionary in pairs:
            if self._checked.get(id) is dictionary or self._fields.get(id) is None:
                continue
            self._checked[id] = dictionary
            self._unreadable.add(id)
            try:
                array = dictionary.array(self._fields[id])
                self._unreadable.discard(id)
                array.validate(full=self._full)
            except ShmarrowError as error:
                error.where = ("dictionary", id), *error.where
                yield _finding(overview, *self._extent(id, number), error)

    def caused(self, error: ShmarrowError, column: int) -> bool:
        """Whether an error of a column is that of one of its dictionaries, which was reported already."""
        ids = {each.dictionary_id for each in encoded_fields(self._overview.layouts[column : column + 1])}
        return bool(ids & self._unreadable) or any(part[0] == "dictionary" for part in error.where)

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
