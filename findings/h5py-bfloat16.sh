#!/usr/bin/env bash
# h5py stores bfloat16, float8 and int4 as opaque bytes, and no error tells it.
#
# Versions: CPython 3.11, numpy 2.4.6, h5py 3.16.0, ml_dtypes 0.6.0
# Guess: h5py raises TypeError for a dtype that HDF5 has no type for.
# Seen: The dataset is written; it comes back as |V2 or |V1, bytes without a meaning, with nothing in the file that
#   names the type.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
"${PYTHON:-python3}" -m venv venv
venv/bin/python -m pip install --quiet numpy==2.4.6 h5py==3.16.0 ml_dtypes==0.6.0
venv/bin/python - <<'END'
import h5py
import ml_dtypes
import numpy as np

for dtype, stored in (ml_dtypes.bfloat16, "|V2"), (ml_dtypes.float8_e4m3fn, "|V1"), (ml_dtypes.int4, "|V1"):
    with h5py.File("x.h5", "w") as file:
        file["x"] = np.array([1, 2], dtype)
    with h5py.File("x.h5") as file:
        print(np.dtype(dtype), "->", file["x"].dtype, dict(file["x"].attrs))
        assert file["x"].dtype == np.dtype(stored)
        assert not file["x"].attrs
        assert file["x"][:].view(dtype).tolist() == [1, 2]
END
