"""Semaphores: a post wakes, signals are handled, and nobody can do harm with one."""

from __future__ import annotations

import ctypes
import os
import signal
import stat
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from processes import ended, forked, killed_at_end
from waiting import wait_until

from shmarrow.segment.semaphore import (
    Semaphore,
    create_semaphore,
    new_number,
    open_semaphore,
    remove_semaphore,
    wait_for_post,
)

pytest.importorskip("posix_ipc")
ME = {os.geteuid()}
SLEEPS = "S"


def file_of(number: int) -> Path:
    return Path(f"/dev/shm/sem.shmarrow-{number:016x}")


@pytest.fixture
def number() -> Iterator[int]:
    made = new_number()
    yield made
    remove_semaphore(made)


def asleep(pid: int) -> bool:
    """Whether the main thread of a process sleeps in the kernel."""
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == SLEEPS


def test_a_post_wakes_another_process(number: int) -> None:
    made = create_semaphore(number)
    assert made is not None

    def post() -> None:
        opened = open_semaphore(number, ME)
        assert opened is not None
        opened.post()

    child = forked(post)
    with killed_at_end([child]):
        assert made.wait(60)
        assert ended(child) == 0


def test_posts_before_the_wait_count_as_one(number: int) -> None:
    made = create_semaphore(number)
    assert made is not None
    for _ in range(1000):
        made.post()
    assert made.wait(0)
    assert not made.wait(0)


def test_a_wait_ends_with_its_time(number: int) -> None:
    made = create_semaphore(number)
    for semaphore in (made, None):
        before = time.monotonic()
        while (waited := time.monotonic() - before) < 0.1:
            wait_for_post(semaphore, 0.1 - waited, waited)
        wait_for_post(semaphore, 0)
        wait_for_post(semaphore, -1)


def test_without_posix_ipc_there_are_pauses(tmp_path: Path) -> None:
    """Each is at most a tenth of the time waited, and at most a tenth of a second."""
    (tmp_path / "posix_ipc.py").write_text("raise ImportError('no wheel')")
    source = (
        "import time; from shmarrow.segment.semaphore import *\n"
        "assert create_semaphore(1) is None and open_semaphore(1, None) is None\n"
        "for waited, shortest in ((0, 0.0005), (0.1, 0.01), (100, 0.1)):\n"
        "    before = time.monotonic()\n"
        "    wait_for_post(None, 1e9, waited)\n"
        "    assert shortest <= time.monotonic() - before\n"
    )
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(tmp_path), *sys.path])}
    subprocess.run([sys.executable, "-c", source], check=True, env=environment)


def test_a_number_is_taken_once(number: int) -> None:
    first = create_semaphore(number)
    assert first is not None
    assert open_semaphore(number, None) is not None
    assert remove_semaphore(number)
    assert remove_semaphore(number)
    assert open_semaphore(number, None) is None
    first.post()
    assert first.wait(0)


@pytest.mark.parametrize("mode", [0o600, 0o660, 0o666])
def test_permissions_are_not_those_of_the_umask(number: int, mode: int) -> None:
    before = os.umask(0o077)
    try:
        made = create_semaphore(number, mode, group=os.getegid())
    finally:
        os.umask(before)
    assert made is not None
    status = file_of(number).stat()
    assert (stat.S_IMODE(status.st_mode), status.st_uid, status.st_gid) == (mode, os.geteuid(), os.getegid())


def test_what_strangers_own_is_not_opened(number: int) -> None:
    made = create_semaphore(number, 0o666)
    assert made is not None
    other, group = os.geteuid() + 1, os.getegid()
    assert open_semaphore(number, {other}) is None
    assert open_semaphore(number, {other}, group + 1) is None
    assert open_semaphore(number, {other}, group) is not None
    assert open_semaphore(number, None) is not None


