"""The options of the data source, checked."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Mapping
from difflib import get_close_matches
from typing import Any, NamedTuple

from shmarrow.errors import InvalidArgument, shown

_UNITS = {"": 1, "b": 1, "k": 1 << 10, "kb": 1 << 10, "m": 1 << 20, "mb": 1 << 20, "g": 1 << 30, "gb": 1 << 30}
_SCHEME = re.compile(r"([a-zA-Z][a-zA-Z0-9+.-]+):/")
Parsers = Mapping[str, tuple[str, Callable[[str, str], Any]]]


def flag(name: str, text: str) -> bool:
    """An option that is true or false."""
    found = {"true": True, "false": False}.get(text.strip().lower())
    if found is None:
        raise InvalidArgument(f"option {name!r} must be true or false, found {shown(text)}")
    return found


def size(name: str, text: str) -> int:
    """An option that is a number of bytes."""
    found = re.fullmatch(r"\s*(\d{1,18})\s*([a-z]*)\s*", text.lower())
    size = int(found[1]) * _UNITS.get(found[2], 0) if found else 0
    if not size:
        raise InvalidArgument(f"option {name!r} must be a number of bytes such as 33554432 or 32m, found {shown(text)}")
    return size


def checked(given: Mapping[str, str], parsers: Parsers) -> tuple[dict[str, Any], dict[str, str]]:
    """The values of known options by their attributes, and all other options by their names in lower case.

    Raises
    ------
    InvalidArgument
        If a value makes no sense, or a name looks like one that is misspelt. Other names are for others, as always in
        Spark.
    """
    rest = {name.lower(): value for name, value in given.items()}
    values: dict[str, Any] = {}
    for name, (attribute, parse) in parsers.items():
        text = rest.pop(name.lower(), None)
        if text is not None:
            values[attribute] = parse(name, text)
    known = {name.lower(): name for name in parsers}
    for name in rest:
        close = get_close_matches(name, known, 1, 0.85)
        if close:
            raise InvalidArgument(f"no option {name!r}; did you mean {known[close[0]]!r}?")
    return values, rest


def local(path: str) -> str:
    """A path of this machine's, from one that may be a ``file:`` URI.

    As in all of Spark, nothing in a URI is decoded: ``%``, ``#`` and ``?`` are characters of names.
    """
    if "\0" in path:
        raise InvalidArgument(f"a path must not contain NUL, found {path!r}")
    try:
        os.fsencode(path)
    except UnicodeEncodeError as error:
        raise InvalidArgument(f"{path!r} cannot be encoded as a path: {error}") from None
    found = _SCHEME.match(path)
    if not found:
        return os.path.expanduser(path)
    rest = path[len(found[1]) + 1 :]
    host, _, name = rest[2:].partition("/") if rest.startswith("//") else ("", "", rest)
    if found[1].lower() != "file" or host not in ("", "localhost"):
        at = f" and the host {host!r}" if host else ""
        raise InvalidArgument(
            f"{path!r}: only files of mounted file systems can be used, by their paths; found the scheme "
            f"{found[1]!r}{at}"
        )
    return "/" + name.lstrip("/")


# --- of a read --------------------------------------------------------------------------------------------------

SPLIT_BYTES = 64 << 20
"""The bytes that one task reads at most, where record batches allow it."""


class ReadOptions(NamedTuple):
    """Options of a read.

    Attributes
    ----------
    paths : tuple of str
        Locations, or names of objects where there is a store; none in a plan without files.
    store : str or None
        The location of a store.
    columns : tuple of str or None
        The columns to read; None for all.
    merge : bool
        Whether files may lack columns of others.
    split_bytes : int
        How much one task reads at most.
    recursive : bool
        Whether directories in directories are read, too.
    pattern : str
        Which files of a directory are read, as a glob pattern; empty for all.
    trust : bool
        Whether values are handed on without checks.
    """

    paths: tuple[str, ...]
    store: str | None = None
    columns: tuple[str, ...] | None = None
    merge: bool = False
    split_bytes: int = SPLIT_BYTES
    recursive: bool = False
    pattern: str = ""
    trust: bool = False


def _columns(name: str, text: str) -> tuple[str, ...]:
    """The names of columns: at least one, and none twice."""
    found = _json_names(text) if text.lstrip().startswith("[") else None
    found = tuple(filter(None, map(str.strip, text.split(",")))) if found is None else found
    if not found or len(set(found)) < len(found):
        raise InvalidArgument(
            f"option {name!r} must be names with commas between them, or a JSON list of names: at least one, and none "
            f"twice; found {shown(text)}"
        )
    return found


def _json_names(text: str) -> tuple[str, ...] | None:
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return tuple(found) if isinstance(found, list) and all(isinstance(each, str) for each in found) else None


def as_is(name: str, text: str) -> str:
    """An option that is any text."""
    return text


_READ: Parsers = {
    "store": ("store", as_is),
    "columns": ("columns", _columns),
    "mergeSchema": ("merge", flag),
    "maxPartitionBytes": ("split_bytes", size),
    "recursiveFileLookup": ("recursive", flag),
    "pathGlobFilter": ("pattern", as_is),
    "trust": ("trust", flag),
}
"""The options of a read by the names that Spark's users know, with the attribute that each sets and what reads it."""


def read_options(given: Mapping[str, str]) -> ReadOptions:
    """The options of a read.

    Parameters
    ----------
    given : mapping
        What Spark passes: names in any case, and texts.

    Raises
    ------
    InvalidArgument
        If a value makes no sense, or a name looks like one that is misspelt. Other names are for others, as always in
        Spark.
    """
    values, rest = checked(given, _READ)
    return ReadOptions(_paths(rest), **values)


def _paths(given: Mapping[str, str]) -> tuple[str, ...]:
    """The paths: ``load(path)`` gives one, ``load([...])`` a JSON list."""
    several = given.get("paths")
    if several is None:
        return (given["path"],) if "path" in given else ()
    found = _json_names(several)
    if found is None:
        raise InvalidArgument(f"option 'paths' must be a JSON list of paths, found {shown(several)}")
    return (given["path"], *found) if "path" in given else found
