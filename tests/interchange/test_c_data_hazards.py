"""Memory that others hold through the Arrow C data interface: released once, whoever lets go of it, and when.

Each process here holds arrays of ours in other libraries in several ways; its output and its exit status say whether
it came through. ``count()`` is the number of owners of exported memory that are alive, and of references that
nanoarrow's structures have to them.
"""

from __future__ import annotations

import pytest
from processes import python

for name in ("pyarrow", "nanoarrow", "polars", "duckdb"):
    pytest.importorskip(name)

PRELUDE = """
import atexit, ctypes, faulthandler, gc, io, os, sys, threading, time
faulthandler.enable()
import nanoarrow as na, numpy as np, polars as pl, pyarrow as pa
from nanoarrow._utils import get_pyobject_buffer_count
import shmarrow as sa
from shmarrow.types.c_schema import KeptAlive

batch = sa.record_batch({
    "n": np.arange(1000),
    "s": [f"text {i}" for i in range(1000)],
    "v": sa.array([f"longer than twelve {i}" for i in range(1000)], "string_view"),
    "d": sa.array(["a", None, "b", "a"] * 250).dictionary_encode(),
    "t": sa.array(
        [{"x": i, "y": [{"z": f"{i}" * 20}]} for i in range(1000)],
        sa.struct({"x": sa.int64(), "y": sa.list_(sa.struct({"z": sa.string_view()}))}),
    ),
})
values = batch.to_pylist()
many = sa.Table.from_batches([batch] * 40)

def count():
    gc.collect()
    gc.collect()
    return sum(type(each) is KeptAlive for each in gc.get_objects()) - kept, get_pyobject_buffer_count()

kept = 0
pa.table(batch), pa.table(many), batch.column(2).__arrow_c_array__()  # from here on, schemas are kept
gc.collect()
gc.freeze()  # only what comes from here on is looked at
kept = count()[0]
"""

HELD = """
x = pa.record_batch(batch)
assert x.to_pylist() == values
print("held", count()[0])
del x
print("let go", count())

x = pa.record_batch(batch)
child, below = x.column("v"), x.column("t").field(1).flatten().field(0)
del x
assert child.to_pylist() == [row["v"] for row in values]
del child
print("a child of pyarrow's", count()[0], below.to_pylist()[7])
del below
x = na.c_array(batch)
child = x.child(1)
del x
assert pa.array(child).to_pylist() == [row["s"] for row in values]
print("a child of nanoarrow's", count()[0])
del child
x = pl.DataFrame(batch)
child = x["t"]
del x
print("a column of polars'", count()[0], child.to_list()[5]["y"][0]["z"])
del child
print("children", count())

capsules = [batch.__arrow_c_array__(), batch.__arrow_c_stream__(), many.__arrow_c_stream__(),
    batch.schema.__arrow_c_schema__(), batch.column(2).__arrow_c_array__(), many.column("s").__arrow_c_stream__()]
print("capsules", count()[0] > 4)
del capsules
print("never consumed", count())

for capsules, take in (
    (batch.__arrow_c_array__(), lambda pair: pa.RecordBatch._import_from_c_capsule(*pair)),
    (batch.__arrow_c_stream__(), lambda one: pa.RecordBatchReader._import_from_c_capsule(one).read_all()),
    (many.__arrow_c_stream__(), lambda one: pa.RecordBatchReader._import_from_c_capsule(one).read_all()),
    (batch.schema.__arrow_c_schema__(), pa.Schema._import_from_c_capsule),
):
    take(capsules)
    try:
        take(capsules)
    except pa.ArrowInvalid as error:
        print("twice:", "released" in str(error))
del capsules, take
print("consumed twice", count())

def work(made):
    assert made.to_pylist() == values if isinstance(made, pa.RecordBatch) else made.height == 1000

threads = [threading.Thread(target=work, args=(kind(batch),)) for kind in (pa.record_batch, pl.DataFrame) * 4]
[thread.start() for thread in threads]
[thread.join() for thread in threads]
del threads
box = [pa.record_batch(batch), pl.DataFrame(batch), batch.__arrow_c_stream__()]
thread = threading.Thread(target=box.clear)
thread.start()
thread.join()

def export():
    for _ in range(25):
        pa.table(batch), pl.DataFrame(batch), batch.__arrow_c_array__()

threads = [threading.Thread(target=export) for _ in range(4)]
[thread.start() for thread in threads]
[thread.join() for thread in threads]
del threads, thread
print("threads", count())

def fail():
    held = pa.record_batch(batch), pl.DataFrame(batch), na.c_array(batch), batch.__arrow_c_array__()
    stream = pa.RecordBatchReader.from_stream(many)
    stream.read_next_batch()
    raise KeyError("mine")

def throw():
    held = pa.record_batch(batch), pl.DataFrame(batch)
    yield

class Holder:
    def __init__(self):
        self.held = pa.record_batch(batch), batch.__arrow_c_stream__()
        raise ValueError("of the constructor")

generator = throw()
next(generator)
for attempt in (fail, Holder, lambda: generator.throw(RuntimeError("thrown"))):
    try:
        attempt()
    except (KeyError, ValueError, RuntimeError) as error:
        print(repr(error))
del generator, attempt
print("errors", count())

class Node: ...

node = Node()
node.itself, node.held = node, pa.record_batch(batch)
node.capsules = batch.__arrow_c_array__(), many.__arrow_c_stream__()
del node
print("cycle", count())

reader = pa.RecordBatchReader.from_stream(many)
first = reader.read_next_batch()
print("one of forty", count()[0])
del reader
assert first.to_pylist() == values
del first
print("half a stream", count())

def once():
    pa.record_batch(batch), pl.DataFrame(batch), batch.column(2).__arrow_c_array__(), batch.schema.__arrow_c_schema__()
    pa.table(many.slice(0, 17_000)).num_rows

def resident():
    gc.collect()
    return int(open("/proc/self/statm").read().split()[1]) * os.sysconf("SC_PAGE_SIZE")

for _ in range(25):
    once()
allocated, before = pa.total_allocated_bytes(), resident()
for _ in range(100):
    once()
print("grown by MiB", max(0, (resident() - before) >> 20) // 4, "allocated", pa.total_allocated_bytes() - allocated)
print("many times", count(), flush=True)
"""

