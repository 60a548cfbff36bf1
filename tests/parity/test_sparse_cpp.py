"""Sparse tensors with Arrow C++ in both directions, through a small program on the headers in pyarrow's wheel.

What it reads and writes are files; this suite makes and compares them. Without a C++ compiler it is skipped.
"""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from environment import ROOT
from forms import SPARSE as FORMS
from forms import for_cpp

import shmarrow as sa

NAMES = {"coo": "SparseCOOIndex", "csr": "SparseCSRIndex", "csc": "SparseCSCIndex", "csf": "SparseCSFIndex"}
INDEX_TYPES = ["int8", "int16", "int32", "int64", "uint8", "uint16", "uint32"]  # C++ refuses to make uint64
DTYPES = ["i1", "u1", "i2", "u2", "i4", "u4", "i8", "u8", "f2", "f4", "f8"]

Peer = Callable[..., list[str]]


@pytest.fixture(scope="session")
def peer(tmp_path_factory: pytest.TempPathFactory) -> Peer:
    """Runs the C++ program; gives the lines that it printed."""
    compiler = shutil.which("c++") or shutil.which("g++") or shutil.which("clang++")
    if compiler is None:
        pytest.skip("no C++ compiler to build Arrow C++'s side with (Debian: g++)")
    libraries = Path(pa.get_library_dirs()[0])
    shared = sorted([*libraries.glob("libarrow.so.*"), *libraries.glob("libarrow.*.dylib")])
    if not shared or not Path(pa.get_include(), "arrow", "api.h").exists():
        pytest.skip(f"pyarrow {pa.__version__} came without libarrow or its headers")
    program = tmp_path_factory.mktemp("cpp") / "sparse"
    command = [compiler, "-std=c++20", "-O0", "-Wno-deprecated-declarations", f"-I{pa.get_include()}"]
    command += [
        str(ROOT / "tests" / "support" / "sparse.cc"),
        str(shared[0]),
        f"-Wl,-rpath,{libraries}",
        "-o",
        str(program),
    ]
    built = subprocess.run(command, capture_output=True, text=True)
    assert built.returncode == 0, f"{' '.join(command)} failed:\n{built.stderr}"

    def run(*arguments: Any) -> list[str]:
        ran = subprocess.run([program, *map(str, arguments)], capture_output=True, text=True)
        assert ran.returncode == 0, ran.stderr
        return ran.stdout.splitlines()

    return run


def sample(shape: tuple[int, ...], density: float, dtype: str = "f4") -> Any:
    rng = np.random.default_rng(len(shape))
    values = rng.integers(1, 100, shape)
    return np.where(rng.random(shape) < density, values, 0).astype(dtype)


SHAPES = [(6, 4), (4, 6), (1, 1), (9, 7, 5), (2, 3, 4, 5), (13,)]
CASES = [
    pytest.param(form, shape, id=f"{form}-{'x'.join(map(str, shape))}")
    for form in FORMS
    for shape in SHAPES
    if (form in ("csr", "csc")) <= (len(shape) == 2) and (form == "csf") <= (len(shape) > 1)
]


@pytest.mark.parametrize("density", [0.0, 0.3, 1.0])
@pytest.mark.parametrize(("form", "shape"), CASES)
def test_forms(peer: Peer, tmp_path: Path, form: str, shape: tuple[int, ...], density: float) -> None:
    dense = sample(shape, density)
    names = [f"d{axis}" for axis in range(len(shape))]
    sa.ipc.write_tensor(sa.Tensor.from_numpy(dense, names), tmp_path / "dense")
    described = f"{NAMES[form]} {np.count_nonzero(dense)} float {' '.join(map(str, shape))} {' '.join(names)}"

    assert peer("to-sparse", form, "int32", tmp_path / "dense", tmp_path / "theirs") == [described]
    theirs = sa.ipc.read_tensor(tmp_path / "theirs")
    theirs.validate(full=True)
    np.testing.assert_array_equal(theirs.to_dense(), dense)
    assert theirs.dim_names == tuple(names)

    order = {"axis_order": theirs.axis_order} if form == "csf" else {}
    ours = FORMS[form].from_dense(dense, names, index_type="int32", **order)
    assert ours == theirs
    (tmp_path / "ours").write_bytes(for_cpp(ours))
    assert peer("to-dense", tmp_path / "ours", tmp_path / "back") == [described]
    np.testing.assert_array_equal(sa.ipc.read_tensor(tmp_path / "back.0").to_numpy(), dense)


@pytest.mark.parametrize("form", FORMS)
def test_index_types(peer: Peer, tmp_path: Path, form: str) -> None:
    dense = sample((6, 5), 0.4)
    sa.ipc.write_tensor(sa.Tensor.from_numpy(dense), tmp_path / "dense")
    for index_type in INDEX_TYPES:
        peer("to-sparse", form, index_type, tmp_path / "dense", tmp_path / f"theirs-{index_type}")
        theirs = sa.ipc.read_tensor(tmp_path / f"theirs-{index_type}")
        assert theirs.index[0].dtype == np.dtype(index_type)
        np.testing.assert_array_equal(theirs.to_dense(), dense)
        order = {"axis_order": (1, 0)} if form == "csf" else {}
        ours = FORMS[form].from_dense(dense, index_type=index_type, **order)
        assert ours == theirs
        (tmp_path / f"ours-{index_type}").write_bytes(for_cpp(ours))
    files = ",".join(str(tmp_path / f"ours-{index_type}") for index_type in INDEX_TYPES)
    assert len(peer("to-dense", files, tmp_path / "back")) == len(INDEX_TYPES)
    for number in range(len(INDEX_TYPES)):
        np.testing.assert_array_equal(sa.ipc.read_tensor(tmp_path / f"back.{number}").to_numpy(), dense)


@pytest.mark.parametrize("form", FORMS)
def test_element_types(peer: Peer, tmp_path: Path, form: str) -> None:
    for dtype in DTYPES:
        (tmp_path / f"ours-{dtype}").write_bytes(for_cpp(FORMS[form].from_dense(sample((6, 5), 0.4, dtype))))
    files = ",".join(str(tmp_path / f"ours-{dtype}") for dtype in DTYPES)
    lines = peer("to-dense", files, tmp_path / "back")
    assert [line.split()[2] for line in lines] == [
        str(sa.Tensor.from_numpy(np.empty(0, dtype)).type) for dtype in DTYPES
    ]
    for number, dtype in enumerate(DTYPES):
        np.testing.assert_array_equal(
            sa.ipc.read_tensor(tmp_path / f"back.{number}").to_numpy(), sample((6, 5), 0.4, dtype)
        )
