"""Directories that Spark writes, without Spark: which files count, at every moment and whatever dies when."""

from __future__ import annotations

import fcntl
import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import lab
import pytest

import shmarrow as sa

pa = pytest.importorskip("pyarrow")
pytest.importorskip("pyspark")  # the package of the data source imports it

from shmarrow.spark.source import checks, cleanup  # noqa: E402
from shmarrow.spark.source import commit as c  # noqa: E402
from shmarrow.spark.source import directory as d  # noqa: E402

SCHEMA = sa.schema({"n": sa.int64()})
HEX = "0123456789abcdef" * 2


def values_of(path: str) -> list[int]:
    """The column of one file, read by pyarrow."""
    try:
        with open(path, "rb") as file:
            found: list[int] = pa.ipc.open_file(file).read_all()["n"].to_pylist()
    except FileNotFoundError as error:
        raise sa.ObjectNotFound(2, str(error)) from None
    return found


def write(folder: str, name: str, values: list[int], **columns: Any) -> d.DataFile:
    """An Arrow file, written by pyarrow."""
    table = pa.table({"n": pa.array(values, pa.int64()), **columns})
    path = os.path.join(folder, name)
    with pa.OSFile(path, "wb") as sink, pa.ipc.new_file(sink, table.schema) as writer:
        writer.write_table(table)
    return d.DataFile(name, os.path.getsize(path), len(table))


def begun(where: str, files: list[list[int]], overwrite: bool = False) -> tuple[c.Job, list[d.DataFile]]:
    """A job whose tasks have written files, one of an attempt that nobody names among them."""
    job = c.begin(where, SCHEMA, overwrite)
    write(job.folder, "lost", [-1])
    return job, [write(job.folder, f"task-{i}", values) for i, values in enumerate(files)]


def put(where: str, *files: list[int], overwrite: bool = False, **options: Any) -> d.Manifest:
    """A whole job."""
    job, written = begun(where, list(files), overwrite)
    return c.commit(job, written, SCHEMA, overwrite=overwrite, **options)


def rows(where: str) -> list[int]:
    """All that counts, as a reader finds it."""
    files = d.data_files(where)
    return [n for file in files for n in d.open_data(os.path.join(where, file.name), values_of)]


def tree(where: str) -> set[str]:
    """All files, with the generated names of data files shortened."""
    found = {str(path.relative_to(where)) for path in Path(where).rglob("*") if path.is_file()}
    return {name[: name.index("-", 5)] if name.startswith("part-") else name for name in found}


STATE = {"_shmarrow/lock", "_shmarrow/manifest.json"}


@pytest.fixture
def where(tmp_path: Path) -> str:
    return str(tmp_path / "new" / "data")


def test_append_and_overwrite(where: str) -> None:
    assert put(where, [0, 1], [2]).generation == 1
    assert tree(where) == {"part-00000", "part-00001", *STATE}  # and nothing of the job
    manifest = put(where, [3])
    assert [(file.rows, file.size > 300) for file in manifest.files] == [(2, True), (1, True), (1, True)]
    assert rows(where) == [0, 1, 2, 3]
    assert d.read_manifest(where) == manifest
    old = [os.path.join(where, file.name) for file in manifest.files]

    assert put(where, [4], overwrite=True).generation == 3
    assert rows(where) == [4]
    assert [path.name for path in Path(where).glob("*.arrow")] == [d.data_files(where)[0].name]  # what others see
    assert [d.open_data(path, values_of) for path in old] == [[0, 1], [2], [3]]  # planned before
    put(where, [5])
    assert [d.open_data(path, values_of) for path in old] == [[0, 1], [2], [3]]
    assert rows(where) == [4, 5]

    put(where, [6], overwrite=True)
    assert rows(where) == [6]
    for path in old:
        with pytest.raises(sa.ObjectNotFound, match=r"was removed, or overwritten .* twice .*load the directory again"):
            d.open_data(path, values_of)
    assert len(list(Path(where, "_shmarrow", "replaced").iterdir())) == 2
    put(where, overwrite=True, keep_replaced=False)
    assert tree(where) == STATE
    assert rows(where) == []


