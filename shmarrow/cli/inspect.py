"""``shmarrow inspect``: what an Arrow object is, what its columns take, and who has it attached.

Invariants:

* what is printed and what ``--json`` prints are the same facts, which :func:`facts` collects;
* nothing but metadata is read, see ``cli/measure.py``, so that the size of an object does not matter.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import shmarrow as sa
from shmarrow.cli import schemas
from shmarrow.cli.measure import ALIGNED, Measured, measure, row_total
from shmarrow.cli.report import Fields, Table, clipped, render, reporting, size_text, time_text
from shmarrow.cli.targets import Target, add_target, open_bytes, refuse_others, stored
from shmarrow.errors import DEFAULT_LIMITS, counted, printable
from shmarrow.ipc.schema.decode import FieldLayout, encoded_fields

if TYPE_CHECKING:
    from shmarrow.xray import BufferRole, Overview

_KINDS = {
    "file": "Arrow file", "stream": "Arrow stream", "bundle": "bundle of tensors (an Arrow file)",
    "tensor": "tensor message", "sparse tensor": "sparse tensor message",
}  # fmt: skip
_COLUMNS = 60
"""Rows of the table of columns on a terminal."""
_DICTIONARIES = 1 << 12
"""Dictionary batches that are read."""
_STORED = ("generation", "path", "age", "idle", "pins", "expires_in", "owner", "orphaned", "protected")
ALIGNMENTS = (
    ("64", ALIGNED, "no consumer has to copy for alignment"),
    ("8", 8, "only JAX has to copy for alignment"),
    ("element", 1, "only JAX has to copy for alignment"),
    ("less", 0, "copied by JAX, polars and other users of arrow-rs"),
)
"""Classes of buffers: their name in JSON, the least alignment in bytes, and which consumers copy them."""


def inspect_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of ``inspect``."""
    add_target(parser)
    parser.add_argument("--exact", action="store_true", help="read the metadata of all batches instead of a sample")


@reporting
def inspect(arguments: argparse.Namespace) -> int:
    """Describe an Arrow object."""
    with open_bytes(arguments.target, arguments.trust) as (name, source):
        refuse_others(name, source.data)
        from shmarrow.xray import Overview

        overview = Overview(source, DEFAULT_LIMITS)
        kind = overview.kind
        found = {"target": arguments.target, "kind": kind, "bytes": overview.size}
        if kind in ("file", "stream"):
            found |= facts(overview, arguments.exact)
        else:
            found["tensors"] = schemas.tensors(Target(name, kind, source, source.data))
    found["stored"] = _stored(arguments)
    render(arguments.json, found, *_texts(found))
    return 0


def _stored(arguments: argparse.Namespace) -> dict[str, Any] | None:
    """Return the store's description of an object; None if it is in no store."""
    with stored(arguments.target, arguments.trust) as store_and_name:
        if store_and_name is None:
            return None
        store, name = store_and_name
        info = store.info(name)
        return {
            "store": store.name,
            "name": name,
            "kind": info.kind,
            **{field: getattr(info, field) for field in _STORED},
        }


# --- facts --------------------------------------------------------------------------------------------------------


def facts(found: Overview, exact: bool = False) -> dict[str, Any]:
    """Describe a file or a stream, as JSON."""
    measured = measure(found, exact)
    rows, rows_exact = row_total(found, measured, exact)
    return {
        "version": found.version,
        "endianness": found.endianness,
        "compression": found.compression,
        "batches": len(found.blocks),
        "rows": rows,
        "rows_exact": rows_exact,
        "truncated": found._cut is not None or (found.kind == "file" and found.footer is None),
        "sampled_batches": None if measured.exact else measured.read,
        "unreadable_batches": measured.broken,
        "metadata": schemas.text_pairs({} if found.schema is None else found.schema.metadata),
        "columns": [_column(column, found, measured) for column in _fields(found.wires)],
        "dictionaries": _dictionaries(found),
        "alignment": _alignment(found, measured),
        "findings": _severities(found),
    }


def _severities(found: Overview) -> dict[str, int]:
    severities = [each.severity for each in found.findings]
    return {severity: severities.count(severity) for severity in ("error", "warning", "note")}


