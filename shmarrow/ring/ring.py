# SPDX-License-Identifier: Apache-2.0
"""Rings: one writer passes frames of one shape to many readers, in place.

Invariants:

* a frame is published by one word, written when the frame and its slot's number are complete;
* the writer marks a slot as being written, then looks whether a reader holds it; a reader marks a slot as held, then
  looks whether it still has its frame. With a fence in between on either side, one of them sees the other, and lets go;
* what is done with a lock of the file, or in an entry, is a step: see :meth:`Ring._do`. Nobody waits in a step. A
  signal handler that interrupts one may close the Ring, which is done after the step; anything else is refused;
* a reader holds one slot at most, from a step to the next. With one slot more than readers, one is always free;
* the marks of a process that was killed do not count, as its lock is free.
"""

from __future__ import annotations

import _thread
import errno
import math
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, suppress
from functools import partial
from itertools import compress
from typing import Any, NamedTuple, Self, TypeVar

from shmarrow.errors import (
    Closed,
    InvalidArgument,
    InvalidData,
    InvalidType,
    LimitExceeded,
    ObjectNotFound,
    TimedOut,
    counted,
    full_name,
    shown,
)
from shmarrow.habits import Hinted
from shmarrow.memory import Location, Wait
from shmarrow.memory.locks import ORDERED
from shmarrow.ring import protocol as p
from shmarrow.ring.file import RingFile, Trusted, open_file, open_for_writing
from shmarrow.ring.frames import FrameReader, Slot, frames_like
from shmarrow.ring.protocol import CLOSED, HELD, MISSED, NEWEST, SEQUENCES, TAKEN, WAITS
from shmarrow.store.arguments import as_timeout
from shmarrow.store.directory import Users, as_users

T = TypeVar("T")
_POLICIES = {number: name for name, number in p.POLICIES.items()}
_LARGEST = (1 << 64) - 1
_ENDED: Any = object()
"""Stands for the frame after the last one."""
_OPENING, _RECHECK = 0.005, 0.1
"""Seconds between two checks whether a ring has been created, and of a process that waits and is not woken."""


class ReaderInfo(NamedTuple):
    """A reader of a ring.

    Attributes
    ----------
    process : int
        Its process id.
    position : int
        The number of the last frame that it took, or after which it was opened.
    missed : int
        Frames that it missed so far.
    holds : bool
        Whether it holds a slot.
    """

    process: int
    position: int
    missed: int
    holds: bool


class RingInfo(NamedTuple):
    """The state of a ring; returned by :meth:`Ring.info`.

    Attributes
    ----------
    name : str
        Its location.
    kind : str
        ``"record batch"``, ``"tensor"`` or ``"ndarray"``.
    policy : str
        ``"latest"`` or ``"all"``.
    slots : int
        The number of slots.
    nbytes : int
        Size of the ring in bytes.
    frames : int
        Frames published so far; the number of the newest one.
    writer : int or None
        Process id of the writer; None if it has ended.
    readers : list of ReaderInfo
        The readers that are alive and open; each gets the frames that are published from now on.
    """

    name: str
    kind: str
    policy: str
    slots: int
    nbytes: int
    frames: int
    writer: int | None
    readers: list[ReaderInfo]


