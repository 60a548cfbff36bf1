"""Print the lowest version of each package that pyproject.toml allows, as constraints for pip: ``NAME==VERSION``.

``python tools/lowest.py NAME...`` prints those of the core and of the named extras and dependency groups.
"""

from __future__ import annotations

import re
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

PYPROJECT = tomllib.loads(Path(__file__).parent.parent.joinpath("pyproject.toml").read_text(encoding="utf-8"))
PROJECT = PYPROJECT["project"]
REQUIREMENT = re.compile(r"([A-Za-z0-9._-]+)(?:\[[a-z,]*\])?(?:[>=]=([0-9.]+))?(?:[,;].*)?")


def lowest(requirements: list[str]) -> Iterator[str]:
    """The constraint of each requirement; a reference to an extra of shmarrow itself has none."""
    for requirement in requirements:
        found = REQUIREMENT.fullmatch(requirement)
        if found is None or (found[2] is None and found[1] != PROJECT["name"]):
            sys.exit(f"pyproject.toml: {requirement!r} has no lower bound; write it as NAME>=VERSION")
        if found[2] is not None:
            yield f"{found[1]}=={found[2]}"


def main(names: list[str]) -> None:
    lists = PROJECT["optional-dependencies"] | PYPROJECT["dependency-groups"]
    for requirements in (PROJECT["dependencies"], *(lists[name] for name in names)):
        for constraint in lowest(requirements):
            print(constraint)


if __name__ == "__main__":
    main(sys.argv[1:])
