#!/usr/bin/env bash
# Some methods of Polars 2 ignore an extension column: mean is None, fill_null fills nothing.
#
# Versions: CPython 3.11, polars 2.1.0, pyarrow 26.0.1
# Guess: Methods of a column of type Extension work on its storage, or raise.
# Seen: group_by, join, sort and unique work; comparisons with a number, sum, max and cast raise; mean() is None and
#   fill_null(0) leaves the nulls, silently. ext.storage() is the way out.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
"${PYTHON:-python3}" -m venv venv
venv/bin/python -m pip install --quiet polars==2.1.0 pyarrow==26.0.1
venv/bin/python - <<'END'
import polars as pl
import pyarrow as pa

metadata = {"ARROW:extension:name": "example.celsius", "ARROW:extension:metadata": ""}
table = pa.table([[3, 1, None]], schema=pa.schema([pa.field("c", pa.int64(), metadata=metadata)]))
frame = pl.DataFrame(table)
column = frame["c"]
print(column.dtype, column.mean(), frame.fill_null(0)["c"].to_list())
assert column.dtype.ext_name() == "example.celsius"
assert column.sort().to_list() == [None, 1, 3] and frame.group_by("c").len().height == 3
assert column.mean() is None and column.ext.storage().mean() == 2
assert frame.fill_null(0)["c"].to_list() == [3, 1, None]
raises = (pl.exceptions.SchemaError, pl.exceptions.InvalidOperationError, pl.exceptions.ComputeError)
for attempt in (lambda: frame.filter(pl.col("c") > 1), column.sum, column.max, lambda: column.cast(pl.Int64)):
    try:
        attempt()
        raise AssertionError("it works")
    except raises as error:
        print(type(error).__name__)
END
