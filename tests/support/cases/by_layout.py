"""Cases with a memory layout: the examples of the columnar specification, and layouts that no values lead to."""

from __future__ import annotations

import shmarrow as sa
from cases.by_type import PLAIN_UNION
from cases.definition import Case, Physical, pack, text

# --- the worked examples of the columnar specification ------------------------------------------------------------

_INT8S = "0c f9 19 00 81 7f 32"

SPECIFIED = [
    Case(
        "spec-int32",
        sa.int32(),
        [1, None, 2, 4, 8],
        Physical(5, ["1d", pack("i", 1, None, 2, 4, 8)], 1),
    ),
    Case("spec-int32-no-null", sa.int32(), [1, 2, 3, 4, 8], Physical(5, [None, pack("i", 1, 2, 3, 4, 8)])),
    Case(
        "spec-int32-bitmap-of-ones",
        sa.int32(),
        [1, 2, 3, 4, 8],
        Physical(5, ["1f", pack("i", 1, 2, 3, 4, 8)]),
        from_values=False,
    ),
    Case(
        "spec-binary",
        sa.binary(),
        [b"joe", None, None, b"mark"],
        Physical(4, ["09", pack("i", 0, 3, 3, 3, 7), text("joemark")], 2),
    ),
    Case(
        "spec-list-int8",
        sa.list_(sa.int8()),
        [[12, -7, 25], None, [0, -127, 127, 50], []],
        Physical(4, ["0d", pack("i", 0, 3, 3, 7, 7)], 1, [Physical(7, [None, _INT8S])]),
    ),
    Case(
        "spec-list-list-int8",
        sa.list_(sa.list_(sa.int8())),
        [[[1, 2], [3, 4]], [[5, 6, 7], None, [8]], [[9, 10]]],
        Physical(
            3,
            [None, pack("i", 0, 2, 5, 6)],
            0,
            [Physical(6, ["37", pack("i", 0, 2, 4, 7, 7, 8, 10)], 1, [Physical(10, [None, pack("b", *range(1, 11))])])],
        ),
    ),
    Case(
        "spec-list-view-int8",
        sa.list_view(sa.int8()),
        [[12, -7, 25], None, [0, -127, 127, 50], []],
        Physical(4, ["0d", pack("i", 0, 7, 3, 0), pack("i", 3, 0, 4, 0)], 1, [Physical(7, [None, _INT8S])]),
        from_values=False,
    ),
    Case(
        "spec-list-view-int8-shared",
        sa.list_view(sa.int8()),
        [[12, -7, 25], None, [0, -127, 127, 50], [], [50, 12]],
        Physical(
            5,
            ["1d", pack("i", 4, 7, 0, 0, 3), pack("i", 3, 0, 4, 0, 2)],
            1,
            [Physical(7, [None, "00 81 7f 32 0c f9 19"])],
        ),
        from_values=False,
    ),
    Case(
        "spec-fixed-size-list",
        sa.list_(sa.uint8(), 4),
        [[192, 168, 0, 12], None, [192, 168, 0, 25], [192, 168, 0, 1]],
        Physical(
            4,
            ["0d"],
            1,
            [Physical(16, [None, pack("B", 192, 168, 0, 12, *[None] * 4, 192, 168, 0, 25, 192, 168, 0, 1)])],
        ),
        from_values=False,
    ),
    Case(
        "spec-struct",
        sa.struct({"name": sa.binary(), "age": sa.int32()}),
        [{"name": b"joe", "age": 1}, {"name": None, "age": 2}, None, {"name": b"mark", "age": 4}],
        Physical(
            4,
            ["0b"],
            1,
            [
                Physical(4, ["0d", pack("i", 0, 3, 3, 8, 12), text("joealicemark")], 1),
                Physical(4, ["0b", pack("i", 1, 2, None, 4)], 1),
            ],
        ),
        from_values=False,
    ),
    Case(
        "spec-dense-union",
        sa.dense_union({"f": sa.float32(), "i": sa.int32()}),
        [1.2000000476837158, None, 3.4000000953674316, 5],
        Physical(
            4,
            ["00 00 00 01", pack("i", 0, 1, 2, 0)],
            0,
            [Physical(3, ["05", pack("f", 1.2, None, 3.4)], 1), Physical(1, [None, pack("i", 5)])],
        ),
        from_values=False,
    ),
    Case(
        "spec-sparse-union",
        sa.sparse_union({"i": sa.int32(), "f": sa.float32(), "s": sa.binary()}),
        [5, 1.2000000476837158, b"joe", 3.4000000953674316, 4, b"mark"],
        Physical(
            6,
            ["00 01 02 01 00 02"],
            0,
            [
                Physical(6, ["11", pack("i", 5, None, None, None, 4, None)], 4),
                Physical(6, ["0a", pack("f", None, 1.2, None, 3.4, None, None)], 4),
                Physical(6, ["24", pack("i", 0, 0, 0, 3, 3, 3, 7), text("joemark")], 4),
            ],
        ),
    ),
    Case("spec-null", sa.null(), [None, None, None], Physical(3, [], 3)),
    Case(
        "spec-dictionary",
        sa.dictionary(sa.int32(), sa.binary()),
        [b"foo", b"bar", b"foo", b"bar", None, b"baz"],
        Physical(
            6,
            ["2f", pack("i", 0, 1, 0, 1, None, 2)],
            1,
            dictionary=Physical(3, [None, pack("i", 0, 3, 6, 9), text("foobarbaz")]),
        ),
    ),
    Case(
        "spec-dictionary-repeats-and-null",
        sa.dictionary(sa.int32(), sa.binary()),
        [b"foo", b"bar", b"foo", b"bar", None, b"baz"],
        Physical(
            6,
            [None, pack("i", 0, 1, 3, 1, 4, 2)],
            dictionary=Physical(5, ["0f", pack("i", 0, 3, 6, 9, 12, 12), text("foobarbazfoo")], 1),
        ),
        from_values=False,
    ),
    Case(
        "spec-run-end-encoded",
        sa.run_end_encoded(sa.int32(), sa.float32()),
        [1.0, 1.0, 1.0, 1.0, None, None, 2.0],
        Physical(
            7, [], 0, [Physical(3, [None, pack("i", 4, 6, 7)]), Physical(3, ["05", pack("f", 1.0, None, 2.0)], 1)]
        ),
    ),
    Case(
        "spec-string-view",
        sa.string_view(),
        ["short", None, "exactly12byt", "longer than twelve"],
        Physical(
            4,
            [
                "0d",
                " ".join(
                    [
                        pack("i", 5) + text("short") + "00" * 7,
                        ".." * 16,
                        pack("i", 12) + text("exactly12byt"),
                        pack("i", 18) + text("long") + pack("i", 0) + pack("i", 0),
                    ]
                ),
                text("longer than twelve"),
            ],
            1,
        ),
    ),
]
"""The examples of the specification; those of views, which it describes in words, follow the words."""

