"""The JSON form of Arrow's integration tests: golden documents, the exact form of each type, bad documents.

Invariants: what a document looks like is taken from Arrow's golden documents and from the description of the form,
written out by hand for what they lack; whatever is done to a document, reading it gives a table or
:class:`shmarrow.InvalidData`. That golden documents are equal to the files and streams beside them is held in
``test_golden``.
"""

from __future__ import annotations

import contextlib
import copy
import gzip
import io
import json
import re
from collections.abc import Callable, Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import golden
import numpy as np
import pytest
from cases import table as cases
from every import every

import shmarrow as sa
from shmarrow.integration.json import read_json, write_json

NESTED_TWICE = "dictionary-dictionary"
"""The cases that no Arrow message can hold: dictionaries whose values are dictionary-encoded themselves."""


def refuse(constant: str) -> None:
    raise AssertionError(f"{constant} is no JSON")


def written(data: Any) -> Any:
    """Return our JSON form as a document; strictly JSON."""
    sink = io.BytesIO()
    write_json(sink, data)
    return json.loads(sink.getvalue(), parse_constant=refuse)


def read(document: Any) -> sa.Table:
    return read_json(json.dumps(document).encode())


def document_of(type: dict[str, Any], column: dict[str, Any], children: Any = (), **more: Any) -> Any:
    """A document of one column."""
    field = {"name": "f", "type": type, "nullable": True, "children": list(children)}
    field.update(more.pop("field", {}))
    count = column["count"]
    return {"schema": {"fields": [field]}, "batches": [{"count": count, "columns": [{"name": "f", **column}]}], **more}


def field_of(name: str, type: dict[str, Any], children: Any = (), nullable: bool = True) -> dict[str, Any]:
    return {"name": name, "type": type, "nullable": nullable, "children": list(children)}


# --- golden documents ---------------------------------------------------------------------------------------------


def golden_document(arrow_testing: Path, name: str) -> Any:
    return json.loads(gzip.decompress(Path(golden.path(arrow_testing, name, "json.gz")).read_bytes()))


OTHER_FORM = {
    "cpp-21.0.0/list_view": "values that no list refers to do not travel, so offsets differ",
    "1.0.0-littleendian/nested_dictionary": "each field has a dictionary of its own",
    "cpp-21.0.0/nested_dictionary": "each field has a dictionary of its own",
}
"""The contents that we write in another way than the golden document does, and why."""


@pytest.mark.parametrize("name", [name for name in golden.NAMES if name not in OTHER_FORM])
def test_golden_documents_are_written_as_they_are(arrow_testing: Path, name: str) -> None:
    expected = golden_document(arrow_testing, name)
    found = written(golden.read(arrow_testing, name, "arrow_file"))
    for document in (expected, found):
        for field in fields_within(document["schema"]["fields"]):
            if field["type"]["name"] == "decimal":
                field["type"].setdefault("bitWidth", 128)  # older documents leave it out
            field.get("metadata", []).sort(key=lambda pair: pair["key"])  # which have another order in files
        for column in columns_within(document):
            blank_nulls(column)
        document.setdefault("dictionaries", []).sort(key=lambda item: item["id"])
    assert found == expected


@pytest.mark.parametrize("name", sorted(OTHER_FORM))
def test_golden_documents_survive_in_another_form(arrow_testing: Path, name: str) -> None:
    table = golden.read(arrow_testing, name, "arrow_file")
    again = read(written(table))
    assert again.equals(table, check_metadata=True)


def fields_within(fields: list[Any]) -> Iterator[Any]:
    for field in fields:
        yield field
        yield from fields_within(field["children"])


def columns_within(document: Any) -> Iterator[Any]:
    batches = [*document["batches"], *[item["data"] for item in document.get("dictionaries", [])]]
    columns = [column for batch in batches for column in batch["columns"]]
    while columns:
        column = columns.pop()
        columns += column.get("children", [])
        yield column


