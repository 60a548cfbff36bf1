#!/usr/bin/env bash
# GeoPandas makes heights of measures when it writes geoarrow, and its Feather reader refuses its own tables.
#
# Versions: CPython 3.11, geopandas 1.2.0, shapely 2.2.0, pyarrow 26.0.1, pandas 3.1.1, numpy 2.4.6
# Guess: POINT M stays POINT M with geometry_encoding="geoarrow", or is refused; read_feather takes any Feather file
#   with a geoarrow column.
# Seen: POINT M (1 2 4) has the type struct xyz, and comes back as POINT Z (1 2 4); lines and polygons too; ZM
#   raises; WKB keeps M. read_feather wants the metadata "geo" and refuses a file with geoarrow.wkb alone, which
#   from_arrow reads.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
"${PYTHON:-python3}" -m venv venv
venv/bin/python -m pip install --quiet geopandas==1.2.0 shapely==2.2.0 pyarrow==26.0.1 pandas==3.1.1 numpy==2.4.6
venv/bin/python - <<'END'
import geopandas as gpd
import pyarrow as pa
import pyarrow.feather
import shapely

def there_and_back(text, encoding):
    frame = gpd.GeoDataFrame(geometry=[shapely.from_wkt(text)])
    table = pa.table(frame.to_arrow(geometry_encoding=encoding, index=False))
    return gpd.GeoDataFrame.from_arrow(table).geometry[0].wkt, table

for text in "POINT M (1 2 4)", "LINESTRING M (0 0 1, 1 1 2)":
    print(text, "->", there_and_back(text, "geoarrow")[0])
    assert there_and_back(text, "geoarrow")[0] == text.replace(" M ", " Z ")
    assert there_and_back(text, "WKB")[0] == text
table = there_and_back("POINT (1 2)", "WKB")[1]
assert table.schema.field(0).metadata[b"ARROW:extension:name"] == b"geoarrow.wkb"
pyarrow.feather.write_feather(table, "x.feather")
try:
    gpd.read_feather("x.feather")
    raise AssertionError("read")
except ValueError as error:
    print(error)
assert len(gpd.GeoDataFrame.from_arrow(pyarrow.feather.read_table("x.feather"))) == 1
END
