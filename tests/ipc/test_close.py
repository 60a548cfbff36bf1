"""Closing a reader releases descriptors and mappings, as the kernel counts them.

Invariants: the reader object is referenced all the time, and no garbage collection helps; what was handed out
before keeps the mapping and nothing else does.
"""

from __future__ import annotations

import gc
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import forms
import pytest
from cases import table as cases
from forms import numbers
from measures import held

import shmarrow as sa


@pytest.fixture(autouse=True)
def no_garbage_collection() -> Iterator[None]:
    gc.collect()
    gc.disable()
    yield
    gc.enable()


OPENERS: dict[str, tuple[Callable[..., Any], Callable[..., Any]]] = {
    "file": (sa.ipc.new_file, sa.ipc.open_file),
    "stream": (sa.ipc.new_stream, sa.ipc.open_stream),
}

USES: dict[str, Callable[[Any], Any]] = {
    "opened only": lambda reader: None,
    "its schema": lambda reader: reader.schema.names,
    "a column": lambda reader: reader.get_batch(0).column(0).to_pylist(),
    "a dictionary": lambda reader: reader.get_batch(1).column(1).to_pylist(),
    "all": lambda reader: reader.read_all().to_pylist(),
    "its number of batches": lambda reader: reader.num_record_batches,
}


@pytest.fixture
def batch() -> sa.RecordBatch:
    words = cases.case("dictionary-int8").array()
    return sa.record_batch([sa.array(list(range(len(words)))), words], names=["i", f"d{os.urandom(8).hex()}"])


@pytest.mark.parametrize("use", USES.values(), ids=USES)
@pytest.mark.parametrize("kind", OPENERS)
def test_closing_releases_all_at_once(
    kind: str, use: Callable[[Any], Any], batch: sa.RecordBatch, tmp_path: Path, shm_name: str
) -> None:
    make, read = OPENERS[kind]
    for place, path in ((tmp_path / "a", str(tmp_path / "a")), (shm_name, "/dev/shm/" + shm_name[4:])):
        with make(place, batch.schema) as writer:
            writer.write(batch)
            writer.write(batch)
        reader = read(place)
        used = use(reader)
        assert held(path)[1] == 1
        reader.close()
        assert held(path) == (0, 0)
        reader.close()
        assert reader.schema == batch.schema
        del used


@pytest.mark.parametrize("kind", OPENERS)
def test_after_closing_each_method_says_so(kind: str, batch: sa.RecordBatch, tmp_path: Path) -> None:
    make, read = OPENERS[kind]
    with make(tmp_path / "a", batch.schema) as writer:
        writer.write(batch)
    with read(tmp_path / "a") as reader:
        iterator = iter(reader)
    calls = [lambda: reader.get_batch(0), reader.read_all, lambda: next(iterator)]
    if kind == "file":
        calls += [lambda: reader.metadata, lambda: reader.num_rows, lambda: reader[0], lambda: reader.dictionaries]
    else:
        calls += [reader.read_next_batch]
    calls += [lambda: reader.num_record_batches, lambda: len(reader)]
    for call in calls:
        with pytest.raises(sa.Closed, match="is closed"):
            call()


@pytest.mark.parametrize("kind", OPENERS)
def test_a_file_that_is_refused_is_released(kind: str, tmp_path: Path) -> None:
    path = tmp_path / "a"
    path.write_bytes(b"ARROW1\0\0" + bytes(100))
    try:
        OPENERS[kind][1](path)
    except sa.InvalidData as error:
        said = str(error)  # its traceback holds the frames that looked at the bytes
    assert str(path) in said
    assert held(str(path)) == (0, 0)


@pytest.mark.parametrize("kind", OPENERS)
def test_a_file_object_stays_open(kind: str, tmp_path: Path) -> None:
    path = tmp_path / "a"
    path.write_bytes(forms.write(f"{kind}-plain", [numbers()], numbers().schema))
    with open(path, "rb") as source:
        with OPENERS[kind][1](source) as reader:
            assert reader.read_all().to_pydict() == sa.Table.from_batches([numbers()]).to_pydict()
        assert held(str(path)) == (1, 0)
        source.seek(0)
        assert len(source.read(8)) == 8
