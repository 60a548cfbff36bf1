"""What the walk yields: regions and findings."""

from __future__ import annotations

from typing import Any, NamedTuple

SEVERITIES = ("error", "warning", "note")


class Region(NamedTuple):
    """A run of bytes and what it is.

    Attributes
    ----------
    start, end : int
        Byte offsets in the object; ``end`` is exclusive.
    kind : str
        One of :data:`shmarrow.xray.KINDS`.
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
