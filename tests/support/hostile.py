"""Bytes that nobody should trust, and what must come of them: data, or one of our errors, in little time and memory.

Invariants:

* :func:`exercise` does with an input all that a careless reader would: opens it, reads, checks, prints and converts
  everything. What passes full validation must also convert without error, and be the same after it is written anew;
* inputs are run in a process of their own, whose memory is limited; a crash, a hang or a stray exception names it;
* mutations are made from a number alone, so a number is enough to have one again.
"""

from __future__ import annotations

import contextlib
import functools
import io
import multiprocessing
import random
import re
import resource
import signal
import struct
import sys
import time
import traceback
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import forms
import numpy as np

import shmarrow as sa
from shmarrow.ipc.flatbuffers.reader import Reader
from shmarrow.ipc.message.decode import message_at

SECONDS = 5.0
"""Of the processor's time, so that nothing depends on what else the machine does."""
MEMORY = 256 << 20


# --- one input ---------------------------------------------------------------------------------------------------


def exercise(data: bytes, is_file: bool) -> str:
    """All that a reader may do with some bytes; says whether they were read, and whether they kept all rules."""
    read = sa.ipc.open_file if is_file else sa.ipc.open_stream
    try:
        opened = read(data)
    except sa.ShmarrowError:
        return "refused"
    valid = _try(lambda: repr(opened.schema)) and _try(lambda: [repr(field.type) for field in opened.schema])
    if isinstance(opened, sa.ipc.RecordBatchFileReader):
        valid &= _try(lambda: opened.metadata)
        _try(lambda: opened.get_batch(-1).column(-1).to_pylist())
    batches = iter(opened)
    while True:
        try:
            batch = next(batches)
        except StopIteration:
            break
        except sa.ShmarrowError:
            return "refused"
        valid &= _exercise_batch(batch)
    # The same by other ways: all columns of a batch at once, some of them only, from a file object.
    _try(lambda: [batch.columns for batch in read(data)])
    _try(lambda: [batch.columns for batch in read(data, included_fields=[len(opened.schema) - 1])])
    _try(lambda: [batch.columns for batch in read(io.BufferedReader(io.BytesIO(data)))])
    return "valid" if valid else "invalid"


