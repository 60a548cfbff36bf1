"""The tiers of tests: *unit* starts no process, *processes* does, *spark* needs Java.

A test belongs to the tier of its file or folder in :data:`TIERS`, unless it has a marker itself; all others are unit
tests. A unit test that starts a process fails.
"""

from __future__ import annotations

import _posixsubprocess
import functools
import os
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy.testing  # noqa: F401 - numpy 2.1 asks lscpu when it is imported, which no unit test may

MARKERS = {
    "unit": "starts no process; make test-fast runs these",
    "processes": "starts processes, mounts file systems or changes users",
    "spark": "runs Spark, which needs Java",
}
TIERS = {
    "unit": ("spark/test_key_index.py", "spark/test_spark_results.py"),
    "spark": ("spark", "examples/test_demo.py", "examples/test_docs.py", "examples/test_examples.py"),
    "processes": (
        "cli", "examples", "faults", "reuse", "ring", "store", "memory/test_futex.py",
        "hostile/test_hostile.py", "hostile/test_other_libraries_hostile.py", "integration/test_integration_cli.py",
        "memory/test_segment.py",
        "interchange/test_batch_dataset.py", "interchange/test_c_data_hazards.py", "parity/test_peers.py",
        "parity/test_sparse_cpp.py", "project/test_benchmarks.py", "project/test_conftest.py",
        "project/test_first_access.py", "project/test_lab.py", "project/test_static_types.py", "xray/test_xray_page.py",
    ),
}  # fmt: skip
"""Files and folders of each tier, the first that matches counts."""

_ROOT = Path(__file__).resolve().parents[1]
_STARTS: tuple[tuple[Any, str], ...] = (
    (_posixsubprocess, "fork_exec"), (subprocess, "_fork_exec"), (os, "fork"), (os, "forkpty"), (os, "posix_spawn"),
    (os, "posix_spawnp"), (os, "system"),
)  # fmt: skip


def tier_of(path: Path) -> str:
    """The tier of the tests in a file."""
    places = {place.relative_to(_ROOT).as_posix() for place in (path, *path.parents) if _ROOT in place.parents}
    return next((tier for tier, members in TIERS.items() if not places.isdisjoint(members)), "unit")


class Guard:
    """Refuses to start processes while a unit test runs.

    The functions that start processes are wrapped. An audit hook would see them all, but runs Python code at many other
    events, too, and with it the handlers of pending signals, which some tests count on to run elsewhere.

    Attributes
    ----------
    test : str or None
        The unit test that runs.
    """

    def __init__(self) -> None:
        self.test: str | None = None
        for module, name in _STARTS:
            if hasattr(module, name):
                setattr(module, name, self._guarded(getattr(module, name)))

    def _guarded(self, start: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(start)
        def guarded(*args: Any, **kwargs: Any) -> Any:
            if self.test is not None:
                raise AssertionError(
                    f"{self.test} is a unit test and starts a process: mark it with pytest.mark.processes"
                )
            return start(*args, **kwargs)

        return guarded
