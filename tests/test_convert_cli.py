"""``shmarrow convert``: every pair of formats, what a format cannot hold, pipes, and a conversion that is killed."""

from __future__ import annotations

import datetime as dt
import gzip
import io
import json
import os
import resource
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conftest import needs_pyarrow

import shmarrow as sa
from shmarrow.cli import main

pa = pytest.importorskip("pyarrow", reason="pyarrow is not installed")
import pyarrow.csv  # noqa: E402
import pyarrow.feather  # noqa: E402
import pyarrow.json  # noqa: E402
import pyarrow.parquet  # noqa: E402

ROWS = 1000
NUMBERS = {
    "i": np.arange(ROWS, dtype=np.int64) - 500,
    "f": np.arange(ROWS) / 4 + 0.125,
    "b": np.arange(ROWS) % 3 == 0,
}
EXPECTED = {name: values.tolist() for name, values in NUMBERS.items()}
TABLES = ("arrow", "arrows", "feather", "parquet", "csv", "tsv", "jsonl")
TENSORS = ("safetensors", "npy", "npz", "tensors")


def convert(*arguments: object) -> int:
    return main(["convert", *map(str, arguments)])


def table() -> Any:
    return pa.table(NUMBERS)


def written_by_peers(folder: Path) -> dict[str, Path]:
    """The same numbers in each format, written by the libraries that define it."""
    safetensors = pytest.importorskip("safetensors.numpy", reason="the extra `tensor` is not installed")
    paths = {name: folder / f"in.{name}" for name in (*TABLES, *TENSORS)}
    for name, factory in (("arrow", pa.ipc.new_file), ("arrows", pa.ipc.new_stream)):
        with factory(paths[name], table().schema) as writer:
            writer.write_table(table(), max_chunksize=300)
    pyarrow.feather.write_feather(table(), paths["feather"])
    pyarrow.parquet.write_table(table(), paths["parquet"], row_group_size=400)
    pyarrow.csv.write_csv(table(), paths["csv"])
    pyarrow.csv.write_csv(table(), paths["tsv"], pyarrow.csv.WriteOptions(delimiter="\t"))
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
    """What the libraries that define a format read."""
    match path.suffix[1:]:
        case "arrow" | "feather":
            return pyarrow.feather.read_table(path).to_pydict()
        case "arrows":
            return pa.ipc.open_stream(path.read_bytes()).read_all().to_pydict()
        case "parquet":
            return pyarrow.parquet.read_table(path).to_pydict()
        case "csv":
            return pyarrow.csv.read_csv(path).to_pydict()
        case "tsv":
            return pyarrow.csv.read_csv(path, parse_options=pyarrow.csv.ParseOptions(delimiter="\t")).to_pydict()
        case "jsonl":
            rows = [json.loads(line) for line in path.read_text().splitlines()]
            return {name: [row[name] for row in rows] for name in rows[0]}
        case "npy":
            found = np.load(path)
            return {name: found[name].tolist() for name in found.dtype.names}
        case "npz":
            return {name: values.tolist() for name, values in np.load(path).items()}
        case "safetensors":
            from safetensors.numpy import load_file

            return {name: values.tolist() for name, values in load_file(path).items()}
        case "tensors":
            with sa.load_tensors(path) as bundle:
                return {name: value.to_numpy().tolist() for name, value in bundle.items()}
    raise AssertionError(path)


