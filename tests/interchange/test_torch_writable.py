"""Tensors of torch and numpy may be written to: a write costs the pages it touches, and is seen nowhere else."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from environment import torch_or_skip
from parts import address
from processes import python

import shmarrow as sa
from shmarrow import segment
from shmarrow.errors import ExportRefused, StorageError
from shmarrow.memory.mappings import SMALL, mapping_of, private_view, writable

N = 1 << 16


def written(name: str, values: Any) -> sa.Tensor:
    sa.ipc.write_tensor(sa.Tensor.from_numpy(values), name, overwrite=True)
    found = sa.ipc.read_tensor(name)
    assert isinstance(found, sa.Tensor)
    return found


# --- which object is behind an array ----------------------------------------------------------------------------


def test_the_mapping_behind_an_array(tmp_path: Path, shm_name: str) -> None:
    path = str(tmp_path / "x.arrow")
    batch = sa.record_batch({"x": np.arange(N)})
    for name in (path, shm_name):
        with sa.ipc.new_file(name, batch.schema) as writer:
            writer.write(batch)
        column = sa.ipc.open_file(name).get_batch(0)["x"]
        file = os.stat(name.replace("shm:", "/dev/shm/"))
        for memory in (column.to_numpy(), column.slice(5).to_numpy()[3:], memoryview(column.to_numpy())):
            mapping = mapping_of(memory)
            assert mapping is not None
            assert mapping.location == name
            assert mapping.identity == (file.st_dev, file.st_ino, file.st_size, file.st_ctime_ns)
            assert len(mapping) == file.st_size
            assert mapping.address <= address(memory) < mapping.address + len(mapping)
        values = mapping.private()
        assert values is not None
        assert values.flags.writeable
        assert values.tobytes() == segment.attach(name).data.tobytes()
    with open(path, "rb") as opened:
        column = sa.ipc.open_file(opened).get_batch(0)["x"]
    found = mapping_of(column.to_numpy())
    assert found is not None
    assert found.location == path
    for unmapped in (np.arange(3), b"abc", memoryview(b"abc"), values, column.to_numpy(writable=True), None):
        assert mapping_of(unmapped) is None


def test_an_object_that_was_filled_in_place(shm_name: str) -> None:
    with segment.create(shm_name) as writer:
        data = writer.map(2 * SMALL)
        data[:] = 7
        assert mapping_of(data) is None
    found = mapping_of(data)
    assert found is not None
    assert found.identity == segment.attach(shm_name).identity
    pages = found.private(SMALL - 1, SMALL + 1)
    assert pages is not None
    pages[0] = 1
    assert (pages.tolist(), data[SMALL - 1]) == ([1, 7], 7)


def test_a_memfd_and_an_unnamed_file(tmp_path: Path) -> None:
    values = np.arange(N)
    whole = sa.Tensor.from_numpy(values)
    memfd = os.memfd_create("shmarrow-test")
    unnamed = os.open(tmp_path, os.O_TMPFILE | os.O_RDWR)
    for fd in (memfd, unnamed):
        with open(fd, "w+b", closefd=False) as file:
            sa.ipc.write_tensor(whole, file)
        with open(fd, "rb", closefd=False) as file:
            file.seek(0)
            by_file = sa.ipc.read_tensor(file)
        by_path = sa.ipc.read_tensor(f"/proc/self/fd/{fd}")
        os.close(fd)
        for tensor in (by_file, by_path):
            made = tensor.to_numpy(writable=True)
            assert (mapping_of(tensor.storage) is None) == (tensor is by_file)
            made += 1
            assert (made == values + 1).all()
            assert (tensor.to_numpy() == values).all()


@pytest.mark.parametrize("fate", ["removed", "replaced"])
def test_what_has_lost_its_name_is_copied(tmp_path: Path, fate: str) -> None:
    path = str(tmp_path / "x")
    tensor = written(path, np.arange(N))
    if fate == "removed":
        os.remove(path)
    else:
        written(path, np.zeros(N, int))
    assert private_view(tensor.storage) is None
    made = tensor.to_numpy(writable=True)
    made += 1
    assert (made == np.arange(N) + 1).all()
    assert (tensor.to_numpy() == np.arange(N)).all()


def test_a_file_that_was_truncated_is_refused(tmp_path: Path) -> None:
    path = str(tmp_path / "x")
    tensor = written(path, np.arange(N))
    os.truncate(path, 4096)
    with pytest.raises(StorageError, match="truncated from"):
        tensor.to_numpy(writable=True)


@pytest.mark.parametrize(
    "take",
    [lambda a: a, lambda a: a[::2, ::-1], lambda a: a.T[5:], lambda a: a[:, :1], lambda a: a[3:3]],
    ids=["whole", "gaps", "transposed", "column", "none"],
)
def test_strides_are_kept(shm_name: str, take: Any) -> None:
    values = np.arange(4 * N).reshape(512, 512)
    array = take(written(shm_name, values).storage)
    for made in (writable(array), writable(take(values))):
        assert made.flags.writeable
        assert made.dtype == array.dtype
        np.testing.assert_array_equal(made, take(values))
        made[...] = -1
    if array.size:
        assert writable(array).strides == array.strides
    np.testing.assert_array_equal(array, take(values))


def test_what_overlaps_is_not_expanded() -> None:
    repeated = np.broadcast_to(np.arange(3), (10**12, 3))
    made = writable(repeated)
    assert (made.shape, made.strides, made[-1].tolist()) == ((10**12, 3), (0, 8), [0, 1, 2])
    assert not np.may_share_memory(made, repeated)
    windows = np.lib.stride_tricks.sliding_window_view(np.arange(10), 4)[::-1]
    np.testing.assert_array_equal(writable(windows), windows)


# --- numpy ------------------------------------------------------------------------------------------------------


def test_numpy_is_read_only_unless_asked(shm_name: str) -> None:
    batch = sa.record_batch({"x": np.arange(N, dtype="f8"), "n": [1, None] * (N // 2)})
    with sa.ipc.new_file(shm_name, batch.schema) as writer:
        writer.write(batch)
    found = sa.ipc.open_file(shm_name).get_batch(0)
    column = found["x"]
    assert not column.to_numpy().flags.writeable
    for made in (
        column.to_numpy(writable=True),
        column.to_numpy(False, True),
        sa.chunked_array([column]).to_numpy(True, True),
    ):
        assert mapping_of(column.to_numpy()) is not None
        assert address(made) % 4096 == address(column.to_numpy()) % 4096
        made[:] = -1
    assert (column.to_numpy() == np.arange(N)).all()
    assert np.isnan(found["n"].to_numpy(False, writable=True)[1])
    with pytest.raises(sa.CopyRequired, match="null"):
        found["n"].to_numpy(writable=True)
    own = sa.array([1, 2, 3])
    own.to_numpy(writable=True)[0] = 9
    assert own.to_pylist() == [1, 2, 3]
    pairs = sa.array([[1, 2], [3, 4]], sa.list_(sa.int32(), 2))
    pairs.to_numpy(writable=True)[:] = 0
    assert pairs.to_pylist() == [[1, 2], [3, 4]]


def test_a_bundle_as_writable_ndarrays(shm_name: str) -> None:
    arrays = {"w": np.arange(N, dtype="f4").reshape(64, -1), "b": np.ones(3)}
    sa.save_tensors({**arrays, "s": sa.SparseCSRMatrix.from_dense(np.eye(4))}, shm_name)
    with sa.load_tensors(shm_name) as bundle, sa.load_tensors(segment.attach(shm_name).data.tobytes()) as copy:
        for source in (bundle, copy):
            made = source.to_numpy(writable=True)
            for name, array in made.items():
                array[...] = -5
                assert not source.to_numpy()[name].flags.writeable or name == "s"
            for name, array in arrays.items():
                np.testing.assert_array_equal(source.to_numpy()[name], array)
            np.testing.assert_array_equal(source.to_numpy()["s"], np.eye(4))


def test_dlpack_of_arrays(shm_name: str) -> None:
    column = sa.array(np.arange(5, dtype="i2"))
    assert column.__dlpack_device__() == (1, 0)
    made = np.from_dlpack(column)
    assert (made.dtype, made.tolist()) == (np.dtype("i2"), [0, 1, 2, 3, 4])
    assert not np.may_share_memory(made, column.to_numpy())
    assert np.from_dlpack(sa.array([True, False])).tolist() == [True, False]
    for wrong in (sa.array([1, None]), sa.array(["a"]), sa.array([True, None])):
        with pytest.raises(sa.CopyRequired):
            np.from_dlpack(wrong)
    mapped = written(shm_name, np.arange(3.0))
    assert address(np.from_dlpack(mapped, copy=False)) % 4096 == address(mapped.storage) % 4096


# --- torch ------------------------------------------------------------------------------------------------------

HAZARDS = """
import gc, hashlib, os, re, sys, threading, warnings
warnings.simplefilter("ignore")
from processes import ended, forked
import numpy as np, torch, shmarrow as sa
from torch import nn
from shmarrow import segment

