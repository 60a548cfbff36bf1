"""Formats of tensors: npy, npz, safetensors and bundles; tensors as columns, and columns as tensors."""

from __future__ import annotations

import zipfile
import zlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from tokenize import TokenError
from typing import Any, NamedTuple

import numpy as np

from shmarrow.build import array
from shmarrow.errors import FieldNotFound, InvalidData, InvalidType, ShmarrowError, at
from shmarrow.interchange import safetensors
from shmarrow.interchange.files.rows import Input, Rows
from shmarrow.ipc import open_file
from shmarrow.ipc.options import IpcWriteOptions
from shmarrow.ipc.tensor import BUNDLE_KEY
from shmarrow.ipc.tensor.bundle import load_tensors, save_tensors
from shmarrow.tables import Table
from shmarrow.tensor import SparseTensor, Tensor

ONLY = "values"
"""The name of the tensor of an npy file."""

_REFUSALS = (
    ValueError, TypeError, EOFError, OSError, MemoryError, OverflowError, SyntaxError, RecursionError, TokenError,
    zipfile.BadZipFile, zlib.error, NotImplementedError, RuntimeError,
)  # fmt: skip
"""The exceptions that numpy and zipfile raise for invalid files."""


class Tensors(NamedTuple):
    """Named tensors.

    Attributes
    ----------
    tensors : mapping of str to ndarray, Tensor or SparseTensor
        The tensors.
    metadata : mapping of str to str
        Metadata of the file.
    """

    tensors: Mapping[str, Any]
    metadata: Mapping[str, str]

    def select(self, columns: Sequence[str]) -> Tensors:
        """Select tensors by name, in this order."""
        for name in columns:
            if name not in self.tensors:
                raise FieldNotFound(f"no tensor is named {name!r}; there are {', '.join(list(self.tensors)[:20])}")
        return self._replace(tensors={name: self.tensors[name] for name in columns})


# --- reading ------------------------------------------------------------------------------------------------------


def is_bundle(path: str) -> bool:
    """Whether an Arrow file is a bundle of tensors."""
    try:
        with open_file(path) as reader:
            return BUNDLE_KEY in (reader.metadata or {})
    except ShmarrowError:
        return False  # reading it will raise the error


def read_bundle(source: Input, columns: Sequence[str] | None) -> Tensors:
    """Map a bundle."""
    bundle = load_tensors(source.path)
    words = {key.decode(): value.decode() for key, value in (bundle.metadata or {}).items()}
    return Tensors(dict(bundle.items()), words)


def read_safetensors(source: Input, columns: Sequence[str] | None) -> Tensors:
    """Map a safetensors file."""
    return Tensors(*safetensors.read_safetensors(source.path))


@contextmanager
def _numpy(name: str) -> Iterator[None]:
    """Translate numpy's errors about ``name`` in the block."""
    try:
        with np.errstate(over="ignore"):  # sizes that overflow are refused
            yield
    except _REFUSALS as error:
        raise InvalidData(f"numpy cannot read it: {str(error) or type(error).__name__}", where=[(name,)]) from None


def read_npy(source: Input, columns: Sequence[str] | None) -> Tensors:
    """Map an npy file; the fields of records become tensors. Objects are refused: unpickling runs code."""
    with _numpy(source.name):
        found = np.load(source.path, mmap_mode="r", allow_pickle=False, max_header_size=1 << 20).view(np.ndarray)
        if not found.dtype.itemsize:
            raise ValueError(f"elements of type {found.dtype} take no bytes")
    return Tensors({name: found[name] for name in found.dtype.names} if found.dtype.names else {ONLY: found}, {})


def read_npz(source: Input, columns: Sequence[str] | None) -> Tensors:
    """Read an npz file into memory."""
    with _numpy(source.name), np.load(source.path, allow_pickle=False, max_header_size=1 << 20) as archive:
        names = [name for name in archive.files if columns is None or name in columns]
        return Tensors({name: archive[name] for name in names}, {})


