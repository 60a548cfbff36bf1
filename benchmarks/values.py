"""Values: comparing, validating and converting a million of them, beside pyarrow; run it with ``make bench``.

Both sides work on the same buffers, a tenth of whose slots are null. What is compared are two copies, as either side
sees at once that an array is itself.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa
from _bench import Bench, Faster, Operation, bench, within

import shmarrow as sa

THIRD, QUARTER, FIFTH = within(3), within(4), within(5)


def columns(size: int) -> dict[str, Callable[[], Any]]:
    """Arrays of every type, a tenth of whose slots are null, by what they are called."""
    random = np.random.default_rng(0)
    valid = random.random(size) >= 0.1
    numbers = random.integers(0, 1_000_000, size)
    words = [f"w{number}" if ok else None for number, ok in zip(numbers.tolist(), valid.tolist(), strict=True)]
    texts = [word and f"a longer value that ends in {word}" for word in words]
    lengths = np.where(valid, numbers % 5, 0)
    offsets = np.append(0, np.cumsum(lengths))
    items = np.arange(offsets[-1])
    few = [word and word[:2] for word in words]
    mixed = [[number, f"w{number}", None, number / 2][number % 4] for number in numbers.tolist()]
    runs = np.append(np.flatnonzero(np.diff(numbers % 3)) + 1, size)

    def storage(type: Any, data: np.ndarray) -> Any:
        return sa.PrimitiveArray(type, size, [np.packbits(valid, bitorder="little"), data.reshape(-1).view("u1")])

    def structs() -> Any:
        children = [sa.array(numbers, mask=~valid), sa.array(words)]
        return sa.StructArray.from_arrays(children, type=sa.struct({"n": sa.int64(), "w": sa.string()}), mask=~valid)

    wide = np.stack([numbers.astype("u8"), np.zeros(size, "u8")], 1)
    union = {"i": sa.int64(), "s": sa.string(), "f": sa.float64()}
    made: dict[str, Callable[[], Any]] = {
        "null": lambda: sa.nulls(size, sa.null()),
        "bool": lambda: sa.array(numbers % 2 == 0, mask=~valid),
        "int8": lambda: sa.array((numbers % 100).astype("i1"), mask=~valid),
        "int64": lambda: sa.array(numbers, mask=~valid),
        "double": lambda: sa.array(numbers / 2, mask=~valid),
        "date32": lambda: sa.array(numbers.astype("M8[D]"), mask=~valid),
        "timestamp": lambda: sa.array(numbers.astype("M8[us]"), mask=~valid),
        "decimal128": lambda: storage(sa.decimal128(30, 2), wide),
        "decimal256": lambda: storage(sa.decimal256(60, 2), np.concatenate([wide, wide * 0], 1)),
        "month_day_nano": lambda: storage(sa.month_day_nano_interval(), wide % 1000),
        "fixed_size_binary": lambda: storage(sa.binary(16), wide),
        "string": lambda: sa.array(words),
        "large_binary": lambda: sa.array(texts).cast(sa.large_binary()),
        "string_view": lambda: sa.array(words, sa.string_view()),
        "string_view, long": lambda: sa.array(texts, sa.string_view()),
        "list": lambda: sa.ListArray.from_arrays(offsets, sa.array(items), sa.list_(sa.int64()), mask=~valid),
        "list_view": lambda: sa.ListViewArray.from_arrays(
            offsets[:-1], lengths, sa.array(items), sa.list_view(sa.int64()), mask=~valid
        ),
        "fixed_size_list": lambda: sa.FixedSizeListArray.from_arrays(
            sa.array(np.arange(2 * size)), type=sa.list_(sa.int64(), 2), mask=~valid
        ),
        "struct": structs,
        "dictionary": lambda: sa.array(few).dictionary_encode(),
        "dense_union": lambda: sa.array(mixed, sa.dense_union(union)),
        "sparse_union": lambda: sa.array(mixed, sa.sparse_union(union)),
        "run_end_encoded": lambda: sa.RunEndEncodedArray.from_arrays(
            sa.array(runs.astype("i4")), sa.array(words).slice(0, len(runs))
        ),
    }
    return made


def comparisons(page: Bench, made: dict[str, Callable[[], Any]]) -> None:
    for name, make in made.items():
        one, two = make(), make()
        theirs = [pa.concat_arrays([each.to_pyarrow(), each.to_pyarrow()[:0]]) for each in (one, two)]
        assert one.equals(two)
        assert theirs[0].equals(theirs[1])
        page.row(
            f"{name}: equals",
            {"shmarrow": lambda _, one=one, two=two: one.equals(two), "pyarrow": lambda _, p=theirs: p[0].equals(p[1])},
            THIRD,
            5,
        )


def views(page: Bench, made: dict[str, Callable[[], Any]]) -> None:
    for name in ("string_view", "string_view, long"):
        array = made[name]()
        text = array.cast(sa.string())
        mine = {"array": array, "text": text}
        theirs = {"array": array.to_pyarrow(), "text": text.to_pyarrow()}
        sides: dict[str, tuple[Operation, Operation]] = {
            "validate in full": (lambda each: each["array"].validate(full=True),) * 2,
            "to_pylist": (lambda each: each["array"].to_pylist(),) * 2,
            "to string": (
                lambda each: each["array"].cast(sa.string()),
                lambda each: each["array"].cast(pa.string()),
            ),
            "from string": (
                lambda each: each["text"].cast(sa.string_view()),
                lambda each: each["text"].cast(pa.string_view()),
            ),
        }
        for what, (ours, peer) in sides.items():
            page.row(
                f"{name}: {what}",
                {"shmarrow": partial(_given, ours, mine), "pyarrow": partial(_given, peer, theirs)},
                QUARTER,
                3,
            )


def _given(operation: Operation, arrays: dict[str, Any], _: Any) -> Any:
    return operation(arrays)


def others(page: Bench, made: dict[str, Callable[[], Any]]) -> None:
    for name in ("decimal128", "decimal256"):
        array = made[name]()
        theirs = array.to_pyarrow()
        page.row(
            f"{name}: validate in full",
            {
                "shmarrow": lambda _, array=array: array.validate(full=True),
                "pyarrow": lambda _, theirs=theirs: theirs.validate(full=True),
            },
            FIFTH,
            5,
        )
    array = made["month_day_nano"]()
    theirs = array.to_pyarrow()
    page.row(
        "month_day_nano: to_pylist",
        {"shmarrow": lambda _: array.to_pylist(), "pyarrow": lambda _: theirs.to_pylist()},
        FIFTH,
        2,
    )


def unions(page: Bench, size: int) -> None:
    values = [[i, f"w{i}", None, i / 2][i % 4] for i in range(size)]
    fields = {"i": sa.int64(), "s": sa.string(), "f": sa.float64()}
    # pyarrow builds no unions from values; a microsecond a value is what is asked for.
    for make in (sa.dense_union, sa.sparse_union):
        page.row(
            f"{make.__name__}: from a list",
            {
                "shmarrow": lambda _, make=make: sa.array(values, make(fields)),
                "1 µs a value": lambda _: time.sleep(size * 1e-6),
            },
            Faster(1, "1 µs a value"),
            2,
        )


def main() -> None:
    with bench("Values") as page:
        size = 100_000 if page.quick else 1_000_000
        made = columns(size)
        comparisons(page, made)
        views(page, made)
        others(page, made)
        unions(page, size)


if __name__ == "__main__":
    main()
