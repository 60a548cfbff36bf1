"""``sa.array`` from numpy, Python values, lists of arrays and Arrow interfaces: the values, the types, the refusals."""

from __future__ import annotations

import array as array_module
import collections
import dataclasses
import datetime as dt
import decimal
import enum
import uuid
import zoneinfo
from typing import Any

import numpy as np
import pytest
from environment import needs_pyarrow
from hypothesis import given, settings
from hypothesis import strategies as st
from processes import python
from test_odd_values import OBJECTS
from test_odd_values import TYPES as ODD_TYPES

import shmarrow as sa

pa = pytest.importorskip("pyarrow")

UTC = dt.UTC
EAST = dt.timezone(dt.timedelta(hours=5, minutes=30))
PARIS = zoneinfo.ZoneInfo("Europe/Paris")
D = decimal.Decimal


def check(made: Any, values: list[Any], type: Any) -> None:
    made.validate(full=True)
    assert made.type == type
    assert made.to_pylist() == values


# --- numpy ------------------------------------------------------------------------------------------------------

DTYPES = ["i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8", "f2", "f4", "f8", "?", "M8[D]", "M8[s]", "M8[ns]", "m8[us]"]


@pytest.mark.parametrize("code", DTYPES)
@pytest.mark.parametrize("form", ["plain", "swapped", "strided", "reversed", "read-only", "empty"])
def test_ndarrays_are_what_pyarrow_makes_of_them(code: str, form: str) -> None:
    values = np.arange(12).astype(code)
    given = {
        "plain": values, "swapped": values.astype(values.dtype.newbyteorder(">")), "strided": values[::3],
        "reversed": values[::-1], "read-only": np.frombuffer(values.tobytes(), values.dtype), "empty": values[:0],
    }[form]  # fmt: skip
    peer = pa.array(np.ascontiguousarray(given).astype(values.dtype))
    made = sa.array(given)
    check(made, sa.array(peer).to_pylist(), sa.types.as_type(peer.type))


@pytest.mark.parametrize("shape", [(2, 3), (0, 3), (3, 0), (2, 3, 2), (2, 0, 2), (1, 1, 1, 1)], ids=str)
def test_dimensions_become_lists(shape: tuple[int, ...]) -> None:
    values = np.arange(np.prod(shape)).reshape(shape)
    type: Any = sa.int64()
    for size in reversed(shape[1:]):
        type = sa.list_(type, size)
    check(sa.array(values), values.tolist(), type)
    check(sa.array(np.asfortranarray(values)), values.tolist(), type)
    assert not values.size or sa.array(values).to_numpy().ctypes.data == values.ctypes.data
    np.testing.assert_array_equal(sa.array(values).slice(1).to_numpy(), values[1:])
    for make in (sa.list_, sa.large_list, sa.list_view, sa.large_list_view):
        check(sa.array(values, make(type.value_type)), values.tolist(), make(type.value_type))


def test_masks_of_lists() -> None:
    values = np.arange(4).reshape(2, 2)
    check(sa.array(values, mask=[True, False]), [None, [2, 3]], sa.list_(sa.int64(), 2))
    masked = np.ma.MaskedArray(values, [[True, False], [False, True]])
    check(sa.array(masked), [[None, 1], [2, None]], sa.list_(sa.int64(), 2))
    check(sa.array(masked, mask=[False, True]), [[None, 1], [None, None]], sa.list_(sa.int64(), 2))


@pytest.mark.parametrize(
    "values",
    [np.array(3), np.array([1j]), np.array([1], np.longdouble), np.array(["NaT"], "M8"), np.array([1], "M8[ps]")],
    ids=lambda values: str(values.dtype),
)
def test_what_has_no_type_is_refused_by_name(values: Any) -> None:
    name = "0-d" if not values.ndim else str(values.dtype).replace("[", r"\[")
    with pytest.raises((sa.InvalidType, sa.InvalidArgument), match=name):
        sa.array(values)


