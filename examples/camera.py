"""A camera with two readers: frames through a ring, and what arrives, refreshed every half second.

A generator of frames stands for the camera. One reader keeps up; the other takes 100 ms for each frame, as a detector
might, and is told what it misses. Run it with ``python examples/camera.py [SECONDS]``, and ``shmarrow top`` beside it.
"""

from __future__ import annotations

import multiprocessing
import os
import sys
import time
from collections.abc import Iterator
from typing import Any

import numpy as np

import shmarrow as sa

SHAPE = 1080, 1920, 3
RATE = 30.0
"""Frames per second."""
WORK = {"display": 0.0, "detector": 0.1}
"""The readers, and the seconds that each takes for a frame."""


def frames(seconds: float, rate: float) -> Iterator[int]:
    """The numbers of the frames of a camera, when they are due."""
    start = time.monotonic()
    for number in range(1, round(seconds * rate) + 1):
        time.sleep(max(0.0, start + number / rate - time.monotonic()))
        yield number


def read(ring: sa.Ring, name: str, work: float, said: Any) -> None:
    """A reader: it notes the number, the delay and the misses of each frame."""
    with ring:
        said.put((name, 0, 0.0, 0, True))
        for batch in ring:
            delay = time.monotonic() - batch["time"].to_numpy()[0]
            image = batch["image"].to_numpy()[0]
            number = int(batch["number"].to_numpy()[0])
            whole = bool((image[::100, ::100] == number % 256).all())
            said.put((name, number, delay, ring.missed, whole))
            time.sleep(work)
    said.put((name, -1, 0.0, 0, True))


def line(name: str, taken: list[Any]) -> str:
    """The frames that a reader got so far."""
    delays = sorted(each[1] for each in taken) or [0.0]
    last, _, missed, _ = taken[-1] if taken else (0, 0.0, 0, True)
    torn = sum(not each[3] for each in taken)
    median = delays[len(delays) // 2] * 1e3
    return f"{name:>10}  frame {last:5}  {len(taken):5} taken  {missed:5} missed  {torn} torn  {median:7.2f} ms behind"


def main(seconds: float = 10.0, rate: float = RATE, shape: tuple[int, ...] = SHAPE) -> dict[str, list[Any]]:
    """Run the camera and its readers; what each reader took: number, delay, misses so far, whether it is whole."""
    like = sa.record_batch({
        "number": np.zeros(1, "i8"), "time": np.zeros(1), "image": np.zeros((1, *shape), "u1"),
    })  # fmt: skip
    context = multiprocessing.get_context("spawn")
    said = context.Queue()
    taken: dict[str, list[Any]] = {name: [] for name in WORK}
    with sa.Ring(f"shm:shmarrow-camera-{os.getpid()}", like=like) as ring:
        readers = [context.Process(target=read, args=(ring, name, work, said)) for name, work in WORK.items()]
        for reader in readers:
            reader.start()
        for _ in readers:
            said.get()
        shown = time.monotonic()
        for number in frames(seconds, rate):
            with ring.write() as slot:
                slot["image"].to_numpy()[:] = number % 256  # where a camera would write
                slot["number"].to_numpy()[:] = number
                slot["time"].to_numpy()[:] = time.monotonic()
            while not said.empty():
                name, *found = said.get()
                taken[name].append(found)
            if time.monotonic() - shown > 0.5:
                shown = time.monotonic()
                print(*[line(*each) for each in taken.items()], "", sep="\n", flush=True)
    ended = 0
    while ended < len(readers):
        name, *found = said.get()
        if found[0] < 0:
            ended += 1
        else:
            taken[name].append(found)
    for reader in readers:
        reader.join()
    print(*[line(*each) for each in taken.items()], sep="\n")
    return taken


if __name__ == "__main__":
    main(*map(float, sys.argv[1:2]))
