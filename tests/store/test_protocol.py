"""docs/protocol.md says what the code does: its tables are the code's, and a program in C written from it takes part.

``tests/support/store.c`` shares no code with the package. Both work on the same stores here, replace and remove what
the other one published, respect each other's pins, and repair what the other one left when it was killed; its command
``check`` looks at every invariant of a store, and is the judge of both.
"""

from __future__ import annotations

import functools
import os
import re
import shutil
import signal
import struct
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import lab
import numpy as np
import pyarrow as pa
import pytest
from environment import PREFIX, ROOT, SHM
from interrupts import killed
from processes import end_well, forked

import shmarrow as sa
from shmarrow.objects import kinds
from shmarrow.store import protocol

PAGE = (ROOT / "docs" / "protocol.md").read_text(encoding="utf-8")
FORMATS = {"u64": "Q", "u32": "I"}


# --- the page ---------------------------------------------------------------------------------------------------


def section(title: str) -> str:
    """The text under a heading, up to the next one of any level."""
    return re.split(r"^#+ ", PAGE.split(f"# {title}\n", 1)[1], maxsplit=1, flags=re.MULTILINE)[0]


def rows(text: str) -> list[list[str]]:
    """The cells of all rows of tables, without their heads."""
    found = []
    for table in re.findall(r"(?:^\|.*\n)+", text, re.MULTILINE):
        lines = [[cell.strip() for cell in line.strip("|\n ").split(" | ")] for line in table.splitlines()]
        found += lines[2:]
    return found


def fields(title: str) -> dict[str, tuple[int, str]]:
    """A table of fields as the code has them: name to offset and format."""
    return {name: (int(at), FORMATS.get(kind) or f"{kind.split()[0]}s") for at, kind, name, _ in rows(section(title))}


def number(text: str) -> int:
    """A number as the page writes it: 12, or 2^40."""
    base, _, power = text.partition("^")
    return int(base) ** int(power or 1)


@pytest.mark.parametrize(
    ("title", "table", "size"),
    [("Header", "HEADER", 4096), ("Slot", "SLOT", 512), ("Event", "EVENT", 288), ("Waiter", "WAITER", 32)],
)
def test_the_tables_of_the_page_are_those_of_the_code(title: str, table: str, size: int) -> None:
    found = fields(title)
    assert found == getattr(protocol, table)
    end = 0
    for name, (offset, form) in sorted(found.items(), key=lambda item: item[1]):
        assert offset >= end, f"{name} overlaps the field before it"
        assert form.endswith("s") or offset % struct.calcsize(form) == 0, f"{name} is not aligned"
        end = offset + struct.calcsize("<" + form)
    assert end <= size


