"""Stores on a host with other users: what these can plant, block, read and change, and what they cannot.

``docs/safety.md`` has a table of threats that names these tests. Alice and Bob share a group, Eve is in none of theirs.
"""

from __future__ import annotations

import contextlib
import os
import stat
import subprocess
import sys
import textwrap
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import lab
import pytest

import shmarrow as sa

ALICE, BOB, EVE, GROUP = 1001, 1002, 1003, 1234
FILES = ("control", "pins", "commit")

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="takes root to become other users")


@pytest.fixture
def folder() -> Iterator[Path]:
    """A folder that everybody may write to, without a sticky bit."""
    with lab.shared_folder(0o777) as made:
        made.chmod(0o777)
        yield made


def tools(code: str) -> str:
    return TOOLS + textwrap.dedent(code)


def alice(code: str, **names: Any) -> Any:
    return lab.as_user(tools(code), ALICE, GROUP, **names)


def bob(code: str, **names: Any) -> Any:
    return lab.as_user(tools(code), BOB, groups=[GROUP], **names)


def eve(code: str, **names: Any) -> Any:
    return lab.as_user(tools(code), EVE, **names)


TOOLS = '''
import errno, os, shutil, socket, stat, time
import numpy as np
import shmarrow as sa

def told(function, *given, **named):
    """Return "ok", or the name of our error, for a call; any other exception ends the process."""
    try:
        function(*given, **named)
    except sa.ShmarrowError as error:
        assert str(error), error
        found = type(error).__name__
    else:
        found = "ok"
    return found

def plant(kind, path):
    """Something else in the place of a file or directory."""
    if os.path.isdir(path) and not os.path.islink(path):
        shutil.rmtree(path)
    elif os.path.lexists(path):
        os.unlink(path)
    if kind == "directory":
        os.mkdir(path, 0o777)
    elif kind == "file":
        open(path, "wb").write(b"x" * 8)
    elif kind == "link":
        os.symlink("/etc/passwd", path)
    elif kind == "device":
        os.symlink("/dev/zero", path)
    elif kind == "fifo":
        os.mkfifo(path, 0o666)
    elif kind == "socket":
        socket.socket(socket.AF_UNIX).bind(path)
    elif kind == "sparse":
        with open(path, "wb") as file:
            file.truncate(1 << 42)
    if kind not in ("link", "device", "gone"):
        os.chmod(path, 0o777)
'''


LOOP = """
while (job := hear()) is not None:
    globals().update(job)
    say(do())
"""


@contextlib.contextmanager
def servant(code: str, **options: Any) -> Iterator[Callable[..., Any]]:
    """A process that does the same again and again: the function ``do`` of the code, with the arguments as globals."""
    with lab.child(tools(code) + LOOP, **options) as child:

        def do(**names: Any) -> Any:
            child.say(names)
            return child.hear()

        yield do


def test_a_name_that_another_user_planted_is_refused(shm_name: str) -> None:
    path = f"/dev/shm/{shm_name[4:]}"
    planting = """
    def do():
        if kind == "store":
            plant("gone", path)
            sa.Store(path, mode=0o666).put("a", "planted")
        elif kind == "link to a store":
            os.rename(path, path + "-real")
            os.symlink(path + "-real", path)
        elif kind == "check":
            return sa.Store(path + "-real", create=False).get("a")
        else:
            plant(kind, path)
    """
    opening = """
    def opened():
        with sa.Store(where) as store:
            store.put("a", 1)
    def do():
        return told(opened), told(lambda: sa.Store(where, create=False))
    """
    kinds = ("directory", "file", "link", "device", "fifo", "socket", "sparse", "store", "link to a store")
    with (
        servant(planting, uid=EVE, path=path) as eves,
        servant(opening, uid=ALICE, where=shm_name) as alices,
        servant(opening, where=shm_name) as roots,
    ):
        for kind in kinds:
            eves(kind=kind)
            assert alices() == roots() == ("StorageError", "StorageError"), kind
        assert eves(kind="check") == "planted"


