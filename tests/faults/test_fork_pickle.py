"""Forks, pickles and copies: a copy is opened anew by its name or refused, and a forked child harms nobody.

Invariants: real processes, by fork, spawn and forkserver; a child ends in every way that a process can end; the
descriptors of files that nobody here may touch are looked at afterwards, as one that is closed twice takes a stranger's
file away.
"""

from __future__ import annotations

import copy
import gc
import io
import multiprocessing
import os
import pickle
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from processes import python

import shmarrow as sa
from shmarrow import segment

FORKS = int(os.environ.get("SHMARROW_FORKS", "15"))

BATCH = sa.record_batch({"i": np.arange(100), "d": sa.array(["a", "b"] * 50, sa.dictionary("int8", "string"))})
VALUES = BATCH.to_pydict()


def written(place: Any, make: Any = sa.ipc.new_file) -> Any:
    with make(place, BATCH.schema) as writer:
        writer.write(BATCH)
        writer.write(BATCH)
    return place


def bundle(place: Any) -> Any:
    sa.save_tensors({"t": np.arange(9)}, place)
    return place


def tensors(place: Any) -> Any:
    sa.ipc.write_tensor(sa.Tensor.from_numpy(np.arange(9)), place)
    return place


def stored(place: Any) -> sa.Store:
    store = sa.Store(place)
    store.put("b", BATCH)
    return store


# What is made at a path; and what it is used for, which gives the same for the thing and for its copy.
NAMED: dict[str, tuple[Callable[[Any], Any], Callable[[Any], Any], Any]] = {
    "file": (lambda at: sa.ipc.open_file(written(at)), lambda r: r.get_batch(1).to_pydict(), VALUES),
    "file, one column": (
        lambda at: sa.ipc.open_file(written(at), included_fields=["i"]),
        lambda reader: reader.get_batch(1).to_pydict(),
        {"i": VALUES["i"]},
    ),
    "stream": (
        lambda at: sa.ipc.open_stream(written(at, sa.ipc.new_stream)),
        lambda reader: reader.get_batch(1).to_pydict(),
        VALUES,
    ),
    "segment": (lambda at: segment.attach(written(at)), lambda found: found.data[:6].tobytes(), b"ARROW1"),
    "bundle": (lambda at: sa.load_tensors(bundle(at)), lambda found: found["t"].to_numpy().tolist(), list(range(9))),
    "store": (lambda at: stored(f"{at}-store"), lambda store: store.get("b").to_pydict(), VALUES),
}
"""Things that have a name: copies are opened anew."""

VALUE = {
    "batch": (lambda at: sa.ipc.open_file(written(at)).get_batch(0), lambda found: found.to_pydict(), VALUES),
    "table": (lambda at: sa.ipc.open_file(written(at)).read_all(), lambda t: t.slice(0, 100).to_pydict(), VALUES),
    "column": (lambda at: sa.ipc.open_file(written(at)).get_batch(0)["i"], lambda a: a.to_pylist(), VALUES["i"]),
    "schema": (lambda at: sa.ipc.open_file(written(at)).schema, lambda schema: schema.names, ["i", "d"]),
    "tensor": (lambda at: sa.ipc.read_tensor(tensors(at)), lambda t: t.to_numpy().tolist(), list(range(9))),
}
"""Things that are values: copies are equal to them."""


def _decoder() -> sa.ipc.StreamDecoder:
    sink = io.BytesIO()
    sa.ipc.new_stream(sink, sa.schema({"x": sa.int64()})).close()
    decoder = sa.ipc.StreamDecoder()
    decoder.feed(sink.getvalue())
    return decoder


UNNAMED: dict[str, Callable[[Any], Any]] = {
    "file, read": lambda at: sa.ipc.open_file(written(at), memory_map=False),
    "bundle over a segment": lambda at: sa.load_tensors(segment.attach(bundle(at))),
    "file over a buffer": lambda at: sa.ipc.open_file(written(at).read_bytes()),
    "file over a file object": lambda at: sa.ipc.open_file(written(at).open("rb")),
    "stream over a file object": lambda at: sa.ipc.open_stream(written(at, sa.ipc.new_stream).open("rb")),
    "stream over a buffer": lambda at: sa.ipc.open_stream(written(at, sa.ipc.new_stream).read_bytes()),
    "bundle over a buffer": lambda at: sa.load_tensors(bundle(at).read_bytes()),
    "reader of tensors": lambda at: sa.ipc.read_tensors(tensors(at)),
    "writer of a file": lambda at: sa.ipc.new_file(at, BATCH.schema),
    "writer of a stream": lambda at: sa.ipc.new_stream(at, BATCH.schema),
    "writer of a stream to a file object": lambda at: sa.ipc.new_stream(io.BytesIO(), BATCH.schema),
    "writer of a tensor": lambda at: sa.ipc.new_tensor(at, (3,), "int8"),
    "writer of a segment": lambda at: segment.create(at),
    "decoder": lambda at: _decoder(),
}
"""Things that have a position, a lock or bytes without a name: copies are refused, and say what to do."""