class _Node:
    """A field with its number among the nodes of a batch, and its children."""

    __slots__ = ("children", "last", "number", "wire")

    def __init__(self, wire: FieldLayout, number: int) -> None:
        self.wire = wire
        self.number = self.last = number
        self.children: list[_Node] = []
        for child in wire.children:
            self.children.append(_Node(child, self.last + 1))
            self.last = self.children[-1].last


def _fields(wires: Sequence[FieldLayout]) -> Iterator[_Node]:
    number = 0
    for wire in wires:
        node = _Node(wire, number)
        yield node
        number = node.last + 1


def _column(node: _Node, found: Overview, measured: Measured) -> dict[str, Any]:
    """A field with all below it: its type, nulls and bytes."""
    own, below = _buffers_of(found, node.number, node.number), _buffers_of(found, node.number, node.last)
    stored_bytes = sum([measured.stored[i] for i in below])
    plain = sum([measured.plain[i] for i in below])
    buffers: dict[str, int] = {}
    for i in own:
        name = found.buffer_roles[i].buffer
        buffers[name] = buffers.get(name, 0) + measured.scaled(measured.stored[i])
    made = {
        "name": node.wire.field.name,
        "type": str(node.wire.field.type),
        "nullable": node.wire.field.nullable,
        "values": measured.scaled(measured.lengths[node.number]),
        "nulls": measured.scaled(measured.nulls[node.number]),
        "bytes": measured.scaled(stored_bytes),
        "decompressed": measured.scaled(plain),
        "ratio": round(plain / stored_bytes, 3) if stored_bytes else None,
        "buffers": buffers,
    }
    if node.children:
        made["children"] = [_column(child, found, measured) for child in node.children]
    return made


def _buffers_of(found: Overview, first: int, last: int) -> range:
    """The buffers of the nodes from ``first`` to ``last``: they follow each other."""
    from bisect import bisect_left, bisect_right

    columns = found.buffer_roles
    return range(
        bisect_left(columns, first, key=lambda role: role.node), bisect_right(columns, last, key=lambda role: role.node)
    )


def _dictionaries(found: Overview) -> list[dict[str, Any]]:
    """The dictionaries by id: which columns use them, and what they take."""
    from shmarrow.xray.messages import read_batch

    made: dict[int, dict[str, Any]] = {}
    for field in encoded_fields(found.wires):
        assert field.dictionary_id is not None
        assert field.values is not None
        id, values = field.dictionary_id, field.values
        new = {
            "id": id,
            "type": str(values.field.type),
            "fields": [],
            "values": 0,
            "bytes": 0,
            "batches": 0,
            "deltas": 0,
        }
        each = made.setdefault(id, new)
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
    counts = dict.fromkeys([name for name, _, _ in ALIGNMENTS], 0)
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


