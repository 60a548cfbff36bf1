#!/usr/bin/env bash
# Awkward Array makes dates in 1970 of times of day, and drops zones.
#
# Versions: CPython 3.11, awkward 2.14.0, pyarrow 26.0.1, numpy 2.4.6, pandas 3.1.1
# Guess: from_arrow refuses time32 and time64, as it refuses decimals; a zone is kept in the parameters.
# Seen: Times of day become datetime64 and go back to Arrow as timestamps of 1970-01-01; timestamp[us,
#   tz=Europe/Berlin] comes back without a zone; neither warns. Decimals, maps and text views raise.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
"${PYTHON:-python3}" -m venv venv
venv/bin/python -m pip install --quiet awkward==2.14.0 pyarrow==26.0.1 numpy==2.4.6 pandas==3.1.1
venv/bin/python - <<'END'
import awkward as ak
import numpy as np
import pyarrow as pa

for type, back in [
    (pa.time64("us"), pa.timestamp("us")),
    (pa.time32("ms"), pa.timestamp("ms")),
    (pa.timestamp("us", "Europe/Berlin"), pa.timestamp("us")),
    (pa.duration("s"), pa.duration("s")),
]:
    array = ak.from_arrow(pa.array([1], type))
    returned = ak.to_arrow(array, extensionarray=False).type
    print(type, "->", array.type, "->", returned)
    assert returned == back
assert ak.from_arrow(pa.array([1], pa.time32("s")))[0] == np.datetime64("1970-01-01T00:00:01")
try:
    ak.from_arrow(pa.array([1], pa.decimal128(5, 2)))
    raise AssertionError("it works")
except ValueError as error:
    print(error)
END
