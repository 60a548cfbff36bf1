# SPDX-License-Identifier: Apache-2.0
"""Commands about objects of a store, and rings: ``names``, ``info``, ``put``, ``get``, ``delete`` and ``wait``.

Invariants:

* a STORE is ``shm:NAME`` or a directory; only ``put`` creates one;
* results are tables for people, or with ``--json`` one JSON value (one per event for ``watch``) with sizes in bytes and
  times in seconds; names are escaped in tables and exact in JSON;
* the exit status is 0, or that of the first failure: 3 for a missing object or store, 4 for a name that is taken, 5 for
  no space left, 1 for other errors.
"""

from __future__ import annotations

import argparse
import os
import re
import shlex
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack
from itertools import chain
from pathlib import Path
from typing import Any

import shmarrow as sa
from shmarrow import memory
from shmarrow.cli.command import (
    OVERWRITE,
    PREFIX,
    Fields,
    Grid,
    WrongUsage,
    argument,
    batches_text,
    command,
    exact_size,
    print_error,
    progress_line,
    render,
    seconds,
    store,
    time_text,
)
from shmarrow.cli.host import (
    command_of,
    described,
    guess_object,
    is_object,
    is_ring,
    is_store,
    look,
    object_state,
    opened,
    owner_of,
    owner_text,
    process_text,
    reason,
    ring_state,
    shared,
    state_fields,
)
from shmarrow.cli.targets import open_target, pipe_in
from shmarrow.display import size as size_text
from shmarrow.errors import printable
from shmarrow.ipc.contents import KINDS, contents
from shmarrow.memory import name_of, open_source, shared_of
from shmarrow.objects.decode import decode, describe
from shmarrow.objects.encode import encode
from shmarrow.scans.sources import split_name

_PIECE = 1 << 24
_NAME = argument("name", metavar="NAME", nargs="?", help="the object; STORE/NAME is one argument")
_NAMES = argument("names", metavar="NAME", nargs="*", help="objects; STORE/NAME is one argument")


# --- names --------------------------------------------------------------------------------------------------------

_CELLS: dict[str, Callable[[dict[str, Any]], str]] = {
    "name": lambda each: each["name"],
    "kind": lambda each: each["kind"],
    "rows": lambda each: _extent(each),
    "size": lambda each: size_text(each["bytes"]),
    "age": lambda each: time_text(each["age"]),
    "idle": lambda each: time_text(each["idle"]),
    "pins": lambda each: str(each["pins"]),
    "owner": lambda each: owner_text(each),
    "state": lambda each: _state(each),
}
"""The columns of the list of objects."""
_LONG = ("kind", "rows", "owner")
"""Columns that need a look into each object."""


@command(
    *store("?"),
    PREFIX,
    argument("-l", "--long", action="store_true", help="open each object, and show its kind, rows and owner"),
)
def names(arguments: argparse.Namespace) -> int:
    """List the objects of a store, or the stores in shared memory."""
    if arguments.store is None:
        return _list_stores(arguments)
    with opened(arguments) as store:
        if arguments.long:
            found = list(_opened_objects(store, arguments.prefix))
        else:
            found = [each._asdict() for each in sorted(store.scan(arguments.prefix))]
            for each in found:
                each["bytes"] = each.pop("nbytes")
    headers = [header for header in _CELLS if arguments.long or header not in _LONG]
    rows = [
        [each["name"], "unreadable", *[""] * (len(headers) - 2)]
        if "error" in each
        else [_CELLS[header](each) for header in headers]
        for each in found
    ]
    render(arguments.json, found, Grid(headers, rows))
    return 0


def _opened_objects(store: sa.Store, prefix: str) -> Iterator[dict[str, Any]]:
    for name in store.names(prefix):
        try:
            yield described(store.info(name))
        except sa.ObjectNotFound:
            continue  # gone since it was listed
        except sa.ShmarrowError as error:
            yield {"name": name, "error": str(error)}


