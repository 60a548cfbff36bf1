"""A store as a mapping of names to objects, sizes in words, and what is refused when it is put."""

from __future__ import annotations

import pickle
from typing import Any

import numpy as np
import pytest
from put_all import put_all

import shmarrow as sa


def test_what_is_missing_has_a_default(where: str) -> None:
    with sa.Store(where) as store:
        assert store.get("a", None) is None
        assert store.get("a", default=5, timeout=0.01) == 5
        store.put("a", 1)
        assert store.get("a", None) == 1
        with pytest.raises(sa.InvalidType, match="expected 'a' to be a str"):
            store.get("a", None, kind=str)
        with pytest.raises(sa.ObjectNotFound):
            store.get("b")


def test_names_and_objects(where: str) -> None:
    with sa.Store(where) as store:
        put_all(store, {"b": 2, "a": 1, "c/d": "text"})
        assert store.keys() == store.names() == ["a", "b", "c/d"]
        assert dict(store) == dict(store.items()) == {"a": 1, "b": 2, "c/d": "text"}
        assert list(store.items("c")) == [("c/d", "text")]
        found = []
        for name, value in store.items():
            store.clear()
            found.append((name, value))
        assert found == [("a", 1)]


@pytest.mark.parametrize(("text", "nbytes"), [("8GB", 8 << 30), ("64 MiB", 64 << 20), ("1t", 1 << 40), ("4096", 4096)])
def test_a_capacity_in_words(where: str, text: str, nbytes: int) -> None:
    with sa.Store(where, capacity=text) as store:
        assert store.capacity == nbytes
        store.configure(capacity="1M")
        assert store.capacity == 1 << 20
        for wrong in ("8 apples", "", "-1", "1.5GB"):
            with pytest.raises(sa.InvalidType, match="a number of bytes, or text such as '64MiB' or '8GB'"):
                store.configure(capacity=wrong)


def nested(levels: int) -> sa.Array:
    type: Any = sa.int64()
    value: Any = 1
    for _ in range(levels):
        type, value = sa.list_(type), [value]
    return sa.array([value], type)


@pytest.mark.parametrize(
    "make",
    [
        lambda array: array,
        lambda array: sa.chunked_array([array, array]),
        lambda array: sa.record_batch({"plain": [1], "deep": array}),
        lambda array: sa.table({"deep": array}),
    ],
)
def test_what_could_not_be_read_is_refused(where: str, make: Any) -> None:
    with sa.Store(where) as store:
        store.put("deep", make(nested(63)))
        assert store.get("deep") == make(nested(63))
        with pytest.raises(sa.InvalidType, match="types nest deeper than") as error:
            store.put("deeper", make(nested(64)))
        assert error.value.hint == "write a file, and read it with other Limits"
        assert store.names() == ["deep"]


@pytest.mark.parametrize("size", [3, 3000])
def test_handles_of_small_and_large_objects(where: str, size: int) -> None:
    """Those of small ones have the values."""
    numbers = np.arange(float(size))
    values = {
        "batch": sa.record_batch({"x": numbers}),
        "table": sa.table({"x": numbers}),
        "array": sa.array(numbers),
        "tensor": sa.Tensor.from_numpy(numbers),
    }
    with sa.Store(where) as store:
        put_all(store, values | {"bundle": {"w": numbers}})
        for name, value in values.items():
            assert pickle.loads(pickle.dumps(sa.handle(store.get(name)))).open() == value
        bundle = pickle.loads(pickle.dumps(sa.handle(store.get("bundle")))).open()
        assert bundle["w"].to_numpy().tolist() == numbers.tolist()
        del bundle
