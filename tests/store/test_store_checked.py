"""Values that were checked when they were put are handed out unchecked, where the store and its files are trusted.

A value is handed out unchecked if other libraries get it although its file has been damaged since.
"""

from __future__ import annotations

import mmap
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import shmarrow as sa
from shmarrow.store.publish import SMALLEST_CHECKED

pa = pytest.importorskip("pyarrow")

VALUE = b"plain text of 30 ASCII bytes, "
ROWS = SMALLEST_CHECKED // len(VALUE) + 1


def column(data: Any = None, validity: Any = None) -> Any:
    """Text of somewhat more than is needed for a check on publishing."""
    data = VALUE * ROWS if data is None else data
    offsets = np.arange(0, len(data) + 1, len(VALUE))
    return sa.Array.from_buffers(sa.large_string(), ROWS, [validity, offsets, data])


def damaged(store: sa.Store, **reading: Any) -> Any:
    """The object as pyarrow gets it after its text is damaged; raises InvalidData if it is checked."""
    path = store.info("text").path
    os.chmod(path, os.stat(path).st_mode | 0o200)
    with open(path, "r+b") as file, mmap.mmap(file.fileno(), 0) as pages:
        place = pages.rfind(VALUE[:10])
        assert place > 0
        pages[place] = 0xFF
    os.chmod(path, os.stat(path).st_mode & ~0o200)
    return pa.table(store.get("text", **reading))


@pytest.fixture
def text() -> Any:
    return sa.record_batch({"n": np.arange(ROWS), "text": column()})


def test_it_is_not_checked_again(shm_name: str, text: Any) -> None:
    with sa.Store(shm_name) as store:
        store.put("text", text)
        store.protect("text")
        assert store.info("text").protected
        assert damaged(store).num_rows == ROWS
        assert pa.table(store.take("text")).num_rows == ROWS


def test_values_of_other_libraries(shm_name: str, text: Any) -> None:
    with sa.Store(shm_name) as store:
        store.put("text", pa.record_batch(text))
        assert damaged(store).num_rows == ROWS


def not_ascii(text: Any, folder: Path) -> Any:
    """Text whose check takes longer than its copy."""
    return sa.record_batch({"text": column(("ß" * 15).encode() + VALUE * (ROWS - 1))})


def unsafe(text: Any, folder: Path) -> Any:
    """Safe but for a null slot, which others get empty, in a copy."""
    bits = np.full(ROWS // 8 + 1, 255, "u1")
    bits[0] = 254
    return sa.record_batch({"text": column(b"\xff" + (VALUE * ROWS)[1:], bits)})


def mapped_by_others(text: Any, folder: Path) -> Any:
    """Memory that changes with a file, whoever changes that."""
    with sa.ipc.new_file(folder / "file", text.schema) as writer:
        writer.write(text)
    return pa.ipc.open_file(pa.memory_map(str(folder / "file"))).get_batch(0)


def trusted(text: Any, folder: Path) -> Any:
    """Text that was never checked, as its reader was told to trust it."""
    with sa.ipc.new_file(folder / "file", text.schema) as writer:
        writer.write(text)
    data = (folder / "file").read_bytes()
    [batch] = sa.ipc.open_file(data.replace(VALUE, b"\xff" + VALUE[1:], 1), unchecked=True)
    assert pa.record_batch(batch).num_rows == ROWS
    return batch.slice(0, ROWS)


def shared(text: Any, folder: Path) -> Any:
    pages = mmap.mmap(-1, len(VALUE) * ROWS)
    pages[:] = VALUE * ROWS
    return sa.record_batch({"text": column(pages)})


@pytest.mark.parametrize("make", [not_ascii, unsafe, mapped_by_others, trusted, shared])
def test_it_is_checked_if_publishing_did_not(
    shm_name: str, text: Any, tmp_path: Path, make: Callable[[Any, Path], Any]
) -> None:
    with sa.Store(shm_name) as store:
        store.put("text", make(text, tmp_path))
        with pytest.raises(sa.InvalidData, match="UTF-8"):
            damaged(store)


def test_other_ways_of_publishing_do_not_check(shm_name: str, text: Any, tmp_path: Path) -> None:
    with sa.ipc.new_file(tmp_path / "file", text.schema) as writer:
        writer.write(text)
    with sa.Store(shm_name) as store:
        store.put_file("text", tmp_path / "file")
        with pytest.raises(sa.InvalidData, match="UTF-8"):
            damaged(store)


class TestTrust:
    def test_anybody_is_nobody(self, shm_name: str, text: Any) -> None:
        with sa.Store(shm_name, accept_users=True) as store:
            store.put("text", text)
            with pytest.raises(sa.InvalidData, match="UTF-8"):
                damaged(store)
            assert damaged(store, unchecked=True).num_rows == ROWS

    @pytest.mark.parametrize("mode", [0o660, 0o666])
    def test_a_store_that_others_write_to(self, shm_name: str, text: Any, mode: int) -> None:
        with sa.Store(shm_name, mode=mode) as store:
            store.put("text", text)
            with pytest.raises(sa.InvalidData, match="UTF-8"):
                damaged(store)

    def test_readers_are_no_writers(self, shm_name: str, text: Any) -> None:
        with sa.Store(shm_name, mode=0o644) as store:
            store.put("text", text)
            assert damaged(store).num_rows == ROWS

    @pytest.mark.parametrize("who", ["file", "mode", "directory", "control"])
    @pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")
    def test_whatever_others_own_or_write_to(self, shm_name: str, text: Any, who: str) -> None:
        with sa.Store(shm_name) as store:
            store.put("text", text)
            path = store.info("text").path
            folder = os.path.dirname(path)
            if who == "mode":
                os.chmod(path, 0o420)
            else:
                os.chown({"file": path, "directory": folder, "control": folder + "/control"}[who], 1234, -1)
            with pytest.raises(sa.InvalidData, match="UTF-8"):
                damaged(store)
            os.chown(folder, 0, -1)
            os.chown(folder + "/control", 0, -1)
