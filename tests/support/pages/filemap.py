"""Write the table in docs/contributing.md: the folders of the package, with what each is."""

from __future__ import annotations

import ast
import re
from pathlib import Path

from environment import ROOT
from marked import filled, table

PAGE = ROOT / "docs" / "contributing.md"


def summary(path: Path) -> str:
    """The first line of a file's docstring, in Markdown."""
    text = (ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or "").partition("\n")[0]
    return re.sub(r"(?::\w+:)?`+~?(?:shmarrow\.)?([^`]+)`+", r"`\1`", text).replace("|", "\\|")


def page() -> str:
    """The whole page, with the folders of the package in alphabetical order."""
    package = ROOT / "shmarrow"
    names = {path.parent.relative_to(package).as_posix(): path for path in package.rglob("*/__init__.py")}
    rows = [(f"`{name}/`", summary(path)) for name, path in sorted(names.items()) if name != "."]
    return filled(PAGE, files=table(("folder", "what it is"), rows))


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
