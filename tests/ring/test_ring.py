"""Rings: what a frame may be, what readers see of it, both policies, and what is refused."""

from __future__ import annotations

import asyncio
import gc
import os
import pickle
import re
import subprocess
import sys
import threading
import time
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from environment import ROOT
from processes import ended, forked, killed_at_end

import shmarrow as sa
from shmarrow.ring import ring_info
from shmarrow.ring.protocol import read_geometry

pl = pytest.importorskip("polars")

IMAGE = sa.fixed_shape_tensor(sa.uint8(), (4, 5))
FRAME = sa.record_batch(
    {
        "image": sa.array(np.arange(40, dtype="u1").reshape(2, 4, 5), IMAGE),
        "x": np.array([1.5, 2.5]),
        "text": ["a" * 10, None],
        "flag": [True, None],
        "points": sa.array([[1, 2], [3]], sa.list_(sa.int16())),
        "pair": sa.array([{"u": 1, "v": "p"}, None], sa.struct([("u", sa.int8()), ("v", sa.large_string())])),
        "price": sa.array([Decimal("1.25"), None], sa.decimal128(10, 2)),
        "none": sa.nulls(2),
    }
)


def numbered(number: int, rows: int = 64) -> sa.RecordBatch:
    return sa.record_batch({"n": np.full(rows, number), "text": [str(number)] * rows})


LIKE = numbered(10**9)
HERE = os.path.dirname(sa.ring.__file__)
"""The folder of the code of rings."""


def taken(reader: sa.Ring, count: int) -> list[int]:
    """The numbers of the next frames, each of which is whole."""
    found = []
    for batch in reader:
        values = batch["n"].to_numpy()
        number = int(values[0])
        assert (values == number).all()
        assert batch["text"].to_pylist() == [str(number)] * batch.num_rows
        found.append(number)
        if len(found) == count:
            break
    return found


# --- frames -----------------------------------------------------------------------------------------------------


def test_a_frame_is_read_as_it_was_put(shm_name: str) -> None:
    with sa.Ring(shm_name, like=FRAME) as ring, sa.Ring(shm_name) as reader:
        for part in (FRAME, FRAME.slice(1), FRAME.slice(0, 1), FRAME.slice(0, 0)):
            ring.put(part)
            found = next(reader)
            assert found.to_pydict() == part.to_pydict()
            assert found.schema == FRAME.schema
            found.validate(full=True)


def test_numbers_may_be_a_part_of_more_and_have_nulls(shm_name: str) -> None:
    values = [1, None, 3, 4, None, 6]
    pairs = sa.array([{"u": each, "v": 1.5} for each in values], sa.struct([("u", sa.int8()), ("v", sa.float64())]))
    rows = {"x": sa.array(values, sa.int16()), "image": np.arange(48).reshape(6, 2, 4), "pair": pairs, "y": range(6)}
    frame = sa.record_batch(rows)
    with sa.Ring(shm_name, like=frame.slice(0, 2)) as ring, sa.Ring(shm_name) as reader:
        for start, length in ((0, 2), (2, 2), (4, 2), (5, 1), (3, 0)):
            part = frame.slice(start, length)
            ring.put(part)
            assert next(reader).to_pydict() == part.to_pydict()
            copied = sa.concat_batches([part, part.slice(0, 0)])
            ring.put(copied)
            assert next(reader).to_pydict() == part.to_pydict()


def test_pyarrow_reads_a_slot_at_its_offset(shm_name: str) -> None:
    with sa.Ring(shm_name, like=FRAME) as ring:
        parts = [FRAME.slice(0, 1), FRAME, FRAME.slice(1)]
        for part in parts:
            ring.put(part)
        with open(f"/dev/shm/{shm_name[4:]}", "rb") as file:
            geometry = read_geometry(file.fileno(), shm_name)
            data = pa.py_buffer(file.read())
        schema = pa.ipc.read_schema(data[8192:])
        slots = [data[geometry.first + geometry.stride * slot :] for slot in range(4)]
        found = [pa.ipc.read_record_batch(slot, schema) for slot in slots if slot[:4].to_pybytes() == b"\xff" * 4]
        assert len(found) == 3
        assert sorted(batch.to_pydict()["x"] for batch in found) == [[1.5], [1.5, 2.5], [2.5]]
        for batch in found:
            batch.validate(full=True)
            assert all(buffer.address % 64 == data.address % 64 for buffer in batch["x"].buffers() if buffer)


