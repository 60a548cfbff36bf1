"""Tensors handed to torch, JAX, scipy and sparse, and taken from them: the same memory, and nothing unchecked."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from environment import torch_or_skip
from parts import address
from processes import python

import shmarrow as sa
from shmarrow import segment

EXTRA = "the extra `tensor` is not installed"
FORMS: dict[str, Any] = {
    "coo": sa.SparseCOOTensor,
    "csr": sa.SparseCSRMatrix,
    "csc": sa.SparseCSCMatrix,
    "csf": sa.SparseCSFTensor,
}
MATRIX = np.array([[0, 1, 2, 0], [0, 0, 3, 0], [0, 4, 0, 5], [0, 0, 0, 0], [6, 0, 7, 8], [0, 9, 0, 0]], np.float64)
CUBE = np.where(np.arange(60).reshape(3, 4, 5) % 7 == 0, np.arange(60.0).reshape(3, 4, 5), 0)
DTYPES = [
    *("?", "u1", "i1", "i2", "i4", "i8", "u2", "u4", "u8", "f2", "f4", "f8"),
    *("bfloat16", "float8_e4m3fn", "float8_e5m2"),
]


@pytest.fixture
def torch() -> Any:
    return torch_or_skip()


@pytest.fixture
def scipy_sparse() -> Any:
    return pytest.importorskip("scipy.sparse", reason=EXTRA)


@pytest.fixture
def sparse() -> Any:
    return pytest.importorskip("sparse", reason="the package sparse is not installed")


@pytest.fixture
def jax() -> Any:
    return pytest.importorskip("jax", reason="the extra `jax` is not installed")


@pytest.fixture(autouse=True)
def _no_warnings() -> Iterator[None]:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        # torch says once that its CSR and CSC are in beta.
        warnings.filterwarnings("ignore", message="Sparse CSR tensor support", category=UserWarning)
        warnings.filterwarnings("ignore", message="Sparse invariant checks", category=UserWarning)
        yield


def mapped(array: Any, name: str) -> sa.Tensor:
    """The array as a tensor in shared memory."""
    sa.ipc.write_tensor(sa.Tensor.from_numpy(array), name, overwrite=True)
    found = sa.ipc.read_tensor(name)
    assert isinstance(found, sa.Tensor)
    return found


# --- torch, dense -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", DTYPES)
def test_torch_has_mapped_memory(torch: Any, shm_name: str, dtype: str) -> None:
    pytest.importorskip("ml_dtypes", reason=EXTRA)
    array = np.array([[0, 1, 2], [3, 4, 5]]).astype(dtype)
    tensor = mapped(array, shm_name)
    expected = getattr(torch, np.dtype(dtype).name)
    for made in (torch.from_dlpack(tensor), tensor.to_torch(), tensor.to_torch(writable=False)):
        assert made.dtype == expected
        assert made.to(torch.float64).tolist() == array.astype("f8").tolist()
    assert made.data_ptr() == address(tensor.storage)
    back = sa.Tensor.from_torch(made)
    assert back == tensor
    assert address(back.storage) == address(tensor.storage)


@pytest.mark.parametrize(
    "array",
    [CUBE.transpose(2, 0, 1), CUBE[::2, 1:, ::3], np.broadcast_to(np.arange(3), (4, 3)), np.zeros((0, 3)), np.array(5)],
    ids=["permuted", "gaps", "repeated", "none", "0-d"],
)
def test_torch_has_any_strides(torch: Any, array: Any) -> None:
    copy = sa.Tensor.from_numpy(array).to_torch()
    made = sa.Tensor.from_numpy(array).to_torch(writable=False)
    assert made.shape == copy.shape == array.shape
    np.testing.assert_array_equal(made.numpy(), array)
    np.testing.assert_array_equal(copy.numpy(), array)
    if array.size:
        assert made.data_ptr() == address(array) != copy.data_ptr()
    np.testing.assert_array_equal(sa.Tensor.from_torch(made).to_numpy(), array)


@pytest.mark.parametrize(
    "form",
    ["plain", "offset", "strided", "conjugate", "bfloat16", "parameter", "coo", "csr", "csc"],
)
def test_elements_beyond_the_storage_are_refused_before_anything_is_read(torch: Any, tmp_path: Any, form: str) -> None:
    """As FSDP frees the storages of parameters between uses."""
    base = torch.arange(64, dtype=torch.bfloat16 if form == "bfloat16" else torch.float32)
    value = {
        "plain": lambda: base,
        "bfloat16": lambda: base,
        "offset": lambda: base[60:],
        "strided": lambda: base.reshape(8, 8).T[::2],
        "conjugate": lambda: torch._neg_view(base),
        "parameter": lambda: torch.nn.Parameter(base),
        "coo": lambda: torch.sparse_coo_tensor(torch.arange(64).reshape(1, 64), base, (64,)),
        "csr": lambda: base.reshape(8, 8).to_sparse_csr(),
        "csc": lambda: base.reshape(8, 8).to_sparse_csc(),
    }[form]()
    dense = value.detach()
    owner = {"coo": "_values", "csr": "col_indices", "csc": "values"}.get(form)
    storage = (getattr(dense, owner)() if owner else dense).untyped_storage()
    whole = storage.nbytes()
    for size in (whole - 8, 0):
        storage.resize_(size)
        calls = [
            lambda: sa.save_tensors({"weight": value}, tmp_path / "x.tensors"),
            lambda: sa.write(value, tmp_path / "x.tensor"),
        ]
        if owner is None:
            calls += [lambda: sa.Tensor.from_torch(value), lambda: sa.array(dense), lambda: sa.Tensor.from_numpy(dense)]
            calls += [lambda: sa.table({"x": dense.reshape(-1)})] if dense.is_contiguous() else []
        for call in calls:
            with pytest.raises(sa.InvalidData, match=r"reach(es)? to byte [0-9,]+ of its storage, which has [0-9,]+"):
                call()


def test_tensors_without_elements_to_read_are_refused_by_name(torch: Any, tmp_path: Any) -> None:
    from torch._subclasses import FakeTensorMode

    with FakeTensorMode():
        fake = torch.ones(3)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        nested = [
            torch.nested.nested_tensor([torch.ones(2), torch.ones(3)], layout=each)
            for each in (torch.strided, torch.jagged)
        ]
        others = [torch.eye(4).to_sparse_bsr(2), torch.ones(3).to_mkldnn(), torch.ones(3, dtype=torch.complex64)]
    for value in (torch.empty(3, device="meta"), fake, *nested, *others):
        with pytest.raises(sa.InvalidType, match="tensor 'weight': "):
            sa.save_tensors({"good": torch.ones(2), "weight": value}, tmp_path / "x.tensors")
        for call in (sa.Tensor.from_torch, sa.Tensor.from_numpy, sa.array):
            with pytest.raises(sa.InvalidType):
                call(value)


def test_every_ml_dtype_is_kept_or_refused(tmp_path: Any) -> None:
    ml_dtypes = pytest.importorskip("ml_dtypes", reason=EXTRA)
    kinds = [kind for kind in vars(ml_dtypes).values() if isinstance(kind, type) and issubclass(kind, np.generic)]
    assert len(kinds) > 15
    kept = 0
    for kind in kinds:
        array = np.array([0, 1, -1, 0]).astype(kind)
        for call in (sa.array, lambda some: sa.table({"x": some}), lambda some: sa.array([some])):
            with pytest.raises(sa.InvalidType, match=f"no Arrow type for the numpy dtype {array.dtype}"):
                call(array)
        try:
            sa.save_tensors({"x": array, "sparse": sa.SparseCOOTensor.from_dense(array)}, tmp_path / "x.tensors")
        except sa.InvalidType:
            assert array.dtype.kind not in "fV"
            continue
        kept += 1
        bundle = sa.load_tensors(tmp_path / "x.tensors")
        assert bundle["x"].to_numpy().dtype == array.dtype
        assert bundle["x"].ml_dtype == bundle["sparse"].ml_dtype == array.dtype.name
        for found in (bundle["x"].to_numpy(), bundle["sparse"].to_dense()):
            assert found.tobytes() == array.tobytes()
    assert kept > 15


def test_negative_strides_never_reach_torch(torch: Any) -> None:
    tensor = sa.Tensor.from_numpy(np.arange(6)[::-1])
    assert torch.from_dlpack(tensor).tolist() == [5, 4, 3, 2, 1, 0]
    assert torch.from_dlpack(tensor[::-2]).tolist() == [0, 2, 4]


def test_torch_outlives_the_name(torch: Any, shm_name: str) -> None:
    made = mapped(np.arange(1000.0), shm_name).to_torch()
    segment.delete(shm_name)
    assert made.sum().item() == 499500
    copy = made.clone()
    copy += 1
    assert copy.sum().item() == 500500


def test_torch_tensors_that_have_no_form(torch: Any) -> None:
    with pytest.raises(sa.InvalidType, match="complex"):
        sa.Tensor.from_torch(torch.zeros(2, dtype=torch.complex64))
    with pytest.raises(sa.InvalidType, match="SparseCOOTensor"):
        sa.Tensor.from_torch(torch.eye(2).to_sparse())
    with pytest.raises(sa.InvalidType, match="ndarray"):
        sa.Tensor.from_torch(np.zeros(2))
    with pytest.raises(sa.ExportRefused, match="no type"):
        sa.Tensor.from_numpy(np.zeros(2, "M8[us]")).to_torch()
    with pytest.raises(sa.InvalidType, match="layout"):
        sa.SparseCOOTensor.from_torch(torch.zeros(2))
    with pytest.raises(sa.Unsupported, match="dense or batch"):
        sa.SparseCOOTensor.from_torch(torch.ones(2, 3).to_sparse(1))
    leaf = torch.arange(3.0, requires_grad=True)
    assert address(sa.Tensor.from_torch(leaf).storage) == leaf.data_ptr()


def test_a_gpu_has_it_after_one_transfer(torch: Any, shm_name: str) -> None:
    tensor = mapped(np.arange(1 << 20, dtype="f4"), shm_name)
    assert tensor.to_torch("cpu", writable=False).data_ptr() == address(tensor.storage)
    if not torch.cuda.is_available():
        with pytest.raises(sa.Unsupported, match="no CUDA device"), tensor.pinned():
            pass
        pytest.skip("no GPU here: transfers and pinned memory are not tested")
    with tensor.pinned():
        made = tensor.to_torch("cuda")
    assert made.device.type == "cuda"
    assert made.sum().item() == pytest.approx(np.arange(1 << 20, dtype="f4").sum())


# --- columns ----------------------------------------------------------------------------------------------------


def test_columns_are_tensors(torch: Any, shm_name: str) -> None:
    numbers = np.arange(12.0)
    pairs = sa.FixedSizeListArray.from_arrays(sa.array(numbers), type=sa.list_(sa.float64(), 2))
    cubes = sa.FixedShapeTensorArray.from_numpy_ndarray(numbers.reshape(3, 2, 2))
    schema = sa.schema([("pairs", pairs.type), ("numbers", sa.float64())])
    with sa.ipc.new_file(shm_name, schema) as writer:
        writer.write(sa.record_batch([pairs, sa.array(numbers[:6])], schema=schema))
    with sa.ipc.open_file(shm_name) as reader:
        batch = reader.get_batch(0)
    made = batch["pairs"].to_torch(writable=False)
    assert made.tolist() == numbers.reshape(6, 2).tolist()
    assert made.data_ptr() == address(batch["pairs"].to_numpy())
    assert batch["numbers"].to_torch().tolist() == numbers[:6].tolist()
    assert batch["pairs"].slice(2, 3).to_torch().tolist() == numbers[4:10].reshape(3, 2).tolist()
    tensor = sa.Tensor.from_array(cubes, ["row", "y", "x"])
    assert (tensor.shape, tensor.dim_names) == ((3, 2, 2), ("row", "y", "x"))
    assert address(tensor.storage) == address(numbers)
    assert cubes.to_torch().shape == (3, 2, 2)
    with pytest.raises(sa.CopyRequired):
        sa.array([1.0, None]).to_torch()
    with pytest.raises(sa.InvalidType):
        sa.Tensor.from_array(numbers)


# --- torch, sparse ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("index_type", [None, "int32", "uint8"])
@pytest.mark.parametrize("form", FORMS)
def test_sparse_to_torch(torch: Any, form: str, index_type: str | None) -> None:
    tensor = FORMS[form].from_dense(MATRIX, index_type=index_type)
    made = tensor.to_torch(writable=False)
    layout = {"csr": torch.sparse_csr, "csc": torch.sparse_csc}.get(form, torch.sparse_coo)
    assert made.layout is layout
    np.testing.assert_array_equal(made.to_dense().numpy(), MATRIX)
    values = made._values() if layout is torch.sparse_coo else made.values()
    assert values.data_ptr() == address(tensor.storage) or form == "csf"
    if form == "coo":
        assert made.is_coalesced()
        if index_type is None:
            assert made._indices().data_ptr() == address(tensor.indices)
    if form == "csr" and index_type != "uint8":
        assert made.col_indices().data_ptr() == address(tensor.indices)
    vector = torch.arange(4.0, dtype=torch.float64)[:, None]
    np.testing.assert_array_equal((made @ vector).numpy(), MATRIX @ vector.numpy())


@pytest.mark.parametrize("form", FORMS)
def test_sparse_from_torch(torch: Any, form: str) -> None:
    dense = torch.from_dlpack(sa.Tensor.from_numpy(MATRIX))
    for theirs in (dense.to_sparse(), dense.to_sparse_csr(), dense.to_sparse_csc()):
        found = FORMS[form].from_torch(theirs, ["a", "b"])
        assert type(found) is FORMS[form]
        assert found.dim_names == ("a", "b")
        np.testing.assert_array_equal(found.to_dense(), MATRIX)
    cube = FORMS[form].from_torch if form in ("coo", "csf") else None
    if cube is not None:
        np.testing.assert_array_equal(cube(torch.from_numpy(CUBE).to_sparse()).to_dense(), CUBE)
        assert cube(torch.from_numpy(CUBE).bfloat16().to_sparse()).ml_dtype == "bfloat16"


def test_torch_memory_is_shared(torch: Any) -> None:
    coo = torch.from_numpy(MATRIX).to_sparse()
    assert address(sa.SparseCOOTensor.from_torch(coo).storage) == coo._values().data_ptr()
    assert address(sa.SparseCOOTensor.from_torch(coo).indices) == coo._indices().data_ptr()
    csr = torch.from_numpy(MATRIX).to_sparse_csr()
    assert address(sa.SparseCSRMatrix.from_torch(csr).indices) == csr.col_indices().data_ptr()


def test_uncoalesced_values(torch: Any) -> None:
    theirs = torch.sparse_coo_tensor([[1, 0, 1]], [1.0, 2.0, 4.0], (3,), check_invariants=True)
    found = sa.SparseCOOTensor.from_torch(theirs)
    assert not found.is_canonical
    assert found.to_dense().tolist() == [2, 5, 0]
    assert found.to_torch().to_dense().tolist() == [2, 5, 0]
    mixed = sa.SparseCSRMatrix.from_numpy([1.0, 2.0, 4.0], [0, 3], [2, 0, 2], (1, 3))
    made = mixed.to_torch()
    assert made.col_indices().tolist() == [0, 2]
    assert made.to_dense().tolist() == [[2, 0, 5]]


# --- scipy ------------------------------------------------------------------------------------------------------

KINDS = ["bsr", "coo", "csc", "csr", "dia", "dok", "lil"]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("form", FORMS)
def test_from_scipy(scipy_sparse: Any, form: str, kind: str) -> None:
    for suffix in ("array", "matrix"):
        theirs = getattr(scipy_sparse, f"{kind}_{suffix}")(MATRIX)
        found = FORMS[form].from_scipy(theirs, ["a", "b"])
        assert type(found) is FORMS[form]
        assert found.dim_names == ("a", "b")
        np.testing.assert_array_equal(found.to_dense(), MATRIX)


@pytest.mark.parametrize("index_type", ["int32", "int64", "uint8"])
@pytest.mark.parametrize("form", FORMS)
def test_to_scipy(scipy_sparse: Any, shm_name: str, form: str, index_type: str) -> None:
    sa.ipc.write_tensor(FORMS[form].from_dense(MATRIX, index_type=index_type), shm_name)
    tensor = sa.ipc.read_tensor(shm_name)
    made = tensor.to_scipy()
    assert made.format == {"csf": "coo"}.get(form, form)
    np.testing.assert_array_equal(made.toarray(), MATRIX)
    np.testing.assert_array_equal(made @ np.arange(4.0), MATRIX @ np.arange(4.0))
    if form != "csf":
        assert np.shares_memory(made.data, tensor.data)
        if index_type != "uint8":
            index = made.coords[0] if form == "coo" else made.indices
            assert np.shares_memory(index, tensor.indices)


@pytest.mark.parametrize("form", ["csr", "csc"])
def test_scipy_memory_is_shared(scipy_sparse: Any, form: str) -> None:
    theirs = getattr(scipy_sparse, f"{form}_array")(MATRIX)
    found = FORMS[form].from_scipy(theirs)
    assert np.shares_memory(found.data, theirs.data)
    assert np.shares_memory(found.indices, theirs.indices)
    assert np.shares_memory(found.indptr, theirs.indptr)


METHODS: dict[str, Any] = {
    **{name: lambda a, name=name: getattr(a, name)() for name in (
        "sum", "mean", "max", "min", "count_nonzero", "tocsc", "tocsr", "tocoo", "todense", "tolil", "diagonal", "copy",
        "sum_duplicates", "trace", "transpose",
    )},
    "abs": abs, "power": lambda a: a.power(2), "rows": lambda a: a.sum(axis=0), "slice": lambda a: a.tocsr()[1:, :2],
    "product": lambda a: a @ a.T, "vector": lambda a: a @ np.ones(a.shape[1]), "times": lambda a: a.multiply(a),
    "plus": lambda a: a + a, "unequal": lambda a: a != a.copy(), "argmax": lambda a: a.argmax(),
}  # fmt: skip


@pytest.mark.parametrize("form", ["csr", "csc", "coo"])
@pytest.mark.parametrize("kind", ["canonical", "unsorted", "repeated", "product"])
def test_scipy_works_with_what_was_stored(scipy_sparse: Any, tmp_path: Any, form: str, kind: str) -> None:
    """scipy sorts CSR and CSC in place and adds duplicates, when a method first needs that."""
    rng = np.random.default_rng(5)
    dense = rng.integers(-3, 4, (6, 5)) * (rng.random((6, 5)) < 0.5)
    canonical = scipy_sparse.coo_array(dense)
    places = rng.permutation(canonical.nnz) if kind == "unsorted" else np.arange(canonical.nnz)
    places = np.concatenate([places, places[:3]]) if kind == "repeated" else places
    order = {"csr": 0, "csc": 1}.get(form)
    if order is not None and kind != "product":
        places = places[np.argsort(canonical.coords[order][places], kind="stable")]
        ends = np.cumsum(np.bincount(canonical.coords[order][places], minlength=dense.shape[order]))
        parts = (canonical.data[places], canonical.coords[1 - order][places], np.concatenate([[0], ends]))
        source = getattr(scipy_sparse, f"{form}_array")(parts, shape=dense.shape)
    else:
        rows, columns = (axis[places] for axis in canonical.coords)
        source = scipy_sparse.coo_array((canonical.data[places], (rows, columns)), shape=dense.shape)
        source = (canonical.asformat(form) @ canonical.T.asformat(form)).asformat(form) if kind == "product" else source
    whole = source.toarray()
    tensor = sa.SparseTensor.from_scipy(source)
    for name, method in METHODS.items():
        sa.write(tensor, tmp_path / "x.tensor", overwrite=True)
        found, expected = (method(each) for each in (sa.open(tmp_path / "x.tensor").to_scipy(), source.copy()))
        found, expected = (each.toarray() if hasattr(each, "toarray") else each for each in (found, expected))
        np.testing.assert_array_equal(found, expected, err_msg=name)
    assert source.max() == whole.max()  # sorts in place
    source.sum_duplicates()
    np.testing.assert_array_equal(tensor.to_scipy().toarray(), whole)


def test_scipy_of_other_dimensions(scipy_sparse: Any) -> None:
    for form in (sa.SparseCOOTensor, sa.SparseCSFTensor):
        for dense in (CUBE, CUBE[0, 0]):
            made = form.from_dense(dense).to_scipy()
            np.testing.assert_array_equal(made.toarray(), dense)
            np.testing.assert_array_equal(form.from_scipy(made).to_dense(), dense)
    with pytest.raises(sa.InvalidType, match="ndarray"):
        sa.SparseCOOTensor.from_scipy(MATRIX)


@pytest.mark.parametrize("dtype", ["f2", "M8[s]", "bfloat16"])
def test_types_that_scipy_has_not(scipy_sparse: Any, dtype: str) -> None:
    pytest.importorskip("ml_dtypes", reason=EXTRA)
    with pytest.raises(sa.InvalidType, match="no sparse arrays"):
        sa.SparseCSRMatrix.from_dense(MATRIX.astype("i8").astype(dtype)).to_scipy()


# --- sparse -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("form", FORMS)
def test_pydata_sparse(sparse: Any, form: str) -> None:
    tensor = FORMS[form].from_dense(MATRIX)
    made = tensor.to_pydata_sparse()
    assert type(made) is (sparse.GCXS if form in ("csr", "csc") else sparse.COO)
    np.testing.assert_array_equal(made.todense(), MATRIX)
    assert np.shares_memory(made.data, tensor.data) or form == "csf"
    # What has a form of its own for rows or columns is compiled for many seconds: cubes below become the other forms.
    compressed = [sparse.GCXS.from_numpy(MATRIX, compressed_axes=(axis,)) for axis in (0, 1) if form in ("csr", "csc")]
    for theirs in (sparse.COO.from_numpy(MATRIX), *compressed):
        found = FORMS[form].from_pydata_sparse(theirs, ["a", "b"])
        assert type(found) is FORMS[form]
        np.testing.assert_array_equal(found.to_dense(), MATRIX)


def test_pydata_sparse_of_other_dimensions(sparse: Any) -> None:
    for theirs in (sparse.COO.from_numpy(CUBE), sparse.GCXS.from_numpy(CUBE)):
        for form in (sa.SparseCOOTensor, sa.SparseCSFTensor):
            found = form.from_pydata_sparse(theirs)
            np.testing.assert_array_equal(found.to_dense(), CUBE)
            np.testing.assert_array_equal(found.to_pydata_sparse().todense(), CUBE)
    with pytest.raises(sa.InvalidType, match="fill value"):
        sa.SparseCOOTensor.from_pydata_sparse(sparse.COO.from_numpy(CUBE, fill_value=0) + 1)
    with pytest.raises(sa.InvalidType, match="ndarray"):
        sa.SparseCOOTensor.from_pydata_sparse(CUBE)
    twice = sa.SparseCOOTensor.from_numpy([1, 2, 4], [[1], [0], [1]], (2,))
    assert twice.to_pydata_sparse().todense().tolist() == [2, 5]


# --- JAX --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", ["f4", "i4", "u1", "f2", "bfloat16", "float8_e4m3fn", "?"])
def test_jax_has_mapped_memory(jax: Any, shm_name: str, dtype: str) -> None:
    pytest.importorskip("ml_dtypes", reason=EXTRA)
    tensor = mapped(np.arange(64).reshape(8, 8).astype(dtype), shm_name)
    made = tensor.to_jax()
    assert (made.shape, made.dtype) == ((8, 8), np.dtype(dtype))
    assert made.unsafe_buffer_pointer() == address(tensor.storage)
    changed = jax.jit(lambda x: x.at[0].set(x[1]), donate_argnums=0)(made)
    assert changed.shape == (8, 8)
    assert sa.Tensor.from_jax(tensor.to_jax()) == tensor
    private = jax.dlpack.from_dlpack(tensor)  # private pages
    assert private.unsafe_buffer_pointer() != address(tensor.storage)
    assert sa.Tensor.from_jax(private) == tensor


@pytest.mark.parametrize(
    "array",
    [
        CUBE.transpose(2, 0, 1), CUBE[::2, 1:, ::3], np.broadcast_to(np.arange(3), (4, 3)), np.zeros((0, 3)),
        np.array(5), np.asfortranarray(CUBE[0]), np.arange(6)[::-2],
        np.lib.stride_tricks.sliding_window_view(np.arange(9), 4),
    ],
    ids=["permuted", "gaps", "repeated", "none", "0-d", "columns", "backwards", "windows"],
)  # fmt: skip
def test_jax_has_any_strides(jax: Any, shm_name: str, array: Any) -> None:
    array = array.astype("f4") if array.flags.c_contiguous else array
    for tensor in (sa.Tensor.from_numpy(array), mapped(array, shm_name)):
        np.testing.assert_array_equal(np.asarray(tensor.to_jax()), array)


def test_jax_has_arrays_and_bundles(jax: Any, tmp_path: Path) -> None:
    assert sa.array([1.5, 2], sa.float32()).to_jax().tolist() == [1.5, 2]
    assert sa.chunked_array([[True, False]]).to_jax().tolist() == [True, False]
    with pytest.raises(sa.CopyRequired):
        sa.array([1, None]).to_jax()
    sa.save_tensors({"dense": np.arange(3.0), "sparse": sa.SparseCOOTensor.from_dense(np.eye(2))}, tmp_path / "b")
    made = sa.load_tensors(tmp_path / "b").to_jax()
    assert {name: value.tolist() for name, value in made.items()} == {"dense": [0, 1, 2], "sparse": [[1, 0], [0, 1]]}


@pytest.mark.parametrize(
    ("good", "bad"),
    [
        (np.array([-(2**31), 2**31 - 1]), np.array([0, 2**31])),
        (np.array([2**32 - 1], "u8"), np.array([2**32], "u8")),
        (np.array([3e38, -np.inf]), np.array([1e300])),
    ],
)
def test_jax_refuses_what_32_bits_cannot_hold(jax: Any, good: Any, bad: Any) -> None:
    narrow = f"{good.dtype.kind}4"
    assert sa.Tensor.from_numpy(good.reshape(1, -1)).to_jax().tolist() == [good.astype(narrow).tolist()]
    with pytest.raises(sa.InvalidData, match="jax_enable_x64"):
        sa.Tensor.from_numpy(bad).to_jax()
    jax.config.update("jax_enable_x64", True)
    try:
        assert sa.Tensor.from_numpy(bad).to_jax().tolist() == bad.tolist()
    finally:
        jax.config.update("jax_enable_x64", False)


# --- checks and imports -----------------------------------------------------------------------------------------

WRONG = {
    "coo": sa.SparseCOOTensor.from_numpy([1.0], [[9, 0]], (3, 3), is_canonical=False),
    "csr": sa.SparseCSRMatrix.from_numpy([1.0], [0, 1, 1, 1], [1 << 40], (3, 3)),
    "csc": sa.SparseCSCMatrix.from_numpy([1.0, 2.0], [0, 2, 1, 2], [0, 1], (3, 3)),
    "csf": sa.SparseCSFTensor.from_numpy([1.0], [[0, 1]], [[0], [-1]], (3, 3)),
}


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("package", ["torch", "scipy", "sparse"])
def test_no_unchecked_index_leaves(form: str, package: str) -> None:
    pytest.importorskip(package, reason=f"{package} is not installed")
    method = {"torch": "to_torch", "scipy": "to_scipy", "sparse": "to_pydata_sparse"}[package]
    with pytest.raises(sa.InvalidData):
        getattr(WRONG[form], method)()


@pytest.mark.processes
def test_without_the_packages() -> None:
    """The errors name the extra to install."""
    code = """
import sys
for package in ("torch", "scipy", "sparse", "jax"):
    sys.modules[package] = None
import numpy as np, shmarrow as sa
dense, sparse = sa.Tensor.from_numpy(np.eye(2)), sa.SparseCOOTensor.from_dense(np.eye(2))
for use in (
    dense.to_torch, sparse.to_torch, sparse.to_scipy, sparse.to_pydata_sparse, dense.to_jax,
    lambda: __import__("shmarrow.torch"),
):
    try:
        use()
    except sa.MissingExtra as error:
        print("pip install 'shmarrow[" in str(error))
"""
    assert python(code) == "True\n" * 6
