"""Conversion of files: every pair of formats, what a format cannot hold, pipes, and broken files."""

from __future__ import annotations

import datetime as dt
import gzip
import io
import json
import os
import subprocess
import sys
import warnings
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import forms
import numpy as np
import pytest
from processes import python

import shmarrow as sa
from shmarrow.cli import main

pa = pytest.importorskip("pyarrow", reason="pyarrow is not installed")
import pyarrow.csv  # noqa: E402
import pyarrow.feather  # noqa: E402
import pyarrow.orc  # noqa: E402
import pyarrow.parquet  # noqa: E402

ROWS = 1000
NUMBERS = {
    "i": np.arange(ROWS, dtype=np.int64) - 500,
    "f": np.arange(ROWS) / 4 + 0.125,
    "b": np.arange(ROWS) % 3 == 0,
}
EXPECTED = {name: values.tolist() for name, values in NUMBERS.items()}
READ = ("arrow", "arrows", "feather", "parquet", "csv", "jsonl", "orc")
WRITTEN = ("arrow", "arrows", "feather", "parquet", "csv")


def convert(*arguments: object) -> int:
    return main(["convert", *map(str, arguments)])


def table() -> Any:
    return pa.table(NUMBERS)


def write_by_peers(folder: Path) -> dict[str, Path]:
    """The same numbers in each format, written by the libraries that define it."""
    paths = {name: folder / f"in.{name}" for name in READ}
    paths["arrow"].write_bytes(forms.peers_file(*table().to_batches(max_chunksize=300)))
    paths["arrows"].write_bytes(forms.peers_stream(*table().to_batches(max_chunksize=300)))
    pyarrow.feather.write_feather(table(), paths["feather"])
    pyarrow.parquet.write_table(table(), paths["parquet"], row_group_size=400)
    pyarrow.csv.write_csv(table(), paths["csv"])
    lines = [json.dumps(dict(zip(EXPECTED, row, strict=True))) for row in zip(*EXPECTED.values(), strict=True)]
    paths["jsonl"].write_text("\n".join(lines))
    pyarrow.orc.write_table(table(), paths["orc"])
    return paths


