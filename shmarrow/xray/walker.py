# SPDX-License-Identifier: Apache-2.0
"""The walk: regions that cover every byte of an object, in order."""

from __future__ import annotations

from collections.abc import Iterator
from heapq import merge
from operator import index as as_index
from typing import Any, NamedTuple

import numpy as np

from shmarrow.buffer import Bytes
from shmarrow.errors import DEFAULT_LIMITS, InvalidArgument, InvalidType, Limits, ShmarrowError, counted, shown
from shmarrow.ipc.file.footer import END, HEAD, MAGIC
from shmarrow.ipc.file.reader import RecordBatchFileReader
from shmarrow.ipc.flatbuffers.tables import ENUMS
from shmarrow.ipc.message.decode import CONTINUATION, message_at, parse_metadata
from shmarrow.xray.body import Body
from shmarrow.xray.checks import fitting
from shmarrow.xray.flat import Flat, padding
from shmarrow.xray.model import EXAMINED, Finding, Region, Report, expanded, roles_of, zeros
from shmarrow.xray.overviews import (
    BATCH,
    DICTIONARY,
    SCHEMA,
    SPARSE,
    TENSOR,
    Overview,
    batch_of,
    overview,
    read_envelope,
    scan,
    unparsed,
)

FILE = "Columnar.rst, IPC File Format"
_STREAM = "Columnar.rst, IPC Streaming Format"
MESSAGE = "Columnar.rst, Encapsulated message format"
NAMES = {
    SCHEMA: "schema",
    DICTIONARY: "dictionary batch",
    BATCH: "record batch",
    TENSOR: "tensor",
    SPARSE: "sparse tensor",
}
_WRITE_AGAIN = "write the object again with a correct writer"


def walk(
    target: Any,
    *,
    batches: int | slice | None = None,
    start: int = 0,
    stop: int | None = None,
    report: Report | None = None,
    limits: Limits = DEFAULT_LIMITS,
    accept_users: bool = False,
) -> Iterator[Region]:
    """Yield regions that explain every byte of an object, sorted by start.

    The regions cover all bytes and are disjoint, except those of the kind ``"overlap"``, whose bytes belong to another
    region, too. Messages are read lazily, one at a time.

    Parameters
    ----------
    target : Overview, path, ``shm:NAME``, ``shm:STORE/NAME``, ``DIRECTORY/NAME`` of a store, Segment or bytes-like
        The object to explain.
    batches : int or slice, optional
        Only the messages of these record batches, by index in the footer or stream.
    start, stop : int, optional
        Only regions that intersect [start, stop).
    report : callable, optional
        Called with each :class:`Finding`: first those of the overview, then others as their bytes are reached.
    limits : Limits, optional
        Bounds on what is accepted.
    accept_users : bool
        Accept a store that is owned or writable by other users.

    Raises
    ------
    InvalidData
        If it is not Arrow data. Defects of Arrow data are reported instead, and the walk continues.
    InvalidArgument
        If ``batches``, ``start`` or ``stop`` is out of range.
    """
    found = overview(target, limits=limits, accept_users=accept_users)
    size = found.size
    first, last = (
        _position("start is a number of bytes", start),
        size if stop is None else _position("stop is a number of bytes", stop),
    )
    if not 0 <= first <= last:
        raise InvalidArgument(f"{found.name}: expected a range within its {size} bytes, found [{first}, {last})")
    made = _Walk(found, _ignore if report is None else report)
    if batches is not None:
        return made.batches(selected(batches, len(found.blocks), found.name))
    return (region for region in made.regions(first, min(last, size)) if region.end > first and region.start < last)


def findings(target: Any, *, limits: Limits = DEFAULT_LIMITS, accept_users: bool = False) -> Iterator[Finding]:
    """Yield deviations from the specification, by a walk over all bytes; arguments are as for :func:`walk`."""
    found: list[Finding] = []
    regions = walk(target, report=found.append, limits=limits, accept_users=accept_users)
    for _ in regions:
        yield from found
        found.clear()
    yield from found


def _ignore(finding: Finding) -> None:
    pass


