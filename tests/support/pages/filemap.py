"""Write the table in docs/contributing.md: the folders of the package, with what each is."""

from __future__ import annotations

import ast
import re
from pathlib import Path

from environment import ROOT

PAGE = ROOT / "docs" / "contributing.md"
BEGIN, END = "<!-- files -->\n", "<!-- end of files -->\n"


def summary(path: Path) -> str:
    """The first line of a file's docstring, in Markdown."""
    text = (ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or "").partition("\n")[0]
    return re.sub(r"(?::\w+:)?`+~?(?:shmarrow\.)?([^`]+)`+", r"`\1`", text).replace("|", "\\|")


def table() -> str:
    """The folders of the package, in alphabetical order."""
    package = ROOT / "shmarrow"
    names = {path.parent.relative_to(package).as_posix(): path for path in package.rglob("*/__init__.py")}
    rows = [f"| `{name}/` | {summary(path)} |" for name, path in sorted(names.items()) if name != "."]
    return "\n".join(["", "| folder | what it is |", "| --- | --- |", *rows, "", ""])


def page() -> str:
    """The whole page, with the table as it should be."""
    before, _, rest = PAGE.read_text(encoding="utf-8").partition(BEGIN)
    return before + BEGIN + table() + END + rest.partition(END)[2]


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
