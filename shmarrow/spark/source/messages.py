"""Messages of errors on their way from Spark's Python processes to the driver."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from shmarrow.errors import ShmarrowError, printable


@contextmanager
def sendable() -> Iterator[None]:
    """Errors of ours get messages of one line of printable characters.

    Messages have names of files and columns, which may be any bytes. What is not UTF-8 cannot be sent to Java, which
    would wait for it forever; a line break in a name could pass for the beginning of another error.
    """
    try:
        yield
    except ShmarrowError as error:
        said = error.strerror or "" if isinstance(error, OSError) else str(error)
        if said.isprintable():
            raise
        kind = type(error)
        raise (kind(error.errno, printable(said)) if isinstance(error, OSError) else kind(printable(said))) from None
