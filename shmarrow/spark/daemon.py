# SPDX-License-Identifier: Apache-2.0
"""The daemon from which Spark's Python workers are forked, with their imports preloaded.

Spark runs it if ``spark.python.daemon.module`` is ``shmarrow.spark.daemon``; this setting is read when a session
starts, and exists in classic sessions only. It does what ``pyspark.daemon`` does, and before that:

* imports numpy, shmarrow, pyspark's worker, and pyarrow and pandas if installed, which saves each worker a second.
  ``SHMARROW_SPARK_IMPORTS`` in its environment (``spark.executorEnv.SHMARROW_SPARK_IMPORTS``) replaces pyarrow and
  pandas by a comma-separated list of modules, such as ``pandas,torch``, or none if empty;
* exempts the imported objects from garbage collection, which would copy the pages that workers share.

Workers are forked while threads of numpy's and pyarrow's libraries are idle; these libraries support that.
"""

from __future__ import annotations

import gc
import os
import sys
from contextlib import redirect_stdout
from importlib import import_module

from shmarrow.spark._pyspark import run_daemon

IMPORTS = "SHMARROW_SPARK_IMPORTS"
"""The environment variable with the modules to import instead of :data:`PACKAGES`."""

PACKAGES = ("pyarrow.compute", "pandas")
"""Modules that most user functions need."""

OURS = (
    "shmarrow.build", "shmarrow.columns.chunked", "shmarrow.objects.encode", "shmarrow.layout.c_stream",
    "shmarrow.ipc.batch.codecs", "shmarrow.ipc.file.writer", "shmarrow.ipc.stream.reader", "shmarrow.ipc.tensor.bundle",
    "shmarrow.spark.file_set", "shmarrow.spark.joining", "shmarrow.spark.sharing", "shmarrow.spark.values",
    "shmarrow.store.info", "shmarrow.store.publish", "shmarrow.store.snapshot", "shmarrow.store.watch",
    "shmarrow.columns.table",
)  # fmt: skip
"""Modules of this package that workers would import lazily."""


def prepare(worker: str = "pyspark.worker") -> None:
    """Import the modules that workers need; report failed imports on stderr."""
    import numpy  # noqa: F401

    from shmarrow import layout

    for name in layout.__all__:
        getattr(layout, name)
    for module in (*OURS, worker, "pyspark.sql.pandas.types"):
        import_module(module)
    named = os.environ.get(IMPORTS)
    for module in PACKAGES if named is None else filter(None, map(str.strip, named.split(","))):
        try:
            import_module(module)
        except ModuleNotFoundError as error:
            if named is not None:
                _say(f"cannot import {module!r}, which {IMPORTS} names: {error}")
        except Exception as error:  # workers that need it will raise the error themselves
            _say(f"importing {module!r} failed: {type(error).__name__}: {error}")


def main() -> None:
    """Prepare, then run ``pyspark.daemon``.

    Raises
    ------
    SystemExit
        If pyspark is not installed, or it was started from a terminal.
    """
    try:
        import pyspark.daemon  # noqa: F401
    except ImportError as error:
        raise SystemExit(f"shmarrow.spark.daemon needs pyspark: pip install 'shmarrow[spark]' ({error})") from None
    if sys.stdin is None or sys.stdin.isatty():
        raise SystemExit("Spark starts this: set spark.python.daemon.module to shmarrow.spark.daemon")
    with redirect_stdout(sys.stderr):  # Spark reads a number from stdout
        named = sys.argv[1] if len(sys.argv) > 1 else ""
        prepare(named if named.startswith("pyspark.") else "pyspark.worker")
    gc.collect()
    gc.freeze()
    run_daemon()


def _say(what: str) -> None:
    print(f"shmarrow.spark.daemon: {what}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()