def test_every_pair_of_formats(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Every pair but those of two that share their code with another: Feather with Arrow, and TSV with CSV."""
    twins = {"feather", "tsv"}
    for source in written_by_peers(tmp_path).values():
        targets = ("arrow", "csv") if source.suffix[1:] in twins else (*TABLES, *TENSORS)
        for name in targets:
            target = tmp_path / f"{source.suffix[1:]}-to.{name}"
            assert convert(source, target, "--json") == 0, capsys.readouterr()
            said = json.loads(capsys.readouterr().out)
            assert (said["target"], said["format"], said["bytes"]) == (str(target), name, target.stat().st_size)
            assert said.get("tensors", ROWS) == (len(NUMBERS) if name in TENSORS else ROWS)
            assert said.get("rows", ROWS) == ROWS
            assert read_by_peers(target) == EXPECTED, target.name
            assert all(list(map(type, row)) == [int, float, bool] for row in [[*next(_rows(read_by_peers(target)))]])


def _rows(found: dict[str, list[Any]]) -> Any:
    return iter(zip(*[found[name] for name in EXPECTED], strict=True))


NESTED = {
    "text": ["", None, 'quo"te\\', "a,b\tc\nd\re", "\x01\x1f", "日本 🦆", "NA"],
    "whole": [1.0, None, -0.0, 1e300, 5e-324, 0.1, 123456789.0],
    "big": [2**63 - 1, -(2**63), None, 0, 1, 2, 3],
    "list": [[1, None], [], None, [3], [4], [5], [6]],
    "struct": [{"x": 1, "y": ["a"]}, {"x": None, "y": None}, None, *[{"x": 2, "y": ["b", None]}] * 4],
    "dictionary": pa.array(["u", None, "v", "u", "u", "v", "u"]).dictionary_encode(),
    "view": pa.array(["a", None, "more than twelve bytes", "", "b", "c", "d"], pa.string_view()),
    "map": pa.array([[("k", 1)], [], None, *[[("k", None)]] * 4], pa.map_(pa.string(), pa.int8())),
    "fixed": pa.array([[1, 2], None, *[[3, 4]] * 5], pa.list_(pa.int8(), 2)),
    "nothing": pa.nulls(7),
    "runs": pa.RunEndEncodedArray.from_arrays([2, 7], ["p", None]),
}


def test_json_lines_hold_nested_values(tmp_path: Path) -> None:
    """Python's own parser reads the values back; the sliced batches have offsets that do not start at 0."""
    whole = pa.table(NESTED)
    source, target = tmp_path / "a.arrow", tmp_path / "a.jsonl"
    with pa.ipc.new_file(source, whole.schema) as writer:
        writer.write_table(whole)
    assert convert(source, target, "--rows-per-batch", 3) == 0
    pairs = [
        None if entries is None else [{"key": key, "value": value} for key, value in entries]
        for entries in NESTED["map"].to_pylist()
    ]
    expected = [{**row, "map": entry} for row, entry in zip(whole.to_pylist(), pairs, strict=True)]
    found = [json.loads(line) for line in target.read_text().splitlines()]
    assert found == expected
    assert [type(row["whole"]) for row in found[:3]] == [float, type(None), float]
    assert str(found[2]["whole"]) == "-0.0"


def test_text_keeps_what_it_can_tell_apart(tmp_path: Path) -> None:
    """Null and empty text, NaN and null, and what looks like a null, from Parquet to CSV and back."""
    days = [dt.datetime(2020, 2, 29, 12, 30, 1, 250000), None, dt.datetime(1, 1, 1), dt.datetime(9999, 12, 31)]
    columns = {"s": ["", None, "NA", 'a"b,c\nd'], "f": [float("nan"), None, 0.1, -1e-300], "t": days}
    pyarrow.parquet.write_table(pa.table(columns), tmp_path / "a.parquet")
    assert convert(tmp_path / "a.parquet", tmp_path / "a.csv") == 0
    assert convert(tmp_path / "a.csv", tmp_path / "b.arrow", "--types", "t=timestamp[us]") == 0
    found = sa.ipc.open_file(tmp_path / "b.arrow").read_all().to_pydict()
    assert (found["s"], found["t"], repr(found["f"])) == (columns["s"], days, repr(columns["f"]))
    text = "a,b\n1,NA\n-,x\n"
    (tmp_path / "c.csv").write_text(text)
    assert convert(tmp_path / "c.csv", tmp_path / "c.arrow", "--null", "-", "--types", "a=int16") == 0
    with sa.ipc.open_file(tmp_path / "c.arrow") as reader:
        assert reader.schema.types == [sa.int16(), sa.string()]
        assert reader.read_all().to_pydict() == {"a": [1, None], "b": ["NA", "x"]}


def test_batches_columns_and_compression(tmp_path: Path) -> None:
    source = written_by_peers(tmp_path)["parquet"]
    for name in ("arrow", "arrows", "parquet"):
        target = tmp_path / f"cut.{name}"
        options = ("--rows-per-batch", 384, "--columns", "b,i", "--compress", "zstd", "--level", 2)
        assert convert(source, target, *options) == 0
        assert read_by_peers(target) == {name: EXPECTED[name] for name in ("b", "i")}
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
    assert convert(tmp_path / "a.npz", tmp_path / "a.parquet") == 0
    assert pyarrow.parquet.read_table(tmp_path / "a.parquet")["x"].to_pylist() == arrays["x"].tolist()
    assert convert(tmp_path / "a.parquet", tmp_path / "b.npz") == 0
    for name, values in np.load(tmp_path / "b.npz").items():
        assert values.dtype == arrays[name].dtype
        np.testing.assert_array_equal(values, arrays[name])
    assert convert(tmp_path / "a.npz", tmp_path / "x.npy", "--columns", "x") == 0
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
    assert convert(tmp_path / "a.arrows", tmp_path / "a.arrow") == 0
    with pa.ipc.open_file(tmp_path / "a.arrow") as reader:
        assert reader.schema == batches[0].schema
        assert reader.read_all()["d"].to_pylist() == ["a", "b", "c", "a", None, "b", "d"]


REFUSED = {
    "no such file": (("gone", "x.arrow"), 3, "gone"),
    "no suffix": (("in.arrow", "x"), 2, "the suffix is not that of a known format"),
    "no format": (("in.arrow", "x.arrow", "--to", "xlsx"), 2, "no format is named 'xlsx'; known formats are arrow,"),
    "unknown": (
        ("unknown", "x.arrow"),
        1,
        "unknown: its suffix is unknown, and it starts with b'\\x00\\x01unknow'; name the format: --from",
    ),
    "taken": (("in.arrow", "in.csv"), 4, "the name is taken; --force replaces it"),
    "no column": (("in.arrow", "x.arrow", "--columns", "z"), 1, "'z'"),
    "no compression": (("in.arrow", "x.csv", "--compress", "zstd"), 2, "csv has no compression 'zstd'"),
    "level": (("in.arrow", "x.arrow", "--level", "3"), 2, "--level needs --compress"),
    "rows": (("in.arrow", "x.arrow", "--rows-per-batch", "0"), 2, "--rows-per-batch expects at least 1, found 0"),
    "types": (("in.csv", "x.arrow", "--types", "i"), 2, "--types expects NAME=TYPE"),
    "type": (("in.csv", "x.arrow", "--types", "i=quux"), 2, "no type is named 'quux'"),
    "list in csv": (("odd.arrow", "x.csv", "--columns", "list"), 1, "column 'list': CSV cannot hold list<"),
    "union": (("odd.arrow", "x.parquet", "--columns", "union"), 1, "has no type for dense_union<"),
    "bytes": (("odd.arrow", "x.jsonl", "--columns", "bytes"), 1, "column 'bytes' has bytes that are not UTF-8"),
    "nan": (("odd.arrow", "x.jsonl", "--columns", "nan"), 1, "column 'nan' has nan in row 1"),
    "interval": (("odd.arrow", "x.jsonl", "--columns", "span"), 1, "column 'span': JSON cannot hold month_day_nano"),
    "nulls": (("odd.arrow", "x.npz", "--columns", "list"), 1, "column 'list': npz cannot hold list<"),
    "zone": (("odd.arrow", "x.npy", "--columns", "zone"), 1, "its time zone would be lost"),
    "lengths": (("lengths.npz", "x.arrow"), 1, "tensors of different lengths cannot be columns of one table ('a': 2"),
    "objects": (("objects.npy", "x.arrow"), 1, "numpy cannot read it"),
    "later type": (("later.jsonl", "x.arrow"), 1, "--types NAME=TYPE sets the type of a column"),
    "cut parquet": (("cut.parquet", "x.arrow"), 1, "cut.parquet: pyarrow cannot read it"),
    "cut npz": (("cut.npz", "x.arrow"), 1, "cut.npz"),
    "other suffix": (("in.arrow", "x.json"), 2, "write JSON lines, one object per line, to a .jsonl file"),
    "no text": (("in.arrow", "x.arrow", "--types", "i=int8"), 2, "--types is for csv, tsv, jsonl"),
    "no nulls": (("in.jsonl", "x.arrow", "--null", "-"), 2, "--null is for csv, tsv"),
    "no typed column": (("in.csv", "x.arrow", "--types", "z=int8"), 1, "no column is named 'z'; there are i, f, b"),
    "compressed": (("a b.arrow.gz", "x.csv"), 1, "gzip data; decompress it first: gunzip -c 'a b.arrow.gz' | shmarrow"),
    "JSON array": (
        ("array.json", "x.arrow", "--from", "jsonl"),
        1,
        "a JSON array; JSON lines have one object per line",
    ),
    "latin 1": (("latin.csv", "x.arrow"), 1, "column 'b' is not UTF-8 text; if it is Latin-1, recode it: iconv"),
    "other format": (("data.orc", "x.arrow"), 1, "it looks like an ORC file; pyarrow.orc.read_table reads it"),
    "url": (("https://a.b/c.csv", "x.arrow"), 1, "curl -sL https://a.b/c.csv | shmarrow convert - OUT"),
    "pattern": (("*.csv", "x.arrow"), 3, "one file is converted at a time: for f in ...; do shmarrow convert"),
    "feather 1": (("old.feather", "x.arrow"), 1, "a Feather file of version 1 is not supported, as there is no safe"),
    "feather 1 as arrow": (("old.arrow", "x.arrow"), 1, "a Feather file of version 1 is not supported"),
    "empty": (("empty", "x.arrow"), 1, "empty is empty: expected a file or a stream"),
    "cut stream": (("cut.arrows", "x.parquet"), 1, "cut.arrows"),
}


def test_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """Each error says what is wrong, in text or JSON, and leaves no target."""
    monkeypatch.chdir(tmp_path)
    for name, path in written_by_peers(tmp_path).items():
        (tmp_path / f"cut.{name}").write_bytes(path.read_bytes()[:-200])
    union = pa.UnionArray.from_dense(pa.array([0, 0], pa.int8()), pa.array([0, 1], pa.int32()), [pa.array([1, 2])])
    span = pa.array([pa.MonthDayNano([1, 2, 3])] * 2)
    odd = {"list": [[1], [2]], "union": union, "bytes": [b"\xff", b"a"], "nan": [1, float("nan")], "span": span,
           "zone": pa.array([1, 2], pa.timestamp("s", "UTC"))}  # fmt: skip
    with pa.ipc.new_file("odd.arrow", pa.table(odd).schema) as writer:
        writer.write_table(pa.table(odd))
    np.savez("lengths.npz", a=[1, 2], b=[1, 2, 3])
    np.save("objects.npy", np.array([{}, []], object), allow_pickle=True)
    Path("later.jsonl").write_text('{"a": 1}\n{"a": "x"}\n')
    Path("a b.arrow.gz").write_bytes(gzip.compress(Path("in.arrow").read_bytes()))
    Path("array.json").write_text('[{"a": 1},\n{"a": 2}]')
    Path("latin.csv").write_bytes("a,b\n1,été\n".encode("latin-1"))
    Path("data.orc").write_bytes(b"ORC" + bytes(100))
    for name in ("old.feather", "old.arrow"):
        with pytest.warns(DeprecationWarning, match="Feather V1"):
            pyarrow.feather.write_feather(table(), name, version=1)
    Path("empty").touch()
    Path("unknown").write_bytes(b"\x00\x01unknown")
    before = sorted(tmp_path.iterdir())
    for name, (arguments, status, text) in REFUSED.items():
        assert convert(*arguments) == status, name
        said = capsys.readouterr()
        assert text in said.err, name
        assert said.err.startswith("shmarrow: "), name
        assert (said.err.count("\n"), said.out) == (1, ""), name
        assert convert(*arguments, "--json") == status
        found = json.loads(capsys.readouterr().err)
        assert found["status"] == status, name
        text = found["message"] if found["hint"] is None else f"{found['message']}; {found['hint']}"
        assert said.err == f"shmarrow: {text}\n", name
    assert sorted(tmp_path.iterdir()) == before
    assert convert("in.arrow", "in.csv", "--force") == 0


def test_shared_memory(tmp_path: Path, shm_name: str) -> None:
    source = written_by_peers(tmp_path)["csv"]
    assert convert(source, shm_name) == 0
    with sa.ipc.open_file(shm_name) as reader:
        assert reader.read_all().to_pydict() == EXPECTED
    assert convert(shm_name, tmp_path / "x.npz") == 0
    assert read_by_peers(tmp_path / "x.npz") == EXPECTED
    assert convert(source, shm_name) == 4


def test_pipes(tmp_path: Path) -> None:
    """From one process to the next by standard input and output."""
    source = written_by_peers(tmp_path)["parquet"]
    script = '"$0" -m shmarrow convert "$1" - --to npz | "$0" -m shmarrow convert - "$2"'
    command = ["bash", "-o", "pipefail", "-c", script, sys.executable, source, tmp_path / "x.arrow"]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=110)
    size = (tmp_path / "x.arrow").stat().st_size
    assert (ran.returncode, ran.stdout, ran.stderr) == (0, f"{tmp_path / 'x.arrow'}: 1000 rows, {size} bytes\n", "")
    assert read_by_peers(tmp_path / "x.arrow") == EXPECTED


