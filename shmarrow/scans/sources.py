# SPDX-License-Identifier: Apache-2.0
"""Sources of rows: finding files and objects by their names, recognizing and opening them.

========================================  ====================================================================
a source                                  what it leads to
========================================  ====================================================================
a path, ``shm:NAME``                      that file or object
``STORE/NAME``                            an object of a store; ``NAME`` may be a pattern, or what names begin
                                          with before a slash
a pattern, such as ``data/*.arrow``       all files that match, and what is in directories that do
a directory                               its files, those of its directories, and the objects of stores among these
a Store, the directory of one             its objects, or those that ``names`` chooses
a table, a record batch, a reader         itself; a reader must be one that can be read again
a list of these                           all of them
========================================  ====================================================================

Invariants:

* what exists under the very name that was given is meant, also where the name has the characters of a pattern;
* in directories and stores, and among what matches a pattern, names that begin with ``_`` or ``.`` are left out, as
  those of Spark's markers are; everything else counts;
* the files of one pattern or directory are in the order of their paths;
* nothing is opened to find it.
"""

from __future__ import annotations

import errno
import glob
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar, overload

from shmarrow import capsules, memory
from shmarrow.columns import several
from shmarrow.errors import (
    DEFAULT_LIMITS,
    InvalidArgument,
    InvalidType,
    Limits,
    ObjectNotFound,
    StorageError,
    as_limits,
    at,
    counted,
    full_name,
    shown,
    storage_error,
)
from shmarrow.ipc.contents import contents
from shmarrow.memory import SHM_DIRECTORY, SHM_SCHEME, Source, decoded, is_location, is_shm, open_source, recognized
from shmarrow.memory.formats import OTHERS, head_of
from shmarrow.scans.jobs import REPLACES, replaced_by
from shmarrow.scans.keys import Keys, keys_of
from shmarrow.store.protocol import CONTROL

if TYPE_CHECKING:
    from shmarrow.store import Store
    from shmarrow.types import Schema

K = TypeVar("K")


class Fragment(NamedTuple):
    """One of the sources that are read as one table.

    Attributes
    ----------
    where : object
        A path, a ``shm:`` name, the name of an object of a store, or an open reader or table.
    store : Store or None
        The store of the object.
    keys : tuple of (str, str)
        What the directories say about all of its rows.
    survive : bool
        Whether views keep their values if the file is truncated.
    """

    where: Any
    store: Store | None = None
    keys: Keys = ()
    survive: bool = False

    def absolute(self) -> Fragment:
        """The source under a name that means the same in every directory."""
        where = self.where
        if self.store is not None or not isinstance(where, str) or where[:1] == "/" or is_shm(where):
            return self
        path = os.path.expanduser(where) if where.startswith("~/") else where
        return self._replace(where=os.path.join(os.getcwd(), path.removeprefix("./")))

    def map(self, attach: bool = True, small: int = 0) -> Source:
        """Map a file, or read one of up to ``small`` bytes; map an object, and pin it unless ``attach`` is False."""
        if self.store is None:
            return open_source(self.where, survive=self.survive, small=small)
        source = open_source(self.store.attach(self.where, use=attach))
        source.name = str(self)
        return source

    def __str__(self) -> str:
        if self.store is not None:
            return f"{self.store.name}/{self.where}"
        return self.where if isinstance(self.where, str) else repr(self.where).partition("\n")[0]


# --- finding ------------------------------------------------------------------------------------------------------


def find(source: Any, names: str | Iterable[str] | None = None, accept_users: bool = False) -> list[Fragment]:
    """Find everything that a source leads to, in order, without opening it.

    Parameters
    ----------
    source : object
        One of the table above.
    names : str or sequence of str, optional
        Objects of a store: a pattern such as ``"train-*"``, or names; by default all.
    accept_users : bool
        Accept stores that other users own or may write to.

    Raises
    ------
    ObjectNotFound
        If there is nothing of a name, or nothing matches a pattern.
    StorageError
        If a directory cannot be listed.
    InvalidType
        If it is none of these, or a stream that can be read only once.
    InvalidArgument
        If there are names, but no store to look them up in.
    """
    if isinstance(source, (str, os.PathLike)):
        source = decoded(source)
        path = source.replace(SHM_SCHEME, f"{SHM_DIRECTORY}/", 1) if is_shm(source) else os.path.expanduser(source)
        if has_store(path):
            source = _store(source.rstrip("/"), accept_users)
        elif names is None:
            return list(_named(source, path, accept_users))
    if names is None and isinstance(source, (list, tuple)) and not _are_batches(source):
        return [fragment for part in source for fragment in find(part, None, accept_users)]
    from shmarrow.store import Store  # which files do not need

    if isinstance(source, Store):
        return [Fragment(name, source) for name in _chosen(source, names)]
    if names is not None:
        raise InvalidArgument(f"names select objects of a store, but the source is {shown(source)}")
    return [Fragment(_readable(source))]