def _position(what: str, value: Any) -> int:
    try:
        return as_index(value)
    except TypeError:
        raise InvalidType(f"{what}, found {shown(value)}") from None


def selected(batches: Any, count: int, name: str) -> range:
    """Return the numbers of the batches that an index or a slice selects."""
    if isinstance(batches, slice):
        return range(*batches.indices(count))
    index = _position("batches is an int or a slice", batches)
    if not 0 <= index < count:
        raise InvalidArgument(f"{name}: expected a batch from 0 to {count - 1}, found {index}; it has {count}")
    return range(index, index + 1)


class Part(NamedTuple):
    """A message: its position, its kind, and its number among messages of that kind."""

    start: int
    metadata: int
    body: int
    kind: int
    number: int


def parts_of(found: Overview, end: int) -> tuple[Any, Any]:
    """Return all known messages as rows of :class:`Part`, in order, and the running maximum of their ends."""
    listed = found.footer is not None
    rows = []
    for blocks, kind in ((found.dictionaries, DICTIONARY), (found.blocks, BATCH)):
        numbers = np.arange(len(blocks))
        rows.append(np.column_stack([blocks, np.full(len(blocks), kind), numbers]))
    messages = found.messages
    others = messages if listed else messages[~np.isin(messages[:, 3], (DICTIONARY, BATCH))]
    if listed and len(blocks_at := np.concatenate([found.dictionaries, found.blocks])):
        others = others[[not (blocks_at[:, 0] == at).any() for at in others[:, 0].tolist()]]  # one message or none
    rows.append(np.column_stack([others, np.arange(len(others))]))
    made = np.concatenate(rows).astype(np.int64)
    made = made[fitting(made, HEAD if listed else 0, end)]
    made = made[np.lexsort((-(made[:, 1] + made[:, 2]), made[:, 0]))]
    ends = made[:, :3].sum(axis=1)
    return made, np.maximum.accumulate(ends) if len(ends) else ends


