"""Hostile arrays and files handed to every other library, in a process of their own: none of them crashes."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from typing import Any

import hostile
import pytest
from processes import python

for name in ("pyarrow", "polars", "duckdb", "pandas", "nanoarrow"):
    if find_spec(name) is None:  # imported in the other process only
        pytest.skip(f"needs {name}", allow_module_level=True)
other_libraries = pytest.importorskip("other_libraries")


def _read(name: Any) -> tuple[bytes, bool]:
    return Path(name[1]).read_bytes(), name[2]


def _input(name: Any) -> tuple[Any, bool]:
    return _read(name) if len(name) == 3 else other_libraries.array_of(name)


def test_hostile_arrays_and_files(arrow_testing: Path) -> None:
    paths = sorted(path for path in (arrow_testing / "fuzz").rglob("*") if path.is_file())
    assert len(paths) >= 32
    names = other_libraries.ARRAYS + [("fuzz", str(path), is_file) for path in paths for is_file in (True, False)]
    counts, findings = hostile.run(_input, names, use=other_libraries.exported)
    assert not findings
    assert sum(counts.values()) == len(names)
    assert min(counts["taken"], counts["refused"]) > 50


DUCKDB = """
import duckdb, pyarrow as pa, shmarrow as sa
def named(name, storage, values, parameters=""):
    metadata = {"ARROW:extension:name": name, "ARROW:extension:metadata": parameters}
    field = sa.schema(pa.schema([pa.field("c", storage, metadata=metadata)])).field(0)
    array = sa.array(values, getattr(field.type, "storage_type", field.type))
    if isinstance(field.type, sa.ExtensionType):
        array = sa.ExtensionArray.from_storage(field.type, array)
    return sa.RecordBatch(sa.schema([field]), len(values), [array])
wide, text = [b"\\xff" * 40] * 3, '{"type_name":"%s","vendor_name":"DuckDB"}'
for kind in ("bit", "bignum", "time_tz", "hugeint", "uhugeint", "to come"):
    for parameters in (text % kind, text.replace(":", " : ") % kind, (text % kind)[:-1] + ',"type_name":"x"}'):
        for storage in (pa.binary(), pa.binary(40), pa.large_binary(), pa.binary_view()):
            batch = named("arrow.opaque", storage, wide, parameters)
            assert duckdb.sql("SELECT typeof(c), c FROM batch").fetchall() == [("BLOB", wide[0])] * 3, (kind, storage)
for name in ("arrow.uuid", "arrow.bool8"):
    batch = named(name, pa.binary(), [b"a", b"", b"ccc"])
    assert duckdb.sql("SELECT typeof(c), c FROM batch").fetchall() == [("BLOB", b"a"), ("BLOB", b""), ("BLOB", b"ccc")]
source = duckdb.sql("SELECT (-3)::HUGEINT AS h, 7::UHUGEINT AS u, uuid() AS i FROM range(3)")
duckdb.sql("SET arrow_lossless_conversion = true")
theirs = source.to_arrow_table()
ours = sa.table(theirs)
assert duckdb.sql("SELECT typeof(h), h, typeof(u), u, typeof(i) FROM ours LIMIT 1").fetchall() == [
    ("HUGEINT", -3, "UHUGEINT", 7, "UUID")
]
assert sa.table(pa.table(ours)).schema == ours.schema
other = named("arrow.opaque", pa.binary(), wide, '{"type_name":"bit","vendor_name":"Other"}')
assert pa.record_batch(other).schema.field(0).type.vendor_name == "Other"
"""


def test_names_of_types_do_not_mislead_duckdb() -> None:
    """It would read memory that is not there, or end the process."""
    python(DUCKDB, stderr=None)  # DuckDB may print what it leaks at exit
