"""Messages of errors on their way from Spark's Python processes to the driver."""

from __future__ import annotations

from contextlib import ContextDecorator

from shmarrow.errors import ShmarrowError, part_text, printable


class sendable(ContextDecorator):
    """Within the block, give our errors messages of one line of printable characters, and no traceback before it.

    Messages have names of files and columns, which may be any bytes. What is not UTF-8 cannot be sent to Java, which
    would wait for it forever; a line break in a name could pass for the beginning of another error. Spark sends the
    traceback too, several times.
    """

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        if isinstance(error, ShmarrowError):
            if not str(error).isprintable():
                error.where = tuple([(printable(part_text(part)),) for part in error.where])
                error.args = (*error.args[:-1], printable(error.message))
                error.hint = None if error.hint is None else printable(error.hint)
            raise error.with_traceback(None) from None
