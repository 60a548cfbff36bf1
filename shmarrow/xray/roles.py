"""The buffers of a record batch, in order, with their roles ("Buffer Listing for Each Layout")."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from shmarrow.ipc.schema.decode import FieldLayout
from shmarrow.layout import LISTING


class BufferRole(NamedTuple):
    """One buffer of a record batch.

    Attributes
    ----------
    path : str
        Path of its field: ``"x"``, ``"l.item"``.
    buffer : str
        ``"validity"``, ``"values"``, ``"indices"`` (of a dictionary), ``"offsets"``, ``"sizes"``, ``"type_ids"``,
        ``"views"`` or ``"data"``.
    column : int
        Index of the top-level column; -1 for the values of a dictionary.
    node : int
        Index of the field's node in the batch.
    type : str
        Storage type of the field, such as ``"int64"``.
    bits : int
        Bits per slot; -1 if the size does not depend on the number of slots.
    extra : int
        Slots in addition to the field's length: 1 for offsets.
    chapter : str
        Chapter of the specification.
    variadic : bool
        Whether a batch may have any number of these buffers, like the data buffers of views. In
        :attr:`Overview.buffer_roles` one role represents all of them.
    """

    path: str
    buffer: str
    column: int
    node: int
    type: str
    bits: int
    extra: int
    chapter: str
    variadic: bool = False


def fields_below(layouts: Iterable[FieldLayout]) -> Iterator[tuple[int, str, FieldLayout]]:
    """Yield the top-level column, path and field of each node of a batch, in order."""
    for column, layout in enumerate(layouts):
        stack = [(layout.field.name, layout)]
        while stack:
            path, each = stack.pop()
            yield column, path, each
            stack += [(f"{path}.{child.field.name}", child) for child in reversed(each.children)]


def type_name(layout: FieldLayout) -> str:
    """Return a short name of a storage type; for nested types only the layout, as children are named separately."""
    return layout.type.layout if layout.children else str(layout.type)


def roles_of(layouts: Iterable[FieldLayout], v4: bool, dictionary: bool = False) -> Iterator[BufferRole]:
    """Yield the buffers of a batch with these columns.

    Parameters
    ----------
    layouts : iterable of FieldLayout
        Storage of the columns.
    v4 : bool
        Whether the metadata version is V4, in which unions have a validity bitmap.
    dictionary : bool
        Whether the batch holds the values of a dictionary.
    """
    for node, (number, path, layout) in enumerate(fields_below(layouts)):
        column = -1 if dictionary else number
        type = layout.type
        listing = LISTING[type.layout]
        name, chapter = type_name(layout), f"Columnar.rst, {listing.chapter}"
        if v4 and listing.v4_validity:
            yield BufferRole(path, "validity", column, node, name, 1, 0, "Columnar.rst, Validity bitmaps")
        for spec in listing.buffers:
            bits = 8 * type.byte_width if spec.bits == 0 else spec.bits
            where = "Columnar.rst, Validity bitmaps" if spec.role == "validity" else chapter
            if type.layout == "dictionary" and spec.role == "values":
                yield BufferRole(path, "indices", column, node, str(type.index_type), bits, spec.extra, where)
            else:
                yield BufferRole(path, spec.role, column, node, name, bits, spec.extra, where)
        if listing.variadic:
            yield BufferRole(path, "data", column, node, name, -1, 0, "Columnar.rst, Variadic buffers", True)


def expanded(roles: Iterable[BufferRole], variadic: Iterable[int]) -> Iterator[BufferRole]:
    """Yield the roles of one batch, with a role for each data buffer of a view.

    Parameters
    ----------
    roles : iterable of BufferRole
        The roles common to all batches.
    variadic : iterable of int
        Number of data buffers of each view column in the batch.
    """
    counts = iter(variadic)
    for role in roles:
        if role.variadic:
            for number in range(next(counts, 0)):
                yield role._replace(buffer=f"data {number}", variadic=False)
        else:
            yield role
