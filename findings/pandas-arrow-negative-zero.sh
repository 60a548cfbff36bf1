#!/usr/bin/env bash
# For pandas, 0.0 and -0.0 are two values in Arrow's columns, one in others, and it contradicts itself.
#
# Versions: CPython 3.11, pandas 3.1.1, pyarrow 26.0.1, numpy 2.4.6
# Guess: unique, isin, merge, groupby of double[pyarrow] say the same as those of float64: one value.
# Seen: unique, nunique and value_counts count 2, isin([0.0]) and merge do not match -0.0, groupby makes 2 groups;
#   but drop_duplicates keeps 1 row, duplicated finds them, == is true.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
"${PYTHON:-python3}" -m venv venv
venv/bin/python -m pip install --quiet pandas==3.1.1 pyarrow==26.0.1 numpy==2.4.6
venv/bin/python - <<'END'
import pandas as pd

def facts(dtype):
    s = pd.Series([0.0, -0.0], dtype=dtype)
    f = s.to_frame("x")
    return {
        "unique": len(s.unique()), "nunique": s.nunique(), "value_counts": len(s.value_counts()),
        "groups": s.groupby(s).ngroups, "isin": s.isin([0.0]).tolist(), "merge": len(f.merge(f)),
        "drop_duplicates": len(s.drop_duplicates()), "equal": (s == 0.0).tolist(),
    }

one = dict(unique=1, nunique=1, value_counts=1, groups=1, isin=[True, True], merge=4, drop_duplicates=1)
two = dict(unique=2, nunique=2, value_counts=2, groups=2, isin=[True, False], merge=2, drop_duplicates=1)
for dtype, expected in ("float64", one), ("Float64", one), ("double[pyarrow]", two):
    print(dtype, facts(dtype))
    assert facts(dtype) == expected | {"equal": [True, True]}, facts(dtype)
END
