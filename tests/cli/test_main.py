"""``python -m shmarrow`` is the command ``shmarrow``: the same name, output and exit status."""

from __future__ import annotations

import subprocess
import sys

import pytest


@pytest.mark.parametrize(("arguments", "status"), [(["--help"], 0), (["info"], 2)])
def test_the_command_and_the_module_are_the_same(arguments: list[str], status: int) -> None:
    script = "import sys; sys.argv[0] = 'shmarrow'; from shmarrow.cli import main; sys.exit(main())"
    runs = [
        subprocess.run([sys.executable, *how, *arguments], capture_output=True, text=True, check=False)
        for how in (("-m", "shmarrow"), ("-c", script))
    ]
    assert runs[0].returncode == runs[1].returncode == status
    assert (runs[0].stdout, runs[0].stderr) == (runs[1].stdout, runs[1].stderr)
    assert (runs[0].stdout + runs[0].stderr).startswith("usage: shmarrow ")
