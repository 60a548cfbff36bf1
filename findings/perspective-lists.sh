#!/usr/bin/env bash
# Perspective makes several rows of one row that holds a list, and cuts times to milliseconds.
#
# Versions: CPython 3.11, perspective-python 5.6.1, pyarrow 26.0.1
# Guess: A column of lists is text or refused; timestamps keep their unit and zone.
# Seen: Two rows with the lists [1, 2] and [3] are three rows, the other columns repeated; empty and missing lists
#   are both null. timestamp[us, tz] becomes timestamp[ms] without a zone, decimals double. Text views raise.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
"${PYTHON:-python3}" -m venv venv
venv/bin/python -m pip install --quiet perspective-python==5.6.1 pyarrow==26.0.1
venv/bin/python - <<'END'
import io

import perspective
import pyarrow as pa

client = perspective.Server().new_local_client()

def load(table):
    buffer = io.BytesIO()
    with pa.ipc.new_stream(buffer, table.schema) as writer:
        writer.write_table(table)
    return client.table(buffer.getvalue())

loaded = load(pa.table({"x": pa.array([[1, 2], [3]]), "k": ["a", "b"]}))
print(loaded.view().to_json())
assert loaded.size() == 3
assert loaded.view().to_json() == [{"x": 1, "k": "a"}, {"x": 2, "k": "a"}, {"x": 3, "k": "b"}]
times, decimals = pa.array([1999], pa.timestamp("us", "Europe/Berlin")), pa.array([1]).cast(pa.decimal128(19, 0))
loaded = load(pa.table({"t": times, "d": decimals}))
read = pa.ipc.open_stream(loaded.view().to_arrow()).read_all()
print(read.schema)
assert read.schema.types == [pa.timestamp("ms"), pa.float64()]
assert read["t"].cast("int64").to_pylist() == [1]
END