def test_files_of_others_count_from_the_first_job_on(where: str) -> None:
    os.makedirs(where)
    for name, values in (("b.arrow", [2]), ("a.feather", [1]), ("_hidden", [8]), (".hidden", [9])):
        write(where, name, values)
    with pa.OSFile(f"{where}/c", "wb") as sink, pa.ipc.new_stream(sink, pa.schema([("n", pa.int64())])) as writer:
        writer.write_batch(pa.record_batch({"n": pa.array([3])}))
    assert [file.name for file in d.data_files(where)] == ["a.feather", "b.arrow", "c"]
    before = tree(where)
    c.abort(begun(where, [[4]])[0])
    assert tree(where) == before
    put(where, [4])
    assert [(file.name[:4], file.rows) for file in d.data_files(where)] == [
        ("a.fe", None), ("b.ar", None), ("c", None), ("part", 1),
    ]  # fmt: skip
    put(where, [5], overwrite=True)
    assert rows(where) == [5]
    assert tree(where) == {
        "_hidden", ".hidden", "part-00000", *STATE,
        *{f"_shmarrow/replaced/{Path(path).name}" for path in Path(where, "_shmarrow", "replaced").iterdir()},
    }  # fmt: skip
    assert {path.name[:4] for path in Path(where, "_shmarrow", "replaced").iterdir()} == {"a.fe", "b.ar", "c", "part"}


@pytest.mark.parametrize("overwrite", [False, True])
def test_a_commit_opens_only_files_that_came_or_changed_since_the_job_began(
    where: str, overwrite: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    os.makedirs(where)
    write(where, "a", [0])
    opened: list[str] = []
    schema_of = checks.schema_of
    monkeypatch.setattr(checks, "schema_of", lambda path: opened.append(os.path.basename(path)) or schema_of(path))
    job, written = begun(where, [[1]], overwrite)
    other, others = begun(where, [[2]], overwrite)
    late, _ = begun(where, [[3]], overwrite)
    assert opened == ["a"] * 3
    Path(where, "b").write_text("no Arrow file")
    with pytest.raises(sa.InvalidArgument, match="'b' is not an Arrow file"):
        c.commit(late, [], SCHEMA, overwrite=overwrite)
    os.unlink(f"{where}/b")
    assert opened == [*["a"] * 4, "b"]
    c.commit(job, written, SCHEMA, overwrite=overwrite)
    assert len(opened) == 5
    c.commit(other, others, SCHEMA, overwrite=overwrite)
    assert rows(where) == ([2] if overwrite else [0, 1, 2])
    c.abort(late)


@pytest.mark.parametrize("overwrite", [False, True])
def test_what_is_never_written_to(where: str, overwrite: bool, tmp_path: Path) -> None:
    os.makedirs(f"{where}/inner")
    for name, text in (("notes.txt", "Buy milk"), ("empty", "")):
        (tmp_path / name[:5]).mkdir()
        (tmp_path / name[:5] / name).write_text(text)
        with pytest.raises(sa.InvalidArgument, match=rf"cannot write to '.*': '{name}' is not an Arrow file: "):
            c.begin(str(tmp_path / name[:5]), SCHEMA, overwrite)
        assert [path.name for path in (tmp_path / name[:5]).iterdir()] == [name]
    with pytest.raises(
        sa.InvalidArgument, match="it contains 'inner', which is not a file; pass a directory that has only"
    ):
        c.begin(where, SCHEMA, overwrite)
    with pytest.raises(sa.InvalidArgument, match="expected a directory, found a file"):
        c.begin(str(tmp_path / "notes" / "notes.txt"), SCHEMA, overwrite)
    with sa.Store(tmp_path / "store"), pytest.raises(sa.InvalidArgument, match=r"store; shmarrow.spark.share\(df, "):
        c.begin(str(tmp_path / "store"), SCHEMA, overwrite)
    with pytest.raises(sa.StorageError, match=r"cannot make '/proc/1/x/_shmarrow/job-"):
        c.begin("/proc/1/x", SCHEMA, overwrite)


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ("/a/b", "/a/b"),
        ("a/../b", f"{os.getcwd()}/b"),
        ("file:///a/b", "/a/b"),
        ("file:/a/b", "/a/b"),
        ("/a:b", "/a:b"),
        ("file:///a%20b#c?d", "/a%20b#c?d"),
    ],
)
def test_paths(given: str, expected: str) -> None:
    assert d.local_path(given) == expected


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (None, "call save"),
        ("", "call save"),
        ("shm:x", r"it names a store, .* shmarrow\.spark\.share\(df, 'shm:x'\)"),
        ("s3://bucket/x", "'s3://bucket/x': only files of mounted file systems can be used.* found the scheme 's3'"),
        ("hdfs:/x", "found the scheme 'hdfs'"),
        ("/a\0b", "NUL"),
    ],
)
def test_paths_that_are_refused(given: str | None, message: str) -> None:
    with pytest.raises(sa.InvalidArgument, match=message):
        d.local_path(given)