def test_a_frame_is_filled_in_place(shm_name: str) -> None:
    with sa.Ring(shm_name, like=FRAME) as ring, sa.Ring(shm_name) as reader:
        for number in range(6):
            with ring.write() as slot:
                slot["image"].to_numpy()[:] = number
                slot["x"].to_numpy()[:] = [number, -number]
                slot["text"] = [None, str(number)]
                slot["flag"] = [number % 2 == 0, None]
                slot["points"] = [None, [number]]
                slot["pair"] = [None, {"u": number, "v": "q"}]
                slot["price"] = [None, Decimal(number)]
                slot["none"] = [None, None]
            assert next(reader).to_pydict() == {
                "image": [[number] * 20] * 2,
                "x": [number, -number],
                "text": [None, str(number)],
                "flag": [number % 2 == 0, None],
                "points": [None, [number]],
                "pair": [None, {"u": number, "v": "q"}],
                "price": [None, Decimal(number)],
                "none": [None, None],
            }


def test_frames_of_fewer_rows_are_filled_in_place(shm_name: str) -> None:
    like = sa.record_batch({"x": np.zeros((4, 3)), "y": np.zeros(4, "i2")})
    with sa.Ring(shm_name, like=like) as ring, sa.Ring(shm_name) as reader:
        for rows in (4, 1, 0, 3, 4, 4, 2):
            with ring.write(num_rows=rows) as slot:
                assert slot.num_rows == rows
                slot["x"].to_numpy()[:] = rows
                slot["y"].to_numpy()[:] = range(rows)
            assert next(reader).to_pydict() == {"x": [[rows] * 3] * rows, "y": [*range(rows)]}


def test_tensors(shm_name: str) -> None:
    like = sa.Tensor.from_numpy(np.zeros((3, 4), "f4"))
    with sa.Ring(shm_name, like=like) as ring, sa.Ring(shm_name) as reader:
        assert ring.info().kind == "tensor"
        with ring.write() as frame:
            frame[:] = 7
        found = next(reader)
        assert isinstance(found, sa.Tensor)
        assert found.to_numpy().tolist() == [[7] * 4] * 3
        for number in range(8):
            ring.put(np.full((4, 3), number, "f4").T)
            assert next(reader).to_numpy().tolist() == [[number] * 4] * 3
        for other in (np.zeros((4, 3), "f4"), np.zeros((3, 4))):
            with pytest.raises(sa.InvalidType, match=r"like <Tensor float, shape \(3, 4\)"):
                ring.put(other)
        with pytest.raises(sa.InvalidArgument, match="rows"), ring.write(num_rows=1):
            pass


ARRAYS = [
    np.arange(12.0).reshape(3, 4),
    np.arange(3, dtype=">i4"),
    np.array(5, "u1"),
    np.zeros((0, 2)),
    np.array([True, False]),
    np.array(["2024-02-29", "1969-12-31"], "M8[D]"),
    np.array([1, 2], "M8[ns]"),
    np.array([1, 2], "m8[s]"),
]


@pytest.mark.parametrize("array", ARRAYS, ids=lambda array: str(array.dtype))
def test_an_ndarray_stays_one(shm_name: str, array: Any) -> None:
    with sa.Ring(shm_name, like=array) as ring, sa.Ring(shm_name) as reader:
        assert ring.info().kind == "ndarray"
        for _ in range(5):
            ring.put(array)
            frame = next(reader)
            assert type(frame) is np.ndarray
            assert frame.dtype == array.dtype.newbyteorder("=")
            np.testing.assert_array_equal(frame, array)
        ring.put(sa.Tensor.from_numpy(array))
        np.testing.assert_array_equal(next(reader), array)