@settings(max_examples=60)
@given(st.lists(st.text(max_size=6), max_size=8))
def test_text_and_bytes_of_any_width(values: list[str]) -> None:
    check(sa.array(np.array(values, np.dtypes.StringDType())), values, sa.string())
    raw = [value.encode().rstrip(b"\0") for value in values]  # numpy cuts these off
    check(sa.array(np.array(raw, "S")), raw, sa.binary())
    values = [value.rstrip("\0") for value in values]
    check(sa.array(np.array(values, "U")), values, sa.string())
    swapped = np.array(values, "U").astype(np.dtype(f">U{max(map(len, values), default=1) or 1}"))
    check(sa.array(swapped[::-1]), values[::-1], sa.string())


def test_text_in_many_blocks() -> None:
    values = [("é" * (i % 3) + f"x{i}") if i % 50_000 > 40_000 else f"x{i}" for i in range(100_000)]
    check(sa.array(np.array(values)), values, sa.string())


def test_text_and_bytes_as_other_types() -> None:
    text, data = np.array(["a", "", "ü\0b"]), np.array([b"ab", b"cd"])
    for type in (sa.large_string(), sa.string_view(), sa.dictionary(sa.int8(), sa.string())):
        check(sa.array(text, type, mask=[False, False, True]), ["a", "", None], type)
    for type in (sa.binary(2), sa.large_binary(), sa.binary_view()):
        check(sa.array(data, type), [b"ab", b"cd"], type)
    check(sa.array(data, sa.string()), ["ab", "cd"], sa.string())
    with pytest.raises(sa.InvalidType, match="int8"):
        sa.array(text, sa.int8())


def test_a_surrogate_is_named() -> None:
    with pytest.raises(sa.InvalidData, match=r"row 2: .*Unicode"):
        sa.array(np.array(["a", "é", "\ud800"]))


@pytest.mark.parametrize("blank", [None, np.nan, "missing"], ids=str)
def test_missing_text(blank: Any) -> None:
    values = np.array(["a", "b"], np.dtypes.StringDType(na_object=blank))
    values[1] = blank
    check(sa.array(values), ["a", "missing" if blank == "missing" else None], sa.string())


def test_structured_ndarrays_become_structs() -> None:
    dtype = np.dtype([("a", ">i2"), ("b", "f8", (2,)), ("c", [("d", "U3"), ("e", "M8[s]")]), ("f", "?")])
    values = np.array([(1, (0.5, 1.5), ("x", "2020-01-01"), True), (2, (2, 3), ("é", "NaT"), False)], dtype)
    inner = sa.struct({"d": sa.string(), "e": sa.timestamp("s")})
    type = sa.struct({"a": sa.int16(), "b": sa.list_(sa.float64(), 2), "c": inner, "f": sa.bool_()})
    rows = [
        {"a": 1, "b": [0.5, 1.5], "c": {"d": "x", "e": dt.datetime(2020, 1, 1)}, "f": True},
        {"a": 2, "b": [2.0, 3.0], "c": {"d": "é", "e": None}, "f": False},
    ]
    check(sa.array(values), rows, type)
    check(sa.array(values.view(np.recarray), mask=[True, False]), [None, rows[1]], type)
    other = sa.struct({"y": sa.int64(), "x": sa.float32()})
    check(sa.array(np.array([(1, 2)], [("x", "i1"), ("y", "u1")]), other), [{"y": 2, "x": 1.0}], other)
    objects = np.array([(1, [1, 2])], [("n", "i1"), ("o", "O")])
    check(sa.array(objects), [{"n": 1, "o": [1, 2]}], sa.struct({"n": sa.int8(), "o": sa.list_(sa.int64())}))
    for fields in ({"y": sa.int64()}, {"y": sa.int64(), "x": sa.int8(), "z": sa.int8()}):
        with pytest.raises(sa.InvalidType, match=r"expected an ndarray with the fields y.*, found x, y"):
            sa.array(np.array([(1, 2)], [("x", "i1"), ("y", "u1")]), sa.struct(fields))