torch.set_num_threads(1)  # a forked child has none of its parent's threads
where, size = sys.argv[1], 1 << 16
path, bundle_path = where + "/x.arrow", where + "/x.tensors"
store = sa.Store(sys.argv[2])
values = np.linspace(-1, 1, size, dtype="f4")

def digest(path):
    return hashlib.sha256(open(path, "rb").read()).hexdigest()

batch = sa.record_batch({"x": values})
with sa.ipc.new_file(path, batch.schema) as writer:
    writer.write(batch)
model = nn.Sequential(nn.Linear(256, 256), nn.ReLU(inplace=True), nn.Linear(256, 1))
sa.save_tensors(model.state_dict(), bundle_path)
store.put("t", sa.Tensor.from_numpy(values))
before = digest(path), digest(bundle_path)

# In place, on a tensor of a store, a column of a file, and a bundle; after reader and store are gone.
x = store.get("t").to_torch()
reader = sa.ipc.open_file(path)
y = reader.get_batch(0)["x"].to_torch()
bundle = sa.load_tensors(bundle_path)
state = bundle.to_torch()
reader.close(); bundle.close(); store.close(); del reader, bundle; gc.collect()
sa.Store(sys.argv[2]).delete("t")
assert x.sub_(1).max().item() == 0
assert torch.nn.functional.relu(y, inplace=True).min().item() == 0
assert y.max().item() == 1

