"""Every example runs: the ``python`` blocks of README.md and of the guide, and the docstrings of the package.

The blocks of one file run in order, in one namespace, in a process and a folder of their own, and at the line numbers
that they have in the file, so that a traceback leads to the example.
"""

from __future__ import annotations

import doctest
import importlib
import os
import pkgutil
import re
import subprocess
import sys
from pathlib import Path

import pytest
from conftest import ROOT, remove_shm, shm_entries
from spark_lab import JAVA

import shmarrow

PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
MODULES = ["shmarrow", *(module.name for module in pkgutil.walk_packages(shmarrow.__path__, "shmarrow."))]

WITH_SPARK = """
import runpy, sys
from shmarrow.spark import home
home.default_location = lambda where=sys.argv[2]: where
runpy.run_path(sys.argv[1], run_name="__main__")
"""
"""Runs a page with a store for Spark that is no other application's, and is removed with the test."""


def program(page: str) -> str:
    """The ``python`` blocks of a page, with a blank line for every line that is not in one."""
    lines = []
    indent = None
    for line in page.splitlines():
        fence = re.fullmatch(r"( *)```(.*)", line)
        if fence:
            opens = indent is None and fence[2] == "python"
            indent = len(fence[1]) if opens else None
            lines.append("")
        else:
            lines.append("" if indent is None else line[indent:])
    return "\n".join(lines) + "\n"


def test_program_keeps_line_numbers() -> None:
    page = "text\n```python\na = 1\n```\n```sh\nb\n```\n  ```python\n  if a:\n      c = 2\n  ```\n"
    assert program(page).splitlines() == ["", "", "a = 1", "", "", "", "", "", "if a:", "    c = 2", ""]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
@pytest.mark.timeout(240)
def test_page(page: Path, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    code = program(page.read_text(encoding="utf-8"))
    script = tmp_path / f"page-{page.stem}.py"  # no name of a module that the page imports
    script.write_text(code, encoding="utf-8")
    command, environment = [sys.executable, script.name], dict(os.environ)
    if re.search(r"^\s*(import|from) (pyspark|shmarrow\.spark)\b", code, re.MULTILINE):
        request.getfixturevalue("java")
        command = [sys.executable, "-c", WITH_SPARK, script.name, request.getfixturevalue("shm_name")]
        environment["JAVA_TOOL_OPTIONS"] = JAVA
    before = shm_entries()
    ran = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=220, env=environment)
    named = tuple(re.findall(r"shm:([\w.-]+)", code))
    left = sorted(name for name in shm_entries() - before if name.startswith(named)) if named else []
    for name in left:
        remove_shm(name)
    assert ran.returncode == 0, f"{page.name} failed:\n{ran.stderr}"
    assert not left, f"{page.name} leaves in shared memory: {left}"


def test_tests_that_pages_name_exist() -> None:
    """What a page promises is shown by tests of these names."""
    defined = {
        name for path in (ROOT / "tests").rglob("*.py") for name in re.findall(r"def (test_\w+)", path.read_text())
    }
    named = {name: page.name for page in PAGES for name in re.findall(r"`(test_\w+)`", page.read_text())}
    assert len(named) > 30
    assert not {name: page for name, page in named.items() if name not in defined}


@pytest.mark.parametrize("name", MODULES)
def test_docstrings(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    failed, _ = doctest.testmod(importlib.import_module(name), optionflags=doctest.NORMALIZE_WHITESPACE)
    assert failed == 0, "the report of doctest stands above, under 'Captured stdout'"