@pytest.mark.parametrize(
    ("values", "type"),
    [
        (np.array(["2020-01-01T05", "NaT"], "M8[h]"), sa.timestamp("s")),
        (np.array(["2020-02", "1969-12"], "M8[M]"), sa.date32()),
        (np.array(["2020", "NaT"], "M8[Y]"), sa.date32()),
        (np.array(["2020-01-02"], "M8[W]"), sa.date32()),
        (np.array([7, -1], "M8[25s]"), sa.timestamp("s")),
        (np.array([3, "NaT"], "m8[W]"), sa.duration("s")),
        (np.array([3, -2], "m8[D]"), sa.duration("s")),
    ],
    ids=lambda value: str(getattr(value, "dtype", "")),
)
def test_units_that_arrow_does_not_have(values: Any, type: Any) -> None:
    expected = values.astype("M8[us]" if values.dtype.kind == "M" else "m8[us]").tolist()
    if type == sa.date32():
        expected = [moment and moment.date() for moment in expected]
    check(sa.array(values), expected, type)


def test_units_that_do_not_fit() -> None:
    with pytest.raises(sa.InvalidData, match="row 1: "):
        sa.array(np.array([0, 1 << 60], "M8[h]"))


def test_objects() -> None:
    check(sa.array(np.array(["a", None], object)), ["a", None], sa.string())
    check(sa.array(np.array([[1, None], [2, 3]], object)), [[1, None], [2, 3]], sa.list_(sa.int64(), 2))
    assert sa.array(np.array([np.nan, None], object)).null_count == 1
    assert sa.array(np.array([np.nan, None], object), from_pandas=True).type == sa.null()


# --- lists of arrays --------------------------------------------------------------------------------------------


def test_lists_of_ndarrays() -> None:
    ragged = [np.arange(2), None, np.arange(3), np.arange(0)]
    check(sa.array(ragged), [[0, 1], None, [0, 1, 2], []], sa.list_(sa.int64()))
    check(sa.array([np.arange(2), np.arange(2)]), [[0, 1], [0, 1]], sa.list_(sa.int64()))
    for type in (sa.list_(sa.int8()), sa.large_list(sa.float32()), sa.list_view(sa.uint16())):
        check(sa.array(ragged, type), [[0, 1], None, [0, 1, 2], []], type)
    check(sa.array([np.arange(2), None], sa.list_(sa.int16(), 2)), [[0, 1], None], sa.list_(sa.int16(), 2))
    check(sa.array([np.arange(2, dtype="i1"), np.arange(2.0)]), [[0, 1], [0, 1]], sa.list_(sa.float64()))
    check(sa.array([np.arange(2), [5]]), [[0, 1], [5]], sa.list_(sa.int64()))
    check(sa.array([[np.arange(1)], [np.arange(2), None]]), [[[0]], [[0, 1], None]], sa.list_(sa.list_(sa.int64())))
    check(sa.array([np.zeros((1, 2), "i1"), np.ones((2, 2), "i1")]), [[[0, 0]], [[1, 1], [1, 1]]],
          sa.list_(sa.list_(sa.int8(), 2)))  # fmt: skip
    check(sa.array([np.array(["a"]), np.array(["bc", ""])]), [["a"], ["bc", ""]], sa.list_(sa.string()))
    check(sa.array([np.array([None, "b"], object)]), [[None, "b"]], sa.list_(sa.string()))
    check(sa.array([np.ma.MaskedArray([1, 2], [0, 1])]), [[1, None]], sa.list_(sa.int64()))
    moments = np.array(["2020-01-01", "NaT"], "M8[ns]")
    assert sa.array([moments, moments[:1]]).flatten().to_numpy(False).tolist() == [*moments.tolist(), moments[0].item()]


def test_lists_of_ndarrays_that_do_not_fit() -> None:
    with pytest.raises(sa.InvalidData, match="row 1: "):
        sa.array([np.array([1]), np.array([300])], sa.list_(sa.int8()))
    with pytest.raises(sa.InvalidData, match=r"row 2: fixed_size_list.*: expected 2 items, found 3"):
        sa.array([np.arange(2), None, np.arange(3)], sa.list_(sa.int8(), 2))
    with pytest.raises(sa.InvalidType, match="is a 0-d ndarray"):
        sa.array([np.arange(2), np.array(1)])
    with pytest.raises(sa.InvalidType):
        sa.array([np.zeros((1, 2)), np.zeros((1, 3))])