def test_the_numbers_of_the_page_are_those_of_the_code() -> None:
    regions = rows(section("The control file"))
    offsets = [int(row[0]) for row in regions]
    assert offsets == [0, *protocol.JOURNALS, protocol.EVENT_RING, protocol.WAITERS, protocol.SLOTS]
    assert [row[1] for row in regions[1:3]] == [str(protocol.JOURNAL_SIZE)] * 2
    assert regions[3][1] == f"{protocol.EVENT_COUNT} × {protocol.EVENT_SIZE}"
    assert regions[4][1] == f"{protocol.WAITER_COUNT} × {protocol.WAITER_SIZE}"
    assert regions[5][1] == f"slots × {protocol.SLOT_SIZE}"
    head, piece = (rows(table) for table in re.findall(r"(?:^\|.*\n)+", section("Journal"), re.MULTILINE))
    for table, code in ((head, protocol.JOURNAL_HEAD), (piece, protocol.PIECE)):
        assert [row[0] for row in table] == ["0", "8", "12"]
        assert "<" + "".join(FORMATS[row[1]] for row in table) == code.format
    meanings = {row[2]: row[3] for row in rows(section("Slot"))}
    words = ("free", "live", "removed")
    assert dict(re.findall(r"(\d) (\w+)", meanings["state"])) == {
        str(state): word for state, word in zip((protocol.UNUSED, protocol.LIVE, protocol.GONE), words, strict=True)
    }
    flags = [(str(protocol.PROTECTED), "protected"), (str(protocol.CHECKED), "checked")]
    assert re.findall(r"(\d+) (\w+)", meanings["flags"]) == flags
    header = {row[2]: row[3] for row in rows(section("Header"))}
    assert header["magic"].startswith(f"`{protocol.MAGIC.decode()}`")
    assert header["version"] == str(protocol.VERSION)
    assert (header["slot_size"], header["slots_offset"]) == (str(protocol.SLOT_SIZE), str(protocol.SLOTS))
    locks = {(row[0].strip("`"), row[1]): row[2] for row in rows(section("Locks")) if row[1] != "slot"}
    bytes_locked = {(file, number(byte.split(" ")[0])) for file, byte in locks}
    assert bytes_locked == {
        ("commit", protocol.COMMIT_LOCK), ("commit", protocol.OWNER_LOCKS), ("commit", protocol.WAITER_LOCKS),
        ("commit", protocol.NAME_LOCKS),
    }  # fmt: skip
    assert f"`0x{protocol.HASH_FACTOR:X}`" in section("Names")
    limits = {row[0]: re.match(r"[\d^]+", row[1])[0] for row in rows(section("Limits"))}  # type: ignore[index]
    assert int(limits["a name"]) == protocol.NAME_MAX
    assert int(limits["events that a watcher may be behind"]) == protocol.EVENT_COUNT
    assert int(limits["waiters that can be woken at once"]) == protocol.WAITER_COUNT
    assert int(limits["a commit"]) == protocol.JOURNAL_SIZE - protocol.JOURNAL_HEAD.size


def test_the_kinds_of_the_page_are_those_of_the_code(tmp_path: Path) -> None:
    """Each object has the Arrow form that the table says, for pyarrow, and its mark."""
    values: dict[str, Any] = {
        "record_batch": sa.record_batch({"x": [1]}), "array": sa.array([1, 2]), "ndarray": np.arange(6).reshape(2, 3),
        "chunked_array": sa.chunked_array([[1], [2]]), "str": "a", "int": 1, "float": 0.5, "bool": True,
        "bytes": b"abc", "bytearray": bytearray(b"abc"), "memoryview": memoryview(b"abc"),
    }  # fmt: skip
    table = [row for row in rows(section("Objects")) if row[0] != "–"]
    assert {row[0].strip("`") for row in table} == set(kinds.MARKS) == set(values)
    with sa.Store(tmp_path / "store") as store:
        for kind, form, what in ((row[0].strip("`"), *row[1:]) for row in table):
            store.put(kind, values[kind])
            data = store.attach(kind).data.tobytes()
            assert kinds.KIND in data
            assert kind.encode() in data.split(kinds.KIND)[-1] + data.split(kinds.KIND)[-2]
            if form == "file":
                found = pa.ipc.open_file(data).read_all()
                assert ("`values`" in what) == (found.column_names == ["values"])
                continue
            tensor = pa.ipc.read_tensor(pa.py_buffer(data))
            numbers = tensor.to_numpy()
            if "one element" in what:
                assert (tensor.shape, numbers[0]) == ((1,), values[kind])
                assert f"{numbers.dtype}" in what
            elif kind == "str":
                assert (tensor.type, numbers.tobytes().decode()) == (pa.uint8(), values[kind])
            else:
                assert numbers.tobytes() == bytes(values[kind])
                assert "uint8" not in what or (tensor.type, tensor.shape) == (pa.uint8(), (3,))


# --- both on one store ------------------------------------------------------------------------------------------


