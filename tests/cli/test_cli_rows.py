"""`schema`, `head`, `cat`, `count` and `diff` on real files, with what pyarrow says of the same files."""

from __future__ import annotations

import json
import math
import os
import shutil
import subprocess
import sys
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from commands import StartedCommand, forked_command, on_a_terminal
from forms import peers_stream
from processes import ended, forked, python

import shmarrow as sa
from shmarrow.cli import COMMANDS, main
from shmarrow.xray import overview

ROWS = 1000
TABLE = pa.table(
    {
        "id": pa.array(range(ROWS), pa.int64()),
        "x": [None if i % 7 == 0 else i / 3 for i in range(ROWS)],
        "text": [f"na\tme \\{i}" if i % 5 else None for i in range(ROWS)],
        "list": [[i, None] if i % 3 else [] for i in range(ROWS)],
        "kind": pa.array([f"k{i % 3}" for i in range(ROWS)]).dictionary_encode(),
        "struct": [{"a": i, "b": [str(i)]} for i in range(ROWS)],
    }
).replace_schema_metadata({"made": "by a test"})
FORMS = [(new, codec) for new in ("file", "stream") for codec in (None, "lz4", "zstd")]


def write(table: pa.Table, path: Path, form: str = "file", codec: str | None = None, rows: int = 300) -> str:
    options = pa.ipc.IpcWriteOptions(compression=codec, unify_dictionaries=form == "file")
    new = pa.ipc.new_file if form == "file" else pa.ipc.new_stream
    with pa.OSFile(str(path), "wb") as sink, new(sink, table.schema, options=options) as writer:
        writer.write_table(table, max_chunksize=rows)
    return str(path)


@pytest.fixture(scope="module", params=FORMS, ids=lambda form: f"{form[0]}-{form[1]}")
def path(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> str:
    return write(TABLE, tmp_path_factory.mktemp("rows") / "rows", *request.param)


class Run:
    """Runs commands in this process."""

    def __init__(self, capsys: pytest.CaptureFixture[str]) -> None:
        self._capsys = capsys

    def __call__(self, *words: object, status: int = 0) -> str:
        assert main(list(map(str, words))) == status, self._capsys.readouterr()
        out, err = self._capsys.readouterr()
        assert bool(err) == (status != 0 and not out), err
        return out or err

    def errors(self) -> str:
        return self._capsys.readouterr().err

    def json(self, *words: object, status: int = 0) -> Any:
        return json.loads(self(*words, "--json", status=status))

    def rows(self, *words: object) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self(*words, "--json").splitlines()]


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Run:
    return Run(capsys)


# --- reading --------------------------------------------------------------------------------------------------------


def test_rows_and_schema_are_those_of_pyarrow(path: str, run: Run) -> None:
    rows = TABLE.to_pylist()
    assert run("count", path) == f"{ROWS}\n"
    assert run.json("count", path) == {"target": path, "rows": ROWS, "batches": 4}
    assert run.rows("head", path) == rows[:10]
    assert run.rows("head", path, "-n", 301) == rows[:301]
    assert run("head", path, "-n", 0, "--no-header") == ""
    assert run.rows("cat", path, "--columns", "list,id") == TABLE.select(["list", "id"]).to_pylist()
    fields = run.json("schema", path)
    assert fields["metadata"] == {"made": "by a test"}
    assert [(each["name"], each["nullable"]) for each in fields["fields"]] == [
        (f.name, f.nullable) for f in TABLE.schema
    ]
    assert [each["type"] for each in fields["fields"][:4]] == [str(f.type) for f in list(TABLE.schema)[:4]]
    assert [child["name"] for child in fields["fields"][5]["children"]] == ["a", "b"]
    lines = run("schema", path).splitlines()
    assert lines[0] == "id\tint64\tnullable"
    assert [line.split("\t")[0] for line in lines][-3:] == ["struct.a", "struct.b", "struct.b.item"]


def test_cells_between_tabs_can_be_told_apart(tmp_path: Path, run: Run) -> None:
    """Null is \\N, a backslash is doubled, and no value has a tab or a line break."""
    values = [None, "\\N", "a\tb\nc", "", "é\u202e"]
    path = write(pa.table({"s": values, "n\t": [1.5, math.nan, -math.inf, None, 0.0]}), tmp_path / "x")
    assert run("head", path) == "s\tn\\t\n\\N\t1.5\n\\\\N\tNaN\na\\tb\\nc\t-Infinity\n\t\\N\né\\u202e\t0.0\n"
    assert [row["s"] for row in run.rows("head", path)] == values


