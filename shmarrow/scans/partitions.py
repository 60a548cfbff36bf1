"""Columns that the names of directories give, such as ``day=2024-01-01``: integers, dates, or text.

A key has the first of these types that all of its texts have. ``__HIVE_DEFAULT_PARTITION__`` is null, as is a key that
a source lacks.
"""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Callable, Sequence
from typing import Any

from shmarrow.build import array
from shmarrow.layout import Array
from shmarrow.types import DataType, date32, int64, string

_NULL = "__HIVE_DEFAULT_PARTITION__"
_INTEGER = re.compile(r"-?\d{1,18}")
_DATE = re.compile(r"\d{4}-\d\d-\d\d")

_TYPES: Sequence[tuple[Callable[[], DataType], re.Pattern[str], Callable[[str], Any]]] = (
    (int64, _INTEGER, int),
    (date32, _DATE, dt.date.fromisoformat),
)
"""The types to try: each with the texts that it may have, and what converts these."""


def values_of(texts: Sequence[str | None], wanted: DataType | None = None) -> Array:
    """Convert the texts of one key, None where a source lacks it, to an array of a type, or the first that fits all.

    Raises
    ------
    InvalidType, InvalidData
        If a text cannot be converted to the type.
    """
    known = [None if text == _NULL else text for text in texts]
    if wanted is not None and all(text is None for text in known):
        return array(known, wanted)
    if wanted is not None:
        return array(known, string()).cast(wanted) if hasattr(wanted, "text") else values_of(texts).cast(wanted)
    for type, pattern, convert in _TYPES:
        if all(text is None or pattern.fullmatch(text) for text in known):
            try:
                distinct = {text: convert(text) for text in set(known) if text is not None}
            except ValueError:  # such as the 30th of February
                continue
            return array([None if text is None else distinct[text] for text in known], type())
    return array(known, string())
