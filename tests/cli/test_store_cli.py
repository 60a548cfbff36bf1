"""The commands of stores and rings, as a shell runs them: what they print, in tables and JSON, and exit statuses."""

from __future__ import annotations

import itertools
import json
import os
import re
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import forms
import lab
import numpy as np
import pyarrow as pa
import pytest
from commands import StartedCommand, forked_command, on_a_terminal

import shmarrow as sa
from shmarrow.cli.host import is_store, shared

BATCH = {"id": [1, 2, 3], "city": ["Oslo", None, "Rome"]}
HOLD = """
    import shmarrow as sa
    store = sa.Store(where)
    held = [store.get(name) for name in names]
    say("held")
    hear()
"""
HOSTILE = "a\nb\t\x1b[31m\u202e\u2028"
ESCAPED = r"a\nb\t\x1b[31m\u202e\u2028"


def run(*words: object, status: int = 0, stdin: bytes = b"") -> str:
    """Return the output of a command, which must end with this status."""
    ran = forked_command(*words, stdin=stdin)
    out, err = ran.stdout.decode(), ran.stderr.decode()
    assert ran.returncode == status, err
    assert (re.sub("created the store .*\n", "", err) == "") == (status == 0), err
    assert "Traceback" not in err
    assert (out + err).replace("\n", "").replace("\t", "").isprintable()
    return out if status == 0 else err


def error(*words: object, status: int, stdin: bytes = b"") -> dict[str, Any]:
    """The error of a command with ``--json``: one object on standard error, and nothing on standard output."""
    ran = forked_command(*words, "--json", stdin=stdin)
    assert (ran.returncode, ran.stdout) == (status, b""), ran
    found: dict[str, Any] = json.loads(ran.stderr)
    assert list(found) == ["error", "message", "hint", "status"]
    assert found["status"] == status
    return found


FILE = forms.peers_file(pa.table(BATCH))


@contextmanager
def held(where: str, *names: str) -> Iterator[int]:
    """A process that has objects attached; its number."""
    with lab.child(HOLD, where=where, names=names) as process:
        assert process.hear() == "held"
        yield process.pid


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """A file of cities."""
    (tmp_path / "cities.arrow").write_bytes(FILE)
    return tmp_path / "cities.arrow"


def test_a_file_goes_in_and_comes_out(where: str, source: Path, tmp_path: Path) -> None:
    assert run("put", where, source) == "cities\n"
    assert json.loads(run("put", where, source, "--name", "b", "--json")) == {"name": "b", "bytes": len(FILE)}
    assert "is taken" in run("put", where, source, status=4)
    run("put", where, source, "--overwrite")
    with sa.Store(where) as store:
        assert store.get("cities").to_pydict() == BATCH
        out = tmp_path / "out.arrow"
        assert run("get", where, "cities", out) == f"{out}\n"
        assert out.read_bytes() == FILE
        assert run("get", where, "cities", out) == f"{out}\n"  # a file is replaced, as in Python
        assert forked_command("get", where, "cities", "-").stdout == FILE
        assert "no object 'x'" in run("get", where, "x", out, status=3)
        assert f"shmarrow put {where} {out}" in run("put", out, where, status=2)
        (tmp_path / "text").write_text("no Arrow")
        assert run("put", where, tmp_path / "text", status=1).startswith("shmarrow: ")
        assert "No such file" in run("put", where, tmp_path / "missing", status=3)
        assert [line.split("\t")[0] for line in run("names", where).splitlines()] == ["b", "cities"]
        store.destroy()


