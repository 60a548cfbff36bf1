"""Words on which processes wait: they wake each other, signals are handled, and nothing is left."""

from __future__ import annotations

import mmap
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from processes import ended, forked, killed_at_end
from waiting import wait_until

from shmarrow.memory.futex import Futexes, Wait, pause

WORD = 3
SLEEPS = "S"


@pytest.fixture
def futexes() -> Futexes:
    return Futexes(mmap.mmap(-1, mmap.PAGESIZE))


def asleep(pid: int) -> bool:
    """Whether the main thread of a process sleeps in the kernel."""
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == SLEEPS


def sleeps_until_woken(futexes: Futexes) -> Callable[[], None]:
    def sleep() -> None:
        wait = Wait(60)
        futexes.arm(WORD)
        sleep_now = wait.sleep(futexes, WORD, 60)
        assert sleep_now
        sleep_now()
        assert wait.waited < 50

    return sleep


def test_a_process_wakes_another(futexes: Futexes) -> None:
    child = forked(sleeps_until_woken(futexes))
    with killed_at_end([child]):
        wait_until(lambda: asleep(child), "it sleeps")
        futexes.wake(WORD + 1)
        assert os.waitpid(child, os.WNOHANG) == (0, 0)
        futexes.wake(WORD)
        assert ended(child) == 0


@pytest.mark.parametrize("path", ["/dev/shm", "/tmp"])
def test_processes_that_map_a_file_wake_each_other(path: str) -> None:
    """Each at its own address, in memory and on a disk."""
    file = Path(path, f"shmarrow-futex-{os.getpid()}")
    file.write_bytes(bytes(4096))

    def mapped() -> Futexes:
        with file.open("r+b") as opened:
            return Futexes(mmap.mmap(opened.fileno(), 4096))

    try:
        child = forked(lambda: sleeps_until_woken(mapped())())
        with killed_at_end([child]):
            wait_until(lambda: file.read_bytes()[4 * WORD] == 1 and asleep(child), "it sleeps")
            mapped().wake(WORD)
            assert ended(child) == 0
    finally:
        file.unlink()


def test_a_wake_before_the_sleep_is_not_lost(futexes: Futexes) -> None:
    futexes.arm(WORD)
    futexes.wake(WORD)
    wait = Wait(None)
    sleep = wait.sleep(futexes, WORD, 600)
    assert sleep
    sleep()
    assert wait.waited < 60


def test_a_sleep_ends_with_its_time(futexes: Futexes) -> None:
    for word in (WORD, -1):
        futexes.arm(WORD)
        wait = Wait(0.1)
        while sleep := wait.sleep(futexes, word, 600):
            sleep()
        assert wait.waited >= 0.1
        assert not wait.sleep(futexes, word, 600)


@pytest.mark.parametrize(("waited", "shortest"), [(0, 0.0005), (0.1, 0.01), (100, 0.1)])
def test_without_a_word_there_are_pauses(waited: float, shortest: float) -> None:
    """Each is at most a tenth of the time waited, and at most a tenth of a second."""
    before = time.monotonic()
    pause(1e9, waited)
    assert time.monotonic() - before >= shortest


def test_on_other_machines_there_are_pauses() -> None:
    source = (
        "import os, mmap, numpy, time; from collections import namedtuple\n"
        "os.uname = lambda: namedtuple('uname', 'machine')('sparc')\n"
        "from shmarrow.memory.futex import *\n"
        "futexes = Futexes(mmap.mmap(-1, 4096)); futexes.arm(0)\n"
        "before = time.monotonic(); futexes.sleep(0, 1e9, 100)(); assert time.monotonic() - before >= 0.1\n"
        "futexes.wake(0)\n"
    )
    subprocess.run([sys.executable, "-c", source], check=True)


class Raised(Exception):
    """Raised by the handler of a test."""


def raises(*_: object) -> None:
    raise Raised


@pytest.mark.parametrize(
    ("handler", "sent"),
    [(raises, signal.SIGALRM), (raises, signal.SIGINT), (signal.default_int_handler, signal.SIGINT)],
)
def test_signal_handlers_run_and_may_raise(futexes: Futexes, handler: Any, sent: signal.Signals) -> None:
    read, write = os.pipe()

    def sleep() -> None:
        signal.signal(sent, handler)
        os.write(write, b".")
        futexes.arm(WORD)
        with pytest.raises((Raised, KeyboardInterrupt)):
            futexes.sleep(WORD, 600, 0)()

    child = forked(sleep)
    with killed_at_end([child]):
        assert os.read(read, 1) == b"."
        wait_until(lambda: asleep(child), "it sleeps")
        os.kill(child, sent)
        assert ended(child) == 0
    os.close(read), os.close(write)


def test_other_threads_go_on(futexes: Futexes) -> None:
    reached = threading.Event()
    futexes.arm(WORD)
    thread = threading.Thread(target=lambda: (reached.set(), futexes.sleep(WORD, 60, 0)()))
    thread.start()
    assert reached.wait(60)
    futexes.wake(WORD)
    thread.join(60)
    assert not thread.is_alive()


def test_the_memory_stays_mapped(futexes: Futexes) -> None:
    memory = mmap.mmap(-1, mmap.PAGESIZE)
    held = Futexes(memory)
    with pytest.raises(BufferError):
        memory.close()
    held.arm(WORD)
    del held
    memory.close()
