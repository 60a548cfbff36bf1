"""The sides of the suite ``alternatives``, each used as its documentation says, and programs that use them.

Every side keeps named tables (or arrays) in shared memory and gives them back as what it is usual to have of it. Where
bytes have to be put into something, they are an Arrow stream, which is mapped again without a copy. Files are written
under another name and renamed, so nobody sees half of one.

As a program: ``readers SIDE FOLDER BYTES`` has eight processes read one table; ``killed SIDE FOLDER BYTES`` kills the
process that puts one. Each is the parent of all its processes, so that these can be counted.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

ROW = 72
"""Bytes of a row of :func:`table`, about."""
TEXT = "customer number {}, of some street"
LARGE = 1 << 36
READERS = 8
WORKERS = 8


def table(size: int) -> pa.Table:
    """So many bytes of numbers and text: an integer, a float and two texts in a row."""
    count = size // ROW
    ids = pa.array(np.arange(count))
    digits = pc.utf8_lpad(pc.cast(ids, pa.string()), 9, "0")
    name = pc.binary_join_element_wise("customer", digits, " ")
    street = pc.binary_join_element_wise(pc.utf8_slice_codeunits(digits, 6, 9), "some street", " ")
    return pa.table({"id": ids, "value": np.arange(count) / 2, "name": name, "street": street}).combine_chunks()


def array(size: int) -> Any:
    return np.arange(size // 8, dtype=np.float64)


def first(value: Any) -> tuple[Any, ...]:
    """The first row of a table, or the first number of an array."""
    if hasattr(value, "shape") and not hasattr(value, "columns"):
        return (float(value[0]),)
    row = [value[name][0] for name in ("id", "value", "name", "street")]
    return tuple(each.as_py() if isinstance(each, pa.Scalar) else each for each in row)


def total(value: Any) -> tuple[float, int]:
    """Work that reads all values: the sum of a column of numbers, and how many of the texts begin in one way."""
    if type(value).__module__.startswith("polars"):
        return float(value["value"].sum()), int(value["name"].str.starts_with("customer 00001").sum())
    value = pa.table(value)
    begins = pc.starts_with(value["name"], "customer 00001")
    return float(pc.sum(value["value"]).as_py()), int(pc.sum(begins).as_py() or 0)


def streamed(value: Any, sink: Any) -> None:
    with pa.ipc.new_stream(sink, value.schema) as writer:
        writer.write_table(value)


class Shmarrow:
    """This package's store."""

    needs = "shmarrow"

    def __init__(self, folder: Path) -> None:
        import shmarrow as sa

        self._store = sa.Store(folder / "shmarrow")

    def put(self, name: str, value: Any) -> None:
        self._store.put(name, value, overwrite=True)

    def get(self, name: str) -> Any:
        return self._store.get(name)

    def remove(self, name: str) -> None:
        self._store.delete(name)

    def close(self) -> None:
        self._store.close()


class Files:
    """Files that pyarrow writes and maps."""

    needs = "pyarrow"

    def __init__(self, folder: Path) -> None:
        self._folder = folder / type(self).__name__
        self._folder.mkdir(exist_ok=True)

    def _path(self, name: str) -> Path:
        return self._folder / name

    def put(self, name: str, value: Any) -> None:
        draft = self._path(f".{name}.{os.getpid()}")
        self._write(value, draft)
        draft.replace(self._path(name))

    def _write(self, value: Any, path: Path) -> None:
        with pa.OSFile(str(path), "wb") as sink:
            if isinstance(value, np.ndarray):
                pa.ipc.write_tensor(pa.Tensor.from_numpy(value), sink)
            else:
                with pa.ipc.new_file(sink, value.schema) as writer:
                    writer.write_table(value)

    def get(self, name: str) -> Any:
        with pa.memory_map(str(self._path(name))) as source:
            if source.read(6) == b"ARROW1":
                return pa.ipc.open_file(source).read_all()
            source.seek(0)
            return pa.ipc.read_tensor(source).to_numpy()

    def remove(self, name: str) -> None:
        self._path(name).unlink()

    def close(self) -> None: ...


