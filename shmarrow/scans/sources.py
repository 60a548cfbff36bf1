"""Sources of rows: finding files and objects by their names, recognizing and opening them.

========================================  ====================================================================
a source                                  what it leads to
========================================  ====================================================================
a path, ``shm:NAME``                      that file or object
``STORE/NAME``                            an object of a store; ``NAME`` may be a pattern, or what names begin
                                          with before a slash
a pattern, such as ``data/*.arrow``       all files that match, and the files of directories that do
a directory                               its files, and those of its directories
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
from typing import Any, NamedTuple
from urllib.parse import unquote

from shmarrow import capsules, segment
from shmarrow.batch import RecordBatch
from shmarrow.column_names import several
from shmarrow.errors import (
    DEFAULT_LIMITS,
    InvalidArgument,
    InvalidData,
    InvalidType,
    Limits,
    ObjectNotFound,
    StorageError,
    as_limits,
    counted,
    full_name,
    shown,
    storage_error,
)
from shmarrow.ipc import RecordBatchFileReader
from shmarrow.ipc.file.footer import MAGIC
from shmarrow.ipc.message.decode import message_at
from shmarrow.segment.location import SHM_DIRECTORY, SHM_SCHEME, decoded, is_shm
from shmarrow.sources import Source, open_source
from shmarrow.sources.formats import HEAD, recognized
from shmarrow.store import Store
from shmarrow.store.directory import split_name
from shmarrow.store.protocol import CONTROL
from shmarrow.tables import RecordBatchReader, Table, table

Keys = tuple[tuple[str, str], ...]
"""The names and the texts in directories such as ``day=2024-01-01``, outermost first."""


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
    """

    where: Any
    store: Store | None = None
    keys: Keys = ()

    def __str__(self) -> str:
        if self.store is not None:
            return f"{self.store.name}/{self.where}"
        return self.where if isinstance(self.where, str) else repr(self.where)


# --- finding ------------------------------------------------------------------------------------------------------


def find(source: Any, names: str | Iterable[str] | None = None) -> list[Fragment]:
    """Find everything that a source leads to, in order, without opening it.

    Parameters
    ----------
    source : object
        One of the table above.
    names : str or sequence of str, optional
        Objects of a store: a pattern such as ``"train-*"``, or names; by default all.

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
        if os.path.isfile(f"{path}/{CONTROL}"):
            source = Store(source, create=False)
        elif names is None:
            return list(_named(source, path))
    if isinstance(source, Store):
        return [Fragment(name, source) for name in _chosen(source, names)]
    if names is not None:
        raise InvalidArgument(f"names select objects of a store, but the source is {shown(source)}")
    if isinstance(source, (list, tuple)) and not _are_batches(source):
        return [fragment for part in source for fragment in find(part)]
    return [Fragment(_readable(source))]


def _named(source: str, path: str) -> Iterator[Fragment]:
    """The files of a path, a name or a pattern, or objects of a store."""
    if os.path.isdir(path):
        yield from sorted(_files(path, (), ()), key=lambda fragment: fragment.where)
    elif os.path.lexists(path):
        yield Fragment(source)
    elif (parts := split_name(source)) is not None:
        store = Store(parts[0], create=False)
        yield from [Fragment(name, store) for name in _matching(store, parts[1])]
    elif glob.has_magic(path):
        yield from _matches(path, is_shm(source))
    else:
        yield Fragment(source)
        segment.attach(source).close()  # raises the error, with its hints


def _files(directory: str, keys: Keys, above: tuple[tuple[int, int], ...]) -> Iterator[Fragment]:
    """The files in a directory and its directories; links that lead back to one of those above are an error."""
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
            continue
        if entry.is_dir():
            yield from _files(entry.path, keys + keys_of(entry.name), (*above, identity))
        else:
            yield Fragment(entry.path, None, keys)


def _matches(pattern: str, in_memory: bool) -> Iterator[Fragment]:
    """The files that match a pattern; what comes after its first wildcard may be directories with keys."""
    fixed = _fixed(pattern)
    found = [path for path in sorted(glob.glob(pattern, recursive=True)) if is_visible(path[fixed:])]
    if not found:
        raise ObjectNotFound(errno.ENOENT, f"no file matches {pattern!r}")
    for path in found:
        if os.path.isdir(path):
            yield from sorted(_files(path, keys_of(path[fixed:]), ()), key=lambda fragment: fragment.where)
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


def keys_of(path: str) -> Keys:
    """The keys in the names of directories, such as ``day=2024-01-01/part=3``, percent-decoded."""
    parts = [part.partition("=") for part in path.split("/")]
    return tuple([(unquote(name), unquote(text)) for name, equals, text in parts if name and equals])


def _chosen(store: Store, names: str | Iterable[str] | None) -> Sequence[str]:
    if names is None:
        return [name for name in sorted(store.names()) if is_visible(name)]
    return _matching(store, names) if isinstance(names, str) else several(names, "names of objects")


def _matching(store: Store, pattern: str) -> list[str]:
    """The objects of a name, or else of a pattern, or else those whose names begin with it and a slash."""
    names = sorted(store.names())
    if pattern in names:
        return [pattern]
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
    return bool(source) and all(isinstance(item, RecordBatch) for item in source)


def _readable(source: Any) -> Any:
    """A table or a reader that gives its batches any number of times."""
    if hasattr(source, "get_batch"):
        return source
    if isinstance(source, RecordBatchReader):
        raise InvalidType(
            f"{source!r} can be read only once", hint="pass its path, or the table that read_all() returns"
        )
    if capsules.has_data(source) or capsules.is_frame(source) or _is_rows(source):
        return table(source)
    expected = "a path, a shm: name, a pattern, a directory, a Store, a reader, a table or a list of these"
    hint = "shmarrow.table(...) makes a table of values" if isinstance(source, Mapping) else capsules.next_step(source)
    raise InvalidType(f"expected {expected}, found {full_name(source)}", hint=hint)


def _is_rows(source: Any) -> bool:
    return isinstance(source, (Table, RecordBatch, list, tuple))


# --- opening ------------------------------------------------------------------------------------------------------


def open_fragment(fragment: Fragment, limits: Limits) -> Any:
    """Open the reader of a file or stream, or return the reader or table itself.

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
    where = fragment.where if fragment.store is None else fragment.store.attach(fragment.where)
    source = open_source(where)
    source.name = str(fragment)
    kind = kind_of(source)
    if kind not in ("file", "stream"):
        source.close()
        hint = None if fragment.store is None else f"`{fragment.store.name}/PATTERN` leaves out objects without rows"
        raise InvalidData(f"{fragment} is a {kind}, which has no rows", hint=hint)
    return _open_rows(kind, source, limits)


