"""The store's commands: ``ls``, ``info``, ``put``, ``get``, ``rm``, ``gc``, ``watch`` and ``stats``.

Rules kept here:

* a STORE is ``shm:NAME`` or a directory, which no command but ``put`` makes;
* results are tables for people, or with ``--json`` one JSON value (a line of JSON for each event of ``watch``), where
  sizes are bytes and times are seconds;
* the exit status is 0, or of the first thing that failed: 3 where an object or a store is not there, 4 where a name is
  taken, 5 where there is no room, 1 for other errors.
"""

from __future__ import annotations

import argparse
import errno
import os
import shutil
import sys
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any

import shmarrow as sa
from shmarrow import segment
from shmarrow.cli.progress import bar
from shmarrow.cli.report import exit_status, print_fields, print_json, print_table, reporting, size_text, time_text
from shmarrow.store import ObjectInfo
from shmarrow.store.place import CONTROL
from shmarrow.store.space import pin_counts

_PIECE = 1 << 24
_HEADS = (b"ARROW1", b"\xff\xff\xff\xff")
"""How files, and how streams and tensors of Arrow's begin."""


def _common(parser: argparse.ArgumentParser, store: str | None = None) -> None:
    parser.add_argument("store", metavar="STORE", nargs=store, help="shm:NAME or a directory")
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.add_argument("--trust", action="store_true", help="accept a store that other users own or may write to")


def _open(arguments: argparse.Namespace, where: str | None = None) -> sa.Store:
    where = where or arguments.store
    if not where.startswith(segment.SHM_SCHEME) and not os.path.isdir(where):
        raise sa.ObjectNotFound(errno.ENOENT, f"no store at {where!r}: there is no such directory")
    return sa.Store(where, trust=arguments.trust)


# --- ls ---------------------------------------------------------------------------------------------------------


def ls_arguments(parser: argparse.ArgumentParser) -> None:
    """The arguments of ``ls``."""
    _common(parser, "?")
    parser.add_argument("-l", "--long", action="store_true", help="look into each object: kind, rows, owner")


@reporting
def ls(arguments: argparse.Namespace) -> int:
    """List the objects of a store, or the stores in shared memory."""
    if arguments.store is None:
        return _list_stores(arguments)
    with _open(arguments) as store:
        if arguments.long:
            return _list_long(store, arguments)
        pins, now = pin_counts(), time.time_ns()
        found: list[dict[str, Any]] = [
            {
                "name": each.name,
                "bytes": each.size,
                "age": (now - each.published) / 1e9,
                "idle": (now - each.used) / 1e9,
                "pins": pins.get(each.inode, 0),
            }
            for each in sorted(store.scan())
        ]
    if arguments.json:
        print_json(found)
        return 0
    rows = [
        (each["name"], size_text(each["bytes"]), time_text(each["age"]), time_text(each["idle"]), str(each["pins"]))
        for each in found
    ]
    print_table(("name", "size", "age", "idle", "pins"), rows)
    return 0


def _list_long(store: sa.Store, arguments: argparse.Namespace) -> int:
    found = []
    for name in store.names():
        try:
            found.append(_as_json(store.info(name)))
        except sa.ObjectNotFound:
            continue  # gone since it was listed
        except sa.ShmarrowError as error:
            found.append({"name": name, "error": str(error)})
    if arguments.json:
        print_json(found)
        return 0
    headers = ("name", "kind", "rows", "size", "age", "idle", "pins", "owner")
    rows = [
        (each["name"], "unreadable", "", "", "", "", "", "")
        if "error" in each
        else (
            each["name"], each["kind"], _extent(each), size_text(each["bytes"]), time_text(each["age"]),
            time_text(each["idle"]), str(each["pins"]), _owner_text(each),
        )
        for each in found
    ]  # fmt: skip
    print_table(headers, rows)
    return 0


def _extent(found: dict[str, Any]) -> str:
    if found["shape"] is not None:
        return "×".join(map(str, found["shape"])) or "scalar"
    return str(found["rows"])


def _owner_text(found: dict[str, Any]) -> str:
    return "orphaned" if found["orphaned"] else "" if found["owner"] is None else str(found["owner"])


def _shared_stores() -> dict[str, list[int]]:
    """The stores in shared memory that this user can read: for each name the sizes of its objects."""
    stores: dict[str, list[int]] = {}
    for entry in os.scandir(segment.SHM_DIRECTORY):
        name, dot, rest = entry.name.partition(".")
        if entry.name.startswith(f"{CONTROL}.") and entry.is_dir(follow_symlinks=False):
            stores.setdefault(entry.name[len(CONTROL) + 1 :], [])
        if not name or not dot or not rest or not entry.is_file(follow_symlinks=False):
            continue
        with suppress(OSError):
            fd = os.open(entry.path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | getattr(os, "O_NOATIME", 0))
            try:
                if os.read(fd, 6).startswith(_HEADS):
                    stores.setdefault(name, []).append(os.fstat(fd).st_size)
            finally:
                os.close(fd)
    return stores


