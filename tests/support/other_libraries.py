"""Arrays that nobody should trust, handed to other libraries: a value, our error or theirs, and no crash.

Invariants:

* each consumer does what its users do with a column: it takes it over, shows it, compares, sorts and casts its values;
* what a consumer raises is its own affair, be it a panic; a process that ends, or hangs, is a finding;
* inputs are run by :func:`hostile.run`, in a process of their own that says which input it has.
"""

from __future__ import annotations

import functools
import os
import resource
from collections.abc import Callable, Iterator
from typing import Any

import hostile
import numpy as np
from broken_arrays import STRUCTURE, VALUES
from cases.definition import Physical, pack, text
from parts import changed, own_buffers

import shmarrow as sa

hostile.SECONDS = 20.0  # consumers may take longer than our own readers

Use = Callable[[], Any]


def _tried(uses: Iterator[Use]) -> bool:
    """Whether a column was handed over; what becomes of its uses does not matter."""
    taken = False
    while True:
        try:
            use = next(uses, None)
            if use is None:
                return taken
            taken = True
            use()
        except (KeyboardInterrupt, hostile._TookTooLong):
            raise
        except BaseException:  # a panic of polars is no Exception
            pass


def _pyarrow(column: Any) -> Iterator[Use]:
    import pyarrow as pa
    import pyarrow.compute as pc

    theirs = pa.array(column)
    assert len(theirs) == len(column)
    yield lambda: theirs.validate(full=True)
    yield theirs.to_pylist
    yield lambda: str(theirs)
    yield lambda: theirs.values.to_pylist()  # of lists, whatever part of them is shown
    yield lambda: theirs.cast(pa.string())
    yield lambda: pc.unique(theirs)
    if "union" not in str(column.type):  # pyarrow aborts where a union lies in a struct with nulls
        yield lambda: pc.sort_indices(theirs)
    yield lambda: pc.utf8_upper(theirs)
    yield lambda: theirs.take(pa.array([len(theirs) - 1, 0]))
    yield lambda: pa.concat_arrays([theirs, theirs])
    yield lambda: theirs.to_pandas()


def _polars(column: Any) -> Iterator[Use]:
    import polars as pl

    frame = pl.DataFrame(sa.record_batch([column], names=["x"]))
    x = frame["x"]
    yield x.to_list
    yield lambda: str(frame)
    yield lambda: frame.filter(pl.col("x").is_not_null())
    yield lambda: x.str.to_uppercase()
    yield lambda: x.str.len_chars()
    yield lambda: x.str.slice(1, 3).to_list()
    yield lambda: x.cast(pl.String).to_list()
    yield lambda: x.cast(pl.Categorical).to_list()
    yield lambda: x.unique()
    yield lambda: x.sort()
    yield lambda: x.explode()
    yield lambda: x.list.sum()
    yield lambda: frame.group_by("x").len()
    yield lambda: pl.concat([frame, frame]).rechunk()
    yield lambda: x.to_arrow().to_pylist()


_QUERIES = (
    "SELECT x FROM batch",
    "SELECT upper(x::VARCHAR), length(x::VARCHAR), (x::VARCHAR)[2:3] FROM batch",
    "SELECT x, count(*) FROM batch GROUP BY x ORDER BY x",
    "SELECT min(x), max(x), count(DISTINCT x) FROM batch",
    "SELECT hash(x) FROM batch",
    "SELECT regexp_replace(x, 'a', 'b'), reverse(x), x || 'é' FROM batch",
    "SELECT unnest(x) FROM batch",
)


@functools.cache
def _connection() -> Any:
    import duckdb

    return duckdb.connect(config={"threads": 1})


def _duckdb(column: Any) -> Iterator[Use]:
    if "[0]" in str(column.type):
        return  # DuckDB divides by the size of fixed-size lists, be it 0
    connection = _connection()
    connection.register("batch", sa.record_batch([column], names=["x"]))
    for query in _QUERIES:
        yield functools.partial(lambda query: connection.execute(query).fetchall(), query)
    yield lambda: connection.execute(_QUERIES[0]).fetchnumpy()


def _nanoarrow(column: Any) -> Iterator[Use]:
    import nanoarrow

    if "string_view" in str(column.type) or "binary_view" in str(column.type):
        return  # nanoarrow.Array() crashes on views, pyarrow's as well: its copy has room for three buffers
    theirs = nanoarrow.Array(column)
    yield theirs.to_pylist
    yield lambda: [child.to_pylist() for child in theirs.iter_children()]
    yield lambda: str(theirs)


CONSUMERS: tuple[Callable[[Any], Iterator[Use]], ...] = (_pyarrow, _polars, _duckdb, _nanoarrow)


def columns_through(columns: list[Any]) -> str:
    """Hand each column to every library; whether each was taken by one at least."""
    taken = [[_tried(consumer(column)) for consumer in CONSUMERS] for column in columns]
    return "taken" if all(map(any, taken)) else "refused"


_quiet = False


