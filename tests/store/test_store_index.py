"""The index of a control file, which finds what a dictionary of names would contain; and the check of such files."""

from __future__ import annotations

import os
import random
from pathlib import Path

import pytest
from cases.store_files import check_store
from put_all import get_all

import shmarrow as sa


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
        assert get_all(store, list(model)) == model
        assert set(check_store(tmp_path / "store")) == set(model) == set(store.names())


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