def blank_nulls(column: Any) -> None:
    """The contents of null slots mean nothing."""
    for key in {"DATA", "VIEWS"} & set(column):
        pairs = zip(column[key], column["VALIDITY"], strict=True)
        column[key] = [item if valid else None for item, valid in pairs]


# --- forms written out by hand ---------------------------------------------------------------------------------------

INT32 = {"name": "int", "bitWidth": 32, "isSigned": True}
ITEM = field_of("item", INT32)

EXACT: dict[str, tuple[Any, list[Any], dict[str, Any], list[Any], dict[str, Any]]] = {
    "float16": (
        sa.float16(),
        [0.5, None],
        {"name": "floatingpoint", "precision": "HALF"},
        [],
        {"VALIDITY": [1, 0], "DATA": [0.5, 0.0]},
    ),
    "float64-not-finite": (
        sa.float64(),
        [float("inf"), float("-inf"), -0.5],
        {"name": "floatingpoint", "precision": "DOUBLE"},
        [],
        {"VALIDITY": [1, 1, 1], "DATA": ["Infinity", "-Infinity", -0.5]},
    ),
    "interval-day-time": (
        sa.day_time_interval(),
        [sa.DayTime(-1, 5), None],
        {"name": "interval", "unit": "DAY_TIME"},
        [],
        {"VALIDITY": [1, 0], "DATA": [{"days": -1, "milliseconds": 5}, {"days": 0, "milliseconds": 0}]},
    ),
    "largelistview": (
        sa.large_list_view(sa.int32()),
        [[1], [2, 3]],
        {"name": "largelistview"},
        [ITEM],
        {
            "VALIDITY": [1, 1],
            "OFFSET": ["0", "1"],
            "SIZE": ["1", "2"],
            "children": [{"name": "item", "count": 3, "VALIDITY": [1, 1, 1], "DATA": [1, 2, 3]}],
        },
    ),
    "struct-no-fields": (sa.struct([]), [{}], {"name": "struct"}, [], {"VALIDITY": [1]}),
}
"""What no golden document has: type, values, and the type, the children and the buffers in JSON."""


@pytest.mark.parametrize("name", EXACT)
def test_the_form_of_what_golden_documents_lack(name: str) -> None:
    type, values, json_type, children, column = EXACT[name]
    expected = document_of(json_type, {"count": len(values), **column}, children)
    table = sa.table({"f": sa.array(values, type)})
    assert written(table) == expected
    found = read(expected)
    assert found.equals(table)
    assert found.column("f").to_pylist() == values


def test_ordered_dictionaries_and_metadata_that_are_no_text() -> None:
    type = sa.dictionary(sa.uint64(), sa.string(), ordered=True)
    schema = sa.schema([sa.field("d", type, metadata={"a": "b"})], {"": "é", "bytes": b"\xff"})
    table = sa.Table.from_arrays([sa.array(["x", None, "x", "y"], type)], schema=schema)
    document = written(table)
    (field,) = document["schema"]["fields"]
    assert field["dictionary"]["isOrdered"] is True
    assert document["schema"]["metadata"] == [{"key": "", "value": "é"}, {"key": "bytes", "value": "\udcff"}]
    assert document["batches"][0]["columns"][0]["DATA"] == ["0", "0", "0", "1"]
    found = read(document)
    assert found.equals(table, check_metadata=True)
    assert found.schema.metadata == {b"": "é".encode(), b"bytes": b"\xff"}


# --- round trips --------------------------------------------------------------------------------------------------


@every(cases.CASES)
def test_every_case_survives(case: cases.Case) -> None:
    batch = sa.record_batch([case.array()], names=["c"])
    if case.name.startswith(NESTED_TWICE):
        with pytest.raises(sa.Unsupported, match="cannot hold a dictionary"):
            written(batch)
        return
    found = read(written(batch))
    found.validate(full=True)
    assert found.equals(sa.Table.from_batches([batch]), check_metadata=True)
    assert found.column(0).to_pylist() == case.values


