"""The daemon that workers are forked from: what it imports."""

from __future__ import annotations

import gc
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from environment import ROOT

from shmarrow import spark as sas

pytest.importorskip("pyspark")
pytest.importorskip("pyarrow")

USED = ("numpy", "pandas", "pyarrow.compute", "shmarrow.spark.sharing", "shmarrow.store.publish", "pyspark.worker")


# --- in a session -----------------------------------------------------------------------------------------------


@pytest.fixture
def daemon(spark: Any, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The session forks its workers from the daemon; Spark starts one for each module and environment."""
    monkeypatch.setitem(spark.sparkContext.environment, "SHMARROW_SPARK_IMPORTS", "pyarrow.compute, pandas,")
    settings, name = spark.sparkContext._jsc.sc().conf(), "spark.python.daemon.module"
    before = settings.get(name)
    settings.set(name, "shmarrow.spark.daemon")
    yield
    settings.set(name, before)


def look(hb: Any, _: int) -> dict[str, Any]:
    """Return what a task sees at the first use in its worker."""
    loaded = [name for name in USED if name in sys.modules]
    before = set(sys.modules)
    total = int(hb.value.sum())
    return {
        "daemon": os.getppid(),
        "loaded": loaded,
        "late": sorted(name for name in set(sys.modules) - before if name.startswith("shmarrow.")),
        "frozen": gc.get_freeze_count() > 0,
        "total": total,
        "handlers": [signal.getsignal(each) for each in (signal.SIGTERM, signal.SIGHUP)] == [signal.SIG_DFL] * 2,
    }


def test_workers_of_the_daemon(spark: Any, daemon: None, home: str) -> None:
    with sas.broadcast(np.arange(1_000), spark, home) as hb:
        found = spark.sparkContext.parallelize(range(2), 2).map(partial(look, hb)).collect()
    daemon_pid = found[0]["daemon"]
    expected = {"daemon": daemon_pid, "loaded": list(USED), "late": [], "total": 499_500}
    expected |= {"frozen": True, "handlers": True}
    assert found == [expected, expected]
    command = Path(f"/proc/{daemon_pid}/cmdline").read_text().split("\0")
    assert command[1:4] == ["-m", "shmarrow.spark.daemon", "pyspark.worker"]


# --- the daemon by itself ---------------------------------------------------------------------------------------


def test_only_the_port_is_written_to_stdout(tmp_path: Path) -> None:
    """Its input ends at once; then it ends with 1, as pyspark's own does. What cannot be imported it says on stderr."""
    (tmp_path / "talkative.py").write_text("print('hello'); raise ValueError('not here')")
    variables = {"PYTHONPATH": f"{ROOT}:{tmp_path}", "SHMARROW_SPARK_IMPORTS": "talkative, no_such_module"}
    process = subprocess.run(
        [sys.executable, "-m", "shmarrow.spark.daemon", "pyspark.worker"],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        env={**os.environ, **variables},
        check=False,
    )
    assert (process.returncode, len(process.stdout)) == (1, 4)
    assert 1 <= int.from_bytes(process.stdout, "big") < 1 << 16
    hello, failed, missing = process.stderr.decode().splitlines()
    assert (hello, failed) == ("hello", "shmarrow.spark.daemon: importing 'talkative' failed: ValueError: not here")
    assert "cannot import 'no_such_module', which SHMARROW_SPARK_IMPORTS names" in missing


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
