"""Rings that are used in a wrong way, or by several threads, and whose words another process has changed."""

from __future__ import annotations

import errno
import os
import resource
import struct
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from interrupts import interrupted
from processes import die, ended, forked

import shmarrow as sa
from shmarrow.ring import protocol as p
from shmarrow.ring import ring_info

NUMBERS = np.arange(12.0).reshape(3, 4)
TEXT = sa.record_batch({"text": ["abc"] * 4})


@pytest.mark.parametrize("shape", [(1,), (3, 1), (1, 4)])
def test_the_elements_of_like_may_share_memory(shm_name: str, shape: tuple[int, ...]) -> None:
    with sa.Ring(shm_name, like=np.broadcast_to(np.zeros(shape), (3, 4))) as ring, sa.Ring(shm_name) as reader:
        ring.put(NUMBERS)
        assert next(reader).tolist() == NUMBERS.tolist()
        with ring.write() as frame:
            frame[...] = NUMBERS.T.reshape(3, 4)
        assert next(reader).tolist() == NUMBERS.T.reshape(3, 4).tolist()


def test_one_frame_at_a_time_is_written(shm_name: str) -> None:
    """A second one would be in the slot of the first, which a reader has by then."""
    with sa.Ring(shm_name, like=NUMBERS) as ring, sa.Ring(shm_name, timeout=60) as reader:
        with ring.write() as frame:
            frame[...] = 1
            with pytest.raises(sa.InvalidArgument, match="is being written"):
                ring.put(NUMBERS)
            with pytest.raises(sa.InvalidArgument, match="is being written"), ring.write():
                pass
            frame[...] = 2
        assert next(reader).tolist() == np.full((3, 4), 2.0).tolist()
        with pytest.raises(ZeroDivisionError), ring.write():
            raise ZeroDivisionError
        ring.put(NUMBERS)
        assert next(reader).tolist() == NUMBERS.tolist()


def test_waiting_for_a_slot_that_is_written_takes_no_processor(shm_name: str) -> None:
    """With as many readers as there can be, the writer takes the slot of the newest frame."""
    with sa.Ring(shm_name, like=NUMBERS, slots=2) as ring, sa.Ring(shm_name, timeout=1) as reader:
        ring.put(NUMBERS)
        next(reader)
        ring.put(NUMBERS + 1)
        with ring.write() as frame:
            frame[...] = 3
            before = time.thread_time()
            with pytest.raises(sa.TimedOut):
                next(reader)
            assert time.thread_time() - before < 0.05
        assert next(reader).tolist() == np.full((3, 4), 3.0).tolist()


def test_a_link_to_nothing_is_no_place_for_a_ring(tmp_path: Path) -> None:
    link = tmp_path / "ring"
    link.symlink_to(tmp_path / "nothing")
    with pytest.raises(sa.ObjectNotFound):
        sa.Ring(link, like=NUMBERS)
    assert link.is_symlink()


def write(ring: Path, word: int, value: int) -> None:
    with ring.open("r+b") as file:
        file.seek(word * 8)
        file.write(struct.pack("<Q", value))


def test_the_process_ids_of_others_may_be_mine(shm_name: str, tmp_path: Path) -> None:
    """Those of containers are often equal."""

    def use() -> None:
        ring, reader = sa.Ring(path, like=NUMBERS), sa.Ring(path)
        ring.put(NUMBERS)
        next(reader)
        assert (ring.info().writer, [each.holds for each in reader.info().readers]) == (os.getpid(), [True])
        die()  # closes nothing

    path = tmp_path / "ring"
    assert ended(forked(use)) == 0
    for word in (p.WRITER, p.ENTRIES + p.PROCESS):
        write(path, word, os.getpid())
    info = ring_info(path)
    assert (info.frames, info.writer, info.readers) == (1, None, [])


@pytest.mark.skipif(os.getuid() != 0, reason="takes root to become another user")
def test_a_name_that_cannot_be_removed() -> None:
    def use() -> None:
        os.setuid(12345)
        ring = sa.Ring(folder / "ring", like=NUMBERS)
        folder.chmod(0o555)
        with pytest.raises(sa.StorageError, match="cannot remove the ring"):
            ring.close()
        folder.chmod(0o755)
        with sa.Ring(folder / "ring", like=NUMBERS) as ring:
            assert ring.info().frames == 0

    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        os.chown(folder, 12345, -1)
        assert ended(forked(use)) == 0


def calls(ring: sa.Ring, reader: sa.Ring) -> Iterator[Callable[[], Any]]:
    yield lambda: ring.put(TEXT)
    yield lambda: next(reader)["text"].to_pylist()
    yield lambda: next(reader)["text"].to_pylist()
    yield lambda: ring.put(TEXT)
    yield ring.info
    yield lambda: reader.missed
    yield reader.info
    yield reader.close
    yield ring.close


@pytest.mark.parametrize("policy", ["latest", "all"])
@pytest.mark.parametrize(
    "word", [*range(p.NEWEST, p.NEWEST + 5), p.SEQUENCES, p.SEQUENCES + 1, *range(p.ENTRIES, p.ENTRIES + 6)]
)
def test_words_that_another_process_writes(shm_name: str, policy: str, word: int) -> None:
    path = Path("/dev/shm", shm_name.removeprefix("shm:"))
    for value in (0, 1, 2, 1 << 31, (1 << 32) - 1, 1 << 63, (1 << 64) - 3, (1 << 64) - 1):
        ring = sa.Ring(shm_name, like=TEXT, slots=3, policy=policy, timeout=0)
        with ring, sa.Ring(shm_name, timeout=0) as reader:
            ring.put(TEXT)
            next(reader)
            write(path, word, value)
            for call in calls(ring, reader):
                try:
                    call()
                except (sa.ShmarrowError, StopIteration):
                    continue
        path.unlink(missing_ok=True)


