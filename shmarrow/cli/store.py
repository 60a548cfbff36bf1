"""Commands about objects of a store: ``names``, ``info``, ``put``, ``get``, ``delete`` and ``wait``.

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
import sys
from collections.abc import Callable, Iterable
from contextlib import ExitStack
from itertools import chain
from pathlib import Path
from typing import Any

import shmarrow as sa
from shmarrow import segment
from shmarrow.cli import rings
from shmarrow.cli.host import add_store, guess_object, look, opened, reason, seconds, shared_stores
from shmarrow.cli.progress import progress_line
from shmarrow.cli.report import (
    Fields,
    Table,
    WrongUsage,
    exit_status,
    print_error,
    render,
    reporting,
    size_text,
    time_text,
)
from shmarrow.cli.targets import kind_of, pipe_in, refuse_others
from shmarrow.errors import printable
from shmarrow.objects.decode import decode
from shmarrow.objects.describe import describe
from shmarrow.objects.encode import encode
from shmarrow.segment.mappings import shared_of
from shmarrow.store import ObjectInfo
from shmarrow.xray.target import split_name

_PIECE = 1 << 24
_SUFFIXES = {
    "file": ".arrow", "stream": ".arrows", "tensor": ".tensor", "sparse tensor": ".tensor", "bundle": ".tensors",
}  # fmt: skip


# --- names --------------------------------------------------------------------------------------------------------


def names_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of ``names``."""
    add_store(parser, "?")
    parser.add_argument("--prefix", default="", help="only objects whose names start with PREFIX")
    parser.add_argument("-l", "--long", action="store_true", help="open each object, and show its kind, rows and owner")


@reporting
def names(arguments: argparse.Namespace) -> int:
    """List the objects of a store, or the stores in shared memory."""
    if arguments.store is None:
        return _list_stores(arguments)
    with opened(arguments) as store:
        if arguments.long:
            return _list_long(store, arguments)
        found = [
            {("bytes" if key == "nbytes" else key): value for key, value in each._asdict().items()}
            for each in sorted(store.scan(arguments.prefix))
        ]
    rows = [
        (
            each["name"], size_text(each["bytes"]), time_text(each["age"]), time_text(each["idle"]), str(each["pins"]),
            _state(each),
        )
        for each in found
    ]  # fmt: skip
    render(arguments.json, found, Table(("name", "size", "age", "idle", "pins", "state"), rows))
    return 0


def _state(found: dict[str, Any]) -> str:
    shared = f"shares {size_text(found['shared'])}" if found["shared"] else ""
    return ", ".join(filter(None, ["protected" if found["protected"] else "", shared]))


def _list_long(store: sa.Store, arguments: argparse.Namespace) -> int:
    found = []
    for name in store.names(arguments.prefix):
        try:
            found.append(_as_json(store.info(name)))
        except sa.ObjectNotFound:
            continue  # gone since it was listed
        except sa.ShmarrowError as error:
            found.append({"name": name, "error": str(error)})
    headers = ("name", "kind", "rows", "size", "age", "idle", "pins", "owner", "state")
    rows = [
        (each["name"], "unreadable", "", "", "", "", "", "", "")
        if "error" in each
        else (
            each["name"], each["kind"], _extent(each), size_text(each["bytes"]), time_text(each["age"]),
            time_text(each["idle"]), str(each["pins"]), _owner_text(each), _state(each),
        )
        for each in found
    ]  # fmt: skip
    render(arguments.json, found, Table(headers, rows))
    return 0


def _extent(found: dict[str, Any]) -> str:
    if found["shape"] is not None:
        return "×".join(map(str, found["shape"])) or "scalar"
    return "" if found["rows"] is None else str(found["rows"])


def _owner_text(found: dict[str, Any]) -> str:
    return "orphaned" if found["orphaned"] else "" if found["owner"] is None else str(found["owner"])


def _list_stores(arguments: argparse.Namespace) -> int:
    found = [each for where in shared_stores() if (each := look(where, arguments.trust)) is not None]
    rows = [
        (each["store"], each["user"] or "", "", "", "", reason(each))
        if "error" in each
        else (
            each["store"], each["user"], str(each["objects"]), size_text(each["bytes"]), size_text(each["room"]),
            f"{size_text(each['removed'])} removed" if each["removed"] else "",
        )
        for each in found
    ]  # fmt: skip
    render(arguments.json, found, Table(("store", "user", "objects", "size", "room", "state"), rows))
    return 0


def _split(arguments: argparse.Namespace, *places: str) -> None:
    """Accept ``STORE/NAME`` for ``STORE NAME``: the words after it move by one place."""
    found = split_name(arguments.store)
    if found is None:
        return
    words = [getattr(arguments, place) for place in places]
    if words[-1] is not None:
        arguments.wrong_usage(f"expected STORE NAME or STORE/NAME, found {arguments.store!r} and {words[0]!r}")
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
        arguments.wrong_usage("expected STORE NAME... or STORE/NAME..., with one STORE for all")
    arguments.store, arguments.names = stores.pop(), [each[1] for each in found if each]


