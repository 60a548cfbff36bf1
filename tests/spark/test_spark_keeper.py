"""Keepers: the processes that own what workers put into the store of a host that is not the driver's.

An executor is a shell here, and its workers are Python processes that it starts one after the other.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from environment import ROOT
from waiting import wait_until

import shmarrow as sa

pytestmark = pytest.mark.processes

WORKER = """
import sys
from shmarrow.spark.app_store import executor_store
found = executor_store(sys.argv[1])
assert executor_store(sys.argv[1]) is found
found.store().put(sys.argv[2], b"x")
print(found.owner, flush=True)
"""


class Executor:
    """A process whose children are workers."""

    def __init__(self, process: subprocess.Popen[str], where: str) -> None:
        self.process, self.where = process, where

    def put(self, name: str) -> int:
        """Let a new worker put an object; the number of its owner."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(f"{name}\n")
        self.process.stdin.flush()
        return int(self.process.stdout.readline())


@contextmanager
def executor(where: str) -> Iterator[Executor]:
    script = 'while read name; do "$@" "$name"; done'
    command = ["sh", "-c", script, "sh", sys.executable, "-c", WORKER, where]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env={**os.environ, "PYTHONPATH": str(ROOT)}
    ) as process:
        try:
            yield Executor(process, where)
        finally:
            process.kill()


def test_objects_live_as_long_as_their_executor(shm_name: str) -> None:
    store = sa.Store(shm_name)
    with executor(shm_name) as first, executor(shm_name) as second:
        owner, other = first.put("a"), second.put("b")
        assert first.put("c") == owner != other  # workers end, and their executor's objects stay
        store.collect()
        assert [name for name in store.names() if "/" not in name] == ["a", "b", "c"]
        second.process.send_signal(signal.SIGKILL)
        wait_until(lambda: "b" not in store, "the keeper removes what the executor had")
        assert {"a", "c"} < set(store.names())
        # A keeper that is killed is replaced; what it owned is collected.
        keeper = store.info("a").owner
        assert keeper is not None
        os.kill(keeper, signal.SIGKILL)
        wait_until(lambda: "a" not in store or store.info("a").orphaned, "the kernel drops its lock")
        assert first.put("d") > 0
        assert [name for name in store.names() if "/" not in name] == ["d"]
    wait_until(lambda: not store.names(), "the last keeper ends")
    store.destroy()


def test_what_keeps_a_keeper_from_starting(shm_name: str) -> None:
    from shmarrow.spark.app_store import start_keeper

    with sa.Store(shm_name) as store:
        with pytest.raises(
            sa.StorageError, match=r"cannot start the process that owns objects on this host: Process.*No such"
        ):
            start_keeper(store, "keeper/x", 1 << 22)  # no process has this number
        store.destroy()
