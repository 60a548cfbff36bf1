"""The page ``docs/support.md``: which types and features are read, by us and by others, as the tests have it.

``make docs`` writes the page. Invariants: every tick and every dash comes from samples that are
written and read in ``test_peers.py``, and from the lists of what peers do not read, which are held to be true there.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Sequence
from fnmatch import fnmatchcase

from environment import ROOT
from forms import SPARSE
from peers import EXTENSIONS, UNWRITABLE, Sample, samples
from peers import FEATURES as FEATURE_SAMPLES
from peers.lacks import PEERS, Peer

import shmarrow as sa

PAGE = ROOT / "docs" / "support.md"

TYPES = {
    "Null": r"null",
    "Boolean": r"bool",
    "Int8/16/32/64": r"int\d+",
    "UInt8/16/32/64": r"uint\d+",
    "Float16": r"halffloat",
    "Float32/64": r"float|double",
    "Decimal32/64": r"decimal(32|64)\(.*",
    "Decimal128": r"decimal128\(.*",
    "Decimal256": r"decimal256\(.*",
    "Date32/64": r"date.*",
    "Time32/64": r"time(32|64).*",
    "Timestamp": r"timestamp.*",
    "Duration": r"duration.*",
    "Interval": r".*_interval",
    "Fixed Size Binary": r"fixed_size_binary.*",
    "Binary": r"binary",
    "Large Binary": r"large_binary",
    "Utf8": r"string",
    "Large Utf8": r"large_string",
    "Binary View": r"binary_view",
    "Utf8 View": r"string_view",
    "Fixed Size List": r"fixed_size_list<.*",
    "List": r"list<.*",
    "Large List": r"large_list<.*",
    "List View": r"list_view<.*",
    "Large List View": r"large_list_view<.*",
    "Struct": r"struct<.*",
    "Map": r"map<.*",
    "Dense Union": r"dense_union<.*",
    "Sparse Union": r"sparse_union<.*",
    "Dictionary": r"dictionary<.*",
    "Run-End Encoded": r"run_end_encoded<.*",
}
"""The rows of Arrow's own page, and the types of cases that belong to each."""

FORMS = {
    "Streams": ["stream"],
    "Files": ["file"],
    "Bodies compressed with LZ4": ["stream-lz4", "file-lz4"],
    "Bodies compressed with ZSTD": ["stream-zstd", "file-zstd"],
    "Tensors": ["tensor"],
}

FEATURES = {
    "No batches": ["*/batches-none"],
    "No columns": ["*/columns-none"],
    "Fields of one name": ["*/names-duplicate"],
    "Metadata of schema and fields": ["*/metadata"],
    "Dictionary replacement in streams": ["stream/dictionary-replacement"],
    "Dictionary after an all-null batch": ["*/dictionary-late"],
    "Dictionary deltas in streams": ["stream/dictionary-delta"],
    "Dictionary deltas in files": ["file/dictionary-delta"],
    "Metadata version 4": ["*/version-4"],
    "Messages without continuation word": ["*/framing-legacy"],
    "Big-endian data": ["*/big-endian"],
}

TEXT = """\
# What is supported

<!-- Made by tests/support/pages/supported.py from what the tests write and read. `make docs` brings it up to date. -->

shmarrow reads and writes all that is listed here. A tick: the other reader reads what shmarrow writes, in streams and
files. A dash: it refuses or misreads it. A number: it works except as in the note. The tests write every case, read it
with every reader and compare the values.

## Data types

{types}

Arrow's messages have no place for {unwritable}:
shmarrow has it in memory, and refuses to write it.

## Canonical extension types

shmarrow has a type for each, with accessors. A tick: the values of its storage are read.

{extensions}

## IPC format

{ipc}

Sparse tensors ({sparse}) go both ways between shmarrow and C++, through a program that the tests compile.

## Notes

{notes}

## Interfaces in memory

{interfaces}

## Readers

The tests read with these versions or newer ones.

{readers}

## Platforms

Tested: Linux with CPython 3.11, 3.12 and 3.13 and the versions in `requirements/dev.txt`; every week with the newest
versions (`make latest`); and CPython 3.11 with the lowest version of every dependency that `pyproject.toml` allows, all
at once (`make test-lowest`).

- Python 3.14 is not supported yet, and free-threaded builds are untested.
- On macOS, mapping files may work; `shm:` names and stores raise an error. On Windows, the import fails: use WSL 2.
"""

INTERFACES = {
    "C data interface": (sa.RecordBatch, "__arrow_c_array__"),
    "C stream interface": (sa.Table, "__arrow_c_stream__"),
    "C device data interface": (sa.RecordBatch, "__arrow_c_device_array__"),
    "DLPack": (sa.Tensor, "__dlpack__"),
}


