"""Indexes of keys, beside a dict; without Spark."""

from __future__ import annotations

import datetime as dt
import decimal
from typing import Any

import numpy as np
import pytest

import shmarrow as sa
from shmarrow.spark import key_index
from shmarrow.spark.key_index import find, index_of, keys_of

UTC = dt.UTC

KEYS: dict[str, Any] = {
    "dense": sa.array([7, 5, None, 6, 9], "int32"),
    "negative": sa.array([-3, -1, 0, 2]),
    "sparse": sa.array([0, 1 << 40, -(1 << 62), None, 17]),
    "the extremes": sa.array([(1 << 63) - 1, -(1 << 63)]),
    "bool": sa.array([True, None]),
    "text": sa.array(["a", "", "ab", None, "b" * 200, "b" * 199 + "c", "b" * 150 + "c" + "b" * 49]),
    "large text": sa.array(["a", None, "ab", "b" * 200], "large_string"),
    "binary": sa.array([b"\x00", b"", b"\x00\x00"]),
    "date": sa.array([dt.date(2020, 1, 2), dt.date(1969, 1, 1)]),
    "timestamp": sa.array([dt.datetime(2020, 1, 2), dt.datetime(9999, 1, 1)]),
    "decimal": sa.array([decimal.Decimal("1.50"), decimal.Decimal("-1.50"), None], sa.decimal128(38, 2)),
    "nothing": sa.array([], "int64"),
    "nulls": sa.array([None, None], "string"),
}


@pytest.mark.parametrize("kind", KEYS)
@pytest.mark.parametrize("other", [None, "dense", "text", "decimal", "nulls"])
def test_one_and_two_columns(kind: str, other: str | None) -> None:
    columns = [KEYS[name] for name in (kind, other) if name is not None]
    rows = min(map(len, columns))
    keys = [column.slice(0, rows) for column in columns]
    asked = [column.take([*range(len(column))[:1], *range(len(column))[::-1]]) for column in columns]
    asked = [column.slice(0, min(map(len, asked))) for column in asked]  # other pairs, most of which are no keys
    index = index_of(keys)
    expected = {key: row for row, key in enumerate(zip(*[column.to_pylist() for column in keys], strict=True))}
    tuples = zip(*[column.to_pylist() for column in asked], strict=True)
    assert find(index, keys_of(asked)).tolist() == [-1 if None in key else expected.get(key, -1) for key in tuples]


@pytest.mark.parametrize("multiple", [1, 977])
def test_many_integers(multiple: int) -> None:
    rng = np.random.default_rng(4)
    keys = rng.permutation(20_000) * multiple
    asked = rng.integers(-10, 25_000, 50_000) * multiple
    rows = {key: row for row, key in enumerate(keys.tolist())}
    index = index_of([sa.array(keys)])
    assert ("dense" in index) is (multiple == 1)
    assert find(index, keys_of([sa.array(asked)])).tolist() == [rows.get(key, -1) for key in asked.tolist()]
    wide = rows.get(int(keys[5]))
    assert find(index, keys_of([sa.array([int(keys[5]) + (1 << 40)])])).tolist() == [-1]
    assert wide == 5


def test_keys_with_one_hash(monkeypatch: pytest.MonkeyPatch) -> None:
    """Hashes only select the rows to compare."""
    monkeypatch.setattr(key_index, "hashes_of_runs", lambda data, starts, lengths: np.zeros(len(starts), np.uint64))
    words = [f"{i:x}" for i in range(50)]
    index = index_of([sa.array(words)])
    asked = ["31", "0", "zz", "", *words[::3]]
    assert find(index, keys_of([sa.array(asked)])).tolist() == [
        words.index(word) if word in words else -1 for word in asked
    ]
    with pytest.raises(sa.InvalidData, match=r"rows 2 and 50 have the same key \('2'\)"):
        index_of([sa.array([*words, "2"])])


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ([[3, 5, 4, 5]], r"rows 1 and 3 have the same key \(5\), expected each key once"),
        ([[3, 1 << 50, 4, 1 << 50]], rf"rows 1 and 3 have the same key \({1 << 50}\)"),
        ([["a", None, "b", None, "a"]], r"rows 0 and 4 have the same key \('a'\)"),
        ([["a", "a", "a"], [1, 2, 1]], r"rows 0 and 2 have the same key \('a', 1\)"),
    ],
)
def test_keys_that_are_not_unique(columns: list[list[Any]], message: str) -> None:
    with pytest.raises(sa.InvalidData, match=message):
        index_of([sa.array(column) for column in columns])