def test_slices_are_written_without_what_lies_around_them() -> None:
    table = sa.table({"s": ["a", "bb", None, "cc"], "l": [[1], [2, 3], None, [4]]})
    (batch,) = written(table.slice(1, 2))["batches"]
    assert batch["columns"][0] == {"name": "s", "count": 2, "VALIDITY": [1, 0], "OFFSET": [0, 2, 2], "DATA": ["bb", ""]}
    assert batch["columns"][1]["OFFSET"] == [0, 2, 2]
    assert batch["columns"][1]["children"][0]["DATA"] == ["2", "3"]


def test_bytes_in_null_slots_do_not_travel() -> None:
    document = written(sa.record_batch([cases.case("odd-null-slots-hold-bytes").array()], names=["c"]))
    column = document["batches"][0]["columns"][0]
    assert (column["OFFSET"], column["DATA"]) == ([0, 1, 1, 2], ["a", "", "c"])


def test_dictionaries_that_change_between_batches_become_one() -> None:
    type = sa.list_(sa.dictionary(sa.int8(), sa.string()))
    batches = [sa.record_batch({"l": sa.array(values, type)}) for values in ([["a", "b"]], [["c"], ["a", None]], [[]])]
    document = written(sa.Table.from_batches(batches))
    assert len(document["dictionaries"]) == 1
    found = read(document)
    assert [batch.column(0).to_pylist() for batch in found.batches] == [[["a", "b"]], [["c"], ["a", None]], [[]]]


def test_documents_may_be_compressed_in_several_parts(tmp_path: Path) -> None:
    table = sa.table({"a": list(range(1000))})
    write_json(tmp_path / "t.json", table)
    assert read_json(tmp_path / "t.json").equals(table)
    compressed = gzip.compress((tmp_path / "t.json").read_bytes())
    assert read_json(io.BytesIO(compressed + gzip.compress(b" "))).equals(table)
    with pytest.raises(sa.ObjectExists):
        write_json(tmp_path / "t.json", table, overwrite=False)


def test_a_failed_write_leaves_nothing(tmp_path: Path) -> None:
    broken = sa.BinaryArray.from_arrays([0, 1], b"\xff", sa.string())
    with pytest.raises(sa.InvalidData, match=r"column 'c': .*UTF-8"):
        write_json(tmp_path / "t.json", sa.record_batch([broken], names=["c"]))
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(sa.InvalidType, match="expected a Table or a RecordBatch, found list"):
        write_json(tmp_path / "t.json", [])  # type: ignore[arg-type]


# --- what other writers do ----------------------------------------------------------------------------------------

INT64 = {"name": "int", "bitWidth": 64, "isSigned": True}

