"""Previews of batches, tables, schemas, readers and stores: exact text, and nothing read unasked."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from forms import file_of
from remote import Counted

import shmarrow as sa


@pytest.fixture(autouse=True)
def _wide(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")


PLAIN = sa.record_batch(
    {
        "id": [1, 20, None],
        "name": ["Ada", None, "two\nlines"],
        "price": [1.5, 0.0, 10.25],
        "list": [[1, 2], None, []],
    }
)


def test_a_batch_is_a_table_with_types_and_nulls() -> None:
    assert str(PLAIN).splitlines() == [
        "<shmarrow.RecordBatch of 3 rows, 4 columns>",
        "    id  name           price  list",
        " int64  string        double  list<item: int64>",
        "1 null  1 null                1 null",
        "------  ------------  ------  -----------------",
        "     1  'Ada'            1.5  [1, 2]",
        "    20  null             0.0  null",
        "  null  'two\\nlines'   10.25  []",
    ]
    assert repr(PLAIN) == str(PLAIN)


def test_first_and_last_rows_of_a_table() -> None:
    batch = sa.record_batch({"n": np.arange(6)})
    assert repr(sa.Table.from_batches([batch, batch])).splitlines() == [
        "<shmarrow.Table of 12 rows, 1 column, in 2 batches>",
        "    n",
        "int64",
        "-----",
        *["    0", "    1", "    2", "    3", "    4", "    …", "    1", "    2", "    3", "    4", "    5"],
    ]


def test_first_and_last_columns() -> None:
    batch = sa.record_batch({f"column{i}": np.array([i], "int16") for i in range(1000)})
    lines = repr(batch).splitlines()
    assert lines[0] == "<shmarrow.RecordBatch of 1 row, 1000 columns>"
    assert lines[1:] == [
        "column0  column1  column2  column3  …  column997  column998  column999",
        "  int16    int16    int16    int16  …      int16      int16      int16",
        "-------  -------  -------  -------  -  ---------  ---------  ---------",
        "      0        1        2        3  …        997        998        999",
    ]


def test_without_rows_or_columns() -> None:
    assert repr(sa.record_batch({})) == "<shmarrow.RecordBatch of 0 rows, 0 columns>"
    assert repr(sa.Table(sa.schema({"a": "int8"}))).splitlines() == [
        "<shmarrow.Table of 0 rows, 1 column, in 0 batches>",
        "   a",
        "int8",
        "----",
    ]


def test_wide_characters_line_up() -> None:
    batch = sa.record_batch({"名前": ["日本", "e\u0301"], "x": ["a", "b"]})
    assert repr(batch).splitlines()[1:] == [
        "名前    x",
        "string  string",
        "------  ------",
        "'日本'  'a'",
        "'e\u0301'     'b'",
    ]


def test_names_and_values_cannot_break_lines_or_escape() -> None:
    name = "a\x1b[31m\n" + "b" * 100
    batch = sa.record_batch({name: ["\x1b]0;title\x07" + "c" * 1000]})
    lines = repr(batch).splitlines()
    assert len(lines) == 5
    assert "\x1b" not in repr(batch)
    assert lines[1] == "a\\x1b[31m\\n" + "b" * 20 + "…"
    assert max(map(len, lines)) <= 80


class Counting:
    """A source of columns that counts what is asked for."""

    def __init__(self, columns: dict[int, Any], is_cheap: bool = True) -> None:
        self.asked: set[int] = set()
        self._columns, self._is_cheap = columns, is_cheap

    def column(self, index: int) -> Any:
        self.asked.add(index)
        return self._columns.get(index, ONES)

    def columns(self, indices: Sequence[int] | None = None) -> list[Any]:
        raise AssertionError("all columns at once")

    def is_cheap(self, index: int) -> bool:
        return self._is_cheap


ONES = sa.array(np.ones(1000, "int16"))


def test_floats_have_the_digits_that_tell_them_apart() -> None:
    values = [0.1, -1.5, 3.4028235e38, 1e-45, float("nan"), float("-inf")]
    single = sa.array(values, "float32")
    assert str(single) == "[0.1, -1.5, 3.4028235e+38, 1e-45, nan, -inf]"
    assert repr(sa.record_batch({"f": single})).splitlines()[4].strip() == "0.1"
    assert str(sa.array([0.1, 65504.0], "float16")) == "[0.1, 65504.0]"
    assert str(sa.array([16777216.0, 1e10], "float32")) == "[16777216.0, 10000000000.0]"
    assert str(sa.array([[0.1]], sa.list_("float32"))) == "[[0.1]]"
    assert str(sa.array([0.1, 1 / 3])) == "[0.1, 0.3333333333333333]"
    back = np.array(str(single)[1:-1].split(", "), "f4")
    assert np.array_equal(back, single, equal_nan=True)


def test_only_shown_columns_are_built() -> None:
    schema = sa.schema({f"c{i}": "int16" for i in range(100_000)})
    source = Counting({})
    batch = sa.RecordBatch(schema, 1000, source=source)
    lines = repr(batch).splitlines()
    names = [name for name in lines[1].split() if name != "…"]
    assert 8 <= len(names) == len(source.asked) <= 20
    assert {f"c{i}" for i in source.asked} == set(names)


def test_only_first_and_last_batches_are_read() -> None:
    schema = sa.schema({"a": "int16"})
    sources = [Counting({}) for _ in range(1000)]
    table = sa.Table(schema, [sa.RecordBatch(schema, 1000, source=source) for source in sources])
    repr(table)
    assert [i for i, source in enumerate(sources) if source.asked] == [0, 999]


def test_what_would_be_fetched_is_not_shown() -> None:
    source = Counting({}, is_cheap=False)
    batch = sa.RecordBatch(sa.schema({"far": "int16", "b": "int16"}), 1, source=source)
    assert repr(batch).splitlines() == [
        "<shmarrow.RecordBatch of 1 row, 2 columns>",
        "  far      b",
        "int16  int16",
        "-----  -----",
        "    ?      ?",
        "columns far, b are not shown: they would have to be fetched or decompressed",
    ]
    assert source.asked == set()
    batch.column(0)
    assert repr(batch).splitlines()[4] == "    1      ?"


def test_a_file_read_by_ranges_is_not_fetched() -> None:
    remote = Counted(file_of(PLAIN))
    batch = sa.ipc.open_file(remote)[0]
    before = len(remote.reads)
    assert "not shown" in repr(batch)
    assert len(remote.reads) == before


def test_compressed_columns_are_shown_where_they_are_small() -> None:
    small = sa.ipc.open_file(file_of(sa.record_batch({"n": np.arange(1 << 10)}), compression="lz4"))[0]
    assert repr(small).splitlines()[4:6] == ["    0", "    1"]
    large = sa.ipc.open_file(file_of(sa.record_batch({"n": np.arange(1 << 18)}), compression="lz4"))[0]
    assert "?" in repr(large)


def test_nulls_are_not_counted_to_be_shown() -> None:
    array = sa.Array.from_buffers(sa.int8(), 8, [np.zeros(1, np.uint8), np.zeros(8, np.uint8)])
    batch = sa.RecordBatch(sa.schema({"a": "int8"}), 8, [array])
    assert repr(batch).splitlines()[3] == "----"
    assert array.null_count == 8
    assert "8 nulls" in repr(batch).splitlines()[3]


def test_broken_bytes_are_shown_by_their_error() -> None:
    offsets = np.array([0, 2, 99], np.int32)
    broken = sa.layout.make_array(sa.string(), 2, [None, offsets.view("u1"), np.frombuffer(b"ab", "u1")], 0)
    batch = sa.RecordBatch(sa.schema({"s": "string"}), 2, [broken])
    assert repr(batch).splitlines()[-2:] == ["'ab'", "<InvalidData>"]
    assert repr(broken).splitlines()[1] == "['ab', <InvalidData>]"
    assert repr(sa.chunked_array([broken])).endswith("['ab', <InvalidData>]]")


# --- one line ---------------------------------------------------------------------------------------------------


def test_readers_writers_and_stores_say_what_they_hold(tmp_path: Path) -> None:
    path, batch = tmp_path / "a", sa.record_batch({"x": [1, 2], "y": [3, 4]})
    with sa.ipc.new_file(path, batch.schema) as writer:
        assert repr(writer) == f"<RecordBatchFileWriter to {path}: 2 columns, open>"
        writer.write(batch)
        writer.write(batch)
    reader = sa.ipc.open_file(path)
    assert repr(reader) == f"<RecordBatchFileReader of {path}: 2 batches, 4 rows, 2 columns, open>"
    reader.close()
    assert repr(reader) == f"<RecordBatchFileReader of {path}: 2 columns, closed>"
    with sa.ipc.new_stream(path, batch.schema) as writer:
        writer.write(batch)
    stream: Any = sa.ipc.open_stream(path)
    assert repr(stream) == f"<MappedStreamReader of {path}: 2 columns, open>"
    assert len(stream) == 1
    assert repr(stream) == f"<MappedStreamReader of {path}: 1 batch, 2 columns, open>"
    assert repr(sa.Table.from_batches([batch]).to_reader()) == "<RecordBatchReader of batches: 2 columns, open>"
    assert repr(sa.ipc.read_tensors(b"")) == "<TensorReader of 0 bytes: open>"
    with sa.Store(tmp_path / "store") as store:
        store.put("one", batch)
        assert repr(store) == f"<Store {str(tmp_path / 'store')!r}, 1 object>"
    assert repr(sa.chunked_array([[1], [None]], "int8")) == (
        "<shmarrow.ChunkedArray int8, length 2, 2 chunks>\n[[1],\n [null]]"
    )


def test_names_do_not_reach_a_terminal_as_they_are(tmp_path: Path) -> None:
    """Whatever prints as one line or as a schema has no character that a terminal obeys."""
    bad = "a\x1b[2J\u202eb"
    batch = sa.record_batch({bad: [{bad: 1}], "t": sa.array([None], sa.timestamp("s", bad))}, metadata={bad: bad})
    path = tmp_path / f"{bad}.arrow"
    with sa.ipc.new_file(path, batch.schema) as writer:
        writer.write(batch)
        shown = [repr(writer)]
    reader = sa.ipc.open_file(path)
    handle = sa.handle(reader.get_batch(0))
    field = batch.schema.field(0)
    column = batch.column(0)
    hostile = type(bad, (), {"__module__": bad})()
    with pytest.raises(sa.ShmarrowError) as wrong_class:
        sa.schema({"x": hostile})
    with pytest.raises(sa.ShmarrowError) as wrong_cast:
        column.cast(sa.timestamp("s", bad))
    tensor = sa.Tensor.from_numpy(np.zeros((1, 1)), dim_names=[bad, "y"])
    things = [batch.schema, field, field.type, batch.schema.types[1], column, sa.chunked_array([column]), tensor]
    things += [reader, handle, batch]
    shown += [text for thing in things for text in (repr(thing), str(thing))]
    shown += [str(wrong_class.value), str(wrong_cast.value)]
    for text in shown:
        assert text.replace("\n", "").isprintable(), text
    assert "a\\x1b[2J\\u202eb" in repr(reader)
    assert "a\\x1b[2J\\u202eb" in str(field)
    for broken in ({"refs": None}, {"kind": None}, {"kind": "x"}):
        assert repr(handle.replace(**broken)) == "<Handle, damaged>"
