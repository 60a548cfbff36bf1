"""Run the command line in a forked child: a process of its own, without the second that a fresh interpreter takes."""

from __future__ import annotations

import os
import pty
import re
import struct
import subprocess
import sys
import tempfile
import termios
import time
import traceback
from collections.abc import Sequence
from fcntl import ioctl
from typing import NoReturn

from processes import die

from shmarrow.cli import main


def forked_command(*words: object, stdin: bytes = b"") -> subprocess.CompletedProcess[bytes]:
    """Run ``shmarrow WORDS``; gives the exit status and what was printed."""
    arguments = list(map(str, words))
    with tempfile.TemporaryFile() as given, tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        given.write(stdin)
        given.seek(0)
        child = os.fork()
        if child == 0:
            become_command(arguments, (given.fileno(), out.fileno(), err.fileno()))
        status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        for file in (out, err):
            file.seek(0)
        return subprocess.CompletedProcess(arguments, status, out.read(), err.read())


class StartedCommand:
    """``shmarrow WORDS`` in a forked child, while it runs.

    Attributes
    ----------
    pid : int
        Its process.
    out : file
        What it prints, as it prints it.
    """

    def __init__(self, *words: object, stdin: int = 0, stdout: int | None = None) -> None:
        self._err = tempfile.TemporaryFile()  # noqa: SIM115
        reading, writing = os.pipe()
        self.pid = os.fork()
        if self.pid == 0:
            os.close(reading)
            become_command(list(map(str, words)), (stdin, writing if stdout is None else stdout, self._err.fileno()))
        os.close(writing)
        self.out = open(reading, encoding="utf-8")  # noqa: SIM115

    def wait(self, number: int = 0) -> tuple[int, str]:
        """Send it a signal; its exit status, and what it printed as errors, when it has ended."""
        if number:
            os.kill(self.pid, number)
        self.out.read()
        status = os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])
        self._err.seek(0)
        with self.out, self._err:
            return status, self._err.read().decode()


def on_a_terminal(*words: str, interrupt_at: str = "", columns: int = 160) -> str:
    """Return the output of a command on a terminal; it gets Ctrl-C when it has shown some text."""
    child, master = pty.fork()
    if child == 0:
        ioctl(1, termios.TIOCSWINSZ, struct.pack("4H", 40, columns, 0, 0))
        os.environ.pop("COLUMNS", None)  # workers of pytest-xdist have it
        become_command(words)
    text = b""
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        try:
            text += os.read(master, 4096)
        except OSError:
            break
        if interrupt_at and interrupt_at.encode() in text:
            os.write(master, b"\x03")
            interrupt_at = ""
    os.close(master)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    return re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", text.decode())


def become_command(arguments: Sequence[str], descriptors: Sequence[int] = ()) -> NoReturn:
    """In a forked child: take descriptors as standard input, output and errors, run a command, and end."""
    status: object = 1
    try:
        for number, fd in enumerate(descriptors):
            os.dup2(fd, number)
        sys.stdin, sys.stdout, sys.stderr = (
            open(number, "rw"[number > 0], encoding="utf-8", closefd=False)  # noqa: SIM115
            for number in range(3)
        )
        status = main(arguments)
    except SystemExit as error:
        status = error.code
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        die(status if isinstance(status, int) else 1)