def matching(ids: Iterable[str], patterns: Sequence[str]) -> list[str]:
    """The ids that match one of the patterns."""
    return [id for id in ids if any(fnmatchcase(id, pattern) for pattern in patterns)]


def row_of(type: sa.DataType) -> str:
    """The row that a type belongs to; extension types have rows by their names."""
    if isinstance(type, sa.ExtensionType):
        return f"`{type.extension_name}`"
    (row,) = [title for title, pattern in TYPES.items() if re.fullmatch(pattern, str(type))]
    return row


class Notes:
    """Numbered notes: what is not read of a row that is read otherwise."""

    def __init__(self) -> None:
        self.reasons: list[str] = []

    def cell(self, peer: Peer, ids: Sequence[str]) -> str:
        """A tick, a dash, or a tick with notes."""
        found = [peer.why_not(id, forms=False) for id in ids]
        reasons = list(dict.fromkeys(reason for reason in found if reason is not None))
        if None not in found:
            return "–"
        self.reasons += [reason for reason in reasons if reason not in self.reasons]
        numbers = ", ".join(str(self.reasons.index(reason) + 1) for reason in reasons)
        return f"✓ ({numbers})" if numbers else "✓"

    def lines(self) -> list[str]:
        return [f"{number}. Not {reason}." for number, reason in enumerate(self.reasons, 1)]


def table(title: str, rows: Iterable[tuple[str, Iterable[str]]], heads: Iterable[str]) -> list[str]:
    """A table in Markdown."""
    heads = list(heads)
    lines = [f"| {title} | " + " | ".join(heads) + " |", "| --- |" + " :-: |" * len(heads)]
    return [*lines, *(f"| {name} | " + " | ".join(cells) + " |" for name, cells in rows)]


def alike(rows: Iterable[tuple[str, Iterable[str]]]) -> list[tuple[str, Iterable[str]]]:
    """The rows, those with the same cells as one."""
    found: dict[tuple[str, ...], list[str]] = {}
    for name, cells in rows:
        found.setdefault(tuple(cells), []).append(name)
    return [(", ".join(names), cells) for cells, names in found.items()]


def reads(peer: Peer, forms: Sequence[str]) -> str:
    """Whether a peer reads forms at all."""
    return "–" if any(peer.why_not(f"{form}/", forms=True) for form in forms) else "✓"


def page(written: Sequence[Sample]) -> str:
    """The text of the page."""
    plain = [sample for sample in written if "-" not in sample.form]
    by_row: dict[str, list[str]] = {row: [] for row in TYPES}
    for sample in plain:
        if sample.name not in FEATURE_SAMPLES or sample.name in EXTENSIONS:
            by_row.setdefault(row_of(sample.schema.field(0).type), []).append(sample.id)
    ids = [sample.id for sample in plain]
    notes = Notes()

    others = [peer for name, peer in PEERS.items() if name != "shmarrow"]

    def row(name: str, of: Sequence[str], peers: Sequence[Peer] = tuple(others)) -> tuple[str, list[str]]:
        return name, [notes.cell(peer, of) for peer in peers]

    types = [row(name, by_row.pop(name)) for name in TYPES]
    extensions = [row(name, of) for name, of in sorted(by_row.items())]
    readers = [peer for peer in others if peer.own_ipc]
    forms = [(name, [reads(peer, of) for peer in readers]) for name, of in FORMS.items()]
    features = [row(name, matching(ids, of), readers) for name, of in FEATURES.items()]
    interfaces = [(name, ["✓" if hasattr(*of) else "not yet"]) for name, of in INTERFACES.items()]
    sources = [(peer.title, [peer.how, peer.checked]) for peer in others]
    titles = [peer.title for peer in others]
    return TEXT.format(
        types="\n".join(table("Data type", alike(types), titles)),
        unwritable="; ".join(UNWRITABLE.values()),
        extensions="\n".join(table("Extension type", alike(extensions), titles)),
        ipc="\n".join(table("Feature", alike([*forms, *features]), [peer.title for peer in readers])),
        sparse=", ".join(SPARSE),
        notes="\n".join(notes.lines()),
        interfaces="\n".join(table("Interface", interfaces, ["shmarrow"])),
        readers="\n".join(table("Reader", sources, ["what reads", "version"])),
    )


if __name__ == "__main__":
    PAGE.write_text(page(list(samples())), encoding="utf-8")
    sys.stdout.write(f"wrote {PAGE}\n")
