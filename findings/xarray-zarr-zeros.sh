#!/usr/bin/env bash
# xarray reads the zeros of zarr-python's arrays as NaN in format 2, and as zeros in format 3.
#
# Versions: CPython 3.11, xarray 2026.9.0, zarr 3.1.6, numpy 2.4.6, pandas 3.1.1
# Guess: An int64 array that zarr.create_array wrote is int64 for xarray.
# Seen: zarr-python stores its default fill value 0. In format 2 xarray takes it for the mark of missing values: 0
#   is NaN, int64 float64 (2**53 + 1 loses its last digit), booleans objects. In format 3 all is kept.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
"${PYTHON:-python3}" -m venv venv
venv/bin/python -m pip install --quiet xarray==2026.9.0 zarr==3.1.6 numpy==2.4.6 pandas==3.1.1
venv/bin/python - <<'END'
import numpy as np
import xarray as xr
import zarr

def seen(version):
    group = zarr.open_group(f"v{version}", mode="w", zarr_format=version)
    for name, dtype in ("i", "int64"), ("b", "bool"):
        names = {"dimension_names": ["x"]} if version == 3 else {}
        array = group.create_array(name, shape=3, chunks=3, dtype=dtype, **names)
        if version == 2:
            array.attrs["_ARRAY_DIMENSIONS"] = ["x"]
        array[:] = np.array([0, 1, 2**53 + 1]).astype(dtype)
        assert zarr.open_array(f"v{version}/{name}")[:].dtype == dtype
    opened = xr.open_zarr(f"v{version}", consolidated=False)
    print(version, opened["i"].values, opened["b"].values)
    return opened["i"].values, opened["b"].values

i, b = seen(2)
assert i.dtype == "float64" and np.isnan(i[0]) and i[2] == 2.0**53 and b.dtype == object
i, b = seen(3)
assert i.dtype == "int64" and i.tolist() == [0, 1, 2**53 + 1] and b.dtype == bool
END
