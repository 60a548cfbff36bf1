"""Check text files: one newline at the end, no trailing spaces, no tabs in Python and Markdown, no conflict markers.

``python tools/check_text.py [FILE...]``, by default all files that git tracks. Prints each finding; exit status 1 if
there are any.
"""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

SKIPPED = re.compile(r"(^|/)(LICENSE|[^/]*\.(svg|json|png|arrow|bin|min\.js))$")
RULES = (
    (re.compile(r"[ \t]+$"), "trailing spaces"),
    (re.compile(r"^(<<<<<<< |>>>>>>> |=======$)"), "a conflict marker"),
)


def findings(path: Path) -> Iterator[str]:
    """Yield the problems of a file, each with its line; none for files that are not text."""
    try:
        text = path.read_bytes().decode()
    except (UnicodeDecodeError, OSError):
        return
    for number, line in enumerate(text.split("\n"), 1):
        for pattern, what in RULES:
            if pattern.search(line):
                yield f"{path}:{number}: {what}"
        if path.suffix in (".py", ".md") and "\t" in line:
            yield f"{path}:{number}: a tab"
    if text and (not text.endswith("\n") or text.endswith("\n\n")):
        yield f"{path}: expected exactly one newline at the end"


def main(names: list[str]) -> int:
    if not names:
        names = subprocess.run(["git", "ls-files"], capture_output=True, text=True, check=True).stdout.splitlines()
    found = [finding for name in names if not SKIPPED.search(name) for finding in findings(Path(name))]
    print("\n".join(found), end="\n" if found else "")
    return bool(found)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
