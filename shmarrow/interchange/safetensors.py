# SPDX-License-Identifier: Apache-2.0
"""Reading and writing safetensors files: named dense tensors after a JSON header.

The package ``safetensors`` is not used: it copies each tensor for numpy (128 MiB: 0.6 s and 128 MiB of memory; here
9 ms and none). Invariants:

* a file is mapped, and its tensors are views; nothing is copied;
* the header is validated before the first view is made: sizes, types, and that the tensors fill the file without
  overlaps or gaps;
* tensors are written in order of decreasing element size, so that all of them are aligned.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Iterator, Mapping
from itertools import chain
from math import prod
from typing import Any

import numpy as np

from shmarrow import memory, types
from shmarrow.buffer import Bytes
from shmarrow.errors import (
    DEFAULT_LIMITS,
    InvalidArgument,
    InvalidData,
    InvalidType,
    LimitExceeded,
    Limits,
    Unsupported,
    at,
    shown,
)
from shmarrow.tensor import SparseTensor, Tensor
from shmarrow.tensor.dense import dense_pieces
from shmarrow.tensor.element import Element, as_element
from shmarrow.types import MetadataLike, as_metadata

METADATA = "__metadata__"
_LENGTH = struct.Struct("<Q")

ELEMENTS: dict[str, Element] = {
    "BOOL": Element(types.bool_()),
    **{f"{kind}{bits}": Element(types.IntType(bits, kind == "I")) for kind in "IU" for bits in (8, 16, 32, 64)},
    **{f"F{bits}": Element(types.FloatType(bits)) for bits in (16, 32, 64)},
    "BF16": as_element("bfloat16"),
    "F8_E4M3": as_element("float8_e4m3fn"),
    "F8_E5M2": as_element("float8_e5m2"),
    "F8_E8M0": as_element("float8_e8m0fnu"),
}
"""The types of the format."""

_NAMES = {element: name for name, element in ELEMENTS.items()}


def read_safetensors(
    path: memory.Location, *, limits: Limits = DEFAULT_LIMITS
) -> tuple[dict[str, Tensor], dict[str, str]]:
    """Return the tensors of a file, as views of its mapping, and its metadata.

    Raises
    ------
    ObjectNotFound
        If there is no such file.
    InvalidData
        If it violates the format.
    Unsupported
        If an element type does not take whole bytes.
    """
    with memory.attach(path) as file, at(file.name):
        return _read(file.data, limits)


def _read(data: Bytes, limits: Limits) -> tuple[dict[str, Tensor], dict[str, str]]:
    """Return the tensors and the metadata of a file's bytes."""
    header, start = _read_header(data, limits)
    metadata = header.pop(METADATA, None)
    metadata = {} if metadata is None else metadata
    if not isinstance(metadata, dict) or not all(isinstance(value, str) for value in metadata.values()):
        raise InvalidData(f"{METADATA} is a mapping of strings to strings")
    entries = []
    for name, value in header.items():
        with at("tensor", name):
            entries.append(_entry(name, value))
    position = 0
    for name, _, _, begin, end in sorted(entries, key=lambda entry: entry[3:]):
        if begin != position:
            raise InvalidData(
                f"the tensor {name!r} starts at {begin}, expected {position}, the end of the previous one"
            )
        position = end
    if position != len(data) - start:
        raise InvalidData(f"the tensors take {position} bytes, but the file has {len(data) - start} for them")
    tensors = {}
    for name, element, shape, begin, _ in entries:
        array: Any = np.ndarray(shape, element.dtype, data, start + begin)
        tensors[name] = Tensor(array, element)
    return tensors, metadata


def _read_header(data: Bytes, limits: Limits) -> tuple[dict[str, Any], int]:
    """Return the header, and the offset of the tensors' bytes."""
    if len(data) < _LENGTH.size:
        raise InvalidData(f"a safetensors file has at least {_LENGTH.size} bytes, found {len(data)}")
    (length,) = _LENGTH.unpack(data[: _LENGTH.size].tobytes())
    if length > len(data) - _LENGTH.size:
        raise InvalidData(f"the header declares {length} bytes, but only {len(data) - _LENGTH.size} are available")
    if length > limits.metadata_bytes:
        raise LimitExceeded(f"a header of {length} bytes, over Limits.metadata_bytes = {limits.metadata_bytes}")
    start = _LENGTH.size + length
    try:
        header = json.loads(data[_LENGTH.size : start].tobytes().decode(), object_pairs_hook=without_twins)
    except (ValueError, RecursionError) as error:
        raise InvalidData(f"the header is not a JSON object of distinct names: {error}") from None
    if not isinstance(header, dict):
        raise InvalidData(f"the header must be a JSON object, found {type(header).__name__}")
    return header, start


