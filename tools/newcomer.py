"""Do what a new user does with the wheel in dist/, away from the sources; `make newcomer` builds it first.

For each row of :data:`PATHS`, a new environment gets the wheel with some extras, and runs the blocks of the README in
order in one process. What a block prints has to be what the README shows. A block may fail only with an error that
names a package or an extra that this row does not install. One row then runs a part of the tests against the installed
wheel, in a copy of tests/ without the package beside it.

``python tools/newcomer.py [NAME...]`` runs the named rows only. Exit status 1 if anything fails.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
import tomllib
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).resolve().parent.parent
TESTS = (
    "ipc/test_ipc.py", "ipc/test_schemas_read.py", "ipc/test_compression.py", "build/test_building.py",
    "layout/test_layouts.py", "memory/test_segment.py", "store/test_store.py", "tensor/test_tensor.py",
    "tensor/test_bundle.py", "integration/test_golden.py", "cli/test_main.py",
)  # fmt: skip
"""Suites that need little but the wheel; `make test` runs all of them."""
SECONDS = 1800
"""The longest that one command may take; the whole run takes a quarter of an hour on an idle machine."""


class Install(NamedTuple):
    """One way to install the wheel: extras, further packages, and how many of the README's blocks run at least."""

    name: str
    extras: str = ""
    packages: tuple[str, ...] = ()
    blocks: int = 2
    tests: bool = False


PATHS = (
    Install("plain"),
    Install("arrow", "arrow"),
    Install("cli", "cli"),
    Install("pandas", "pandas", ("polars", "duckdb"), blocks=3),
    Install("tensor", "tensor"),
    Install("sparse", "sparse"),
    Install("torch", "torch", ("torch==2.13.0",), blocks=3),
    Install("jax", "jax"),
    Install("spark", "spark", blocks=3),
    Install("connect", "connect", blocks=3),
    Install("demo", "demo", blocks=3),
    Install("everything", "cli,pandas,spark,torch", ("polars", "duckdb", "torch==2.13.0"), blocks=5),
    Install("tests", "arrow,tensor", tests=True),
)

RUNNER = """
import contextlib as _contextlib, io as _io, json as _json, sys as _sys, traceback as _traceback
_found = []
for _code in _json.loads(_sys.argv[1]):
    _out, _error = _io.StringIO(), None
    try:
        with _contextlib.redirect_stdout(_out):
            exec(compile(_code, "README.md", "exec"), globals())
    except BaseException as _raised:
        _error = [type(_raised).__name__, str(_raised), getattr(_raised, "name", None), _traceback.format_exc()]
    _found.append((_out.getvalue(), _error))
print("\\x1d" + _json.dumps(_found))
"""
"""Runs blocks of code one after the other as ``__main__``, and prints the output and the error of each as JSON."""


def say(text: str) -> None:
    print(text, flush=True)


def run(*command: Any, **options: Any) -> subprocess.CompletedProcess[str]:
    """Run a program; its environment does not lead to the sources."""
    environment = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "VIRTUAL_ENV")}
    environment |= options.pop("env", {})
    defaults = {"text": True, "timeout": SECONDS, "check": False, "env": environment}
    return subprocess.run([str(part) for part in command], **(defaults | options))


def blocks() -> list[tuple[str, str | None]]:
    """The ``python`` blocks of the README, and for each the ``text`` block that follows it at once."""
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    found = re.findall(r"^```python\n(.*?)^```$(?:\n\n```text\n(.*?)^```$)?", text, re.MULTILINE | re.DOTALL)
    return [(code, shown or None) for code, shown in found]


def wheel() -> Path:
    """The one wheel in dist/, which `make wheel` has built."""
    found = list((ROOT / "dist").glob("*.whl"))
    if len(found) != 1:
        sys.exit(f"expected one wheel in dist/, found {len(found)}; run `make wheel`")
    return found[0]


def check_contents(path: Path) -> Iterator[str]:
    """Yield the files of the package that the wheel lacks, and those that it should not have."""
    held = set(zipfile.ZipFile(path).namelist())
    files = (file for file in (ROOT / "shmarrow").rglob("*") if file.is_file() and "__pycache__" not in file.parts)
    wanted = {file.relative_to(ROOT).as_posix() for file in files} | {"pyspark_shmarrow.py", "shmarrow_command.py"}
    yield from (f"the wheel lacks {name}" for name in sorted(wanted - held))
    tests = [name for name in held if name.startswith(("tests/", "benchmarks/", "docs/"))]
    yield from (f"the wheel should not contain {name}" for name in sorted(tests))


def allowed(error: list[Any], install: Install) -> bool:
    """Whether an error of a block names what this row does not install."""
    kind, message, name, _ = error
    if kind == "MissingExtra":
        wanted = re.search(r"shmarrow\[([a-z]+)\]", message)
        return wanted is not None and wanted[1] not in install.extras.split(",")
    listed = {re.split("[=<>]", package)[0] for package in install.packages}
    return kind == "ModuleNotFoundError" and name is not None and not name.startswith("shmarrow") and name not in listed


