"""Rings: one writer passes frames of one shape to many readers, in place.

Invariants:

* a frame is published by one word, written when the frame and its slot's number are complete;
* the writer marks a slot as being written, then looks whether a reader holds it; a reader marks a slot as held, then
  looks whether it still has its frame. With a fence in between on either side, one of them sees the other, and lets go;
* a reader holds one slot at most, from a step to the next. With one slot more than readers, one is always free;
* what a process that was killed has marked is undone by who finds its lock free.
"""

from __future__ import annotations

import errno
import math
import os
import time
from contextlib import AbstractContextManager, suppress
from typing import Any, NamedTuple, NoReturn, Self

from shmarrow.errors import (
    Closed,
    InvalidArgument,
    InvalidData,
    LimitExceeded,
    ObjectNotFound,
    TimedOut,
    counted,
    shown,
)
from shmarrow.ring import protocol as p
from shmarrow.ring.file import RingFile, Trusted, open_file, open_for_writing
from shmarrow.ring.frames import READERS, Slot, frames_like
from shmarrow.ring.protocol import CLOSED, NEWEST, SEQUENCES
from shmarrow.segment.location import Location
from shmarrow.store.arguments import as_timeout
from shmarrow.store.directory import Trust, as_trust

_POLICIES = {number: name for name, number in p.POLICIES.items()}
_OPENING = 0.005
"""Seconds between two checks whether a ring has been created."""


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
        ``"record batch"`` or ``"tensor"``.
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
        The readers that are alive.
    """

    name: str
    kind: str
    policy: str
    slots: int
    nbytes: int
    frames: int
    writer: int | None
    readers: list[ReaderInfo]


class Ring:
    """Frames of one shape in shared memory: the newest slots of a stream, passed from one writer to many readers.

    With ``like``, the writer: it creates the ring, or continues one whose writer was killed. Without, a reader, which
    waits until the ring exists, and iterates over the frames that are published after that. ``for`` and ``async for``
    both work.

    Parameters
    ----------
    where : str or PathLike
        ``shm:NAME``, or a path.
    like : RecordBatch or Tensor, optional
        A frame. Batches of the ring have its schema, at most as many rows, and in each buffer at most as many bytes:
        text, lists and other types of variable size can be as long in total as in ``like``. Tensors have its shape and
        element type. Batches of other libraries and ndarrays are accepted, too.
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
    trust : bool, int, str, or several of these
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

    _end: _Writer | _Reader | None = None

    def __init__(
        self,
        where: Location,
        *,
        like: Any = None,
        slots: int | None = None,
        policy: str | None = None,
        timeout: float | None = None,
        mode: int = 0o600,
        trust: Trust = False,
    ) -> None:
        self._timeout = as_timeout(timeout)
        self._trust = as_trust(trust)
        if policy is not None and policy not in p.POLICIES:
            raise InvalidArgument(f"policy must be one of {list(p.POLICIES)}, found {shown(policy)}")
        if like is None:
            if slots is not None:
                raise InvalidArgument("slots is for the writer of a ring, which also passes like")
            self._end = _Reader(where, policy, self._timeout, self._trust)
        else:
            slots = 4 if slots is None else slots
            if not isinstance(slots, int) or not 2 <= slots <= p.MOST_SLOTS:
                raise InvalidArgument(f"slots must be a number from 2 to {p.MOST_SLOTS}, found {shown(slots)}")
            number = p.POLICIES[policy or "latest"]
            self._end = _Writer(where, frames_like(like), slots, number, self._timeout, mode, self._trust)
        self.name = self._end.file.name

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
        Closed
            After :meth:`close`.
        """
        return _Writing(self._writer(), num_rows)

    def put(self, frame: Any) -> None:
        """Copy a frame into the next slot and publish it.

        Parameters
        ----------
        frame : RecordBatch or Tensor
            A frame as ``like``; of other libraries, too. Its custom metadata are not passed on.

        Raises
        ------
        LimitExceeded
            If it does not fit; nothing is written.
        InvalidType
            If it has another schema, shape or element type.
        TimedOut, Closed
            As for :meth:`write`.
        """
        writer = self._writer()
        copy = writer.frames.prepare(frame)
        slot = writer.begin()
        copy(slot, writer.file.slots[slot])
        writer.publish(slot)

    def _writer(self) -> _Writer:
        end = self._opened()
        if not isinstance(end, _Writer):
            raise InvalidArgument("this Ring reads; the writer passes like")
        return end

    # --- readers ---

    @property
    def missed(self) -> int:
        """The number of frames that this reader has missed so far."""
        end = self._reader()
        return end.file.control.words[end.entry + p.MISSED]  # type: ignore[no-any-return]

    @property
    def position(self) -> int:
        """The number of the frame that this reader took last, or after which it was opened; frames count from 1."""
        return self._reader().taken

    def _reader(self) -> _Reader:
        end = self._opened()
        if not isinstance(end, _Reader):
            raise InvalidArgument("this Ring writes; pickle it, or open another one without like, to read")
        return end

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
        found = self._reader().next()
        if found is None:
            raise StopIteration
        return found

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Any:
        import asyncio

        reader = self._reader()
        began = time.monotonic()
        while True:
            ended = reader.is_closed()
            found = reader.step()
            if found is not None:
                return found
            if ended:
                raise StopAsyncIteration
            await asyncio.to_thread(reader.pause, began)

    # --- both ---

    @property
    def policy(self) -> str:
        """``"latest"`` or ``"all"``."""
        return _POLICIES[self._opened().file.geometry.policy]

    def info(self) -> RingInfo:
        """Return the state of the ring."""
        return state_of(self._opened().file)

    @property
    def closed(self) -> bool:
        """Whether :meth:`close` was called."""
        return self._end is None

    def close(self) -> None:
        """Close the Ring; again without effect.

        The writer ends the iteration of every reader after the newest frame, and removes the name. A reader gives up
        its slot.
        """
        end, self._end = self._end, None
        if end is not None and end.file.control.fd >= 0:
            end.close()
            end.file.close()

    def _opened(self) -> _Writer | _Reader:
        end = self._end
        if end is None:
            raise Closed("the Ring is closed; open another one")
        if end.file.control.fd < 0:
            raise Closed(f"the ring {self.name!r} was opened by a parent of this process; open it again")
        return end

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __del__(self) -> None:
        with suppress(Exception):  # modules may be gone at the end of the interpreter
            self.close()

    def __reduce__(self) -> tuple[Any, ...]:
        file = self._opened().file
        return _reopen, (file.location, self._timeout, self._trust)

    def __repr__(self) -> str:
        state = "closed" if self._end is None else type(self._end).__name__.strip("_").lower()
        return f"<Ring {getattr(self, 'name', '')!r}, {state}>"


def _reopen(where: str, timeout: float | None, trust: Trusted) -> Ring:
    return Ring(where, timeout=timeout, trust=trust)


class _Writing:
    """A frame being filled; a context manager that publishes it. A class, as generators cost more than a frame."""

    __slots__ = ("_frame", "_rows", "_slot", "_writer")

    def __init__(self, writer: _Writer, rows: int | None) -> None:
        self._writer = writer
        self._rows = rows

    def __enter__(self) -> Any:
        writer = self._writer
        slot = self._slot = writer.begin()
        frame = self._frame = writer.frames.fill(slot, writer.file.slots[slot], self._rows)
        return frame

    def __exit__(self, kind: object, *_: object) -> None:
        if kind is None:
            if self._frame.__class__ is Slot:
                self._frame.close()
            self._writer.publish(self._slot)


class _Writer:
    """The writer's end of a ring."""

    def __init__(
        self, where: Location, frames: Any, slots: int, policy: int, timeout: float | None, mode: int, trusted: Trusted
    ) -> None:
        self.frames = frames
        self.file = open_for_writing(where, frames, slots, policy, mode, trusted)
        self._all = policy == p.ALL
        self._timeout = math.inf if timeout is None else timeout
        self._words = self.file.control.words
        self._waits = self.file.control.columns[p.WAITS]
        self._count = slots
        if self._all:
            self.file.drop_semaphore(p.WRITER_SEMAPHORE)
            self.file.make_semaphore(p.WRITER_SEMAPHORE)

    def begin(self) -> int:
        """Take a free slot, which no reader gets from now on."""
        found = self._free_slot()
        began = time.monotonic() if found is None else 0.0
        while found is None:
            waited = time.monotonic() - began
            if waited >= self._timeout:
                self._too_slow()
            left = self._timeout - waited
            self.file.pause(p.WRITER_WAITS, p.WRITER_SEMAPHORE, left, waited, self._is_ready)
            found = self._free_slot()
        return found

    def _is_ready(self) -> bool:
        sequences = self.file.control.sequences()
        oldest = min(sequences)
        return not self._is_needed(sequences.index(oldest), oldest)

    def _free_slot(self) -> int | None:
        """Take the slot of the oldest frame that no reader needs; None if there is none yet."""
        control = self.file.control
        words = control.words
        newest = control.newest()[1]
        sequences = control.sequences()
        order = sorted([(number, slot) for slot, number in enumerate(sequences)])
        if not self._all:
            order.sort(key=lambda each: each[1] == newest)  # the newest frame last: readers may want it
        for number, slot in order[:1] if self._all else order:
            word = control.slots[slot]
            if self._is_needed(slot, number):
                continue
            words[word] = 0
            control.fence()
            if not self._is_needed(slot, number):
                return slot
            words[word] = number
        return None

    def _is_needed(self, slot: int, number: int) -> bool:
        """Whether a living reader holds a slot, or with the policy ``"all"`` has yet to take the frame in it."""
        control = self.file.control
        needing = []
        held = control.all(p.HELD)
        if slot + 1 in held:
            needing += [i for i, each in enumerate(held) if each == slot + 1]
        if self._all:
            there = zip(control.all(p.PROCESS), control.all(p.TAKEN), strict=True)
            needing += [i for i, (process, taken) in enumerate(there) if process and taken < number]
        return bool(needing) and not all(map(self.file.free_if_dead, needing))

    def _too_slow(self) -> NoReturn:
        found = state_of(self.file)
        slowest = min(found.readers, key=lambda each: each.position, default=None)
        who = f"process {slowest.process} has taken frame {slowest.position} of {found.frames}" if slowest else "?"
        raise TimedOut(errno.ETIMEDOUT, f"no slot of the ring {found.name!r} was free for {self._timeout:g} s: {who}")

    def publish(self, slot: int) -> None:
        """Publish the frame in a slot."""
        words, count = self._words, self._count
        number = words[NEWEST] // count + 1
        words[SEQUENCES + slot] = number
        if p.REORDERED:
            self.file.control.fence()
        words[NEWEST] = number * count + slot
        if 1 in self._waits.tolist():
            self.file.wake_readers()

    def close(self) -> None:
        """End the ring."""
        self.file.end()