def without_twins(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Make a dict of the pairs of a JSON object; ValueError if a name occurs twice."""
    members = dict(pairs)
    if len(members) < len(pairs):
        raise ValueError("a name occurs twice")
    return members


def _entry(name: str, value: Any) -> tuple[str, Element, tuple[int, ...], int, int]:
    """Return a tensor's name, element, shape, and start and end offsets from its header entry."""
    if not isinstance(value, dict):
        raise InvalidData(f"expected a JSON object, found {type(value).__name__}")
    dtype: Any = value.get("dtype")
    shape: Any = value.get("shape")
    offsets: Any = value.get("data_offsets")
    if not isinstance(dtype, str):
        raise InvalidData("it has no dtype")
    if dtype not in ELEMENTS:
        raise Unsupported(f"elements of {dtype} are not supported; expected one of {', '.join(ELEMENTS)}")
    if not _sizes(shape) or not _sizes(offsets) or len(offsets) != 2 or len(shape) > 64:
        raise InvalidData(f"a shape and two offsets are lists of sizes, found {shape!r} and {offsets!r}")
    element = ELEMENTS[dtype]
    begin, end = offsets
    size = prod(shape) * element.dtype.itemsize
    if end - begin != size or prod([n for n in shape if n]) * element.dtype.itemsize >= 1 << 63:
        raise InvalidData(f"{dtype} of shape {shape} takes {size} bytes, found [{begin}, {end})")
    return name, element, tuple(shape), begin, end


def _sizes(value: Any) -> bool:
    return isinstance(value, list) and all(type(item) is int and 0 <= item < 1 << 63 for item in value)


def safetensors_pieces(tensors: Mapping[str, Any], metadata: MetadataLike | None = None) -> Iterator[Any]:
    """Iterate over the bytes of a safetensors file; elements are copied only if they are not in row-major order.

    Raises
    ------
    InvalidType
        Immediately, if a tensor is sparse, or the format has no such type.
    InvalidArgument
        Immediately, if a tensor has the name that the format keeps for metadata, or the metadata are not text.
    """
    if METADATA in tensors:
        raise InvalidArgument(f"safetensors keeps the name {METADATA!r} for metadata: rename the tensor")
    try:
        texts = {key.decode(): value.decode() for key, value in (as_metadata(metadata) or {}).items()}
    except UnicodeDecodeError as error:
        raise InvalidArgument(f"the metadata of safetensors are text, found {shown(error.object)}: {error}") from None
    for name, tensor in tensors.items():
        if isinstance(tensor, SparseTensor) or tensor._element not in _NAMES:
            kind = type(tensor).__name__ if isinstance(tensor, SparseTensor) else tensor.type
            raise InvalidType(f"safetensors has no tensors such as {name!r}, a {kind}; it has {', '.join(ELEMENTS)}")
    ordered = sorted(tensors.items(), key=lambda item: (-item[1].storage.itemsize, item[0]))
    header: dict[str, Any] = {METADATA: texts} if texts else {}
    position = 0
    for name, tensor in ordered:
        end = position + tensor.nbytes
        header[name] = {"dtype": _NAMES[tensor._element], "shape": tensor.shape, "data_offsets": [position, end]}
        position = end
    raw = json.dumps(header, ensure_ascii=False, separators=(",", ":")).encode()
    raw += b" " * (-len(raw) % 8)
    elements = (piece for _, tensor in ordered for piece in dense_pieces(_row_major(tensor.storage)))
    return chain([_LENGTH.pack(len(raw)) + raw], elements)


def _row_major(array: Any) -> Any:
    """Return the array itself if it is C-contiguous, otherwise a contiguous copy."""
    return array if array.flags.c_contiguous else array.copy(order="C")
