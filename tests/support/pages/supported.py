"""The page ``docs/support.md``: which types and features are read, by us and by others, as the tests have it.

``make docs`` writes the page. Invariants: every tick and every dash comes from samples that are
written and read in ``test_peers.py``, and from the lists of what peers do not read, which are held to be true there.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from fnmatch import fnmatchcase

from environment import ROOT
from marked import filled, table
from peers import EXTENSIONS, Sample, samples
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


def alike(rows: Iterable[tuple[str, Iterable[str]]]) -> list[tuple[str, ...]]:
    """The rows, those with the same cells as one."""
    found: dict[tuple[str, ...], list[str]] = {}
    for name, cells in rows:
        found.setdefault(tuple(cells), []).append(name)
    return [(", ".join(names), *cells) for cells, names in found.items()]


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
    titles = [peer.title for peer in others]
    sources = [(peer.title, peer.how, peer.checked) for peer in others]
    ipc_readers = [peer.title for peer in readers]
    return filled(
        PAGE,
        types=table(["Data type", *titles], alike(types), ":-:"),
        extensions=table(["Extension type", *titles], alike(extensions), ":-:"),
        ipc=table(["Feature", *ipc_readers], alike([*forms, *features]), ":-:"),
        notes="\n".join(notes.lines()),
        readers=table(["Reader", "what reads", "version"], sources),
    )


if __name__ == "__main__":
    PAGE.write_text(page(list(samples())), encoding="utf-8")
