"""What a store promises, asked through five methods, and that the check of a store's files finds what is wrong."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from time import monotonic
from typing import Any

import numpy as np
import pytest
from cases.compare import same
from cases.store_files import check_store
from cases.table import cases

import shmarrow as sa
from shmarrow import RecordBatchReader, Table, Tensor, record_batch, table


@pytest.fixture
def store(shm_name: str) -> Iterator[sa.Store]:
    with sa.Store(shm_name) as store:
        yield store
        assert set(check_store(shm_name)) == set(store.names())


class _Unwritable:
    """An object whose pickling fails."""

    def __reduce__(self) -> Any:
        raise ValueError("this object cannot be serialized")


def _fails_after_a_batch() -> RecordBatchReader:
    """A stream that ends with an error."""
    batch = record_batch({"x": np.full(50_000, -1)})

    def batches() -> Iterator[Any]:
        yield batch
        raise ValueError("this stream fails after its first batch")

    return RecordBatchReader.from_batches(batch.schema, batches())


def _column(found: Any) -> Any:
    """The column ``x`` of a record batch or of a table with one batch, as a numpy array."""
    column = found["x"]
    return column.chunk(0).to_numpy() if hasattr(column, "chunk") else column.to_numpy()


def test_objects_of_every_type_come_back(store: sa.Store) -> None:
    """Values of every type, with their schema."""
    for case in cases(writable=True):
        batch = record_batch([case.array()], names=["x"])
        store.put(case.name, batch)
        found = store.get(case.name)
        assert found.schema == batch.schema, case
        assert same(found.to_pydict()["x"], case.values), case
    assert len(store) == len(cases(writable=True))


def test_tables_keep_their_batches(store: sa.Store) -> None:
    """Also those without rows."""
    batches = [record_batch({"x": np.arange(start, stop)}) for start, stop in ((0, 3), (3, 3), (3, 7))]
    store.put("table", table(batches))
    found = store.get("table")
    assert isinstance(found, Table)
    assert [batch.num_rows for batch in found.to_batches()] == [3, 0, 4]
    assert found.to_pydict() == {"x": list(range(7))}


def test_arrays_of_any_shape_come_back(store: sa.Store) -> None:
    """As tensors, or as the numpy arrays that they were."""
    for name, array in {
        "matrix": np.arange(6.0).reshape(2, 3),
        "columns first": np.asfortranarray(np.arange(6).reshape(2, 3)),
        "empty": np.empty((0, 4), "int16"),
    }.items():
        store.put(name, array)
        found = store.get(name)
        values = found.to_numpy() if isinstance(found, Tensor) else np.asarray(found)
        assert (values.dtype, values.shape, values.tolist()) == (array.dtype, array.shape, array.tolist()), name


def test_objects_do_not_change_with_what_was_put(store: sa.Store) -> None:
    """A store holds copies, and gives no memory that can be written to."""
    given = np.arange(5)
    store.put("x", record_batch({"x": given}))
    given[:] = -1
    array = _column(store.get("x"))
    assert array.tolist() == [0, 1, 2, 3, 4]
    assert not array.flags.writeable


def test_names_that_are_missing_or_taken(store: sa.Store) -> None:
    """They are errors of Python's own, too."""
    with pytest.raises(KeyError):
        store.get("missing")
    with pytest.raises(KeyError):
        store.delete("missing")
    store.put("x", record_batch({"x": [1]}))
    with pytest.raises(FileExistsError):
        store.put("x", record_batch({"x": [2]}))


def test_what_cannot_be_stored_is_refused(store: sa.Store) -> None:
    """With a TypeError, and nothing is left of it."""
    for value in (None, object(), [1, "a"]):
        with pytest.raises(TypeError):
            store.put("x", value)
    assert store.names() == []


def test_puts_that_fail_leave_the_old_object(store: sa.Store) -> None:
    """Also if the value turns out to be unwritable when a part of it has been written."""
    store.put("x", record_batch({"x": [1, 2, 3]}))
    for make in (lambda: np.array([b"-" * 500_000, _Unwritable()], object), _fails_after_a_batch):
        for name in ("x", "new"):
            with pytest.raises((sa.ShmarrowError, ValueError), match=r"fails after|serialized|object"):
                store.put(name, make(), overwrite=True)
        assert store.get("x").to_pydict() == {"x": [1, 2, 3]}
        assert store.names() == ["x"]


def test_readers_see_whole_objects_only(store: sa.Store) -> None:
    """While another thread puts and replaces objects: the old one or the new one, never none or a part."""
    rows, done, seen = 100_000, threading.Event(), [0]
    store.put("x", record_batch({"x": np.full(rows, 0)}))
    problems: list[str] = []

    def look(name: str) -> None:
        array = _column(store.get(name))
        if len(array) != rows or array.min() != array.max():
            problems.append(f"{name}: {len(array)} of {rows} rows, from {array.min()} to {array.max()}")
        seen[0] += 1

    def keep_looking() -> None:
        fresh = 0
        while not done.is_set() and not problems:
            try:
                look("x")
                if f"new-{fresh}" in store:
                    look(f"new-{fresh}")
                    fresh += 1
            except Exception as error:
                problems.append(f"{type(error).__name__}: {error}")

    interval = sys.getswitchinterval()
    reader = threading.Thread(target=keep_looking)
    sys.setswitchinterval(1e-4)  # more chances to interrupt a put
    try:
        reader.start()
        end, number = monotonic() + 0.5, 0
        while number < 3 or (monotonic() < end and number < 200 and not problems):
            store.put("x", record_batch({"x": np.full(rows, number)}), overwrite=True)
            if number < 20:
                store.put(f"new-{number}", record_batch({"x": np.full(rows, number)}))
            number += 1
    finally:
        done.set()
        reader.join()
        sys.setswitchinterval(interval)
    assert not problems, f"a reader saw an object that was not complete: {problems[0]}"
    assert seen[0]


@pytest.mark.parametrize(
    ("at", "problem"),
    [
        (0, "expected the control file of a store, version"),
        (None, "no object has the files"),
        (-1, "fewer than its header"),
    ],
)
def test_files_that_are_not_those_of_a_store(tmp_path: Path, at: int | None, problem: str) -> None:
    with sa.Store(tmp_path / "store") as store:
        store.put("x", 1)
    assert list(check_store(tmp_path / "store")) == ["x"]
    control = tmp_path / "store" / "control"
    control.chmod(0o600)
    if at is None:
        (tmp_path / "store" / f"{1 << 40:016x}").touch()
    elif at < 0:
        os.truncate(control, 100)
    else:
        with control.open("r+b") as file:
            file.seek(at)
            file.write(b"?")
    with pytest.raises(sa.InvalidData, match=problem):
        check_store(tmp_path / "store")


def test_no_store(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        check_store(tmp_path / "none")
