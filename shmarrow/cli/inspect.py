# SPDX-License-Identifier: Apache-2.0
"""``shmarrow inspect``: what an Arrow object is, what its columns take, and who has it attached.

Invariants:

* what is printed and what ``--json`` prints are the same facts, which :func:`facts` collects;
* nothing but metadata is read, so that the size of an object does not matter. Of a file or a stream everything comes
  from the metadata of batches, read with :class:`shmarrow.xray.Overview`; of compressed buffers the first 8 bytes are
  read too, which tell the size that they decompress to;
* a batch that breaks the format is left out and counted; ``shmarrow validate`` tells what is wrong with it.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterator, Sequence
from itertools import count
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

import shmarrow as sa
from shmarrow.cli import schemas
from shmarrow.cli.command import (
    TARGETS,
    Fields,
    Grid,
    batches_text,
    clipped,
    command,
    exact_size,
    progress_line,
    render,
)
from shmarrow.cli.many import Surveyed, many_sources, report, survey
from shmarrow.cli.rows import as_json
from shmarrow.cli.targets import open_bytes
from shmarrow.display import size as size_text
from shmarrow.errors import DEFAULT_LIMITS, ShmarrowError, counted, printable
from shmarrow.ipc.contents import KINDS, ROWS, contents
from shmarrow.ipc.schema.lazy import FieldLayout, encoded_fields
from shmarrow.scans.sources import split_name

if TYPE_CHECKING:
    import numpy.typing as npt

    from shmarrow.xray import Overview
    from shmarrow.xray.overviews import Batch

    Numbers = npt.NDArray[np.int64]
    from shmarrow.xray import BufferRole


ALIGNED = 64


class Measured(NamedTuple):
    """Totals of all batches that can be read.

    Attributes
    ----------
    rows : int
        Their rows.
    broken : int
        How many batches cannot be read.
    lengths, nulls : list of int
        For each field node.
    stored, plain : list of int
        For each buffer: bytes as stored, and bytes when decompressed.
    used : list of bool
        For each buffer whether it ever has bytes.
    alignment : list of int
        For each buffer the largest power of two up to 64 that the offsets of all are multiples of.
    """

    rows: int
    broken: int
    lengths: list[int]
    nulls: list[int]
    stored: list[int]
    plain: list[int]
    used: list[bool]
    alignment: list[int]


def measure(found: Overview, progress: Callable[[int], None]) -> Measured:
    """Read the metadata of all batches; ``progress`` is told their number."""
    roles = len(found.buffer_roles)
    sums = np.zeros((3, roles), object)  # Python ints: hostile lengths add up to more than 64 bits
    totals = np.zeros((found.num_nodes, 2), object)
    offsets = np.zeros(roles, np.int64)
    rows = broken = 0
    for number in range(len(found.blocks)):
        progress(number)
        try:
            batch = found.batch(number)
        except ShmarrowError:
            broken += 1
            continue
        owners = _owners(found, batch)
        if len(owners) != len(batch.buffers) or len(batch.nodes) != found.num_nodes:
            broken += 1
            continue
        rows += max(batch.rows, 0)
        totals += batch.nodes.clip(0, None).astype(object)
        starts, lengths = batch.buffers[:, 0] + batch.body, batch.buffers[:, 1].clip(0, found.size)
        used = lengths > 0
        for row, values in enumerate((lengths, _decompressed(found, starts, lengths, used), used)):
            made = np.zeros(roles, np.int64)
            np.add.at(made, owners, values)
            sums[row] += made.astype(object)
        np.bitwise_or.at(offsets, owners, np.where(used, starts, 0))
    low = (offsets | ALIGNED) & -(offsets | ALIGNED)
    lengths, nulls, stored, plain = [row.tolist() for row in (*totals.T, *sums[:2])]
    return Measured(rows, broken, lengths, nulls, stored, plain, sums[2].astype(bool).tolist(), low.tolist())


def _owners(found: Overview, batch: Batch) -> Numbers:
    """The number of the role of each buffer."""
    counts = iter(batch.variadic)
    return np.repeat(
        np.arange(len(found.buffer_roles)), [next(counts, 0) if role.variadic else 1 for role in found.buffer_roles]
    )


def _decompressed(found: Overview, starts: Numbers, lengths: Numbers, used: Any) -> Numbers:
    """The sizes of buffers when decompressed; as stored where they are not compressed."""
    if not found.compression:
        return lengths
    made = lengths.copy()
    where = np.nonzero(used & (lengths >= 8) & (starts >= 0) & (starts <= found.size - 8))
    at = starts[where]
    sizes = found.data[at[:, None] + np.arange(8)].view("<i8")[:, 0]
    made[where] = np.where(sizes < 0, lengths[where] - 8, sizes).clip(0, 1 << 40)
    return made


_COLUMNS = 60
"""Rows of the table of columns on a terminal."""
_DICTIONARIES = 1 << 12
"""Dictionary batches that are read."""
_Sizes = dict[int, list[tuple[str, int, int]]]
"""For each field node its buffers: their names, and their bytes as stored and decompressed."""
_ALIGNMENTS = {
    "64": ("64 bytes", "no consumer has to copy for alignment"),
    "8": ("8 bytes", "only JAX has to copy for alignment"),
    "element": ("their elements", "only JAX has to copy for alignment"),
    "less": ("less than their elements need", "copied by JAX, polars and other users of arrow-rs"),
}
"""Classes of buffers by their name in JSON: what they are aligned to, and which consumers copy them."""


@command(*TARGETS)
def inspect(arguments: argparse.Namespace) -> int:
    """Describe an Arrow object."""
    from shmarrow.xray import Overview

    fragments = many_sources(arguments, arguments.target)
    if fragments is not None:
        return _inspect_many(arguments, survey(arguments, fragments))
    with open_bytes(arguments.target, arguments.accept_users) as source:
        overview = Overview(source, DEFAULT_LIMITS)
        found = {"target": arguments.target, "kind": overview.kind, "bytes": overview.size}
        if overview.kind in ROWS:
            with progress_line(f"inspect {printable(arguments.target)}: batch", len(overview.blocks)) as progress:
                found |= facts(overview, progress)
        else:
            found["tensors"] = schemas.tensors(contents(source).content)
    found["stored"] = _stored(arguments)
    render(arguments.json, found, *_texts(found))
    return 0


def _inspect_many(arguments: argparse.Namespace, surveyed: Sequence[Surveyed]) -> int:
    """Describe the files of a directory or a pattern: each by itself, their rows, and the schema of the first."""
    problems, status = report(arguments, surveyed)
    rows, size = sum([each.rows for each in surveyed]), sum([each.nbytes for each in surveyed])
    fields = {
        "target": arguments.target,
        "kind": "many files as one table",
        "rows": f"{rows} in {counted(len(surveyed), 'source')}",
        "size": exact_size(size),
        "problems": f"{counted(len(problems), 'source')} that cannot be read" if problems else "",
    }
    good = [each for each in surveyed if each.problem is None]
    cells = [(each.source, str(each.rows), str(each.batches), size_text(each.nbytes)) for each in good]
    shown = cells[:_COLUMNS] if sys.stdout.isatty() else cells
    more = [f"{len(cells) - len(shown)} more; `shmarrow inspect TARGET | cat` shows all"][: len(cells) - len(shown)]
    schema = next((each.schema for each in surveyed if each.schema is not None), sa.schema([]))
    columns = [row[:3] for row in schemas.tree(schema, sys.stdout.isatty())]
    document = {
        "target": arguments.target, "kind": "scan", "sources": [each.source for each in surveyed], "rows": rows,
        "bytes": size, "problems": problems,
        "files": [dict(zip(("source", "rows", "batches", "bytes"), each, strict=False)) for each in good],
        **schemas.as_json(schema),
    }  # fmt: skip
    render(
        arguments.json, document, Fields(fields), "", Grid(("source", "rows", "batches", "bytes"), shown, (0,), True),
        *more, "", Grid(["field", "type", "nulls"], columns, range(3)),
    )  # fmt: skip
    return status


def _stored(arguments: argparse.Namespace) -> dict[str, Any] | None:
    """Return the store's description of an object; None if it is in no store."""
    place = split_name(arguments.target)
    if place is None:
        return None
    from shmarrow.cli.host import described

    with sa.Store(place[0], accept_users=arguments.accept_users, create=False) as store:
        return {"store": store.name, **described(store.info(place[1]))}


