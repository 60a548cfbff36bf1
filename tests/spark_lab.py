"""A laboratory of real Spark: one session for all tests of a process, and what tests need to look into it.

Each Java process takes seconds and hundreds of megabytes, so tests share one session (the fixture ``spark``). What that
session cannot be asked for belongs into a test that says so. Everything listens on the loopback interface only, and
has its files in a temporary directory.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from conftest import ROOT

BATCH_ROWS = 1_000
"""Rows of the batches that Spark gives to functions."""

JAVA = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
"""For short runs: what takes long to compile is not worth it."""

SETTINGS = {
    "spark.driver.extraJavaOptions": JAVA,
    "spark.driver.memory": "768m",
    "spark.log.level": "OFF",
    "spark.sql.execution.arrow.maxRecordsPerBatch": str(BATCH_ROWS),
    "spark.sql.session.timeZone": "Europe/Oslo",
    "spark.sql.shuffle.partitions": "2",
}


@contextmanager
def _environment(**values: str) -> Iterator[None]:
    """Variables of the environment, while a process is started that inherits them."""
    with pytest.MonkeyPatch.context() as patch:
        for name, value in values.items():
            patch.setenv(name, value)
        yield


def _python_path() -> str:
    """Workers import this project, and what tests import, wherever the run was started."""
    return os.pathsep.join([str(ROOT), str(ROOT / "tests"), os.environ.get("PYTHONPATH", "")])


@contextmanager
def local_spark(folder: Path) -> Iterator[Any]:
    """A classic session with two tasks at a time, each of which may fail once; ``folder`` has its files."""
    from shmarrow.spark import local_session

    with _environment(PYTHONPATH=_python_path(), SPARK_LOCAL_DIRS=str(folder)):
        session = local_session(2, {**SETTINGS, "spark.master": "local[2,2]"})
    try:
        yield session
    finally:
        session.stop()


@contextmanager
def functions_by_value(module: ModuleType) -> Iterator[None]:
    """Functions and classes of a test module travel to workers as they are, as workers cannot import it."""
    cloudpickle = pytest.importorskip("pyspark.cloudpickle")
    cloudpickle.register_pickle_by_value(module)
    try:
        yield
    finally:
        cloudpickle.unregister_pickle_by_value(module)
