"""Dense tensors: over numpy's memory, as messages, filled in place, and with pyarrow in both directions."""

from __future__ import annotations

import io
import struct
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from forms import message_of
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from parts import address

import shmarrow as sa
from shmarrow import segment
from shmarrow.ipc.flatbuffers import tables as flatbuf
from shmarrow.ipc.message.encode import encode_message
from shmarrow.ipc.options import IpcWriteOptions
from shmarrow.types import DecimalType

ml_dtypes = pytest.importorskip("ml_dtypes", reason="the extra `tensor` is not installed")

LEGACY = IpcWriteOptions(use_legacy_format=True)
NUMBERS = ["i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8", "f2", "f4", "f8"]


base = np.arange(4 * 5 * 6).reshape(4, 5, 6)

# array, and the strides that its message has: elements together, in the order that they have in memory.
SHAPES = {
    "0-d": (np.array(7), ()),
    "1-d": (np.arange(7), (8,)),
    "row-major": (base, (240, 48, 8)),
    "column-major": (np.asfortranarray(base), (8, 32, 160)),
    "permuted": (base.transpose(1, 2, 0), (48, 8, 240)),
    "gaps": (base[::2, 1:3, ::3], (32, 16, 8)),
    "gaps, column-major": (base.T[::2, 1:3, ::3], (8, 24, 48)),
    "repeated": (np.broadcast_to(np.arange(3), (4, 3)), (0, 8)),
    "repeated, 0-d": (np.broadcast_to(np.array(3), (2, 2)), (0, 0)),
    "windows": (np.lib.stride_tricks.sliding_window_view(np.arange(9), 3), (24, 8)),
    "one": (np.ones((1, 1, 1)), (8, 8, 8)),
    "none": (np.zeros((0, 3)), (24, 8)),
    "none inside": (np.zeros((2, 0, 3)), (24, 24, 8)),
    "reversed": (np.arange(6).reshape(2, 3)[::-1, ::-1], (24, 8)),
}


@pytest.mark.parametrize("case", SHAPES)
@pytest.mark.parametrize("options", [None, LEGACY], ids=["continuation", "legacy"])
def test_message(case: str, options: IpcWriteOptions | None) -> None:
    array, strides = SHAPES[case]
    tensor = sa.Tensor.from_numpy(array)
    data = message_of(tensor, options)
    found = sa.ipc.read_tensor(data)
    assert (found.shape, found.strides, found.type) == (array.shape, strides, tensor.type)
    np.testing.assert_array_equal(found.to_numpy(), array)
    assert found == tensor
    peer = pa.ipc.read_tensor(pa.py_buffer(data))
    assert peer.shape == array.shape
    np.testing.assert_array_equal(peer.to_numpy(), array)
    if array.size:
        assert tuple(peer.strides) == strides


def test_names_of_dimensions_and_pyarrow() -> None:
    """Numbers of every dtype go both ways in ``test_any_array``."""
    array = np.array([[0, 1, 2], [3, 4, 100]])
    tensor = sa.Tensor.from_numpy(array, ["row", "column"])
    peer = pa.ipc.read_tensor(pa.py_buffer(message_of(tensor)))
    assert (str(peer.type), list(peer.dim_names)) == (str(tensor.type), ["row", "column"])
    sink = pa.BufferOutputStream()
    pa.ipc.write_tensor(pa.Tensor.from_numpy(array, dim_names=["row", "column"]), sink)
    assert sa.ipc.read_tensor(sink.getvalue()) == tensor


