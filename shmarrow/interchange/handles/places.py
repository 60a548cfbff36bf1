"""Places: the mapped objects that memory lies in, found in one process and mapped again in another.

Invariants:

* a place is a name and what identifies the file under it. Whoever maps it checks both, so a handle never leads to
  another object that got the same name, nor to one that another user put there;
* a process maps a place once, however many handles lead to it, and unmaps it with the last array;
* every range is checked to lie within its place before a view is made of it.
"""

from __future__ import annotations

import errno
import os
import weakref
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from shmarrow.buffer import U1, Bytes
from shmarrow.errors import InvalidArgument, InvalidData, ObjectNotFound, StorageError, counted, shown
from shmarrow.segment import SHM_DIRECTORY, Segment, attach_path
from shmarrow.segment.host import boot_id, host_name
from shmarrow.segment.location import is_shm, resolve
from shmarrow.segment.mappings import Mapped, Mapping, mapping_of
from shmarrow.states import fork_safe_lock

NDArray = np.ndarray[Any, np.dtype[Any]]

INLINE_BYTES = 1 << 16
"""Bytes outside of mapped objects that one handle may carry itself, such as a validity bitmap that was computed."""

INLINE = -1
"""The number of the place that stands for the bytes in the handle itself."""


class Place(NamedTuple):
    """A mapped object.

    Attributes
    ----------
    name : str
        ``shm:NAME``, or an absolute path.
    device, inode : int
        Of the file.
    size : int
        Its bytes.
    modified : int
        When it was last written to, in ns since 1970.
    slot : int
        Where the catalog of its store has it; -1 if it is in no store.
    object : str
        What its store calls it, for messages; empty if it is in no store.
    """

    name: str
    device: int
    inode: int
    size: int
    modified: int
    slot: int = -1
    object: str = ""

    @property
    def shown(self) -> str:
        """What it is called in messages."""
        return f"{self.object!r}, {self.name!r}," if self.object else repr(self.name)

    @property
    def in_memory(self) -> bool:
        """Whether the object is gone when the host is restarted, and is on no other host."""
        return is_shm(self.name) or self.name.startswith(SHM_DIRECTORY + "/")


# --- where memory lies ------------------------------------------------------------------------------------------


class Locator:
    """Finds the places of memory, and collects what lies in none; for one handle.

    Attributes
    ----------
    places : list of Place
        The places found so far.
    inline : bytearray
        The bytes of small buffers that lie in no place.
    """

    __slots__ = ("_found", "_high", "_last", "_low", "inline", "places")

    def __init__(self) -> None:
        self.places: list[Place] = []
        self.inline = bytearray()
        self._found: dict[int, int] = {}  # places by the addresses of their mappings
        self._low = self._high = self._last = 0

    def place(self, data: Any) -> tuple[int, int] | None:
        """The number of the place that an ndarray lies in, and where it starts there; None if it lies in none.

        Raises
        ------
        ObjectNotFound
            If the object is no longer there under its name, or another one is.
        """
        address: int = data.__array_interface__["data"][0]
        if not self._low <= address < self._high:
            mapping = mapping_of(data)
            if mapping is None or mapping.name is None:
                return None
            number = self._found.get(mapping.address)
            if number is None:
                place = _place_of(mapping)
                if place is None:
                    return None
                number = self._found[mapping.address] = len(self.places)
                self.places.append(place)
            self._low, self._high, self._last = mapping.address, mapping.address + mapping.size, number
        return self._last, address - self._low

    def buffer(self, data: Bytes) -> tuple[int, int, int]:
        """(place, start, size) of a run of bytes, which is copied into the handle if it lies in no place.

        Raises
        ------
        InvalidArgument
            If it is too large for that.
        ObjectNotFound
            As :meth:`place`.
        """
        size = len(data)
        if not size:
            return INLINE, 0, 0
        found = self.place(data)
        if found is not None:
            return *found, size
        start = len(self.inline)
        if start + size > INLINE_BYTES:
            raise InvalidArgument(
                f"cannot make a handle: {start + size} bytes or more lie in the memory of this process, which others "
                f"cannot map (a handle carries at most {INLINE_BYTES}); put the object in a store, or write it to a "
                "file and read it from there, first"
            )
        self.inline += data.data
        return INLINE, start, size

    def finish(self) -> tuple[tuple[Place, ...], bytes]:
        """The places and the bytes in the handle.

        Raises
        ------
        InvalidArgument
            If nothing at all lies in a place, and there are bytes.
        """
        if self.inline and not self.places:
            raise InvalidArgument(
                f"cannot make a handle: all {counted(len(self.inline), 'byte')} lie in the memory of this process; "
                "put the object in a store, or write it to a file and read it from there, first"
            )
        return tuple(self.places), bytes(self.inline)


def _place_of(mapping: Mapping) -> Place | None:
    """The place of a mapping; None where its name means something to this process only."""
    name, (device, inode, _, _) = mapping.name, mapping.identity
    assert name is not None
    if name.startswith(("/proc/", "/dev/fd/")):
        return None
    try:
        found = os.stat(resolve(name)[1])
    except OSError:
        raise ObjectNotFound(
            errno.ENOENT, f"cannot make a handle: {name!r} was removed after it was mapped here; pass on a copy"
        ) from None
    if (found.st_dev, found.st_ino) != (device, inode):
        raise ObjectNotFound(
            errno.ENOENT, f"cannot make a handle: {name!r} was replaced after it was mapped here; pass on a copy"
        )
    place = Place(
        name,
        device,
        inode,
        found.st_size,
        found.st_mtime_ns,
        *getattr(getattr(mapping._mapped, "pin", None), "place", (-1, "")),
    )
    if found.st_size == mapping.size:
        with _LOCK:
            _ATTACHED.setdefault(place, mapping._mapped)
    return place


