"""Checking readers of Arrow IPC: every case is written as file and stream, read by another implementation, compared."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from fnmatch import fnmatchcase
from typing import Any, NamedTuple

from shmarrow.batch import record_batch
from shmarrow.build import array
from shmarrow.errors import InvalidArgument, InvalidType, full_name
from shmarrow.tables import table
from shmarrow.testing.compare import same
from shmarrow.testing.definition import Case
from shmarrow.testing.forms import FORMS, write
from shmarrow.testing.table import cases as all_cases

COLUMN = "x"
DEFAULT_FORMS = ("file-plain", "stream-plain", "file-batches", "stream-batches")
_SHOWN = 20


class Outcome(NamedTuple):
    """Result of reading one case in one form.

    Attributes
    ----------
    case : Case
        What was written.
    form : str
        How it was written, such as ``"stream-lz4"``.
    problem : str or None
        The exception, or the type or values that differ; None if the reader returned the right ones.
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
    forms: Iterable[str] = DEFAULT_FORMS,
    types: bool = True,
) -> Iterator[Outcome]:
    """Write each case in each form to a temporary file, read it with ``read``, and compare types and values.

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
        ``zstd``, ``align-8`` or ``small-big-zstd``, which hold one record batch; or by ``batches``: all values, then
        an empty batch, then the second half of the values, which streams hold in reverse, with other dictionaries.
    types : bool
        Whether the type of the column has to be that of the case, where ``read`` returns an Arrow object. False for a
        reader that converts types, such as strings to large strings.

    Yields
    ------
    Outcome
        The outcome of a case in a form.

    Raises
    ------
    InvalidArgument
        If there is no such form, or no case or form at all.
    """
    cases, forms = list(all_cases(writable=True) if cases is None else cases), list(forms)
    for name, given in (("case", cases), ("form", forms)):
        if not given:
            raise InvalidArgument(f"expected at least one {name}, found none: no reader would fail this check")
    known = list(dict.fromkeys((*FORMS, *DEFAULT_FORMS)))
    for form in forms:
        if form not in known:
            raise InvalidArgument(f"expected forms among {', '.join(known)}, found {form!r}")
    with tempfile.TemporaryDirectory(prefix="shmarrow-testing-") as folder:
        path = os.path.join(folder, "case.arrow")
        for case in cases:
            for form in forms:
                data, values = _written(form, case)
                with open(path, "wb") as file:
                    file.write(data)
                try:
                    problem = _difference(read(path), case, values, types)
                except Exception as error:
                    problem = f"{type(error).__name__}: {error}"
                os.unlink(path)  # a reader may have it mapped: the next case is another file
                yield Outcome(case, form, problem)


def check_reader(
    read: Callable[[str], Any],
    *,
    cases: Iterable[Case] | None = None,
    forms: Iterable[str] = DEFAULT_FORMS,
    types: bool = True,
    lacks: Mapping[str, str] | None = None,
) -> int:
    """Check that a reader of Arrow IPC returns the type and the values of every case.

    Parameters
    ----------
    read, cases, forms, types
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
        If there is no such form, or no case or form at all.
    """
    lacks = lacks or {}
    right, problems, matched = 0, [], set()
    for outcome in read_cases(read, cases=cases, forms=forms, types=types):
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


def _written(form: str, case: Case) -> tuple[bytes, list[Any]]:
    """A case as the bytes of a file or stream, and the values in it."""
    arrays, values = [case.array()], list(case.values)
    kind, _, variant = form.partition("-")
    if variant == "batches":
        form, half = f"{kind}-plain", len(values) // 2
        last = values[half:]
        if kind == "stream" and case.physical is None:  # files cannot replace dictionaries
            last.reverse()
            arrays += [arrays[0][:0], array(last, case.type)]
        else:
            arrays += [arrays[0][:0], arrays[0][half:]]
        values += last
    batches = [record_batch([each], names=[COLUMN]) for each in arrays]
    return write(form, batches, batches[0].schema), values


def _difference(found: Any, case: Case, expected: list[Any], types: bool) -> str | None:
    """Say how the type and values that a reader returned differ from those that were written."""
    if isinstance(found, Mapping):
        columns = {name: list(values) for name, values in found.items()}
    elif hasattr(found, "__arrow_c_stream__") or hasattr(found, "__arrow_c_array__"):
        read = table(found)
        columns = read.to_pydict()
        if types and read.schema.names == [COLUMN] and read.schema.field(COLUMN).type != case.type:
            return f"expected the type {case.type}, found {read.schema.field(COLUMN).type}"
    else:
        raise InvalidType(
            "read must return an object with __arrow_c_stream__ or __arrow_c_array__, or a mapping of lists, "
            f"found {full_name(found)}"
        )
    if list(columns) != [COLUMN]:
        return f"expected the column {COLUMN!r}, found {list(columns)}"
    values = columns[COLUMN]
    if len(values) != len(expected):
        return f"expected {len(expected)} values, found {len(values)}"
    for slot, (one, other) in enumerate(zip(values, expected, strict=True)):
        if not same(one, other):
            return f"slot {slot}: expected {other!r}, found {one!r}"
    return None
