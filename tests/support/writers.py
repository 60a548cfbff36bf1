"""The writers of the package, each with a place to write to and with what it reads back; for tests of how they end."""

from __future__ import annotations

import os
import resource
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

import shmarrow as sa
from shmarrow import segment
from shmarrow.store.protocol import COMMIT, CONTROL, PINS

BATCH = sa.record_batch({"x": np.arange(100), "d": sa.array(["a", "b"] * 50).dictionary_encode()})
SCHEMA = BATCH.schema
ROWS = BATCH.to_pydict()
ONE = sa.schema([("x", sa.int64())])

LIFE = ("memory/life_cycle.py", "memory/state_machine.py")


@contextmanager
def files_of_at_most(size: int) -> Iterator[None]:
    """The operating system refuses to write more to any file of this process."""
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    before = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, limits[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        signal.signal(signal.SIGXFSZ, before)


class Folder:
    """A folder with at most one object."""

    def __init__(self, path: Path) -> None:
        self.folder = path
        self.path = path / "a"

    def value(self, read: Callable[[Any], Any]) -> Any:
        """The value of the object, or None; nothing else may be there."""
        left = set(os.listdir(self.folder))
        assert left <= {"a"}, left
        return read(self.path) if left else None

    def settle(self) -> None:
        """Remove what a killed process left, as the next writer of the name does."""
        segment.collect_leftovers(str(self.folder))

    def clear(self) -> None:
        """Remove the object; no writer is open."""
        self.path.unlink(missing_ok=True)

    def close(self) -> None:
        """Remove everything."""
        self.clear()


class InStore(Folder):
    """A store with at most one object."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self.store = sa.Store(path / "store", capacity=64 << 20)

    def value(self, read: Callable[[Any], Any]) -> Any:
        names = self.store.names()
        if not names:
            self.settle()  # a file that was about to be published when an interrupt came
        files = set(os.listdir(self.store.path)) - {CONTROL, PINS, COMMIT}
        assert len(files) == len(names) <= 1, files
        return read(self.store) if names else None

    def settle(self) -> None:
        self.store.collect()

    def clear(self) -> None:
        self.settle()
        self.store.clear()

    def close(self) -> None:
        self.clear()
        self.store.destroy()
        self.store.close()


class Kind(NamedTuple):
    """A kind of writer."""

    open: Callable[[Any], Any]  # returns a writer to a place
    write: Callable[[Any], Any]  # a call of the writer, which may be repeated
    read: Callable[[Any], Any]  # how often that call counts in what was published at the path, or in the store
    files: tuple[str, ...]  # where its own code is, besides LIFE
    place: type[Folder] = Folder  # where it is published
    replaces: bool = False  # an object of another writer that was published meanwhile


def of_bytes(path: Any) -> int:
    with segment.attach(path) as found:
        data = found.data.tobytes()
    assert data == b"abc" * (len(data) // 3)
    return len(data) // 3


def of_batches(reader: Any) -> int:
    with reader:
        batches = list(reader)
    assert [batch.to_pydict() for batch in batches] == [ROWS] * len(batches)
    return len(batches)


def of_draft(batch: Any) -> int:
    found = set(batch.to_pydict()["x"])
    assert found in ({0}, {7})
    return int(found == {7})


def fill(draft: Any) -> None:
    """As all that use an array, it must know itself whether the draft was closed meanwhile."""
    draft.valid("x")
    array = draft["x"]
    if not array.flags.writeable:
        raise sa.Closed("the draft is closed")
    array[:] = 7


def of_tensor(path: Any) -> int:
    found = set(sa.ipc.read_tensor(path).to_numpy().tolist())
    assert found in ({0}, {7})
    return int(found == {7})


def fill_tensor(writer: Any) -> None:
    """As all that use an array, it must know itself whether the writer is closed."""
    if writer.closed:
        raise sa.Closed("the writer is closed")
    writer.array[:] = 7


SEGMENT = ("memory/segment_writer.py", "memory/unnamed_file.py", "memory/files.py")
BATCHES = ("ipc/stream/writer.py", "ipc/file/writer.py")

KINDS = {
    "segment": Kind(lambda at: segment.create(at.path), lambda writer: writer.write([b"abc"]), of_bytes, SEGMENT),
    "segment that replaces": Kind(
        lambda at: segment.create(at.path, overwrite=True, mode=None),
        lambda writer: writer.write([b"abc"]),
        of_bytes,
        SEGMENT,
        replaces=True,
    ),
    "file": Kind(
        lambda at: sa.ipc.new_file(at.path, SCHEMA, overwrite=False),
        lambda writer: writer.write(BATCH),
        lambda path: of_batches(sa.ipc.open_file(path)),
        BATCHES,
    ),
    "stream": Kind(
        lambda at: sa.ipc.new_stream(at.path, SCHEMA),
        lambda writer: writer.write(BATCH),
        lambda path: of_batches(sa.ipc.open_stream(path)),
        BATCHES,
        replaces=True,
    ),
    "tensor": Kind(
        lambda at: sa.ipc.new_tensor(at.path, (1000,), "int64"),
        fill_tensor,
        of_tensor,
        ("ipc/tensor/writer.py",),
        replaces=True,
    ),
    "draft": Kind(
        lambda at: sa.ipc.new_draft(at.path, ONE, 1000),
        fill,
        lambda path: of_draft(sa.ipc.open_file(path).get_batch(0)),
        ("ipc/draft.py",),
        replaces=True,
    ),
    "draft in a store": Kind(
        lambda at: at.store.new_draft("a", ONE, 200_000),
        fill,
        lambda store: of_draft(store.get("a")),
        ("store/publish.py",),
        InStore,
    ),
    "file in a store": Kind(
        lambda at: at.store.new_file("a", SCHEMA),
        lambda writer: writer.write(BATCH),
        lambda store: of_batches(sa.ipc.open_file(store.attach("a"))),
        ("store/publish.py",),
        InStore,
    ),
}


class Case:
    """A kind of writer and the place for it."""

    def __init__(self, name: str, path: Path) -> None:
        self.name = name
        self.kind = KINDS[name]
        self.files = LIFE + self.kind.files
        self.place = self.kind.place(path)

    def open(self) -> Any:
        return self.kind.open(self.place)

    def write(self, writer: Any) -> None:
        self.kind.write(writer)

    def value(self) -> Any:
        """Return how often a writer that has published was written to; nothing else may be there."""
        return self.place.value(self.kind.read)

    def clear(self) -> None:
        """Undo what was published."""
        self.place.clear()
