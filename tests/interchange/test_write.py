"""``shmarrow.write``: every kind of data in every format that can hold it, and what is refused."""

from __future__ import annotations

import io
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import shmarrow as sa

VALUES = {"x": [1, 2, None], "s": ["a", None, ""]}
TENSORS = {"w": np.arange(6.0).reshape(2, 3), "b": np.ones(2, "i4")}


def of_pandas() -> Any:
    return pytest.importorskip("pyarrow").table(VALUES).to_pandas(types_mapper=pytest.importorskip("pandas").ArrowDtype)


ROWS: dict[str, Callable[[], Any]] = {
    "a mapping": lambda: VALUES,
    "a batch": lambda: sa.record_batch(VALUES),
    "a table": lambda: sa.table(VALUES),
    "batches": lambda: [sa.record_batch(VALUES).slice(0, 1), sa.record_batch(VALUES).slice(1)],
    "a reader": lambda: sa.table(VALUES).to_reader(),
    "a scan": lambda: sa.scan(sa.table(VALUES)),
    "pyarrow": lambda: pytest.importorskip("pyarrow").table(VALUES),
    "Polars": lambda: pytest.importorskip("polars").DataFrame(VALUES),
    "pandas": of_pandas,
}


@pytest.mark.parametrize("kind", ROWS)
@pytest.mark.parametrize("suffix", ["arrow", "feather", "arrows"])
def test_rows_of_any_kind(kind: str, suffix: str, tmp_path: Path) -> None:
    path = tmp_path / f"x.{suffix}"
    written = sa.write(ROWS[kind](), path)
    assert written == ("arrows" if suffix == "arrows" else "arrow", 3, None, path.stat().st_size)
    assert sa.open(path).read_all().to_pydict() == VALUES


@pytest.mark.parametrize("suffix", ["parquet", "csv"])
def test_rows_in_formats_of_others(suffix: str, tmp_path: Path) -> None:
    pytest.importorskip("pyarrow")
    assert sa.write(VALUES, tmp_path / f"x.{suffix}").rows == 3
    sa.convert(tmp_path / f"x.{suffix}", tmp_path / "back.arrow")
    assert sa.open(tmp_path / "back.arrow").read_all().to_pydict() == VALUES


@pytest.mark.parametrize(
    ("tensors", "metadata", "text"),
    [
        ({"__metadata__": np.ones(2)}, {}, "keeps the name '__metadata__' for metadata"),
        ({"a": np.ones(2)}, {b"\xff": b"x"}, r"metadata of safetensors are text, found b'\\xff'"),
        ({"a": np.ones(2)}, {b"x": b"\xff"}, r"metadata of safetensors are text, found b'\\xff'"),
    ],
)
def test_what_safetensors_cannot_hold_is_refused(tmp_path: Path, tensors: Any, metadata: Any, text: str) -> None:
    sa.save_tensors(tensors, tmp_path / "x.tensors", metadata)
    with pytest.raises(sa.InvalidArgument, match=text):
        sa.convert(tmp_path / "x.tensors", tmp_path / "x.safetensors")
    assert not (tmp_path / "x.safetensors").exists()


@pytest.mark.parametrize("suffix", ["tensors", "safetensors"])
def test_named_tensors(suffix: str, tmp_path: Path) -> None:
    path = tmp_path / f"x.{suffix}"
    assert sa.write(TENSORS, path, metadata={"k": "v"}) == (suffix, None, 2, path.stat().st_size)
    sa.convert(path, tmp_path / "back.tensors")
    sa.write(sa.open(tmp_path / "back.tensors"), tmp_path / "again.tensors")
    again = sa.load_tensors(tmp_path / "again.tensors")
    assert again.metadata == {b"k": b"v"}
    assert {name: (value.tolist(), value.dtype) for name, value in again.to_numpy().items()} == {
        name: (value.tolist(), value.dtype) for name, value in TENSORS.items()
    }


def test_one_tensor_is_a_message(tmp_path: Path) -> None:
    for value in (TENSORS["w"], sa.Tensor.from_numpy(TENSORS["w"])):
        assert sa.write(value, tmp_path / "w.arrow").format == "tensor"
        assert sa.open(tmp_path / "w.arrow").to_numpy().tolist() == TENSORS["w"].tolist()


def test_a_kind_is_checked_when_it_is_opened(tmp_path: Path) -> None:
    sa.write(TENSORS["w"], tmp_path / "w.arrow")
    assert sa.open(tmp_path / "w.arrow", kind=sa.Tensor).shape == (2, 3)
    with pytest.raises(sa.InvalidType, match=r"w.arrow' to be a RecordBatchFileReader, found a Tensor"):
        sa.open(tmp_path / "w.arrow", kind=sa.ipc.RecordBatchFileReader)


