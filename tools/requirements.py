"""Print requirements in pyproject.toml, one a line: those of the core, and of the named extras and dependency groups.

``python tools/requirements.py [--lowest] NAME...``; ``--lowest`` pins each to the lowest version that it allows.
"""

from __future__ import annotations

import re
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

PYPROJECT = tomllib.loads(Path(__file__).parent.parent.joinpath("pyproject.toml").read_text(encoding="utf-8"))
PROJECT = PYPROJECT["project"]
LISTS: dict[str, list[Any]] = PROJECT["optional-dependencies"] | PYPROJECT["dependency-groups"]
OF_EXTRA = re.compile(rf"{PROJECT['name']}\[([a-z,]+)\]")
LOWEST = re.compile(r"(?<=[\w\]])(?:==|>=)([0-9.]+)(?:,<[0-9.]+)?")


def expanded(entries: list[Any]) -> Iterator[str]:
    """The requirements in a list, with those of the extras and groups that it refers to."""
    for entry in entries:
        if isinstance(entry, dict):
            yield from expanded(LISTS[entry["include-group"]])
        elif of_extra := OF_EXTRA.fullmatch(entry):
            yield from expanded([each for extra in of_extra[1].split(",") for each in LISTS[extra]])
        else:
            yield entry


def requirements(names: list[str]) -> list[str]:
    """The requirements of the core and of the extras and groups, each once."""
    return list(dict.fromkeys(expanded([*PROJECT["dependencies"], *(each for name in names for each in LISTS[name])])))


def lowest(requirement: str) -> str:
    """The requirement of the lowest version."""
    pinned, count = LOWEST.subn(r"==\1", requirement, count=1)
    if not count:
        sys.exit(f"pyproject.toml: {requirement!r} has no lower bound; write it as NAME>=VERSION")
    return pinned


if __name__ == "__main__":
    pinned = sys.argv[1:2] == ["--lowest"]
    for each in requirements(sys.argv[1 + pinned :]):
        print(lowest(each) if pinned else each)
