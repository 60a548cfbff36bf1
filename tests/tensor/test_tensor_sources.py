"""Tensors and bundles from every kind of source: positions, ranges, I/O errors, what is held, and bytes that lie."""

from __future__ import annotations

import gzip
import io
import os
import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from forms import message_of
from measures import held
from remote import Counted, FailsOnce

import shmarrow as sa

ARRAYS = [np.arange(6.0).reshape(2, 3), np.arange(5, dtype="u1"), np.zeros((0, 4), "f4"), np.full((3, 3, 3), 7)]


def messages(arrays: Any = ARRAYS) -> bytes:
    return b"".join([message_of(sa.Tensor.from_numpy(array)) for array in arrays])


def same(found: Any, arrays: Any = ARRAYS) -> None:
    found = list(found)
    assert len(found) == len(arrays)
    for tensor, array in zip(found, arrays, strict=True):
        np.testing.assert_array_equal(tensor.to_numpy(), array)
        assert tensor.to_numpy().dtype == array.dtype


# --- positions --------------------------------------------------------------------------------------------------


class Readable:
    """A file object that can only read, and gives no more than 100 bytes at once."""

    def __init__(self, data: bytes) -> None:
        self._file = io.BytesIO(data)

    def read(self, size: int) -> bytes:
        return self._file.read(min(size, 100))


def opened(kind: str, data: bytes, path: Path) -> Any:
    """A file object over data that has 5 bytes of something else before it, at the place where the data start."""
    path.write_bytes(b"other" + data)
    if kind == "gzip":
        path.write_bytes(gzip.compress(b"other" + data))
    file: Any = {
        "BytesIO": lambda: io.BytesIO(path.read_bytes()),
        "buffered": lambda: path.open("rb"),
        "raw": lambda: path.open("rb", buffering=0),
        "gzip": lambda: gzip.GzipFile(path),
        "object": lambda: Readable(path.read_bytes()),
    }[kind]()
    assert file.read(5) == b"other"
    return file


@pytest.mark.parametrize("kind", ["BytesIO", "buffered", "raw", "gzip", "object"])
def test_positions_advance(kind: str, tmp_path: Path) -> None:
    """A file object is read from its position on, and left at the end of the message: what follows is next."""
    data = messages() + b"the rest"
    one = opened(kind, data, tmp_path / "one")
    same(sa.ipc.read_tensor(one) for _ in ARRAYS)
    assert one.read(8) == b"the rest"
    with pytest.raises(sa.InvalidData, match="end of the stream"):
        sa.ipc.read_tensor(one)
    two = opened(kind, data, tmp_path / "two")
    reader = sa.ipc.read_tensors(two)
    same(next(reader) for _ in ARRAYS)
    assert two.read(8) == b"the rest"


def test_an_error_leaves_a_buffer_where_it_was() -> None:
    """The unread rest of a BytesIO is still there."""
    memory = io.BytesIO(messages([ARRAYS[0]])[:-1])
    with pytest.raises(sa.InvalidData, match="body"):
        sa.ipc.read_tensor(memory)
    assert memory.tell() == 0


# --- I/O errors -------------------------------------------------------------------------------------------------


def test_a_reader_that_failed_says_so() -> None:
    """An error at any call of a source, and then: either the right tensors or the first error again, never an end."""
    data = messages()
    for call in range(1, 1000):
        file = FailsOnce(data, call)
        reader = sa.ipc.read_tensors(file)
        try:
            found = [next(reader) for _ in ARRAYS]
        except sa.StorageError:
            for _ in range(3):
                with pytest.raises(sa.Failed, match="timed out"):
                    next(reader)
            reader.close()
            with pytest.raises(sa.ShmarrowError):
                next(reader)
            continue
        same(found)
        if file.calls < call:
            break
    assert call > 8


def test_broken_bytes_fail_a_reader() -> None:
    """After a message that breaks the format nothing is read as if a new one began there."""
    data = bytearray(messages())
    at = len(messages(ARRAYS[:1]))
    data[at + 8 : at + 12] = b"\xff" * 4
    reader = sa.ipc.read_tensors(bytes(data))
    same([next(reader)], ARRAYS[:1])
    with pytest.raises(sa.InvalidData):
        next(reader)
    with pytest.raises(sa.Failed, match="InvalidData"):
        next(reader)


@pytest.mark.parametrize("kind", ["tensor", "bundle"])
def test_a_sink_that_fails(kind: str) -> None:
    """An error at any call of a sink reaches the caller, and nothing is written after it that looks like an end."""

    def save(sink: Any) -> None:
        if kind == "bundle":
            sa.save_tensors({"a": ARRAYS[0], "b": ARRAYS[1]}, sink)
        else:
            sa.ipc.write_tensor(sa.Tensor.from_numpy(ARRAYS[0]), sink)

    save(whole := io.BytesIO())
    for call in range(1, 1000):
        sink = FailsOnce(k=call)
        try:
            save(sink)
        except sa.StorageError:
            assert len(sink.taken) < len(whole.getvalue())
            assert whole.getvalue().startswith(sink.taken)
            continue
        assert sink.taken == whole.getvalue()
        break
    assert call > 5


def test_what_is_no_shape(tmp_path: Path) -> None:
    for shape in ((2.5,), "ab", None, 7, (None,)):
        with pytest.raises(sa.InvalidType, match="a shape must be a sequence of integers"):
            sa.ipc.new_tensor(tmp_path / "t", shape, "int8")  # type: ignore[arg-type]
    assert os.listdir(tmp_path) == []


# --- ranges -----------------------------------------------------------------------------------------------------