def exported(data: Any, is_file: bool) -> str:
    """Hand the columns of some bytes, or an array, to every library; whether they were taken."""
    global _quiet
    # A consumer that is refused memory ends the process, which is no matter of what it was given.
    resource.setrlimit(resource.RLIMIT_DATA, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    if not _quiet:
        _quiet = True
        os.dup2(os.open(os.devnull, os.O_WRONLY), 2)  # panics are printed
    if isinstance(data, sa.Array):
        return columns_through([data])
    outcome = "taken"
    try:
        for batch in (sa.ipc.open_file if is_file else sa.ipc.open_stream)(data):
            for i in range(batch.num_columns):
                if columns_through([batch.column(i)]) == "refused":
                    outcome = "refused"
    except sa.ShmarrowError:
        return "refused"
    return outcome


# --- arrays made by hand ---------------------------------------------------------------------------------------


def _null_views() -> Any:
    """Null slots with views that lead anywhere."""
    wild = pack("i", 1000) + text("aaaa") + pack("i", 7, 1 << 30)
    return Physical(3, ["01", pack("i", 3) + text("abc") + "00" * 9 + wild * 2, "78" * 20], 2).array(sa.string_view())


def _null_text(type: Any) -> Any:
    """Null slots with bytes that are not UTF-8."""
    return Physical(3, ["01", pack("i", 0, 3, 6, 8), text("abc") + "ff fe e2 82 c3"], 2).array(type)


def _wild_indices() -> Any:
    """Null slots with indices beyond the dictionary."""
    made = sa.array(["aa", None, "bb"]).dictionary_encode()
    wild = np.array([0, (1 << 31) - 1, 1], "<i4").view("u1")
    return changed(made, buffers=[own_buffers(made)[0], wild])


def _lying_nulls(count: int) -> Any:
    return changed(sa.array(["a", None, "ccc"]), null_count=count)


def _tail(name: str) -> Any:
    """The last slots of children whose first ones lead anywhere, without nulls to explain it."""
    _, views, *data = own_buffers(_null_views())
    rolled = np.roll(views.reshape(3, 16), -1, axis=0).reshape(-1)
    child = changed(_null_views(), null_count=0, buffers=[None, rolled, *data])
    if name == "lists":
        array = sa.FixedSizeListArray(sa.list_(child.type, 1), 3, [None], 0, 0, [child])
    elif name == "structs":
        array = sa.StructArray(sa.struct([sa.field("x", child.type)]), 3, [None], 0, 0, [child])
    else:
        type = sa.sparse_union([sa.field("x", child.type)], [0])
        array = sa.UnionArray(type, 3, [np.zeros(3, np.uint8)], 0, 0, [child])
    return array.slice(2)


_EXTRA: dict[str, Callable[[], Any]] = {
    "null-views": _null_views,
    "null-text": lambda: _null_text(sa.string()),
    "wild-indices": _wild_indices,
    **{f"null-count-{count}": functools.partial(_lying_nulls, count) for count in (0, 2, 3)},
    **{f"tail-of-{name}": functools.partial(_tail, name) for name in ("lists", "structs", "unions")},
    "endless-nulls": lambda: sa.nulls(1 << 40),
    "endless-run": lambda: sa.RunEndEncodedArray.from_arrays(sa.array([1 << 40]), sa.array(["x"])),
    "endless-structs": lambda: sa.StructArray(sa.struct([]), 1 << 40, [None], 0),
    "endless-lists": lambda: sa.ListViewArray.from_arrays(
        [0] * 5000, [100_000] * 5000, sa.array(np.zeros(100_000, np.int8))
    ),
    "valid-text": lambda: sa.array(["é" * 20, None, "", "€uro", "🙂"]),
    "valid-views": lambda: sa.array(["é" * 20, None, "", "€uro", "🙂"], sa.string_view()),
}
"""Arrays whose danger lies in what their slots do not show, beside some without any."""


def _of(name: str) -> Any:
    if name in _EXTRA:
        return _EXTRA[name]()
    broken = next(item for item in VALUES + STRUCTURE if item.name == name)
    return broken.physical.array(broken.type)


def _nested(array: Any) -> Any:
    """In a struct in a list in a struct."""
    struct = sa.StructArray(sa.struct([sa.field("s", array.type)]), len(array), [None], 0, 0, [array])
    ends = np.array([0, len(array)], "<i8").view("u1")
    lists = sa.LargeListArray(sa.large_list(struct.type), 1, [None, ends], 0, 0, [struct])
    return sa.StructArray(sa.struct([sa.field("l", lists.type)]), 1, [None], 0, 0, [lists])


def _encoded(array: Any) -> Any:
    """As the values of a dictionary."""
    indices = np.arange(len(array), dtype="<i4").view("u1")
    type = sa.dictionary("int32", array.type)
    return sa.DictionaryArray(type, len(array), [None, indices], 0, 0, (), array)


_SHAPES: dict[str, Callable[[Any], Any]] = {
    "": lambda array: array,
    "sliced": lambda array: array.slice(1),
    "nested": _nested,
    "encoded": _encoded,
}

_NAMES = [item.name for item in VALUES + STRUCTURE] + list(_EXTRA)

ARRAYS = [
    (name, shape)
    for i, name in enumerate(_NAMES)
    for shape in ("", list(_SHAPES)[1 + i % (len(_SHAPES) - 1)])
    if not (name.startswith(("endless", "negative")) and shape)
]
"""The name of each array, and of the shape that it is in."""


def array_of(name: tuple[str, str]) -> tuple[Any, bool]:
    """An array by its name and shape, in the form that :func:`hostile.run` asks for."""
    return _SHAPES[name[1]](_of(name[0])), False
