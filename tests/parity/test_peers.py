"""Others read what we write: every case as stream and file, compressed, and what else the format has.

Invariants: peers are real and read the bytes themselves; what they give is compared with the values of the cases.
``peers/lacks.py`` lists what each does not read; what a newer version has learned to read is a warning in the report.
"""

from __future__ import annotations

import datetime as dt
import importlib.metadata
import re
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import supported
from cases.table import case as by_name
from peers import UNWRITABLE, Sample, programs, samples, write
from peers.lacks import PEERS
from peers.python import READERS, Read

import shmarrow as sa

PROGRAMS = {"javascript": programs.node, "java": programs.java}


def neutral(value: Any) -> Any:
    """Values as all peers can say them: structs and maps as lists of pairs, tuples as lists, dates as midnights.

    Times of day are counted from midnight, and what is in nanoseconds is in the microseconds of ``datetime``.
    """
    if isinstance(value, dict):
        return [[key, neutral(item)] for key, item in value.items()]
    if isinstance(value, (list, tuple)):
        return [neutral(item) for item in value]
    if type(value) is dt.date:
        return dt.datetime.combine(value, dt.time())
    if isinstance(value, dt.time):
        return dt.datetime.combine(dt.date.min, value) - dt.datetime.min
    if isinstance(value, (np.datetime64, np.timedelta64)):
        return value.astype(f"{value.dtype.kind}8[us]").item()
    return value


def difference(sample: Sample, read: Read) -> str | None:
    """Return the first difference in what a peer read; None if there is none."""
    if neutral(read.columns) != neutral(sample.columns):
        return f"read {str(read.columns)[:300]} instead of {str(sample.columns)[:300]}"
    if sample.metadata not in (None, read.metadata):
        return f"read the metadata {read.metadata} instead of {sample.metadata}"
    return None


@pytest.fixture(scope="session")
def written() -> list[Sample]:
    return list(samples())


def _in_python(name: str, written: list[Sample]) -> dict[str, Read | str]:
    found: dict[str, Read | str] = {}
    for sample in written:
        try:
            found[sample.id] = READERS[name](sample)
        except BaseException as error:
            # Panics of Rust are no Exception; whatever else is none is not the peer's.
            if not isinstance(error, Exception) and type(error).__name__ != "PanicException":
                raise
            found[sample.id] = f"{type(error).__name__}: {error}"
    return found


@pytest.fixture(scope="session")
def failures(
    written: list[Sample], request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Callable[[str], dict[str, str]]:
    """Return what each peer could not read, and why, by the name of the peer."""
    known: dict[str, dict[str, str]] = {}

    def read(name: str) -> dict[str, str]:
        if name not in known:
            require(name, request)
            if name in READERS:
                found = _in_python(name, written)
            else:
                folder = tmp_path_factory.mktemp(name)
                found = programs.run(PROGRAMS[name](), written, folder)
            reasons = {
                sample.id: got if isinstance(got := found[sample.id], str) else difference(sample, got)
                for sample in written
            }
            known[name] = {id: reason for id, reason in reasons.items() if reason is not None}
        return known[name]

    return read


def require(name: str, request: pytest.FixtureRequest) -> None:
    """Skip where a peer is missing, or older than its list."""
    peer = PEERS[name]
    if name == "java":
        request.getfixturevalue("java")
    if name == "javascript":
        version = programs.version_of_javascript()
    elif peer.package is None:
        return
    else:
        pytest.importorskip(peer.package.replace("-", "."))
        version = importlib.metadata.version(peer.package)
    if numbers(version) < numbers(peer.checked):
        pytest.skip(f"what {peer.title} does not read is known from version {peer.checked} on, this is {version}")


def numbers(version: str) -> tuple[int, ...]:
    return tuple(map(int, re.findall(r"\d+", version)[:2]))


def lines(found: dict[str, str]) -> str:
    return "\n".join(f"  {id}: {reason}"[:500] for id, reason in list(found.items())[:20])


@pytest.mark.parametrize("name", PEERS)
def test_reads_what_we_write(name: str, failures: Callable[[str], dict[str, str]], written: list[Sample]) -> None:
    failed = failures(name)
    wrong = {id: reason for id, reason in failed.items() if PEERS[name].why_not(id) is None}
    assert not wrong, f"{PEERS[name].title} does not read {len(wrong)} samples:\n{lines(wrong)}"
    listed = {sample.id: reason for sample in written if (reason := PEERS[name].why_not(sample.id)) is not None}
    if better := {id: reason for id, reason in listed.items() if id not in failed}:
        warnings.warn(f"{PEERS[name].title} reads what peers/lacks.py says it does not:\n{lines(better)}", stacklevel=1)


@pytest.mark.parametrize("name", PEERS)
def test_every_pattern_matches(name: str, written: list[Sample]) -> None:
    ids = [sample.id for sample in written]
    for reason, patterns in PEERS[name].lacks.items():
        for pattern in patterns:
            assert supported.matching(ids, [pattern]), f"{pattern!r} ({reason}) matches no sample"


def test_cases_that_have_no_messages_are_refused() -> None:
    for name in UNWRITABLE:
        case = by_name(name)
        with pytest.raises(sa.Unsupported, match="cannot hold"):
            write("stream", [sa.record_batch([case.array()], names=["x"])])


def test_compressed_samples_are_compressed(written: list[Sample]) -> None:
    magic = {"lz4": bytes.fromhex("04224d18"), "zstd": bytes.fromhex("28b52ffd")}
    raw = {s.name for s in written if "-" in s.form and magic[s.form.split("-")[1]] not in s.data}
    assert raw == {"fixed-size-binary-0-nulls", "fixed-size-list-0-nulls", "struct-no-fields-nulls"}  # a bitmap each


def test_page_says_what_is_tested(written: list[Sample]) -> None:
    assert supported.PAGE.read_text(encoding="utf-8") == supported.page(written), "run make docs, which writes it anew"
