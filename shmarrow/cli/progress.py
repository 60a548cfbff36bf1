"""What a command shows while it works: one line that says what is going on, and tables of what was found.

Rules kept here:

* on a terminal the line is kept up to date and wiped before anything else is printed; elsewhere each step is a line of
  its own, so that a log reads well;
* the line goes to standard error, results to standard output.
"""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Sequence
from types import TracebackType
from typing import Self

TICK = 0.1
BAR = 30
WIPE = "\r\033[K"


class Progress:
    """The line about what is going on, with the seconds since the start. As a context manager it goes at the end.

    Attributes
    ----------
    live : bool
        Whether there is a terminal, so that the line is kept up to date.
    """

    def __init__(self) -> None:
        self.live = sys.stderr.isatty()
        self._started = time.monotonic()
        self._text = ""
        self._lock = threading.Lock()
        self._done = threading.Event()
        self._ticker = threading.Thread(target=self._tick, daemon=True)

    def say(self, text: str) -> None:
        """What is being done from now on."""
        with self._lock:
            self._text = text
            self._show()

    def print(self, *lines: str) -> None:
        """A result: lines for standard output, and an empty one after them."""
        with self._lock:
            self._wipe()
            print(*lines, "", sep="\n", flush=True)

    def __enter__(self) -> Self:
        if self.live:
            self._ticker.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._done.set()
        if self.live:
            self._ticker.join()
        self._wipe()

    def _tick(self) -> None:
        while not self._done.wait(TICK):
            with self._lock:
                self._show()

    def _show(self) -> None:
        seconds = time.monotonic() - self._started
        start, end = (WIPE, "") if self.live else ("", "\n")
        sys.stderr.write(f"{start}[{seconds:5.1f} s] {self._text}{end}")
        sys.stderr.flush()

    def _wipe(self) -> None:
        if self.live:
            sys.stderr.write(WIPE)
            sys.stderr.flush()


def bar(share: float | None) -> str:
    """A bar that is filled to a share from 0 to 1; nothing where that is not known."""
    if share is None:
        return ""
    filled = round(min(share, 1.0) * BAR)
    return "█" * filled + "░" * (BAR - filled)


def table_lines(headers: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    """A table as lines: the first column to the left, numbers to the right, a rule under the headers."""
    widths = [max(map(len, cells)) for cells in zip(headers, *rows, strict=True)]
    aligned = [
        "   ".join([cells[0].ljust(widths[0]), *[c.rjust(w) for c, w in zip(cells[1:], widths[1:], strict=True)]])
        for cells in (headers, *rows)
    ]
    rule = "   ".join("─" * width for width in widths)
    return [f"  {line.rstrip()}" for line in (aligned[0], rule, *aligned[1:])]