def test_another_name_of_a_file_is_not_opened(number: int) -> None:
    """The trusted user has this file for something else; a stranger linked it there."""
    made = create_semaphore(number)
    assert made is not None
    linked = new_number()
    os.link(file_of(number), file_of(linked))
    try:
        assert open_semaphore(linked, ME) is None
        assert open_semaphore(number, ME) is None
    finally:
        remove_semaphore(linked)
    assert open_semaphore(number, ME) is not None
    file_of(linked).symlink_to(file_of(number))
    try:
        assert open_semaphore(linked, ME) is None
    finally:
        remove_semaphore(linked)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
def test_a_user_cannot_remove_those_of_others(number: int) -> None:
    made = create_semaphore(number)
    assert made is not None

    def remove() -> None:
        os.setuid(65533)
        assert not remove_semaphore(number)
        assert open_semaphore(number, None) is None

    assert ended(forked(remove)) == 0
    assert open_semaphore(number, ME) is not None


class Raised(Exception):
    """Raised by the handler of a test."""


def wait_for_nothing(semaphore: Semaphore, seconds: float) -> None:
    end = time.monotonic() + seconds
    while (left := end - time.monotonic()) > 0:
        wait_for_post(semaphore, left)


def waits_for_signal(number: int, handler: Any, sent: signal.Signals) -> None:
    """Wait for a post that does not come; the parent sends the signal while this process sleeps."""
    signal.signal(sent, handler)
    made = create_semaphore(number)
    assert made is not None
    with pytest.raises((Raised, KeyboardInterrupt)):
        wait_for_nothing(made, 600)
    assert signal.SIGALRM not in signal.pthread_sigmask(signal.SIG_BLOCK, ())


def raises(*_: object) -> None:
    raise Raised


@pytest.mark.parametrize(
    ("handler", "sent"),
    [(raises, signal.SIGALRM), (raises, signal.SIGINT), (signal.default_int_handler, signal.SIGINT)],
)
def test_signal_handlers_run_and_may_raise(number: int, handler: Any, sent: signal.Signals) -> None:
    child = forked(lambda: waits_for_signal(number, handler, sent))
    with killed_at_end([child]):
        wait_until(lambda: file_of(number).exists() and asleep(child), "it waits")
        os.kill(child, sent)
        assert ended(child) == 0


def test_other_threads_go_on(number: int) -> None:
    made = create_semaphore(number)
    assert made is not None
    reached = threading.Event()
    thread = threading.Thread(target=lambda: (reached.set(), wait_for_post(made, 60)))
    thread.start()
    assert reached.wait(60)
    made.post()
    thread.join(60)
    assert not thread.is_alive()


def test_it_is_closed_when_nobody_refers_to_it(number: int) -> None:
    def mapped() -> int:
        return Path("/proc/self/maps").read_text().count("/dev/shm/sem.")

    before = mapped()
    made = create_semaphore(number)
    opened = open_semaphore(number, ME)
    assert mapped() > before
    del made
    assert mapped() > before
    assert opened is not None
    opened.post()
    del opened
    assert mapped() == before


def test_a_forked_child_closes_its_own(number: int) -> None:
    held: list[Semaphore | None] = [create_semaphore(number)]
    assert ended(forked(held.clear)) == 0
    assert held[0] is not None
    held[0].post()
    assert held[0].wait(0)


def test_a_truncated_file_of_a_stranger_harms_nobody(number: int) -> None:
    """It is refused before it is touched; touching it would be a SIGBUS."""
    file_of(number).touch(0o666)
    assert open_semaphore(number, {os.geteuid() + 1}) is None


def test_semaphores_are_those_of_other_programs(number: int) -> None:
    made = create_semaphore(number)
    assert made is not None
    library = ctypes.CDLL(None)
    library.sem_open.restype = ctypes.c_void_p
    opened = library.sem_open(b"/" + file_of(number).name.removeprefix("sem.").encode(), 0)
    assert opened
    library.sem_post(ctypes.c_void_p(opened))
    assert made.wait(0)
    library.sem_close(ctypes.c_void_p(opened))
