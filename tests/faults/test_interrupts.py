"""Signal handlers and callbacks in the middle of what their own thread does: no deadlock, no mixed messages."""

from __future__ import annotations

import io
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from forms import message_of, stream_of
from measures import mappings

import shmarrow as sa

BATCH = sa.record_batch({"x": list(range(1000))})


def write_often(writer: Any, times: int = 10) -> None:
    for _ in range(times):
        writer.write(BATCH)


class CallsBack(io.RawIOBase):
    """A file object that calls somebody at its third write or read."""

    def __init__(self, data: bytes = b"") -> None:
        self.data = io.BytesIO(data)
        self.then: Callable[[], Any] = lambda: None
        self.calls = 0

    def _count(self) -> None:
        self.calls += 1
        if self.calls == 3:
            self.then()

    def writable(self) -> bool:
        return True

    def readable(self) -> bool:
        return True

    def write(self, view: Any) -> int:
        self._count()
        return self.data.write(view)

    def readinto(self, view: Any) -> int:
        self._count()
        return self.data.readinto(view)


@pytest.mark.parametrize("end", ["abort", "close"])
def test_a_writer_that_is_ended_in_the_middle_of_a_write(end: str) -> None:
    """Output that is half written gets no end, so that it never looks whole."""
    sink = CallsBack()
    writer = sa.ipc.new_stream(sink, BATCH.schema)
    sink.then = getattr(writer, end)
    with pytest.raises((sa.Closed, sa.Failed)):
        write_often(writer)
    writer.close()
    found = sink.data.getvalue()
    assert not found.endswith(b"\xff\xff\xff\xff\0\0\0\0")


def test_a_write_within_a_write() -> None:
    sink = CallsBack()
    writer = sa.ipc.new_stream(sink, BATCH.schema)
    refused: list[Exception] = []

    def write() -> None:
        try:
            writer.write(BATCH)
        except sa.InvalidArgument as error:
            refused.append(error)

    sink.then = write
    for _ in range(3):
        writer.write(BATCH)
    writer.close()
    assert len(refused) == 1
    assert "in the middle of another call" in str(refused[0])
    assert sa.ipc.open_stream(sink.data.getvalue()).read_all().num_rows == 3000


@pytest.mark.parametrize("kind", ["stream", "tensors"])
def test_a_read_within_a_read(kind: str) -> None:
    tensor = sa.Tensor.from_numpy(np.arange(5))
    source = CallsBack(stream_of(*[BATCH] * 3) if kind == "stream" else message_of(tensor) * 3)
    source.calls = -10
    reader: Any = (sa.ipc.open_stream if kind == "stream" else sa.ipc.read_tensors)(source)
    refused: list[Exception] = []

    def read() -> None:
        try:
            next(reader)
        except sa.InvalidArgument as error:
            refused.append(error)

    source.then, source.calls = read, 2
    assert len(list(reader)) == 3
    assert len(refused) == 1


def test_the_iterator_of_a_closed_bundle(tmp_path: Path) -> None:
    path = tmp_path / "bundle"
    sa.save_tensors({"a": np.eye(3), "b": np.eye(2)}, path)
    bundle = sa.load_tensors(path)
    names = iter(bundle)
    assert next(names) == "a"
    bundle.close()
    assert not mappings(path)
    with pytest.raises(sa.Closed):
        next(names)
