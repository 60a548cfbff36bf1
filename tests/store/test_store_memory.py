"""Stores in a memory control group that is smaller than their capacity: an error or an eviction, never a SIGKILL."""

from __future__ import annotations

import os
import textwrap
from pathlib import Path

import lab
import numpy as np
import pytest

import shmarrow as sa
from shmarrow.memory import host

MIB = 1 << 20
LIMIT = 96 * MIB

TOOLS = """
import os
import textwrap
import numpy as np
import shmarrow as sa
from shmarrow.memory import host
left = host.memory_left()
big = np.zeros(1 << 19, np.int8)
schema = sa.schema([("x", sa.int8())])
batch = sa.record_batch({"x": big})
"""


def test_full_memory_is_an_error(shm_name: str, tmp_path: Path) -> None:
    """Without eviction, however objects are put: small, large, in place, batch by batch, from a file."""
    path = str(tmp_path / "file")
    code = """
    assert 64 << 20 < left < limit, left
    store = sa.Store(where)
    store.put("held", np.zeros(8 << 20, np.int8))
    large = np.zeros(20 << 20, np.int8)
    found = {}
    def until_full(kind, put):
        for number in range(2000):
            try:
                put(f"{kind}-{number}")
            except sa.StoreFull as error:
                assert "memory limit of the control group" in str(error), error
                found[kind] = number
                break
        assert store.get("held").shape == (8 << 20,)
        store.delete(prefix=kind)

    def fill(name):
        with store.new_draft(name, schema, 30 << 20) as draft:
            draft["x"][:] = 1

    def write(name):
        with store.new_file(name, schema) as writer:
            for _ in range(60):
                writer.write(batch)

    until_full("small", lambda name: store.put(name, big))
    until_full("tiny", lambda name: [store.put(f"{name}-{i}", b"x" * 40_000) for i in range(20)])
    until_full("large", lambda name: store.put(name, large))
    until_full("created", fill)
    until_full("written", write)
    until_full("file", lambda name: store.put_file(name, path))
    result = found
    """
    with sa.ipc.new_file(path, sa.schema([("x", sa.int8())])) as writer:
        writer.write(sa.record_batch({"x": np.zeros(24 * MIB, np.int8)}))
    with lab.memory_cgroup(LIMIT) as cgroup:
        with lab.child(TOOLS + textwrap.dedent(code), cgroup=cgroup, where=shm_name, path=path, limit=LIMIT) as child:
            found = child.result()
        assert cgroup.killed == 0
    # Of some 70 MiB; each kind had all of them again when the one before had been deleted.
    fewest = {"small": 100, "tiny": 60, "large": 2, "created": 1, "written": 1, "file": 2}
    most = {"small": 160, "tiny": 100, "large": 3, "created": 2, "written": 2, "file": 3}
    assert all(fewest[kind] <= number <= most[kind] for kind, number in found.items()), found
    assert found.keys() == fewest.keys()


def test_full_memory_evicts(shm_name: str) -> None:
    """Two processes put many times what their control group has, with the default eviction; none is killed."""
    code = """
    store = sa.Store(where)
    rng = np.random.default_rng(seed)
    for number in range(60):
        size = int(rng.integers(1, 8 << 20))
        if number % 10 == 0:
            size = size // 8 + 1
            with store.new_draft(f"{seed}-{number}", schema, size) as draft:
                draft["x"][:] = seed
        else:
            store.put(f"{seed}-{number}", np.full(size, seed, np.int8))
        values = store.get(f"{seed}-{number}") if number % 10 else store.get(f"{seed}-{number}")["x"]
        assert values[0] == values[size - 1] == seed
        del values
    result = store.stats().evictions
    """
    with sa.Store(shm_name, capacity=1 << 30) as store, lab.memory_cgroup(3 * LIMIT) as cgroup:
        children = [
            lab.child(TOOLS + textwrap.dedent(code), cgroup=cgroup, where=shm_name, seed=seed) for seed in range(2)
        ]  # both at once, each with small drafts: who asks at the same moment may be let in together
        made = [child.__enter__() for child in children]
        try:
            evictions = max(child.result(60) for child in made)
        finally:
            for child in children:
                child.__exit__(None, None, None)
        assert cgroup.killed == 0
        assert evictions > 20
        assert store.stats().nbytes < 3 * LIMIT


