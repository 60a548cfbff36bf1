"""`inspect` and `validate` on real files: against pyarrow, on golden files, and on broken and hostile ones."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from forms import peers_file, peers_stream
from processes import python
from sparse_file import sparse_file
from test_cli_rows import FORMS, TABLE, Run, run, write

import shmarrow as sa
from shmarrow.cli import main
from shmarrow.cli.inspect import measure
from shmarrow.xray import overview

__all__ = ["run"]


def buffers_by_column(path: str, form: str) -> dict[str, list[pa.Buffer]]:
    """The buffers of each column in all batches, as pyarrow reads them: decompressed, and mapped where they can be."""
    source = pa.memory_map(path)
    reader = pa.ipc.open_file(source) if form == "file" else pa.ipc.open_stream(source)
    batches = reader.read_all().to_batches()
    return {
        name: [each for batch in batches for each in batch.column(name).buffers() if each is not None]
        for name in TABLE.column_names
    }


# --- inspect --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("form", "codec"), FORMS)
def test_numbers_are_those_of_pyarrow(form: str, codec: str | None, tmp_path: Path, run: Run) -> None:
    path = write(TABLE, tmp_path / "x", form, codec)
    found = run.json("inspect", path)
    assert (found["kind"], found["version"], found["endianness"], found["compression"]) == (form, "V5", "little", codec)
    assert (found["rows"], found["batches"], found["bytes"]) == (1000, 4, os.path.getsize(path))
    assert found["stored"] is None
    assert found["metadata"] == {"made": "by a test"}
    assert found["findings"] == {"error": 0, "warning": 0, "note": 0}
    sizes = {name: sum([each.size for each in found]) for name, found in buffers_by_column(path, form).items()}
    for column in found["columns"]:
        name = column["name"]
        assert column["nulls"] == TABLE[name].null_count
        assert column["values"] == 1000
        assert column["decompressed"] == sizes[name]
        if codec is None:
            assert column["bytes"] == sizes[name]
        assert column["ratio"] == pytest.approx(column["decompressed"] / column["bytes"], abs=1e-3)
    items = found["columns"][3]["children"][0]
    assert (items["name"], items["values"]) == ("item", sum(map(len, TABLE["list"].to_pylist())))
    assert items["nulls"] == TABLE["list"].combine_chunks().flatten().null_count
    assert list(found["columns"][2]["buffers"]) == ["validity", "offsets", "data"]
    (dictionary,) = found["dictionaries"]
    assert [dictionary[name] for name in ("id", "type", "fields", "values", "batches", "deltas")] == [
        0, "string", ["kind"], 3, 1, 0
    ]  # fmt: skip
    text = run("inspect", path)
    assert "1000 in 4 batches" in text
    assert f"{TABLE['x'].null_count}" in next(line for line in text.splitlines() if line.startswith("x "))


@pytest.mark.parametrize("form", ["file", "stream"])
def test_alignment_is_that_of_the_addresses(form: str, tmp_path: Path, run: Run) -> None:
    """The alignment in the file is that in memory, as mappings begin at pages."""
    path = write(TABLE, tmp_path / "x", form)
    found = run.json("inspect", path)["alignment"]
    by_leaf = measure(overview(path), print).alignment
    addresses = [each.address for column in buffers_by_column(path, form).values() for each in column if each.size]
    assert min(by_leaf) == min(min(address & -address, 64) for address in addresses)
    assert found["64"] + found["8"] == 14
    assert found["misaligned"] == []


def test_buffers_that_consumers_copy(tmp_path: Path, run: Run) -> None:
    """Bytes moved by 4: numbers of 8 bytes are not aligned for their type any more, those of 4 bytes are."""
    table = pa.table({"a": pa.array([1, 2], pa.int64()), "b": pa.array([1, 2], pa.int32()), "t": ["x", "y"]})
    data = bytearray(Path(write(table, tmp_path / "x", "stream")).read_bytes())
    start, metadata, _ = overview(bytes(data)).blocks[0].tolist()
    data[start + 4 : start + 8] = (metadata - 8 + 4).to_bytes(4, "little")
    data[start + metadata : start + metadata] = bytes(4)
    (tmp_path / "moved").write_bytes(data)
    assert pa.ipc.open_stream(bytes(data)).read_all() == table
    found = run.json("inspect", tmp_path / "moved")["alignment"]
    assert found["misaligned"] == [{"field": "a", "buffer": "values", "alignment": 4, "needed": 8}]
    assert (found["less"], found["element"]) == (1, 3)
    assert "values of a: aligned to 4, its elements need 8" in run("inspect", tmp_path / "moved")


def test_dictionaries_with_deltas_and_replacements(tmp_path: Path, run: Run) -> None:
    arrays = [
        pa.DictionaryArray.from_arrays(pa.array([0], pa.int8()), values)
        for values in (["a"], ["a", "b", "c"], ["z", "y"], ["z", "y"])
    ]
    batches = [pa.record_batch([array, arrays[0]], names=["d", "e"]) for array in arrays]
    (tmp_path / "x").write_bytes(peers_stream(*batches, emit_dictionary_deltas=True))
    first, second = run.json("inspect", tmp_path / "x")["dictionaries"]
    assert (first["fields"], first["values"], first["batches"], first["deltas"]) == (["d"], 2, 3, 1)
    assert (second["fields"], second["values"], second["batches"], second["deltas"]) == (["e"], 1, 1, 0)


def test_views_and_unions_and_metadata_version_4(tmp_path: Path, run: Run) -> None:
    """Batches of views have numbers of buffers of their own; unions of version 4 have a validity bitmap."""
    views = pa.table({"v": pa.array(["a view of a long string", None, "b"] * 100, pa.string_view()), "n": range(300)})
    found = run.json("inspect", write(views, tmp_path / "v", rows=70))
    batches = pa.ipc.open_file(str(tmp_path / "v")).read_all().to_batches()
    sizes = [sum([each.size for batch in batches for each in batch.column(i).buffers() if each]) for i in (0, 1)]
    assert found["columns"][0]["nulls"] == 100
    assert [column["bytes"] for column in found["columns"]] == sizes
    assert set(found["columns"][0]["buffers"]) == {"validity", "views", "data"}
    union = pa.UnionArray.from_sparse(pa.array([0, 1, 0], pa.int8()), [pa.array([1, 2, 3]), pa.array(["a", "b", "c"])])
    table = pa.table({"u": union})
    (tmp_path / "u").write_bytes(peers_file(table, metadata_version=pa.ipc.MetadataVersion.V4))
    found = run.json("inspect", tmp_path / "u")
    assert (found["version"], found["unreadable_batches"]) == ("V4", 0)
    assert [child["values"] for child in found["columns"][0]["children"]] == [3, 3]


def test_many_small_batches_are_all_read(tmp_path: Path, run: Run) -> None:
    table = pa.concat_tables([TABLE.select(["id", "x"])] * 10)
    found = run.json("inspect", write(table, tmp_path / "x", rows=2))
    assert (found["batches"], found["rows"]) == (5_000, 10_000)
    assert [column["nulls"] for column in found["columns"]] == [0, table["x"].null_count]


MEASURED = """
import sys
from shmarrow.cli import main
assert main(["inspect", sys.argv[1], "--json"]) == 0
print(*[line.split()[1] for line in open("/proc/self/status") if line.startswith("VmHWM")])
"""


def test_a_terabyte_in_a_sparse_file(tmp_path: Path) -> None:
    """Bounded memory, and numbers that follow from how it was made."""
    batches, rows = 2_000, 32_000_000
    sparse_file(tmp_path / "sparse.arrow", batches, rows)
    assert (tmp_path / "sparse.arrow").stat().st_size > 1e12
    said, kibibytes = python(MEASURED, tmp_path / "sparse.arrow").splitlines()
    found = json.loads(said)
    assert (found["batches"], found["rows"]) == (batches, batches * rows)
    assert [each["bytes"] for each in found["columns"]] == [8 * batches * rows] * 2
    assert found["findings"] == {"error": 0, "warning": 0, "note": 0}
    assert int(kibibytes) < 200 << 10


def test_tensors_and_bundles(tmp_path: Path, run: Run) -> None:
    with pa.OSFile(str(tmp_path / "t"), "wb") as sink:
        pa.ipc.write_tensor(pa.Tensor.from_numpy(np.arange(12.0).reshape(3, 4), dim_names=["r", "c"]), sink)
    sa.save_tensors({"w": np.zeros((2, 3), np.float32), "b": np.zeros(5, np.int8)}, tmp_path / "b")
    sa.ipc.write_tensor(sa.SparseCOOTensor.from_dense(np.eye(4)), tmp_path / "s")
    (tensor,) = run.json("inspect", tmp_path / "t")["tensors"]
    assert tensor == {
        "name": None, "form": "dense", "type": "double", "shape": [3, 4], "strides": [32, 8], "dim_names": ["r", "c"],
        "non_zero": None, "bytes": 96,
    }  # fmt: skip
    bundle = {each["name"]: (each["type"], each["shape"]) for each in run.json("inspect", tmp_path / "b")["tensors"]}
    assert bundle == {"w": ("float", [2, 3]), "b": ("int8", [5])}
    (sparse,) = run.json("inspect", tmp_path / "s")["tensors"]
    assert (sparse["form"], sparse["non_zero"]) == ("sparse COO", 4)
    for name, kind in (("t", "tensor"), ("b", "bundle"), ("s", "sparse tensor")):
        assert run.json("inspect", tmp_path / name)["kind"] == kind
        assert run.json("validate", tmp_path / name, "--full")["valid"]
        assert run("inspect", tmp_path / name).startswith("target  ")


def test_objects_of_a_store(shm_name: str, run: Run) -> None:
    """Pins and owner of the object, as the store has them."""
    with sa.Store(shm_name, owned=True) as store:
        store.put("a/b", sa.table({"x": [1, None], "text": ["x" * 5000] * 2}))
        info, held = store.info("a/b"), store.get("a/b")
        found = run.json("inspect", f"{shm_name}/a/b")
        assert (found["kind"], found["rows"], found["columns"][0]["nulls"]) == ("file", 2, 1)
        assert [found["stored"][name] for name in ("store", "name", "kind", "pins", "owner", "generation", "path")] == [
            shm_name, "a/b", "table", 1, os.getpid(), info.generation, info.path
        ]  # fmt: skip
        assert "1 (processes that have it attached)" in run("inspect", f"{shm_name}/a/b")
        assert run.json("validate", f"{shm_name}/a/b", "--full")["valid"]
        del held
        store.destroy()


# --- validate -------------------------------------------------------------------------------------------------------


def test_golden_files_are_valid(arrow_testing: Path, run: Run) -> None:
    """All of them: streams and files, both byte orders, all versions."""
    paths = sorted([*arrow_testing.rglob("*.arrow_file"), *arrow_testing.rglob("*.stream")])
    assert len(paths) > 100
    for path in paths:
        found = run.json("validate", path)
        assert (found["valid"], found["errors"]) == (True, 0), path
        kind = "stream" if path.suffix == ".stream" else "file"
        assert (found["kind"], run.json("inspect", path)["kind"]) == (kind, kind)


def test_hostile_files_end_in_findings_or_errors(arrow_testing: Path, capsys: Any) -> None:
    for path in sorted(arrow_testing.glob("fuzz/*/*")):
        for command in ("inspect", "validate --full", "head"):
            status = main([*command.split(), str(path), "--json"])
            out, err = capsys.readouterr()
            assert status == 0 or (status == 1 and (out or json.loads(err)["status"] == 1))


def test_all_broken_columns_are_found_with_their_offsets(tmp_path: Path, run: Run) -> None:
    """Invalid UTF-8 in two batches and an index outside its dictionary in a third: each is found, where it is."""
    table = pa.table({"s": ["abc", "def"] * 30, "n": range(60), "d": pa.array(["x", "y"] * 30).dictionary_encode()})
    for form in ("file", "stream"):
        path = tmp_path / form
        data = bytearray(Path(write(table, path, form, rows=20)).read_bytes())
        places = [data.index(b"abcdefabc")]
        places.append(data.index(b"abcdefabc", places[0] + 100))
        for at in places:
            data[at + 1] = 0xFF
        seen = overview(bytes(data))
        batch = seen.batch(2)
        last = batch.body + int(batch.buffers[[role.buffer for role in seen.buffer_roles].index("indices"), 0])
        data[last] = 99
        path.write_bytes(data)
        assert run.json("validate", path)["valid"]
        found = run.json("validate", path, "--full", status=1)
        assert (found["errors"], found["complete"], found["full"]) == (3, True, True)
        for each, at in zip(found["findings"], [*places, last], strict=True):
            assert each["start"] <= at < each["end"]
            assert each["remedy"]
        lines = run("validate", path, "--full", status=1).splitlines()
        assert [line.split("\t")[0] for line in lines] == ["error"] * 3 + [lines[-1]]
        assert lines[-1].endswith("3 errors (structure and values)")
        assert "stopped after 1 findings" in run("validate", path, "--full", "--limit", "1", status=1)


@pytest.mark.parametrize("form", ["file", "stream"])
def test_a_broken_dictionary_is_one_finding(form: str, tmp_path: Path, run: Run) -> None:
    """Its message is named, and not the batches that use it; other columns are checked all the same."""
    table = pa.table({"n": ["abc", "def"] * 30, "d": pa.array(["xyz", "uvw"] * 30).dictionary_encode()})
    data = bytearray(Path(write(table, tmp_path / "x", form, rows=20)).read_bytes())
    at, other = data.index(b"xyzuvw"), data.index(b"abcdef")
    data[at] = data[other] = 0xFF
    (tmp_path / "x").write_bytes(data)
    found = run.json("validate", tmp_path / "x", "--full", status=1)["findings"]
    assert [each["message"].split(": ")[:2] for each in found] == [
        ["dictionary 0", "row 0"],
        ["batch 0", "column 0 'n'"],
    ]
    assert [each["start"] <= place < each["end"] for each, place in zip(found, (at, other), strict=True)] == [True] * 2


def test_nulls_in_a_field_that_is_not_nullable(tmp_path: Path, run: Run) -> None:
    schema = pa.schema([pa.field("a", pa.int64(), nullable=False), pa.field("b", pa.int64(), nullable=False)])
    batch = pa.record_batch([pa.array([1, None]), pa.array([1, 2])], schema=schema)
    (tmp_path / "x").write_bytes(peers_file(batch))
    (finding,) = run.json("validate", tmp_path / "x", "--full", status=1)["findings"]
    assert finding["message"] == "batch 0: column 0 'a': the field is not nullable but has 1 null"


def test_what_was_cut_is_one_finding(tmp_path: Path, run: Run) -> None:
    """The messages before the cut are checked; of a file without its footer as those of a stream."""
    path = write(TABLE, tmp_path / "file")
    data = Path(path).read_bytes()
    end = int(overview(data).blocks[2, 0]) + 100
    Path(path).write_bytes(data[:end])
    found = run.json("validate", path, status=1)["findings"][0]
    assert (found["end"], "truncated" in found["message"]) == (end, True)
    assert [run.json("inspect", path)[key] for key in ("batches", "rows", "truncated")] == [2, 600, True]
    path = write(pa.table({"x": np.zeros(9_000), "y": np.zeros(9_000)}), tmp_path / "x", "stream", None, 3_000)
    data = Path(path).read_bytes()
    assert not run.json("inspect", path)["truncated"]
    Path(path).write_bytes(data[:-9_000])
    (found,) = run.json("validate", path, "--full", status=1)["findings"]
    assert found["message"].startswith("truncated message: its body needs 48000 bytes, only 39")
    opened = found["remedy"].partition("`for batch in ")[2].partition("`")[0]
    rows: list[int] = []
    with pytest.raises(sa.InvalidData):
        rows.extend(batch.num_rows for batch in eval(opened, {"shmarrow": sa, "PATH": path}))
    assert rows == [3_000] * 2
    assert "6000 in 2 batches before the end, which is missing" in run("inspect", path)
    Path(path).write_bytes(data[:1000])
    assert "unknown: the end is missing" in run("inspect", path)


def test_long_metadata_are_cut_in_text(tmp_path: Path, run: Run) -> None:
    long = {"k": "v" * 100_000}
    path = write(pa.table({"x": [1]}).replace_schema_metadata(long), tmp_path / "x")
    for words in (("inspect", path), ("schema", path, "--metadata")):
        said = run(*words)
        assert f"{'v' * 200}… (100000 characters)" in said
        assert "v" * 201 not in said
        assert run.json(*words)["metadata"] == long


def test_statistics_are_shown_and_checked(tmp_path: Path, run: Run) -> None:
    path = tmp_path / "x.arrow"
    table = sa.table({"x": [55555, None, 1], "s": ["b", "a", "c"], "none": sa.nulls(3, "int8")})
    with sa.ipc.new_file(path, table.schema, statistics=True) as writer:
        writer.write_table(table, 2)
    assert run.json("inspect", path)["statistics"] == {
        "x": {"nulls": 1, "least": 1, "greatest": 55555},
        "s": {"nulls": 0, "least": "a", "greatest": "c"},
        "none": {"nulls": 3, "least": None, "greatest": None},
    }
    assert "x: 1 to 55555" in run("inspect", path)
    assert "statistics: x, s, none" in run("xray", path)
    data = path.read_bytes()
    at = data.index(np.array([55555, 0], "<i8").tobytes())
    path.write_bytes(data[:at] + np.array([66666, 0], "<i8").tobytes() + data[at + 16 :])
    assert run.json("validate", path, status=0)["valid"]
    (found,) = run.json("validate", "--full", path, status=1)["findings"]
    assert found["message"] == (
        "batch 0: column 0 'x': the statistics say that no value is greater than 55555, found 66666"
    )
    assert found["start"] <= at < found["end"]
