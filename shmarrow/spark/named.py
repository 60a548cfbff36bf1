"""Named frames: what ``share(df, name=...)`` registers, and other applications and notebooks of the user open.

Invariants:

* a name is an object in the driver's store: a table without rows, of the frame's schema, whose metadata are the handles
  as JSON. Who opens it executes nothing;
* a new frame replaces the name when it is complete, and only then the old one is removed;
* the name has the owner of the frame: it ends with the application that shared it.
"""

from __future__ import annotations

import errno
import json
from contextlib import suppress
from dataclasses import asdict
from functools import partial
from typing import TYPE_CHECKING, Any

from shmarrow.errors import GenerationChanged, InvalidData, ObjectNotFound
from shmarrow.segment import Location
from shmarrow.spark.app_store import AppStore, default_location, unless_gone
from shmarrow.spark.frame import SharedFrame
from shmarrow.spark.handle import PartitionHandle
from shmarrow.spark.values import as_name
from shmarrow.store import Store
from shmarrow.tables import Table

if TYPE_CHECKING:
    from collections.abc import Callable

PREFIX = "frames/"
KEY = b"shmarrow:frame"
"""The key of a frame's description in the metadata of its schema."""

_mine: dict[tuple[str, str], SharedFrame] = {}
"""The frames that this process has given a name, by their store's id and name: Spark keeps parts of them."""


def register(frame: SharedFrame, name: str) -> Callable[[], object] | None:
    """Give a frame a name, and remove the frame that had it.

    Returns
    -------
    remove_elsewhere : callable or None
        Removes the objects of the old frame on this host, to be called on other hosts too; None if there was none.
    """
    store = frame.store.store()
    while True:
        old = _described(store, name)
        generation = 0 if old is None else store.info(PREFIX + name).generation
        with suppress(GenerationChanged, ObjectNotFound):
            store.put(PREFIX + name, _description(frame), protect=True, if_generation=generation)
            break
    frame.kept(end=partial(_forget, store, name, frame.name))
    mine = _mine.pop((store.id, name), None)
    _mine[store.id, name] = frame
    if old is None:
        return None
    (mine if mine is not None and mine.name == old.name else old).destroy()
    return partial(old.store.delete_here, prefix=f"{old.name}/")


def attached(name: str, store: Location | Store | None = None) -> SharedFrame:
    """Open a frame that an application of this user has shared under a name: ``share(df, name=...)``.

    Parameters
    ----------
    name : str
        The name.
    store : str, PathLike or Store, optional
        The store in which it was shared, by default that of this user's Spark applications.

    Returns
    -------
    SharedFrame
        The frame. It lives until it is replaced by another of its name, destroyed, or the application ends that shared
        it. Tables that were attached before that stay valid. It needs no Spark; only partitions on this host can be
        attached. ``destroy`` removes these and the name; those on other hosts end with their executors.

    Raises
    ------
    ObjectNotFound
        If no frame has this name; lists the names that there are.
    InvalidData
        If something else is in its place.
    """
    name = as_name(name)
    opened = None
    with suppress(ObjectNotFound):
        opened = (
            store if isinstance(store, Store) else Store(default_location() if store is None else store, create=False)
        )
        opened.collect()  # names of applications that have ended
        found = _described(opened, name)
        if found is not None:
            return found.kept(end=partial(_forget, opened, name, found.name))
    names = [] if opened is None else [each.removeprefix(PREFIX) for each in opened.names(PREFIX)]
    there = f"there are {', '.join(map(repr, names[:20]))}" if names else "there is none"
    raise ObjectNotFound(
        errno.ENOENT,
        f"no frame is shared under the name {name!r}: {there}",
        hint="share(df, name=...) gives a name, in an application that still runs",
    )


def _description(frame: SharedFrame) -> Table:
    handles = [{**asdict(handle), "store": [*handle.store], "way": None} for handle in frame.handles]
    said = {"name": frame.name, "store": [*frame.store], "spark_schema": frame.spark_schema, "handles": handles}
    metadata = {**(frame.schema.metadata or {}), KEY: json.dumps(said).encode()}
    return Table(frame.schema.with_metadata(metadata), [])


def _described(store: Store, name: str) -> SharedFrame | None:
    """Return the frame of a name; None if there is none."""
    with suppress(ObjectNotFound):
        table: Any = store.get(PREFIX + name)
        try:
            metadata = dict(table.schema.metadata)
            said = json.loads(metadata.pop(KEY))
            handles = [PartitionHandle(**{**each, "store": AppStore(*each["store"])}) for each in said["handles"]]
            schema = table.schema.with_metadata(metadata or None)
            return SharedFrame(AppStore(*said["store"]), said["name"], schema, handles, said["spark_schema"])
        except (AttributeError, KeyError, TypeError, ValueError):
            raise InvalidData(f"the object {PREFIX + name!r} of the store {store.name!r} is no shared frame") from None
    return None


def _forget(store: Store, name: str, frame: str) -> None:
    """Remove a name, unless another frame has it now."""
    with unless_gone():
        found = _described(store, name)
        if found is not None and found.name == frame:
            _mine.pop((store.id, name), None)
            store.delete(PREFIX + name)
