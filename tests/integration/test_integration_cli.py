"""``shmarrow integration``, as Arrow's cross-language tests call it.

Invariants: the program runs for real, in processes of its own, with files, pipes and exit codes; only the walk
through all golden files calls it within this process.
"""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import golden
import pyarrow as pa
import pytest
from commands import forked_command

import shmarrow as sa
from shmarrow.cli import main
from shmarrow.integration.json import read_json, write_json

PROGRAM = [sys.executable, "-c", "import sys; from shmarrow.cli import main; sys.exit(main())", "integration"]


def run(*arguments: Any, stdin: bytes = b"") -> tuple[int, bytes, str]:
    """Exit status, standard output and standard error."""
    done = forked_command("integration", *arguments, stdin=stdin)
    return done.returncode, done.stdout, done.stderr.decode()


def run_fresh(*arguments: Any, stdin: bytes = b"") -> tuple[int, bytes, str]:
    """The same in a fresh interpreter, with pipes for input and output."""
    done = subprocess.run([*PROGRAM, *map(str, arguments)], input=stdin, capture_output=True)
    return done.returncode, done.stdout, done.stderr.decode()


def write_arrow(path: Path, table: sa.Table) -> Path:
    with sa.ipc.new_file(path, table.schema) as writer:
        writer.write_table(table)
    return path


def text(table: sa.Table) -> str:
    sink = io.BytesIO()
    write_json(sink, table)
    return sink.getvalue().decode()


# --- golden files -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", golden.NAMES)
def test_golden_files_are_valid_and_stay_so(
    arrow_testing: Path, name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arrow, document = (golden.path(arrow_testing, name, form) for form in ("arrow_file", "json.gz"))
    stream = golden.path(arrow_testing, name, "stream")
    ours, again = tmp_path / "ours.arrow", tmp_path / "ours.json"
    for arguments in (
        ["validate", "--arrow", arrow, "--json", document],
        ["json-to-arrow", "--arrow", ours, "--json", document],
        ["validate", "--arrow", ours, "--json", document],
        ["arrow-to-json", "--arrow", ours, "--json", again],
        ["validate", "--arrow", arrow, "--json", again],
        ["stream-to-file", stream, ours],
        ["validate", "--arrow", ours, "--json", again],
    ):
        assert main(["integration", *map(str, arguments)]) == 0, arguments
    assert capsys.readouterr() == ("", "")
    assert pa.ipc.open_file(ours).read_all().equals(pa.ipc.open_stream(stream).read_all())


# --- the program --------------------------------------------------------------------------------------------------

SAMPLE = "cpp-21.0.0/union"


def test_validate_as_archery_calls_it(arrow_testing: Path) -> None:
    arrow, document = (golden.path(arrow_testing, SAMPLE, form) for form in ("arrow_file", "json.gz"))
    assert run("validate", f"--arrow={arrow}", f"--json={document}") == (0, b"", "")
    other = golden.path(arrow_testing, "cpp-21.0.0/map", "arrow_file")
    expected = b"column 'sparse_1': number of columns of this name: the JSON has 1, the file 0\n"
    status, said, _ = run("validate", f"--arrow={other}", f"--json={document}")
    assert status == 1
    assert said.startswith(expected)


def test_streams_and_files_through_pipes(arrow_testing: Path, tmp_path: Path) -> None:
    stream = Path(golden.path(arrow_testing, SAMPLE, "stream")).read_bytes()
    expected = pa.ipc.open_stream(stream).read_all()
    status, file, error = run("stream-to-file", stdin=stream)
    assert (status, error) == (0, "")
    assert pa.ipc.open_file(file).read_all().equals(expected)
    status, again, error = run("file-to-stream", stdin=file)
    assert (status, error) == (0, "")
    assert pa.ipc.open_stream(again).read_all().equals(expected)
    (tmp_path / "a.arrow").write_bytes(file)
    with (tmp_path / "a.arrow").open("rb") as source, (tmp_path / "a.stream").open("wb") as sink:
        done = subprocess.run([*PROGRAM, "file-to-stream"], stdin=source, stdout=sink)
    assert done.returncode == 0
    assert (tmp_path / "a.stream").read_bytes() == again


@pytest.mark.parametrize(
    "ends", [["{0}", "{1}"], ["--stream", "{0}", "--arrow", "{1}"], ["{0}", "--arrow={1}"], ["-", "{1}"]]
)
def test_streams_and_files_by_name(arrow_testing: Path, tmp_path: Path, ends: list[str]) -> None:
    stream, file = golden.path(arrow_testing, SAMPLE, "stream"), tmp_path / "out.arrow"
    arguments = [end.format(stream, file) for end in ends]
    stdin = Path(stream).read_bytes() if "-" in ends else b""
    assert run("stream-to-file", *arguments, stdin=stdin) == (0, b"", "")
    status, again, _ = run("file-to-stream", file)
    assert status == 0
    assert pa.ipc.open_stream(again).read_all().equals(pa.ipc.open_stream(stream).read_all())


def test_pipes_and_devices_are_written_into(arrow_testing: Path, tmp_path: Path) -> None:
    arrow = golden.path(arrow_testing, SAMPLE, "arrow_file")
    before = os.lstat("/dev/stdout").st_ino, os.readlink("/dev/stdout")
    status, found, error = run_fresh(
        "arrow-to-json", "--arrow", "/dev/stdin", "--json", "/dev/stdout", stdin=Path(arrow).read_bytes()
    )
    assert (status, error) == (0, "")
    assert read_json(found).equals(golden.read(arrow_testing, SAMPLE, "arrow_file"))
    assert (os.lstat("/dev/stdout").st_ino, os.readlink("/dev/stdout")) == before
    (tmp_path / "target").write_text("old")
    (tmp_path / "link").symlink_to("target")
    assert run_fresh("arrow-to-json", "--arrow", arrow, "--json", tmp_path / "link") == (0, b"", "")
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "target").read_bytes() == found