def test_every_format_through_a_pipe(tmp_path: Path) -> None:
    """A named pipe is written to and read from as it is, never replaced."""
    source, pipe = written_by_peers(tmp_path)["parquet"], tmp_path / "pipe"
    os.mkfifo(pipe)
    for name in (*TABLES, *TENSORS):
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
    "lists.jsonl": (b'{"a":' + b"[" * DEEP + b"]" * DEEP + b"}", "line 1: values nest more than 96 levels deep"),
    "objects.jsonl": (b'{"a":1}\n' + b'{"a":' * DEEP + b"1" + b"}" * DEEP, "line 2: values nest more than 96 levels"),
    "97.jsonl": (b'{"a":' + b"[" * 96 + b"]" * 96 + b"}", "line 1: values nest more than 96 levels deep"),
    "escaped.jsonl": (rb'{"a":"\\\"","b":' + b"[" * DEEP, "line 1: values nest more than 96 levels deep"),
    "after text.jsonl": (b'{"a":"' + b"]" * DEEP + b'","b":' + b"[" * DEEP, "values nest more than 96 levels deep"),
    "closed.jsonl": (b'{"a":1}\n' + b"]" * DEEP + b"[" * DEEP, "line 2: a bracket that was never opened"),
    "string.jsonl": (b'{"a":1}\n{"a":"\n' + b"[" * DEEP, "line 2: a string does not end on its line"),
    "keys.jsonl": (b"\n".join([b'{"k%d":1}' % n for n in range(50_000)]), "50000 objects with more than"),
    "nested keys.jsonl": (
        b"\n".join([b'{"k%d":{"k%d":1}}' % divmod(n, 200) for n in range(40_000)]),
        "80000 objects with more than",
    ),
    "one line.jsonl": (
        b'{"a":[' + b",".join([b'{"k%d":1}' % n for n in range(50_000)]) + b"]}",
        "50001 objects with more than",
    ),
    "void.npy": (described("|V0", "(1099511627776,)"), "elements of type |V0 take no bytes"),
    "rows.npy": (described("<f8", "(1099511627776, 0)"), "of shape (1099511627776, 0) has no elements; at most"),
    "bool.npy": (described("<f8", "(True,)"), "numpy cannot read it: an integer is required"),
    "parentheses.npy": (described("<f8", "(" * 5000), "numpy cannot read it: ('EOF in multi-line statement'"),
    "large.npy": (described("<f8", "(1152921504606846976,)"), "numpy cannot read it: memory mapped length must be pos"),
}  # fmt: skip

