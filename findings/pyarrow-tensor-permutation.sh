#!/usr/bin/env bash
# One element of a permuted fixed-shape tensor array shows other numbers than the whole array.
#
# Versions: CPython 3.11, pyarrow 26.0.1, numpy 2.4.6, pandas 3.1.1
# Guess: array[0].to_numpy() equals array.to_numpy_ndarray()[0]; pandas gets arrays of the tensors' shape.
# Seen: With shape (2, 3) and permutation (1, 0) the element is [[1, 3], [2, 4], [3, 5]], where the array, and the
#   specification, say [[1, 4], [2, 5], [3, 6]]. pandas gets flat arrays, of floats if one row is null.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
"${PYTHON:-python3}" -m venv venv
venv/bin/python -m pip install --quiet pyarrow==26.0.1 numpy==2.4.6 pandas==3.1.1
venv/bin/python - <<'END'
import numpy as np
import pyarrow as pa

tensors = pa.fixed_shape_tensor(pa.int32(), (2, 3), permutation=[1, 0])
storage = pa.array([[1, 2, 3, 4, 5, 6]], pa.list_(pa.int32(), 6))
array = pa.ExtensionArray.from_storage(tensors, storage)
print("array:", array.to_numpy_ndarray()[0].tolist())
print("element:", array[0].to_numpy().tolist())
assert array.to_numpy_ndarray()[0].tolist() == np.arange(1, 7).reshape(2, 3).T.tolist()
assert array[0].to_numpy().tolist() == [[1, 3], [2, 4], [3, 5]]
assert array[0].to_tensor().to_numpy().tolist() == [[1, 3], [2, 4], [3, 5]]

square = pa.fixed_shape_tensor(pa.int32(), (2, 2))
array = pa.ExtensionArray.from_storage(square, pa.array([[1, 2, 3, 4], None], pa.list_(pa.int32(), 4)))
in_pandas = pa.table({"x": array}).to_pandas()["x"]
print("in pandas:", in_pandas.tolist())
assert array[0].to_numpy().shape == (2, 2)
assert in_pandas[0].shape == (4,) and in_pandas[0].dtype == "float64"
END