def test_lists_of_arrays() -> None:
    parts = [sa.array([1, None], "int8"), None, sa.array([], "int8")]
    check(sa.array(parts), [[1, None], None, []], sa.list_(sa.int8()))
    check(sa.array(parts, sa.large_list(sa.int64())), [[1, None], None, []], sa.large_list(sa.int64()))
    with pytest.raises(sa.InvalidType, match="both int8 and string"):
        sa.array([parts[0], sa.array(["a"])])


# --- what values come in ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "make",
    [tuple, iter, collections.deque, lambda values: dict.fromkeys(values).keys()],
    ids=["tuple", "iter", "deque", "keys"],
)
def test_iterables(make: Any) -> None:
    values = [3, 1, None]
    check(sa.array(make(values)), values, sa.int64())
    check(sa.array(make(values), size=2), values[:2], sa.int64())


def test_sources_with_a_dtype_keep_it() -> None:
    check(sa.array(array_module.array("i", [1, 2])), [1, 2], sa.int32())
    check(sa.array(memoryview(b"ab")), [97, 98], sa.uint8())
    check(sa.array(range(3)), [0, 1, 2], sa.int64())
    check(sa.array({5}), [5], sa.int64())


@pytest.mark.parametrize("size", [0, 1, 5, -1, np.int8(2), True], ids=repr)
def test_size(size: Any) -> None:
    expected = [1, 2, 3] if size < 0 else [1, 2, 3][:size]
    for source in ([1, 2, 3], iter([1, 2, 3]), np.array([1, 2, 3]), sa.array([1, 2, 3])):
        assert sa.array(source, "int64", size=size).to_pylist() == expected


def test_masks() -> None:
    for mask in ([True, False], np.array([True, False]), sa.array([True, False]), pa.array([True, False])):
        for source in ([1, 2], np.array([1, 2]), sa.array([1, 2]), np.array([1, 2], object), iter([1, 2])):
            check(sa.array(source, mask=mask), [None, 2], sa.int64())
    union = sa.dense_union({"a": sa.int8()})
    check(sa.array(sa.array([1, 2], union), mask=[True, False]), [None, 2], union)
    for mask in ([1, 0], [None, True], "ab", [[True], [False]], pa.array([None, True])):
        with pytest.raises((sa.InvalidType, sa.InvalidArgument), match="mask"):
            sa.array([1, 2], mask=mask)
    with pytest.raises(sa.InvalidArgument, match=r"shape \(2,\), found \(1,\)"):
        sa.array([1, 2], mask=[True])


def test_nan_is_null_where_it_is_said() -> None:
    nan = float("nan")
    assert sa.array([1.5, nan]).null_count == 0
    for values in ([1.5, nan], np.array([1.5, nan]), [1.5, np.float32("nan")]):
        assert sa.array(values, from_pandas=True).to_pylist() == [1.5, None]
    check(sa.array(["a", nan], from_pandas=True), ["a", None], sa.string())
    check(sa.array([[nan, 1.5], {nan}], from_pandas=True).slice(0, 1), [[None, 1.5]], sa.list_(sa.float64()))
    check(sa.array([{"a": nan, "b": (nan, 1)}], from_pandas=True), [{"a": None, "b": [None, 1]}],
          sa.struct({"a": sa.null(), "b": sa.list_(sa.int64())}))  # fmt: skip
    check(sa.array([np.array([nan, 1])], from_pandas=True), [[None, 1]], sa.list_(sa.float64()))
    check(sa.array(np.array([1.0, nan]), sa.int8(), from_pandas=True), [1, None], sa.int8())
    check(sa.array([D("NaN"), D("sNaN"), D(1)], from_pandas=True), [None, None, 1], sa.decimal128(1, 0))


def test_unsafe() -> None:
    for values in ([1.5, None], np.ma.MaskedArray([1.5, 0], [0, 1])):
        with pytest.raises(sa.InvalidData):
            sa.array(values, sa.int8())
        check(sa.array(values, sa.int8(), safe=False), [1, None], sa.int8())
    with pytest.raises(sa.InvalidType):
        sa.array(["a"], sa.int8(), safe=False)


def test_arrays_keep_their_type() -> None:
    values = sa.array([1, None], "int8")
    assert sa.array(values) is values
    check(sa.array(values, "int32"), [1, None], sa.int32())
    chunked = sa.ChunkedArray([values, sa.array([2], "int8")])
    check(sa.array(chunked), [1, None, 2], sa.int8())
    check(sa.array(chunked, sa.float32(), mask=[True, False, False], size=3), [None, None, 2.0], sa.float32())
    check(sa.array(sa.ChunkedArray([], sa.uint8())), [], sa.uint8())