HARMLESS = {
    "brackets in text.jsonl": (b'{"a":"' + b"[" * DEEP + rb'\"","b":1}' + b'\n{"a":"]","b":2}\n', 2),
    "95.jsonl": (b'{"a":' + b"[" * 94 + b"]" * 94 + b"}\n", 1),
    "blank.jsonl": (b"\r\n" * 10 + b'{"a":1}\r\n' + b"\n" * 10 + b'{"a":2}', 2),
    "long.jsonl": (b'{"a":[' + b",".join([b'{"x":%d,"y":"z"}' % n for n in range(50_000)]) + b"]}", 1),
}
HOSTILE_RUN = """
import ctypes, os, resource, signal, sys, threading
from shmarrow.cli import main
from shmarrow.cli.convert import _stopped_by_signals
resource.setrlimit(resource.RLIMIT_AS, (3 << 30, 3 << 30))
for name in sys.argv[1:]:
    print(name, main(["convert", name, "x.arrow", "-f"]), file=sys.stderr)
sys.stdout.flush()
lock, mutex = ctypes.CDLL(None).pthread_mutex_lock, ctypes.create_string_buffer(64)
with _stopped_by_signals():
    threading.Timer(0.1, os.kill, (os.getpid(), signal.SIGTERM)).start()
    lock(mutex)
    lock(mutex)  # does not return, and no handler of Python's runs
"""


