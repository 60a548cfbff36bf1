"""Properties of every type and all of its values, compared with pyarrow and with Python's own lists.

``make properties`` tries more examples, and others each time.
"""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import pyarrow as pa
from cases import strategies as own
from cases.compare import exact
from environment import has_pyarrow
from forms import peers_stream, stream_of
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

import shmarrow as sa
from shmarrow.types import (
    DecimalType,
    DictionaryType,
    IntervalType,
    RunEndEncodedType,
    StructType,
    TimestampType,
    TimeType,
    UnionType,
    storage_of,
    types_in,
)

UNKNOWN_TO_PYARROW = {"arrow.timestamp_with_offset", "arrow.parquet.variant"}


def extensions(type: Any) -> set[str]:
    """The names of the extension types in a type."""
    return {each.extension_name for each in types_in(type) if isinstance(each, sa.ExtensionType)}


def examples(number: int) -> Any:
    """So many examples in each run; a profile for long runs has its own number."""
    most = settings().max_examples
    slow = [
        HealthCheck.too_slow,
        HealthCheck.data_too_large,
        HealthCheck.large_base_example,
        HealthCheck.filter_too_much,
    ]
    return settings(max_examples=most if most > 100 else number, suppress_health_check=slow)


def same(found: list[Any], wanted: list[Any], what: str = "") -> None:
    """Fail unless both lists hold the same values of the same Python types, and name the first that are not."""
    assert len(found) == len(wanted), what
    for i, (one, other) in enumerate(zip(found, wanted, strict=True)):
        assert exact(one) == exact(other), f"{what} slot {i}: found {one!r}, expected {other!r}"


def _parts(type: Any) -> Iterator[Any]:
    """Iterate over a type and all types in it, and over the storage of its extension types."""
    for each in types_in(type):
        yield each
        if isinstance(each, sa.ExtensionType):
            yield storage_of(each)


# --- the peer ----------------------------------------------------------------------------------------------------


def has_peer(type: Any) -> bool:
    """Whether pyarrow has the type: of the intervals it has one, and it takes no runs of runs from elsewhere."""
    if any(
        each.layout == each.value_type.layout == "run_end_encoded"
        for each in _parts(type)
        if hasattr(each, "value_type")
    ):
        return False
    if not has_pyarrow(21) and any(each == sa.float16() for each in _parts(type)):  # it takes numpy's floats only
        return False
    return all(not isinstance(each, IntervalType) or each.unit == "month_day_nano" for each in _parts(type))


def shows_values(type: Any) -> bool:
    """Whether pyarrow's ``to_pylist()`` gives the values that ours gives: it cuts times to microseconds, and has no
    timestamps with offsets. Older ones take zones from pytz, which rounds the local mean times of early dates.
    """
    cut = any(isinstance(each, TimeType) and each.unit == "ns" for each in _parts(type))
    rounded = not has_pyarrow(21) and any(isinstance(each, TimestampType) and each.tz for each in _parts(type))
    return not cut and not rounded and "arrow.timestamp_with_offset" not in extensions(type)


def builds(type: Any) -> bool:
    """Whether pyarrow builds arrays of the type from values that fit: not of decimals with a negative scale, which it
    rescales, nor of some extension types.
    """
    negative = any(isinstance(each, DecimalType) and each.scale < 0 for each in _parts(type))
    return not negative and not extensions(type) & {"arrow.timestamp_with_offset", "arrow.bool8"}


def by_peer(call: Any) -> Any:
    """What pyarrow gives, or None where it has not implemented the operation for the type, or gives what it calls
    invalid itself.
    """
    try:
        found = call()
        found.validate(full=True)
    except (pa.ArrowNotImplementedError, NotImplementedError):
        return None
    except pa.ArrowInvalid as error:
        # Below a null struct it builds indices into an empty dictionary; the longest spans of time it refuses.
        if "out of bounds" not in str(error) and "too large to fit in 64-bit" not in str(error):
            raise
        return None
    return found


COLUMNS = own.columns()
# A C string ends at a NUL character, so no name with one leaves through the C data interface.
WITH_PEER = COLUMNS.filter(lambda column: has_peer(column[0]) and "\\x00" not in str(column[0]))

# --- in and out --------------------------------------------------------------------------------------------------


@examples(40)
@given(COLUMNS)
def test_what_goes_in_comes_out(column: Any) -> None:
    type, values = column
    made = sa.array(values, type)
    made.validate(full=True)
    assert made.type == type
    assert len(made) == len(values)
    same(made.to_pylist(), values)
    same(list(made), values)
    same([made[i] for i in range(len(made))], values)
    assert isinstance(str(made), str)
    assert isinstance(repr(made), str)


