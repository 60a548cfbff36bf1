#!/usr/bin/env bash
# In pandas, a column of Arrow's uuid, json or bool8 equals nothing, not even itself.
#
# Versions: CPython 3.11, pandas 3.1.1, pyarrow 26.0.1
# Guess: == compares the storage, or raises; null gives null.
# Seen: s == s is False in every row, also for null, where a column of plain text gives True and null. isin, unique,
#   groupby and sort_values raise; isna, shift and concat work.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
"${PYTHON:-python3}" -m venv venv
venv/bin/python -m pip install --quiet pandas==3.1.1 pyarrow==26.0.1
venv/bin/python - <<'END'
import pandas as pd
import pyarrow as pa

def series(type, values):
    storage = pa.array(values, type.storage_type)
    return pd.Series(pd.arrays.ArrowExtensionArray(pa.ExtensionArray.from_storage(type, storage)))

texts = pd.Series(["a", None], dtype=pd.ArrowDtype(pa.string()))
assert (texts == texts).tolist() == [True, pd.NA]
for type, values in (pa.uuid(), [b"a" * 16, None]), (pa.json_(), ["1", None]), (pa.bool8(), [1, None]):
    s = series(type, values)
    print(s.dtype, (s == s).tolist())
    assert (s == s).tolist() == [False, False]
    assert s.isna().tolist() == [False, True]
    for method in s.unique, s.sort_values, s.value_counts:
        try:
            method()
            raise AssertionError("it works")
        except pa.ArrowNotImplementedError:
            pass
END