COPIES: dict[str, Callable[[Any], Any]] = {
    "pickle": lambda thing: pickle.loads(pickle.dumps(thing)),
    "old pickle": lambda thing: pickle.loads(pickle.dumps(thing, 2)),
    "copy": copy.copy,
    "deepcopy": copy.deepcopy,
}


def descriptors() -> dict[int, str]:
    """The descriptors of this process, and what they lead to."""
    found = {}
    for number in os.listdir("/proc/self/fd"):
        try:
            found[int(number)] = os.readlink(f"/proc/self/fd/{number}")
        except OSError:  # that of the listing itself
            continue
    return found


@pytest.fixture
def strangers(tmp_path: Path) -> Iterator[None]:
    """Files of somebody else, opened in between; none of them may be closed by anybody but them."""
    gc.collect()
    before = descriptors()
    yield
    paths = [tmp_path / f"stranger-{i}" for i in range(10)]
    files = [path.open("wb") for path in paths]
    gc.collect()
    for file, path in zip(files, paths, strict=True):
        assert os.path.samestat(os.fstat(file.fileno()), os.stat(path)), "a descriptor was closed by a stranger"
        file.write(b"x")
        file.close()
    assert set(descriptors().values()) - {*before.values()} == set()


@pytest.mark.usefixtures("strangers")
@pytest.mark.parametrize("way", COPIES)
@pytest.mark.parametrize("kind", [*NAMED, *VALUE])
def test_copies(kind: str, way: str, tmp_path: Path) -> None:
    """Objects with a name are opened again by it, while they are open; values are copied; the original goes on."""
    make, use, expected = {**NAMED, **VALUE}[kind]
    thing = make(tmp_path / "thing")
    assert use(thing) == expected
    copied = COPIES[way](thing)
    assert use(copied) == expected
    if hasattr(copied, "close"):
        copied.close()
    del copied
    gc.collect()
    assert use(thing) == expected
    if hasattr(thing, "close"):
        thing.close()
        with pytest.raises(sa.ShmarrowError):
            COPIES[way](thing)


@pytest.mark.usefixtures("strangers")
@pytest.mark.parametrize("way", COPIES)
@pytest.mark.parametrize("kind", UNNAMED)
def test_copies_are_refused(kind: str, way: str, tmp_path: Path) -> None:
    """Writers, decoders, and readers of what has no name are neither pickled nor copied, and go on unharmed."""
    thing = UNNAMED[kind](tmp_path / "thing")
    with pytest.raises(sa.InvalidType, match=r"copied|pickled"):
        COPIES[way](thing)
    for end in ("abort", "discard", "close"):
        if hasattr(thing, end):
            getattr(thing, end)()
            break


def test_names_are_found_from_another_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A copy of what was opened by a relative path is of the same file, wherever the process has gone since."""
    monkeypatch.chdir(tmp_path)
    written(Path("f.arrow"))
    bundle(Path("b.tensors"))
    things = [sa.ipc.open_file("f.arrow"), segment.attach("f.arrow"), sa.load_tensors("b.tensors")]
    uses = [NAMED["file"], NAMED["segment"], NAMED["bundle"]]
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    for thing, (_, use, expected) in zip(things, uses, strict=True):
        assert use(pickle.loads(pickle.dumps(thing))) == expected


# --- arguments of pools -----------------------------------------------------------------------------------------


def used(task: tuple[str, Any]) -> Any:
    kind, thing = task
    return NAMED[kind][1](thing) if kind in NAMED else VALUE[kind][1](thing)  # type: ignore[index]


@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
def test_arguments_of_a_pool(method: str, tmp_path: Path) -> None:
    """Readers, segments, bundles, stores and values that are given to a pool work there, or are refused here."""
    context = multiprocessing.get_context(method)
    with context.Pool(1) as pool:
        for number, kind in enumerate([*NAMED, *VALUE]):
            make, use, expected = {**NAMED, **VALUE}[kind]
            thing = make(tmp_path / f"{number}")
            assert pool.apply_async(used, ((kind, thing),)).get(60) == expected
            assert use(thing) == expected
        for kind in ("writer of a file", "writer of a segment", "decoder"):
            thing = UNNAMED[kind](tmp_path / f"unnamed-{len(kind)}")
            with pytest.raises(sa.InvalidType):
                pool.apply_async(used, ((kind, thing),)).get(60)


# --- forked children --------------------------------------------------------------------------------------------


CHILD = """
import os, signal, sys
import numpy as np
from processes import die
import shmarrow as sa
from shmarrow import segment

