#!/usr/bin/env bash
# pyarrow and Polars read a datetime64 of 100 nanoseconds as if it were of 1 nanosecond.
#
# Versions: CPython 3.11, pyarrow 26.0.1, numpy 2.4.6, polars 2.1.0, pandas 3.1.1
# Guess: Times in steps of 100 ns (the ticks of Windows and .NET) are converted by their step, or refused.
# Seen: pyarrow drops the step: 25 ticks of 100 ns become 25 ns, and 3 steps of 2 days day 3. Polars does the same
#   with an array, and reads a list of the same values as microseconds. pandas refuses them.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
"${PYTHON:-python3}" -m venv venv
venv/bin/python -m pip install --quiet pyarrow==26.0.1 numpy==2.4.6 polars==2.1.0 pandas==3.1.1
venv/bin/python - <<'END'
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa

ticks = np.array([25], "datetime64[100ns]")
assert ticks.astype("datetime64[ns]").astype("int64").tolist() == [2500]
print("pyarrow:", pa.array(ticks), "Polars:", pl.Series(ticks), pl.Series(list(ticks)))
assert pa.array(ticks).type == pa.timestamp("ns")
assert pa.array(ticks).cast("int64").to_pylist() == [25]
assert pa.array(ticks - ticks[0] + 3).cast("int64").to_pylist() == [3]
assert pa.array(np.array([3], "datetime64[2D]")).to_pylist()[0].isoformat() == "1970-01-04"
assert pl.Series(ticks).dtype == pl.Datetime("ns")
assert pl.Series(ticks).cast(pl.Int64).to_list() == [25]
assert pl.Series(list(ticks)).dtype == pl.Datetime("us")
assert pl.Series(list(ticks)).cast(pl.Int64).to_list() == [25]
try:
    pd.Series(ticks)
    raise AssertionError("pandas takes it")
except ValueError as error:
    assert "multiplier" in str(error)
END
