"""Rings under faults, with real processes: kills at every instruction, and readers that stop, die and return.

``make soak`` starts it: with the arguments ``[SECONDS] [EVERY]`` it runs for two times SECONDS at full speed, a minute
each, and kills before each of EVERY instructions, 29 by default; 1 takes half an hour. The tests run a sample.
"""

from __future__ import annotations

import os
import random
import signal
import struct
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import numpy as np
from interrupts import killed
from processes import complain, die, ended, forked, killed_at_end

import shmarrow as sa

FILES = tuple(f"shmarrow/ring/{name}.py" for name in ("ring", "file", "protocol", "frames"))
ROWS = 512
READERS = 3
_SAID = struct.Struct("<3q")


def numbered(number: int) -> sa.RecordBatch:
    """A frame that shows if it is torn."""
    return sa.record_batch({"n": np.full(ROWS, number), "text": [f"{number:09}"] * ROWS})


LIKE = numbered(0)


def number_of(batch: sa.RecordBatch) -> int:
    """The number of a frame; -1 if it is torn."""
    values = batch["n"].to_numpy()
    number = int(values[0])
    text = batch["text"]
    whole = bool((values == number).all()) and {text[0], text[ROWS - 1]} == {f"{number:09}"}
    return number if whole else -1


def put_next(ring: sa.Ring) -> None:
    """Write the frame of the next number."""
    number = ring.info().frames + 1
    if number % 2:
        ring.put(numbered(number))
        return
    with ring.write() as slot:
        slot["n"].to_numpy()[:] = number
        slot["text"] = [f"{number:09}"] * ROWS


def check_all_slots(ring: sa.Ring) -> None:
    """Check that a ring has all its slots, and room for all its readers."""
    info = ring.info()
    if info.policy == "all":
        for _ in range(2 * info.slots):
            with sa.Ring(ring.name, timeout=30) as reader:
                put_next(ring)
                assert number_of(next(reader)) == reader.position == ring.info().frames
        return
    readers = [sa.Ring(ring.name, timeout=30) for _ in range(info.slots - 1 - len(info.readers))]
    for reader in readers:  # each holds a slot of its own
        put_next(ring)
        assert number_of(next(reader)) == reader.position == ring.info().frames
    put_next(ring)
    for reader in readers:
        reader.close()


# --- kills at an instruction --------------------------------------------------------------------------------------


def kill_writer(where: str, policy: str, number: int) -> bool:
    """Kill a writer, which continues a ring, before its instruction of a number; whether it has so many."""

    def begin() -> None:
        ring = sa.Ring(where, like=LIKE, slots=4, policy=policy)
        die(0 if ring.info().frames == 0 else 1)

    def write() -> None:
        with sa.Ring(where, like=LIKE, slots=4, policy=policy, timeout=30) as ring:
            for _ in range(3):
                put_next(ring)

    assert ended(forked(begin)) == 0
    with sa.Ring(where, timeout=30) as reader:
        more = killed(write, number, FILES)
        with sa.Ring(where, like=LIKE, slots=4, policy=policy, timeout=30) as ring:
            if ring.info().readers:  # it was not killed after the end of the ring
                put_next(ring)
                check_frames(reader, ring.info().frames)
                put_next(ring)
                check_frames(reader, ring.info().frames)
            reader.close()
            check_all_slots(ring)
    return more


def check_frames(reader: sa.Ring, last: int | None) -> None:
    """Check the frames that a reader gets, up to one or to the end."""
    before = reader.position
    for batch in reader if before != last else ():
        assert number_of(batch) == reader.position > before
        assert reader.policy == "latest" or reader.position == before + 1
        before = reader.position
        if before == last:
            break


def write_on(where: str, policy: str) -> Callable[[], None]:
    """The work of a process that writes until it is killed."""

    def write() -> None:
        ring = sa.Ring(where, like=LIKE, slots=4, policy=policy)
        while True:
            put_next(ring)

    return write