place, end = sys.argv[1:]
batch = sa.record_batch({"i": np.arange(100), "d": sa.array(["a", "b"] * 50, sa.dictionary("int8", "string"))})
values = batch.to_pydict()
with sa.ipc.new_file(f"{place}/f", batch.schema) as writer:
    writer.write(batch)
with sa.ipc.new_stream(f"{place}/s", batch.schema) as writer:
    writer.write(batch)
    writer.write(batch)
sa.save_tensors({"t": np.arange(9)}, f"{place}/b")

reader, lazy = sa.ipc.open_file(f"{place}/f"), sa.ipc.open_file(f"{place}/f").get_batch(0)
stream, attached, bundle = sa.ipc.open_stream(f"{place}/s"), segment.attach(f"{place}/f"), sa.load_tensors(f"{place}/b")
store = sa.Store(f"{place}/store")
store.put("b", batch)
file, into = sa.ipc.new_file(f"{place}/w", batch.schema), open(f"{place}/o", "wb", buffering=0)
file.write(batch)
streamed = sa.ipc.new_stream(into, batch.schema)
streamed.write(batch)
tensor = sa.ipc.new_tensor(f"{place}/t", (9,), "int64")
tensor.array[:] = np.arange(9)
raw = segment.create(f"{place}/r")
raw.write([b"parent"])
pending = [file, streamed, tensor, raw]


def use():
    assert reader.get_batch(0).to_pydict() == values
    assert lazy.to_pydict() == values
    assert stream.get_batch(1).to_pydict() == values
    assert bytes(attached.data[:6]) == b"ARROW1"
    assert bundle["t"].to_numpy().tolist() == list(range(9))
    assert store.get("b").to_pydict() == values


def child():
    use()
    with sa.ipc.new_file(f"{place}/child", batch.schema) as writer:
        writer.write(batch)
    assert sa.ipc.open_file(f"{place}/child").get_batch(0).to_pydict() == values
    store.put("child", batch)
    assert store.get("child").to_pydict() == values
    if end == "close":
        for writer in pending:
            try:
                (getattr(writer, "close", None) or writer.close)()
            except sa.ShmarrowError:
                pass
        for reading in (reader, stream, attached, bundle, store):
            reading.close()


pid = os.fork()
if not pid:
    child()
    if end == "_exit":
        die()
    elif end == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    elif end == "exception":
        raise KeyError("the end of a child")
    sys.exit(0)
_, status = os.waitpid(pid, 0)
assert os.waitstatus_to_exitcode(status) == {"exception": 1, "kill": -9}.get(end, 0), status
assert sorted(os.listdir(place)) == ["b", "child", "f", "o", "s", "store"], os.listdir(place)
use()
for writer in (file, streamed):
    writer.write(batch)
    writer.close()
tensor.close()
raw.write([b" and parent"])
raw.close()
into.close()
for name, count in (("w", 2), ("f", 1)):
    assert [found.to_pydict() for found in sa.ipc.open_file(f"{place}/{name}")] == [values] * count, name
assert [found.to_pydict() for found in sa.ipc.open_stream(f"{place}/o")] == [values] * 2
assert sa.ipc.read_tensor(f"{place}/t").to_numpy().tolist() == list(range(9))
assert open(f"{place}/r", "rb").read() == b"parent and parent"
assert store.get("child").to_pydict() == values
print("done")
"""


@pytest.mark.parametrize("end", ["exit", "_exit", "exception", "kill", "close"])
def test_a_forked_child(end: str, tmp_path: Path) -> None:
    """A child uses what its parent has open, and makes its own; however it ends, its parent's writers go on whole."""
    place = tmp_path / "place"
    place.mkdir()
    said = python(CHILD, place, end, stderr=subprocess.STDOUT)
    assert said.endswith("done\n")
    assert (said != "done\n") == ("the end of a child" in said) == (end == "exception")