def test_other_columns(where: str) -> None:
    put(where, [0])
    before = tree(where)
    for schema, message in [
        (sa.schema({"n": sa.int32()}), r"column 'n' is int32, expected int64\. Nothing was changed"),
        (sa.schema({"m": sa.int64()}), "column 'n' is missing; column 'm' is not there yet"),
        (sa.schema({"n": sa.int64(), "m": sa.int8()}), "column 'm' is not there yet"),
    ]:
        with pytest.raises(
            sa.InvalidType, match=rf"cannot append to '.*', whose columns are those of 'part-.*: {message}"
        ):
            c.begin(where, schema, False)
        c.abort(c.begin(where, schema, True))
    assert tree(where) == before
    assert rows(where) == [0]


def test_columns_that_differ_in_what_does_not_matter(where: str) -> None:
    def nested(nullable: bool, item: str) -> sa.Schema:
        leaf = sa.field("x", sa.int32(), nullable)
        items = sa.list_(sa.field(item, sa.struct([leaf]), nullable))
        return sa.schema([sa.field("a", sa.map_(sa.string(), items), nullable), sa.field("b", sa.string(), nullable)])

    differences = checks.differences
    assert differences(nested(True, "item"), nested(False, "element")) == []
    assert differences(
        sa.schema({"s": sa.struct({"x": sa.int8()})}), sa.schema({"s": sa.struct({"y": sa.int8()})})
    ) == ["column 's' is struct<y: int8>, expected struct<x: int8>"]
    assert differences(sa.schema({"s": sa.list_(sa.int8())}), sa.schema({"s": sa.large_list(sa.int8())})) != []
    assert differences(sa.schema({"a": sa.int8(), "b": sa.int8()}), sa.schema({"b": sa.int8(), "a": sa.int8()})) == [
        "the order of the columns is ['b', 'a'], expected ['a', 'b']"
    ]


# --- several writers --------------------------------------------------------------------------------------------


def test_jobs_that_overlap(where: str) -> None:
    one, first = begun(where, [[1]])
    two, second = begun(where, [[2]])
    other = c.begin(where, sa.schema({"m": sa.int8()}), False)
    three, third = begun(where, [[3]], True)
    c.commit(one, first, SCHEMA, overwrite=False)
    c.commit(two, second, SCHEMA, overwrite=False)
    assert rows(where) == [1, 2]
    with pytest.raises(sa.InvalidType, match="column 'n' is missing; column 'm' is not there yet"):
        c.commit(other, [], sa.schema({"m": sa.int8()}), overwrite=False)
    c.abort(other)
    assert rows(where) == [1, 2]
    c.commit(three, third, SCHEMA, overwrite=True)
    assert rows(where) == [3]
    assert {name for name in tree(where) if "job-" in name} == set()


