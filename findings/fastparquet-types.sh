#!/usr/bin/env bash
# fastparquet reads decimals as floats, half floats as bytes, and drops zones.
#
# Versions: CPython 3.11, fastparquet 2026.9.0, pyarrow 26.0.1, pandas 3.1.1, numpy 2.4.6
# Guess: Decimals are Decimal objects, float16 is float16, a zoned timestamp keeps its zone or UTC.
# Seen: decimal128(20, 2) is float64, without its last digits; float16 is two bytes; time64 and duration are whole
#   numbers; timestamp[ns, tz=Europe/Berlin] is a naive datetime64 in UTC. int64 and uint64 with nulls are exact.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
"${PYTHON:-python3}" -m venv venv
venv/bin/python -m pip install --quiet fastparquet==2026.9.0 pyarrow==26.0.1 pandas==3.1.1 numpy==2.4.6
venv/bin/python - <<'END'
import decimal
import warnings

import fastparquet
import pyarrow as pa
import pyarrow.parquet

warnings.simplefilter("ignore")
columns = {
    "decimal": (pa.decimal128(20, 2), decimal.Decimal("123456789012345678.91"), "float64"),
    "half": (pa.float16(), 1.5, "object"),
    "time": (pa.time64("us"), 1, "Int64"),
    "duration": (pa.duration("us"), 1, "Int64"),
    "zoned": (pa.timestamp("ns", "Europe/Berlin"), 1, "datetime64[ns]"),
    "whole": (pa.uint64(), 2**64 - 1, "UInt64"),
}
for name, (type, value, dtype) in columns.items():
    pyarrow.parquet.write_table(pa.table({"x": pa.array([value, None], type)}), "x.parquet")
    read = fastparquet.ParquetFile("x.parquet").to_pandas()["x"]
    print(type, "->", read.dtype, repr(read[0]))
    assert str(read.dtype) == dtype, read.dtype
    if name == "decimal":
        assert decimal.Decimal(read[0]) != value
    if name == "half":
        assert read[0] == b"\x00\x3e"
    if name == "whole":
        assert read[0] == value
END
