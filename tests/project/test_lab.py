"""The laboratory does what it says: its faults are real."""

from __future__ import annotations

import os
import time
from collections import deque
from pathlib import Path

import lab
import pytest


def test_power_cut(tmp_path: Path) -> None:
    """Files that were synced are there, others are not, unless another process called ``sync`` at that moment."""
    found = []
    for attempt in range(3):
        with lab.disk(tmp_path / f"disk-{attempt}", 16 << 20) as disk:
            synced(disk.path / "old", b"old" * 1000)
            synced(disk.path / "kept", b"kept" * 1000)
            (disk.path / "old").unlink()
            (disk.path / "lost").write_bytes(b"lost" * 1000)
            with lab.child(WRITER, path=f"{disk.path}/log") as child:
                said = [child.hear() for _ in range(20)]
                said += child.heard()
                after = disk.cut()
                with pytest.raises(lab.Failed, match="Input/output error"):
                    deque(iter(child.hear, None))
            with pytest.raises(OSError, match="Input/output error"):
                (disk.path / "more").write_bytes(b"")
            assert (after.path / "kept").read_bytes() == b"kept" * 1000
            assert (after.path / "log").read_text().split()[: len(said)] == [str(number) for number in said]
            assert not (after.path / "old").exists()  # the later syncs of other files took its removal along
            lost = (after.path / "lost").stat().st_size
            synced(after.path / "more", b"more")
            (after.path / "late").write_bytes(b"late")
            again = after.cut()
            assert (again.path / "more").read_bytes() == b"more"
            found.append((lost, (again.path / "late").exists()))
    # The syncs of other files took the name of a new one along, but not its bytes, which had no blocks yet.
    assert (0, False) in found
    assert os.listdir(tmp_path / "disk-0") == []
    assert len(os.listdir(tmp_path)) == 9  # folders, and no image


def synced(path: Path, data: bytes) -> None:
    with open(path, "wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())


WRITER = """
import itertools, os
with open(path, "w") as file:
    for number in itertools.count():
        file.write(f"{number}\\n")
        file.flush()
        os.fsync(file.fileno())
        say(number)
"""


def test_clocks() -> None:
    with lab.wall_clock() as clock:
        with lab.child("import time\nwhile hear(): say((time.time_ns(), time.monotonic_ns()))") as child:
            jumps = []
            for back in (0, 3600, -7200):
                clock.set_back(back)
                child.say(True)
                wall, steady = child.hear()
                jumps.append(round((wall - time.time_ns()) / 1e9))
                assert abs(steady - time.monotonic_ns()) < 10**9
        assert jumps == [0, -3600, 3600]
    assert abs(lab.run("import time; result = time.time()") - time.time()) < 1
    code = "import time; result = time.clock_gettime(time.CLOCK_BOOTTIME), time.monotonic(), time.time()"
    boottime, monotonic, wall = lab.run(code, boottime=86400, monotonic=5000)
    assert 86399 < boottime - time.clock_gettime(time.CLOCK_BOOTTIME) < 86400.5
    assert 4999 < monotonic - time.monotonic() < 5000.5
    assert abs(wall - time.time()) < 1


def test_another_boot() -> None:
    own = Path("/proc/sys/kernel/random/boot_id").read_text()
    other = "6ba7b810-9dad-11d1-80b4-00c04fd430c8"
    code = """
    import os, shmarrow.memory.host as host, subprocess
    result = host.boot_id(), subprocess.run(["cat", host.BOOT_ID], capture_output=True, text=True).stdout
    """
    assert lab.run(code, boot_id=other) == (other, f"{other}\n")
    assert lab.run(code) == (own.strip(), own) != (other, f"{other}\n")
    code = """
    import time, shmarrow.memory.host as host
    result = host.boot_id(), time.monotonic(), time.clock_gettime(time.CLOCK_BOOTTIME), time.time()
    """
    ids = set()
    for _ in range(2):
        boot_id, monotonic, boottime, wall = lab.run(code, **lab.reboot())
        ids.add(boot_id)
        assert 1 <= monotonic < 10 > boottime >= 1
        assert abs(wall - time.time()) < 10
    assert len(ids - {own.strip()}) == 2


def test_processes_end_with_the_test_process() -> None:
    code = """
    import os, signal
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    say(os.getpid())
    signal.pause()
    """
    with lab.child(code, uid=lab.NOBODY) as child:  # becoming another user undoes what ends it
        assert child.hear() == child.pid
        lab.stop()
        with pytest.raises(lab.Failed, match="ended with -9 before it answered"):
            child.hear(5)
