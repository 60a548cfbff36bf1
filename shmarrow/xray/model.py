"""What the walk yields: regions and findings, and the kinds of regions."""

from __future__ import annotations

from typing import Any, NamedTuple

KINDS: dict[str, str] = {
    "magic": "the magic string at both ends of a file",
    "message": "a whole message, in a summary",
    "footer": "the whole footer, in a summary",
    "prefix": "the continuation marker and metadata size in front of a message",
    "root": "the offset of a FlatBuffer's root table",
    "table": "a FlatBuffers table",
    "vtable": "a FlatBuffers vtable: where each field of a table is",
    "field": "one field of a FlatBuffers table",
    "vector": "a FlatBuffers vector",
    "string": "a FlatBuffers string",
    "block": "the footer's pointers to messages",
    "length": "the uncompressed length in front of a compressed buffer",
    "buffer": "a buffer of a column or a tensor",
    "padding": "bytes that align what follows",
    "end": "the end-of-stream marker",
    "size": "the size of the footer",
    "gap": "bytes that nothing refers to",
    "overlap": "bytes that another region explains, too",
    "unknown": "bytes that cannot be explained",
}
"""The kinds of regions and what each is."""

SEVERITIES = ("error", "warning", "note")


class Region(NamedTuple):
    """A run of bytes and what it is.

    Attributes
    ----------
    start, end : int
        Byte offsets in the object; ``end`` is exclusive.
    kind : str
        One of :data:`KINDS`.
    what : str
        A description for people, such as ``"validity of column 'x'"``.
    path : str
        Where it is in the structure, such as ``"record batch 3 / x / values"``.
    chapter : str
        Chapter of the specification that defines it, such as ``"Columnar.rst, IPC File Format"``.
    value : object
        What the bytes say, as JSON allows; None for buffers.
    """

    start: int
    end: int
    kind: str
    what: str
    path: str
    chapter: str
    value: Any = None


class Finding(NamedTuple):
    """Something in the bytes that deviates from the specification, or that a reader should know.

    Attributes
    ----------
    start, end : int
        Byte offsets in the object; ``end`` is exclusive.
    severity : str
        ``"error"``: readers refuse these bytes, or read wrong values. ``"warning"``: they break a rule that readers can
        live with. ``"note"``: allowed, but unusual.
    message : str
        What was expected, and what was found.
    remedy : str
        What to do about it.
    """

    start: int
    end: int
    severity: str
    message: str
    remedy: str
