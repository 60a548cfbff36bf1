"""The store's commands, as a shell runs them: what they print, in tables and in JSON, and their exit status."""

from __future__ import annotations

import json
import os
import pty
import re
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pyarrow as pa
from commands import become_command, forked_command
from soak import ended, forked

import shmarrow as sa

BATCH = {"id": [1, 2, 3], "city": ["Oslo", None, "Rome"]}
COMMAND = [sys.executable, "-c", "import sys; from shmarrow.cli import main; sys.exit(main())"]


def run(*words: object, status: int = 0) -> str:
    """What a command prints; it must end with this status."""
    ran = forked_command(*words)
    out, err = ran.stdout.decode(), ran.stderr.decode()
    assert ran.returncode == status, err
    assert (err == "") == (status == 0), err
    assert "Traceback" not in err
    return out if status == 0 else err


def test_a_file_goes_in_and_comes_out(where: str, tmp_path: Path) -> None:
    source = tmp_path / "cities.arrow"
    with pa.OSFile(str(source), "wb") as sink, pa.ipc.new_file(sink, pa.table(BATCH).schema) as writer:
        writer.write_table(pa.table(BATCH))
    assert run("put", where, source) == "cities\n"
    assert json.loads(run("put", where, source, "--name", "b", "--json")) == {
        "name": "b", "bytes": source.stat().st_size
    }  # fmt: skip
    assert "is taken" in run("put", where, source, status=4)
    run("put", where, source, "--overwrite")
    assert sa.Store(where).get("cities").to_pydict() == BATCH
    out = tmp_path / "out.arrow"
    assert run("get", where, "cities", out) == f"{out}\n"
    assert out.read_bytes() == source.read_bytes()
    assert "is taken" in run("get", where, "cities", out, status=4)
    run("get", where, "cities", out, "--overwrite")
    assert forked_command("get", where, "cities", "-").stdout == source.read_bytes()
    assert "no object 'x'" in run("get", where, "x", out, status=3)
    (tmp_path / "text").write_text("no Arrow")
    assert run("put", where, tmp_path / "text", status=1).startswith("shmarrow: ")
    assert "No such file" in run("put", where, tmp_path / "missing", status=3)
    assert run("ls", where).splitlines()[0].startswith("b\t")


def test_ls_and_info(where: str) -> None:
    with sa.Store(where) as store:
        store.put("batch", sa.record_batch(BATCH), expire_after=3600)
        store.put("matrix", np.zeros((2, 3)))
        held = store.get("matrix")
        sizes = {name: store.info(name).nbytes for name in store}
        found = json.loads(run("ls", where, "--json"))
        assert [(each["name"], each["bytes"], each["pins"]) for each in found] == [
            ("batch", sizes["batch"], 0), ("matrix", sizes["matrix"], 1)
        ]  # fmt: skip
        assert all(0 <= each["idle"] <= each["age"] < 60 for each in found)
        found = json.loads(run("ls", where, "--long", "--json"))
        assert [(each["kind"], each["rows"], each["shape"]) for each in found] == [
            ("record_batch", 3, None), ("ndarray", None, [2, 3])
        ]  # fmt: skip
        assert [line.split("\t")[:3] for line in run("ls", "-l", where).splitlines()] == [
            ["batch", "record_batch", "3"], ["matrix", "ndarray", "2×3"]
        ]  # fmt: skip
        one = json.loads(run("info", where, "batch", "--json"))
        assert one["schema"] == {"id": "int64", "city": "string"}
        assert 3000 < one["expires_in"] <= 3600
        text = run("info", where, "batch")
        assert "rows     3 in 1 batches" in text
        assert "city: string" in text
        assert "no object" in run("info", where, "x", status=3)
        del held


def test_rm(where: str) -> None:
    with sa.Store(where) as store:
        for name in "abc":
            store.put(name, np.ones(1))
        assert run("rm", where, "a") == ""
        assert "no object 'x'" in run("rm", where, "x", "b", status=3)
        assert store.names() == ["c"]
        assert json.loads(run("rm", where, "--all", "--json")) == {"removed": ["c"]}
        assert "expected names of objects, or --all" in run("rm", where, status=2)


