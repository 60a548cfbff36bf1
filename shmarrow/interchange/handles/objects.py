# SPDX-License-Identifier: Apache-2.0
"""The mapped objects behind memory: found in one process, and mapped again in another.

Invariants:

* an object is referred to by its name and the identity of its file. Both are checked when it is mapped, so a handle
  never opens another object
  of the same name, nor one planted by another user;
* a process maps an object once for all handles, and unmaps it with the last array;
* every range is checked against the bounds of its object before a view is made.
"""

from __future__ import annotations

import errno
import weakref
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from shmarrow.buffer import U1, Bytes, NDArray
from shmarrow.errors import InvalidArgument, InvalidData, ObjectNotFound, StorageError, shown
from shmarrow.memory import (
    SHM_DIRECTORY,
    Mapping,
    Segment,
    boot_id,
    fork_safe_lock,
    host_name,
    is_shm,
    mapping_of,
    resolve,
    status_of,
)
from shmarrow.memory import attach as attach_segment
from shmarrow.memory.split import FILE_STRIDE, SplitBody

INLINE_BYTES = 1 << 16
"""The most bytes stored in a handle itself, such as a computed validity bitmap in private memory."""

INLINE = 0
"""The number that stands for the bytes in the handle itself, in place of an object; objects count from 1 on."""


class ObjectRef(NamedTuple):
    """A mapped object.

    Attributes
    ----------
    name : str
        ``shm:NAME``, or an absolute path.
    device, inode : int
        Device and inode of the file.
    size : int
        Size in bytes.
    modified : int
        Modification time in ns since 1970.
    slot : int
        Its slot in the catalog of its store; -1 if it is in no store.
    object : str
        Its name in its store, for messages; empty if it is in no store.
    accept_users : bool or tuple of int
        The users whose stores its process accepts, as for :class:`~shmarrow.Store`.
    """

    name: str
    device: int
    inode: int
    size: int
    modified: int
    slot: int = -1
    object: str = ""
    accept_users: bool | tuple[int, ...] = False

    @property
    def shown(self) -> str:
        """Name for messages."""
        return f"{self.object!r}, {self.name!r}," if self.object else repr(self.name)

    @property
    def in_memory(self) -> bool:
        """Whether the object is in shared memory: only on this host, and lost on reboot."""
        return is_shm(self.name) or self.name.startswith(SHM_DIRECTORY + "/")


# --- locating memory --------------------------------------------------------------------------------------------


class Locator:
    """Finds the objects behind memory for one handle, and collects buffers that are in none.

    Attributes
    ----------
    refs : list of ObjectRef
        The objects found so far.
    inline : bytearray
        The bytes of small buffers that are in no ref.
    """

    __slots__ = ("_found", "_high", "_last", "_low", "inline", "refs")

    def __init__(self) -> None:
        self.refs: list[ObjectRef] = []
        self.inline = bytearray()
        self._found: dict[int, int] = {}  # numbers of objects by the addresses of their mappings
        self._low = self._high = self._last = 0

    def find(self, data: Any) -> int | None:
        """Return the place of an ndarray, see :mod:`shmarrow.memory.split`; None if its memory is in no ref.

        Raises
        ------
        ObjectNotFound
            If the name of the object was removed or replaced.
        """
        address: int = data.__array_interface__["data"][0]
        if not self._low <= address < self._high:
            mapping = mapping_of(data)
            if mapping is None or mapping.location is None:
                return None
            number = self._found.get(mapping.address)
            if number is None:
                ref = _ref_of(mapping)
                if ref is None:
                    return None
                self.refs.append(ref)
                number = self._found[mapping.address] = len(self.refs)
            self._low, self._high, self._last = mapping.address, mapping.address + len(mapping), number
        return self._last * FILE_STRIDE + address - self._low

    def buffer(self, data: Bytes) -> tuple[int, int]:
        """Return place and size of a buffer, which is copied into the handle if it is in no ref.

        Raises
        ------
        InvalidArgument
            If it is too large to copy, or in more files than places can tell.
        ObjectNotFound
            As :meth:`find`.
        """
        size = len(data)
        if not size:
            return 0, 0
        place = self.find(data)
        if place is not None:
            if place >= 1 << 63:
                raise InvalidArgument(f"cannot make a handle: its buffers are in more than {len(self.refs) - 1} files")
            return place, size
        start = len(self.inline)
        if start + size > INLINE_BYTES:
            raise InvalidArgument(
                f"cannot make a handle: at least {start + size} bytes are in private memory of this process (a handle "
                f"holds at most {INLINE_BYTES}); put the object in a store, or write it to a file and read it from "
                "there, first"
            )
        self.inline += data.data
        return start, size

    def finish(self) -> tuple[tuple[ObjectRef, ...], bytes]:
        """Return the objects and the inline bytes."""
        return tuple(self.refs), bytes(self.inline)


def _ref_of(mapping: Mapping) -> ObjectRef | None:
    """Return a reference to a mapped object; None if its name is valid in this process only."""
    name, (device, inode, _, _) = mapping.location, mapping.identity
    assert name is not None
    if name.startswith(("/proc/", "/dev/fd/")):
        return None
    try:
        status = status_of(name)
    except OSError:
        raise ObjectNotFound(
            errno.ENOENT, f"cannot make a handle: {name!r} was removed after it was mapped here; pass on a copy"
        ) from None
    if (status.st_dev, status.st_ino) != (device, inode):
        raise ObjectNotFound(
            errno.ENOENT, f"cannot make a handle: {name!r} was replaced after it was mapped here; pass on a copy"
        )
    ref = ObjectRef(
        name,
        device,
        inode,
        status.st_size,
        status.st_mtime_ns,
        *getattr(mapping.pin, "place", ()),
    )
    if status.st_size == len(mapping):
        with _LOCK:
            _ATTACHED.setdefault(ref, mapping)
    return ref