OTHER_TYPES = {
    "bool": (np.array([True, False, True]), None, sa.bool_(), "int8"),
    "timestamp": (np.array(["2020-01-01", "NaT"], "M8[us]"), None, sa.timestamp("us"), "int64"),
    "timestamp, zone": (np.array([1, 2]), sa.timestamp("ns", "Asia/Tokyo"), sa.timestamp("ns", "Asia/Tokyo"), "int64"),
    "duration": (np.array([3, 4], "m8[s]"), None, sa.duration("s"), "int64"),
    "date32": (np.array([18262, -1], "i4"), sa.date32(), sa.date32(), "int32"),
    "date64": (np.array([0, 86400000]), sa.date64(), sa.date64(), "int64"),
    "time32": (np.array([1, 2], "i4"), sa.time32("ms"), sa.time32("ms"), "int32"),
    "time64": (np.array([1, 2]), sa.time64("ns"), sa.time64("ns"), "int64"),
    "decimal32": (np.array([123, -1], "i4"), sa.decimal32(5, 2), sa.decimal32(5, 2), "int32"),
    "decimal64": (np.array([123, -1]), sa.decimal64(15, -2), sa.decimal64(15, -2), "int64"),
    "decimal128": (np.array([bytes(range(16))], "V16"), sa.decimal128(38, 2), sa.decimal128(38, 2), None),
    "decimal256": (np.array([bytes(range(32))], "V32"), sa.decimal256(76, 2), sa.decimal256(76, 2), None),
    "binary": (np.array([b"abc", b"xyz"], "V3"), None, sa.binary(3), None),
    "interval": (np.array([5, -5], "i4"), sa.month_interval(), sa.month_interval(), None),
}


@pytest.mark.parametrize("case", OTHER_TYPES)
def test_other_types(case: str) -> None:
    array, given, type, peer_type = OTHER_TYPES[case]
    tensor = sa.Tensor.from_numpy(array, type=given)
    assert tensor.type == type
    assert address(tensor.storage) == address(array)
    data = message_of(tensor)
    found = sa.ipc.read_tensor(data)
    assert (found.type, found.metadata, found.ml_dtype) == (type, None, None)
    assert found.storage.tobytes() == array.tobytes()
    if peer_type is not None:
        peer = pa.ipc.read_tensor(pa.py_buffer(data))
        assert str(peer.type) == peer_type
        assert peer.to_numpy().tobytes() == array.tobytes()


def test_days_become_int32() -> None:
    tensor = sa.Tensor.from_numpy(np.array(["2020-01-01", "1969-12-31"], "M8[D]"))
    assert tensor.type == sa.date32()
    assert tensor.to_numpy().tolist() == [18262, -1]
    with pytest.raises(sa.InvalidData, match="NaT"):
        sa.Tensor.from_numpy(np.array(["NaT"], "M8[D]"))


@pytest.mark.parametrize("name", ["bfloat16", "float8_e4m3fn", "float8_e5m2", "float8_e8m0fnu", "float8_e3m4"])
def test_floats_of_machine_learning(name: str) -> None:
    array = np.array([[0.5, 1, 2], [4, 8, 0.25]]).astype(name)
    tensor = sa.Tensor.from_numpy(array)
    assert tensor.ml_dtype == name
    assert tensor.type == (sa.uint16() if name == "bfloat16" else sa.uint8())
    found = sa.ipc.read_tensor(message_of(tensor))
    assert (found.ml_dtype, found.dtype, found.metadata) == (name, np.dtype(name), None)
    assert found.to_numpy().astype("f8").tolist() == [[0.5, 1, 2], [4, 8, 0.25]]
    assert found == tensor
    assert found != sa.Tensor.from_numpy(array.view(f"u{array.itemsize}"))
    assert found[1, 2] == 0.25
    assert found[1].ml_dtype == name


def test_unknown_element_name_stays() -> None:
    tensor = sa.Tensor.from_numpy(np.array([1], "u1"), metadata={"shmarrow:element": "float8_of_the_future"})
    found = sa.ipc.read_tensor(message_of(tensor))
    assert (found.type, found.metadata) == (sa.uint8(), {b"shmarrow:element": b"float8_of_the_future"})
    wrong = sa.Tensor.from_numpy(np.array([1], "u1"), metadata={"shmarrow:element": "bfloat16"})
    with pytest.raises(sa.InvalidData, match="bfloat16"):
        sa.ipc.read_tensor(message_of(wrong))


