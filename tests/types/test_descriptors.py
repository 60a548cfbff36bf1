"""One descriptor for each type: complete, held to Schema.fbs, and immutable types."""

from __future__ import annotations

import re
import string
from itertools import count
from typing import Any

import numpy as np
import pytest
from cases.table import CASES
from environment import ROOT

import shmarrow as sa
from shmarrow.integration.json_schema import write_field
from shmarrow.ipc.batch.encode import dictionaries_of
from shmarrow.layout import LISTING
from shmarrow.layout.listing import walk
from shmarrow.types import DataType
from shmarrow.types.descriptors import CLASSES, TYPES, parse_format

FIELDS = [sa.field("a", sa.int8()), sa.field("b", sa.string(), nullable=False)]

TYPES_OF_CASES = list({str(case.type): case.type for case in CASES if case.type.layout != "dictionary"}.values())
each_type = pytest.mark.parametrize("type", TYPES_OF_CASES, ids=str)
each_descriptor = pytest.mark.parametrize("descriptor", TYPES, ids=[each.member for each in TYPES])


def declared() -> list[str]:
    """The members of the Type union in the text of Schema.fbs."""
    text = re.sub(r"//.*", "", (ROOT / "format" / "Schema.fbs").read_text(encoding="utf-8"))
    found = re.search(r"union Type\s*\{([^}]*)\}", text)
    assert found is not None
    return [member.strip() for member in found[1].split(",") if member.strip()]


def test_the_union_of_schema_fbs_has_a_descriptor_each() -> None:
    assert [each.member for each in TYPES] == declared()
    assert {type.descriptor.member for type in TYPES_OF_CASES} == set(declared())
    assert {case.type.layout for case in CASES} == set(LISTING)


@each_descriptor
def test_descriptors_are_complete(descriptor: Any) -> None:
    assert issubclass(CLASSES[descriptor.member], DataType)
    assert set() < set(descriptor.layouts) <= set(LISTING)
    assert descriptor.format
    values = [spec for layout in descriptor.layouts for spec in LISTING[layout].buffers if spec.role == "values"]
    assert bool(descriptor.values) is bool(values)
    for type in [type for type in TYPES_OF_CASES if type.descriptor is descriptor]:
        assert type.layout in descriptor.layouts
        name, arguments = descriptor.call(type)
        assert getattr(sa, name)(*arguments) == type
        for _, attribute, *_ in string.Formatter().parse(descriptor.format.partition("|")[0]):
            if attribute and not attribute.startswith("t."):
                assert hasattr(type, attribute)
        if type.layout == "primitive":
            dtype = np.dtype(descriptor.storage(type))
            assert type.storage == dtype
            assert type.byte_width == dtype.itemsize


@each_type
def test_types_are_immutable(type: Any) -> None:
    """Types are shared by all that a process reads, so nobody can change one."""
    names = ["layout", "storage", "fields", "descriptor", *[each.name for each in type.descriptor.parameters]]
    before = (hash(type), str(type), [getattr(type, name) for name in names])
    for name in names:
        with pytest.raises(AttributeError):
            setattr(type, name, None)
        with pytest.raises(AttributeError):
            delattr(type, name)
    assert (hash(type), str(type), [getattr(type, name) for name in names]) == before


@pytest.mark.parametrize(
    ("text", "fields"),
    [
        ("x", []), ("i ", []), ("tsu", []), ("tdX", []), ("ttmm", []), ("d:5", []), ("d:5,2,96", []), ("d:0,0", []),
        ("d:5,99999999999", []), ("w:-1", []), ("w:2147483648", []), ("+w:x", FIELDS[:1]), ("+ud:0,,1", FIELDS),
        ("+us:0", FIELDS), ("+us:128", FIELDS[:1]), ("+l", []), ("+m", FIELDS[:1]), ("+r", FIELDS[:1]),
        ("i", FIELDS[:1]), ("+ud:" + "9" * 5000, FIELDS[:1]),
    ],
)  # fmt: skip
def test_bad_format_strings(text: str, fields: list[sa.Field]) -> None:
    with pytest.raises(sa.InvalidArgument):
        parse_format(text, fields)


# --- what is missing fails at import


def test_a_class_without_a_descriptor_is_refused() -> None:
    for members in [(), ("Struct_",), ("Nothing",)]:
        with pytest.raises(TypeError, match=r"^Stray needs descriptors of its own in TYPES"):
            type("Stray", (DataType,), {}, members=members)  # type: ignore[call-overload]
    assert CLASSES["Struct_"] is sa.struct([]).__class__
    assert "Nothing" not in CLASSES


def test_extension_types_have_the_descriptor_of_their_storage() -> None:
    class Celsius(sa.ExtensionType):
        extension_name = "test.celsius"

    assert Celsius("float32").descriptor is sa.float32().descriptor


# --- one walk


def test_walks_go_depth_first() -> None:
    tree = {"a": ["b", "e"], "b": ["c", "d"], "f": ["g"]}
    assert list(walk(["a", "f"], lambda node: tree.get(node, []))) == list("abcdefg")
    nested = sa.struct({"x": sa.list_(sa.int8()), "y": sa.string()})
    types = walk([nested], lambda type: [field.type for field in type.fields])
    assert [str(type.layout) for type in types] == ["struct", "list", "primitive", "binary"]


def test_dictionary_ids_are_in_the_order_of_the_walk_everywhere() -> None:
    """JSON and batches number dictionaries alike: a field's own, then those within its values."""
    inner = sa.dictionary("int8", "string")
    outer = sa.dictionary("int16", sa.struct({"k": inner}))
    schema = sa.schema({"a": sa.list_(inner), "b": outer, "c": inner})
    ids = count()
    written = [write_field(field, ids) for field in schema]
    assert written[0]["children"][0]["dictionary"]["id"] == 0
    assert written[1]["dictionary"]["id"] == 1
    assert written[1]["children"][0]["dictionary"]["id"] == 2
    assert written[2]["dictionary"]["id"] == 3
    columns = [sa.array([["x"]], schema.field(0).type), sa.array([{"k": "y"}], outer), sa.array(["z"], inner)]
    batch = sa.record_batch(columns, schema=schema)
    assert [values.to_pylist() for values in dictionaries_of(batch.columns)] == [["x"], [{"k": "y"}], ["y"], ["z"]]