def _state(found: dict[str, Any]) -> str:
    shared = f"shares {size_text(found['shared'])}" if found["shared"] else ""
    return ", ".join(filter(None, ["protected" if found["protected"] else "", shared]))


def _extent(found: dict[str, Any]) -> str:
    if found["shape"] is not None:
        return "×".join(map(str, found["shape"])) or "scalar"
    return "" if found["rows"] is None else str(found["rows"])


def _list_stores(arguments: argparse.Namespace) -> int:
    found = [each for where in shared(is_store) if (each := look(where, arguments.accept_users)) is not None]
    rows = [
        (each["store"], each["user"] or "", "", "", "", reason(each))
        if "error" in each
        else (
            each["store"], each["user"], str(each["objects"]), size_text(each["bytes"]), size_text(each["room"]),
            f"{size_text(each['removed'])} removed" if each["removed"] else "",
        )
        for each in found
    ]  # fmt: skip
    objects = [each for where in shared(is_object) if (each := object_state(where)) is not None]
    rows += [(each["object"], each["user"] or "", "", size_text(each["bytes"]), "", "in no store") for each in objects]
    table = Grid(("store", "user", "objects", "size", "room", "state"), rows)
    render(arguments.json, [*found, *objects], table)
    return 0


# --- STORE/NAME ---------------------------------------------------------------------------------------------------


def _split(arguments: argparse.Namespace, *places: str) -> None:
    """Accept ``STORE/NAME`` for ``STORE NAME``: the words after it move by one place."""
    found = split_name(arguments.store)
    if found is None:
        return
    words = [getattr(arguments, place) for place in places]
    if words[-1] is not None:
        raise WrongUsage(f"expected STORE NAME or STORE/NAME, found {arguments.store!r} and {words[0]!r}")
    arguments.store = found[0]
    for place, word in zip(places, [found[1], *words], strict=False):
        setattr(arguments, place, word)


def _split_names(arguments: argparse.Namespace) -> None:
    """Accept several ``STORE/NAME`` of one store."""
    if split_name(arguments.store) is None:
        return
    found = [split_name(word) for word in (arguments.store, *arguments.names)]
    stores = {each[0] for each in found if each}
    if None in found or len(stores) > 1:
        raise WrongUsage("expected STORE NAME... or STORE/NAME..., with one STORE for all")
    arguments.store, arguments.names = stores.pop(), [each[1] for each in found if each]


# --- info -------------------------------------------------------------------------------------------------------


@command(*store(what="the store: shm:NAME or a directory; or a ring"), _NAME)
def info(arguments: argparse.Namespace) -> int:
    """Describe an object, or a ring."""
    if arguments.name is None and is_ring(arguments.store):
        return _ring(arguments)
    _split(arguments, "name")
    if arguments.name is None:
        other = f"`shmarrow stats {arguments.store}` describes a store, `shmarrow inspect` a file"
        raise WrongUsage(f"expected STORE NAME or STORE/NAME, found {arguments.store!r}", hint=other)
    with opened(arguments) as store:
        info = store.info(arguments.name)
    what, found = info.description, described(info)
    fields = {
        "name": info.name,
        "kind": info.kind,
        "rows": "" if what.num_rows is None else f"{what.num_rows} in {batches_text(what.num_batches or 0)}",
        "shape": "" if what.shape is None else ", ".join(map(str, what.shape)),
        "type": found["type"] or "",
        "size": exact_size(info.nbytes),
        **state_fields(found),
        "schema": [] if what.schema is None else str(what.schema).splitlines(),
    }
    render(arguments.json, found, Fields(fields))
    return 0