def test_types_that_a_tensor_cannot_have() -> None:
    for dtype in ("U1", "O", "c8", "M8[h]", "V0", [("a", "i4")]):
        with pytest.raises(sa.InvalidType):
            sa.Tensor.from_numpy(np.zeros(2, dtype))
    with pytest.raises(sa.InvalidType):
        sa.Tensor.from_numpy(np.ma.masked_array([1, 2], [0, 1]))
    for dtype, type in (("i4", sa.int64()), ("f4", sa.date32()), ("i4", sa.string()), ("i4", sa.uuid())):
        with pytest.raises(sa.InvalidType):
            sa.Tensor.from_numpy(np.zeros(2, dtype), type=type)


# --- memory -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("case", [case for case in SHAPES if case != "reversed"])
def test_from_numpy_copies_nothing(case: str) -> None:
    array, _ = SHAPES[case]
    tensor = sa.Tensor.from_numpy(array)
    assert address(tensor.to_numpy()) == address(array)
    assert tensor.strides == array.strides
    assert not tensor.to_numpy().flags.writeable


def test_reading_copies_nothing(shm_name: str) -> None:
    array = np.arange(1000.0).reshape(10, 100)
    sa.ipc.write_tensor(sa.Tensor.from_numpy(array), shm_name)
    attached = segment.attach(shm_name)
    tensor = sa.ipc.read_tensor(attached)
    start = address(attached.data)
    assert start < address(tensor.to_numpy()) < start + attached.size
    assert address(tensor.to_numpy()) % 64 == 0
    attached.close()
    segment.delete(shm_name)
    assert tensor.to_numpy().sum() == array.sum()
    with pytest.raises(ValueError, match="read-only"):
        tensor.to_numpy()[0] = 1
    with pytest.raises(ValueError, match="WRITEABLE"):
        tensor.to_numpy().flags.writeable = True


def test_numpy_protocols() -> None:
    array = np.arange(6.0).reshape(2, 3)
    tensor = sa.Tensor.from_numpy(array)
    assert address(np.asarray(tensor)) == address(array)
    assert address(np.array(tensor)) != address(array)
    assert np.asarray(tensor, "f4").dtype == "f4"
    assert np.from_dlpack(tensor).tolist() == array.tolist()
    assert address(np.from_dlpack(tensor)) != address(array)
    assert tensor.__dlpack_device__() == (1, 0)
    assert memoryview(tensor.__buffer__(0)).shape == (2, 3)


def test_dlpack_refusals() -> None:
    tensor = sa.Tensor.from_numpy(np.arange(6))
    with pytest.raises(BufferError, match="copy=False"):
        np.from_dlpack(tensor, copy=False)
    for options in ({}, {"max_version": (0, 8)}, {"copy": True}):
        assert '"dltensor"' in repr(tensor.__dlpack__(**options))
    with pytest.raises(sa.ExportRefused, match="device"):
        tensor.__dlpack__(max_version=(1, 0), dl_device=(2, 0))
    unaligned = sa.Tensor.from_numpy(np.frombuffer(bytes(17), "f8", 2, 1))
    assert np.from_dlpack(unaligned).flags.aligned
    with pytest.raises(sa.ExportRefused, match="timestamp"):
        sa.Tensor.from_numpy(np.zeros(2, "M8[s]")).__dlpack__(max_version=(1, 0))


# --- what it is -------------------------------------------------------------------------------------------------


def test_equality() -> None:
    array = np.arange(6).reshape(2, 3)
    tensor = sa.Tensor.from_numpy(array, ["a", "b"])
    assert tensor == sa.Tensor.from_numpy(np.asfortranarray(array), ["a", "b"], metadata={"x": "y"})
    assert tensor != sa.Tensor.from_numpy(array)
    assert tensor != sa.Tensor.from_numpy(array.astype("i4"), ["a", "b"])
    assert tensor != sa.Tensor.from_numpy(array + 1, ["a", "b"])
    assert tensor != sa.Tensor.from_numpy(array.reshape(3, 2), ["a", "b"])
    assert tensor != 5
    nan = sa.Tensor.from_numpy(np.array([np.nan]))
    assert nan != nan
    assert repr(tensor) == "<Tensor int64, shape (2, 3), strides (24, 8), dimensions a, b>"