def whole(data: NDArray) -> Bytes:
    """All bytes of the mapping that an array lies in."""
    mapping = mapping_of(data)
    assert mapping is not None
    return np.frombuffer(mapping._mapped, U1)


# --- mapping them again -----------------------------------------------------------------------------------------

_ATTACHED: weakref.WeakValueDictionary[Place, Mapped] = weakref.WeakValueDictionary()
"""The mappings that handles were made of or opened with in this process, for as long as they are used."""

_LOCK = fork_safe_lock()


def attach(place: Place, boot: str, host: str) -> Segment:
    """Map a place, or find the mapping that this process has of it.

    Raises
    ------
    StorageError
        If it lies in the memory of another host, or the operating system refuses.
    ObjectNotFound
        If it was removed or replaced.
    InvalidData
        If the place is not one that a handle has.
    """
    _check_place(place)
    if place.in_memory and boot != boot_id():
        raise StorageError(
            errno.EREMOTE,
            f"cannot open the handle: {place.name!r} lies in the shared memory of host {shown(host)} (boot "
            f"{shown(boot)}), and this is host {host_name()!r} (boot {boot_id()!r}); open it there, or pass on a copy",
        )
    with _LOCK:
        mapped = _ATTACHED.get(place)
        if mapped is None:
            segment = _attach(place, boot, host)
            mapping = mapping_of(segment.data)
            if mapping is not None:
                _ATTACHED[place] = mapping._mapped
            return segment
    assert mapped.status is not None
    return Segment(place.name, resolve(place.name)[1], np.frombuffer(mapped, U1), mapped.status)


def _attach(place: Place, boot: str, host: str) -> Segment:
    elsewhere = "" if boot == boot_id() else f"; the handle was made on host {shown(host)}, this is {host_name()!r}"
    name, path = resolve(place.name)
    try:
        segment = _pinned(path, place.slot) or attach_path(name, path, is_shm(name))
    except ObjectNotFound:
        raise ObjectNotFound(
            errno.ENOENT,
            f"cannot open the handle: {place.shown} was removed after the handle was made{elsewhere}; keep an object "
            "until its handles have been opened",
        ) from None
    found = segment.status
    device = place.device if elsewhere else found.st_dev  # file systems have other numbers on other hosts
    if (device, found.st_ino, found.st_size, found.st_mtime_ns) != place[1:5]:
        raise ObjectNotFound(
            errno.ENOENT,
            f"cannot open the handle: {place.shown} was replaced or changed after the handle was made{elsewhere}; make "
            "a new handle",
        )
    return segment


def _pinned(path: str, slot: int) -> Segment | None:
    """An object of a store, attached and pinned; None for others, and where this process may not open the store."""
    if slot < 0:
        return None
    from shmarrow.store.attach import attach_slot  # who gets no object of a store needs none of it

    return attach_slot(path, slot)


def _check_place(place: Any) -> None:
    if (
        not isinstance(place, Place)
        or not isinstance(place.name, str)
        or not (is_shm(place.name) or place.name.startswith("/"))
        or not isinstance(place.object, str)
        or not all(isinstance(number, int) for number in place[1:6])
    ):
        raise InvalidData(f"a damaged handle: expected the place of an object, found {shown(place)}")


class Memory:
    """The memory that a handle refers to; for one :meth:`~shmarrow.interchange.handles.Handle.open`.

    Each place is mapped when something in it is asked for.
    """

    __slots__ = ("_boot", "_host", "_inline", "_places", "_segments")

    def __init__(self, places: Sequence[Place], inline: bytes, boot: str, host: str) -> None:
        if not isinstance(places, tuple) or not isinstance(inline, bytes):
            raise InvalidData(f"a damaged handle: expected places and bytes, found {shown(places)}, {shown(inline)}")
        self._places = places
        self._inline = np.frombuffer(inline, U1) if inline else np.empty(0, U1)
        self._inline.flags.writeable = False
        self._boot = boot
        self._host = host
        self._segments: dict[int, Segment] = {}

    def segment(self, number: Any) -> Segment:
        """The object of a place."""
        if not isinstance(number, int) or not 0 <= number < len(self._places):
            raise InvalidData(f"a damaged handle: no place {shown(number)} among {len(self._places)}")
        found = self._segments.get(number)
        if found is None:
            found = self._segments[number] = attach(self._places[number], self._boot, self._host)
        return found

    def data(self, number: Any) -> Bytes:
        """All bytes of a place, or of the handle itself."""
        return self._inline if isinstance(number, int) and number == INLINE else self.segment(number).data

    def buffer(self, number: int, start: int, size: int) -> Bytes:
        """A run of bytes.

        Raises
        ------
        InvalidData
            If it does not lie within its place.
        """
        data = self.data(number)
        if start < 0 or size < 0 or start > len(data) - size:
            raise InvalidData(
                f"a damaged handle: a buffer needs the bytes [{start}, {start + size}) of {len(data)} in place {number}"
            )
        return data[start : start + size]