def read_me(python: Path, folder: Path, install: Install) -> Iterator[str]:
    """Run the README's blocks; what went wrong."""
    pairs = blocks()
    found = run(python, "-c", RUNNER, json.dumps([code for code, _ in pairs]), cwd=folder, capture_output=True)
    _, mark, rest = found.stdout.partition("\x1d")
    if not mark:
        yield f"the README's blocks ended with status {found.returncode}:\n{found.stdout}{found.stderr}"
        return
    ran = 0
    for number, ((_, shown), (printed, error)) in enumerate(zip(pairs, json.loads(rest), strict=True), 1):
        if error is None:
            ran += 1
            if shown is not None and printed != shown:
                yield f"block {number} of the README shows\n{shown}and printed\n{printed}"
        elif not allowed(error, install):
            yield f"block {number} of the README failed:\n{error[-1]}"
        else:
            say(f"    block {number}: {error[1].splitlines()[0]}")
    say(f"    {ran} of {len(pairs)} blocks ran")
    if ran < install.blocks:
        yield f"{ran} blocks of the README ran, expected at least {install.blocks}"


def commands(bin: Path, folder: Path) -> Iterator[str]:
    """Run what the wheel puts on PATH; what went wrong."""
    for command in ([bin / "shmarrow", "--version"], [bin / "python", "-m", "shmarrow", "--help"]):
        found = run(*command, cwd=folder, capture_output=True)
        if found.returncode or "shmarrow" not in found.stdout:
            yield f"{command} ended with status {found.returncode}:\n{found.stdout}{found.stderr}"


def suites(python: Path, folder: Path) -> Iterator[str]:
    """Run tests against the installed package; what went wrong."""
    group = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["dependency-groups"]["test"]
    run(python, "-m", "pip", "-q", "install", "--no-compile", *group, check=True)
    for name in ("tests", "format"):
        shutil.copytree(ROOT / name, folder / name, ignore=shutil.ignore_patterns("node_modules", "__pycache__"))
    shutil.copy(ROOT / "pyproject.toml", folder)
    data = os.environ.get("ARROW_TEST_DATA") or ROOT.parent / "shared" / "arrow-testing"
    files = [f"tests/{name}" for name in TESTS]
    found = run(
        python, "-m", "pytest", "-q", "-n", "2", "--dist", "loadfile", "-p", "no:cacheprovider", *files,
        cwd=folder, env={"ARROW_TEST_DATA": str(data)}, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
    )  # fmt: skip
    lines = found.stdout.splitlines() or [""]
    say(f"    {lines[-1].strip('= ')}")
    if found.returncode:
        yield "tests failed:\n" + "\n".join(line for line in lines if line.startswith(("FAILED", "ERROR", "E  ")))


def check(install: Install, path: Path) -> list[str]:
    """Install the wheel as a row says, and try it; what went wrong."""
    with tempfile.TemporaryDirectory(prefix=f"shmarrow-{install.name}-") as made:
        folder, bin = Path(made), Path(made, "venv", "bin")
        run(sys.executable, "-m", "venv", folder / "venv", check=True)
        wanted = f"{path}[{install.extras}]" if install.extras else str(path)
        done = run(bin / "python", "-m", "pip", "-q", "install", "--no-compile", wanted, *install.packages)
        if done.returncode:
            return ["pip could not install it"]
        work = folder / "work"
        work.mkdir()
        where = run(bin / "python", "-c", "import shmarrow; print(shmarrow.__file__)", cwd=work, capture_output=True)
        if not where.stdout.startswith(str(folder / "venv")):
            return [f"import shmarrow gives {where.stdout or where.stderr}"]
        failures = [*commands(bin, work), *read_me(bin / "python", work, install)]
        return failures + list(suites(bin / "python", work) if install.tests else ())


def main(names: list[str]) -> int:
    path = wheel()
    unknown = set(names) - {install.name for install in PATHS}
    if unknown:
        sys.exit(f"expected some of {[install.name for install in PATHS]}, found {sorted(unknown)}")
    failures = list(check_contents(path))
    for install in PATHS:
        if not names or install.name in names:
            began = time.monotonic()
            say(f"{install.name}: pip install 'shmarrow[{install.extras}]' {' '.join(install.packages)}")
            try:
                found = check(install, path)
            except subprocess.SubprocessError as error:
                found = [str(error)]
            say(f"    {'FAILED' if found else 'passed'} in {time.monotonic() - began:.0f} s")
            failures += [f"{install.name}: {failure}" for failure in found]
    say("\n".join(failures) or "all passed")
    return bool(failures)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