@pytest.mark.parametrize("form", ["file", "stream"])
def test_errors_name_file_batch_column_and_row(form: str, tmp_path: Path, run: Run) -> None:
    table = pa.table({"n": range(6), "s": ["abc"] * 3 + ["def"] * 3})
    good = write(table, tmp_path / "good", form, rows=3)
    data = bytearray(Path(good).read_bytes())
    data[data.rindex(b"def" * 3) + 4] = 0xFF
    (path := tmp_path / "bad").write_bytes(data)
    wrong = "row 1: string: not UTF-8: invalid start byte at byte 1"
    for words in (["head"], ["head", "--json"], ["cat"]):
        assert main([words[0], str(path), *words[1:]]) == 1
        assert f"{path}: batch 1: column 1 's': {wrong}" in run.errors()
    for sides in ((good, path), (path, good)):
        message = run.json("diff", *sides, status=1)["message"]
        assert message == f"{path}: column 1 's': {wrong.replace('row 1', 'row 4')}"


def test_long_values_are_cut_in_text_with_their_length(tmp_path: Path, run: Run) -> None:
    text = {"s": "a\t" * 150, "b": b"\x0f" * 500, "l": list(range(1000)), "n": "x" * 200}
    path = write(pa.Table.from_pylist([text]), tmp_path / "x")
    found = run("head", path).splitlines()[1].split("\t")
    assert found[0] == "a\\t" * 100 + "… (300 characters)"
    assert found[1] == "0f" * 100 + "… (1000 characters)"
    whole = json.dumps(text["l"])
    assert found[2] == f"{whole[:200]}… ({len(whole)} characters)"
    assert found[3] == text["n"]
    assert run.rows("head", path) == [text | {"b": "0f" * 500}]
    assert run("cat", path).splitlines()[1].split("\t") == ["a\\t" * 150, "0f" * 500, whole, text["n"]]


def test_what_decompresses_to_more_than_the_limit_is_refused(tmp_path: Path, run: Run) -> None:
    path = write(pa.table({"x": np.zeros(100_000), "y": ["a"] * 100_000}), tmp_path / "x", "file", "zstd", 100_000)
    for words in (("head", path), ("cat", path), ("diff", path, path)):
        said = run(*words, "--columns", "x", "--max-decompressed", "781K", "--json", status=1)
        assert "declare 800000 bytes" in said
        assert said.count("--max-decompressed SIZE raises the limit") == 1
        run(*words, "--columns", "x", "--max-decompressed", "782K")
    found = run.json("validate", path, "--max-decompressed", "781KiB", status=1)["findings"]
    assert [(each["severity"], "column 0 'x'" in each["message"]) for each in found] == [("error", True)]
    assert "--max-decompressed" in found[0]["remedy"]
    assert run.json("validate", path)["valid"]
    with pytest.raises(SystemExit):
        run("head", path, "--max-decompressed", "many")


def test_values_that_json_has_no_form_for(tmp_path: Path, run: Run) -> None:
    columns = {
        "t": (pa.array([1234, None], pa.time64("ns")), "1234 nanoseconds"),
        "d": (pa.array([19000, None], pa.date32()), "2022-01-08"),
        "ts": (pa.array([1_500_000_000_000_000_001, None], pa.timestamp("ns")), "2017-07-14T02:40:00.000000001"),
        "dec": (pa.array([Decimal("12345678901234567890.12"), None]), "12345678901234567890.12"),
        "b": (pa.array([b"\x00\xff", None]), "00ff"),
        "f": (pa.array([math.inf, None]), "Infinity"),
        "m": (pa.array([[("k", 1)], None], pa.map_(pa.string(), pa.int8())), [["k", 1]]),
        "v": (pa.array(["a view that is longer than 12", None], pa.string_view()), "a view that is longer than 12"),
        "lt": (pa.array([[1234], None], pa.list_(pa.time64("ns"))), "[1234 nanoseconds]"),
    }
    path = write(pa.table({name: values for name, (values, _) in columns.items()}), tmp_path / "x")
    first, second = run.rows("head", path)
    assert first == {name: text for name, (_, text) in columns.items()}
    assert second == dict.fromkeys(columns)