class Capsule:
    """An object that only has the method that its class is made with."""

    def __init__(self, peer: Any) -> None:
        self.peer = peer


@pytest.mark.parametrize("method", ["__arrow_array__", "__arrow_c_array__", "__arrow_c_stream__"])
def test_arrow_interfaces(method: str) -> None:
    def give(self: Any, *arguments: Any, **options: Any) -> Any:
        if method == "__arrow_array__":
            return self.peer
        source = self.peer if method == "__arrow_c_array__" else pa.chunked_array([self.peer])
        return getattr(source, method)(*arguments, **options)

    peer = pa.array([1, None, 3], pa.int16())
    check(sa.array(type("Given", (Capsule,), {method: give})(peer)), [1, None, 3], sa.int16())
    broken = type("Broken", (), {method: lambda self, *arguments, **options: 5})
    with pytest.raises(sa.InvalidType, match="Broken did not return an Arrow array"):
        sa.array(broken())


@pytest.mark.processes
def test_without_nanoarrow_its_extra_is_named() -> None:
    pytest.importorskip("polars")
    code = (
        "import sys; sys.modules['nanoarrow'] = sys.modules['pyarrow'] = None\n"
        "import polars, shmarrow as sa\n"
        "try:\n    sa.array(polars.Series([1]))\n"
        "except sa.MissingExtra as error:\n    print('shmarrow[arrow]' in str(error))"
    )
    assert python(code) == "True\n"


def test_objects_with_array() -> None:
    class Given:
        def __array__(self, dtype: Any = None, copy: Any = None) -> Any:
            return np.arange(3, dtype="u2")

    check(sa.array(Given()), [0, 1, 2], sa.uint16())


# --- inference --------------------------------------------------------------------------------------------------


class Colour(enum.Enum):
    RED = 1


class Number(enum.IntEnum):
    ONE = 1


class Text(enum.StrEnum):
    A = "x"


Pair = collections.namedtuple("Pair", "a b")


@dataclasses.dataclass
class Point:
    x: int = 1


MOMENT = dt.datetime(2020, 2, 29, 13, 5)
INFERRED: list[tuple[list[Any], Any]] = [
    ([np.int8(1), np.int16(300), None], sa.int16()), ([np.int8(1), 2], sa.int64()), ([np.uint8(1)], sa.uint8()),
    ([np.float16(1)], sa.float16()), ([np.float32(1), np.int8(2)], sa.float32()), ([np.float32(1), 2.0], sa.float64()),
    ([np.float64(1), 1], sa.float64()), ([np.bool_(True), None], sa.bool_()), ([np.str_("a")], sa.string()),
    ([np.bytes_(b"a")], sa.binary()), ([Number.ONE, 2], sa.int64()), ([Text.A], sa.string()),
    ([Pair(1, 2)], sa.list_(sa.int64())), ([D("1.5"), 100], sa.decimal128(4, 1)), ([1, D(2)], sa.decimal128(1, 0)),
    ([D("1e-5")], sa.decimal128(5, 5)), ([D("1e5")], sa.decimal128(6, 0)), ([uuid.UUID(int=1), None], sa.uuid()),
    ([dt.date(2020, 1, 1)], sa.date32()), ([MOMENT, None], sa.timestamp("us")),
    ([MOMENT.replace(tzinfo=UTC)], sa.timestamp("us", "UTC")),
    ([MOMENT.replace(tzinfo=EAST)], sa.timestamp("us", "+05:30")),
    ([MOMENT.replace(tzinfo=PARIS)], sa.timestamp("us", "Europe/Paris")), ([dt.time(1)], sa.time64("us")),
    ([dt.timedelta(1)], sa.duration("us")), ([np.datetime64("2020-01-01")], sa.date32()),
    ([np.datetime64(1, "s"), np.datetime64("NaT")], sa.timestamp("s")), ([np.datetime64("NaT")], sa.null()),
    ([np.datetime64("NaT", "ms")], sa.timestamp("ms")), ([np.timedelta64("NaT", "ms")], sa.duration("ms")),
    ([np.datetime64(1, "s"), np.datetime64(1, "ns")], sa.timestamp("ns")),
    ([np.timedelta64(1, "s"), dt.timedelta(1)], sa.duration("us")), ([pa.MonthDayNano([1, 2, 3])],
    sa.month_day_nano_interval()), ([{"a": [1]}, {"a": [None, 2.5]}], sa.struct({"a": sa.list_(sa.float64())})),
    ([[], None], sa.list_(sa.null())), ([frozenset([1]), range(2)], sa.list_(sa.int64())),
    ([collections.OrderedDict(a=1)], sa.struct({"a": sa.int64()})), ([1 << 63, np.int8(1)], sa.uint64()),
    ([1, None], sa.int64()), ([1, 2.5], sa.float64()), ([None, (1 << 64) - 1, 0], sa.uint64()), ([None], sa.null()),
    ([], sa.null()), ([{"a": 1}, {"b": "x"}], sa.struct({"a": sa.int64(), "b": sa.string()})),
]  # fmt: skip


