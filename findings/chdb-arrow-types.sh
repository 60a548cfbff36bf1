#!/usr/bin/env bash
# chdb hands times to Arrow as numbers, enumerations as codes, and reads missing lists as empty.
#
# Versions: CPython 3.11, chdb 4.4.0, pyarrow 26.0.1, pandas 3.1.1
# Guess: DateTime is timestamp[s, tz], an Enum is text or a dictionary, a null list stays null.
# Seen: DateTime('Europe/Berlin') is uint32 without its zone, though DateTime64 is a timestamp; Enum8 is int8
#   without its names; LowCardinality plain text. A null list or map of a pyarrow table is [], not null. -0.0 equals
#   0 but is not in (0.0).
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
"${PYTHON:-python3}" -m venv venv
venv/bin/python -m pip install --quiet chdb==4.4.0 pyarrow==26.0.1 pandas==3.1.1
venv/bin/python - <<'END'
import chdb
import pyarrow as pa

def arrow(query):
    return chdb.query(query, "ArrowTable")

table = arrow("select toDateTime('2024-01-01 00:00:00', 'Europe/Berlin') as t, "
              "toDateTime64('2024-01-01 00:00:00', 3, 'Europe/Berlin') as t64, "
              "cast('a', 'Enum8(\\'a\\' = 5)') as e, toLowCardinality('a') as l, toDate('2024-01-01') as d")
print(table.schema)
types = [pa.uint32(), pa.timestamp("ms", "Europe/Berlin"), pa.int8(), pa.string(), pa.date32()]
assert table.schema.types == types, table.schema
assert table["t"].to_pylist() == [1704063600] and table["e"].to_pylist() == [5]

rows = pa.table({"l": pa.array([[1, None], None]), "i": pa.array([1, None]), "x": pa.array([-0.0, 0.0])})
seen = arrow("select l, isNull(l) as n, i, x from Python(rows)")
print(seen.to_pylist())
assert seen["l"].to_pylist() == [[1, None], []] and seen["n"].to_pylist() == [0, 0]
assert seen["i"].to_pylist() == [1, None]
assert arrow("select count(*) as c from Python(rows) where x = 0")["c"].to_pylist() == [2]
assert arrow("select count(*) as c from Python(rows) where x in (0.0)")["c"].to_pylist() == [1]
END