def _open_rows(kind: str, source: Source, limits: Limits) -> Any:
    if kind == "file":
        return RecordBatchFileReader(source, limits)
    from shmarrow.ipc.stream.reader import MappedStreamReader

    return MappedStreamReader(source, limits)


def kind_of(source: Source) -> str:
    """Determine what Arrow data a source holds: ``"file"``, ``"stream"``, ``"tensor"`` or ``"sparse tensor"``.

    Raises
    ------
    InvalidData
        If it holds something else, which is named where it is recognized.
    """
    data: Any = source.data
    if data[: len(MAGIC)].tobytes() == MAGIC:
        return "file"
    head = data[:HEAD].tobytes()
    if not head:
        raise InvalidData(f"{source.name} is empty: expected an Arrow file, a stream or a tensor")
    what, hint = recognized(head)
    if what and head[:4] != b"\xff\xff\xff\xff":
        raise InvalidData(f"expected Arrow data, found {what}", where=[(source.name,)], hint=hint)
    message = message_at(data, 0, source.name)
    kind = "" if message is None else message.message.kind
    return {"Tensor": "tensor", "SparseTensor": "sparse tensor"}.get(kind, "stream")


def open(where: Any, *, limits: Limits = DEFAULT_LIMITS, trust: bool = False) -> Any:
    """Open an Arrow file, stream, tensor or bundle of tensors, whichever it is.

    Parameters
    ----------
    where : path, ``shm:NAME``, ``STORE/NAME``, Segment, file object or bytes-like
        A path or a name is mapped, and what is returned consists of views that keep the mapping alive.
    limits : Limits, optional
        Bounds on what is accepted.
    trust : bool
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
    """
    from shmarrow.ipc.tensor import BUNDLE_KEY
    from shmarrow.ipc.tensor.bundle import load_tensors
    from shmarrow.ipc.tensor.reader import read_tensor

    limits = as_limits(limits, trust)
    if isinstance(where, (str, os.PathLike)):
        fragments = find(where)
        if len(fragments) != 1:
            raise InvalidArgument(
                f"{decoded(where)!r} leads to {counted(len(fragments), 'source')}",
                hint="shmarrow.scan reads them as one table",
            )
        (fragment,) = fragments
        where = fragment.where if fragment.store is None else fragment.store.attach(fragment.where)
    source = open_source(where)
    kind = kind_of(source)
    if kind in ("tensor", "sparse tensor"):
        return read_tensor(source.data, limits=limits)
    reader = _open_rows(kind, source, limits)
    if kind == "file" and BUNDLE_KEY in (reader.metadata or {}):
        return load_tensors(where, limits=limits)
    return reader