@pytest.fixture(scope="module")
def sources(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    return write_by_peers(tmp_path_factory.mktemp("sources"))


def read_by_peers(path: Path) -> dict[str, list[Any]]:
    """Return what the libraries that define a format read."""
    match path.suffix[1:]:
        case "arrow" | "feather":
            return pyarrow.feather.read_table(path).to_pydict()
        case "arrows":
            return pa.ipc.open_stream(path.read_bytes()).read_all().to_pydict()
        case "parquet":
            return pyarrow.parquet.read_table(path).to_pydict()
        case "csv":
            return pyarrow.csv.read_csv(path).to_pydict()
    raise AssertionError(path)


def test_csv_of_the_real_world(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text("zip;day;n\n01234;2024-01-02;1\n;;\n")
    sa.convert(path, tmp_path / "a.arrow", delimiter=";", types={"zip": "string", "n": "int8"})
    assert sa.open(tmp_path / "a.arrow").read_all().to_pydict() == {
        "zip": ["01234", None], "day": [dt.date(2024, 1, 2), None], "n": [1, None]
    }  # fmt: skip
    assert convert(path, tmp_path / "b.arrow", "--delimiter", ";", "--types", "zip=string,n=int8") == 0
    assert (tmp_path / "b.arrow").read_bytes() == (tmp_path / "a.arrow").read_bytes()
    (tmp_path / "a.jsonl").write_text('{"a": 1}\n{"a": 2}\n')
    sa.convert(tmp_path / "a.jsonl", tmp_path / "c.arrow", types={"a": "float32"})
    assert sa.open(tmp_path / "c.arrow").schema.field("a").type == sa.float32()
    path.write_bytes("name,n\nJosé,1\n".encode("latin-1"))
    with pytest.raises(sa.InvalidData, match=r"column 'name': the text is not UTF-8; .*iconv"):
        sa.convert(path, tmp_path / "d.arrow")
    sa.convert(path, tmp_path / "d.arrow", types={"name": "binary"})
    assert sa.open(tmp_path / "d.arrow").read_all()["name"].to_pylist() == ["José".encode("latin-1")]
    for options in ({"delimiter": ";;"}, {"delimiter": ";", "source_format": "json"}):
        with pytest.raises(sa.InvalidArgument):
            sa.convert(path, tmp_path / "e.arrow", **options)
    assert convert(path, tmp_path / "e.arrow", "--types", "name") == 2


@pytest.mark.parametrize("source", READ)
def test_every_pair_of_formats(source: str, sources: dict[str, Path], tmp_path: Path) -> None:
    for name in WRITTEN:
        target = tmp_path / f"out.{name}"
        done = sa.convert(sources[source], target)
        assert done == ("arrow" if name == "feather" else name, ROWS, None, target.stat().st_size)
        found = read_by_peers(target)
        assert found == EXPECTED, name
        assert [type(found[column][0]) for column in EXPECTED] == [int, float, bool]


def test_csv_tells_null_from_empty_text(tmp_path: Path) -> None:
    days = [dt.datetime(2020, 2, 29, 12, 30, 1), None, dt.datetime(1970, 1, 1), dt.datetime(2262, 1, 1)]
    columns = {"s": ["", None, "NA", 'a"b,c\nd'], "f": [float("nan"), None, 0.1, -1e-300], "t": days}
    views = pa.table({**columns, "v": pa.array(["a", None, "", "b"], pa.string_view())})
    (tmp_path / "a.arrow").write_bytes(forms.peers_file(views))
    sa.convert(tmp_path / "a.arrow", tmp_path / "a.csv")
    sa.convert(tmp_path / "a.csv", tmp_path / "b.arrow")
    found = sa.ipc.open_file(tmp_path / "b.arrow").read_all()
    assert found["t"].cast(sa.timestamp("us")).to_pylist() == days
    assert repr(found.drop_columns(["t"]).to_pydict()) == repr(views.drop_columns(["t"]).to_pydict())


def test_json_lines_with_nested_values(tmp_path: Path) -> None:
    rows = [{"list": [{"x": 1}, {"x": None}], "text": "日本"}, {"list": None, "text": None}]
    (tmp_path / "a.jsonl").write_text("\n".join(map(json.dumps, rows)))
    sa.convert(tmp_path / "a.jsonl", tmp_path / "a.arrow")
    assert sa.ipc.open_file(tmp_path / "a.arrow").read_all().to_pylist() == rows


def test_directories(tmp_path: Path) -> None:
    """All files of a directory, with the columns that the names of its directories give."""
    for month in (1, 2):
        (tmp_path / f"in/month={month}").mkdir(parents=True)
        pyarrow.parquet.write_table(pa.table({"x": [month, month]}), tmp_path / f"in/month={month}/0.parquet")
    sa.convert(tmp_path / "in", tmp_path / "x.arrow")
    assert sa.ipc.open_file(tmp_path / "x.arrow").read_all().to_pydict() == {"x": [1, 1, 2, 2], "month": [1, 1, 2, 2]}
    sa.convert(tmp_path / "in/month=*/*.parquet", tmp_path / "x.arrow")
    assert sa.open(tmp_path / "x.arrow").read_all().to_pydict() == {"x": [1, 1, 2, 2], "month": [1, 1, 2, 2]}
    (tmp_path / "orc").mkdir()
    pyarrow.orc.write_table(pa.table({"x": [1]}), tmp_path / "orc" / "0.orc")
    assert sa.convert(tmp_path / "orc", tmp_path / "x.arrow").rows == 1


MEASURED = """
import shmarrow as sa, pyarrow, pyarrow.dataset, pyarrow.parquet
def used(*_): return int(open("/proc/self/status").read().partition("RssAnon:")[2].split()[0]) >> 10
start, seen = used(), []
sa.convert("in.parquet", "x.arrow", progress=lambda *_: seen.append(used()))
print(max(seen) - start)
"""


def test_memory_is_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """256 MiB of Parquet in 32 row groups become an Arrow file in a process with far less memory for it."""
    monkeypatch.chdir(tmp_path)
    values = np.arange(1 << 25, dtype=float)
    pyarrow.parquet.write_table(
        pa.table({"x": values}), "in.parquet", row_group_size=1 << 20, use_dictionary=False, compression="none"
    )
    assert int(python(MEASURED)) < 200
    assert (tmp_path / "x.arrow").stat().st_size > 256 << 20


def test_batches_columns_and_compression(sources: dict[str, Path], tmp_path: Path) -> None:
    source = sources["parquet"]
    seen = []
    for name in ("arrow", "arrows", "parquet"):
        target = tmp_path / f"cut.{name}"
        options: dict[str, Any] = {"rows_per_batch": 384, "columns": ["b", "i"], "compression_level": 2}
        sa.convert(source, target, compression="zstd", progress=lambda *at: seen.append(at), **options)
        assert read_by_peers(target) == {name: EXPECTED[name] for name in ("b", "i")}
    assert seen[-1] == (ROWS, ROWS)
    with sa.ipc.open_file(tmp_path / "cut.arrow") as reader:
        assert [batch.num_rows for batch in reader] == [384, 384, 232]
    found = pyarrow.parquet.ParquetFile(tmp_path / "cut.parquet").metadata
    assert [found.row_group(number).num_rows for number in range(3)] == [384, 384, 232]
    assert found.row_group(0).column(1).compression == "ZSTD"
    assert (tmp_path / "cut.arrow").stat().st_size < 9 * ROWS  # an int64 alone takes 8 bytes a row


def test_dictionaries_that_differ(tmp_path: Path) -> None:
    """A file holds one dictionary for a column; a stream's may be replaced, and are merged."""
    kind = pa.dictionary(pa.int8(), pa.string())
    batches = [
        pa.record_batch({"d": pa.array(values).dictionary_encode().cast(kind)})
        for values in (["a", "b"], ["c", "a", None], ["b", "d"])
    ]
    (tmp_path / "a.arrows").write_bytes(forms.peers_stream(*batches))
    sa.convert(tmp_path / "a.arrows", tmp_path / "a.arrow")
    with pa.ipc.open_file(tmp_path / "a.arrow") as reader:
        assert reader.schema == batches[0].schema
        assert reader.read_all()["d"].to_pylist() == ["a", "b", "c", "a", None, "b", "d"]


REFUSED = {
    "no such file": (("gone", "x.arrow"), 3, "gone"),
    "no suffix": (("in.arrow", "x"), 2, "the suffix is not that of a format for rows; use one of .arrow"),
    "no format": (
        ("in.arrow", "x.arrow", "--to", "xlsx"),
        2,
        "no format of rows is named 'xlsx'; expected one of arrow,",
    ),
    "not written": (("in.arrow", "x.jsonl"), 2, "the suffix is not that of a format for rows; use one of .arrow"),
    "rows as tensors": (("in.arrow", "x.safetensors"), 2, "the suffix is not that of a format for rows"),
    "tensors as rows": (("in.tensors", "x.arrow"), 2, "the suffix is not that of a format for tensors; use one of"),
    "unknown": (("unknown", "x.arrow"), 1, "bytes that start with b'\\x00\\x01unknow'; name the format"),
    "text": (("rows", "x.arrow"), 1, "JSON text; name the format: csv or json"),
    "no column": (("in.arrow", "x.arrow", "--columns", "z"), 1, "'z'"),
    "no column of Parquet": (("in.parquet", "x.arrow", "--columns", "z"), 1, "'z'"),
    "no tensor": (("in.tensors", "x.tensors", "--columns", "z"), 1, "no tensor is named 'z'; there are "),
    "no compression": (("in.arrow", "x.csv", "--compress", "zstd"), 2, "csv has no compression"),
    "level": (("in.arrow", "x.arrow", "--level", "3"), 2, "compression_level 3 needs a compression"),
    "rows": (("in.arrow", "x.arrow", "--rows-per-batch", "0"), 2, "rows_per_batch must be at least 1, found 0"),
    "list in csv": (("odd.arrow", "x.csv", "--columns", "list"), 1, "column 'list': CSV cannot hold list<"),
    "union": (("odd.arrow", "x.parquet", "--columns", "union"), 1, "has no type for dense_union<"),
    "empty lines": (("odd.arrow", "x.csv", "--columns", "null"), 1, "a null would be an empty line"),
    "rows alone": (("alone.arrow", "x.parquet"), 1, "rows without columns have no form in this format"),
    "later type": (("later.jsonl", "x.arrow"), 1, "later.jsonl: pyarrow: "),
    "later key": (("key.jsonl", "x.arrow"), 1, "key.jsonl: pyarrow: "),
    "a key twice": (("twins.jsonl", "x.arrow"), 1, "twins.jsonl: pyarrow: "),
    "cut parquet": (("cut.parquet", "x.arrow"), 1, "cut.parquet: pyarrow: "),
    "cut orc": (("cut.orc", "x.arrow"), 1, "cut.orc: pyarrow: "),
    "compressed": (("a b.arrow.gz", "x.csv"), 1, "gzip data; name the format"),
    "numpy": (("x.npy", "x.arrow"), 1, "a NumPy array (.npy); numpy.load reads it"),
    "feather 1": (("old.feather", "x.arrow"), 1, "a Feather file of version 1"),
    "empty": (("empty", "x.arrow"), 1, "empty: expected a format of rows or tensors, found an empty file"),
    "cut stream": (("cut.arrows", "x.parquet"), 1, "cut.arrows"),
}


def test_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """Each error says what is wrong, in text or JSON, and leaves no target."""
    monkeypatch.chdir(tmp_path)
    for name, path in write_by_peers(tmp_path).items():
        (tmp_path / f"cut.{name}").write_bytes(path.read_bytes()[:-200])
    union = pa.UnionArray.from_dense(pa.array([0, 0], pa.int8()), pa.array([0, 1], pa.int32()), [pa.array([1, 2])])
    odd = pa.table({"list": [[1], [2]], "union": union, "null": [1, None]})
    for name, content in (("odd.arrow", odd), ("alone.arrow", odd.select([]))):
        Path(name).write_bytes(forms.peers_file(content))
    sa.save_tensors(NUMBERS, "in.tensors")
    for name, line in (("later", '{"a": "x"}'), ("key", '{"a": 1, "b": 2}')):
        Path(f"{name}.jsonl").write_text('{"a": 1}\n' * (1 << 19) + line)
    Path("twins.jsonl").write_text('{"a":1,"a":2}\n')
    Path("a b.arrow.gz").write_bytes(gzip.compress(Path("in.arrow").read_bytes()))
    np.save("x.npy", np.zeros(3))
    with warnings.catch_warnings():  # newer pyarrow warns that Feather V1 is old
        warnings.simplefilter("ignore", DeprecationWarning)
        pyarrow.feather.write_feather(table(), "old.feather", version=1)
    Path("empty").touch()
    Path("rows").write_text('{"a": 1}\n')
    Path("unknown").write_bytes(b"\x00\x01unknown")
    before = sorted(tmp_path.iterdir())
    for name, (arguments, status, text) in REFUSED.items():
        assert convert(*arguments) == status, name
        said = capsys.readouterr()
        assert text in said.err, name
        assert said.err.startswith("shmarrow: "), name
        assert (said.err.count("\n"), said.out) == (1, ""), name
        assert convert(*arguments, "--json") == status
        assert json.loads(capsys.readouterr().err)["status"] == status, name
    assert sorted(tmp_path.iterdir()) == before
    assert convert("in.arrow", "in.csv", "--overwrite") == 0


SUFFIXES = ("parquet", "csv", "jsonl", "npy", "safetensors", "CSV")


def test_writers_of_arrow_refuse_other_suffixes(tmp_path: Path) -> None:
    """What is written by new_file, new_stream and save_tensors is Arrow, so its name must not say something else."""
    columns = sa.schema([("x", sa.int64())])
    writers: list[Callable[[Path], Any]] = [
        lambda name: sa.ipc.new_file(name, columns),
        lambda name: sa.ipc.new_stream(name, columns),
        lambda name: sa.save_tensors(NUMBERS, name),
        lambda name: sa.ipc.write_tensor(sa.Tensor.from_numpy(np.zeros(2)), name),
    ]
    for suffix in SUFFIXES:
        for write in writers:
            with pytest.raises(sa.InvalidArgument, match=r"whose suffix is that of another format; name it \.arrow"):
                write(tmp_path / f"x.{suffix}")
    assert list(tmp_path.iterdir()) == []


def test_shared_memory(sources: dict[str, Path], tmp_path: Path, shm_name: str) -> None:
    source = sources["csv"]
    assert sa.convert(source, shm_name).format == "arrow"
    with sa.ipc.open_file(shm_name) as reader:
        assert reader.read_all().to_pydict() == EXPECTED
    sa.convert(shm_name, tmp_path / "x.parquet")
    assert read_by_peers(tmp_path / "x.parquet") == EXPECTED
    with pytest.raises(sa.ObjectExists):
        sa.convert(source, shm_name)


def test_file_objects(sources: dict[str, Path], tmp_path: Path) -> None:
    """A compressed file is read through the object that decompresses it."""
    source = sources["csv"]
    compressed = io.BytesIO(gzip.compress(source.read_bytes()))
    stream = io.BytesIO()
    with gzip.open(compressed) as file:
        assert sa.convert(file, stream, source_format="csv").format == "arrows"
    assert sa.ipc.open_stream(stream.getvalue()).read_all().to_pydict() == EXPECTED
    with pytest.raises(sa.InvalidType, match=r"expected a path, .* found int"):
        sa.convert(3, stream)


def test_pipes(sources: dict[str, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """From one process to the next by standard input and output; the report names rows and bytes."""
    source = sources["parquet"]
    script = '"$0" -m shmarrow convert "$1" - --to parquet | "$0" -m shmarrow convert - "$2"'
    command = ["bash", "-o", "pipefail", "-c", script, sys.executable, source, tmp_path / "x.arrow"]
    ran = subprocess.run(command, capture_output=True, text=True)
    size = (tmp_path / "x.arrow").stat().st_size
    assert (ran.returncode, ran.stdout, ran.stderr) == (0, f"{tmp_path / 'x.arrow'}: 1000 rows, {size} bytes\n", "")
    assert read_by_peers(tmp_path / "x.arrow") == EXPECTED
    assert convert(source, tmp_path / "x.csv", "--json") == 0
    size = (tmp_path / "x.csv").stat().st_size
    said = {"target": str(tmp_path / "x.csv"), "format": "csv", "rows": ROWS, "bytes": size}
    assert json.loads(capsys.readouterr().out) == said


def test_every_format_through_a_pipe(sources: dict[str, Path], tmp_path: Path) -> None:
    """A named pipe is written to and read from as it is, never replaced."""
    source, pipe = sources["parquet"], tmp_path / "pipe"
    os.mkfifo(pipe)
    for name in ("arrow", "arrows", "parquet", "csv"):
        target = tmp_path / f"from-{name}.arrow"
        with ThreadPoolExecutor() as threads:
            writing = threads.submit(convert, source, pipe, "--to", name)
            reading = threads.submit(convert, pipe, target, "--from", name)
            assert (writing.result(60), reading.result(60)) == (0, 0), name
        assert read_by_peers(target) == EXPECTED
    assert pipe.is_fifo()


def test_compressed_text(sources: dict[str, Path], tmp_path: Path) -> None:
    for name in ("csv", "jsonl"):
        packed = tmp_path / f"packed.{name}.gz"
        packed.write_bytes(gzip.compress(sources[name].read_bytes()))
        sa.convert(packed, tmp_path / "x.arrow")
        assert read_by_peers(tmp_path / "x.arrow") == EXPECTED


def test_modes_of_targets(sources: dict[str, Path], tmp_path: Path) -> None:
    """New files get what the umask leaves; replaced ones keep their mode."""
    source = sources["parquet"]
    before = os.umask(0o027)
    try:
        for name in WRITTEN:
            target = tmp_path / f"mode.{name}"
            sa.convert(source, target)
            assert target.stat().st_mode & 0o777 == 0o640, name
            target.chmod(0o604)
            sa.convert(source, target, overwrite=True)
            assert target.stat().st_mode & 0o777 == 0o604, name
    finally:
        os.umask(before)
