#!/usr/bin/env bash
# A column of Python objects in Polars goes to Arrow as 8 bytes a row, though not to a file.
#
# Versions: CPython 3.11, polars 2.1.0, pyarrow 26.0.1
# Guess: pa.table(frame) raises, as write_ipc does.
# Seen: The type is fixed_size_binary[8], without metadata; the bytes mean nothing outside the frame, and come back
#   to Polars as Binary. write_ipc raises ComputeError. (shmarrow refuses such a frame.)
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
"${PYTHON:-python3}" -m venv venv
venv/bin/python -m pip install --quiet polars==2.1.0 pyarrow==26.0.1
venv/bin/python - <<'END'
import io

import polars as pl
import pyarrow as pa

frame = pl.DataFrame({"o": pl.Series([{1, 2}, None], dtype=pl.Object)})
table = pa.table(frame)
print(table.schema, table["o"].null_count)
assert table.schema.field("o").type == pa.binary(8) and table.schema.field("o").metadata is None
assert table["o"].is_null().to_pylist() == [False, True]
assert pl.DataFrame(table).schema == {"o": pl.Binary}
try:
    frame.write_ipc(io.BytesIO())
    raise AssertionError("written")
except pl.exceptions.ComputeError as error:
    print(error)
END
