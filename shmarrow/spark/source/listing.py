"""List the files of a read: paths, globs, directories, ``shm:`` names, and the objects of a store.

Invariants:

* what exists under the very name that was given is meant, also where the name has the characters of a glob;
* in directories, and among what a glob finds, names that begin with ``_`` or ``.`` are skipped, as Spark does;
* what Spark has written has a manifest of the files that count; all else in such a directory is skipped;
* nothing is left out silently: a directory within a directory is an error where it is not to be read, too.
"""

from __future__ import annotations

import errno
import glob
import os
from collections.abc import Iterator
from fnmatch import fnmatchcase
from typing import NamedTuple

from shmarrow.errors import InvalidArgument, ObjectNotFound, StorageError, shown, storage_error
from shmarrow.segment import SHM_DIRECTORY, SHM_SCHEME
from shmarrow.segment.host import host_name
from shmarrow.segment.location import resolve
from shmarrow.spark.source.manifest import STATE, read_manifest
from shmarrow.spark.source.options import ReadOptions, local


class Place(NamedTuple):
    """The location of rows: a file, shared memory, or an object of a store.

    Attributes
    ----------
    where : str
        An absolute path, a ``shm:`` name, or the name of an object of a store.
    store : str or None
        The location of that store.
    """

    where: str
    store: str | None = None

    def __str__(self) -> str:
        return self.where if self.store is None else f"{self.where} in the store {self.store}"


def places(options: ReadOptions) -> list[Place]:
    """All files of a read, in order.

    Raises
    ------
    InvalidArgument
        If no path was given, or one is of another file system.
    ObjectNotFound
        If there is nothing of a name.
    StorageError
        If a directory cannot be listed, or has directories.
    """
    if not options.paths:
        said = "the names of objects" if options.store else "a path"
        raise InvalidArgument(
            f'nothing to read: give {said}, as in spark.read.format("shmarrow").load("..."). Spark does not pass the '
            "path of a table that CREATE TABLE has made: use CREATE TEMPORARY VIEW name USING shmarrow OPTIONS (path "
            "'...')"
        )
    if options.store is not None:
        return list(_objects(options))
    return [Place(where) for path in options.paths for where in _files(path, options)]


def _objects(options: ReadOptions) -> Iterator[Place]:
    from shmarrow.store import Store

    assert options.store is not None
    location = options.store if options.store.startswith(SHM_SCHEME) else os.path.abspath(local(options.store))
    with Store(location, create=False) as store:
        names = store.names()
    visible = [name for name in names if name[0] not in "_."]
    for wanted in options.paths:
        found = [wanted] if wanted in names else [name for name in visible if fnmatchcase(name, wanted)]
        if not found:  # what is in a directory of that name, such as the partitions of a shared frame
            found = [name for name in names if name.startswith(f"{wanted}/")]
        if not found:
            raise ObjectNotFound(errno.ENOENT, f"the store {location!r} has no object {shown(wanted)}")
        yield from [Place(name, location) for name in found]


def _files(given: str, options: ReadOptions) -> Iterator[str]:
    in_memory = given.startswith(SHM_SCHEME)
    path = resolve(given)[1] if in_memory else os.path.abspath(local(given))
    if os.path.lexists(path):
        matches = [path]
    else:
        matches = sorted(each for each in glob.glob(path) if os.path.basename(each)[0] not in "_.")
    if not matches:
        at = given if in_memory else path
        at = f"nothing matches {at!r}" if glob.has_magic(path) else f"there is no {at!r}"
        raise ObjectNotFound(errno.ENOENT, f"cannot read: {at} on host {host_name()!r}, where Spark plans the query")
    for each in matches:
        if os.path.isdir(each):
            yield from _in_directory(each, options)
        else:
            yield SHM_SCHEME + each.removeprefix(f"{SHM_DIRECTORY}/") if in_memory else each


def _in_directory(path: str, options: ReadOptions) -> Iterator[str]:
    try:
        entries = sorted(os.scandir(path), key=lambda entry: entry.name)
    except OSError as error:
        raise storage_error(error, "list", path) from None
    names = {entry.name for entry in entries}
    if {"control", "pins", "commit"} <= names:
        raise InvalidArgument(
            f'{path!r} is a store: give it as .option("store", ...), and the names of its tables to load(), such as "*"'
        )
    if STATE in names:
        manifest = read_manifest(path)
        if manifest is not None:
            yield from [os.path.join(path, name) for name in manifest.files if _matches(name, options)]
            return
    visible = [entry for entry in entries if entry.name[0] not in "_."]
    inner = [entry.name for entry in visible if entry.is_dir()]
    if inner and not options.recursive:
        raise StorageError(
            errno.EISDIR,
            f"{path!r} contains directories (the first is {inner[0]!r}), as Spark writes with partitionBy: these are "
            'not read as partitions. .option("recursiveFileLookup", "true") reads their files, without columns for '
            "the values in their names",
        )
    yield from [entry.path for entry in visible if entry.name not in inner and _matches(entry.name, options)]
    for name in inner:
        yield from _in_directory(os.path.join(path, name), options)


def _matches(name: str, options: ReadOptions) -> bool:
    return not options.pattern or fnmatchcase(name, options.pattern)
