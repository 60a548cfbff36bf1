# SPDX-License-Identifier: Apache-2.0
"""The command ``shmarrow``, which Ctrl-C ends without a traceback, even while it imports what it needs."""

from __future__ import annotations

import signal


def main() -> int:
    """Run the command line; the kernel ends the process on Ctrl-C until that can report it."""
    handler = signal.getsignal(signal.SIGINT)
    if handler is signal.default_int_handler:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    from shmarrow.cli import main as run

    signal.signal(signal.SIGINT, handler)
    return run()
