"""What Polars writes: Enums whose fields list their categories, text in other layouts, integers of 128 bits."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import shmarrow as sa

pl = pytest.importorskip("polars")

MATCH = "an Enum of Polars with other categories"


def enum(values: list[Any], categories: list[str]) -> Any:
    return pl.DataFrame({"e": pl.Series(values, dtype=pl.Enum(categories))})


FIRST, SAME, OTHER = enum(["x", "y"], ["x", "y"]), enum([None, "y"], ["x", "y"]), enum(["z", "y"], ["z", "y"])


def nested(frame: Any) -> Any:
    return frame.select(e=pl.struct(inner=pl.col("e").implode().over(pl.int_range(pl.len()))))


def together(path: Path, one: Any, other: Any) -> dict[str, Any]:
    """The rows of two frames one after the other, by every way that brings them under one schema."""
    tables = [sa.table(one), sa.table(other)]
    batches = [batch for table in tables for batch in table.batches]

    def written(frames: list[Any]) -> Any:
        with sa.ipc.new_stream(path / "both", tables[0].schema) as writer:
            for frame in frames:
                writer.write(frame)
        return sa.ipc.open_stream(path / "both").read_all()

    for name, table in zip("ab", tables, strict=True):
        with sa.ipc.new_file(path / f"{name}.arrow", table.schema) as writer:
            writer.write(table)
    return {
        "scan": lambda: sa.table(sa.scan(str(path / "?.arrow"))),
        "concat_tables": lambda: sa.concat_tables(tables),
        "permissive": lambda: sa.concat_tables(tables, "permissive"),
        "unified": lambda: sa.concat_tables(tables).unify_dictionaries(),
        "combined": lambda: sa.concat_tables(tables).combine_chunks(),
        "from_batches": lambda: sa.Table.from_batches(batches),
        "concat_batches": lambda: sa.table([sa.concat_batches(batches)]),
        "reader": lambda: sa.RecordBatchReader.from_batches(tables[0].schema, iter(batches)).read_all(),
        "stream": lambda: written(tables),
        "stream of frames": lambda: written([one, other]),
    }


@pytest.mark.parametrize("change", [lambda frame: frame, nested], ids=["column", "nested"])
def test_rows_come_back_or_are_refused(tmp_path: Path, change: Any) -> None:
    first, same, other = map(change, (FIRST, SAME, OTHER))
    for call in together(tmp_path, first, same).values():
        assert pl.DataFrame(call()).equals(pl.concat([first, same]))
        (tmp_path / "both").unlink(missing_ok=True)
    for name in "ab":
        (tmp_path / f"{name}.arrow").unlink()
    for name, call in together(tmp_path, first, other).items():
        with pytest.raises(sa.InvalidType, match=MATCH if change(FIRST) is FIRST else None):
            pytest.fail(f"{name}: {pl.DataFrame(call())}")
        (tmp_path / "both").unlink(missing_ok=True)


def test_a_schema_without_the_list_takes_all(tmp_path: Path) -> None:
    together(tmp_path, FIRST, OTHER)
    for type in (sa.string(), sa.dictionary(sa.uint8(), sa.string_view(), True)):
        scan = sa.scan(str(tmp_path / "?.arrow"), schema=sa.schema({"e": type}))
        assert pl.DataFrame(sa.table(scan))["e"].cast(pl.String).to_list() == ["x", "y", "z", "y"]
        assert scan.to_polars().collect()["e"].cast(pl.String).to_list() == ["x", "y", "z", "y"]


def test_maps_of_text_are_cast_like_lists_of_text(tmp_path: Path) -> None:
    pa = pytest.importorskip("pyarrow")
    views = pa.table({"m": pa.array([[("k", "v")], None], pa.map_(pa.string_view(), pa.string_view()))})
    with sa.ipc.new_stream(tmp_path / "x", sa.schema({"m": sa.map_(sa.string(), sa.string())})) as writer:
        writer.write(views)
    assert sa.open(tmp_path / "x").read_all()["m"].to_pylist() == [[("k", "v")], None]


@pytest.mark.parametrize(("dtype", "name"), [("Int128", "Int128"), ("UInt128", "UInt128")])
def test_integers_of_128_bits_are_refused_with_what_to_do(tmp_path: Path, dtype: str, name: str) -> None:
    frame = pl.DataFrame({"x": pl.Series([1], dtype=getattr(pl, dtype))})
    with pytest.raises(sa.ShmarrowError, match=f"cast {name} to Int64 or Decimal in polars"):
        sa.table(frame).schema.field(0)
    frame.write_ipc(tmp_path / "x.arrow")
    with pytest.raises(sa.ShmarrowError, match="cast Int128 and UInt128 to Int64 or Decimal in polars"):
        sa.open(tmp_path / "x.arrow").read_all()["x"].to_pylist()