def test_equal_names_and_no_columns(tmp_path: Path, run: Run) -> None:
    twice = pa.Table.from_arrays([pa.array([1]), pa.array([2])], names=["a", "a"])
    assert run.rows("head", write(twice, tmp_path / "twice")) == [{"a": 1, "a (2)": 2}]
    none = write(pa.table({}), tmp_path / "none")
    assert [run(command, none) for command in ("cat", "count", "schema")] == ["\n", "0\n", ""]


def test_standard_input(tmp_path: Path) -> None:
    for form, command, expected in (
        ("stream", "count -", f"{ROWS}\n"),
        ("file", "count -", f"{ROWS}\n"),
        ("file", f"diff - {tmp_path / 'file'}", ""),
        ("file", "inspect -", "target "),
        ("stream", "validate -", "-: stream, no findings"),
    ):
        ran = forked_command(*command.split(), stdin=Path(write(TABLE, tmp_path / form, form)).read_bytes())
        assert (ran.returncode, ran.stderr) == (0, b""), command
        assert ran.stdout.decode().startswith(expected), command


def test_head_reads_no_more_of_a_pipe_than_it_needs(tmp_path: Path) -> None:
    """The first batch is enough: what follows it, which is no message, is never read."""
    data = Path(write(TABLE, tmp_path / "x", "stream")).read_bytes()
    first = sum(overview(data).blocks[0].tolist())
    reading, writing = os.pipe()
    child = forked(lambda: (os.close(reading), os.write(writing, data[:first] + b"\xff" * 8)))
    os.close(writing)
    process = StartedCommand("head", "-", "-n", "3", "--columns", "id", stdin=reading)
    os.close(reading)
    assert process.out.read() == "id\n0\n1\n2\n"
    assert process.wait() == (0, "")
    assert ended(child) == 0


def test_diff_of_what_head_reads(tmp_path: Path, run: Run) -> None:
    table = pa.table({"x": [1, 2]})
    pq.write_table(table, tmp_path / "a.parquet")
    sa.write(table, tmp_path / "a.arrow")
    sa.write({"x": [1, 3]}, tmp_path / "b.arrow")
    assert run("diff", tmp_path / "a.parquet", tmp_path / "a.arrow") == ""
    assert run.json("diff", tmp_path / "b.arrow", tmp_path / "a.parquet", status=1)["columns"] == {"x": 1}


def test_objects_of_stores_and_shared_memory(shm_name: str, tmp_path: Path, run: Run) -> None:
    for where in (shm_name, str(tmp_path / "store")):
        with sa.Store(where) as store:
            store.put("t/able", sa.table({"a": [1, 2, 3]}))
            store.put("numbers", np.arange(6.0).reshape(2, 3))
            store.put("array", sa.array([1, 2]))
            assert run("count", f"{where}/t/able") == "3\n"
            assert run("schema", f"{where}/numbers") == "\tdense\tdouble\t2×3\t\n"
            assert "has no rows" in run("head", f"{where}/numbers", status=1)
            assert [each["valid"] for each in run.json("validate", where)["sources"]] == [True] * 3
            assert run("head", f"{where}/", "-n", 2) == "values\n1\n2\n"
            found = run.json("count", where, status=1)
            assert (found["rows"], [each["source"] for each in found["problems"]]) == (5, [f"{where}/numbers"])
            error = run.json("count", f"{where}/nothing", status=3)
            assert (error["error"], error["status"]) == ("ObjectNotFound", 3)
            store.destroy()


def test_what_is_not_arrow_is_named(tmp_path: Path, run: Run) -> None:
    """What pyarrow reads is named by the commands that do not read it through pyarrow."""
    pq.write_table(pa.table({"a": [1]}), tmp_path / "x.parquet")
    (tmp_path / "x.csv").write_text("a,b\n1,2\n")
    (tmp_path / "empty").touch()
    np.save(tmp_path / "x.npy", np.zeros(3))
    for command, name, what in (
        ("inspect", "x.parquet", "a Parquet file; `shmarrow convert"),
        (
            "xray",
            "x.csv",
            f"text, such as CSV; `shmarrow convert {tmp_path / 'x.csv'} OUT.arrow` makes it an Arrow file",
        ),
        ("head", "x.npy", "a NumPy array (.npy); numpy.load reads it"),
        ("validate", "empty", "found an empty file"),
    ):
        assert what in run(command, tmp_path / name, status=1)
    assert run.json("head", tmp_path / "missing", status=3)["error"] == "ObjectNotFound"
    path = write(TABLE, tmp_path / "x")
    assert "did you mean 'kind'?" in run("head", path, "--columns", "kin", status=1)
    assert "separated by commas" in run("head", path, "--columns", "id,", status=2)
    with pytest.raises(SystemExit, match="2"):
        main(["head", path, "-n", "-1"])


