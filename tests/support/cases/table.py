"""All cases in one table."""

from __future__ import annotations

from cases.by_layout import ODD, SPECIFIED
from cases.by_type import TYPES, variants
from cases.definition import Case

CASES: tuple[Case, ...] = (*(case for row in TYPES for case in variants(*row)), *SPECIFIED, *ODD)
"""Every case, in a fixed order."""

_BY_NAME = {case.name: case for case in CASES}


def cases(*, writable: bool = False) -> tuple[Case, ...]:
    """Return the table of cases, or only those that Arrow IPC can express.

    It has every type without nulls, with nulls, all null and empty, and unusual layouts.
    """
    return tuple(case for case in CASES if case.writable) if writable else CASES


def case(name: str) -> Case:
    """Return one case, such as ``"dictionary-int8-nulls"``."""
    return _BY_NAME[name]
