"""Objects that share buffers with others: what is written, what is read, and what becomes of the memory.

Expectations are the values that were put, and the sizes of the files that the kernel reports.
"""

from __future__ import annotations

import gc
import importlib.util
import os
import pickle
import re
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import lab
import numpy as np
import pyarrow as pa
import pytest
from cases.table import CASES as ALL
from commands import forked_command
from environment import ROOT
from forms import together
from interrupts import killed
from store_check import check, cleaned, leftovers
from waiting import wait_until

import shmarrow as sa

ROWS = 40_000
PAGE = 4096


def numbers(seed: int, count: int = ROWS) -> Any:
    return np.random.default_rng(seed).random(count)


def day(columns: int = 4, rows: int = ROWS) -> sa.Table:
    return sa.table({f"c{i}": numbers(i, rows) for i in range(columns)})


def room_used(store: sa.Store) -> int:
    """Return the memory of all files of objects, each counted once, by the kernel."""
    found = [os.stat(f"{store.path}/{file}") for file in leftovers(store.path)]
    return sum({each.st_ino: each.st_blocks * 512 for each in found}.values())


@pytest.fixture
def store(shm_name: str) -> Iterator[sa.Store]:
    """A store in shared memory: what is shared are files in either place, and the kill is of a store in a directory."""
    store = sa.Store(shm_name)
    yield store
    store.close()
    gc.collect()
    assert cleaned(shm_name) == 0, leftovers(shm_name)


# --- what is written --------------------------------------------------------------------------------------------


def test_a_column_more_costs_the_column(where: str) -> None:
    store = sa.Store(where)
    store.put("day", day(16))
    scored = store.get("day", kind=sa.Table).append_column("score", sa.array(numbers(99)))
    before = room_used(store)
    assert store.put("scored", scored, reuse=True) == "scored"
    assert room_used(store) - before <= ROWS * 8 + (1 << 16)
    assert store.get("scored") == scored
    info = store.info("scored")
    assert info.sources == ("day",)
    assert info.shared == store.info("day").nbytes
    assert info.nbytes == os.stat(info.path or "").st_size < ROWS * 8 + (1 << 16)
    check(store.path)


CASES = [case for case in ALL if "dictionary-dictionary" not in case.name]

FORMS: dict[str, Any] = {
    "batch": lambda values: values,
    "table": lambda values: sa.table([values] * 2),
    "nested": lambda values: sa.record_batch({"x": values.to_struct_array()}),
}


@pytest.mark.parametrize("form", FORMS)
def test_values_of_every_type_come_back_whole_and_sliced(tmp_path: Path, form: str) -> None:
    """Each type is put and read back, then put again from what was read, whole and from its second row on."""
    with sa.Store(tmp_path / "store") as store:
        for number, batch in enumerate(together(CASES)):
            made = FORMS[form](batch)
            store.put(f"{number}", made)
            for changed in (store.get(f"{number}"), store.get(f"{number}").slice(1)):
                found = store.get(store.put(None, changed, reuse=True))
                found.validate(full=True)
                assert type(found) is type(made)
                assert repr(found.to_pylist()) == repr(changed.to_pylist())


def large(seed: int) -> dict[str, Any]:
    """Columns of more than a page in every buffer, of several layouts."""
    chosen = np.random.default_rng(seed)
    lengths = chosen.integers(0, 6, ROWS)
    texts = [f"text {i} of {seed}" for i in range(ROWS)]
    return {
        "numbers": sa.array(numbers(seed)),
        "some": sa.array([None if i % 7 == 0 else i for i in range(ROWS)], sa.int32()),
        "bits": sa.array((lengths > 2).tolist()),
        "text": sa.array(texts),
        "views": sa.array(texts, sa.string_view()),
        "lists": sa.array([list(range(n)) for n in lengths.tolist()]),
        "fixed": sa.array([[i, i + 1] for i in range(ROWS)], sa.list_(sa.int64(), 2)),
        "words": sa.array([f"word {i % 5000}" for i in range(ROWS)]).dictionary_encode(),
        "pairs": sa.array([{"a": i, "b": texts[i]} for i in range(ROWS)]),
    }


