"""The wire's tables: what ``format/*.fbs`` says, what the package declares, and what others make of both.

The declarations are held to the parsed text. Then every table, with every member of every union, goes through flatc in
both directions: text to bytes that our reader reads, and our bytes to text.
"""

from __future__ import annotations

import itertools
import json
import re
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from environment import ROOT

from shmarrow.buffer import as_bytes
from shmarrow.ipc.flatbuffers import builder as flatbuf_writer
from shmarrow.ipc.flatbuffers import tables as flatbuf
from shmarrow.ipc.flatbuffers.reader import Reader, TableView

NAMESPACE = "org.apache.arrow.flatbuf"
KINDS = {"bool": "bool", "byte": "i1", "ubyte": "u1", "short": "i2", "int": "i4", "long": "i8"}

# --- the text


@dataclass
class Wire:
    """The declarations of all files; tables and structs as lists of (name, type, default)."""

    enums: dict[str, dict[str, int]] = field(default_factory=dict)
    bases: dict[str, str] = field(default_factory=dict)
    unions: dict[str, list[str]] = field(default_factory=dict)
    structs: dict[str, list[tuple[str, str, str]]] = field(default_factory=dict)
    tables: dict[str, list[tuple[str, str, str]]] = field(default_factory=dict)
    files: dict[str, Path] = field(default_factory=dict)

    def kind(self, type_: str) -> str:
        """A type of the text in the words of ``flatbuf``."""
        if type_.startswith("["):
            return f"[{self.kind(type_[1:-1])}]"
        if type_ in self.unions:
            return f"union {type_}"
        return KINDS.get(self.bases.get(type_, type_), type_)

    def default(self, type_: str, text: str) -> int | bool:
        """The value that a scalar slot has where nothing is written."""
        if type_ == "bool":
            return text == "true"
        return self.enums.get(type_, {}).get(text) or int(text or 0)


DECLARATION = re.compile(r"(enum|union|struct|table)\s+(\w+)\s*(?::\s*(\w+)\s*)?\{([^}]*)\}")
STATEMENT = re.compile(rf'include "\w+\.fbs";|namespace {re.escape(NAMESPACE)};|root_type \w+;')
SLOT = re.compile(r"(\w+)\s*:\s*(\[?\w+\]?)\s*(?:=\s*(\w+)\s*)?;")


def parse(paths: list[Path]) -> Wire:
    """Read the declarations of schema files; anything that is not understood fails."""
    wire = Wire()
    for path in paths:
        text = re.sub(r"//.*", "", path.read_text(encoding="utf-8"))
        for what, name, base, body in DECLARATION.findall(text):
            assert name not in wire.files, f"{name} is declared twice"
            wire.files[name] = path
            if what == "union":
                wire.unions[name] = [member.strip() for member in body.split(",")]
            elif what == "enum":
                wire.bases[name] = base
                wire.enums[name] = dict(members(body))
            else:
                slots = wire.tables if what == "table" else wire.structs
                slots[name] = SLOT.findall(body)
                assert SLOT.sub("", body).strip() == "", f"{path.name}: {name} has something that is no slot"
        rest = STATEMENT.sub("", DECLARATION.sub("", text)).strip()
        assert rest == "", f"{path.name} says something more: {rest[:60]!r}"
    return wire


def members(body: str) -> Iterator[tuple[str, int]]:
    """Names and values of an enum, which count on from the value before where none is given."""
    value = -1
    for member in body.split(","):
        name, _, given = (part.strip() for part in member.partition("="))
        value = int(given) if given else value + 1
        yield name, value


WIRE = parse(sorted((ROOT / "format").glob("*.fbs")))

# --- the text and the declarations


def test_names() -> None:
    assert WIRE.enums == flatbuf.ENUMS
    assert {name: list(names) for name, names in flatbuf.UNIONS.items()} == WIRE.unions
    assert flatbuf.TABLES.keys() == WIRE.tables.keys()


def test_structs() -> None:
    assert flatbuf.STRUCTS.keys() == WIRE.structs.keys()
    for name, slots in WIRE.structs.items():
        # FlatBuffers aligns each member of a struct to its own size, as C does.
        expected = np.dtype([(slot, "<" + WIRE.kind(type_)) for slot, type_, _ in slots], align=True)
        assert flatbuf.STRUCTS[name].fields == expected.fields, name
        assert flatbuf.STRUCTS[name].itemsize == expected.itemsize, name