ALSO_READ: dict[str, tuple[Any, list[Any]]] = {
    "64-bit integers as numbers": (
        document_of(INT64, {"count": 2, "VALIDITY": [1, 1], "DATA": [5, "6"]}),
        [5, 6],
    ),
    "integers as strings": (document_of(INT32, {"count": 1, "VALIDITY": [1], "DATA": ["7"]}), [7]),
    "offsets that do not start at 0": (
        document_of({"name": "utf8"}, {"count": 1, "VALIDITY": [1], "OFFSET": [7, 8], "DATA": ["a"]}),
        ["a"],
    ),
    "no offset for no slots": (
        document_of({"name": "utf8"}, {"count": 0, "VALIDITY": [], "OFFSET": [], "DATA": []}),
        [],
    ),
    "null in null slots": (
        document_of(INT64, {"count": 2, "VALIDITY": [0, 1], "DATA": [None, "6"]}),
        [None, 6],
    ),
    "text in null slots that offsets pass over": (
        document_of({"name": "utf8"}, {"count": 2, "VALIDITY": [0, 1], "OFFSET": [0, 3, 4], "DATA": ["", "b"]}),
        [None, "b"],
    ),
    "an empty object for a null interval": (
        document_of({"name": "interval", "unit": "DAY_TIME"}, {"count": 1, "VALIDITY": [0], "DATA": [{}]}),
        [None],
    ),
    "booleans as numbers": (
        document_of({"name": "bool"}, {"count": 2, "VALIDITY": [True, 1], "DATA": [0, 1]}),
        [False, True],
    ),
    "hexadecimal digits in lower case": (
        document_of({"name": "binary"}, {"count": 1, "VALIDITY": [1], "OFFSET": [0, 1], "DATA": ["ab"]}),
        [b"\xab"],
    ),
    "decimals whose name says their width": (
        document_of({"name": "decimal256", "precision": 3, "scale": 1}, {"count": 1, "VALIDITY": [1], "DATA": ["-15"]}),
        [Decimal("-1.5")],
    ),
    "metadata that are null": (document_of({"name": "null"}, {"count": 1}, field={"metadata": None}), [None]),
    "unions with validity, from before version 1.0": (
        document_of(
            {"name": "union", "mode": "SPARSE", "typeIds": [0]},
            {
                "count": 2,
                "VALIDITY": [1, 0],
                "TYPE_ID": [0, 0],
                "children": [{"name": "item", "count": 2, "VALIDITY": [1, 1], "DATA": [8, 9]}],
            },
            [ITEM],
        ),
        [8, None],
    ),
    **{
        f"the mode {mode}": (
            document_of(
                {"name": "union", "mode": mode, "typeIds": [0]},
                {
                    "count": 2,
                    "TYPE_ID": [0, 0],
                    **({"OFFSET": [0, 1]} if mode.upper() == "DENSE" else {}),
                    "children": [{"name": "item", "count": 2, "VALIDITY": [1, 1], "DATA": [8, 9]}],
                },
                [ITEM],
            ),
            [8, 9],
        )
        for mode in ("Sparse", "Dense", "sparse", "DENSE")
    },
    "a dictionary that is missing, of a column that needs none": (
        document_of(
            {"name": "utf8"},
            {"count": 1, "VALIDITY": [0], "DATA": [3]},
            field={"dictionary": {"id": 4, "indexType": INT32, "isOrdered": False}},
        ),
        [None],
    ),
}


@pytest.mark.parametrize("name", ALSO_READ)
def test_what_other_writers_do_is_read(name: str) -> None:
    document, values = ALSO_READ[name]
    table = read(document)
    table.validate(full=True)
    assert table.column(0).to_pylist() == values


def test_floats_that_json_has_no_numbers_for() -> None:
    texts = ["NaN", "Infinity", "-Infinity", "Inf", "+Inf", "-Inf"]
    type = {"name": "floatingpoint", "precision": "SINGLE"}
    document = document_of(type, {"count": 6, "VALIDITY": [1] * 6, "DATA": texts})
    first, *others = read(document).column(0).to_pylist()
    assert first != first
    assert others == [float("inf"), float("-inf")] + [float("inf")] * 2 + [float("-inf")]
    bare = json.dumps(document).replace('"NaN"', "NaN").replace('"-Inf"', "-Infinity")
    assert str(read_json(bare.encode()).column(0).to_pylist()) == str([first, *others])


def test_floats_of_32_bits_survive_being_read_as_64() -> None:
    # The shortest text of the first, 7.038531e-26, leads to its neighbour by way of 64 bits.
    bits = np.array([0x15AE43FD, 0x15AE43FE, 0x3DCCCCCD, 0x80000000, 1, 0x7F7FFFFF], "<u4")
    table = sa.table({"f": bits.view("<f4")})
    document = written(table)
    assert document["batches"][0]["columns"][0]["DATA"][2] == 0.1
    (column,) = read(document).column("f").chunks
    assert column.values.view("<u4").tolist() == bits.tolist()


