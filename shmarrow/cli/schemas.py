# SPDX-License-Identifier: Apache-2.0
"""Schemas as commands print them: an indented tree on a terminal, paths between tabs elsewhere, or JSON."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from shmarrow.cli.command import COLUMNS, TARGETS, Grid, argument, clipped, command, render
from shmarrow.cli.many import many_sources, report, scan_of, survey
from shmarrow.cli.targets import open_target, rows_of
from shmarrow.errors import printable
from shmarrow.ipc.contents import ROWS
from shmarrow.types import storage_of
from shmarrow.types.schema import difference


@command(
    *TARGETS,
    COLUMNS,
    argument("--metadata", action="store_true", help="also print the metadata of the schema and its fields"),
)
def schema(arguments: argparse.Namespace) -> int:
    """Print the fields, with their children below them; of tensors the type and shape."""
    fragments = many_sources(arguments, arguments.target)
    status = 0
    if fragments is not None:
        surveyed = survey(arguments, fragments)
        problems, status = report(arguments, surveyed)
        pairs = zip(fragments, surveyed, strict=True)
        scan = scan_of(arguments, [fragment for fragment, each in pairs if each.problem is None])
        fields, first = scan.schema, next(each for each in surveyed if each.problem is None)
        for each in surveyed:
            if each.schema is not None and not each.schema.equals(first.schema):
                note = f"{each.source}, beside {first.source}: {difference(each.schema, first.schema)}"
                print(f"shmarrow: note: {printable(note)}", file=sys.stderr)
    else:
        with open_target(arguments.target, arguments.accept_users, in_order=True) as target:
            if target.kind not in ROWS:
                found = tensors(target.content)
                render(arguments.json, {"target": arguments.target, "tensors": found}, tensor_table(found))
                return 0
            fields = rows_of(arguments, arguments.target, target).schema
    headers = ["field", "type", "nulls", *(["metadata"] if arguments.metadata else [])]
    text = [Grid(headers, [row[: len(headers)] for row in tree(fields, sys.stdout.isatty())], range(4))]
    if arguments.metadata and fields.metadata:
        text.append(Grid(("key", "value"), [("schema metadata", pair) for pair in _pairs(fields.metadata)], (0, 1)))
    document = {"target": arguments.target, **as_json(fields), **({} if fragments is None else {"problems": problems})}
    render(arguments.json, document, *text)
    return status


def as_json(schema: Any) -> dict[str, Any]:
    """A schema as JSON: ``fields``, each with ``children`` where it has some, and ``metadata``."""
    return {"fields": list(map(_field_json, schema)), "metadata": text_pairs(schema.metadata)}


def _field_json(field: Any) -> dict[str, Any]:
    found = {
        "name": field.name,
        "type": str(field.type),
        "nullable": field.nullable,
        "metadata": text_pairs(field.metadata),
    }
    inner = children(field.type)
    return {**found, "children": list(map(_field_json, inner))} if inner else found


def children(type: Any) -> list[Any]:
    """The fields in a type."""
    storage = storage_of(type)
    return list(storage.value_type.fields if storage.layout == "dictionary" else storage.fields)


def tree(fields: Iterable[Any], indent: bool = True, before: str = "") -> Iterator[list[str]]:
    """The fields and their children: name, type, whether it is nullable, metadata."""
    for field in fields:
        nulls = "nullable" if field.nullable else "not null"
        yield [before + field.name, str(field.type), nulls, ", ".join(_pairs(field.metadata))]
        yield from tree(children(field.type), indent, f"{before}  " if indent else f"{before}{field.name}.")


def _pairs(metadata: Mapping[bytes, bytes] | None) -> list[str]:
    return [f"{clipped(key)}={clipped(value)}" for key, value in text_pairs(metadata).items()]


def text_pairs(metadata: Mapping[bytes, bytes] | None) -> dict[str, str]:
    """Metadata as text; bytes that are not UTF-8 are escaped."""
    return {
        key.decode("utf-8", "backslashreplace"): value.decode("utf-8", "backslashreplace")
        for key, value in (metadata or {}).items()
    }


# --- tensors ------------------------------------------------------------------------------------------------------


def tensor_table(found: list[dict[str, Any]]) -> Grid:
    """Return the table of tensors."""
    rows = [
        (
            each["name"] or "",
            each["form"],
            each["type"],
            "×".join(map(str, each["shape"])),
            ", ".join(each["dim_names"]),
        )
        for each in found
    ]
    return Grid(("tensor", "form", "type", "shape", "dimensions"), rows, range(5))


def tensors(content: Any) -> list[dict[str, Any]]:
    """Describe a tensor, or the tensors of a bundle.

    Raises
    ------
    InvalidData
        If they break the format.
    """
    if isinstance(content, Mapping):
        return [{"name": name, **_tensor(content[name])} for name in content]
    return [{"name": None, **_tensor(content)}]


def _tensor(tensor: Any) -> dict[str, Any]:
    form = type(tensor).__name__.removeprefix("Sparse")
    return {
        "form": {"Tensor": "dense"}.get(form, f"sparse {form.removesuffix('Tensor').removesuffix('Matrix')}"),
        "type": str(tensor.type),
        "shape": list(tensor.shape),
        "strides": list(tensor.strides) if hasattr(tensor, "strides") else None,
        "dim_names": [name or "" for name in tensor.dim_names or ()],
        "non_zero": None if form == "Tensor" else int(tensor.non_zero_length),
        "bytes": int(tensor.nbytes) if hasattr(tensor, "nbytes") else None,
    }