def test_planted_files_are_errors_and_nothing_hangs(folder: Path) -> None:
    """In a store of Eve's that Alice accepts by accept_users=True: anything may be wrong, and each call ends."""
    planting = """
    def do():
        shutil.rmtree(where, True)
        store = sa.Store(where, mode=0o666)
        store.put("a", np.arange(1000))
        plant(kind, store.info("a").path if file == "object" else f"{where}/{file}")
    """
    using = """
    def used():
        with sa.Store(where, accept_users=True) as store:
            for call in (lambda: store.get("a"), store.names, store.stats, lambda: store.put("b", 1), store.collect):
                found.append(told(call))
    def do():
        found.clear()
        return told(used), found
    """
    where = str(folder / "store")
    with servant(planting, uid=EVE, where=where) as eves, servant(using, uid=ALICE, where=where, found=[]) as alices:
        for file in (*FILES, "object"):
            for kind in ("directory", "file", "link", "device", "fifo", "socket", "sparse", "gone"):
                if (file, kind) == ("control", "gone"):
                    continue  # then it is no store
                eves(kind=kind, file=file)
                opened, found = alices()
                if file == "object":
                    assert (opened, found[1:]) == ("ok", ["ok"] * 4)
                    assert found[0] in ("InvalidData", "StorageError")
                elif file in ("pins", "commit") and kind in ("file", "sparse"):
                    assert (opened, found) == ("ok", ["ok"] * 5), (file, kind)  # what is in them matters to nobody
                else:
                    assert opened in ("InvalidData", "StorageError", "ObjectNotFound"), (file, kind)
                    assert found == []


def test_an_open_store_stays_in_its_directory(folder: Path) -> None:
    """Eve swaps the directory for a link to other things of Alice's, while Alice has the store open."""
    where = str(folder / "store")
    code = """
    os.mkdir(f"{where}-private", 0o700)
    open(f"{where}-private/letter", "w").write("dear Bob")
    other = sa.Store(f"{where}-other")
    other.put("a", "other")
    store = sa.Store(where)
    store.put("a", "mine")
    for target in ("private", "other"):
        say(target)
        hear()
        assert store.get("a") == "mine" and store.names() == ["a"]
        store.put("b", "new")
        assert store.get("b") == "new" and os.path.islink(where)
        assert told(sa.Store, where) == "StorageError"  # it is a link now
        store.delete("b")
        say("used")
        hear()
    store.clear()
    store.destroy()
    result = open(f"{where}-private/letter").read(), other.get("a"), os.listdir(f"{where}-private"), other.names()
    """
    with lab.child(tools(code), uid=ALICE, where=where) as owner:
        for target in ("private", "other"):
            assert owner.hear() == target
            eve(
                "os.rename(where, where + '-moved'); os.symlink(f'{where}-{target}', where)", where=where, target=target
            )
            owner.say(None)
            assert owner.hear() == "used"
            if target == "private":
                eve("os.unlink(where); os.rename(where + '-moved', where)", where=where)
            owner.say(None)
        assert owner.result() == ("dear Bob", "other", ["letter"], ["a"])
    assert os.listdir(folder / "store-moved") == []


LOCKS = """
import fcntl, struct
fds = {}
for file in os.listdir(path):
    fds[file] = os.open(f"{path}/{file}", os.O_RDONLY) if file != "commit" else -1
    if file != "commit" or told is None:
        try:
            os.open(f"{path}/{file}", os.O_RDWR)
        except PermissionError:
            pass
        else:
            raise AssertionError(f"a reader may write to {file}")
try:
    os.open(f"{path}/commit", os.O_RDONLY)
except PermissionError:
    pass
else:
    raise AssertionError("a reader may open the file of the writers' locks")
fds["."] = os.open(path, os.O_RDONLY)
taken = []
for file, fd in fds.items():
    if fd < 0:
        continue
    for how in (fcntl.LOCK_EX, fcntl.LOCK_SH):  # of the whole file, and beyond it
        try:
            fcntl.lockf(fd, how | fcntl.LOCK_NB)
            taken.append((file, how))
        except OSError:
            assert how == fcntl.LOCK_EX or file == "."
    fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    for lease in (fcntl.F_WRLCK, fcntl.F_RDLCK):
        try:
            fcntl.fcntl(fd, fcntl.F_SETLEASE, lease)
        except OSError:
            pass
        else:
            raise AssertionError("a reader has a lease")
assert all(how == fcntl.LOCK_SH for _, how in taken) and ("pins", fcntl.LOCK_SH) in taken, taken
say("locked")
hear()
"""