def _ring(arguments: argparse.Namespace) -> int:
    """Describe a ring."""
    where = arguments.store
    found = {"ring": where, "user": owner_of(where), **ring_state(where, arguments.accept_users)}
    writer = found["writer"]
    fields = {
        "ring": where,
        "kind": f"{found['slots']} slots, for frames of the kind {found['kind']}",
        "policy": found["policy"],
        "size": exact_size(found["bytes"]),
        "frames": str(found["frames"]),
        "writer": "none" if writer is None else f"process {process_text(writer, command_of(writer))}",
        "readers": str(len(found["readers"])),
    }
    rows = [
        (str(each["process"]), each["command"] or "", str(each["position"]), str(each["missed"]))
        for each in found["readers"]
    ]
    table = [Grid(("reader", "command", "frame", "missed"), rows)] if rows else []
    render(arguments.json, found, Fields(fields), *table)
    return 0


# --- put, get ---------------------------------------------------------------------------------------------------


@command(
    *store(what="the store: shm:NAME or a directory; created if missing. STORE/NAME names the object, too"),
    argument("file", metavar="FILE", help="an Arrow file, stream or tensor: a path, shm:NAME, or - for standard input"),
    argument("--name", help="name of the object; default: that in STORE/NAME, or FILE without directory and suffix"),
    OVERWRITE,
    argument("--expire-after", type=seconds, metavar="SECONDS", help="delete the object after this time"),
)
def put(arguments: argparse.Namespace) -> int:
    """Add a file to a store, byte for byte; creates a missing store."""
    from shmarrow.memory import spooled

    if os.path.isfile(arguments.store) and not os.path.isfile(arguments.file):
        words = f"{shlex.quote(arguments.file)} {shlex.quote(arguments.store)}"
        raise WrongUsage(f"{arguments.store!r} is a file, and the store comes first: shmarrow put {words}")
    _split(arguments, "name")
    if arguments.file == "-" and arguments.name is None:
        raise WrongUsage("standard input has no file name: pass --name NAME")
    name = Path(arguments.file.removeprefix(memory.SHM_SCHEME)).stem if arguments.name is None else arguments.name
    if not name:
        raise WrongUsage("the name of an object must have 1 to 255 bytes, found none: expected --name NAME")
    with ExitStack() as stack:
        pipe = pipe_in(arguments.file, stack)
        source = arguments.file if pipe is None else spooled(pipe, stack)
        with memory.attach(source) as found:
            total = found.size
            if pipe is not None:
                found.name = name_of(pipe)
            describe(found)  # before a store is made for it
        store = stack.enter_context(_made(arguments))
        store.put_file(
            name,
            source,
            overwrite=arguments.overwrite,
            expire_after=arguments.expire_after,
            progress=stack.enter_context(progress_line(f"put {printable(name)}", total, size_text)),
        )
    render(arguments.json, {"name": name, "bytes": total}, printable(name))
    return 0


def _made(arguments: argparse.Namespace) -> sa.Store:
    """The store of ``put``, which may be a new one."""
    try:
        return sa.Store(arguments.store, accept_users=arguments.accept_users, create=False)
    except sa.ObjectNotFound:
        store = sa.Store(arguments.store, accept_users=arguments.accept_users)
        if not arguments.json:
            print(f"created the store {printable(arguments.store)!r}", file=sys.stderr)
        return store


@command(
    *store(),
    _NAME,
    argument(
        "file",
        metavar="FILE",
        nargs="?",
        help="output file, or - for standard output; default: NAME.arrow, or .arrows, .tensor or .tensors",
    ),
    argument("--timeout", type=seconds, default=0, metavar="SECONDS", help="wait this long for the object"),
    OVERWRITE,
)
def get(arguments: argparse.Namespace) -> int:
    """Copy an object to a file, byte for byte, or written anew if it shares memory; the file appears complete."""
    _split(arguments, "name", "file")
    if arguments.name is None:
        raise WrongUsage("the following arguments are required: NAME")
    with (
        ExitStack() as stack,
        opened(arguments) as store,
        store.attach(arguments.name, timeout=arguments.timeout) as found,
    ):
        size, contents = _contents(found)
        target = arguments.file or _file_name(arguments.name, found)
        progress = stack.enter_context(progress_line(f"get {printable(arguments.name)}", size, size_text))
        pieces = _pieces(contents, progress)
        if target == "-":
            for piece in pieces:
                sys.stdout.buffer.write(piece)
            sys.stdout.buffer.flush()
            return 0
        mode = 0o666 & store.settings.mode & ~_umask() | 0o600
        with memory.create(
            target, mode=mode, overwrite=arguments.overwrite or not target.startswith(memory.SHM_SCHEME)
        ) as writer:
            for piece in pieces:
                writer.write([piece])
    render(arguments.json, {"name": arguments.name, "file": target, "bytes": size}, printable(target))
    return 0


