#!/usr/bin/env bash
# Spark takes an Arrow map with a key twice, looks up the first, and shows Python the last.
#
# Versions: CPython 3.11, pyspark 4.3.0, pyarrow 26.0.1, pandas 3.1.1, numpy 2.4.6
# Guess: createDataFrame raises, as Spark's own map('a', 1, 'a', 2) does.
# Seen: The map has size 2 and keys ['a', 'a']; m['a'] is 1; collect() gives {'a': 2}; toArrow() gives both pairs.
#   Spark's own function raises DUPLICATED_MAP_KEY. (Java 17 or newer is needed.)
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
"${PYTHON:-python3}" -m venv venv
venv/bin/python -m pip install --quiet pyspark==4.3.0 pyarrow==26.0.1 pandas==3.1.1 numpy==2.4.6
venv/bin/python - <<'END'
import os
import sys

import pyarrow as pa
from pyspark.sql import SparkSession

os.environ["PYSPARK_PYTHON"] = sys.executable
settings = {"spark.ui.enabled": "false", "spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1"}
spark = SparkSession.builder.master("local[1]").config(map=settings).getOrCreate()
spark.sparkContext.setLogLevel("OFF")

pairs = pa.array([[("a", 1), ("a", 2)]], pa.map_(pa.string(), pa.int32()))
frame = spark.createDataFrame(pa.table({"m": pairs}))
row = frame.selectExpr("m", "m['a'] as first", "size(m) as size", "map_keys(m) as keys").collect()[0]
print(row, frame.toArrow().to_pylist())
assert (row.m, row["first"], row.size, row["keys"]) == ({"a": 2}, 1, 2, ["a", "a"])
assert frame.toArrow()["m"].to_pylist() == [[("a", 1), ("a", 2)]]
try:
    spark.sql("select map('a', 1, 'a', 2)").collect()
    raise AssertionError("no error")
except Exception as error:
    assert "DUPLICATED_MAP_KEY" in str(error), error
spark.stop()
END