HELD = """
import faulthandler, io, os, sys, threading
import numpy as np
from processes import die
import shmarrow as sa
from shmarrow.ipc import IpcWriteOptions

place, forks = sys.argv[1], int(sys.argv[2])
sys.setswitchinterval(1e-5)
words = sa.array(["a", "b"] * 50, sa.dictionary("int8", "string"))
batch = sa.record_batch({"i": np.arange(100), "d": words})
values = batch.to_pydict()
zstd = IpcWriteOptions(compression="zstd")


def data(make, turn, options=None):
    sink = io.BytesIO()
    schema = batch.schema.with_metadata({"turn": str(turn)})
    with make(sink, schema, options) as writer:
        for _ in range(3):
            writer.write(sa.record_batch([batch["i"], batch["d"]], schema=schema))
    return sink.getvalue()


with sa.ipc.new_file(f"{place}/f", batch.schema, zstd) as writer:
    for _ in range(20):
        writer.write(batch)
shared = sa.ipc.open_file(f"{place}/f")
store = sa.Store(f"{place}/store", 1 << 24)
store.put("b", batch)
bundle_path = f"{place}/b"
sa.save_tensors({f"t{i}": np.arange(i + 1) for i in range(20)}, bundle_path)
bundle = sa.load_tensors(bundle_path)
stream = [data(sa.ipc.new_stream, 0)]
mapped = [sa.ipc.open_stream(stream[0])]


def files(turn):
    assert sa.ipc.open_file(data(sa.ipc.new_file, turn, zstd)).get_batch(1).to_pydict() == values


def readers(turn):
    assert shared.get_batch(turn % 20).to_pydict() == values
    assert shared.schema.names == ["i", "d"]


def streams(turn):
    mapped[0] = sa.ipc.open_stream(stream[0])
    assert [found.to_pydict() for found in mapped[0]] == [values] * 3


def same_stream(turn):
    assert mapped[0].get_batch(turn % 3).to_pydict() == values


def stores(turn):
    name = f"{os.getpid()}-{threading.get_ident()}"
    store.put(name, np.arange(10), overwrite=True, expire_after=60)
    assert store.get(name).tolist() == list(range(10))
    assert store.get("b").to_pydict() == values
    store.delete(name)


def tensors(turn):
    assert bundle[f"t{turn % 20}"].to_numpy().tolist() == list(range(turn % 20 + 1))
    assert len(sa.load_tensors(bundle_path)) == 20


class Type(sa.ExtensionType):
    extension_name = "test.fork"

    def serialize(self):
        return b""

    @classmethod
    def deserialize(cls, storage, serialized):
        return cls(storage)


def types(turn):
    mine = type("Mine", (Type,), {"extension_name": f"test.{os.getpid()}.{threading.get_ident()}"})
    sa.register_extension_type(mine)
    sa.unregister_extension_type(mine.extension_name)


works = [files, readers, streams, same_stream, stores, tensors, types]
failures = []
stop = threading.Event()


def hammer(work):
    turn = 0
    try:
        while not stop.wait(0.001):
            work(turn)
            turn += 1
    except BaseException as error:
        failures.append(error)
        raise


for work in works:
    work(0)  # what is imported late is there before: Python itself does not let a child finish another thread's import
threads = [threading.Thread(target=hammer, args=(work,), daemon=True) for work in works]
for thread in threads:
    thread.start()
for number in range(forks):
    pid = os.fork()
    if not pid:
        faulthandler.dump_traceback_later(20, exit=True)
        try:
            for work in works[number % len(works) :] + works[: number % len(works)]:
                work(number)
        except BaseException:
            import traceback

            traceback.print_exc()
            die(3)
        die()
    _, status = os.waitpid(pid, 0)
    assert not status, (number, works[number % len(works)].__name__, os.waitstatus_to_exitcode(status))
    assert not failures, failures
stop.set()
for thread in threads:
    thread.join(20)
    assert not thread.is_alive()
assert not failures, failures
print("done")
"""


def test_a_fork_while_threads_hold_locks(tmp_path: Path) -> None:
    """A child does all that its parent's threads are in the middle of, and waits for no lock that nobody will free."""
    assert python(HELD, tmp_path, FORKS, timeout=300, stderr=None) == "done\n"
