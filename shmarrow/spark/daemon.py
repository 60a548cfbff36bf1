"""The daemon that Spark's Python workers are forked from, with what they need imported already.

Spark runs it where ``spark.python.daemon.module`` is ``shmarrow.spark.daemon``; that setting is read when a session
starts, and classic sessions only have it. It does what ``pyspark.daemon`` does, and before that:

* imports numpy, shmarrow, pyspark's worker, and pyarrow and pandas if they are installed, so that no worker spends its
  first second on that. ``SHMARROW_SPARK_IMPORTS`` in its environment (``spark.executorEnv.SHMARROW_SPARK_IMPORTS``)
  names other modules than pyarrow and pandas, separated by commas: ``pandas,torch``, say; empty, none of them;
* exempts all that from garbage collection, which would copy the pages that workers share;
* becomes the owner of what its workers put on a host where the store of the driver is not visible, in the same place
  of this host: when the executor has ended, it has ended too, and what it owned is collected.

Workers are forked while other threads sleep: those of the libraries in numpy and pyarrow, which expect to be forked.
"""

from __future__ import annotations

import gc
import os
import sys
from contextlib import redirect_stdout
from importlib import import_module

IMPORTS = "SHMARROW_SPARK_IMPORTS"
"""The environment variable with the modules that are imported in place of :data:`PACKAGES`."""

PACKAGES = ("pyarrow.compute", "pandas")
"""What most functions of users need."""

OURS = (
    "shmarrow.build", "shmarrow.chunked", "shmarrow.codecs.encode", "shmarrow.interchange.pyarrow",
    "shmarrow.ipc.batch.codecs", "shmarrow.ipc.file.writer", "shmarrow.ipc.stream.reader", "shmarrow.ipc.tensor.bundle",
    "shmarrow.spark.carriers", "shmarrow.spark.frame", "shmarrow.spark.host_broadcast", "shmarrow.spark.sharing",
    "shmarrow.store.info", "shmarrow.store.publish", "shmarrow.store.snapshot", "shmarrow.store.watch",
    "shmarrow.tables",
)  # fmt: skip
"""What is imported late for workers' functions, and takes the others with it."""


def prepare(worker: str = "pyspark.worker") -> None:
    """Import what workers need; what users named and cannot be imported is said on stderr."""
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
        except Exception as error:  # workers that need it say so; the others do without
            _say(f"importing {module!r} failed: {type(error).__name__}: {error}")


def own() -> None:
    """Let workers put what this process is to own, where the user's store for Spark can be opened or made."""
    from shmarrow.errors import ShmarrowError
    from shmarrow.spark.home import OWNER, for_workers, home

    try:
        os.environ[OWNER] = for_workers(home())
    except ShmarrowError as error:  # such as no /dev/shm; workers then use Spark's local directory
        os.environ.pop(OWNER, None)
        _say(f"workers cannot put objects into shared memory: {error}")


def main() -> None:
    """Prepare, and do what ``pyspark.daemon`` does.

    Raises
    ------
    SystemExit
        If pyspark is not installed, or a person started it.
    """
    try:
        from pyspark.daemon import manager
    except ImportError as error:
        raise SystemExit(f"shmarrow.spark.daemon needs pyspark: pip install 'shmarrow[spark]' ({error})") from None
    if sys.stdin is None or sys.stdin.isatty():
        raise SystemExit("Spark starts this: set spark.python.daemon.module to shmarrow.spark.daemon")
    with redirect_stdout(sys.stderr):  # Spark reads a number from stdout
        named = sys.argv[1] if len(sys.argv) > 1 else ""
        prepare(named if named.startswith("pyspark.") else "pyspark.worker")
        own()
    gc.collect()
    gc.freeze()
    manager()


def _say(what: str) -> None:
    print(f"shmarrow.spark.daemon: {what}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()
