#!/usr/bin/env bash
# pyarrow's sparse tensors lose a fill value, and let the last of two values at one place win.
#
# Versions: CPython 3.11, pyarrow 26.0.1, numpy 2.4.6, scipy 1.17.1, sparse 0.19.3
# Guess: from_pydata_sparse refuses a fill value other than 0, as SciPy's conversion does; to_tensor adds what SciPy
#   adds.
# Seen: The fill value 7 becomes 0 without a word. Of 1.0 and 2.0 at one place, to_tensor shows 2.0, where SciPy,
#   sparse and torch show 3.0; the tensor itself says that it is not canonical.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
"${PYTHON:-python3}" -m venv venv
venv/bin/python -m pip install --quiet pyarrow==26.0.1 numpy==2.4.6 scipy==1.17.1 sparse==0.19.3
venv/bin/python - <<'END'
import numpy as np
import pyarrow as pa
import scipy.sparse
import sparse

filled = sparse.COO(np.array([[0], [1]]), np.array([5.0]), shape=(2, 2), fill_value=7.0)
tensor = pa.SparseCOOTensor.from_pydata_sparse(filled)
print(filled.todense().tolist(), "->", tensor.to_tensor().to_numpy().tolist())
assert filled.todense().tolist() == [[7.0, 5.0], [7.0, 7.0]]
assert tensor.to_tensor().to_numpy().tolist() == [[0.0, 5.0], [0.0, 0.0]]
assert tensor.to_pydata_sparse().fill_value == 0

doubled = scipy.sparse.coo_array(([1.0, 2.0], ([1, 1], [0, 0])), shape=(2, 1))
tensor = pa.SparseCOOTensor.from_scipy(doubled)
print(doubled.toarray().tolist(), "->", tensor.to_tensor().to_numpy().tolist())
assert doubled.toarray().tolist() == [[0.0], [3.0]]
assert not tensor.has_canonical_format
assert tensor.to_tensor().to_numpy().tolist() == [[0.0], [2.0]]
assert tensor.to_pydata_sparse().todense().tolist() == [[0.0], [3.0]]
END
