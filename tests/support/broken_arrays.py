"""Arrays that break one rule of the format each, as validation and other libraries are given them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from cases.definition import Physical, pack, text

import shmarrow as sa
from shmarrow.types import MapType


@dataclass(frozen=True)
class Broken:
    """One broken rule: what the message of validation says, and whether pyarrow's own validation sees it too."""

    name: str
    type: Any
    physical: Physical
    message: str
    peer: bool = True


INT8S = Physical(3, [None, "01 02 03"])
NAMES = sa.struct([sa.field("k", sa.int8(), nullable=False), sa.field("v", sa.int8())])
MAP = MapType(sa.field("entries", NAMES, nullable=False))
UNION = [sa.field("a", sa.int8()), sa.field("b", sa.int8())]
SPARSE, DENSE = sa.sparse_union(UNION, [3, 7]), sa.dense_union(UNION, [3, 7])
RUNS, WORDS = sa.run_end_encoded(sa.int16(), sa.int8()), sa.dictionary(sa.int8(), sa.string())
REQUIRED = sa.field("n", sa.int8(), nullable=False)
ONE_NULL = Physical(3, ["05", "01 00 03"], 1)


def strings(offsets: list[int], data: str, format: str = "i", validity: str | None = None, nulls: int = 0) -> Physical:
    return Physical(len(offsets) - 1, [validity, pack(format, *offsets), data], nulls)


def view(length: int, rest: str, *data: str) -> Physical:
    return Physical(1, [None, pack("i", length) + rest, *data])


def long_view(length: int, prefix: str, index: int, offset: int) -> Physical:
    return view(length, text(prefix) + pack("i", index, offset), text("a value of 24 characters"))


def list_view(offsets: list[int], sizes: list[int], format: str = "i", validity: str | None = None) -> Physical:
    nulls = 0 if validity is None else len(offsets) - int(validity, 16).bit_count()
    return Physical(len(offsets), [validity, pack(format, *offsets), pack(format, *sizes)], nulls, [INT8S])


def union(ids: str, offsets: list[int] | None = None) -> Physical:
    buffers = [ids] if offsets is None else [ids, pack("i", *offsets)]
    return Physical(3, buffers, 0, [INT8S, INT8S])


def runs(ends: list[int], length: int, values: int = 3) -> Physical:
    children = [Physical(len(ends), [None, pack("h", *ends)]), Physical(values, [None, "01 02 03"])]
    return Physical(length, [], 0, children)


def indices(format: str, *numbers: int, validity: str | None = None, nulls: int = 0) -> Physical:
    return Physical(len(numbers), [validity, pack(format, *numbers)], nulls, dictionary=strings([0, 1, 2], text("ab")))


def wide(number: int, size: int) -> Physical:
    return Physical(2, [None, text((0).to_bytes(size)) + text(number.to_bytes(size, "little", signed=True))])


