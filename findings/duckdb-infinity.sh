#!/usr/bin/env bash
# DuckDB's infinite dates and timestamps are ordinary, far dates in Arrow.
#
# Versions: CPython 3.11, duckdb 2.0.1, pyarrow 26.0.1
# Guess: The conversion to Arrow, which has no infinity, raises, or gives null.
# Seen: 'infinity' is day 2147483647 (the year 5881580) and instant 9223372036854775807 in each unit; '-infinity' is
#   the negative of it. DuckDB reads both back as infinite. Libraries that turn them into Python's dates fail.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
"${PYTHON:-python3}" -m venv venv
venv/bin/python -m pip install --quiet duckdb==2.0.1 pyarrow==26.0.1
venv/bin/python - <<'END'
import duckdb
import pyarrow as pa

query = "select 'infinity'::date d, '-infinity'::date e, 'infinity'::timestamp t, '-infinity'::timestamptz z"
rows = pa.table(duckdb.sql(query))
whole = [pa.int32(), pa.int32(), pa.int64(), pa.int64()]
numbers = [column.cast(type)[0].as_py() for column, type in zip(rows.columns, whole)]
print(rows.schema, numbers)
assert numbers == [2**31 - 1, -(2**31) + 1, 2**63 - 1, -(2**63) + 1]
assert all(column.null_count == 0 for column in rows.columns)
assert duckdb.sql("select isinf(d) and isinf(e) and isinf(t) and isinf(z) from rows").fetchall() == [(True,)]
for unit in "s", "ms", "ns":
    times = pa.table(duckdb.sql(f"select 'infinity'::timestamp_{unit} t"))["t"]
    assert times.type == pa.timestamp(unit) and times.cast("int64").to_pylist() == [2**63 - 1]
try:
    rows["d"][0].as_py()
    raise AssertionError("a date")
except (OverflowError, ValueError) as error:
    print("as_py:", error)
END
