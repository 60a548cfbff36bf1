#!/usr/bin/env bash
# numpy does not sort bfloat16 and float8 arrays that hold NaN, nor find their distinct values.
#
# Versions: CPython 3.11, numpy 2.4.6, ml_dtypes 0.6.0
# Guess: np.sort puts NaN last, as for float32; np.unique gives one NaN and each number once.
# Seen: np.sort leaves [NaN, 1, NaN, 0.5] as it is, np.unique too, np.argsort gives 0, 1, 2, 3, np.searchsorted puts
#   NaN first. In the same arrays as float32 all four are right. argmax and max are right.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
"${PYTHON:-python3}" -m venv venv
venv/bin/python -m pip install --quiet numpy==2.4.6 ml_dtypes==0.6.0
venv/bin/python - <<'END'
import ml_dtypes
import numpy as np

values = [np.nan, 1, np.nan, 0.5]
for dtype in (ml_dtypes.bfloat16, ml_dtypes.float8_e4m3fn, ml_dtypes.float8_e5m2):
    array = np.array(values, dtype)
    print(dtype.__name__, np.sort(array), np.unique(array))
    assert np.sort(array).astype(float).tolist()[1] == 1 and np.isnan(np.sort(array).astype(float)[0])
    assert np.argsort(array).tolist() == [0, 1, 2, 3]
    assert len(np.unique(array)) == 4
    assert np.searchsorted(np.array([0.5, 1, np.nan], dtype), dtype(np.nan)) == 0
    assert np.argmax(np.array([1, np.nan, 2], dtype)) == 1
single = np.array(values, np.float32)
assert np.sort(single).tolist()[:2] == [0.5, 1] and len(np.unique(single)) == 3
END
