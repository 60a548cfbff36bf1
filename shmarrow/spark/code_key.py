"""Keys of functions: what a function does, as far as its own code says, not where it stands in a file."""

from __future__ import annotations

from functools import partial
from hashlib import sha256
from types import CodeType, FunctionType, MethodType
from typing import Any

from shmarrow.errors import full_name
from shmarrow.spark._pyspark import is_spark, pickled


def code_key(function: Any) -> str:
    """Return a key of a function, the same for functions of the same code, in 16 hexadecimal digits.

    The code is its instructions, constants and names, its defaults, and what it has from functions around it; names of
    files and numbers of lines do not count. Any other object that can be called counts as it is pickled.
    """
    return sha256(repr(_described(function, ())).encode(errors="surrogatepass")).hexdigest()[:16]


def _described(value: Any, within: tuple[int, ...]) -> Any:
    """Return plain values whose repr is the same for the same code."""
    if id(value) in within:  # a function that has itself
        return "itself"
    inner = (*within, id(value))
    if isinstance(value, FunctionType):
        cells = [_cell(cell, inner) for cell in value.__closure__ or ()]
        defaults = [_described(each, inner) for each in (value.__defaults__, value.__kwdefaults__)]
        return "function", _described(value.__code__, inner), defaults, cells
    if isinstance(value, CodeType):
        constants = [_described(each, inner) for each in value.co_consts]
        return "code", value.co_code, constants, value.co_names, value.co_flags, value.co_argcount
    if isinstance(value, partial):
        return "partial", [_described(each, inner) for each in (value.func, value.args, value.keywords)]
    if isinstance(value, MethodType):
        return "method", _described(value.__func__, inner), _described(value.__self__, inner)
    if isinstance(value, (tuple, list)):
        return type(value).__name__, [_described(each, inner) for each in value]
    if isinstance(value, (set, frozenset)):
        return "set", sorted(repr(_described(each, inner)) for each in value)
    if isinstance(value, dict):
        return "dict", [(_described(name, inner), _described(each, inner)) for name, each in value.items()]
    if value is None or value is ... or isinstance(value, (bool, int, float, complex, str, bytes)):
        return type(value).__name__, value
    if isinstance(value, type) and value.__module__ != "__main__":
        return value.__module__, value.__qualname__
    return "pickled", _pickled(value)


def _cell(cell: Any, within: tuple[int, ...]) -> Any:
    try:
        return _described(cell.cell_contents, within)
    except ValueError:  # it is empty, as that of a function that is being defined
        return "empty"


def _pickled(value: Any) -> Any:
    try:
        return pickled(value, lambda buffer: True, _without_broadcasts)
    except Exception:  # then it cannot be sent to a worker, either
        return full_name(value)


def _without_broadcasts(value: Any) -> Any:
    """Reduce broadcasts to what identifies them: Spark sends those that are pickled to the workers of the next job."""
    if is_spark(value, "Broadcast"):
        return str, (str(id(value)),)
    return (str, (value.name,)) if type(value).__name__ == "HostBroadcast" else NotImplemented