def _list_stores(arguments: argparse.Namespace) -> int:
    found: list[dict[str, Any]] = [
        {"store": f"{segment.SHM_SCHEME}{name}", "objects": len(sizes), "bytes": sum(sizes)}
        for name, sizes in sorted(_shared_stores().items())
    ]
    if arguments.json:
        print_json(found)
        return 0
    rows = [(each["store"], str(each["objects"]), size_text(each["bytes"])) for each in found]
    print_table(("store", "objects", "size"), rows)
    return 0


# --- info -------------------------------------------------------------------------------------------------------


def info_arguments(parser: argparse.ArgumentParser) -> None:
    """The arguments of ``info``."""
    _common(parser)
    parser.add_argument("name", metavar="NAME", help="the object")


@reporting
def info(arguments: argparse.Namespace) -> int:
    """Say what is known of an object."""
    with _open(arguments) as store:
        found = store.info(arguments.name)
    if arguments.json:
        print_json(_as_json(found))
        return 0
    what = found.description
    fields = {
        "name": found.name,
        "kind": found.kind,
        "rows": "" if what.num_rows is None else f"{what.num_rows} in {what.num_batches} batches",
        "shape": "" if what.shape is None else ", ".join(map(str, what.shape)),
        "type": "" if what.type is None else str(what.type),
        "size": f"{size_text(found.nbytes)} ({found.nbytes} bytes)",
        "age": time_text(found.age),
        "idle": time_text(found.idle),
        "pins": str(found.pins),
        "expires": "" if found.expires_in is None else f"in {time_text(found.expires_in)}",
        "owner": _owner_text(_as_json(found)),
        "schema": "" if what.schema is None else str(what.schema),
    }
    print_fields({name: value for name, value in fields.items() if value})
    return 0


def _as_json(found: ObjectInfo) -> dict[str, Any]:
    what = found.description
    return {
        "name": found.name,
        "kind": found.kind,
        "rows": what.num_rows,
        "batches": what.num_batches,
        "shape": None if what.shape is None else list(what.shape),
        "type": None if what.type is None else str(what.type),
        "schema": None if what.schema is None else {field.name: str(field.type) for field in what.schema.fields},
        "bytes": found.nbytes,
        "age": found.age,
        "idle": found.idle,
        "pins": found.pins,
        "expires_in": found.expires_in,
        "owner": found.owner,
        "orphaned": found.orphaned,
    }


# --- put, get ---------------------------------------------------------------------------------------------------


def put_arguments(parser: argparse.ArgumentParser) -> None:
    """The arguments of ``put``."""
    _common(parser)
    parser.add_argument("file", metavar="FILE", help="an Arrow file, stream or tensor: a path or shm:NAME")
    parser.add_argument("--name", help="the name of the object; FILE's without its suffix where it is not given")
    parser.add_argument("--overwrite", action="store_true", help="replace an object of this name")
    parser.add_argument("--expire-after", type=float, metavar="SECONDS", help="let it expire")


@reporting
def put(arguments: argparse.Namespace) -> int:
    """Place a file in a store, byte for byte."""
    name = arguments.name or Path(arguments.file.removeprefix(segment.SHM_SCHEME)).stem
    with segment.attach(arguments.file) as found:
        total = found.size
    with sa.Store(arguments.store, trust=arguments.trust) as store, bar(f"put {name}", total, "bytes") as progress:
        store.put_file(
            name,
            arguments.file,
            overwrite=arguments.overwrite,
            expire_after=arguments.expire_after,
            progress=progress,
        )
    if arguments.json:
        print_json({"name": name, "bytes": total})
    else:
        print(name)
    return 0


def get_arguments(parser: argparse.ArgumentParser) -> None:
    """The arguments of ``get``."""
    _common(parser)
    parser.add_argument("name", metavar="NAME", help="the object")
    parser.add_argument("file", metavar="FILE", nargs="?", help="where to write it; NAME.arrow, or - for the output")
    parser.add_argument("--timeout", type=float, metavar="SECONDS", help="wait for it so long")
    parser.add_argument("--overwrite", action="store_true", help="replace FILE")


@reporting
def get(arguments: argparse.Namespace) -> int:
    """Write an object to a file, byte for byte; the file appears whole or not at all."""
    target = arguments.file or f"{arguments.name}.arrow"
    with (
        _open(arguments) as store,
        store.attach(arguments.name, arguments.timeout) as found,
        bar(f"get {arguments.name}", found.size, "bytes") as progress,
    ):
        pieces = _pieces(found.data, progress)
        if target == "-":
            for piece in pieces:
                sys.stdout.buffer.write(piece)
            sys.stdout.buffer.flush()
            return 0
        with segment.create(target, mode=0o644, overwrite=arguments.overwrite) as writer:
            for piece in pieces:
                writer.write([piece])
        size = found.size
    if arguments.json:
        print_json({"name": arguments.name, "file": target, "bytes": size})
    else:
        print(target)
    return 0


