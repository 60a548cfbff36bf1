"""Checking readers of Arrow IPC: every case is written as file and stream, read by another implementation, compared."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from fnmatch import fnmatchcase
from typing import Any, NamedTuple

from shmarrow.batch import record_batch
from shmarrow.errors import InvalidArgument, InvalidType, full_name
from shmarrow.tables import table
from shmarrow.testing.compare import same
from shmarrow.testing.definition import Case
from shmarrow.testing.forms import FORMS, write
from shmarrow.testing.table import cases as all_cases

COLUMN = "x"
_SHOWN = 20


class Outcome(NamedTuple):
    """What a reader made of one case in one form.

    Attributes
    ----------
    case : Case
        What was written.
    form : str
        How it was written, such as ``"stream-lz4"``.
    problem : str or None
        The exception, or the values that differ; None if the reader returned the right values.
    """

    case: Case
    form: str
    problem: str | None

    @property
    def id(self) -> str:
        """``FORM/CASE``, such as ``"file-plain/list-nulls"``."""
        return f"{self.form}/{self.case.name}"


def read_cases(
    read: Callable[[str], Any],
    *,
    cases: Iterable[Case] | None = None,
    forms: Iterable[str] = ("file-plain", "stream-plain"),
) -> Iterator[Outcome]:
    """Write each case in each form to a temporary file, read it with ``read``, and compare the values.

    Parameters
    ----------
    read : callable
        Gets the path of a file or stream with one column, ``"x"``. It returns an object with ``__arrow_c_stream__`` or
        ``__arrow_c_array__``, such as a table of pyarrow or polars; or a mapping from ``"x"`` to a list of Python
        values, as ``Array.to_pylist`` returns them; the time zone of a moment does not matter. Its exceptions are
        problems of the case.
    cases : iterable of Case, optional
        The cases; by default all that IPC can express.
    forms : iterable of str
        The forms: ``"file-"`` or ``"stream-"`` followed by ``plain``, ``v4``, ``legacy``, ``big-endian``, ``lz4``,
        ``zstd``, ``align-8`` or ``small-big-zstd``.

    Yields
    ------
    Outcome
        The outcome of a case in a form.

    Raises
    ------
    InvalidArgument
        If there is no such form.
    """
    forms = list(forms)
    for form in forms:
        if form not in FORMS:
            raise InvalidArgument(f"expected forms among {', '.join(FORMS)}, found {form!r}")
    with tempfile.TemporaryDirectory(prefix="shmarrow-testing-") as folder:
        path = os.path.join(folder, "case.arrow")
        for case in all_cases(writable=True) if cases is None else cases:
            batch = record_batch([case.array()], names=[COLUMN])
            for form in forms:
                with open(path, "wb") as file:
                    file.write(write(form, [batch], batch.schema))
                try:
                    problem = _difference(read(path), case)
                except Exception as error:
                    problem = f"{type(error).__name__}: {error}"
                os.unlink(path)  # a reader may have it mapped: the next case is another file
                yield Outcome(case, form, problem)


def check_reader(
    read: Callable[[str], Any],
    *,
    cases: Iterable[Case] | None = None,
    forms: Iterable[str] = ("file-plain", "stream-plain"),
    lacks: Mapping[str, str] | None = None,
) -> int:
    """Check that a reader of Arrow IPC returns the values of every case.

    Parameters
    ----------
    read, cases, forms
        As for :func:`read_cases`.
    lacks : mapping of str to str, optional
        What the reader does not support: reasons by patterns of ids, such as
        ``{"*/list-view*": "no list views"}``, where an id is ``FORM/CASE``. A case that it lacks must fail, so that
        the list stays true.

    Returns
    -------
    int
        The number of cases that were read correctly, each form counted.

    Raises
    ------
    AssertionError
        With the ids of all cases that differ, and what is different in the first 20; with those that are in ``lacks``
        but were read correctly; with patterns that match nothing.
    InvalidArgument
        If there is no such form.
    """
    lacks = lacks or {}
    right, problems, matched = 0, [], set()
    for outcome in read_cases(read, cases=cases, forms=forms):
        patterns = [pattern for pattern in lacks if fnmatchcase(outcome.id, pattern)]
        matched.update(patterns)
        if outcome.problem is None:
            right += 1
        if outcome.problem is not None and not patterns:
            problems.append(f"{outcome.id} ({outcome.case.type}): {outcome.problem}")
        elif outcome.problem is None and patterns:
            problems.append(f"{outcome.id} is read correctly, but in lacks[{patterns[0]!r}]: remove it there")
    problems += [f"lacks[{pattern!r}] matches no case" for pattern in lacks if pattern not in matched]
    if problems:
        more = f"\n  and {len(problems) - _SHOWN} more" if len(problems) > _SHOWN else ""
        lines = "\n".join(f"  {problem[:500]}" for problem in problems[:_SHOWN])
        count = f"{len(problems)} problem{'s' * (len(problems) != 1)}"
        raise AssertionError(f"{count}, {right} cases read correctly:\n{lines}{more}")
    return right


def _difference(found: Any, case: Case) -> str | None:
    """Say how the values that a reader returned differ from those of a case."""
    if isinstance(found, Mapping):
        columns = {name: list(values) for name, values in found.items()}
    elif hasattr(found, "__arrow_c_stream__") or hasattr(found, "__arrow_c_array__"):
        columns = table(found).to_pydict()
    else:
        raise InvalidType(
            "read must return an object with __arrow_c_stream__ or __arrow_c_array__, or a mapping of lists, "
            f"found {full_name(found)}"
        )
    if list(columns) != [COLUMN]:
        return f"expected the column {COLUMN!r}, found {list(columns)}"
    values = columns[COLUMN]
    if len(values) != len(case.values):
        return f"expected {len(case.values)} values, found {len(values)}"
    for slot, (one, other) in enumerate(zip(values, case.values, strict=True)):
        if not same(one, other):
            return f"slot {slot}: expected {other!r}, found {one!r}"
    return None
