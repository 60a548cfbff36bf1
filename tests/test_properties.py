"""What holds for every type and all of its values, with pyarrow as the peer and Python's own lists as the measure.

``make properties`` tries more examples, and others each time.
"""

from __future__ import annotations

import io
import pickle
from typing import Any

import pyarrow as pa
import strategies as own
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st
from strategies import exact

import shmarrow as sa
from shmarrow.types import DecimalType, DictionaryType, FloatType, IntervalType, RunEndEncodedType, TimeType, UnionType


def examples(number: int) -> Any:
    """So many examples in each run; a profile for long runs has its own number."""
    most = settings().max_examples
    slow = [HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.large_base_example, HealthCheck.filter_too_much]
    return settings(max_examples=most if most > 100 else number, suppress_health_check=slow)


def same(found: list[Any], wanted: list[Any], what: str = "") -> None:
    """Fail unless both lists hold the same values of the same Python types, and name the first that are not."""
    assert len(found) == len(wanted), what
    for i, (one, other) in enumerate(zip(found, wanted, strict=True)):
        assert exact(one) == exact(other), f"{what} slot {i}: found {one!r}, expected {other!r}"


# --- the peer ----------------------------------------------------------------------------------------------------


def has_peer(type: Any) -> bool:
    """Whether pyarrow has the type: of the intervals it has one."""
    return all(not isinstance(each, IntervalType) or each.unit == "month_day_nano" for each in own.parts(type))


def shows_values(type: Any) -> bool:
    """Whether pyarrow's ``to_pylist()`` gives the values that ours gives: it cuts times to microseconds, and has no
    timestamps with offsets.
    """
    cut = any(isinstance(each, TimeType) and each.unit == "ns" for each in own.parts(type))
    return not cut and "arrow.timestamp_with_offset" not in own.extensions(type)


def builds(type: Any) -> bool:
    """Whether pyarrow builds arrays of the type from values that fit: not of decimals with a negative scale, which it
    rescales, nor of timestamps with offsets.
    """
    negative = any(isinstance(each, DecimalType) and each.scale < 0 for each in own.parts(type))
    return not negative and "arrow.timestamp_with_offset" not in own.extensions(type)


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
        if "out of bounds" not in str(error):  # below a null struct it builds indices into an empty dictionary
            raise
        return None
    return found


COLUMNS = own.columns()
WITH_PEER = COLUMNS.filter(lambda column: has_peer(column[0]))

# --- in and out --------------------------------------------------------------------------------------------------


@examples(80)
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


@examples(80)
@given(WITH_PEER)
def test_pyarrow_takes_and_shows_the_values(column: Any) -> None:
    type, values = column
    made = sa.array(values, type)
    peer = made.to_pyarrow()
    peer.validate(full=True)
    if shows_values(type):
        same(peer.to_pylist(), values)
    back = sa.Array.from_pyarrow(peer)
    back.validate(full=True)
    if not own.UNKNOWN_TO_PYARROW & own.extensions(type):
        assert back.type == type
        same(back.to_pylist(), values)


@examples(80)
@given(WITH_PEER.filter(lambda column: builds(column[0])))
def test_pyarrow_builds_the_same_array(column: Any) -> None:
    type, values = column
    made = sa.array(values, type).to_pyarrow()
    peer = by_peer(lambda: pa.array(values, made.type))
    assume(peer is not None)
    assert peer.type == made.type
    same(sa.Array.from_pyarrow(peer).to_pylist(), sa.Array.from_pyarrow(made).to_pylist())


# --- selecting ---------------------------------------------------------------------------------------------------


@examples(80)
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


@examples(60)
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
        (lambda: made.drop_null(), lambda: peer.drop_null()),
    ]:
        expected = by_peer(theirs)
        if expected is not None:
            found = ours()
            same(found.to_pylist(), sa.Array.from_pyarrow(expected).to_pylist())


# --- nulls -------------------------------------------------------------------------------------------------------


@examples(60)
@given(COLUMNS)
def test_nulls_are_where_they_went_in(column: Any) -> None:
    type, values = column
    made = sa.array(values, type)
    missing = [value is None for value in values]
    if not any(isinstance(each, (UnionType, RunEndEncodedType)) for each in (type,)):
        assert made.null_count == sum(missing)
        assert made.is_null().to_pylist() == missing
        assert made.is_valid().to_pylist() == [not null for null in missing]
    same(made.drop_null().to_pylist(), [v for v, m in zip(made.to_pylist(), made.is_null().to_pylist(), strict=True) if not m])


# --- comparing ---------------------------------------------------------------------------------------------------


def _has_nan(value: Any) -> bool:
    return "nan" in repr(value).lower()


@examples(60)
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


@examples(60)
@given(WITH_PEER)
def test_equality_is_that_of_pyarrow(column: Any) -> None:
    type, values = column
    made, again = sa.array(values, type), sa.array([*values, *values], type).slice(len(values))
    assert made.equals(again) == made.to_pyarrow().equals(again.to_pyarrow())


# --- encoding ----------------------------------------------------------------------------------------------------


@examples(60)
@given(COLUMNS)
def test_encodings_keep_the_values(column: Any) -> None:
    type, values = column
    assume(not isinstance(type, (DictionaryType, RunEndEncodedType)))
    made = sa.array(values, type)
    encoded = made.dictionary_encode()
    encoded.validate(full=True)
    same(encoded.to_pylist(), values)
    distinct = {repr(exact(value)): value for value in values}
    if not any(isinstance(each, UnionType) for each in own.parts(type)):  # children of which may hold equal values
        same(made.unique().to_pylist(), list(distinct.values()))
        same(encoded.dictionary.to_pylist(), [value for value in distinct.values() if value is not None])
    runs = made.run_end_encode()
    runs.validate(full=True)
    same(runs.to_pylist(), values)
    same(encoded.cast(type).to_pylist(), values)
    same(runs.cast(type).to_pylist(), values)


# --- messages ----------------------------------------------------------------------------------------------------


@examples(60)
@given(COLUMNS, st.integers(0, 3))
def test_messages_keep_the_values(column: Any, start: int) -> None:
    type, values = column
    batch = sa.record_batch({"x": sa.array(values, type).slice(min(start, len(values)))})
    values = values[start:]
    sink = io.BytesIO()
    with sa.ipc.new_stream(sink, batch.schema) as writer:
        writer.write(batch)
    with sa.ipc.open_stream(sink.getvalue()) as reader:
        read = reader.read_next_batch()
        assert reader.schema.equals(batch.schema)
        read.validate(full=True)
        same(read.column("x").to_pylist(), values)
    if has_peer(type):
        theirs = pa.ipc.open_stream(sink.getvalue()).read_next_batch()
        theirs.validate(full=True)
        if shows_values(type):
            same(theirs.column("x").to_pylist(), values)
        again = pa.BufferOutputStream()
        with pa.ipc.new_stream(again, theirs.schema) as peer:
            peer.write(theirs)
        with sa.ipc.open_stream(again.getvalue()) as reader:
            same(reader.read_next_batch().column("x").to_pylist(), values)


# --- bytes -------------------------------------------------------------------------------------------------------


@examples(60)
@given(WITH_PEER, st.data())
def test_nbytes_is_that_of_pyarrow(column: Any, data: st.DataObject) -> None:
    type, values = column
    made = sa.array(values, type)
    start = data.draw(st.integers(0, len(values)))
    piece = made.slice(start, data.draw(st.integers(0, len(values) - start)))
    assert piece.nbytes == piece.to_pyarrow().nbytes
    assert piece.get_total_buffer_size() == piece.to_pyarrow().get_total_buffer_size()
