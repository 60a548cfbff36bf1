"""A column of a file that only this user may write is checked once per process and version of the file."""

from __future__ import annotations

import mmap
import os
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from waiting import wait_until

import shmarrow as sa

pa = pytest.importorskip("pyarrow")

TEXT = "a text of many bytes"
TYPES = [sa.string(), sa.string_view(), sa.dictionary(sa.int8(), sa.string()), sa.list_(sa.large_string())]
SETTLED = 150_000_000
"""Nanoseconds after which a change of a file surely shows in its times."""


class Overwritten:
    """A file in shared memory, and a writable mapping through which it can change without a trace."""

    def __init__(self, path: str, type: Any = None, stream: bool = False) -> None:
        self.path = path
        type = type or sa.string()
        value = [TEXT] if type.layout == "list" else TEXT
        batch = sa.record_batch({"n": sa.array([1, None]), "s": sa.array([value, value], type)})
        make, self.open = (sa.ipc.new_stream, sa.ipc.open_stream) if stream else (sa.ipc.new_file, sa.ipc.open_file)
        with make(path, batch.schema) as writer:
            writer.write(batch)
        with open(path, "r+b") as file:
            self.pages = mmap.mmap(file.fileno(), 0)
        self.place = self.pages.rfind(TEXT.encode())
        self.pages[self.place] = ord("b")  # only the first change of a page shows in the times
        self.settle()

    def settle(self) -> None:
        wait_until(lambda: time.time_ns() >= os.stat(self.path).st_ctime_ns + SETTLED, "the change is settled")

    def damage(self) -> None:
        self.pages[self.place] = 0xFF

    def export(self) -> Any:
        with self.open(self.path) as reader:
            return pa.table(reader.read_all())

    def is_checked(self) -> bool:
        """Whether another reader checks the file, which is damaged for that."""
        self.damage()
        try:
            self.export()
        except sa.InvalidData:
            return True
        return False


@pytest.fixture
def path(shm_name: str) -> str:
    return "/dev/shm/" + shm_name.removeprefix("shm:")


@pytest.mark.parametrize("type", TYPES, ids=str)
@pytest.mark.parametrize("stream", [False, True])
def test_later_readers_do_not_check_again(path: str, type: Any, stream: bool) -> None:
    file = Overwritten(path, type, stream)
    file.export()
    assert not file.is_checked()


def test_what_was_not_checked_is_checked(path: str) -> None:
    file = Overwritten(path)
    with sa.ipc.open_file(path, included_fields=["n"]) as reader:
        pa.table(reader.read_all())
    with sa.ipc.open_file(path) as reader:
        pa.table(reader.read_all().slice(1))
    assert file.is_checked()


def test_an_error_is_raised_each_time(path: str) -> None:
    file = Overwritten(path)
    file.damage()
    for _ in range(3):
        with pytest.raises(sa.InvalidData, match="UTF-8"):
            file.export()


def test_a_changed_file_is_checked_by_new_and_by_old_readers(path: str) -> None:
    file = Overwritten(path)
    with sa.ipc.open_file(path) as reader:
        pa.table(reader.read_all())
        with open(path, "r+b") as other:
            other.seek(file.place)
            other.write(b"\xff")
        with pytest.raises(sa.InvalidData, match="UTF-8"):
            pa.table(reader.read_all())
    with pytest.raises(sa.InvalidData, match="UTF-8"):
        file.export()


def test_a_replaced_file_is_checked(path: str) -> None:
    file = Overwritten(path)
    file.export()
    data = bytearray(Path(path).read_bytes())
    data[file.place] = 0xFF
    times = os.stat(path)
    Path(path + "-new").write_bytes(data)
    os.utime(path + "-new", ns=(times.st_atime_ns, times.st_mtime_ns))
    os.rename(path + "-new", path)
    file.settle()
    with pytest.raises(sa.InvalidData, match="UTF-8"):
        file.export()


@pytest.mark.parametrize("mode", [0o620, 0o602, 0o666])
def test_a_file_that_others_may_write_is_always_checked(path: str, mode: int) -> None:
    file = Overwritten(path)
    os.chmod(path, mode)
    file.settle()
    file.export()
    assert file.is_checked()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")
@pytest.mark.parametrize("owner", [1234, 65534])
def test_a_file_of_another_user_is_always_checked(path: str, owner: int) -> None:
    file = Overwritten(path)
    os.chown(path, owner, -1)
    file.settle()
    file.export()
    assert file.is_checked()


def test_a_file_that_has_just_changed_is_checked_again(path: str) -> None:
    file = Overwritten(path)
    os.utime(path, ns=(0, time.time_ns() + 3600 * 10**9))
    file.export()
    assert file.is_checked()


def test_memory_that_is_no_whole_file_is_always_checked(path: str) -> None:
    file = Overwritten(path)
    whole = np.frombuffer(file.pages, "u1")
    with sa.segment.attach(path) as segment:
        for data in (segment.data[:], memoryview(segment.data), whole):
            pa.table(sa.ipc.open_file(data).read_all())
    assert file.is_checked()
    del whole, data