def test_gc(where: str) -> None:
    ended(forked(lambda: sa.Store(where, owned=True).put("orphan", np.ones(100))))
    with sa.Store(where) as store:
        store.put("mine", np.ones(1))
        nbytes = store.info("orphan").nbytes
        assert json.loads(run("gc", where, "--json")) == [
            {"store": where, "objects": ["orphan"], "bytes": nbytes, "leftovers": 1}
        ]
        assert run("gc", where) == "0 objects and 0 leftovers removed, 0 B\n"
        assert store.names() == ["mine"]


def test_all_stores_in_shared_memory(shm_name: str) -> None:
    with sa.Store(shm_name) as store:
        store.put("a", np.ones(1))
        nbytes = store.info("a").nbytes
        found = json.loads(run("ls", "--json"))
        assert {"store": shm_name, "objects": 1, "bytes": nbytes} in found
        ended(forked(lambda: sa.Store(shm_name, owned=True).put("orphan", np.ones(100))))
        found = json.loads(run("gc", "--json"))
        assert [each["objects"] for each in found if each["store"] == shm_name] == [["orphan"]]
        store.clear()


def test_watch(where: str) -> None:
    with sa.Store(where) as store:
        store.put("a", np.ones(1))
        words = ["watch", where, "--json", "--count", "2", "--seconds", "30"]
        process = subprocess.Popen([*COMMAND, *words], stdout=subprocess.PIPE, text=True)
        assert process.stdout is not None
        assert json.loads(process.stdout.readline())["event"] == "present"
        store.put("b", np.ones(1))
        store.delete("a")
        told = [json.loads(line) for line in process.stdout.read().splitlines()]
        assert process.wait(30) == 0
        assert [(each["event"], each["name"]) for each in told] == [("published", "b"), ("deleted", "a")]
        assert run("watch", where, "--seconds", "0.1") == "present    b\n"


def test_stats(where: str) -> None:
    with sa.Store(where) as store:
        store.put("a", np.ones(1))
        found = json.loads(run("stats", where, "--json"))
        assert (found["objects"], found["bytes"], found["pinned"]) == (1, store.info("a").nbytes, 0)
        assert found["total"] >= found["free"] > 0
        assert run("stats", where).splitlines()[0].split() == ["objects", "1"]


def test_a_store_that_is_not_there_is_not_made(tmp_path: Path) -> None:
    for words in (["ls"], ["info", "x"], ["rm", "x"], ["stats"], ["gc"], ["watch"], ["get", "x"]):
        command, *rest = words
        assert "there is no such directory" in run(command, tmp_path / "none", *rest, status=3)
    assert not (tmp_path / "none").exists()


def test_a_full_store(tmp_path: Path) -> None:
    code = (
        "import resource, sys; from shmarrow.cli import main; import shmarrow as sa, shmarrow.cli.store as commands\n"
        "real = sa.Store\n"
        "sa.Store = lambda where, **options: real(where, capacity=1000, **options)\n"
        "sys.exit(main())\n"
    )
    with sa.ipc.new_file(tmp_path / "f", sa.record_batch(BATCH).schema) as writer:
        writer.write(sa.record_batch({"id": np.arange(1000), "city": ["x"] * 1000}))
    ran = subprocess.run(
        [sys.executable, "-c", code, "put", str(tmp_path / "s"), str(tmp_path / "f")], capture_output=True, text=True
    )
    assert ran.returncode == 5
    assert "a capacity of 1000 bytes" in ran.stderr


def test_on_a_terminal(where: str, tmp_path: Path) -> None:
    """A table with headings, and a bar while something large is copied."""
    with sa.Store(where) as store:
        store.put("large", np.ones(1 << 23))

        def seen(*words: str) -> str:
            child, master = pty.fork()
            if child == 0:
                become_command(words)
            text = b""
            deadline = time.monotonic() + 60
            while time.monotonic() < deadline:
                try:
                    text += os.read(master, 4096)
                except OSError:
                    break
            os.close(master)
            assert ended(child) == 0
            return re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", text.decode())

        shown = seen("ls", where)
        assert shown.split()[:3] == ["name", "size", "age"]
        assert "───" in shown
        assert "64.0 MiB" in shown
        shown = seen("get", where, "large", str(tmp_path / "out"))
        assert "get large" in shown
        assert "67.1/67.1 MB" in shown or "64.0/64.0 MiB" in shown
        assert "of it free" in seen("stats", where)
