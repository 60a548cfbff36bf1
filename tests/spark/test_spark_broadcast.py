"""Host broadcasts and once per host, on one host: in every kind of function, of every kind of value, and their end.

Workers say what they found; that it is the memory of the store is what the kernel says of their mappings. The other
hosts are in ``test_spark_cluster.py`` and ``test_spark_connect.py``.
"""

from __future__ import annotations

import os
import pickle
import re
import subprocess
import sys
import threading
import time
from collections import OrderedDict
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import lab
import numpy as np
import pytest
from environment import ROOT, torch_or_skip
from processes import ended, forked, python
from spark_maps import file_of

import shmarrow as sa
from shmarrow import spark as sas

pa = pytest.importorskip("pyarrow")
pd = pytest.importorskip("pandas")
pytestmark = [
    pytest.mark.filterwarnings("ignore:PySpark does not yet:FutureWarning"),
    pytest.mark.filterwarnings("ignore:Cannot infer the eval type:UserWarning"),
]

ROWS = 10_000


# --- every kind of function -------------------------------------------------------------------------------------


@pytest.mark.timeout(300)  # it runs a job of each kind
def test_in_every_kind_of_function(spark: Any, store: sa.Store, tmp_path: Path) -> None:
    from pyspark.sql import functions as f
    from pyspark.sql.datasource import DataSource, DataSourceReader

    made = sas.broadcast(np.arange(float(ROWS)), spark, store)
    path = store.info(made.name).path

    def check(kind: str) -> str:
        found = made.value
        right = len(found) == ROWS and found[-1] == ROWS - 1 and found is made.value
        return f"{kind} {right and file_of(found) == path}"

    def in_rdd(row: Any) -> str:
        return check("rdd")

    @f.udf("string")
    def in_udf(i: Any) -> str:
        return check("udf")

    @f.pandas_udf("string")
    def in_pandas_udf(i: pd.Series) -> pd.Series:
        return pd.Series([check("pandas_udf")] * len(i))

    def in_arrow(i: pa.Array) -> pa.Array:
        return pa.array([check("arrow_udf")] * len(i))

    in_arrow_udf = f.arrow_udf("string")(in_arrow)

    def in_map(batches: Any) -> Any:
        for batch in batches:
            yield batch.append_column("m", pa.array([check("mapInArrow")] * batch.num_rows))

    def in_pandas_groups(group: pd.DataFrame) -> pd.DataFrame:
        return group.assign(p=check("applyInPandas"))

    def in_arrow_groups(group: pa.Table) -> pa.Table:
        return group.append_column("r", pa.array([check("applyInArrow")] * group.num_rows))

    @f.udtf(returnType="t string")
    class InTable:
        def eval(self, i: int) -> Any:
            yield (check("udtf"),)

    class Source(DataSource):
        @classmethod
        def name(cls) -> str:
            return "broadcast_source"

        def schema(self) -> str:
            return "d string"

        def reader(self, schema: Any) -> Any:
            return Reader()

    class Reader(DataSourceReader):
        def __init__(self) -> None:
            self.planned = check("planned")  # in the process that plans

        def read(self, partition: Any) -> Iterator[tuple[str]]:
            yield (self.planned,)
            yield (check("source"),)

    found = set(spark.sparkContext.parallelize([0]).map(in_rdd).collect())
    spark.dataSource.register(Source)
    found |= {row["d"] for row in spark.read.format("broadcast_source").load().collect()}
    spark.udtf.register("in_table", InTable)
    df = spark.range(0, 2, 1, 1).select("id", in_udf("id").alias("u")).withColumn("v", in_pandas_udf("id"))
    df = df.withColumn("w", in_arrow_udf("id")).mapInArrow(in_map, "id long, u string, v string, w string, m string")
    df = df.groupBy("id").applyInPandas(in_pandas_groups, "id long, u string, v string, w string, m string, p string")
    schema = "id long, u string, v string, w string, m string, p string, r string"
    df.groupBy("id").applyInArrow(in_arrow_groups, schema).createOrReplaceTempView("all_kinds")
    for row in spark.sql("SELECT * FROM all_kinds, LATERAL in_table(id)").collect():
        found |= set(row.asDict().values()) - {0, 1}

    def in_batch(df: Any, number: int) -> None:
        found.add(check("foreachBatch"))

    rate = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", 1).load()
    query = (
        rate.writeStream.foreachBatch(in_batch).option("checkpointLocation", str(tmp_path)).trigger(availableNow=True)
    )
    query.start().awaitTermination(60)
    kinds = {
        "rdd", "udf", "pandas_udf", "mapInArrow", "applyInPandas", "applyInArrow", "udtf", "planned", "source",
        "foreachBatch", "arrow_udf",
    }  # fmt: skip
    assert found == {f"{kind} True" for kind in kinds}
    made.destroy()