def test_numpys_strings_are_refused_as_tensors(shm_name: str) -> None:
    strings = np.array(["a"], np.dtypes.StringDType())
    for use in (
        lambda: sa.Ring(shm_name, like=strings),
        lambda: sa.Tensor.from_numpy(strings),
        lambda: sa.save_tensors({"t": strings}, "never.arrow"),
    ):
        with pytest.raises(sa.InvalidType, match="fixed width"):
            use()


def test_frames_have_the_schema_of_the_ring(shm_name: str) -> None:
    """Whatever the types of what is put, if its values fit them exactly."""
    schema = sa.schema([("i", sa.int16()), ("d", sa.decimal128(5, 2)), ("m", sa.map_(sa.string(), sa.int64()))])
    like = sa.record_batch({"i": [1, 2], "d": [Decimal(1), None], "m": [[("ab", 1)], []]}, schema)
    with sa.Ring(shm_name, like=like) as ring, sa.Ring(shm_name) as reader:
        ring.put({"i": [7.0, None], "d": [1, Decimal("2.5")], "m": [{"k": 2}, None]})
        assert next(reader).to_pydict() == {
            "i": [7, None],
            "d": [Decimal(1), Decimal("2.5")],
            "m": [[("k", 2)], None],
        }
        frame = pd.DataFrame({"i": [3, 4], "d": [Decimal("1.5"), None], "m": [[], [("z", 1)]]})
        for each in (frame, pl.DataFrame({"i": [3, 4], "d": [Decimal("1.5"), None]}).with_columns(m=None)):
            ring.put(each)
            batch = next(reader)
            assert batch.schema == schema
            assert batch.select(["i", "d"]).to_pydict() == {"i": [3, 4], "d": [Decimal("1.5"), None]}
        for wrong in (40_000, 1.5):
            with pytest.raises(sa.InvalidData):
                ring.put({"i": [wrong], "d": [None], "m": [None]})
        assert ring.info().frames == 3


def test_frames_of_other_libraries(shm_name: str) -> None:
    values = {"x": [1.5, 2.5], "s": ["ab", None]}
    for number, frame in enumerate((pd.DataFrame(values), pa.record_batch(values))):
        with sa.Ring(f"{shm_name}-{number}", like=frame) as ring, sa.Ring(f"{shm_name}-{number}") as reader:
            ring.put(frame[::-1] if number == 0 else frame)
            assert next(reader).to_pydict() == (
                values if number else {name: each[::-1] for name, each in values.items()}
            )


def test_what_does_not_fit_is_an_error_and_nothing_is_written(shm_name: str) -> None:
    with sa.Ring(shm_name, like=FRAME) as ring, sa.Ring(shm_name) as reader:
        ring.put(FRAME)
        assert next(reader).num_rows == 2
        with pytest.raises(sa.LimitExceeded, match="at most 2 rows, found 4"):
            ring.put(sa.concat_batches([FRAME, FRAME]))
        long = FRAME.set_column(FRAME.schema.names.index("text"), "text", ["a" * 10, "b"])
        with pytest.raises(sa.LimitExceeded, match=r"'text': a slot has 10 bytes for its data.*found 11"):
            ring.put(long)
        with pytest.raises(sa.InvalidType, match="does not fit"):
            ring.put(FRAME.select(["x"]))
        with pytest.raises(sa.LimitExceeded, match="at most 2 rows"), ring.write(num_rows=3):
            pass
        with pytest.raises(sa.LimitExceeded, match="'text'"), ring.write() as slot:
            slot["text"] = ["a" * 11, None]
        with pytest.raises(sa.InvalidArgument, match="expected 2 values, found 1"), ring.write() as slot:
            slot["text"] = ["a"]
        with pytest.raises(sa.InvalidType, match=r"slot\['flag'\] = values"), ring.write() as slot:
            slot["flag"]
        with pytest.raises(sa.InvalidArgument, match=r"\['image', 'text'.*were not filled"), ring.write() as slot:
            slot["x"].to_numpy()[:] = 9
        with pytest.raises(ZeroDivisionError), ring.write() as slot:
            slot["x"].to_numpy()[:] = 1 / 0
        assert ring.info().frames == 1
        ring.put(FRAME.slice(1))
        assert next(reader).to_pydict() == FRAME.slice(1).to_pydict()
        assert reader.missed == 0