KEYS: list[tuple[Any, tuple[str, ...]]] = [
    (0, ("b", "c")),
    (-1, ("b", "c")),
    (slice(1, 3), ("a", "b", "c")),
    (slice(None, None, -1), ("a", "b", "c")),
    ((slice(None), 2), ("a", "c")),
    ((..., 2), ("a", "b")),
    ((1, ...), ("b", "c")),
    ((..., 1, slice(2)), ("a", "c")),
    ((None, 1), ("", "b", "c")),
    (..., ("a", "b", "c")),
    ((1, 2), ("c",)),
    ((), ("a", "b", "c")),
    ([0, 2], ()),
    (np.arange(4) % 2 == 0, ()),
    ((1, 2, 3), ()),
]


@pytest.mark.parametrize(("key", "names"), KEYS, ids=str)
def test_slicing_is_that_of_numpy(key: Any, names: tuple[str, ...]) -> None:
    tensor = sa.Tensor.from_numpy(base, ["a", "b", "c"])
    part = tensor[key]
    np.testing.assert_array_equal(np.asarray(part), base[key])
    if isinstance(part, sa.Tensor):
        assert part.dim_names == names
    else:
        assert part == base[key]
        assert not isinstance(part, np.ndarray)


def test_iteration_and_transposing() -> None:
    tensor = sa.Tensor.from_numpy(base, ["a", "b", "c"])
    assert len(tensor) == 4
    assert [part.to_numpy().sum() for part in tensor] == base.sum(axis=(1, 2)).tolist()
    assert (tensor.T.shape, tensor.T.dim_names, tensor.T.strides) == ((6, 5, 4), ("c", "b", "a"), (8, 48, 240))
    assert tensor.transpose(1, 0, 2).dim_names == ("b", "a", "c")
    with pytest.raises(sa.InvalidArgument):
        tensor.transpose(0, 0, 1)
    with pytest.raises(sa.InvalidType):
        len(sa.Tensor.from_numpy(np.array(1)))


@pytest.mark.parametrize("names", [["a"], ["a", "b", "c"], "ab"])
def test_names_must_fit(names: Any) -> None:
    with pytest.raises(sa.InvalidArgument, match="2 names"):
        sa.Tensor.from_numpy(np.zeros((2, 2)), names)


def test_bools_are_checked_when_asked() -> None:
    tensor = sa.Tensor.from_numpy(np.array([0, 2], "u1"), type=sa.bool_())
    tensor.validate()
    with pytest.raises(sa.InvalidData, match="found 2"):
        tensor.validate(full=True)


# --- sinks and sources ------------------------------------------------------------------------------------------


def test_many_in_one_segment(shm_name: str) -> None:
    tensors = [sa.Tensor.from_numpy(np.arange(n, dtype="f4")) for n in (3, 0, 100, 17)]
    with segment.create(shm_name) as writer:
        for tensor in tensors:
            sa.ipc.write_tensor(tensor, writer)
    found = list(sa.ipc.read_tensors(shm_name))
    assert found == tensors
    assert all(address(tensor.storage) % 64 == 0 for tensor in found if tensor.size)


def test_many_of_pyarrow_lie_where_they_end() -> None:
    arrays = [np.arange(n, dtype="u1") for n in (3, 5, 100)]
    sink = pa.BufferOutputStream()
    for array in arrays:
        pa.ipc.write_tensor(pa.Tensor.from_numpy(array), sink)
    found = list(sa.ipc.read_tensors(sink.getvalue()))
    assert [tensor.to_numpy().tolist() for tensor in found] == [array.tolist() for array in arrays]


