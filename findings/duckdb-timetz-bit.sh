#!/usr/bin/env bash
# DuckDB's TIMETZ loses its offset in Arrow, and BIT becomes bytes that begin with a count.
#
# Versions: CPython 3.11, duckdb 2.0.1, pyarrow 26.0.1
# Guess: TIMETZ arrives as time in UTC; BIT as an extension type, as BIGNUM does.
# Seen: 12:00:00+02 and 12:00:00-05, seven hours apart, are both time64[us] 12:00:00. BIT '101' is binary 05 fd:
#   five bits of padding, then ones and the bits; no metadata; DuckDB itself reads it back as BLOB.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
"${PYTHON:-python3}" -m venv venv
venv/bin/python -m pip install --quiet duckdb==2.0.1 pyarrow==26.0.1
venv/bin/python - <<'END'
import datetime

import duckdb
import pyarrow as pa

rows = pa.table(duckdb.sql("select '12:00:00+02'::timetz a, '12:00:00-05'::timetz b, '101'::bit c, 1::bignum d"))
print(rows.schema, rows["a"], rows["b"], rows["c"])
noon = datetime.time(12)
assert duckdb.sql("select '12:00:00+02'::timetz = '12:00:00-05'::timetz").fetchall() == [(False,)]
assert rows.schema.field("a").type == pa.time64("us") and rows.schema.field("a").metadata is None
assert rows["a"].to_pylist() == rows["b"].to_pylist() == [noon]
assert rows.schema.field("c").type == pa.binary() and rows.schema.field("c").metadata is None
assert rows["c"].to_pylist() == [b"\x05\xfd"]
assert duckdb.sql("select typeof(a), typeof(c) from rows").fetchall() == [("TIME", "BLOB")]
assert rows.schema.field("d").type.extension_name == "arrow.opaque"
END
