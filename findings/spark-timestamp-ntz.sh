#!/usr/bin/env bash
# A timestamp without zone that Spark gave to Arrow comes back to Spark as one with a zone.
#
# Versions: CPython 3.11, pyspark 4.3.0, pyarrow 26.0.1, pandas 3.1.1, numpy 2.4.6
# Guess: createDataFrame(df.toArrow()) has the types of df: timestamp[us] without a zone is TIMESTAMP_NTZ.
# Seen: It is TIMESTAMP. With the session's zone America/New_York the wall clock 00:00 is then the instant 05:00
#   UTC, and the next toArrow() says timestamp[us, tz=UTC] 05:00. (Java 17 or newer is needed.)
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

spark.conf.set("spark.sql.session.timeZone", "America/New_York")
wall = spark.sql("select timestamp_ntz'2024-01-01 00:00:00' as t")
table = wall.toArrow()
back = spark.createDataFrame(table)
again = back.toArrow()
print(wall.schema, table.schema, back.schema, again.schema, table["t"], again["t"], sep="\n")
assert wall.schema["t"].dataType.typeName() == "timestamp_ntz"
assert table.schema.field("t").type == pa.timestamp("us")
assert back.schema["t"].dataType.typeName() == "timestamp"
assert again.schema.field("t").type == pa.timestamp("us", "UTC")
hours = (again["t"][0].value - table["t"][0].value) / 3_600_000_000
assert hours == 5, hours
spark.stop()
END