def _file_name(name: str, found: memory.Segment) -> str:
    """A file in the working directory, with the suffix of the object's format."""
    name = re.sub("[/:]", "_", name)
    suffix = KINDS[contents(open_source(found)).kind].suffix
    return name if name.endswith(suffix) else name + suffix


def _umask() -> int:
    mask = os.umask(0o077)
    os.umask(mask)
    return mask


def _contents(found: memory.Segment) -> tuple[int, Iterable[Any]]:
    """The size of an object, and its bytes: those of its file, unless it has buffers in files of others."""
    if shared_of(found.data) is None:
        return found.size, [found.data]
    encoded = encode(decode(found))
    assert encoded.size is not None
    return encoded.size, chain.from_iterable(encoded.parts)


def _pieces(contents: Iterable[Any], progress: Callable[[int], None]) -> Iterable[Any]:
    done = 0
    for data in contents:
        for start in range(0, len(data), _PIECE):
            piece = data[start : start + _PIECE]
            yield piece
            done += len(piece)
            progress(done)


# --- delete, wait --------------------------------------------------------------------------------------------------


@command(
    *store(),
    _NAMES,
    argument("--prefix", help="delete all objects whose names start with PREFIX"),
    argument("--all", action="store_true", help="delete all objects"),
)
def delete(arguments: argparse.Namespace) -> int:
    """Delete objects; processes that have them attached keep them."""
    _split_names(arguments)
    if not (arguments.names or arguments.prefix is not None or arguments.all) and _is_loose(arguments.store):
        memory.delete(arguments.store)
        render(arguments.json, {"removed": [arguments.store]})
        return 0
    if bool(arguments.names) + (arguments.prefix is not None) + arguments.all != 1:
        raise WrongUsage("expected names of objects, --prefix or --all, and only one of them")
    removed, status = [], 0
    with opened(arguments) as store:
        for name in arguments.names or store.names(arguments.prefix or ""):
            try:
                store.delete(name)
                removed.append(name)
            except sa.ShmarrowError as error:
                if isinstance(error, sa.ObjectNotFound):
                    if not arguments.names:
                        continue  # gone since it was listed
                    guess_object(error, name, store)
                failed = print_error(error, arguments.json)
                status = status or failed
    render(arguments.json, {"removed": removed})
    return status


def _is_loose(word: str) -> bool:
    """Whether a word names Arrow data in shared memory that is in no store; errors if it is something else."""
    path = f"{memory.SHM_DIRECTORY}/{word.removeprefix(memory.SHM_SCHEME)}"
    if not word.startswith(memory.SHM_SCHEME) or os.path.isdir(path):
        return False
    with open_target(word):
        return True


@command(
    *store(),
    _NAMES,
    argument("--any", action="store_true", help="return as soon as one of them exists"),
    argument("--timeout", type=seconds, metavar="SECONDS", help="give up after this time; default: never"),
)
def wait(arguments: argparse.Namespace) -> int:
    """Wait until objects exist."""
    _split_names(arguments)
    if not arguments.names:
        raise WrongUsage("the following arguments are required: NAME")
    with opened(arguments) as store:
        found = store.wait(arguments.names, timeout=arguments.timeout, any=arguments.any)
    render(arguments.json, {"present": found}, Grid(("name",), [(name,) for name in found]))
    return 0
