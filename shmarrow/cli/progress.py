"""Progress of a command, on standard error; tables of the demo.

Invariants:

* on a terminal the line is kept up to date and wiped before anything else is printed; elsewhere each step is a line of
  its own, so that a log reads well;
* the line goes to standard error, results to standard output.
"""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from types import TracebackType
from typing import Self

from shmarrow.cli.report import aligned

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
def progress_line(text: str, total: int | None, format: Callable[[int], str] = str) -> Iterator[Callable[..., None]]:
    """A line of progress, if standard error is a terminal; it is removed at the end.

    Parameters
    ----------
    text : str
        What is done.
    total : int, optional
        The final value; None if unknown.
    format : callable
        Formats the values.

    Yields
    ------
    callable
        Takes the current value, and optionally the final one.
    """
    if not sys.stderr.isatty():
        yield lambda done, total=None: None
        return
    shown = 0.0

    def show(done: int, total: int | None = total) -> None:
        nonlocal shown
        now = time.monotonic()
        if now - shown >= TICK or done == total:
            shown = now
            sys.stderr.write(f"{WIPE}{text}: {format(done)}{f' of {format(total)}' if total else ''}")
            sys.stderr.flush()

    try:
        show(0)
        yield show
    finally:
        sys.stderr.write(WIPE)
        sys.stderr.flush()


def table_lines(headers: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    """A table as indented lines."""
    return [f"  {line}" for line in aligned(headers, rows)]
