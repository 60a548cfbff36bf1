"""The HTML page of an object: one self-contained file that draws its bytes to scale.

The page has no access to the network: a content security policy allows its own style sheet and script only, by their
hashes. What it shows travels in it as one compressed block: a JSON document, and runs of variable-length integers for
what there are many of. A page stays below two megabytes: of large objects only some batches are shown buffer by buffer.
"""

from __future__ import annotations

import base64
import hashlib
import html
import json
import zlib
from importlib import resources
from itertools import islice
from typing import TYPE_CHECKING, Any

import numpy as np

from shmarrow import segment
from shmarrow.errors import ShmarrowError, printable
from shmarrow.segment.location import Location
from shmarrow.xray.glance import summary
from shmarrow.xray.model import KINDS, Region
from shmarrow.xray.overviews import Overview
from shmarrow.xray.walker import NAMES, parts_of, walk

if TYPE_CHECKING:
    import numpy.typing as npt

SCRIPTS = ("data.js", "draw.js", "panels.js", "main.js")
"""The script, in the order in which its files are joined."""

_BUDGET = 1_350_000
"""Compressed bytes of data in a page: with the base64 encoding below 1.9 MB."""
_PAIRS, _BATCHES, _VIEW_BATCHES = 2_500_000, 2000, 300
"""Most buffers and batches that are shown in detail; fewer batches if a column is a view, as each is read by itself."""
_HEAD, _TAIL = 3000, 1500
"""Regions that are listed from the start of the object on, and from its footer on."""
_TEXT = 200
"""Characters of a name or a value."""
_SHOWN_BYTES = 48
"""Bytes of a small region that the page shows; never those of a buffer, which are data."""
_DATA = ("buffer", "gap", "unknown", "overlap")


def page(found: Overview, *, batches: slice | None = None) -> str:
    """Draw an object as an HTML page.

    Parameters
    ----------
    found : Overview
        The object.
    batches : slice, optional
        The record batches to show buffer by buffer. By default as many of the first as fit.

    Returns
    -------
    str
        The page: at most 2 MB, whatever the object, unless ``batches`` leaves no room for less than one.
    """
    first, stop, _ = (batches or slice(None)).indices(len(found.blocks))
    block = _block(found, first, max(first, stop))
    style, script = _asset("style.css"), "\n".join(_asset(name) for name in SCRIPTS)
    policy = f"default-src 'none'; style-src {_hash(style)}; script-src {_hash(script)}"
    values = {
        "POLICY": policy,
        "TITLE": html.escape(f"{_short(found.name)} – shmarrow xray"),
        "STYLE": style,
        "DATA": base64.b64encode(block).decode(),
        "SCRIPT": script,
    }
    parts = _asset("page.html").split("%%")
    return "".join(values[part] if i % 2 else part for i, part in enumerate(parts))


def write(found: Overview, out: Location, *, batches: slice | None = None) -> int:
    """Write the page of an object to a file, and return its size in bytes.

    Parameters
    ----------
    found : Overview
        The object.
    out : path
        An existing file is replaced once the page is complete.
    batches : slice, optional
        See :func:`page`.

    Raises
    ------
    StorageError
        If the file cannot be written.
    """
    data = page(found, batches=batches).encode()
    with segment.create(out, mode=None, overwrite=True) as writer:
        writer.write([data])
        writer.publish()
    return len(data)


def _asset(name: str) -> str:
    return (resources.files("shmarrow.xray") / "web" / name).read_text("utf-8")


def _hash(text: str) -> str:
    """The source expression of a content security policy that allows this text."""
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


def _short(text: str) -> str:
    text = printable(text)
    return text if len(text) <= _TEXT else f"{text[: _TEXT - 1]}…"


# --- data -------------------------------------------------------------------------------------------------------