@pytest.mark.parametrize("mode", [0o640, 0o644], ids=oct)
def test_readers_block_nobody(shm_name: str, mode: int) -> None:
    """A reader takes all the locks that it can: everything goes on, but for the eviction of what it has pinned."""
    path = f"/dev/shm/{shm_name[4:]}"
    code = """
    store = sa.Store(where, mode=mode, capacity=1 << 20)
    for name in "abcdef":
        store.put(name, np.arange(1000))
    say("ready")
    hear()
    assert store.get("a")[999] == 999
    store.put("g", 1)
    store.put("b", 2, overwrite=True)
    store.delete("c")
    store.rename("d", "h")
    store.expire_after("e", 0)
    store.protect("f")
    assert store.get_or_put("i", lambda: 3) == 3 and store.take("g") == 1
    with store.new_draft("j", sa.schema([("x", sa.int64())]), 10) as draft:
        draft["x"][:] = 1
    assert store.names() == ["a", "b", "f", "h", "i", "j"]
    store.put("k", np.zeros(1 << 16))
    assert told(store.evict, 1 << 20) == "StoreFull"  # it is all pinned
    store.collect(), store.stats()
    assert told(store.destroy) == "StorageError" and store.get("i") == 3
    say("done")
    hear()
    store.evict(100_000)
    store.collect()
    assert store.stats().removed == store.stats().pinned == 0
    store.destroy()
    """
    other = "store = sa.Store(where, accept_users=True)\nresult = store.get('a')[999], store.names()"
    with lab.child(tools(code), uid=ALICE, gid=GROUP, where=shm_name, mode=mode) as owner:
        assert owner.hear() == "ready"
        who = {"uid": BOB, "groups": [GROUP]} if mode == 0o640 else {"uid": EVE}
        with lab.child(tools(LOCKS), path=path, **who) as reader:
            assert reader.hear() == "locked"
            owner.say(None)
            assert owner.hear() == "done"
            assert lab.run(tools(other), where=shm_name, **who) == (999, ["a", "b", "f", "h", "i", "j", "k"])
        owner.say(None)
        owner.result()


ALL, READ, NONE = ("ok", "ok", "ok"), ("ok", "StorageError", "StorageError"), ("StorageError",) * 3
MODES = {
    0o600: (ALL, NONE, NONE),
    0o640: (ALL, READ, NONE),
    0o644: (ALL, READ, READ),
    0o660: (ALL, ALL, NONE),
    0o666: (ALL, ALL, ALL),
}


def test_modes_let_in_whom_they_name(shm_name: str) -> None:
    """Get, put and delete by the owner, a member of the group and another user, at each mode; umasks change nothing."""
    path = f"/dev/shm/{shm_name[4:]}"
    use = """
    def opened(call):
        with sa.Store(where, accept_users=trust) as store:
            call(store)
    def put(store):
        store.put("new", 1)
    result = tuple(map(lambda call: told(opened, call), (lambda store: store.get("a"), put, lambda s: s.delete("b"))))
    """
    make = """
    store = sa.Store(where, mode=mode)
    for name in "abc":
        store.put(name, np.arange(10), overwrite=True)
    if "new" in store:
        store.delete("new")
    """
    for mode, expected in MODES.items():
        for umask, person, rights in zip((0o077, 0o027, 0), (ALICE, BOB, EVE), expected, strict=True):
            alice(make, where=shm_name, mode=mode, umask=umask)
            who = {"uid": person, "groups": [] if person == EVE else [GROUP], "umask": umask}
            assert lab.run(tools(use), where=shm_name, trust=True, **who) == rights, (oct(mode), person)
            if person != ALICE:  # whom another user's directory is not good enough, unless they say so
                assert lab.run(tools(use), where=shm_name, trust=False, **who) == NONE
            found = {file: stat.S_IMODE(os.stat(f"{path}/{file}").st_mode) for file in FILES}
            writers = mode & 0o600 | (mode & 0o020) * 3 | (mode & 0o002) * 3
            assert found == {"control": mode, "pins": mode, "commit": writers}
        alice("sa.Store(where).destroy()", where=shm_name)
    assert not os.path.exists(path)