def _exercise_batch(batch: Any) -> bool:
    _try(lambda: repr(batch))
    valid = True
    for i in range(batch.num_columns):
        try:
            column = batch.column(i)
        except sa.ShmarrowError:
            valid = False
            assert not _try(lambda i=i: batch.column(i)), "a column that is refused once is refused again"
            continue
        _try(column.validate)
        for use in (
            lambda column=column: repr(column),
            lambda column=column: column[len(column) // 2] if len(column) else None,
            lambda column=column: column[len(column) // 3 :].trim(),
            lambda column=column: column.to_numpy(zero_copy_only=False),
            column.to_pylist,
        ):
            _try(use)
        for buffer in column.buffers():
            assert buffer is None or not buffer.flags.writeable
    try:
        batch.validate(full=True)
    except sa.ShmarrowError:
        valid = False
        _try(lambda: forms.write("stream-plain", [batch], batch.schema))
    if valid:
        _hold_to_validity(batch)
    return valid


def _try(use: Callable[[], Any]) -> bool:
    try:
        use()
    except sa.ShmarrowError:
        return False
    return True


def _hold_to_validity(batch: Any) -> None:
    """Check that valid input converts, and is the same when it is written again.

    But for limits on what takes no bytes, time zones that this machine does not know, and moments that Python's
    classes cannot hold.
    """
    try:
        values = [column.to_pylist() for column in batch.columns]
    except sa.LimitExceeded:
        return
    except sa.InvalidData as error:
        if re.search("unknown time zone|; (to_numpy.* returns it|.values has the counts)$", str(error)):
            return
        raise
    data = forms.write("stream-plain", [batch], batch.schema)
    (again,) = sa.ipc.open_stream(data)
    again.validate(full=True)
    assert _alike([column.to_pylist() for column in again.columns], values, set()), "other values after writing"


def _alike(one: Any, two: Any, seen: set[tuple[int, int]]) -> bool:
    """Whether Python values are the same, NaN included; lists that share their items cost no more than they take."""
    if (id(one), id(two)) in seen:
        return True
    if isinstance(one, dict) and isinstance(two, dict):
        one, two = list(one.items()), list(two.items())
    seen.add((id(one), id(two)))
    if isinstance(one, (list, tuple)) and isinstance(two, (list, tuple)):
        return len(one) == len(two) and all(_alike(*pair, seen) for pair in zip(one, two, strict=True))
    return bool(one == two) or (one != one and two != two)


# --- many inputs -------------------------------------------------------------------------------------------------


Inputs = Callable[[Any], tuple[bytes, bool]]
Use = Callable[[bytes, bool], str]
Mutation = Callable[[bytearray, random.Random, bool], None]


@dataclass(frozen=True)
class Finding:
    """An input, and what came of it that should not have."""

    name: str
    what: str


class _TookTooLong(BaseException):
    pass


def _alarm(number: int, frame: Any) -> None:
    raise _TookTooLong


def _guarded(use: Use, data: bytes, is_file: bool) -> tuple[str, str]:
    """Return the outcome of an input, and what is wrong with it."""
    signal.setitimer(signal.ITIMER_PROF, SECONDS)
    started = time.process_time()
    try:
        outcome, wrong = use(data, is_file), ""
    except _TookTooLong:
        outcome, wrong = "wrong", f"took more than {SECONDS} s: {traceback.format_exc(limit=-6)}"
    except BaseException:
        outcome, wrong = "wrong", traceback.format_exc(limit=-6)
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
    took = time.process_time() - started
    if took > SECONDS and not wrong:
        outcome, wrong = "wrong", f"took {took:.1f} s"
    return outcome, wrong


@contextlib.contextmanager
def _limited_memory() -> Iterator[None]:
    """Let this process have only so much more memory than it has now; asking for more raises MemoryError."""
    if sys.platform != "linux":
        yield
        return
    with open("/proc/self/statm") as status:
        held = int(status.read().split()[5]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_DATA, (held + MEMORY, resource.RLIM_INFINITY))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_DATA, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))


def _serve(inputs: Inputs, names: list[Any], results: Any, use: Use) -> None:
    signal.signal(signal.SIGPROF, _alarm)
    for name in names:
        results.send((name, None, None))
        data, is_file = inputs(name)
        with _limited_memory():
            result = _guarded(use, data, is_file)
        results.send((name, *result))
    results.close()


def run(
    inputs: Inputs, names: Iterable[Any], seconds: float = 600, use: Use = exercise
) -> tuple[dict[str, int], list[Finding]]:
    """Exercise many inputs in another process; gives how often each outcome came, and what should not have.

    Parameters
    ----------
    inputs : function
        Makes the bytes of an input from its name, and says whether they are a file; at the top level of a module.
    names : iterable
        The names of all inputs.
    seconds : float
        After so long the rest is left out.
    use : function
        What is done with each input, and what came of it; at the top level of a module.
    """
    counts: dict[str, int] = {}
    findings: list[Finding] = []
    left = list(names)
    deadline = time.monotonic() + seconds
    context = multiprocessing.get_context("spawn")
    while left and time.monotonic() < deadline:
        receive, send = context.Pipe(False)
        child = context.Process(target=_serve, args=(inputs, left, send, use), daemon=True)
        child.start()
        send.close()
        done, current = 0, None
        try:
            while time.monotonic() < deadline:
                if not receive.poll(60 if current is None else 15 * SECONDS):
                    findings.append(Finding(str(current), "hangs"))
                    done += 1
                    break
                current, outcome, wrong = receive.recv()
                if outcome is None:
                    continue
                done += 1
                counts[outcome] = counts.get(outcome, 0) + 1
                if wrong:
                    findings.append(Finding(str(current), wrong))
        except EOFError:
            child.join(10)
            if done < len(left):
                findings.append(Finding(str(current), f"ends the process with {child.exitcode}"))
                done += 1
        finally:
            if child.is_alive():
                child.kill()
            child.join()
            receive.close()
        left = left[done:]
    return counts, findings