@pytest.mark.parametrize("name", WIRE.tables)
def test_table(name: str) -> None:
    expected = []
    for slot, type_, default in WIRE.tables[name]:
        kind = WIRE.kind(type_)
        expected.append((slot, kind, WIRE.default(type_, default)) if kind in flatbuf.SCALARS else (slot, kind))
    assert list(flatbuf.TABLES[name]) == expected


# --- samples of tables, in the form that flatc's JSON has


class Sampler:
    """Makes tables in which every slot holds a value of its own that is not its default."""

    def __init__(self, choice: int) -> None:
        self.choice = choice
        self.numbers = itertools.count(1)

    def table(self, name: str, depth: int = 0) -> dict[str, Any]:
        made = {}
        for slot, type_, default in WIRE.tables[name]:
            if type_ in WIRE.unions:
                names = WIRE.unions[type_]
                member = names[self.choice % len(names)]
                made[f"{slot}_type"] = member
                made[slot] = self.table(member, depth + 1)
            else:
                value = self.value(type_, depth)
                if value not in (None, default, self.implied(type_)):
                    made[slot] = value
        return made

    def value(self, type_: str, depth: int) -> Any:
        if type_.startswith("["):
            items = [self.value(type_[1:-1], depth) for _ in range(2)]
            return None if None in items else items
        if type_ in WIRE.tables:
            return self.table(type_, depth + 1) if depth < 2 else None
        if type_ in WIRE.structs:
            return {slot: self.value(inner, depth) for slot, inner, _ in WIRE.structs[type_]}
        if type_ in WIRE.enums:
            return list(WIRE.enums[type_])[-1]
        number = next(self.numbers)
        return {"string": f"text {number} ‰", "bool": True, "long": -(number << 40)}.get(type_, -number)

    def implied(self, type_: str) -> str | None:
        """The member of an enum that a slot without a default of its own has."""
        return next(iter(WIRE.enums[type_])) if type_ in WIRE.enums else None


def samples(name: str) -> list[dict[str, Any]]:
    """Tables of one kind: one for each member of its union if it has one, and one with nothing in it."""
    unions = [WIRE.unions[type_] for _, type_, _ in WIRE.tables[name] if type_ in WIRE.unions]
    return [Sampler(choice).table(name) for choice in range(max(map(len, unions), default=1))] + [{}]


def to_values(name: str, sample: dict[str, Any]) -> dict[str, Any]:
    """A sample as ``flatbuf_writer.encode`` takes it."""
    values = {}
    for slot, type_, _ in WIRE.tables[name]:
        if slot not in sample:
            continue
        value = sample[slot]
        inner = type_.strip("[]")
        if type_ in WIRE.unions:
            member = sample[f"{slot}_type"]
            values[slot] = (member, to_values(member, value))
        elif type_ in WIRE.tables:
            values[slot] = to_values(type_, value)
        elif inner in WIRE.tables:
            values[slot] = [to_values(inner, item) for item in value]
        elif inner in WIRE.structs:
            dtype = flatbuf.STRUCTS[inner]
            rows = [tuple(row.values()) for row in (value if isinstance(value, list) else [value])]
            values[slot] = np.array(rows if type_ != inner else rows[0], dtype)
        elif inner in WIRE.enums:
            numbers = WIRE.enums[inner]
            values[slot] = [numbers[item] for item in value] if type_ != inner else numbers[value]
        else:
            values[slot] = value
    return values