def kill_readers(where: str, policy: str, every: int) -> int:
    """Kill readers of a ring that is written, before each instruction of so many; returns how many were killed."""

    def read() -> None:
        with sa.Ring(where, timeout=30) as reader:
            for _ in range(3):
                assert number_of(next(reader)) == reader.position

    writer = forked(write_on(where, policy))
    number = 1
    with killed_at_end([writer]):
        with sa.Ring(where, timeout=30) as reader:
            next(reader)
        while killed(read, number, FILES):
            number += every
            with sa.Ring(where, timeout=30) as reader:
                before = reader.position
                for _ in range(3):
                    assert number_of(next(reader)) == reader.position > before
                    before = reader.position
    with sa.Ring(where, like=LIKE, slots=4, policy=policy, timeout=30) as ring:
        check_all_slots(ring)
    return number // every


# --- at full speed ------------------------------------------------------------------------------------------------


def run(where: str, policy: str, seconds: float, seed: int) -> dict[str, int]:
    """Write at full speed to readers that are stopped, that die and that return, as the writer does."""
    choice = random.Random(seed)
    hear, say = os.pipe()
    os.set_blocking(hear, False)
    heard = bytearray()

    def read() -> None:
        mine = random.Random(os.getpid())
        while True:
            with sa.Ring(where) as reader:
                before, read = reader.position, 0
                for batch in reader:
                    number, place = number_of(batch), reader.position
                    right = place == before + 1 if policy == "all" else place > before
                    before, read = place, read + 1
                    torn = number != place
                    if torn or not right or read == 8:
                        os.write(say, _SAID.pack(read, torn, not right))
                        read = 0
                    if mine.random() < 0.002:
                        break
                if mine.random() < 0.3:
                    os.kill(os.getpid(), signal.SIGKILL)

    def listen() -> None:
        with suppress(BlockingIOError):
            heard.extend(os.read(hear, 1 << 20))

    works = [write_on(where, policy), *[read] * READERS]
    children = [forked(work) for work in works]
    faults = 0
    end = time.monotonic() + seconds
    with killed_at_end(children):
        while time.monotonic() < end:
            time.sleep(choice.uniform(0, 0.02))
            listen()
            number = choice.randrange(len(children))
            if choice.random() < 0.5:
                os.kill(children[number], signal.SIGSTOP)
                time.sleep(choice.uniform(0, 0.02))
                with suppress(ProcessLookupError):
                    os.kill(children[number], signal.SIGCONT)
            elif number or choice.random() < 0.2:
                os.kill(children[number], signal.SIGKILL)
            faults += 1
            for i, child in enumerate(children):
                if os.waitpid(child, os.WNOHANG)[0]:
                    children[i] = forked(works[i])
    listen()
    with sa.Ring(where, like=LIKE, slots=4, policy=policy, timeout=30) as ring:
        frames, lost = ring.info().frames, 0
        try:
            check_all_slots(ring)
        except (AssertionError, sa.ShmarrowError) as error:
            complain("lost:", repr(error))
            lost = 1
    for descriptor in (hear, say):
        os.close(descriptor)
    rows = np.frombuffer(heard[: len(heard) // _SAID.size * _SAID.size], "<i8").reshape(-1, 3)
    read_all, torn, unordered = rows.sum(axis=0).tolist()
    return {"frames": frames, "read": read_all, "torn": torn, "unordered": unordered, "lost": lost, "faults": faults}


def main(seconds: float = 60.0, every: float = 29) -> int:
    """Run all of it; the exit status is the number of failures."""
    failed = 0
    where = f"shm:shmarrow-soak-ring-{os.getpid()}"
    for policy in ("latest", "all"):
        found = run(where, policy, seconds, os.getpid())
        print(f"{policy}: {found}", flush=True)
        failed += bool(found["torn"] or found["unordered"] or found["lost"])
        number = 1
        while kill_writer(where, policy, number):
            number += int(every)
        print(f"{policy}: killed before one of {every} of {number} instructions of a writer", flush=True)
        print(f"{policy}: the same, {kill_readers(where, policy, int(every))} readers", flush=True)
    left = [*Path("/dev/shm").glob(f"*{where[4:]}*")]
    return failed + len(left)


if __name__ == "__main__":
    sys.exit(main(*map(float, sys.argv[1:])))
