"""The processes of :mod:`lab`: one that has all of shmarrow imported, and those that are forked from it.

``python lab_process.py FD`` reads requests from a socket. For each it forks a supervisor, which sets up namespaces,
forks the process that runs the code, and reports its number and its end. All of them die with the socket's other end.
What is forked has no store open, and whatever it becomes (another user, a member of a small cgroup) it becomes before
its code runs. Everything is imported before, as another user may not be able to read the folders of Python.
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
import importlib
import linecache
import os
import pkgutil
import resource
import signal
import socket
import sys
import tempfile
import textwrap
import traceback
from multiprocessing.connection import Connection
from typing import Any

from processes import die

_CLONE_NEWNS, _CLONE_NEWTIME = 0x20000, 0x80
_MS_BIND, _MS_REC, _MS_SLAVE = 1 << 12, 1 << 14, 1 << 19
_PR_SET_PDEATHSIG = 1
_BOOT_ID = "/proc/sys/kernel/random/boot_id"

_STANDARD = (
    "asyncio", "decimal", "encodings.ascii", "fcntl", "io", "json", "math", "mmap", "multiprocessing", "pathlib",
    "pickle", "queue", "random", "select", "shutil", "stat", "struct", "subprocess", "threading", "time", "uuid",
    "warnings", "zlib",
)  # fmt: skip

# What needs other packages, and what runs when it is imported.
_PARTNERS = ("shmarrow.torch", "shmarrow.spark", "shmarrow.interchange", "shmarrow.integration", "shmarrow.__main__")

_libc = ctypes.CDLL(None, use_errno=True)


def call(name: str, *given: Any) -> None:
    """A call of the C library; OSError where it fails."""
    if getattr(_libc, name)(*given) == -1:
        code = ctypes.get_errno()
        raise OSError(code, f"{name}: {os.strerror(code)}")


def _import_all() -> None:
    for name in _STANDARD:
        importlib.import_module(name)
    left = ["shmarrow"]
    while left:
        name = left.pop()
        if name in _PARTNERS:
            continue
        with contextlib.suppress(ImportError):  # whoever uses it sees the reason
            found = pkgutil.iter_modules(getattr(importlib.import_module(name), "__path__", []), f"{name}.")
            left += [module.name for module in found]


def _serve(control: socket.socket) -> None:
    """Fork a supervisor for each request, until the other end is closed."""
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody waits for supervisors
    while True:
        data, found, *_ = socket.recv_fds(control, 1 << 16, 2)
        if not data:
            return
        talk, events = found
        if os.fork() == 0:
            control.close()
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            _supervise(Connection(talk), Connection(events))
        os.close(talk)
        os.close(events)


def _supervise(talk: Connection, events: Connection) -> None:
    status = 1
    try:
        _die_with_parent()
        options: dict[str, Any] = talk.recv()
        _enter_namespaces(options)
        child = os.fork()
        if child == 0:
            events.close()
            _run(talk, options)
        talk.close()
        events.send(("pid", child))
        status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        events.send(("status", status))
    except BaseException:
        events.send(("error", traceback.format_exc()))
    finally:
        die()


def _die_with_parent() -> None:
    call("prctl", _PR_SET_PDEATHSIG, signal.SIGKILL)


def _enter_namespaces(options: dict[str, Any]) -> None:
    if options["monotonic"] or options["boottime"]:
        call("unshare", _CLONE_NEWTIME)  # for what is forked from here on
        with open("/proc/self/timens_offsets", "w", encoding="ascii") as file:
            file.write(f"monotonic {options['monotonic']} 0\nboottime {options['boottime']} 0\n")
    if options["boot_id"]:
        call("unshare", _CLONE_NEWNS)
        call("mount", None, b"/", None, _MS_REC | _MS_SLAVE, None)
        with tempfile.NamedTemporaryFile("w") as file:
            file.write(options["boot_id"] + "\n")
            file.flush()
            os.chmod(file.name, 0o444)
            call("mount", os.fsencode(file.name), _BOOT_ID.encode(), None, _MS_BIND, None)


def _run(talk: Connection, options: dict[str, Any]) -> None:
    """Become what is asked for, run the code, and tell what came of it."""
    try:
        for limit, value in options["limits"].items():
            resource.setrlimit(getattr(resource, f"RLIMIT_{limit}"), (value, value))
        if options["cgroup"]:
            with open(f"{options['cgroup']}/cgroup.procs", "w", encoding="ascii") as file:
                file.write(str(os.getpid()))
        if options["umask"] is not None:
            os.umask(options["umask"])
        if options["gid"] is not None:
            os.setgroups(options["groups"])
            os.setgid(options["gid"])
        if options["uid"] is not None:
            os.setuid(options["uid"])
        _die_with_parent()  # which a change of the user undoes
        os.chdir("/")

        def say(value: Any) -> None:
            talk.send(("said", value))

        names = {"say": say, "hear": talk.recv, **options["names"]}
        execute(options["code"], names)
        talk.send(("result", names.get("result")))
    except BaseException:
        talk.send(("error", traceback.format_exc()))
        die(1)
    die()


def execute(code: str, names: dict[str, Any]) -> None:
    """Run code, whose lines appear in tracebacks."""
    code = textwrap.dedent(code)
    name = f"<code {hash(code) & 0xFFFFFFFF:08x}>"
    linecache.cache[name] = len(code), None, code.splitlines(keepends=True), name
    exec(compile(code, name, "exec"), names)


if __name__ == "__main__":
    with socket.socket(fileno=int(sys.argv[1])) as opened:
        try:
            os.environ.pop("LD_PRELOAD", None)  # for this process and what is forked from it
            _import_all()
            gc.collect()
            gc.freeze()  # what the collector would touch, each process would copy
            opened.send(b"ready")
        except BaseException:
            opened.send(traceback.format_exc().encode())
            raise
        _serve(opened)
    die()  # nothing to tidy up, and a thousand modules