@pytest.mark.parametrize(
    "column",
    [sa.array(["a"]).dictionary_encode(), sa.array(["a"], sa.string_view())],
    ids=["dictionary", "views"],
)
def test_types_without_a_limit_are_refused(shm_name: str, column: sa.Array) -> None:
    with pytest.raises(sa.Unsupported, match=r"column 'c': a ring cannot hold"):
        sa.Ring(shm_name, like=sa.record_batch({"c": column}))


def test_a_batch_is_valid_until_the_next_step(shm_name: str) -> None:
    with sa.Ring(shm_name, like=LIKE) as ring, sa.Ring(shm_name, timeout=0) as reader:
        ring.put(numbered(1))
        first = next(reader)
        part = first.slice(1, 2)
        copied = pickle.loads(pickle.dumps(first))
        with pytest.raises(sa.TimedOut, match=r"no frame after 1 .* its writer is process"):
            next(reader)
        for stale in (first, part):
            with pytest.raises(sa.Closed, match="valid until the next step"):
                stale.column("n")
            assert f"{stale.num_rows} rows, 2 columns" in repr(stale)
        assert copied.to_pydict() == numbered(1).to_pydict()


# --- policies -----------------------------------------------------------------------------------------------------


def test_the_latest_frame_and_how_many_were_missed(shm_name: str) -> None:
    with sa.Ring(shm_name, like=LIKE) as ring:
        ring.put(numbered(1))
        with sa.Ring(shm_name, policy="latest", timeout=0) as reader:
            assert reader.position == 1
            with pytest.raises(sa.TimedOut):  # it was there before
                next(reader)
            ring.put(numbered(2))
            assert taken(reader, 1) == [2]
            assert reader.missed == 0
            for number in range(3, 20):
                ring.put(numbered(number))
            assert taken(reader, 1) == [19]
            assert (reader.position, reader.missed) == (19, 16)


def test_a_slot_that_a_reader_holds_is_not_overwritten(shm_name: str) -> None:
    with sa.Ring(shm_name, like=LIKE, slots=4) as ring:
        readers = [sa.Ring(shm_name) for _ in range(3)]
        held = []
        for number, reader in enumerate(readers):
            ring.put(numbered(number))
            held.append(next(reader))
        for number in range(100, 140):
            ring.put(numbered(number))
            assert [batch["n"][0] for batch in held] == [0, 1, 2]
        with pytest.raises(sa.LimitExceeded, match="4 slots has 3 readers, its maximum"):
            sa.Ring(shm_name)
        readers[1].close()
        with sa.Ring(shm_name) as another:
            ring.put(numbered(140))
            assert taken(another, 1) == [140]
        assert [taken(reader, 1) for reader in (readers[0], readers[2])] == [[140], [140]]
        for reader in readers:
            reader.close()


def test_with_all_frames_the_writer_waits_for_the_slowest_reader(shm_name: str) -> None:
    with sa.Ring(shm_name, like=LIKE, slots=3, policy="all", timeout=0) as ring:
        for number in range(10):  # nobody reads
            ring.put(numbered(number))
        with sa.Ring(shm_name) as fast, sa.Ring(shm_name) as slow:
            for number in range(10, 13):
                ring.put(numbered(number))
            assert taken(fast, 3) == [10, 11, 12]
            with pytest.raises(sa.TimedOut, match=rf"process {os.getpid()} has taken frame 10 of 13"):
                ring.put(numbered(13))
            assert taken(slow, 1) == [10]
            with pytest.raises(sa.TimedOut):  # it has the frame still
                ring.put(numbered(13))
            assert taken(slow, 1) == [11]
            ring.put(numbered(13))
            assert taken(slow, 2) == [12, 13]
            assert slow.missed == fast.missed == 0


