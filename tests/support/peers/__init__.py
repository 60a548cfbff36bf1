"""Samples for peers to read: streams and files of the cases, and of the other features of the IPC format.

Invariants:

* a sample is bytes that shmarrow wrote and the values that they mean, column by column, stated by hand;
* a sample is called ``form/name``; a form is ``stream`` or ``file``, with a codec after it where bodies are compressed,
  or ``tensor``;
* each case is written as two batches, the second a slice of the first. What is compressed is repeated until that pays.

``lacks`` says what each peer does not read; ``python`` reads samples with the peers that are Python packages, and
``programs`` with those that are programs. Tests put them together, and the page of what is supported is made from them.
"""

from __future__ import annotations

import datetime as dt
import io
import uuid
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np
from cases.definition import Case
from cases.table import CASES

import shmarrow as sa
from shmarrow.ipc import IpcWriteOptions
from shmarrow.layout.dictionary import DictionaryArray

CODECS = ("lz4", "zstd")
FORMS = ("stream", "file", *(f"{kind}-{codec}" for kind in ("stream", "file") for codec in CODECS))

UNWRITABLE = {"dictionary-dictionary": "a dictionary whose values are dictionary-encoded themselves"}
"""Cases that exist in memory only, because messages have no place for them."""

WRITABLE = [case for case in CASES if not case.name.startswith(tuple(UNWRITABLE))]


@dataclass(frozen=True)
class Sample:
    """Bytes for peers to read, and what they say."""

    form: str
    name: str
    schema: Any = field(repr=False)
    data: bytes = field(repr=False)
    columns: list[list[Any]] = field(repr=False)
    metadata: list[dict[str, str]] | None = field(default=None, repr=False)
    """Of the schema, and of each field; None where that is not the question."""

    @property
    def id(self) -> str:
        return f"{self.form}/{self.name}"

    @property
    def is_file(self) -> bool:
        return self.form.startswith("file")


def write(form: str, batches: Sequence[Any], schema: Any = None, **options: Any) -> bytes:
    """Batches in a form."""
    kind, _, codec = form.partition("-")
    sink = io.BytesIO()
    make = sa.ipc.new_file if kind == "file" else sa.ipc.new_stream
    with make(sink, schema or batches[0].schema, IpcWriteOptions(compression=codec or None, **options)) as writer:
        for batch in batches:
            writer.write(batch)
    return sink.getvalue()


def _of_case(form: str, case: Case) -> Sample:
    array, values = case.array(), case.values
    if "-" in form:
        array, values = sa.concat_arrays([array] * 50), values * 50
    half = len(values) // 2
    schema = sa.schema([sa.field("x", array.type)])
    batches = [sa.record_batch([part], schema=schema) for part in (array, array.slice(half))]
    return Sample(form, case.name, schema, write(form, batches), [values + values[half:]])


# --- the rest of the format -----------------------------------------------------------------------------------------

INTS = sa.schema([sa.field("i", sa.int32()), sa.field("s", sa.string())])
ROWS: list[list[Any]] = [[1, None, -3], ["a", "bc", None]]
CODED = sa.schema([sa.field("d", sa.dictionary("int8", "string"))])
METADATA = [{"source": "é", "": "empty key"}, {"unit": "m"}, {}]

Made = tuple[Any, bytes, list[list[Any]]]
"""A schema, the bytes, and the values of the columns."""


def _rows(form: str, schema: Any = INTS, **options: Any) -> Made:
    columns = [sa.array(values, f.type) for values, f in zip(ROWS, schema.fields, strict=True)]
    return schema, write(form, [sa.record_batch(columns, schema=schema)], **options), ROWS


def _no_batches(form: str) -> Made:
    return INTS, write(form, [], INTS), [[], []]


def _no_columns(form: str) -> Made:
    schema = sa.schema([])
    return schema, write(form, [sa.record_batch([], schema=schema)]), []


def _names_duplicate(form: str) -> Made:
    return _rows(form, sa.schema([sa.field("x", sa.int32()), sa.field("x", sa.string())]))


def _metadata(form: str) -> Made:
    of_schema, *of_fields = METADATA
    named = zip(INTS.fields, of_fields, strict=True)
    fields = [sa.field(f.name, f.type, metadata=metadata) for f, metadata in named]
    return _rows(form, sa.schema(fields, metadata=of_schema))


