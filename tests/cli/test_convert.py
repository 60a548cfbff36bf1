"""Conversion of files: every pair of formats, what a format cannot hold, pipes, and untrusted files."""

from __future__ import annotations

import datetime as dt
import gzip
import io
import json
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import shmarrow as sa
from shmarrow.cli import main

pa = pytest.importorskip("pyarrow", reason="pyarrow is not installed")
import pyarrow.csv  # noqa: E402
import pyarrow.feather  # noqa: E402
import pyarrow.parquet  # noqa: E402

ROWS = 1000
NUMBERS = {
    "i": np.arange(ROWS, dtype=np.int64) - 500,
    "f": np.arange(ROWS) / 4 + 0.125,
    "b": np.arange(ROWS) % 3 == 0,
}
EXPECTED = {name: values.tolist() for name, values in NUMBERS.items()}
TABLES = ("arrow", "arrows", "feather", "parquet", "csv", "jsonl")
TENSORS = ("safetensors", "npz", "tensors")


def convert(*arguments: object) -> int:
    return main(["convert", *map(str, arguments)])


def table() -> Any:
    return pa.table(NUMBERS)


def written_by_peers(folder: Path) -> dict[str, Path]:
    """The same numbers in each format, written by the libraries that define it."""
    safetensors = pytest.importorskip("safetensors.numpy", reason="the extra `tensor` is not installed")
    paths = {name: folder / f"in.{name}" for name in (*TABLES, *TENSORS, "npy")}
    for name, factory in (("arrow", pa.ipc.new_file), ("arrows", pa.ipc.new_stream)):
        with factory(paths[name], table().schema) as writer:
            writer.write_table(table(), max_chunksize=300)
    pyarrow.feather.write_feather(table(), paths["feather"])
    pyarrow.parquet.write_table(table(), paths["parquet"], row_group_size=400)
    pyarrow.csv.write_csv(table(), paths["csv"])
    lines = [json.dumps(dict(zip(EXPECTED, row, strict=True))) for row in zip(*EXPECTED.values(), strict=True)]
    paths["jsonl"].write_text("\n".join(lines))
    safetensors.save_file(NUMBERS, paths["safetensors"])
    np.savez_compressed(paths["npz"], **NUMBERS)
    records = np.empty(ROWS, [(name, values.dtype) for name, values in NUMBERS.items()])
    for name, values in NUMBERS.items():
        records[name] = values
    np.save(paths["npy"], records)
    sa.save_tensors(NUMBERS, paths["tensors"])
    return paths


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
        case "jsonl":
            rows = [json.loads(line) for line in path.read_text().splitlines()]
            return {name: [row[name] for row in rows] for name in rows[0]}
        case "npz":
            return {name: values.tolist() for name, values in np.load(path).items()}
        case "safetensors":
            from safetensors.numpy import load_file

            return {name: values.tolist() for name, values in load_file(path).items()}
        case "tensors":
            with sa.load_tensors(path) as bundle:
                return {name: value.to_numpy().tolist() for name, value in bundle.items()}
    raise AssertionError(path)


def test_every_pair_of_formats(tmp_path: Path) -> None:
    for source in written_by_peers(tmp_path).values():
        for name in (*TABLES, *TENSORS):
            target = tmp_path / f"{source.suffix[1:]}-to.{name}"
            made = sa.convert(source, target)
            kind = "arrow" if name == "feather" else name
            counts = (None, len(NUMBERS)) if name in TENSORS else (ROWS, None)
            assert made == (kind, *counts, target.stat().st_size)
            found = read_by_peers(target)
            assert found == EXPECTED, target.name
            assert [type(found[name][0]) for name in EXPECTED] == [int, float, bool]


