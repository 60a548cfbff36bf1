"""Tables that share memory: a column more, a hundred stages, a pipeline of processes.

The peer of the pipeline is pyarrow, which maps the file of one stage and writes that of the next, on the same tmpfs.
Its files take fourteen times the memory of the first table, so the table is smaller where there is no room for that.
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Any

import numpy as np
from harness.bench import Bench, stop_watch
from harness.figures import Faster, within
from harness.memory import fresh

import shmarrow as sa

GIB, MIB = 1 << 30, 1 << 20
COLUMNS, STAGES = 16, 10
ROOM = 18 * GIB
"""Memory that a pipeline over 1 GiB needs with pyarrow."""


def memory_free() -> int:
    """Free memory of the machine, in bytes."""
    with open("/proc/meminfo", encoding="ascii") as lines:
        found = next(int(line.split()[1]) << 10 for line in lines if line.startswith("MemAvailable:"))
    return min(found, shutil.disk_usage("/dev/shm").free)


def used() -> int:
    """Bytes that files take in shared memory."""
    return shutil.disk_usage("/dev/shm").used


def table(nbytes: int) -> sa.Table:
    """A table of 16 float64 columns."""
    rows = nbytes // 8 // COLUMNS
    random = np.random.default_rng(0)
    return sa.table({f"c{i}": random.random(rows) for i in range(COLUMNS)})


def store_of(bench: Bench) -> sa.Store:
    store = sa.Store(f"shm:shmarrow-bench-{os.getpid()}-reuse")
    bench.stack.callback(store.destroy)
    return store


def column(bench: Bench) -> None:
    """A float64 column added to 16."""
    store = store_of(bench)
    whole = table(64 * MIB if bench.quick else GIB)
    store.put("day", whole)
    more = store.get("day", kind=sa.Table).append_column("score", whole.column("c0"))

    def put(reuse: bool, value: sa.Table) -> float:
        return stop_watch(lambda: store.put("new", value, reuse=reuse), lambda: store.delete("new"))

    sides = {"shmarrow": lambda _: put(True, more), "put of the whole": lambda _: put(False, more)}
    what = f"a column added to {whole.nbytes / MIB:.0f} MiB of 16"
    bench.row(what, sides, Faster(10, "10 times"), 5, time=lambda operation, given: operation(given))
    before = used()
    store.put("new", more, reuse=True)
    extra = used() - before - whole.num_rows * 8
    bench.limit(f"{what}: memory beyond the column", [extra], 1 << 16, "bytes")
    store.destroy()
    bench.stack.pop_all()


def stages(bench: Bench) -> None:
    """Open and read one column of a table of 100 stages."""
    store = store_of(bench)
    found = table(8 * MIB)
    store.put("0", found)
    for number in range(1, 101):
        got = store.get(str(number - 1), kind=sa.Table)
        store.put(str(number), got.append_column(f"s{number}", found.column("c0")), reuse=True)
    del got

    def read(name: str, column: str) -> Any:
        return lambda _: float(store.get(name, kind=sa.Table).column(column).to_numpy()[7])

    for column in ("c3", "s1"):
        sides = {"shmarrow": read("100", column), "of one stage": read("1", column)}
        bench.row(f"open a table of 100 stages and read {column}", sides, within(1.5), 20, block=20)
    store.destroy()
    bench.stack.pop_all()


_STAGE = """
import sys, time
way, where, number = sys.argv[1], sys.argv[2], int(sys.argv[3])
import numpy as np
if way == "ours":
    import shmarrow as sa
    store = sa.Store(where)
    store.put(f"small {number}", sa.table({"x": np.zeros(2)}), reuse=True)
    start = time.perf_counter()
    table = store.get(str(number), kind=sa.Table)
    more = table.append_column(f"s{number}", sa.array(table.column("c0").to_numpy() * number))
    store.put(str(number + 1), more, reuse=True)
else:
    import pyarrow as pa
    pa.array([0.0]).to_numpy()
    start = time.perf_counter()
    table = pa.ipc.open_file(pa.memory_map(f"{where}/{number}")).read_all()
    more = table.append_column(f"s{number}", pa.array(table["c0"].chunk(0).to_numpy() * number))
    with pa.OSFile(f"{where}/{number + 1}", "wb") as sink, pa.ipc.new_file(sink, more.schema) as writer:
        writer.write_table(more)
print(time.perf_counter() - start)
"""


def pipeline(bench: Bench) -> None:
    """Ten stages, each in its own process, which adds a column."""
    import pyarrow as pa

    size = 64 * MIB if bench.quick else GIB if memory_free() > ROOM else GIB // 4
    whole = table(size)
    seconds: list[dict[str, list[float]]] = []
    memory: dict[str, float] = {}
    for _ in range(3):
        took: dict[str, list[float]] = {}
        before = used()
        store = store_of(bench)
        store.put("0", whole)
        took["shmarrow"] = [sum(fresh(_STAGE, "ours", store.name, number)[0] for number in range(STAGES))]
        memory["shmarrow"] = used() - before
        store.destroy()
        bench.stack.pop_all()
        folder = Path(f"/dev/shm/shmarrow-bench-{os.getpid()}-files")
        folder.mkdir()
        try:
            before = used()
            with pa.OSFile(f"{folder}/0", "wb") as sink, pa.ipc.new_file(sink, pa.table(whole).schema) as writer:
                writer.write_table(pa.table(whole))
            took["pyarrow, a file each"] = [sum(fresh(_STAGE, "peer", folder, number)[0] for number in range(STAGES))]
            memory["pyarrow, a file each"] = used() - before
        finally:
            shutil.rmtree(folder)
        seconds.append(took)
    what = f"ten stages over {size // MIB} MiB, each of which adds a column"
    bench.report(what, seconds, Faster(5, "5 times"))
    sizes = [{side: [value] for side, value in memory.items()}]
    bench.report(f"{what}: memory", sizes, Faster(5, "a fifth"), "bytes")


PARTS = {"column": column, "stages": stages, "pipeline": pipeline}
