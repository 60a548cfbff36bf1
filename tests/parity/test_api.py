"""Each public name of pyarrow that is in scope has its place in the tables, and does here what it does there."""

from __future__ import annotations

import io
import re
import types
from functools import cache, reduce
from typing import Any

import api
import numpy as np
import pyarrow as pa
import pyarrow.ipc
import pyarrow.types
import pytest
from api_kinds import INSIDE, Class, Instead, Out, Same
from cases.by_type import TYPES
from cases.compare import exact

import shmarrow as sa

pytestmark = pytest.mark.skipif(
    int(pa.__version__.partition(".")[0]) < 26, reason="the tables compare with pyarrow 26, which is newer"
)


@cache
def names(library: Any) -> dict[str, Any]:
    """Return the objects that calls refer to, made by one of the libraries."""
    found = {"pa": library, "np": np, "io": io}
    exec(api.NAMES, found)
    return found


def evaluated(library: Any, call: str) -> Any:
    """The value of a call, where ``pa`` is one of the libraries."""
    return eval(call, names(library))


def theirs(value: Any) -> Any:
    """Our object as pyarrow's."""
    for kind in (sa.Array, sa.ChunkedArray, sa.RecordBatch, sa.Table, sa.Schema, sa.Field, sa.DataType):
        if isinstance(value, kind):
            return value.to_pyarrow()
    return value


def metadata(found: Any) -> Any:
    return None if not found else dict(found)


def plain(value: Any) -> Any:
    """Return the result of a call as Python values, with the names and types of its parts."""
    value = theirs(value)
    if isinstance(value, pa.Scalar):
        return exact(value.as_py())
    if isinstance(value, pa.DataType):
        return ("type", str(value), [plain(value.field(i)) for i in range(value.num_fields)])
    if isinstance(value, pa.Field):
        return ("field", value.name, plain(value.type), value.nullable, metadata(value.metadata))
    if isinstance(value, pa.Schema):
        return ("schema", [plain(field) for field in value], metadata(value.metadata))
    if isinstance(value, pa.Array):
        return ("array", plain(value.type), exact(value.to_pylist()))
    if isinstance(value, pa.ChunkedArray):
        return ("chunks", plain(value.type), exact(value.to_pylist()))
    if isinstance(value, pa.RecordBatch):
        return ("batch", plain(value.schema), [plain(column) for column in value.columns])
    if isinstance(value, pa.Table):
        return ("table", plain(value.schema), [exact(column.to_pylist()) for column in value.columns])
    if isinstance(value, (list, tuple, types.GeneratorType)):
        return [plain(item) for item in value]
    if hasattr(value, "items") and not isinstance(value, pa.Array):
        return {key: plain(item) for key, item in value.items()}
    return exact(value)


CALLS = [
    pytest.param(call, id=f"{section or 'pa'}.{name}-{number}")
    for section, table in api.SECTIONS.items()
    for name, entry in table.items()
    if isinstance(entry, Same)
    for number, call in enumerate(entry.calls)
]
OTHERS = [
    pytest.param(entry.theirs, entry.ours, id=f"{section or 'pa'}.{name}")
    for section, table in api.SECTIONS.items()
    for name, entry in table.items()
    if isinstance(entry, Instead)
]
KINDS = [pytest.param(entry, id=entry.theirs) for entry in api.MODULE.values() if isinstance(entry, Class)]


@pytest.mark.parametrize("call", CALLS)
def test_a_call_gives_what_it_gives_with_pyarrow(call: str) -> None:
    if "pydata_sparse" in call:
        pytest.importorskip("sparse")
    assert plain(evaluated(sa, call)) == plain(evaluated(pa, call))


@pytest.mark.parametrize(("call", "ours"), OTHERS)
def test_another_call_gives_what_pyarrow_gives(call: str, ours: str) -> None:
    assert plain(evaluated(sa, ours)) == plain(evaluated(pa, call))


@pytest.mark.parametrize("entry", KINDS)
def test_a_class_stands_for_one_of_pyarrow(entry: Class) -> None:
    assert isinstance(evaluated(pa, entry.example), getattr(pa, entry.theirs))
    assert isinstance(evaluated(sa, entry.example), evaluated(sa, f"pa.{entry.ours}"))


def public(place: Any) -> set[str]:
    """The public names of a class or module; of a named tuple, those of its values."""
    inherited = dir(tuple) if isinstance(place, type) and issubclass(place, tuple) else []
    return {name for name in dir(place) if not name.startswith("_")} - {*inherited}


def part_of(library: Any, path: str) -> Any:
    """A class or module of a library by its path, the library itself if that is empty; None if it does not exist."""
    return reduce(lambda place, name: getattr(place, name, None), path.split("."), library) if path else library


@pytest.mark.parametrize("section", list(api.SECTIONS), ids=lambda section: section or "pa")
def test_every_public_name_of_pyarrow_has_its_place(section: str) -> None:
    place = part_of(pa, section)
    names = public(place)
    for base in place.__mro__[1:] if isinstance(place, type) else ():
        names -= public(base) if base.__name__ in api.SECTIONS else set()
    if section == "types":
        names = {name for name in names if not hasattr(sa.types, name)}
    names -= {name for name in names if isinstance(getattr(place, name), types.ModuleType)}  # which others imported
    table = api.SECTIONS[section]
    assert sorted(name for name in names if api.find(table, name) is None) == []
    known = public(place)
    assert sorted(name for name in table if "*" not in name and name not in known) == []


@pytest.mark.parametrize("section", [*api.SECTIONS], ids=lambda section: section or "pa")
def test_what_is_left_out_is_not_there(section: str) -> None:
    place = part_of(sa, section)
    if place is not None:
        left = [name for name, entry in api.SECTIONS[section].items() if isinstance(entry, Out) and entry is not INSIDE]
        assert [name for name in left if hasattr(place, name)] == []


def test_every_member_of_a_class_of_pyarrow_has_its_place() -> None:
    """Those of classes that are left out as a whole need none."""
    left: dict[str, list[str]] = {}
    for module in ("", "ipc"):
        for name, kind in vars(part_of(pa, module)).items():
            if not isinstance(kind, type) or isinstance(api.find(api.SECTIONS[module], name), Out | None):
                continue
            sections = {f"{module}.{name}".strip("."), *[base.__name__ for base in kind.__mro__]}
            known = [api.SECTIONS[section] for section in sections if section in api.SECTIONS]
            missing = [each for each in public(kind) if not any(api.find(table, each) for table in known)]
            left |= {name: missing} if missing else {}
    assert left == {}


@pytest.mark.parametrize("name", sorted(name for name in public(pa.types) if re.fullmatch("is_.*(?<!_value)", name)))
def test_predicates_say_of_each_type_what_pyarrow_says(name: str) -> None:
    ours, peer = getattr(sa.types, name), getattr(pa.types, name)
    for label, type, _ in TYPES:
        if label not in ("interval-month", "interval-day-time"):
            assert ours(type) is bool(peer(type.to_pyarrow())), label


def test_the_page_is_that_of_the_tables() -> None:
    assert api.PAGE.read_text(encoding="utf-8") == api.page(), "run make docs"
