"""Every case of the shared table, to other libraries and back."""

from __future__ import annotations

import signal
import subprocess
import sys
import warnings
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, version

import pytest
from cases.table import CASES
from consumers import (
    CONSUMERS,
    COPIED,
    FATAL,
    OTHER,
    PAGE,
    REFUSED,
    ZERO,
    Outcome,
    cases_for,
    close,
    listed,
    outcome,
    page,
)

FOUND: dict[tuple[str, str], Outcome] = {}


@pytest.fixture(autouse=True, scope="module")
def leave_nothing_open() -> Iterator[None]:
    yield
    close()


@pytest.mark.parametrize("name", CONSUMERS)
def test_there_and_back(name: str) -> None:
    """Equal, or listed with what the consumer lacks; what is listed and works is a warning in the report."""
    consumer = CONSUMERS[name]
    pytest.importorskip(consumer.package.replace("-", "."))
    wrong = {}
    needed = set()
    for case in cases_for(name):
        found = FOUND[name, case.name] = outcome(consumer, case)
        patterns = {REFUSED: consumer.lacks, OTHER: consumer.differs, FATAL: consumer.fatal}.get(found.kind, {})
        reason = listed(patterns, case.name)
        if found.kind not in (ZERO, COPIED):
            needed.add(reason)
            if reason is None:
                wrong[case.name] = found
    assert wrong == {}
    if better := set(consumer.listed.values()) - needed:
        warnings.warn(f"{name} can do what consumers.py says it cannot: {', '.join(sorted(better))}", stacklevel=1)


def test_most_types_are_not_copied() -> None:
    """Buffers of the same form on both sides have the same addresses."""
    for name in ("pyarrow", "nanoarrow", "arro3"):
        if (name, "int64") in FOUND:
            copied = [case.name for case in CASES if FOUND[name, case.name].kind == COPIED]
            assert len(copied) < 20, copied
            plain = {
                "int64",
                "string",
                "binary-view",
                "list-string",
                "struct-nested",
                "map",
                "dictionary-int8",
                "ree-16",
            }
            assert plain.isdisjoint(copied)
    if ("polars", "int64") in FOUND:
        for case in ("int64-nulls", "float32", "string-view", "binary-view", "bool", "decimal128", "timestamp-us"):
            assert FOUND["polars", case].kind == ZERO, case


def test_the_page_says_what_was_found() -> None:
    text = PAGE.read_text(encoding="utf-8")
    for each in CONSUMERS.values():
        try:
            if f"| {version(each.package)} |" not in text:
                pytest.skip(f"the page is about another version of {each.package}")
        except PackageNotFoundError:
            pytest.skip(f"{each.package} is not installed")
    if len(FOUND) < sum(len(cases_for(name)) for name in CONSUMERS):
        pytest.skip("the cases went to several processes")
    assert text == page(FOUND), "make docs brings docs/interchange.md up to date"


@pytest.mark.processes
def test_what_ends_the_process_does_so_without_us() -> None:
    """polars takes short decimals of pyarrow through the same interface, and does not survive giving them back."""
    pytest.importorskip("polars")
    code = """
import polars as pl, pyarrow as pa
class Given:
    def __arrow_c_stream__(self, requested_schema=None):
        return pa.table({'x': pa.array([1, None], pa.int32()).view(pa.decimal32(9, 2))}).__arrow_c_stream__()
frame = pl.DataFrame(Given())
print(len(frame), flush=True)
pa.table(frame)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, check=False)
    assert done.stdout == b"2\n"
    if done.returncode == 0:
        warnings.warn("polars survives giving short decimals back: consumers.py need not list them", stacklevel=1)
    else:
        assert done.returncode == -signal.SIGABRT