def test_what_is_written_replaces_what_was_there(tmp_path: Path) -> None:
    arrow = write_arrow(tmp_path / "a.arrow", sa.table({"a": [1, 2]}))
    for name in ("a.json", "a.json.gz"):
        (tmp_path / name).write_text("old")
        assert run("arrow-to-json", "--arrow", arrow, "--json", tmp_path / name)[0] == 0
        assert read_json(tmp_path / name).to_pydict() == {"a": [1, 2]}
        assert (tmp_path / name).stat().st_mode & 0o777 == 0o644
    assert json.loads((tmp_path / "a.json").read_text())["batches"][0]["count"] == 2


def test_errors_are_one_line_and_a_status(tmp_path: Path) -> None:
    arrow = write_arrow(tmp_path / "a.arrow", sa.table({"a": [1, 2]}))
    document = tmp_path / "a.json"
    document.write_text(text(sa.table({"a": [1, 2]})).replace('"count": 2, "VALIDITY"', '"count": 3, "VALIDITY"'))
    cases: list[tuple[list[Any], str]] = [
        (["validate", "--arrow", arrow, "--json", tmp_path / "none.json"], "none.json"),
        (
            ["validate", "--arrow", arrow, "--json", document],
            "a.json: batches 0: columns 0: VALIDITY",
        ),
        (["json-to-arrow", "--arrow", tmp_path / "b.arrow", "--json", document], "expected 3 items, found 2"),
        (["arrow-to-json", "--arrow", document, "--json", tmp_path / "b.json"], "expected an Arrow file"),
        (["arrow-to-json", "--arrow", arrow, "--json", tmp_path / "no" / "b.json"], "b.json"),
        (["file-to-stream", tmp_path / "none.arrow"], "none.arrow"),
        (["stream-to-file", arrow, tmp_path / "b.arrow"], "a.arrow"),
    ]
    for arguments, message in cases:
        status, output, error = run(*arguments)
        missing = any("none" in str(each) or "/no/" in str(each) for each in arguments)
        assert (status, output) == (3 if missing else 1, b""), arguments
        assert error.startswith("shmarrow: ")
        assert error.count("\n") == 1
        assert message in error
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.arrow", "a.json"]


def test_wrong_usage_is_status_2() -> None:
    for arguments, message in (
        ([], "usage: shmarrow integration"),
        (["tensor-to-file"], "usage: shmarrow integration"),
        (["validate", "--arrow", "a"], "validate needs --json"),
        (["validate", "c", "--arrow", "a", "--json", "b"], "validate does not take 'c'"),
        (["stream-to-file", "a", "b", "--stream", "c"], "stream-to-file does not take 'b'"),
    ):
        status, output, error = run(*arguments)
        assert (status, output) == (2, b"")
        assert message in error


# --- what differs -------------------------------------------------------------------------------------------------

POINT = sa.struct({"x": sa.int32(), "tags": sa.list_(sa.string())})


def one(values: list[Any], type: Any, name: str = "f", **field: Any) -> sa.Table:
    return sa.Table.from_arrays([sa.array(values, type)], schema=sa.schema([sa.field(name, type, **field)]))


def many(*batches: list[int]) -> sa.Table:
    return sa.Table.from_batches([sa.record_batch({"f": sa.array(values, sa.int64())}) for values in batches])


def union(codes: list[int]) -> sa.Table:
    type = sa.sparse_union({"a": sa.int32(), "b": sa.int32()})
    children = [sa.array([5, 5], sa.int32())] * 2
    return sa.Table.from_arrays([sa.UnionArray.from_sparse(codes, children, type=type)], names=["f"])


NAN = float("nan")