def test_one_dictionary_of_several_fields() -> None:
    encoding = {"id": 9, "indexType": {"name": "int", "bitWidth": 8, "isSigned": True}, "isOrdered": False}
    fields = [field_of(name, {"name": "utf8"}) | {"dictionary": encoding} for name in "ab"]
    columns = [{"name": name, "count": 1, "VALIDITY": [1], "DATA": [i]} for i, name in enumerate("ab")]
    values = {"name": "any", "count": 2, "VALIDITY": [1, 1], "OFFSET": [0, 1, 2], "DATA": ["x", "y"]}
    document = {
        "schema": {"fields": fields},
        "dictionaries": [{"id": 9, "data": {"count": 2, "columns": [values]}}],
        "batches": [{"count": 1, "columns": columns}],
    }
    table = read(document)
    assert table.to_pylist() == [{"a": "x", "b": "y"}]
    assert table.batches[0].column(0).dictionary is table.batches[0].column(1).dictionary


# --- bad documents ------------------------------------------------------------------------------------------------


def sample() -> Any:
    """A document with a bit of everything."""
    struct = sa.struct({"x": sa.int32(), "u": sa.dense_union({"a": sa.int8(), "b": sa.string_view()})})
    columns = {
        "i": sa.array([1, 2], sa.int16()),
        "n": sa.array([1, None], sa.int64()),
        "s": sa.array(["a", "é"]),
        "b": sa.array([b"ab", b"c"], sa.binary()),
        "v": sa.array(["short", "thirteen byte"], sa.string_view()),
        "l": sa.array([[{"x": 1, "u": 2}], []], sa.list_(struct)),
        "d": sa.array(["x", "y"], sa.dictionary(sa.int8(), sa.string())),
        "t": sa.array([None, None], sa.timestamp("ms", "UTC")),
        "w": sa.array([b"123", b"456"], sa.binary(3)),
        "h": sa.array([sa.MonthDayNano(1, 2, 3), None]),
    }
    return written(sa.table(columns))


def put(path: str, value: Any) -> Callable[[Any], None]:
    """Set what a path leads to."""

    def change(document: Any) -> None:
        *steps, last = [int(step) if step.isdigit() else step for step in re.findall(r"\w+", path)]
        for step in steps:
            document = document[step]
        document[last] = value

    return change


def drop(path: str, key: str) -> Callable[[Any], None]:
    def change(document: Any) -> None:
        for step in re.findall(r"\w+", path):
            document = document[int(step) if step.isdigit() else step]
        del document[key]

    return change


COLUMN = "batches[0].columns"
BAD: list[tuple[Callable[[Any], None], str]] = [
    (drop("", "schema"), "expected a member 'schema', found only dictionaries, batches"),
    (put("batches", {}), "batches: expected an array, found an object of 0"),
    (put("schema.fields[1].name", "\ud800"), "schema: fields 1: name: the string '\\ud800' cannot be encoded as UTF-8"),
    (
        put("schema.fields[0].type.bitWidth", 24),
        "schema: fields 0: type: an integer type must have 8, 16, 32 or 64 bits, found 24",
    ),
    (
        put("schema.fields[5].children[0].children[1].type.typeIds", [0, 400]),
        "schema: fields 5: children 0: children 1: type: the type codes of a union must be",
    ),
    (put("schema.fields[6].dictionary.id", 3), "batches 0: columns 6: its dictionary, id 3, is not among [0]"),
    (put("dictionaries[0].data.count", 7), "dictionaries 0: count: expected 7, as in the batch,"),
    (put("batches[0].count", 3), "batches 0: columns 0: count: expected 3, as in the batch, found 2"),
    (put("batches[0].count", -1), "batches 0: count: expected a number from 0 to 9223372036854775807, found -1"),
    (put(f"{COLUMN}[1].name", "other"), "batches 0: columns 1: name: expected 'n', as in the schema, found 'other'"),
    (put(f"{COLUMN}[0].count", 1 << 62), "batches 0: columns 0: VALIDITY: expected 4611686018427387904 items, found 2"),
    (drop(f"{COLUMN}[0]", "VALIDITY"), "batches 0: columns 0: expected a member 'VALIDITY'"),
    (
        put(f"{COLUMN}[0].DATA[1]", 1 << 15),
        "batches 0: columns 0: DATA: item 1: expected a number from -32768 to 32767, found 32768",
    ),
    (
        put(f"{COLUMN}[1].DATA[0]", "x"),
        "batches 0: columns 1: DATA: item 0: expected a number from -9223372036854775808 to",
    ),
    (put(f"{COLUMN}[2].DATA[0]", "ab"), "batches 0: columns 2: DATA: item 0: expected 1 bytes, as in OFFSET, found 2"),
    (put(f"{COLUMN}[2].DATA[0]", "\ud800"), "batches 0: columns 2: DATA: string: a string with lone surrogates"),
    (
        put(f"{COLUMN}[3].DATA[1]", "abc"),
        "batches 0: columns 3: DATA: item 1: expected pairs of hexadecimal digits, found 'abc'",
    ),
    (
        put(f"{COLUMN}[4].VIEWS[0].SIZE", 6),
        "batches 0: columns 4: VIEWS 0: SIZE: expected 5, the bytes of INLINED, found 6",
    ),
    (
        put(f"{COLUMN}[4].VIEWS[1].SIZE", 1 << 31),
        "batches 0: columns 4: VIEWS 1: SIZE, BUFFER_INDEX and OFFSET have 32 bits",
    ),
    (put(f"{COLUMN}[5].OFFSET", [0, 1, 5]), "batches 0: columns 5: "),
    (
        put("schema.fields[8].type.byteWidth", (1 << 31) - 1),
        "batches 0: columns 8: DATA: item 0: expected 2147483647 bytes, found 3",
    ),
]


