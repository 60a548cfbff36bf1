#!/usr/bin/env bash
# GDAL's Arrow writer moves instants before 1970 by a millisecond and makes floats of uint64.
#
# Versions: CPython 3.11, pyogrio 0.13.0, shapely 2.2.0, pyarrow 26.0.1, numpy 2.4.6
# Guess: write_arrow keeps milliseconds, which a GeoPackage stores, and refuses uint64, which it does not.
# Seen: 1969-12-31T23:59:59.999 is read back as 1970-01-01; a column uint64 is double, so 2**64 - 1 is 2**64; time64
#   is text without its microseconds; NaN is null. uint32 becomes int64, as expected.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
"${PYTHON:-python3}" -m venv venv
venv/bin/python -m pip install --quiet pyogrio==0.13.0 shapely==2.2.0 pyarrow==26.0.1 numpy==2.4.6
venv/bin/python - <<'END'
import pyarrow as pa
import pyogrio
import shapely

def there_and_back(array):
    table = pa.table({"x": array, "g": pa.array([shapely.Point(1, 2).wkb])})
    pyogrio.write_arrow(table, "x.gpkg", driver="GPKG", geometry_name="g", geometry_type="Point", crs="EPSG:4326")
    column = pyogrio.read_arrow("x.gpkg")[1]["x"]
    print(array.type, array.to_pylist(), "->", column.type, column.to_pylist())
    return column

assert there_and_back(pa.array([-1], pa.timestamp("ms"))).cast("int64").to_pylist() == [0]
assert there_and_back(pa.array([1], pa.timestamp("ms"))).cast("int64").to_pylist() == [1]
assert there_and_back(pa.array([2**64 - 1], pa.uint64())).to_pylist() == [2.0**64]
assert there_and_back(pa.array([1], pa.time64("us"))).to_pylist() == ["00:00:00"]
assert there_and_back(pa.array([float("nan")])).to_pylist() == [None]
assert there_and_back(pa.array([2**32 - 1], pa.uint32())).type == pa.int64()
END
