"""Rings in the commands ``info`` and ``top``."""

from __future__ import annotations

import json
import os

import numpy as np
from commands import forked_command

import shmarrow as sa


def run(*words: object, status: int = 0) -> str:
    """What a command prints; it must end with this status."""
    ran = forked_command(*words)
    assert ran.returncode == status, ran.stderr
    return (ran.stderr if status else ran.stdout).decode()


def test_info_describes_a_ring(shm_name: str) -> None:
    with sa.Ring(shm_name, like=np.zeros(3), slots=5, policy="all") as ring, sa.Ring(shm_name) as reader:
        ring.put(np.ones(3))
        next(reader)
        found = json.loads(run("info", shm_name, "--json"))
        shown = run("info", shm_name)
    command = found["readers"][0].pop("command")
    assert found["readers"] == [{"process": os.getpid(), "position": 1, "missed": 0, "holds": True}]
    assert {name: found[name] for name in ("ring", "kind", "policy", "slots", "frames", "writer")} == {
        "ring": shm_name,
        "kind": "tensor",
        "policy": "all",
        "slots": 5,
        "frames": 1,
        "writer": os.getpid(),
    }
    for text in (f"ring     {shm_name}", "5 slots, each a tensor", f"process {os.getpid()} {command}"):
        assert text in shown


def test_top_shows_rings(shm_name: str) -> None:
    with sa.Ring(shm_name, like=np.zeros(3)) as ring, sa.Ring(shm_name) as reader:
        for _ in range(3):
            ring.put(np.ones(3))
        next(reader)
        first = json.loads(run("top", shm_name, "--json", "--count", "1"))
        assert first["stores"] == []
        assert [(each["ring"], each["frames"], each["rates"]) for each in first["rings"]] == [(shm_name, 3, None)]
        lines = run("top", "--count", "2", "--interval", "0.05").splitlines()
        rows = [dict(zip(lines[0].split("\t"), line.split("\t"), strict=True)) for line in lines[1:]]
        mine = [row for row in rows if row["store"] == shm_name]
        assert [row["puts/s"] for row in mine] == ["", "0"]
        assert f"written by {os.getpid()}" in mine[-1]["attached"]
        assert f"frame 3, 2 missed, by {os.getpid()}" in mine[-1]["attached"]
    assert shm_name not in run("top", "--count", "1")


def test_a_ring_that_cannot_be_opened_is_shown_with_the_reason(shm_name: str) -> None:
    with sa.Ring(shm_name, like=np.zeros(3), mode=0o666):
        shown = run("top", shm_name, "--count", "1")
        assert "not opened: its mode is 0666, so others may write to it" in shown
        assert "others may write to it" in run("info", shm_name, status=1)
        assert json.loads(run("info", shm_name, "--json", "--trust"))["ring"] == shm_name
