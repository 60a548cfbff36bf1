"""The index of a control file, on bytes in memory: what it finds is what a dictionary of names would contain."""

from __future__ import annotations

import random

import pytest

import shmarrow as sa
from shmarrow.store import index
from shmarrow.store import protocol as p
from shmarrow.store.control import Memory


def made(slots: int) -> Memory:
    """An empty control file."""
    return Memory.of(bytearray(p.SLOTS + slots * p.SLOT_SIZE))


def commit(memory: Memory, change: index.Index) -> None:
    """Apply a change."""
    for offset, piece in change.pieces():
        memory.bytes[offset : offset + len(piece)] = piece


def hashed(name: bytes) -> int:
    """A hash that many names have."""
    return sum(name) % 13


def add(memory: Memory, name: bytes, generation: int) -> bool:
    """Add an object, if there is a free slot."""
    change = index.Index(memory, "test")
    slots = change.take(1)
    if slots:
        fields = generation, hashed(name), 1, 0, 0, 0, 0, 0, p.LIVE, 0, len(name), 0, 0
        entry = p.Entry._make((*fields, name, slots[0]))
        change.write(entry, 0)
        change.chain(entry.slot, entry.hash)
        commit(memory, change)
    return bool(slots)


def remove(memory: Memory, name: bytes) -> None:
    """Remove an object."""
    entry = index.find(memory, name, hashed(name), {})
    assert entry is not None
    change = index.Index(memory, "test")
    change.unchain(entry.slot, entry.hash)
    change.free(entry.slot)
    commit(memory, change)


@pytest.mark.parametrize("seed", range(5))
def test_the_index_is_a_dictionary(seed: int) -> None:
    chance = random.Random(seed)
    memory, model, known = made(40), dict[bytes, int](), index.Known()
    for turn in range(1, 2000):
        name = b"name %d" % chance.randrange(60)
        if name in model:
            remove(memory, name)
            del model[name]
        elif add(memory, name, turn):
            model[name] = turn
        else:
            assert len(model) == 40
        other = b"name %d" % chance.randrange(60)
        found = index.find(memory, other, hashed(other), known)
        assert (found.generation if found else None) == model.get(other)
    assert memory.state().buckets == 40


@pytest.mark.parametrize("field", ["head", "next"])
def test_an_index_whose_chains_are_circular(field: str) -> None:
    memory = made(8)
    for number in range(8):
        assert add(memory, b"name %d" % number, number + 1)
    for slot in range(8):
        memory.slot(slot).cast("I")[p.SLOT[field][0] >> 2] = 3
    for name in (b"name 1", b"none"):
        index.find(memory, name, hashed(name), {})
    change = index.Index(memory, "test")
    with pytest.raises(sa.InvalidData, match=r"slot 7 is not in its chain|a list contains"):
        change.unchain(7, hashed(b"none") + 1)
