#!/usr/bin/env bash
# A boolean array goes neither from PyTables to h5py nor back as booleans.
#
# Versions: CPython 3.11, numpy 2.4.6, h5py 3.16.0, tables 3.11.1
# Guess: Both write HDF5's usual form of booleans and read each other's.
# Seen: PyTables writes a bit field, which h5py reads as uint8; h5py writes an enumeration, which PyTables reads as
#   int8.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
"${PYTHON:-python3}" -m venv venv
venv/bin/python -m pip install --quiet numpy==2.4.6 h5py==3.16.0 tables==3.11.1
venv/bin/python - <<'END'
import h5py
import numpy as np
import tables

values = np.array([True, False])
with tables.open_file("pytables.h5", "w") as file:
    file.create_array("/", "x", values)
with h5py.File("h5py.h5", "w") as file:
    file["x"] = values
with h5py.File("pytables.h5") as file:
    print("h5py reads", file["x"].dtype)
    assert file["x"].dtype == "uint8" and file["x"][:].tolist() == [1, 0]
with tables.open_file("h5py.h5") as file:
    print("PyTables reads", file.root.x.read().dtype, file.root.x.atom)
    assert file.root.x.read().dtype == "int8" and file.root.x.read().tolist() == [1, 0]
with tables.open_file("pytables.h5") as file:
    assert file.root.x.read().dtype == "bool"
END