def test_a_job_that_is_given_up(where: str) -> None:
    job, _ = begun(where, [[1]])
    assert rows(where) == []
    assert job.made == (os.path.dirname(where), where)
    c.abort(job)
    assert not os.path.exists(os.path.dirname(where))
    c.abort(job)
    assert not os.path.exists(os.path.dirname(where))

    put(where, [0])
    job, written = begun(where, [[1]])
    c.abort(job)
    with pytest.raises(sa.ObjectNotFound, match=r"a task wrote it: is the directory on a file system that all hosts"):
        c.commit(job, written, SCHEMA, overwrite=True)
    with pytest.raises(FileNotFoundError):
        write(job.folder, "late", [1])
    job, written = begun(where, [[1]])
    with open(f"{job.folder}/task-0", "ab") as file:
        file.write(b"!")
    size = written[0].size
    with pytest.raises(sa.StorageError, match=f"gave it {size} bytes, found {size + 1}"):
        c.commit(job, written, SCHEMA, overwrite=True)
    c.abort(job)
    assert rows(where) == [0]
    assert tree(where) == {"part-00000", *STATE}


def test_abort_after_the_commit_changes_nothing(where: str) -> None:
    job, written = begun(where, [[1], [2]])
    c.commit(job, written, SCHEMA, overwrite=False)
    c.abort(job)
    assert rows(where) == [1, 2]


CODE = """
import sys
sys.path.insert(0, tests)
import test_spark_directory as t
from shmarrow.spark.source import commit as c, directory as d
"""


OVERLAP = """
import multiprocessing, time
import shmarrow as sa
fork = multiprocessing.get_context("fork")

def read(queue):
    seen = []
    queue.put("ready")
    while not seen or seen[-1] != 12:
        try:
            found = t.rows(one)
        except sa.ObjectNotFound:  # two overwrites between the list and the files
            continue
        assert len(found) == 10 and len(set(found)) == 1, found
        seen.append(found[0])
        time.sleep(0.005)
    queue.put(seen)

def append(first):
    for number in range(first, first + 8):
        t.put(two, [number])

queues = [fork.SimpleQueue() for _ in range(2)]
readers = [fork.Process(target=read, args=[queue], daemon=True) for queue in queues]
writers = [fork.Process(target=append, args=[first], daemon=True) for first in (100, 200)]
for process in (*readers, *writers):
    process.start()
assert [queue.get() for queue in queues] == ["ready"] * 2
for generation in range(1, 13):
    t.put(one, *[[generation] * 5] * 2, overwrite=True)
result = [queue.get() for queue in queues]
for process in (*readers, *writers):
    process.join()
    assert process.exitcode == 0
"""


def test_readers_see_one_generation_and_no_append_is_lost(tmp_path: Path) -> None:
    one, two = str(tmp_path / "one"), str(tmp_path / "two")
    put(one, *[[0] * 5] * 2)
    seen = lab.run(CODE + OVERLAP, timeout=120, tests=str(Path(__file__).parent), one=one, two=two)
    for generations in seen:
        assert generations == sorted(generations)
        assert len(set(generations)) > 2
    found = rows(two)
    assert [n for n in found if n < 200] == [*range(100, 108)]
    assert [n for n in found if n >= 200] == [*range(200, 208)]
    assert sorted(tree(one)) == sorted({
        "part-00000", "part-00001", *STATE,
        *[f"_shmarrow/replaced/{path.name}" for path in Path(one, "_shmarrow", "replaced").iterdir()],
    })  # fmt: skip


# --- what dies --------------------------------------------------------------------------------------------------