def _block(found: Overview, first: int, stop: int) -> bytes:
    """All that the page shows, compressed; with as many batches in detail as fit."""
    facts, arrays = _facts(found)
    count = stop - first
    if found.columns:
        count = min(count, _BATCHES if found.regular else _VIEW_BATCHES, max(1, _PAIRS // len(found.columns)))
    else:
        count = 0
    while True:
        detail, detailed = _detail(found, first, count)
        document = json.dumps({**facts, **detail}, separators=(",", ":")).encode()
        runs = [_varints(each) for each in (*arrays, *detailed)]
        head = np.array([len(document), len(runs), *map(len, runs)], "<u4").tobytes()
        block = zlib.compress(b"".join([head, document, *runs]), 6)
        if len(block) <= _BUDGET or not count:
            return block
        count //= 2


def _facts(found: Overview) -> tuple[dict[str, Any], list[npt.NDArray[np.int64]]]:
    """What is shown of every object, and its messages as arrays."""
    end = found.size if found.footer is None else found.footer[0]
    parts, _ = parts_of(found, end)
    findings: list[Any] = []
    regions = list(islice(walk(found, report=findings.append), _HEAD))
    covered = [[0, regions[-1].end if regions else 0]]
    if covered[0][1] < end and found.footer is not None:
        tail = list(islice(walk(found, start=end), _TAIL))
        covered.append([tail[0].start, tail[-1].end] if tail else [end, end])
        regions += tail
    between = [_region(found, each) for each in summary(found, 2) if each.kind != "message"]
    columns = [] if found.schema is None else found.schema.names
    types = [] if found.schema is None else [str(each) for each in found.schema.types]
    strings = _Strings()
    leaves = [
        [
            strings(_short(leaf.path)), strings(leaf.buffer), leaf.column, leaf.node, strings(_short(leaf.type)),
            strings(leaf.chapter),
        ]
        for leaf in found.columns
    ]  # fmt: skip
    facts = {
        "name": _short(found.name),
        "kind": found.kind,
        "size": found.size,
        "version": found.version,
        "endianness": found.endianness,
        "compression": found.compression,
        "footer": found.footer,
        "batches": len(found.blocks),
        "dictionaries": len(found.dictionaries),
        "names": {str(kind): name for kind, name in NAMES.items()},
        "kinds": KINDS,
        "columns": [[_short(name), _short(type)] for name, type in zip(columns, types, strict=True)],
        "leaves": leaves,
        "strings": strings.values,
        "between": between,
        "regions": [_region(found, each) for each in regions],
        "covered": covered,
        "findings": [
            [each.start, each.end, each.severity, _short(each.message), _short(each.remedy)] for each in findings[:500]
        ],
        "more_findings": max(0, len(findings) - 500),
    }
    starts = parts[:, 0]
    ends = parts[:, :3].sum(axis=1)
    arrays = [
        np.diff(starts, prepend=0) - np.concatenate([[0], ends[:-1] - starts[:-1]])[: len(starts)],
        _differences(parts[:, 1]),
        _differences(parts[:, 2]),
        _differences(parts[:, 3]),
        _differences(parts[:, 4]),
    ]
    return facts, arrays


def _detail(found: Overview, first: int, count: int) -> tuple[dict[str, Any], list[npt.NDArray[np.int64]]]:
    """The buffers of some batches: in JSON which batches these are, and arrays of offsets, lengths, rows and nulls."""
    none: list[npt.NDArray[np.int64]] = [np.empty(0, np.int64)] * 5
    if not count:
        return {"first": first, "shown": 0, "nodes": 0}, none
    try:
        if found.regular:
            places, nodes = found.buffers(first, first + count), found.field_nodes(first, first + count)
            width = np.full(count, places.shape[1])
            numbers = np.empty(0, np.int64)
        else:
            made = [found.batch(i) for i in range(first, first + count)]
            bodies = found.blocks[first : first + count, :2].sum(axis=1)
            leaves = [_numbered(found, batch) for batch in made]
            width = np.array([len(each) for each in leaves])
            numbers = np.concatenate([np.array(each, np.int64) for each in leaves])
            places = np.concatenate(
                [
                    batch.buffers[: len(own)] + np.array([body, 0])
                    for batch, body, own in zip(made, bodies, leaves, strict=True)
                ]
            )
            nodes = np.stack([batch.nodes for batch in made])
    except (ShmarrowError, ValueError):
        return {"first": first, "shown": 0, "nodes": 0, "unread": True}, none
    flat = places.reshape(-1, 2)
    bodies = np.repeat(found.blocks[first : first + count, :2].sum(axis=1), width)
    offsets, lengths = flat[:, 0] - bodies, flat[:, 1]
    starts = np.cumsum(width) - width
    behind = np.concatenate([[0], offsets[:-1] + lengths[:-1]])
    behind[starts[width > 0]] = 0
    step = 64 if not (offsets % 64).any() else 8
    guesses = (behind + step - 1) // step * step
    if found.regular:
        changes = np.diff(lengths.reshape(count, -1), axis=0, prepend=0).reshape(-1)
        counts = np.diff(nodes, axis=0, prepend=0)
    else:
        changes, counts = lengths, np.diff(nodes, axis=0, prepend=0)
    detail = {"first": first, "shown": count, "nodes": nodes.shape[1], "step": step, "regular": found.regular}
    return detail, [offsets - guesses, changes, counts.reshape(-1), width, numbers]


def _numbered(found: Overview, batch: Any) -> list[int]:
    """The position of each buffer of a batch among the leaves of all batches; the data of views share one."""
    made: list[int] = []
    variadic = iter(batch.variadic)
    for number, leaf in enumerate(found.columns):
        made += [number] * (next(variadic, 0) if leaf.variadic else 1)
    return made


class _Strings:
    """Strings that occur many times, each once."""

    def __init__(self) -> None:
        self.values: list[str] = []
        self._places: dict[str, int] = {}

    def __call__(self, text: str) -> int:
        place = self._places.setdefault(text, len(self.values))
        if place == len(self.values):
            self.values.append(text)
        return place


def _region(found: Overview, region: Region) -> list[Any]:
    """A region as the page has it, with the bytes of small ones that hold no data."""
    start, end, kind, what, path, chapter, value = region
    text = "" if value is None else value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    shown = "" if kind in _DATA else found.data[start : min(end, start + _SHOWN_BYTES)].tobytes().hex()
    return [start, end, kind, _short(what), _short(path), chapter, _short(text), shown]


def _differences(values: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    return np.diff(values, prepend=0)


def _varints(values: npt.NDArray[np.int64]) -> bytes:
    """Integers as zigzag-encoded variable-length integers of 7 bits a byte, lowest first."""
    numbers = np.ascontiguousarray(values, np.int64)
    left = ((numbers << 1) ^ (numbers >> 63)).view(np.uint64)
    sizes = np.ones(len(left), np.int64)
    for bits in range(7, 64, 7):
        more = left >= np.uint64(1 << bits)
        if not more.any():
            break
        sizes += more
    made = np.empty(int(sizes.sum()), np.uint8)
    places = np.cumsum(sizes) - sizes
    for _ in range(10):
        if not len(left):
            break
        last = sizes == 1
        made[places] = (left & np.uint64(127)).astype(np.uint8) | np.where(last, 0, 128).astype(np.uint8)
        left, sizes, places = left[~last] >> np.uint64(7), sizes[~last] - 1, places[~last] + 1
    return made.tobytes()