@pytest.mark.parametrize(("change", "message"), BAD, ids=[message for _, message in BAD])
def test_bad_documents_are_refused_with_the_place(change: Callable[[Any], None], message: str) -> None:
    document = sample()
    change(document)
    with pytest.raises(sa.InvalidData) as raised:
        read(document)
    assert message in str(raised.value)
    assert re.match(r"\d+ bytes: ", str(raised.value))


def test_a_dictionary_within_itself_is_refused() -> None:
    encoding = {"id": 0, "indexType": INT32, "isOrdered": False}
    inner = field_of("item", INT32) | {"dictionary": encoding}
    children = [{"name": "item", "count": 1, "VALIDITY": [1], "DATA": [0]}]
    column = {"name": "", "count": 1, "VALIDITY": [1], "OFFSET": [0, 1], "children": children}
    document = document_of(
        {"name": "list"},
        {"count": 1, "VALIDITY": [1], "DATA": [0]},
        [inner],
        field={"dictionary": encoding},
        dictionaries=[{"id": 0, "data": {"count": 1, "columns": [column]}}],
    )
    with pytest.raises(sa.InvalidData, match="dictionaries 0: dictionary 0 refers to itself"):
        read(document)
    document["dictionaries"] *= 2
    with pytest.raises(sa.InvalidData, match="dictionaries 1: dictionary 0 is already defined in dictionaries 0"):
        read(document)


NOT_JSON = {
    "empty": (b"", "not a JSON document: Expecting value: line 1 column 1"),
    "cut": (b'{"schema": {"fields": [', "not a JSON document: "),
    "no UTF-8": (b'{"schema": "\xff"}', "not a JSON document: "),
    "an array": (b"[]", "2 bytes: expected an object, found an array of 0"),
    "a number of many digits": (b'{"batches": %s}' % (b"9" * 5000), "not a JSON document: "),
    "a cut gzip": (gzip.compress(b"{}" * 1000)[:-12], "its gzip data is truncated"),
    "a broken gzip": (gzip.compress(b"{}")[:10] + b"\xff" * 20, "its gzip data is corrupt"),
    "gzip and then something else": (gzip.compress(b"{}") + b"{}", "its gzip data is corrupt"),
}


@pytest.mark.parametrize("name", NOT_JSON)
def test_what_is_no_json_is_refused(name: str) -> None:
    data, message = NOT_JSON[name]
    with pytest.raises(sa.InvalidData, match=re.escape(message)):
        read_json(data)