PREPARE = """
import os, pickle, shutil
shutil.rmtree(where, True)
if plain:
    os.makedirs(where)
    t.write(where, "a.arrow", [0])
    t.write(where, "b.arrow", [1])
else:
    t.put(where, [7], overwrite=True)
    t.put(where, [0], [1], overwrite=True)
job, written = t.begun(where, [[2], [3]], True)
with open(f"{job.folder}/owner.json", "w") as file:
    file.write(owner)
with open(f"{where}/_job", "wb") as file:
    pickle.dump((job, written), file)
"""
ACT = """
import pickle
with open(f"{where}/_job", "rb") as file:
    job, written = pickle.load(file)
c.commit(job, written, t.SCHEMA, overwrite=overwrite)
"""
CHECK = """
import os, pickle
with open(f"{where}/_job", "rb") as file:
    job, written = pickle.load(file)
os.unlink(f"{where}/_job")
old, new = [0, 1], [2, 3] if overwrite else [0, 1, 2, 3]
found = t.rows(where)
assert found == new if not point else found in (old, new), (found, point)
paths = [f"{where}/{name}" for name in ("a.arrow", "b.arrow")] if plain else []
assert [d.open_data(path, t.values_of) for path in paths] == [[0], [1]][:len(paths)]  # planned before
if aborted:
    c.abort(job)
    assert t.rows(where) == found
    counts = {file.name for file in d.data_files(where)}
    assert {name for name in os.listdir(where) if name[0] not in "._"} == counts
t.put(where, [9])
assert t.rows(where) == [*found, 9]
counts = {file.name for file in d.data_files(where)}
assert {name for name in os.listdir(where) if name[0] not in "._"} == counts
assert set(os.listdir(f"{where}/_shmarrow")) <= {"lock", "manifest.json", "replaced"}
"""


def dead() -> dict[str, Any]:
    """A process that has ended, as the owner of a job."""
    code = "import json; from shmarrow.spark.source.cleanup import driver, _process; import os; o = driver();"
    code += "print(json.dumps({**o, 'pid': os.getpid(), 'started': _process(os.getpid())[1]}))"
    found: dict[str, Any] = json.loads(subprocess.check_output([sys.executable, "-c", code]))
    return found


@pytest.mark.parametrize(
    ("overwrite", "aborted", "plain"), [(True, False, False), (True, True, True), (False, True, False)]
)
def test_a_commit_that_is_killed_at_any_line(where: str, overwrite: bool, aborted: bool, plain: bool) -> None:
    names = {
        "tests": str(Path(__file__).parent),
        "where": where, "overwrite": overwrite, "aborted": aborted, "plain": plain, "owner": json.dumps(dead()),
    }  # fmt: skip
    # What the pieces of code import is imported before they are run in processes of their own, hundreds of times.
    code = (
        CODE
        + """
names = {**names, "t": t, "c": c, "d": d}
for piece in (prepare, act, check):
    exec(piece, {**names, "point": ""})
result = crash_points(prepare, act, check, names, under, first, step)
"""
    )
    points = lab.run(
        code, timeout=200, prepare=PREPARE, act=ACT, check=CHECK, under="/shmarrow/spark/source/", first=0, step=16,
        names=names, tests=names["tests"],
    )  # fmt: skip
    assert len(points) > 10


def test_what_dead_drivers_left_is_removed_and_nothing_else(where: str) -> None:
    put(where, [0])
    living, written = begun(where, [[1]])
    jobs = {name: begun(where, [[-1]])[0] for name in ("dead", "reused", "far", "old", "odd", "idle")}
    owner = json.loads(Path(living.folder, "owner.json").read_text())
    assert owner["pid"] != os.getpid()  # the process that this one serves: Java, where it is Spark's
    for name, changed in (
        ("dead", dead()),
        ("reused", {**owner, "started": owner["started"] - 1}),
        ("far", {**dead(), "boot": "another"}),
        ("old", {**owner, "host": "another"}),
        ("odd", {"pid": "1"}),
        ("idle", owner),  # of a living driver, for which nobody is going to commit
    ):
        Path(jobs[name].folder, "owner.json").write_text(json.dumps(changed))
    week = time.time() - 8 * 86400
    for name in ("old", "idle"):
        os.utime(jobs[name].folder, (week, week))
    put(where, [2])
    assert {name for name, job in jobs.items() if os.path.exists(job.folder)} == {"far", "odd"}
    c.commit(living, written, SCHEMA, overwrite=False)
    assert rows(where) == [0, 2, 1]


