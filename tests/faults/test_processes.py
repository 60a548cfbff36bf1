"""Several processes: what one writes another reads, and whoever is killed, nobody sees half an object.

Invariants: real processes, by fork and by spawn, and real kills at random moments; the seeds are fixed, what the
scheduler makes of them is not.
"""

from __future__ import annotations

import itertools
import multiprocessing
import os
import random
import time
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import forms
import numpy as np
import pytest
from environment import SHM
from forms import WRITABLE
from processes import forked, kill, killed_at_end
from waiting import wait_until

import shmarrow as sa

KILLS = 24
VALUES = {case.name: case.values for case in WRITABLE}


# --- what runs in the other process -----------------------------------------------------------------------------------


def _reported(pipe: Any, task: Callable[..., Any], arguments: tuple[Any, ...]) -> None:
    try:
        pipe.send(("done", task(*arguments)))
    except BaseException:
        pipe.send(("failed", traceback.format_exc()))


def elsewhere(task: Callable[..., Any], *arguments: Any) -> Any:
    """Run a task in a new process and give its result."""
    context = multiprocessing.get_context("spawn")
    near, far = context.Pipe(False)
    child = context.Process(target=_reported, args=(far, task, arguments))
    child.start()
    far.close()
    try:
        said, result = near.recv()
    finally:
        child.join(60)
        near.close()
    assert said == "done", result
    assert child.exitcode == 0
    return result


def write_all(places: list[str]) -> int:
    """Write every case, as files and streams; gives how many of each there are."""
    groups = forms.together(WRITABLE)
    for i, batch in enumerate(groups):
        for place, make in itertools.product(places, (sa.ipc.new_file, sa.ipc.new_stream)):
            with make(f"{place}-{make.__name__}-{i}", batch.schema) as writer:
                writer.write(batch)
                writer.write(batch.slice(batch.num_rows // 2))
    return len(groups)


def read_all(places: list[str], count: int) -> int:
    """Read every case and hold it to its values; gives how many columns there were."""
    columns = 0
    readers = (("new_file", sa.ipc.open_file), ("new_stream", sa.ipc.open_stream))
    for i in range(count):
        for place, (name, read) in itertools.product(places, readers):
            with read(f"{place}-{name}-{i}") as reader:
                whole, half = reader
            whole.validate(full=True)
            for name, first, second in zip(whole.column_names, whole.columns, half.columns, strict=True):
                values = VALUES[name]
                assert first.to_pylist() == values, name
                assert second.to_pylist() == values[len(values) // 2 :], name
                columns += 1
    return columns


# --- one writes, another reads ----------------------------------------------------------------------------------------


def test_what_one_process_writes_another_reads(tmp_path: Path, shm_name: str) -> None:
    places = [str(tmp_path / "a"), shm_name]
    count = elsewhere(write_all, places)
    assert elsewhere(read_all, places, count) == 4 * len(WRITABLE)
    assert read_all(places, count) == 4 * len(WRITABLE)


# --- kills ------------------------------------------------------------------------------------------------------------


def killed_after(seconds: float, task: Callable[..., Any], *arguments: Any) -> None:
    """Kill a process that runs a task for ever, after seconds of CPU time."""
    child = forked(lambda: task(*arguments))
    clock = ~child << 3 | 2  # as clock_getcpuclockid(3) gives it
    with killed_at_end([child]):
        used = time.clock_gettime(clock)
        wait_until(lambda: time.clock_gettime(clock) - used >= seconds, "the process does something")
        kill(child)


def moments(count: int, most: float) -> Iterator[float]:
    chance = random.Random(count)
    for _ in range(count):
        yield chance.random() * most


def version(number: int) -> sa.RecordBatch:
    """A batch that says of every value which version it is from."""
    return sa.record_batch({"n": np.full(20_000, number), "s": [f"version {number}"] * 100 + [None] * 19_900})


def check_version(table: sa.Table, rows: int = 60_000) -> int:
    """The version of a table, all of whose values are to be of it."""
    table.validate(full=True)
    numbers = np.unique(table.column("n").to_numpy())
    assert len(numbers) == 1
    assert table.num_rows == rows
    assert table.column("s").to_pylist()[:100] == [f"version {numbers[0]}"] * 100
    return int(numbers[0])


def write_version(place: str, number: int, overwrite: bool) -> None:
    batch = version(number)
    with sa.ipc.new_file(place, batch.schema, overwrite=overwrite) as writer:
        for _ in range(3):
            writer.write(batch)


def write_for_ever(place: str) -> None:
    number = 0
    while True:
        write_version(f"{place}-{number}", number, False)
        number += 1


def replace_for_ever(place: str) -> None:
    number = 0
    while True:
        number += 1
        write_version(place, number, True)


def _folder(place: str) -> Path:
    return SHM if place.startswith("shm:") else Path(place).parent


def _last(place: str) -> str:
    """The name of a place in its folder."""
    return place.removeprefix("shm:").rsplit("/", 1)[-1]


def _found(place: str, whole: bool = False) -> list[str]:
    """The entries beside a place, in shared memory those of its name; with ``whole`` those that are not hidden."""
    entries = sorted(os.listdir(_folder(place)))
    if place.startswith("shm:"):
        return [entry for entry in entries if entry.startswith(_last(place))]
    return [entry for entry in entries if not (whole and entry.startswith(sa.segment.TEMP_PREFIX))]


@pytest.fixture(params=["path", "shm"])
def place(request: pytest.FixtureRequest, tmp_path: Path, shm_name: str) -> str:
    return str(tmp_path / "object") if request.param == "path" else shm_name


def test_a_killed_writer_leaves_whole_objects_or_none(place: str) -> None:
    whole = 0
    for moment in moments(KILLS, 0.06):
        killed_after(moment, write_for_ever, place)
        names = _found(place)
        # One after another they appeared, and nothing else is there.
        assert sorted(names) == sorted(f"{_last(place)}-{i}" for i in range(len(names)))
        for i in range(len(names)):
            with sa.ipc.open_file(f"{place}-{i}") as reader:
                assert check_version(reader.read_all()) == i
            sa.segment.delete(f"{place}-{i}")
            whole += 1
    assert whole > KILLS / 10
    assert not _found(place)


def replace_and_delete(place: str) -> None:
    """Who was killed between its two names for a file left the hidden one, and the next to replace removes it."""
    write_version(place, 1, True)
    assert _found(place) == [_last(place)]
    sa.segment.delete(place)


def test_a_killed_writer_that_replaces_leaves_the_old_or_the_new(place: str) -> None:
    write_version(place, 0, False)
    changed, rows = 0, 60_000
    for moment in moments(KILLS // 2, 0.06):
        with sa.ipc.open_file(place) as reader:
            killed_after(moment, replace_for_ever, place)
            before = check_version(reader.read_all(), rows)
        with sa.ipc.open_file(place) as reader:
            now = reader.read_all()
        after = check_version(now, now.num_rows)
        changed += (after, now.num_rows) != (before, rows)
        assert now.num_rows >= rows
        rows = now.num_rows
        assert _found(place, whole=True) == [_last(place)]
    assert changed > KILLS / 8
    replace_and_delete(place)


def test_readers_of_a_name_that_is_replaced_see_whole_versions(place: str) -> None:
    write_version(place, 0, False)
    seen = [0]

    def another() -> bool:
        seen.append(check_version(sa.ipc.open_file(place).read_all()))
        return len(set(seen)) > 10

    child = forked(lambda: replace_for_ever(place))
    with killed_at_end([child]):
        wait_until(another, "ten versions")
    assert seen == sorted(seen)
    replace_and_delete(place)