def test_rows_of_other_formats(tmp_path: Path, run: Run) -> None:
    pq.write_table(pa.table({"id": [0, 1], "x": [None, 0.5]}), tmp_path / "x.parquet", row_group_size=1)
    (tmp_path / "x.csv").write_text("id,x\n0,\n1,0.5\n")
    (tmp_path / "x.jsonl").write_text('{"id": 0, "x": null}\n{"id": 1, "x": 0.5}\n')
    for name in ("x.parquet", "x.csv", "x.jsonl"):
        assert run("count", tmp_path / name) == "2\n"
        assert run.rows("head", tmp_path / name, "-n", 2) == [{"id": 0, "x": None}, {"id": 1, "x": 0.5}]
        assert run.rows("head", tmp_path / name, "-n", 1, "--columns", "id") == [{"id": 0}]
        fields = run.json("schema", tmp_path / name)["fields"]
        assert [(each["name"], each["type"]) for each in fields] == [("id", "int64"), ("x", "double")]


def test_errors_name_standard_input(tmp_path: Path) -> None:
    """Whether it is read in order or through a temporary file."""
    stream = Path(write(TABLE, tmp_path / "x.arrows", "stream")).read_bytes()
    file = Path(write(TABLE, tmp_path / "x.arrow")).read_bytes()
    out = tmp_path / "out.arrow"
    for words, data in (
        (("count", "-"), stream[:9000]),
        (("schema", "-"), file[:9000]),
        (("head", "-"), bytes(5) + stream),
        (("put", tmp_path / "store", "-", "--name", "x"), file[:9000]),
        (("convert", "-", out), stream[:9000]),
        (("convert", "-", out), file[:9000]),
        (("convert", "-", out), b"neither"),
    ):
        ran = forked_command(*words, stdin=data)
        assert (ran.returncode, ran.stderr.decode().startswith("shmarrow: standard input: ")) == (1, True), ran


def test_tables_align_wide_characters(tmp_path: Path) -> None:
    path = write(pa.table({"日本": [1], "é": [2], "abc": [3]}), tmp_path / "x")
    lines = on_a_terminal("schema", path).splitlines()
    assert [line.partition("int64")[0] for line in lines if "int64" in line] == ["日本    ", "é       ", "abc     "]


def test_rows_on_a_terminal(tmp_path: Path) -> None:
    """A table that fits, of the rows asked for, with names, types and counts of nulls."""
    path = write(TABLE, tmp_path / "x", codec="lz4")
    lines = on_a_terminal("head", path, "-n", "30", columns=60).splitlines()
    assert lines[0].split()[:3] == ["id", "x", "text"]
    assert [line.split()[0] for line in lines[-30:]] == [str(i) for i in range(30)]
    assert max(map(len, lines)) <= 60
    for words, texts in (
        (("schema", path), ("field", "  item")),
        (("inspect", path), ("column", "1000 in 4 batches")),
        (("validate", path), ("no findings",)),
    ):
        shown = on_a_terminal(*words)
        assert [text for text in texts if text not in shown] == []


# --- diff -----------------------------------------------------------------------------------------------------------


def test_equal_whatever_the_form(path: str, tmp_path: Path, run: Run) -> None:
    other = write(TABLE, tmp_path / "x", "stream", rows=77)
    assert run("diff", path, other) == ""
    assert run.json("diff", path, other) == {
        "equal": True, "schema": [], "rows": [ROWS, ROWS], "columns": {}, "differences": [],
    }  # fmt: skip


