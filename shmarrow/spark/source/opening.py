"""One file or stream of a read: opened, and known again in another process.

Invariants:

* a task opens what the plan has seen: size, both ends of the bytes and, on the host of the plan, the time of change
  have to be the same, else it is an error. Inodes are not compared: not every file system keeps them;
* after its rows are read they are looked at again, so that rows of a file that is overwritten in place do not count.
"""

from __future__ import annotations

import errno
import os
import re
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

from shmarrow import ipc, segment
from shmarrow.errors import (
    DEFAULT_LIMITS,
    InvalidData,
    ObjectNotFound,
    ShmarrowError,
    StorageError,
    Unsupported,
    as_limits,
)
from shmarrow.ipc.file.footer import MAGIC
from shmarrow.segment import Segment
from shmarrow.segment.host import boot_id, host_name
from shmarrow.sources.formats import HEAD, recognized

_HEAD, _TAIL = 1 << 12, 1 << 16
_SPARK = {
    "a Parquet file": "spark.read.parquet",
    "an ORC file": "spark.read.orc",
    "JSON text": "spark.read.json",
    "text, such as CSV": "spark.read.csv",
}
"""What reads other formats in Spark, by what messages call them."""
_PYTHON = re.compile(r"pass [\w.]+\(path\)")
_stores: dict[str, Any] = {}
"""The stores that this process reads from; they stay open, so that opening one again costs nothing."""


class Place(NamedTuple):
    """Where rows lie.

    Attributes
    ----------
    where : str
        An absolute path, a ``shm:`` name, or the name of an object of a store.
    store : str or None
        The location of that store.
    """

    where: str
    store: str | None = None

    def __str__(self) -> str:
        return self.where if self.store is None else f"{self.where} in the store {self.store}"


class Seen(NamedTuple):
    """A file as the plan has seen it.

    Attributes
    ----------
    place : Place
        Where it lies.
    size : int
        Its bytes.
    ends : int
        A checksum of the first and the last of them.
    changed : int
        When it was last changed, in ns.
    boot, host : str
        Where it was seen: the boot id, and the name of the host.
    """

    place: Place
    size: int
    ends: int
    changed: int
    boot: str
    host: str


def seen(place: Place, found: Segment) -> Seen:
    """What is attached, to be known again."""
    data = found.data
    ends = zlib.crc32(data[-_TAIL:].data, zlib.crc32(data[:_HEAD].data))
    return Seen(place, found.size, ends, found.status.st_mtime_ns, boot_id(), host_name())


@contextmanager
def opened(place: Place, trust: bool = False, was: Seen | None = None) -> Iterator[tuple[Any, Segment]]:
    """A reader of a file or a stream, and its bytes; nothing is copied.

    Parameters
    ----------
    place : Place
        Where it lies.
    trust : bool
        Whether its values are handed on without checks.
    was : Seen, optional
        What it has to be.

    Raises
    ------
    ObjectNotFound
        If it is not there.
    StorageError
        If it is not what was seen, or cannot be read.
    InvalidData
        If it is neither an Arrow file nor a stream, or a broken one.
    """
    with _attach(place, was) as found:
        now = seen(place, found)
        if was is not None:
            _compare(was, now)
        is_file = found.data[: len(MAGIC)].tobytes() == MAGIC
        limits = as_limits(DEFAULT_LIMITS, trust)
        try:
            reader = (ipc.open_file if is_file or not found.size else ipc.open_stream)(found, limits=limits)
        except (InvalidData, Unsupported) as error:
            _for_spark(place, found, error)
            raise
        try:
            yield reader, found
        finally:
            reader.close()
        if was is not None:
            _check_unchanged(was, found)


def _for_spark(place: Place, found: Segment, error: ShmarrowError) -> None:
    """Let an error say what Spark's users can do, and the name of an object of a store, whose file has another."""
    name, hint = recognized(found.data[:HEAD].tobytes())
    if hint is not None and error.hint == hint:
        reader = _SPARK.get(name)
        error.hint = f"{reader}(path) reads it" if reader else _PYTHON.sub("decompress it first", hint)
    if place.store is not None:
        error.args = (error.message.replace(found.name, str(place), 1),)


def _attach(place: Place, was: Seen | None) -> Segment:
    try:
        if place.store is None:
            return _attach_path(place.where)
        return _store(place.store).attach(place.where)  # type: ignore[no-any-return]
    except ObjectNotFound as error:
        if was is None:
            raise
        hint = "it was removed meanwhile"
        if was.boot != boot_id():
            hint = f"this is host {host_name()!r}: all hosts have to see the file under the same path"
        text = f"{error.problem}; the query was planned on host {was.host!r}, which had it"
        raise ObjectNotFound(errno.ENOENT, text, hint=hint) from None


def _attach_path(path: str) -> Segment:
    """A file; one that an overwrite has moved since it was listed, from where it is now."""
    try:
        return segment.attach(path)
    except ObjectNotFound:
        if path.startswith(segment.SHM_SCHEME):
            raise
        from shmarrow.spark.source.directory import open_data

        return open_data(path, segment.attach)


def _store(location: str) -> Any:
    from shmarrow.store import Store

    if location not in _stores:
        _stores[location] = Store(location, create=False)
    return _stores[location]


def _compare(was: Seen, now: Seen) -> None:
    same = (was.size, was.ends) == (now.size, now.ends)
    if same and (was.boot != now.boot or was.changed == now.changed):
        return
    what = f"it had {was.size} bytes and has {now.size}" if was.size != now.size else "its content differs"
    raise StorageError(
        errno.ESTALE,
        f"{was.place} was changed after the query was planned on host {was.host!r}: {what}; run the query again",
    )


def _check_unchanged(was: Seen, found: Segment) -> None:
    """Refuse rows of a file that was overwritten in place; one that was replaced stays as it was in the mapping."""
    try:
        status = os.stat(found._path)
    except OSError:
        return  # removed; the mapping keeps it
    if status.st_ino != found.status.st_ino or status.st_dev != found.status.st_dev:
        return
    if (status.st_size, status.st_mtime_ns) != (found.status.st_size, found.status.st_mtime_ns):
        raise StorageError(errno.ESTALE, f"{was.place} was changed while it was read; run the query again")