@pytest.mark.parametrize(("values", "type"), INFERRED, ids=[str(i) for i in range(len(INFERRED))])
def test_inferred_types(values: list[Any], type: Any) -> None:
    assert sa.infer_type(values) == type
    made = sa.array(values)
    made.validate(full=True)
    assert made.type == type


JUNK_HINTS: list[tuple[list[Any], str]] = [
    ([1, Colour.RED], "row 1: .*int, Colour"), ([Colour.RED], r"\.value"), ([None, 1j], "row 1: .*1j; .*real"),
    ([pa.scalar(1)], "as_py"), ([True, 1], "bool"), ([D(1), 1.0], "Decimal"), ([D("NaN")], "row 0: NaN"),
    ([{1: 2}], "row 0: .*map type"), ([MOMENT, MOMENT.replace(tzinfo=UTC)], "time zone"),
    ([[1], {"a": 1}], "list.*dict"), ([np.longdouble(1)], "float128|longdouble"), ([np.void(b"ab")], "void"),
    ([MOMENT.replace(tzinfo=dt.timezone(dt.timedelta(seconds=1)))], "no Arrow name"),
    ([np.timedelta64(1, "M")], "timedelta64"),
]  # fmt: skip


@pytest.mark.parametrize(("values", "match"), JUNK_HINTS, ids=[str(i) for i in range(len(JUNK_HINTS))])
def test_what_no_type_takes_is_named(values: list[Any], match: str) -> None:
    with pytest.raises(sa.InvalidType, match=match):
        sa.array(values)


LOOP: list[Any] = []
LOOP += [LOOP, LOOP]
RING: dict[str, Any] = {}
RING.update(a=RING, b=[RING])
WIDE: list[Any] = []
WIDE += [WIDE] * 3000


@pytest.mark.parametrize("values", [LOOP, [RING], WIDE, [WIDE, [WIDE]]], ids=["loop", "ring", "wide", "deep"])
def test_what_contains_itself_is_refused_at_once(values: Any) -> None:
    with pytest.raises(sa.InvalidType, match="recursive"):
        sa.array(values)
    with pytest.raises(sa.ShmarrowError):
        sa.array([1.5, values], from_pandas=True)


SCALARS = st.one_of(
    st.integers(-(1 << 63), (1 << 63) - 1), st.floats(), st.booleans(), st.text(max_size=3), st.binary(max_size=3),
    st.dates(), st.datetimes(), st.times(), st.timedeltas(dt.timedelta(-(10**5)), dt.timedelta(10**5)),
    st.decimals(-(10**6), 10**6, allow_nan=False, places=3), st.uuids(), st.datetimes(timezones=st.just(UTC)),
    st.sampled_from([np.int8(1), np.uint16(2), np.int64(3), np.float32(0.5), np.float64(0.5), np.bool_(True),
                     np.str_("a"), np.datetime64(1, "s"), np.timedelta64(1, "ms"), Number.ONE]),
)  # fmt: skip
KINDS = st.sampled_from([int, float, bool, str, bytes, dt.date, dt.datetime, dt.time, D, uuid.UUID])
NESTED = st.recursive(
    SCALARS | st.none(),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3), st.tuples(inner, inner), st.dictionaries(st.sampled_from("abc"), inner, max_size=3)
    ),
    max_leaves=6,
)


