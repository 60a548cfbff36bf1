"""Files that are opened again: what was found in them once is used only while it is true."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import shmarrow as sa
from shmarrow import segment
from shmarrow.ipc.file import known_files


def write(path: Any, name: str, rows: int = 3, mode: int = 0o400) -> None:
    with sa.ipc.new_file(path, sa.schema([(name, sa.int64())]), overwrite=True, mode=mode) as writer:
        writer.write(sa.record_batch({name: range(rows)}))


def settle() -> None:
    """Wait until a change of a file can be told from its last one."""
    time.sleep(0.15)


def opened(source: Any) -> tuple[list[str], list[Any]]:
    with sa.ipc.open_file(source) as reader:
        batch = reader.get_batch(0)
        return reader.schema.names, batch.column(0).to_pylist()


def test_every_way_of_opening_knows_the_file(tmp_path: Path, shm_name: str) -> None:
    known_files._KNOWN.clear()
    write(tmp_path / "file", "every way")
    write(shm_name, "every way")
    settle()
    expected = (["every way"], [0, 1, 2])
    with segment.attach(tmp_path / "file") as attached:
        ways: dict[str, tuple[Any, int]] = {
            "path": (tmp_path / "file", 1),
            "segment": (attached, 1),
            "shm": (shm_name, 2),
        }
        for source, count in ways.values():
            assert [opened(source) for _ in range(3)] == [expected] * 3
            assert len(known_files._KNOWN) == count


def in_place(path: Path) -> None:
    other = path.with_name("other")
    write(other, "changed")
    path.chmod(0o600)
    path.write_bytes(other.read_bytes())
    path.chmod(0o400)


def replaced(path: Path) -> None:
    write(path, "changed")


def renamed(path: Path) -> None:
    write(path.with_name("other"), "changed")
    os.replace(path.with_name("other"), path)


@pytest.mark.parametrize("change", [in_place, replaced, renamed])
@pytest.mark.parametrize("wait", [True, False])
def test_a_file_that_changes_is_read_again(tmp_path: Path, change: Callable[[Path], None], wait: bool) -> None:
    path = tmp_path / "file"
    write(path, "written")
    for _ in range(3):
        if wait:
            settle()
        assert opened(path)[0] == ["written"]
    change(path)
    for _ in range(3):
        assert opened(path)[0] == ["changed"]
        if wait:
            settle()


def test_a_file_that_may_be_written_to_is_never_known(tmp_path: Path) -> None:
    known_files._KNOWN.clear()
    path = tmp_path / "file"
    write(path, "open", mode=0o600)
    settle()
    assert [opened(path) for _ in range(3)] == [(["open"], [0, 1, 2])] * 3
    assert not known_files._KNOWN


def test_limits_and_bytes_that_change_all_the_same(tmp_path: Path) -> None:
    """Whoever may write may do so through a mapping, which leaves the time of change: no harm comes of it."""
    path = tmp_path / "file"
    write(path, "limits", mode=0o600)
    data = bytearray(path.read_bytes())
    writable = os.open(path, os.O_RDWR)
    path.chmod(0o400)
    settle()
    for _ in range(3):
        assert opened(path) == (["limits"], [0, 1, 2])
    with pytest.raises(sa.LimitExceeded):
        sa.ipc.open_file(path, limits=sa.Limits(metadata_bytes=8))
    import mmap

    with mmap.mmap(writable, len(data)) as mapped:
        for value in (0, 255, 1):
            mapped[8:-10] = bytes([value]) * (len(data) - 18)
            try:
                opened(path)
            except sa.ShmarrowError:
                continue
    os.close(writable)


def test_a_schema_that_the_cache_dropped_is_read_again(tmp_path: Path) -> None:
    path = tmp_path / "file"
    write(path, "dropped")
    settle()
    for _ in range(3):
        opened(path)
    from shmarrow.ipc.schema import cache

    with cache._CACHE._lock:
        capacity, cache._CACHE._capacity = cache._CACHE._capacity, 0
        cache._CACHE._shrink()
        cache._CACHE._capacity = capacity
    assert len(cache._CACHE) == 0
    assert [opened(path) for _ in range(3)] == [(["dropped"], [0, 1, 2])] * 3
