"""Segments: published whole or not at all, kept while attached, nothing left behind; real processes, real kills."""

from __future__ import annotations

import contextlib
import errno
import gc
import io
import mmap
import multiprocessing
import os
import pickle
import re
import resource
import signal
import socket
import stat
import struct
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest import mock

import lab
import numpy as np
import posix_ipc
import pytest
from environment import mounted
from interrupts import killed
from measures import mappings
from processes import ended, forked, python
from writers import SEGMENT

import shmarrow as sa
from shmarrow import errors, segment
from shmarrow.segment import attach, create, delete

ROOT = os.getuid() == 0
NOBODY = 65534
SHM = Path("/dev/shm")
PREFIX = f"shmarrow-test-{os.getpid()}-"


class Place:
    """The location of a test's objects: a directory, or the shared memory objects of its own prefix."""

    def __init__(self, directory: Path, prefix: str, scheme: str) -> None:
        self.directory, self.prefix, self.scheme = directory, prefix, scheme

    def __call__(self, name: str) -> str:
        return self.scheme + self.prefix + name if self.scheme else str(self.directory / name)

    def path(self, name: str) -> Path:
        return self.directory / (self.prefix + name)

    def names(self) -> list[str]:
        """All that stands there, temporary names included where they cannot be another program's."""
        found = [name for name in os.listdir(self.directory) if name.startswith(self.prefix)]
        return sorted(name.removeprefix(self.prefix) for name in found)


@pytest.fixture
def shm() -> Iterator[Place]:
    place = Place(SHM, PREFIX, "shm:")
    yield place
    for name in place.names():
        place.path(name).unlink()


@pytest.fixture
def posix() -> Iterator[Place]:
    """Shared memory objects as on platforms where they are no files; on Linux, they are all the same."""
    place = Place(SHM, f"sa{os.getpid()}-", "posix:")
    yield place
    for name in place.names():
        place.path(name).unlink()