def alike(values: Any) -> Any:
    """Lists of values of one kind, which both infer a type for more often than not."""
    return st.one_of(
        st.lists(NESTED, max_size=4),
        KINDS.flatmap(lambda kind: st.lists(st.none() | SCALARS.filter(lambda value: type(value) is kind), max_size=5)),
        st.lists(st.lists(st.integers(-5, 5) | st.none(), max_size=3) | st.none(), max_size=4),
        st.lists(st.dictionaries(st.sampled_from("abc"), st.integers(-5, 5) | st.none()) | st.none(), max_size=4),
    )


def leaves(value: Any) -> list[Any]:
    if isinstance(value, dict):
        value = list(value.values())
    return [leaf for part in value for leaf in leaves(part)] if isinstance(value, (list, tuple)) else [value]


def on_purpose(values: list[Any]) -> bool:
    """Whether ours differs from pyarrow on purpose: what it converts silently, such as numbers among moments."""
    kinds = {type(leaf) for leaf in leaves(values)} - {type(None)}
    zones = {leaf.tzinfo for leaf in leaves(values) if isinstance(leaf, dt.datetime)}
    converted = {dt.date, dt.datetime, dt.time, dt.timedelta, bytes, np.datetime64, np.timedelta64}
    return len(zones) > 1 or (len(kinds) > 1 and bool(kinds & converted))


@settings(max_examples=120)
@given(alike(None))
def test_inference_is_that_of_pyarrow(values: list[Any]) -> None:
    needs_pyarrow(24)
    try:
        peer = pa.array(values)
    except (pa.ArrowException, TypeError, ValueError, OverflowError):
        return
    if on_purpose(values):
        return
    made = sa.array(values)
    made.validate(full=True)
    assert made.type == sa.types.as_type(peer.type)
    assert repr(made.to_pyarrow().to_pylist()) == repr(peer.to_pylist())


# --- with a type ------------------------------------------------------------------------------------------------

STRUCT = sa.struct({"a": sa.int8(), "b": sa.string()})
MAP = sa.map_(sa.string(), sa.int8())
TYPED: list[tuple[Any, list[Any], list[Any]]] = [
    (STRUCT, [(1, "x"), None, {"b": "y"}, Pair(2, "z")],
     [{"a": 1, "b": "x"}, None, {"a": None, "b": "y"}, {"a": 2, "b": "z"}]),
    (STRUCT, [{"a": 1, "b": "x"}, {"b": "y", "a": 2}], [{"a": 1, "b": "x"}, {"a": 2, "b": "y"}]),
    (MAP, [{"a": 1}, None, {}], [[("a", 1)], None, []]),
    (MAP, [[("a", 1), ["b", None]], {"c": 3}], [[("a", 1), ("b", None)], [("c", 3)]]),
    (sa.dictionary(sa.int8(), sa.string()), ["a", None, "b", "a"], ["a", None, "b", "a"]),
    (sa.dictionary(sa.int8(), sa.list_(sa.int64())), [np.arange(2000), [1], np.arange(2000)],
     [list(range(2000)), [1], list(range(2000))]),
    (sa.run_end_encoded(sa.int32(), sa.int64()), [1, 1, None, None, 2], [1, 1, None, None, 2]),
    (sa.run_end_encoded(sa.int32(), sa.list_(sa.int8())), [np.arange(2), np.arange(2), None], [[0, 1], [0, 1], None]),
    (sa.dense_union({"i": sa.int8(), "s": sa.string()}), [1, "a", None], [1, "a", None]),
    (sa.list_(sa.int8(), 2), [(1, 2), None, [3, None]], [[1, 2], None, [3, None]]),
    (sa.list_view(STRUCT), [[(1, "x")], [], None], [[{"a": 1, "b": "x"}], [], None]),
    (sa.uuid(), [uuid.UUID(int=5), None], [uuid.UUID(int=5), None]),
    (sa.binary(2), [b"ab", None, bytearray(b"cd")], [b"ab", None, b"cd"]),
]  # fmt: skip