class Peer:
    """The program in C, on one store."""

    def __init__(self, program: Path, folder: Path) -> None:
        self.program = program
        self.folder = folder

    def run(self, command: str, *words: object, status: int = 0) -> bytes:
        ran = subprocess.run([self.program, command, self.folder, *map(str, words)], capture_output=True, timeout=30)
        assert ran.returncode == status, f"{command} {words}: {ran.returncode}, {ran.stdout!r} {ran.stderr!r}"
        return ran.stdout

    def check(self) -> dict[str, int]:
        words = self.run("check").decode().split()
        return dict(zip(words[::2], map(int, words[1::2]), strict=True))

    def names(self) -> dict[str, int]:
        """Names and generations."""
        found = [line.split(" ", 2) for line in self.run("ls").decode().splitlines()]
        return {name: int(generation) for generation, _, name in found}

    def hold(self, name: str) -> subprocess.Popen[bytes]:
        words = [self.program, "hold", self.folder, name, "60"]
        process = subprocess.Popen(words, stdout=subprocess.PIPE)
        assert process.stdout is not None
        assert process.stdout.readline() == b"held\n"
        return process


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    compiler = shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
    if compiler is None or not sys.platform.startswith("linux") or sys.byteorder != "little":
        pytest.skip("no C compiler for Linux to build the second implementation with (Debian: gcc)")
    built = tmp_path_factory.mktemp("protocol") / "store"
    flags = ["-std=gnu11", "-O2", "-Wall", "-Wextra", "-Werror"]
    subprocess.run([compiler, *flags, ROOT / "tests" / "support" / "store.c", "-o", built], check=True, timeout=60)
    return built


_count = iter(range(1000))


@pytest.fixture
def made(program: Path) -> Iterator[Callable[..., tuple[sa.Store, Peer]]]:
    """Make a store in shared memory, and the peer on it."""
    stores = []

    def make(**settings: Any) -> tuple[sa.Store, Peer]:
        name = f"{PREFIX}protocol-{next(_count)}"
        stores.append(sa.Store(f"shm:{name}", **settings))
        return stores[-1], Peer(program, SHM / name)

    yield make
    for store in stores:
        store.destroy()


@functools.cache
def arrow_file(folder: Path, value: int, rows: int = 100) -> Path:
    """A file with one column of equal numbers, by another writer."""
    path = folder / f"{value}-{rows}.arrow"
    batch = pa.record_batch({"n": pa.array([value] * rows, pa.int64())})
    with pa.ipc.new_file(path, batch.schema) as writer:
        writer.write(batch)
    return path


def value_of(stored: Any) -> int:
    """The one number of such an object; torn ones have several."""
    values = stored["n"].to_numpy()
    assert values.min() == values.max()
    return int(values[0])


def test_what_one_writes_the_other_reads(made: Callable[..., tuple[sa.Store, Peer]], tmp_path: Path) -> None:
    store, peer = made()
    names = ["a", "queue/1", "ä" * 127, "x" * 255, "'\"\\ "] + [f"many-{i}" for i in range(60)]
    for value, name in enumerate(names):
        if value % 2:
            peer.run("put", name, arrow_file(tmp_path, value))
        else:
            store.put_file(name, arrow_file(tmp_path, value))
    assert peer.names() == {name: i + 1 for i, name in enumerate(names)}
    assert store.names() == sorted(names)
    for value, name in enumerate(names):
        assert value_of(store.get(name)) == value
        assert peer.run("get", name) == arrow_file(tmp_path, value).read_bytes()
        assert store.info(name).generation == value + 1
    assert peer.check()["objects"] == len(names) == peer.check()["events"]
    store.put("large", np.arange(400_000))
    found = peer.run("get", "large")
    assert found == Path(store.info("large").path).read_bytes()
    assert np.array_equal(
        np.frombuffer(found, np.int64, 400_000, found.index(np.arange(8).tobytes())), np.arange(400_000)
    )
    peer.run("put", "a", arrow_file(tmp_path, 0), status=4)
    peer.run("get", "none", status=3)
    peer.run("rm", "none", status=3)
    assert peer.check()["bytes"] == store.stats().nbytes
    with sa.Store(tmp_path / "disk", durable=True) as disk:
        other = Peer(peer.program, tmp_path / "disk")
        disk.put_file("a", arrow_file(tmp_path, 1))
        other.run("put", "b", arrow_file(tmp_path, 2))
        disk.put_file("b", arrow_file(tmp_path, 3), overwrite=True)
        other.run("put", "a", arrow_file(tmp_path, 4), "--overwrite")
        assert [value_of(disk.get(name)) for name in disk.names()] == [4, 3]
        other.run("rm", "a")
        assert other.check()["objects"] == 1