def test_what_a_shell_is_told(shm_name: str, source: Path, tmp_path: Path) -> None:
    """In words of a shell; and what is wrong leaves nothing behind."""
    assert "/etc/passwd" in run("put", shm_name, "/etc/passwd", status=1)
    assert "1 to 255 bytes" in run("put", shm_name, source, "--name", "", status=2)
    assert not os.path.exists(f"/dev/shm/{shm_name[4:]}")
    run("put", shm_name, source)
    assert (
        error("put", shm_name, source, status=4)["hint"]
        == "remove that object with shmarrow delete, or pass --overwrite"
    )
    assert error("get", shm_name, "cities", "/nonexistent/x", status=3)["hint"].startswith("make the directory")
    assert "expected a number from 1 on, found 'x'" in run("top", "--count", "x", status=2)
    assert "expected seconds" in run("top", "--interval", "x", status=2)
    assert json.loads(forked_command("--json", "names", shm_name).stdout)[0]["name"] == "cities"
    assert "3 in 1 batch\n" in run("info", shm_name, "cities")
    with sa.Store(shm_name) as store:
        store.put("number", 5)
    assert run("names", "-l", shm_name).splitlines()[1].split("\t")[:3] == ["number", "int", ""]


@pytest.mark.parametrize(("store", "umask", "file"), [(0o600, 0o027, 0o600), (0o644, 0o022, 0o644)])
def test_a_copy_has_the_mode_of_the_store(store: int, umask: int, file: int, shm_name: str, tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        with sa.Store(shm_name, mode=store) as made:
            made.put("a", 1)
        os.umask(umask)
        run("get", shm_name, "a", tmp_path / "a")
    finally:
        os.umask(before)
    assert (tmp_path / "a").stat().st_mode & 0o777 == file


def test_put_from_a_pipe(shm_name: str) -> None:
    for name, content in (("file", FILE), ("stream", forms.peers_stream(pa.table(BATCH)))):
        reading, writing = os.pipe()
        os.write(writing, content)
        os.close(writing)
        process = StartedCommand("put", shm_name, "-", "--name", name, stdin=reading)
        os.close(reading)
        assert process.wait() == (0, f"created the store {shm_name!r}\n" if name == "file" else "")
        with sa.Store(shm_name) as store:
            assert bytes(store.attach(name).data) == content
            assert store.get(name).to_pydict() == BATCH
    assert "--name" in error("put", shm_name, "-", stdin=FILE, status=2)["message"]
    for wrong in (b"", b"text that is no Arrow", FILE[:200]):
        found = error("put", shm_name, "-", "--name", "x", stdin=wrong, status=1)
        assert found["error"] == "InvalidData"
        assert "standard input" in found["message"]
    assert json.loads(run("names", shm_name, "--json"))[-1]["name"] == "stream"


def test_ls_and_info(shm_name: str) -> None:
    with sa.Store(shm_name) as store:
        store.put("batch", sa.record_batch({**BATCH, "text": ["x" * 5000] * 3}), expire_after=3600, protect=True)
        store.put("matrix", np.zeros((2, 500)))
        sizes = {name: store.info(name).nbytes for name in store}
        with held(shm_name, "matrix"), held(shm_name, "matrix"):
            found = json.loads(run("names", shm_name, "--json"))
            assert [(each["name"], each["bytes"], each["pins"], each["protected"]) for each in found] == [
                ("batch", sizes["batch"], 0, True), ("matrix", sizes["matrix"], 2, False)
            ]  # fmt: skip
            assert all(0 <= each["idle"] <= each["age"] < 60 for each in found)
            assert [each["generation"] for each in found] == [store.info(name).generation for name in sorted(sizes)]
            found = json.loads(run("names", shm_name, "--long", "--json"))
            assert [(each["kind"], each["rows"], each["shape"], each["pins"]) for each in found] == [
                ("record_batch", 3, None, 0), ("ndarray", None, [2, 500], 2)
            ]  # fmt: skip
        assert [line.split("\t")[:3] for line in run("names", "-l", shm_name).splitlines()] == [
            ["batch", "record_batch", "3"], ["matrix", "ndarray", "2×500"]
        ]  # fmt: skip
        assert run("names", shm_name, "--prefix", "m").split("\t")[0] == "matrix"
        one = json.loads(run("info", shm_name, "batch", "--json"))
        assert one["schema"] == {"id": "int64", "city": "string", "text": "string"}
        assert 3000 < one["expires_in"] <= 3600
        assert os.path.getsize(one["path"]) == one["bytes"] <= one["allocated"]
        text = run("info", shm_name, "batch")
        assert re.search("^rows +3 in 1 batch$", text, re.MULTILINE)
        assert re.search("^state +protected$", text, re.MULTILINE)
        assert "city: string" in text
        assert "no object" in run("info", shm_name, "x", status=3)


def test_names_are_escaped_in_text_and_exact_in_json(shm_name: str, tmp_path: Path, monkeypatch: Any) -> None:
    """`run` asserts that nothing that is printed acts on a terminal."""
    with sa.Store(shm_name) as store:
        store.put(HOSTILE, sa.record_batch({HOSTILE: range(1000)}))
        assert run("names", shm_name).split("\t")[0] == ESCAPED
        assert run("names", "-l", shm_name).split("\t")[0] == ESCAPED
        assert f"name        {ESCAPED}\n" in run("info", shm_name, HOSTILE)
        assert run("watch", shm_name, "--seconds", "0") == f"present    {ESCAPED}\n"
        assert run("wait", shm_name, HOSTILE) == f"{ESCAPED}\n"
        assert run("put", shm_name, store.info(HOSTILE).path, "--name", HOSTILE, "--overwrite") == f"{ESCAPED}\n"
        run("delete", shm_name, HOSTILE + "x", status=3)
        assert json.loads(run("names", shm_name, "--json"))[0]["name"] == HOSTILE
        monkeypatch.chdir(tmp_path)
        for name in ("../up", "/etc/x", "shm:x", ".."):  # what a name says never leads out of this directory
            store.put(name, np.ones(1))
            run("get", shm_name, name)
        assert sorted(os.listdir(tmp_path)) == ["...tensor", ".._up.tensor", "_etc_x.tensor", "shm_x.tensor"]
        assert run("evict", shm_name, "1G", status=5)
        assert ESCAPED in run("evict", shm_name, "12K").splitlines()
        store.put(HOSTILE, np.ones(1), expire_after=0)
        assert f"{shm_name}: {ESCAPED}\n" in run("collect", shm_name)


def test_rm(shm_name: str) -> None:
    with sa.Store(shm_name) as store:
        for name in ("a", "b", "c", "d/1", "d/2"):
            store.put(name, np.ones(1))
        assert run("delete", shm_name, "a") == ""
        assert "no object 'x'" in run("delete", shm_name, "x", "b", status=3)
        assert store.names() == ["c", "d/1", "d/2"]
        assert json.loads(run("delete", shm_name, "--prefix", "d/", "--json")) == {"removed": ["d/1", "d/2"]}
        assert json.loads(run("delete", shm_name, "--all", "--json")) == {"removed": ["c"]}
        for words in ([], ["a", "--all"], ["--all", "--prefix", "a"]):
            assert "expected names of objects, --prefix or --all, and only one" in run(
                "delete", shm_name, *words, status=2
            )


def test_wait(shm_name: str) -> None:
    with sa.Store(shm_name) as store:
        store.put("a", np.ones(1))
        process = StartedCommand("wait", shm_name, "a", "b", "--timeout", "30")
        store.put("b", np.ones(1))
        assert process.out.read() == "a\nb\n"
        assert process.wait() == (0, "")
        assert json.loads(run("wait", shm_name, "c", "a", "--any", "--json")) == {"present": ["a"]}
        assert "'c'" in error("wait", shm_name, "a", "c", "--timeout", "0.05", status=3)["message"]
        assert run("get", shm_name, "a", "--timeout", "-1", status=2)


def test_gc_and_evict(shm_name: str) -> None:
    lab.run("import shmarrow as sa; sa.Store(where, owned=True).put('orphan', bytes(100))", where=shm_name)
    with sa.Store(shm_name) as store:
        store.put("mine", np.ones(1000))
        assert json.loads(run("collect", shm_name, "--json")) == [{"store": shm_name, "objects": ["orphan"]}]
        assert run("collect", shm_name) == "0 objects and 0 leftovers removed\n"
        assert store.names() == ["mine"]
        store.put("other", np.ones(1000))
        with held(shm_name, "mine"):
            assert "only 12288 bytes may be evicted" in run("evict", shm_name, "1G", status=5)
            assert json.loads(run("evict", shm_name, "1K", "--json")) == {"evicted": ["other"]}
        assert error("evict", shm_name, "1Q", status=2)["message"].endswith("found '1Q'")


def test_all_stores_in_shared_memory(shm_name: str) -> None:
    with sa.Store(shm_name, capacity=1 << 20) as store, sa.Store(f"{shm_name}-other") as other:
        store.put("a", np.ones(1))
        os.mkdir(f"{other.path}-none")  # neither this nor a file is a store
        Path(f"{other.path}-none", "control").write_bytes(b"x" * 5000)
        assert [each for each in shared(is_store) if each.startswith(shm_name)] == [shm_name, f"{shm_name}-other"]
        found = {each.get("store"): each for each in json.loads(run("names", "--json"))}
        one = found[shm_name]
        assert (one["objects"], one["bytes"], one["capacity"], one["room"]) == (1, 512, 1 << 20, (1 << 20) - 512)
        assert found[f"{shm_name}-other"]["objects"] == 0
        lab.run("import shmarrow as sa; sa.Store(where, owned=True).put('orphan', bytes(100))", where=shm_name)
        leftover = Path("/dev/shm", f".shmarrow-{shm_name[4:]}")  # of a killed writer of shm:x
        leftover.touch()
        assert shm_name in run("collect").splitlines()
        assert {"store": shm_name} in json.loads(run("collect", "--json"))
        assert "orphan" in store
        assert leftover.exists()
        found = json.loads(run("collect", "--all", "--json"))
        assert [each["objects"] for each in found if each.get("store") == shm_name] == [["orphan"]]
        assert found[-1]["store"] == "shm:"
        assert found[-1]["leftovers"] >= 1
        assert not leftover.exists()


def test_watch(shm_name: str) -> None:
    with sa.Store(shm_name) as store:
        store.put("a", np.ones(1))
        process = StartedCommand("watch", shm_name, "--json", "--count", "2", "--seconds", "30")
        assert json.loads(process.out.readline())["event"] == "present"
        store.put("b", np.ones(1))
        store.delete("a")
        told = [json.loads(line) for line in process.out]
        assert process.wait() == (0, "")
        assert [(each["event"], each["name"]) for each in told] == [("published", "b"), ("deleted", "a")]
        assert told[0]["generation"] == store.info("b").generation
        assert run("watch", shm_name, "--seconds", "0.1") == "present    b\n"
        assert run("watch", shm_name, "--seconds", "0", "--prefix", "x") == ""


def test_stats(shm_name: str, tmp_path: Path) -> None:
    with sa.Store(shm_name, capacity=1 << 20, mode=0o640) as store:
        for name in "abc":
            store.put(name, np.ones(1000))
        store.evict(1)
        with held(shm_name, "b", "c") as process:
            store.delete("c")
            found = json.loads(run("stats", shm_name, "--json"))
            assert (found["objects"], found["bytes"], found["pinned"], found["removed"]) == (1, 12288, 12288, 12288)
            command = Path(f"/proc/{process}/comm").read_text().strip()
            assert found["pins"] == [{"process": process, "command": command, "objects": 2}]
            assert (found["puts"], found["evictions"]) == (3, 1)
            assert found["room"] == found["capacity"] - 24576
            assert found["total"] >= found["free"] > 0
            assert found["settings"] == {
                "capacity": 1 << 20, "mode": "0640", "eviction": "lru", "durable": False,
            }  # fmt: skip
            lines = run("stats", shm_name).splitlines()
            assert lines[0].split() == ["objects", "1"]
            assert ["so", "far", "puts", "3,", "evictions", "1"] in [line.split() for line in lines]
            assert lines[-1].split() == ["attached", "2", "by", str(process), *command.split()]
        store.destroy()


def test_a_store_that_is_not_there_is_not_made(shm_name: str, tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "mine").write_text("mine")
    with sa.Store(shm_name) as store:
        store.put("cities", np.ones(1))
        typo = f"{shm_name}x"
        for words in (["names"], ["info", "x"], ["delete", "x"], ["stats"], ["collect"], ["watch"], ["get", "x"],
                      ["wait", "x"], ["evict", "1"], ["destroy"], ["top", "--count", "1"]):  # fmt: skip
            for where in (tmp_path / "none", tmp_path / "folder", typo) if words == ["names"] else (typo,):
                found = error(words[0], where, *words[1:], status=3)
                assert found["error"] == "ObjectNotFound"
                assert "there is no store at" in found["message"]
                guesses = where == typo and words != ["destroy"]
                assert (found["hint"] == f"did you mean {shm_name!r}?") == guesses
        assert not os.path.exists(f"/dev/shm/{typo[4:]}")
        assert sorted(os.listdir(tmp_path)) == ["folder"]
        assert os.listdir(tmp_path / "folder") == ["mine"]
        assert error("get", shm_name, "citis", status=3)["hint"] == "did you mean 'cities'?"
        assert run("delete", shm_name, "citis", status=3).endswith("; did you mean 'cities'?\n")
        assert json.loads(run("destroy", shm_name, "--json")) == {"store": shm_name, "objects": 1}
        assert not os.path.exists(store.path)


def test_errors_in_json(shm_name: str, source: Path) -> None:
    """Every exit status, with an error that is one JSON object."""
    with sa.Store(shm_name, capacity=12288) as store:
        run("put", shm_name, source)
        assert error("put", shm_name, source, status=4)["error"] == "ObjectExists"
        store.put("held", np.ones(500))
        with held(shm_name, "cities", "held"):
            assert error("put", shm_name, source, "--name", "c", status=5)["error"] == "StoreFull"
        for words in (["names", "--bogus"], ["nonsense"], ["get", shm_name], ["top", "--interval", "nan"]):
            assert error(*words, status=2)["error"] == "WrongUsage"
        os.chmod(store.info("held").path, 0o600)
        os.truncate(store.info("held").path, 10)
        assert error("info", shm_name, "held", status=1)["error"] == "InvalidData"
        assert {each.get("error", "") for each in json.loads(run("names", "-l", shm_name, "--json"))} > {""}
        with open("/dev/full", "w") as full:
            status, err = StartedCommand("names", shm_name, "--json", stdout=full.fileno()).wait()
        assert (status, json.loads(err)["status"], json.loads(err)["error"]) == (5, 5, "StoreFull")
        process = StartedCommand("watch", shm_name, "--json")
        process.out.readline()
        status, err = process.wait(signal.SIGINT)
        assert json.loads(err)["status"] == status == 130


def test_stores_of_other_users(shm_name: str) -> None:
    """They are marked, and looked into with ``--accept-users``; what nobody else may read is not seen."""
    make = "import shmarrow as sa; sa.Store(where, mode=mode).put('a', bytes(10), expire_after=0)"
    hidden = f"{shm_name}-hidden"
    lab.as_user(make, where=shm_name, mode=0o644)
    with sa.Store(hidden):
        assert "user 65534 owns it" in error("names", shm_name, status=1)["message"]
        for words in (["names", "--json"], ["top", "--json", "--count", "1"]):
            found = json.loads(run(*words))
            rows = found if words[0] == "names" else found["stores"]
            (one,) = [each for each in rows if each.get("store") == shm_name]
            assert (one["user"], one["error"]) == ("nobody", "StorageError")
            assert "user 65534 owns it" in one["message"]
        assert f"{shm_name} is skipped: " in run("collect", "--all")
        found = json.loads(run("top", shm_name, "--json", "--count", "1", "--accept-users"))
        assert [(each["store"], each["objects"]) for each in found["stores"]] == [(shm_name, 1)]
        look = "from shmarrow.cli.host import is_store, shared; result = shared(is_store)"
        assert {shm_name, hidden} & set(lab.as_user(look)) == {shm_name}


def test_objects_in_no_store_are_listed(shm_name: str) -> None:
    with sa.segment.create(f"{shm_name}.arrow") as writer:
        writer.write([forms.file_of(sa.record_batch({"x": range(100_000)}))])
    [found] = [each for each in json.loads(run("names", "--json")) if each.get("object") == f"{shm_name}.arrow"]
    assert writer.size <= found["bytes"] < writer.size + 4096
    assert re.search(rf"^{shm_name}.arrow\t.*\tin no store$", run("names"), re.MULTILINE)
    objects = json.loads(run("top", "--json", "--count", "1"))["objects"]
    assert f"{shm_name}.arrow" in [each.get("object") for each in objects]
    assert re.search(rf"\t{shm_name}.arrow\t.*\tin no store$", run("top", "--count", "1"), re.MULTILINE)


def test_top(shm_name: str, tmp_path: Path) -> None:
    """Rates, pins and stores that come and go; nothing is locked, pinned or changed."""
    with sa.Store(shm_name, capacity=1 << 20) as store, held(shm_name) as _, sa.Store(tmp_path / "s") as other:
        store.put("a", np.ones(1000))
        other.put("b", np.ones(1))
        words = ["top", shm_name, str(other.path), "--json", "--interval", "0.1"]
        with held(shm_name, "a") as holder:
            process = StartedCommand(*words)
            lines = (json.loads(line) for line in process.out)
            first = next(lines)
            assert [(each["store"], each["objects"], each["rates"]) for each in first["stores"]] == [
                (shm_name, 1, None), (other.path, 1, None)
            ]  # fmt: skip
            assert [(each["process"], each["objects"]) for each in first["stores"][0]["pins"]] == [(holder, 1)]
            before = first["stores"][0]["puts"]
            for number in range(20):
                store.put(f"n{number}", np.ones(1))
            other.destroy()
            looks = [first]
            while len(looks) < 100 and (len(looks[-1]["stores"]) > 1 or looks[-1]["stores"][0]["objects"] < 21):
                looks.append(next(lines))
            assert process.wait(signal.SIGINT) == (0, "")
        seconds = [later["time"] - earlier["time"] for earlier, later in itertools.pairwise(looks)]
        counted = [span * look["stores"][0]["rates"]["puts"] for span, look in zip(seconds, looks[1:], strict=True)]
        assert sum(counted) == pytest.approx(20, abs=0.5)
        last = looks[-1]["stores"]
        assert [each["store"] for each in last] == [shm_name]
        assert (last[0]["puts"], last[0]["objects"]) == (before + 20, 21)
        assert last[0]["room"] == (1 << 20) - 12288 - 20 * 512
        table = run("top", shm_name, "--count", "2", "--interval", "0.05").splitlines()
        assert len(table) == 3
        cells = dict(zip(table[0].split("\t"), table[2].split("\t"), strict=True))
        assert (cells["store"], cells["objects"], cells["size"], cells["puts/s"]) == (shm_name, "21", "22.0 KiB", "0")
        process = StartedCommand("top")
        assert process.out.readline().startswith("time\tstore\t")
        assert process.wait(signal.SIGINT) == (0, "")


def test_on_a_terminal(shm_name: str, tmp_path: Path) -> None:
    """A table with headings, a line of progress while something is copied, and a table that lives until Ctrl-C."""
    with sa.Store(shm_name) as store:
        store.put("large", np.ones(1 << 23))
        shown = on_a_terminal("names", shm_name)
        assert shown.split()[:3] == ["name", "size", "age"]
        assert "───" in shown
        assert "64.0 MiB" in shown
        sa.write({"x": [1, 2]}, tmp_path / "in.arrow")
        shown = on_a_terminal("convert", str(tmp_path / "in.arrow"), str(tmp_path / "out.arrow"))
        assert "2 of 2 rows, 100 %" in shown
        shown = on_a_terminal("get", shm_name, "large", str(tmp_path / "out"))
        assert "get large" in shown
        assert "64.0 MiB of 64.0 MiB" in shown
        assert "of it free" in on_a_terminal("stats", shm_name)
        store.delete("large")
        store.put(HOSTILE, np.ones(1000))
        with held(shm_name, HOSTILE) as process:
            shown = on_a_terminal("top", shm_name, interrupt_at=f"by {process}")
            narrow = on_a_terminal("top", shm_name, interrupt_at=f"by {process}", columns=80)
        assert re.search(rf"{shm_name} +1 .* 1 by {process}", narrow)
        assert "evicted/s" not in narrow
        assert "1 store" in shown
        assert re.search(rf"store +user +objects +size +room +puts/s.*attached|{re.escape(shm_name)}", shown)
        assert f"1 by {process}" in shown
        assert "Traceback" not in shown


def test_store_and_name_as_one_argument(shm_name: str, source: Path, tmp_path: Path) -> None:
    assert forked_command("put", shm_name, source).stderr.decode() == f"created the store {shm_name!r}\n"
    assert forked_command("put", f"{shm_name}/b/c", source).stderr.decode() == ""
    assert run("wait", f"{shm_name}/cities", f"{shm_name}/b/c") == "cities\nb/c\n"
    copy = tmp_path / "copy"
    assert run("get", f"{shm_name}/b/c", copy) == f"{copy}\n"
    assert copy.read_bytes() == FILE
    assert error("info", f"{shm_name}/d", status=3)["hint"] is None
    assert "with one STORE for all" in run("delete", f"{shm_name}/cities", "b/c", status=2)
    assert "found" in run("put", f"{shm_name}/b", source, "--name", "c", status=2)
    assert run("delete", f"{shm_name}/cities", f"{shm_name}/b/c") == ""
    with sa.Store(shm_name) as store:
        assert store.names() == []


def test_loose_objects_in_shared_memory(shm_name: str) -> None:
    with sa.ipc.new_file(shm_name, sa.schema({"id": "int64"})) as writer:
        writer.write(sa.record_batch({"id": [1]}))
    bare = shm_name.removeprefix("shm:")
    assert error("inspect", bare, status=3)["hint"] == f"did you mean {shm_name!r}?"
    assert run("delete", shm_name) == ""
    assert error("delete", shm_name, status=3)["error"] == "ObjectNotFound"
    Path("/dev/shm", bare).write_bytes(b"another program's")
    assert "expected Arrow data, found text" in run("delete", shm_name, status=1)
    Path("/dev/shm", bare).unlink()


def test_hints_for_what_is_elsewhere(tmp_path: Path) -> None:
    url = "https://example.org/a.arrow"
    for words in (["head", url], ["put", tmp_path / "store", url]):
        assert run(*words, status=3).endswith("or download the file first\n")
    assert not (tmp_path / "store").exists()
    missing = f"shm:no-store-{os.getpid()}-of-this-name"
    assert error("stats", missing, status=3)["hint"] == "`shmarrow names` lists the stores in shared memory"


# --- rings ----------------------------------------------------------------------------------------------------------


def test_info_describes_a_ring(shm_name: str) -> None:
    with sa.Ring(shm_name, like=np.zeros(3), slots=5, policy="all") as ring, sa.Ring(shm_name) as reader:
        ring.put(np.ones(3))
        next(reader)
        found = json.loads(run("info", shm_name, "--json"))
        shown = run("info", shm_name)
        command = found["readers"][0].pop("command")
        assert found["readers"] == [{"process": os.getpid(), "position": 1, "missed": 0, "holds": True}]
        assert [found[name] for name in ("ring", "kind", "policy", "slots", "frames", "writer")] == [
            shm_name, "ndarray", "all", 5, 1, os.getpid()
        ]  # fmt: skip
        for text in (f"ring     {shm_name}", "5 slots, for frames of the kind ndarray", f"{os.getpid()} {command}"):
            assert text in shown
        for words in (("names", shm_name), ("destroy", shm_name), ("stats", shm_name)):
            assert f"`shmarrow info {shm_name}` describes it" in run(*words, status=1)
        for command in ("inspect", "head", "validate", "delete"):
            assert "found a ring of frames; `shmarrow info` describes it" in run(command, shm_name, status=1)


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
        assert json.loads(run("info", shm_name, "--json", "--accept-users"))["ring"] == shm_name
