"""A real browser for tests of pages."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

PROGRAM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
QUIET = ["--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking", "--disable-sync"]


@contextmanager
def chromium() -> Iterator[Any]:
    """Chromium, driven by playwright, or a skipped test."""
    if PROGRAM is None:
        pytest.skip("needs Chromium: tools/programs.sh installs it")
    sync_api = pytest.importorskip("playwright.sync_api", reason="needs playwright: the dependency group 'browser'")
    with sync_api.sync_playwright() as playwright:
        launched = playwright.chromium.launch(executable_path=PROGRAM, args=QUIET)
        yield launched
        launched.close()
