"""Values: comparing, checking and converting a million of them, beside pyarrow.

A tenth of the slots are null, where nothing else is said. Both sides work on the same buffers, or on the same Python
values. What is compared are two copies, as either side sees at once that an array is itself.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
import pyarrow as pa
from harness.bench import Bench
from harness.figures import Requirement, within

import shmarrow as sa

THIRD, QUARTER, FIFTH = within(3), within(4), within(5)

Make = Callable[[], Any]


class Data:
    """Values for arrays of a given number of slots."""

    def __init__(self, size: int) -> None:
        random = np.random.default_rng(0)
        self.size = size
        self.valid = random.random(size) >= 0.1
        self.numbers = random.integers(0, 1_000_000, size)
        self.words = self.nulled([f"w{number}" for number in self.numbers.tolist()])
        self.texts = [word and f"a longer value that ends in {word}" for word in self.words]
        self.lengths = np.where(self.valid, self.numbers % 5, 0)
        self.offsets = np.append(0, np.cumsum(self.lengths))
        self.items = np.arange(self.offsets[-1])
        self.wide = np.stack([self.numbers.astype("u8"), np.zeros(size, "u8")], 1)

    def nulled(self, values: list[Any]) -> list[Any]:
        return [value if ok else None for value, ok in zip(values, self.valid.tolist(), strict=True)]

    def array(self, values: np.ndarray, type: Any = None) -> Any:
        return sa.array(values, type, mask=~self.valid)

    def storage(self, type: Any, values: np.ndarray) -> Any:
        """An array of a type over its storage."""
        validity = np.packbits(self.valid, bitorder="little")
        return sa.PrimitiveArray(type, self.size, [validity, np.ascontiguousarray(values).reshape(-1).view("u1")])


def fixed(data: Data) -> dict[str, Make]:
    """Arrays of the types whose values all have the same size, by what they are called."""
    numbers, wide = data.numbers, data.wide
    days = numbers % 40_000
    made: dict[str, Make] = {
        "null": lambda: sa.nulls(data.size),
        "bool": lambda: data.array(numbers % 2 == 0),
    }
    for type in (
        "int8",
        "int16",
        "int32",
        "int64",
        "uint8",
        "uint16",
        "uint32",
        "uint64",
        "float16",
        "float32",
        "float64",
    ):
        made[type] = lambda type=type: data.storage(
            sa.types.as_type(type), (numbers % 100).astype(sa.types.as_type(type).storage)
        )
    return made | {
        "date32": lambda: data.storage(sa.date32(), days.astype("i4")),
        "date64": lambda: data.storage(sa.date64(), days * 86_400_000),
        "time32": lambda: data.storage(sa.time32("ms"), numbers.astype("i4")),
        "time64": lambda: data.storage(sa.time64("us"), numbers),
        "timestamp": lambda: data.storage(sa.timestamp("us"), numbers),
        "timestamp, zone": lambda: data.storage(sa.timestamp("s", "Europe/Oslo"), numbers),
        "duration": lambda: data.storage(sa.duration("ns"), numbers),
        "decimal32": lambda: data.storage(sa.decimal32(9, 2), numbers.astype("i4")),
        "decimal64": lambda: data.storage(sa.decimal64(15, 2), numbers),
        "decimal128": lambda: data.storage(sa.decimal128(30, 2), wide),
        "decimal256": lambda: data.storage(sa.decimal256(60, 2), np.concatenate([wide, wide * 0], 1)),
        "month_day_nano interval": lambda: data.storage(sa.month_day_nano_interval(), wide % 1000),
        "fixed_size_binary": lambda: data.storage(sa.binary(16), wide),
        "uuid": lambda: data.storage(sa.binary(16), wide).cast(sa.uuid()),
    }


def variable(data: Data) -> dict[str, Make]:
    """Arrays of text, bytes and views of both."""
    made: dict[str, Make] = {}
    for name in ("string", "large_string", "string_view", "binary", "large_binary", "binary_view"):
        type = sa.types.as_type(name)
        made[name] = lambda type=type: sa.array(data.words).cast(type)
        made[f"{name}, long"] = lambda type=type: sa.array(data.texts).cast(type)
    return made


def nested(data: Data) -> dict[str, Make]:
    """Arrays of the types that have children or a dictionary."""
    offsets, lengths, drop = data.offsets, data.lengths, ~data.valid
    fields = {"n": sa.int64(), "w": sa.string()}
    runs = np.append(np.flatnonzero(np.diff(data.numbers % 3)) + 1, data.size).astype("i4")
    pairs = np.minimum(np.arange(data.size + 1) * 2, 2 * (data.size // 2)).astype("i4")
    keys = [word or "none" for word in data.words]
    few = [word and word[:2] for word in data.words]

    def structs() -> Any:
        return sa.StructArray.from_arrays([data.array(data.numbers), sa.array(data.words)], list(fields), mask=drop)

    return {
        "list": lambda: sa.ListArray.from_arrays(offsets, sa.array(data.items), mask=drop),
        "large_list": lambda: sa.ListArray.from_arrays(offsets, sa.array(data.items), mask=drop).cast(
            sa.large_list(sa.int64())
        ),
        "list of string": lambda: sa.ListArray.from_arrays(pairs, sa.array(data.words), mask=drop),
        "list_view": lambda: sa.ListViewArray.from_arrays(offsets[:-1], lengths, sa.array(data.items), mask=drop),
        "fixed_size_list": lambda: sa.FixedSizeListArray.from_arrays(sa.array(np.arange(2 * data.size)), 2, mask=drop),
        "map": lambda: sa.MapArray.from_arrays(pairs, sa.array(keys), sa.array(data.numbers)),
        "struct": structs,
        "dictionary": lambda: sa.array(few).dictionary_encode(),
        "dense_union": lambda: sa.array(union_values(data), sa.dense_union(UNION)),
        "sparse_union": lambda: sa.array(union_values(data), sa.sparse_union(UNION)),
        "run_end_encoded": lambda: sa.RunEndEncodedArray.from_arrays(runs, sa.array(data.words)[: len(runs)]),
    }


UNION = {"i": sa.int64(), "s": sa.string(), "f": sa.float64()}


def union_values(data: Data) -> list[Any]:
    return [[number, f"w{number}", None, number / 2][number % 4] for number in data.numbers.tolist()]


@cache
def data_of(bench: Bench) -> Data:
    return Data(100_000 if bench.quick else 1_000_000)


@cache
def arrays_of(bench: Bench) -> dict[str, Make]:
    data = data_of(bench)
    return fixed(data) | variable(data) | nested(data)


def comparisons(bench: Bench) -> None:
    """Compare two equal arrays."""
    made = arrays_of(bench)
    for name, make in made.items():
        one, two = make(), make()
        theirs = [pa.concat_arrays([each.to_pyarrow(), each.to_pyarrow()[:0]]) for each in (one, two)]
        assert one.equals(two)
        assert theirs[0].equals(theirs[1])
        bench.row(
            f"{name}: equals",
            {"shmarrow": lambda _, one=one, two=two: one.equals(two), "pyarrow": lambda _, p=theirs: p[0].equals(p[1])},
            THIRD,
            5,
        )


Both = Callable[[Any, Any], Any]
"""An operation of both libraries: it takes the module and an array."""


def both(bench: Bench, what: str, array: Any, operation: Both, required: Requirement, turns: int = 3) -> None:
    """A row for the same operation on an array and on its pyarrow form."""
    theirs = array.to_pyarrow()
    bench.row(
        what,
        {"shmarrow": lambda _: operation(sa, array), "pyarrow": lambda _: operation(pa, theirs)},
        required,
        turns,
    )


def views(bench: Bench) -> None:
    made = arrays_of(bench)
    for name in ("string_view", "string_view, long", "binary_view", "binary_view, long"):
        array = made[name]()
        plain = array.cast("string" if "string" in name else "binary")
        both(bench, f"{name}: validate in full", array, lambda _, each: each.validate(full=True), QUARTER)
        both(bench, f"{name}: to_pylist", array, lambda _, each: each.to_pylist(), QUARTER)
        both(bench, f"{name}: to {plain.type}", array, _cast_to(str(plain.type)), QUARTER)
        both(bench, f"{name}: from {plain.type}", plain, _cast_to(str(array.type)), QUARTER)


def _cast_to(name: str) -> Both:
    return lambda arrow, array: array.cast(getattr(arrow, name)())


def others(bench: Bench) -> None:
    made = arrays_of(bench)
    for name in ("decimal32", "decimal64", "decimal128", "decimal256"):
        both(bench, f"{name}: validate in full", made[name](), lambda _, each: each.validate(full=True), FIFTH, 5)
    name = "month_day_nano interval"
    both(bench, f"{name}: to_pylist", made[name](), lambda _, each: each.to_pylist(), FIFTH)
    lists = made["list"]()
    both(bench, "list: to large_list", lists, lambda arrow, each: each.cast(arrow.large_list(arrow.int64())), FIFTH)


# --- validation --------------------------------------------------------------------------------------------------


def strings(rows: int, known: list[str]) -> Any:
    """Words at random, as one string array."""
    drawn = np.random.default_rng(0).integers(0, len(known), rows)
    return pa.array(known).take(pa.array(drawn))


def random_lists(rows: int) -> Any:
    """Lists of up to five int64."""
    lengths = np.random.default_rng(0).integers(0, 6, rows)
    offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32)
    return pa.ListArray.from_arrays(pa.array(offsets), pa.array(np.arange(offsets[-1])))


def indices(rows: int, null: bool) -> Any:
    """Dictionary indices, a tenth of them null where asked for."""
    generator = np.random.default_rng(0)
    mask = generator.random(rows) < 0.1 if null else None
    found = pa.array(generator.integers(0, 1000, rows).astype(np.int32), mask=mask)
    return pa.DictionaryArray.from_arrays(found, pa.array(words(1000)))


def words(count: int, letters: str = "abcdefghijklmnopqrstuvwxyz") -> list[str]:
    """Words of 3 to 15 letters."""
    generator = random.Random(0)
    return ["".join(generator.choices(letters, k=generator.randint(3, 15))) for _ in range(count)]


def validate(bench: Bench) -> None:
    """Check all values."""
    rows = 1_000_000 if bench.quick else 10_000_000
    cases = {
        "strings, ASCII": strings(rows, words(1000)),
        "strings, one in ten not ASCII": strings(rows, words(900) + words(100, "aeiouäöüßéèñçøå東京")),
        "strings, none ASCII": strings(rows, words(1000, "äöüßéèñçøå東京")),
        "rows of list<int64>": random_lists(rows),
        "dictionary indices": indices(rows, False),
        "dictionary indices, a tenth null": indices(rows, True),
    }
    for what, theirs in cases.items():
        bench.row(
            f"validate fully {rows:,} {what}",
            {
                "shmarrow": lambda arrays: arrays[0].validate(full=True),
                "pyarrow": lambda arrays: arrays[1].validate(full=True),
            },
            within(2),
            3,
            lambda turn, theirs=theirs: (sa.array(theirs), theirs.slice(0)),
        )


PARTS = {"comparisons": comparisons, "views": views, "others": others, "validate": validate}