def test_replaced_removed_and_renamed(made: Callable[..., tuple[sa.Store, Peer]], tmp_path: Path) -> None:
    store, peer = made()
    one, two = arrow_file(tmp_path, 1), arrow_file(tmp_path, 2, 5000)
    with store.watch() as watch:
        store.put_file("a", one)
        peer.run("put", "a", two, "--overwrite")
        assert value_of(store.get("a")) == 2
        store.put_file("a", one, overwrite=True)
        assert peer.run("get", "a") == one.read_bytes()
        store.rename("a", "b")
        assert list(peer.names()) == ["b"]
        peer.run("get", "a", status=3)
        assert peer.run("get", "b") == one.read_bytes()
        assert peer.check()["objects"] == 1
        peer.run("rm", "b")
        assert store.names() == []
        with pytest.raises(sa.ObjectNotFound):
            store.get("b")
        peer.run("put", "c", two)
        store.delete("c")
        peer.run("get", "c", status=3)
        expected = [("published", "a")] * 3 + [("deleted", "a"), ("published", "b"), ("deleted", "b")]
        expected += [("published", "c"), ("deleted", "c")]
        assert [watch.get(timeout=5)[:2] for _ in expected] == expected
    assert peer.check() == {"objects": 0, "bytes": 0, "removed": 0, "events": 8}
    store.put_file("soon", one, expire_after=0)
    peer.run("get", "soon", status=3)
    peer.run("put", "soon", two)
    assert value_of(store.get("soon")) == 2
    assert peer.check()["objects"] == 1


