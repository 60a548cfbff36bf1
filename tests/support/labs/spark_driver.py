"""The process of a driver: it makes a session of Spark, and runs the functions that a test gives to it.

Started by :class:`spark_lab.Driver`, which says what session. Functions get the session and their arguments.
"""

from __future__ import annotations

import os
import sys
import traceback
import warnings
from multiprocessing.connection import Connection
from typing import Any

_talk: Connection
_session: Any = None


def say(value: Any) -> None:
    """From a function that runs: a value for :meth:`spark_lab.Driver.hear`."""
    _send("said", value)


def hear() -> Any:
    """From a function that runs: wait for a value of :meth:`spark_lab.Driver.say`."""
    return _receive()


def use(session: Any) -> None:
    """From a function that runs: the session that later functions get."""
    global _session
    _session = session


def _send(kind: str, value: Any) -> None:
    from pyspark import cloudpickle

    _talk.send_bytes(cloudpickle.dumps((kind, value)))


def _receive() -> Any:
    from pyspark import cloudpickle

    return cloudpickle.loads(_talk.recv_bytes())


def _made(url: str, settings: dict[str, str]) -> Any:
    if url.startswith("sc://"):
        from pyspark.sql import SparkSession

        return SparkSession.builder.remote(url).create()
    from local_session import local_session

    return local_session(2, {"spark.master": url, **settings})


def main() -> None:
    global _talk
    _talk = Connection(int(sys.argv[1]))
    warnings.filterwarnings("ignore", "PySpark does not yet", FutureWarning)
    url, settings = _receive()
    use(_made(url, settings))
    say(os.getpid())
    while True:
        try:
            function, arguments = _receive()
        except EOFError:
            break
        try:
            answer = ("result", function(_session, *arguments))
        except BaseException:
            answer = ("error", traceback.format_exc())
        _send(*answer)
    _session.stop()


if __name__ == "__main__":
    import spark_driver  # the module that functions import `say` from, not a second one

    spark_driver.main()