def changed(name: str, values: list[Any], type: Any = None) -> pa.Table:
    """The table with other values in the first rows of one column."""
    all_values = values + TABLE[name].to_pylist()[len(values) :]
    return TABLE.set_column(
        TABLE.schema.get_field_index(name), name, pa.array(all_values, type or TABLE[name].type)
    ).replace_schema_metadata(TABLE.schema.metadata)


@pytest.mark.parametrize(
    ("name", "values", "rows"),
    [
        ("x", [math.nan, 1 / 3, None], {0: (None, "NaN"), 2: (2 / 3, None)}),
        ("text", ["", None], {0: (None, ""), 1: ("na\tme \\1", None)}),
        ("list", [[None], [1, None]], {0: ([], [None])}),
        ("struct", [{"a": 0, "b": ["0"]}, {"a": 1, "b": ["2"]}], {1: ({"a": 1, "b": ["1"]}, {"a": 1, "b": ["2"]})}),
    ],
)
def test_the_first_differing_rows_are_shown(
    name: str, values: list[Any], rows: dict[int, Any], tmp_path: Path, run: Run
) -> None:
    left, right = write(TABLE, tmp_path / "a", rows=90), write(changed(name, values), tmp_path / "b", "stream", rows=40)
    found = run.json("diff", left, right, status=1)
    assert (found["equal"], found["schema"], found["columns"]) == (False, [], {name: len(rows)})
    assert {each["row"]: (each["left"], each["right"]) for each in found["differences"]} == rows
    lines = run("diff", left, right, status=1).splitlines()
    assert lines[0].startswith(f"column {name}: {len(rows)} of {ROWS} rows ")
    assert [line.split("\t")[0] for line in lines[1:]] == list(map(str, rows))
    assert run("diff", left, right, "--schema-only") == ""


def test_nan_equals_nan_and_zeros_are_equal(tmp_path: Path, run: Run) -> None:
    def table(*values: float) -> pa.Table:
        nested = pa.array([[value] for value in values])
        return pa.table({"x": values, "l": nested, "s": pa.array([{"f": value} for value in values])})

    quiet, other = (np.array([bits], np.uint64).view(float)[0] for bits in (0x7FF8000000000000, 0xFFF8000000000001))
    left, right = write(table(quiet, 0.0, 1.0), tmp_path / "a"), write(table(other, -0.0, 1.0), tmp_path / "b")
    assert run("diff", left, right) == ""
    right = write(table(1.0, -0.0, quiet), tmp_path / "b")
    assert run.json("diff", left, right, status=1)["columns"] == dict.fromkeys("xls", 2)


def test_dictionaries_are_compared_by_their_values(tmp_path: Path, run: Run) -> None:
    def encoded(indices: list[int], values: list[str]) -> pa.Table:
        return pa.table({"d": pa.DictionaryArray.from_arrays(pa.array(indices, pa.int8()), values)})

    left = write(encoded([0, 1, 0], ["a", "b"]), tmp_path / "a")
    assert run("diff", left, write(encoded([2, 0, 2], ["b", "x", "a"]), tmp_path / "b")) == ""
    found = run.json("diff", left, write(encoded([2, 1, 2], ["b", "x", "a"]), tmp_path / "b"), status=1)
    assert found["differences"] == [{"row": 1, "column": "d", "left": "b", "right": "x"}]
    many = [f"v{i}" for i in range(120)]  # together more than the indices can count
    left = write(encoded([5, 0], many), tmp_path / "a")
    right = write(encoded([5, 0], [each.upper() for each in many[:5]] + many[5:]), tmp_path / "b")
    assert run.json("diff", left, right, status=1)["differences"] == [
        {"row": 1, "column": "d", "left": "v0", "right": "V0"}
    ]


def test_schemas_differ(tmp_path: Path, run: Run) -> None:
    left = write(TABLE, tmp_path / "a")
    other = pa.table({"x": TABLE["x"], "id": TABLE["id"].cast(pa.int32()), "new": TABLE["text"]}).slice(0, 5)
    right = write(other, tmp_path / "b")
    found = run.json("diff", left, right, status=1)
    assert (found["rows"], found["columns"]) == ([ROWS, 5], {})
    whats = {(each["field"], each["what"]): (each["left"], each["right"]) for each in found["schema"]}
    assert whats["id", "type"] == ("int64", "int32")
    assert whats["new", "number of columns of this name"] == (0, 1)
    assert whats[None, "metadata"] == ({"made": "by a test"}, {})
    assert run("diff", left, right, "--columns", "x", "--schema-only", status=1) == f"rows: {ROWS} in A, 5 in B\n"
    lines = run("diff", left, right, status=1).splitlines()
    assert {"column new: only in B", "column text: only in A"} <= set(lines)
    twice = write(pa.table([TABLE["id"], TABLE["id"]], names=["id", "id"]), tmp_path / "d")
    assert "2 columns named id in A, 1 in B" in run("diff", twice, left, status=1)
    swapped = write(TABLE.select(TABLE.column_names[::-1]), tmp_path / "c")
    assert [each["what"] for each in run.json("diff", left, swapped, status=1)["schema"]] == ["order of the columns"]
    assert "only one of the two" in run("diff", "-", "-", status=2)


