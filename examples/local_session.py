"""A Spark session on this machine, for the examples: it listens on the loopback interface only, without its web UI."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING

from shmarrow import MissingExtra

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

LOWEST_JAVA = 17
LOOPBACK = "127.0.0.1"
LOCAL = {
    "spark.driver.bindAddress": LOOPBACK,
    "spark.driver.host": LOOPBACK,
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
}


def local_session(workers: int = 2, config: Mapping[str, str] | None = None) -> SparkSession:
    """Start a session in its own Java process, or return the active one.

    Parameters
    ----------
    workers : int
        Number of tasks, each with its Python worker, that run concurrently.
    config : mapping, optional
        Additional Spark settings by name; they override the defaults set here.
    """
    from pyspark.sql import SparkSession

    check_java()
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)  # Spark's workers must run a Python that has shmarrow
    os.environ.setdefault("SPARK_LOCAL_IP", LOOPBACK)
    builder = SparkSession.builder.master(f"local[{workers}]").appName("shmarrow")
    for name, value in {**LOCAL, **(config or {})}.items():
        builder = builder.config(name, value)
    return builder.getOrCreate()


def check_java() -> None:
    """Check for a Java that can run Spark; Spark's own error is fifty lines long."""
    home = os.environ.get("JAVA_HOME")
    program = os.path.join(home, "bin", "java") if home else "java"
    try:
        said = subprocess.run([program, "-version"], capture_output=True, text=True, check=False).stderr
    except OSError as error:
        said = f"{program}: {error.strerror}"
    version = re.search(r'version "(\d+)', said)
    if version is None or int(version[1]) < LOWEST_JAVA:
        found = (said.strip().splitlines() or ["nothing"])[0]
        raise MissingExtra(
            f"Spark needs Java {LOWEST_JAVA} or newer, on PATH or in JAVA_HOME; install it (Debian: apt-get install "
            f"openjdk-17-jre-headless); found {found}"
        )
