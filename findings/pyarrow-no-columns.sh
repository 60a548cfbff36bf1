#!/usr/bin/env bash
# An empty list of columns means all columns for Feather and IPC files, and none for Parquet.
#
# Versions: CPython 3.11, pyarrow 26.0.1, pandas 3.1.1
# Guess: feather.read_table(columns=[]) gives a table without columns that keeps its rows; included_fields=[1, 0]
#   gives the columns in this order.
# Seen: Feather, pandas.read_feather and IpcReadOptions read all columns. included_fields sorts: [2, 0] gives
#   columns 0 and 2, [1, 1] one column. Parquet gives no column and all rows.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
"${PYTHON:-python3}" -m venv venv
venv/bin/python -m pip install --quiet pyarrow==26.0.1 pandas==3.1.1
venv/bin/python - <<'END'
import pandas as pd
import pyarrow as pa
import pyarrow.feather
import pyarrow.parquet

table = pa.table({"a": [1, 2], "b": [3, 4], "c": [5, 6]})
pyarrow.feather.write_feather(table, "x.feather")
pyarrow.parquet.write_table(table, "x.parquet")
assert pyarrow.feather.read_table("x.feather", columns=[]).column_names == ["a", "b", "c"]
assert list(pd.read_feather("x.feather", columns=[])) == ["a", "b", "c"]
none = pyarrow.parquet.read_table("x.parquet", columns=[])
assert none.column_names == [] and none.num_rows == 2
for wanted, names in [[], ["a", "b", "c"]], [[2, 0], ["a", "c"]], [[1, 1], ["b"]]:
    options = pa.ipc.IpcReadOptions(included_fields=wanted)
    read = pa.ipc.open_file("x.feather", options=options).read_all().column_names
    print(wanted, "->", read)
    assert read == names
assert pyarrow.feather.read_table("x.feather", columns=["c", "a"]).column_names == ["c", "a"]
END
