# SPDX-License-Identifier: Apache-2.0
"""Commands on whole stores: ``evict``, ``collect``, ``rescue``, ``destroy``, ``watch``, ``stats``.

The rules are those of ``cli/objects.py``.
"""

from __future__ import annotations

import argparse
import time
from typing import Any

import shmarrow as sa
from shmarrow import memory
from shmarrow.cli.command import (
    PREFIX,
    Fields,
    Grid,
    argument,
    byte_size,
    command,
    print_error,
    render,
    seconds,
    store,
    whole,
)
from shmarrow.cli.host import COUNTERS, holdings, is_store, opened, pins_text, shared
from shmarrow.display import size as size_text
from shmarrow.errors import printable
from shmarrow.store import Event


@command(
    *store(), argument("size", metavar="SIZE", type=byte_size, help="bytes to free, such as 4096, 64K, 100M or 2GiB")
)
def evict(arguments: argparse.Namespace) -> int:
    """Evict objects that no process has attached, least recently used first."""
    with opened(arguments) as store:
        names = store.evict(arguments.size)
    render(arguments.json, {"evicted": names}, Grid(("name",), [(name,) for name in names]))
    return 0


@command(
    *store("*"), argument("--all", action="store_true", help="all stores in shared memory that this user may change")
)
def collect(arguments: argparse.Namespace) -> int:
    """Delete orphaned and expired objects and leftovers in stores; without STORE and --all, list the stores."""
    found: list[dict[str, Any]] = []
    if not (arguments.store or arguments.all):
        names = shared(is_store)
        hint = "nothing was removed: name a store, or pass --all"
        render(arguments.json, [{"store": where} for where in names], *map(printable, names), hint)
        return 0
    status = 0
    for where in arguments.store or shared(is_store):
        try:
            with opened(arguments, where) as store:
                found.append({"store": where, "objects": store.collect()})
        except sa.ShmarrowError as error:
            if not arguments.store and isinstance(error, (sa.StorageError, sa.InvalidData)):
                if not isinstance(error, sa.ObjectNotFound):  # gone since it was listed
                    found.append({"store": where, "objects": [], "skipped": str(error)})
                continue
            failed = print_error(error, arguments.json)
            status = status or failed
    if not arguments.store:
        leftovers = memory.collect_leftovers(memory.SHM_DIRECTORY)
        found.append({"store": memory.SHM_SCHEME, "objects": [], "leftovers": leftovers})
    if not found and status:
        return status
    lines = []
    for each in found:
        if "skipped" in each:
            lines.append(f"{each['store']} is skipped: {each['skipped']}")
        lines += [f"{each['store']}: {name}" for name in each["objects"]]
    objects = sum([len(each["objects"]) for each in found])
    leftover = sum([each.get("leftovers", 0) for each in found])
    render(arguments.json, found, *map(printable, lines), f"{objects} objects and {leftover} leftovers removed")
    return status


@command(*store(), argument("new", metavar="NEW", help="a store, which is created if missing"))
def rescue(arguments: argparse.Namespace) -> int:
    """Copy the objects of a damaged store that can be read into another one."""
    try:
        new, is_new = sa.Store(arguments.new, accept_users=arguments.accept_users, create=False), False
    except sa.ObjectNotFound:
        new, is_new = sa.Store(arguments.new, accept_users=arguments.accept_users), True
    with new:
        try:
            lost = new.rescue(arguments.store, accept_users=arguments.accept_users)
        except sa.ShmarrowError:
            if is_new:
                new.destroy()
            raise
        objects = len(new)
    lines = [f"{printable(name)} is lost: {printable(reason)}" for name, reason in lost.items()]
    render(arguments.json, {"store": arguments.new, "objects": objects, "lost": lost}, *lines, f"{objects} objects")
    return 1 if lost else 0


@command(*store())
def destroy(arguments: argparse.Namespace) -> int:
    """Delete a store with its objects and directory; processes keep the objects they have attached."""
    with opened(arguments, guess=False) as store:
        objects = store.stats().objects
        store.destroy()
    render(arguments.json, {"store": arguments.store, "objects": objects})
    return 0


@command(
    *store(),
    PREFIX,
    argument("--seconds", type=seconds, metavar="SECONDS", help="stop after this time"),
    argument("--count", type=whole(0), metavar="N", help="stop after N events"),
)
def watch(arguments: argparse.Namespace) -> int:
    """Print the existing objects, then those that are published and deleted."""
    end = None if arguments.seconds is None else time.monotonic() + arguments.seconds
    with opened(arguments) as store, store.watch(arguments.prefix) as watching:
        for name in watching.names:
            _print_event(arguments, Event("present", name))
        count = 0
        while arguments.count is None or count < arguments.count:
            event = watching.get(timeout=None if end is None else max(end - time.monotonic(), 0))
            if event is None:
                break
            _print_event(arguments, event)
            count += 1
    return 0


def _print_event(arguments: argparse.Namespace, event: Event) -> None:
    found = {"event": event.kind, "name": event.name, "generation": event.generation or None, "time": time.time()}
    render(arguments.json, found, f"{event.kind:9}  {printable(event.name)}")


@command(*store())
def stats(arguments: argparse.Namespace) -> int:
    """Show size, free space, settings and attached processes of a store."""
    with opened(arguments) as store:
        found, settings = holdings(store), store.settings
    fields = {
        "objects": f"{found['objects']}",
        "size": f"{size_text(found['bytes'])}, {size_text(found['pinned'])} of it attached",
        "removed": f"{size_text(found['removed'])}, attached still" if found["removed"] else "",
        "capacity": "" if settings.capacity is None else f"{size_text(settings.capacity)}, {settings.eviction}",
        "room": size_text(found["room"]),
        "file system": f"{size_text(found['total'])}, {size_text(found['free'])} of it free",
        "mode": f"{settings.mode:04o}{', durable' if settings.durable else ''}, of {found['user']}",
        "so far": ", ".join([f"{name} {found[name]}" for name in COUNTERS if found[name]]),
        "attached": pins_text(found["pins"]),
    }
    document = {**found, "settings": {**settings._asdict(), "mode": f"{settings.mode:04o}"}}
    render(arguments.json, document, Fields(fields))
    return 0
