"""Directories of stores that nobody should trust: control files that were changed, and objects that were cut.

As in ``hostile.py``, whose processes run them: each use gives data or one of our errors, in little time and memory, and
a number is enough to have a mutation again. A quarter of them are opened by a user who may only read.
"""

from __future__ import annotations

import functools
import os
import random
import shutil
import struct
import tempfile
import zlib
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
from put_all import get_all, put_all

import shmarrow as sa
from shmarrow.store import lookup, room, settings
from shmarrow.store import protocol as p

FOLDER = "SHMARROW_HOSTILE_STORES"
"""In the environment: a folder for the directories, which is removed by whoever made it."""
READER = 65534
_EXTREMES = [0, 1, 2, 3, 31, 32, 63, 64, 65, 255, 256, 1 << 16, (1 << 31) - 1, 1 << 31, (1 << 32) - 1, 1 << 32, 1 << 40,
             (1 << 60) + 1, 1 << 61, 1 << 62, (1 << 63) - 1, 1 << 63, (1 << 64) - 2, (1 << 64) - 1]  # fmt: skip


@functools.cache
def template() -> tuple[bytes, dict[str, bytes]]:
    """A control file with slots in all states, and the other files of its store."""
    where = Path(tempfile.mkdtemp(dir=os.environ[FOLDER]), "template")
    settings._prime = lambda: (1 << 60) + 33  # so that a number gives the same chains each time
    lookup._STUCK_SECONDS = lookup.PATIENCE = room._PATIENCE = 0.02  # nobody here ends a change, or makes room
    with sa.Store(where, 1 << 22, mode=0o644, owned=True) as store:
        for number in range(40):
            store.put(f"name/{number}", np.arange(number))
        store.put("batch", sa.record_batch({"x": [1, 2, 3], "s": ["a", None, "c"]}))
        for number in range(8):
            store.put(f"large/{number}", np.arange(1000 + number))
        rows = store.get(store.put("rows", sa.record_batch({"x": np.arange(1000), "s": [str(i) for i in range(1000)]})))
        for number in range(3):
            store.put(f"shared/{number}", rows.slice(number), reuse=True)
        gone = [rows, *(store.get(f"large/{number}") for number in range(3)), store.get("shared/0")]
        store.delete(prefix="large/0")
        store.delete(prefix="large/1")
        store.put("large/2", np.arange(2000), overwrite=True)
        store.delete("shared/0")
        store.delete("rows")
        store.put("short", 1, expire_after=0)
        store.protect("name/1")
        held = [store.get("name/2"), store.get("name/3")]
        store.delete("name/2")
        store.put("name/3", 3, overwrite=True)
        store.delete(prefix="name/2")
        store.rename("name/30", "renamed")
        draft = store.new_draft("draft", sa.schema([("x", sa.int64())]), 1 << 18)
        files = {path.name: path.read_bytes() for path in where.iterdir() if path.is_file()}
        del held, draft, gone, rows
    shutil.rmtree(where)
    control = files.pop("control")
    try:
        with sa.Store(where) as store:  # so that all is imported before a reader needs it, who may not
            for use in _uses(store, random.Random(1)):
                with suppress(sa.ShmarrowError):
                    use()
            store.destroy()
    finally:
        shutil.rmtree(where, ignore_errors=True)
    return control, files


