"""The sides of the suite ``store``: this package's store and its peers, each used in the way that is usual for it.

A value is 800 bytes or more of float64, as one array or as the columns of a batch. Peers that keep bytes get them ready
made and give them back as bytes, around which ``numpy.frombuffer`` makes an array: neither pickling nor copying into
arrays is counted against them. A ``get`` ends when the first value has been read.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from multiprocessing import resource_tracker, shared_memory
from pathlib import Path
from typing import Any, Protocol

import diskcache
import lmdb
import numpy as np

import shmarrow as sa

LARGE = 1 << 36


class Side(Protocol):
    """A store of named values, opened by the process that uses it."""

    def put(self, name: str, value: Any) -> None:
        """Put a value, in place of one of this name if there is one."""

    def get(self, name: str) -> float:
        """Have a value, and read its first number."""

    def remove(self, name: str) -> None:
        """Remove a value."""

    def fill(self, names: list[str], value: Any) -> None:
        """Put many values, as fast as this store can."""

    def close(self) -> None:
        """Let go of the store."""


class Ours:
    """A store of this package."""

    def __init__(self, path: Path, column: str | None = None, **settings: Any) -> None:
        self.store = sa.Store(path, **settings)
        self.column = column

    def put(self, name: str, value: Any) -> None:
        self.store.put(name, value, overwrite=True)

    def get(self, name: str) -> float:
        value = self.store.get(name)
        return value[0] if self.column is None else value[self.column][0]

    def remove(self, name: str) -> None:
        self.store.delete(name)

    def fill(self, names: list[str], value: Any) -> None:
        for start in range(0, len(names), 1000):
            [self.store.put(name, value, overwrite=True) for name in names[start : start + 1000]]

    def close(self) -> None:
        self.store.close()


class DiskCache:
    """``diskcache.Cache`` with its default settings.

    It keeps larger values in files, and a ``get`` whose file is replaced meanwhile finds nothing; it is repeated then.
    """

    def __init__(self, path: Path) -> None:
        self._cache = diskcache.Cache(str(path))

    def put(self, name: str, value: bytes) -> None:
        self._cache.set(name, value)

    def get(self, name: str) -> float:
        while (value := self._cache.get(name)) is None:
            pass
        return np.frombuffer(value)[0]

    def remove(self, name: str) -> None:
        self._cache.delete(name)

    def fill(self, names: list[str], value: bytes) -> None:
        for start in range(0, len(names), 1000):
            with self._cache.transact():
                for name in names[start : start + 1000]:
                    self._cache.set(name, value)

    def close(self) -> None:
        self._cache.close()


class SharedMemory:
    """``multiprocessing.shared_memory``: a segment of its own for each value; they all go when the side is closed.

    As it comes, Python tells a process of its own about each segment, by which it would remove segments at the end that
    it does not own. From Python 3.13 on its users can do without that; before, ``tracked=False`` has it replaced.
    """

    def __init__(self, prefix: str, shape: tuple[int, ...], tracked: bool = sys.version_info < (3, 13)) -> None:
        self.prefix, self._shape = prefix, shape
        self._tracked = tracked
        self._told: set[str] = set()

    def _segment(self, name: str, **how: Any) -> shared_memory.SharedMemory:
        if self._tracked:
            self._told.add(name)
            return shared_memory.SharedMemory(self.prefix + name, **how)
        return _untracked(self.prefix + name, **how)

    def put(self, name: str, value: Any) -> None:
        memory = self._segment(name, create=True, size=value.nbytes)
        np.ndarray(self._shape, np.float64, memory.buf)[...] = value
        memory.close()

    def get(self, name: str) -> float:
        memory = self._segment(name)
        value = np.ndarray(self._shape, np.float64, memory.buf).item(0)
        memory.close()
        return value

    def remove(self, name: str) -> None:
        os.unlink(f"/dev/shm/{self.prefix}{name}")
        self._forget(name)

    def _forget(self, name: str) -> None:
        if name in self._told:
            self._told.discard(name)
            resource_tracker.unregister(f"/{self.prefix}{name}", "shared_memory")

    def fill(self, names: list[str], value: Any) -> None:
        for name in names:
            Path(f"/dev/shm/{self.prefix}{name}").write_bytes(value)

    def close(self) -> None:
        for name in list(self._told):
            self._forget(name)
        for entry in os.scandir("/dev/shm"):
            if entry.name.startswith(self.prefix):
                os.unlink(entry.path)


class _NoTracker:
    """Stands in for the one that is told about segments."""

    @staticmethod
    def register(name: str, kind: str) -> None: ...


def _untracked(name: str, **how: Any) -> shared_memory.SharedMemory:
    if sys.version_info >= (3, 13):
        return shared_memory.SharedMemory(name, track=False, **how)
    module: Any = shared_memory
    module.resource_tracker = _NoTracker
    try:
        return shared_memory.SharedMemory(name, **how)
    finally:
        module.resource_tracker = resource_tracker


class Lmdb:
    """LMDB without syncing, for information: it keeps the bytes of all values in one file."""

    def __init__(self, path: Path) -> None:
        self._environment = lmdb.open(str(path), map_size=LARGE, sync=False, metasync=False, max_readers=64)

    def put(self, name: str, value: bytes) -> None:
        with self._environment.begin(write=True) as transaction:
            transaction.put(name.encode(), value)

    def get(self, name: str) -> float:
        with self._environment.begin(buffers=True) as transaction:
            return np.frombuffer(transaction.get(name.encode()))[0]

    def remove(self, name: str) -> None:
        with self._environment.begin(write=True) as transaction:
            transaction.delete(name.encode())

    def fill(self, names: list[str], value: bytes) -> None:
        with self._environment.begin(write=True) as transaction:
            for name in names:
                transaction.put(name.encode(), value)

    def names(self) -> list[bytes]:
        with self._environment.begin() as transaction, transaction.cursor() as cursor:
            return list(cursor.iternext(values=False))

    def close(self) -> None:
        self._environment.close()


Opener = Callable[[], Side]


@contextmanager
def opened(openers: Iterable[tuple[str, Opener]]) -> Iterator[dict[str, Side]]:
    """Sides by their names, closed at the end."""
    with ExitStack() as stack:
        sides: dict[str, Side] = {}
        for name, opener in openers:
            sides[name] = side = opener()
            stack.callback(_close, side)
        yield sides


def _close(side: Side) -> None:
    with suppress(FileNotFoundError):
        side.close()