def test_zeros_between_messages_are_padding() -> None:
    one = sa.Tensor.from_numpy(np.arange(3))
    sink = pa.BufferOutputStream()
    pa.ipc.write_tensor(pa.Tensor.from_numpy(np.arange(3)), sink)
    data = sink.getvalue().to_pybytes()
    assert len(data) % 64
    assert list(sa.ipc.read_tensors(data + bytes(-len(data) % 64) + data)) == [one, one]
    with pytest.raises(sa.InvalidData, match="zeros up to a multiple"):
        list(sa.ipc.read_tensors(data + bytes(4) + b"\1" + bytes(-len(data) % 64 - 5) + data))


def test_tensors_in_a_stream_of_batches(tmp_path: Path) -> None:
    batch = sa.record_batch({"a": [1, 2, 3]})
    tensor = sa.Tensor.from_numpy(np.arange(6).reshape(2, 3))
    sink = io.BytesIO()
    with sa.ipc.new_stream(sink, batch.schema) as writer:
        sa.ipc.write_tensor(tensor, sink)
        writer.write(batch)
        sa.ipc.write_tensor(tensor, sink)
    assert list(sa.ipc.read_tensors(sink.getvalue())) == [tensor, tensor]
    with pytest.raises(sa.InvalidData, match="found a Schema"):
        sa.ipc.read_tensor(sink.getvalue())


@pytest.mark.parametrize("options", [IpcWriteOptions(compression="zstd"), IpcWriteOptions(endianness="big")])
def test_options_that_tensors_have_not(options: IpcWriteOptions) -> None:
    with pytest.raises(sa.InvalidArgument):
        message_of(sa.Tensor.from_numpy(np.arange(3)), options)


# --- in place ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("order", ["C", "F"])
def test_filled_in_place(shm_name: str, order: Any) -> None:
    with sa.ipc.new_tensor(shm_name, (3, 4), "float32", ["row", "column"], order=order) as writer:
        assert writer.array.flags.writeable
        assert not writer.array.any()
        for i in range(3):
            writer.array[i] = i
        writer.array *= 2
        filled = writer.array
    assert not filled.flags.writeable
    found = sa.ipc.read_tensor(shm_name)
    assert found.to_numpy().tolist() == [[0.0] * 4, [2.0] * 4, [4.0] * 4]
    assert (found.dim_names, found.type) == (("row", "column"), sa.float32())
    assert found.strides == ((16, 4) if order == "C" else (4, 12))
    written = message_of(sa.Tensor.from_numpy(np.asarray(filled, order=order), ["row", "column"]))
    assert segment.attach(shm_name).data.tobytes() == written


@pytest.mark.parametrize("type", ["bfloat16", np.dtype("M8[us]"), sa.bool_(), sa.decimal128(5), "f8"])
def test_filled_in_place_of_any_type(shm_name: str, type: Any) -> None:
    type = np.dtype(type) if type == "f8" else type
    with sa.ipc.new_tensor(shm_name, (5,), type) as writer:
        dtype = writer.array.dtype
        if dtype.kind != "V":
            writer.array[2] = 1
    found = sa.ipc.read_tensor(shm_name)
    assert found.to_numpy().dtype == dtype
    if dtype.kind != "V":
        assert found[2] == writer.array[2] == np.array(1).astype(dtype)


def test_nothing_is_left_of_an_unfinished_one(shm_name: str, tmp_path: Path) -> None:
    with pytest.raises(ZeroDivisionError), sa.ipc.new_tensor(shm_name, (3,), "int8"):
        raise ZeroDivisionError
    with pytest.raises(sa.ObjectNotFound):
        sa.ipc.read_tensor(shm_name)
    with pytest.raises(sa.StorageError):
        sa.ipc.new_tensor(shm_name, (1 << 55,), "int8")
    for shape in [(-1,), (1 << 40, 1 << 40)]:
        with pytest.raises(sa.InvalidArgument):
            sa.ipc.new_tensor(shm_name, shape, "int8")
    file = io.BytesIO()
    with pytest.raises(sa.InvalidType):
        sa.ipc.new_tensor(file, (3,), "int8")
    assert file.getvalue() == b""


# --- bad input --------------------------------------------------------------------------------------------------