def whole(data: NDArray) -> Bytes:
    """Return all bytes of the mapping behind an array."""
    mapping = mapping_of(data)
    assert mapping is not None
    return mapping.data


# --- mapping them again -----------------------------------------------------------------------------------------

_ATTACHED: weakref.WeakValueDictionary[ObjectRef, Mapping] = weakref.WeakValueDictionary()
"""The live mappings in this process that handles were made from or opened with."""

_LOCK = fork_safe_lock()


def attach(ref: ObjectRef, boot: str, host: str) -> Segment:
    """Map a ref, reusing this process's mapping of it if any.

    Raises
    ------
    StorageError
        If it is in the memory of another host, or the operating system refuses.
    ObjectNotFound
        If it was removed or replaced.
    InvalidData
        If it is not a valid ref.
    """
    _check_ref(ref)
    if ref.in_memory and boot != boot_id():
        raise StorageError(
            errno.EREMOTE,
            f"cannot open the handle: {ref.name!r} is in the shared memory of host {shown(host)} (boot "
            f"{shown(boot)}), and this is host {host_name()!r} (boot {boot_id()!r}); open it there, or pass on a copy",
        )
    with _LOCK:
        mapped = _ATTACHED.get(ref)
        if mapped is None or getattr(mapped.pin, "inherited", False):  # a pin of the parent's does not hold it here
            segment = _attach(ref, boot, host)
            mapping = mapping_of(segment.data)
            if mapping is not None:
                _ATTACHED[ref] = mapping
            return segment
    assert mapped.status is not None
    return Segment(ref.name, resolve(ref.name)[1], mapped.data, mapped.status)


def _attach(ref: ObjectRef, boot: str, host: str) -> Segment:
    elsewhere = "" if boot == boot_id() else f"; the handle was made on host {shown(host)}, this is {host_name()!r}"
    try:
        segment = _pinned(ref) or attach_segment(ref.name)
    except ObjectNotFound:
        raise ObjectNotFound(
            errno.ENOENT,
            f"cannot open the handle: {ref.shown} was removed after the handle was made{elsewhere}; keep an object "
            "until its handles have been opened",
        ) from None
    status = segment.status
    device = ref.device if elsewhere else status.st_dev  # device numbers differ between hosts
    if (device, status.st_ino, status.st_size, status.st_mtime_ns) != ref[1:5]:
        raise ObjectNotFound(
            errno.ENOENT,
            f"cannot open the handle: {ref.shown} was replaced or changed after the handle was made{elsewhere}; make "
            "a new handle",
        )
    return segment


def _pinned(ref: ObjectRef) -> Segment | None:
    """Attach and pin an object of a store; None if it is in no store, or this process may not open the store."""
    from shmarrow.store.attach import attach_slot

    return None if ref.slot < 0 else attach_slot(resolve(ref.name)[1], ref.slot, ref.accept_users)


def _check_ref(ref: object) -> None:
    if (
        not isinstance(ref, ObjectRef)
        or not isinstance(ref.name, str)
        or not (is_shm(ref.name) or ref.name.startswith("/"))
        or not isinstance(ref.object, str)
        or not isinstance(ref.accept_users, (bool, tuple))
        or not all(isinstance(number, int) for number in ref[1:6])
    ):
        raise InvalidData(f"a damaged handle: expected the ref of an object, found {shown(ref)}")


class HandleObjects:
    """The memory of a handle, for one :meth:`~shmarrow.interchange.handles.Handle.open`; mapped on first use."""

    __slots__ = ("_boot", "_host", "_own", "_refs", "_segments")

    def __init__(self, refs: Sequence[ObjectRef], inline: bytes, boot: str, host: str) -> None:
        if not isinstance(refs, tuple) or not isinstance(inline, bytes):
            raise InvalidData(f"a damaged handle: expected refs and bytes, found {shown(refs)}, {shown(inline)}")
        self._refs = refs
        self._own = np.frombuffer(inline, U1) if inline else np.empty(0, U1)
        self._own.flags.writeable = False
        self._boot = boot
        self._host = host
        self._segments: dict[int, Segment] = {}

    @property
    def body(self) -> SplitBody:
        """The bytes in the handle itself, and those of the objects; kept here, it would be a cycle of references."""
        return SplitBody(self._own, self)

    @property
    def count(self) -> int:
        """The number of objects."""
        return len(self._refs)

    def segment(self, number: object) -> Segment:
        """Return the attached object of a ref."""
        if not isinstance(number, int) or not 0 < number <= len(self._refs):
            raise InvalidData(f"a damaged handle: no object {shown(number)} among {len(self._refs)}")
        segment = self._segments.get(number)
        if segment is None:
            segment = self._segments[number] = attach(self._refs[number - 1], self._boot, self._host)
        return segment

    def data(self, number: object) -> Bytes:
        """Return all bytes of a ref, or the inline bytes."""
        return self._own if isinstance(number, int) and number == INLINE else self.segment(number).data
