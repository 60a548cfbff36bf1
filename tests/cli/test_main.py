"""The command ``shmarrow``, as it is installed and as ``python -m shmarrow``."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

INSTALLED = "import sys; sys.argv[0] = 'shmarrow'; from shmarrow_command import main; sys.exit(main())"


def test_the_command_and_the_module_are_the_same() -> None:
    runs = [
        subprocess.run([sys.executable, *how, "info"], capture_output=True, text=True, check=False)
        for how in (("-m", "shmarrow"), ("-c", INSTALLED))
    ]
    assert runs[0].returncode == runs[1].returncode == 2
    assert (runs[0].stdout, runs[0].stderr) == (runs[1].stdout, runs[1].stderr)
    assert runs[0].stderr.startswith("usage: shmarrow ")


def test_ctrl_c_during_the_imports_prints_nothing(tmp_path: Path) -> None:
    (tmp_path / "numpy.py").write_text("import os, signal; os.kill(os.getpid(), signal.SIGINT)")
    path = os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")])
    command = [sys.executable, "-c", INSTALLED, "names"]
    ran = subprocess.run(command, env={**os.environ, "PYTHONPATH": path}, capture_output=True, check=False)
    assert (ran.returncode, ran.stdout, ran.stderr) == (-signal.SIGINT, b"", b"")