def crafted(body: bytes = bytes(64), **header: Any) -> bytes:
    values = {
        "type": ("Int", {"bitWidth": 32, "is_signed": True}),
        "shape": [{"size": 2}, {"size": 3}],
        "strides": np.array([12, 4], "<i8"),
        "data": np.array((0, 24), flatbuf.STRUCTS["Buffer"]),
    } | header
    return encode_message("Tensor", values, len(body), None, IpcWriteOptions()) + body


def buffer(offset: int, length: int) -> Any:
    return np.array((offset, length), flatbuf.STRUCTS["Buffer"])


def test_crafted_is_read() -> None:
    assert sa.ipc.read_tensor(crafted()).to_numpy().tolist() == [[0, 0, 0], [0, 0, 0]]
    assert sa.ipc.read_tensor(crafted(strides=None)).strides == (12, 4)
    assert sa.ipc.read_tensor(crafted(strides=np.array([0, 0]))).strides == (0, 0)
    assert sa.ipc.read_tensor(crafted(data=buffer(40, 24))).shape == (2, 3)
    assert sa.ipc.read_tensor(crafted(data=buffer(39, 25))).shape == (2, 3)
    empty = sa.ipc.read_tensor(crafted(shape=[{"size": 0}, {"size": 1 << 60}], strides=np.array([1 << 62, 1])))
    assert empty.shape == (0, 1 << 60)


@pytest.mark.parametrize(
    ("header", "message"),
    [
        ({"shape": [{"size": -1}, {"size": 3}]}, "-1 elements"),
        ({"shape": [{"size": 1 << 62}, {"size": 1 << 62}]}, "2\\^63"),
        ({"shape": [{"size": 0}, {"size": 1 << 62}]}, "2\\^63"),
        ({"shape": [{"size": 1 << 33}, {"size": 1 << 29}], "strides": np.array([0, 0])}, "2\\^63"),
        ({"shape": [{"size": 2}, {"size": 4}]}, "28 bytes but the buffer has 24"),
        ({"shape": [{"size": 1}] * 65, "strides": None}, "65 dimensions"),
        ({"strides": np.array([12, 8])}, "32 bytes"),
        ({"strides": np.array([-12, 4])}, "strides must be at least 0"),
        ({"strides": np.array([1 << 62, 4])}, "spans \\d+ bytes"),
        ({"strides": np.array([4])}, "1 strides for 2"),
        ({"strides": np.array([4, 4, 4])}, "3 strides for 2"),
        ({"data": None}, "no buffer"),
        ({"data": buffer(0, 23)}, "24 bytes but the buffer has 23"),
        ({"data": buffer(41, 24)}, "body has 64 bytes"),
        ({"data": buffer(-1, 24)}, "body has 64 bytes"),
        ({"data": buffer(0, -1)}, "body has 64 bytes"),
        ({"data": buffer((1 << 63) - 1, (1 << 63) - 1)}, "body has 64 bytes"),
        ({"type": None}, "unknown type"),
        ({"type": ("Utf8", {})}, "must have a fixed.width"),
        ({"type": ("Null", {})}, "must have a fixed.width"),
        ({"type": ("Bool", {})}, "bool elements are bits"),
        ({"type": ("List", {})}, "found List"),
        ({"type": ("Struct_", {})}, "found Struct_"),
        ({"type": ("Int", {"bitWidth": 7, "is_signed": True})}, "found 7"),
        ({"type": ("FixedSizeBinary", {"byteWidth": 0})}, "must have a fixed.width"),
        ({"type": ("FixedSizeBinary", {"byteWidth": -4})}, "found -4"),
        ({"shape": [{"size": 2, "name": b"\xff"}, {"size": 3}]}, "UTF-8"),
    ],
    ids=str,
)
def test_lies(header: dict[str, Any], message: str) -> None:
    with pytest.raises((sa.InvalidData, sa.Unsupported), match=message):
        sa.ipc.read_tensor(crafted(**header))


