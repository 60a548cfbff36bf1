"""The cost in imports of the first object of a process: the modules that are loaded for it, beyond those of numpy.

Nothing here is timed; ``benchmarks/suites/cold.py`` is.
"""

from __future__ import annotations

import pickle
from pathlib import Path

import numpy as np
import pytest
from forms import file_of
from processes import python

import shmarrow as sa

MOST = 90
"""Files of the package that having the first objects of a store may load."""

NOT_NEEDED = {
    "shmarrow.build", "shmarrow.columns.chunked", "shmarrow.display", "shmarrow.integration",
    "shmarrow.interchange.handles", "shmarrow.interchange.pandas", "shmarrow.interchange.pyarrow",
    "shmarrow.interchange.sparse", "shmarrow.interchange.torch", "shmarrow.ipc.batch.codecs",
    "shmarrow.ipc.batch.dictionaries", "shmarrow.ipc.batch.encode", "shmarrow.ipc.draft", "shmarrow.ipc.file.writer",
    "shmarrow.ipc.flatbuffers.builder", "shmarrow.ipc.stream", "shmarrow.ipc.tensor.bundle",
    "shmarrow.ipc.tensor.decode_sparse", "shmarrow.ipc.tensor.writer", "shmarrow.ipc.tensor.reader",
    "shmarrow.layout.binary", "shmarrow.layout.c_array", "shmarrow.layout.dictionary",
    "shmarrow.layout.list", "shmarrow.layout.struct", "shmarrow.objects.encode",
    "shmarrow.memory.segment_writer", "shmarrow.memory.ranges", "shmarrow.memory.sinks", "shmarrow.store.info",
    "shmarrow.store.publish", "shmarrow.store.rebuild", "shmarrow.store.snapshot", "shmarrow.store.room",
    "shmarrow.store.watch", "shmarrow.columns.table", "shmarrow.columns.tabular", "shmarrow.tensor.sparse",
    "shmarrow.torch", "shmarrow.types.predicates", "shmarrow.types.unify",
}  # fmt: skip
"""Files and packages that only other uses need. The converter is one package more: all of it but its first file."""

ALIEN = {
    "asyncio", "copy", "email", "flatbuffers", "hashlib", "json", "lz4", "multiprocessing", "nanoarrow", "pandas",
    "pyarrow", "pyspark", "random", "socket", "subprocess", "torch", "uuid", "zstandard",
}  # fmt: skip
"""Packages of others, and of Python."""

SCRIPT = """
import sys
import numpy
before = set(sys.modules)
{statements}
print(*sorted(set(sys.modules) - before))
"""


def loaded_by(statements: str, *arguments: str) -> set[str]:
    """The modules that a fresh process loads beyond those that numpy does."""
    return set(python(SCRIPT.format(statements=statements), *arguments).split())


def check(loaded: set[str], most: int = MOST) -> None:
    """Check what was loaded, and that it is not more than so many files of ours."""
    ours = {name for name in loaded if name.partition(".")[0] == "shmarrow"}
    assert {name for name in ours if name.startswith("shmarrow.casts.")} == set()
    assert {name for name in ours if any(f"{name}.".startswith(f"{each}.") for each in NOT_NEEDED)} == set()
    assert {name.partition(".")[0] for name in loaded} & ALIEN == set()
    assert "shmarrow.ipc.file.reader" in ours
    assert len(ours) <= most


@pytest.fixture
def store(shm_name: str) -> sa.Store:
    made = sa.Store(shm_name)
    made.put("tensor", np.arange(6.0).reshape(2, 3))
    made.put("batch", sa.record_batch({"a": np.arange(5)}))
    return made


def test_first_objects_of_a_store(store: sa.Store) -> None:
    loaded = loaded_by(
        "import shmarrow\n"
        "store = shmarrow.Store(sys.argv[1], create=False)\n"
        "assert store.get('tensor').tolist() == [[0, 1, 2], [3, 4, 5]]\n"
        "assert store.get('batch')['a'].to_numpy().tolist() == [0, 1, 2, 3, 4]\n"
        "store.close()",
        store.name,
    )
    check(loaded)


def test_first_batch_of_a_file(tmp_path: Path) -> None:
    path = tmp_path / "file.arrow"
    path.write_bytes(file_of(sa.record_batch({"a": np.arange(5)})))
    loaded = loaded_by(
        "import shmarrow\nassert shmarrow.ipc.open_file(sys.argv[1]).get_batch(0)['a'].to_numpy().sum() == 10",
        str(path),
    )
    check(loaded)
    assert not any(name.startswith(("shmarrow.store", "shmarrow.objects", "shmarrow.tensor")) for name in loaded)


def test_first_value_of_a_broadcast(tmp_path: Path) -> None:
    from shmarrow.spark.app_store import driver_store
    from shmarrow.spark.delivery import InStore
    from shmarrow.spark.values import HostBroadcast

    lies = driver_store(tmp_path / "store")
    opened = lies.visible()
    assert opened is not None
    given = {"tensor": np.arange(6.0).reshape(2, 3), "batch": sa.record_batch({"a": np.arange(5)})}
    names = [opened.put(name, value) for name, value in given.items()]
    (tmp_path / "pickle").write_bytes(pickle.dumps([HostBroadcast(each, 0, (InStore(lies, each),)) for each in names]))
    loaded = loaded_by(
        "import pickle\n"
        "tensor, batch = pickle.load(open(sys.argv[1], 'rb'))\n"
        "assert tensor.value.tolist() == [[0, 1, 2], [3, 4, 5]]\n"
        "assert batch.value['a'].to_numpy().tolist() == [0, 1, 2, 3, 4]",
        str(tmp_path / "pickle"),
    )
    check(loaded, MOST + 6)


def test_a_reader_that_ends_imports_nothing(store: sa.Store) -> None:
    """Closing, collecting and the end of the interpreter do without imports, which are impossible there."""
    code = (
        "import sys, shmarrow\n"
        "store = shmarrow.Store(sys.argv[1], create=False)\n"
        "value, batch = store.get('tensor'), store.get('batch')\n"
        "before = set(sys.modules)\n"
        "class Last:\n"
        "    def __del__(self):\n"
        "        print(sorted(set(sys.modules) - before))\n"
        "last = Last()\n"
        "store.close()\n"
        "del value, batch, store\n"
    )
    assert python(code, store.name) == "[]\n"