@pytest.mark.parametrize(
    "owner", [b"fifo", b"link", b"{", b"[]", b'{"pid": 4611686018427387904}', b"[" * 5000, b" " * 5000]
)
def test_owners_that_make_no_sense(where: str, owner: bytes) -> None:
    put(where, [0])
    job, written = begun(where, [[1]])
    path = Path(job.folder, "owner.json")
    if owner.startswith(b"{"):
        owner = json.dumps({**json.loads(path.read_text()), "pid": 1 << 62}).encode() if len(owner) > 1 else owner
    path.unlink()
    if owner == b"fifo":
        os.mkfifo(path)  # to open it for reading waits for who writes
    elif owner == b"link":
        path.symlink_to("/dev/zero")
    else:
        path.write_bytes(owner)
    put(where, [2])
    assert os.path.exists(job.folder)
    c.commit(job, written, SCHEMA, overwrite=False)
    assert rows(where) == [0, 2, 1]
    assert tree(where) == {"part-00000", *STATE}


@pytest.mark.parametrize("link", ["_shmarrow", "_shmarrow/replaced", "_shmarrow/job-1"])
def test_links_to_other_directories(where: str, tmp_path: Path, link: str) -> None:
    job, written = begun(where, [[0]])
    other = tmp_path / "other"
    (other / "replaced").mkdir(parents=True)
    for folder in (other, other / "replaced"):
        write(str(folder), f"part-00000-{HEX}.arrow", [7])
        (folder / "owner.json").write_text(json.dumps(dead()))
    kept = tree(str(other))
    if link == "_shmarrow":
        os.rename(f"{where}/_shmarrow", f"{where}/_moved")
    os.symlink(other, f"{where}/{link}")
    if link == "_shmarrow/job-1":
        c.commit(job, written, SCHEMA, overwrite=True)
        assert rows(where) == [0]
    else:
        message = rf"cannot use '{where}/{link}': expected a directory, found a symbolic link"
        for act in (
            lambda: c.commit(job, written, SCHEMA, overwrite=True),
            lambda: c.begin(where, SCHEMA, True),
            *([lambda: c.abort(job), lambda: d.data_files(where)] if link == "_shmarrow" else []),
        ):
            with pytest.raises(sa.StorageError, match=message):
                act()
    assert tree(str(other)) == kept


def test_what_others_have_placed_where_all_may_write(tmp_path: Path) -> None:
    lab.needs_root("to give files to another user")
    where = str(tmp_path)
    job, written = begun(where, [[0]])
    os.chown(f"{where}/_shmarrow", lab.NOBODY, lab.NOBODY)
    os.chmod(where, 0o1777)
    for act in (lambda: c.begin(where, SCHEMA, True), lambda: c.commit(job, written, SCHEMA, overwrite=True)):
        with pytest.raises(
            sa.StorageError, match=rf"cannot write by '{where}/_shmarrow': it belongs to user 65534, who"
        ):
            act()
    os.chmod(where, 0o775)  # the owner of the directory says who may write
    c.commit(job, written, SCHEMA, overwrite=True)
    os.chmod(f"{where}/_shmarrow", 0o777)
    os.chown(f"{where}/_shmarrow", 0, 0)
    os.chown(f"{where}/_shmarrow/manifest.json", lab.NOBODY, -1)
    with pytest.raises(sa.StorageError, match=r"cannot write by '.*manifest\.json': it belongs to user 65534"):
        put(where, [1])
    assert rows(where) == [0]  # whoever may write decides what readers see


