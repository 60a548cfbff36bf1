"""The table in ``docs/interchange.md``: what other libraries do with our data, type by type, zero-copy or copied.

``make docs`` writes it. Invariants: every case of the shared table goes to each consumer
and back; whether memory was copied is found out by addresses; what a consumer does not take, or gives back with other
values, is listed with the reason, and ``test_other_libraries.py`` holds the lists to be true.
"""

from __future__ import annotations

import os
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from fnmatch import fnmatchcase
from functools import cache
from importlib.metadata import version
from typing import Any, NamedTuple

from cases.definition import Case
from cases.table import CASES
from environment import ROOT
from marked import filled, table
from parts import addresses, below, has_validity, own_buffers
from supported import TYPES, row_of

import shmarrow as sa

PAGE = ROOT / "docs" / "interchange.md"


def _pyarrow(rows: sa.Table) -> Any:
    import pyarrow as pa

    return pa.table(rows)


def _polars(rows: sa.Table) -> Any:
    import polars as pl

    return pl.DataFrame(rows)


@cache
def _connection() -> Any:
    import duckdb

    return duckdb.connect(config={"threads": 1})


def close() -> None:
    """Close what consumers keep open between cases."""
    if _connection.cache_info().currsize:
        _connection().close()
        _connection.cache_clear()


def _duckdb(rows: sa.Table) -> Any:
    return _connection().sql("SELECT * FROM rows")


def _nanoarrow(rows: sa.Table) -> Any:
    import nanoarrow as na

    return na.c_array(rows.to_batches()[0])


def _from_nanoarrow(theirs: Any) -> sa.Table:
    """Read in place: nanoarrow's own export of views with data buffers overruns its memory."""
    from shmarrow.columns.batch import batch_of
    from shmarrow.layout.c_array import Importer, rows_at
    from shmarrow.types.c_schema import schema_at

    schema = schema_at(theirs.schema, theirs.schema._addr())
    return sa.Table.from_batches([batch_of(rows_at(theirs, theirs._addr(), schema, Importer()))])


def _arro3(rows: sa.Table) -> Any:
    import arro3.core

    return arro3.core.Table.from_arrow(rows)


class Consumer(NamedTuple):
    """Another library.

    Attributes
    ----------
    package : str
        Its distribution.
    send : callable
        Makes an object of the library of a table.
    how : str
        The call, for the page.
    lacks : dict of str to str
        Patterns of the names of cases that it refuses, and what it lacks.
    differs : dict of str to str
        Patterns of those that come back with other values, and why.
    fatal : dict of str to str
        Patterns of those that end the process; they are not tried.
    back : callable
        Makes a table of ours again.
    """

    package: str
    send: Callable[[sa.Table], Any]
    how: str
    lacks: dict[str, str] = {}  # noqa: RUF012 - never changed
    differs: dict[str, str] = {}  # noqa: RUF012
    fatal: dict[str, str] = {}  # noqa: RUF012
    back: Callable[[Any], sa.Table] = sa.table

    @property
    def listed(self) -> dict[str, str]:
        return self.lacks | self.differs | self.fatal


_NO_UNION = "unions"
CONSUMERS = {
    "pyarrow": Consumer("pyarrow", _pyarrow, "`pa.table(t)`, `pa.record_batch(b)`, `pa.array(a)`"),
    "polars": Consumer(
        "polars",
        _polars,
        "`pl.DataFrame(t)`",
        lacks={
            "decimal128-negative-scale*": "decimals with a negative scale",
            "decimal256*": "256-bit decimals",
            "timestamp-ms-offset*": "time zones given as offsets",
            "interval-*": "intervals",
            "fixed-size-binary-0*": "fixed-size binary of width 0",
            "fixed-size-list-0*": "fixed-size lists of size 0",
            "*list-view*": "list views",
            "ree-*": "run-end encoding",
            "spec-run-end-encoded": "run-end encoding",
            "odd-ree-*": "run-end encoding",
            "*union*": _NO_UNION,
            "dictionary-dictionary*": "dictionaries of dictionaries",
        },
        differs={"date64*": "date64 becomes timestamp[ms]"},
        fatal={
            "decimal32*": "32-bit decimals come out as other numbers, and polars aborts when it exports them again",
            "decimal64*": "64-bit decimals come out as other numbers, and polars aborts when it exports them again",
        },
    ),
    "DuckDB": Consumer(
        "duckdb",
        _duckdb,
        '`duckdb.sql("SELECT ... FROM t")`',
        lacks={
            "float16*": "16-bit floats",
            "decimal128-negative-scale*": "decimals with a negative scale",
            "decimal256*": "256-bit decimals",
            "interval-day-time*": "intervals of more than 292,471 years",
            "ree-list*": "run-end encoded lists",
            "dictionary-struct*": "dictionaries of structs",
            "dictionary-nested*": "dictionaries of structs",
            "dictionary-dictionary*": "dictionaries of dictionaries",
            "*dense-union*": "dense unions",
            "union-nested*": "dense unions",
            "*sparse-union-codes*": "unions with type codes other than 0, 1, 2 and so on",
            "odd-sparse-union-offset": "unions with type codes other than 0, 1, 2 and so on",
        },
        differs={
            "duration-*": "durations become intervals",
            "interval-month*": "intervals become intervals of microseconds",
            "ree-dictionary*": "run-end encoded dictionaries come back as their indices",
        },
    ),
    "nanoarrow": Consumer("nanoarrow", _nanoarrow, "`na.c_array(b)`, `na.Array(a)`", back=_from_nanoarrow),
    "arro3": Consumer(
        "arro3-core",
        _arro3,
        "`arro3.core.Table.from_arrow(t)`",
    ),
}