# --- info -------------------------------------------------------------------------------------------------------


def info_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of ``info``."""
    add_store(parser, help="the store: shm:NAME or a directory; or a ring")
    parser.add_argument("name", metavar="NAME", nargs="?", help="the object; STORE/NAME is one argument")


@reporting
def info(arguments: argparse.Namespace) -> int:
    """Describe an object, or a ring."""
    if arguments.name is None and rings.is_ring(arguments.store):
        return rings.describe_ring(arguments)
    _split(arguments, "name")
    if arguments.name is None:
        raise WrongUsage(
            f"expected STORE NAME or STORE/NAME, found {arguments.store!r}; `shmarrow inspect` describes files"
        )
    with opened(arguments) as store:
        found = store.info(arguments.name)
    what = found.description
    shared = f"{size_text(found.shared)}, with {', '.join(map(printable, found.sources))}"
    fields = {
        "name": printable(found.name),
        "kind": found.kind,
        "rows": ""
        if what.num_rows is None
        else f"{what.num_rows} in {what.num_batches} {'batch' if what.num_batches == 1 else 'batches'}",
        "shape": "" if what.shape is None else ", ".join(map(str, what.shape)),
        "type": "" if what.type is None else str(what.type),
        "size": f"{size_text(found.nbytes)} ({found.nbytes} bytes)",
        "shared": shared if found.shared else "",
        "file": printable(found.path or "none: it is inline in the control file"),
        "generation": str(found.generation),
        "age": time_text(found.age),
        "idle": time_text(found.idle),
        "pins": str(found.pins),
        "expires": "" if found.expires_in is None else f"in {time_text(found.expires_in)}",
        "owner": _owner_text(_as_json(found)),
        "state": "protected" if found.protected else "",
        "schema": "" if what.schema is None else str(what.schema),
    }
    render(arguments.json, _as_json(found), Fields(fields))
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
        "allocated": found.allocated,
        "shared": found.shared,
        "sources": list(found.sources),
        "generation": found.generation,
        "path": found.path,
        "age": found.age,
        "idle": found.idle,
        "pins": found.pins,
        "expires_in": found.expires_in,
        "owner": found.owner,
        "orphaned": found.orphaned,
        "protected": found.protected,
    }


# --- put, get ---------------------------------------------------------------------------------------------------


def put_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of ``put``."""
    add_store(parser, help="the store: shm:NAME or a directory; created if missing. STORE/NAME names the object, too")
    parser.add_argument(
        "file", metavar="FILE", help="an Arrow file, stream or tensor: a path, shm:NAME, or - for standard input"
    )
    parser.add_argument(
        "--name", help="name of the object; default: that in STORE/NAME, or FILE without directory and suffix"
    )
    parser.add_argument("--overwrite", action="store_true", help="replace an object of the same name")
    parser.add_argument("--expire-after", type=seconds, metavar="SECONDS", help="delete the object after this time")


@reporting
def put(arguments: argparse.Namespace) -> int:
    """Add a file to a store, byte for byte; creates a missing store."""
    _split(arguments, "name")
    if arguments.file == "-" and arguments.name is None:
        arguments.wrong_usage("standard input has no file name: pass --name NAME")
    name = Path(arguments.file.removeprefix(segment.SHM_SCHEME)).stem if arguments.name is None else arguments.name
    if not name:
        arguments.wrong_usage("the name of an object must have 1 to 255 bytes, found none: expected --name NAME")
    with ExitStack() as stack:
        source = _source(arguments.file, stack)
        try:
            with segment.attach(source) as found:
                total = found.size
                refuse_others(
                    "standard input" if arguments.file == "-" else arguments.file, found.data
                )  # before a store is made for it
                describe(found)
            store = stack.enter_context(_made(arguments))
            progress = stack.enter_context(progress_line(f"put {printable(name)}", total, size_text))
            store.put_file(
                name,
                source,
                overwrite=arguments.overwrite,
                expire_after=arguments.expire_after,
                progress=progress,
            )
        except sa.InvalidData as error:
            raise sa.InvalidData(
                str(error).replace(source, "standard input" if arguments.file == "-" else arguments.file)
            ) from None
    render(arguments.json, {"name": name, "bytes": total}, printable(name))
    return 0


def _made(arguments: argparse.Namespace) -> sa.Store:
    """The store of ``put``, which may be a new one."""
    try:
        return sa.Store(arguments.store, trust=arguments.trust, create=False)
    except sa.ObjectNotFound:
        store = sa.Store(arguments.store, trust=arguments.trust)
        if not arguments.json:
            print(f"created the store {printable(arguments.store)!r}", file=sys.stderr)
        return store