# --- facts --------------------------------------------------------------------------------------------------------


def facts(found: Overview, progress: Callable[[int], None] = lambda _: None) -> dict[str, Any]:
    """Describe a file or a stream, as JSON."""
    measured = measure(found, progress)
    severities = [each.severity for each in found.findings]
    sizes: _Sizes = {}
    for role, stored, plain in zip(found.buffer_roles, measured.stored, measured.plain, strict=True):
        sizes.setdefault(role.node, []).append((role.buffer, stored, plain))
    return {
        "version": found.version,
        "endianness": found.endianness,
        "compression": found.compression,
        "batches": len(found.blocks),
        "rows": measured.rows,
        "truncated": found.truncated,
        "unreadable_batches": measured.broken,
        "metadata": schemas.text_pairs({} if found.schema is None else found.schema.metadata),
        "statistics": _statistics(found),
        "columns": _columns(found.layouts, measured, sizes, count()),
        "dictionaries": _dictionaries(found),
        "alignment": _alignment(found, measured),
        "findings": {severity: severities.count(severity) for severity in ("error", "warning", "note")},
    }


def _statistics(found: Overview) -> dict[str, Any] | None:
    """The bounds of all values of each column that the footer has statistics of; None if there are none, or broken."""
    try:
        statistics = found.statistics
    except sa.ShmarrowError:
        return None  # `validate` tells what is wrong with it
    if statistics is None:
        return None
    from shmarrow.ipc.file.statistics import BOUND
    from shmarrow.layout.order import extremes

    made: dict[str, Any] = {}
    columns: list[Any] = statistics.columns
    for name, column in zip(statistics.schema.names, columns, strict=True):
        nulls, least, greatest = column.flatten()[:3]
        unknown = (greatest.is_null().values & least.is_valid().values).any()
        bounds = {"least": extremes(least, BOUND)[0], "greatest": extremes(greatest, BOUND)[1].slice(int(unknown))}
        made[name] = {"nulls": int(nulls.values.sum())}
        made[name] |= {side: as_json(bound[0]) if len(bound) else None for side, bound in bounds.items()}
    return made