class Ring(Hinted):
    """Frames of one shape in shared memory: the newest slots of a stream, passed from one writer to many readers.

    With ``like``, the writer: it creates the ring, or continues one whose writer was killed. Without, a reader, which
    waits until the ring exists, and iterates over the frames that are published after that. ``for`` and ``async for``
    both work.

    Parameters
    ----------
    where : str or PathLike
        ``shm:NAME``, or a path.
    like : RecordBatch, Tensor or ndarray, optional
        A frame. Batches of the ring have its schema, at most as many rows, and in each buffer at most as many bytes:
        text, lists and other types of variable size can be as long in total as in ``like``. Tensors and ndarrays have
        its shape and element type, and stay what ``like`` is. Data frames, batches and tensors of other libraries are
        accepted, too.
    slots : int
        The number of slots, from 2 to 64; 4 by default. A ring has at most 32 readers, and with the policy ``"latest"``
        at most one less than slots, so that a slot is always free; with two less, the newest frame can be read while
        the next is written.
    policy : str
        ``"latest"``, the default: the writer never waits, and a reader that falls behind continues with the newest
        frame. ``"all"``: the writer waits for the slowest living reader. A reader may pass what it expects.
    timeout : float, optional
        Seconds to wait for the ring to be created, for each frame, or with ``"all"`` for a slot; None waits forever.
    mode : int
        Permission bits of a new ring. Readers need write permission, as they note their positions.
    accept_users : bool, int, str, or several of these
        Users, besides this one and root, who may own the ring: they could change frames while they are read. True
        trusts anyone.

    Raises
    ------
    ObjectExists
        If the ring has a writer that is alive.
    ObjectNotFound
        If a reader's timeout expires before the ring is created.
    InvalidArgument
        If the ring has another policy than a reader expects, or arguments contradict each other.
    LimitExceeded
        If the ring has as many readers as it can have.
    Unsupported
        If ``like`` has dictionary-encoded columns or views.
    InvalidData
        If the file is not a ring, or is damaged.
    StoreFull
        If there is no space.

    Notes
    -----
    A batch is valid until the next step of its reader, whose slot it is in: then it raises :class:`Closed` when a
    column is accessed, and arrays and ndarrays of it show later frames. Handed to other libraries, values are checked
    as those of a file.

    Pickled, any Ring becomes a reader of the same ring. A forked child cannot use the Ring of its parent.

    Thread safety: one thread at a time; any thread may close it.

    Examples
    --------
    >>> import numpy as np, shmarrow as sa
    >>> frame = sa.record_batch({"image": np.zeros((1, 4), "f4")})
    >>> with sa.Ring("camera.ring", like=frame) as ring, sa.Ring("camera.ring", timeout=5) as reader:
    ...     with ring.write() as slot:
    ...         slot["image"].to_numpy()[:] = 7
    ...     ring.close()
    ...     [batch["image"].to_pylist() for batch in reader]
    [[[7.0, 7.0, 7.0, 7.0]]]
    """

    _kind = "ring"

    _closed = True

    def __init__(
        self,
        where: Location,
        *,
        like: Any = None,
        slots: int | None = None,
        policy: str | None = None,
        timeout: float | None = None,
        mode: int = 0o600,
        accept_users: Users = False,
    ) -> None:
        self._lock = _thread.RLock()  # as it knows its owner
        self._writing = False
        self._spare: int | None = None
        """The slot for the next frame, if the writer has taken one."""
        self._timeout = as_timeout(timeout)
        self._limit = math.inf if self._timeout is None else self._timeout
        self._accept_users = as_users(accept_users)
        if policy is not None and policy not in p.POLICIES:
            raise InvalidArgument(f"policy must be one of {list(p.POLICIES)}, found {shown(policy)}")
        if like is None and slots is not None:
            raise InvalidArgument("slots is for the writer of a ring, which also passes like")
        slots = 4 if slots is None else slots
        if not isinstance(slots, int) or not 2 <= slots <= p.MOST_SLOTS:
            raise InvalidArgument(f"slots must be a number from 2 to {p.MOST_SLOTS}, found {shown(slots)}")
        self._entry = 0
        """The first word of the entry of this reader; 0 for the writer."""
        if like is not None:
            number = p.POLICIES[policy or "latest"]
            self._frames: Any = frames_like(like)
            file = open_for_writing(where, self._frames, slots, number, mode, self._accept_users)
        else:
            file = _wait_for(where, self._limit, self._accept_users)
        self.name = file.name
        self._file = file
        self._words = file.words
        self._count = file.geometry.slots
        self._all = file.geometry.policy == p.ALL
        self._policy = _POLICIES[file.geometry.policy]
        try:
            if like is None:
                self._begin_reading(policy)
        except BaseException:
            file.close()
            raise
        self._closed = False

    def _begin_reading(self, policy: str | None) -> None:
        file = self._file
        if policy is not None and policy != self._policy:
            raise InvalidArgument(
                f"the ring {file.name!r} has the policy {self._policy!r}, which its writer gave; expected {policy!r}"
            )
        what = f"the ring {file.name!r}"
        self._open = FrameReader(file.geometry.kind, file.head, what)
        self._entry = file.claim()
        if not self._entry:
            most = counted(file.geometry.entries, "reader")
            text = f"{what} of {self._count} slots has {most}, its maximum"
            raise LimitExceeded(text, hint="make it with more slots")
        self._held = self._entry + HELD
        self._taken: int = self._words[self._entry + TAKEN]
        self._current: Any = None

    # --- the writer ---

    def write(self, num_rows: int | None = None) -> AbstractContextManager[Any]:
        """Fill the next frame in place; it is published at the end of the block, and not if that raises.

        Parameters
        ----------
        num_rows : int, optional
            The number of rows of a batch; by default as many as ``like`` had.

        Returns
        -------
        context manager of a Slot or an ndarray
            The frame: see :class:`~shmarrow.ring.Slot` for batches; a writable ndarray for tensors. Each column has to
            be taken or assigned. What is written to its memory after the block changes other frames.

        Raises
        ------
        TimedOut
            If the policy is ``"all"``, and a reader holds the next slot for too long.
        InvalidArgument
            If another frame is being written.
        InvalidType
            If ``num_rows`` is no number, but a frame, say, which :meth:`put` takes.
        Closed
            After :meth:`close`.
        """
        self._check(writes=True)
        if num_rows is not None and not hasattr(num_rows, "__index__"):
            raise InvalidType(
                f"the number of rows must be an int, found {full_name(num_rows)}",
                hint="ring.put(frame) copies a frame; `with ring.write() as slot:` fills one in place",
            )
        return _Writing(self, num_rows)

    def put(self, frame: Any) -> None:
        """Copy a frame into the next slot and publish it.

        Parameters
        ----------
        frame : RecordBatch, Tensor or ndarray
            A frame as ``like``; of other libraries, too. Columns are cast to the types of ``like``, exactly. Custom
            metadata are not passed on.

        Raises
        ------
        LimitExceeded
            If it does not fit; nothing is written.
        InvalidType, InvalidData
            If it has other columns, another shape or element type, or values that the types of ``like`` cannot hold.
        TimedOut, InvalidArgument, Closed
            As for :meth:`write`.
        """
        if self._entry or self._closed:
            self._check(writes=True)
        values = self._frames.prepare(frame)
        slot = self._begin()
        try:
            self._frames.put(slot, self._file.slots[slot], values)
            self._do(self._publish, slot)
        finally:
            self._writing = False

    def _begin(self) -> int:
        """Take a slot for a frame, which no reader gets from now on; the caller sets ``_writing`` to False at last."""
        if self._writing:  # a second one would be in the same slot
            raise InvalidArgument(f"another frame of the ring {self.name!r} is being written: publish that one first")
        if self._closed or self._file.locks.fd < 0:
            self._check()
        self._writing = True
        slot, self._spare = self._spare, None
        if slot is not None:
            return slot
        try:
            return self._awaited(self._free_slot, p.WRITER_WAITS)
        except BaseException:
            self._writing = False
            raise

    def _free_slot(self) -> int | None:
        """Take the next slot after the newest frame's that no reader needs; None if there is none yet.

        With the policy ``"all"``, that is the one after it or none, so frame ``n + 1`` follows frame ``n``.
        """
        count = self._count
        while True:
            newest = self._words[NEWEST]
            for step in range(1, 2 if self._all else count + 1):  # the newest frame last: readers may want it
                if self._take_slot((newest + step) % count):
                    return (newest + step) % count
            if self._all and self._asked(p.WRITER_WAITS):
                return None

    def _take_slot(self, slot: int) -> bool:
        """Take a slot for the writer, so that no reader gets the frame in it; whether no reader needs it."""
        if self._is_needed(slot):
            return False
        file = self._file
        number, file.sequences[slot] = file.sequences[slot], 0
        file.locks.fence()
        if not self._is_needed(slot):
            return True
        file.sequences[slot] = number
        return False

    def _is_needed(self, slot: int) -> bool:
        """Whether a living reader holds a slot, or with the policy ``"all"`` has yet to take the frame in it."""
        file, held = self._file, self._file.columns[HELD].tolist()
        needing = [i for i, mark in enumerate(held) if mark == slot + 1] if slot + 1 in held else []
        if self._all:
            oldest = self._words[NEWEST] // self._count - self._count + 1  # the frame in the slot after the newest's
            readers = zip(file.columns[p.PROCESS].tolist(), file.columns[TAKEN].tolist(), strict=True)
            needing += [i for i, (process, taken) in enumerate(readers) if process and taken < oldest]
        return bool(needing) and any(file.locks.is_locked(p.READER_LOCKS + i) for i in needing)

    def _publish(self, slot: int) -> None:
        """Publish the frame in a slot, and then look for the slot of the next one, while nobody waits for it."""
        words, file = self._words, self._file
        number = words[NEWEST] // self._count + 1
        newest = number * self._count + slot
        if newest > _LARGEST:
            raise InvalidData(f"the ring {self.name!r} is damaged: it has {number - 1} frames")
        file.sequences[slot] = number
        if not ORDERED:
            file.locks.fence()
        words[NEWEST] = newest
        for entry in compress(file.entries, file.columns[WAITS].tolist()):
            file.futexes.wake(entry + WAITS)
        following = (slot + 1) % self._count
        self._spare = following if self._take_slot(following) else None

    # --- readers ---

    @property
    def missed(self) -> int:
        """The number of frames that this reader has missed so far."""
        self._check(writes=False)
        return self._words[self._entry + MISSED]

    @property
    def position(self) -> int:
        """The number of the frame that this reader took last, or after which it was opened; frames count from 1."""
        self._check(writes=False)
        return self._taken

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> Any:
        """Return the next frame: a RecordBatch or a Tensor, over its slot.

        Raises
        ------
        StopIteration
            After the last frame, once the writer has closed the ring.
        TimedOut
            If none comes.
        InvalidData
            If the message in the slot is invalid.
        """
        frame = self._awaited(self._take, self._entry + WAITS)
        if frame is _ENDED:
            raise StopIteration
        return frame

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Any:
        import asyncio

        wait = Wait(self._timeout)
        while (frame := self._do(self._take)) is None:
            await asyncio.to_thread(self._sleep(wait, self._entry + WAITS))
        if frame is _ENDED:
            raise StopAsyncIteration
        return frame

    def _take(self) -> Any:
        """Release the current frame and take the next one; None if it is not there yet, ``_ENDED`` if none comes."""
        if not self._entry:
            self._check(writes=False)
        words, held, taken = self._words, self._held, self._taken
        if words[held]:
            self._release()
        while True:
            closed = words[CLOSED]  # before it looks for a frame, as the last one may come now
            word = words[NEWEST]
            number, slot = word // self._count, word % self._count
            if number > taken:
                if self._all and number > taken + 1:
                    slot = (slot - (number - taken - 1)) % self._count  # they follow each other
                    number = taken + 1
                words[held] = slot + 1
                self._file.locks.fence()
                if words[SEQUENCES + slot] == number:
                    break
                words[held] = 0
                if self._all:
                    raise InvalidData(f"the ring {self.name!r} is damaged: frame {number} is not in slot {slot}")
                if words[NEWEST] != word:
                    continue  # else the writer had no other slot for the next frame
            if closed:
                return _ENDED
            if self._asked(self._entry + WAITS):
                return None
        if number > taken + 1:
            words[self._entry + MISSED] = words[self._entry + MISSED] + number - taken - 1 & _LARGEST
        self._taken = words[self._entry + TAKEN] = number
        self._current = self._open(self._file.slots[slot], slot)
        return self._current

    def _release(self) -> None:
        """Give up the slot of the current frame."""
        current, self._current = self._current, None
        held = self._words[self._held]
        if held:
            if current is not None:
                self._open.release(current, held - 1)
            self._words[self._held] = 0
            if self._all:
                self._file.futexes.wake(p.WRITER_WAITS)

    # --- both ---

    def _do(self, step: Callable[..., T], *arguments: Any) -> T:
        """Do a step: before or after all others, and before or after :meth:`close`, whichever thread calls it.

        Raises
        ------
        InvalidArgument
            If this thread is in the middle of a step, which a signal handler has interrupted.
        Closed
            After :meth:`close`.
        """
        lock = self._lock
        if self._closed or self._file.locks.fd < 0:  # in a forked child, the parent may have been in a step
            self._check()
        if lock._is_owned():  # type: ignore[attr-defined]
            raise InvalidArgument(
                f"in the middle of a step of the ring {self.name!r}, a signal handler may only close it"
            )
        try:
            with lock:
                if self._closed or self._file.locks.fd < 0:
                    self._check()
                return step(*arguments)
        finally:
            if self._closed:
                self._end()

    def _awaited(self, step: Callable[[], T | None], place: int) -> T:
        """Do a step until it gives something; between, sleep at the place at which it has asked to be woken.

        Little is left to do after a sleep: a process that wakes up has lost its caches.

        Raises
        ------
        TimedOut
            If the time is over.
        """
        wait = None
        while (found := self._do(step)) is None:
            wait = wait or Wait(self._timeout)
            self._sleep(wait, place)()
        return found

    def _sleep(self, wait: Wait, place: int) -> Callable[[], object]:
        """Return a call that sleeps until the word of a place is 0, or for a while; TimedOut if the time is over."""
        sleep = wait.sleep(self._file.futexes, place, _RECHECK)
        if sleep is None:
            raise self._do(self._timed_out)
        return sleep

    def _asked(self, place: int) -> bool:
        """Ask to be woken at a place; whether that was done before this process looked for the last time."""
        if self._words[place]:
            return True
        self._words[place] = 1
        self._file.locks.fence()
        return False

    def _timed_out(self) -> TimedOut:
        state = state_of(self._file)
        if self._entry:
            writer = "its writer has ended" if state.writer is None else f"its writer is process {state.writer}"
            text = f"no frame after {state.frames} in the ring {state.name!r} for {self._limit:g} s; {writer}"
        else:
            slowest = min(state.readers, key=lambda each: each.position, default=None)
            who = f"process {slowest.process} has taken frame {slowest.position} of {state.frames}" if slowest else "?"
            text = f"no slot of the ring {state.name!r} was free for {self._limit:g} s: {who}"
        return TimedOut(errno.ETIMEDOUT, text)

    @property
    def policy(self) -> str:
        """``"latest"`` or ``"all"``."""
        self._check()
        return self._policy

    def info(self) -> RingInfo:
        """Return the state of the ring."""
        return self._do(state_of, self._file)

    @property
    def closed(self) -> bool:
        """Whether :meth:`close` was called."""
        return self._closed

    def close(self) -> None:
        """Close the Ring; again without effect.

        The writer ends the iteration of every reader after the newest frame, and removes the name. A reader gives up
        its slot.

        Raises
        ------
        StorageError
            If the name cannot be removed; the Ring is closed.
        """
        closed, self._closed = self._closed, True
        if closed or self._file.locks.fd < 0 or self._lock._is_owned():  # type: ignore[attr-defined]
            return  # a signal handler has interrupted a step, after which it is done
        self._end()

    def _end(self) -> None:
        """Close the file, after the last step."""
        file, entry = self._file, self._entry
        with self._lock:
            if file.locks.fd < 0:
                return
            try:
                if entry:
                    self._release()
                    self._words[entry + p.PROCESS] = 0
                    file.futexes.wake(entry + WAITS)  # another thread may wait
                else:
                    file.end()
                if self._all:
                    file.futexes.wake(p.WRITER_WAITS)
            finally:
                file.close()

    def _check(self, writes: bool | None = None) -> None:
        """Raise Closed, or InvalidArgument unless this is the writer, or a reader."""
        if self._closed:
            raise Closed("the Ring is closed; open another one")
        if self._file.locks.fd < 0:
            raise Closed(f"the ring {self.name!r} was opened by a parent of this process; open it again")
        if writes is True and self._entry:
            raise InvalidArgument("this Ring reads; the writer passes like")
        if writes is False and not self._entry:
            raise InvalidArgument("this Ring writes; pickle it, or open another one without like, to read")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __del__(self) -> None:
        with suppress(Exception):  # modules may be gone at the end of the interpreter
            self.close()

    def __reduce__(self) -> tuple[Any, ...]:
        self._check()
        return partial(Ring, timeout=self._timeout, accept_users=self._accept_users), (self._file.location,)

    def __repr__(self) -> str:
        state = "closed" if self._closed else "reader" if self._entry else "writer"
        return f"<Ring {getattr(self, 'name', '')!r}, {state}>"