def test_every_layout_is_shared_and_not_copied(store: sa.Store) -> None:
    made = sa.record_batch(large(1))
    store.put("made", made)
    got = store.get("made", kind=sa.RecordBatch)
    for name in made.schema.names:
        kept = store.put(None, got.select([name]), reuse=True)
        assert store.info(kept).sources == ("made",), name
        assert store.info(kept).nbytes < PAGE, name
        assert store.get(kept) == made.select([name]), name
        assert pa.record_batch(store.get(kept)) == pa.record_batch(made.select([name])), name
        sliced = made.select([name]).slice(8, ROWS - 10)  # offsets are written, as they do not begin at 0
        kept = store.put(None, got.select([name]).slice(8, ROWS - 10), reuse=True)
        assert store.info(kept).sources == ("made",), name
        assert store.info(kept).nbytes < store.info("made").nbytes / 8, name
        assert store.get(kept) == sliced, name
        assert pa.record_batch(store.get(kept)) == pa.record_batch(sliced), name
    check(store.path)


def test_columns_of_several_objects_renamed_and_reordered(store: sa.Store) -> None:
    for seed in range(3):
        store.put(f"part {seed}", sa.record_batch(large(seed)))
    got = [store.get(f"part {seed}", kind=sa.RecordBatch) for seed in range(3)]
    mixed = sa.record_batch(
        {
            "b": got[1].column("text"),
            "pair": sa.StructArray.from_arrays([got[2].column("numbers"), got[0].column("words")], ["x", "y"]),
            "new": sa.array(range(ROWS)),
        }
    )
    store.put("mixed", mixed, reuse=True)
    assert sorted(store.info("mixed").sources) == ["part 0", "part 1", "part 2"]
    assert store.info("mixed").nbytes < ROWS * 8 + PAGE
    chunks = sa.chunked_array([each.column("numbers") for each in got])
    store.put("chunks", chunks, reuse=True)
    assert store.info("chunks").nbytes < PAGE
    table = sa.table(got)
    store.put("table", table, reuse=True)
    for name, expected in (("mixed", mixed), ("chunks", chunks), ("table", table)):
        assert store.get(name) == expected
    assert store.get("table", kind=sa.Table).batches[2] == sa.record_batch(large(2))
    check(store.path)


def test_a_stream_of_different_dictionaries_shares_them(store: sa.Store) -> None:
    for seed in range(2):
        words = sa.array([f"{seed} word {i % 5000}" for i in range(ROWS)]).dictionary_encode()
        store.put(f"part {seed}", sa.record_batch({"x": words}))
    table = sa.table([store.get("part 0", kind=sa.RecordBatch), store.get("part 1", kind=sa.RecordBatch)])
    store.put("both", table, reuse=True)
    assert store.info("both").sources == ("part 0", "part 1")
    assert store.info("both").nbytes < 2 * PAGE
    assert store.get("both") == table


def test_small_and_foreign_sources_are_written(store: sa.Store, tmp_path: Path) -> None:
    store.put("small", sa.record_batch({"x": [1, 2, 3]}))
    store.put("large", sa.record_batch({"x": numbers(1)}))
    name = store.put(None, store.get("small"), reuse=True)
    assert store.info(name).path is None
    assert store.get(name) == store.get("small")
    name = store.put(None, store.get("large", kind=sa.RecordBatch).slice(5, 500), reuse=True)  # less than a page
    assert store.info(name).sources == ()
    with sa.Store(tmp_path / "other") as other:
        other.put("copy", store.get("large"), reuse=True)
        assert other.info("copy").sources == ()
        assert other.get("copy") == store.get("large")
    for value in (b"x" * 10_000, "text", 5):
        assert store.get(store.put(None, value, reuse=True)) == value
    assert store.get(store.put(None, np.arange(5000), reuse=True)).tolist() == list(range(5000))
    assert store.get(store.put(None, {"a": np.arange(3000)}, reuse=True))["a"].to_numpy().tolist() == list(range(3000))


def test_values_that_have_been_through_other_libraries_are_recognised(store: sa.Store) -> None:
    pl = pytest.importorskip("polars", reason="the package polars is not installed")
    store.put("day", day())
    arrow = pa.table(store.get("day")).append_column("more", pa.array(numbers(5)))
    store.put("from pyarrow", arrow, reuse=True)
    frame = pl.DataFrame(store.get("day")).rename({"c0": "first"})
    store.put("from polars", frame, reuse=True)
    store.put("from numpy", sa.record_batch({"x": store.get("day").column("c1").chunk(0).to_numpy()[10:]}), reuse=True)
    for name, most in (("from pyarrow", ROWS * 8), ("from polars", 0), ("from numpy", 0)):
        assert store.info(name).sources == ("day",), name
        assert store.info(name).nbytes < most + PAGE, name
    assert pa.table(store.get("from pyarrow")) == arrow
    assert pl.DataFrame(store.get("from polars")).equals(frame)