# An optimizer's steps on weights that are assigned.
model.load_state_dict(state, assign=True)
assert model[0].weight.data_ptr() == state["0.weight"].data_ptr()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range(2):
    optimizer.zero_grad()
    model(torch.ones(4, 256)).sum().backward()
    optimizer.step()
weights = sa.load_tensors(bundle_path)
assert not torch.equal(weights["2.weight"].to_torch(), model[2].weight)

# A forked child's changes are its own; so are its parent's.
z = sa.ipc.open_file(path).get_batch(0)["x"].to_torch()
z[0] = 5
def change():
    assert z[0].item() == 5 and z[1].item() == values[1]
    z.fill_(9)
    own = sa.ipc.open_file(path).get_batch(0)["x"].to_torch()
    own += 1
assert ended(forked(change)) == 0
assert z[0].item() == 5 and z[1].item() == values[1]

# Threads, each with its own.
column = sa.ipc.open_file(path).get_batch(0)["x"]
wrong = []
def work(number):
    for _ in range(5):
        mine = column.to_torch()
        mine.fill_(number)
        if not bool((mine == number).all()):
            wrong.append(number)
threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
[thread.start() for thread in threads]
[thread.join() for thread in threads]
assert not wrong

# Each call has pages of its own, and so have sparse tensors.
tensor = weights["0.weight"]
first, second, by_dlpack = tensor.to_torch(), tensor.to_torch(), torch.from_dlpack(tensor)
shared = tensor.to_torch(writable=False)
assert shared.data_ptr() == tensor.storage.ctypes.data
expected = tensor.storage[0, 0].item()
first.sub_(1); second.mul_(2); by_dlpack.zero_()
assert [t[0, 0].item() for t in (second, by_dlpack, shared)] == [2 * expected, 0, expected]
diagonal = np.diag(np.arange(1.0, 10000)[:300])
sparse = sa.SparseCOOTensor.from_dense(diagonal)
for form in (sparse, sparse.to_csr(), sparse.to_csf()):
    sa.ipc.write_tensor(form, where + "/sparse", overwrite=True)
    found = sa.ipc.read_tensor(where + "/sparse")
    made = found.to_torch()
    csr = made.layout is torch.sparse_csr
    for part in (made.values(), made.col_indices()) if csr else (made._values(), made._indices()):
        part.zero_()
    assert (found.to_dense() == diagonal).all()