@pytest.mark.skipif(sys.platform != "linux", reason="a lock that blocks is made with the layout of glibc")
def test_hostile_files(tmp_path: Path) -> None:
    """One process refuses all files that would crash or fill it, and reads those that look like them; SIGTERM ends it
    while it is in C code.
    """
    needs_pyarrow(20)  # for JSON lines
    for name, (data, _) in (HOSTILE | HARMLESS).items():
        (tmp_path / name).write_bytes(data)
    command = [sys.executable, "-c", HOSTILE_RUN, *HOSTILE, *HARMLESS]
    ran = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=100)
    assert ran.returncode == 143, ran.stderr
    said = ran.stderr.splitlines()
    expected = [(f"{name} 1", text) for name, (_, text) in HOSTILE.items()]
    for (status, text), error, found in zip(expected, said[::2], said[1::2], strict=False):
        assert found == status
        assert error.startswith("shmarrow: ")
        assert text in error, status
    assert said[2 * len(HOSTILE) :] == [f"{name} 0" for name in HARMLESS]
    rows = ["1 row" if rows == 1 else f"{rows} rows" for _, rows in HARMLESS.values()]
    assert [line.split(", ")[0] for line in ran.stdout.splitlines()] == [f"x.arrow: {count}" for count in rows]


def test_no_room_for_temporary_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A limit on the size of files stands for a full disk; closed standard streams are named."""
    source = written_by_peers(tmp_path)["csv"]
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    ignored = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    try:
        resource.setrlimit(resource.RLIMIT_FSIZE, (4096, limits[1]))
        assert convert(source, tmp_path / "x.npz") == 1
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        signal.signal(signal.SIGXFSZ, ignored)
    assert "cannot write temporary files in" in capsys.readouterr().err
    for name, arguments in (("stdin", ("-", "x.arrow")), ("stdout", (source, "-"))):
        monkeypatch.setattr(sys, name, None)
        assert convert(*arguments) == 1
        monkeypatch.undo()
        assert f"'standard {name[3:]}put': it is closed" in capsys.readouterr().err


def test_keys_of_later_blocks(tmp_path: Path) -> None:
    """Blocks after the first are held to its keys; here three reads of 1 MiB, parsed as one block each."""
    from shmarrow.interchange.files import checked

    line = b"{" + b",".join([b'"k%d":1' % n for n in range(200)]) + b"}\n"
    later = b"{}\n" * (1 << 20)
    file = checked.CheckedLines(io.BytesIO(line + later), "x", _schema_of)
    assert file.read(len(line)) == line
    with pytest.raises(sa.errors.LimitExceeded, match=f"{1 << 20} objects with more than 199 different keys"):
        file.read(len(later))
    with pytest.raises(sa.errors.LimitExceeded, match="the first line has more than 10 bytes"):
        checked.CheckedLines(io.BytesIO(b" \n\n" + line), "x", _schema_of).read(10)


def _schema_of(lines: bytes) -> Any:
    return pyarrow.json.read_json(io.BytesIO(lines)).schema


def test_modes_and_names_of_targets(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """New files get what the umask leaves, in every format; replaced ones keep their mode; names are escaped."""
    source = written_by_peers(tmp_path)["npz"]
    before = os.umask(0o027)
    try:
        for name in (*TABLES, *TENSORS):
            target = tmp_path / f"mode.{name}"
            assert convert(source, target) == 0
            assert target.stat().st_mode & 0o777 == 0o640, name
            target.chmod(0o604)
            assert convert(source, target, "--force") == 0
            assert target.stat().st_mode & 0o777 == 0o604, name
    finally:
        os.umask(before)
    capsys.readouterr()
    target = tmp_path / "a\x1b[2J.csv"
    assert (convert(source, target), convert(source, target)) == (0, 4)
    said = capsys.readouterr()
    assert said.out == f"{tmp_path}/a\\x1b[2J.csv: 1000 rows, {target.stat().st_size} bytes\n"
    assert "\x1b" not in said.err


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can place a pipe of another user")
def test_planted_pipes_are_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A pipe that another user placed where all may write is not written to, nor one behind such a link."""
    source = written_by_peers(tmp_path)["csv"]
    shared, theirs = tmp_path / "shared", tmp_path / "theirs"
    shared.mkdir()
    shared.chmod(0o1777)
    theirs.mkdir()
    for folder in (shared, theirs):
        os.mkfifo(folder / "pipe.csv")
        os.chown(folder / "pipe.csv", 4321, 4321)
    (shared / "link.csv").symlink_to(theirs / "pipe.csv")
    os.chown(shared / "link.csv", 4321, 4321, follow_symlinks=False)
    for name in ("pipe.csv", "link.csv"):
        assert convert(source, shared / name) == 1
        assert "it belongs to user 4321, in a world-writable directory" in capsys.readouterr().err


