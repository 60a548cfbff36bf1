"""Every example runs: the ``python`` blocks of README.md and of the guide, and the docstrings of the package.

The blocks of one file run in order, in one namespace, in a process and a folder of their own, and at the line numbers
that they have in the file, so that a traceback leads to the example. A ``text`` block that directly follows a
``python`` block shows what that one prints.
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
from xml.etree import ElementTree

import pytest
import spark_lab
from conftest import ROOT, remove_shm, shm_entries

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


END = "\x1d"
"""What a page prints after each of its blocks when its output is compared."""


def program(page: str, end: str = "") -> str:
    """The ``python`` blocks of a page, with blank lines for all other lines; ``end`` follows each block."""
    lines = []
    indent = None
    for line in page.splitlines():
        fence = re.fullmatch(r"( *)```(.*)", line)
        if fence:
            opens = indent is None and fence[2] == "python"
            lines.append("" if indent is None else end)
            indent = len(fence[1]) if opens else None
        else:
            lines.append("" if indent is None else line[indent:])
    return "\n".join(lines) + "\n"


def test_program_keeps_line_numbers() -> None:
    page = "text\n```python\na = 1\n```\n```sh\nb\n```\n  ```python\n  if a:\n      c = 2\n  ```\n"
    assert program(page).splitlines() == ["", "", "a = 1", "", "", "", "", "", "if a:", "    c = 2", ""]


def shown_output(page: str) -> dict[int, str]:
    """What a page shows as the output of its ``python`` blocks, by the number of the block."""
    blocks = re.findall(r"^```python\n.*?^```$(?:\n\n```text\n(.*?)^```$)?", page, re.MULTILINE | re.DOTALL)
    return {number: text for number, text in enumerate(blocks) if text}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
@pytest.mark.timeout(240)
def test_page(page: Path, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    text = page.read_text(encoding="utf-8")
    shown = shown_output(text)
    code = program(text, f"print({END!r}, end='', flush=True)" if shown else "")
    script = tmp_path / f"page-{page.stem}.py"  # no name of a module that the page imports
    script.write_text(code, encoding="utf-8")
    command, environment = [sys.executable, script.name], dict(os.environ)
    if re.search(r"^\s*(import|from) (pyspark|shmarrow\.spark)\b", code, re.MULTILINE):
        request.getfixturevalue("java")
        command = [sys.executable, "-c", WITH_SPARK, script.name, request.getfixturevalue("shm_name")]
        environment |= spark_lab.variables()
    before = shm_entries()
    ran = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=220, env=environment)
    named = tuple(re.findall(r"shm:([\w.-]+)", code))
    left = sorted(name for name in shm_entries() - before if name.startswith(named)) if named else []
    for name in left:
        remove_shm(name)
    assert ran.returncode == 0, f"{page.name} failed:\n{ran.stderr}"
    assert not left, f"{page.name} leaves in shared memory: {left}"
    printed = ran.stdout.split(END)
    for number, expected in shown.items():
        assert printed[number] == expected, f"{page.name}: block {number + 1} prints something else"


def test_tests_that_pages_name_exist() -> None:
    """What a page promises is shown by tests of these names."""
    defined = {
        name for path in (ROOT / "tests").rglob("*.py") for name in re.findall(r"def (test_\w+)", path.read_text())
    }
    named = {name: page.name for page in PAGES for name in re.findall(r"`(test_\w+)`", page.read_text())}
    assert len(named) > 30
    assert not {name: page for name, page in named.items() if name not in defined}


GUIDE, CODE = "https://shmarrow.readthedocs.io/en/latest/", "https://github.com/shmarrow/shmarrow/blob/main/"
RAW = "https://raw.githubusercontent.com/shmarrow/shmarrow/main/"


def test_links_of_the_readme_work_on_a_package_index() -> None:
    """Links are absolute, and lead to pages, files and pictures of this repository."""
    links = re.findall(r"\]\(([^)]+)\)", (ROOT / "README.md").read_text(encoding="utf-8"))
    missing = []
    for link in links:
        if link.startswith(GUIDE):
            page = link.removeprefix(GUIDE).partition("#")[0] or "index.html"
            file = ROOT / "docs" / Path(page).with_suffix(".md")
            if page == "performance.html" and not file.is_file():
                file = ROOT / "tests" / "performance.py"  # makes it of the benchmarks' results
        elif link.startswith((CODE, RAW)):
            file = ROOT / link.removeprefix(CODE).removeprefix(RAW)
        else:
            assert link.startswith("https://"), f"{link} is not absolute"
            continue
        if not file.is_file():
            missing.append(link)
    assert len(links) > 10
    assert not missing


def test_pictures_are_legible_and_used() -> None:
    """Each has a description, colours for dark mode and a background of its own, and is shown by a page."""
    shown = {Path(link).name for page in PAGES for link in re.findall(r"!\[[^]]+\]\(([^)]+)\)", page.read_text())}
    svg = "{http://www.w3.org/2000/svg}"
    for picture in (ROOT / "docs" / "pictures").glob("*.svg"):
        root = ElementTree.parse(picture).getroot()
        assert root.findtext(f"{svg}title") or root.get("aria-label"), picture.name
        assert "prefers-color-scheme: dark" in picture.read_text(encoding="utf-8"), picture.name
        assert root.find(f"{svg}rect").get("width") == root.get("width"), f"{picture.name} has no background"
        assert picture.name in shown, f"no page shows {picture.name}"


@pytest.mark.parametrize("name", MODULES)
def test_docstrings(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    failed, _ = doctest.testmod(importlib.import_module(name), optionflags=doctest.NORMALIZE_WHITESPACE)
    assert failed == 0, "the report of doctest stands above, under 'Captured stdout'"