@examples(40)
@given(WITH_PEER)
def test_pyarrow_takes_and_shows_the_values(column: Any) -> None:
    type, values = column
    made = sa.array(values, type)
    peer = made.to_pyarrow()
    peer.validate(full=True)
    if shows_values(type):
        same(peer.to_pylist(), values)
    back = sa.array(peer)
    back.validate(full=True)
    if not UNKNOWN_TO_PYARROW & extensions(type):
        assert back.type == type
        same(back.to_pylist(), values)


@examples(40)
@given(WITH_PEER.filter(lambda column: builds(column[0])))
def test_pyarrow_builds_the_same_array(column: Any) -> None:
    type, values = column
    made = sa.array(values, type).to_pyarrow()
    peer = by_peer(lambda: pa.array(values, made.type))
    assume(peer is not None)
    assert peer.type == made.type
    same(sa.array(peer).to_pylist(), sa.array(made).to_pylist())


# --- selecting ---------------------------------------------------------------------------------------------------


@examples(40)
@given(COLUMNS, st.data())
def test_selections_are_those_of_lists(column: Any, data: st.DataObject) -> None:
    type, values = column
    made, size = sa.array(values, type), len(values)
    start, length = data.draw(st.integers(0, size)), data.draw(st.integers(0, size + 1))
    piece, wanted = made.slice(start, length), values[start : start + length]
    positions = data.draw(st.lists(st.integers(0, len(wanted) - 1), max_size=8)) if wanted else []
    mask = data.draw(st.lists(st.booleans(), min_size=len(wanted), max_size=len(wanted)))
    results = {
        "slice": (piece, wanted),
        "take": (piece.take(positions), [wanted[i] for i in positions]),
        "filter": (piece.filter(mask), [value for value, kept in zip(wanted, mask, strict=True) if kept]),
        "step": (piece[::-2], wanted[::-2]),
        "concat": (sa.concat_arrays([piece, made, piece]), wanted + values + wanted),
        "trim": (piece.trim(), wanted),
        "pickle": (pickle.loads(pickle.dumps(piece)), wanted),
        "cast": (piece.cast(type), wanted),
    }
    if own.can_be_null(type):
        gaps = [None, *positions, None]
        results["null indices"] = (piece.take(gaps), [None if i is None else wanted[i] for i in gaps])
        unsure = [None, *mask[1:]] if mask else []
        results["null selection"] = (
            piece.filter(unsure, null_selection_behavior="emit_null"),
            [value if kept else None for value, kept in zip(wanted, unsure, strict=True) if kept is not False],
        )
    for name, (result, expected) in results.items():
        result.validate(full=True)
        assert result.type == type, name
        same(result.to_pylist(), expected, name)


@examples(40)
@given(WITH_PEER, st.data())
def test_selections_are_those_of_pyarrow(column: Any, data: st.DataObject) -> None:
    type, values = column
    start = data.draw(st.integers(0, len(values)))
    made = sa.array(values, type).slice(start)
    peer, size = made.to_pyarrow(), len(made)
    positions = data.draw(st.lists(st.integers(0, size - 1) | st.none(), max_size=8)) if size else []
    if not own.can_be_null(type):
        positions = [i for i in positions if i is not None]
    mask = data.draw(st.lists(st.booleans() | st.none(), min_size=size, max_size=size))
    for ours, theirs in [
        (lambda: made.take(positions), lambda: peer.take(pa.array(positions, pa.int64()))),
        (lambda: made.filter(mask), lambda: peer.filter(pa.array(mask, pa.bool_()))),
        (lambda: sa.concat_arrays([made, made]), lambda: pa.concat_arrays([peer, peer])),
    ]:
        expected = by_peer(theirs)
        if expected is not None:
            found = ours()
            same(found.to_pylist(), sa.array(expected).to_pylist())


# --- nulls -------------------------------------------------------------------------------------------------------


@examples(40)
@given(COLUMNS)
def test_nulls_are_where_they_went_in(column: Any) -> None:
    type, values = column
    made = sa.array(values, type)
    missing = [value is None for value in values]
    assert made.is_null().to_pylist() == missing
    assert made.is_valid().to_pylist() == [not null for null in missing]
    same(made.drop_null().to_pylist(), [value for value in values if value is not None])
    # Unions and runs have no nulls of their own, only in their children.
    assert made.null_count == (0 if isinstance(type, (UnionType, RunEndEncodedType)) else sum(missing))


