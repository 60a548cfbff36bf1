"""Schemas as commands print them: an indented tree on a terminal, paths between tabs elsewhere, or JSON."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import shmarrow as sa
from shmarrow.cli.report import Table, clipped, render
from shmarrow.cli.targets import Target
from shmarrow.types.extension import storage_of


def show(arguments: argparse.Namespace, schema: Any) -> int:
    """Print a schema."""
    headers = ["field", "type", "nulls", *(["metadata"] if arguments.metadata else [])]
    text = [Table(headers, [row[: len(headers)] for row in tree(schema, sys.stdout.isatty())], range(4))]
    pairs = [f"{clipped(key)}={clipped(value)}" for key, value in text_pairs(schema.metadata).items()]
    if arguments.metadata and pairs:
        text.append(Table(("key", "value"), [("schema metadata", pair) for pair in pairs], (0, 1)))
    render(arguments.json, {"target": arguments.target, **as_json(schema)}, *text)
    return 0


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


def tree(schema: Any, indent: bool = True) -> Iterator[list[str]]:
    """The fields and their children: name, type, whether it is nullable, metadata."""
    yield from _rows(schema, "", indent)


def _rows(fields: Iterable[Any], before: str, indent: bool) -> Iterator[list[str]]:
    for field in fields:
        pairs = ", ".join([f"{clipped(key)}={clipped(value)}" for key, value in text_pairs(field.metadata).items()])
        yield [before + field.name, str(field.type), "nullable" if field.nullable else "not null", pairs]
        yield from _rows(children(field.type), f"{before}  " if indent else f"{before}{field.name}.", indent)


def text_pairs(metadata: Mapping[bytes, bytes] | None) -> dict[str, str]:
    """Metadata as text; bytes that are not UTF-8 are escaped."""
    return {
        key.decode("utf-8", "backslashreplace"): value.decode("utf-8", "backslashreplace")
        for key, value in (metadata or {}).items()
    }


# --- tensors ------------------------------------------------------------------------------------------------------


def show_tensors(arguments: argparse.Namespace, target: Target) -> int:
    """Print the type and shape of a tensor, or of each tensor in a bundle."""
    found = tensors(target)
    render(arguments.json, {"target": arguments.target, "tensors": found}, tensor_table(found))
    return 0


def tensor_table(found: list[dict[str, Any]]) -> Table:
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
    return Table(("tensor", "form", "type", "shape", "dimensions"), rows, range(5))


def tensors(target: Target) -> list[dict[str, Any]]:
    """Describe the tensors of a target.

    Raises
    ------
    InvalidData
        If they break the format.
    """
    if target.kind == "bundle":
        with sa.load_tensors(target.data) as bundle:
            return [{"name": name, **_tensor(bundle[name])} for name in bundle]
    return [{"name": None, **_tensor(sa.ipc.read_tensor(target.data))}]


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
