"""The ends of writers: every writer, in every way there is.

Invariants: what is published is whole and published once, and of what is not, nothing is left: no name, no temporary
file, no descriptor. Processes, signals, kills and limits are real.
"""

from __future__ import annotations

import gc
import os
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from interrupts import interrupted
from measures import descriptors
from processes import ended, forked, python
from writers import KINDS, Case, Folder, files_of_at_most

import shmarrow as sa


@pytest.fixture(params=KINDS)
def case(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Case]:
    """A case that leaves no descriptor open.

    A handler that raises while a directory is being opened keeps its descriptor, and a store with it its own.
    """
    found = Case(request.param, tmp_path)
    yield found
    found.place.close()
    gc.collect()
    if "raises" not in request.function.__name__ or (found.place.__class__ is Folder):
        assert descriptors(tmp_path) == []


# --- the two ends ---------------------------------------------------------------------------------------------------


def check_closed(case: Case, writer: Any) -> None:
    """Each call that writes says so, and those that end it have no effect."""
    value = case.value()
    assert writer.closed
    assert "closed" in repr(writer)
    for call in (lambda: case.write(writer), writer.__enter__):
        with pytest.raises(sa.Closed):
            call()
    writer.close()
    writer.abort()
    assert case.value() == value


def test_closing_publishes_once(case: Case) -> None:
    writer = case.open()
    case.write(writer)
    assert case.value() is None
    assert not writer.closed
    writer.close()
    assert case.value() == 1
    check_closed(case, writer)


def test_aborting_leaves_nothing(case: Case) -> None:
    writer = case.open()
    case.write(writer)
    writer.abort()
    assert case.value() is None
    check_closed(case, writer)


def test_the_end_of_a_block(case: Case) -> None:
    with pytest.raises(KeyError), case.open() as writer:  # noqa: PT012
        case.write(writer)
        raise KeyError
    assert case.value() is None
    check_closed(case, writer)
    with case.open() as writer:
        case.write(writer)
    assert case.value() == 1
    check_closed(case, writer)


def test_ended_in_the_block(case: Case) -> None:
    with case.open() as writer:
        writer.abort()
    assert case.value() is None
    with case.open() as writer:
        case.write(writer)
        writer.close()
    assert case.value() == 1


def test_garbage_is_dropped(case: Case) -> None:
    writer = case.open()
    case.write(writer)
    del writer
    gc.collect()
    assert case.value() is None


def run(code: str, **names: Any) -> str:
    """Return what a fresh interpreter prints."""
    return python("".join([f"{name} = {value!r}\n" for name, value in names.items()]) + code)


EXIT = """
import builtins
import sys
from pathlib import Path
from writers import KINDS, Case
kept = []
for name in KINDS:
    path = Path(folder, name)
    path.mkdir()
    case = Case(name, path)
    writer = case.open()
    case.write(writer)
    kept.append(writer)
    if closed:
        writer.close()
"""

ENDINGS = {
    "at its end": "",
    "by an exception": "raise SystemExit",
    "after its modules": "builtins.kept = [kept, dict(sys.modules)]",
}


@pytest.mark.parametrize("closed", [False, True])
@pytest.mark.parametrize("ending", ENDINGS)
def test_the_interpreter_ends(ending: str, closed: bool, tmp_path: Path) -> None:
    """Nothing is printed, and what is open is dropped; modules that others refer to lose their globals first."""
    assert run(EXIT + ENDINGS[ending], folder=str(tmp_path), closed=closed) == ""
    for name, kind in KINDS.items():
        place = kind.place(tmp_path / name)
        place.settle()
        assert place.value(kind.read) == (1 if closed else None)
        place.close()


# --- errors ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["file", "stream", "file in a store"])
def test_after_an_error_each_call_quotes_the_first(name: str, tmp_path: Path) -> None:
    case = Case(name, tmp_path)
    writer = case.open()
    case.write(writer)
    with files_of_at_most(1000), pytest.raises(sa.StorageError) as first:
        case.write(writer)
    for call in (lambda: case.write(writer), lambda: case.write(writer), writer.close):
        with pytest.raises(sa.Failed) as later:
            call()
        assert f"{type(first.value).__name__}: {first.value}" in str(later.value)
    writer.close()
    with pytest.raises(sa.Failed):
        case.write(writer)
    assert case.value() is None
    case.place.close()