# --- every kind of value ----------------------------------------------------------------------------------------


def values() -> dict[str, Any]:
    """What a store keeps as it is, a value of each form; others are in the tests of stores and of objects."""
    numbers = np.arange(5.0)
    return {
        "ndarray": np.asfortranarray(np.arange(6.0).reshape(2, 3)),
        "array": pa.array([1, None, 3]),
        "chunks": pa.chunked_array([["a"], ["b", "a"]]).dictionary_encode(),
        "table": pa.table({"x": numbers, "s": ["a", None, "ä", "", "x"]}),
        "pandas": pd.DataFrame({"x": numbers}, index=pd.Index(list("abcde"), name="key")),
        "tensors": {"w": np.eye(2), "b": np.zeros(2)},
        "bytes": b"\0\1",
        "text": "ænd",
        "int": 1 << 63,
        "bool": True,
    }


def as_expected(value: Any) -> Any:
    """A value as plain Python; those of Arrow's have one form, whose library they are of."""
    if isinstance(value, pd.DataFrame):
        value = pa.Table.from_pandas(value)
    if isinstance(value, np.ndarray):
        return value.dtype.str, value.tolist(), value.flags.f_contiguous
    if hasattr(value, "to_pydict"):
        return value.num_rows, value.to_pydict()
    if hasattr(value, "items"):
        return {name: np.asarray(each).tolist() for name, each in value.items()}
    return value.to_pylist() if hasattr(value, "to_pylist") else (type(value), value)


def look(made: Any, _: Any) -> list[Any]:
    return [(name, as_expected(each.value), each.value is each.value) for name, each in made.items()]


def test_every_kind_of_value(spark: Any, store: sa.Store) -> None:
    given = values()
    made = {name: sas.broadcast(value, spark, store) for name, value in given.items()}
    assert max(len(pickle.dumps(each)) for each in made.values()) < 1024
    found = spark.sparkContext.parallelize([0, 1], 2).map(partial(look, made)).collect()
    expected = [(name, as_expected(value), True) for name, value in given.items()]
    for each in (*found, look(made, 0)):
        for one, other in zip(each, expected, strict=True):
            assert one == other, one[0]
    assert made["pandas"].value.to_pandas().equals(given["pandas"])
    for each in made.values():
        each.destroy()


def model() -> Any:
    """A model of several types, with a weight that two of its layers have, and a buffer of bools."""
    import torch

    torch.manual_seed(0)
    nn = torch.nn
    made = nn.Sequential(nn.Linear(30, 40), nn.BatchNorm1d(40), nn.Linear(30, 40, dtype=torch.bfloat16))
    made.add_module("tied", nn.Linear(30, 40))
    made.tied.weight = made[0].weight
    made.register_buffer("mask", torch.tensor([True, False]))
    return made