def test_pins_of_either_are_respected(made: Callable[..., tuple[sa.Store, Peer]], tmp_path: Path) -> None:
    store, peer = made(capacity=1 << 20)
    one = arrow_file(tmp_path, 1, 5000)
    size = -(-one.stat().st_size // 4096) * 4096
    for name in ("a", "b", "c"):
        store.put_file(name, one)
    holder = peer.hold("a")
    try:
        assert store.info("a").pins == 1
        assert store.evict(2 * size) == ["b", "c"]
        with pytest.raises(sa.StoreFull):
            store.evict(1)
        store.delete("a")
        assert peer.check()["removed"] == size
        assert store.stats().removed == size
        peer.run("put", "a", one)  # in another slot, as that one is pinned
        assert store.info("a").pins == 0
        assert peer.check()["removed"] == size
    finally:
        holder.kill()
        holder.wait()
    store.collect()
    assert peer.check() == {"objects": 1, "bytes": size, "removed": 0, "events": 7}
    held = store.get("a")
    peer.run("rm", "a")
    peer.run("put", "a", one)
    assert peer.check()["removed"] == size
    assert value_of(held) == 1
    del held
    store.put_file("b", one)
    assert peer.check()["removed"] == 0


def test_the_peer_is_killed_anywhere(made: Callable[..., tuple[sa.Store, Peer]], tmp_path: Path) -> None:
    store, peer = made(capacity=1 << 26)
    for rows in (10, 150_000):
        files = [arrow_file(tmp_path, value, rows) for value in (0, 1)]
        store.put_file("a", files[0], overwrite=True)
        value = changes = 0
        for step in range(1, 100):
            words = [peer.program, "die", peer.folder, "a", files[1 - value], str(step)]
            ran = subprocess.run(words, capture_output=True, timeout=30)
            if ran.returncode == 0:
                break
            assert ran.returncode == -signal.SIGKILL, ran
            if step % 4:  # otherwise the first to come is a reader, who may find a commit half applied
                store.put("other", b"x", overwrite=True)
            found = value_of(store.get("a"))
            if step % 4:
                peer.check()
            store.put("other", b"x", overwrite=True)
            after = value_of(store.get("a"))
            assert after in (found, 1 - value)
            changes += after != value
            value = after
        assert step > 20
        assert 5 < changes < step - 5
        assert peer.check()["objects"] == 2
    assert len(os.listdir(peer.folder)) == 4  # one object is inline


COMMITTING = tuple(f"shmarrow/store/{name}.py" for name in ("control", "transaction"))
"""The files that change what other processes see."""


def test_python_is_killed_anywhere(made: Callable[..., tuple[sa.Store, Peer]], tmp_path: Path) -> None:
    store, peer = made()
    files = {value: arrow_file(tmp_path, value) for value in (0, 1)}
    images = {path.read_bytes(): value for value, path in files.items()}
    store.put_file("a", files[0])
    value = ends = 0
    step = 1
    while killed(lambda: store.put_file("a", files[1 - value], overwrite=True), 9 * step, COMMITTING):  # noqa: B023
        found = value if step % 4 else images[peer.run("get", "a")]  # one of the two, whole; also half applied
        assert peer.check()["objects"] == 1
        after = images[peer.run("get", "a")]
        assert after in (found, 1 - value)
        ends += after != value
        value = after
        step += 1
    assert step > 30
    assert 5 < ends < step - 5  # killed before the commit, and after it
    assert len(os.listdir(peer.folder)) == 4


def test_writers_of_both_kinds_at_once(made: Callable[..., tuple[sa.Store, Peer]], tmp_path: Path) -> None:
    store, peer = made(capacity=1 << 20)
    files = [arrow_file(tmp_path, value, 100 + value * 500) for value in range(8)]
    images = {path.read_bytes() for path in files}
    store.put_file("n0", files[0])  # which is only ever replaced, so it is always there

    def churn(number: int) -> None:
        random = np.random.default_rng(number)
        for _ in range(400):
            name, path = f"n{random.integers(12)}", files[random.integers(8)]
            try:
                match random.integers(4):
                    case 0 if name != "n0":
                        store.delete(name)
                    case 1:
                        assert value_of(store.get(name)) < 8
                    case _:
                        store.put_file(name, path, overwrite=True)
            except sa.ObjectNotFound:
                assert name != "n0"

    children = [forked(lambda: churn(number)) for number in range(2)]  # noqa: B023
    done = [0, 0]
    wrong: list[object] = []

    def work(number: int) -> None:
        random = np.random.default_rng(10 + number)
        for _ in range(100):
            name, path = f"n{random.integers(12)}", files[random.integers(8)]
            command = ("rm" if name != "n0" else "get", "get", "put")[min(random.integers(4), 2)]
            words = [peer.program, command, peer.folder, name, *((path, "--overwrite") if command == "put" else ())]
            ran = subprocess.run(words, capture_output=True, timeout=30)
            if ran.returncode not in ((0,) if name == "n0" else (0, 3)) or (
                command == "get" and not ran.returncode and ran.stdout not in images
            ):
                wrong.append((words, ran.returncode, ran.stderr))
            done[number] += ran.returncode == 0

    threads = [threading.Thread(target=work, args=(number,)) for number in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    end_well(children)
    assert not wrong
    assert min(done) > 20
    found = peer.check()
    assert found["objects"] == len(store.names())
    assert found["bytes"] + found["removed"] <= 1 << 20
    assert found["events"] > 100


def change(folder: Path, offset: int, data: bytes) -> None:
    """Write into the control file, past everybody."""
    fd = os.open(folder / "control", os.O_WRONLY)
    os.pwrite(fd, data, offset)
    os.close(fd)


def test_an_unknown_version_is_left_alone(made: Callable[..., tuple[sa.Store, Peer]], tmp_path: Path) -> None:
    store, peer = made()
    store.put("a", b"x")
    copy = tmp_path / "copy"
    shutil.copytree(peer.folder, copy)
    change(copy, protocol.HEADER["version"][0], bytes([protocol.VERSION + 1]))
    before = {path.name: path.read_bytes() for path in copy.iterdir()}
    Peer(peer.program, copy).run("check", status=1)
    with pytest.raises(sa.InvalidData, match="expected version 3, found 4"):
        sa.Store(copy)
    assert {path.name: path.read_bytes() for path in copy.iterdir()} == before


def test_a_store_of_an_earlier_boot_is_rebuilt(program: Path, tmp_path: Path) -> None:
    store = sa.Store(tmp_path / "store", durable=True)
    peer = Peer(program, tmp_path / "store")
    files = {name: arrow_file(tmp_path, value, 50) for value, name in enumerate("abcdefgh")}
    for name, file in files.items():
        store.put_file(name, file)
    path = tmp_path / "copy"
    shutil.copytree(peer.folder, path)
    lost = Path(store.info("b").path).name
    (path / lost).unlink()
    (path / "00000000000000ff").write_bytes(b"nobody's")
    change(path, protocol.HEADER["boot_id"][0], b"another boot, id")
    change(path, protocol.HEADER["free"][0], bytes(96))  # counters, lists
    for slot in range(8):
        change(path, protocol.SLOTS + slot * protocol.SLOT_SIZE + protocol.HEAD, b"\1\0\0\0\1\0\0\0")  # circles
    change(path, protocol.SLOTS + 2 * protocol.SLOT_SIZE + protocol.PAYLOAD, b"C")  # a slot with a wrong crc
    change(path, protocol.SLOTS + 3 * protocol.SLOT_SIZE + protocol.PAYLOAD + 9, b"?")  # what the crc does not cover
    control = (path / "control").read_bytes()
    change(path, protocol.SLOTS + 20 * protocol.SLOT_SIZE, control[protocol.SLOTS :][: protocol.SLOT_SIZE])  # "a" again
    other = Peer(peer.program, path)
    other.run("check", status=1)
    with sa.Store(path) as rebuilt:
        assert rebuilt.names() == list("adefgh")
        assert [value_of(rebuilt.get(name)) for name in "adefgh"] == [0, 3, 4, 5, 6, 7]
        rebuilt.put_file("new", files["a"])
        assert rebuilt.info("new").generation > 8
        assert other.check()["objects"] == 7
        other.run("put", "newer", files["b"])
        assert len(rebuilt) == 8
    assert not (path / "00000000000000ff").exists()


def test_who_may_only_read_is_told_of_a_half_applied_commit(
    made: Callable[..., tuple[sa.Store, Peer]], tmp_path: Path
) -> None:
    lab.needs_root("another user")
    store, peer = made(mode=0o644)
    files = [arrow_file(tmp_path, value) for value in (0, 1)]
    store.put_file("a", files[0])
    found = []
    for step in (12, 16, 20):
        control = (peer.folder / "control").read_bytes()
        words = [peer.program, "die", peer.folder, "a", files[1], str(step)]
        assert subprocess.run(words, timeout=30).returncode == -signal.SIGKILL
        after = (peer.folder / "control").read_bytes()
        odd = after[protocol.HEADER["sequence"][0]] % 2
        read = f"""
import shmarrow as sa
with sa.Store({str(peer.folder)!r}, create=False, accept_users=True) as store:
    try:
        result = store.get("a")["n"].to_pylist()[0], store.names(), "b" in store
    except sa.StorageError as error:
        result = "was stopped or killed in the middle of a change" in str(error)
"""
        found.append((odd, lab.as_user(read)))
        assert control != after == (peer.folder / "control").read_bytes()
        peer.check()
        store.put_file("a", files[0], overwrite=True)
    assert found == [(1, True), (1, True), (0, (1, ["a"], False))]