def test_readers_have_all_that_reads_and_none_that_writes(shm_name: str) -> None:
    """At mode 0640, also when objects have expired; whatever would change something is an error of ours."""
    alice(
        """
        store = sa.Store(where, mode=0o640, owned=True)
        store.put("a", np.arange(10))
        store.put("old", 1, expire_after=0)
        store.put("big", np.zeros(1 << 19))
        """,
        where=shm_name,
    )  # fmt: skip
    code = """
    store = sa.Store(where, accept_users=True)
    assert store.names() == ["a", "big"] == sorted(store) and len(store) == 2 and "old" not in store
    assert store.get("a")[9] == 9 and store.get("big").shape == (1 << 19,)
    assert told(store.get, "old") == told(store.get, "none") == told(store.info, "old") == "ObjectNotFound"
    assert told(store.get, "none", timeout=0.01) == "ObjectNotFound" and store.info("a").nbytes > 80
    assert store.info("a").owner is None and not store.info("a").orphaned  # it cannot tell
    assert sorted(each.name for each in store.scan()) == ["a", "big"] and store.stats().objects == 3
    assert store.wait(["a"]) == ["a"] and store.get_or_put("a", lambda: 1)[0] == 0
    with store.pin("a"), store.watch() as watch:
        assert watch.names == ["a", "big"] and watch.get(0) is None
    schema = sa.schema([("x", sa.int64())])
    for call in (
        lambda: store.put("new", 1), lambda: store.put("new", np.zeros(1 << 19)),
        lambda: store.put_file("new", store.info("big").path), lambda: store.new_draft("new", schema, 1),
        lambda: store.new_file("new", schema), lambda: store.get_or_put("new", lambda: 1), lambda: store.take("a"),
        lambda: store.delete("a"), lambda: store.delete(prefix="a"), lambda: store.rename("a", "b"), store.clear,
        lambda: store.expire_after("a", 0), lambda: store.protect("a"), lambda: store.evict(1), store.collect,
        lambda: store.configure(capacity=1 << 20), store.destroy,
    ):
        assert told(call) == "StorageError", call
    store.close()
    """
    bob(code, where=shm_name)
    assert alice("result = sa.Store(where).collect()", where=shm_name) == ["a", "big", "old"]


@pytest.mark.parametrize("umask", [0o077, 0o027, 0o002], ids=oct)
def test_a_group_shares_a_store(folder: Path, umask: int) -> None:
    """In a directory of the group's, each member does everything to the objects of the others."""
    where = str(folder / "store")
    os.mkdir(where)
    os.chown(where, ALICE, GROUP)
    os.chmod(where, 0o2770)
    first = """
    store = sa.Store(where, mode=0o660, accept_users=trust, owned=True)
    with store.new_draft("drawn", sa.schema([("x", sa.int64())]), 100_000) as draft:
        draft["x"][:] = 7
    with store.new_file("written", sa.schema([("x", sa.int64())])) as writer:
        writer.write(sa.record_batch({"x": np.arange(300_000)}))
    for name in ("small", "taken", "replaced", "deleted", "renamed", "short"):
        store.put(name, who)
    store.put("large", np.full(1 << 19, int(who)))
    store.configure(capacity=1 << 26)
    say("put")
    hear()
    assert store.get("replaced") == "again" and store.get("new name") == who and "short" not in store
    assert sorted(store.collect()) == ["short"]
    assert store.get("from bob") == "bob" and store.get("large from bob")[-1] == 5
    """
    second = """
    store = sa.Store(where, accept_users=True)
    assert store.settings.mode == 0o660 and store.capacity == 1 << 26
    assert store.get("small") == who and store.get("large")[-1] == int(who) and store.take("taken") == who
    assert store.get("drawn")["x"][99_999] == 7 and store.get("written")["x"][299_999] == 299_999
    store.put("replaced", "again", overwrite=True)
    store.delete("deleted")
    store.rename("renamed", "new name")
    store.expire_after("short", 0)
    store.protect("small")
    store.put("from bob", "bob")
    store.put("large from bob", np.full(1 << 19, 5))
    assert store.info("small").orphaned is False
    draft = store.new_draft("killed", sa.schema([("x", sa.int64())]), 1 << 20)
    say("done")
    hear()
    """
    three = [{"uid": ALICE, "gid": ALICE, "groups": [GROUP]}, {"uid": BOB, "groups": [GROUP]}]
    for one, two in (three, three[::-1]):
        with lab.child(tools(first), umask=umask, where=where, trust=one["uid"] != ALICE, who="8", **one) as maker:
            assert maker.hear() == "put"
            with lab.child(tools(second), umask=umask, where=where, who="8", **two) as other:
                assert other.hear() == "done"
            maker.say(None)
            maker.result()
        objects = [path for path in Path(where).iterdir() if path.name not in FILES]
        assert {(path.stat().st_gid, stat.S_IMODE(path.stat().st_mode)) for path in objects} == {(GROUP, 0o440)}
        assert {path.stat().st_uid for path in objects} == {ALICE, BOB}
        rest = """
        store = sa.Store(where, accept_users=True)
        gone = store.collect()
        assert "drawn" in gone, gone
        assert sorted(store.names()) == ["from bob", "large from bob", "replaced"], store.names()
        assert "large from bob" in store.evict(1 << 22)
        store.clear()
        assert sorted(os.listdir(where)) == ["commit", "control", "pins"] and store.stats().nbytes == 0
        """
        lab.run(tools(rest), umask=umask, where=where, **two)
        for file in FILES:  # and the next one makes the store
            os.unlink(f"{where}/{file}")


