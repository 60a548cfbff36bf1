"""Regions and findings, which the walk yields."""

from __future__ import annotations

from typing import Any, NamedTuple

SEVERITIES = ("error", "warning", "note")


class Region(NamedTuple):
    """A run of bytes and its meaning.

    Attributes
    ----------
    start, end : int
        Byte offsets in the object; ``end`` is exclusive.
    kind : str
        One of :data:`shmarrow.xray.KINDS`.
    what : str
        A human-readable description, such as ``"validity of column 'x'"``.
    path : str
        Position in the structure, such as ``"record batch 3 / x / values"``.
    chapter : str
        Chapter of the specification that defines it, such as ``"Columnar.rst, IPC File Format"``.
    value : object
        Decoded value, JSON-serializable; None for buffers.
    """

    start: int
    end: int
    kind: str
    what: str
    path: str
    chapter: str
    value: Any = None


class Finding(NamedTuple):
    """A deviation from the specification, or something unusual.

    Attributes
    ----------
    start, end : int
        Byte offsets in the object; ``end`` is exclusive.
    severity : str
        ``"error"``: readers fail or return wrong values. ``"warning"``: a violation that readers tolerate.
        ``"note"``: allowed, but unusual.
    message : str
        What was expected and what was found.
    remedy : str
        What to do about it.
    """

    start: int
    end: int
    severity: str
    message: str
    remedy: str