def test_the_policy_belongs_to_the_ring(shm_name: str) -> None:
    with sa.Ring(shm_name, like=LIKE, policy="all") as ring:
        assert ring.policy == "all"
        with pytest.raises(sa.InvalidArgument, match="has the policy 'all', which its writer gave; expected 'latest'"):
            sa.Ring(shm_name, policy="latest")
        with sa.Ring(shm_name, policy="all") as reader:
            assert reader.policy == "all"


# --- opening, ending ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("policy", ["latest", "all"])
def test_the_end_comes_after_the_last_frame(tmp_path: Path, policy: str) -> None:
    where = tmp_path / "ring"
    with sa.Ring(where, like=LIKE, policy=policy) as ring:
        reader, idle = sa.Ring(where), sa.Ring(where)
        ring.put(numbered(1))
        assert taken(reader, 1) == [1]
        idle.close()
        ring.put(numbered(2))
    assert not where.exists()
    assert taken(reader, 9) == [2]
    assert list(reader) == []
    with pytest.raises(sa.Closed):
        next(idle)
    with pytest.raises(sa.Closed):
        ring.put(numbered(3))
    with pytest.raises(sa.ObjectNotFound):
        sa.Ring(where, timeout=0)


def test_a_reader_waits_for_the_ring_and_for_frames(shm_name: str) -> None:
    def read() -> None:
        with sa.Ring(shm_name, timeout=60) as reader:
            assert taken(reader, 3) == [0, 1, 2]

    child = forked(read)
    with killed_at_end([child]), sa.Ring(shm_name, like=LIKE, policy="all") as ring:
        while not ring.info().readers:  # which a reader is one of when it is open, and misses nothing from then on
            os.sched_yield()
        assert [each.process for each in ring.info().readers] == [child]
        for number in range(3):
            ring.put(numbered(number))
        assert ended(child) == 0


