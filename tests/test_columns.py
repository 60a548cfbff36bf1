"""Operations on columns, which batches and tables share, compared with pyarrow's."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import shmarrow as sa

LAT = sa.array([1.5, None, 3.5])
LON = sa.array([4.5, 5.5, 6.5])
SWAPPED = sa.schema([("lon", sa.float64()), ("lat", sa.float64())])

FORMS: dict[str, Callable[[Any], Any]] = {
    "list": lambda values: values.to_pylist(),
    "array": lambda values: values,
    "ndarray": lambda values: values.to_numpy(False),
    "chunked": lambda values: sa.ChunkedArray([values.slice(0, 2), values.slice(2)]),
}


@pytest.mark.parametrize("make", [sa.table, sa.record_batch], ids=["table", "batch"])
@pytest.mark.parametrize("form", FORMS)
def test_a_mapping_is_matched_with_the_schema_by_name(form: str, make: Callable[..., Any]) -> None:
    values = {"lat": FORMS[form](LAT), "lon": FORMS[form](LON)}
    rows = make(values, schema=SWAPPED)
    assert rows.column_names == ["lon", "lat"]
    assert rows["lon"].to_pylist() == [4.5, 5.5, 6.5]
    assert rows["lat"].to_pylist()[::2] == [1.5, 3.5]


@pytest.mark.parametrize("make", [sa.table, sa.record_batch], ids=["table", "batch"])
@pytest.mark.parametrize("form", FORMS)
def test_names_that_do_not_match_the_schema_are_refused(form: str, make: Callable[..., Any]) -> None:
    lat, lon = FORMS[form](LAT), FORMS[form](LON)
    with pytest.raises(sa.FieldNotFound, match=r"no column for the fields \['lon'\], it has \['lat', 'x'\]"):
        make({"lat": lat, "x": lon}, schema=SWAPPED)
    with pytest.raises(sa.FieldNotFound, match=r"no column for the fields \['lon'\]"):
        make({"lat": lat}, schema=SWAPPED)
    with pytest.raises(sa.InvalidArgument, match=r"no field for the columns \['x'\]"):
        make({"lat": lat, "x": lon, "lon": lon}, schema=SWAPPED)
    with pytest.raises(sa.InvalidArgument, match="more than once"):
        make({"lat": lat}, schema=sa.schema([("lat", sa.float64()), ("lat", sa.float64())]))
