"""A scan is what it was when it was made: also after a change of directory, and in a process in another directory.

Each kind of source is named by a relative path in one directory and read from another, which has other rows under the
same names.
"""

from __future__ import annotations

import os
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from processes import python

import shmarrow as sa

RIGHT, WRONG = [1, 2, 3], [7, 8, 9]
SCHEMA = sa.schema({"x": "int64"})


SOURCES: dict[str, Any] = {
    "path": ["data/a.arrow", "data/b.arrow", "data/k=1/c.arrow"],
    "Path": [Path("data")],
    "path from here": ["./data/a.arrow", "./data/b.arrow", "./data/k=1/c.arrow"],
    "directory": "data",
    "directory with a slash": "data/",
    "this directory": ".",
    "pattern": "data/**/*.arrow",
    "pattern from here": "*/",
    "parent": "sub/../data",
    "behind a link": "link/../data",
    "home": "~/data",
    "objects of a store": "store/part",
    "one object of a store": "store/all",
    "pattern of objects": "store/part/*",
    "store": "store",
    "Store": lambda: sa.Store("store"),
    "readers": lambda: [sa.ipc.open_file(f"data/{name}.arrow") for name in ("a", "b", "k=1/c")],
    "tables": lambda: [sa.table({"x": [x]}) for x in RIGHT],
}
WAYS: dict[str, Callable[[Any], list[int]]] = {
    "table": lambda scan: scan.to_table()["x"].to_pylist(),
    "select and where": lambda scan: scan.select(["x"]).where([("x", ">", 0)]).to_table()["x"].to_pylist(),
    "polars": lambda scan: scan.to_polars().collect()["x"].to_list(),
    "pickled": lambda scan: pickle.loads(pickle.dumps(scan)).to_table()["x"].to_pylist(),
}


def fill(directory: Path, values: list[int], kind: str) -> None:
    """The files, or a store with the rows, in a directory."""
    (directory / "sub").mkdir(parents=True)
    (directory / "data").mkdir()
    (directory / "elsewhere" / "deep").mkdir(parents=True)
    os.symlink("elsewhere/deep", directory / "link")
    for name, x in zip(("a", "b", "k=1/c"), values, strict=True):
        path = directory / ("elsewhere/data" if kind == "behind a link" else "data") / f"{name}.arrow"
        path.parent.mkdir(parents=True, exist_ok=True)
        with sa.ipc.new_file(path, SCHEMA) as writer:
            writer.write(sa.record_batch({"x": [x]}))
    if "tore" in kind or "objects" in kind:
        with sa.Store(directory / "store", capacity="4 MiB") as store:
            if kind == "one object of a store":
                store.put("all", sa.table({"x": values}))
            else:
                for i, x in enumerate(values):
                    store.put(f"part/{i}", sa.table({"x": [x]}))


def made(kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, **options: Any) -> sa.Scan:
    """A scan by relative names, after whose making this process is in another directory."""
    here, there = tmp_path / "here", tmp_path / "there"
    fill(here, RIGHT, kind)
    fill(there, WRONG, kind)
    monkeypatch.chdir(here)
    monkeypatch.setenv("HOME", str(here))
    source = SOURCES[kind]
    scan = sa.scan(source() if callable(source) else source, **options)
    monkeypatch.chdir(there)
    monkeypatch.setenv("HOME", str(there))
    return scan


@pytest.mark.parametrize("kind", SOURCES)
@pytest.mark.parametrize("schema", [None, SCHEMA], ids=["first opened", "none opened"])
def test_after_a_change_of_directory(
    kind: str, schema: sa.Schema | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    scan = made(kind, tmp_path, monkeypatch, schema=schema)
    assert {way: rows(pickle.loads(pickle.dumps(scan))) for way, rows in WAYS.items()} == dict.fromkeys(WAYS, RIGHT)
    assert {way: rows(scan) for way, rows in WAYS.items()} == dict.fromkeys(WAYS, RIGHT)


OPENED = """
import pickle, sys
print(pickle.load(sys.stdin.buffer).to_table()["x"].to_pylist())
"""


@pytest.mark.processes
def test_in_a_process_in_another_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for kind in SOURCES:
        scan = made(kind, tmp_path / kind.replace(" ", "-"), monkeypatch, schema=SCHEMA)
        (tmp_path / "scan").write_bytes(pickle.dumps(scan))
        with open(tmp_path / "scan", "rb") as pickled:
            assert python(OPENED, stdin=pickled).strip() == str(RIGHT), kind


def test_names_of_the_directory_are_no_patterns(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What the present directory is called is neither a pattern nor a key."""
    here = tmp_path / "k=7" / "a[1]*"
    fill(here, RIGHT, "path")
    monkeypatch.chdir(here)
    for source in ("data", "data/*", "*", "data/**/*.arrow"):
        scan = sa.scan(source)
        monkeypatch.chdir(tmp_path)
        assert scan.to_table()["x"].to_pylist() == RIGHT
        assert scan.schema.names == ["x", "k"]
        assert scan.to_table()["k"].to_pylist() == [None, None, 1]
        assert scan.sources == [f"{here}/data/{name}.arrow" for name in ("a", "b", "k=1/c")]
        monkeypatch.chdir(here)
