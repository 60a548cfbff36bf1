"""Write requirements/dev.txt: every package of the development environment, pinned to a version, with its hash.

``python tools/lock.py`` lets pip resolve the dependencies in pyproject.toml anew, for the Python and the platform that
it runs on. ``tools/venv.sh locked`` installs them.

torch is left out, but not what it needs: its CPU builds have versions and hashes of their own, which differ from those
of the package index. ``tools/venv.sh locked`` installs it separately, without dependencies.
"""

from __future__ import annotations

import json
import platform
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
LOCK = ROOT / "requirements" / "dev.txt"
EXTRAS = ("arrow", "cli", "connect", "demo", "sparse", "tensor", "testing")
"""Those that tools/venv.sh installs."""
LEFT_OUT = {"shmarrow", "torch"}
HEADER = """\
# The development environment, pinned except torch, the weights of the tests' model, and pip: the dependency group dev,
# and the extras
# {extras}.
# For CPython {python} on {platform}. Written by `make lock`; `tools/venv.sh locked` installs it.
"""


def resolved() -> list[dict[str, Any]]:
    """Return pip's report of what it would install into an empty environment."""
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder, "report.json")
        command = [sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check", "install", "--dry-run"]
        command += ["--ignore-installed", "--report", report, f".[{','.join(EXTRAS)}]", "--group", "dev"]
        subprocess.run(command, check=True, cwd=ROOT)
        found: list[dict[str, Any]] = json.loads(report.read_text(encoding="utf-8"))["install"]
        return found


def pin(package: dict[str, Any]) -> str:
    """A package as a line of a requirements file."""
    metadata, archive = package["metadata"], package["download_info"]["archive_info"]
    name = metadata["name"].lower().replace("_", "-").replace(".", "-")
    return f"{name}=={metadata['version']} --hash=sha256:{archive['hashes']['sha256']}\n"


def main() -> None:
    LOCK.parent.mkdir(exist_ok=True)
    pins = sorted(pin(package) for package in resolved() if package["metadata"]["name"] not in LEFT_OUT)
    header = HEADER.format(
        extras=", ".join(EXTRAS),
        python=f"{sys.version_info.major}.{sys.version_info.minor}",
        platform=f"{platform.system()} {platform.machine()}",
    )
    LOCK.write_text(header + "\n" + "".join(pins), encoding="utf-8")
    print(f"{LOCK.relative_to(ROOT)}: {len(pins)} packages")


if __name__ == "__main__":
    main()