def _texts(found: dict[str, Any]) -> Iterator[Fields | Table | str]:
    fields = {"target": printable(found["target"]), "kind": _KINDS[found["kind"]], "size": _exact_size(found["bytes"])}
    if "tensors" in found:
        yield Fields({**fields, **_stored_fields(found["stored"])})
        yield ""
        yield schemas.tensor_table(found["tensors"])
        return
    fields |= {
        "format": f"metadata version {found['version']}, {found['endianness']}-endian",
        "rows": _rows(found),
        "compression": _compression(found),
        "estimated": ""
        if found["sampled_batches"] is None
        else f"columns, from {found['sampled_batches']} of {found['batches']} batches; --exact reads all",
        "metadata": "\n".join([f"{clipped(key)}: {clipped(value)}" for key, value in found["metadata"].items()]),
        "unreadable": _batches(found["unreadable_batches"]) if found["unreadable_batches"] else "",
        "problems": _problems(found),
        **_stored_fields(found["stored"]),
    }
    yield Fields(fields)
    rows = list(_column_rows(found["columns"], ""))
    if rows:
        yield ""
        shown = rows if not sys.stdout.isatty() or len(rows) <= _COLUMNS else rows[:_COLUMNS]
        headers = ("column", "type", "nulls", "bytes", "ratio", "buffers")
        keep = [i for i, _ in enumerate(headers) if headers[i] != "ratio" or found["compression"]]
        cells = [[row[i] for i in keep] for row in shown]
        yield Table([headers[i] for i in keep], cells, (0, 1, len(keep) - 1), True)
        if len(shown) < len(rows):
            yield (f"{len(rows) - len(shown)} more fields; `shmarrow inspect TARGET | cat` shows all")
    if found["dictionaries"]:
        yield ""
        yield Table(
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
    if any(found["alignment"][name] for name, _, _ in ALIGNMENTS):
        yield ""
        yield from _alignment_lines(found)


def _rows(found: dict[str, Any]) -> str:
    """Return the number of rows as text; of a truncated object, that of its whole batches."""
    about = "" if found["rows_exact"] else "about "
    text = f"{about}{found['rows']} in {_batches(found['batches'])}"
    if not found["truncated"]:
        return text
    return f"{text} before the end, which is missing" if found["batches"] else "unknown: the end is missing"


def _deltas(each: dict[str, Any]) -> str:
    return f" ({counted(each['deltas'], 'delta')})" if each["deltas"] else ""


def _batches(number: int) -> str:
    return "1 batch" if number == 1 else f"{number} batches"


def _exact_size(size: int) -> str:
    return f"{size_text(size)} ({size} bytes)" if size >= 1024 else size_text(size)


def _compression(found: dict[str, Any]) -> str:
    if not found["compression"]:
        return ""
    stored_bytes, plain = (sum([each[key] for each in found["columns"]]) for key in ("bytes", "decompressed"))
    ratio = f", ratio {plain / stored_bytes:.2f}" if stored_bytes else ""
    return f"{found['compression']}{ratio}; every consumer has to decompress the columns it reads"


def _problems(found: dict[str, Any]) -> str:
    parts = [f"{severity}s" for severity, number in found["findings"].items() if number]
    return f"{', '.join(parts)}; `shmarrow validate` lists them" if parts else ""


def _stored_fields(info: dict[str, Any] | None) -> dict[str, str]:
    if info is None:
        return {}
    owner = "orphaned" if info["orphaned"] else "" if info["owner"] is None else f"process {info['owner']}"
    states = ["protected"] if info["protected"] else []
    made = {
        "store": f"{printable(info['store'])}, object {printable(info['name'])}, kind {info['kind']}",
        "file": printable(info["path"]) if info["path"] else "none: it is inline in the control file",
        "generation": str(info["generation"]),
        "age": f"{time_text(info['age'])}, last used {time_text(info['idle'])} ago",
        "pins": f"{info['pins']} (processes that have it attached)",
        "owner": owner,
        "state": ", ".join(states),
        "expires": "" if info["expires_in"] is None else f"in {time_text(info['expires_in'])}",
    }
    return made


def _column_rows(columns: Sequence[dict[str, Any]], indent: str) -> Iterator[list[str]]:
    for each in columns:
        buffers = ", ".join([f"{name} {size_text(size)}" for name, size in each["buffers"].items() if size])
        ratio = "" if each["ratio"] is None else f"{each['ratio']:.2f}"
        yield [indent + each["name"], each["type"], str(each["nulls"]), size_text(each["bytes"]), ratio, buffers]
        yield from _column_rows(each.get("children", ()), indent + "  ")


def _alignment_lines(found: dict[str, Any]) -> Iterator[str]:
    texts = {"64": "64 bytes", "8": "8 bytes", "element": "their elements", "less": "less than their elements need"}
    swapped = found["endianness"] == "big" and sys.byteorder == "little"
    for name, _, who in ALIGNMENTS:
        number = found["alignment"][name]
        if number:
            why = (
                "every consumer swaps the bytes" if swapped else "decompressed anyway" if found["compression"] else who
            )
            yield f"{counted(number, 'buffer')} per batch aligned to {texts[name]}: {why}"
    for each in found["alignment"]["misaligned"][:10]:
        yield (
            f"  {each['buffer']} of {printable(each['field'])}: aligned to {each['alignment']}, "
            f"its elements need {each['needed']}"
        )