ZERO, COPIED, REFUSED, OTHER, FATAL = "zero-copy", "copied", "refused", "other values", "fatal"


class Outcome(NamedTuple):
    """The outcome of a case.

    Attributes
    ----------
    kind : str
        :data:`ZERO`, :data:`COPIED`, :data:`REFUSED`, :data:`OTHER` or :data:`FATAL`.
    text : str
        The error, or the values that came back.
    """

    kind: str
    text: str = ""


def listed(patterns: dict[str, str], name: str) -> str | None:
    """The reason for a case in a list, None where it is not there."""
    return next((reason for pattern, reason in patterns.items() if fnmatchcase(name, pattern)), None)


def used(array: Any) -> set[int]:
    """Return the addresses of the buffers that slots need, without bitmaps without a null and unused bytes."""
    if not len(array):
        return set()
    buffers = own_buffers(array)
    if array.null_count == 0 and has_validity(array):
        del buffers[0]
    found = {data.ctypes.data for data in buffers if data is not None and len(data)}
    return found.union(*map(used, below(array)))


def outcome(consumer: Consumer, case: Case) -> Outcome:
    """Send a case to a consumer and take it back."""
    if listed(consumer.fatal, case.name) is not None:
        return Outcome(FATAL)
    ours = case.array()
    rows = sa.table({"x": ours})
    try:
        theirs = consumer.send(rows)
        back = consumer.back(theirs)
        columns = back.column("x").chunks
        values = [value for column in columns for value in column.to_pylist()]
    except (KeyboardInterrupt, SystemExit, MemoryError):
        raise
    except BaseException as error:  # the panics of Rust are none of Exception
        close()  # DuckDB's cannot be used after an internal error
        return Outcome(REFUSED, f"{type(error).__name__}: {error}")
    if not same(values, case.values):
        return Outcome(OTHER, repr(values)[:300])
    return Outcome(ZERO if all(used(column) <= addresses(ours) for column in columns) else COPIED)


def same(one: Any, two: Any) -> bool:
    """Whether lists of values are equal; those of classes that do not compare are not."""
    try:
        return bool(one == two)
    except ValueError:
        return False


def cases_for(name: str) -> list[Case]:
    """The cases that go to a consumer: all, but to DuckDB, where each query takes a while, those with values."""
    if name != "DuckDB":
        return CASES
    return [case for case in CASES if not case.name.endswith(("-all-null", "-empty"))]


def cell(consumer: Consumer, cases: list[Case], found: dict[tuple[str, str], Outcome], name: str) -> str:
    """Return what a consumer does with the cases of a row, and with which of them it does not."""
    kinds = Counter(found[name, case.name].kind for case in cases)
    reasons = dict.fromkeys(
        f"no {reason}" if found[name, case.name].kind == REFUSED else reason
        for case in cases
        if found[name, case.name].kind not in (ZERO, COPIED)
        and (reason := listed(consumer.listed, case.name)) is not None
    )
    if not kinds[ZERO] and not kinds[COPIED]:
        main = COPIED if kinds[OTHER] else "unsupported"
        return "; ".join([main, *(reason for reason in reasons if not reason.startswith("no "))])
    return "; ".join([ZERO if kinds[ZERO] > kinds[COPIED] else COPIED, *reasons])


def page(found: dict[tuple[str, str], Outcome]) -> str:
    """The whole page, with the table of the outcome of each case with each consumer."""
    rows: dict[str, list[Case]] = {row: [] for row in TYPES}
    for case in CASES:
        if len(case.values) and not case.name.startswith("odd-") and not case.name.endswith("-all-null"):
            rows[row_of(case.type)].append(case)
    cells = {name: [cell(each, cases, found, name) for cases in rows.values()] for name, each in CONSUMERS.items()}
    alike = [name for name, column in cells.items() if set(column) == {ZERO}]
    others = [name for name in cells if name not in alike]
    same: dict[tuple[str, ...], list[str]] = {}
    for row, *columns in zip(rows, *(cells[name] for name in others), strict=True):
        same.setdefault(tuple(columns), []).append(row)
    libraries = [(name, each.how, version(each.package)) for name, each in CONSUMERS.items()]
    alike_types = [(", ".join(names), *columns) for columns, names in same.items()]
    return filled(
        PAGE,
        alike=f"{', '.join(alike)}: **zero-copy** for every type.",
        matrix=table(["Type", *others], alike_types, ":-:"),
        libraries=table(["Library", "takes", "version"], libraries, ":-:"),
    )


def outcomes() -> dict[tuple[str, str], Outcome]:
    """Return the outcome of every case with every consumer."""
    return {(name, case.name): outcome(each, case) for name, each in CONSUMERS.items() for case in cases_for(name)}


@contextmanager
def without_backtraces() -> Iterator[None]:
    """Discard what native libraries write to standard error: Rust describes each panic there, caught or not."""
    sys.stderr.flush()
    kept = os.dup(2)
    with open(os.devnull, "w") as nothing:
        os.dup2(nothing.fileno(), 2)
    try:
        yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)


if __name__ == "__main__":
    with without_backtraces():
        found = outcomes()
    PAGE.write_text(page(found), encoding="utf-8")
    sys.stdout.write(f"wrote {PAGE}\n")
