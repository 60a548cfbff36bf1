"""``shmarrow.xray`` on hostile bytes, on objects by name, and on objects of many batches; and the command."""

from __future__ import annotations

import json
import struct
from collections.abc import Callable
from pathlib import Path

import forms
import numpy as np
import pytest
import wire
from covering import changed, covered, find, kinds
from processes import python
from sparse_file import sparse_file

import shmarrow as sa
from shmarrow import xray
from shmarrow.cli import main
from shmarrow.ipc.flatbuffers import builder
from shmarrow.xray import Region

TWO = forms.file_of(forms.numbers(3), forms.numbers(5))
TWO_SCHEMA = forms.numbers(0).schema


# --- hostile bytes ----------------------------------------------------------------------------------------------


def test_fuzz_inputs_of_arrow(arrow_testing: Path) -> None:
    inputs = sorted((arrow_testing / "fuzz").glob("*/*"))
    assert len(inputs) >= 26
    for path in inputs:
        try:
            regions, findings = covered(path)
            assert findings or not set(kinds(regions)) & {"gap", "unknown"}
        except sa.InvalidData:
            assert path.read_bytes()[:6] != b"ARROW1"


def nested(depth: int) -> bytes:
    """A schema whose only field holds a field, and so on."""
    made = builder.new_builder()
    offset = builder.add_table(made, "Field", {"name": "x", "type": ("Int", {"bitWidth": 8})})
    for _ in range(depth):
        values = {"name": "x", "type": ("List", {}), "children": builder.Built(builder.add_offsets(made, [offset]))}
        offset = builder.add_table(made, "Field", values)
    fields = builder.Built(builder.add_offsets(made, [offset]))
    schema = builder.Built(builder.add_table(made, "Schema", {"fields": fields}))
    root = builder.add_table(made, "Message", {"version": 4, "header": ("Schema", schema), "bodyLength": 0})
    return wire.framed(builder.finish(made, root))


def vectors_within_vectors() -> bytes:
    """A schema whose vector of fields says that it has 2^31 of them."""
    data = nested(0)
    (fields,) = find(covered(data)[0], "vector", "Schema.fields")
    return changed(data, fields.start, struct.pack("<I", 1 << 31))


def cyclic() -> bytes:
    """Fields that refer to one field again and again, through shared vectors: 2^40 of them for who follows each."""
    made = builder.new_builder()
    offset = builder.add_table(made, "Field", {"name": "x", "type": ("Int", {"bitWidth": 8})})
    for _ in range(40):
        children = builder.Built(builder.add_offsets(made, [offset, offset]))
        offset = builder.add_table(made, "Field", {"name": "x", "type": ("Struct_", {}), "children": children})
    fields = builder.Built(builder.add_offsets(made, [offset]))
    schema = builder.Built(builder.add_table(made, "Schema", {"fields": fields}))
    root = builder.add_table(made, "Message", {"version": 4, "header": ("Schema", schema), "bodyLength": 0})
    return wire.framed(builder.finish(made, root))


def long_vtables() -> bytes:
    """Many tables, each with a vtable of 64 KiB that overlaps the others."""
    words = np.full(1 << 17, 0xFFFE, "<u2")
    data = bytearray(words.tobytes())
    count = 10_000
    data[:4] = struct.pack("<I", 8)
    return wire.framed(bytes(data[: 8 + count * 4]) + bytes(data))


@pytest.mark.parametrize("make", [vectors_within_vectors, cyclic, long_vtables, lambda: nested(2000)])
def test_references_without_end(make: Callable[[], bytes]) -> None:
    try:
        _, findings = covered(make())
    except sa.InvalidData:
        return
    assert [each.severity for each in findings].count("error")


# --- targets ----------------------------------------------------------------------------------------------------


