"""Reading that survives truncation: files that other programs cut and rewrite in place while they are mapped."""

from __future__ import annotations

import gc
import os
import pickle
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from environment import SHM, mounted
from processes import ended, forked, python

import shmarrow as sa

pytestmark = pytest.mark.processes
ROWS = 40_000


def values(seed: int) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 1 << 60, ROWS)


def write(path: Path, seed: int) -> None:
    with sa.ipc.new_file(path, sa.schema([("x", "int64")]), mode=0o600, overwrite=True) as writer:
        writer.write(sa.record_batch({"x": values(seed)}))


def view(path: Path) -> np.ndarray:
    return sa.ipc.open_file(path, survive=True).get_batch(0)["x"].to_numpy()


def helpers() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == "shmarrow-lease"]


@pytest.fixture(params=["tmpfs", "ext4"])
def directory(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Path]:
    if request.param == "tmpfs":
        with tempfile.TemporaryDirectory(dir=SHM, prefix="sa-lease-") as path:
            yield Path(path)
        return
    image = tmp_path / "image"
    with image.open("wb") as file:
        file.truncate(1 << 26)
    if shutil.which("mkfs.ext4") is None:
        pytest.skip("there is no mkfs.ext4")
    subprocess.run(["mkfs.ext4", "-q", str(image)], check=True, capture_output=True)
    with mounted(tmp_path / "disk", "-o", "loop", str(image)) as target:
        yield target


@pytest.fixture(autouse=True)
def nothing_left() -> Iterator[None]:
    yield
    gc.collect()
    deadline = time.monotonic() + 10
    while helpers() and time.monotonic() < deadline:
        time.sleep(0.01)
    assert helpers() == []
    opened = [os.path.realpath(path) for path in Path("/proc/self/fd").iterdir()]
    assert [path for path in opened if ".arrow" in path] == []


TRUNCATE = "import os, sys; [os.truncate(path, 0) for path in sys.argv[1:]]"


@pytest.mark.parametrize("by", ["another process", "this process"])
def test_views_keep_their_values(directory: Path, by: str) -> None:
    views = []
    for i in range(20):
        path = directory / f"{i}.arrow"
        write(path, i)
        views.append(view(path))
        if by == "this process":
            os.truncate(path, 0)
    if by == "another process":
        python(TRUNCATE, *sorted(directory.glob("*.arrow")))
    for i, found in enumerate(views):
        np.testing.assert_array_equal(found, values(i))


def test_many_mappings_of_one_file(directory: Path) -> None:
    path = directory / "one.arrow"
    write(path, 1)
    views = [view(path) for _ in range(200)]
    del views[::3]
    python(TRUNCATE, path)
    for found in views:
        np.testing.assert_array_equal(found, values(1))


REWRITE = {
    "pyarrow": """
import pyarrow as pa, sys
table = pa.table({"x": pa.array([7] * 10)})
with pa.OSFile(sys.argv[1], "wb") as sink, pa.ipc.new_file(sink, table.schema) as writer:
    writer.write_table(table)
""",
    "polars": "import polars as pl, sys; pl.DataFrame({'x': [7] * 10}).write_ipc(sys.argv[1])",
}


@pytest.mark.parametrize("library", REWRITE)
@pytest.mark.parametrize("where", ["another process", "this process"])
def test_files_that_are_rewritten_in_place(
    directory: Path, library: str, where: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip(library)
    path = directory / "x.arrow"
    write(path, 1)
    found, scanned = view(path), sa.scan(path, survive=True).to_table()
    if where == "another process":
        python(REWRITE[library], path)
    else:
        monkeypatch.setattr(sys, "argv", ["", str(path)])
        exec(REWRITE[library], {})
    np.testing.assert_array_equal(found, values(1))
    np.testing.assert_array_equal(scanned["x"].to_numpy(), values(1))
    assert sa.open(path).read_all()["x"].to_pylist() == [7] * 10


def test_forked_children_keep_them_too(directory: Path) -> None:
    path = directory / "x.arrow"
    write(path, 1)
    found = view(path)
    reading, writing = os.pipe()

    def child() -> None:
        os.read(reading, 1)
        np.testing.assert_array_equal(found, values(1))

    children = [forked(child) for _ in range(3)]
    time.sleep(0.5)
    python(TRUNCATE, path)
    os.write(writing, b"123")
    assert [ended(child) for child in children] == [0, 0, 0]
    os.close(reading)
    os.close(writing)
    np.testing.assert_array_equal(found, values(1))


def test_writable_arrays_and_pickled_readers_survive(directory: Path) -> None:
    path = directory / "x.arrow"
    write(path, 1)
    reader = sa.ipc.open_file(path, survive=True)
    again = pickle.loads(pickle.dumps(reader)).get_batch(0)["x"].to_numpy()
    writable = reader.get_batch(0)["x"].to_numpy(writable=True)
    reader.close()
    python(TRUNCATE, path)
    np.testing.assert_array_equal(again, values(1))
    writable += 1
    np.testing.assert_array_equal(writable, values(1) + 1)


def test_what_cannot_be_protected_is_refused(directory: Path, tmp_path: Path) -> None:
    path = directory / "x.arrow"
    write(path, 1)
    with path.open("r+b"), pytest.raises(sa.StorageError, match=r"open for writing; pass memory_map=False"):
        view(path)
    for source in (path.read_bytes(), path.open("rb")):
        with pytest.raises(sa.InvalidArgument, match="survive=True is for files"):
            sa.ipc.open_file(source, survive=True)
    with pytest.raises(sa.InvalidArgument, match="outside stores"):
        sa.scan(sa.table({"x": [1]}), survive=True)
    lower, upper, work = (tmp_path / name for name in ("lower", "upper", "work"))
    for each in (lower, upper, work):
        each.mkdir()
    write(lower / "x.arrow", 1)
    options = f"lowerdir={lower},upperdir={upper},workdir={work}"
    with mounted(tmp_path / "both", "-t", "overlay", "-o", options, "overlay") as target:
        with pytest.raises(sa.StorageError, match="leases are known to work on ext4, tmpfs, XFS, and this is"):
            view(target / "x.arrow")
        assert len(sa.ipc.open_file(target / "x.arrow").get_batch(0)["x"]) == ROWS


FOREIGN = """
import os, sys, shmarrow as sa, shmarrow.ipc.file.reader, shmarrow.memory.lease
os.setuid(65534)
try:
    sa.ipc.open_file(sys.argv[1], survive=True)
except sa.StorageError as error:
    print(error)
"""


def test_files_of_other_users_are_refused() -> None:
    if os.getuid():
        pytest.skip("needs root")
    with tempfile.TemporaryDirectory(dir=SHM, prefix="sa-lease-") as directory:
        path = Path(directory, "x.arrow")
        write(path, 1)
        path.chmod(0o644)
        path.parent.chmod(0o755)
        assert "the file is another user's" in python(FOREIGN, path)


def test_without_proc_it_is_refused(directory: Path) -> None:
    path = directory / "x.arrow"
    write(path, 1)
    code = FOREIGN.replace("os.setuid(65534)", "")
    ran = subprocess.run(
        ["unshare", "-m", "sh", "-c", 'mount -t tmpfs none /proc && exec "$@"', "sh", sys.executable, "-c", code, path],
        capture_output=True, text=True, check=False, env={**os.environ, "PYTHONPATH": os.getcwd()},
    )  # fmt: skip
    if "unshare" in ran.stderr or "mount" in ran.stderr:
        pytest.skip("needs the privilege to mount")
    assert "there is no /proc/locks" in ran.stdout, ran.stderr