def test_headers_that_are_known_are_those_of_their_own_bytes(tmp_path: Path) -> None:
    for array in (np.arange(4), np.arange(4) + 1, np.arange(8).reshape(2, 4), np.arange(4).astype("M8[s]")):
        tensor = sa.Tensor.from_numpy(array)
        data = message_of(tensor)
        for _ in range(2):
            assert sa.ipc.read_tensor(data) == tensor
            assert list(sa.ipc.read_tensors(data + data)) == [tensor, tensor]
            (tmp_path / "t").write_bytes(data)
            assert sa.ipc.read_tensor(tmp_path / "t") == tensor
            with (tmp_path / "t").open("rb") as file:
                assert sa.ipc.read_tensor(file) == tensor
    with pytest.raises(sa.LimitExceeded, match="metadata_bytes"):
        sa.ipc.read_tensor(data, limits=sa.Limits(metadata_bytes=64))


def test_body_that_lies_about_its_size_takes_no_memory() -> None:
    data = bytearray(crafted())
    at = data.index(struct.pack("<q", 64))
    data[at : at + 8] = struct.pack("<q", 1 << 61)
    with pytest.raises(sa.InvalidData):
        sa.ipc.read_tensor(bytes(data))
    with pytest.raises(sa.InvalidData):
        sa.ipc.read_tensor(io.BufferedReader(io.BytesIO(bytes(data))))


# --- any array --------------------------------------------------------------------------------------------------

ANY_DTYPE = st.sampled_from([*NUMBERS, "?", "M8[us]", "m8[ns]", ">i4", ">f8"])


@st.composite
def views(draw: Any) -> Any:
    """Arrays of any shape and any strides, sliced, transposed and repeated."""
    shape = draw(hnp.array_shapes(min_dims=0, max_dims=5, min_side=0, max_side=6))
    dtype = np.dtype(draw(ANY_DTYPE))
    array = (np.arange(int(np.prod(shape))) % 100).astype("i8").astype(dtype).reshape(shape)
    if array.ndim:
        array = array[draw(hnp.basic_indices(shape, allow_newaxis=True))]
    array = np.asarray(array)
    array = array.transpose(draw(st.permutations(range(array.ndim))))
    if draw(st.booleans()):
        array = np.broadcast_to(array, (2, *array.shape))
    return array


@settings(max_examples=80, deadline=None)
@given(array=views())
def test_any_array(array: Any) -> None:
    data = message_of(sa.Tensor.from_numpy(array))
    assert len(data) % 64 == 0
    found = sa.ipc.read_tensor(data)
    assert found.shape == array.shape
    np.testing.assert_array_equal(found.to_numpy(), array)
    peer = pa.ipc.read_tensor(pa.py_buffer(data)).to_numpy()
    if array.dtype.kind in "iuf":
        np.testing.assert_array_equal(peer, array)
    if min(array.strides, default=0) >= 0 and array.dtype.isnative and array.dtype.kind in "iuf":
        sink = pa.BufferOutputStream()
        pa.ipc.write_tensor(pa.Tensor.from_numpy(array), sink)
        np.testing.assert_array_equal(sa.ipc.read_tensor(sink.getvalue()).to_numpy(), array)


def test_large_strided_array_is_brought_together_in_parts() -> None:
    array = np.arange(1 << 24, dtype="u2").reshape(1 << 12, 1 << 12)[:, ::2]  # 16 MiB, and 32 with the gaps
    found = sa.ipc.read_tensor(message_of(sa.Tensor.from_numpy(array)))
    np.testing.assert_array_equal(found.to_numpy(), array)


def test_decimals_are_checked() -> None:
    bad = sa.Tensor.from_numpy(np.zeros(1, "i4"), metadata={"shmarrow:element": "d:99,0,32"})
    assert sa.ipc.read_tensor(message_of(bad)).type == sa.int32()
    good = sa.Tensor.from_numpy(np.zeros(1, "i4"), type=DecimalType(32, 9, 0))
    assert sa.ipc.read_tensor(message_of(good)).type == sa.decimal32(9, 0)
