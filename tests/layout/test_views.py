"""Views of bytes and text: joined, compared, trimmed and checked as pyarrow does, wherever their values lie."""

from __future__ import annotations

import pickle
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from parts import changed

import shmarrow as sa

SIZE = 17_000  # more than are worked on at once


def texts(sizes: Any, seed: int = 0, nulls: float = 0.1) -> list[bytes | None]:
    """Byte strings of given sizes, all different, some of them null."""
    random = np.random.default_rng(seed)
    raw = random.integers(1, 127, int(np.sum(sizes)), np.uint8).tobytes()
    ends = np.cumsum(sizes)
    valid = random.random(len(sizes)) >= nulls
    return [
        raw[end - size : end] if ok else None
        for end, size, ok in zip(ends.tolist(), sizes.tolist(), valid.tolist(), strict=True)
    ]


def sizes_of(kind: str) -> Any:
    random = np.random.default_rng(7)
    bounds = {
        "empty": (0, 1), "inline": (0, 13), "around 12": (11, 15), "mixed": (0, 40),
    }  # fmt: skip
    if kind == "huge":
        return np.where(np.arange(3_000) % 100 == 0, random.integers(1_000, 3_000, 3_000), np.arange(3_000) % 20)
    return random.integers(*bounds[kind], SIZE)


KINDS = ["empty", "inline", "around 12", "mixed", "huge"]


def shuffled(array: Any, seed: int = 1) -> Any:
    """A pyarrow array of the same views in another order, so that values do not lie in the order of their views."""
    order = np.random.default_rng(seed).permutation(len(array))
    _, views, *data = array.buffers()
    moved = np.frombuffer(views, "V16", len(array), 16 * array.offset)[order]
    validity = np.packbits(np.asarray(array.is_valid())[order], bitorder="little")
    return pa.Array.from_buffers(array.type, len(array), [pa.py_buffer(validity), pa.py_buffer(moved), *data])


def scattered(values: list[bytes | None]) -> Any:
    """A pyarrow array of views over several buffers, whose views jump between them."""
    parts = [pa.array(values[i::3], pa.binary_view()) for i in range(3)]
    return shuffled(pa.concat_arrays(parts), 2)