# --- comparing ---------------------------------------------------------------------------------------------------


def _has_nan(value: Any) -> bool:
    return "nan" in repr(value).lower()


@examples(40)
@given(COLUMNS, st.data())
def test_equality_is_that_of_the_values(column: Any, data: st.DataObject) -> None:
    type, values = column
    made, again = sa.array(values, type), sa.array([*values, *values], type).slice(len(values))
    if not _has_nan(values):
        assert made.equals(again)
        assert again.equals(made)
        assert made == again.trim()
    if values:
        assert not made.equals(made.slice(1))
        i = data.draw(st.integers(0, len(values) - 1))
        other = data.draw(own.slots(sa.field("", type)))
        changed = sa.array([*values[:i], other, *values[i + 1 :]], type)
        if exact(other) != exact(values[i]) and other != values[i]:
            assert not made.equals(changed)
            assert not changed.equals(made)


@examples(40)
@given(WITH_PEER)
def test_equality_is_that_of_pyarrow(column: Any) -> None:
    type, values = column
    made, again = sa.array(values, type), sa.array([*values, *values], type).slice(len(values))
    assert made.equals(again) == made.to_pyarrow().equals(again.to_pyarrow())


# --- encoding ----------------------------------------------------------------------------------------------------


@examples(40)
@given(COLUMNS)
def test_encodings_keep_the_values(column: Any) -> None:
    type, values = column
    assume(not isinstance(type, (DictionaryType, RunEndEncodedType)))
    made = sa.array(values, type)
    encoded = made.dictionary_encode()
    encoded.validate(full=True)
    same(encoded.to_pylist(), values)
    distinct = {repr(exact(value)): value for value in values}
    if not any(isinstance(each, UnionType) for each in _parts(type)):  # children of which may hold equal values
        same(made.unique().to_pylist(), list(distinct.values()))
        same(encoded.dictionary.to_pylist(), [value for value in distinct.values() if value is not None])
    runs = made.run_end_encode()
    runs.validate(full=True)
    same(runs.to_pylist(), values)
    same(encoded.cast(type).to_pylist(), values)
    same(runs.cast(type).to_pylist(), values)


# --- messages ----------------------------------------------------------------------------------------------------


def is_dictionary(type: Any) -> bool:
    """Whether the values are dictionary-encoded, which the values of a dictionary in a message cannot be."""
    return isinstance(getattr(type, "storage_type", type), DictionaryType)


@examples(40)
@given(COLUMNS, st.integers(0, 3))
def test_messages_keep_the_values(column: Any, start: int) -> None:
    type, values = column
    assume(not any(isinstance(each, DictionaryType) and is_dictionary(each.value_type) for each in _parts(type)))
    batch = sa.record_batch({"x": sa.array(values, type).slice(min(start, len(values)))})
    values = values[start:]
    data = stream_of(batch)
    with sa.ipc.open_stream(data) as reader:
        read = reader.read_next_batch()
        assert reader.schema.equals(batch.schema)
        read.validate(full=True)
        same(read.column("x").to_pylist(), values)
    if has_peer(type) and not any(  # of which pyarrow does not read what it writes itself
        isinstance(each, DictionaryType) and isinstance(each.value_type, sa.ExtensionType) for each in _parts(type)
    ):
        theirs = pa.ipc.open_stream(data).read_next_batch()
        theirs.validate(full=True)
        if shows_values(type):
            same(theirs.column("x").to_pylist(), values)
        with sa.ipc.open_stream(peers_stream(theirs)) as reader:
            same(reader.read_next_batch().column("x").to_pylist(), values)


# --- bytes -------------------------------------------------------------------------------------------------------


def _counts_alike(type: Any) -> bool:
    """Whether pyarrow counts the same bytes: it leaves out some bitmaps of structs and extension types, and parts of
    what encodings and unions refer to.
    """
    kinds = (DictionaryType, RunEndEncodedType, StructType, UnionType, sa.ExtensionType)
    if any(isinstance(each, kinds) for each in _parts(type)):
        return False
    views = any(each.layout.endswith("_view") for each in _parts(type))
    return has_peer(type) and (not views or has_pyarrow(24))


@examples(40)
@given(COLUMNS, st.data())
def test_a_slice_has_no_more_bytes_than_the_whole(column: Any, data: st.DataObject) -> None:
    type, values = column
    made = sa.array(values, type)
    start = data.draw(st.integers(0, len(values)))
    piece = made.slice(start, data.draw(st.integers(0, len(values) - start)))
    assert 0 <= piece.nbytes <= made.nbytes
    assert piece.get_total_buffer_size() == made.get_total_buffer_size()
    if _counts_alike(type) and len(piece):  # no slots have no offset there
        theirs = made.to_pyarrow().slice(start, len(piece))
        assert piece.nbytes == theirs.nbytes
        assert piece.get_total_buffer_size() == theirs.get_total_buffer_size()