def test_an_error_while_closing(case: Case) -> None:
    """The name is taken, or the file was replaced, meanwhile: the other object stays, and nothing else."""
    one, other = case.open(), case.open()
    case.write(one)
    case.write(one)
    case.write(other)
    other.close()
    if case.kind.replaces:  # the last one counts
        one.close()
        assert case.value() in (1, 2)
        return
    with pytest.raises(sa.StorageError) as first:
        one.close()
    one.close()
    one.abort()
    with pytest.raises(sa.Failed) as later:
        case.write(one)
    assert str(first.value) in str(later.value)
    assert case.value() == 1


# --- threads --------------------------------------------------------------------------------------------------------


def in_threads(*calls: Callable[[], Any]) -> list[Any]:
    """Return what calls return or raise, each in a thread of its own, at once."""
    found: list[Any] = []
    start = threading.Barrier(len(calls))

    def run(call: Callable[[], Any]) -> None:
        start.wait()
        try:
            found.append(call())
        except BaseException as error:
            found.append(error)

    threads = [threading.Thread(target=run, args=(call,)) for call in calls]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return found


def test_threads_close_at_once(case: Case) -> None:
    writer = case.open()
    case.write(writer)
    assert in_threads(*[writer.close] * 8) == [None] * 8
    assert case.value() == 1


def test_threads_write_and_end(case: Case, tmp_path_factory: pytest.TempPathFactory) -> None:
    """Writes while another thread ends the writer are published, or refused; they land in no other file."""
    bystander = tmp_path_factory.mktemp("beside") / "file"
    for end in ["close", "abort"] * 10:
        writer = case.open()

        def end_it(writer: Any = writer, end: str = end) -> None:
            getattr(writer, end)()
            with bystander.open("wb") as file:
                file.write(b"x" * 10)
                assert bystander.read_bytes() == b""  # it is buffered

        def write(writer: Any = writer) -> int:
            written = 0
            with suppress(sa.Closed, ValueError):  # an array that is filled in place becomes read-only
                while not writer.closed:
                    case.write(writer)
                    written += 1
            return written

        found = in_threads(write, write, end_it)
        errors = [each for each in found if isinstance(each, BaseException)]
        assert not errors, errors
        assert bystander.read_bytes() == b"x" * 10
        value = case.value()
        assert value is None if end == "abort" else value is not None
        case.clear()


# --- forks ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("end", ["close", "abort", "collect", "exit"])
def test_a_forked_child_publishes_nothing(case: Case, end: str) -> None:
    writers = [case.open()]
    case.write(writers[0])

    def child() -> None:
        writer = writers.pop()
        with pytest.raises(sa.Closed, match=f"belongs to process {os.getppid()}"):
            writer.__enter__()
        if "tensor" not in repr(writer).lower():  # forked children may fill its array
            with pytest.raises(sa.Closed, match=f"belongs to process {os.getppid()}"):
                case.write(writer)
        if end in ("close", "abort"):
            getattr(writer, end)()
            getattr(writer, end)()
            assert writer.closed
        elif end == "exit":
            sys.exit(0)
        del writer
        gc.collect()

    assert ended(forked(child)) == (1 if end == "exit" else 0)
    assert case.value() is None
    writers[0].close()
    assert case.value() == 1


def test_a_child_of_another_thread(case: Case) -> None:
    """A thread that is in the middle of a call at the fork does not exist in the child, which waits for nobody."""
    writer = case.open()
    done = threading.Event()

    def write() -> None:
        with suppress(sa.Closed):
            while not done.is_set():
                case.write(writer)

    thread = threading.Thread(target=write)
    thread.start()
    children = [forked(writer.abort if number % 2 else writer.close) for number in range(6)]
    done.set()
    thread.join()
    assert [ended(child) for child in children] == [0] * len(children)
    assert case.value() is None
    writer.close()
    assert case.value() >= 1


