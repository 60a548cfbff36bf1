"""Rings under faults: writers and readers that are killed, and files that are damaged.

``make soak`` runs the same at full speed, for longer, and with every instruction.
"""

from __future__ import annotations

import os
import struct
from pathlib import Path

import numpy as np
import pytest
from processes import die, ended, forked, killed_at_end
from ring_soak import LIKE, check_all_slots, kill_readers, kill_writer, numbered, run
from waiting import wait_until

import shmarrow as sa
from shmarrow.ring import protocol as p

EVERY = 97
"""The kills at the instructions between are left to ``ring_soak.py``."""


@pytest.mark.parametrize("policy", ["latest", "all"])
def test_a_writer_is_killed_at_any_instruction(shm_name: str, policy: str) -> None:
    number = 1
    while kill_writer(shm_name, policy, number):
        number += EVERY
    assert number > 10 * EVERY


@pytest.mark.parametrize("policy", ["latest", "all"])
def test_a_reader_is_killed_at_any_instruction(shm_name: str, policy: str) -> None:
    assert kill_readers(shm_name, policy, EVERY) > 3


@pytest.mark.parametrize("policy", ["latest", "all"])
def test_readers_stop_die_and_return_at_full_speed(shm_name: str, policy: str) -> None:
    found = run(shm_name, policy, 1.0, seed=1)
    assert found["torn"] == found["unordered"] == found["lost"] == 0
    assert found["frames"] > 0
    assert found["read"] > 0


def test_a_ring_goes_on_after_its_writer(shm_name: str) -> None:
    def write() -> None:
        ring = sa.Ring(shm_name, like=LIKE)
        while not ring.info().readers:
            os.sched_yield()
        ring.put(numbered(1))
        die()

    child = forked(write)
    with killed_at_end([child]), sa.Ring(shm_name, timeout=60) as reader:
        assert next(reader)["n"][0] == 1
        assert ended(child) == 0
        with sa.Ring(shm_name, timeout=0) as other, pytest.raises(sa.TimedOut, match="its writer has ended"):
            next(other)
        with sa.Ring(shm_name, like=LIKE) as ring:
            assert ring.info().frames == 1
            ring.put(numbered(2))
            assert next(reader)["n"][0] == 2
            check_all_slots(ring)


def test_a_writer_of_other_frames_ends_what_a_killed_one_left(shm_name: str) -> None:
    def write() -> None:
        ring = sa.Ring(shm_name, like=LIKE)
        while not ring.info().readers:
            os.sched_yield()
        die()

    child = forked(write)
    with killed_at_end([child]), sa.Ring(shm_name, timeout=60) as reader:
        assert ended(child) == 0
        with sa.Ring(shm_name, like=np.zeros(3)) as ring:
            assert list(reader) == []
            with sa.Ring(shm_name) as another:
                ring.put(np.ones(3))
                assert next(another).tolist() == [1, 1, 1]


def test_a_forked_child_does_not_keep_a_reader_alive(shm_name: str) -> None:
    with sa.Ring(shm_name, like=LIKE, slots=2) as ring:
        ends, begins = os.pipe()

        def read() -> None:
            reader = sa.Ring(shm_name)
            idle = os.fork()
            if not idle:
                os.close(begins)
                os.read(ends, 1)  # until the test ends
                die()
            ring_of_child = reader.info()
            assert len(ring_of_child.readers) == 1
            die()

        assert ended(forked(read)) == 0
        wait_until(lambda: not ring.info().readers, "the child has closed what it inherited")
        with sa.Ring(shm_name) as reader:
            ring.put(numbered(1))
            assert next(reader)["n"][0] == 1
        os.close(begins)
        os.close(ends)


# --- damaged files ------------------------------------------------------------------------------------------------


def damaged(path: Path, offset: int, data: bytes) -> None:
    with path.open("r+b") as file:
        file.seek(offset)
        file.write(data)


@pytest.mark.parametrize("word", range(6))
@pytest.mark.parametrize("value", [0, 5, 1 << 31, (1 << 64) - 1])
def test_a_damaged_geometry_is_refused(tmp_path: Path, word: int, value: int) -> None:
    path = tmp_path / "ring"
    with sa.Ring(path, like=LIKE):
        before = path.read_bytes()[word * 8 : word * 8 + 8]
        damaged(path, word * 8, struct.pack("<Q", value))
        try:
            with pytest.raises(sa.ShmarrowError):
                sa.Ring(path, timeout=0)
        finally:
            damaged(path, word * 8, before)


def test_damaged_words_and_messages_are_errors(tmp_path: Path) -> None:
    path = tmp_path / "ring"
    rng = np.random.default_rng(5)
    with sa.Ring(path, like=LIKE) as ring:
        ring.put(numbered(1))
        whole = path.read_bytes()
        message = whole.index(b"\xff" * 4, p.CONTROL_SIZE + 8)
        with sa.Ring(path, timeout=0) as reader:
            for _ in range(400):
                ring.put(numbered(2))
                at = int(rng.choice([message, p.NEWEST * 8, p.SEQUENCES * 8])) + 8 * int(rng.integers(0, 30))
                damaged(path, at, rng.integers(0, 256, 8, "u1").tobytes())
                try:
                    batch = next(reader)
                    batch.validate(full=True)
                    batch.to_pydict()
                except (sa.ShmarrowError, StopIteration):
                    pass
                damaged(path, p.NEWEST * 8, whole[p.NEWEST * 8 : p.NEWEST * 8 + 1024])


def test_what_is_not_a_ring_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"ARROW1\0\0" * 3000)
    path.chmod(0o600)
    for like in (None, LIKE):
        with pytest.raises(sa.InvalidData, match="is not a ring"):
            sa.Ring(path, like=like, timeout=0)
    assert path.read_bytes() == b"ARROW1\0\0" * 3000


@pytest.mark.skipif(os.getuid() != 0, reason="only root can give a file away")
def test_a_ring_of_another_user_needs_trust(tmp_path: Path) -> None:
    path = tmp_path / "ring"
    with sa.Ring(path, like=LIKE, mode=0o666) as ring:
        with pytest.raises(sa.StorageError, match="others may write to it"):
            sa.Ring(path, timeout=0)
        os.chown(path, 12345, -1)
        with pytest.raises(sa.StorageError, match="user 12345 owns it"):
            sa.Ring(path, timeout=0)
        for trust in (True, 12345):
            with sa.Ring(path, timeout=0, accept_users=trust) as reader:
                ring.put(numbered(1))
                assert next(reader)["n"][0] == 1
