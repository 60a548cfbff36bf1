"""Sparse tensors: the examples of the specification, forms from and to each other, messages, and bytes that lie."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from forms import for_cpp, message_of
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

import shmarrow as sa
from shmarrow.ipc.flatbuffers.tables import STRUCTS
from shmarrow.ipc.message.decode import message_at
from shmarrow.ipc.message.encode import encode_message
from shmarrow.ipc.options import IpcWriteOptions

FORMS: dict[str, Any] = {
    "coo": sa.SparseCOOTensor,
    "csr": sa.SparseCSRMatrix,
    "csc": sa.SparseCSCMatrix,
    "csf": sa.SparseCSFTensor,
}
INDEX_TYPES = ["int16", "int32", "int64", "uint16", "uint32", "uint64"]  # that can hold all positions here


def header_and_body(data: bytes) -> tuple[Any, bytes]:
    found = message_at(np.frombuffer(data, "u1"), 0, "test")
    assert found is not None
    assert found.body % 64 == 0
    return found.message.header, data[found.body : found.end]


def forms_of(ndim: int) -> list[str]:
    return ["coo", "csr", "csc", "csf"] if ndim == 2 else ["coo", "csf"]


# --- the examples of the specification --------------------------------------------------------------------------

COO_VALUES = {
    (0, 1, 2, 0): 1,
    (1, 1, 2, 3): 2,
    (0, 2, 1, 0): 3,
    (0, 1, 3, 0): 4,
    (0, 1, 2, 1): 5,
    (1, 2, 0, 4): 6,
}
CSX_VALUES = np.array([[0, 1, 2, 0], [0, 0, 3, 0], [0, 4, 0, 5], [0, 0, 0, 0], [6, 0, 7, 8], [0, 9, 0, 0]], np.int64)
CSF_VALUES = {
    (0, 0, 0, 1): 1,
    (0, 0, 0, 2): 2,
    (0, 1, 0, 0): 3,
    (0, 1, 0, 2): 4,
    (0, 1, 1, 0): 5,
    (1, 1, 1, 0): 6,
    (1, 1, 1, 1): 7,
    (1, 1, 1, 2): 8,
}


def dense_of(values: dict[Any, int], shape: tuple[int, ...], dtype: Any = np.int64) -> Any:
    dense = np.zeros(shape, dtype)
    for place, value in values.items():
        dense[place] = value
    return dense


def block(dtype: str, values: Any) -> bytes:
    """Values as the bytes of a buffer, padded to 64."""
    raw = np.array(values, dtype).tobytes()
    return raw + bytes(-len(raw) % 64)


def test_coo_example() -> None:
    dense = dense_of(COO_VALUES, (2, 3, 4, 5))
    coordinates = [[0, 1, 2, 0], [0, 1, 2, 1], [0, 1, 3, 0], [0, 2, 1, 0], [1, 1, 2, 3], [1, 2, 0, 4]]
    tensor = sa.SparseCOOTensor.from_dense(dense)
    assert tensor.indices.tolist() == coordinates
    assert tensor.data.tolist() == [1, 5, 4, 3, 2, 6]
    assert tensor.is_canonical
    header, body = header_and_body(message_of(tensor))
    assert body == block("<i8", coordinates) + block("<i8", [1, 5, 4, 3, 2, 6])
    kind, index = header["sparseIndex"]
    assert (kind, index["isCanonical"], index["indicesStrides"].tolist()) == ("SparseTensorIndexCOO", True, [32, 8])
    assert (header["non_zero_length"], [dim["size"] for dim in header["shape"]]) == (6, [2, 3, 4, 5])
    assert index["indicesBuffer"].item() == (0, 6 * 4 * 8)
    assert header["data"].item() == (192, 6 * 8)


@pytest.mark.parametrize(
    ("form", "indptr", "indices", "values", "axis"),
    [
        # The end of the specification's own indptr is misprinted: it counts one value too many.
        ("csr", [0, 2, 3, 5, 5, 8, 9], [1, 2, 2, 1, 3, 0, 2, 3, 1], [1, 2, 3, 4, 5, 6, 7, 8, 9], 0),
        ("csc", [0, 1, 4, 7, 9], [4, 0, 2, 5, 0, 1, 4, 2, 4], [6, 1, 4, 9, 2, 3, 7, 5, 8], 1),
    ],
)
def test_csx_example(form: str, indptr: Any, indices: Any, values: Any, axis: int) -> None:
    tensor = FORMS[form].from_dense(CSX_VALUES, index_type="int32")
    assert [part.tolist() for part in tensor.to_numpy()] == [values, indptr, indices]
    header, body = header_and_body(message_of(tensor))
    assert body == block("<i4", indptr) + block("<i4", indices) + block("<i8", values)
    kind, index = header["sparseIndex"]
    assert (kind, index["compressedAxis"]) == ("SparseMatrixIndexCSX", axis)
    assert (index["indptrType"]["bitWidth"], index["indptrType"]["is_signed"]) == (32, True)
    assert index["indptrBuffer"].item() == (0, 4 * len(indptr))
    assert index["indicesBuffer"].item() == (64, 36)


@pytest.mark.parametrize(("write", "size"), [(message_of, 8), (for_cpp, 1)], ids=["bytes", "elements"])
def test_csf_example(write: Callable[[Any], bytes], size: int) -> None:
    indptr = [[0, 2, 3], [0, 1, 3, 4], [0, 2, 4, 5, 8]]
    indices = [[0, 1], [0, 1, 1], [0, 0, 1, 1], [1, 2, 0, 2, 0, 0, 1, 2]]
    tensor = sa.SparseCSFTensor.from_dense(dense_of(CSF_VALUES, (2, 2, 2, 3)), index_type="int64")
    assert [level.tolist() for level in tensor.indptr] == indptr
    assert [level.tolist() for level in tensor.indices] == indices
    assert tensor.axis_order == (0, 1, 2, 3)
    assert sa.ipc.read_tensor(write(tensor)) == tensor
    header, body = header_and_body(write(tensor))
    assert body == b"".join([block("<i8", part) for part in [*indptr, *indices, range(1, 9)]])
    kind, index = header["sparseIndex"]
    assert (kind, index["axisOrder"].tolist()) == ("SparseTensorIndexCSF", [0, 1, 2, 3])
    assert index["indptrBuffers"].tolist() == [(0, 3 * size), (64, 4 * size), (128, 5 * size)]
    assert index["indicesBuffers"].tolist() == [(192, 2 * size), (256, 3 * size), (320, 4 * size), (384, 8 * size)]
    assert header["data"].item() == (448, 64)


# --- values, forms, index types ---------------------------------------------------------------------------------


@pytest.mark.parametrize("form", FORMS)
def test_message(form: str) -> None:
    """Any values and types of indices are those of ``test_any_dense_array``."""
    tensor = FORMS[form].from_dense(CSX_VALUES, ["row", "column"], index_type="uint8", metadata={"a": "b"})
    for options in (None, IpcWriteOptions(use_legacy_format=True)):
        found = sa.ipc.read_tensor(message_of(tensor, options))
        assert found == tensor
        assert type(found) is FORMS[form]
        assert (found.dim_names, found.metadata, found.type) == (("row", "column"), {b"a": b"b"}, sa.int64())
        assert found.index[0].dtype == np.dtype("u1")


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("dtype", ["i1", "u8", "f2", "f4", "f8", "?", "M8[us]", "m8[s]", ">i4", ">f8"])
def test_element_types(form: str, dtype: str) -> None:
    dense = CSX_VALUES.astype(dtype)
    tensor = FORMS[form].from_dense(dense)
    assert tensor.non_zero_length == 9
    found = sa.ipc.read_tensor(message_of(tensor))
    assert found == tensor
    np.testing.assert_array_equal(found.to_dense(), dense)
    assert found.to_dense().dtype == dense.dtype.newbyteorder("=")


@pytest.mark.parametrize("form", FORMS)
def test_bfloat16(form: str) -> None:
    pytest.importorskip("ml_dtypes", reason="the extra `tensor` is not installed")
    dense = CSX_VALUES.astype("bfloat16")
    dense[0, 0] = -0.0
    tensor = FORMS[form].from_dense(dense)
    found = sa.ipc.read_tensor(message_of(tensor))
    assert (found.ml_dtype, found.type, found.non_zero_length) == ("bfloat16", sa.uint16(), 9)
    assert found.to_dense().dtype == np.dtype("bfloat16")
    np.testing.assert_array_equal(found.to_dense().astype("i8"), CSX_VALUES)


def test_decimals_and_binaries() -> None:
    dense = np.array([[b"\0\0", b"\0\1"], [b"\1\0", b"\0\0"]], "V2")
    for form in FORMS.values():
        found = sa.ipc.read_tensor(message_of(form.from_dense(dense)))
        assert found.type == sa.binary(2)
        assert found.non_zero_length == 2
        assert found.to_dense().tobytes() == dense.tobytes()


def test_nan_is_not_zero_and_minus_zero_is() -> None:
    dense = np.array([[np.nan, -0.0], [np.inf, 0.0]])
    tensor = sa.SparseCSRMatrix.from_dense(dense)
    assert tensor.non_zero_length == 2
    np.testing.assert_array_equal(tensor.to_dense(), np.abs(dense))


@pytest.mark.parametrize("form", FORMS)
def test_tensors_are_dense_arrays_too(form: str) -> None:
    tensor = sa.Tensor.from_numpy(CSX_VALUES.T, ["x", "y"], metadata={"k": "v"})
    found = FORMS[form].from_dense(tensor)
    assert (found.dim_names, found.metadata) == (("x", "y"), {b"k": b"v"})
    np.testing.assert_array_equal(found.to_dense(), CSX_VALUES.T)
    assert FORMS[form].from_dense(tensor, ["a", "b"]).dim_names == ("a", "b")


def test_from_numpy_copies_nothing() -> None:
    data, coordinates = np.array([5.0, 7.0]), np.array([[0, 1], [2, 0]])
    tensor = sa.SparseCOOTensor.from_numpy(data, coordinates, (3, 2), ["a", "b"])
    assert np.shares_memory(tensor.data, data)
    assert np.shares_memory(tensor.indices, coordinates)
    assert tensor.is_canonical
    assert not tensor.indices.flags.writeable
    assert not sa.SparseCOOTensor.from_numpy(data, coordinates[::-1], (3, 2)).is_canonical
    assert sa.SparseCOOTensor.from_numpy(data[:, None], coordinates, (3, 2), ["a", "b"]) == tensor
    indptr, indices = np.array([0, 1, 1, 2]), np.array([1, 0])
    matrix = sa.SparseCSRMatrix.from_numpy(data, indptr, indices, (3, 2))
    assert np.shares_memory(matrix.indptr, indptr)
    np.testing.assert_array_equal(matrix.to_dense(), [[0, 5], [0, 0], [7, 0]])
    csf = sa.SparseCSFTensor.from_numpy(data, [np.array([0, 1, 2])], [np.array([0, 2]), indices], (3, 2))
    assert np.shares_memory(csf.indices[1], indices)
    np.testing.assert_array_equal(csf.to_dense(), [[0, 5], [0, 0], [7, 0]])


@pytest.mark.parametrize("order", ["C", "F", "gaps"])
def test_coordinates_of_any_strides(order: str) -> None:
    coordinates = np.argwhere(CSX_VALUES)
    if order == "gaps":
        wide = np.zeros((9, 6), np.int64)
        wide[:, ::3] = coordinates
        coordinates = wide[:, ::3]
    else:
        coordinates = np.asarray(coordinates, order=order)  # type: ignore[call-overload]
    tensor = sa.SparseCOOTensor.from_numpy(CSX_VALUES[CSX_VALUES != 0], coordinates, CSX_VALUES.shape)
    assert tensor.indices.strides == coordinates.strides
    data = message_of(tensor)
    found = sa.ipc.read_tensor(data)
    assert found == tensor
    strides = header_and_body(data)[0]["sparseIndex"][1]["indicesStrides"].tolist()
    assert strides == ([8, 72] if order == "F" else [16, 8])
    assert found.indices.strides == tuple(strides)
    np.testing.assert_array_equal(found.to_dense(), CSX_VALUES)


def test_values_stored_twice_are_added_up() -> None:
    coordinates = np.array([[1, 1], [0, 0], [1, 1]])
    tensor = sa.SparseCOOTensor.from_numpy(np.array([1, 2, 4]), coordinates, (2, 2))
    assert not tensor.is_canonical
    for form in (tensor, tensor.to_csr(), tensor.to_csc(), tensor.to_csf(), tensor.to_coo()):
        assert form.non_zero_length == 3
        assert sa.ipc.read_tensor(message_of(form)).to_dense().tolist() == [[2, 0], [0, 5]]
    for dtype in ("i1", "u2", "f2", "f8", "?"):
        small = sa.SparseCOOTensor.from_numpy(np.array([1, 2, 4], dtype), coordinates, (2, 2)).coalesced()
        assert (small.dtype, small.indices.tolist()) == (np.dtype(dtype), [[0, 0], [1, 1]])
        assert small.data.tolist() == ([True, True] if dtype == "?" else [2, 5])
    times = sa.SparseCOOTensor.from_numpy(np.array([1, 2, 4], "M8[s]"), coordinates, (2, 2))
    with pytest.raises(sa.InvalidData, match="cannot be added up"):
        times.to_dense()


def test_equality_and_repr() -> None:
    tensor = sa.SparseCSRMatrix.from_dense(CSX_VALUES)
    assert tensor == sa.SparseCSRMatrix.from_dense(CSX_VALUES, index_type="uint8")
    assert tensor != sa.SparseCSRMatrix.from_dense(CSX_VALUES, ["a", "b"])
    assert tensor != sa.SparseCSRMatrix.from_dense(CSX_VALUES.astype("i4"))
    assert tensor != sa.SparseCSRMatrix.from_dense(CSX_VALUES + (CSX_VALUES != 0))
    assert tensor != tensor.to_csc()
    assert tensor.to_csf() != tensor.to_csf([1, 0])
    assert tensor != 5
    assert repr(tensor) == "<SparseCSRMatrix int64, shape (6, 4), 9 stored>"
    named = sa.SparseCOOTensor.from_dense(CSX_VALUES, ["a", "b"])
    assert repr(named) == "<SparseCOOTensor int64, shape (6, 4), 9 stored, dimensions a, b>"
    assert (named.ndim, named.size, named.dim_name(1), named.nbytes) == (2, 24, "b", 9 * 8 * 3)


# --- any tensor -------------------------------------------------------------------------------------------------


@st.composite
def dense_arrays(draw: Any, **shape: Any) -> Any:
    dims = draw(hnp.array_shapes(**({"min_dims": 1, "max_dims": 4, "min_side": 0, "max_side": 5} | shape)))
    dtype = draw(st.sampled_from(["i1", "i8", "f4", "f8", "?"]))
    density = draw(st.sampled_from([0.0, 0.1, 0.5, 1.0]))
    rng = np.random.default_rng(draw(st.integers(0, 1 << 32)))
    values = rng.integers(1, 100, dims).astype(dtype)
    return np.where(rng.random(dims) < density, values, np.zeros((), dtype))


@settings(max_examples=50, deadline=None)
@given(dense=dense_arrays(), data=st.data())
def test_any_dense_array(dense: Any, data: st.DataObject) -> None:
    index_type = data.draw(st.sampled_from([None, *INDEX_TYPES]))
    order = data.draw(st.permutations(range(dense.ndim)))
    made = {form: FORMS[form].from_dense(dense, index_type=index_type) for form in forms_of(dense.ndim)}
    made["csf"] = sa.SparseCSFTensor.from_dense(dense, axis_order=order, index_type=index_type)
    for tensor in made.values():
        assert tensor.non_zero_length == np.count_nonzero(dense)
        tensor.validate(full=True)
        np.testing.assert_array_equal(tensor.to_dense(), dense)
        found = sa.ipc.read_tensor(message_of(tensor))
        assert found == tensor
        assert [part.dtype for part in found.index] == [part.dtype for part in tensor.index]
        np.testing.assert_array_equal(found.to_dense(), dense)
        assert tensor.to_coo() == made["coo"]
        assert tensor.to_csf(order) == made["csf"]
        if "csr" in made:
            assert tensor.to_csr() == made["csr"]
            assert tensor.to_csc() == made["csc"]


@settings(max_examples=60, deadline=None)
@given(dense=dense_arrays(min_side=1))
def test_forms_are_those_of_pyarrow(dense: Any) -> None:
    if dense.dtype == bool:
        return
    values, coordinates = pa.SparseCOOTensor.from_dense_numpy(dense).to_numpy()
    coo = sa.SparseCOOTensor.from_dense(dense)
    np.testing.assert_array_equal(coo.indices, coordinates)
    np.testing.assert_array_equal(coo.data, values[:, 0])
    if dense.ndim == 2:
        for peer, form in ((pa.SparseCSRMatrix, "csr"), (pa.SparseCSCMatrix, "csc")):
            theirs = peer.from_dense_numpy(dense).to_numpy()
            for part, expected in zip(FORMS[form].from_dense(dense).to_numpy(), theirs, strict=True):
                np.testing.assert_array_equal(part, expected.reshape(-1))
    if dense.ndim > 1:
        theirs = pa.SparseCSFTensor.from_dense_numpy(dense)
        values, indptr, indices = theirs.to_numpy()
        # Arrow C++ takes the shortest dimension first.
        order = sorted(range(dense.ndim), key=lambda axis: dense.shape[axis])
        csf = sa.SparseCSFTensor.from_dense(dense, axis_order=order)
        np.testing.assert_array_equal(csf.data, values[:, 0])
        for part, expected in zip(csf.indptr + csf.indices, [*indptr, *indices], strict=True):
            np.testing.assert_array_equal(part, expected)


def test_conversions_of_a_large_matrix() -> None:
    rng = np.random.default_rng(0)
    dense = np.where(rng.random((1500, 1100)) < 0.01, rng.random((1500, 1100)), 0)
    tensor = sa.SparseCOOTensor.from_dense(dense)
    shuffled = rng.permutation(tensor.non_zero_length)
    mixed = sa.SparseCOOTensor.from_numpy(tensor.data[shuffled], tensor.indices[shuffled], dense.shape)
    assert not mixed.is_canonical
    assert mixed.to_coo() == tensor
    for form in (mixed.to_csr(), mixed.to_csc(), mixed.to_csf(), mixed.to_csf([1, 0])):
        np.testing.assert_array_equal(form.to_dense(), dense)
        assert form.to_coo() == tensor


# --- arguments that make no sense -------------------------------------------------------------------------------


ONES = np.ones((2, 2))
COO_OF, CSR_OF, CSF_OF = (form.from_numpy for form in (sa.SparseCOOTensor, sa.SparseCSRMatrix, sa.SparseCSFTensor))
REFUSED: list[tuple[Callable[[], Any], type[Exception], str]] = [
    (lambda: sa.SparseCSRMatrix.from_dense(np.zeros(3)), sa.InvalidArgument, "two(-| )dimension"),
    (lambda: sa.SparseCOOTensor.from_dense(np.array(1)), sa.InvalidData, "at least one dimension"),
    (lambda: sa.SparseCOOTensor.from_dense(np.ones(300), index_type="int8"), sa.InvalidArgument, "up to 127"),
    (lambda: sa.SparseCOOTensor.from_dense(ONES, index_type="float"), sa.InvalidType, "integer"),
    (lambda: sa.SparseCSFTensor.from_dense(ONES, axis_order=[0, 0]), sa.InvalidArgument, "permutation"),
    (lambda: sa.SparseCOOTensor.from_dense(ONES, axis_order=[1, 0]), sa.InvalidArgument, "no axis order"),
    (lambda: sa.SparseCSRMatrix.from_dense(ONES, axis_order=[1, 0]), sa.InvalidArgument, r"\(0, 1\)"),
    (lambda: sa.SparseCOOTensor.from_dense(np.ones(3), ["a", "b"]), sa.InvalidArgument, "1 names"),
    (lambda: sa.SparseCOOTensor.from_dense(np.array(["a"])), sa.InvalidType, "numpy dtype"),
    (lambda: COO_OF([1], [[0.5]], (3,)), sa.InvalidType, "integers"),
    (lambda: COO_OF([1], [[3]], (3,)), sa.InvalidData, "run from 3 to 3"),
    (lambda: COO_OF([1], [[-1]], (3,)), sa.InvalidData, "-1"),
    (lambda: COO_OF([1], [[0, 0]], (3,)), sa.InvalidData, r"\(1, 1\)"),
    (lambda: COO_OF([[1, 2]], [[0]], (3,)), sa.InvalidArgument, "the values"),
    (lambda: COO_OF([], np.zeros((0, 2), int), (1 << 40, 1 << 40)), sa.InvalidData, "2\\^63"),
    (lambda: CSR_OF([1], [0, 1], [0], (3, 3)), sa.InvalidData, "needs 4 values of indptr, found 2"),
    (lambda: CSR_OF([1], [0, 1, 1, 2], [0], (3, 3)), sa.InvalidData, "0 to 2"),
    (lambda: CSR_OF([1], [[0, 1]], [0], (1, 3)), sa.InvalidArgument, "one dimension"),
    (lambda: CSF_OF([1], [], [[0]], (3, 3)), sa.InvalidData, "CSF of 2 dimensions"),
    (lambda: CSF_OF([1], [[0, 1]], [[0], [0, 1]], (3, 3)), sa.InvalidData, "1 values"),
    (lambda: CSF_OF([1], [[0, 1]], [[0, 1], [0]], (3, 3)), sa.InvalidData, "needs 3"),
    (lambda: CSF_OF([1], [[1, 1]], [[0], [0]], (3, 3)), sa.InvalidData, "from 1 to 1"),
]


@pytest.mark.parametrize(("make", "error", "message"), REFUSED)
def test_refused(make: Any, error: Any, message: str) -> None:
    with pytest.raises(error, match=message):
        make()


BROKEN = {
    "coo outside": lambda: COO_OF([1], [[5]], (3,), is_canonical=False),
    "coo negative": lambda: COO_OF([1], [[-1]], (3,), is_canonical=False),
    "coo huge": lambda: COO_OF([1], np.array([[1 << 63]], "u8"), (3,), is_canonical=False),
    "coo not sorted": lambda: COO_OF([1, 2], [[1], [0]], (3,), is_canonical=True),
    "coo twice": lambda: COO_OF([1, 2], [[1], [1]], (3,), is_canonical=True),
    "csr goes back": lambda: CSR_OF([1, 2], [0, 2, 1, 2], [0, 1], (3, 3)),
    "csr beyond": lambda: CSR_OF([1, 2], [0, 9, 9, 2], [0, 1], (3, 3)),
    "csr outside": lambda: CSR_OF([1, 2], [0, 1, 1, 2], [0, 3], (3, 3)),
    "csc unsigned goes back": lambda: sa.SparseCSCMatrix.from_numpy(
        [1, 2], np.array([0, 2, 1, 2], "u8"), [0, 1], (3, 3)
    ),
    "csf goes back": lambda: CSF_OF([1, 2], [[0, 2, 1, 2]], [[0, 1, 2], [0, 1]], (3, 3)),
    "csf outside": lambda: CSF_OF([1], [[0, 1]], [[0], [3]], (3, 3)),
    "csf outside, first": lambda: CSF_OF([1], [[0, 1]], [[3], [0]], (3, 3)),
}


@pytest.mark.parametrize("case", BROKEN)
def test_values_of_an_index_are_checked_before_they_are_used(case: str) -> None:
    tensor = sa.ipc.read_tensor(message_of(BROKEN[case]()))
    tensor.validate()
    uses = [tensor.to_dense, tensor.to_coo, tensor.to_csf, lambda: tensor.validate(full=True)]
    for use in uses:
        with pytest.raises(sa.InvalidData):
            use()


# --- bad input --------------------------------------------------------------------------------------------------


def buffer(offset: int, length: int) -> Any:
    return np.array((offset, length), STRUCTS["Buffer"])


def buffers(*places: tuple[int, int]) -> Any:
    return np.array(list(places), STRUCTS["Buffer"])


INT32 = {"bitWidth": 32, "is_signed": True}
COO = {"indicesType": INT32, "indicesStrides": np.array([8, 4]), "indicesBuffer": buffer(0, 16), "isCanonical": False}
CSR = {
    "compressedAxis": 0,
    "indptrType": INT32,
    "indptrBuffer": buffer(0, 16),
    "indicesType": INT32,
    "indicesBuffer": buffer(64, 8),
}
CSF = {
    "indptrType": INT32,
    "indptrBuffers": buffers((0, 8)),
    "indicesType": INT32,
    "indicesBuffers": buffers((64, 4), (128, 8)),
    "axisOrder": np.array([0, 1], "<i4"),
}
INDEX = {"SparseTensorIndexCOO": COO, "SparseMatrixIndexCSX": CSR, "SparseTensorIndexCSF": CSF}
BODY = {
    "SparseTensorIndexCOO": block("<i4", [[0, 1], [2, 1]]) + bytes(128),
    "SparseMatrixIndexCSX": block("<i4", [0, 1, 1, 2]) + block("<i4", [1, 1]) + bytes(64),
    "SparseTensorIndexCSF": block("<i4", [0, 2]) + block("<i4", [1]) + block("<i4", [0, 1]),
}


def crafted(kind: str, index: dict[str, Any], header: dict[str, Any]) -> bytes:
    values = {
        "type": ("Int", {"bitWidth": 64, "is_signed": True}),
        "shape": [{"size": 3}, {"size": 2}],
        "non_zero_length": 2,
        "sparseIndex": (kind, INDEX[kind] | index),
        "data": buffer(192, 16),
    } | header
    body = BODY[kind] + block("<i8", [7, 8])
    return encode_message("SparseTensor", values, len(body), None, IpcWriteOptions()) + body


@pytest.mark.parametrize(
    ("kind", "index", "expected"),
    [
        ("SparseTensorIndexCOO", {}, [[0, 7], [0, 0], [0, 8]]),
        ("SparseTensorIndexCOO", {"indicesStrides": None}, [[0, 7], [0, 0], [0, 8]]),
        ("SparseTensorIndexCOO", {"indicesBuffer": buffer(0, 64)}, [[0, 7], [0, 0], [0, 8]]),
        ("SparseTensorIndexCOO", {"indicesStrides": np.array([0, 4])}, [[0, 15], [0, 0], [0, 0]]),
        ("SparseMatrixIndexCSX", {}, [[0, 7], [0, 0], [0, 8]]),
        ("SparseMatrixIndexCSX", {"indicesBuffer": buffer(64, 16)}, [[0, 7], [0, 0], [0, 8]]),
        ("SparseTensorIndexCSF", {}, [[0, 0], [7, 8], [0, 0]]),
        ("SparseTensorIndexCSF", {"indptrBuffers": buffers((0, 2)), "indicesBuffers": buffers((64, 1), (128, 2))},
         [[0, 0], [7, 8], [0, 0]]),
        ("SparseTensorIndexCSF", {"indptrBuffers": buffers((0, 8)), "indicesBuffers": buffers((64, 8), (128, 8))},
         [[0, 0], [7, 8], [0, 0]]),
        ("SparseTensorIndexCSF", {"indptrBuffers": buffers((0, 64)), "indicesBuffers": buffers((64, 64), (128, 64))},
         [[0, 0], [7, 8], [0, 0]]),
    ],
    ids=str,
)  # fmt: skip
def test_crafted_is_read(kind: str, index: dict[str, Any], expected: Any) -> None:
    assert sa.ipc.read_tensor(crafted(kind, index, {})).to_dense().tolist() == expected


ANY = ["SparseTensorIndexCOO", "SparseMatrixIndexCSX", "SparseTensorIndexCSF"]
LIES: list[tuple[Any, dict[str, Any], dict[str, Any], str]] = [
    (ANY, {}, {"shape": [{"size": -1}, {"size": 2}]}, "-1 elements"),
    (ANY, {}, {"shape": [{"size": 1 << 40}, {"size": 1 << 40}]}, "2\\^63"),
    (ANY, {}, {"shape": []}, "at least one dimension"),
    (ANY[1:], {}, {"shape": [{"size": 3}]}, "dimensions"),
    (ANY, {}, {"shape": [{"size": 1}] * 65}, "65 dimensions"),
    (ANY, {}, {"non_zero_length": -1}, "found -1"),
    (ANY, {}, {"non_zero_length": 3}, "24 bytes but the buffer has 16"),
    (ANY, {}, {"non_zero_length": (1 << 63) - 1}, "but the buffer has 16"),
    (ANY, {}, {"data": buffer(192, 15)}, "16 bytes but the buffer has 15"),
    (ANY, {}, {"data": buffer(250, 16)}, "body has 256"),
    (ANY, {}, {"data": None}, "no buffer"),
    (ANY, {}, {"type": ("Utf8", {})}, "must have a fixed.width"),
    (ANY, {}, {"type": None}, "unknown type"),
    (ANY, {}, {"sparseIndex": None}, "unknown sparse index"),
    (ANY, {"indicesType": None}, {}, "without a type"),
    (ANY, {"indicesType": {"bitWidth": 12, "is_signed": True}}, {}, "found 12"),
    (ANY[:2], {"indicesBuffer": None}, {}, "no buffer"),
    (ANY[:2], {"indicesBuffer": buffer(0, 7)}, {}, "but the buffer has 7"),
    (ANY[:2], {"indicesBuffer": buffer(-8, 16)}, {}, "body has 256"),
    (ANY[:1], {"indicesStrides": np.array([8, -4])}, {}, "at least 0"),
    (ANY[:1], {"indicesStrides": np.array([16, 4])}, {}, "24 bytes but the buffer has 16"),
    (ANY[:1], {"indicesStrides": np.array([4])}, {}, "1 strides"),
    (ANY[1:2], {"compressedAxis": 2}, {}, "found 2"),
    (ANY[1:2], {"indptrType": None}, {}, "without a type"),
    (ANY[1:2], {"indptrBuffer": buffer(0, 12)}, {}, "16 bytes but the buffer has 12"),
    (ANY[1:2], {"indptrBuffer": buffer(4, 16)}, {}, "from 1 to 0"),
    (ANY[1:2], {}, {"shape": [{"size": 1 << 58}, {"size": 2}]}, "but the buffer has 16"),
    (ANY[2:], {"indptrBuffers": None}, {}, "found \\[0, 2, 2\\]"),
    (ANY[2:], {"indicesBuffers": buffers((64, 4))}, {}, "found \\[1, 1, 2\\]"),
    (ANY[2:], {"axisOrder": np.array([0, 0], "<i4")}, {}, "permutation of 2 axes"),
    (ANY[2:], {"axisOrder": np.array([0, 2], "<i4")}, {}, "permutation of 2 axes"),
    (ANY[2:], {"axisOrder": None}, {}, "found \\[1, 2, 0\\]"),
    (ANY[2:], {"indptrBuffers": buffers((0, 0))}, {}, "empty"),
    (ANY[2:], {"indptrBuffers": buffers((4, 8))}, {}, "from 2 to 2"),
    (ANY[2:], {"indptrBuffers": buffers((0, 1 << 62))}, {}, "body has 256"),
    (ANY[2:], {"indicesBuffers": buffers((64, 4), (128, 4))}, {}, "but the buffer has 4"),
    (ANY[2:], {"indicesBuffers": buffers((1 << 62, 4), (128, 8))}, {}, "body has 256"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("kind", "index", "header", "message"),
    [(kind, index, header, message) for kinds, index, header, message in LIES for kind in kinds],
    ids=str,
)
def test_lies(kind: str, index: dict[str, Any], header: dict[str, Any], message: str) -> None:
    with pytest.raises((sa.InvalidData, sa.Unsupported), match=message):
        sa.ipc.read_tensor(crafted(kind, index, header))


def test_a_shape_beyond_memory_is_refused_when_it_is_needed() -> None:
    tensor = sa.SparseCOOTensor.from_numpy([1.0], [[1 << 29, 1 << 28]], (1 << 30, 1 << 29))
    found = sa.ipc.read_tensor(message_of(tensor))
    assert found == tensor
    with pytest.raises(sa.LimitExceeded):
        found.to_dense()


@pytest.mark.parametrize("form", FORMS)
def test_a_mask_is_refused(form: str) -> None:
    """A tensor has no nulls; pyarrow drops the mask."""

    def masked(values: Any) -> Any:
        made = np.ma.masked_array(values)
        made[0] = np.ma.masked
        return made

    index: dict[str, list[Any]] = {"coo": [[[0, 1], [1, 0]]], "csf": [[[0, 1, 2]], [[0, 1], [1, 0]]]}
    parts = index.get(form, [[0, 1, 2], [1, 0]])
    first = [masked(parts[0][0])] if form == "csf" else masked(parts[0])
    for arguments in ((masked([5, 7]), *parts), ([5, 7], first, *parts[1:])):
        with pytest.raises(sa.InvalidType, match=r"fill the masked array first: array.filled\(\)"):
            FORMS[form].from_numpy(*arguments, (2, 2))
    with pytest.raises(sa.InvalidType, match="masked array"):
        FORMS[form].from_dense(masked([[0, 5], [7, 0]]))
