"""Sessions on this machine, and what is said where Spark or Java is missing."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest

import shmarrow as sa
from shmarrow import spark as sas
from shmarrow.spark._pyspark import check_version


def test_without_pyspark(tmp_path: Path) -> None:
    (tmp_path / "pyspark.py").write_text("raise ImportError('none here')")
    code = "from shmarrow import spark; spark.local_session()"
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
        sas.check_java()
    monkeypatch.delenv("JAVA_HOME")
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(sa.MissingExtra, match=r"install it \(Debian.*found java: No such file"):
        sas.check_java()


def test_local_session_needs_a_worker() -> None:
    with pytest.raises(sa.InvalidArgument, match="workers must be at least 1, found 0"):
        sas.local_session(0)
    for workers, config in [("2", None), (None, None), (1.5, None), (2, "spark.ui.enabled"), (2, [("a", "b")])]:
        with pytest.raises(sa.InvalidType, match=r"workers|config must be a mapping of names to values, found"):
            sas.local_session(workers, config)  # type: ignore[arg-type]


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