def tensors() -> dict[str, Any]:
    import torch

    shared = torch.arange(12.0)
    return {
        "transposed": torch.arange(6.0).reshape(2, 3).T,
        "part": shared[4:],
        "whole": shared,
        "whole again": shared.view(12),
        "conjugate": torch.tensor([1 + 2j, 3]).conj(),
        "empty": torch.empty(0, 2),
        "eighth": torch.ones(3).to(torch.float8_e4m3fn),
        "parameter": torch.nn.Parameter(torch.ones(2)),
    }


def versions(state: Any) -> list[Any]:
    """Torch's notes on modules; it adds to them when it loads a state dict."""
    return [(name, said.get("version")) for name, said in state._metadata.items()]


def same(found: Any, expected: Any) -> bool:
    import torch

    if expected.is_complex():
        return torch.equal(found, expected.resolve_conj())
    return found.dtype == expected.dtype and torch.equal(found.double(), expected.double())


def test_state_dicts(spark: Any, store: sa.Store) -> None:
    torch = torch_or_skip()
    whole, fresh, given = model(), model(), tensors()
    expected = whole.state_dict()
    with sas.broadcast(expected, spark, store) as made:
        found = made.value
        assert type(found) is OrderedDict
        assert list(found) == list(expected)
        assert [name for name in expected if not same(found[name], expected[name])] == []
        assert versions(found) == versions(expected)
        assert found["0.weight"].data_ptr() == found["tied.weight"].data_ptr()
        assert file_of(found["0.weight"].numpy()) == store.info(made.name).path
        torch.nn.init.zeros_(fresh[0].weight)
        fresh.load_state_dict(found, assign=True)
        assert torch.equal(fresh[0](torch.ones(2, 30)), whole[0](torch.ones(2, 30)))
    with sas.broadcast(given, spark, store) as made:
        found = made.value
        assert type(found) is dict
        assert list(found) == list(given)
        assert [name for name in given if not same(found[name], given[name])] == []
        assert found["whole"].data_ptr() == found["whole again"].data_ptr()
    with sas.broadcast(whole, spark, store) as made:  # not its state dict, but the model itself
        assert torch.equal(made.value[0](torch.ones(2, 30)), whole[0](torch.ones(2, 30)))
        assert file_of(made.value[0].weight.detach().numpy()) == store.info(made.name).path
        assert made.value[0].weight.requires_grad


class Model:
    """A model with large and small arrays, and with what no store keeps."""

    def __init__(self) -> None:
        self.weights = np.arange(50_000.0).reshape(500, 100)
        self.bias = np.arange(3)
        self.name = "model"
        self.function = lambda x: x + 1


def use_model(made: Any, _: Any) -> tuple[Any, ...]:
    model = made.value
    again = pickle.loads(pickle.dumps(made)).value
    where = file_of(model.weights), file_of(model.bias)
    return where, model.weights.flags.writeable, float(model.weights.sum()), model.function(1), again is model


def test_models_are_pickled_with_their_arrays_in_shared_memory(spark: Any, store: sa.Store) -> None:
    for value in (None, {1: (2, 3)}, 1 << 70, {"x": [np.arange(3)]}):
        with sas.broadcast(value, spark, store) as made:
            assert repr(made.value) == repr(value)
    with sas.broadcast(Model(), spark, store) as made:
        path = store.info(made.name).path
        for found in spark.sparkContext.parallelize(range(2), 2).map(partial(use_model, made)).collect():
            assert found == ((path, ""), False, float(sum(range(50_000))), 2, True)
        sklearn_like = [made.value.weights, {"deep": made.value}]
        with sas.broadcast(sklearn_like, spark, store) as again:
            assert again.value[1]["deep"].weights.tolist() == made.value.weights.tolist()
    once = sas.once("model", Model, store)
    assert once.value.weights.shape == (500, 100)
    assert file_of(once.value.weights).startswith(store.path)
    once.destroy()