def to_sample(name: str, view: TableView) -> dict[str, Any]:
    """Return a table's values as our reader has them, without those that equal their default."""
    found: dict[str, Any] = {}
    for slot, type_, default in WIRE.tables[name]:
        value = view[slot]
        inner = type_.strip("[]")
        if type_ in WIRE.unions:
            member, table = value
            if member is not None:
                found[f"{slot}_type"] = member
                found[slot] = to_sample(member, table)
        elif value is None:
            continue
        elif type_ in WIRE.tables:
            found[slot] = to_sample(type_, value)
        elif inner in WIRE.tables:
            if len(value):
                found[slot] = [to_sample(inner, item) for item in value]
        elif inner in WIRE.structs:
            names = flatbuf.STRUCTS[inner].names or ()
            rows = [dict(zip(names, row, strict=True)) for row in np.atleast_1d(value).tolist()]
            found[slot] = rows if type_ != inner else rows[0]
        elif type_ == "string":
            found[slot] = value.decode()
        elif type_.startswith("["):
            found[slot] = [label(inner, item) for item in value.tolist()]
        elif value != WIRE.default(type_, default):
            found[slot] = label(type_, value)
    return found


def label(type_: str, value: int) -> int | str:
    """The name of an enum's member, or the number of any other scalar."""
    return next((name for name, number in WIRE.enums.get(type_, {}).items() if number == value), value)


def read(name: str, data: bytes) -> dict[str, Any]:
    """One root table through our reader."""
    return to_sample(name, Reader(as_bytes(data), "test").root(name))


@pytest.mark.parametrize("name", WIRE.tables)
def test_round_trip(name: str) -> None:
    for sample in samples(name):
        assert read(name, flatbuf_writer.encode(name, to_values(name, sample))) == sample


# --- flatc


@pytest.fixture(scope="session")
def flatc() -> str:
    """The path of flatc."""
    path = shutil.which("flatc")
    if path is None:
        pytest.skip("the comparison with flatc needs flatc on PATH (Debian: flatbuffers-compiler)")
    return path


def run_flatc(flatc: str, name: str, *arguments: str | Path) -> None:
    """Run flatc on the file that declares a table, with that table as the root."""
    command = [flatc, "--root-type", f"{NAMESPACE}.{name}", "--strict-json", "--raw-binary", *arguments]
    ran = subprocess.run(command, capture_output=True, text=True)
    assert ran.returncode == 0, ran.stdout + ran.stderr


@pytest.mark.processes
@pytest.mark.parametrize("name", WIRE.tables)
def test_reads_what_flatc_writes(flatc: str, name: str, tmp_path: Path) -> None:
    expected = samples(name)
    texts = [tmp_path / f"{number}.json" for number in range(len(expected))]
    for path, sample in zip(texts, expected, strict=True):
        path.write_text(json.dumps(sample), encoding="utf-8")
    run_flatc(flatc, name, "--binary", "-o", tmp_path, WIRE.files[name], *texts)
    for path, sample in zip(texts, expected, strict=True):
        assert read(name, path.with_suffix(".bin").read_bytes()) == sample


@pytest.mark.processes
@pytest.mark.parametrize("name", WIRE.tables)
def test_flatc_reads_what_we_write(flatc: str, name: str, tmp_path: Path) -> None:
    expected = samples(name)
    binaries = [tmp_path / f"{number}.bin" for number in range(len(expected))]
    for path, sample in zip(binaries, expected, strict=True):
        path.write_bytes(flatbuf_writer.encode(name, to_values(name, sample)))
    run_flatc(flatc, name, "--json", "-o", tmp_path, WIRE.files[name], "--", *binaries)
    for path, sample in zip(binaries, expected, strict=True):
        assert json.loads(path.with_suffix(".json").read_text(encoding="utf-8")) == sample


@pytest.mark.processes
@pytest.mark.parametrize("name", WIRE.tables)
def test_defaults_are_those_of_flatc(flatc: str, name: str, tmp_path: Path) -> None:
    empty = tmp_path / "empty.bin"
    empty.write_bytes(flatbuf_writer.encode(name, {}))
    run_flatc(flatc, name, "--json", "--defaults-json", "-o", tmp_path, WIRE.files[name], "--", empty)
    printed = json.loads(empty.with_suffix(".json").read_text(encoding="utf-8"))
    view = Reader(as_bytes(empty.read_bytes()), "test").root(name)
    found = {}
    for slot, type_, _ in WIRE.tables[name]:
        if type_ in WIRE.unions:
            assert view[slot] == (None, None)
            found[f"{slot}_type"] = "NONE"
        elif WIRE.kind(type_) in flatbuf.SCALARS:
            found[slot] = label(type_, view[slot])
    assert found == printed