class Polars(Files):
    """Arrow files that Polars writes and maps; it is given a frame."""

    needs = "polars"

    def _write(self, value: Any, path: Path) -> None:
        value.write_ipc(path)

    def get(self, name: str) -> Any:
        import polars as pl

        return pl.read_ipc(self._path(name))


class Safetensors(Files):
    """A file of one tensor. For torch it is mapped, for numpy it would be copied."""

    needs = "safetensors"

    def _write(self, value: Any, path: Path) -> None:
        from safetensors.numpy import save_file

        save_file({"x": value}, path)

    def get(self, name: str) -> Any:
        from safetensors import safe_open

        with safe_open(self._path(name), "pt") as file:
            return file.get_tensor("x")


class SharedMemory:
    """``multiprocessing.shared_memory`` as it comes: a segment for each value, which its name says."""

    needs = "multiprocessing"

    def __init__(self, folder: Path) -> None:
        from multiprocessing.shared_memory import SharedMemory as Segment

        self._segment = Segment
        self._prefix = f"{folder.name}-segment-"
        self._held: dict[str, Any] = {}

    def put(self, name: str, value: Any) -> None:
        if isinstance(value, np.ndarray):
            memory = self._segment(self._prefix + name, create=True, size=value.nbytes)
            np.ndarray(value.shape, value.dtype, memory.buf)[...] = value
        else:
            counted = pa.MockOutputStream()
            streamed(value, counted)
            memory = self._segment(self._prefix + name, create=True, size=counted.size())
            streamed(value, pa.FixedSizeBufferWriter(pa.py_buffer(memory.buf)))
        memory.close()

    def get(self, name: str) -> Any:
        memory = self._held[name] = self._segment(self._prefix + name)  # mapped for as long as it is kept
        with pa.BufferReader(pa.py_buffer(memory.buf)) as source:
            if source.read(4) == b"\xff\xff\xff\xff":
                source.seek(0)
                return pa.ipc.open_stream(source).read_all()
        return np.ndarray(memory.size // 8, np.float64, memory.buf)

    def remove(self, name: str) -> None:
        memory = self._held.pop(name, None) or self._segment(self._prefix + name)
        memory.unlink()
        with suppress(BufferError):
            memory.close()

    def close(self) -> None:
        for name in list(self._held):
            with suppress(BufferError):
                self._held.pop(name).close()


class Lmdb:
    """LMDB without syncing; what is read stays mapped until the transaction ends, with the next get."""

    needs = "lmdb"

    def __init__(self, folder: Path) -> None:
        import lmdb

        self._environment = lmdb.open(str(folder / "lmdb"), map_size=LARGE, sync=False, metasync=False)
        self._reading: Any = None

    def put(self, name: str, value: Any) -> None:
        if not isinstance(value, np.ndarray):
            sink = pa.BufferOutputStream()
            streamed(value, sink)
            value = sink.getvalue()
        with self._environment.begin(write=True) as transaction:
            transaction.put(name.encode(), memoryview(value).cast("B"))

    def get(self, name: str) -> Any:
        self._end()
        self._reading = self._environment.begin(buffers=True)
        content = self._reading.get(name.encode())
        if content is None:
            raise KeyError(name)
        if bytes(content[:4]) == b"\xff\xff\xff\xff":
            return pa.ipc.open_stream(pa.py_buffer(content)).read_all()
        return np.frombuffer(content)

    def remove(self, name: str) -> None:
        self._end()
        with self._environment.begin(write=True) as transaction:
            transaction.delete(name.encode())

    def _end(self) -> None:
        if self._reading is not None:
            self._reading.abort()

    def close(self) -> None:
        self._end()
        self._environment.close()


class DiskCache:
    """``diskcache.Cache``, which pickles values, without its limit of 1 GiB."""

    needs = "diskcache"

    def __init__(self, folder: Path) -> None:
        import diskcache

        self._cache = diskcache.Cache(str(folder / "diskcache"), size_limit=LARGE)

    def put(self, name: str, value: Any) -> None:
        self._cache.set(name, value)

    def get(self, name: str) -> Any:
        return self._cache[name]

    def remove(self, name: str) -> None:
        self._cache.delete(name)

    def close(self) -> None:
        self._cache.close()


class Ray:
    """Ray's object store: values have references instead of names, and belong to the process that put them."""

    needs = "ray"

    def __init__(self, folder: Path) -> None:
        self.ray = started_ray()
        self._references: dict[str, Any] = {}

    def put(self, name: str, value: Any) -> None:
        self._references[name] = self.ray.put(value)

    def get(self, name: str) -> Any:
        return self.ray.get(self._references[name])

    def remove(self, name: str) -> None:
        del self._references[name]

    def close(self) -> None:
        self._references.clear()
        self.ray.shutdown()


def started_ray() -> Any:
    """Ray with servers of its own, and as little beside them as it can do with."""
    os.environ |= {"RAY_USAGE_STATS_ENABLED": "0", "RAY_DISABLE_METRICS_COLLECTION": "1", "RAY_DEDUP_LOGS": "0"}
    os.environ["RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO"] = "0"
    import ray

    ray.init(
        address="local",
        num_cpus=WORKERS,
        object_store_memory=5 << 30,
        include_dashboard=False,
        log_to_driver=False,
        logging_level="ERROR",
    )
    return ray


SIDES: dict[str, Any] = {
    "shmarrow": Shmarrow,
    "pyarrow": Files,
    "polars": Polars,
    "shared_memory": SharedMemory,
    "lmdb": Lmdb,
    "diskcache": DiskCache,
    "safetensors": Safetensors,
    "ray": Ray,
}


def installed(name: str) -> bool:
    return find_spec(SIDES[name].needs) is not None


def given(side: str, value: Any) -> Any:
    """A table or an array as a side takes it."""
    if side != "polars":
        return value
    import polars as pl

    return pl.from_arrow(value)


# --- programs ---------------------------------------------------------------------------------------------------


def child(*words: str) -> subprocess.Popen[str]:
    """A fresh process of this program, which answers by lines."""
    command = [sys.executable, "-P", __file__, *words]
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


def ask(process: subprocess.Popen[str], word: str = "") -> str:
    assert process.stdin is not None
    process.stdin.write(word + "\n")
    process.stdin.flush()
    return answer(process)


def answer(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    line = process.stdout.readline().strip()
    if not line:
        raise RuntimeError(f"a process ended early: {process.args}")
    return line


@contextmanager
def children(*programs: tuple[str, ...]) -> Iterator[list[subprocess.Popen[str]]]:
    started = [child(*words) for words in programs]
    try:
        yield started
    finally:
        for process in started:
            process.kill()
            process.wait()


def family(root: int) -> list[int]:
    """A process and all that descend from it."""
    parents = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):
            parents[int(path.parent.name)] = int(path.read_text().rpartition(")")[2].split()[1])
    found = [root]
    for each in found:
        found += [process for process, parent in parents.items() if parent == each]
    return found


def proportional(processes: list[int]) -> int:
    """Bytes of processes, where each page counts for its share."""
    found = 0
    for process in processes:
        with suppress(OSError):
            text = Path(f"/proc/{process}/smaps_rollup").read_text()
            found += 1024 * int(text.split("\nPss:")[1].split()[0])
    return found


def read(side: str, folder: Path) -> None:
    """A reader: whenever it is asked, it has the table anew and reads all values."""
    shelf = SIDES[side](folder)
    print("ready", flush=True)
    for _ in sys.stdin:
        value = None
        value = shelf.get("x")
        print(*total(value), flush=True)
    del value


def readers(side: str, folder: Path, size: int) -> None:
    """Print the seconds until eight processes have the table and have read all of it, and the memory of all (PSS)."""
    shelf = SIDES[side](folder)
    value = given(side, table(size))
    expected = total(value)
    shelf.put("x", value)
    del value
    pa.default_memory_pool().release_unused()
    if side == "ray":
        took, answers, memory = _ray_readers(shelf)
    else:
        with children(*[("read", side, str(folder))] * READERS) as started:
            for process in started:
                answer(process)

            def together() -> list[Any]:
                for process in started:
                    process.stdin.write("\n")  # type: ignore[union-attr]
                    process.stdin.flush()  # type: ignore[union-attr]
                return [answer(process) for process in started]

            took, answers, memory = _repeated(together)
    assert {tuple(map(float, str(each).split())) for each in answers} == {tuple(map(float, expected))}, answers
    print(took, memory)
    shelf.close()


def _ray_readers(shelf: Ray) -> tuple[float, list[Any], int]:
    ray = shelf.ray

    @ray.remote(num_cpus=1)  # type: ignore[untyped-decorator]
    class Reader:
        def read(self, references: list[Any]) -> str:
            self._value = None
            self._value = ray.get(references[0])
            return "{} {}".format(*total(self._value))

    actors = [Reader.remote() for _ in range(READERS)]  # type: ignore[attr-defined]
    return _repeated(lambda: ray.get([each.read.remote([shelf._references["x"]]) for each in actors]))


def _repeated(together: Callable[[], list[Any]]) -> tuple[float, list[Any], int]:
    together()  # as with all rows, the first turn is not counted
    took = []
    for _ in range(3):
        start = time.perf_counter()
        answers = together()
        took.append(time.perf_counter() - start)
    return sorted(took)[1], answers, proportional(family(os.getpid()))


def own(side: str, folder: Path, size: int) -> None:
    """An owner: it puts a table, says so, and puts it again for as long as it lives."""
    shelf = SIDES[side](folder)
    value = given(side, table(size))
    with suppress(FileNotFoundError, KeyError):
        if side == "shared_memory":
            shelf.remove("x")
    shelf.put("x", value)
    print("ready", flush=True)
    while True:
        if side == "shared_memory":  # it cannot replace a value
            time.sleep(1)
        else:
            shelf.put("x", value)


def killed(side: str, folder: Path, size: int) -> None:
    """Print the seconds from the end of an owner until a process that runs already has the table, and 1 if it was lost.

    Where it is lost, a new owner puts it again, and that counts.
    """
    if side == "ray":
        _ray_killed(folder, size)
        return
    shelf = SIDES[side](folder)
    first(shelf_value := given(side, table(ROW * 10)))
    del shelf_value
    with children(("own", side, str(folder), str(size))) as (owner,):
        answer(owner)
        first(shelf.get("x"))
        time.sleep(0.2)
        owner.kill()
        owner.wait()
        start, lost = time.perf_counter(), 0
        # The tracker of a killed process removes its segments, which takes it a moment.
        if side == "shared_memory":
            while Path(f"/dev/shm/{shelf._prefix}x").exists() and time.perf_counter() - start < 5:
                time.sleep(0.001)
        try:
            row = first(shelf.get("x"))
        except (OSError, KeyError, pa.ArrowInvalid):
            lost = 1
            with children(("own", side, str(folder), str(size))) as (again,):
                answer(again)
                row = first(shelf.get("x"))
                took = time.perf_counter() - start
        else:
            took = time.perf_counter() - start
    assert row == (0, 0.0, "customer 000000000", "000 some street"), row
    print(took, lost)
    shelf.close()


def _ray_killed(folder: Path, size: int) -> None:
    shelf = Ray(folder)
    ray = shelf.ray

    @ray.remote(num_cpus=1)  # type: ignore[untyped-decorator]
    class Owner:
        def put(self) -> tuple[int, list[Any]]:
            return os.getpid(), [ray.put(table(size))]

    process, (reference,) = ray.get(Owner.remote().put.remote())  # type: ignore[attr-defined]
    first(ray.get(reference))
    os.kill(process, signal.SIGKILL)
    start, lost = time.perf_counter(), 0
    try:
        while time.perf_counter() - start < 5:  # it takes Ray a while to notice
            first(ray.get(reference))
            time.sleep(0.001)
    except ray.exceptions.OwnerDiedError:
        lost = 1
        _, (reference,) = ray.get(Owner.remote().put.remote())  # type: ignore[attr-defined]
        first(ray.get(reference))
    print(time.perf_counter() - start, lost)
    shelf.close()


def main(what: str, side: str, folder: str, *words: str) -> None:
    programs: dict[str, Callable[..., None]] = {"read": read, "readers": readers, "own": own, "killed": killed}
    programs[what](side, Path(folder), *map(int, words))


if __name__ == "__main__":
    main(*sys.argv[1:])