DIFFERENT: dict[str, tuple[sa.Table, sa.Table, list[str]]] = {
    "a null": (
        one(["a", None], sa.string()),
        one(["a", ""], sa.string()),
        ["batch 0, column 'f', row 1: the JSON has None, the file ''"],
    ),
    "a value within lists and structs": (
        one([None, [{"x": 1, "tags": ["a", "b"]}]], sa.list_(POINT)),
        one([None, [{"x": 1, "tags": ["a", "c"]}]], sa.list_(POINT)),
        [
            "batch 0, column 'f', row 1: the JSON has [{'x': 1, 'tags': ['a', 'b']}], "
            "the file [{'x': 1, 'tags': ['a', 'c']}]"
        ],
    ),
    "a value beside NaN": (
        one([NAN, 1.0], sa.float64()),
        one([NAN, 2.0], sa.float64()),
        ["batch 0, column 'f', row 1: the JSON has 1.0, the file 2.0"],
    ),
    "a far row of a later batch": (
        many([0] * 3, list(range(5000))),
        many([0] * 3, [*range(4321), -1, *range(4322, 5000)]),
        ["batch 1, column 'f', row 4321: the JSON has 4321, the file -1"],
    ),
    "the child of a union": (
        union([0, 1]),
        union([0, 0]),
        ["batch 0, column 'f', row 1: the JSON has 5, the file 5"],
    ),
    "the number of batches": (many([1], [2]), many([1]), ["batches: the JSON has 2, the file 1"]),
    "the rows of batches": (
        many([1, 2], [3]),
        many([1], [2, 3]),
        ["batch 0: rows: the JSON has 2, the file 1", "batch 1: rows: the JSON has 1, the file 2"],
    ),
    "a name": (
        one([1], sa.int8(), "f"),
        one([1], sa.int8(), "g"),
        [
            "column 'f': number of columns of this name: the JSON has 1, the file 0",
            "column 'g': number of columns of this name: the JSON has 0, the file 1",
        ],
    ),
    "nullability": (
        one([1], sa.int8()),
        one([1], sa.int8(), nullable=False),
        ["column 'f': nullable: the JSON has True, the file False"],
    ),
    "a type": (
        one([1], sa.int8()),
        one([1], sa.int16()),
        ["column 'f': type: the JSON has 'int8', the file 'int16'"],
    ),
    "metadata": (
        one([1], sa.int8(), metadata={"a": "b"}),
        one([1], sa.int8()),
        ["column 'f': metadata: the JSON has {'a': 'b'}, the file {}"],
    ),
    "metadata within": (
        one([[1]], sa.list_(sa.field("item", sa.int8(), metadata={"a": "b"}))),
        one([[1]], sa.list_(sa.field("item", sa.int8(), metadata={"a": "c"}))),
        ["column 'f': metadata of nested fields: the JSON has [[{'a': 'b'}]], the file [[{'a': 'c'}]]"],
    ),
    "very many columns": (
        sa.table({f"c{i}": [i] for i in range(50)}),
        sa.table({f"c{i}": [-i - 1] for i in range(50)}),
        [
            *[f"batch 0, column 'c{i}', row 0: the JSON has {i}, the file {-i - 1}" for i in range(20)],
            "and more than these 20 differences",
        ],
    ),
}


@pytest.mark.parametrize("name", DIFFERENT)
def test_what_differs_is_said(name: str, tmp_path: Path) -> None:
    expected, found, lines = DIFFERENT[name]
    write_json(tmp_path / "a.json", expected)
    arrow = write_arrow(tmp_path / "a.arrow", found)
    status, output, error = run("validate", "--arrow", arrow, "--json", tmp_path / "a.json")
    assert (status, output.decode().splitlines(), error) == (1, lines, "")


EQUAL: dict[str, tuple[sa.Table, sa.Table]] = {
    "NaN within": (one([[{"x": NAN}]], sa.list_(sa.struct({"x": sa.float64()}))),) * 2,
    "names within lists": (
        one([[1]], sa.list_(sa.field("item", sa.int8()))),
        one([[1]], sa.list_(sa.field("element", sa.int8()))),
    ),
    "the same values in other dictionaries": (
        one(["a", "b"], sa.dictionary("int8", "string")),
        one([None, "b", "a", "b"], sa.dictionary("int8", "string")).slice(2),
    ),
    "list views in another order": (
        one([[1], [2]], sa.list_view(sa.int8())),
        one([[2], [1], [2]], sa.list_view(sa.int8())).slice(1),
    ),
    "no columns": (sa.Table(sa.schema([]), [sa.RecordBatch(sa.schema([]), 5, [])]),) * 2,
}


@pytest.mark.parametrize("name", EQUAL)
def test_what_is_equal(name: str, tmp_path: Path) -> None:
    expected, found = EQUAL[name]
    write_json(tmp_path / "a.json", expected)
    arrow = write_arrow(tmp_path / "a.arrow", found)
    assert run("validate", "--arrow", arrow, "--json", tmp_path / "a.json") == (0, b"", "")