def test_what_cannot_be_shared_is_refused(store: sa.Store) -> None:
    store.put("day", day())
    for options in ({"compression": "lz4"}, {"endianness": "big"}):
        with pytest.raises(sa.InvalidArgument, match="reuse=True shares buffers as they are"):
            store.put("x", store.get("day"), reuse=True, options=sa.ipc.IpcWriteOptions(**options))
    with pytest.raises(sa.InvalidType, match="reuse"):
        store.put("x", store.get("day"), reuse="day")  # type: ignore[arg-type]
    with pytest.raises(sa.ObjectExists):
        store.put("day", store.get("day"), reuse=True)
    assert len(store) == 1
    check(store.path)


# --- what becomes of the memory ---------------------------------------------------------------------------------


def test_what_an_object_needs_stays_whatever_becomes_of_the_others(store: sa.Store) -> None:
    def evict(name: str) -> None:
        assert store.get("not shared") is not None
        assert name not in store.evict(store.info("not shared").allocated)  # others have its file: it frees nothing
        store.delete(name)

    ways: dict[str, Any] = {
        "delete": store.delete,
        "replace": lambda name: store.put(name, 1, overwrite=True),
        "evict": evict,
    }
    expected = {}
    for how, away in ways.items():
        store.put(how, day())
        store.put("not shared", day(), overwrite=True)
        whole = store.get(how, kind=sa.Table)
        expected[how] = whole.to_pylist()
        store.put(f"{how} kept", whole.append_column("new", sa.array(numbers(7))), reuse=True, protect=True)
        store.put(f"{how} slice", whole.slice(3, 5000), reuse=True, protect=True)
        del whole
        gc.collect()
        away(how)
        assert how not in store or store.get(how) == 1
        store.collect()
        info = store.info(f"{how} slice")
        assert info.sources == (f"{os.path.basename(info.path or '')}-1",)
        check(store.path)
    for how, values in expected.items():
        assert store.get(f"{how} kept", kind=sa.Table).drop_columns("new").to_pylist() == values
        assert store.get(f"{how} slice").column("c1").to_pylist() == [row["c1"] for row in values[3:5003]]
    store.clear()
    assert leftovers(store.path) == []
    check(store.path)


def test_a_removed_object_stays_whole_for_those_who_have_it(store: sa.Store) -> None:
    """Its parts are mapped when they are first read: here long after it was removed, and after the store was closed."""
    store.put("day", day())
    expected = store.get("day").to_pylist()
    store.put("copy", store.get("day"), reuse=True)
    got = store.get("copy")
    with lab.child("got = store.get('copy'); say('there'); hear(); result = got.to_pylist()", store=store) as other:
        assert other.hear() == "there"
        store.delete("day")
        store.put("copy", 1, overwrite=True)
        store.put("more", 2)
        check(store.path)
        assert store.stats().nbytes + store.stats().removed > ROWS * 8
        other.say("now")
        assert other.result() == expected
        assert other.wait() == 0
    where, path = store.name, store.path
    store.close()
    assert got.to_pylist() == expected
    del got
    gc.collect()
    store = sa.Store(where)
    store.put("more", 3, overwrite=True)  # any change frees what nobody has attached
    assert leftovers(path) == []
    assert store.stats().removed == 0
    check(path)


def test_removed_objects_that_are_attached_count(store: sa.Store) -> None:
    store.put("day", day())
    expected = store.get("day").to_pylist()
    store.put("copy", store.get("day"), reuse=True)
    store.put("slice", store.get("copy", kind=sa.Table).slice(5, 9000), reuse=True)
    code = """
    got = store.get("copy"), store.get("slice")
    say("there")
    hear()
    result = [each.to_pylist() for each in got]
    """
    with lab.child(code, store=store) as other:
        assert other.hear() == "there"
        for name in ("day", "copy", "slice"):
            store.delete(name)
            check(store.path)
            stats, named = store.stats(), room_used(store)  # those that are mapped and have no name count, too
            assert ROWS * 8 < named <= stats.nbytes + stats.removed <= named + 2 * PAGE
        other.say("now")
        assert other.result() == [expected, expected[5:9005]]
        assert other.wait() == 0
    store.put("more", 1)
    store.delete("more")
    assert leftovers(store.path) == []
    assert (store.stats().nbytes, store.stats().removed) == (0, 0)
    check(store.path)


