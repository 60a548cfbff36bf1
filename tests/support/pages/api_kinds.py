"""The kinds of entries in the tables of our API next to pyarrow's, and the reasons for what is left out."""

from __future__ import annotations

from typing import NamedTuple


class Instead(NamedTuple):
    """A call that gives with shmarrow what another gives with pyarrow."""

    theirs: str
    ours: str
    reason: str


class Class(NamedTuple):
    """A class of pyarrow that an example is of, and the one that it is of here."""

    example: str
    theirs: str
    ours: str
    reason: str


class Out(NamedTuple):
    """Not here."""

    reason: str


Entry = Instead | Class | Out


COMPUTE = Out("computes; shmarrow keeps data: give the array to pyarrow with `to_pyarrow()`, or to numpy")
SORT = Out("no sorting, grouping and joining in a store")
DEVICE = Out("all arrays are in CPU memory")
POOL = Out("there are no memory pools: memory is numpy's, or a mapped object's")
TEXT = Out("`str()` shows an array, a batch, a schema in short")
PANDAS = Out("`table.to_pandas()` and `pa.table(frame)`; a writer of streams or files takes either")
SCALARS = Out("no scalars: values are Python's own")
FILES = Out("sources and sinks are paths, names in shared memory, bytes, and Python's file objects")
CODECS = Out("compression is an option of the writers")
INSIDE = Out("a part of pyarrow's build, its runtime or its inside")
NDARRAY = "an ndarray"
STRUCTURE = Out("a matter of the buffers, which are not looked at from outside")
BY_LAYOUT = "one class of arrays for each layout, not for each type"
BY_KIND = "one class of types for each kind; the parameters are attributes"
PYTHON_VALUE = "values are Python's own, there are no scalars"


def named(names: str, entry: Entry) -> dict[str, Entry]:
    """The same entry for each of some names."""
    return dict.fromkeys(names.split(), entry)


def classes(ours: str, reason: str, *rows: tuple[str, str]) -> dict[str, Entry]:
    """An entry for each name of a class of pyarrow and an example, all of one class here."""
    return {name: Class(example, name, ours, reason) for name, example in rows}