def test_output_without_a_reader(tmp_path: Path) -> None:
    """As in a pipe to head(1), which has seen enough: neither a traceback nor a failure."""
    path = write(TABLE, tmp_path / "x")
    reading, writing = os.pipe()
    os.close(reading)
    process = StartedCommand("cat", path, stdout=writing)
    os.close(writing)
    assert process.wait() == (0, "")


# --- all commands ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("words", "status", "said"),
    [
        ("hea", 2, "did you mean 'head'?\n"),
        ("help hea", 2, "shmarrow: no command is named 'hea'; did you mean 'head'?\n"),
        ("-V", 2, "shmarrow: unknown option '-V'; did you mean '--version'?\n"),
        ("--accept-users head", 2, "shmarrow: expected COMMAND before its options, found '--accept-users'"),
        ("head --colums a", 2, "head: error: unrecognized arguments: --colums\n"),
        ("head", 2, "head: error: the following arguments are required: TARGET\n"),
        ("help diff", 0, "usage: shmarrow diff"),
        ("info /dev/null", 2, "describes a store, `shmarrow inspect` a file"),
    ],
)
def test_wrong_usage_says_what_was_meant(
    words: str, status: int, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    try:
        ended = main(words.split())
    except SystemExit as error:  # of argparse, with the usage of the command
        ended = error.code
    out, err = capsys.readouterr()
    assert (ended, said in out + err) == (status, True), out + err


def test_no_command_shows_all(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == 2
    shown = capsys.readouterr().err
    assert all(f"  {command.name} " in shown for command in COMMANDS)
    assert main(["--json", "hea"]) == 2
    assert json.loads(capsys.readouterr().err)["hint"] == "did you mean 'head'?"


def test_objects_are_copied_to_files_with_the_suffix_of_their_format(
    shm_name: str, tmp_path: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with sa.Store(shm_name) as store:
        store.put("rows", sa.table({"a": [1]}))
        store.put("numbers", np.zeros(3))
        store.put_file("flow", write(TABLE, tmp_path / "x", "stream"))
        for name, suffix in (("rows", "arrow"), ("numbers", "tensor"), ("flow", "arrows")):
            assert run("get", shm_name, name) == f"{name}.{suffix}\n"
    assert run("count", "flow.arrows") == f"{ROWS}\n"


IMPORTS = """
import os, sys
import numpy
from processes import die
before = set(sys.modules)
from shmarrow.cli import COMMANDS, main
for words in [line.split() for line in sys.stdin]:
    child = os.fork()
    if child == 0:
        assert main(words) == 0
        print("loaded", *sorted(set(sys.modules) - before))
        sys.stdout.flush()
        die()
    os.waitpid(child, 0)
"""
LATE = {
    "asyncio", "email", "importlib.metadata", "multiprocessing", "pandas", "polars", "pyarrow", "pyspark", "rich",
    "shtab", "socket", "subprocess", "tempfile", "torch", "zipfile", "shmarrow.build", "shmarrow.interchange.convert",
    "shmarrow.spark", "shmarrow.store.store", "shmarrow.torch",
}  # fmt: skip
"""Modules that no command that reads a file may import."""


def test_what_commands_import(tmp_path: Path) -> None:
    """The time to start is bounded by the modules that are imported beyond those of numpy."""
    path = write(TABLE.select(["id", "x", "text"]), tmp_path / "x")
    most = {"schema": 78, "count": 78, "head": 100, "inspect": 92, "validate": 130, f"diff {path}": 95}
    said = python(IMPORTS, input="\n".join(f"{command} {path}" for command in most)).splitlines()
    loaded = [set(line.split()[1:]) for line in said if line.startswith("loaded ")]
    for (command, limit), modules in zip(most.items(), loaded, strict=True):
        assert modules & LATE == set(), command
        assert len([name for name in modules if name.startswith("shmarrow")]) <= limit, command


COMPLETE = """
source completion
words() {
    COMP_WORDS=("$@"); COMP_CWORD=$((${#COMP_WORDS[@]} - 1)); COMP_LINE="$*"; COMP_POINT=${#COMP_LINE}; COMPREPLY=()
    "$(complete -p shmarrow | sed 's/.*-F \\([^ ]*\\).*/\\1/')"
    printf '%s\\n' "$(printf '%s\\n' "${COMPREPLY[@]}" | sort | paste -sd ' ')"
}
words shmarrow ins
words shmarrow head --col
words shmarrow head cit
words shmarrow completion z
words shmarrow evi
"""


def test_completion_in_bash(tmp_path: Path, run: Run) -> None:
    """Commands, options, choices and files are completed by a real bash."""
    pytest.importorskip("shtab")
    if shutil.which("bash") is None:
        pytest.skip("no bash")
    for shell in ("zsh", "fish", "tcsh"):
        assert "shmarrow" in run("completion", shell)
    (tmp_path / "completion").write_text(run("completion", "bash"))
    (tmp_path / "cities.arrow").touch()
    done = subprocess.run(["bash", "-c", COMPLETE], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert done.stderr == ""
    assert done.stdout.splitlines() == ["inspect", "--columns", "cities.arrow", "zsh", "evict"]


def test_closed_standard_output_is_one_error(tmp_path: Path) -> None:
    """Not a traceback, and not success without output."""
    command = [sys.executable, "-m", "shmarrow", "count", write(TABLE, tmp_path / "a"), "--json"]
    ran = subprocess.run(["sh", "-c", '"$@" >&-', "sh", *command], capture_output=True, text=True, check=False)
    found = json.loads(ran.stderr)
    assert (ran.returncode, found["status"], found["error"]) == (1, 1, "StorageError")
    assert found["message"].startswith("cannot write to 'standard output': it is closed")


def test_rows_of_many_batches_of_a_stream(tmp_path: Path, run: Run) -> None:
    """They are counted without decoding each batch; the last one has fewer rows, and one has none."""
    rows = [7] * 1100 + [0, 3]
    batch = TABLE.slice(0, 7).combine_chunks().to_batches()[0]
    (tmp_path / "many").write_bytes(peers_stream(*[batch.slice(0, count) for count in rows]))
    said = {"target": str(tmp_path / "many"), "rows": sum(rows), "batches": len(rows)}
    assert run.json("count", tmp_path / "many") == said


def test_a_second_stream_is_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Standard readers end with the first stream, so what follows is named, and never converted halfway."""
    one = Path(write(TABLE.slice(0, 5), tmp_path / "one", "stream")).read_bytes()
    two = tmp_path / "two"
    two.write_bytes(one + one)
    for command, found in (("count", "5"), ("head", "struct"), ("schema", "struct")):
        assert main([command, str(two)]) == 0
        out, err = capsys.readouterr()
        assert found in out
        assert "bytes follow the end of the stream" in err
        assert main([command, str(tmp_path / "one")]) == 0
        assert not capsys.readouterr().err
    for words, status, said in (("count -", 0, b"5\n"), (f"convert --to arrow - {tmp_path / 'out'}", 1, b"")):
        ran = forked_command(*words.split(), stdin=one + one)
        assert (ran.returncode, ran.stdout) == (status, said)
        assert b"bytes follow the end of the stream" in ran.stderr
    assert main(["convert", str(two), str(tmp_path / "out.arrow")]) == 1
    assert main(["validate", str(two)]) == 1
    assert "follow the end of the stream" in capsys.readouterr().out
    assert sorted(path.name for path in tmp_path.iterdir()) == ["one", "two"]
    with sa.ipc.open_stream(two) as reader:
        assert reader.bytes_follow()
    for path in (two, tmp_path / "one"):
        with path.open("rb") as file, sa.ipc.open_stream(file) as reader:
            assert not reader.bytes_follow()
            assert len(reader.read_all()) == 5
            assert reader.bytes_follow() == (path == two)
