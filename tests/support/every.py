"""Running a test for every case, in one test of pytest for each group of cases.

pytest and pytest-xdist take longer for a test than most checks of a case do.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable
from typing import Any

import pytest
from cases.definition import Case


def every(cases: Iterable[Case]) -> Callable[[Callable[[Case], None]], Any]:
    """Parametrize a test that takes a ``case``: one test for all cases whose names begin with the same word.

    A failure has a note that names its case. The group is skipped if each of its cases is.
    """
    groups: dict[str, list[Case]] = {}
    for case in cases:
        groups.setdefault(case.name.split("-")[0], []).append(case)

    def decorate(test: Callable[[Case], None]) -> Any:
        def run(group: str) -> None:
            skipped = []
            for case in groups[group]:
                try:
                    test(case)
                except pytest.skip.Exception as reason:
                    skipped.append(reason)
                except BaseException as error:
                    error.add_note(f"case: {case.name}")
                    raise
            if len(skipped) == len(groups[group]):
                raise skipped[0]

        functools.update_wrapper(run, test)
        del run.__wrapped__  # type: ignore[attr-defined]  # pytest asks it for its arguments
        return pytest.mark.parametrize("group", groups)(run)

    return decorate