def _coded(form: str, *steps: tuple[list[int | None], list[str]], **options: Any) -> Made:
    """A batch for each step: indices, and the dictionary that they are for."""
    batches, values = [], []
    for indices, words in steps:
        array = DictionaryArray.from_arrays(sa.array(indices, sa.int8()), sa.array(words, sa.string()))
        batches.append(sa.record_batch([array], schema=CODED))
        values += [None if index is None else words[index] for index in indices]
    return CODED, write(form, batches, **options), [values]


def _replacement(form: str) -> Made:
    return _coded(form, ([0, 1, None], ["a", "b"]), ([1, 0], ["c", "d", "e"]))


def _delta(form: str) -> Made:
    return _coded(form, ([0, 1], ["a", "b"]), ([2, 0, None], ["a", "b", "c"]), emit_dictionary_deltas=True)


def _late(form: str) -> Made:
    return _coded(form, ([None, None], []), ([1, 0], ["a", "b"]))


def _extension(type: Any, storage: list[Any]) -> Callable[[str], Made]:
    """Values of the storage are what everybody gives who does not know the type."""

    def make(form: str) -> Made:
        batch = sa.record_batch([sa.array(storage, type.storage_type).cast(type)], names=["x"])
        return batch.schema, write(form, [batch]), [storage]

    return make


def _tensor(form: str) -> Made:
    values = np.arange(24, dtype="f4").reshape(2, 3, 4).transpose(2, 0, 1)
    sink = io.BytesIO()
    sa.ipc.write_tensor(sa.Tensor.from_numpy(values), sink)
    return sa.schema([]), sink.getvalue(), [values.tolist()]


BOTH = ("stream", "file")
EXTENSIONS: dict[str, tuple[Any, list[Any]]] = {
    "extension-bool8": (sa.bool8(), [1, 0, None]),
    "extension-fixed-shape-tensor": (sa.fixed_shape_tensor("float32", [2]), [[1.0, 2.0], None]),
    "extension-json": (sa.json_(), ["[1]", None]),
    "extension-opaque": (sa.opaque("string", "t", "v"), ["x", None]),
    "extension-parquet-variant": (sa.parquet_variant(), [{"metadata": b"\x01\x00\x00", "value": b"\x00"}, None]),
    "extension-timestamp-with-offset": (
        sa.timestamp_with_offset("ms"),
        [{"timestamp": dt.datetime(2024, 2, 29, tzinfo=dt.UTC), "offset_minutes": -90}, None],
    ),
    "extension-uuid": (sa.uuid(), [uuid.UUID(int=5).bytes, None]),
    "extension-variable-shape-tensor": (
        sa.variable_shape_tensor("float32", 1),
        [{"data": [1.0], "shape": [1]}, None],
    ),
}
FEATURES: dict[str, tuple[Callable[[str], Made], tuple[str, ...]]] = {
    "batches-none": (_no_batches, BOTH),
    "columns-none": (_no_columns, BOTH),
    "names-duplicate": (_names_duplicate, BOTH),
    "metadata": (_metadata, BOTH),
    "version-4": (partial(_rows, metadata_version="V4"), BOTH),
    "framing-legacy": (partial(_rows, metadata_version="V4", use_legacy_format=True), BOTH),
    "big-endian": (partial(_rows, endianness="big"), BOTH),
    "dictionary-replacement": (_replacement, ("stream",)),
    "dictionary-delta": (_delta, BOTH),
    "dictionary-late": (_late, BOTH),
    "strided": (_tensor, ("tensor",)),
    **{name: (_extension(*row), BOTH) for name, row in EXTENSIONS.items()},
}


def samples() -> Iterator[Sample]:
    """All samples, in every form that they have."""
    for case in WRITABLE:
        # Values with nulls stand for their type where bodies are compressed.
        for form in FORMS if case.name.endswith("-nulls") else BOTH:
            yield _of_case(form, case)
    for name, (make, forms) in FEATURES.items():
        for form in forms:
            yield Sample(form, name, *make(form), metadata=METADATA if name == "metadata" else None)
