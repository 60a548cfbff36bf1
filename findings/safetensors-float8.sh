#!/usr/bin/env bash
# safetensors' numpy functions write float8 that they cannot read.
#
# Versions: CPython 3.11, safetensors 0.8.0, numpy 2.4.6, ml_dtypes 0.6.0
# Guess: What save_file takes, load_file returns, for float8 as for bfloat16.
# Seen: bfloat16 is written and read. float8_e4m3fn and float8_e5m2 are written, and load_file raises
#   AttributeError: module 'numpy' has no attribute.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
"${PYTHON:-python3}" -m venv venv
venv/bin/python -m pip install --quiet safetensors==0.8.0 numpy==2.4.6 ml_dtypes==0.6.0
venv/bin/python - <<'END'
import ml_dtypes
import numpy as np
from safetensors import safe_open
from safetensors.numpy import load_file, save_file

save_file({"x": np.array([1, 2], ml_dtypes.bfloat16)}, "x.safetensors")
assert load_file("x.safetensors")["x"].dtype == ml_dtypes.bfloat16
for dtype in ml_dtypes.float8_e4m3fn, ml_dtypes.float8_e5m2:
    save_file({"x": np.array([1, 2], dtype)}, "x.safetensors")
    with safe_open("x.safetensors", "np") as file:
        assert file.get_slice("x").get_shape() == [2]
    try:
        load_file("x.safetensors")
        raise AssertionError("read")
    except AttributeError as error:
        print(error)
        assert dtype.__name__ in str(error)
END
