"""Keys of functions: what a function does, as far as its own code says, not where it stands in a file."""

from __future__ import annotations

import os
from hashlib import sha256
from types import CodeType, FunctionType
from typing import Any

from shmarrow.spark._pyspark import is_spark, pickled


def code_key(function: Any) -> str:
    """Return a key of a function, the same for functions of the same code in an application, in 16 hexadecimal digits.

    The code is its instructions, constants and names, its defaults, and what it has from functions around it; names of
    files and numbers of lines do not count. Any other object that can be called counts as it is pickled. One that
    cannot be pickled has another key each time.
    """
    try:
        said = pickled(function, lambda buffer: True, _reduced)
    except Exception:  # then it cannot be sent to a worker, either
        return os.urandom(8).hex()
    return sha256(said).hexdigest()[:16]


def _reduced(value: Any) -> Any:
    """Reduce functions and code to what counts, and broadcasts to what identifies them.

    What counts is given as a state, which is pickled when the function is known: it may have itself. Spark sends
    broadcasts that are pickled to the workers of the next job.
    """
    if isinstance(value, FunctionType):
        cells = [_contents(cell) for cell in value.__closure__ or ()]
        return str, ("function",), (value.__code__, value.__defaults__, value.__kwdefaults__, cells)
    if isinstance(value, CodeType):
        return str, ("code",), (value.co_code, value.co_consts, value.co_names, value.co_flags, value.co_argcount)
    if is_spark(value, "Broadcast"):
        return str, (str(id(value)),)
    return (str, (value.name,)) if type(value).__name__ == "HostBroadcast" else NotImplemented


def _contents(cell: Any) -> Any:
    try:
        return cell.cell_contents
    except ValueError:  # it is empty, as that of a function that is being defined
        return "empty"