@contextmanager
def locked(where: str) -> Iterator[None]:
    with open(f"{where}/_shmarrow/lock") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def test_a_lock_that_somebody_keeps(where: str, monkeypatch: pytest.MonkeyPatch) -> None:
    put(where, [0])
    monkeypatch.setattr(cleanup, "_LOCK_SECONDS", 0.05)
    job, written = begun(where, [[1]])
    with locked(where), pytest.raises(sa.StorageError, match=r"another process has held the lock .* for 0\.05 s"):
        c.commit(job, written, SCHEMA, overwrite=False)
    c.commit(job, written, SCHEMA, overwrite=False)
    assert rows(where) == [0, 1]


def test_no_space_for_the_manifest(tmp_path: Path) -> None:
    with lab.small_tmpfs(tmp_path / "small", 1 << 18) as folder:
        where = str(folder / "data")
        put(where, [0])
        job, written = begun(where, [[1]])
        free = os.statvfs(folder)
        (folder / "filler").write_bytes(bytes(free.f_bavail * free.f_frsize))
        with pytest.raises(
            sa.StoreFull, match=r"manifest\.json': No space left .* has 262144 bytes .* of which 0 are free"
        ):
            c.commit(job, written, SCHEMA, overwrite=True)
        assert rows(where) == [0]
        c.abort(job)
        assert rows(where) == [0]
        assert tree(where) == {"part-00000", *STATE}


def test_another_user() -> None:
    lab.needs_root("to be another user")
    with lab.shared_folder() as folder:
        where = str(folder / "data")
        put(where, [0])
        os.seteuid(lab.NOBODY)
        try:
            assert rows(where) == [0]
            with pytest.raises(sa.StorageError) as caught:
                put(where, [1])
        finally:
            os.seteuid(0)
    assert re.match(f"cannot make '{where}/_shmarrow/job-.*': Permission denied; ", str(caught.value))
    assert f"'{where}/_shmarrow' has mode 0755 and owner 0; this process runs as user {lab.NOBODY}" in str(caught.value)


# --- manifests that lie -----------------------------------------------------------------------------------------

FILE = {"name": "a.arrow", "size": 1, "rows": 1}
GOOD: dict[str, Any] = {"version": 1, "generation": 1, "files": [FILE], "replaced": []}


@pytest.mark.parametrize(
    "data",
    [
        b"", b"{", b"[]", b"null", b"3", b"\xff\xfe", b"[" * 100_000, b'{"version": 1}', b"9" * 5000,
        *[
            json.dumps({**GOOD, **change}).encode()
            for change in (
                {"version": "1"}, {"version": True}, {"version": -1},
                {"generation": -1}, {"generation": 1.5}, {"generation": 1 << 63}, {"generation": None},
                {"files": None}, {"files": 3}, {"files": [3]}, {"files": [[]]}, {"files": [FILE, FILE]},
                {"replaced": None}, {"replaced": "abc"}, {"replaced": [3]},
                {"files": {}}, {"files": [{"name": "a"}]}, {"replaced": ["a.arrow"]}, {"replaced": ["../x"]},
                *[
                    {"files": [{**FILE, **wrong}]}
                    for wrong in (
                        *[{"name": n} for n in ("", ".", "..", "../x", "/etc/passwd", "a/b", "_x", ".x", "a\0")],
                        {"name": "\ud800"}, {"name": 3}, {"name": None}, {"size": -1}, {"size": "1"},
                        {"size": None}, {"size": True}, {"rows": -1}, {"rows": 0.5}, {"rows": 1 << 64},
                    )
                ],
            )
        ],
    ],
)  # fmt: skip
def test_manifests_that_are_refused(tmp_path: Path, data: bytes) -> None:
    (tmp_path / "_shmarrow").mkdir()
    (tmp_path / "_shmarrow" / "manifest.json").write_bytes(data)
    with pytest.raises(
        sa.InvalidData, match=r"manifest\.json' is not a valid manifest: .*; remove it, and all visible files count"
    ):
        d.data_files(str(tmp_path))
    with pytest.raises(sa.InvalidData):
        c.begin(str(tmp_path), SCHEMA, False)