def test_what_is_refused(spark: Any, store: sa.Store, tmp_path: Path) -> None:
    for value in (threading.Lock(), {"a": threading.Lock()}):
        with pytest.raises(sa.InvalidType, match=r"cannot share .*, and it cannot be pickled \(TypeError"):
            sas.broadcast(value, spark, store)
    for session in (1, spark.sparkContext, type(spark)):
        with pytest.raises(sa.InvalidType, match=r"expected a SparkSession, found .*; call broadcast\(value\)"):
            sas.broadcast(1.0, session, store)
    with pytest.raises(sa.InvalidType, match=r"not the first argument, and is optional: call broadcast\(value\)"):
        sas.broadcast(spark, 1.0)  # type: ignore[arg-type]
    with pytest.raises(sa.InvalidType, match=r"DataFrame of Spark: share\(df\)"):
        sas.broadcast(spark.range(1), spark, store)
    with pytest.raises(sa.InvalidType, match="name must be a string, found <pyspark"):
        sas.once(spark, "x", lambda: 1)  # type: ignore[arg-type]
    small = sa.Store(tmp_path / "small", capacity=100_000)
    with pytest.raises(sa.StoreFull, match=r"no room for 16\d{4} bytes .*100,?000"):
        sas.broadcast(np.zeros(20_000), spark, small)
    assert store.names() == small.names() == []
    small.destroy()


# --- its life ---------------------------------------------------------------------------------------------------


def see(made: Any, paths: list[str], _: Any) -> Any:
    """Return which files a worker has mapped, before and after it asks for a broadcast."""

    def mapped() -> list[bool]:
        maps = Path("/proc/self/maps").read_text()
        return [path in maps for path in paths]

    before = mapped()
    try:
        return os.getpid(), before, float(made.value.sum()), mapped()
    except sa.ObjectNotFound as error:
        return os.getpid(), before, str(error), mapped()


def test_a_worker_keeps_what_it_attached_until_it_is_destroyed(spark: Any, store: sa.Store) -> None:
    one, other = (sas.broadcast(np.full(ROWS, float(i)), spark, store) for i in (1, 2))
    paths = [store.info(each.name).path for each in (one, other)]

    def run(made: Any) -> Any:
        return spark.sparkContext.parallelize([0], 1).map(partial(see, made, paths)).collect()[0]

    travelled = pickle.loads(pickle.dumps(one))
    rows = {}
    for _ in range(20):  # of two workers each may take a job
        pid, *said = run(one)
        rows.setdefault(pid, []).append(said)
        if len(rows[pid]) == 2:
            break
    assert rows[pid] == [[[False, False], ROWS, [True, False]], [[True, False], ROWS, [True, False]]]
    one.destroy()
    one.destroy()
    assert repr(one).endswith("destroyed>")
    for made in (one, travelled):
        assert "was destroyed" in run(made)[2]
        with pytest.raises(sa.ObjectNotFound, match="was destroyed"):
            made.value  # noqa: B018
    with pytest.raises(sa.InvalidArgument, match=f"cannot destroy the broadcast '{one.name}' here"):
        travelled.destroy()
    with pytest.raises(sa.ObjectNotFound, match="was destroyed"), one:
        pass
    # What was destroyed is let go as soon as another one comes.
    after = next(said for _ in range(20) if (said := run(other))[0] == pid)
    assert after[3] == [False, True]
    assert other.value is pickle.loads(pickle.dumps(other)).value
    other.destroy()