NESTED = {
    "text": ["", None, 'quo"te\\', "a,b\tc\nd\re", "\x01\x1f", "日本 🦆", "NA"],
    "whole": [1.0, None, -0.0, 1e300, 5e-324, 0.1, 123456789.0],
    "big": [2**63 - 1, -(2**63), None, 0, 1, 2, 3],
    "list": [[1, None], [], None, [3], [4], [5], [6]],
    "struct": [{"x": 1, "y": ["a"]}, {"x": None, "y": None}, None, *[{"x": 2, "y": ["b", None]}] * 4],
    "dictionary": pa.array(["u", None, "v", "u", "u", "v", "u"]).dictionary_encode(),
    "view": pa.array(["a", None, "more than twelve bytes", "", "b", "c", "d"], pa.string_view()),
    "fixed": pa.array([[1, 2], None, *[[3, 4]] * 5], pa.list_(pa.int8(), 2)),
    "nothing": pa.nulls(7),
    "runs": pa.RunEndEncodedArray.from_arrays([2, 7], ["p", None]),
}


def test_json_lines_hold_nested_values(tmp_path: Path) -> None:
    """Python's own parser reads the values back, and so do we."""
    whole = pa.table(NESTED)
    source, target = tmp_path / "a.arrow", tmp_path / "a.jsonl"
    with pa.ipc.new_file(source, whole.schema) as writer:
        writer.write_table(whole)
    sa.convert(source, target, rows_per_batch=3)
    found = [json.loads(line) for line in target.read_text().splitlines()]
    assert found == whole.to_pylist()
    assert [type(row["whole"]) for row in found[:3]] == [float, type(None), float]
    assert str(found[2]["whole"]) == "-0.0"
    sa.convert(target, tmp_path / "b.arrow")
    assert sa.ipc.open_file(tmp_path / "b.arrow").read_all().to_pylist() == whole.to_pylist()


def test_times_and_decimals_are_text_in_json_lines(tmp_path: Path) -> None:
    moment = dt.datetime(2020, 2, 29, 12, 30, 1, 250000)
    columns = {"t": [moment], "d": [moment.date()], "n": [Decimal("1.10")]}
    pyarrow.parquet.write_table(pa.table(columns), tmp_path / "a.parquet")
    sa.convert(tmp_path / "a.parquet", tmp_path / "a.jsonl")
    assert json.loads((tmp_path / "a.jsonl").read_text()) == {
        "t": "2020-02-29T12:30:01.250000", "d": "2020-02-29", "n": "1.10"
    }  # fmt: skip


def test_csv_tells_null_from_empty_text(tmp_path: Path) -> None:
    days = [dt.datetime(2020, 2, 29, 12, 30, 1), None, dt.datetime(1970, 1, 1), dt.datetime(2262, 1, 1)]
    columns = {"s": ["", None, "NA", 'a"b,c\nd'], "f": [float("nan"), None, 0.1, -1e-300], "t": days}
    views = pa.table({**columns, "v": pa.array(["a", None, "", "b"], pa.string_view())})
    with pa.ipc.new_file(tmp_path / "a.arrow", views.schema) as writer:
        writer.write_table(views)
    sa.convert(tmp_path / "a.arrow", tmp_path / "a.csv")
    sa.convert(tmp_path / "a.csv", tmp_path / "b.arrow")
    found = sa.ipc.open_file(tmp_path / "b.arrow").read_all()
    assert found["t"].cast(sa.timestamp("us")).to_pylist() == days
    assert repr(found.drop_columns(["t"]).to_pydict()) == repr(views.drop_columns(["t"]).to_pydict())


def test_batches_columns_and_compression(tmp_path: Path) -> None:
    source = written_by_peers(tmp_path)["parquet"]
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


def test_shapes_of_tensors(tmp_path: Path) -> None:
    """Tensors of several dimensions become fixed-size lists, and come back."""
    arrays = {"x": np.arange(24, dtype=np.float32).reshape(4, 3, 2), "y": np.arange(4).astype("M8[us]")}
    np.savez(tmp_path / "a.npz", **arrays)
    sa.convert(tmp_path / "a.npz", tmp_path / "a.parquet")
    assert pyarrow.parquet.read_table(tmp_path / "a.parquet")["x"].to_pylist() == arrays["x"].tolist()
    sa.convert(tmp_path / "a.parquet", tmp_path / "b.npz")
    for name, values in np.load(tmp_path / "b.npz").items():
        assert values.dtype == arrays[name].dtype
        np.testing.assert_array_equal(values, arrays[name])
    sa.convert(tmp_path / "a.npz", tmp_path / "x.npy", columns=["x"])
    np.testing.assert_array_equal(np.load(tmp_path / "x.npy"), arrays["x"])