EXIT = """
import duckdb

def hold(*held):
    while True:
        time.sleep(0.001)

everything = pa.record_batch(batch), pl.DataFrame(batch), na.c_array(batch), batch.__arrow_c_array__()
streams = many.__arrow_c_stream__(), pa.RecordBatchReader.from_stream(many)
half = pa.RecordBatchReader.from_stream(many)
half.read_next_batch()
for _ in range(3):
    held = pa.record_batch(batch), pl.DataFrame(many), many.__arrow_c_stream__()
    threading.Thread(target=hold, args=held, daemon=True).start()
for each in (pa.record_batch(batch), pl.DataFrame(batch), na.c_array(batch), batch.__arrow_c_stream__()):
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(each))
print(duckdb.sql("select sum(n) from batch").fetchall())
duckdb.sql("create view held as select * from many")
duckdb.register("named", batch)
relation = duckdb.sql("select * from many where n > 5")
connection = duckdb.connect()
connection.register("x", many)
print(len(connection.execute("select * from x").fetchall()))
lazy = pl.LazyFrame(batch).filter(pl.col("n") > 5)
atexit.register(lambda: print("at exit", everything[0].num_rows, everything[1].height))

class Late:
    def __init__(self):
        self.held = pa.record_batch(batch), pl.DataFrame(batch), batch.__arrow_c_stream__()

    def __del__(self):
        print("late", self.held[0].num_rows)

sys.modules["of a module"] = Late()
pa.held = pl.held = na.held = [pa.record_batch(batch), pl.DataFrame(batch), many.__arrow_c_stream__()]
print("end")
"""

FORK = """
held = [pa.record_batch(batch), na.c_array(batch), batch.__arrow_c_array__(), batch.__arrow_c_stream__()]
reader = pa.RecordBatchReader.from_stream(batch)
print("before", count()[0], flush=True)
child = os.fork()
if not child:
    assert held[0].to_pylist() == values
    assert reader.read_all().to_pylist() == values
    made = pa.record_batch(batch)
    held.clear()
    assert made.to_pylist() == values
    del made, reader
    print("child", count(), flush=True)
    os._exit(0)
print("status", os.waitpid(child, 0)[1])
assert held[0].to_pylist() == values
held.clear()
del reader
print("parent", count())
"""


def run(code: str) -> list[str]:
    return python(PRELUDE + code, stderr=None).splitlines()


def test_memory_is_released_once_whoever_lets_go_of_it() -> None:
    assert run(HELD + FORK) == [
        "held 1",
        "let go (0, 0)",
        f"a child of pyarrow's 1 {'7' * 20}",
        "a child of nanoarrow's 1",
        f"a column of polars' 1 {'5' * 20}",
        "children (0, 0)",
        "capsules True",
        "never consumed (0, 0)",
        *["twice: True"] * 4,
        "consumed twice (0, 0)",
        "threads (0, 0)",
        "KeyError('mine')",
        "ValueError('of the constructor')",
        "RuntimeError('thrown')",
        "errors (0, 0)",
        "cycle (0, 0)",
        "one of forty 1",
        "half a stream (0, 0)",
        "grown by MiB 0 allocated 0",
        "many times (0, 0)",
        # A forked process has a copy of everything, and parent and child each let go of their own.
        "before 5",
        "child (0, 0)",
        "status 0",
        "parent (0, 0)",
    ]


def test_the_interpreter_ends_while_others_hold_memory() -> None:
    assert run(EXIT) == ["[(499500,)]", "40000", "end", "at exit 1000 1000", "late 1000"]
