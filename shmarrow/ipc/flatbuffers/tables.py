# SPDX-License-Identifier: Apache-2.0
"""Declarations of Arrow's FlatBuffers tables; a test compares them with ``format/*.fbs``.

The Type union, its tables and enums are derived from the type descriptors.
"""

from typing import Any, NamedTuple

import numpy as np

from shmarrow.buffer import DType
from shmarrow.types.descriptors import ENUMERATIONS, TYPES, Parameter

SCALARS: dict[str, DType] = {name: np.dtype("<" + name) for name in ("u1", "i1", "i2", "i4", "i8")}
SCALARS["bool"] = np.dtype("?")

ENUMS: dict[str, dict[str, int]] = {
    "MetadataVersion": {"V1": 0, "V2": 1, "V3": 2, "V4": 3, "V5": 4},
    "Feature": {"UNUSED": 0, "DICTIONARY_REPLACEMENT": 1, "COMPRESSED_BODY": 2},
    "DictionaryKind": {"DenseArray": 0},
    "Endianness": {"Little": 0, "Big": 1},
    "CompressionType": {"LZ4_FRAME": 0, "ZSTD": 1},
    "BodyCompressionMethod": {"BUFFER": 0},
    "SparseMatrixCompressedAxis": {"Row": 0, "Column": 1},
    **{each.name: each.numbers for each in ENUMERATIONS},
}

UNIONS: dict[str, tuple[str, ...]] = {
    "Type": tuple([descriptor.member for descriptor in TYPES]),
    "MessageHeader": ("Schema", "DictionaryBatch", "RecordBatch", "Tensor", "SparseTensor"),
    "SparseTensorIndex": ("SparseTensorIndexCOO", "SparseMatrixIndexCSX", "SparseTensorIndexCSF"),
}
"""The members of each union; tags start at 1, and tag 0 means none."""

STRUCTS: dict[str, DType] = {
    "FieldNode": np.dtype([("length", "<i8"), ("null_count", "<i8")]),
    "Buffer": np.dtype([("offset", "<i8"), ("length", "<i8")]),
    "Block": np.dtype(
        {
            "names": ["offset", "metaDataLength", "bodyLength"],
            "formats": ["<i8", "<i4", "<i8"],
            "offsets": [0, 8, 16],
            "itemsize": 24,
        }
    ),
}


def _slot(parameter: Parameter) -> tuple[Any, ...]:
    kind = parameter.kind if isinstance(parameter.kind, str) else "i2"
    return (parameter.slot, kind, parameter.default) if kind in SCALARS else (parameter.slot, kind)


TABLES: dict[str, tuple[tuple[Any, ...], ...]] = {
    # Message.fbs
    "Message": (
        ("version", "i2", 0),
        ("header", "union MessageHeader"),
        ("bodyLength", "i8", 0),
        ("custom_metadata", "[KeyValue]"),
    ),
    "RecordBatch": (
        ("length", "i8", 0),
        ("nodes", "[FieldNode]"),
        ("buffers", "[Buffer]"),
        ("compression", "BodyCompression"),
        ("variadicBufferCounts", "[i8]"),
    ),
    "DictionaryBatch": (("id", "i8", 0), ("data", "RecordBatch"), ("isDelta", "bool", False)),
    "BodyCompression": (("codec", "i1", 0), ("method", "i1", 0)),
    # File.fbs
    "Footer": (
        ("version", "i2", 0),
        ("schema", "Schema"),
        ("dictionaries", "[Block]"),
        ("recordBatches", "[Block]"),
        ("custom_metadata", "[KeyValue]"),
    ),
    # Schema.fbs
    "Schema": (
        ("endianness", "i2", 0),
        ("fields", "[Field]"),
        ("custom_metadata", "[KeyValue]"),
        ("features", "[i8]"),
    ),
    "Field": (
        ("name", "string"),
        ("nullable", "bool", False),
        ("type", "union Type"),
        ("dictionary", "DictionaryEncoding"),
        ("children", "[Field]"),
        ("custom_metadata", "[KeyValue]"),
    ),
    "DictionaryEncoding": (
        ("id", "i8", 0),
        ("indexType", "Int"),
        ("isOrdered", "bool", False),
        ("dictionaryKind", "i2", 0),
    ),
    "KeyValue": (("key", "string"), ("value", "string")),
    **{descriptor.member: tuple([_slot(parameter) for parameter in descriptor.parameters]) for descriptor in TYPES},
    # Tensor.fbs
    "Tensor": (
        ("type", "union Type"),
        ("shape", "[TensorDim]"),
        ("strides", "[i8]"),
        ("data", "Buffer"),
    ),
    "TensorDim": (("size", "i8", 0), ("name", "string")),
    # SparseTensor.fbs
    "SparseTensor": (
        ("type", "union Type"),
        ("shape", "[TensorDim]"),
        ("non_zero_length", "i8", 0),
        ("sparseIndex", "union SparseTensorIndex"),
        ("data", "Buffer"),
    ),
    "SparseTensorIndexCOO": (
        ("indicesType", "Int"),
        ("indicesStrides", "[i8]"),
        ("indicesBuffer", "Buffer"),
        ("isCanonical", "bool", False),
    ),
    "SparseMatrixIndexCSX": (
        ("compressedAxis", "i2", 0),
        ("indptrType", "Int"),
        ("indptrBuffer", "Buffer"),
        ("indicesType", "Int"),
        ("indicesBuffer", "Buffer"),
    ),
    "SparseTensorIndexCSF": (
        ("indptrType", "Int"),
        ("indptrBuffers", "[Buffer]"),
        ("indicesType", "Int"),
        ("indicesBuffers", "[Buffer]"),
        ("axisOrder", "[i4]"),
    ),
}
"""For each table its slots in order: name, kind and, for scalars, the default.

A kind is a scalar of :data:`SCALARS`, ``string``, the name of a table or struct, ``[...]`` for a vector of any of
these, or ``union`` with the union's name; a union takes two slots, its tag first.
"""


class TableSlot(NamedTuple):
    """A slot of a table.

    Attributes
    ----------
    number : int
        Its position in the vtable.
    name, kind : str
        As declared; the tag of a union named ``x`` is ``x_type``, of kind ``u1``.
    size : int
        Bytes that it takes in the table.
    default : object
        The value of an absent scalar.
    """

    number: int
    name: str
    kind: str
    size: int
    default: Any = None


def _numbered(table: tuple[tuple[Any, ...], ...]) -> tuple[TableSlot, ...]:
    slots: list[TableSlot] = []
    for name, kind, *default in table:
        if kind.startswith("union "):
            slots.append(TableSlot(len(slots), f"{name}_type", "u1", 1, 0))
        dtype = SCALARS.get(kind) or STRUCTS.get(kind)
        slots.append(TableSlot(len(slots), name, kind, 4 if dtype is None else dtype.itemsize, *default))
    return tuple(slots)


SLOTS: dict[str, tuple[TableSlot, ...]] = {name: _numbered(table) for name, table in TABLES.items()}
"""The slots of each table, by number."""