def test_a_reader_that_waited_for_the_ring_ends_when_nothing_refers_to_it(
    shm_name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And not only when Python next looks for cycles: until then, a writer would wait for it."""
    rings: list[sa.Ring] = []
    monkeypatch.setattr(time, "sleep", lambda _: rings.append(sa.Ring(shm_name, like=LIKE, policy="all")))
    gc.disable()
    try:
        reader = sa.Ring(shm_name, timeout=60)
        with rings[0] as ring:
            assert len(ring.info().readers) == 1
            del reader
            assert not ring.info().readers
    finally:
        gc.enable()


def test_a_reader_gets_every_frame_since_it_is_listed(shm_name: str) -> None:
    """A frame is put at each line of the code that opens a reader, from the one on that lists it."""
    put = []

    def look(frame: Any, event: str, _: Any) -> Any:
        if event == "line" and frame.f_code.co_filename.startswith(HERE) and len(put) < 20 and ring.info().readers:
            ring.put(numbered(len(put)))
            put.append(len(put))
        return look

    with sa.Ring(shm_name, like=LIKE, slots=32, policy="all", timeout=0) as ring:
        sys.settrace(look)
        try:
            reader = sa.Ring(shm_name, timeout=0)
        finally:
            sys.settrace(None)
        with reader:
            assert put
            assert taken(reader, len(put)) == put


def test_a_writer_that_waits_is_woken(shm_name: str) -> None:
    with sa.Ring(shm_name, like=LIKE, slots=2, policy="all", timeout=60) as ring:
        count = 500

        def read() -> None:
            with sa.Ring(shm_name, timeout=60) as reader:
                assert taken(reader, count) == [*range(count)]

        child = forked(read)
        with killed_at_end([child]):
            while not ring.info().readers:
                os.sched_yield()
            for number in range(count):
                ring.put(numbered(number))
            assert ended(child) == 0


def test_async_for(shm_name: str) -> None:
    async def main() -> list[int]:
        with sa.Ring(shm_name, like=LIKE, slots=6, policy="all") as ring, sa.Ring(shm_name, timeout=60) as reader:

            async def write() -> None:
                for number in range(5):
                    await asyncio.sleep(0)
                    ring.put(numbered(number))
                ring.close()

            task = asyncio.create_task(write())
            found = [batch["n"][0] async for batch in reader]
            await task
            return found

    assert asyncio.run(main()) == [*range(5)]


def test_a_ring_is_passed_to_a_worker(shm_name: str) -> None:
    with sa.Ring(shm_name, like=LIKE) as ring:
        given = pickle.dumps(ring)
        ring.put(numbered(1))
        whole = Path("/dev/shm", shm_name.removeprefix("shm:")).read_bytes()

        def read() -> None:
            with pytest.raises(sa.Closed, match="a parent of this process"):
                ring.put(numbered(9))
            assert Path("/dev/shm", shm_name.removeprefix("shm:")).read_bytes() == whole
            with pickle.loads(given) as reader:
                assert taken(reader, 1) == [5]

        child = forked(read)
        with killed_at_end([child]):
            while not ring.info().readers:
                os.sched_yield()
            ring.put(numbered(5))
            assert ended(child) == 0


def test_a_second_writer(shm_name: str) -> None:
    with sa.Ring(shm_name, like=LIKE) as ring:
        with pytest.raises(sa.ObjectExists, match=rf"process {os.getpid()} is its writer, and a ring has one"):
            sa.Ring(shm_name, like=LIKE)
        with sa.Ring(shm_name) as reader:
            ring.put(numbered(1))
            assert taken(reader, 1) == [1]
    with sa.Ring(shm_name, like=FRAME) as another:
        assert another.info().frames == 0


def test_another_thread_ends_a_wait(shm_name: str) -> None:
    with sa.Ring(shm_name, like=LIKE), sa.Ring(shm_name) as reader:
        found: list[type] = []

        def read() -> None:
            try:
                next(reader)
            except sa.ShmarrowError as error:
                found.append(type(error))

        thread = threading.Thread(target=read)
        thread.start()
        reader.close()
        thread.join(60)
        assert found == [sa.Closed]


def test_what_is_known_of_a_ring(shm_name: str) -> None:
    with sa.Ring(shm_name, like=LIKE, slots=5) as ring, sa.Ring(shm_name) as reader:
        for number in range(3):
            ring.put(numbered(number))
        next(reader)
        found = ring_info(shm_name)
        assert found == ring.info() == reader.info()
        assert (found.name, found.kind, found.policy, found.slots) == (shm_name, "record batch", "latest", 5)
        assert (found.frames, found.writer) == (3, os.getpid())
        assert found.nbytes == os.stat(f"/dev/shm/{shm_name[4:]}").st_size
        assert [tuple(each) for each in found.readers] == [(os.getpid(), 3, 2, True)]
        assert repr(reader) == f"<Ring {shm_name!r}, reader>"


@pytest.mark.parametrize(
    "arguments",
    [{"policy": "none"}, {"slots": 4}, {"like": LIKE, "slots": 1}, {"like": LIKE, "slots": 65}, {"timeout": -1}],
)
def test_wrong_arguments(shm_name: str, arguments: dict[str, Any]) -> None:
    with pytest.raises(sa.InvalidArgument):
        sa.Ring(shm_name, **arguments)


def test_each_end_has_its_methods(shm_name: str) -> None:
    with sa.Ring(shm_name, like=LIKE) as ring, sa.Ring(shm_name) as reader:
        with pytest.raises(sa.InvalidArgument, match="this Ring reads"):
            reader.put(LIKE)
        with pytest.raises(sa.InvalidArgument, match="this Ring writes"):
            next(ring)
        with pytest.raises(sa.InvalidType, match="record batches, found"):
            ring.put(7)
        with pytest.raises(sa.InvalidType):
            sa.Ring("shm:" + "x", like=7)


def test_the_camera_has_two_readers() -> None:
    ran = subprocess.run(
        [sys.executable, ROOT / "examples" / "camera.py", "1"], capture_output=True, text=True, check=True, timeout=100
    )
    last = {line.split()[0]: line for line in ran.stdout.splitlines() if line}
    assert last.keys() == {"display", "detector"}
    for line in last.values():
        taken, missed = (int(found) for found in re.findall(r"(\d+) taken +(\d+) missed", line)[0])
        assert 0 < taken <= taken + missed <= 30
        assert " 0 torn" in line