# --- chunks and tables -------------------------------------------------------------------------------------------


@st.composite
def tables(draw: Any) -> Any:
    """Types of up to three columns, rows as lists of values, and where the rows are cut into batches."""
    fields = [sa.field(name, draw(own.types(1))) for name in "abc"[: draw(st.integers(1, 3))]]
    rows = draw(st.lists(st.tuples(*[own.slots(field) for field in fields]), max_size=10))
    cuts = sorted(draw(st.lists(st.integers(0, len(rows)), max_size=3)))
    return sa.schema(fields), rows, [0, *cuts, len(rows)]


def table_of(schema: Any, rows: list[Any], cuts: list[int]) -> Any:
    """A table of one batch for each pair of neighbouring cuts."""
    batches = []
    for start, stop in pairwise(cuts):
        columns = [sa.array([row[i] for row in rows[start:stop]], field.type) for i, field in enumerate(schema)]
        batches.append(sa.RecordBatch.from_arrays(columns, schema=schema))
    return sa.Table.from_batches(batches, schema)


def rows_of(table: Any) -> list[Any]:
    """The rows of a batch or table."""
    return list(zip(*table.to_pydict().values(), strict=True))


@examples(40)
@given(tables(), st.data())
def test_tables_select_rows_as_lists_do(drawn: Any, data: st.DataObject) -> None:
    schema, rows, cuts = drawn
    table, size = table_of(schema, rows, cuts), len(rows)
    assert (table.num_rows, table.num_columns) == (size, len(schema))
    start, length = data.draw(st.integers(0, size)), data.draw(st.integers(0, size))
    positions = data.draw(st.lists(st.integers(0, size - 1), max_size=8)) if size else []
    mask = data.draw(st.lists(st.booleans(), min_size=size, max_size=size))
    for kind in (table, table.combine_chunks(), table.combine_chunks().to_batches()[0] if size else table):
        for name, found, wanted in [
            ("rows", kind, rows),
            ("slice", kind.slice(start, length), rows[start : start + length]),
            ("take", kind.take(positions), [rows[i] for i in positions]),
            ("filter", kind.filter(mask), [row for row, kept in zip(rows, mask, strict=True) if kept]),
            ("columns", kind.select(schema.names), rows),
            ("struct", kind.to_struct_array(), None),
        ]:
            found.validate(full=True)
            if wanted is None:
                same(found.to_pylist(), [dict(zip(schema.names, row, strict=True)) for row in rows], name)
            else:
                same(rows_of(found), wanted, name)
        same([tuple(row.values()) for row in kind.to_pylist()], rows)
    same(rows_of(sa.concat_tables([table, table.slice(start)])), rows + rows[start:])


@examples(40)
@given(tables(), st.data())
def test_chunked_arrays_are_as_one_array(drawn: Any, data: st.DataObject) -> None:
    schema, rows, cuts = drawn
    chunked, type = table_of(schema, rows, cuts).column(0), schema.field(0).type
    values, size = [row[0] for row in rows], len(rows)
    whole = chunked.combine_chunks()
    start, length = data.draw(st.integers(0, size)), data.draw(st.integers(0, size))
    positions = data.draw(st.lists(st.integers(0, size - 1), max_size=8)) if size else []
    mask = data.draw(st.lists(st.booleans(), min_size=size, max_size=size))
    chunked.validate(full=True)
    same(chunked.to_pylist(), values)
    same([chunked[i] for i in range(size)], values)
    for name, call in {
        "slice": lambda it: it.slice(start, length),
        "take": lambda it: it.take(positions),
        "filter": lambda it: it.filter(mask),
        "drop_null": lambda it: it.drop_null(),
        "is_null": lambda it: it.is_null(),
        "is_valid": lambda it: it.is_valid(),
        "unique": lambda it: it.unique(),
        "cast": lambda it: it.cast(type),
    }.items():
        found = call(chunked)
        found.validate(full=True)
        same(found.to_pylist(), call(whole).to_pylist(), name)
    assert chunked.null_count == whole.null_count
    assert len(chunked) == chunked.length() == size
    if "nan" not in repr(values).lower():
        assert chunked.equals(sa.chunked_array([values], type))
