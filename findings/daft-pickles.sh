#!/usr/bin/env bash
# Daft stores text views, dictionaries, decimal32, list views and time32 as pickled Python objects.
#
# Versions: CPython 3.11, daft 0.7.26, pyarrow 25.0.1
# Guess: Types that Daft lacks are cast: string_view and dictionary to text, decimal32 to decimal128; or refused.
# Seen: They become a column of type Python, which goes back to Arrow as an extension type over bytes of pickle. So
#   do frames of Polars, whose text is string_view. large_string and decimal128 are kept.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
"${PYTHON:-python3}" -m venv venv
venv/bin/python -m pip install --quiet daft==0.7.26 pyarrow==25.0.1
venv/bin/python - <<'END'
import datetime
import decimal

import daft
import pyarrow as pa

arrays = {
    "string_view": pa.array(["a"], pa.string_view()),
    "dictionary": pa.array(["a"]).dictionary_encode(),
    "decimal32": pa.array([decimal.Decimal("1.5")], pa.decimal32(5, 2)),
    "list_view": pa.array([[1]], pa.list_view(pa.int8())),
    "time32": pa.array([1], pa.time32("s")),
}
for name, array in arrays.items():
    frame = daft.from_arrow(pa.table({"x": array}))
    returned = frame.to_arrow()["x"]
    print(name, "->", frame.schema()["x"].dtype, "->", returned.type)
    assert str(frame.schema()["x"].dtype) == "Python"
    assert returned.type.extension_name == "daft.super_extension"
    assert returned.chunk(0).storage[0].as_py().startswith(b"\x80\x05")  # a pickle of protocol 5
kept = daft.from_arrow(pa.table({"x": pa.array(["a"], pa.large_string())}))
assert kept.to_arrow()["x"].to_pylist() == ["a"] and str(kept.schema()["x"].dtype) == "String"
END
