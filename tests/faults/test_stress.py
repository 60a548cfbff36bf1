"""A service for a year, in small: one file opened again and again, by every route, and nothing adds up.

``SHMARROW_STRESS_OPENS`` says how often; the suite opens it some hundred times.
"""

from __future__ import annotations

import gc
import io
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import shmarrow as sa
from shmarrow import segment

OPENS = int(os.environ.get("SHMARROW_STRESS_OPENS", "500"))
"""By each route."""
WARM = 100
GROWTH = 4 << 20
"""Bytes of memory that a process may have more afterwards: that is under 10 kB for each open even of the short form."""

SCHEMA = pa.schema(
    [
        pa.field("i", pa.int64(), nullable=False, metadata={"unit": "m"}),
        pa.field("s", pa.string()),
        pa.field("d", pa.dictionary(pa.int8(), pa.string())),
        pa.field("l", pa.list_(pa.float64())),
    ],
    {"made": "by pyarrow"},
)
VALUES = {
    "i": list(range(50)),
    "s": [None if i % 7 == 0 else f"text {i}" for i in range(50)],
    "d": [f"word {i % 5}" for i in range(50)],
    "l": [[0.5 * i] * (i % 3) for i in range(50)],
}
TENSORS = {"weight": np.arange(6.0).reshape(2, 3), "bias": np.arange(3, dtype="i2")}


def answers(reader: Any) -> None:
    """All that a service asks of what it opens."""
    with reader:
        schema = reader.schema
        assert schema.names == list(VALUES)
        assert schema.field("i").metadata == {b"unit": b"m"}
        assert schema.metadata == {b"made": b"by pyarrow"}
        batch = reader.get_batch(0) if hasattr(reader, "get_batch") else reader.read_next_batch()
        assert batch.num_rows == 50
        assert batch.to_pydict() == VALUES


def tensor_answers(bundle: Any) -> None:
    with bundle:
        assert list(bundle) == ["weight", "bias"]
        for name, array in TENSORS.items():
            assert bundle[name].to_numpy().tolist() == array.tolist()
        assert bundle.metadata == {b"k": b"v"}


class Place:
    """One file in all the places that it can be opened from."""

    def __init__(self, folder: Path, shm_name: str) -> None:
        batch = pa.record_batch([pa.array(VALUES[field.name], field.type) for field in SCHEMA], schema=SCHEMA)
        parts = []
        for make in (pa.ipc.new_file, pa.ipc.new_stream):
            sink = pa.BufferOutputStream()
            with make(sink, SCHEMA) as writer:
                writer.write_batch(batch)
            parts.append(sink.getvalue().to_pybytes())
        self.data, self.stream = parts
        self.path, self.stream_path, self.bundle = folder / "f.arrow", folder / "s.arrows", folder / "b.tensors"
        self.path.write_bytes(self.data)
        self.stream_path.write_bytes(self.stream)
        self.shm = shm_name
        with segment.create(shm_name) as writer:
            writer.write([self.data])
        self.store = sa.Store(folder / "store")
        self.store.put_file("f", self.path)
        self.store.put("array", np.arange(10))
        sa.save_tensors(TENSORS, self.bundle, {"k": "v"})
        sa.save_tensors(TENSORS, f"{shm_name}-bundle", {"k": "v"})
        self.attached = segment.attach(self.path)


def from_store(place: Place) -> None:
    found = place.store.get("f")
    assert found.column_names == list(VALUES)
    assert found.to_pydict() == VALUES
    assert place.store.get("array").tolist() == list(range(10))


ROUTES: dict[str, Callable[[Place], None]] = {
    "path": lambda place: answers(sa.ipc.open_file(place.path)),
    "path, read": lambda place: answers(sa.ipc.open_file(place.path, memory_map=False)),
    "shared memory": lambda place: answers(sa.ipc.open_file(place.shm)),
    "segment": lambda place: answers(sa.ipc.open_file(place.attached)),
    "buffer": lambda place: answers(sa.ipc.open_file(place.data)),
    "file object": lambda place: _file(place, sa.ipc.open_file),
    "stream by path": lambda place: answers(sa.ipc.open_stream(place.stream_path)),
    "stream from a buffer": lambda place: answers(sa.ipc.open_stream(place.stream)),
    "stream piece by piece": lambda place: answers(sa.ipc.open_stream(io.BufferedReader(io.BytesIO(place.stream)))),
    "store": from_store,
    "bundle": lambda place: tensor_answers(sa.load_tensors(place.bundle)),
    "bundle in shared memory": lambda place: tensor_answers(sa.load_tensors(f"{place.shm}-bundle")),
}


def _file(place: Place, read: Any) -> None:
    with place.path.open("rb") as file:
        answers(read(file))


def resident() -> int:
    """Bytes of memory of this process that are its own."""
    with open("/proc/self/statm") as status:
        _, held, shared = status.read().split()[:3]
    return (int(held) - int(shared)) * os.sysconf("SC_PAGESIZE")


@pytest.mark.parametrize("route", ROUTES)
def test_opened_again_and_again(route: str, tmp_path: Path, shm_name: str) -> None:
    """The answers stay what pyarrow wrote, and neither descriptors, mappings nor memory grow."""
    place = Place(tmp_path, shm_name)
    use = ROUTES[route]
    for _ in range(WARM):
        use(place)
    gc.collect()
    open_files, memory, mappings = len(os.listdir("/proc/self/fd")), resident(), _mappings()
    for _ in range(OPENS):
        use(place)
    assert len(os.listdir("/proc/self/fd")) <= open_files, "descriptors add up where nothing waits for a collection"
    gc.collect()
    assert resident() - memory < GROWTH
    assert _mappings() - mappings < OPENS // 10
    place.store.close()


def _mappings() -> int:
    with open("/proc/self/maps") as maps:
        return sum(1 for _ in maps)


def test_the_routes_agree_over_one_cache(tmp_path: Path, shm_name: str) -> None:
    """Routes in turn over the same bytes, and over bytes that differ in one value of the metadata, never mix up."""
    place = Place(tmp_path, shm_name)
    other = place.data.replace(b"by pyarrow", b"by another")
    assert other != place.data
    for turn in range(OPENS // 4):
        list(ROUTES.values())[turn % len(ROUTES)](place)
        found = sa.ipc.open_file(other)
        assert found.schema.metadata == {b"made": b"by another"}
        assert found.get_batch(0).to_pydict() == VALUES
    place.store.close()
