"""Reading: the parts of an attached object, and bodies of messages whose buffers are in several files."""

from __future__ import annotations

from collections.abc import Callable

from shmarrow.buffer import Bytes
from shmarrow.errors import InvalidData
from shmarrow.ipc.batch.decode import FILE_STRIDE


class SharedFiles:
    """The files that an attached object shares with others, its parts.

    Parameters
    ----------
    count : int
        Their number.
    attach : callable
        Maps a part, by its number from 1 on.

    Notes
    -----
    Thread safety: may be shared. Threads that first use a part at the same time may map it twice; one mapping is kept.
    """

    __slots__ = ("_attach", "_attached", "count")

    def __init__(self, count: int, attach: Callable[[int], Bytes]) -> None:
        self.count = count
        self._attach = attach
        self._attached: dict[int, Bytes] = {}

    def data(self, number: int) -> Bytes:
        """Return all bytes of a part, a view."""
        mapped = self._attached.get(number)
        return self._attached.setdefault(number, self._attach(number)) if mapped is None else mapped

    def body(self, own: Bytes) -> SplitBody:
        """Return the body of a message that has the bytes ``own`` in the object's own file."""
        return SplitBody(own, self)


class SplitBody:
    """The body of a message whose buffers are in several files: a sequence of bytes, read by slices within one file.

    Attributes
    ----------
    own : uint8 ndarray
        The bytes in the object's own file, which come first; part ``k`` begins at ``k * FILE_STRIDE``.
    """

    __slots__ = ("_shared", "own")

    def __init__(self, own: Bytes, shared: SharedFiles) -> None:
        self.own = own
        self._shared = shared

    def __len__(self) -> int:
        return (self._shared.count + 1) * FILE_STRIDE

    def __getitem__(self, part: slice) -> Bytes:
        number, start = divmod(part.start, FILE_STRIDE)
        stop = part.stop - number * FILE_STRIDE
        data = self._shared.data(number) if number else self.own
        if stop > len(data):
            where = f"part {number} of the object" if number else "the body"
            raise InvalidData(f"a buffer needs [{start}, {stop}) of {where}, which has {len(data)} bytes")
        return data[start:stop]
