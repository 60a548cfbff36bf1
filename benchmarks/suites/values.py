"""Values: checking and converting them, beside pyarrow.

A tenth of the slots are null, where nothing else is said. Both sides work on the same buffers.
"""

from __future__ import annotations

import random
from functools import cache
from typing import Any

import numpy as np
import pyarrow as pa
from harness.bench import Bench
from harness.figures import within

import shmarrow as sa

FIFTH = within(5)


class Data:
    """Values for arrays of a given number of slots."""

    def __init__(self, size: int) -> None:
        random = np.random.default_rng(0)
        self.size = size
        self.valid = random.random(size) >= 0.1
        self.numbers = random.integers(0, 1_000_000, size)

    def nulled(self, values: list[Any]) -> list[Any]:
        return [value if ok else None for value, ok in zip(values, self.valid.tolist(), strict=True)]


@cache
def data_of(bench: Bench) -> Data:
    return Data(100_000 if bench.quick else 1_000_000)


def views(bench: Bench) -> None:
    """Check views of short and of long values, and convert them to Python, and to and from values in a row."""
    data = data_of(bench)
    words = data.nulled([f"w{number}" for number in data.numbers.tolist()])
    long = [word and f"a longer value that ends in {word}" for word in words]
    for kind in ("string", "binary"):
        for values, text in ((words, f"{kind}_view"), (long, f"{kind}_view, long")):
            plain = sa.array(values).cast(kind)
            array = plain.cast(f"{kind}_view")
            for what, given, operation in (
                ("validate in full", array, lambda _, each: each.validate(full=True)),
                ("to_pylist", array, lambda _, each: each.to_pylist()),
                (f"to {kind}", array, lambda arrow, each, kind=kind: each.cast(getattr(arrow, kind)())),
                (f"from {kind}", plain, lambda arrow, each, kind=kind: each.cast(getattr(arrow, f"{kind}_view")())),
            ):
                sides = {
                    "shmarrow": lambda both, operation=operation: operation(sa, both[0]),
                    "pyarrow": lambda both, operation=operation: operation(pa, both[1]),
                }
                both = given, given.to_pyarrow()
                bench.row(f"{text}: {what}", sides, within(4), 3, lambda turn, both=both: both)


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


PARTS = {"views": views, "validate": validate}