# Nothing leaks: descriptors and mappings after many calls.
def held():
    return len(os.listdir("/proc/self/fd")), sum(1 for _ in open("/proc/self/maps"))
for _ in range(10):
    tensor.to_torch(); weights.to_torch(); torch.from_dlpack(column)
start = held()
kept = [tensor.to_torch() for _ in range(100)]
assert held()[0] == start[0], "a private mapping has a descriptor"
del kept
for _ in range(100):
    tensor.to_torch(); weights.to_torch(); torch.from_dlpack(column)
end = held()
assert end[0] == start[0] and abs(end[1] - start[1]) < 8, (start, end)
assert (digest(path), digest(bundle_path)) == before

# A step on one page of a large tensor takes one page.
def memory():
    text = open("/proc/self/smaps_rollup").read()
    return {name: int(re.search(rf"^{name}:\\s+(\\d+) kB", text, re.M)[1]) for name in ("Private_Dirty", "Pss", "Rss")}

def private(address):  # bytes of the mapping at an address that are this process's own
    for area in re.split("(?m)^(?=[0-9a-f]+-[0-9a-f]+ )", open("/proc/self/smaps").read())[1:]:
        low, high = (int(end, 16) for end in area.split()[0].split("-"))
        if low <= address < high:
            return int(re.search(r"Anonymous: +(\\d+)", area)[1]) * 1024

size, name = 64 << 20, sys.argv[3]
with sa.ipc.new_tensor(name, (size,), "uint8") as writer:
    pass
del writer
tensor = sa.ipc.read_tensor(name)
tensor.to_torch()[:4096 * 8 + 1].add_(1)  # whatever torch sets up is set up
gc.collect()
start = memory()
x = tensor.to_torch()
first = -x.data_ptr() % 4096
x[first : first + 4096].add_(1)
end = memory()
assert private(x.data_ptr()) == 4096
assert end["Private_Dirty"] - start["Private_Dirty"] <= 64, (start, end)  # and what Python needs meanwhile
assert x[first].item() == 1 and tensor.storage[first] == 0

# Another process that reads the same pages shares them with this one.
ready, go = os.pipe(), os.pipe()
total = int(x.sum(dtype=torch.int64))
def read():
    y = sa.ipc.read_tensor(name).to_torch()
    y.sum()
    os.write(ready[1], b"x"); os.read(go[0], 1)
child = forked(read)
os.read(ready[0], 1)
shared = memory()
os.write(go[1], b"x")
assert ended(child) == 0
assert shared["Rss"] - start["Rss"] > size / 1024 * 0.9, (start, shared)
assert shared["Pss"] - start["Pss"] < size / 1024 * 0.6, (start, shared)
assert shared["Private_Dirty"] - start["Private_Dirty"] < 4096, (start, shared)
segment.delete(name)
print("done")
"""


@pytest.mark.processes
def test_nothing_that_is_done_in_place_does_harm(tmp_path: Path, shm_name: str) -> None:
    torch_or_skip()
    assert python(HAZARDS, tmp_path, tmp_path / "store", shm_name, stderr=None) == "done\n"


WITHOUT_DESCRIPTORS = """
import os, sys, shmarrow as sa
from processes import ended, forked
from shmarrow.memory.mappings import private_view
tensor = sa.ipc.read_tensor(sys.argv[1])
os.remove(sys.argv[1])
last = int(tensor.storage[-1])