def test_a_bundle_is_read_by_ranges() -> None:
    """Opening a bundle on an object store reads its index; a tensor, its own message; the name of none, nothing."""
    tensors = {f"t{i}": np.full(1 << 14, i) for i in range(100)}
    sink = io.BytesIO()
    size = sa.save_tensors(tensors, sink)
    file = Counted(sink.getvalue())
    with sa.load_tensors(file) as bundle:
        assert len(bundle) == 100
        assert "none" not in bundle
        index = file.total
        assert index < 1 << 17
        assert bundle["t7"].to_numpy().tolist() == tensors["t7"].tolist()
        assert 1 << 17 <= file.total - index < (1 << 17) + 1024
        bundle.validate()
        for name, array in tensors.items():
            np.testing.assert_array_equal(bundle[name].to_numpy(), array)
    assert size > 100 << 17
    with pytest.raises(sa.Closed):
        bundle["t7"]
    assert not file.closed


def test_a_bundle_from_what_cannot_seek() -> None:
    """A bundle that comes through a pipe is read as a whole."""
    sink = io.BytesIO()
    sa.save_tensors({"a": ARRAYS[0]}, sink)
    near, far = os.pipe()
    os.write(far, sink.getvalue())
    os.close(far)
    with os.fdopen(near, "rb") as file, sa.load_tensors(file) as bundle:
        np.testing.assert_array_equal(bundle["a"].to_numpy(), ARRAYS[0])


# --- what is held -----------------------------------------------------------------------------------------------


def test_what_a_tensor_holds(tmp_path: Path) -> None:
    """A tensor of a path holds its mapping, and nothing else does; what is read into memory holds nothing."""
    path = tmp_path / "t.tensor"
    path.write_bytes(messages())
    tensor = sa.ipc.read_tensor(path)
    assert held(path) == (0, 1)
    reader = sa.ipc.read_tensors(path)
    part = next(reader)
    reader.close()
    assert held(path) == (0, 2)
    del part
    assert held(path) == (0, 1)
    del tensor
    assert held(path) == (0, 0)
    tensor = sa.ipc.read_tensor(path, memory_map=False)
    assert held(path) == (0, 0)
    path.write_bytes(b"")  # of which a mapping would die
    np.testing.assert_array_equal(tensor.to_numpy(), ARRAYS[0])
    for read in (sa.ipc.read_tensor, sa.load_tensors):
        with pytest.raises(sa.InvalidData):
            read(path)
    assert held(path) == (0, 0)


def test_what_a_bundle_holds(tmp_path: Path) -> None:
    """Closing a bundle that is still referenced releases all of it but what tensors need that were handed out."""
    path = tmp_path / "b.tensors"
    sa.save_tensors({"a": ARRAYS[0], "b": ARRAYS[1]}, path)
    bundle = sa.load_tensors(path)
    tensor = bundle["a"]
    assert held(path) == (0, 1)
    bundle.close()
    bundle.close()
    assert held(path) == (0, 1)
    np.testing.assert_array_equal(tensor.to_numpy(), ARRAYS[0])
    del tensor
    assert held(path) == (0, 0)
    assert repr(bundle).endswith(", closed>")
    for use in (len, list, lambda closed: "a" in closed, lambda closed: closed["a"], lambda closed: closed.validate()):
        with pytest.raises(sa.Closed):
            use(bundle)


def test_metadata_are_no_state_that_readers_share() -> None:
    """Changes to the metadata of a tensor are not seen by other readers of the same message."""
    data = message_of(sa.Tensor.from_numpy(ARRAYS[0], metadata={"k": "v"}))
    for _ in range(3):
        found = sa.ipc.read_tensor(data)
        assert found.metadata == {b"k": b"v"}
        with pytest.raises(TypeError):
            found.metadata[b"k"] = b"other"


# --- bytes that lie ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("size", [13, 15, 17, 19])
def test_an_offsets_buffer_of_odd_size(size: int) -> None:
    """The offsets of a bundle's names may lie in a buffer that is no multiple of theirs: whole offsets count."""
    sink = io.BytesIO()
    sa.save_tensors({"a": ARRAYS[0], "b": ARRAYS[1]}, sink)
    data = sink.getvalue()
    offsets = struct.pack("<qq", 0, 12)  # three int32: the buffer that follows an empty bitmap
    assert data.count(offsets) == 1
    bundle = sa.load_tensors(data.replace(offsets, struct.pack("<qq", 0, size)))
    same(bundle.values(), ARRAYS[:2])
    bundle.validate(full=True)


def test_names_that_no_file_can_hold() -> None:
    """Text with surrogates cannot be encoded as UTF-8: it is refused when it is saved, and is in no bundle."""
    with pytest.raises(sa.InvalidArgument, match="UTF-8"):
        sa.save_tensors({"a\ud800": ARRAYS[0]}, io.BytesIO())
    sink = io.BytesIO()
    sa.save_tensors({"a": ARRAYS[0]}, sink)
    bundle = sa.load_tensors(sink.getvalue())
    assert "a\ud800" not in bundle
    with pytest.raises(sa.FieldNotFound):
        bundle["\udfff"]


@pytest.mark.parametrize(("strides", "outcome"), [((0, 0), None), ((0, 1), None), ((1, 1), sa.LimitExceeded)])
def test_elements_without_end(strides: tuple[int, int], outcome: type[Exception] | None) -> None:
    """Strides may make more elements than anybody could look at out of a few bytes."""
    made = np.lib.stride_tricks.as_strided(np.zeros(1 << 16, "?"), (1 << 15, 1 << 15), strides)
    tensor = sa.Tensor.from_numpy(made)
    if outcome is None:
        tensor.validate(full=True)
    else:
        with pytest.raises(outcome, match="overlap"):
            tensor.validate(full=True)
