"""The index of a control file: what it finds is what a dictionary of names would contain."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from cases.store_files import check_store

import shmarrow as sa
from shmarrow.store import protocol as p


@pytest.mark.parametrize("seed", range(5))
def test_the_index_is_a_dictionary(tmp_path: Path, seed: int) -> None:
    chance, model = random.Random(seed), dict[str, str]()
    with sa.Store(tmp_path / "store") as store:
        for turn in range(500):
            name, other = (f"name {chance.randrange(60)}" for _ in range(2))
            if name in model:
                store.delete(name)
                del model[name]
            else:
                model[name] = f"{turn}" * chance.randrange(1, 600)
                store.put(name, model[name])
            assert (store.get(other) if other in store else None) == model.get(other)
        assert store.get_many(list(model)) == model
        assert set(check_store(tmp_path / "store")) == set(model) == set(store.names())


@pytest.mark.parametrize("field", ["head", "next"])
def test_an_index_whose_chains_are_circular(tmp_path: Path, field: str) -> None:
    """Whatever is asked for or changed ends, with a value or with an error of ours."""
    refused = set()
    with sa.Store(tmp_path / "store") as store:
        for number in range(8):
            store.put(f"name {number}", number)
        with (tmp_path / "store" / p.CONTROL).open("r+b") as control:
            for slot in range(32):
                control.seek(p.SLOTS + slot * p.SLOT_SIZE + p.SLOT[field][0])
                control.write((3).to_bytes(4, "little"))
        assert "none" not in store
        for name in [f"name {number}" for number in range(8)]:
            for use in (store.get, store.delete, lambda name: store.put(name, "x" * 3000, overwrite=True)):
                try:
                    use(name)
                except sa.ShmarrowError as error:
                    refused.add(type(error))
    assert refused
    assert refused <= {sa.InvalidData, sa.ObjectNotFound}