def test_objects_by_name(shm_name: str, tmp_path: Path) -> None:
    for where in (f"{shm_name}-store", str(tmp_path / "store")):
        with sa.Store(where) as store:
            store.put("a table", forms.numbers(4))
            store.put("deep/name", np.arange(5))
            assert xray.overview(f"{where}/a table").rows().tolist() == [4]
            assert covered(f"{where}/a table")[1] == []
            assert xray.overview(f"{where}/deep/name").kind == "tensor"
            with pytest.raises(sa.ObjectNotFound, match="missing"):
                xray.overview(f"{where}/missing")
            store.destroy()
    with sa.ipc.new_file(shm_name, TWO_SCHEMA) as writer:
        writer.write(forms.numbers(7))
    assert xray.overview(shm_name).rows().tolist() == [7]
    with pytest.raises(sa.ObjectNotFound):
        xray.overview(tmp_path / "none")
    with pytest.raises(sa.InvalidData, match="an empty file"):
        xray.overview(b"")


# --- many batches -----------------------------------------------------------------------------------------------


def test_buffers_of_many_batches() -> None:
    batches = [
        sa.record_batch({"x": np.arange(n), "s": sa.array(["v"] * n, sa.string())}) for n in (*range(1, 40), 0, 7, 7)
    ]
    data = forms.file_of(*batches)
    found = xray.overview(data)
    assert [role.buffer for role in found.buffer_roles] == ["validity", "values", "validity", "offsets", "data"]
    assert [role.column for role in found.buffer_roles] == [0, 0, 1, 1, 1]
    assert found.rows().tolist() == [batch.num_rows for batch in batches]
    for number, batch in enumerate(batches):
        one = found.batch(number)
        start, size = one.buffers[1].tolist()
        values = data[one.body + start : one.body + start + size]
        assert np.frombuffer(values, "<i8").tolist() == list(range(batch.num_rows))
        assert one.nodes.tolist() == [[batch.num_rows, 0]] * 2
    assert found.num_nodes == 2
    with pytest.raises(sa.IndexOutOfRange, match="expected batches within 0 to 42"):
        found.rows(0, 50)


def test_batches_without_columns() -> None:
    empty = sa.record_batch({"x": sa.nulls(3)}).select([])
    for batch, nodes in ((empty, 0), (sa.record_batch({"n": sa.nulls(3)}), 1)):
        one = xray.overview(forms.file_of(batch, batch)).batch(1)
        assert one.buffers.shape == (0, 2)
        assert one.nodes.tolist() == [[3, 3]] * nodes


def test_counts_of_variadic_buffers_that_lie() -> None:
    """A batch that declares more data buffers than it has is a finding, however many they are."""
    data = forms.file_of(sa.record_batch({"v": sa.array(["x" * 20] * 3, "string_view")}))
    vector = (1).to_bytes(4, "little") + (1).to_bytes(8, "little")  # its length, and the only count
    at = data.index(vector, int(xray.overview(data).blocks[0, 0])) + 4
    for count in (-1, 7, 1 << 40, 1 << 62):
        lying = data[:at] + count.to_bytes(8, "little", signed=True) + data[at + 8 :]
        said = [each.message for each in xray.findings(lying) if each.severity == "error"]
        assert said == [f"record batch 0: variadic buffer counts [{count}] do not match 3 buffers"]


def test_summary_covers_long_files() -> None:
    data = forms.file_of(*[forms.numbers(2)] * 100)
    regions = list(xray.summary(xray.overview(data)))
    assert [each.start for each in regions] == [0, *[each.end for each in regions[:-1]]]
    assert regions[-1].end == len(data)
    assert len(regions) < 30
    assert [each.what for each in regions if each.what.startswith("...")] == ["... 85 record batches ..."]