def test_a_file_of_another_user_is_no_control_file(folder: Path) -> None:
    """A member of a group that may write can replace the control file: the others notice."""
    where = str(folder / "store")
    alice("sa.Store(where, mode=0o660).put('a', 1)", where=where)
    bob("data = open(f'{where}/control', 'rb').read(); os.unlink(f'{where}/control')\n"
        "open(f'{where}/control', 'wb').write(data); os.chmod(f'{where}/control', 0o660)", where=where)  # fmt: skip
    assert alice("result = told(sa.Store, where), told(sa.Store, where, accept_users=True)", where=where) == (
        "StorageError", "ok"
    )  # fmt: skip


def test_trust_names_users(folder: Path) -> None:
    """Whom a caller names is trusted like the caller; what others may write to, or own, stays refused."""
    where = str(folder / "store")
    alice("sa.Store(where, mode=0o660).put('a', 1)", where=where)
    code = """
    for trust in (alice, [alice], {eve, alice}):
        with sa.Store(where, accept_users=trust) as store:
            assert store.get("a") == 1
            store.put("b", 2, overwrite=True)
    result = [told(sa.Store, where, accept_users=trust) for trust in (False, eve, [], "nobody", True)]
    """
    assert bob(code, where=where, alice=ALICE, eve=EVE) == ["StorageError"] * 4 + ["ok"]
    alice("os.chmod(where, 0o2777)", where=where)
    code = "result = [told(sa.Store, where, accept_users=trust) for trust in (alice, True)]"
    assert bob(code, where=where, alice=ALICE) == ["StorageError", "ok"]


def test_what_others_put_into_an_empty_directory(folder: Path) -> None:
    """A member of the group puts files of locks there before the owner makes the store: errors, and no half a store."""
    code = """
    result = [told(sa.Store, where, mode=mode) for mode in modes]
    assert "control" not in os.listdir(where)
    """
    for file, kind in (("pins", "file"), ("commit", "file"), ("pins", "fifo"), ("commit", "link"), ("x", "file")):
        where = str(folder / f"{file}-{kind}")
        os.mkdir(where)
        os.chown(where, ALICE, GROUP)
        os.chmod(where, 0o2770)
        bob("plant(kind, f'{where}/{file}')", where=where, file=file, kind=kind)
        assert alice(code, where=where, modes=[None, 0o640, 0o660]) == ["StorageError"] * 3, (file, kind)
    where = str(folder / "root")  # whose mode Alice may not change: the group could write to a store of her own there
    os.mkdir(where)
    os.chown(where, 0, GROUP)
    os.chmod(where, 0o2770)
    assert alice(code, where=where, modes=[None, 0o640]) == ["StorageError"] * 2
    assert alice("result = told(sa.Store, where, mode=0o660)", where=where) == "ok"


def test_root_shares_the_stores_of_users(folder: Path) -> None:
    where = str(folder / "store")
    alice("sa.Store(where).put('a', 'mine')", where=where)
    with pytest.raises(sa.StorageError, match=f"user {ALICE} owns it, and this process runs as user 0"):
        sa.Store(where)
    with sa.Store(where, accept_users=True) as store:
        assert store.get("a") == "mine"
        store.put("b", "root's")
    assert alice("store = sa.Store(where)\nresult = store.get('b')\nstore.destroy()", where=where) == "root's"
    assert not os.path.exists(where)


def test_users_that_a_user_namespace_does_not_know_are_not_trusted(folder: Path) -> None:
    """There, all of them look like user 65534, and so does the process itself."""
    folder.chmod(0o755)
    with sa.Store(folder / "store") as store:
        store.put("a", 1)
        code = "import sys, shmarrow as sa\ntry: sa.Store(sys.argv[1])\nexcept sa.StorageError as error: print(error)"
        words = ["unshare", "--user", sys.executable, "-c", code, store.path]
        ran = subprocess.run(words, capture_output=True, text=True)
        if "unshare" in ran.stderr:
            pytest.skip(f"takes user namespaces: {ran.stderr.strip()}")
        assert "user 65534 owns it, and this process runs as user 65534" in ran.stdout, ran.stderr
