"""Print figures of the package's structure for one revision or more: lines, files, circles, imports, calls.

Usage: .venv/bin/python tools/figures.py [REVISION ...]; by default HEAD

They depend on the code alone, not on the machine or its load, so a change shows what it did to them:

* code lines: lines that are not blank, a comment or a docstring;
* imports: pairs of files of which one imports the other, at any time, but for type checkers;
* circles: how many files each group has whose files all lead to each other by imports;
* lines imported: lines of the package's files that are loaded when something is done in a new process;
* calls: calls of Python functions when something is done for the third time. Builtins are not counted.
"""

from __future__ import annotations

import ast
import io
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path

SETUP = """
import functools, io, os, sys
import numpy as np
import shmarrow as sa
folder, numbers = os.path.abspath("made"), iter(range(10**6))
os.makedirs(folder, exist_ok=True)
def batch_of(count):
    return sa.record_batch({f"c{i}": np.arange(20.0) for i in range(count)})
def write(batch):
    path = f"{folder}/{next(numbers)}.arrow"
    with sa.ipc.new_file(path, batch.schema) as writer:
        writer.write(batch)
    return path
"""

IMPORTED = {
    "write a file": "write(batch_of(1))",
    "open a file": "sa.ipc.open_file(f'{folder}/0.arrow').get_batch(0).column(0).to_numpy()",
    "put and get": "store = sa.Store(f'{folder}/store'); store.put('x', np.ones(3)); store.get('x'); store.destroy()",
    "scan a file": "sa.scan(f'{folder}/0.arrow').to_table()",
}
"""What is done in a new process each; the first writes the file ``0.arrow`` that others read."""

LOADED = """
loaded = [module.__file__ for name, module in list(sys.modules.items()) if name.split(".")[0] == "shmarrow"]
print(sum(len(open(file).readlines()) for file in loaded if file))
"""

CALLS = """
five, ten = batch_of(5), batch_of(10)
file = write(five)
buffer = io.BytesIO()
with sa.ipc.new_stream(buffer, five.schema) as writer:
    for _ in range(100):
        writer.write(five)
stream = buffer.getvalue()
store = sa.Store(f"{folder}/calls")
store.put("five", five), store.put("small", np.arange(100.0)), store.put("large", np.arange(100_000.0))
actions = {
    "open a file, one of 5 columns to numpy": lambda: sa.ipc.open_file(file).get_batch(0).column(0).to_numpy(),
    "a batch of a stream": lambda: sa.ipc.open_stream(stream).read_all(),
    "write a file of 5 columns": functools.partial(write, five),
    "put 5 columns": lambda: store.put(f"b{next(numbers)}", five),
    "get 5 columns": lambda: store.get("five"),
    "put 100 numbers": lambda: store.put(f"a{next(numbers)}", np.arange(100.0)),
    "get 100 numbers": lambda: store.get("small"),
    "get 100,000 numbers": lambda: store.get("large"),
    "export 10 columns": lambda: sa.record_batch(ten.columns, ten.schema.names).__arrow_c_array__(),
    "scan a file": lambda: sa.scan(file).to_table(),
}
for name, action in actions.items():
    calls = 0
    def count(frame, event, argument):
        global calls
        calls += event == "call"
    action(), action()
    sys.setprofile(count)
    action()
    sys.setprofile(None)
    calls -= 1  # that of the action itself
    print(f"calls: {name}", calls / 100 if name == "a batch of a stream" else calls, sep="\\t")
store.destroy()
"""


def code_lines(text: str) -> int:
    """Count the lines of a file that are not blank, a comment or a docstring."""
    lines = {i for i, line in enumerate(text.splitlines(), 1) if line.strip() and not line.strip().startswith("#")}
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)) and node.body:
            match node.body[0]:
                case ast.Expr(value=ast.Constant(value=str())) as docstring:
                    lines -= set(range(docstring.lineno, (docstring.end_lineno or 0) + 1))
    return len(lines)


def imported_names(node: ast.AST) -> Iterator[str]:
    """The dotted names that code imports, without what only type checkers see."""
    match node:
        case ast.If(test=ast.Name(id="TYPE_CHECKING")):
            parts: Iterable[ast.AST] = node.orelse
        case ast.Import():
            yield from [alias.name for alias in node.names]
            parts = ()
        case ast.ImportFrom(module=str(module), level=0):
            yield from [f"{module}.{alias.name}" for alias in node.names]
            parts = ()
        case _:
            parts = ast.iter_child_nodes(node)
    for part in parts:
        yield from imported_names(part)


def imports(texts: dict[str, str]) -> dict[str, set[str]]:
    """The modules that each module imports; ``shmarrow`` itself, which leads to all, counts for nobody."""
    graph: dict[str, set[str]] = {}
    for module, text in texts.items():
        graph[module] = set()
        for name in imported_names(ast.parse(text)):
            while name and name not in texts:
                name = name.rpartition(".")[0]
            graph[module] |= {name} - {"", module, "shmarrow"}
    return graph


def reached(graph: dict[str, set[str]], start: str) -> set[str]:
    """The modules that a module leads to."""
    found: set[str] = set()
    left = list(graph[start])
    while left:
        module = left.pop()
        if module not in found:
            found.add(module)
            left.extend(graph[module])
    return found


def circles(graph: dict[str, set[str]]) -> list[int]:
    """The sizes of all groups of modules that lead to each other, the largest first."""
    reach = {module: reached(graph, module) for module in graph}
    groups = {frozenset(other for other in reach[module] if module in reach[other]) for module in graph}
    return sorted([len(group) for group in groups if len(group) > 1], reverse=True)


def run(code: str, folder: Path) -> str:
    """Run code with the package that is in a folder; return what it prints, to where it fails."""
    done = subprocess.run([sys.executable, "-c", SETUP + code], cwd=folder, capture_output=True, text=True)
    if done.returncode:
        print(done.stderr, file=sys.stderr)
    return done.stdout


def figures(revision: str) -> dict[str, str]:
    """Measure a revision of the repository that the working directory is in."""
    archive = subprocess.run(["git", "archive", revision, "shmarrow"], stdout=subprocess.PIPE, check=True).stdout
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        with tarfile.open(fileobj=io.BytesIO(archive)) as package:
            package.extractall(folder, filter="data")
        paths = sorted(folder.glob("shmarrow/**/*.py"))
        names = [".".join(path.relative_to(folder).with_suffix("").parts).removesuffix(".__init__") for path in paths]
        texts = dict(zip(names, [path.read_text() for path in paths], strict=True))
        graph = imports(texts)
        result = {
            "lines": str(sum(len(text.splitlines()) for text in texts.values())),
            "code lines": str(sum(code_lines(text) for text in texts.values())),
            "files": str(len(texts)),
            "imports": str(sum(len(modules) for modules in graph.values())),
            "circles": " ".join(map(str, circles(graph))) or "none",
        }
        for name, code in IMPORTED.items():
            result[f"lines imported: {name}"] = run(f"{code}\n{LOADED}", folder).strip() or "failed"
        for line in run(CALLS, folder).splitlines():
            name, count = line.split("\t")
            result[name] = count
    return result


def main() -> None:
    revisions = sys.argv[1:] or ["HEAD"]
    tables = [figures(revision) for revision in revisions]
    print(f"{'':44}" + "".join(f"{revision[:19]:>20}" for revision in revisions))
    for name in dict.fromkeys(name for table in tables for name in table):
        print(f"{name:44}" + "".join(f"{table.get(name, '-'):>20}" for table in tables))


if __name__ == "__main__":
    main()