def _slot(data: bytearray, chance: random.Random) -> int:
    """Return the offset of a slot that was in use."""
    return p.SLOTS + chance.randrange(min(64, max(1, (len(data) - p.SLOTS) // p.SLOT_SIZE))) * p.SLOT_SIZE


def _put(data: bytearray, at: int, code: str, value: int) -> None:
    size = struct.calcsize(f"<{code}")
    if at + size <= len(data):
        data[at : at + size] = (value & ((1 << 8 * size) - 1)).to_bytes(size, "little")


def _value(data: bytearray, chance: random.Random) -> int:
    other = int.from_bytes(data[_slot(data, chance) :][:8], "little")
    return chance.choice([*_EXTREMES, chance.randrange(70), chance.randrange(1 << 64), other])


def _seal(data: bytearray, at: int) -> None:
    """Make the checksum of a slot right again."""
    length = min(int.from_bytes(data[at + 72 : at + 76], "little"), p.NAME_MAX)
    checksum = zlib.crc32(data[at + p.PAYLOAD : at + p.PAYLOAD + length], zlib.crc32(data[at : at + p.CRC_OFFSET]))
    _put(data, at + p.CRC_OFFSET, "I", checksum)


def _header_field(data: bytearray, chance: random.Random) -> None:
    at, code = chance.choice([field for field in p.HEADER.values() if field[1] in "QI"])
    _put(data, at, code, _value(data, chance))


def _state_field(data: bytearray, chance: random.Random) -> None:
    at, code = p.HEADER[chance.choice([*p.STATE.fields, "journal", "sequence", "capacity", "modulus", "eviction"])]
    before = int.from_bytes(data[at : at + struct.calcsize(code)], "little")
    _put(data, at, code, chance.choice([before + 1, before - 1, _value(data, chance)]))


def _slot_field(data: bytearray, chance: random.Random) -> None:
    at = _slot(data, chance)
    offset, code = p.SLOT[chance.choice([name for name in p.SLOT if name != "payload"])]
    _put(data, at + offset, code, _value(data, chance))
    if chance.random() < 0.7:
        _seal(data, at)


def _link(data: bytearray, chance: random.Random) -> None:
    for _ in range(chance.choice((1, 2, 10, 60))):  # cycles, and chains that meet
        _put(
            data,
            _slot(data, chance) + chance.choice((p.HEAD, p.NEXT)),
            "I",
            chance.choice((chance.randrange(66), *_EXTREMES)),
        )


def _name(data: bytearray, chance: random.Random) -> None:
    at = _slot(data, chance)
    name = chance.choice(
        [b"\xff\xfe", b"a\0b", b"", b"x" * 255, b"../../etc/passwd", b"\xed\xa0\x80", b"name/4", b"\n\x1b[2J"]
    )
    data[at + p.PAYLOAD : at + p.PAYLOAD + 256] = name.ljust(256, b"\0")
    _put(data, at + 88, "I", len(name))
    _seal(data, at)


def _same_slots(data: bytearray, chance: random.Random) -> None:
    one, two = _slot(data, chance), _slot(data, chance)
    data[one : one + p.SLOT_SIZE] = data[two : two + p.SLOT_SIZE]


def _journal(data: bytearray, chance: random.Random) -> None:
    """A commit that was not applied, with pieces that go anywhere."""
    number = int.from_bytes(data[136:144], "little") + 1
    payload = b""
    for _ in range(chance.randrange(1, 6)):
        offset = chance.choice([chance.randrange(64, 400), _slot(data, chance), chance.randrange(1 << 20), *_EXTREMES])
        piece = chance.randbytes(chance.choice((0, 4, 8, 96)))
        size = chance.choice([len(piece)] * 5 + _EXTREMES) & (1 << 32) - 1
        payload += p.PIECE.pack(offset, size, 0) + piece + bytes(-len(piece) % 8)
    area = p.JOURNALS[number & 1]
    length = chance.choice([len(payload)] * 9 + [1 << 31])
    checksum = zlib.crc32(payload, zlib.crc32((number & (1 << 64) - 1).to_bytes(8, "little")))
    head = p.JOURNAL_HEAD.pack(number & (1 << 64) - 1, length, checksum)
    data[area : area + 16 + len(payload)] = head + payload
    if chance.random() < 0.5:
        _put(data, p.HEADER["sequence"][0], "Q", chance.choice((1, 2, (1 << 64) - 1)))


def _events(data: bytearray, chance: random.Random) -> None:
    number = int.from_bytes(data[224:232], "little") + chance.randrange(-3, 300)
    at = p.EVENT_RING + number % p.EVENT_COUNT * p.EVENT_SIZE
    for offset, code in list(p.EVENT.values())[:4]:
        _put(data, at + offset, code, chance.choice([number, _value(data, chance)]))
    _put(data, p.HEADER["events"][0], "Q", number)


def _cut(data: bytearray, chance: random.Random) -> None:
    del data[chance.choice([chance.randrange(len(data)), p.SLOTS, p.SLOTS + p.SLOT_SIZE, 4096, 0]) :]


def _extend(data: bytearray, chance: random.Random) -> None:
    data += bytes(chance.randrange(1 << 16))


def _noise(data: bytearray, chance: random.Random) -> None:
    start, end = chance.choice([(0, 1024), (4096, p.SLOTS), (p.SLOTS, len(data))])
    for _ in range(chance.choice((1, 4, 40))):
        if start < end <= len(data):
            data[chance.randrange(start, end)] = chance.randrange(256)


def _reboot(data: bytearray, chance: random.Random) -> None:
    data[40:56] = bytes(16)


_MUTATIONS: list[Callable[[bytearray, random.Random], None]] = [
    _header_field, _state_field, _state_field, _slot_field, _slot_field, _link, _link, _name, _same_slots, _journal,
    _events, _cut, _extend, _noise, _reboot,
]  # fmt: skip


def mutation(number: int) -> tuple[bytes, bool]:
    """The control file of a number, and whether it is opened by a reader."""
    chance = random.Random(number)
    data = bytearray(template()[0])
    for _ in range(chance.choice((1, 1, 2, 3, 6))):
        chance.choice(_MUTATIONS)(data, chance)
        if len(data) < p.SLOTS + p.SLOT_SIZE:
            break
    return bytes(data), number % 4 == 0


def exercise(data: bytes, reader: bool) -> str:
    """All that can be done to a store, in a directory with such a control file; says whether it could be opened."""
    chance = random.Random(zlib.crc32(data))
    folder = tempfile.mkdtemp(dir=os.environ[FOLDER])
    try:
        for name, content in template()[1].items():
            if len(name) == 16 and chance.random() < 0.05:
                content = chance.choice(
                    [b"", content[:-1], content[: len(content) // 2], content + b"x", bytes(len(content))]
                )
            _write(f"{folder}/{name}", content)
        _write(f"{folder}/control", data)
        os.chmod(folder, 0o755)
        if not reader:
            return _use(folder, chance)
        os.seteuid(READER)
        try:
            return _use(folder, chance)
        finally:
            os.seteuid(0)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _write(path: str, content: bytes) -> None:
    with open(path, "wb") as file:
        file.write(content)
    os.chmod(path, 0o644)


def _use(folder: str, chance: random.Random) -> str:
    try:
        store = sa.Store(folder, create=False, accept_users=True)
    except sa.ShmarrowError:
        return "refused"
    uses = _uses(store, chance)
    chance.shuffle(uses)
    values: list[Any] = []
    for use in uses:
        with suppress(sa.ShmarrowError):
            values.append(use())
    del values
    for end in (store.clear, store.destroy, store.close):
        with suppress(sa.ShmarrowError):
            end()
    return "opened"


def _uses(store: sa.Store, chance: random.Random) -> list[Callable[[], Any]]:
    def watched() -> Any:
        with store.watch() as watch:
            with suppress(sa.ShmarrowError):
                store.put(None, 1)
            return [watch.get(0) for _ in range(3)]

    def created() -> None:
        with store.new_draft(
            "drawn", sa.schema([("x", sa.int64())]), chance.choice((10, 1 << 18)), overwrite=True
        ) as draft:
            draft["x"][:] = 1

    def pinned() -> None:
        with store.pin(chance.choice(known)):
            store.evict(1)

    def scanned() -> list[Any]:
        return [store.get(each.name) for each in store.scan()]

    def swept() -> list[str]:
        held = [store.get(each.name) for each in store.scan()]
        store.clear()
        store.collect()
        del held
        return store.collect()

    known = [*(f"name/{number}" for number in (0, 1, 3, 10, 33, 39)), "batch", "renamed", "large/3", "shared/1"]
    name = chance.choice(known)
    return [
        store.names, lambda: list(store), lambda: len(store), store.stats, scanned, watched, created, pinned,
        store.collect, store.__repr__,
        *(functools.partial(store.get, each) for each in known),
        *(functools.partial(store.info, each) for each in known),
        lambda: get_all(store, known), lambda: name in store, lambda: store.wait(known, timeout=0),
        lambda: store.take(name),
        lambda: store.put("new", np.arange(1000)), lambda: store.put(name, 1, overwrite=True),
        lambda: store.put("many", np.zeros(1 << 18), overwrite=True),
        lambda: put_all(store, dict.fromkeys("abcdef", 1)),
        lambda: [store.put(f"extra/{number}", number, overwrite=True) for number in range(70)],
        lambda: store.delete(name), lambda: store.delete(prefix="name/3"),
        lambda: store.rename(name, "other", overwrite=True),
        lambda: store.expire_after(name, 0), lambda: store.protect(name), lambda: store.evict(10_000),
        lambda: store.evict(200_000), swept,
        lambda: store.configure(capacity=1 << 21),
        lambda: store.get_or_put("computed", lambda: 1),
    ]  # fmt: skip
