"""The files of the project agree: extras, dependency groups, the lock file, CI, and the files of a release."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from typing import Any

import pytest
from environment import ROOT

import shmarrow
from shmarrow.errors import EXTRAS as EXTRA_OF

PYPROJECT: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
EXTRAS: dict[str, list[str]] = PYPROJECT["project"]["optional-dependencies"]
GROUPS: dict[str, list[Any]] = PYPROJECT["dependency-groups"]
RELEASED = ("CHANGELOG.md", "CITATION.cff", "CONTRIBUTING.md", "LICENSE", "README.md", "SECURITY.md")


def group(name: str) -> Iterator[str]:
    """The requirements of a dependency group, with those that it includes."""
    for entry in GROUPS[name]:
        if isinstance(entry, str):
            yield entry
        else:
            yield from group(entry["include-group"])


def package(requirement: str) -> str:
    return re.split(r"[\[=<>;]", requirement)[0].lower().replace("_", "-")


def test_every_extra_that_a_text_names_exists() -> None:
    files = [*(ROOT / "shmarrow").rglob("*.py"), *(ROOT / "docs").rglob("*.md"), *ROOT.glob("*.md")]
    text = "\n".join(file.read_text(encoding="utf-8") for file in files)
    named = {name for names in re.findall(r"shmarrow\[([a-z,]+)\]", text) for name in names.split(",")}
    assert {"arrow", "torch"} <= named
    assert sorted(named - EXTRAS.keys()) == []


def test_what_is_optional_is_in_the_extra_that_the_error_names() -> None:
    for name, extra in EXTRA_OF.items():
        assert name.replace("_", "-") in map(package, EXTRAS[extra])


def printed(*command: str) -> list[str]:
    """The lines that a command prints in the root of the project."""
    return subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout.splitlines()


def test_each_module_names_its_license() -> None:
    paths = [*(ROOT / "shmarrow").rglob("*.py"), *ROOT.glob("*.py")]
    line = "# SPDX-License-Identifier: " + PYPROJECT["project"]["license"] + "\n"
    assert [path.name for path in paths if not path.read_text(encoding="utf-8").startswith(line)] == []


@pytest.mark.processes
def test_the_lock_has_what_the_environment_needs() -> None:
    (names,) = printed("tools/venv.sh", "names")
    lines = printed(sys.executable, "tools/requirements.py", *names.split())
    lock = (ROOT / "requirements" / "dev.txt").read_text(encoding="utf-8")
    pins = re.split(r"\n(?=\w)", lock)[1:]
    assert [pin for pin in pins if " --hash=sha256:" not in pin] == []
    assert sorted({package(line) for line in lines} - {package(pin) for pin in pins}) == [], "run `make lock`"
    assert "://" not in lock, "pip's configuration says which index it is"


@pytest.mark.processes
def test_requirements_are_expanded_or_pinned_to_the_lowest_version() -> None:
    core = PYPROJECT["project"]["dependencies"]
    script = [sys.executable, "tools/requirements.py"]
    expected = dict.fromkeys([*core, *EXTRAS["arrow"], *EXTRAS["pandas"][1:], EXTRAS["spark"][1], EXTRAS["demo"][1]])
    assert printed(*script, "demo") == list(expected)
    assert printed(*script, "dev")[len(core) :] == list(dict.fromkeys(group("dev")))
    lowest = printed(*script, "--lowest", "connect")
    assert "pyspark[connect]==4.1" in lowest
    assert [line for line in lowest if re.search("[<>]=", line)] == []


def test_ci_runs_the_pythons_of_the_classifiers() -> None:
    yaml = pytest.importorskip("yaml", reason="the package pyyaml is not installed")
    jobs = yaml.safe_load((ROOT / ".github" / "workflows" / "ci.yml").read_text(encoding="utf-8"))["jobs"]
    prefix = "Programming Language :: Python :: 3."
    pythons = [each.removeprefix(prefix) for each in PYPROJECT["project"]["classifiers"] if each.startswith(prefix)]
    matrix = jobs["test"]["strategy"]["matrix"]
    newest = [each["python"] for each in matrix["include"]]
    assert [*matrix["python"], *newest] == [f"3.{minor}" for minor in pythons]
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    runs = [step["run"] for job in jobs.values() for step in job["steps"] if "run" in step]
    targets = {word for run in runs if run.startswith("make ") for word in run.split()[1:] if "=" not in word}
    assert targets >= {"lint", "test", "test-lowest", "latest", "newcomer", "docs"}
    assert sorted(target for target in targets if f"\n{target}: " not in makefile) == []


def test_a_release_has_its_files_and_one_version() -> None:
    included = PYPROJECT["tool"]["hatch"]["build"]["targets"]["sdist"]["include"]
    for name in RELEASED:
        assert (ROOT / name).is_file()
    assert set(RELEASED) - {"LICENSE"} <= set(included)  # this one always is
    assert sorted(name for name in included if not (ROOT / name).exists()) == []
    assert f"\nversion: {shmarrow.__version__}\n" in (ROOT / "CITATION.cff").read_text(encoding="utf-8")
    assert shmarrow.__version__ in (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")


def test_the_recipe_for_conda_has_the_requirements_of_the_package() -> None:
    """conda-forge calls flatbuffers python-flatbuffers, as its flatbuffers is the compiler; no line has a condition."""
    yaml = pytest.importorskip("yaml", reason="the package pyyaml is not installed")
    text = (ROOT / "packaging" / "recipe" / "recipe.yaml").read_text(encoding="utf-8")
    recipe = yaml.safe_load(text.replace("${{ python_min }}", yaml.safe_load(text)["context"]["python_min"]))
    project = PYPROJECT["project"]
    run = [each.replace("python-flatbuffers", "flatbuffers").replace(" ", "") for each in recipe["requirements"]["run"]]
    needed = [each.partition(";")[0] for each in project["dependencies"] if "!= 'linux'" not in each]
    assert sorted(run) == sorted(["__linux", f"python{project['requires-python']}", *needed])
    host = {each.replace(" ", "") for each in recipe["requirements"]["host"]}
    assert host >= {"python3.11.*", *PYPROJECT["build-system"]["requires"]}
    (script,) = [f"{name} = {where}" for name, where in project["scripts"].items()]
    assert recipe["build"]["python"]["entry_points"] == [script]
    assert recipe["about"]["summary"] == project["description"]
    assert recipe["context"]["version"] == shmarrow.__version__