def test_a_child_that_has_other_files_closes_none_of_them(tmp_path: Path) -> None:
    """As a daemon, it closes what it inherits, and opens files under the same numbers."""
    writers = [Case(name, tmp_path).open() for name in ("segment", "segment that replaces", "file", "stream")]
    numbers = descriptors(tmp_path)
    assert len(numbers) == 4

    def child() -> None:
        for number in numbers:
            os.dup2(2, number)
        writers.clear()
        gc.collect()
        for number in numbers:
            os.fstat(number)

    assert ended(forked(child)) == 0
    writers.clear()
    assert descriptors(tmp_path) == []


# --- signals --------------------------------------------------------------------------------------------------------


class Interrupted(Exception):
    """Raised by a signal handler."""


STEP = int(os.environ.get("SHMARROW_TEST_STEP", "9"))
"""At every so many instructions a writer is interrupted or killed; 1 takes several minutes."""
FIRST = {name: 1 + number % STEP for number, name in enumerate(KINDS)}
"""The first of them: the writers begin at different ones, so that all instructions that they share are tried."""


def each_instruction(case: Case, work: Callable[[Any], Any], handler: Callable[[Any], Any]) -> Iterator[Any]:
    """Run ``work(writer)``, interrupted by ``handler(writer)`` at one instruction after another; gives the writers."""
    number, more = FIRST[case.name] - STEP, True
    while more:
        number += STEP
        writer = case.open()
        try:
            more = interrupted(lambda: work(writer), lambda: handler(writer), number, case.files)  # noqa: B023
        except Interrupted:
            more = True
        yield writer
        case.clear()
    assert number > 100


@pytest.mark.timeout(900)
def test_a_handler_that_raises_at_any_instruction(case: Case) -> None:
    """The program goes on: the writer is as before or has failed, and what is published is whole."""

    hit = False

    def handle(_: Any) -> None:
        nonlocal hit
        hit = True
        raise Interrupted

    def work(writer: Any) -> None:
        for step in (case.write, case.write, type(writer).close):
            try:
                step(writer)
            except Interrupted:
                continue
            except (sa.Closed, sa.Failed):
                assert hit

    for writer in each_instruction(case, work, handle):
        with suppress(sa.Failed):
            writer.close()
        hit = False
        assert writer.closed
        assert case.value() in (None, 1, 2)


@pytest.mark.timeout(900)
@pytest.mark.parametrize("end", ["abort", "close"])
def test_a_handler_that_ends_the_writer_at_any_instruction(
    case: Case, end: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """The interrupted call raises `Closed` or was done; another file, with the same descriptor, gets nothing."""
    beside = tmp_path_factory.mktemp("beside") / "file"
    files: list[Any] = []

    def work(writer: Any) -> None:
        with suppress(sa.Closed):
            case.write(writer)
            case.write(writer)
            writer.close()

    def handle(writer: Any) -> None:
        getattr(writer, end)()
        files.append(beside.open("wb", buffering=0))

    for writer in each_instruction(case, work, handle):
        assert writer.closed
        assert case.value() in (None, 0, 1, 2)
        while files:
            with files.pop() as file:
                file.write(b"x")
            assert beside.read_bytes() == b"x"


# --- kills ----------------------------------------------------------------------------------------------------------

KILLS = """
from pathlib import Path
from interrupts import killed
from writers import Case
case = Case(name, Path(folder))
files = case.files if name == "segment" else case.kind.files

def work():
    with case.open() as writer:
        case.write(writer)

work()  # imports what it needs
case.clear()
number, more = first - step, True
while more:
    number += step
    more = killed(work, number, files)
    case.place.settle()
    value = case.value()
    assert value in (None, 1), (number, value)
    case.clear()
print(number)
"""


@pytest.mark.timeout(900)
@pytest.mark.parametrize("name", sorted(set(KINDS) - {"stream", "file in a store"}))
def test_a_process_that_is_killed_at_any_instruction(name: str, tmp_path: Path) -> None:
    """The object is there whole, or not at all. A small process, as each kill takes a fork."""
    assert int(run(KILLS, name=name, folder=str(tmp_path), first=FIRST[name], step=STEP)) > 100