def test_a_manifest_of_later_days(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "_shmarrow").mkdir()
    manifest = tmp_path / "_shmarrow" / "manifest.json"
    manifest.write_text(json.dumps({"version": 2, "whatever": []}))
    with pytest.raises(
        sa.Unsupported, match=r"manifest\.json: the manifest has version 2, expected 1; update shmarrow"
    ):
        d.data_files(str(tmp_path))
    monkeypatch.setattr(d, "MANIFEST_BYTES", 10)
    with pytest.raises(sa.LimitExceeded, match="has more than 10 bytes"):
        d.data_files(str(tmp_path))
    manifest.unlink()
    os.mkfifo(manifest)
    with pytest.raises(sa.InvalidData, match="expected a regular file"):
        d.data_files(str(tmp_path))
    manifest.unlink()
    manifest.mkdir()
    with pytest.raises(sa.InvalidData, match="expected a regular file"):
        d.data_files(str(tmp_path))
    manifest.rmdir()
    manifest.symlink_to("/etc/passwd")
    with pytest.raises(sa.StorageError, match=r"cannot open .*symbolic"):
        d.data_files(str(tmp_path))


def test_manifests_that_would_do_harm(where: str, monkeypatch: pytest.MonkeyPatch) -> None:
    put(where, [0])
    path = Path(where, "_shmarrow", "manifest.json")
    good = json.loads(path.read_text())
    important = Path(where, "important.txt")
    important.write_text("Buy milk")
    write(where, "old.arrow", [9])

    path.write_text(json.dumps({**good, "replaced": ["important.txt", "old.arrow"]}))
    put(where, [1])
    put(where, [2])
    assert important.read_text() == "Buy milk"
    assert rows(where) == [0, 1, 2]
    assert os.listdir(f"{where}/_shmarrow/replaced") == ["old.arrow"]

    good = json.loads(path.read_text())
    listed = {"name": "important.txt", "size": 8, "rows": None}
    path.write_text(json.dumps({**good, "files": [*good["files"], listed], "replaced": []}))
    with pytest.raises(sa.InvalidArgument, match=r"'important\.txt' is not an Arrow file"):
        put(where, [3], overwrite=True)
    assert important.read_text() == "Buy milk"

    job, written = begun(where, [[4]])
    before = {**good, "generation": (1 << 63) - 1}
    path.write_text(json.dumps(before))
    for act in (lambda: c.begin(where, SCHEMA, True), lambda: c.commit(job, written, SCHEMA, overwrite=False)):
        with pytest.raises(sa.InvalidData, match=r"has generation 9223372036854775807.*; remove the manifest, and all"):
            act()
    assert json.loads(path.read_text()) == before

    path.write_text(json.dumps(good))
    monkeypatch.setattr(d, "MANIFEST_BYTES", path.stat().st_size + 20)
    with pytest.raises(sa.LimitExceeded, match=r"it would have 4 files, whose manifest has \d+ bytes, and \d+ are acc"):
        c.commit(job, written, SCHEMA, overwrite=False)
    c.abort(job)
    assert rows(where) == [0, 1, 2]


def test_names_of_any_bytes(tmp_path: Path) -> None:
    raw = os.fsencode(str(tmp_path)) + b"/\xff\xe4.arrow"
    os.rename(os.path.join(str(tmp_path), write(str(tmp_path), "x", [1]).name), raw)
    put(str(tmp_path), [2])
    assert rows(str(tmp_path)) == [1, 2]
