"""Every example runs: the ``python`` blocks of README.md and of the guide, and the docstrings of the package.

The blocks of one file run in order, in one namespace, in a process and a folder of their own, twice (pages with Spark
share a process, and run once), at the line numbers that they have in the file, so that a traceback leads to the
example. A ``text`` block that directly follows a ``python`` block shows what that one prints.
"""

from __future__ import annotations

import doctest
import importlib
import importlib.util
import os
import pkgutil
import re
import subprocess
import sys
import tomllib
from collections.abc import Sequence
from pathlib import Path
from xml.etree import ElementTree

import pytest
import spark_lab
from environment import PREFIX, ROOT, remove_shm, shm_entries

import shmarrow

PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
MODULES = ["shmarrow", *(module.name for module in pkgutil.walk_packages(shmarrow.__path__, "shmarrow."))]

WITH_SPARK = """
import contextlib, runpy, sys, traceback
from shmarrow.spark import app_store
app_store.default_location = lambda user=None: sys.argv[1]
for script in sys.argv[2:]:
    with open(f"{script}.out", "w") as out, open(f"{script}.err", "w") as err, contextlib.redirect_stdout(out):
        try:
            runpy.run_path(script, run_name="__main__")
        except BaseException:
            traceback.print_exc(file=err)
"""
"""Runs pages in one process, as each Java process takes seconds, with a store for Spark that is removed with them."""

TWICE = """
import runpy, sys
for _ in range(2):
    runpy.run_path(sys.argv[1], run_name="__main__")
"""
"""Runs a page again: what it left is no obstacle. Imports take most of the time, so that is in the same process."""

END = "\x1d"
"""Printed after each block of a page whose output is compared."""


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
    """Return the output that a page shows for its ``python`` blocks, by the number of the block."""
    blocks = re.findall(r"^```python\n.*?^```$(?:\n\n```text\n(.*?)^```$)?", page, re.MULTILINE | re.DOTALL)
    return {number: text for number, text in enumerate(blocks) if text}


def code_of(page: Path) -> str:
    text = page.read_text(encoding="utf-8")
    return program(text, f"print({END!r}, end='', flush=True)" if shown_output(text) else "")


def uses_spark(page: Path) -> bool:
    return re.search(r"^\s*(import|from) (pyspark|shmarrow\.spark)\b", code_of(page), re.MULTILINE) is not None


def left_by(pages: Sequence[Path], before: set[str]) -> list[str]:
    """Return the names that pages left in shared memory, and remove them."""
    named = tuple(name for page in pages for name in re.findall(r"shm:([\w.-]+)", code_of(page)))
    left = sorted(name for name in shm_entries() - before if name.startswith(named)) if named else []
    for name in left:
        remove_shm(name)
    return left


def script_of(page: Path, folder: Path) -> Path:
    """The program of a page; no name of a module that it imports."""
    script = folder / f"page-{page.stem}.py"
    script.write_text(code_of(page), encoding="utf-8")
    return script


def skip_without(error: str) -> None:
    """Skip the test if an error names a library that is not installed."""
    for name in re.findall(r"No module named '(\w+)", error):
        if importlib.util.find_spec(name) is None:
            pytest.skip(f"needs {name}, which is not installed")


@pytest.fixture(scope="module")
def with_spark(java: None, tmp_path_factory: pytest.TempPathFactory) -> dict[Path, tuple[str, str]]:
    """The output of the pages with Spark, and their tracebacks."""
    folder, pages = tmp_path_factory.mktemp("pages"), [page for page in PAGES if uses_spark(page)]
    scripts = [script_of(page, folder) for page in pages]
    store, before = f"{PREFIX}pages", shm_entries()
    command = [sys.executable, "-c", WITH_SPARK, f"shm:{store}", *[script.name for script in scripts]]
    environment = {**os.environ, **spark_lab.variables()}
    try:
        ran = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=320, env=environment)
    finally:
        remove_shm(store)
        left = left_by(pages, before)
    assert ran.returncode == 0, ran.stderr
    assert not left, f"{[page.name for page in pages]} leave in shared memory: {left}"
    return {
        page: (Path(f"{script}.out").read_text(encoding="utf-8"), Path(f"{script}.err").read_text(encoding="utf-8"))
        for page, script in zip(pages, scripts, strict=True)
    }


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
@pytest.mark.timeout(340)
def test_page(page: Path, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    if uses_spark(page):
        printed, error = request.getfixturevalue("with_spark")[page]
    else:
        command, before = [sys.executable, "-c", TWICE, script_of(page, tmp_path).name], shm_entries()
        ran = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=320)
        left = left_by([page], before)
        skip_without(ran.stderr)
        assert not left, f"{page.name} leaves in shared memory: {left}"
        printed, error = ran.stdout, ran.stderr if ran.returncode else ""
    skip_without(error)
    assert not error, f"{page.name} failed:\n{error}"
    blocks = printed.split(END)
    for number, expected in shown_output(page.read_text(encoding="utf-8")).items():
        assert blocks[number] == expected, f"{page.name}: block {number + 1} prints something else"


def test_tests_that_pages_name_exist() -> None:
    """Pages name the tests that show what they promise."""
    defined = {
        name for path in (ROOT / "tests").rglob("*.py") for name in re.findall(r"def (test_\w+)", path.read_text())
    }
    named = {name: page.name for page in PAGES for name in re.findall(r"`(test_\w+)`", page.read_text())}
    assert len(named) > 30
    assert not {name: page for name, page in named.items() if name not in defined}


LINK = r"\]\(([^)#]+)(?:#[^)]*)?\)"


def test_links_of_the_readme_lead_somewhere_in_a_clone_and_on_a_package_index() -> None:
    """They lead to files of this repository, and are absolute in what is built."""
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    files = [link for link in re.findall(LINK, text) if not link.startswith("https://")]
    assert len(files) > 10
    assert [link for link in files if not (ROOT / link).is_file()] == []
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["hatch"]["metadata"]
    for each in settings["hooks"]["fancy-pypi-readme"]["substitutions"]:
        text = re.sub(each["pattern"], each["replacement"], text)
    built = re.findall(LINK, text)
    pictures = [link for link in files if link.endswith((".svg", ".png"))]
    assert [link for link in built if not link.startswith("https://")] == []
    assert [link for link in built if link.startswith("https://raw.")] == [
        f"https://raw.githubusercontent.com/shmarrow/shmarrow/main/{picture}" for picture in pictures
    ]


@pytest.mark.timeout(340)
def test_blocks_of_the_readme_need_no_other_block(tmp_path: Path) -> None:
    """Each runs in a process of its own, twice, from the last to the first, in one folder; Spark's with the page."""
    blocks = re.findall(r"^```python\n(.*?)^```$", (ROOT / "README.md").read_text(encoding="utf-8"), re.M | re.S)
    alone = [block for block in reversed(blocks) if "shmarrow.spark" not in block]
    assert len(blocks) > len(alone) > 3
    for block in alone:
        (tmp_path / "block.py").write_text(block, encoding="utf-8")
        command = [sys.executable, "-c", TWICE, "block.py"]
        ran = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=160)
        assert ran.returncode == 0 or "No module named" in ran.stderr, ran.stderr


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
def test_docstrings(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    try:
        module = importlib.import_module(name)
    except ImportError as error:
        skip_without(str(error))
        raise
    failed, _ = doctest.testmod(module, optionflags=doctest.NORMALIZE_WHITESPACE)
    report = capsys.readouterr().out
    skip_without(report)
    assert failed == 0, report