def _store(where: str, accept_users: bool) -> Store:
    from shmarrow.store import Store

    return Store(where, create=False, accept_users=accept_users)


def find_arrow(source: Any, names: str | Iterable[str] | None = None) -> tuple[list[Fragment], list[str]]:
    """Find everything that a source leads to, by absolute names, and name what :func:`without_others` leaves out."""
    if names is None and isinstance(source, (list, tuple)) and not _are_batches(source):
        parts = [find_arrow(part) for part in source]
        return [fragment for part, _ in parts for fragment in part], [name for _, part in parts for name in part]
    return without_others(source, [fragment.absolute() for fragment in find(source, names)])


def without_others(source: Any, fragments: list[Fragment]) -> tuple[list[Fragment], list[str]]:
    """What was found, and the names of files that are left out.

    These are, in a directory, those with the suffix of another format that do not begin as Arrow data do.
    """
    others: list[str] = []
    if is_location(source) and os.path.isdir(os.path.expanduser(source)):
        others = [
            fragment.where
            for fragment in fragments
            if fragment.store is None
            and fragment.where.lower().endswith(OTHERS)
            and recognized(head_of(fragment.where)).kind not in ("arrow", "arrows")
        ]
        fragments = [fragment for fragment in fragments if fragment.where not in others]
    return fragments, others


def is_exact_name(source: Any, fragments: Sequence[Fragment]) -> bool:
    """Whether what was found for a source is the file or object of this very name, and not one of many."""
    return len(fragments) == 1 and str(fragments[0]) == source


def _named(source: str, path: str, accept_users: bool) -> Iterator[Fragment]:
    """The files of a path, a name or a pattern, or objects of a store."""
    if os.path.isdir(path):
        yield from _of_directory(path, (), accept_users)
    elif os.path.lexists(path):
        yield Fragment(source)
    elif (parts := split_name(source)) is not None:
        store = _store(parts[0], accept_users)
        yield from [Fragment(name, store) for name in _matching(store, parts[1])]
    elif glob.has_magic(path):
        yield from _matches(path, is_shm(source), accept_users)
    else:
        yield Fragment(source)
        memory.attach(source).close()  # raises the error, with its hints


def _of_directory(directory: str, keys: Keys, accept_users: bool) -> list[Fragment]:
    """What is in a directory and its directories, in order, without the files that one of its directories replaces."""
    replaced: set[str] = set()
    fragments = list(_files(directory.rstrip("/") or "/", keys, (), accept_users, replaced))
    return sorted([fragment for fragment in fragments if fragment.where not in replaced], key=str)


def _files(
    directory: str, keys: Keys, above: tuple[tuple[int, int], ...], accept_users: bool, replaced: set[str]
) -> Iterator[Fragment]:
    """The files in a directory and its directories, and the objects of stores; links that lead back are an error."""
    if has_store(directory):
        store = _store(directory, accept_users)
        yield from [Fragment(name, store, keys) for name in _chosen(store, None)]
        return
    try:
        status = os.stat(directory)
        entries = list(os.scandir(directory))
    except OSError as error:
        raise storage_error(error, "list", directory) from None
    identity = status.st_dev, status.st_ino
    if identity in above:
        raise StorageError(errno.ELOOP, f"{directory!r} is a link to a directory that it is in")
    for entry in entries:
        if entry.name[0] in "._":
            if entry.name == REPLACES:
                replaced.update(replaced_by(entry.path, os.path.dirname(directory)))
        elif entry.is_dir():
            yield from _files(entry.path, keys + keys_of(entry.name), (*above, identity), accept_users, replaced)
        else:
            yield Fragment(entry.path, None, keys)