# --- arrays that Python values do not lead to -------------------------------------------------------------------

ODD = [
    Case(
        "odd-offsets-from-3",
        sa.string(),
        ["bc", "", "d"],
        Physical(3, [None, pack("i", 3, 5, 5, 6), text("???bcd???")]),
    ),
    Case(
        "odd-null-slots-hold-bytes",
        sa.string(),
        ["a", None, "c"],
        Physical(3, ["05", pack("i", 0, 1, 4, 5), text(b"a\xff\xff\xffc")], 1),
    ),
    Case(
        "odd-offset-11",
        sa.int16(),
        [11, None, 13],
        Physical(3, ["00 28", pack("h", *[None] * 11, 11, None, 13)], 1, offset=11),
    ),
    Case("odd-bool-offset-5", sa.bool_(), [True, False, None, True], Physical(4, ["60 01", "20 01"], 1, offset=5)),
    Case("odd-no-offsets-buffer", sa.string(), [], Physical(0, [None, "", ""])),
    Case("odd-list-no-offsets-buffer", sa.list_(sa.int8()), [], Physical(0, [None, ""], 0, [Physical(0, [None, ""])])),
    Case(
        "odd-struct-offset",
        sa.struct({"a": sa.int8(), "b": sa.string()}),
        [{"a": 3, "b": "c"}, None],
        Physical(
            2,
            ["07"],
            1,
            [Physical(4, [None, "01 02 03 04"]), Physical(4, [None, pack("i", 0, 1, 2, 3, 4), text("abcd")])],
            offset=2,
        ),
    ),
    Case(
        "odd-child-with-offset",
        sa.struct({"a": sa.int8()}),
        [{"a": 2}, {"a": 3}],
        Physical(2, [None], 0, [Physical(3, [None, "00 01 02 03"], offset=1)], offset=1),
    ),
    Case(
        "odd-fixed-size-list-offset",
        sa.list_(sa.int8(), 2),
        [[3, 4], [5, 6]],
        Physical(2, [None], 0, [Physical(7, [None, "01 02 03 04 05 06 07"])], offset=1),
    ),
    Case(
        "odd-sparse-union-offset",
        sa.sparse_union(PLAIN_UNION, [4, 9]),
        [2, "c"],
        Physical(
            2,
            ["09 04 09"],
            0,
            [Physical(3, [None, pack("i", 1, 2, 3)]), Physical(3, [None, pack("i", 0, 1, 2, 3), text("abc")])],
            offset=1,
        ),
    ),
    Case(
        "odd-dense-union-offset",
        sa.dense_union(PLAIN_UNION, [4, 9]),
        [2, "a"],
        Physical(
            2,
            ["04 04 09", pack("i", 0, 1, 0)],
            0,
            [Physical(2, [None, pack("i", 1, 2)]), Physical(1, [None, pack("i", 0, 1), text("a")])],
            offset=1,
        ),
    ),
    Case(
        "odd-ree-offset",
        sa.run_end_encoded(sa.int16(), sa.string()),
        ["b", "b", None, "d"],
        Physical(
            4,
            [],
            0,
            [Physical(4, [None, pack("h", 2, 5, 6, 9)]), Physical(4, ["0b", pack("i", 0, 1, 2, 2, 3), text("abd")], 1)],
            offset=3,
        ),
    ),
    Case(
        "odd-two-data-buffers",
        sa.string_view(),
        ["the second of the two", "the first of the two", "second of the two"],
        Physical(
            3,
            [
                None,
                pack("i", 21) + text("the ") + pack("i", 1, 0) + " "
                + pack("i", 20) + text("the ") + pack("i", 0, 2) + " "
                + pack("i", 17) + text("seco") + pack("i", 1, 4),
                text("??the first of the two"),
                text("the second of the two"),
            ],
        ),
    ),
    Case(
        "odd-list-view-overlapping-large",
        sa.large_list_view(sa.string()),
        [["b", "c"], ["a", "b"], [], None, ["c"]],
        Physical(
            5,
            ["17", pack("q", 1, 0, 3, 0, 2), pack("q", 2, 2, 0, 0, 1)],
            1,
            [Physical(3, [None, pack("i", 0, 1, 2, 3), text("abc")])],
        ),
    ),
    Case(
        "odd-dictionary-offset",
        sa.dictionary(sa.uint8(), sa.string()),
        ["c", None, "b"],
        Physical(
            3,
            ["34", "00 00 01 ff 00 00"],
            1,
            dictionary=Physical(2, [None, pack("i", 0, 1, 2, 3), text("abc")], offset=1),
            offset=2,
        ),
    ),
]  # fmt: skip
"""Layouts of other writers: offsets, gaps, bytes in null slots, no offsets at all, shared values."""