def test_a_forked_child_is_told_to_get_the_object_itself(store: sa.Store) -> None:
    """It has no pin of its parent's, so what it has not read goes with the object."""
    store.put("day", day())
    store.put("copy", store.get("day"), reuse=True)
    code = """
    import gc, os
    import shmarrow as sa
    from processes import ended, forked
    got = store.get("copy")
    begin, removed = os.pipe()
    def read():
        os.read(begin, 1)
        try:
            got.to_pylist()
        except sa.ObjectNotFound as error:
            assert "get the object in the child" in str(error)
        else:
            raise AssertionError("there is no error")
    child = forked(read)
    del got
    gc.collect()
    store.clear()
    os.write(removed, b"x")
    result = ended(child)
    """
    assert lab.run(code, store=store) == 0
    assert leftovers(store.path) == []


def test_shared_bytes_count_once_towards_the_capacity(shm_name: str) -> None:
    whole = day(8)
    with sa.Store(shm_name, capacity=4 << 20, eviction="none") as store:
        store.put("day", whole)
        used = store.stats().nbytes
        assert used > 1 << 20
        for number in range(20):
            renamed = store.get("day", kind=sa.Table).rename_columns([f"{number} {i}" for i in range(8)])
            store.put(f"copy {number}", renamed, reuse=True)
        del renamed
        assert store.stats().nbytes == room_used(store) <= used + 20 * 2 * PAGE
        store.delete("day")
        gc.collect()
        assert store.stats().nbytes == room_used(store) >= used
        store.delete(prefix="copy")
        store.put("small", 1)
        store.delete("small")
        assert store.stats().nbytes == room_used(store) == 0
        check(store.path)


def test_objects_that_share_memory_are_evicted_together(shm_name: str) -> None:
    """Neither of them alone frees what they share."""
    size = 8 * ROWS * 8
    with sa.Store(shm_name, capacity=size * 2) as store:
        store.put("day", day(8))
        for number in range(3):
            store.put(f"copy {number}", store.get("day").slice(number), reuse=True)
        gc.collect()
        store.put("next", day(8))
        store.put("last", day(7))
        assert "next" not in store or "day" not in store
        assert store.stats().nbytes == room_used(store) <= size * 2
        check(store.path)
        # The memory of an object that was deleted is freed with the one that shares it.
        store.clear()
        store.put("day", day(8))
        store.put("copy", store.get("day"), reuse=True)
        store.delete("day")
        gc.collect()
        store.put("next", day(15))
        assert store.names() == ["next"]
        with pytest.raises(sa.StoreFull):
            store.put("more", store.get("next", kind=sa.Table).append_column("x", sa.array(numbers(1))), reuse=True)
        check(store.path)


def test_an_object_may_replace_its_source(store: sa.Store) -> None:
    store.put("day", day())
    expected = store.get("day").to_pylist()
    for number in range(5):
        more = store.get("day", kind=sa.Table).append_column(f"n{number}", sa.array(numbers(number)))
        store.put("day", more, overwrite=True, reuse=True)
        expected = [{**row, f"n{number}": value} for row, value in zip(expected, numbers(number).tolist(), strict=True)]
        check(store.path)
    del more
    gc.collect()
    store.put("small", 1)
    assert store.get("day").to_pylist() == expected
    assert room_used(store) <= (4 + 5) * (ROWS * 8 + 2 * PAGE)
    # A value that is still held may be put again and again: the memory of its first object has another name by now.
    held = store.get("day", kind=sa.Table)
    for number in range(3):
        held = held.append_column(f"more {number}", sa.nulls(ROWS))
        store.put("day", held, overwrite=True, reuse=True)
        assert store.info("day").nbytes < 10 * PAGE
    assert store.get("day") == held