def _matches(pattern: str, in_memory: bool, accept_users: bool) -> Iterator[Fragment]:
    """The files that match a pattern; what comes after its first wildcard may be directories with keys."""
    fixed = _fixed(pattern)
    paths = [path for path in glob.glob(pattern, recursive=True) if is_visible(path[fixed:])]
    if not paths:
        raise ObjectNotFound(errno.ENOENT, f"no file matches {pattern!r}")
    # The files of a store are its own business: what leads to them leads to the store.
    paths = sorted({folder if has_store(folder := os.path.dirname(path)) else path.rstrip("/") for path in paths})
    whole: set[str] = set()
    for path in paths:
        if any(path[:at] in whole for at, letter in enumerate(path) if letter == "/"):
            continue  # what "**" matches besides the directory that it is in
        if os.path.isdir(path):
            whole.add(path)
            yield from _of_directory(path, keys_of(path[fixed:]), accept_users)
        else:
            name = SHM_SCHEME + path.removeprefix(f"{SHM_DIRECTORY}/") if in_memory else path
            yield Fragment(name, None, keys_of(os.path.dirname(path[fixed:])))


def _fixed(pattern: str) -> int:
    """Where the first part begins that has a wildcard."""
    first = next((i for i in range(len(pattern)) if glob.has_magic(pattern[: i + 1] + "]")), len(pattern))
    return pattern.rfind("/", 0, first) + 1


def is_visible(path: str) -> bool:
    """Whether no part of a path or of an object's name begins with ``_`` or ``.``."""
    return not any(part[:1] in ("_", ".") for part in path.split("/"))


def _chosen(store: Store, names: str | Iterable[str] | None) -> Sequence[str]:
    if names is None:
        return [name for name in sorted(store.names()) if is_visible(name)]
    return _matching(store, names) if isinstance(names, str) else several(names, "names of objects")


def _matching(store: Store, pattern: str) -> list[str]:
    """The objects of a name, or else of a pattern, or else those whose names begin with it and a slash."""
    if pattern in store:
        return [pattern]
    names = sorted(store.names())
    fixed = _fixed(pattern)
    found = [name for name in names if fnmatchcase(name, pattern) and is_visible(name[fixed:])]
    prefix = f"{pattern.rstrip('/')}/"
    found = found or [name for name in names if name.startswith(prefix) and is_visible(name.removeprefix(prefix))]
    if not found:
        raise ObjectNotFound(
            errno.ENOENT,
            f"no object in the store {store.name!r} matches {pattern!r} among {counted(len(names), 'name')}",
        )
    return found


def _are_batches(source: Sequence[Any]) -> bool:
    from shmarrow.columns import RecordBatch

    return bool(source) and all(isinstance(item, RecordBatch) for item in source)


def _readable(source: Any) -> Any:
    """A table or a reader that gives its batches any number of times."""
    from shmarrow.columns import RecordBatch, RecordBatchReader, Table
    from shmarrow.columns.table import table

    if hasattr(source, "get_batch"):
        return source
    if isinstance(source, RecordBatchReader):
        raise InvalidType(
            f"{source!r} can be read only once", hint="pass its path, or the table that read_all() returns"
        )
    if capsules.has_data(source) or capsules.is_frame(source) or isinstance(source, (Table, RecordBatch, list)):
        return table(source)
    expected = "a path, a shm: name, a pattern, a directory, a Store, a reader, a table or a list of these"
    hint = "shmarrow.table(...) makes a table of values" if isinstance(source, Mapping) else capsules.next_step(source)
    raise InvalidType(f"expected {expected}, found {full_name(source)}", hint=hint)


def has_store(path: str) -> bool:
    """Whether a directory has the control file of a store, be it a sound one or not."""
    return os.path.isfile(f"{path}/{CONTROL}")


def split_name(word: str) -> tuple[str, str] | None:
    """Return the store and the name in ``STORE/NAME``; None for a file, and if no part of the path is a store."""
    if is_shm(word):
        where, _, name = word.partition("/")
        return (where, name) if where != SHM_SCHEME and name else None
    if os.path.isfile(word) or has_store(word):
        return None
    at = word.rfind("/")
    while at > 0 and not has_store(word[:at]):
        at = word.rfind("/", 0, at)
    return (word[:at], word[at + 1 :]) if at > 0 and word[at + 1 :] else None


# --- opening ------------------------------------------------------------------------------------------------------


