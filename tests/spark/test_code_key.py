"""Keys of functions, as ``once`` has them: what a function does, not where it stands."""

from __future__ import annotations

import functools
import subprocess
import sys
import threading
from collections.abc import Callable
from typing import Any

import pytest
from environment import ROOT

from shmarrow.spark.values import code_key

pytestmark = pytest.mark.processes

CELL = """
def load(path="a", *, size=3):
    {comment}
    def inner(x):
        return x * {factor} + {offset}
    return [inner(i) for i in range(size)], path, frozenset({{"a", "b", "c"}})
"""


def defined(factor: int = 2, offset: str = "1", comment: str = "pass", before: str = "") -> Callable[..., Any]:
    names: dict[str, Any] = {"__name__": "__main__"}
    exec(before + CELL.format(factor=factor, offset=offset, comment=comment), names)
    found: Callable[..., Any] = names["load"]
    return found


def closing_over(value: Any) -> Callable[[], Any]:
    return lambda: value


def recursive() -> Callable[..., Any]:
    def f(n: int) -> Any:
        return f(n - 1) if n else 0

    return f


def test_the_same_code_has_the_same_key() -> None:
    key = code_key(defined())
    assert code_key(defined(before="\n\n\n", comment="# said otherwise\n    pass")) == key
    assert code_key(recursive()) == code_key(recursive())
    assert code_key(closing_over([1, {"a": (2.0, None)}])) == code_key(closing_over([1, {"a": (2.0, None)}]))
    assert code_key(functools.partial(defined(), size=4)) == code_key(functools.partial(defined(), size=4))


def test_other_code_has_another_key() -> None:
    partials = [functools.partial(defined(), *arguments) for arguments in ((), ("b",))]
    functions = [
        defined(), defined(factor=3), defined(offset="1.0"), defined(offset="True"), defined(offset="len('')"),
        defined(offset="abs('')"), *partials, closing_over(1), closing_over("1"), closing_over(b"1"), closing_over([1]),
        closing_over((1,)), closing_over({1}), closing_over(closing_over(1)), closing_over(object), closing_over(None),
        closing_over(...), recursive(), print, dict, [1].append, [2].append,
    ]  # fmt: skip
    assert len({code_key(function) for function in functions}) == len(functions)
    other = defined()
    other.__defaults__ = ("b",)
    assert code_key(other) != code_key(defined())
    other = defined()
    other.__kwdefaults__ = {"size": 4}
    assert code_key(other) != code_key(defined())


def test_other_processes_have_the_same_keys() -> None:
    """Those of one application, as Spark gives all its workers one seed for the order of sets."""
    code = "from test_code_key import *; print(code_key(defined()), code_key(closing_over({'a', 'b', 'c'})))"
    said = [
        subprocess.run(
            [sys.executable, "-c", code], capture_output=True, text=True, check=True,
            env={"PYTHONHASHSEED": "0", "PYTHONPATH": f"{ROOT}:{ROOT}/tests/spark:{ROOT}/tests/support"},
        ).stdout
        for _ in range(2)
    ]  # fmt: skip
    assert said[0] == said[1]
    assert len(set(said[0].split())) == 2


def test_what_cannot_be_pickled_is_never_taken_for_another() -> None:
    lock = threading.Lock()
    assert code_key(closing_over(lock)) != code_key(closing_over(lock))
