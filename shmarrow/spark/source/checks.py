"""What a job may be added to, or replace: a directory's files, looked into before anything is changed.

Invariants:

* what is not an Arrow file is neither added to nor replaced, so each file that no job of ours has written is opened;
* a file is opened once: a commit, for which others wait, opens those only that are not as they were when its job began.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from hashlib import blake2b
from typing import Any

from shmarrow.errors import InvalidArgument, InvalidData, InvalidType, ObjectNotFound, ShmarrowError, Unsupported
from shmarrow.ipc import open_file, open_stream
from shmarrow.segment.location import refused
from shmarrow.spark.source.directory import MOST, PART, DataFile, Manifest, read_manifest, visible
from shmarrow.types import ListType, MapType, Schema, StructType


def current(directory: str, state: int | None) -> Manifest:
    """The manifest, or one of generation 0 that names all files of a directory without one.

    Parameters
    ----------
    directory : str
        Its path.
    state : int or None
        Its ``_shmarrow``, open; None if there is none.

    Raises
    ------
    InvalidArgument
        If there is no manifest, and something else than files.
    InvalidData
        If there were so many commits that no reader takes another one.
    ShmarrowError
        As :func:`shmarrow.spark.source.directory.read_manifest`.
    """
    manifest = None if state is None else read_manifest(directory, state, writing=True)
    if manifest is not None:
        if manifest.generation >= MOST:
            raise InvalidData(
                f"cannot write to {directory!r}: its manifest has generation {manifest.generation}, which no commit of "
                "ours has reached; remove the manifest, and all visible files count"
            )
        return manifest
    entries = visible(directory)
    other = next((entry.name for entry in entries if not entry.is_file()), None)
    if other is not None:
        raise InvalidArgument(
            f"cannot write to {directory!r}: it contains {other!r}, which is not a file; pass a directory that has "
            "only Arrow files, or a new one"
        )
    try:
        return Manifest(0, tuple([DataFile(entry.name, entry.stat().st_size) for entry in entries]))
    except OSError as error:
        raise refused(error, "look into", directory, directory) from None


def _to_open(found: Manifest, overwrite: bool) -> list[str]:
    """The files that have to be looked into: of those of one job or more the first has the columns of all."""
    if found.generation == 0:
        return [file.name for file in found.files]
    if overwrite:
        return [file.name for file in found.files if not PART.fullmatch(file.name)]
    return [file.name for file in found.files[:1]]


def fingerprint(directory: str, found: Manifest, overwrite: bool) -> bytes:
    """What changes when a file that :func:`check` opens is changed, or another one has to be opened; 16 bytes."""
    known = blake2b(digest_size=16)
    for name in _to_open(found, overwrite):
        try:
            status = os.stat(os.path.join(directory, name))
            seen = (name, status.st_size, status.st_mtime_ns, status.st_ino)
        except OSError:
            seen = (name, 0, 0, 0)
        known.update(repr(seen).encode())
    return known.digest()


def check(directory: str, found: Manifest, schema: Schema, overwrite: bool) -> None:
    """See that the files of a job can be added to those that count, or replace them.

    Raises
    ------
    InvalidType
        If files that stay have other columns.
    InvalidArgument
        If one that no job of ours has written is not an Arrow file.
    """
    for name in _to_open(found, overwrite):
        try:
            known = schema_of(os.path.join(directory, name))
        except ObjectNotFound:
            if overwrite and found.generation:
                continue  # nothing to replace
            raise
        except (InvalidData, Unsupported) as error:
            raise InvalidArgument(f"cannot write to {directory!r}: {name!r} is not an Arrow file: {error}") from None
        different = [] if overwrite else differences(known, schema)
        if different:
            raise InvalidType(
                f"cannot append to {directory!r}, whose columns are those of {name!r}: {'; '.join(different)}. "
                "Nothing was changed: cast or select the columns, or overwrite"
            )


def is_arrow(path: str) -> bool:
    """Whether there is an Arrow file or stream."""
    try:
        schema_of(path)
    except ShmarrowError:
        return False
    return True


def schema_of(path: str) -> Schema:
    """The columns of an Arrow file or stream."""
    try:
        with open_file(path) as reader:
            return reader.schema
    except InvalidData as error:
        try:
            with open_stream(path) as stream:
                return stream.schema
        except InvalidData:
            raise error from None


def differences(found: Schema, given: Schema) -> list[str]:
    """What keeps rows of one schema from being added to those of another; nullability does not."""
    if given.names != found.names and sorted(given.names) == sorted(found.names):
        return [f"the order of the columns is {given.names}, expected {found.names}"]
    known, new = ({field.name: field.type for field in schema} for schema in (found, given))
    return [
        *[f"column {name!r} is missing" for name in known if name not in new],
        *[f"column {name!r} is not there yet" for name in new if name not in known],
        *[
            f"column {name!r} is {new[name]}, expected {type}"
            for name, type in known.items()
            if name in new and not _alike(type, new[name])
        ],
    ]


def _alike(a: Any, b: Any) -> bool:
    """Whether types differ at most in nullability, at any depth, and in the names of a list's or a map's children."""
    if a == b:
        return True
    if a.__class__ is not b.__class__ or a.__class__ not in (ListType, MapType, StructType):
        return False
    named = a.__class__ is StructType
    return len(a.fields) == len(b.fields) and all(
        (x.name == y.name or not named) and _alike(x.type, y.type)
        for x, y in zip(*[_children(type) for type in (a, b)], strict=True)
    )


def _children(type: Any) -> Sequence[Any]:
    return (type.key_field, type.item_field) if isinstance(type, MapType) else type.fields
