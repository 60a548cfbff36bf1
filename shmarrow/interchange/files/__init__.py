"""File formats for conversion: each format is one row of :data:`FORMATS`.

A file holds rows (:class:`~shmarrow.interchange.files.rows.Rows`, a schema and an iterator of batches) or tensors
(:class:`~shmarrow.interchange.files.tensors.Tensors`, named ndarrays). Either converts to the other if nothing is lost:
tensors of equal length become columns, and columns of numbers without nulls become tensors.

Invariants:

* rows are read and written batch by batch, so the size of a file does not matter; formats that store each column
  contiguously go through temporary files;
* types that a format cannot hold are refused with the column and its type, never dropped;
* a file is recognized by its first bytes, and by its suffix only if these are inconclusive.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable
from typing import Any, NamedTuple

from shmarrow.errors import InvalidArgument, InvalidData
from shmarrow.interchange.files import by_pyarrow, rows, tensors
from shmarrow.interchange.files.endpoints import Input, Options, Output, open_input, open_output
from shmarrow.interchange.files.rows import Rows
from shmarrow.interchange.files.tensors import Tensors
from shmarrow.ipc.compression import CODECS
from shmarrow.segment import SHM_SCHEME
from shmarrow.sources.formats import FORMATS as KNOWN
from shmarrow.sources.formats import recognized

Content = Rows | Tensors

COMPRESSED = tuple([each.suffix for each in KNOWN if each.codec])
"""Suffixes of compressed text files, which are decompressed while reading."""

DELIMITED = ("csv", "tsv")
TEXT = (*DELIMITED, "jsonl")
"""Text formats, which do not record types."""


class Format(NamedTuple):
    """A format: its name, suffixes, reader, writer, content and codecs."""

    name: str
    suffixes: tuple[str, ...]
    read: Callable[[Input, Options], Content]
    write: Callable[[Any, Output, Options], None]
    holds: type[Rows] | type[Tensors] = Rows
    codecs: tuple[str, ...] = ()


_IPC = (*CODECS, "none")
FORMATS = {
    each.name: each
    for each in (
        Format("arrow", (".arrow", ".ipc"), rows.read_arrow, rows.write_arrow, codecs=_IPC),
        Format("arrows", (".arrows",), rows.read_stream, rows.write_stream, codecs=_IPC),
        Format("feather", (".feather",), rows.read_feather, rows.write_arrow, codecs=_IPC),
        Format("parquet", (".parquet", ".pq"), by_pyarrow.read_parquet, by_pyarrow.write_parquet, codecs=_IPC),
        Format("csv", (".csv",), by_pyarrow.read_csv, by_pyarrow.write_csv),
        Format("tsv", (".tsv",), by_pyarrow.read_tsv, by_pyarrow.write_tsv),
        Format("jsonl", (".jsonl", ".ndjson"), by_pyarrow.read_jsonl, by_pyarrow.write_jsonl),
        Format("safetensors", (".safetensors",), tensors.read_safetensors, tensors.write_safetensors, Tensors),
        Format("npy", (".npy",), tensors.read_npy, tensors.write_npy, Tensors),
        Format("npz", (".npz",), tensors.read_npz, tensors.write_npz, Tensors),
        Format("tensors", (".tensors",), tensors.read_bundle, tensors.write_bundle, Tensors),
    )
}
"""All formats by name; ``tensors`` is the bundle of :func:`shmarrow.save_tensors`."""

_MAGIC = (
    (b"ARROW1", "arrow"),
    (b"\xff\xff\xff\xff", "arrows"),
    (b"FEA1", "feather"),
    (b"PAR1", "parquet"),
    (b"\x93NUMPY", "npy"),
    (b"PK\x03\x04", "npz"),
    (b"PK\x05\x06", "npz"),
)


def by_name(name: str) -> Format:
    """Return the format named ``name``.

    Raises
    ------
    InvalidArgument
        If no format has this name.
    """
    if name not in FORMATS:
        raise InvalidArgument(f"no format is named {name!r}; known formats are {', '.join(FORMATS)}")
    return FORMATS[name]


def by_suffix(name: str) -> Format | None:
    """Return the format for a file's suffix, or None."""
    name = name.lower()
    for each in FORMATS.values():
        if name.endswith(each.suffixes):
            return each
    return None


