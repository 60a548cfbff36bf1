"""Regions and findings, which the walk yields."""

from __future__ import annotations

import json
from itertools import islice
from typing import Any, NamedTuple

_VALUE, _ELEMENTS, _FIELDS = 240, 6, 16
"""Characters of a value as text, elements of a vector and fields of a table in it."""


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


def value_text(value: Any) -> str:
    """Format the value of a region on one line, with only the first elements of long vectors; not escaped."""
    if value is None:
        return ""
    if isinstance(value, dict) and list(value) != ["at"]:
        return ", ".join([f"{key}: {_word(each)}" for key, each in islice(value.items(), _FIELDS)])
    return _word(value)


def _word(value: Any) -> str:
    if isinstance(value, str):
        return value[:_VALUE]
    if isinstance(value, list):
        more = f", … ({len(value)})" if len(value) > _ELEMENTS else ""
        return f"[{', '.join([_word(each) for each in value[:_ELEMENTS]])}{more}]"
    if isinstance(value, dict):
        return f"→ {value['at']}" if list(value) == ["at"] else f"{{{value_text(value)}}}"
    return json.dumps(value, ensure_ascii=False)[:_VALUE]