@pytest.mark.parametrize("policy", ["latest", "all"])
def test_another_thread_may_close_it_at_any_time(shm_name: str, policy: str) -> None:
    found: list[str] = []

    def until_closed(call: Callable[[], Any]) -> None:
        try:
            while True:
                call()
        except (sa.Closed, StopIteration):
            found.append("ended")
        except BaseException as error:
            found.append(repr(error))

    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        for number in range(20):
            ring = sa.Ring(shm_name, like=NUMBERS, policy=policy, timeout=60)
            reader = sa.Ring(shm_name, timeout=60)
            threads = [
                threading.Thread(target=until_closed, args=[call])
                for call in (lambda ring=ring: ring.put(NUMBERS), reader.__next__)
            ]
            for thread in threads:
                thread.start()
            for _ in range(number * 20):
                pass
            for each in (ring, reader) if number % 2 else (reader, ring):
                each.close()
            for thread in threads:
                thread.join()
    finally:
        sys.setswitchinterval(interval)
    assert found == ["ended"] * 40


# --- signal handlers ----------------------------------------------------------------------------------------------

FILES = ("/ring/ring.py", "/ring/file.py", "/ring/frames.py")
EVERY = int(os.environ.get("SHMARROW_TEST_STEP", "7"))


def steps(policy: str, shm_name: str, handle: Callable[[sa.Ring], object]) -> Iterator[list[object]]:
    """What a handler gives that runs before an instruction of a writer, or of a reader; for every so many of them."""
    for of_writer in (True, False):
        number = 1
        while True:
            with sa.Ring(shm_name, like=NUMBERS, policy=policy, timeout=60) as ring:
                reader = sa.Ring(shm_name, timeout=0)
                said: list[object] = []
                mine = ring if of_writer else reader

                def work(ring: sa.Ring = ring, reader: sa.Ring = reader, of_writer: bool = of_writer) -> None:
                    if not of_writer:
                        ring.put(NUMBERS)
                    for _ in range(2):
                        ring.put(NUMBERS) if of_writer else next(reader)
                        next(reader) if of_writer else ring.put(NUMBERS)

                def call(mine: sa.Ring = mine, said: list[object] = said) -> None:
                    try:
                        said.append(handle(mine))
                    except sa.ShmarrowError as error:
                        said.append(type(error))

                try:
                    more = interrupted(work, call, number, FILES)
                except (sa.Closed, sa.TimedOut, StopIteration):
                    more = True
                reader.close()
            if not more:
                break
            if said:  # else the signal came after the last call
                yield said
            number += EVERY


@pytest.mark.parametrize("policy", ["latest", "all"])
def test_a_handler_may_close_a_ring_anywhere(shm_name: str, policy: str) -> None:
    path = Path("/dev/shm", shm_name.removeprefix("shm:"))
    count = 0
    for said in steps(policy, shm_name, sa.Ring.close):
        assert said == [None]
        assert not path.exists()
        count += 1
    assert count > 20


@pytest.mark.parametrize("policy", ["latest", "all"])
def test_a_handler_in_the_middle_of_a_step_is_refused_anything_else(shm_name: str, policy: str) -> None:
    """What is not refused happens before or after the step: no frame is torn."""

    def change(ring: sa.Ring) -> object:
        if repr(ring).endswith("writer>"):
            return ring.put(NUMBERS)
        assert next(ring).tolist() == NUMBERS.tolist()
        return None

    refused = 0
    for (said,) in steps(policy, shm_name, change):
        assert said in (None, sa.InvalidArgument, sa.TimedOut)
        refused += said is sa.InvalidArgument
    assert refused > 5


def test_a_ring_without_descriptors_is_an_error_of_this_package(tmp_path: Path) -> None:
    def use() -> None:
        held = []
        with sa.Ring(tmp_path / "there", like=NUMBERS) as ring:
            limit = max(map(int, os.listdir("/proc/self/fd"))) + 32
            resource.setrlimit(resource.RLIMIT_NOFILE, (limit, limit))
            with suppress(OSError):
                while True:
                    held.append(os.dup(0))
            said: list[Any] = []
            for _ in range(8):
                for where, like in ((tmp_path / "there", None), (tmp_path / "new", NUMBERS)):
                    try:
                        sa.Ring(where, like=like, timeout=0).close()
                        said.append("opened")
                    except sa.StorageError as error:
                        said.append((error.errno, str(where) in str(error)))
                os.close(held.pop())
            for descriptor in held:
                os.close(descriptor)
            assert set(said) == {(errno.EMFILE, True), "opened"}
            with sa.Ring(tmp_path / "there", timeout=0) as reader:
                ring.put(NUMBERS)
                assert next(reader).tolist() == NUMBERS.tolist()

    assert ended(forked(use)) == 0


def test_a_reader_that_was_killed_never_takes_the_place_of_another(shm_name: str) -> None:
    """Whatever the writer does with what it has left."""
    with sa.Ring(shm_name, like=NUMBERS, slots=2) as ring:
        stop = threading.Event()

        def write() -> None:
            while not stop.is_set():
                ring.put(NUMBERS)

        def die_with_a_frame() -> None:
            next(sa.Ring(shm_name, timeout=60))
            die()

        thread = threading.Thread(target=write)
        thread.start()
        try:
            for _ in range(12):
                assert ended(forked(die_with_a_frame)) == 0
                with sa.Ring(shm_name, timeout=60) as reader:
                    assert next(reader).tolist() == NUMBERS.tolist()
        finally:
            stop.set()
            thread.join()