def open_fragment(fragment: Fragment, limits: Limits, small: int = 0) -> Any:
    """Open the reader of a file or stream, or return the reader or table itself; see :meth:`Fragment.map`.

    Raises
    ------
    ObjectNotFound
        If it is not there any more.
    StorageError
        If it cannot be read.
    InvalidData
        If it is neither an Arrow file nor a stream, or a broken one.
    """
    if not isinstance(fragment.where, str):
        return fragment.where
    hint = None if fragment.store is None else f"`{fragment.store.name}/PATTERN` leaves out objects without rows"
    return contents(fragment.map(small=small), limits).rows(hint)


def found_with_schema(directory: str, tries: int = 10) -> tuple[list[Fragment], Schema | None]:
    """What is in a directory that others write, and the schema of the first file; None if there is none.

    Errors as :func:`find` and :func:`open_fragment`.
    """
    try:
        fragments = find(directory)
        if not fragments:
            return [], None
        with at(str(fragments[0])):
            return fragments, open_fragment(fragments[0], DEFAULT_LIMITS).schema
    except ObjectNotFound:  # removed by an overwrite that ends now
        if not tries:
            raise
        return found_with_schema(directory, tries - 1)


def version_of(fragment: Fragment, reader: Any) -> tuple[int, int] | None:
    """What tells an open source from one that has replaced it: size and time of change, or the generation in a store.

    None for a reader or a table that was given as such.

    Raises
    ------
    ObjectNotFound
        If the object is not in the store any more.
    """
    if fragment.store is not None:
        info = fragment.store.info(fragment.where)
        return info.nbytes, info.generation
    if not isinstance(fragment.where, str):
        return None
    if not hasattr(reader, "_source"):  # it was left out
        return None
    status: os.stat_result = reader._source.status
    return status.st_size, status.st_mtime_ns


def find_one(where: Any, accept_users: bool = False) -> Fragment:
    """Find the one file or object that a name leads to; :func:`find` says what is accepted, and raised.

    Raises
    ------
    InvalidArgument
        If it leads to several.
    """
    fragments = find(where, None, accept_users)
    if len(fragments) == 1:
        return fragments[0]
    count = counted(len(fragments), "source")
    raise InvalidArgument(f"{decoded(where)!r} leads to {count}", hint="shmarrow.scan reads them as one table")


@overload
def open(where: Any, *, kind: None = None, limits: Limits = DEFAULT_LIMITS, unchecked: bool = False) -> Any: ...
@overload
def open(where: Any, *, kind: type[K], limits: Limits = DEFAULT_LIMITS, unchecked: bool = False) -> K: ...
def open(where: Any, *, kind: Any = None, limits: Limits = DEFAULT_LIMITS, unchecked: bool = False) -> Any:
    """Open an Arrow file, stream, tensor or bundle of tensors, whichever it is.

    Parameters
    ----------
    where : path, ``shm:NAME``, ``STORE/NAME``, Segment, file object or bytes-like
        A path or a name is mapped, and what is returned consists of views that keep the mapping alive.
    kind : type, optional
        The class that is expected, which type checkers then know: ``sa.Tensor``, ``sa.ipc.RecordBatchFileReader``.
    limits : Limits, optional
        Bounds on what is accepted.
    unchecked : bool
        As for :func:`shmarrow.ipc.open_file`.

    Returns
    -------
    RecordBatchFileReader, MappedStreamReader, Tensor, SparseTensor or Bundle
        As :func:`shmarrow.ipc.open_file`, :func:`shmarrow.ipc.open_stream`, :func:`shmarrow.ipc.read_tensor` and
        :func:`shmarrow.load_tensors` return them.

    Raises
    ------
    ObjectNotFound
        If it does not exist.
    InvalidArgument
        If the name leads to several files: :func:`shmarrow.scan` reads these.
    InvalidData
        If it is no Arrow data; the message names what it is, where that is recognized.
    InvalidType
        If it is not of this ``kind``, or that is no class.
    """
    if kind is not None and not isinstance(kind, type):
        raise InvalidType(f"kind must be a class such as shmarrow.Tensor, found {shown(kind)}")
    limits = as_limits(limits, unchecked)
    source = find_one(where).map() if is_location(where) else open_source(where)
    content = contents(source, limits).content
    if kind is not None and not isinstance(content, kind):
        raise InvalidType(f"expected {source.name!r} to be a {kind.__name__}, found a {type(content).__name__}")
    return content
