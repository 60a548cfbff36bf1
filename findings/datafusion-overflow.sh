#!/usr/bin/env bash
# Sums and additions of integers wrap in DataFusion, without an error.
#
# Versions: CPython 3.11, datafusion 55.0.0, pyarrow 26.0.1
# Guess: An int64 that does not hold the result raises, as in DuckDB, or the sum is wider.
# Seen: 2**63 - 1 plus 1 is -2**63, as column + 1 and as sum; int8 127 + 127 is -2; uint64 0 - 1 is 2**64 - 1. A
#   cast, and abs of the least int64, raise. int64 + uint64 is a decimal.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
"${PYTHON:-python3}" -m venv venv
venv/bin/python -m pip install --quiet datafusion==55.0.0 pyarrow==26.0.1
venv/bin/python - <<'END'
import datafusion
import pyarrow as pa

context = datafusion.SessionContext()
rows = {"i": [2**63 - 1, 1], "s": pa.array([127, 1], pa.int8()), "u": pa.array([0, 1], pa.uint64())}
context.from_arrow(pa.table(rows), "t")

def column(expression):
    result = context.sql(f"select {expression} as r from t").to_arrow_table()["r"]
    print(expression, "->", result.type, result.to_pylist())
    return result.to_pylist()

assert column("i + 1") == [-(2**63), 2]
assert column("sum(i)") == [-(2**63)]
assert column("s + s") == [-2, 2]
assert column("u - arrow_cast(1, 'UInt64')") == [2**64 - 1, 0]
assert column("i + u")[0] == 2**63 - 1 and column("sum(s)") == [128]
for expression in "i::int", "abs(-i - 1)":
    try:
        column(expression)
        raise AssertionError("no error")
    except Exception as error:
        assert "DataFusion error" in str(error), error
END
