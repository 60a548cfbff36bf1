"""Which files a read means: paths, globs, directories, ``shm:`` names, and the objects of a store.

Invariants:

* what exists under the very name that was given is meant, also where the name has the characters of a glob;
* in directories, and among what a glob finds, names that begin with ``_`` or ``.`` are skipped, as Spark does;
* what was written by Spark has a list of the files that count; all else in such a directory is skipped;
* nothing is left out silently: a directory within a directory is an error where it is not to be read, too.
"""

from __future__ import annotations

import errno
import glob
import os
from collections.abc import Iterator
from fnmatch import fnmatchcase

from shmarrow.errors import InvalidArgument, ObjectNotFound, StorageError, shown, storage_error
from shmarrow.segment import SHM_DIRECTORY, SHM_SCHEME
from shmarrow.segment.host import host_name
from shmarrow.segment.location import resolve
from shmarrow.spark.source.opening import Place
from shmarrow.spark.source.options import local
from shmarrow.spark.source.read_options import ReadOptions


def places(options: ReadOptions) -> list[Place]:
    """All files of a read, in order.

    Raises
    ------
    InvalidArgument
        If no path was given, or one is of another file system.
    ObjectNotFound
        If there is nothing of a name.
    StorageError
        If a directory cannot be listed.
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
    for wanted in options.paths:
        found = [wanted] if wanted in names else [name for name in names if fnmatchcase(name, wanted)]
        if not found:  # what is in a directory of that name, such as the partitions of a shared frame
            found = [name for name in names if name.startswith(f"{wanted}/")]
        if not found:
            raise ObjectNotFound(errno.ENOENT, f"the store {location!r} has no object {shown(wanted)}")
        yield from [Place(name, location) for name in found]


_STATE = "_shmarrow"
"""What every directory has that Spark has written; see ``directory.STATE``."""


def _files(given: str, options: ReadOptions) -> Iterator[str]:
    in_memory = given.startswith(SHM_SCHEME)
    if in_memory:
        _, path = resolve(given)
    else:
        path = os.path.abspath(local(given))
    if os.path.lexists(path):
        yield from _found(path, options, in_memory)
        return
    matches = sorted(each for each in glob.glob(path) if _is_visible(os.path.basename(each)))
    if not matches:
        at = given if in_memory else path
        at = f"nothing matches {at!r}" if glob.has_magic(path) else f"there is no {at!r}"
        raise ObjectNotFound(errno.ENOENT, f"cannot read: {at} on host {host_name()!r}, where Spark plans the query")
    for each in matches:
        yield from _found(each, options, in_memory)


def _found(path: str, options: ReadOptions, in_memory: bool) -> Iterator[str]:
    if os.path.isdir(path):
        yield from _in_directory(path, options)
    else:
        yield SHM_SCHEME + path.removeprefix(f"{SHM_DIRECTORY}/") if in_memory else path


def _is_visible(name: str) -> bool:
    return not name.startswith(("_", "."))


def _in_directory(path: str, options: ReadOptions) -> Iterator[str]:
    if os.path.isdir(os.path.join(path, _STATE)):
        from shmarrow.spark.source.directory import data_files  # which needs a lot that most reads do not

        for file in data_files(path):
            if not options.pattern or fnmatchcase(file.name, options.pattern):
                yield os.path.join(path, file.name)
        return
    try:
        entries = sorted(os.scandir(path), key=lambda entry: entry.name)
    except OSError as error:
        raise storage_error(error, "list", path) from None
    if {"control", "pins", "commit"} <= {entry.name for entry in entries}:
        raise InvalidArgument(
            f'{path!r} is a store: give it as .option("store", ...), and the names of its tables to load(), such as "*"'
        )
    inner = []
    for entry in entries:
        if not _is_visible(entry.name):
            continue
        try:
            is_directory = entry.is_dir()
        except OSError as error:
            raise storage_error(error, "look at", entry.path) from None
        if is_directory:
            inner.append(entry.path)
        elif not options.pattern or fnmatchcase(entry.name, options.pattern):
            yield entry.path
    if inner and not options.recursive:
        keyed = next((name for name in map(os.path.basename, inner) if "=" in name), None)
        lost = "" if keyed is None else f" (the values in names such as {keyed!r} do not become columns)"
        raise StorageError(
            errno.EISDIR,
            f"{path!r} contains directories (the first is {os.path.basename(inner[0])!r}); set "
            f'.option("recursiveFileLookup", "true") to read them as well{lost}',
        )
    for each in inner:
        yield from _in_directory(each, options)
