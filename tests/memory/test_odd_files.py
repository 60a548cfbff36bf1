"""File objects and paths that behave in their own way: what they say counts, and what they break has our error."""

from __future__ import annotations

import errno
import io
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from forms import file_of, stream_of

import shmarrow as sa
from shmarrow.memory import open_source

BATCH = sa.record_batch({"x": [1, 2, 3]})


FILE, STREAM = file_of(BATCH), stream_of(BATCH)


def _flipped(data: Any) -> bytes:
    return bytes(byte ^ 1 for byte in data)


def _flip(view: Any, size: int) -> int:
    part = memoryview(view).cast("B")[:size]
    part[:] = _flipped(part)
    return size


class FlippedRaw(io.FileIO):
    """Decrypts what it reads."""

    def read(self, size: int | None = -1, /) -> bytes:
        return _flipped(super().read(-1 if size is None else size))

    def readall(self) -> bytes:
        return self.read()

    def readinto(self, view: Any, /) -> int:
        return _flip(view, super().readinto(view))


class FlippedBuffered(io.BufferedReader):
    """Decrypts what it reads from its buffer."""

    def read(self, size: int | None = -1, /) -> bytes:
        return _flipped(super().read(size))

    def readinto(self, view: Any, /) -> int:
        return _flip(view, super().readinto(view))


class FlippedRead(io.FileIO):
    """Decrypts in ``read``, and knows of no other way to read."""

    def read(self, size: int | None = -1, /) -> bytes:
        return _flipped(super().read(-1 if size is None else size))


class Shifted(io.FileIO):
    """The bytes of a container from the third on."""

    def seek(self, offset: int, whence: int = 0, /) -> int:
        return super().seek(offset + (0 if whence else 3), whence) - 3

    def tell(self) -> int:
        return super().tell() - 3


DECRYPTING: list[Callable[[Path], Any]] = [
    lambda path: FlippedRaw(path),
    lambda path: io.BufferedReader(FlippedRaw(path)),
    lambda path: FlippedBuffered(io.FileIO(path)),
    lambda path: FlippedRead(path),
]


@pytest.mark.parametrize("kind", range(len(DECRYPTING)))
@pytest.mark.parametrize("memory_map", [True, False])
def test_a_subclass_that_reads_in_its_own_way_is_read_by_it(tmp_path: Path, kind: int, memory_map: bool) -> None:
    """The bytes of its descriptor are others, so it is not mapped."""
    for opened, data in ((sa.ipc.open_file, FILE), (sa.ipc.open_stream, STREAM)):
        (tmp_path / "a").write_bytes(_flipped(data))
        with DECRYPTING[kind](tmp_path / "a") as file:
            assert opened(file, memory_map=memory_map).read_all().to_pydict() == {"x": [1, 2, 3]}  # type: ignore[operator]


def test_a_subclass_that_seeks_in_its_own_way_is_asked_to(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"abc" + FILE)
    with Shifted(tmp_path / "a") as file:
        assert sa.ipc.open_file(file).read_all().to_pydict() == {"x": [1, 2, 3]}


def test_what_changes_nothing_is_mapped_still(tmp_path: Path) -> None:
    class Named(io.FileIO):
        label = "mine"

    (tmp_path / "a").write_bytes(FILE)
    raw = [Named(tmp_path / "a"), *(io.FileIO(tmp_path / "a", mode) for mode in ("r", "r", "r+"))]
    for file in (*raw[:2], io.BufferedReader(raw[2]), io.BufferedRandom(raw[3])):
        with file:
            assert open_source(file).mapped


class Saying(io.BytesIO):
    """Says what it was told to of where it stands."""

    def __init__(self, position: Any) -> None:
        super().__init__(FILE)
        self.position = position

    def tell(self) -> int:
        return self.position  # type: ignore[no-any-return]


@pytest.mark.parametrize("position", [None, "x", -1, 1.5, True, b"", 2**63, 2**70], ids=repr)
def test_a_position_that_is_none(position: Any) -> None:
    with pytest.raises(sa.InvalidType, match="tell\\(\\) of a Saying should give"):
        sa.ipc.open_file(Saying(position))


def _detached(mode: str, path: Path) -> Any:
    file = open(path, mode)  # noqa: SIM115
    file.detach().close()  # type: ignore[attr-defined]
    return file


def test_a_detached_buffer(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(FILE)
    for use in (sa.ipc.open_file, sa.ipc.open_stream):
        with pytest.raises(sa.StorageError, match=r"a BufferedReader.*detached"):
            use(_detached("rb", tmp_path / "a"))  # type: ignore[operator]
    with pytest.raises(sa.StorageError, match=r"a BufferedWriter.*detached"):
        sa.ipc.new_stream(_detached("wb", tmp_path / "b"), BATCH.schema)


def test_a_file_object_that_cannot_say_whether_it_is_closed() -> None:
    class Broken:
        @property
        def closed(self) -> bool:
            raise RuntimeError("lost")

        def read(self, size: int) -> bytes:
            return b""

        def write(self, data: Any) -> int:
            return len(data)

    uses: list[Callable[[Any], Any]] = [
        sa.ipc.open_file,
        sa.ipc.open_stream,
        lambda file: sa.ipc.new_stream(file, BATCH.schema),
    ]
    for use in uses:
        with pytest.raises(sa.StorageError, match="RuntimeError: lost") as found:
            use(Broken())
        assert found.value.errno == errno.EIO


class PathLike:
    def __init__(self, answer: Any) -> None:
        self.answer = answer

    def __fspath__(self) -> Any:
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer


@pytest.mark.parametrize("answer", [5, None, TypeError("no"), ValueError("no"), RuntimeError("no")], ids=repr)
def test_a_path_that_is_none(answer: Any) -> None:
    uses: list[Callable[[Any], Any]] = [
        sa.ipc.open_file,
        lambda where: sa.ipc.open_file(where, memory_map=False),
        lambda where: sa.ipc.new_file(where, BATCH.schema),
        sa.segment.attach,
        sa.segment.delete,
        sa.Store,
    ]
    for use in uses:
        with pytest.raises(sa.InvalidType, match="__fspath__ of a PathLike failed"):
            use(PathLike(answer))


def test_a_pipe_that_does_not_take_what_is_flushed() -> None:
    """The error is that of a write which is not accepted, not that of a reader."""
    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    raw = io.FileIO(writer, "w")
    file = io.BufferedWriter(raw, 1 << 20)
    target = sa.ipc.new_stream(file, BATCH.schema)
    target.write(sa.record_batch({"x": list(range(20_000))}))
    with pytest.raises(sa.StorageError, match="pass a file object in blocking mode") as found:
        target.close()
    assert found.value.errno == errno.EAGAIN
    os.close(reader)
    raw.close()
