# SPDX-License-Identifier: Apache-2.0
"""Arrays from their parts, and arrays taken apart: one walk in each direction, driven by the buffer listing.

Wherever arrays are stored or handed over, an array is the same few parts in the same order: a node (length and null
count), the buffers in its layout's row of :data:`~shmarrow.layout.listing.LISTING`, the data buffers of views, the
children and the dictionary. A form such as the JSON of integration tests, a handle, or the C data interface says where
each part is, by implementing :class:`Parts`; :func:`assemble` asks for them and checks the result. :func:`take_apart`
is the inverse.

Invariants:

* the walk is depth-first and asks for parts in the order of a record batch message, so a form that stores them one
  after another needs only a cursor, shared by the parts of an array and its children;
* no array leaves :func:`assemble` unchecked: the number and sizes of buffers, the lengths of children, the first and
  last offsets. Whether the parts lie within the bounds of the input is for the form to check;
* a part is asked for once, and no part of an array that is not being built is touched.

Forms in which parts follow each other, such as a record batch message, share one cursor: ``child`` and ``dictionary``
return parts over the same cursor. In a message, ``node`` takes the next node, and in metadata version 4 also the bitmap
that precedes the buffers of a union (as ``valid``) or a run-end encoded array; ``buffer`` takes the next buffer,
decompressed or fetched if need be, and swaps its bytes by :func:`~shmarrow.layout.listing.swapped`; for validity it
returns None if the node has no nulls, but moves on. ``dictionary`` looks up the id of the field.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple, Protocol

from shmarrow.buffer import Bytes, Mask
from shmarrow.errors import at
from shmarrow.layout.construct import make_array
from shmarrow.layout.listing import LISTING, BufferSpec, walk
from shmarrow.layout.validation import TRUSTED, check_buffers


class Node(NamedTuple):
    """The numbers of an array.

    Attributes
    ----------
    length : int
        Number of slots.
    null_count : int
        Number of null slots, -1 if not known. Ignored by layouts without a validity bitmap.
    offset : int
        Position of the first slot in the buffers.
    valid : bool ndarray or None
        For a union, which had a validity bitmap before version 5 of the metadata: False for null slots. None if there
        are no nulls.
    """

    length: int
    null_count: int = -1
    offset: int = 0
    valid: Mask | None = None


class Parts(Protocol):
    """The parts of one array, in some form. Methods are called at most once each, in the order below.

    Attributes
    ----------
    type : DataType
        The type of the array; an extension type has the parts of its storage.
    unchecked : bool
        Whether the values may be passed to other libraries unchecked; see :attr:`Limits.unchecked`.
    """

    type: Any
    unchecked: bool = False

    def node(self) -> tuple[int, int, int, Mask | None]:
        """Return the fields of a :class:`Node`, in a tuple or as one; raise InvalidData if they are impossible."""

    def buffer(self, spec: BufferSpec) -> Bytes | None:
        """Return a buffer of the listing, at offset 0 of its memory; None for a validity bitmap that is left out."""

    def variadic(self) -> Sequence[Bytes]:
        """Return the data buffers of views."""

    def child(self, index: int) -> Parts:
        """Return the parts of a child, all of which are used before the next call."""

    def dictionary(self) -> Any:
        """Return the dictionary of a dictionary-encoded array."""


def assemble(parts: Parts) -> Any:
    """Build an array, its children and its dictionary, and check their structure.

    Raises
    ------
    InvalidData
        If the parts break the rules of the layout. Errors, also those of ``parts``, have the path of the child.
    """
    type = parts.type
    layout = LISTING[type.layout]
    length, null_count, offset, valid = parts.node()
    buffers = [parts.buffer(spec) for spec in layout.buffers]
    if layout.variadic:
        buffers += parts.variadic()
    children = []
    for i, field in enumerate(type.fields):
        with at("child", field.name):
            children.append(assemble(parts.child(i)))
    dictionary = parts.dictionary() if type.layout == "dictionary" else None
    if not layout.has_validity:
        null_count = length if type.layout == "null" else 0
    array = make_array(type, length, buffers, null_count, offset, children, dictionary)
    check_buffers(array)
    array._check_structure()
    if valid is not None:
        array = array._storage._with_nulls(valid)._with(type=type)
    array._safe = TRUSTED if parts.unchecked else None
    return array


def take_apart(arrays: Iterable[Any], *, trim: bool, dictionaries: bool = False) -> Iterator[Any]:
    """Iterate over arrays and all that they consist of, in the order in which :func:`assemble` asks for them.

    Parameters
    ----------
    arrays : iterable of Array
        The arrays.
    trim : bool
        Whether to trim each of them, and so its children: offset 0, and no bytes beyond those of its slots.
    dictionaries : bool
        Whether the dictionary of an array follows it.

    Yields
    ------
    Array
        An array whose ``_buffers`` are its own parts; its children, then its dictionary, come next.
    """

    def below(array: Any) -> Sequence[Any]:
        dictionary = array._dictionary if dictionaries else None
        children: Sequence[Any] = array._children
        return children if dictionary is None else (*children, dictionary)

    return walk((array.trim() for array in arrays) if trim else arrays, below)