def _columns(layouts: Sequence[FieldLayout], measured: Measured, sizes: _Sizes, nodes: Iterator[int]) -> list[Any]:
    """The fields with all below them: type, nulls and bytes; they are numbered like the nodes of a batch."""
    made = []
    for layout in layouts:
        node = next(nodes)
        children = _columns(layout.children, measured, sizes, nodes)
        own = sizes.get(node, [])
        stored = sum([size for _, size, _ in own]) + sum([each["bytes"] for each in children])
        plain = sum([size for _, _, size in own]) + sum([each["decompressed"] for each in children])
        column = {
            "name": layout.field.name,
            "type": str(layout.field.type),
            "nullable": layout.field.nullable,
            "values": measured.lengths[node],
            "nulls": measured.nulls[node],
            "bytes": stored,
            "decompressed": plain,
            "ratio": round(plain / stored, 3) if stored else None,
            "buffers": {name: size for name, size, _ in own},
        }
        made.append({**column, "children": children} if children else column)
    return made


def _dictionaries(found: Overview) -> list[dict[str, Any]]:
    """The dictionaries by id: which columns use them, and what they take."""
    from shmarrow.xray.overviews import read_batch

    made: dict[int, dict[str, Any]] = {}
    sums = {"values": 0, "bytes": 0, "batches": 0, "deltas": 0}
    for field in encoded_fields(found.layouts):
        assert field.dictionary_id is not None
        assert field.values is not None
        id = field.dictionary_id
        each = made.setdefault(id, {"id": id, "type": str(field.values.field.type), "fields": [], **sums})
        each["fields"].append(field.field.name)
    for offset, length, body in found.dictionaries[:_DICTIONARIES].tolist():
        try:
            batch = read_batch(found.data, offset, length, found.name, DEFAULT_LIMITS)
            header = batch.message.header
            each = made[header["id"]]
        except (sa.ShmarrowError, KeyError):
            continue  # `validate` tells what is wrong with it
        delta = bool(header["isDelta"])
        each["values"] = batch.rows + (each["values"] if delta else 0)
        each["bytes"] += max(body, 0)
        each["batches"] += 1
        each["deltas"] += delta
    return list(made.values())


def _alignment(found: Overview, measured: Measured) -> dict[str, Any]:
    """Count the buffers of a batch by alignment, and list those that are not aligned for their elements."""
    counts = dict.fromkeys(_ALIGNMENTS, 0)
    less = []
    for role, alignment, used in zip(found.buffer_roles, measured.alignment, measured.used, strict=True):
        if not used:
            continue
        needed = element_bytes(role)
        name = (
            "64" if alignment >= ALIGNED
            else "less" if alignment < needed
            else "8" if alignment >= 8
            else "element"
        )  # fmt: skip
        counts[name] += 1
        if name == "less":
            less.append({"field": role.path, "buffer": role.buffer, "alignment": alignment, "needed": needed})
    return {**counts, "misaligned": less}


def element_bytes(role: BufferRole) -> int:
    """The alignment that the elements of a buffer need: 1 for bits, text and fixed-size binary."""
    if (
        role.type.startswith(("fixed_size_binary", "day_time_interval", "month_day_nano_interval"))
        or role.buffer == "views"
    ):
        return {"d": 4, "m": 8}.get(role.type[0], 8 if role.buffer == "views" else 1)
    return role.bits // 8 if role.bits in (16, 32, 64, 128, 256) else 1


# --- showing ------------------------------------------------------------------------------------------------------