def of_input(source: Input) -> Format:
    """Detect the format of an input by its first bytes, else by its suffix.

    Raises
    ------
    InvalidData
        If neither identifies a format.
    """
    head = source.head
    for magic, name in _MAGIC:
        if head.startswith(magic):
            bundle = name == "arrow" and source.data is not None and tensors.is_bundle(source)
            return FORMATS["tensors" if bundle else name]
    if head[8:9] == b"{" and int.from_bytes(head[:8], "little") < 1 << 40:
        return FORMATS["safetensors"]
    plain = source.name.lower()
    for suffix in COMPRESSED:
        plain = plain.removesuffix(suffix)
    known = by_suffix(plain)
    if known is None and head.lstrip()[:1] in (b"{", b"["):
        known = FORMATS["jsonl"]
    if not head:
        raise InvalidData(f"{source.name} is empty: expected a file or a stream")
    if known is None:
        _refuse_compressed(source)
        what, hint = recognized(head)
        text = f"its suffix is unknown, and it {f'looks like {what}' if what else f'starts with {head[:8]!r}'}"
        name = f"name the format: --from {'|'.join(FORMATS)}"
        raise InvalidData(text, where=[(source.name,)], hint=f"{hint}, or {name}" if hint else name)
    return known


def of_output(name: str, content: Content) -> Format:
    """Choose the output format by suffix; by default a stream for standard output, an Arrow file for ``shm:`` names.

    Raises
    ------
    InvalidArgument
        If the suffix is unknown.
    """
    known = by_suffix(name)
    if known is not None:
        return known
    if name == "-":
        return FORMATS["arrows"]
    if name.startswith(SHM_SCHEME):
        return FORMATS["tensors" if isinstance(content, Tensors) else "arrow"]
    suffixes = ", ".join([suffix for each in FORMATS.values() for suffix in each.suffixes])
    hint = "write JSON lines, one object per line, to a .jsonl file" if name.lower().endswith(".json") else ""
    hint = hint or f"use one of {suffixes}, or name the format with --to"
    raise InvalidArgument(f"{name}: the suffix is not that of a known format", hint=hint)


def check_reading(format: Format, options: Options) -> None:
    """Refuse options that reading this format would ignore.

    Raises
    ------
    InvalidArgument
        If types or nulls are given, and the format does not support them.
    """
    if options.types and format.name not in TEXT:
        raise InvalidArgument(f"--types is for {', '.join(TEXT)}; {format.name} files record types")
    if options.nulls and format.name not in DELIMITED:
        raise InvalidArgument(f"--null is for {', '.join(DELIMITED)}; {format.name} files record nulls")


def check_writing(format: Format, options: Options) -> None:
    """Refuse options that writing this format does not support.

    Raises
    ------
    InvalidArgument
        If the format has no such compression.
    """
    if options.compression is not None and options.compression not in format.codecs:
        allowed = f"it has {', '.join(format.codecs)}" if format.codecs else "compress the whole file instead"
        raise InvalidArgument(f"{format.name} has no compression {options.compression!r}; {allowed}")


def _refuse_compressed(source: Input) -> None:
    for each in KNOWN:
        if each.command and source.head.startswith(each.magic):
            file = "" if source.is_standard else f" {shlex.quote(source.name)}"
            raise InvalidData(
                f"{source.name}: {each.name}; decompress it first: {each.command}{file} | shmarrow convert - OUT"
            )


def read(source: Input, format: Format, options: Options) -> Content:
    """Read a file lazily: only its schema or headers are read immediately.

    Raises
    ------
    InvalidData
        If it violates the format, or is compressed as a whole and not text.
    FieldNotFound
        If a chosen column is missing.
    """
    if format.name not in TEXT:
        _refuse_compressed(source)
    found = format.read(source, options)
    return found.select(options.columns) if options.columns is not None else found


def as_held(content: Content, format: Format) -> Content:
    """Convert tensors to rows if the format holds rows.

    Raises
    ------
    InvalidType
        If the tensors cannot be columns of one table.
    """
    several = isinstance(content, Tensors) and format.name == "npy" and len(content.tensors) > 1
    if isinstance(content, Tensors) and (format.holds is Rows or several):
        return tensors.to_rows(content)  # for npy: records with one field per tensor
    return content


def write(content: Content, target: Output, format: Format, options: Options) -> None:
    """Write all content, which must be converted by :func:`as_held` first.

    Raises
    ------
    InvalidType
        If the format cannot hold a column or a tensor.
    """
    if isinstance(content, Rows) and format.holds is Tensors:
        with tensors.of_rows(content, format.name == "npy", format.name) as made:
            format.write(made, target, options)
        return
    format.write(content, target, options)


__all__ = [
    "FORMATS",
    "Content",
    "Format",
    "Input",
    "Options",
    "Output",
    "Rows",
    "Tensors",
    "as_held",
    "by_name",
    "by_suffix",
    "check_reading",
    "check_writing",
    "of_input",
    "of_output",
    "open_input",
    "open_output",
    "read",
    "write",
]
