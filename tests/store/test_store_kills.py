"""Kills at instructions of the store's code: a sample of those of ``make soak``."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import kills
import pytest


@pytest.fixture
def folder(shm_name: str) -> Iterator[Path]:
    """A folder for stores in shared memory, where nothing waits for a disk."""
    path = Path("/dev/shm", shm_name.removeprefix("shm:"))
    path.mkdir()
    yield path
    shutil.rmtree(path)


@pytest.mark.parametrize("size", kills.SIZES)
@pytest.mark.parametrize("name", kills.CASES)
def test_a_process_that_is_killed(folder: Path, name: str, size: str) -> None:
    first = 1 + (7 * len(name) + len(size)) % 60
    found = kills.kills(kills.CASES[name], kills.SIZES[size], 450, folder, first)
    assert sum(found.values()) >= 1


@pytest.mark.parametrize("size", kills.SIZES)
def test_a_process_that_is_killed_in_a_commit(folder: Path, size: str) -> None:
    """Before the journal is complete, nothing has happened, and afterwards all has."""
    found = kills.kills(kills.CASES["replace"], kills.SIZES[size], 9, folder, files=("shmarrow/store/control.py",))
    assert found[False] > 4
    assert found[True] > 4
