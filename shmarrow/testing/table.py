"""All cases in one table."""

from __future__ import annotations

from shmarrow.errors import InvalidArgument
from shmarrow.testing.cases_by_layout import ODD, SPECIFIED
from shmarrow.testing.cases_by_type import TYPES, variants
from shmarrow.testing.definition import Case

CASES: tuple[Case, ...] = (*(case for row in TYPES for case in variants(*row)), *SPECIFIED, *ODD)
"""Every case, in a fixed order."""

_BY_NAME = {case.name: case for case in CASES}


def cases(*, writable: bool = False) -> tuple[Case, ...]:
    """Return the table of cases: every type without nulls, with nulls, all null and empty, and unusual layouts.

    Parameters
    ----------
    writable : bool
        Only cases that Arrow IPC can express.

    Examples
    --------
    >>> from shmarrow import testing
    >>> case = testing.case("list-view-struct")
    >>> print(case.type)
    list_view<item: struct<x: int32, y: double not null>>
    >>> case.array().to_pylist() == case.values
    True
    """
    return tuple(case for case in CASES if case.writable) if writable else CASES


def case(name: str) -> Case:
    """Return one case.

    Parameters
    ----------
    name : str
        The name of the case, such as ``"dictionary-int8-nulls"``.

    Raises
    ------
    InvalidArgument
        If there is no such case.
    """
    if name not in _BY_NAME:
        raise InvalidArgument(f"no case is named {name!r}; the names are [case.name for case in cases()]")
    return _BY_NAME[name]
