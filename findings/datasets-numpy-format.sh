#!/usr/bin/env bash
# Hugging Face's numpy format rounds float64 to float32 in batches and wraps uint64, but not in single rows.
#
# Versions: CPython 3.11, datasets 5.2.0, pyarrow 26.0.1, numpy 2.4.6, pandas 3.1.1
# Guess: with_format("numpy") keeps the dtypes of the columns: the arrays are Arrow's own.
# Seen: A batch of float64 is float32; of int64 with a null float32, so 2**53 + 1 keeps 7 digits; of int8 int64; of
#   uint64 int64, so 2**64 - 1 is -1. A single row keeps every dtype.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
"${PYTHON:-python3}" -m venv venv
venv/bin/python -m pip install --quiet datasets==5.2.0 pyarrow==26.0.1 numpy==2.4.6 pandas==3.1.1
venv/bin/python - <<'END'
import datasets
import numpy as np
import pyarrow as pa

columns = {
    "f": [0.1, 0.2],
    "n": [2**53 + 1, None],
    "i": pa.array([1, 2], pa.int8()),
    "u": pa.array([2**64 - 1, 1], pa.uint64()),
}
rows = datasets.Dataset(pa.table(columns)).with_format("numpy")
batch, row = rows[:], rows[0]
print({name: (batch[name].dtype, row[name].dtype) for name in columns}, batch["u"])
assert {name: str(batch[name].dtype) for name in columns} == {
    "f": "float32", "n": "float32", "i": "int64", "u": "int64",
}
assert {name: str(row[name].dtype) for name in columns} == {
    "f": "float64", "n": "int64", "i": "int8", "u": "uint64",
}
assert batch["u"].tolist() == [-1, 1] and row["u"] == 2**64 - 1 and row["n"] == 2**53 + 1
assert batch["n"][0] == np.float32(2**53) and float(batch["f"][0]) != 0.1
END