@pytest.fixture(params=["file", "shm", "posix"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    return Place(tmp_path, "", "") if request.param == "file" else request.getfixturevalue(request.param)


@pytest.fixture(params=["file", "shm"])
def file_place(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    """Where objects are files."""
    return request.getfixturevalue("shm") if request.param == "shm" else Place(tmp_path, "", "")


@contextlib.contextmanager
def without_tmpfile() -> Iterator[None]:
    """As on a file system without O_TMPFILE."""
    opened = os.open

    def refuse(path: object, flags: int, *arguments: object, **options: object) -> int:
        if flags & os.O_TMPFILE == os.O_TMPFILE:
            raise OSError(errno.EOPNOTSUPP, os.strerror(errno.EOPNOTSUPP))
        return opened(path, flags, *arguments, **options)  # type: ignore[arg-type]

    with mock.patch("os.open", refuse):
        yield


@pytest.fixture
def no_tmpfile() -> Iterator[None]:
    with without_tmpfile():
        yield


@pytest.fixture(params=["unnamed", "named"])
def way(request: pytest.FixtureRequest) -> str:
    """Both ways to write: a file without a name, and one with a temporary name."""
    if request.param == "named":
        request.getfixturevalue("no_tmpfile")
    return str(request.param)


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 4 MiB."""
    with mounted(tmp_path / "disk", "-t", "tmpfs", "-o", "size=4m", "tmpfs") as target:
        yield target


def put(where: str, content: bytes, **options: object) -> None:
    with create(where, **options) as writer:  # type: ignore[arg-type]
        writer.write([content])


def free_bytes(directory: Path) -> int:
    found = os.statvfs(directory)
    return found.f_bavail * found.f_frsize


# Values, modes, names


def test_what_is_written_is_attached(place: Place, way: str) -> None:
    with create(place("a")) as writer:
        assert place.names() == [] if place.scheme or way == "unnamed" else len(place.names()) == 1
        assert writer.write([b"abc", b"", memoryview(b"de"), np.arange(3, dtype="<u2")]) == 11
        assert writer.size == 11
        assert writer.write([]) == 0
        assert writer.write([b"XY"], 1) == 2
        assert writer.size == 11
    assert writer.closed
    assert place.names() == ["a"]
    with attach(place("a")) as got:
        assert (got.name, got.size) == (place("a"), 11)
        assert got.data.tobytes() == b"aXYde\0\0\1\0\2\0"
        assert (got.data.dtype, got.data.shape, got.data.flags.writeable) == (np.uint8, (11,), False)
        with pytest.raises(ValueError, match="WRITEABLE"):
            got.data.flags.writeable = True
    delete(place("a"))
    assert place.names() == []


def test_what_is_a_location(tmp_path: Path) -> None:
    assert segment.is_location(tmp_path)
    assert segment.is_location("shm:a")
    assert not any(segment.is_location(source) for source in (b"a", 3, None, memoryview(b"a")))


def test_empty_object(place: Place) -> None:
    put(place("empty"), b"")
    got = attach(place("empty"))
    assert (got.size, got.data.shape, got.data.flags.writeable) == (0, (0,), False)


@pytest.mark.parametrize("mode", [0o400, 0o444, 0o640])
def test_mode_is_as_asked_whatever_the_umask(place: Place, way: str, mode: int) -> None:
    before = os.umask(0o777)
    try:
        with create(place("a"), mode=mode) as writer:
            writer.write([b"x"])
            assert stat.S_IMODE(os.fstat(writer.fileno()).st_mode) & 0o177 == 0
    finally:
        os.umask(before)
    assert stat.S_IMODE(place.path("a").stat().st_mode) == mode


def test_default_mode_is_owner_reads(place: Place) -> None:
    put(place("a"), b"x")
    assert stat.S_IMODE(place.path("a").stat().st_mode) == 0o400


@pytest.mark.parametrize("mode", [-1, 0o1000, "0400"])
def test_mode_that_is_none(tmp_path: Path, mode: object) -> None:
    with pytest.raises(errors.InvalidArgument, match="mode"):
        create(tmp_path / "a", mode=mode)  # type: ignore[arg-type]


BAD_NAMES = [
    "shm:", "shm:/a", "shm:a/b", "shm:../etc/passwd", "shm:.", "shm:..", "shm:a\0b", "shm:" + "a" * 255,
    "shm:" + "é" * 128, "shm:.shmarrow-x", "shm:a\udcff", "", "/", "/tmp/", "/tmp/.", "/tmp/..", "a\0b",
    "/tmp/.shmarrow-x", "a\ud800",
]  # fmt: skip


@pytest.mark.parametrize("name", BAD_NAMES, ids=ascii)
def test_bad_names_are_refused_by_all(name: str) -> None:
    for call in (attach, create, delete):
        with pytest.raises(errors.InvalidArgument):
            call(name)


def test_longest_shm_name(shm: Place) -> None:
    name = "a" * (254 - len(PREFIX))
    put(shm(name), b"x")
    assert attach(shm(name)).data.tobytes() == b"x"
    delete(shm(name))


def test_missing_and_taken_names(place: Place) -> None:
    for call in (attach, delete):
        with pytest.raises(errors.ObjectNotFound, match=r"a.: No such file or directory"):
            call(place("a"))
    put(place("a"), b"first")
    with pytest.raises(errors.ObjectExists, match=r"a'.*overwrite=True"):
        create(place("a"))
    assert attach(place("a")).data.tobytes() == b"first"


@pytest.mark.parametrize("overwrite", [False, True])
def test_a_directory_is_not_replaced(tmp_path: Path, overwrite: bool) -> None:
    """So nobody is told to pass ``overwrite=True``."""
    with pytest.raises(errors.StorageError, match="expected a regular file, found a directory"):
        create(tmp_path, overwrite=overwrite)
    assert tmp_path.is_dir()


def test_name_taken_while_writing(place: Place, way: str) -> None:
    writer = create(place("a"))
    writer.write([b"second"])
    put(place("a"), b"first")
    with pytest.raises(errors.ObjectExists):
        writer.close()
    assert writer.closed
    assert attach(place("a")).data.tobytes() == b"first"
    assert place.names() == ["a"]


def test_directory_that_is_missing_or_none(tmp_path: Path) -> None:
    with pytest.raises(errors.ObjectNotFound, match=r"make the directory .*nowhere"):
        create(tmp_path / "nowhere" / "a")
    put(str(tmp_path / "file"), b"x")
    with pytest.raises(errors.StorageError) as caught:
        create(tmp_path / "file" / "a")
    assert caught.value.errno == errno.ENOTDIR


def test_only_regular_files(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo")
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(str(tmp_path / "socket"))
    listener.close()
    for name, said in (("fifo", "a FIFO"), ("socket", "cannot open"), (f"../{tmp_path.name}", "a directory")):
        with pytest.raises(errors.StorageError, match=said):
            attach(os.path.join(tmp_path, name))
    for name, said in (("fifo", "a FIFO"), ("socket", "a socket"), (f"../{tmp_path.name}", "a directory")):
        with pytest.raises(errors.StorageError, match=said):
            delete(os.path.join(tmp_path, name))
    with pytest.raises(errors.StorageError, match="character device"):
        attach("/dev/null")
    with pytest.raises(errors.StorageError, match="expected a regular file, found a FIFO"):
        create(tmp_path / "fifo", overwrite=True)
    assert sorted(os.listdir(tmp_path)) == ["fifo", "socket"]


def test_links_lead_to_files_but_not_to_shared_memory(tmp_path: Path, shm: Place) -> None:
    put(str(tmp_path / "a"), b"x")
    (tmp_path / "link").symlink_to("a")
    assert attach(tmp_path / "link").data.tobytes() == b"x"
    shm.path("link").symlink_to(tmp_path / "a")
    with pytest.raises(errors.StorageError, match="symbolic link"):
        attach(shm("link"))
    with pytest.raises(errors.ObjectExists):
        create(shm("link"))


def test_relative_path_survives_chdir(tmp_path: Path, way: str, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "sub").mkdir()
    monkeypatch.chdir(tmp_path)
    with create("a") as writer:
        os.chdir("sub")
        writer.write([b"x"])
    assert sorted(os.listdir(tmp_path)) == ["a", "sub"]
    assert writer.name == "a"


def test_working_directory_that_is_gone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "gone").mkdir()
    monkeypatch.chdir(tmp_path / "gone")
    (tmp_path / "gone").rmdir()
    with pytest.raises(errors.ObjectNotFound):
        create("a")
    put(str(tmp_path / "a"), b"x")
    assert attach(tmp_path / "a").size == 1


@pytest.mark.skipif(not ROOT, reason="takes root to become another user")
def test_directory_without_permission() -> None:
    with tempfile.TemporaryDirectory() as made:
        os.chmod(made, 0o755)
        where = os.path.join(made, "a")
        put(where, b"x")

        def stranger() -> None:
            os.setgid(NOBODY)
            os.setuid(NOBODY)
            with pytest.raises(
                errors.StorageError, match=rf"{made}' has mode 0755 and owner 0.*user {NOBODY}"
            ) as caught:
                create(os.path.join(made, "b"))
            assert caught.value.errno == errno.EACCES
            with pytest.raises(errors.StorageError, match=r"a' has mode 0400 and owner 0"):
                attach(where)
            with pytest.raises(errors.StorageError, match="mode 0755"):
                delete(where)

        assert ended(forked(stranger)) == 0
        assert os.listdir(made) == ["a"]


@pytest.mark.skipif(not ROOT, reason="takes root to become another user")
def test_publishing_needs_no_privilege(shm: Place) -> None:
    def stranger() -> None:
        os.setgid(NOBODY)
        os.setuid(NOBODY)
        put(shm("a"), b"x", mode=0o444)

    assert ended(forked(stranger)) == 0
    assert attach(shm("a")).data.tobytes() == b"x"
    assert shm.path("a").stat().st_uid == NOBODY


# Writing


def test_more_pieces_than_one_call_takes(place: Place) -> None:
    pieces = [struct.pack("<I", number) for number in range(5000)]
    pieces[1024:1024] = [b""] * 2000
    with create(place("a")) as writer:
        assert writer.write(iter(pieces)) == 20000
    assert np.array_equal(attach(place("a")).data.view("<u4"), np.arange(5000))


def test_pieces_of_any_type_and_shape(tmp_path: Path) -> None:
    days = np.array(["2024-02-29", "NaT"], "M8[D]")
    matrix = np.arange(6, dtype="<f8").reshape(2, 3)
    with create(tmp_path / "a") as writer:
        writer.write([days, matrix, bytearray(b"xyz"), np.float32(1).reshape(()), np.empty((0, 4)), np.array(7, "u1")])
    assert attach(tmp_path / "a").data.tobytes() == (
        struct.pack("<2q", 19782, -(1 << 63))
        + struct.pack("<6d", 0, 1, 2, 3, 4, 5)
        + b"xyz"
        + struct.pack("<f", 1)
        + b"\7"
    )


@pytest.mark.parametrize("most", [1, 5, 7, 100])
def test_calls_that_write_less_than_asked(tmp_path: Path, most: int) -> None:
    written = os.pwritev

    def write_less(fd: int, pieces: list[Any], offset: int) -> int:
        return written(fd, [b"".join(map(bytes, pieces))[:most]], offset)

    pieces = [b"", b"a", b"bcdefghijklmnopqr", b"", np.arange(65, 91, dtype="u1"), memoryview(b"0123"), b""]
    with create(tmp_path / "a") as writer, mock.patch("os.pwritev", write_less):
        assert writer.write(pieces) == 48
    assert attach(tmp_path / "a").data.tobytes() == b"abcdefghijklmnopqrABCDEFGHIJKLMNOPQRSTUVWXYZ0123"


@pytest.mark.parametrize(
    "piece",
    [np.zeros((4, 4))[:, 1], np.zeros((3, 4)).T, memoryview(b"abcd")[::2], "text", 3, None, [1]],
    ids=["column", "transposed", "every-other-byte", "text", "number", "none", "list"],
)
def test_pieces_with_gaps_are_refused(tmp_path: Path, piece: object) -> None:
    with create(tmp_path / "a") as writer:
        writer.write([b"x"])
        with pytest.raises(errors.InvalidType):
            writer.write([b"y", piece])  # type: ignore[list-item]
        assert writer.size == 1
    assert attach(tmp_path / "a").data.tobytes() == b"x"


def test_write_at_beyond_the_end_leaves_zeros_and_no_hole(place: Place) -> None:
    with create(place("a")) as writer:
        writer.write([b"ab"])
        writer.write([b"cd"], 100_000)
        with pytest.raises(errors.InvalidArgument):
            writer.write([b"x"], -1)
    assert attach(place("a")).data.tobytes() == b"ab" + bytes(99_998) + b"cd"
    assert place.path("a").stat().st_blocks * 512 >= 100_002


def test_reserved_space_that_was_not_written_is_given_back(file_place: Place) -> None:
    with create(file_place("a")) as writer:
        writer.reserve(1 << 20)
        assert os.fstat(writer.fileno()).st_blocks * 512 >= 1 << 20
        writer.write([b"abc"])
    found = file_place.path("a").stat()
    assert found.st_size == 3
    assert found.st_blocks * 512 <= 4096


def test_filled_in_place(place: Place, way: str) -> None:
    with create(place("a")) as writer:
        writer.write([b"head"])
        mapped = writer.map(100)
        assert mapped[:5].tobytes() == b"head\0"
        assert writer.size == 100
        part = mapped[8:24].view("<i8")
        part[:] = [5, 6]
        writer.write([b"tail"])
    assert not mapped.flags.writeable
    expected = b"head\0\0\0\0" + struct.pack("<2q", 5, 6) + bytes(76) + b"tail"
    assert attach(place("a")).data.tobytes() == expected
    assert part.tolist() == [5, 6]
    del mapped, part
    gc.collect()
    assert attach(place("a")).data.tobytes() == expected


def test_map_of_nothing(tmp_path: Path) -> None:
    with create(tmp_path / "a") as writer:
        assert writer.map(0).shape == (0,)
    assert attach(tmp_path / "a").size == 0


def test_aborting_leaves_nothing(place: Place, way: str) -> None:
    writer = create(place("a"))
    mapped = writer.map(1 << 16)
    writer.abort()
    writer.abort()
    mapped[:] = 1
    with pytest.raises(ZeroDivisionError), create(place("b")) as other:
        other.write([bytes(1 // 0)])
    assert other.closed
    forgotten = create(place("c"))
    del forgotten
    assert place.names() == []


def test_closed_writer_and_segment(place: Place) -> None:
    with create(place("a")) as writer:
        writer.write([b"x"])
        writer.close()
    for call in (lambda: writer.write([b"y"]), lambda: writer.reserve(1), lambda: writer.map(1), writer.fileno):
        with pytest.raises(errors.Closed, match="is closed"):
            call()
    got = attach(place("a"))
    assert repr(got) == f"<Segment {place('a')!r}, 1 bytes>"
    got.close()
    got.close()
    with pytest.raises(errors.Closed, match="attach to it again"):
        _ = got.data
    assert repr(got) == f"<Segment {place('a')!r}, 1 bytes, closed>"


def test_durable(tmp_path: Path, way: str) -> None:
    put(str(tmp_path / "a"), b"x", durable=True)
    put(str(tmp_path / "a"), b"y", durable=True, overwrite=True)
    assert attach(tmp_path / "a").data.tobytes() == b"y"


# Overwriting


def test_overwritten_while_a_reader_holds_the_old_one(place: Place, way: str) -> None:
    put(place("a"), b"old" * 10_000)
    before = attach(place("a"))
    with create(place("a"), overwrite=True) as writer:
        writer.write([b"new"])
        assert attach(place("a")).size == 30_000
    assert attach(place("a")).data.tobytes() == b"new"
    assert before.data.tobytes() == b"old" * 10_000
    assert place.names() == ["a"]
    put(place("b"), b"first", overwrite=True)
    assert attach(place("b")).data.tobytes() == b"first"


@pytest.mark.parametrize("overwrite", [False, True])
def test_a_writer_with_a_temporary_name_that_is_killed_anywhere(
    tmp_path: Path, no_tmpfile: None, overwrite: bool
) -> None:
    """The name has the object that was there before or the new one, whole; nothing else stays."""
    path, new, found = str(tmp_path / "a"), b"new" * 5000, set()
    number, more = 1, True
    while more:
        if overwrite:
            put(path, b"old")
        more = killed(lambda: put(path, new, overwrite=overwrite), number, SEGMENT)
        segment.collect_leftovers(str(tmp_path))
        assert os.listdir(tmp_path) in ([], ["a"])
        found.add(attach(path).data.tobytes() if os.path.exists(path) else None)
        (tmp_path / "a").unlink(missing_ok=True)
        number += 13
    assert found == {b"old" if overwrite else None, new}
    assert number > 100


def test_leftovers_are_collected_and_living_writers_are_not(tmp_path: Path, no_tmpfile: None) -> None:
    living = create(tmp_path / "a")
    living.write([b"x"])
    (tmp_path / ".shmarrow-dead").write_bytes(b"left")
    assert len(os.listdir(tmp_path)) == 2
    assert segment.collect_leftovers(str(tmp_path)) == 1
    assert segment.collect_leftovers(str(tmp_path)) == 0
    living.close()
    put(str(tmp_path / "b"), b"y")
    assert sorted(os.listdir(tmp_path)) == ["a", "b"]
    assert segment.collect_leftovers(str(tmp_path / "nowhere")) == 0


def test_forked_child_does_not_take_the_file_away(tmp_path: Path, no_tmpfile: None) -> None:
    with create(tmp_path / "a") as writer:
        writer.write([b"x"])
        assert ended(forked(writer.abort)) == 0
        assert segment.collect_leftovers(str(tmp_path)) == 0
    assert attach(tmp_path / "a").data.tobytes() == b"x"


# Reading


def test_any_program_sees_shared_memory(shm: Place) -> None:
    put(shm("ours"), b"hello")
    theirs = posix_ipc.SharedMemory("/" + PREFIX + "ours", read_only=True)
    try:
        assert theirs.size == 5
        assert mmap.mmap(theirs.fd, 5, prot=mmap.PROT_READ)[:] == b"hello"
    finally:
        theirs.close_fd()
    made = posix_ipc.SharedMemory("/" + PREFIX + "theirs", posix_ipc.O_CREX, size=4096)
    os.pwrite(made.fd, b"world", 0)
    made.close_fd()
    assert attach(shm("theirs")).data[:6].tobytes() == b"world\0"
    delete(shm("ours"))
    with pytest.raises(posix_ipc.ExistentialError):
        posix_ipc.SharedMemory("/" + PREFIX + "ours")
    posix_ipc.unlink_shared_memory("/" + PREFIX + "theirs")
    with pytest.raises(errors.ObjectNotFound):
        attach(shm("theirs"))


WITHOUT_SHM = """
import sys, shmarrow
from shmarrow.segment import attach, create, delete
for call in (attach, create, delete, shmarrow.Store):
    try:
        call("shm:a")
    except shmarrow.Unsupported as error:
        print(error)
with create(sys.argv[1]) as writer:
    writer.write([b"hello"])
print(attach(sys.argv[1]).data.tobytes())
"""


def test_without_dev_shm_names_of_shared_memory_are_refused(tmp_path: Path) -> None:
    """In a mount namespace with an empty /dev."""
    command = ["unshare", "--mount", "sh", "-c", 'mount -t tmpfs none /dev && exec "$@"', "sh"]
    if subprocess.run([*command, "true"], capture_output=True).returncode:
        pytest.skip("cannot make a mount namespace here")
    code = [sys.executable, "-c", WITHOUT_SHM, str(tmp_path / "a")]
    found = subprocess.run([*command, *code], capture_output=True, text=True, check=True)
    *refused, content = found.stdout.splitlines()
    assert len(refused) == 4
    for line in refused:
        assert re.fullmatch(r"cannot use 'shm:a': .*mount a tmpfs.* use a path instead", line)
    assert content == "b'hello'"


def test_stores_are_refused_on_other_platforms(tmp_path: Path) -> None:
    where = str(tmp_path / ("long" * 30))
    found = python(
        "import sys; sys.platform = 'darwin'; import shmarrow\n"
        f"try: shmarrow.Store({where!r})\n"
        "except shmarrow.Unsupported as error: print(error)"
    )
    assert found == f"cannot open the store {where!r}: stores need Linux, whose record locks they use\n"


def test_windows_is_refused_at_import() -> None:
    found = python(
        "import sys; sys.modules['fcntl'] = None\ntry: import shmarrow\nexcept ImportError as error: print(error)"
    )
    assert found == "shmarrow needs Linux: Windows lacks POSIX file locks and shared memory; use WSL 2\n"


def test_a_process_of_1024_descriptors_maps_3000_files_and_3000_objects(tmp_path: Path) -> None:
    put(str(tmp_path / "a"), b"x" * 10_000)
    with sa.ipc.new_file(tmp_path / "b", sa.schema({"x": sa.int64()})) as writer:
        writer.write(sa.record_batch({"x": np.arange(1000)}))
    store = sa.Store(str(tmp_path / "store"))
    for number in range(30):
        store.put(str(number), np.full(2000, number))

    def holds() -> None:
        resource.setrlimit(resource.RLIMIT_NOFILE, (1024, 1024))
        segments = [attach(tmp_path / "a") for _ in range(1500)]
        columns: list[Any] = [sa.ipc.open_file(tmp_path / "b").get_batch(0).column(0) for _ in range(1500)]
        objects: list[Any] = [store.get(str(number % 30)) for number in range(3000)]
        assert len(os.listdir("/proc/self/fd")) < 100
        assert all(segment.data[-1] == ord("x") for segment in segments)
        assert all(column.to_numpy()[-1] == 999 for column in columns)
        assert all(array[-1] == number % 30 for number, array in enumerate(objects))

    assert ended(forked(holds)) == 0


def test_too_many_files_open(tmp_path: Path) -> None:
    put(str(tmp_path / "a"), b"x")

    def greedy() -> None:
        resource.setrlimit(resource.RLIMIT_NOFILE, (0, 0))
        with pytest.raises(errors.StorageError, match="as many files open as it may") as caught:
            attach(tmp_path / "a")
        assert caught.value.errno == errno.EMFILE

    assert ended(forked(greedy)) == 0


# No space left


def _fill(file: io.RawIOBase) -> None:
    with contextlib.suppress(OSError):
        while True:
            file.write(bytes(4096))


def test_full_disk_while_writing(disk: Path, way: str) -> None:
    space = free_bytes(disk)
    with pytest.raises(errors.StoreFull, match=r"has 4194304 bytes \(4 MiB\), of which 0 are free") as caught:
        put(str(disk / "a"), bytes(5 << 20))
    assert caught.value.errno == errno.ENOSPC
    assert os.listdir(disk) == []
    assert free_bytes(disk) == space


def test_full_disk_in_the_middle_of_pieces(disk: Path) -> None:
    with create(disk / "a") as writer:
        writer.write([b"x" * 1000])
        with pytest.raises(errors.StoreFull):
            writer.write([bytes([number % 251]) * 10_000 for number in range(1500)])
        assert writer.size == 1000
        writer.write([b"y"], 5000)
    assert attach(disk / "a").data.tobytes() == b"x" * 1000 + bytes(4000) + b"y"
    assert free_bytes(disk) >= (4 << 20) - (64 << 10)


def test_full_disk_on_reserve_and_map(disk: Path) -> None:
    with create(disk / "a") as writer:
        writer.write([b"x"])
        with pytest.raises(errors.StoreFull, match=r"reserve 8388608 bytes.*4194304 bytes"):
            writer.reserve(8 << 20)
        with pytest.raises(errors.StoreFull):
            writer.map(8 << 20)
        with pytest.raises(errors.StoreFull):
            writer.write([b"x"], 8 << 20)
        writer.map(3 << 20)[:] = 7
    assert int(attach(disk / "a").data.sum(dtype=np.int64)) == 7 * (3 << 20)


def test_reserved_space_is_there_when_the_disk_is_full(disk: Path) -> None:
    with create(disk / "a") as writer:
        writer.reserve(1 << 20)
        with pytest.raises(errors.StoreFull):
            put(str(disk / "b"), bytes(4 << 20))
        with open(disk / "filler", "wb", buffering=0) as filler:
            _fill(filler)
        writer.write([b"x"], (1 << 20) - 1)
    # A hole would take a page when it is read, and kill this process for want of one.
    assert int(attach(disk / "a").data.sum()) == ord("x")


@pytest.mark.skipif(not ROOT, reason="takes root to make a file system")
def test_failed_reserve_gives_ext4_its_blocks_back(tmp_path: Path) -> None:
    image = tmp_path / "image"
    with open(image, "wb") as file:
        file.truncate(16 << 20)
    try:
        subprocess.run(["mkfs.ext4", "-q", "-m", "0", str(image)], check=True, capture_output=True)
    except (OSError, subprocess.CalledProcessError) as error:
        pytest.skip(f"cannot make an ext4 file system here: {error}")
    with mounted(tmp_path / "ext4", "-o", "loop", str(image)) as disk, create(disk / "a") as writer:
        writer.write([b"x"])
        os.sync()
        space = free_bytes(disk)
        with pytest.raises(errors.StoreFull):
            writer.reserve(64 << 20)
        assert free_bytes(disk) >= space - (64 << 10)


@pytest.mark.skipif(not ROOT, reason="takes root to give a process a small /dev/shm")
def test_full_shared_memory_says_how_to_enlarge_it() -> None:
    script = (
        "from shmarrow import errors, segment\n"
        "try: segment.create('shm:a').write([bytes(2 << 20)])\n"
        "except errors.StoreFull as error: print(error)\n"
    )
    command = f'mount -t tmpfs -o size=1m tmpfs /dev/shm && exec {sys.executable} -c "$SCRIPT"'
    done = subprocess.run(
        ["unshare", "--mount", "sh", "-c", command],
        env={**os.environ, "SCRIPT": script, "PYTHONPATH": os.pathsep.join(sys.path)}, capture_output=True, text=True,
    )  # fmt: skip
    if done.returncode:
        pytest.skip(f"cannot give a process its own /dev/shm here: {done.stderr.strip()}")
    assert "'/dev/shm' has 1048576 bytes (1 MiB), of which 0 are free; containers often give it 64 MiB" in done.stdout
    assert "--shm-size" in done.stdout


# Races and kills


def test_one_winner_among_sixteen(place: Place, way: str) -> None:
    rounds, racers = 5, 16
    context = multiprocessing.get_context("fork")
    start = context.Barrier(racers)
    results = context.SimpleQueue()

    def race(racer: int) -> None:
        won = []
        for number in range(rounds):
            writer = create(place(str(number)))
            writer.write([bytes([racer]) * 5000])
            start.wait(30)
            try:
                writer.close()
                won.append(number)
            except errors.ObjectExists:
                pass
            start.wait(30)
        results.put((racer, won))

    processes = [context.Process(target=race, args=(racer,)) for racer in range(racers)]
    for process in processes:
        process.start()
    for process in processes:
        process.join(60)
    assert [process.exitcode for process in processes] == [0] * racers
    winners = {number: racer for racer, won in (results.get() for _ in processes) for number in won}
    assert sorted(winners) == list(range(rounds))
    assert place.names() == sorted(map(str, range(rounds)))
    for number, racer in winners.items():
        assert attach(place(str(number))).data.tobytes() == bytes([racer]) * 5000


# Leftovers, links, permissions


def test_leftovers_are_found_by_the_next_writer_of_the_name(tmp_path: Path, no_tmpfile: None) -> None:
    def killed() -> None:
        writer = create(tmp_path / "a")
        writer.write([b"x" * 1000])
        os.kill(os.getpid(), signal.SIGKILL)

    for _ in range(3):
        assert ended(forked(killed)) == -signal.SIGKILL
    assert len(os.listdir(tmp_path)) == 1
    living = [create(tmp_path / "a", overwrite=True) for _ in range(3)]
    assert len(os.listdir(tmp_path)) == 3
    for number, writer in enumerate(living):
        writer.write([bytes([number])])
        writer.close()
    assert os.listdir(tmp_path) == ["a"]
    assert (tmp_path / "a").read_bytes() == b"\x02"


def test_names_that_somebody_else_keeps_are_passed_by(tmp_path: Path, way: str) -> None:
    """A directory in the place of each that 70 writers of one object have."""
    with without_tmpfile():
        writers = [create(tmp_path / "a", overwrite=True) for _ in range(70)]
    names = os.listdir(tmp_path)
    assert len(names) == 70
    for writer in writers:
        writer.abort()
    for name in names:
        (tmp_path / name).mkdir()
    put(str(tmp_path / "a"), b"x", overwrite=True)
    assert sorted(os.listdir(tmp_path)) == sorted(["a", *names])


def test_writers_follow_links(tmp_path: Path, way: str) -> None:
    (tmp_path / "far").mkdir()
    put(str(tmp_path / "far" / "a"), b"old")
    (tmp_path / "link").symlink_to("far/a")
    (tmp_path / "link to link").symlink_to(tmp_path / "link")
    (tmp_path / "dangling").symlink_to("far/b")
    before = attach(tmp_path / "link")
    put(str(tmp_path / "link to link"), b"new", overwrite=True)
    put(str(tmp_path / "dangling"), b"made", overwrite=True)
    assert before.data.tobytes() == b"old"
    assert (tmp_path / "far" / "a").read_bytes() == b"new"
    assert (tmp_path / "far" / "b").read_bytes() == b"made"
    assert all((tmp_path / name).is_symlink() for name in ("link", "link to link", "dangling"))
    assert sorted(os.listdir(tmp_path / "far")) == ["a", "b"]
    for name in ("link", "dangling"):
        with pytest.raises(errors.ObjectExists):
            create(tmp_path / name)


def test_links_that_lead_nowhere(tmp_path: Path) -> None:
    (tmp_path / "one").symlink_to("other")
    (tmp_path / "other").symlink_to("one")
    (tmp_path / "up").symlink_to("..")
    (tmp_path / "missing").symlink_to("none/a")
    for name, kind in (("one", errors.StorageError), ("up", errors.StorageError), ("missing", errors.ObjectNotFound)):
        with pytest.raises(kind):
            create(tmp_path / name, overwrite=True)


@pytest.mark.skipif(not ROOT, reason="needs another user's file")
def test_links_of_others_where_all_may_write(tmp_path: Path, shm: Place) -> None:
    """As Linux refuses to follow them (protected_symlinks)."""
    (tmp_path / "all").mkdir()
    (tmp_path / "all").chmod(0o1777)
    put(str(tmp_path / "mine"), b"mine")
    trap = tmp_path / "all" / "trap"
    trap.symlink_to(tmp_path / "mine")
    put(str(trap), b"still mine", overwrite=True)  # a link of one's own
    os.chown(trap, NOBODY, NOBODY, follow_symlinks=False)
    with pytest.raises(errors.StorageError, match=f"belongs to user {NOBODY}"):
        create(trap, overwrite=True)
    assert (tmp_path / "mine").read_bytes() == b"still mine"
    shm.path("link").symlink_to(tmp_path / "mine")
    put(shm("link"), b"not through the link", overwrite=True)
    assert (tmp_path / "mine").read_bytes() == b"still mine"


REPLACE = """
import os, shmarrow as sa
table = sa.table({"x": [1]})
with sa.ipc.new_file(path, table.schema) as writer:
    writer.write(table)
found = os.stat(path)
result = found.st_uid, found.st_gid, found.st_mode & 0o777
"""


@pytest.mark.skipif(os.geteuid() != 0, reason="needs other users")
@pytest.mark.parametrize("mode", [0o640, 0o664, 0o600])
def test_the_group_of_a_replaced_file(mode: int) -> None:
    """It stays where the user is one of it; its permissions are nobody else's."""
    team, other, user = 1234, 1300, 1001
    with lab.shared_folder(0o777) as folder:
        path = folder / "a.arrow"

        def replaced(**who: Any) -> Any:
            path.write_bytes(b"old")
            os.chown(path, 1000, team)
            path.chmod(mode)
            return lab.as_user(REPLACE, user, path=str(path), **who)

        assert replaced(gid=other, groups=[team]) == (user, team, mode)
        assert replaced(gid=team) == (user, team, mode)
        assert replaced(gid=other) == (user, other, mode & ~0o070)
        folder.chmod(0o2777)
        os.chown(folder, 0, other)
        folder.chmod(0o2777)
        assert replaced(gid=team) == (user, team, mode)


@pytest.mark.parametrize("umask", [0o022, 0o077, 0o002])
def test_mode_of_any_program(tmp_path: Path, way: str, umask: int) -> None:
    """As ``open(path, "wb")`` gives it."""
    before = os.umask(umask)
    try:
        put(str(tmp_path / "a"), b"x", mode=None)
        (tmp_path / "b").write_bytes(b"x")
        assert stat.S_IMODE((tmp_path / "a").stat().st_mode) == stat.S_IMODE((tmp_path / "b").stat().st_mode)
        (tmp_path / "a").chmod(0o640)
        put(str(tmp_path / "a"), b"x", mode=None, overwrite=True)
        assert stat.S_IMODE((tmp_path / "a").stat().st_mode) == 0o640
    finally:
        os.umask(before)


@pytest.mark.skipif(not ROOT, reason="needs another user's file")
def test_a_replaced_file_keeps_its_owner(tmp_path: Path, way: str) -> None:
    put(str(tmp_path / "a"), b"x", mode=0o600)
    os.chown(tmp_path / "a", NOBODY, NOBODY)
    put(str(tmp_path / "a"), b"y", mode=None, overwrite=True)
    found = (tmp_path / "a").stat()
    assert (found.st_uid, found.st_gid, stat.S_IMODE(found.st_mode)) == (NOBODY, NOBODY, 0o600)


# Threads, forks, copies


def test_close_gives_up_the_mapping_at_once(file_place: Place) -> None:
    put(file_place("a"), b"x" * 100)
    path = file_place.path("a")
    got = attach(file_place("a"))
    assert mappings(path)
    got.close()
    assert not mappings(path)
    assert got.identity[1] == path.stat().st_ino


def test_a_mapping_cannot_end_while_an_array_of_it_is_left(place: Place) -> None:
    put(place("a"), b"x" * 100_000)
    got = attach(place("a"))
    column = got.data[50_000:50_010]
    view = memoryview(column)
    got.close()
    del got, column
    gc.collect()
    assert mappings(place.path("a"))
    assert bytes(view) == b"x" * 10
    del view
    assert not mappings(place.path("a"))


def test_a_pickled_segment_that_was_replaced(place: Place) -> None:
    put(place("a"), b"hello")
    data = pickle.dumps(attach(place("a")))
    put(place("a"), b"another", overwrite=True)
    with pytest.raises(errors.ObjectNotFound, match="replaced"):
        pickle.loads(data)
