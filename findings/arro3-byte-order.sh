#!/usr/bin/env bash
# arro3 reads a big-endian numpy array as other numbers.
#
# Versions: CPython 3.11, arro3-core 0.9.1, numpy 2.4.6, pyarrow 26.0.1, polars 2.1.0
# Guess: A big-endian array is swapped, as Polars does, or refused, as pyarrow does.
# Seen: arro3.core.Array takes the bytes as they are: 1 and 2 as int32 become 16777216 and 33554432, 1.5 as float64
#   becomes a tiny number.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
"${PYTHON:-python3}" -m venv venv
venv/bin/python -m pip install --quiet arro3-core==0.9.1 numpy==2.4.6 pyarrow==26.0.1 polars==2.1.0
venv/bin/python - <<'END'
import arro3.core
import numpy as np
import polars as pl
import pyarrow as pa

big = np.array([1, 2], ">i4")
array = pa.array(arro3.core.Array(big))
print(array.type, array.to_pylist(), pa.array(arro3.core.Array(np.array([1.5], ">f8"))).to_pylist())
assert array.type == pa.int32() and array.to_pylist() == [2**24, 2**25]
assert 0 < pa.array(arro3.core.Array(np.array([1.5], ">f8")))[0].as_py() < 1e-300
assert pa.array(arro3.core.Array(np.array([1, 2], "<i4"))).to_pylist() == [1, 2]
assert pl.Series(big).to_list() == [1, 2]
try:
    pa.array(big)
    raise AssertionError("pyarrow takes it")
except pa.ArrowNotImplementedError as error:
    print(error)
END