@pytest.mark.parametrize("kind", KINDS)
class TestWhereValuesLie:
    def test_to_offsets(self, kind: str) -> None:
        theirs = pa.array(texts(sizes_of(kind)), pa.binary_view())
        for each in (theirs, shuffled(theirs), scattered(theirs.to_pylist()), theirs[7:-5]):
            found = sa.array(each).cast(sa.binary())
            found.validate(full=True)
            assert found.to_pyarrow().equals(each.cast(pa.binary()))

    def test_from_offsets(self, kind: str) -> None:
        theirs = pa.array(texts(sizes_of(kind)), pa.large_binary())
        for each in (theirs, theirs[3:], theirs[len(theirs) // 2 : len(theirs) // 2 + 100]):
            found = sa.array(each).cast(sa.binary_view())
            found.validate(full=True)
            assert found.to_pyarrow().equals(each.cast(pa.binary_view()))

    def test_to_python(self, kind: str) -> None:
        theirs = pa.array(texts(sizes_of(kind)), pa.binary_view())
        for each in (theirs, scattered(theirs.to_pylist())):
            assert sa.array(each).to_pylist() == each.to_pylist()

    def test_gathered(self, kind: str) -> None:
        values = texts(sizes_of(kind))
        at = np.random.default_rng(3).integers(0, len(values), len(values))
        for type in (sa.binary(), sa.large_binary(), sa.binary_view()):
            assert sa.array(values, type).take(at).to_pylist() == [values[i] for i in at.tolist()]

    def test_equals(self, kind: str) -> None:
        values = texts(sizes_of(kind))
        one, two = sa.array(values, sa.binary_view()), sa.array(pa.array(values, pa.binary_view()))
        assert one.equals(two)
        assert one[1:].equals(two[1:])
        positions = np.random.default_rng(1).permutation(len(values))
        moved = sa.array(shuffled(scattered(values)))
        listed = moved.to_pylist()
        assert one.take(positions).equals(sa.array(shuffled(two.to_pyarrow())))
        assert sa.array(listed, sa.binary_view()).equals(moved)
        at = max(i for i, value in enumerate(values) if value is not None)
        last = values[at] or b"?"
        for another in (last[:-1] + b"\x7f", last + b"\x7f", None):
            other = [*values[:at], another, *values[at + 1 :]]
            assert not one.equals(sa.array(other, sa.binary_view()))
            other = [another if value is values[at] and value else value for value in listed]
            assert moved.equals(sa.array(other, sa.binary_view())) == (other == listed)

    def test_trim(self, kind: str) -> None:
        theirs = scattered(texts(sizes_of(kind)))
        for each in (theirs, theirs[100:], theirs[: len(theirs) // 2]):
            found = sa.array(each).trim()
            found.validate(full=True)
            assert found.to_pyarrow().equals(each)

    def test_concatenate(self, kind: str) -> None:
        theirs = scattered(texts(sizes_of(kind)))
        other = pa.array(texts(sizes_of(kind), 5), pa.binary_view())
        parts = [theirs[5:9_000], other[100:], theirs[:7], theirs[9_000:]]
        found = sa.concat_arrays([sa.array(part) for part in parts])
        found.validate(full=True)
        assert found.to_pyarrow().equals(pa.concat_arrays(parts))


class TestTrim:
    def test_what_is_taken_from_much_data_does_not_keep_all_of_it(self) -> None:
        values = [b"%07d" % i * 10 for i in range(100_000)]
        taken = sa.array(values, sa.binary_view()).take(np.array([0, 50_000, 99_999, 50_000]))
        kept = taken.trim()
        assert kept.to_pylist() == [values[0], values[50_000], values[99_999], values[50_000]]
        assert sum(map(len, kept.data_buffers)) == 4 * 70
        assert len(pickle.dumps(taken)) < 2_000

    def test_data_that_is_mostly_needed_stays_where_it_is(self) -> None:
        array = sa.array([b"%020d" % i for i in range(1_000)], sa.binary_view())
        kept = array[100:900].trim()
        (before,), (after,) = array.data_buffers, kept.data_buffers
        assert np.shares_memory(before, after)
        assert len(after) == 800 * 20

    def test_slices_of_one_array_keep_its_data_once(self) -> None:
        array = sa.array([b"%020d" % i for i in range(100)], sa.binary_view())
        joined = sa.concat_arrays([array[50:], array[:50]])
        assert joined.to_pylist() == [b"%020d" % i for i in [*range(50, 100), *range(50)]]
        assert len(joined.data_buffers) == 1

    def test_a_view_that_leads_nowhere_does_not_lead_into_what_is_joined_to_it(self) -> None:
        one, two = (sa.array([b"%020d" % i], sa.binary_view()) for i in range(2))
        views = np.array(one.views)
        views[0, 2] = 1
        wrong = changed(one, buffers=[None, views.reshape(-1).view(np.uint8), *one.data_buffers])
        with pytest.raises(sa.InvalidData, match=r"row 0: .*the view refers to"):
            sa.concat_arrays([wrong, two]).validate(full=True)

    def test_joining_many_buffers_keeps_those_that_are_needed(self) -> None:
        many = sa.array(pa.concat_arrays([pa.array([b"%020d" % i], pa.binary_view()) for i in range(40)]))
        joined = sa.concat_arrays([many.take([3]), many.take([7])])
        assert joined.to_pylist() == [b"%020d" % 3, b"%020d" % 7]
        assert len(joined.data_buffers) == 2

    def test_buffers_that_nothing_leads_to_are_dropped(self) -> None:
        parts = [pa.array([b"%020d" % i] * 2, pa.binary_view()) for i in range(3)]  # one buffer each
        found = sa.array(pa.concat_arrays(parts)).take([4, 1])
        assert len(found.data_buffers) == 3
        kept = found.trim()
        assert [bytes(data) for data in kept.data_buffers] == [b"%020d" % 0, b"%020d" % 2]
        assert kept.to_pylist() == [b"%020d" % 2, b"%020d" % 0]


class TestText:
    @pytest.mark.parametrize("size", [1, 5, 12, 13, 40])
    def test_what_is_not_utf8_is_found_wherever_it_lies(self, size: int) -> None:
        values = [b"x" * (i % 50) for i in range(20_000)]
        values[17_123] = b"y" * (size - 1) + b"\xff"
        views = sa.array(values, sa.binary_view())
        with pytest.raises(sa.InvalidData, match=r"row 17123: .*not UTF-8"):
            views.cast(sa.string_view())
        with pytest.raises(sa.InvalidData, match=r"row 17123: .*not UTF-8"):
            changed(views, type=sa.string_view()).validate(full=True)

    def test_null_slots_may_hold_anything(self) -> None:
        words = np.full((20_000, 2), np.uint64((1 << 64) - 1))
        validity = np.zeros(2_500, np.uint8)
        array = changed(
            sa.array([None] * 20_000, sa.string_view()), buffers=[validity, words.reshape(-1).view(np.uint8)]
        )
        array.validate(full=True)
        assert array.to_pylist() == [None] * 20_000
        assert array.cast(sa.string()).to_pylist() == [None] * 20_000
        assert not array.trim().views.any()
        assert array.equals(sa.array([None] * 20_000, sa.string_view()))

    @pytest.mark.parametrize("size", [3, 12, 13, 30])
    def test_text_beyond_ascii(self, size: int) -> None:
        values = [("é" * (i % size))[: size // 2] if i % 7 else None for i in range(20_000)]
        theirs = pa.array(values, pa.string_view())
        found = sa.array(theirs)
        found.validate(full=True)
        assert found.to_pylist() == values
        assert found.cast(sa.string()).to_pyarrow().equals(pa.array(values))
        assert sa.array(values).cast(sa.string_view()).equals(found)


class TestDamagedText:
    """Views at random places of text in several languages, some of them damaged."""

    BUFFERS = ("plain ASCII text " * 8, "Größe, naïve, Ωμέγα " * 8, "数据 😀 交换 " * 8)
    INLINE = (b"", b"ascii", b"twelve bytes", "größer".encode(), "数据交换".encode(), "😀".encode())

    def views(self, seed: int) -> tuple[list[bytes], bytes, list[bytes | None], list[bool]]:
        """The buffers, the views, their values (None if out of range), and which of them are valid."""
        random = np.random.default_rng(seed)
        damage = random.choice([0.0, 0.02])
        buffers = [text.encode() for text in self.BUFFERS[: random.integers(1, 4)]]
        count = int(random.integers(1, 40))
        words, values = [], []
        for _ in range(count):
            broken = bool(random.random() < damage)
            if random.random() < 0.4:
                value = self.INLINE[random.integers(len(self.INLINE))]
                size = len(value) - (broken and value[-1:] > b"\x7f")  # the rest of the last character is padding
                words.append(size.to_bytes(4, "little") + value.ljust(12, b"\0"))
                values.append(value[:size])
                continue
            number = int(random.integers(len(buffers)))
            text = buffers[number].decode()
            start = int(random.integers(len(text) - 20))
            stop = start + int(random.integers(15, 20))
            low, high = len(text[:start].encode()), len(text[:stop].encode())
            if broken:
                low, high = low + int(random.integers(2)), high + int(random.choice([-1, 0, 1 << 12, 1 << 31]))
                number += int(random.integers(4) == 3) << int(random.integers(32))
            numbers = np.array([high - low, 0, number, low], np.uint32)
            inside = number < len(buffers) and high <= len(buffers[number])
            if inside:
                numbers[1:2].view("S4")[0] = buffers[number][low : low + 4]
            words.append(numbers.tobytes())
            values.append(buffers[number][low:high] if inside else None)
        return buffers, b"".join(words), values, (random.random(count) < 0.7).tolist()

    @pytest.mark.parametrize("type", [sa.string_view(), sa.binary_view()], ids=str)
    @pytest.mark.parametrize("with_nulls", [False, True])
    def test_only_damaged_values_are_errors(self, type: sa.DataType, with_nulls: bool) -> None:
        for seed in range(100):
            buffers, views, values, valid = self.views(seed)
            bits = np.packbits(valid, bitorder="little").tobytes() if with_nulls else None
            array = sa.Array.from_buffers(type, len(values), [bits, views, *buffers])
            wanted: list[Any] = [v if ok or not with_nulls else b"" for v, ok in zip(values, valid, strict=True)]
            try:
                good = None not in wanted and all(type == sa.binary_view() or v.decode() or True for v in wanted)
            except UnicodeDecodeError:
                good = False
            if not good:
                with pytest.raises(sa.InvalidData):
                    array.to_pyarrow()
                with pytest.raises(sa.InvalidData):
                    array.validate(full=True)
                continue
            found = array.to_pyarrow()
            nulls = [with_nulls and not ok for ok in valid]
            text = [v.decode() if type == sa.string_view() else v for v in wanted]
            assert found.to_pylist() == [None if null else v for v, null in zip(text, nulls, strict=True)]
