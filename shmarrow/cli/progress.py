"""Progress of a command: a status line or a bar on standard error; tables of results.

Invariants:

* on a terminal the line is kept up to date and wiped before anything else is printed; elsewhere each step is a line of
  its own, so that a log reads well;
* the line goes to standard error, results to standard output;
* rich draws bars and tables, on terminals alone: importing it takes 0.1 s of processor time, half as much as numpy.
"""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from types import TracebackType
from typing import Any, Self

from shmarrow.cli.report import plain_table

TICK = 0.1
WIPE = "\r\033[K"


class Progress:
    """A status line with the seconds since the start, removed at the end of the ``with`` block."""

    def __init__(self) -> None:
        self._live = sys.stderr.isatty()
        self._started = time.monotonic()
        self._text = ""
        self._lock = threading.Lock()
        self._done = threading.Event()
        self._ticker = threading.Thread(target=self._tick, daemon=True)

    def say(self, text: str) -> None:
        """Change the status line."""
        with self._lock:
            self._text = text
            self._show()

    def print(self, *lines: str) -> None:
        """Print lines of a result to standard output, and an empty one."""
        with self._lock:
            self._wipe()
            print(*lines, "", sep="\n", flush=True)

    def __enter__(self) -> Self:
        if self._live:
            self._ticker.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._done.set()
        if self._live:
            self._ticker.join()
        self._wipe()

    def _tick(self) -> None:
        while not self._done.wait(TICK):
            with self._lock:
                self._show()

    def _show(self) -> None:
        seconds = time.monotonic() - self._started
        start, end = (WIPE, "") if self._live else ("", "\n")
        sys.stderr.write(f"{start}[{seconds:5.1f} s] {self._text}{end}")
        sys.stderr.flush()

    def _wipe(self) -> None:
        if self._live:
            sys.stderr.write(WIPE)
            sys.stderr.flush()


@contextmanager
def bar(text: str, total: int | None, unit: str = "") -> Iterator[Callable[..., None]]:
    """A progress bar, if standard error is a terminal and rich is installed.

    Parameters
    ----------
    text : str
        Label of the bar.
    total : int, optional
        The final value; None if unknown.
    unit : str
        ``"bytes"`` if progress is counted in bytes.

    Yields
    ------
    callable
        Takes the current value, and optionally the final one.
    """
    shown = _bar(unit) if sys.stderr.isatty() else None
    if shown is None:
        yield lambda done, total=None: None
        return
    with shown:
        task = shown.add_task(text, total=total)
        yield lambda done, total=total: shown.update(task, completed=done, total=total)


def _bar(unit: str) -> Any:
    try:
        from rich import progress
        from rich.console import Console
    except ImportError:
        return None
    size = (progress.DownloadColumn(True), progress.TransferSpeedColumn()) if unit == "bytes" else ()
    return progress.Progress(
        progress.TextColumn("{task.description}", markup=False), progress.BarColumn(), progress.TaskProgressColumn(),
        *size, progress.TimeRemainingColumn(), console=Console(stderr=True), transient=True,
    )  # fmt: skip


def table_lines(headers: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    """A table as indented lines."""
    return [f"  {line}" for line in plain_table(headers, rows)]