SPARSE = """
import sys
path, calls = sys.argv[1], 0
from shmarrow import xray
from shmarrow.xray import page
def count(frame, event, argument):
    global calls
    calls += event == "call"
sys.setprofile(count)
found = xray.overview(path)
regions = list(xray.summary(found))
sys.setprofile(None)
assert found.size > 1 << 40 and len(found.blocks) == 100_000, found
assert not found.findings, found.findings
assert len(regions) < 40 and regions[-1].end == found.size
assert len(page.render(found)) < 400_000
assert found.rows(0, 1).tolist() == found.rows(99_999, 100_000).tolist() == [700_000]
assert found.rows().sum() == 70_000_000_000
peak = next(line for line in open("/proc/self/status") if line.startswith("VmHWM"))
print(calls, int(peak.split()[1]) >> 10)
"""


@pytest.mark.processes
def test_a_terabyte(tmp_path: Path) -> None:
    """The overview does not look at each of its batches, and the page is not larger for them."""
    sparse_file(tmp_path / "sparse.arrow")
    calls, mebibytes = map(int, python(SPARSE, tmp_path / "sparse.arrow").split())
    assert (calls < 2_000, mebibytes < 200) == (True, True), (calls, mebibytes)


# --- the command ------------------------------------------------------------------------------------------------


def run(capsys: pytest.CaptureFixture[str], *words: object) -> tuple[int, str, str]:
    """The exit status, output and errors of ``shmarrow xray``."""
    status = main(["xray", *map(str, words)])
    return status, *capsys.readouterr()


@pytest.fixture
def two(tmp_path: Path) -> Path:
    path = tmp_path / "two.arrow"
    path.write_bytes(TWO)
    return path


def test_command_overview(capsys: pytest.CaptureFixture[str], two: Path) -> None:
    status, text, errors = run(capsys, two)
    assert (status, errors) == (0, "")
    assert f"{len(TWO)} bytes" in text
    whole = json.loads(run(capsys, two, "--json")[1])
    assert [each["what"] for each in whole["regions"]] == [
        "magic string 'ARROW1' and padding", "schema", "record batch 0", "record batch 1", "end of stream", "footer",
        "size of the footer", "magic string 'ARROW1'",
    ]  # fmt: skip
    assert (whole["batches"], whole["findings"], whole["size"]) == (2, [], len(TWO))


def test_command_regions(capsys: pytest.CaptureFixture[str], two: Path) -> None:
    for words, options in (
        (["--all"], {}),
        (["--batch", "1"], {"batches": 1}),
        (["--batch", "0:"], {"batches": slice(0, None)}),
        (["--range", "0x10:64"], {"start": 16, "stop": 64}),
    ):
        expected = list(xray.walk(TWO, **options))  # type: ignore[arg-type]
        lines = run(capsys, two, *words)[1].splitlines()
        assert [line.split("\t")[:4] for line in lines] == [[str(e[0]), str(e[1]), e[2], e[3]] for e in expected]
        found = json.loads(run(capsys, two, *words, "--json")[1])
        assert [Region(**each) for each in found["regions"]] == expected


def test_command_findings(capsys: pytest.CaptureFixture[str], two: Path) -> None:
    two.write_bytes(changed(TWO, 6, b"xy"))
    status, text, _ = run(capsys, two, "--range", "0:10")
    assert status == 0
    assert text.splitlines()[-1].startswith("warning\t6:8\tfile: 2 bytes that nothing refers to")
    found = json.loads(run(capsys, two, "--all", "--json")[1])
    assert [(each["start"], each["end"], each["severity"]) for each in found["findings"]] == [(6, 8, "warning")]


def test_command_mistakes(capsys: pytest.CaptureFixture[str], two: Path) -> None:
    mistakes = {
        ("--batch=0", "--range=0:1"): "--batch and --range cannot be combined",
        ("--html", ""): "--html expects a path or -, found ''",
        **{(f"--batch={text}",): "--batch expects N or A:B within" for text in ("x", "", "2", "2:", "1:1", "-1")},
        **{(f"--range={text}",): f"of which there are {len(TWO)}" for text in ("-1:4", "1000000:", "9:3", "1::2")},
    }
    for words, message in mistakes.items():
        status, text, errors = run(capsys, two, *words)
        assert (status, text, message in errors) == (2, "", True), errors
