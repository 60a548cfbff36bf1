"""Random scans give what pyarrow's datasets give with the same filters.

Each example writes some tables twice: for pyarrow as files of plain types, for us as files and streams, compressed or
not, whose columns may also be views, dictionaries and runs. What is documented to differ is added to pyarrow's side: a
null matches nothing, with ``not in`` neither; a 32-bit float equals what it is as a 64-bit float, with ``in``, too;
keys of directories are 64-bit integers and dates.
"""

from __future__ import annotations

import datetime as dt
import tempfile
from decimal import Decimal
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import quote

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
from environment import needs_pyarrow
from hypothesis import given, settings
from hypothesis import strategies as st

import shmarrow as sa

NAN = float("nan")
Values = list[Any]


class Kind(NamedTuple):
    """A type of columns: pyarrow's, the values that it may have, and other forms in which our files have these."""

    type: pa.DataType
    values: Values
    forms: tuple[pa.DataType, ...] = ()


WORDS = [
    "",
    "a",
    "ab",
    "ab\0",
    "abc",
    "äöü",
    "zzzzzzzz",
    "zzzzzzzzz",
    "a rather long text, twice as long as a word",
    "\U0001f600",
]
RUNS = pa.run_end_encoded(pa.int32(), pa.int64())
KINDS = {
    "int8": Kind(pa.int8(), [-128, -1, 0, 1, 5, 127]),
    "uint64": Kind(pa.uint64(), [0, 1, (1 << 63) - 1, 1 << 63, (1 << 64) - 1]),
    "int64": Kind(pa.int64(), [-(1 << 63), -1, 0, 1, 1 << 53, (1 << 53) + 1], (RUNS,)),
    "float32": Kind(pa.float32(), [-1.5, 0.0, 0.1, 1.5, NAN, float("inf")]),
    "float64": Kind(pa.float64(), [-1.5, 0.0, 0.1, 1.5, NAN, float("-inf")]),
    "bool": Kind(pa.bool_(), [False, True]),
    "date": Kind(pa.date32(), [dt.date(1969, 12, 31), dt.date(2024, 2, 29), dt.date(2024, 3, 1)]),
    "time": Kind(pa.time64("us"), [dt.time(0), dt.time(12, 30, 1, 5)]),
    "timestamp": Kind(pa.timestamp("us"), [dt.datetime(1960, 1, 1), dt.datetime(2024, 1, 1, 12)]),
    "zoned": Kind(pa.timestamp("ms", "UTC"), [dt.datetime(year, 1, 1, tzinfo=dt.UTC) for year in (1960, 2024)]),
    "duration": Kind(pa.duration("s"), [dt.timedelta(-1), dt.timedelta(0), dt.timedelta(1)]),
    "decimal": Kind(pa.decimal128(20, 2), [Decimal("-1.00"), Decimal("0.01"), Decimal("123456789012345678.90")]),
    "wide": Kind(pa.decimal256(50, 0), [Decimal(each) for each in (-(10**40), -1, 0, 10**40, 10**40 + 1)]),
    "text": Kind(pa.string(), WORDS, (pa.large_string(), pa.string_view(), pa.dictionary(pa.int8(), pa.string()))),
    "binary": Kind(pa.binary(), [word.encode() for word in WORDS], (pa.large_binary(), pa.binary_view())),
    "fixed": Kind(pa.binary(3), [b"\0\0\0", b"abc", b"abd", b"\xff\0\0"]),
}  # fmt: skip
ORDERED = ["=", "==", "!=", "<", "<=", ">", ">="]
KEYS = {"year": (pa.int64(), ["2023", "2024", "-1"]), "day": (pa.date32(), ["2024-01-01", "2024-02-29"]),
        "place": (pa.string(), ["a b", "c/d", "é", "x=y"])}  # fmt: skip


def column(rng: np.random.Generator, kind: Kind, rows: int) -> pa.Array:
    values = [None if rng.random() < 0.2 else kind.values[rng.integers(len(kind.values))] for _ in range(rows)]
    return pa.array(values, kind.type)


def in_form(values: pa.Array, form: pa.DataType) -> pa.Array:
    if pa.types.is_dictionary(form):
        return values.dictionary_encode().cast(form)
    return pc.run_end_encode(values) if pa.types.is_run_end_encoded(form) else values.cast(form)


def write_ours(rng: np.random.Generator, path: Path, batches: list[pa.RecordBatch]) -> None:
    """Write batches in any form, with compression or without, as a file or a stream."""
    schema = batches[0].schema
    forms = [(field.type, *KINDS[field.metadata[b"kind"].decode()].forms) for field in schema]
    chosen = [form[rng.integers(len(form))] for form in forms]
    fields = [field.with_type(form) for field, form in zip(schema, chosen, strict=True)]
    if rng.random() < 0.5:  # by our writer, with statistics
        made = [sa.record_batch([in_form(*pair) for pair in zip(batch.columns, chosen, strict=True)],
                                names=schema.names) for batch in batches]  # fmt: skip
        codec = [None, "lz4", "zstd"][rng.integers(3)]
        with sa.ipc.new_file(path, made[0].schema, sa.ipc.IpcWriteOptions(codec, unify_dictionaries=True),
                             statistics=True) as writer:  # fmt: skip
            writer.write_table(sa.Table.from_batches(made))
        return
    options = pa.ipc.IpcWriteOptions(compression=[None, "lz4", "zstd"][rng.integers(3)], emit_dictionary_deltas=True)
    make = [pa.ipc.new_file, pa.ipc.new_stream][rng.integers(2)]
    if any(pa.types.is_dictionary(form) for form in chosen):
        make = pa.ipc.new_stream  # a file has one dictionary
    with make(str(path), pa.schema(fields), options=options) as writer:
        for batch in batches:
            made = [in_form(values, form) for values, form in zip(batch.columns, chosen, strict=True)]
            writer.write_batch(pa.record_batch(made, schema=pa.schema(fields)))