# --- tensors and rows ---------------------------------------------------------------------------------------------


def to_rows(found: Tensors) -> Rows:
    """Convert each tensor to a column; more dimensions become fixed-size lists.

    Raises
    ------
    InvalidType
        If the tensors differ in length, or columns cannot hold their elements.
    """
    columns = {}
    for name, values in _ndarrays(found, "a table").items():
        if not values.ndim or (len(values) and not values.size):
            raise InvalidType(f"tensor {name!r} of shape {values.shape} has no rows with elements; choose others")
        with at("tensor", name):
            columns[name] = array(np.ascontiguousarray(values))
    sizes = {name: len(column) for name, column in columns.items()}
    if len(set(sizes.values())) > 1:
        listed = ", ".join(f"{name!r}: {size}" for name, size in list(sizes.items())[:8])
        raise InvalidType(f"tensors of different lengths cannot be columns of one table ({listed})")
    table = Table.from_pydict(columns, metadata=found.metadata)
    return Rows(table.schema, iter(table.to_batches()), table.num_rows)


def of_rows(rows: Rows) -> Tensors:
    """Convert each column to a tensor, in memory.

    Raises
    ------
    InvalidType
        If a column has nulls, or values that are not numbers, booleans or times.
    """
    if len(set(rows.schema.names)) < len(rows.schema.names):
        raise InvalidType("tensors need distinct names; choose some of the columns")
    table = Table.from_batches(list(rows.batches), rows.schema)
    made = {}
    for field, column in zip(table.schema, table.columns, strict=True):
        with at("column", field.name):
            if column.null_count or getattr(field.type, "tz", None):
                raise InvalidType("tensors have neither nulls nor time zones")
            made[field.name] = column.combine_chunks().to_numpy(zero_copy_only=False)
            if made[field.name].dtype.kind not in "biufmM":
                raise InvalidType(f"tensors hold numbers, booleans and times, found {field.type}")
    return Tensors(made, {key.decode(): value.decode() for key, value in (rows.schema.metadata or {}).items()})


# --- writing ------------------------------------------------------------------------------------------------------


def _ndarrays(found: Tensors, what: str) -> dict[str, Any]:
    """Return the tensors as ndarrays."""
    made = {}
    for name, value in found.tensors.items():
        with at("tensor", name):
            if isinstance(value, SparseTensor):
                raise InvalidType(f"{what} has no {type(value).__name__}")
            made[name] = value.to_numpy() if isinstance(value, Tensor) else value
    return made


def write_npy(found: Tensors, file: Any, options: IpcWriteOptions) -> None:
    """Write a single tensor."""
    arrays = _ndarrays(found, "npy")
    if len(arrays) != 1:
        raise InvalidType(f"npy holds one tensor, found {len(arrays)}; choose one, or write npz")
    np.lib.format.write_array(file, next(iter(arrays.values())), allow_pickle=False)


def write_npz(found: Tensors, file: Any, options: IpcWriteOptions) -> None:
    """Write each tensor as a member, without compression."""
    with zipfile.ZipFile(file, "w") as archive:
        for name, values in _ndarrays(found, "npz").items():
            with archive.open(f"{name}.npy", "w", force_zip64=True) as member:
                np.lib.format.write_array(member, values, allow_pickle=False)


def _tensors(found: Tensors) -> dict[str, Any]:
    """Return ndarrays as :class:`Tensor`."""
    made = {}
    for name, value in found.tensors.items():
        with at("tensor", name):
            made[name] = Tensor.from_numpy(value) if isinstance(value, np.ndarray) else value
    return made


def write_safetensors(found: Tensors, file: Any, options: IpcWriteOptions) -> None:
    """Write a safetensors file."""
    for piece in safetensors.safetensors_pieces(_tensors(found), dict(found.metadata)):
        file.write(piece)


def write_bundle(found: Tensors, file: Any, options: IpcWriteOptions) -> None:
    """Write a bundle."""
    save_tensors(_tensors(found), file, found.metadata, options)
