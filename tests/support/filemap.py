"""Write the table in docs/contributing.md: the folders and top-level files of the package, with what each is."""

from __future__ import annotations

import ast
import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "contributing.md"
BEGIN, END = "<!-- files -->\n", "<!-- end of files -->\n"


def summary(path: Path) -> str:
    """The first line of a file's docstring, in Markdown."""
    text = (ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or "").partition("\n")[0]
    return re.sub(r"(?::\w+:)?`+~?(?:shmarrow\.)?([^`]+)`+", r"`\1`", text).replace("|", "\\|")


def table() -> str:
    """The folders of the package, and the files beside them, in alphabetical order."""
    package = ROOT / "shmarrow"
    paths = [*package.glob("*.py"), *package.rglob("*/__init__.py")]
    names = {path: path.relative_to(package).as_posix().removesuffix("__init__.py") for path in paths}
    rows = [
        f"| `{name or 'shmarrow/'}` | {summary(path)} |" for path, name in sorted(names.items(), key=lambda n: n[1])
    ]
    return "\n".join(["", "| folder or file | what it is |", "| --- | --- |", *rows, "", ""])


def page() -> str:
    """The whole page, with the table as it should be."""
    before, _, rest = PAGE.read_text(encoding="utf-8").partition(BEGIN)
    return before + BEGIN + table() + END + rest.partition(END)[2]


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
