"""The options of a read, checked."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import NamedTuple

from shmarrow.errors import InvalidArgument, shown
from shmarrow.spark.source.options import Parsers, checked, flag, size

SPLIT_BYTES = 64 << 20
"""The bytes that one task reads at most, where Blocks allow it."""
BATCH_BYTES = 4 << 20
"""The most bytes of a batch that Spark is sent, except a single row that is larger."""


class ReadOptions(NamedTuple):
    """What is read, and how.

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
    batch_bytes : int
        How much is sent to Spark at once.
    lossy : tuple of str
        Kinds of types of which values may change.
    unsupported : str
        What becomes of columns that Spark has no type for: ``"error"``, ``"drop"`` or ``"string"``.
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
    batch_bytes: int = BATCH_BYTES
    lossy: tuple[str, ...] = ()
    unsupported: str = "error"
    recursive: bool = False
    pattern: str = ""
    trust: bool = False


def _names(name: str, text: str) -> tuple[str, ...]:
    """Names with commas between them, or a JSON list of them."""
    return tuple(part for part in (part.strip() for part in text.split(",")) if part)


def _columns(name: str, text: str) -> tuple[str, ...]:
    """The names of columns: at least one, and none twice."""
    found = _json_names(text) if text.lstrip().startswith("[") else None
    found = _names(name, text) if found is None else found
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


def _unsupported(name: str, text: str) -> str:
    if text.lower() not in ("error", "drop", "string"):
        raise InvalidArgument(f"option {name!r} must be error, drop or string, found {shown(text)}")
    return text.lower()


def _as_is(name: str, text: str) -> str:
    return text


_PARSERS: Parsers = {
    "store": ("store", _as_is),
    "columns": ("columns", _columns),
    "mergeSchema": ("merge", flag),
    "maxPartitionBytes": ("split_bytes", size),
    "batchBytes": ("batch_bytes", size),
    "lossy": ("lossy", _names),
    "unsupported": ("unsupported", _unsupported),
    "recursiveFileLookup": ("recursive", flag),
    "pathGlobFilter": ("pattern", _as_is),
    "trust": ("trust", flag),
}
"""The options by the names that Spark's users know, with the attribute that each sets and what reads it."""


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
    values, rest = checked(given, _PARSERS)
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
