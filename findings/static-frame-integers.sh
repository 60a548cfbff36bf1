#!/usr/bin/env bash
# StaticFrame reads Arrow's integers with a null as floats, and loses their last digits.
#
# Versions: CPython 3.11, static-frame 5.1.1, pyarrow 26.0.1, pandas 3.1.1, numpy 2.4.6
# Guess: Frame.from_arrow, in a library that is strict about types, makes an object array with None.
# Seen: int64 and uint64 with a null become float64: 2**53 + 1 is 2**53, 2**64 - 1 is 2**64. Text and booleans do
#   become objects with None.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
"${PYTHON:-python3}" -m venv venv
venv/bin/python -m pip install --quiet static-frame==5.1.1 pyarrow==26.0.1 pandas==3.1.1 numpy==2.4.6
venv/bin/python - <<'END'
import pyarrow as pa
import static_frame as sf

def column(array):
    return sf.Frame.from_arrow(pa.table({"x": array}))["x"].values

signed, unsigned = column(pa.array([2**53 + 1, None])), column(pa.array([2**64 - 1, None], pa.uint64()))
print(signed.dtype, signed, unsigned.dtype, unsigned)
assert signed.dtype == unsigned.dtype == "float64"
assert int(signed[0]) == 2**53 and int(unsigned[0]) == 2**64
assert column(pa.array([True, None])).tolist() == [True, None]
assert column(pa.array(["a", None])).tolist() == ["a", None]
assert column(pa.array([2**53 + 1])).tolist() == [2**53 + 1]
END