def child():
    os.closerange(3, 4096)
    made = tensor.to_numpy(writable=True)
    made += 1
    assert private_view(tensor.storage) is None and made[-1] == last + 1 and tensor.storage[-1] == last

assert ended(forked(child)) == 0
"""


@pytest.mark.processes
def test_a_child_without_descriptors_gets_a_copy(tmp_path: Path) -> None:
    """In a program of its own: other libraries end a child whose descriptors are closed."""
    written(str(tmp_path / "x"), np.arange(N))
    python(WITHOUT_DESCRIPTORS, tmp_path / "x", stderr=None)


# --- columns ----------------------------------------------------------------------------------------------------


def test_columns_of_tables_and_bools_are_tensors() -> None:
    torch = torch_or_skip()
    column: Any = sa.table({"x": [1.0, 2.0]})["x"]
    assert torch.from_dlpack(column).tolist() == column.to_torch().tolist() == [1.0, 2.0]
    bools: Any = sa.array([True, False, True])
    for made in (bools.to_torch(), torch.from_dlpack(bools), sa.chunked_array([bools]).to_torch()):
        assert (made.dtype, made.tolist()) == (torch.bool, [True, False, True])
    bools.to_torch()[0] = False
    assert bools.to_pylist() == [True, False, True]
    assert sa.array([1, 2], sa.timestamp("s")).view("int64").to_torch().tolist() == [1, 2]
    assert sa.array([1], "date32").view("int32").to_torch().tolist() == [1]
    assert sa.chunked_array([], "int16").to_torch().dtype == torch.int16


def test_what_torch_has_not_says_what_to_do() -> None:
    torch = torch_or_skip()
    text: Any = sa.array(["a"])
    chunks: Any = sa.chunked_array([[1], [2], [3]])
    cases = [
        (chunks.to_torch, ExportRefused, "the column has 3 chunks; use combine_chunks()"),
        (lambda: torch.from_dlpack(chunks), ExportRefused, "the column has 3 chunks"),
        (
            text.to_torch,
            sa.CopyRequired,
            "string cannot be the element type of a tensor; use dictionary_encode().indices",
        ),
        (lambda: torch.from_dlpack(text), sa.CopyRequired, "string cannot be the element type"),
        (text.dictionary_encode().to_torch, sa.CopyRequired, "use .indices or .dictionary"),
        (sa.array([1], sa.timestamp("s")).to_torch, ExportRefused, "timestamp[s]; view('int64').to_torch() gives"),
        (sa.array([1], "date32").to_torch, ExportRefused, "date32[day]; view('int32').to_torch() gives the integers"),
        (sa.array([1], "duration[s]").to_torch, ExportRefused, "view('int64').to_torch() gives the integers"),
        (sa.array([[1]]).to_torch, sa.CopyRequired, "cast it to lists of one length"),
        (sa.array([1], sa.decimal128(3)).to_torch, sa.CopyRequired, "cast it to 'float64'"),
        (sa.array([True, None]).to_torch, sa.CopyRequired, "1"),
        (lambda: sa.array([True]).to_torch(writable=False), sa.CopyRequired, "writable=False cannot share them"),
        (lambda: sa.array([True]).__dlpack__(copy=False), sa.CopyRequired, "Arrow packs them as bits"),
    ]
    for call, kind, message in cases:
        with pytest.raises(sa.CopyRequired) as caught:
            call()
        assert type(caught.value) is kind
        assert message in str(caught.value)
    with pytest.raises(TypeError, match=r"^Array\.to_torch\(\) got an unexpected keyword argument 'dtype'"):
        text.to_torch(dtype=torch.float32)