def test_dictionaries_that_differ(tmp_path: Path) -> None:
    """A file holds one dictionary for a column; a stream's may be replaced, and are merged."""
    kind = pa.dictionary(pa.int8(), pa.string())
    batches = [
        pa.record_batch({"d": pa.array(values).dictionary_encode().cast(kind)})
        for values in (["a", "b"], ["c", "a", None], ["b", "d"])
    ]
    with pa.ipc.new_stream(tmp_path / "a.arrows", batches[0].schema) as writer:
        for batch in batches:
            writer.write_batch(batch)
    sa.convert(tmp_path / "a.arrows", tmp_path / "a.arrow")
    with pa.ipc.open_file(tmp_path / "a.arrow") as reader:
        assert reader.schema == batches[0].schema
        assert reader.read_all()["d"].to_pylist() == ["a", "b", "c", "a", None, "b", "d"]


REFUSED = {
    "no such file": (("gone", "x.arrow"), 3, "gone"),
    "no suffix": (("in.arrow", "x"), 2, "the suffix is not that of a known format"),
    "no format": (("in.arrow", "x.arrow", "--to", "xlsx"), 2, "no format is named 'xlsx'; known formats are arrow,"),
    "unknown": (("unknown", "x.arrow"), 1, "bytes that start with b'\\x00\\x01unknow'; name the format"),
    "text": (("rows", "x.arrow"), 1, "JSON text; name the format: csv or jsonl"),
    "taken": (("in.arrow", "in.csv"), 4, "the name is taken; remove it first, or pass --overwrite"),
    "no column": (("in.arrow", "x.arrow", "--columns", "z"), 1, "'z'"),
    "no tensor": (("in.npz", "x.arrow", "--columns", "z"), 1, "no tensor is named 'z'; there are "),
    "no compression": (("in.arrow", "x.csv", "--compress", "zstd"), 2, "csv has no compression"),
    "level": (("in.arrow", "x.arrow", "--level", "3"), 2, "compression_level 3 needs a compression"),
    "rows": (("in.arrow", "x.arrow", "--rows-per-batch", "0"), 2, "rows_per_batch must be at least 1, found 0"),
    "list in csv": (("odd.arrow", "x.csv", "--columns", "list"), 1, "column 'list': CSV cannot hold list<"),
    "union": (("odd.arrow", "x.parquet", "--columns", "union"), 1, "has no type for dense_union<"),
    "bytes": (("odd.arrow", "x.jsonl", "--columns", "bytes"), 1, "JSON cannot hold a bytes"),
    "nan": (("odd.arrow", "x.jsonl", "--columns", "nan"), 1, "Out of range float values are not JSON compliant"),
    "list as tensor": (("odd.arrow", "x.npz", "--columns", "list"), 1, "column 'list': tensors hold numbers"),
    "nulls": (("odd.arrow", "x.npz", "--columns", "null"), 1, "column 'null': tensors have neither nulls"),
    "zone": (("odd.arrow", "x.npy", "--columns", "zone"), 1, "tensors have neither nulls nor time zones"),
    "several": (("in.arrow", "x.npy"), 1, "npy holds one tensor, found 3"),
    "lengths": (("lengths.npz", "x.arrow"), 1, "tensors of different lengths cannot be columns of one table ('a': 2"),
    "objects": (("objects.npy", "x.arrow"), 1, "numpy cannot read it"),
    "later type": (("later.jsonl", "x.arrow"), 1, "cannot convert 'x' of type str"),
    "cut parquet": (("cut.parquet", "x.arrow"), 1, "cut.parquet: pyarrow: "),
    "cut npz": (("cut.npz", "x.arrow"), 1, "cut.npz: numpy cannot read it"),
    "compressed": (("a b.arrow.gz", "x.csv"), 1, "gzip data; decompress it first"),
    "JSON array": (("array.jsonl", "x.arrow"), 1, "line 1: expected one JSON object per line, found list"),
    "latin 1": (("latin.csv", "x.arrow"), 1, "column 'b' is not UTF-8 text; iconv recodes it"),
    "other format": (("data.orc", "x.arrow"), 1, "an ORC file; pyarrow.orc.read_table reads it"),
    "feather 1": (("old.feather", "x.arrow"), 1, "a Feather file of version 1"),
    "empty": (("empty", "x.arrow"), 1, "empty is empty: expected a file or a stream"),
    "cut stream": (("cut.arrows", "x.parquet"), 1, "cut.arrows"),
}