def test_what_can_be_dropped_is_not_used(tmp_path: Path) -> None:
    """The cache of a file on a disk fills a control group, and leaves room all the same."""
    path = tmp_path / "file"
    path.write_bytes(bytes(80 * MIB))
    descriptor = os.open(path, os.O_RDONLY)
    os.fsync(descriptor)
    on_disk = not host.in_memory(descriptor)
    os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)  # whose cache counts where it is read again
    os.close(descriptor)
    if not on_disk:
        pytest.skip(f"{tmp_path} is in memory")
    code = """
    with open(path, "rb") as file:
        while file.read(1 << 20):
            pass
    result = left, host.memory_left()
    """
    with lab.memory_cgroup(LIMIT) as cgroup:
        before, after = lab.run(TOOLS + textwrap.dedent(code), cgroup=cgroup, path=str(path))
        usage = next(cgroup.path.glob("memory.usage_in_bytes"), None) or cgroup.path / "memory.current"
        assert int(usage.read_text()) > 60 * MIB
    assert after > before - 40 * MIB


def test_the_nearest_limit_counts() -> None:
    """A group without a limit in one that has one; of a process, its thread, and its child."""
    with lab.memory_cgroup(LIMIT) as cgroup:
        inner = cgroup.path / "inner"
        inner.mkdir()
        try:
            code = "result = left, host.allows_memory(1 << 20), host.allows_memory(1 << 30)"
            left, little, much = lab.run(TOOLS + textwrap.dedent(code), cgroup=lab.Cgroup(inner, 1))
        finally:
            inner.rmdir()
    assert LIMIT - 32 * MIB < left <= LIMIT - (LIMIT >> 4)
    assert little
    assert not much


def test_version_2_of_control_groups(tmp_path: Path) -> None:
    """Simulated where the machine has version 1: the files of the kernel's documentation, in folders."""
    for folder, most, current, inactive, active in (
        ("", "max", 9 << 30, 0, 0),
        ("outer", str(100 * MIB), 80 * MIB, 4 * MIB, 6 * MIB),
        ("outer/middle", "max", 70 * MIB, 0, 0),
        ("outer/middle/inner", str(1 << 30), 60 * MIB, 1 * MIB, 1 * MIB),
    ):
        group = tmp_path / folder
        group.mkdir(exist_ok=True)
        (group / "memory.max").write_text(f"{most}\n")
        (group / "memory.current").write_text(f"{current}\n")
        rows = {"anon": 1, "file": 50 * MIB, "shmem": 40 * MIB, "inactive_file": inactive, "active_file": active}
        (group / "memory.stat").write_text("".join(f"{row} {value}\n" for row, value in rows.items()))
    files = host._LIMITS["cgroup"][1:]

    def left(path: str) -> int:
        return host._left_in(path, str(tmp_path), *files)

    # The limit, less what is used and cannot be dropped, less a sixteenth of it, 32 MiB at most.
    outer = 100 * MIB - (80 * MIB - 10 * MIB) - 100 * MIB // 16
    assert left("/outer/middle/inner") == left("/outer/middle") == left("/outer") == outer
    assert left("/") == 1 << 62
    (tmp_path / "outer/memory.max").write_text("max\n")
    assert left("/outer/middle/inner") == (1 << 30) - 58 * MIB - 32 * MIB
    (tmp_path / "outer/middle/inner/memory.current").write_text(f"{2 << 30}\n")
    assert left("/outer/middle/inner") == 0
    assert left("/gone") == 1 << 62  # of a container, that sees its own group as the root