class _Writing:
    """A frame being filled; a context manager that publishes it. A class, as generators cost more than a frame."""

    __slots__ = ("_frame", "_ring", "_rows", "_slot")

    def __init__(self, ring: Ring, rows: int | None) -> None:
        self._ring = ring
        self._rows = rows

    def __enter__(self) -> Any:
        ring = self._ring
        slot = self._slot = ring._begin()
        try:
            self._frame = ring._frames.fill(slot, ring._file.slots[slot], self._rows)
        except BaseException:
            ring._writing = False
            raise
        return self._frame

    def __exit__(self, kind: object, *_: object) -> None:
        ring = self._ring
        try:
            if kind is None:
                if self._frame.__class__ is Slot:
                    self._frame.close()
                ring._do(ring._publish, self._slot)
        finally:
            ring._writing = False


def _wait_for(where: Location, limit: float, trusted: Trusted) -> RingFile:
    """Open a ring for a reader, once it exists."""
    began = time.monotonic()
    while True:
        left = limit - (time.monotonic() - began)
        try:
            ring = open_file(where, False, trusted)
            if not ring.words[CLOSED]:
                return ring
            ring.close()
            raise ObjectNotFound(errno.ENOENT, f"the ring {where!r} was closed by its writer")
        except ObjectNotFound:  # not kept: its traceback would keep the Ring that waits
            if left <= 0:
                raise
        time.sleep(min(left, _OPENING))


def state_of(file: RingFile) -> RingInfo:
    """The state of an open ring."""
    words = file.words
    fields = p.PROCESS, p.OPEN, TAKEN, MISSED, HELD  # in the order of claim()
    columns = [file.columns[field].tolist() for field in fields]
    readers = [
        ReaderInfo(process, position, missed, holds > 0)
        for number, (process, is_open, position, missed, holds) in enumerate(zip(*columns, strict=True))
        if process and is_open and file.locks.is_locked(p.READER_LOCKS + number)
    ]
    writer = words[p.WRITER]
    alive = not words[CLOSED] and file.locks.is_locked(p.WRITER_LOCK)
    geometry = file.geometry
    kind, policy = p.KINDS[geometry.kind], _POLICIES[geometry.policy]
    return RingInfo(
        file.name, kind, policy, geometry.slots, geometry.size, file.newest, writer if alive else None, readers
    )


def ring_info(where: Location, accept_users: Users = False) -> RingInfo:
    """Return the state of a ring, without being one of its readers. Errors are those of :class:`Ring`."""
    file = open_file(where, None, as_users(accept_users))
    try:
        return state_of(file)
    finally:
        file.close()
