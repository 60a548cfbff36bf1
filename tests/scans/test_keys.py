"""Keys of directories: the types that a schema gives them, exactly, or an error; what they are without one."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pyarrow as pa
import pyarrow.dataset as ds
import pytest

import shmarrow as sa
from shmarrow.scans.keys import key_values

NAN, INF = float("nan"), float("inf")
NOON = dt.datetime(2024, 1, 1, 12, 30, 1, 5)
KINDS: dict[str, tuple[pa.DataType, list[Any]]] = {
    "int8": (pa.int8(), [-128, 0, 127]),
    "int64": (pa.int64(), [-(1 << 63), (1 << 63) - 1, 10**18]),
    "uint64": (pa.uint64(), [0, (1 << 64) - 1]),
    "double": (pa.float64(), [1.5, -1e10, 1e-7, 0.1, NAN, INF, -INF, 1.7976931348623157e308, 5e-324]),
    "float": (pa.float32(), [0.1, 1.5, 3.4e38]),
    "half": (pa.float16(), [1.5]),
    "bool": (pa.bool_(), [False, True]),
    "decimal": (pa.decimal128(38, 2), [Decimal("1.50"), Decimal("-123456789012345678901234567890.01")]),
    "wide": (pa.decimal256(50, 0), [Decimal(10**40 + 1)]),
    "date": (pa.date32(), [dt.date(1, 1, 1), dt.date(2024, 2, 29)]),
    "date64": (pa.date64(), [dt.date(2024, 2, 29)]),
    "time32": (pa.time32("ms"), [dt.time(0), dt.time(23, 59, 59, 1000)]),
    "time64": (pa.time64("us"), [dt.time(1, 2, 3, 4)]),
    "timestamp s": (pa.timestamp("s"), [dt.datetime(1, 1, 1), dt.datetime(9999, 12, 31, 23, 59, 59)]),
    "timestamp us": (pa.timestamp("us"), [NOON, dt.datetime(1969, 12, 31, 23, 59, 59, 999999)]),
    "timestamp ns": (pa.timestamp("ns"), [1, -1, 1 << 60]),
    "zoned": (pa.timestamp("ms", "Europe/Berlin"), [dt.datetime(2024, 7, 1, tzinfo=dt.UTC)]),
    "duration": (pa.duration("s"), [dt.timedelta(-1), dt.timedelta(seconds=5)]),
    "text": (pa.string(), ["a/b", "é", "x=y", "٣", " 1", "1_0"]),
    "large text": (pa.large_string(), ["a"]),
    "dictionary": (pa.dictionary(pa.int32(), pa.string()), ["a", "b"]),
    "binary": (pa.binary(), [b"a", b"\xc3\xa9"]),
}  # fmt: skip


@pytest.mark.parametrize("kind", KINDS)
def test_directories_of_pyarrow(kind: str, tmp_path: Path) -> None:
    """What pyarrow writes for the values of a type is read as these values, by a scan and in Polars."""
    type, values = KINDS[kind]
    column = pa.array([*values, None], type)
    plain = column.cast(type.value_type) if pa.types.is_dictionary(type) else column
    flavor = ds.partitioning(pa.schema([("k", plain.type)]), flavor="hive")
    ds.write_dataset(pa.table({"k": plain, "x": range(len(column))}), str(tmp_path), format="ipc", partitioning=flavor)
    scan = sa.scan(tmp_path, schema=sa.schema({"x": "int64", "k": sa.array(column).type}))
    table = scan.to_table()
    table.validate(full=True)
    found = dict(zip(table["x"].to_pylist(), table["k"].to_pylist(), strict=True))
    assert repr([found[x] for x in range(len(column))]) == repr(sa.array(column).to_pylist())
    if kind not in ("half", "zoned", "wide"):  # which Polars has not, or in another form
        pl = pytest.importorskip("polars")
        frame = scan.to_polars().sort("x").collect()
        assert frame["k"].to_list().__repr__() == pl.DataFrame(sa.table({"k": column}))["k"].to_list().__repr__()


@pytest.mark.parametrize(
    ("type", "text", "value"),
    [
        (sa.float64(), "1.0E10", 1e10),  # as Spark writes it
        (sa.float64(), "-Infinity", -INF),
        (sa.decimal128(10, 2), "1E+5", Decimal("100000.00")),
        (sa.timestamp("us"), "2024-01-01", dt.datetime(2024, 1, 1)),
        (sa.timestamp("us"), "2024-01-01T12:30:01.000005", NOON),
        (sa.timestamp("us"), "2024-01-01 12:30", dt.datetime(2024, 1, 1, 12, 30)),
        (sa.timestamp("s", "UTC"), "2024-01-01 12:00:00+01:30", dt.datetime(2024, 1, 1, 10, 30, tzinfo=dt.UTC)),
        (sa.time64("ns"), "00:00:01", dt.time(0, 0, 1)),
        (sa.bool_(), "TRUE", True),
        (sa.dictionary(sa.int8(), sa.int64()), "7", 7),
        (sa.binary(), "é\udcff", b"\xc3\xa9\xff"),
    ],
)
def test_other_forms(type: sa.DataType, text: str, value: Any) -> None:
    assert key_values([text, None], type).to_pylist() == [value, None]


@pytest.mark.parametrize(
    ("type", "text"),
    [
        (sa.int8(), "128"),
        (sa.int64(), "1.0"),
        (sa.int64(), "٣"),
        (sa.int64(), "9223372036854775808"),
        (sa.int64(), " 1"),
        (sa.int64(), "1_0"),
        (sa.float64(), "1e400"),
        (sa.float64(), "0x1p3"),
        (sa.float64(), "1_0.0"),
        (sa.float64(), "٣.٥"),
        (sa.bool_(), "yes"),
        (sa.decimal128(10, 2), "1.555"),
        (sa.decimal128(3, 2), "100"),
        (sa.decimal128(10, 2), "NaN"),
        (sa.date32(), "2024-02-30"),
        (sa.date32(), "20240201"),
        (sa.time32("s"), "24:00:00"),
        (sa.time32("s"), "00:00:00.5"),
        (sa.timestamp("s"), "2024-01-01 00:00:00.5"),
        (sa.timestamp("us"), "2024-01-01 00:00:00Z"),
        (sa.timestamp("us", "UTC"), "2024-01-01 00:00:00"),
        (sa.timestamp("ns"), "9999-01-01 00:00:00"),
        (sa.timestamp("us"), "19000"),
        (sa.null(), "a"),
        (sa.list_(sa.int8()), "[1]"),
    ],
)
def test_what_is_not_of_the_type_is_refused(type: sa.DataType, text: str, tmp_path: Path) -> None:
    directory = tmp_path / f"k={quote(text)}"
    directory.mkdir()
    sa.write(sa.table({"x": [1]}), directory / "x.arrow")
    with pytest.raises((sa.InvalidData, sa.InvalidType), match="column 'k'"):
        sa.scan(tmp_path, schema=sa.schema({"x": "int64", "k": type}))


@pytest.mark.parametrize(
    ("texts", "type"),
    [
        (["1", "-22"], sa.int64()),
        (["9223372036854775807"], sa.int64()),
        (["9223372036854775808"], sa.string()),
        (["٣"], sa.string()),
        (["٢٠٢٤-01-01"], sa.string()),
        (["2024-01-01", None], sa.date32()),
        (["2024-01-01", "1"], sa.string()),
        (["1.5"], sa.string()),
        (["true"], sa.string()),
    ],
)
def test_types_without_a_schema(texts: list[str | None], type: sa.DataType) -> None:
    assert key_values(texts).type == type


def test_a_null_key_of_a_column_that_must_not_be_null(tmp_path: Path) -> None:
    """Not in a table, nor in Polars, nor in a file that is written; filters that leave it out are no error."""
    for text in ("1", "__HIVE_DEFAULT_PARTITION__"):
        (tmp_path / "in" / f"k={text}").mkdir(parents=True)
        sa.write(sa.table({"x": [1]}), tmp_path / "in" / f"k={text}" / "x.arrow")
    schema = sa.schema([sa.field("x", sa.int64()), sa.field("k", sa.int64(), nullable=False)])
    scan = sa.scan(tmp_path / "in", schema=schema)
    ways: list[Any] = [
        lambda: scan.to_table(),
        lambda: scan.to_polars().collect(),
        lambda: sa.convert(scan, tmp_path / "out.arrow"),
        lambda: [split.to_table() for split in scan.plan()],
    ]
    for way in ways:
        with pytest.raises(Exception, match=r"HIVE.*x\.arrow: column 'k': the directory has no value for it"):
            way()
    assert not (tmp_path / "out.arrow").exists()
    assert scan.where([("k", "=", 1)]).to_table().to_pylist() == [{"x": 1, "k": 1}]
