"""Whatever is read or exported twice has the same rows twice, or raises: never none."""

import io
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from forms import stream_of

import shmarrow as sa

duckdb = pytest.importorskip("duckdb")
pl = pytest.importorskip("polars")

SCHEMA = sa.schema([("x", sa.int64()), ("d", sa.dictionary(sa.int8(), sa.string()))])
ROWS = [{"x": i, "d": "ab"[i % 2]} for i in range(9)]
WHOLE = sa.record_batch({name: [row[name] for row in ROWS] for name in "xd"}, schema=SCHEMA)
BATCHES = [WHOLE.slice(i, 3) for i in (0, 3, 6)]

USES: dict[str, Callable[[Any], Any]] = {
    "read_all": lambda reader: reader.read_all().to_pylist(),
    "iteration": lambda reader: [row for batch in reader for row in batch.to_pylist()],
    "positions": lambda reader: [row for i in range(len(reader)) for row in reader.get_batch(i).to_pylist()],
    "pyarrow": lambda reader: pa.table(reader).to_pylist(),
    "Polars": lambda reader: pl.DataFrame(reader).to_dicts(),
    "DuckDB": lambda reader: duckdb.sql("from reader").fetchall(),
    "for_consumer": lambda reader: reader.for_consumer("polars").read_all().to_pylist(),
    "cast": lambda reader: reader.cast(SCHEMA).read_all().to_pylist() if hasattr(reader, "cast") else ROWS,
}


@pytest.mark.parametrize("use", USES.values(), ids=USES)
@pytest.mark.parametrize("kind", ["file", "stream"])
def test_each_use_has_all_rows(tmp_path: Path, kind: str, use: Callable[[Any], Any]) -> None:
    make, read = (sa.ipc.new_file, sa.ipc.open_file) if kind == "file" else (sa.ipc.new_stream, sa.ipc.open_stream)
    with make(tmp_path / "a", SCHEMA) as writer:
        for batch in BATCHES:
            writer.write(batch)
    reader: Any = read(tmp_path / "a")
    assert (len(reader), reader.num_rows) == (3, 9)
    assert reader[-1] == BATCHES[2]
    first = use(reader)
    assert len(first) == 9
    assert use(reader) == use(reader) == first
    if kind == "stream":
        assert reader.read_next_batch() == BATCHES[0]  # which alone has a position
        assert use(reader) == first
        assert [batch.to_pylist() for batch in (next(reader), next(reader))] == [ROWS[3:6], ROWS[6:]]
        with pytest.raises(StopIteration):
            next(reader)
        assert use(reader) == first


@pytest.mark.parametrize("use", ["read_all", "pyarrow", "Polars", "for_consumer"])
@pytest.mark.parametrize("kind", ["file object", "batches", "import"])
def test_what_cannot_be_read_again_raises(kind: str, use: str) -> None:
    data = stream_of(*BATCHES)
    reader = {
        "file object": lambda: sa.ipc.open_stream(io.BufferedReader(io.BytesIO(data))),  # type: ignore[arg-type]
        "batches": lambda: sa.RecordBatchReader.from_batches(SCHEMA, iter(BATCHES)),
        "import": lambda: sa.RecordBatchReader.from_stream(pa.ipc.open_stream(data)),
    }[kind]()
    assert len(reader.read_all().to_pylist()) == 9
    with pytest.raises(Exception, match="were read before, and it cannot be read again"):
        USES[use](reader)