# --- mutations ---------------------------------------------------------------------------------------------------

CASES = [
    case for case in forms.WRITABLE if not case.name.endswith(("-all-null", "-empty")) or "dictionary" in case.name
]
FORMS = list(forms.FORMS)
_EXTREMES = [
    0, 1, -1, 2, 3, 4, 7, 8, 16, 64, 127, 128, 255, 256, 65535, 65536, (1 << 31) - 1, -(1 << 31), 1 << 30,
    (1 << 32) - 1, 1 << 32, (1 << 63) - 1, -(1 << 63), (1 << 62), 1 << 40, -8, -64,
]  # fmt: skip


def _seeds() -> list[tuple[Any, ...]]:
    """Each case by itself, and cases of one length beside each other."""
    chance = random.Random(1)
    groups: dict[int, list[Any]] = {}
    for case in CASES:
        groups.setdefault(len(case.values), []).append(case)
    mixed = [tuple(chance.sample(group, k=min(len(group), 4))) for group in groups.values() for _ in group[::4]]
    return [(case,) for case in CASES] + mixed


SEEDS = _seeds()


@functools.lru_cache(4096)
def seed_input(seed: int, form: int) -> bytes:
    """A well-formed input of two batches; where the form allows it, they share their dictionaries."""
    arrays = [case.array() for case in SEEDS[seed]]
    batch = sa.record_batch(arrays, names=[f"c{i}" for i in range(len(arrays))])
    other = batch.slice(len(arrays[0]) // 3)
    return forms.write(FORMS[form], [batch, other], batch.schema)


def mutation(number: int) -> tuple[bytes, bool]:
    """The mutated input of a number, and whether it is a file."""
    chance = random.Random(number)
    form = chance.randrange(len(FORMS))
    data = seed_input(chance.randrange(len(SEEDS)), form)
    is_file = forms.FORMS[FORMS[form]][0]
    return changed(data, chance, is_file, _MUTATIONS), is_file


def changed(data: bytes, chance: random.Random, is_file: bool, ways: Sequence[Mutation]) -> bytes:
    """Bytes that one or several mutations have changed."""
    made = bytearray(data)
    for _ in range(chance.choice((1, 1, 1, 2, 3, 8))):
        chance.choice(ways)(made, chance, is_file)
        if not made:
            break
    return bytes(made)


def _flip_bits(data: bytearray, chance: random.Random, is_file: bool) -> None:
    data[chance.randrange(len(data))] ^= 1 << chance.randrange(8)


def _set_byte(data: bytearray, chance: random.Random, is_file: bool) -> None:
    data[chance.randrange(len(data))] = chance.choice((0, 1, 2, 4, 127, 128, 254, 255))


def _set_number(data: bytearray, chance: random.Random, is_file: bool) -> None:
    size = chance.choice((2, 4, 4, 8, 8))
    if len(data) < size:
        return
    at = chance.randrange(0, len(data) - size + 1, size)
    value = chance.choice(_EXTREMES)
    data[at : at + size] = (value & ((1 << 8 * size) - 1)).to_bytes(size, "little")


def _shift_number(data: bytearray, chance: random.Random, is_file: bool) -> None:
    """Change a number that is there by a little: lengths and offsets that are nearly right."""
    size = chance.choice((4, 8))
    if len(data) < size:
        return
    at = chance.randrange(0, len(data) - size + 1, size)
    value = int.from_bytes(data[at : at + size], "little") + chance.choice((-64, -8, -4, -2, -1, 1, 2, 4, 8, 64))
    data[at : at + size] = (value & ((1 << 8 * size) - 1)).to_bytes(size, "little")


def _copy_within(data: bytearray, chance: random.Random, is_file: bool) -> None:
    size = chance.choice((4, 8, 16, 24, 64))
    if len(data) > size:
        source, to = (chance.randrange(0, len(data) - size + 1, 4) for _ in range(2))
        data[to : to + size] = data[source : source + size]


def _truncate(data: bytearray, chance: random.Random, is_file: bool) -> None:
    del data[chance.randrange(len(data)) :]


def _cut_out(data: bytearray, chance: random.Random, is_file: bool) -> None:
    at = chance.randrange(0, len(data), 8)
    del data[at : at + chance.choice((1, 8, 64))]


def _splice(data: bytearray, chance: random.Random, is_file: bool) -> None:
    """The head of one input and the tail of another, of the same form."""
    form = chance.choice([i for i, name in enumerate(FORMS) if forms.FORMS[name][0] == is_file])
    other = seed_input(chance.randrange(len(SEEDS)), form)
    at, start = chance.randrange(0, len(data), 8), chance.randrange(0, len(other), 8)
    data[at:] = other[start:]


def _messages(data: bytearray, start: int) -> list[tuple[int, int]]:
    """Return the offsets of the messages of a stream, as far as it can be read."""
    view = np.frombuffer(bytes(data), np.uint8)
    found = []
    at = start
    try:
        while (step := message_at(view, at, "")) is not None:
            found.append((at, step.end))
            at = step.end
    except sa.ShmarrowError:
        pass
    return found


def _reorder_messages(data: bytearray, chance: random.Random, is_file: bool) -> None:
    if is_file:
        return
    parts = [bytes(data[start:end]) for start, end in _messages(data, 0)]
    if len(parts) > 1:
        form = chance.choice([i for i, name in enumerate(FORMS) if not forms.FORMS[name][0]])
        other = bytearray(seed_input(chance.randrange(len(SEEDS)), form))
        strange = [bytes(other[start:end]) for start, end in _messages(other, 0)]
        parts = parts[: chance.choice((0, 1, 1, 1))] + chance.choices(parts + strange, k=chance.randrange(1, 6))
        data[:] = b"".join(parts)


def _change_blocks(data: bytearray, chance: random.Random, is_file: bool) -> None:
    """Swap blocks of the footer, move one to another message or a little to the side, or let one be a dictionary's."""
    if not is_file or len(data) < 18:
        return
    (size,) = struct.unpack_from("<i", data, len(data) - 10)
    start = len(data) - 10 - size
    if not 8 <= start < len(data) - 10:
        return
    whole = np.frombuffer(data, np.uint8)
    try:
        footer = Reader(whole[start : start + size], "").root("Footer")
        vectors = [footer[name] for name in ("recordBatches", "dictionaries")]
    except sa.ShmarrowError:
        return
    finally:
        footer = None
    first = whole.ctypes.data
    places = [v.ctypes.data - first + 24 * i for v in vectors if v is not None for i in range(len(v))]
    del whole, vectors
    if not places:
        return
    one, two = chance.choice(places), chance.choice(places)
    if chance.random() < 0.5:
        data[one : one + 24], data[two : two + 24] = data[two : two + 24], data[one : one + 24]
    else:
        field, format = chance.choice(((0, "<q"), (8, "<i"), (16, "<q")))
        (value,) = struct.unpack_from(format, data, one + field)
        value = chance.choice((value + chance.choice((-64, -8, 8, 64)), *_EXTREMES[:17], -value))
        data[one + field : one + field + struct.calcsize(format)] = struct.pack(format, value)


ANYWHERE: list[Mutation] = [
    _flip_bits, _set_byte, _set_number, _set_number, _set_number, _shift_number, _shift_number, _copy_within, _truncate,
    _cut_out,
]  # fmt: skip
"""Mutations of bytes of any format."""
_MUTATIONS = [*ANYWHERE, _splice, _reorder_messages, _change_blocks]
