"""The data source ``shmarrow`` as Spark makes it, and files for it to read."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import shmarrow as sa

pytest.importorskip("pyspark")

from pyspark.sql.types import StructType

import pyspark_shmarrow


def write(path: Path, rows: Any, batches: int = 1, stream: bool = False, codec: str | None = None) -> str:
    """A file or a stream of rows, in so many batches of as many rows each."""
    table = sa.table(rows)
    options = sa.ipc.IpcWriteOptions(codec)
    with (sa.ipc.new_stream if stream else sa.ipc.new_file)(path, table.schema, options) as writer:
        for i in range(batches):
            bounds = table.num_rows * i // batches, table.num_rows * (i + 1) // batches
            for batch in table.slice(bounds[0], bounds[1] - bounds[0]).to_batches():
                writer.write_batch(batch)
    return str(path)


def source(path: Any = None, **options: str) -> Any:
    """The source as Spark makes it."""
    return pyspark_shmarrow.DefaultSource(options if path is None else {"path": str(path), **options})


def rows_of(made: Any, schema: Any = None) -> list[dict[str, Any]]:
    """Return what Spark's workers would read."""
    reader = made.reader(made.schema() if schema is None else schema)
    return [row for split in reader.partitions() for batch in reader.read(split) for row in batch.to_pylist()]


def struct_of(ddl: str) -> StructType:
    names = {"long": "long", "int": "integer", "string": "string", "timestamp": "timestamp"}
    name, kind, *rest = ddl.split()
    field = {"name": name, "type": names.get(kind, kind), "nullable": not rest, "metadata": {}}
    return StructType.fromJson({"type": "struct", "fields": [field]})