@pytest.mark.parametrize("opening", [b"[", b'{"a":', b'{"schema": {"fields": [{"children": ['])
def test_deep_nesting_is_refused(opening: bytes) -> None:
    with pytest.raises(sa.LimitExceeded, match="nest deeper than"):
        read_json(opening * 100_000)


def nested(depth: int) -> Any:
    field = field_of("f", {"name": "null"})
    column: dict[str, Any] = {"name": "f", "count": 0}
    for _ in range(depth - 1):
        field = field_of("f", {"name": "list"}, [field])
        column = {"name": "f", "count": 0, "VALIDITY": [], "OFFSET": [0], "children": [column]}
    return {"schema": {"fields": [field]}, "batches": [{"count": 0, "columns": [column]}]}


def test_types_nest_up_to_the_limit() -> None:
    assert read(nested(64)).num_rows == 0
    with pytest.raises(sa.LimitExceeded, match=r"fields 0(: children 0){64}: types nest deeper than Limits.depth"):
        read(nested(65))


def test_decompression_is_bounded() -> None:
    data = gzip.compress(b" " * (64 << 20))
    assert len(data) < 1 << 20
    with pytest.raises(sa.LimitExceeded, match=r"Limits.decompressed_bytes = 1000000"):
        read_json(data, limits=sa.Limits(decompressed_bytes=1_000_000))


def test_counts_that_take_no_bytes_are_read_and_not_expanded() -> None:
    count = (1 << 63) - 1
    table = read(document_of({"name": "null"}, {"count": count}))
    assert table.num_rows == count
    assert written(table)["batches"][0]["columns"] == [{"name": "f", "count": count}]
    rows = sa.record_batch([sa.StructArray(sa.struct([]), 1 << 40, [None], 0)], names=["s"])
    with pytest.raises(sa.LimitExceeded, match="column 's'"):
        written(rows)


def test_a_null_of_an_old_union_takes_no_more_than_a_limit() -> None:
    """Here one of lists of two billion items within structs."""
    lists = field_of("l", {"name": "fixedsizelist", "listSize": (1 << 31) - 1}, [ITEM])
    field = field_of("a", {"name": "struct"}, [lists])
    none: dict[str, Any] = {"count": 0, "VALIDITY": []}
    items = {"name": "item", **none, "DATA": []}
    document = document_of(
        {"name": "union", "mode": "DENSE", "typeIds": [0, 1]},
        {
            "count": 1,
            "VALIDITY": [0],
            "TYPE_ID": [1],
            "OFFSET": [0],
            "children": [
                {"name": "a", **none, "children": [{"name": "l", **none, "children": [items]}]},
                {"name": "item", "count": 1, "VALIDITY": [1], "DATA": [1]},
            ],
        },
        [field, ITEM],
    )
    with pytest.raises(sa.LimitExceeded, match=r"batches 0: columns 0: a null of .* would take \d+ bytes"):
        read(document)


OTHER_VALUES = [None, True, -1, 1 << 70, 0.5, "x", [], {}]


def places(value: Any) -> Iterator[tuple[Any, Any]]:
    """All containers in a document with each of their keys; of long arrays the first items."""
    keys = list(value) if isinstance(value, dict) else range(min(len(value), 3))
    for key in keys:
        yield value, key
        if isinstance(value[key], (dict, list)):
            yield from places(value[key])


TYPES = [cases.case(f"{name}-nulls") for name, _, _ in cases.TYPES if not name.startswith(NESTED_TWICE)]


@pytest.mark.parametrize("case", TYPES, ids=str)
def test_whatever_stands_anywhere_nothing_else_is_raised(case: cases.Case) -> None:
    document = written(sa.record_batch([case.array()], names=["c"]))
    for container, key in list(places(document)):
        kept = container[key]
        for other in [*OTHER_VALUES, copy.deepcopy(container)]:
            container[key] = other
            with contextlib.suppress(sa.InvalidData):
                table = read(document)
                table.validate(full=True)
                table.to_pylist()
        container[key] = kept
    assert read(document).column(0).to_pylist() == case.values
