"""Sessions on this machine, and what is said where Spark or Java is missing."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest
from local_session import check_java

import shmarrow as sa
from shmarrow import spark as sas
from shmarrow.spark._pyspark import check_version


def test_without_pyspark(tmp_path: Path) -> None:
    (tmp_path / "pyspark.py").write_text("raise ImportError('none here')")
    code = "from shmarrow import spark; spark.broadcast(1)"
    environment = {**os.environ, "PYTHONPATH": f"{tmp_path}:{os.environ.get('PYTHONPATH', '')}"}
    ran = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True)
    assert ran.returncode == 1
    assert ran.stderr.splitlines()[-1] == (
        "shmarrow.errors.MissingExtra: pyspark is needed here: pip install 'shmarrow[spark]' (none here)"
    )


@pytest.mark.parametrize(
    ("version", "is_right"),
    [("3.5.6", False), ("4.0.5", False), ("4.1.0.dev2", True), ("4.12.1", True), ("5.0", False)],
)
def test_other_versions_of_pyspark(version: str, is_right: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pytest.importorskip("pyspark"), "__version__", version)
    said = f"shmarrow.spark needs pyspark 4.1 or newer, below 5, found pyspark {version}$"
    with nullcontext() if is_right else pytest.raises(sa.MissingExtra, match=said):
        check_version()


def test_without_java(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    program = tmp_path / "bin" / "java"
    program.parent.mkdir()
    program.write_text("#!/bin/sh\necho 'openjdk version \"11.0.2\" 2019-01-15' >&2\n")
    program.chmod(0o755)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    with pytest.raises(sa.MissingExtra, match=r'Java 17 or newer.*found openjdk version "11\.0\.2"'):
        check_java()
    monkeypatch.delenv("JAVA_HOME")
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(sa.MissingExtra, match=r"install it \(Debian.*found java: No such file"):
        check_java()


def test_the_python_of_the_workers_is_checked_by_every_entry_point(
    spark: Any, home: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    df, values = spark.range(4), {"id": [1, 2], "x": [3, 4]}
    with sas.share_table(values, store=home) as frame:
        calls = [
            lambda: sas.share(df, home),
            lambda: sas.share_table(values, store=home),
            lambda: sas.broadcast({1}, store=home),
            lambda: sas.lookup(df, frame, "id", ["x"]),
            lambda: frame.map(lambda part: part, "id long, x long"),
            lambda: frame.to_df(),
        ]
        for program in ("/bin/false", "/nowhere/python"):
            monkeypatch.setattr(spark.sparkContext, "pythonExec", program)
            for call in calls:
                with pytest.raises(sa.MissingExtra, match=f"'{program}', does not have shmarrow; .*pythonExec = sys"):
                    call()
        other = f"{os.path.dirname(sys.executable)}/./{os.path.basename(sys.executable)}"
        monkeypatch.setattr(spark.sparkContext, "pythonExec", other)
        assert frame.to_df().count() == 2


def test_writes_work_in_threads_in_which_a_frame_was_used(spark: Any, home: str, tmp_path: Path) -> None:
    def run() -> None:
        with sas.share(spark.range(3), home) as frame:
            frame.to_df().write.format("shmarrow").mode("append").save(str(tmp_path / "out"))

    with ThreadPoolExecutor(1) as pool:
        pool.submit(run).result()
    assert spark.read.format("shmarrow").load(str(tmp_path / "out")).count() == 3


def test_a_session_that_was_stopped(connect: Any, connect_server: str, home: str) -> None:
    from spark_lab import connect_client

    with sas.share(connect.range(0, 4, 1, 2), home) as frame, connect_client(connect_server) as session:
        df = session.range(4)
        session.stop()
        for call in (
            lambda: sas.share(df, home),
            lambda: frame.map(lambda table: table, "id long", session),
            lambda: frame.to_df(spark=session),
        ):
            with pytest.raises(sa.InvalidArgument, match="the Spark session has been stopped; pass one that runs"):
                call()


def test_spark_listens_on_the_loopback_interface_only(spark: Any, connect_server: str) -> None:
    listening = listening_addresses(spark.sparkContext._gateway.proc.pid)
    assert listening
    assert listening <= {"127.0.0.1", "::1", "::ffff:127.0.0.1"}


def listening_addresses(java: int) -> set[str]:
    """The addresses on which a process listens."""
    sockets = set()
    for path in Path(f"/proc/{java}/fd").iterdir():
        try:
            sockets.add(os.readlink(path))
        except FileNotFoundError:
            continue
    listening = set()
    for table, family in (("tcp", socket.AF_INET), ("tcp6", socket.AF_INET6)):
        for line in Path(f"/proc/{java}/net/{table}").read_text().splitlines()[1:]:
            cells = line.split()
            if cells[3] == "0A" and f"socket:[{cells[9]}]" in sockets:
                raw = bytes.fromhex(cells[1].split(":")[0])
                words = b"".join(raw[i : i + 4][::-1] for i in range(0, len(raw), 4))
                listening.add(socket.inet_ntop(family, words))
    return listening