def test_shared_memory_says_by_the_data(shm_name: str) -> None:
    for value, kind in ((VALUES, "arrow"), (TENSORS, "tensors"), (TENSORS["w"], "tensor")):
        assert sa.write(value, shm_name, overwrite=True).format == kind
        assert sa.open(shm_name) is not None
        with pytest.raises(sa.ObjectExists):
            sa.write(value, shm_name)


def test_methods_write_too(tmp_path: Path) -> None:
    batch = sa.record_batch(VALUES)
    for number, data in enumerate((batch, sa.table(VALUES), sa.scan(sa.table(VALUES)))):
        assert data.write(tmp_path / f"{number}.arrow", compression="zstd").rows == 3
        assert sa.open(tmp_path / f"{number}.arrow").read_all().to_pydict() == VALUES


def test_options(tmp_path: Path) -> None:
    seen: list[tuple[int, int | None]] = []
    rows = sa.table({"x": np.arange(10)})
    sa.write(
        rows, tmp_path / "x.arrow", rows_per_batch=4, statistics=["x"], metadata={"k": "v"}, permissions=0o640,
        durable=True, progress=lambda *numbers: seen.append(numbers),
    )  # fmt: skip
    with sa.ipc.open_file(tmp_path / "x.arrow") as file:
        assert [batch.num_rows for batch in file] == [4, 4, 2]
        assert file.metadata == {b"k": b"v"}
        assert file.statistics.num_rows == 3
    assert seen == [(4, 10), (8, 10), (10, 10)]
    assert os.stat(tmp_path / "x.arrow").st_mode & 0o777 == 0o640
    sink = io.BytesIO()
    assert sa.write(rows, sink).format == "arrows"
    assert sa.open(sink.getvalue()).read_all().to_pydict() == rows.to_pydict()


def test_dictionaries_of_batches_that_differ(tmp_path: Path) -> None:
    batches = [
        sa.record_batch({"c": sa.array(words, sa.string()).dictionary_encode()})
        for words in (["a", "b"], [], ["c", "a"])
    ]
    sa.write(sa.table(batches), tmp_path / "x.arrow")
    assert sa.open(tmp_path / "x.arrow").read_all().to_pydict() == {"c": ["a", "b", "c", "a"]}


def test_conversion_keeps_the_metadata_of_a_file(tmp_path: Path) -> None:
    sa.write(VALUES, tmp_path / "a.arrow", metadata={"k": "v"})
    sa.convert(tmp_path / "a.arrow", tmp_path / "b.arrow")
    assert sa.ipc.open_file(tmp_path / "b.arrow").metadata == {b"k": b"v"}


T, A = sa.InvalidType, sa.InvalidArgument
REFUSED: dict[str, tuple[type[Exception], Callable[[], Any], dict[str, Any], str]] = {
    "a path": (T, lambda: "a.arrow", {}, "x.arrow"),
    "a number": (T, lambda: 1, {}, "x.arrow"),
    "a column": (T, lambda: sa.array([1]), {}, "x.arrow"),
    "no format": (A, lambda: VALUES, {}, "x.txt"),
    "a format without a name": (A, lambda: VALUES, {"format": "xlsx"}, "x.arrow"),
    "a tensor as rows": (A, lambda: TENSORS["w"], {}, "x.parquet"),
    "rows as tensors": (T, lambda: {"s": ["a"]}, {}, "x.safetensors"),
    "metadata of a stream": (A, lambda: VALUES, {"metadata": {"k": "v"}}, "x.arrows"),
    "statistics of a stream": (A, lambda: VALUES, {"statistics": True}, "x.arrows"),
    "compression of text": (A, lambda: VALUES, {"compression": "zstd"}, "x.csv"),
    "batches without rows": (A, lambda: VALUES, {"rows_per_batch": 0}, "x.arrow"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_refused_and_nothing_is_there(case: str, tmp_path: Path) -> None:
    error, data, options, name = REFUSED[case]
    with pytest.raises(error):
        sa.write(data(), tmp_path / name, **options)
    assert list(tmp_path.iterdir()) == []


def test_a_reader_that_fails_leaves_nothing(tmp_path: Path) -> None:
    def batches() -> Any:
        yield sa.record_batch(VALUES)
        raise RuntimeError("lost")

    schema = sa.record_batch(VALUES).schema
    with pytest.raises(RuntimeError, match="lost"):
        sa.write(sa.RecordBatchReader.from_batches(schema, batches()), tmp_path / "x.arrow")
    assert list(tmp_path.iterdir()) == []
