"""Loops that a signal handler leaves: from Python 3.13 on, what it raises at the end of a turn may skip a ``try``.

The instruction that jumps back may be outside the range of the handler, so ``with`` does not release a lock, and
``finally`` does not run. Where that matters, the loop is in a function of its own, as in the state machines.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Sequence

from environment import ROOT

LOCKS = re.compile(r"lock|mutex|\bturn\b|\bchange\(")

HARMLESS = {
    "read_record_batch": "a stream is released with its capsule",
    "read_chunks": "a stream is released with its capsule",
    "read_next_batch": "it turns only where a signal handler has taken the batch meanwhile",
    "open_object": "a descriptor of an interrupted wait stays open",
}


def must_end(node: ast.AST) -> bool:
    """Whether a statement does something at its end, whatever has happened."""
    if isinstance(node, ast.With):
        return any(LOCKS.search(ast.unparse(item.context_expr)) for item in node.items)
    caught = [each.type and ast.unparse(each.type) for each in node.handlers] if isinstance(node, ast.Try) else []
    return isinstance(node, ast.Try) and (bool(node.finalbody) or None in caught or "BaseException" in caught)


def within(statements: Sequence[ast.stmt]) -> Iterator[ast.stmt]:
    """The statements that a function executes itself."""
    for statement in statements:
        if not isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            yield statement
            for part in ("body", "orelse", "finalbody"):
                yield from within(getattr(statement, part, []))
            for handler in getattr(statement, "handlers", []):
                yield from within(handler.body)


def found_in(source: str) -> set[str]:
    """The functions in which such a loop is in the body of a statement that must end."""
    functions = [node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.FunctionDef)]
    return {
        function.name
        for function in functions
        for node in within(function.body)
        if isinstance(node, ast.With | ast.Try) and must_end(node)
        if any(isinstance(inner, ast.While) for inner in within(node.body))
    }


def test_such_a_loop_is_found() -> None:
    loop = "    while more():\n            work()\n"
    assert found_in(f"def f():\n    with lock:\n    {loop}") == {"f"}
    assert found_in(f"def f():\n    try:\n    {loop}    finally:\n        end()") == {"f"}
    assert found_in(f"def f():\n    try:\n    {loop}    except BaseException:\n        end()") == {"f"}
    assert found_in(f"def f():\n    try:\n    {loop}    except ValueError:\n        end()") == set()
    assert found_in("def f():\n    with lock:\n        for i in some:\n            work()") == set()


def test_no_loop_skips_what_must_be_done() -> None:
    paths = (ROOT / "shmarrow").rglob("*.py")
    names = {name for path in paths for name in found_in(path.read_text(encoding="utf-8"))}
    assert names == set(HARMLESS)