def _pieces(data: Any, progress: Callable[[int], None]) -> Iterable[Any]:
    for start in range(0, len(data), _PIECE):
        piece = data[start : start + _PIECE]
        yield piece
        progress(start + len(piece))


# --- rm, gc -----------------------------------------------------------------------------------------------------


def rm_arguments(parser: argparse.ArgumentParser) -> None:
    """The arguments of ``rm``."""
    _common(parser)
    parser.add_argument("names", metavar="NAME", nargs="*", help="the objects")
    parser.add_argument("--all", action="store_true", help="all objects")
    parser.set_defaults(wrong_usage=parser.error)


@reporting
def rm(arguments: argparse.Namespace) -> int:
    """Remove objects; those who have one keep it."""
    if bool(arguments.names) == arguments.all:
        arguments.wrong_usage("expected names of objects, or --all")
    removed, status = [], 0
    with _open(arguments) as store:
        for name in store.names() if arguments.all else arguments.names:
            try:
                store.delete(name)
                removed.append(name)
            except sa.ShmarrowError as error:
                print(f"shmarrow: {error}", file=sys.stderr)
                status = status or exit_status(error)
    if arguments.json:
        print_json({"removed": removed})
    return status


def gc_arguments(parser: argparse.ArgumentParser) -> None:
    """The arguments of ``gc``."""
    _common(parser, "*")


@reporting
def gc(arguments: argparse.Namespace) -> int:
    """Remove what nobody needs, in some stores or in all that are in shared memory; nothing alive is touched."""
    stores = arguments.store or [f"{segment.SHM_SCHEME}{name}" for name in sorted(_shared_stores())]
    found = []
    for where in stores:
        with _open(arguments, where) as store:
            collected = store.collect()
        found.append({"store": where, **collected._asdict()})
    if not arguments.store:
        leftovers = segment.collect_leftovers(segment.SHM_DIRECTORY)
        found.append({"store": "shm:", "objects": [], "nbytes": 0, "leftovers": leftovers})
    if arguments.json:
        print_json([{("bytes" if key == "nbytes" else key): value for key, value in each.items()} for each in found])
        return 0
    for each in found:
        for name in each["objects"]:
            print(f"{each['store']}: {name}")
    objects = sum([len(each["objects"]) for each in found])
    leftover = sum([each["leftovers"] for each in found])
    size = sum([each["nbytes"] for each in found])
    print(f"{objects} objects and {leftover} leftovers removed, {size_text(size)}")
    return 0


# --- watch, stats -----------------------------------------------------------------------------------------------


def watch_arguments(parser: argparse.ArgumentParser) -> None:
    """The arguments of ``watch``."""
    _common(parser)
    parser.add_argument("--seconds", type=float, help="end after so long")
    parser.add_argument("--count", type=int, help="end after so many events")


@reporting
def watch(arguments: argparse.Namespace) -> int:
    """Tell what is there, and what is published and deleted from then on."""
    end = None if arguments.seconds is None else time.monotonic() + arguments.seconds
    with _open(arguments) as store, store.watch() as watching:
        for name in watching.names:
            _print_event(arguments, "present", name)
        count = 0
        while arguments.count is None or count < arguments.count:
            event = watching.get(None if end is None else max(end - time.monotonic(), 0))
            if event is None:
                break
            _print_event(arguments, event.kind, event.name)
            count += 1
    return 0


def _print_event(arguments: argparse.Namespace, kind: str, name: str) -> None:
    if arguments.json:
        print_json({"event": kind, "name": name, "time": time.time()})
    else:
        print(f"{kind:9}  {name}", flush=True)


def stats_arguments(parser: argparse.ArgumentParser) -> None:
    """The arguments of ``stats``."""
    _common(parser)


@reporting
def stats(arguments: argparse.Namespace) -> int:
    """Say how much a store holds, and how much room there is."""
    with _open(arguments) as store:
        found = store.stats()
    if arguments.json:
        values = found._asdict()
        values["bytes"] = values.pop("nbytes")
        values.pop("capacity")
        print_json(values)
        return 0
    fields = {
        "objects": f"{found.objects}",
        "size": f"{size_text(found.nbytes)}, {size_text(found.pinned)} of it pinned",
        "being written": size_text(found.drafts),
        "owners": str(found.owners),
        "file system": f"{size_text(found.total)}, {size_text(found.free)} of it free",
    }
    width = min(shutil.get_terminal_size().columns, 72)
    print_fields(fields)
    if sys.stdout.isatty() and found.total:
        filled = round((1 - found.free / found.total) * (width - 2))
        print(f"[{'█' * filled}{'░' * (width - 2 - filled)}]")
    return 0
