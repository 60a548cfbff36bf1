"""Frames with names: replaced by the next of their name, and opened by other processes.

That a name ends with its application, and not if the frame is kept, is in ``test_spark_faults.py``, where a driver is
killed.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import shmarrow as sa
from shmarrow import spark as sas

pytest.importorskip("pyspark")

READER = """
import sys
from shmarrow.spark import attached
frame = attached("rides", sys.argv[1])
assert not {"pyspark", "pyarrow"} & set(sys.modules)
print(frame.read_all()["id"].to_pylist(), frame.name, frame.spark_schema is not None)
"""


def read_elsewhere(home: str) -> str:
    ran = subprocess.run([sys.executable, "-c", READER, home], capture_output=True, text=True, check=True)
    return ran.stdout.strip()


def test_sharing_again_replaces_the_frame(spark: Any, home: str) -> None:
    first = sas.share(spark.range(0, 4, 1, 2), home, name="rides")
    assert read_elsewhere(home) == f"[0, 1, 2, 3] {first.name} True"
    held = sas.attached("rides", home)
    table = held.attach(0)
    second = sas.share(spark.range(10, 14, 1, 2), home, name="rides")
    other = sas.share(spark.range(3), home, name="others")
    assert read_elsewhere(home) == f"[10, 11, 12, 13] {second.name} True"
    assert table["id"].to_pylist() == [0, 1]  # readers keep what they have
    with pytest.raises(sa.ObjectNotFound):
        held.read_all()
    with pytest.raises(sa.ObjectNotFound, match=r"name 'ride': there are 'others', 'rides'; share\(df, name=\.\.\.\)"):
        sas.attached("ride", home)
    assert {name.partition("/")[0] for name in sa.Store(home).names()} == {
        *(f".{frame.name}" for frame in (second, other)), second.name, other.name, "frames",
    }  # fmt: skip
    first.destroy()  # which is not the frame of that name any more
    assert sas.attached("rides", home).num_rows == 4
    again = sas.attached("rides", home)
    assert again.schema == second.schema
    assert again.to_df(spark=spark).schema == spark.range(1).schema
    again.destroy()
    other.destroy()
    with pytest.raises(sa.ObjectNotFound, match="name 'rides': there is none"):
        sas.attached("rides", home)


def test_a_frame_that_is_kept_expires(spark: Any, home: str) -> None:
    """With all that belongs to it; until then it can be replaced and destroyed by anyone."""
    store = sa.Store(home)
    first = sas.share(spark.range(0, 4, 1, 2), home, name="rides", keep=3600)
    first.index("id")
    assert {store.info(name).owner for name in store.names()} == {None}
    assert all(3000 < (store.info(name).expires_in or 0) <= 3600 for name in store.names())
    assert read_elsewhere(home) == f"[0, 1, 2, 3] {first.name} True"
    found = sas.attached("rides", home)
    assert (found.until, found.num_partitions) == (first.until, 2)
    with found.with_columns(lambda table: {"n": table["id"]}, "n long", spark) as wider:
        assert wider.read_all()["n"].to_pylist() == [0, 1, 2, 3]
    second = sas.share(spark.range(3), home, name="rides", keep=3600)
    assert [name for name in store.names() if first.name in name] == []
    sas.attached("rides", home).destroy()
    assert store.names() == []
    second.destroy()
    third = sas.share(spark.range(3), home, name="rides", keep=3600)
    for name in store.names():
        store.expire_after(name, 0.01)
    time.sleep(0.1)
    assert store.names() == []
    for call in (partial(sas.attached, "rides", home), third.read_all):
        with pytest.raises(sa.ObjectNotFound):
            call()
    third.until = time.time()
    with pytest.raises(sa.ObjectNotFound, match="has expired; share it again, with a longer keep="):
        third.index("id")
    store.collect()
    for keep in (0, -1.5, "1h", True, float("nan")):
        with pytest.raises(sa.InvalidArgument, match="keep must be a number of seconds, found"):
            sas.share(spark.range(1), home, name="x", keep=keep)  # type: ignore[arg-type]
    with pytest.raises(sa.InvalidArgument, match="keep= needs name="):
        sas.share(spark.range(1), home, keep=60)


def test_a_job_that_fails_leaves_the_frame_of_its_name(spark: Any, home: str) -> None:
    def fail(batches: Any) -> Any:
        raise ValueError("no such luck")

    with sas.share(spark.range(4), home, name="rides"):
        with pytest.raises(Exception, match="no such luck"):
            sas.share(spark.range(4), home, name="rides", function=fail)
        assert sas.attached("rides", home).num_rows == 4


def test_names_and_what_is_no_frame(spark: Any, home: str, tmp_path: Path) -> None:
    for name, error in [("", sa.InvalidArgument), ("x" * 201, sa.InvalidArgument), (3, sa.InvalidType)]:
        with pytest.raises(error, match=r"name must"):
            sas.share(spark.range(1), home, name=name)  # type: ignore[arg-type]
        with pytest.raises(error, match=r"name must"):
            sas.attached(name, home)  # type: ignore[arg-type]
    with pytest.raises(sa.ObjectNotFound, match="name 'x': there is none"):
        sas.attached("x", tmp_path / "nowhere")
    store = sa.Store(home)
    for said in (b"", b"{}", b"[]", json.dumps({"name": "frame-x", "store": [], "handles": []}).encode()):
        schema = sa.schema([("x", sa.int8())]).with_metadata({"shmarrow:frame": said})
        store.put("frames/x", sa.Table.from_batches([], schema), overwrite=True)
        with pytest.raises(sa.InvalidData, match=r"the object .frames/x. of the store .* is no shared frame"):
            sas.attached("x", home)
    store.delete("frames/x")