def _anonymous(pid: int) -> int:
    """Bytes of memory of a process that no file backs; 0 when it is gone."""
    try:
        found = Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return 0
    return next((int(line.split()[1]) << 10 for line in found.splitlines() if line.startswith("RssAnon")), 0)


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="memory is measured with /proc")
def test_memory_and_signals(tmp_path: Path) -> None:
    """160 MiB pass through in less; what is killed on the way leaves nothing, or only temporary files."""
    source, target = tmp_path / "a.arrow", tmp_path / "b.parquet"
    rows = 1 << 18
    values = np.random.default_rng(1).integers(0, 100, (4, rows))
    piece = sa.record_batch({f"c{number}": column for number, column in enumerate(values)})
    with sa.ipc.new_file(source, piece.schema) as writer:
        for _ in range(20):
            writer.write(piece)
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    command = [sys.executable, "-m", "shmarrow", "convert", str(source), str(target)]
    environment = {**os.environ, "TMPDIR": str(temporary)}
    process = subprocess.Popen([*command, "--compress", "none"], env=environment, stdout=subprocess.PIPE)
    peak = 0
    while process.poll() is None:
        peak = max(peak, _anonymous(process.pid))
        time.sleep(0.01)
    said, _ = process.communicate()
    assert (process.returncode, said.decode().split(": ")[1].split(",")[0]) == (0, f"{20 * rows} rows")
    assert peak < 120 << 20
    target.unlink()
    statuses = []
    for number in (signal.SIGTERM, signal.SIGKILL):
        process = subprocess.Popen([*command[:-1], str(tmp_path / "b.npz")], env=environment, stderr=subprocess.DEVNULL)
        while not list(temporary.glob("shmarrow-convert-*/*")):
            assert process.poll() is None
            time.sleep(0.01)
        process.send_signal(number)
        statuses.append(process.wait(30))
        assert sorted(path.name for path in tmp_path.iterdir()) == ["a.arrow", "temporary"]
        left = [path.name[:17] for path in temporary.iterdir()]
        assert left == (["shmarrow-convert-"] if number == signal.SIGKILL else [])
    assert statuses == [143, -signal.SIGKILL]
