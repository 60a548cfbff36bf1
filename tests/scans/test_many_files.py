"""Very many files: what a scan takes of the mappings that the system allows, and files with holes."""

from __future__ import annotations

import os
import pickle
from pathlib import Path

import numpy as np
import pytest
from measures import mappings
from processes import python

import shmarrow as sa


def test_small_files_of_a_scan_are_read_and_large_ones_mapped(tmp_path: Path) -> None:
    for i, rows in enumerate([10, 10, 100_000]):
        sa.write(sa.table({"x": np.arange(rows)}), tmp_path / f"{i}.arrow")
    scan = sa.scan(tmp_path)
    table = scan.to_table()
    assert table.num_rows == 100_020
    assert len(mappings(tmp_path)) == 1
    (tmp_path / "1.arrow").write_bytes(b"")
    assert table["x"].to_pylist()[:20] == [*range(10), *range(10)], "what was read survives truncation"
    assert pickle.loads(pickle.dumps(table.slice(0, 20))).equals(table.slice(0, 20))
    assert not mappings(tmp_path / "0.arrow")
    assert sa.open(tmp_path / "0.arrow")[0].num_rows == 10
    with sa.open(tmp_path / "0.arrow") as reader:
        assert len(mappings(tmp_path / "0.arrow")) == 1, "what is opened by itself is mapped"
        assert pickle.loads(pickle.dumps(reader))[0].equals(reader[0])


MANY = """
import sys, threading
import shmarrow as sa
from pathlib import Path

directory, most = Path(sys.argv[1]), int(Path("/proc/sys/vm/max_map_count").read_text())
sa.write(sa.table({"x": [1, 2]}), directory / "0.arrow")
for i in range(1, 2000):
    (directory / f"{i}.arrow").hardlink_to(directory / "0.arrow")
paths = [str(directory / f"{i % 2000}.arrow") for i in range(most + 5000)]
scan = sa.scan(paths)
assert scan.count_rows() == 2 * len(paths)
assert sum(1 for _ in open("/proc/self/maps")) < 1000
held = []
try:
    while len(held) < most:
        held.append(sa.segment.attach(paths[0]))
except sa.StorageError as error:
    print(error)
assert most * 7 // 8 - 100 < len(held) <= most * 7 // 8 + 1
threads = [threading.Thread(target=int) for _ in range(50)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
del held[-10:]
sa.segment.attach(paths[0])
"""


@pytest.mark.processes
def test_an_eighth_of_the_mappings_stays_free(tmp_path: Path) -> None:
    """Where there are no more, the error names the limit and the way out; a scan of small files takes none."""
    if int(Path("/proc/sys/vm/max_map_count").read_text()) > 200_000:
        pytest.skip("the system allows too many mappings to try them all")
    text = python(MANY, str(tmp_path))
    assert "vm.max_map_count" in text
    assert "raise the limit" in text


@pytest.mark.skipif(not os.path.isdir("/dev/shm"), reason="there is no tmpfs")
def test_files_with_holes_in_memory_are_read(shm_name: str) -> None:
    """Reading a hole of a mapping would take memory, and a signal ends the process where there is none."""
    path = Path("/dev/shm", shm_name.removeprefix("shm:"))
    sa.write(sa.table({"x": np.zeros(100_000, np.int64)}), shm_name)
    data = path.read_bytes()
    page = 4096
    with open(path, "wb") as file:
        for at in range(0, len(data), page):
            if any(part := data[at : at + page]):
                file.seek(at)
                file.write(part)
        file.truncate(len(data))
    before = path.stat().st_blocks
    assert before * 512 < path.stat().st_size
    table = sa.scan(path).to_table()
    assert not np.any(table["x"].to_numpy())
    with open(path, "rb") as file:
        for where in (shm_name, path, file):
            with sa.ipc.open_file(where) as reader:
                assert not np.any(reader[0]["x"].to_numpy())
    assert not np.any(np.frombuffer(sa.segment.attach(path).data, np.uint8)[100_000:200_000])
    assert not mappings(path)
    assert path.stat().st_blocks == before
    sa.segment.delete(shm_name)
