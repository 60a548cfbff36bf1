"""Loops that a signal handler leaves: on Python 3.13, what it raises at the end of a turn may skip the ``try`` around.

The instruction that jumps back is then outside the range of the handler, so ``with`` does not release a lock, and
``finally`` does not run. Where that matters, the loop is in a function of its own; see
``shmarrow.memory.state_machine``.
"""

from __future__ import annotations

import ast
import dis
import re
import sys
import types
from collections.abc import Iterator

import pytest
from environment import ROOT

pytestmark = pytest.mark.skipif(sys.version_info < (3, 13), reason="in older versions, all of a loop is in the range")

LOCKS = re.compile(r"lock|mutex|\bturn\b|\bchange\(")

HARMLESS = {
    "read_record_batch": "a stream is released with its capsule",
    "read_chunks": "a stream is released with its capsule",
    "readable": "a descriptor of an interrupted rescue stays open",
    "_listed": "only a hint for the next call is lost",
}


def functions(code: types.CodeType) -> Iterator[types.CodeType]:
    yield code
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from functions(constant)


def skipping(code: types.CodeType) -> set[int]:
    """The lines of a function in which a jump back has another handler than where it leads to."""
    ranges = dis._parse_exception_table(code)  # type: ignore[attr-defined]

    def handler(offset: int) -> int | None:
        return next((each.target for each in ranges if each.start <= offset < each.end), None)

    jumps = [each for each in dis.get_instructions(code) if each.opname == "JUMP_BACKWARD"]
    return {each.positions.lineno for each in jumps if handler(each.offset) != handler(each.argval)}  # type: ignore


def must_end(node: ast.AST) -> bool:
    """Whether a statement does something at its end, whatever has happened."""
    if isinstance(node, ast.With):
        return any(LOCKS.search(ast.unparse(item.context_expr)) for item in node.items)
    caught = [each.type and ast.unparse(each.type) for each in node.handlers] if isinstance(node, ast.Try) else []
    return isinstance(node, ast.Try) and (bool(node.finalbody) or None in caught or "BaseException" in caught)


def found_in(source: str) -> list[str]:
    """The functions in which such a loop is in the body of a statement that must end."""
    tree, found = ast.parse(source), set()
    spans = [
        range(node.body[0].lineno, node.body[-1].end_lineno + 1)  # type: ignore
        for node in ast.walk(tree)
        if isinstance(node, ast.With | ast.Try) and must_end(node)
    ]
    for code in functions(compile(source, "source", "exec")) if spans else ():
        if any(line in span and span[0] > code.co_firstlineno for line in skipping(code) for span in spans):
            found.add(code.co_name)
    return sorted(found)


def test_such_a_loop_is_found() -> None:
    loop = "    while more():\n            work()\n"
    assert found_in(f"def f():\n    with lock:\n    {loop}") == ["f"]
    assert found_in(f"def f():\n    try:\n    {loop}    finally:\n        end()") == ["f"]
    assert found_in(f"def f():\n    try:\n    {loop}    except BaseException:\n        end()") == ["f"]
    assert found_in(f"def f():\n    try:\n    {loop}    except ValueError:\n        end()") == []
    assert found_in("def f():\n    with lock:\n        for i in some:\n            work()") == []


def test_no_loop_skips_what_must_be_done() -> None:
    paths = sorted((ROOT / "shmarrow").rglob("*.py"))
    names = {name for path in paths for name in found_in(path.read_text(encoding="utf-8"))}
    assert names == set(HARMLESS)
