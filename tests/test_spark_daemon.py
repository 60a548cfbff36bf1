"""The daemon that workers are forked from: what it imports, what it owns, and how it ends.

It makes the store of the user's Spark applications in shared memory, so it runs with a ``/dev/shm`` of its own here.
"""

from __future__ import annotations

import gc
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conftest import ROOT
from spark_lab import another_host, driver, wait_until

import shmarrow as sa

pytest.importorskip("pyspark")
pytest.importorskip("pyarrow")

USED = ("numpy", "pandas", "pyarrow.compute", "shmarrow.spark.sharing", "shmarrow.store.publish", "pyspark.worker")


# --- in a driver and its workers --------------------------------------------------------------------------------


def _look(number: int, hb: Any, elsewhere: Any) -> dict[str, Any]:
    """What a task finds, in the first use of all this in its worker."""
    loaded = [name for name in USED if name in sys.modules]
    before = set(sys.modules)
    total = int(hb.value.sum())
    store = elsewhere.store()
    store.put(f"task-{number}", np.arange(number + 3))
    return {
        "daemon": os.getppid(),
        "loaded": loaded,
        "late": sorted(name for name in set(sys.modules) - before if name.startswith("shmarrow.")),
        "frozen": gc.get_freeze_count() > 0,
        "total": total,
        "store": store.name,
        "owner": store.info(f"task-{number}").owner,
        "handlers": [signal.getsignal(each) for each in (signal.SIGTERM, signal.SIGHUP)] == [signal.SIG_DFL] * 2,
    }


def _twice(batches: Iterator[Any]) -> Iterator[Any]:
    import pyarrow as pa
    import pyarrow.compute as pc

    for batch in batches:
        yield pa.record_batch([pc.multiply(batch.column(0), 2)], ["id"])


def _work(spark: Any) -> tuple[list[dict[str, Any]], list[int]]:
    """Run two tasks that look, and a function over batches."""
    from shmarrow import spark as sas
    from shmarrow.spark.home import Home

    elsewhere = Home("shm:of-a-driver-on-another-host", "0" * 32, 1, os.geteuid())
    with sas.broadcast(spark, np.arange(1_000)) as hb:
        found = spark.sparkContext.parallelize(range(2), 2).map(lambda number: _look(number, hb, elsewhere)).collect()
    return found, [row.id for row in spark.range(4).mapInArrow(_twice, "id long").collect()]


def _names(spark: Any) -> list[str]:
    with sa.Store("shm:shmarrow-spark-0", create=False) as store:
        return store.names()


def _collect(spark: Any) -> list[str]:
    with sa.Store("shm:shmarrow-spark-0", create=False) as store:
        return sorted(store.collect().objects)


def test_workers_of_the_daemon(java: None, by_value: None, tmp_path: Path) -> None:
    settings = {"spark__python__daemon__module": "shmarrow.spark.daemon"}
    variables = {"SHMARROW_SPARK_IMPORTS": "pyarrow.compute, pandas,no_such_module"}
    if os.geteuid():
        pytest.skip("the name of the store is that of root")
    with driver(tmp_path / "d", host=another_host(), environment=variables, **settings) as d:
        found, ids = d.run(_work)
        assert ids == [0, 2, 4, 6]
        daemon = found[0]["daemon"]
        expected = {"daemon": daemon, "owner": daemon, "loaded": list(USED), "late": [], "total": 499_500}
        expected |= {"frozen": True, "store": "shm:shmarrow-spark-0", "handlers": True}
        assert found == [expected, expected]
        command = Path(f"/proc/{daemon}/cmdline").read_text().split("\0")
        assert command[1:4] == ["-m", "shmarrow.spark.daemon", "pyspark.worker"]
        assert d.run(_collect) == []
        assert d.run(_names) == ["task-0", "task-1"]
        os.kill(d.java(), signal.SIGKILL)
        wait_until(lambda: not Path(f"/proc/{daemon}").exists(), "the daemon ends with the executor", 20)
        assert d.run(_collect) == ["task-0", "task-1"]
    said = "".join(path.read_text() for path in (tmp_path / "d").glob("*.err"))
    assert "cannot import 'no_such_module', which SHMARROW_SPARK_IMPORTS names" in said


# --- the daemon by itself ---------------------------------------------------------------------------------------


def _daemon(before: str, **variables: str) -> tuple[int, bytes, str]:
    """The exit status of a daemon whose input ends at once, which is 1 as of pyspark's own, and what it wrote."""
    command = [sys.executable, "-m", "shmarrow.spark.daemon", "pyspark.worker"]
    process = subprocess.run(
        [*another_host(), "sh", "-ec", f'{before}\nexec "$@"', "sh", *command],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        env={**os.environ, "PYTHONPATH": f"{ROOT}:/tmp", **variables},
        check=False,
    )
    return process.returncode, process.stdout, process.stderr.decode()


def test_only_the_port_is_written_to_stdout() -> None:
    module = """echo "print('hello'); raise ValueError('not here')" > /tmp/talkative.py"""
    status, out, said = _daemon(module, SHMARROW_SPARK_IMPORTS="talkative")
    assert (status, len(out)) == (1, 4)
    assert 1 <= int.from_bytes(out, "big") < 1 << 16
    assert said == "hello\nshmarrow.spark.daemon: importing 'talkative' failed: ValueError: not here\n"


def test_workers_do_without_a_store() -> None:
    status, out, said = _daemon(f"touch /dev/shm/shmarrow-spark-{os.geteuid()}", SHMARROW_SPARK_IMPORTS="")
    assert (status, len(out)) == (1, 4)
    assert said.startswith("shmarrow.spark.daemon: workers cannot put objects into shared memory: ")
    assert f"cannot open the store 'shm:shmarrow-spark-{os.geteuid()}'" in said
    assert said.count("\n") == 1


@pytest.mark.parametrize(
    ("code", "message"),
    [
        ("sys.modules['pyspark'] = None", "pip install 'shmarrow[spark]'"),
        ("sys.stdin.isatty = lambda: True", "set spark.python.daemon.module to shmarrow.spark.daemon"),
    ],
)
def test_who_cannot_start_it(code: str, message: str) -> None:
    class_ = "import io, sys\nclass In(io.StringIO): pass\nsys.stdin = In()\n"
    script = f"{class_}{code}\nfrom shmarrow.spark.daemon import main\nmain()"
    process = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert process.returncode == 1
    assert process.stdout == ""
    assert message in process.stderr
    assert "Traceback" not in process.stderr