def test_other_processes_and_forks(spark: Any, store: sa.Store) -> None:
    code = """
import pickle, sys
made = pickle.loads(sys.stdin.buffer.read())
print(made.value.sum(), made.value.flags.writeable, "pyspark" in sys.modules, "pyarrow" in sys.modules)
"""
    with sas.broadcast(np.arange(float(ROWS)), spark, store) as made:
        environment = {**os.environ, "PYTHONPATH": str(ROOT)}
        said = subprocess.run(
            [sys.executable, "-c", code], input=pickle.dumps(made), capture_output=True, env=environment, timeout=60
        )
        assert said.stdout.decode().split() == [str(np.arange(float(ROWS)).sum()), "False", "False", "False"], (
            said.stderr
        )
        found = made.value

        def child() -> None:
            with pytest.raises(SystemExit), made:  # as if it were forked in the block
                sys.exit(1)
            assert made.value is found
            assert made.value[-1] == ROWS - 1
            assert pickle.loads(pickle.dumps(made)).value is found
            with pytest.raises(sa.InvalidArgument, match=r"call destroy\(\) on the driver, on the object"):
                made.destroy()

        assert ended(forked(child)) == 0
        assert store.names() == [made.name]
        kept: list[Any] = []
        fresh = pickle.loads(pickle.dumps(made))
        threads = [threading.Thread(target=lambda: kept.append(fresh.value)) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert [each is found for each in kept] == [True] * 8


def open_all(ways: Any, _: Any) -> list[Any]:
    """The sums of what carriers lead to, or why they lead nowhere."""
    from shmarrow.objects import decode
    from shmarrow.spark.delivery import NotHere

    found: list[Any] = []
    for way in (pickle.loads(each) if isinstance(each, bytes) else each for each in ways):
        try:
            found.append(float(np.asarray(decode(way.open().segment)).sum()))
        except NotHere as reason:
            found.append(str(reason))
    return found


def test_a_number_of_another_session(spark: Any, store: sa.Store) -> None:
    """Spark's numbers begin again with each session, so an old pickle has that of another broadcast."""
    from shmarrow.spark.delivery import InBroadcast, in_broadcast
    from shmarrow.spark.values import HostBroadcast

    for name, value in {"a": 1.0, "b": 2.0, "c": 3.0}.items():
        store.put(name, np.full(ROWS, value))
    store.put("d", np.arange(3.0))
    context = spark.sparkContext
    first, second, third, small = (
        *in_broadcast(context, [store.attach("a"), store.attach("b")]),
        *in_broadcast(context, [store.attach("c")]),
        *in_broadcast(context, [store.attach("d")]),
    )
    old = [InBroadcast(now.broadcast, each.token, 0, 1) for now in (third, small) for each in (first, second)]
    ways = [first, second, third, small, *old]
    *right, one, two, three, four = spark.sparkContext.parallelize([0], 1).map(partial(open_all, ways)).collect()[0]
    assert right == [ROWS, 2 * ROWS, 3 * ROWS, 3]
    for said in (one, two, three, four):
        assert said.endswith("is a different broadcast: the session that carried it was stopped")
    with pytest.raises(sa.StorageError, match="nothing carries it here"):
        HostBroadcast("x", 1, ()).value  # noqa: B018
    assert "Spark did not send it to this process" in open_all([InBroadcast(None, b"t" * 16, 64, 64)], 0)[0]
    files = [Path(each.broadcast._path) for each in (first, third, small)]
    assert [path.exists() for path in files] == [True] * 3
    assert all(
        int(path.read_bytes().find(each.token) + 16) % 64 == 0
        for path, each in zip(files, (first, third, small), strict=True)
    )
    for each in (first, second, third, small):
        each.destroy(True)
    assert [path.exists() for path in files] == [False] * 3
    store.clear()


# --- where objects live -----------------------------------------------------------------------------------------


def test_stores_are_let_go_and_collected(shm_name: str) -> None:
    from shmarrow.spark.app_store import AppStore, driver_store

    def descriptors() -> int:
        return len(os.listdir("/proc/self/fd"))

    lies = driver_store(shm_name)
    store = lies.visible()
    assert store is not None
    code = "import sys, numpy, shmarrow as sa; sa.Store(sys.argv[1], owned=True).put('left', numpy.zeros(9))"
    for _ in range(2):  # the second time it is open here already
        python(code, shm_name)
        assert store.names() == ["left"]
        assert driver_store(shm_name) == lies
        assert store.names() == []
    before = descriptors()
    for i in range(10):
        other = driver_store(f"{shm_name}-{i}").visible()
        assert other is not None
        other.put("x", np.arange(9.0))
        other.destroy()
        del other
        assert AppStore(lies.where, lies.id, 1000 + i, lies.user).visible() is not None
    assert descriptors() <= before + 5  # the last one goes when another one comes
    store.destroy()


def test_the_store_of_another_user_has_no_values(tmp_path: Path) -> None:
    """Its owner could replace a value by a pickle that runs code; the trust of a store is about data only."""
    lab.needs_root("to give a directory away")
    sa.Store(tmp_path / "theirs").close()
    for path in [tmp_path / "theirs", *(tmp_path / "theirs").iterdir()]:
        os.chown(path, lab.NOBODY, -1)
    store = sa.Store(tmp_path / "theirs", accept_users=lab.NOBODY)
    with pytest.raises(sa.StorageError, match=rf"belongs to user {lab.NOBODY}, who could replace what .* unpickle"):
        sas.once("value", dict, store)
    assert store.names() == []


@pytest.mark.parametrize("mode", [0o660, 0o666, 0o640])
def test_values_are_unpickled_from_stores_that_nobody_else_can_write(tmp_path: Path, mode: int) -> None:
    """In the driver, and in a worker: the store may have been opened to others since the driver looked."""
    from shmarrow.spark.app_store import driver_store

    refused = "may be written to by other users, who could replace what .* unpickle"
    if mode == 0o640:
        lies = driver_store(tmp_path / "store")
        ours = sas.once("value", lambda: {"a": {1}}, tmp_path / "store")
        assert ours.value == {"a": {1}}
        code = """
        from shmarrow.spark.app_store import AppStore
        import shmarrow as sa
        try: result = AppStore(*lies).visible().names() != []
        except sa.StorageError as error: result = str(error)
        """
        assert lab.run(code, lies=tuple(lies)) is True
        (tmp_path / "store" / "control").chmod(0o660)
        assert re.search(refused, lab.run(code, lies=tuple(lies)))
        return
    with sa.Store(tmp_path / "store", mode=mode) as store, pytest.raises(sa.StorageError, match=refused):
        sas.once("value", dict, store)
    sa.Store(tmp_path / "own").close()
    with sa.Store(tmp_path / "own", accept_users=True) as store, pytest.raises(sa.StorageError, match=refused):
        sas.once("value", dict, store)


def test_too_many_descriptors_do_not_put_a_store_elsewhere(shm_name: str) -> None:
    from shmarrow.spark.app_store import driver_store

    with sa.Store(shm_name) as store:
        made = driver_store(shm_name)
        code = f"""
            import errno, resource
            from shmarrow.spark.app_store import AppStore
            lies = AppStore{tuple(made)}
            soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
            resource.setrlimit(resource.RLIMIT_NOFILE, (3, hard))
            try:
                result = lies.visible()
            except OSError as error:
                result = errno.errorcode[error.errno]
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        """
        assert lab.run(code) == "EMFILE"
        store.destroy()


def test_outside_of_workers() -> None:
    from shmarrow.spark.app_store import AppStore
    from shmarrow.spark.values import Once

    made = Once("v", lambda: 1, AppStore("shm:of-another-host", "0" * 32, 1, os.geteuid()), "0")
    with pytest.raises(sa.StorageError, match=r"'shm:of-another-host' of another process is not visible in this one"):
        made.value  # noqa: B018


def limited(made: Any, _: Any) -> str:
    """Return the error of a worker without enough address space, as with ``spark.executor.pyspark.memory``."""
    import resource

    made.value[:1]  # everything is imported
    other = pickle.loads(pickle.dumps(made))
    from shmarrow.spark.values import drop

    drop(made.name)
    before = resource.getrlimit(resource.RLIMIT_AS)
    now = int(Path("/proc/self/statm").read_text().split()[0]) * os.sysconf("SC_PAGE_SIZE")
    resource.setrlimit(resource.RLIMIT_AS, (now + (16 << 20), before[1]))
    try:
        return str(other.value.shape)
    except sa.StorageError as error:
        return str(error)
    finally:
        resource.setrlimit(resource.RLIMIT_AS, before)


def test_too_few_addresses(spark: Any, store: sa.Store) -> None:
    with sas.broadcast(np.zeros(4 << 20), spark, store) as made:
        said = spark.sparkContext.parallelize([0], 1).map(partial(limited, made)).collect()[0]
    assert "spark.executor.pyspark.memory" in said
    assert f"{made.size:,} bytes" in said


# --- once per host ----------------------------------------------------------------------------------------------


def test_once(spark: Any, store: sa.Store, tmp_path: Path) -> None:
    torch = torch_or_skip()
    calls = tmp_path / "calls"

    def compute() -> Any:
        with calls.open("a") as file:
            file.write(f"{os.getpid()}\n")
        time.sleep(0.3)
        return np.arange(float(ROWS))

    inner = f"{store.name}-inner"  # what its keeper owns, this process cannot collect

    def use(_: Any) -> Any:
        found = made.value
        inside = sas.once("inside", lambda: compute() + 1, inner)
        own = sas.once(f"of process {os.getpid()}", lambda: np.arange(9.0), inner)
        assert own.value.sum() == 36
        own.destroy()
        return (
            float(found.sum()),
            file_of(found),
            made.value is found,
            float(inside.value.sum()),
            inside.value is inside.value,
        )

    def fail() -> Any:
        raise KeyError(f"no luck in {os.getpid()}")

    def failed(_: Any) -> str:
        try:
            return str(wrong.value)
        except Exception as error:
            return f"{type(error).__name__} {error}"

    made, wrong = sas.once("numbers", compute, store), sas.once("wrong", fail, store)
    rows = spark.sparkContext.parallelize(range(4), 4).map(use).collect()
    (name,) = store.names()
    total = float(np.arange(float(ROWS)).sum())
    assert rows == [(total, store.info(name).path, True, total + ROWS, True)] * 4
    assert len(calls.read_text().split()) == 2
    assert made.value.sum() == total
    assert len(calls.read_text().split()) == 2
    assert sas.once("numbers", compute, store).value is made.value  # the name and the code are what counts
    edited = sas.once("numbers", lambda: np.arange(3.0), store)
    assert store.names() == []  # the value of the function that was edited
    assert [edited.value.tolist(), made.value.sum()] == [[0, 1, 2], total]
    edited.destroy()
    assert len(calls.read_text().split()) == 3
    errors = spark.sparkContext.parallelize(range(2), 2).map(failed).collect()
    assert all(error.startswith("KeyError 'no luck in") for error in errors)
    with pytest.raises(KeyError, match=f"no luck in {os.getpid()}"):
        wrong.value  # noqa: B018
    state = sas.once("state", lambda: {"w": torch.ones(2)}, store)
    assert type(state.value["w"]) is torch.Tensor
    made.destroy()
    made.destroy()
    assert made.value.sum() == total
    assert len(calls.read_text().split()) == 4
    with pytest.raises(sa.InvalidType, match=r"cannot share _thread\.lock.* it cannot be pickled"):
        sas.once("refused", threading.Lock, store).value  # noqa: B018
    for arguments in ((1, compute), ("", compute), ("x" * 201, compute), ("x", 1)):
        with pytest.raises((sa.InvalidType, sa.InvalidArgument), match=r"name must|needs a function"):
            sas.once(*arguments)  # type: ignore[arg-type]
    made.destroy()
    state.destroy()
    assert [name.partition("/")[0] for name in sa.Store(inner).names()] == ["keeper", "once"]
    sa.Store(inner).destroy()