def condition(rng: np.random.Generator, name: str, kind: Kind) -> tuple[str, str, Any]:
    if rng.random() < 0.3:
        some = rng.choice(len(kind.values), rng.integers(0, 4)).tolist()
        return name, ["in", "not in"][rng.integers(2)], [kind.values[i] for i in some]
    return name, ORDERED[rng.integers(len(ORDERED))], kind.values[rng.integers(len(kind.values))]


def expression(conditions: list[Any], types: dict[str, pa.DataType]) -> pc.Expression:
    """Return pyarrow's expression for alternatives of conditions; nulls match nothing, as they do here."""
    result = pc.scalar(False)
    for every in conditions:
        whole = pc.scalar(True)
        for name, op, value in every:
            field = pc.field(name)
            if op in ("in", "not in"):
                if types[name] == pa.float32():
                    value = [each for each in value if np.isnan(each) or float(np.float32(each)) == each]
                one = field.isin(pa.array(value, types[name]))
                one = (one if op == "in" else ~one) & field.is_valid()
            else:
                literal = pa.scalar(value, pa.float64() if pa.types.is_floating(types[name]) else types[name])
                one = {"=": field == literal, "==": field == literal, "!=": field != literal, "<": field < literal,
                       "<=": field <= literal, ">": field > literal, ">=": field >= literal}[op]  # fmt: skip
            whole = whole & one
        result = result | whole
    return result


def comparable(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [{name: "NaN" if value != value else value for name, value in row.items()} for row in rows]


@settings(max_examples=50)
@given(st.integers(0, 1 << 62))
def test_same_as_pyarrow(seed: int) -> None:
    needs_pyarrow(24)  # older ones crash when they export slices of runs
    check(np.random.default_rng(seed))


def check(rng: np.random.Generator) -> None:
    names = rng.permutation(list(KINDS))[: rng.integers(1, 6)].tolist()
    keys = rng.permutation(list(KEYS))[: rng.integers(0, 3)].tolist()
    types = {name: KINDS[name].type for name in names} | {key: KEYS[key][0] for key in keys}
    with tempfile.TemporaryDirectory() as directory:
        plain, ours = Path(directory, "plain"), Path(directory, "ours")
        for number in range(rng.integers(1, 5)):
            texts = {key: KEYS[key][1][rng.integers(len(KEYS[key][1]))] for key in keys}
            below = Path(*[f"{key}={quote(text, safe='')}" for key, text in texts.items()])
            here = names if number == 0 else [name for name in rng.permutation(names).tolist() if rng.random() < 0.8]
            fields = [pa.field(name, KINDS[name].type, metadata={"kind": name}) for name in here or names[:1]]
            batches = []
            for _ in range(rng.integers(1, 4)):
                rows = int(rng.integers(0, 40))
                arrays = [column(rng, KINDS[field.name], rows) for field in fields]
                batches.append(pa.record_batch(arrays, schema=pa.schema(fields)))
            for base in (plain, ours):
                (base / below).mkdir(parents=True, exist_ok=True)
            (ours / below / "_SUCCESS").touch()
            (ours / below / ".hidden").touch()
            with pa.ipc.new_file(str(plain / below / f"{number}.arrow"), pa.schema(fields)) as writer:
                for batch in batches:
                    writer.write_batch(batch)
            write_ours(rng, ours / below / f"{number}.arrow", batches)

        hive = ds.partitioning(pa.schema([(key, KEYS[key][0]) for key in keys]), flavor="hive")
        whole = pa.schema([(name, types[name]) for name in [*names, *keys]])
        dataset = ds.dataset(str(plain), schema=whole, format="ipc", partitioning=hive)
        schema = sa.schema(whole)
        scan = sa.scan(str(ours), schema=schema)
        assert scan.count_rows() == dataset.count_rows()

        kinds = {name: KINDS[name] for name in names}
        kinds |= {key: Kind(KEYS[key][0], pa.array(KEYS[key][1]).cast(KEYS[key][0]).to_pylist()) for key in keys}
        given_filters = [
            [condition(rng, name, kinds[name]) for name in rng.choice(list(kinds), rng.integers(1, 4)).tolist()]
            for _ in range(rng.integers(1, 4))
        ]
        columns = rng.permutation(list(kinds))[: rng.integers(1, len(kinds) + 1)].tolist()
        expected = dataset.to_table(columns, filter=expression(given_filters, types))
        filtered = scan.where(given_filters if len(given_filters) > 1 or rng.random() < 0.5 else given_filters[0])
        found = filtered.select(columns)
        table = found.to_table()
        table.validate(full=True)
        assert table.schema.names == columns
        assert comparable(table.cast(sa.schema(expected.schema)).to_pylist()) == comparable(expected.to_pylist())
        assert found.count_rows() == expected.num_rows
        n = int(rng.integers(0, 50))
        assert comparable(found.head(n).to_pylist()) == comparable(expected.slice(0, n).to_pylist())