VALUES = [
    Broken("offset-goes-back", sa.string(), strings([0, 3, 1, 4], text("abcd")), "offset 2 decreases from 3 to 1"),
    Broken("offset-goes-back-large", sa.large_binary(), strings([0, 3, 1, 4], text("abcd"), "q"), "from 3 to 1"),
    Broken("offset-beyond-the-data", sa.binary(), strings([0, 9, 4], text("abcd")), "decreases from 9 to 4"),
    Broken("offset-negative-inside", sa.binary(), strings([0, -1, 3], text("abcd")), "decreases from 0 to -1"),
    Broken("utf8-no-character", sa.string(), strings([0, 2, 3], text(b"ab\xff")), r"row 1: .*not UTF-8"),
    Broken("utf8-split-character", sa.string(), strings([0, 1, 2], text("é")), r"row 0: .*not UTF-8"),
    Broken("utf8-starts-within", sa.string(), strings([0, 2, 3], text("aé")), r"row 0: .*not UTF-8"),
    Broken("utf8-overlong", sa.large_string(), strings([0, 2], text(b"\xc0\x80"), "q"), r"row 0: .*not UTF-8"),
    Broken("utf8-surrogate", sa.string(), strings([0, 3], text(b"\xed\xa0\x80")), r"row 0: .*not UTF-8"),
    Broken("utf8-beyond-unicode", sa.string(), strings([0, 4], text(b"\xf4\x90\x80\x80")), r"row 0: .*not UTF-8"),
    Broken("utf8-cut-off", sa.string(), strings([0, 1, 4], text(b"a\xf0\x9f\xa6")), r"row 1: .*not UTF-8"),
    Broken(
        "utf8-after-a-null", sa.string(), strings([0, 1, 2, 3], text(b"a\xff\xff"), "i", "05", 1), r"row 2: .*not UTF-8"
    ),
    Broken("utf8-in-view", sa.string_view(), view(2, text(b"a\xff") + "00" * 10), r"row 0: .*not UTF-8"),
    Broken(
        "utf8-in-long-view",
        sa.string_view(),
        view(13, text("xxxx") + pack("i", 0, 0), text(b"x" * 12 + b"\xff")),
        r"row 0: .*not UTF-8",
    ),
    Broken("view-negative-length", sa.binary_view(), view(-1, "00" * 12), r"row 0: .*the view"),
    Broken("view-negative-offset", sa.binary_view(), long_view(13, "a va", 0, -1), r"row 0: .*the view"),
    Broken(
        "view-beyond-its-buffer", sa.binary_view(), long_view(20, "ue o", 0, 5), r"\[5, 25\) of buffer 0, which has 24"
    ),
    Broken("view-of-no-buffer", sa.binary_view(), long_view(13, "a va", 1, 0), "of buffer 1 of 1"),
    Broken("view-of-negative-buffer", sa.binary_view(), long_view(13, "a va", -1, 0), "of buffer -1 of 1"),
    Broken(
        "view-other-prefix", sa.binary_view(), long_view(13, "a vo", 0, 0), r"row 0: .*the view has a prefix other than"
    ),
    Broken("view-padding", sa.binary_view(), view(3, text("abc") + "00" * 8 + "01"), "non-zero padding"),
    Broken(
        "list-offset-goes-back",
        sa.list_(sa.int8()),
        Physical(2, [None, pack("i", 0, 2, 1)], 0, [INT8S]),
        "offset 2 decreases from 2 to 1",
    ),
    Broken(
        "list-offset-beyond",
        sa.large_list(sa.int8()),
        Physical(2, [None, pack("q", 0, 1 << 62, 3)], 0, [INT8S]),
        "decreases from 4611686018427387904 to 3",
    ),
    Broken(
        "map-offset-goes-back",
        MAP,
        Physical(2, [None, pack("i", 0, 2, 1)], 0, [Physical(3, [None], 0, [INT8S, INT8S])]),
        "offset 2 decreases from 2 to 1",
    ),
    Broken("list-view-beyond", sa.list_view(sa.int8()), list_view([0, 2], [1, 2]), r"row 1: .*2 values at 2, of 3"),
    Broken("list-view-negative-size", sa.list_view(sa.int8()), list_view([1], [-1]), r"row 0: .*-1 values at 1"),
    Broken("list-view-negative-offset", sa.list_view(sa.int8()), list_view([-1], [2]), r"row 0: .*2 values at -1"),
    Broken(
        "list-view-overflow", sa.large_list_view(sa.int8()), list_view([(1 << 63) - 1], [(1 << 63) - 1], "q"), "row 0: "
    ),
    Broken("list-view-null-slot", sa.list_view(sa.int8()), list_view([0, 9], [1, 9], "i", "01"), r"row 1: .*9 values"),
    Broken("list-view-empty-slot", sa.list_view(sa.int8()), list_view([0, 9], [1, 0]), r"row 1: .*0 values at 9"),
    Broken("type-id-unknown", SPARSE, union("03 07 05"), r"row 2: .*expected one of the type ids \[3, 7\], found 5"),
    Broken("type-id-negative", SPARSE, union("03 ff 07"), r"row 1: .*type ids .*, found -1"),
    Broken("type-id-unknown-dense", DENSE, union("03 07 00", [0, 0, 1]), r"row 2: .*type ids .*, found 0"),
    Broken("union-offset-beyond", DENSE, union("03 07 07", [0, 0, 3]), r"row 2: .*row 3 of child 1, which has 3"),
    Broken("union-offset-negative", DENSE, union("03 07 07", [0, -1, 0]), r"row 1: .*row -1 of child 1"),
    Broken("union-offset-goes-back", DENSE, union("03 07 07", [0, 1, 0]), "decrease from 1 to 0"),
    Broken("run-end-0", RUNS, runs([0, 2, 3], 3), "the first run ends at 0"),
    Broken("run-end-negative", RUNS, runs([-5, 2, 3], 3), "the first run ends at -5"),
    Broken("run-end-repeats", RUNS, runs([1, 1, 3], 3), "does not increase: 1, then 1"),
    Broken("run-end-goes-back", RUNS, runs([2, 1, 3], 3), "does not increase: 2, then 1"),
    Broken("index-beyond", WORDS, indices("b", 0, 1, 2), r"row 2: .*index 2 of a dictionary of 2"),
    Broken("index-negative", sa.dictionary(sa.int16(), sa.string()), indices("h", 0, -1), r"row 1: .*index -1"),
    Broken("index-beyond-unsigned", sa.dictionary(sa.uint8(), sa.string()), indices("B", 255), r"row 0: .*index 255"),
    Broken(
        "index-beyond-wide", sa.dictionary(sa.uint64(), sa.string()), indices("Q", (1 << 64) - 1), r"row 0: .*index"
    ),
    Broken(
        "dictionary-value",
        WORDS,
        Physical(1, [None, "00"], dictionary=strings([0, 1], text(b"\xff"))),
        r"row 0: .*not UTF-8",
    ),
    *[
        Broken(
            f"decimal{bits}-digits{sign}",
            getattr(sa, f"decimal{bits}")(digits, 1),
            wide(sign * 10**digits, bits // 8),
            rf"row 1: .*{digits} digits, found",
        )
        for bits, digits in ((32, 5), (64, 12), (128, 20), (128, 38), (256, 50), (256, 76))
        for sign in (1, -1)
    ],
    Broken(
        "time-end-of-day", sa.time32("s"), Physical(2, [None, pack("i", 86_399, 86_400)]), r"row 1: .*, found 86400"
    ),
    Broken("time-negative", sa.time32("ms"), Physical(1, [None, pack("i", -1)]), r"row 0: .*, found -1"),
    Broken(
        "time-end-of-day-us",
        sa.time64("us"),
        Physical(1, [None, pack("q", 86_400_000_000)]),
        r"row 0: .*, found 86400000000",
    ),
    Broken("time-negative-ns", sa.time64("ns"), Physical(1, [None, pack("q", -1)]), r"row 0: .*, found -1"),
    Broken(
        "date64-part-of-day",
        sa.date64(),
        Physical(2, [None, pack("q", 86_400_000, 1)]),
        r"row 1: .* whole .*, found 1970-01-01T00:00:00.001",
    ),
    Broken("null-count-too-low", sa.int8(), Physical(3, ["05", "01 02 03"], 0), "null count is 0, .* 1 nulls", False),
    Broken("null-count-too-high", sa.int8(), Physical(3, ["05", "01 02 03"], 2), "null count is 2, .* 1 nulls", False),
    Broken(
        "null-in-required-child",
        sa.struct([REQUIRED]),
        Physical(3, [None], 0, [ONE_NULL]),
        "'n' is not nullable",
        False,
    ),
    Broken(
        "null-in-required-item",
        sa.list_(REQUIRED),
        Physical(1, [None, pack("i", 0, 3)], 0, [ONE_NULL]),
        "'n' is not nullable",
        False,
    ),
    Broken(
        "null-in-required-items",
        sa.list_(REQUIRED, 3),
        Physical(1, [None], 0, [ONE_NULL]),
        "'n' is not nullable",
        False,
    ),
    Broken(
        "null-key",
        MAP,
        Physical(1, [None, pack("i", 0, 3)], 0, [Physical(3, [None], 0, [ONE_NULL, INT8S])]),
        "null",
        False,
    ),
    Broken(
        "null-entries",
        MAP,
        Physical(1, [None, pack("i", 0, 3)], 0, [Physical(3, ["03"], 1, [INT8S, INT8S])]),
        "null",
        False,
    ),
    Broken(
        "deep-inside",
        sa.list_(sa.struct({"s": sa.string()})),
        Physical(1, [None, pack("i", 0, 1)], 0, [Physical(1, [None], 0, [strings([0, 1], "ff")])]),
        "child 'item': child 's': row 0: string: not UTF-8",
    ),
]
"""Rules that values promise, and that ``validate(full=True)`` holds them to."""

PRIMITIVE = sa.int32()
STRUCTURE = [
    Broken("values-short", PRIMITIVE, Physical(3, [None, pack("i", 1, 2) + "00 00 00"]), "12 bytes.* 11"),
    Broken("values-short-by-offset", PRIMITIVE, Physical(2, [None, pack("i", 1, 2)], offset=1), "12 bytes.* 8"),
    Broken("bits-short", sa.bool_(), Physical(9, [None, "ff"]), "2 bytes.* 1"),
    Broken("validity-short", PRIMITIVE, Physical(9, ["ff", pack("i", *range(9))], -1), "2 bytes.* 1"),
    Broken("validity-missing", PRIMITIVE, Physical(1, [None, pack("i", 1)], 1), "1 bytes.* 0|null"),
    Broken("offsets-short", sa.string(), Physical(2, [None, pack("i", 0, 1), text("ab")]), "12 bytes.* 8"),
    Broken("offsets-missing", sa.string(), Physical(1, [None, "", ""]), "8 bytes.* 0"),
    Broken("views-short", sa.string_view(), Physical(2, [None, "00" * 31]), "32 bytes.* 31"),
    Broken(
        "sizes-short", sa.list_view(sa.int8()), Physical(2, [None, pack("i", 0, 0), pack("i", 0)], 0, [INT8S]), "8.* 4"
    ),
    Broken("ids-short", SPARSE, Physical(3, ["03 03"], 0, [INT8S, INT8S]), "3 bytes.* 2"),
    Broken("union-offsets-short", DENSE, Physical(2, ["03 03", pack("i", 0)], 0, [INT8S, INT8S]), "8 bytes.* 4"),
    Broken(
        "indices-short",
        sa.dictionary(sa.int32(), sa.string()),
        Physical(2, [None, pack("i", 0)], dictionary=strings([0], "")),
        "8 bytes.* 4",
    ),
    Broken("negative-length", PRIMITIVE, Physical(-1, [None, ""]), "length -1"),
    Broken("negative-offset", PRIMITIVE, Physical(1, [None, pack("i", 1)], offset=-1), "offset -1"),
    Broken("null-count-beyond", PRIMITIVE, Physical(1, ["00", pack("i", 1)], 2), "null count 2"),
    Broken("null-count-below", PRIMITIVE, Physical(1, ["00", pack("i", 1)], -2), "null count -2"),
    Broken("buffer-missing", PRIMITIVE, Physical(1, [None]), "2 buffers, found 1"),
    Broken("buffer-too-many", PRIMITIVE, Physical(1, [None, pack("i", 1), ""]), "2 buffers, found 3"),
    Broken("first-offset-negative", sa.string(), strings([-1, 1], text("a")), "from -1 to 1"),
    Broken("last-offset-beyond", sa.string(), strings([0, 2], text("a")), "from 0 to 2 .* 1 bytes"),
    Broken("offsets-all-back", sa.large_string(), strings([2, 1], text("abc"), "q"), "from 2 to 1"),
    Broken(
        "list-last-offset-beyond", sa.list_(sa.int8()), Physical(1, [None, pack("i", 0, 4)], 0, [INT8S]), "0 to 4 .* 3"
    ),
    Broken(
        "map-last-offset-beyond",
        MAP,
        Physical(1, [None, pack("i", 0, 4)], 0, [Physical(3, [None], 0, [INT8S, INT8S])]),
        "0 to 4 .* 3",
    ),
    Broken("fixed-list-child-short", sa.list_(sa.int8(), 2), Physical(2, [None], 0, [INT8S]), "4 values, found 3"),
    Broken(
        "fixed-list-child-short-by-offset", sa.list_(sa.int8(), 2), Physical(1, [None], 0, [INT8S], offset=1), "4.* 3"
    ),
    Broken(
        "struct-child-short", sa.struct({"c": sa.int8()}), Physical(4, [None], 0, [INT8S]), "child 'c' needs 4 .* 3"
    ),
    Broken(
        "sparse-child-short", SPARSE, Physical(4, ["03 03 03 03"], 0, [INT8S, INT8S]), "child 'a' needs 4 slots .* 3"
    ),
    Broken("runs-end-early", RUNS, runs([1, 2, 3], 4), "4 slots but .* ends at 3"),
    Broken(
        "runs-end-early-by-offset",
        RUNS,
        Physical(3, [], 0, runs([1, 2, 3], 3).children, offset=1),
        "4 slots but .* ends at 3",
    ),
    Broken("no-runs", RUNS, runs([], 1), "1 slots but .* ends at 0"),
    Broken("runs-without-values", RUNS, runs([1, 2, 3], 3, 2), "3 runs but 2 values"),
    Broken(
        "null-run-ends",
        RUNS,
        Physical(2, [], 0, [Physical(2, ["01", pack("h", 1, 2)], 1), Physical(2, [None, "01 02"])]),
        "found 1 null$",
    ),
    Broken("no-dictionary", WORDS, Physical(1, [None, "00"]), "the dictionary is missing"),
]
"""Rules that the structure promises, and that ``validate()`` holds it to, in a time without regard to the length."""