@pytest.mark.parametrize(("type", "values", "expected"), TYPED, ids=[str(i) for i in range(len(TYPED))])
def test_typed(type: Any, values: list[Any], expected: list[Any]) -> None:
    check(sa.array(values, type), expected, type)


WRONG: list[tuple[Any, list[Any]]] = [
    (sa.int8(), [1, 300]), (sa.int8(), [1, "a"]), (sa.string(), ["a", 1]), (sa.binary(2), [b"ab", b"a"]),
    (STRUCT, [(1, "x"), (300, "y")]), (STRUCT, [(1, "x"), (1,)]), (STRUCT, [(1, "x"), {"c": 1}]), (STRUCT, [None, 5]),
    (MAP, [{"a": 1}, {"b": 300}]), (MAP, [{}, [("a",)]]), (MAP, [{"a": 1}, {None: 1}]), (MAP, [{}, [(None, 1)]]),
    (sa.list_(sa.int8()), [[1], [2, 300]]), (sa.list_(sa.int8()), [[1], 5]), (sa.list_(sa.int8(), 2), [[1, 2], [1]]),
    (sa.list_view(sa.string()), [["a"], [1]]), (sa.dense_union({"a": sa.int8()}), [1, "x"]),
    (sa.dictionary(sa.int8(), sa.int8()), [1, 300]), (sa.null(), [None, 1]), (sa.bool_(), [True, 1]),
    (sa.date32(), [dt.date(2020, 1, 1), "a"]), (sa.decimal128(2, 1), [D(1), D(100)]),
]  # fmt: skip


@pytest.mark.parametrize(("type", "values"), WRONG, ids=[str(i) for i in range(len(WRONG))])
def test_errors_name_the_slot(type: Any, values: list[Any]) -> None:
    head = [values[0]] * 300
    with pytest.raises((sa.InvalidData, sa.InvalidType), match="row 300: "):
        sa.array([*head, *values[1:], *head], type)


# --- anything at all --------------------------------------------------------------------------------------------

JUNK = [
    *OBJECTS, Colour.RED, Colour, print, np.datetime64(1, "Y"), np.complex64(1), np.zeros((2, 2)), np.zeros((0, 3)),
    np.array([1, "a"], object), np.array([(1, 2.0)], "i4,f8"), np.ma.masked, np.ma.array([1, 2], mask=[0, 1]), ["a"],
    {1: 2}, [[1], ["a"]], {"a": {"b": [1]}}, LOOP, RING, sa.array([1]), sa.array(["a"]),
    sa.ChunkedArray([sa.array([1])]), pa.array([1]), pa.scalar(1), sa.int64(), pa.int64(), array_module.array("d", [1]),
    collections.Counter("a"), Pair(1, 2), Point(), sa.MonthDayNano(1, 2, 3), decimal, np.array(["NaT"], "M8"), slice(1),
]  # fmt: skip
TYPES = [
    None, *ODD_TYPES, sa.large_list(sa.string()), sa.list_view("float"), sa.struct({}),
    sa.dictionary(sa.int8(), sa.list_(sa.int8())), sa.run_end_encoded(sa.int16(), sa.float64()),
    sa.sparse_union({"a": sa.int8(), "b": sa.list_(sa.int8())}), sa.fixed_shape_tensor(sa.int8(), (2, 2)),
]  # fmt: skip
PIECE = st.sampled_from(range(len(JUNK))).map(JUNK.__getitem__)


@settings(max_examples=250)
@given(
    st.one_of(PIECE, st.lists(PIECE, max_size=3), st.lists(st.lists(PIECE, max_size=2), max_size=2)),
    st.sampled_from(range(len(TYPES))),
    st.sampled_from([None, None, "mask", "size"]),
    st.sampled_from([None, True]),
    st.booleans(),
)
def test_only_our_errors_escape(values: Any, type: int, extra: str | None, from_pandas: Any, safe: bool) -> None:
    options = {} if extra is None else {extra: values}
    try:
        made = sa.array(values, TYPES[type], from_pandas=from_pandas, safe=safe, **options)
    except sa.ShmarrowError:
        return
    made.validate(full=True)
    assert len(made.to_pylist()) == len(made)
