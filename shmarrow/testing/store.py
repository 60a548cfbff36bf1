"""The contract of a store, as pytest tests of any object that behaves like one."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Protocol

import numpy as np

from shmarrow.batch import record_batch
from shmarrow.errors import MissingExtra
from shmarrow.tables import Table, table
from shmarrow.tensor import Tensor
from shmarrow.testing.compare import same
from shmarrow.testing.table import cases

try:
    import pytest
except ImportError as error:
    raise MissingExtra(f"StoreContract needs pytest: pip install 'shmarrow[testing]' ({error})") from None


class StoreLike(Protocol):
    """What :class:`StoreContract` uses of a store; :class:`shmarrow.Store` has it."""

    def put(self, name: str, value: Any, *, overwrite: bool = False) -> Any:
        """Publish a copy of a record batch, table or numpy array under a name."""

    def get(self, name: str) -> Any:
        """Return an object; KeyError if there is none."""

    def names(self, prefix: str = "") -> list[str]:
        """Return the names that start with a prefix, sorted."""

    def delete(self, name: str) -> Any:
        """Remove a name; KeyError if there is none."""

    def __contains__(self, name: object) -> bool: ...

    def __len__(self) -> int: ...

    def __iter__(self) -> Iterator[str]: ...


class StoreContract:
    """pytest tests of a store. Subclass it and define a fixture ``store``: an empty store, new for each test.

    Examples
    --------
    >>> import pytest
    >>> import shmarrow as sa
    >>> from shmarrow.testing import StoreContract
    >>> class TestDirectory(StoreContract):
    ...     @pytest.fixture
    ...     def store(self, tmp_path):
    ...         with sa.Store(tmp_path / "store") as store:
    ...             yield store
    """

    def test_objects_of_every_type_come_back(self, store: StoreLike) -> None:
        """Values of every type, with their schema."""
        for case in cases(writable=True):
            batch = record_batch([case.array()], names=["x"])
            store.put(case.name, batch)
            found = store.get(case.name)
            assert found.schema == batch.schema, case
            assert same(found.to_pydict()["x"], case.values), case
        assert len(store) == len(cases(writable=True))

    def test_tables_keep_their_batches(self, store: StoreLike) -> None:
        """Also those without rows."""
        batches = [record_batch({"x": np.arange(start, stop)}) for start, stop in ((0, 3), (3, 3), (3, 7))]
        store.put("table", table(batches))
        found = store.get("table")
        assert isinstance(found, Table)
        assert [batch.num_rows for batch in found.to_batches()] == [3, 0, 4]
        assert found.to_pydict() == {"x": list(range(7))}

    def test_arrays_of_any_shape_come_back(self, store: StoreLike) -> None:
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

    def test_objects_do_not_change_with_what_was_put(self, store: StoreLike) -> None:
        """A store holds copies, and gives no memory that can be written to."""
        given = np.arange(5)
        store.put("x", record_batch({"x": given}))
        given[:] = -1
        found = store.get("x")["x"]
        array = found.chunk(0).to_numpy() if hasattr(found, "chunk") else found.to_numpy()
        assert array.tolist() == [0, 1, 2, 3, 4]
        assert not array.flags.writeable

    def test_names(self, store: StoreLike) -> None:
        """Names are text of any kind, and come sorted."""
        names = ["b", "a", "day/2", "day/1", "naïve", "日本語", "two words", "x" * 200]
        for number, name in enumerate(names):
            assert name not in store
            store.put(name, record_batch({"n": [number]}))
            assert name in store
            assert len(store) == number + 1
        assert store.names() == sorted(store) == sorted(names)
        assert store.names("day/") == ["day/1", "day/2"]
        assert store.names("nothing") == []
        assert [store.get(name).to_pydict() for name in names] == [{"n": [number]} for number in range(len(names))]

    def test_missing_names(self, store: StoreLike) -> None:
        """They are KeyErrors."""
        with pytest.raises(KeyError):
            store.get("missing")
        with pytest.raises(KeyError):
            store.delete("missing")
        assert "missing" not in store
        assert store.names() == []

    def test_existing_names_are_replaced_on_request_only(self, store: StoreLike) -> None:
        """Readers of the old object keep it."""
        store.put("x", record_batch({"x": [1]}))
        with pytest.raises(FileExistsError):
            store.put("x", record_batch({"x": [2]}))
        old = store.get("x")
        assert old.to_pydict() == {"x": [1]}
        store.put("x", record_batch({"y": ["new"]}), overwrite=True)
        assert store.get("x").to_pydict() == {"y": ["new"]}
        assert old.to_pydict() == {"x": [1]}
        assert len(store) == 1

    def test_readers_keep_what_is_deleted(self, store: StoreLike) -> None:
        """The name is free again at once."""
        store.put("x", record_batch({"x": np.arange(1_000)}))
        held = store.get("x")
        store.delete("x")
        assert "x" not in store
        with pytest.raises(KeyError):
            store.get("x")
        store.put("x", record_batch({"x": np.zeros(1_000, int)}))
        assert held.to_pydict() == {"x": list(range(1_000))}

    def test_what_cannot_be_stored_is_refused(self, store: StoreLike) -> None:
        """With a TypeError, and nothing is left of it."""
        for value in (None, object(), [1, "a"]):
            with pytest.raises(TypeError):
                store.put("x", value)
        assert store.names() == []