def _source(file: str, stack: ExitStack) -> str:
    """The path of the source; a pipe goes through a temporary file, as the size must be known in advance."""
    pipe = pipe_in(file, stack)
    if pipe is None:
        return file
    from shmarrow.interchange.files import spooled

    return spooled(pipe, stack)


def get_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of ``get``."""
    add_store(parser)
    parser.add_argument("name", metavar="NAME", nargs="?", help="the object; STORE/NAME is one argument")
    parser.add_argument(
        "file",
        metavar="FILE",
        nargs="?",
        help="output file, or - for standard output; default: NAME.arrow, or .arrows, .tensor or .tensors",
    )
    parser.add_argument("--timeout", type=seconds, default=0, metavar="SECONDS", help="wait this long for the object")
    parser.add_argument("--overwrite", action="store_true", help="replace FILE if it exists")


@reporting
def get(arguments: argparse.Namespace) -> int:
    """Copy an object to a file, byte for byte, or written anew if it shares memory; the file appears complete."""
    _split(arguments, "name", "file")
    if arguments.name is None:
        arguments.wrong_usage("the following arguments are required: NAME")
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
        with segment.create(target, mode=mode, overwrite=arguments.overwrite) as writer:
            for piece in pieces:
                writer.write([piece])
    render(arguments.json, {"name": arguments.name, "file": target, "bytes": size}, printable(target))
    return 0


def _file_name(name: str, found: segment.Segment) -> str:
    """A file in the working directory, with the suffix of the object's format."""
    name = re.sub("[/:]", "_", name)
    suffix = _SUFFIXES[kind_of(found.data, found.name)]
    return name if name.endswith(suffix) else name + suffix


def _umask() -> int:
    mask = os.umask(0o077)
    os.umask(mask)
    return mask


def _contents(found: segment.Segment) -> tuple[int, Iterable[Any]]:
    """The size of an object, and its bytes: those of its file, unless it has buffers in files of others."""
    if shared_of(found.data) is None:
        return found.size, [found.data]
    encoded = encode(decode(found))
    assert encoded.size is not None
    return encoded.size, chain.from_iterable(encoded.pieces())


def _pieces(contents: Iterable[Any], progress: Callable[[int], None]) -> Iterable[Any]:
    done = 0
    for data in contents:
        for start in range(0, len(data), _PIECE):
            piece = data[start : start + _PIECE]
            yield piece
            done += len(piece)
            progress(done)


# --- delete, wait --------------------------------------------------------------------------------------------------


def delete_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of ``delete``."""
    add_store(parser)
    parser.add_argument("names", metavar="NAME", nargs="*", help="objects to delete; STORE/NAME is one argument")
    parser.add_argument("--prefix", help="delete all objects whose names start with PREFIX")
    parser.add_argument("--all", action="store_true", help="delete all objects")


@reporting
def delete(arguments: argparse.Namespace) -> int:
    """Delete objects; processes that have them attached keep them."""
    _split_names(arguments)
    if not (arguments.names or arguments.prefix is not None or arguments.all) and _is_loose(arguments.store):
        return _remove_loose(arguments)
    if bool(arguments.names) + (arguments.prefix is not None) + arguments.all != 1:
        arguments.wrong_usage("expected names of objects, --prefix or --all, and only one of them")
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
                print_error(error, arguments.json)
                status = status or exit_status(error)
    render(arguments.json, {"removed": removed})
    return status


def _is_loose(word: str) -> bool:
    """Whether a word names Arrow data in shared memory that is in no store; errors if it is something else."""
    path = f"{segment.SHM_DIRECTORY}/{word.removeprefix(segment.SHM_SCHEME)}"
    if not word.startswith(segment.SHM_SCHEME) or os.path.isdir(path):
        return False
    with segment.attach(word) as found:
        kind_of(found.data, word)
    return True


def _remove_loose(arguments: argparse.Namespace) -> int:
    segment.delete(arguments.store)
    render(arguments.json, {"removed": [arguments.store]})
    return 0


def wait_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of ``wait``."""
    add_store(parser)
    parser.add_argument("names", metavar="NAME", nargs="*", help="objects to wait for; STORE/NAME is one argument")
    parser.add_argument("--any", action="store_true", help="return as soon as one of them exists")
    parser.add_argument("--timeout", type=seconds, metavar="SECONDS", help="give up after this time; default: never")


@reporting
def wait(arguments: argparse.Namespace) -> int:
    """Wait until objects exist."""
    _split_names(arguments)
    if not arguments.names:
        arguments.wrong_usage("the following arguments are required: NAME")
    with opened(arguments) as store:
        found = store.wait(arguments.names, timeout=arguments.timeout, any=arguments.any)
    render(arguments.json, {"present": found}, Table(("name",), [(name,) for name in found]))
    return 0