class _Reader:
    """A reader's end of a ring."""

    def __init__(self, where: Location, policy: str | None, timeout: float | None, trusted: Trusted) -> None:
        self._timeout = math.inf if timeout is None else timeout
        self.file = self._wait_for(where, trusted)
        try:
            geometry = self.file.geometry
            if policy is not None and p.POLICIES[policy] != geometry.policy:
                found = _POLICIES[geometry.policy]
                raise InvalidArgument(
                    f"the ring {self.file.name!r} has the policy {found!r}, which its writer gave; expected {policy!r}"
                )
            what = f"the ring {self.file.name!r}"
            self._where = [f"slot {slot} of {what}" for slot in range(geometry.slots)]
            self._read = READERS[geometry.kind](self.file.head, what)
            self._all = geometry.policy == p.ALL
            number = self.file.claim()
            if number < 0:
                most = geometry.entries
                raise LimitExceeded(
                    f"the ring {self.file.name!r} of {geometry.slots} slots has {counted(most, 'reader')}, its maximum",
                    hint="make it with more slots",
                )
        except BaseException:
            self.file.close()
            raise
        self.entry = self.file.control.entries[number]
        self.file.make_semaphore(self.entry + p.SEMAPHORE)
        self._words = self.file.control.words
        self._fence = self.file.control.fence
        self._count = geometry.slots
        self._held = self.entry + p.HELD
        self.taken: int = self._words[self.entry + p.TAKEN]
        self._current: Any = None

    def _wait_for(self, where: Location, trusted: Trusted) -> RingFile:
        began = time.monotonic()
        while True:
            try:
                found = open_file(where, False, trusted)
                if not found.control.words[p.CLOSED]:
                    return found
                found.close()
            except ObjectNotFound as error:
                missing = error
            else:
                missing = ObjectNotFound(errno.ENOENT, f"the ring {where!r} was closed by its writer")
            left = self._timeout - (time.monotonic() - began)
            if left <= 0:
                raise missing
            time.sleep(min(left, _OPENING))

    def is_closed(self) -> bool:
        """Whether the writer has closed the ring; read before the last look for a frame."""
        return bool(self.file.control.words[p.CLOSED])

    def release(self) -> None:
        """Give up the slot of the current frame."""
        current, self._current = self._current, None
        words = self.file.control.words
        held = words[self.entry + p.HELD]
        if held:
            if current is not None:
                self._read.release(current, held - 1)
            words[self.entry + p.HELD] = 0
            if self._all:
                self.file.wake(p.WRITER_WAITS, p.WRITER_SEMAPHORE)

    def next(self) -> Any:
        """The next frame; None after the last one."""
        began = 0.0
        while True:
            ended = self._words[CLOSED]
            found = self.step()
            if found is not None or ended:
                return found
            began = began or time.monotonic()
            self.pause(began)

    def step(self) -> Any:
        """Release the current frame and take the next one; None if it is not there yet."""
        words, held, taken = self._words, self._held, self.taken
        if words[held]:
            self.release()
        while True:
            word = words[NEWEST]
            number, slot = divmod(word, self._count)
            if number <= taken:
                return None
            if self._all and number > taken + 1:
                number, slot = taken + 1, self._slot_of(taken + 1)
            words[held] = slot + 1
            self._fence()
            if words[SEQUENCES + slot] == number:
                break
            words[held] = 0
            if words[NEWEST] == word:  # the writer had no other slot for the next frame
                return None
        if number > taken + 1:
            words[self.entry + p.MISSED] += number - taken - 1
        self.taken = words[self.entry + p.TAKEN] = number
        self._current = self._read(self.file.slots[slot], self._where[slot], slot)
        return self._current

    def _slot_of(self, number: int) -> int:
        sequences = self.file.control.sequences()
        if number not in sequences:
            raise InvalidData(f"the ring {self.file.name!r} is damaged: frame {number} is in none of {sequences}")
        return sequences.index(number)

    def pause(self, began: float) -> None:
        """Wait for a frame, for a while.

        Raises
        ------
        TimedOut
            If the time since ``began`` exceeds the timeout.
        """
        waited = time.monotonic() - began
        left = self._timeout - waited
        if left <= 0:
            found = state_of(self.file)
            writer = "its writer has ended" if found.writer is None else f"its writer is process {found.writer}"
            raise TimedOut(
                errno.ETIMEDOUT,
                f"no frame after {found.frames} in the ring {found.name!r} for {self._timeout:g} s; {writer}",
            )
        self.file.pause(self.entry + p.WAITS, self.entry + p.SEMAPHORE, left, waited, self._is_ready)
        if self.file.control.fd < 0:
            raise Closed("the Ring was closed while it waited for a frame")

    def _is_ready(self) -> bool:
        return self.file.control.newest()[0] > self.taken or self.is_closed()

    def close(self) -> None:
        """Give up the slot and the entry."""
        self.release()
        words = self.file.control.words
        words[self.entry + p.PROCESS] = 0
        self.file.drop_semaphore(self.entry + p.SEMAPHORE)
        if self._all:
            self.file.wake(p.WRITER_WAITS, p.WRITER_SEMAPHORE)


def state_of(file: RingFile) -> RingInfo:
    """The state of an open ring."""
    control = file.control
    columns = [control.all(word) for word in (p.PROCESS, p.TAKEN, p.MISSED, p.HELD)]
    readers = [
        ReaderInfo(process, position, missed, holds > 0)
        for number, (process, position, missed, holds) in enumerate(zip(*columns, strict=True))
        if process and (process == os.getpid() or control.is_locked(p.reader_lock(number)))
    ]
    words = control.words
    writer = words[p.WRITER]
    alive = not words[p.CLOSED] and (writer == os.getpid() or control.is_locked(p.WRITER_LOCK))
    kind = {p.BATCH: "record batch", p.TENSOR: "tensor"}[file.geometry.kind]
    return RingInfo(
        file.name,
        kind,
        _POLICIES[file.geometry.policy],
        file.geometry.slots,
        file.geometry.size,
        control.newest()[0],
        writer if alive else None,
        readers,
    )


def ring_info(where: Location, trust: Trust = False) -> RingInfo:
    """Return the state of a ring, without being one of its readers. Errors are those of :class:`Ring`."""
    file = open_file(where, None, as_trust(trust))
    try:
        return state_of(file)
    finally:
        file.close()