def test_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """Each error says what is wrong, in text or JSON, and leaves no target."""
    monkeypatch.chdir(tmp_path)
    for name, path in written_by_peers(tmp_path).items():
        (tmp_path / f"cut.{name}").write_bytes(path.read_bytes()[:-200])
    union = pa.UnionArray.from_dense(pa.array([0, 0], pa.int8()), pa.array([0, 1], pa.int32()), [pa.array([1, 2])])
    odd = {"list": [[1], [2]], "union": union, "bytes": [b"\xff", b"a"], "nan": [1, float("nan")], "null": [1, None],
           "zone": pa.array([1, 2], pa.timestamp("s", "UTC"))}  # fmt: skip
    with pa.ipc.new_file("odd.arrow", pa.table(odd).schema) as writer:
        writer.write_table(pa.table(odd))
    np.savez("lengths.npz", a=[1, 2], b=[1, 2, 3])
    np.save("objects.npy", np.array([{}, []], object), allow_pickle=True)
    Path("later.jsonl").write_text('{"a": 1}\n' + "\n" * (1 << 22) + '{"a": "x"}\n')
    Path("a b.arrow.gz").write_bytes(gzip.compress(Path("in.arrow").read_bytes()))
    Path("array.jsonl").write_text('[{"a": 1}, {"a": 2}]')
    Path("latin.csv").write_bytes("a,b\n1,été\n".encode("latin-1"))
    Path("data.orc").write_bytes(b"ORC" + bytes(100))
    with pytest.warns(DeprecationWarning, match="Feather V1"):
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


def test_shared_memory(tmp_path: Path, shm_name: str) -> None:
    source = written_by_peers(tmp_path)["csv"]
    assert sa.convert(source, shm_name).format == "arrow"
    with sa.ipc.open_file(shm_name) as reader:
        assert reader.read_all().to_pydict() == EXPECTED
    sa.convert(shm_name, tmp_path / "x.npz")
    assert read_by_peers(tmp_path / "x.npz") == EXPECTED
    with pytest.raises(sa.ObjectExists):
        sa.convert(source, shm_name)


def test_file_objects(tmp_path: Path) -> None:
    """A compressed file is read through the object that decompresses it."""
    source = written_by_peers(tmp_path)["csv"]
    compressed = io.BytesIO(gzip.compress(source.read_bytes()))
    stream = io.BytesIO()
    with gzip.open(compressed) as file:
        assert sa.convert(file, stream, source_format="csv").format == "arrows"
    assert sa.ipc.open_stream(stream.getvalue()).read_all().to_pydict() == EXPECTED
    with pytest.raises(sa.InvalidType, match="a source must be a path, a shm: name or a file object, found int"):
        sa.convert(3, stream)


def test_pipes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """From one process to the next by standard input and output; the report names rows and bytes."""
    source = written_by_peers(tmp_path)["parquet"]
    script = '"$0" -m shmarrow convert "$1" - --to npz | "$0" -m shmarrow convert - "$2"'
    command = ["bash", "-o", "pipefail", "-c", script, sys.executable, source, tmp_path / "x.arrow"]
    ran = subprocess.run(command, capture_output=True, text=True)
    size = (tmp_path / "x.arrow").stat().st_size
    assert (ran.returncode, ran.stdout, ran.stderr) == (0, f"{tmp_path / 'x.arrow'}: 1000 rows, {size} bytes\n", "")
    assert read_by_peers(tmp_path / "x.arrow") == EXPECTED
    assert convert(source, tmp_path / "x.npz", "--json") == 0
    size = (tmp_path / "x.npz").stat().st_size
    said = {"target": str(tmp_path / "x.npz"), "format": "npz", "tensors": 3, "bytes": size}
    assert json.loads(capsys.readouterr().out) == said