class _Walk:
    """One walk over an object."""

    def __init__(self, found: Overview, report: Report) -> None:
        self._overview = found
        self._data: Bytes = found.data
        self._report = report
        self._legacy = False
        self._ended = False
        self._names: dict[int, str] | None = None
        self._extra = 0
        for each in found.findings:
            report(each)

    # --- the object ---

    def batches(self, chosen: range) -> Iterator[Region]:
        """Yield the regions of some record batches."""
        footer, blocks = self._overview.footer, self._overview.blocks
        inside = fitting(blocks, 0, self._overview.size if footer is None else footer[0])
        for number in chosen:
            if inside[number]:
                start, metadata, body = blocks[number].tolist()
                yield from self._message(Part(start, metadata, body, BATCH, number))

    def regions(self, first: int, last: int) -> Iterator[Region]:
        """Yield at least the regions that intersect [first, last)."""
        found = self._overview
        at = 0
        if found.kind in ("file", "bundle"):
            yield magic(0, len(MAGIC))
            if len(MAGIC) < found.size:
                end = min(HEAD, found.size)
                yield padding(self._data, len(MAGIC), end, "file", FILE, self._report)
            at = min(HEAD, found.size)
        end = found.size if found.footer is None else found.footer[0]
        parts, ends = parts_of(found, end)
        begin = int(np.searchsorted(ends, first, "right"))
        if begin:
            at = max(at, int(ends[begin - 1]))
        row = begin
        while row < len(parts):
            part = Part(*parts[row].tolist())
            if part.start >= last:
                end = min(end, part.start)
                break
            if part.start > at:
                yield from self._between(at, part.start)
            at = sum(part[:3])
            following = int(np.searchsorted(parts[:, 0], at))
            others = parts[row + 1 : following]
            row = max(following, row + 1)
            regions = self._message(part)
            yield from merge(regions, self._overlaps(others, at), key=_start) if len(others) else regions
        if at < min(end, last):
            yield from self._between(at, end)
        if found.footer is not None and last > found.footer[0]:
            yield from self._footer(*found.footer)

    def _overlaps(self, parts: Any, end: int) -> Iterator[Region]:
        """Yield regions of messages that start within another one, which ends at ``end``."""
        for row in parts:
            part = Part(*row.tolist())
            label = self._label(part)
            yield Region(part.start, min(sum(part[:3]), end), "overlap", f"{label} overlaps another", label, FILE)

    def _footer(self, start: int, end: int) -> Iterator[Region]:
        found = self._overview
        yield from Flat(self._data, start, end, "Footer", "footer", found.limits, self._report).regions()
        yield from ending(start, end)

    # --- between messages ---

    def _between(self, start: int, end: int) -> Iterator[Region]:
        """Yield regions outside listed messages: end-of-stream markers, padding and unlisted messages."""
        at, data, found = start, self._data, self._overview
        path = "file" if found.kind in ("file", "bundle") else "stream"
        while at < end:
            marker = self._marker(at, end)
            if marker:
                self._ended = True
                yield Region(at, at + marker, "end", "end of stream", path, _STREAM, 0)
                at += marker
                continue
            run = zeros(data, at, end)
            if at + run < end:
                run = ((at + run) & ~7) - at  # the first byte of a size may be zero
            if run > 0:
                stop = end if run >= EXAMINED else at + run
                yield padding(data, at, stop, path, MESSAGE, self._report)
                at = stop
                continue
            messages = None if self._ended and path == "stream" else scan(data, at, end, found.limits)
            if messages is not None and not len(messages.rows) and self._is_bare_schema(at, end):
                text = "the schema message has no prefix, so the file cannot be read as a stream"
                self._report(
                    Finding(at, end, "note", text, "none for readers of files, which take the footer's schema")
                )
                yield from Flat(data, at, end, "Message", "schema", found.limits, self._report).regions()
                return
            if messages is not None and not len(messages.rows) and messages.cut is not None:
                _, metadata, _, kind = messages.cut
                number = len(found.blocks) if kind == BATCH and found.footer is None else self._extra
                yield from self._message(Part(at, metadata, end - at - metadata, kind, number))
                return
            if messages is None or not len(messages.rows):
                reason = messages.problem if messages is not None else "they follow the end of the stream"
                text = f"{counted(end - at, 'byte')} that nothing refers to: {reason}"
                self._report(Finding(at, end, "warning", text, "none for readers, which ignore them"))
                raw = bytes(data[at : min(end, at + 16)]).hex(" ")
                yield Region(at, end, "gap", f"{counted(end - at, 'byte')} that nothing refers to", path, "", raw)
                return
            for row in messages.rows.tolist():
                part = Part(row[0], row[1], row[2], row[3], self._extra)
                self._extra += 1
                if found.kind == "file" and found.footer is not None and part.kind != SCHEMA:
                    text = f"{self._label(part)} at {part.start} is not listed in the footer"
                    remedy = "readers of the file do not see it; open it as a stream from byte 8 on"
                    self._report(Finding(part.start, sum(part[:3]), "note", text, remedy))
                yield from self._message(part)
            at = messages.end

    def _is_bare_schema(self, start: int, end: int) -> bool:
        """Return whether the first message of a file is a FlatBuffer without a prefix, as written by polars."""
        if start != HEAD:
            return False
        try:
            return read_envelope(self._data[start:end]).kind == SCHEMA
        except ShmarrowError:
            return False

    def _marker(self, start: int, end: int) -> int:
        """Return the size of the end-of-stream marker at ``start``; 0 if absent."""
        head = bytes(self._data[start : min(start + 8, end)])
        if head == CONTINUATION + bytes(4):
            return 8
        return 4 if self._legacy and not self._ended and head[:4] == bytes(4) else 0

    # --- a message ---

    def _label(self, part: Part) -> str:
        name = NAMES.get(part.kind, "message")
        if part.kind in (TENSOR, SPARSE) and (own := self._tensor_names().get(part.start)) is not None:
            return f"{name} {own!r}"
        return name if part.kind == SCHEMA else f"{name} {part.number}"

    def _tensor_names(self) -> dict[int, str]:
        """Return the names of a bundle's tensors by message offset."""
        if self._names is None:
            self._names = {}
            if self._overview.kind == "bundle":
                try:
                    index = RecordBatchFileReader(self._overview.source, self._overview.limits).get_batch(0)
                    columns: Any = index.columns
                    self._names = dict(zip(columns[1].to_pylist(), columns[0].to_pylist(), strict=True))
                except (ShmarrowError, IndexError):
                    self._names = {}  # the walk of the index reports the defect
        return self._names

    def _message(self, part: Part) -> Iterator[Region]:
        start, body = part.start, part.start + part.metadata
        end = body + part.body
        label, data, limits = self._label(part), self._data, self._overview.limits
        try:
            found = message_at(data[:body], start, label, limits, parse=unparsed, cut=True)
            if found is None:
                raise InvalidArgument(f"{label}: no message fits its {part.metadata} bytes of metadata")
        except ShmarrowError as error:
            yield from self._refused(start, end, label, error)
            return
        flat, size = found.metadata, found.body - found.metadata
        self._legacy = flat - start == 4
        yield from self._prefix(start, flat - start, size, label)
        regions = Flat(data, flat, flat + size, "Message", label, limits, self._report).regions()
        yield from regions
        if flat + size < body:
            yield padding(data, flat + size, body, label, MESSAGE, self._report)
        if body == end:
            return
        cut = start == self._overview._cut  # already reported by the overview; further findings would follow from it
        report = _ignore if cut else self._report
        made = Body(data, body, end, label, report)
        try:
            regions = self._body(part, made, flat, size, label, report)
        except ShmarrowError as error:
            report(Finding(body, end, "error", _named(label, error), _WRITE_AGAIN))
            regions = made.other()
        yield from regions

    def _refused(self, start: int, end: int, label: str, error: ShmarrowError) -> Iterator[Region]:
        self._report(Finding(start, end, "error", _named(label, error), _WRITE_AGAIN))
        yield Region(start, end, "unknown", f"{label}, which cannot be read", label, MESSAGE)

    def _prefix(self, start: int, prefix: int, size: int, label: str) -> Iterator[Region]:
        what = "message prefix: " + ("continuation marker and " if prefix == 8 else "") + "size of the metadata"
        yield Region(start, start + prefix, "prefix", what, label, MESSAGE, size)

    def _body(self, part: Part, made: Body, flat: int, size: int, label: str, report: Report) -> Iterator[Region]:
        """Return the regions of a message's body."""
        found = self._overview
        body = part.start + part.metadata
        message = parse_metadata(self._data[flat : flat + size], label, found.limits)
        if message.body_length != part.body:
            text = f"{label}: the metadata declares a body of {message.body_length} bytes, but {part.body} are present"
            report(Finding(body, body + part.body, "error", text, _WRITE_AGAIN))
        if message.kind in ("Tensor", "SparseTensor"):
            return made.tensor(message)
        if message.kind == "Schema":
            return made.other()
        batch = batch_of(message, body, label)
        if message.kind == "RecordBatch":
            return made.batch(batch, found.roles_of(batch))
        layouts = () if found.schema is None else found.schema._source.dictionary_layouts()  # type: ignore[union-attr]
        id = message.header["id"]
        if id not in layouts:
            return made.batch(batch, ())
        v4 = message.version == ENUMS["MetadataVersion"]["V4"]
        return made.batch(batch, expanded(roles_of([layouts[id]], v4, dictionary=True), batch.variadic))


def magic(start: int, end: int, padding: str = "") -> Region:
    """Return the region of a magic string."""
    text = MAGIC.decode()
    return Region(start, end, "magic", f"magic string {text!r}{padding}", "file", FILE, text)


def ending(start: int, end: int) -> Iterator[Region]:
    """Yield what follows a footer at [start, end)."""
    last = end + END.size
    yield Region(end, last - len(MAGIC), "size", "size of the footer", "file", FILE, end - start)
    yield magic(last - len(MAGIC), last)


def _start(region: Region) -> int:
    return region.start


def _named(label: str, error: Exception) -> str:
    """Return the message of an error, prefixed with the name of the part."""
    text = str(error)
    return text if text.startswith(label) else f"{label}: {text}"