def _texts(found: dict[str, Any]) -> Iterator[Fields | Grid | str]:
    fields = {"target": found["target"], "kind": KINDS[found["kind"]].title, "size": exact_size(found["bytes"])}
    if found["kind"] in ROWS:
        fields |= _row_fields(found)
    if (stored := found["stored"]) is not None:
        from shmarrow.cli.host import state_fields

        fields["store"] = f"{stored['store']}, object {stored['name']}, kind {stored['kind']}"
        fields |= state_fields(stored)
    yield Fields(fields)
    if found["kind"] in ROWS:
        yield from _tables(found)
    else:
        yield ""
        yield schemas.tensor_table(found["tensors"])


def _row_fields(found: dict[str, Any]) -> dict[str, str | list[str]]:
    broken = found["unreadable_batches"]
    problems = ", ".join([f"{severity}s" for severity, number in found["findings"].items() if number])
    return {
        "format": f"metadata version {found['version']}, {found['endianness']}-endian",
        "rows": _rows(found),
        "compression": _compression(found),
        "metadata": [f"{clipped(key)}: {clipped(value)}" for key, value in found["metadata"].items()],
        "statistics": [_bounds(name, each) for name, each in (found["statistics"] or {}).items()],
        "unreadable": batches_text(broken) if broken else "",
        "problems": f"{problems}; `shmarrow validate` lists them" if problems else "",
    }


def _bounds(name: str, found: dict[str, Any]) -> str:
    low, high = ["?" if found[key] is None else clipped(str(found[key])) for key in ("least", "greatest")]
    return f"{clipped(name)}: {low} to {high}"


def _tables(found: dict[str, Any]) -> Iterator[Grid | str]:
    rows = list(_column_rows(found["columns"], ""))
    if rows:
        yield ""
        shown = rows[:_COLUMNS] if sys.stdout.isatty() else rows
        headers = ("column", "type", "nulls", "bytes", "ratio", "buffers")
        keep = [i for i, header in enumerate(headers) if header != "ratio" or found["compression"]]
        cells = [[row[i] for i in keep] for row in shown]
        yield Grid([headers[i] for i in keep], cells, (0, 1, len(keep) - 1), True)
        if len(shown) < len(rows):
            yield f"{len(rows) - len(shown)} more fields; `shmarrow inspect TARGET | cat` shows all"
    if found["dictionaries"]:
        yield ""
        yield Grid(
            ("dictionary", "fields", "type", "values", "batches", "bytes"),
            [
                (
                    str(each["id"]), ", ".join(each["fields"]), each["type"], str(each["values"]),
                    f"{each['batches']}{_deltas(each)}", size_text(each["bytes"]),
                )
                for each in found["dictionaries"]
            ],
            (0, 1, 2), True,
        )  # fmt: skip
    if any(found["alignment"][name] for name in _ALIGNMENTS):
        yield ""
    swapped = "every consumer swaps the bytes" if (found["endianness"], sys.byteorder) == ("big", "little") else ""
    decompressed = "decompressed anyway" if found["compression"] else ""
    for name, (what, who) in _ALIGNMENTS.items():
        if number := found["alignment"][name]:
            yield f"{counted(number, 'buffer')} per batch aligned to {what}: {swapped or decompressed or who}"
    for each in found["alignment"]["misaligned"][:10]:
        yield (
            f"  {each['buffer']} of {printable(each['field'])}: aligned to {each['alignment']}, "
            f"its elements need {each['needed']}"
        )


def _rows(found: dict[str, Any]) -> str:
    """Return the number of rows as text; of a truncated object, that of its whole batches."""
    text = f"{found['rows']} in {batches_text(found['batches'])}"
    if not found["truncated"]:
        return text
    return f"{text} before the end, which is missing" if found["batches"] else "unknown: the end is missing"


def _deltas(each: dict[str, Any]) -> str:
    return f" ({counted(each['deltas'], 'delta')})" if each["deltas"] else ""


def _compression(found: dict[str, Any]) -> str:
    if not found["compression"]:
        return ""
    stored, plain = (sum([each[key] for each in found["columns"]]) for key in ("bytes", "decompressed"))
    ratio = f", ratio {plain / stored:.2f}" if stored else ""
    return f"{found['compression']}{ratio}; every consumer has to decompress the columns it reads"


def _column_rows(columns: Sequence[dict[str, Any]], indent: str) -> Iterator[list[str]]:
    for each in columns:
        buffers = ", ".join([f"{name} {size_text(size)}" for name, size in each["buffers"].items() if size])
        ratio = "" if each["ratio"] is None else f"{each['ratio']:.2f}"
        yield [indent + each["name"], each["type"], str(each["nulls"]), size_text(each["bytes"]), ratio, buffers]
        yield from _column_rows(each.get("children", ()), indent + "  ")