def test_every_format_through_a_pipe(tmp_path: Path) -> None:
    """A named pipe is written to and read from as it is, never replaced."""
    source, pipe = written_by_peers(tmp_path)["parquet"], tmp_path / "pipe"
    os.mkfifo(pipe)
    for name in ("arrow", "arrows", "parquet", "csv", "jsonl", *TENSORS):
        target = tmp_path / f"from-{name}.arrow"
        with ThreadPoolExecutor() as threads:
            writing = threads.submit(convert, source, pipe, "--to", name)
            reading = threads.submit(convert, pipe, target, "--from", name)
            assert (writing.result(60), reading.result(60)) == (0, 0), name
        assert read_by_peers(target) == EXPECTED
    assert pipe.is_fifo()


def npy(header: str) -> bytes:
    return b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header.encode()


def described(descr: str, shape: str) -> bytes:
    return npy(f"{{'descr': '{descr}', 'fortran_order': False, 'shape': {shape}}}\n") + bytes(64)


DEEP = 100_000  # levels, far beyond what the stack of a recursive parser holds
HOSTILE = {
    "lists.jsonl": (b'{"a":' + b"[" * DEEP + b"]" * DEEP + b"}", "lists.jsonl: line 1: not JSON"),
    "deep.jsonl": (b'{"a":' + b"[" * 900 + b"]" * 900 + b"}", "the values are nested deeper than 64 levels"),
    "objects.jsonl": (b'{"a":1}\n' + b'{"a":' * DEEP + b"1" + b"}" * DEEP, "line 2: not JSON"),
    "string.jsonl": (b'{"a":1}\n{"a":"\n', "line 2: not JSON"),
    "twins.jsonl": (b'{"a":1,"a":2}\n', "line 1: not JSON: a name occurs twice"),
    "keys.jsonl": (b"\n".join([b'{"k%d":1}' % n for n in range(50_000)]), "different keys, at most"),
    "nested keys.jsonl": (
        b'{"a":[' + b",".join([b'{"k%d":1}' % n for n in range(50_000)]) + b"]}",
        "different keys, at most",
    ),
    "large.jsonl": (b'{"a":18446744073709551616}', "cannot convert 18446744073709551616"),
    "void.npy": (described("|V0", "(1099511627776,)"), "elements of type |V0 take no bytes"),
    "rows.npy": (described("<f8", "(1099511627776, 0)"), "of shape (1099511627776, 0) has no rows with elements"),
    "bool.npy": (described("<f8", "(True,)"), "numpy cannot read it"),
    "parentheses.npy": (described("<f8", "(" * 5000), "numpy cannot read it"),
    "large.npy": (described("<f8", "(1152921504606846976,)"), "numpy cannot read it"),
}  # fmt: skip


def test_hostile_files(tmp_path: Path) -> None:
    """A process with little memory refuses all files that would crash or fill it."""
    for name, (data, _) in HOSTILE.items():
        (tmp_path / name).write_bytes(data)
    script = (
        "import resource, sys; from shmarrow.cli import main; resource.setrlimit(resource.RLIMIT_AS, (3 << 30,) * 2)"
    )
    script += "\nfor name in sys.argv[1:]: print(main(['convert', name, 'x.arrow', '--overwrite']))"
    command = [sys.executable, "-c", script, *HOSTILE]
    ran = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert ran.stdout.split() == ["1"] * len(HOSTILE), ran.stderr
    for line, (name, (_, text)) in zip(ran.stderr.splitlines(), HOSTILE.items(), strict=True):
        assert line.startswith("shmarrow: "), name
        assert text in line, name


def test_modes_of_targets(tmp_path: Path) -> None:
    """New files get what the umask leaves; replaced ones keep their mode."""
    source = written_by_peers(tmp_path)["npz"]
    before = os.umask(0o027)
    try:
        for name in (*TABLES, *TENSORS):
            target = tmp_path / f"mode.{name}"
            sa.convert(source, target)
            assert target.stat().st_mode & 0o777 == 0o640, name
            target.chmod(0o604)
            sa.convert(source, target, overwrite=True)
            assert target.stat().st_mode & 0o777 == 0o604, name
    finally:
        os.umask(before)