def test_a_source_that_goes_while_it_is_put_is_written(shm_name: str) -> None:
    """It is deleted while the rest is written, before the files are linked."""
    size = 40 << 20
    with sa.Store(shm_name, capacity=1 << 30) as store:
        store.put("day", day())
        got = store.get("day", kind=sa.Table)
        expected = got.to_pylist()
        first = got.append_column("x", sa.array(numbers(3))).batches[0]
        others = [
            sa.record_batch({name: numbers(i) for name in first.column_names}) for i in range(size // first.nbytes)
        ]
        big = sa.table([first, *others])

        def delete() -> None:
            wait_until(lambda: store.stats().free < free - (1 << 20), "it is being written")
            store.delete("day")

        free = store.stats().free

        thread = threading.Thread(target=delete)
        thread.start()
        store.put("big", big, reuse=True)
        thread.join()
        found = store.get("big", kind=sa.Table)
        assert found == big
        assert found.batches[0].select(got.column_names).to_pylist() == expected
        check(store.path)


# --- chains -----------------------------------------------------------------------------------------------------


def test_references_lead_to_files_and_not_to_other_references(store: sa.Store) -> None:
    rows = 2000
    store.put("stage 0", sa.table({"c": numbers(0, rows)}))
    for stage in range(1, 101):
        got = store.get(f"stage {stage - 1}", kind=sa.Table)
        store.put(f"stage {stage}", got.append_column(f"c{stage}", sa.array(numbers(stage, rows))), reuse=True)
        if stage > 1:
            store.delete(f"stage {stage - 2}")
    del got
    last = store.get("stage 100", kind=sa.Table)
    assert len(store.info("stage 100").sources) == 100
    assert store.info("stage 100").nbytes < rows * 8 + 20 * PAGE
    assert last.column("c").to_pylist() == numbers(0, rows).tolist()
    assert last.column("c50").to_pylist() == numbers(50, rows).tolist()
    before = Path("/proc/self/maps").read_text().count(store.path)
    one = store.get("stage 100", kind=sa.Table).column("c70")
    assert one.to_pylist() == numbers(70, rows).tolist()
    assert Path("/proc/self/maps").read_text().count(store.path) - before == 1  # the file of this column
    check(store.path)


def test_an_object_has_at_most_255_parts(store: sa.Store) -> None:
    rows = 1000
    for number in range(300):
        store.put(f"{number}", sa.record_batch({f"c{number}": numbers(number, rows + (number > 20))}))
    columns = [store.get(f"{number}", kind=sa.RecordBatch).column(0).slice(0, rows) for number in range(300)]
    whole = sa.record_batch({f"c{number}": column for number, column in enumerate(columns)})
    store.put("all", whole, reuse=True)
    assert len(store.info("all").sources) == 255
    assert store.get("all") == whole
    check(store.path)


# --- like any other object --------------------------------------------------------------------------------------


def test_handles_and_pickles_lead_to_the_same_memory(store: sa.Store) -> None:
    store.put("day", day())
    store.put("scored", store.get("day", kind=sa.Table).append_column("s", sa.array(numbers(1))), reuse=True)
    store.delete("day")
    scored = store.get("scored", kind=sa.Table)
    first = scored.batches[0]
    for value in (scored, first, first.slice(5, 100), scored.column("c2"), scored.column("s").chunk(0)):
        pickled = pickle.dumps(sa.handle(value))
        assert len(pickled) < 2000
        assert pickle.loads(pickled).open() == value
        assert pickle.loads(pickle.dumps(value)) == value
    with store.attach("scored") as attached:
        again = pickle.loads(pickle.dumps(attached))
        assert sa.ipc.open_file(again).read_all() == scored
    column = scored.column("c2")
    with lab.child("got = handle.open(); say(got.to_pylist()[:3]); hear()", handle=sa.handle(column)) as other:
        assert other.hear() == column.to_pylist()[:3]
        assert store.info("scored").pins == 2
        other.say("end")
        assert other.wait() == 0


def test_commands_treat_it_as_any_other_object(store: sa.Store, tmp_path: Path) -> None:
    store.put("day", day())
    scored = store.get("day", kind=sa.Table).append_column("score", sa.array(numbers(1)))
    store.put("scored", scored, reuse=True)
    target = f"{store.name}/scored"

    def said(*words: object) -> bytes:
        done = forked_command(*words)
        assert done.returncode == 0, done.stderr
        return done.stdout

    assert re.search(rb"\nshared +\S+ MiB, with day\n", said("info", target))
    assert re.search(rb"\nscored\t.*\tshares \S+ MiB\n", said("names", store.name))
    file = tmp_path / "scored.arrow"
    said("get", target, file)
    with pa.memory_map(str(file)) as mapped:
        assert pa.ipc.open_file(mapped).read_all() == pa.table(scored)
    assert b"no findings" in said("validate", "--full", target)


def test_other_implementations_refuse_the_file_alone(store: sa.Store) -> None:
    store.put("day", day())
    store.put("copy", store.get("day"), reuse=True)
    path = store.info("copy").path
    with pytest.raises((pa.ArrowInvalid, OSError), match="out of bounds"):
        pa.ipc.open_file(pa.memory_map(path)).read_all()
    with pytest.raises(sa.InvalidData, match="but the body has"):
        sa.ipc.open_file(path).read_all().column("c0").to_pylist()


# --- hostile bytes, kills ---------------------------------------------------------------------------------------


def test_buffers_beyond_a_part_are_refused(store: sa.Store) -> None:
    """The offsets in the file, which no other process can write to, are changed one by one."""
    store.put("day", day(2))
    store.put("copy", store.get("day"), reuse=True)
    info = store.info("copy")
    path = Path(info.path or "")
    good = path.read_bytes()
    words = np.frombuffer(good[: len(good) & -8], "<i8")
    first = int(np.flatnonzero((words >= 1 << 48) & (words < 1 << 49))[0])  # a buffer in the first part
    at, right = first * 8, int(words[first])
    path.chmod(0o600)
    for offset in (right + (1 << 48), right + ROWS * 16, (1 << 49) - 8, 1 << 62, -8, (1 << 63) - 1):
        path.write_bytes(good[:at] + offset.to_bytes(8, "little", signed=True) + good[at + 8 :])
        with pytest.raises(sa.InvalidData, match="needs"):
            store.get("copy").to_pylist()
    path.write_bytes(good)
    assert store.get("copy") == store.get("day")
    part = path.with_name(f"{path.name}-1")
    os.rename(part, away := part.with_suffix(".away"))
    with pytest.raises(sa.InvalidData, match="part 1 is missing"):
        store.get("copy").to_pylist()
    os.rename(away, part)


def extended(got: Any) -> Any:
    return got.append_column("y", sa.array(range(2000)))


def reuse(where: Path) -> None:
    """What a process does that is killed: it shares, deletes and replaces."""
    store = sa.Store(where)
    got = store.get("old")
    store.put("new", extended(got), reuse=True)
    store.delete("day")
    store.put("old", extended(got), reuse=True, overwrite=True)
    del got
    store.delete("new")


def test_a_kill_leaves_nothing_torn_and_nothing_behind(tmp_path: Path) -> None:
    """Instructions that link, unlink and free are where a process is killed, one process after the other."""
    where = tmp_path / "store"
    number, more = 1, True
    while more:
        with sa.Store(where, capacity=64 << 20) as store:
            store.put("day", sa.table({f"c{i}": np.arange(2000) + i for i in range(3)}))
            store.put("old", store.get("day").append_column("x", sa.array(range(2000))), reuse=True)
        more = killed(lambda: reuse(where), number, ("/store/catalog.py", "/store/lookup.py"), again=True)
        with sa.Store(where) as store:
            store.collect()
            check(str(where))
            assert "old" in store.names()
            for name in store.names():
                found = store.get(name).to_pydict()
                starts = {"x": 0, "y": 0, "c0": 0, "c1": 1, "c2": 2}
                assert found == {column: [*range(starts[column], starts[column] + 2000)] for column in found}, name
            store.clear()
            store.collect()
            assert leftovers(str(where)) == []
            stats = store.stats()
            assert stats.nbytes == stats.removed == 0
            store.destroy()
        number += 90
    assert number > 1000


# --- the example ------------------------------------------------------------------------------------------------


def test_the_pipeline_of_three_stages(shm_name: str) -> None:
    spec = importlib.util.spec_from_file_location("pipeline", ROOT / "examples" / "pipeline.py")
    assert spec is not None
    assert spec.loader is not None
    example = importlib.util.module_from_spec(spec)
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(ROOT / "examples"))  # for the stages' processes
        patch.setitem(sys.modules, "pipeline", example)
        spec.loader.exec_module(example)
        done = example.main(0.02, shm_name)
    assert [each.sources for each in done] == [("day",), ("day", "mean"), ("day", "mean", "score")]
    for each in done:
        assert each.own < 20_000 * 8 + (1 << 16)
        assert each.shared >= 16 * 20_000 * 8
