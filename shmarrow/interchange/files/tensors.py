"""Reading and writing tensors (npy, npz, safetensors, bundles), and conversion between columns and tensors.

Invariants:

* files are mapped; members of an npz file are unpacked into a temporary directory and mapped there;
* npy files with Python objects are refused: unpickling them could run any code;
* columns are collected in temporary files, one per column, as their lengths are known only at the end.
"""

from __future__ import annotations

import shutil
import tempfile
import zipfile
import zlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from tokenize import TokenError
from typing import Any

import numpy as np

from shmarrow.batch import RecordBatch
from shmarrow.build import array
from shmarrow.errors import (
    FieldNotFound,
    InvalidData,
    InvalidType,
    LimitExceeded,
    ShmarrowError,
    at,
)
from shmarrow.interchange import safetensors
from shmarrow.interchange.files.endpoints import PREFIX, Input, Options, Output, temporary_errors
from shmarrow.interchange.files.rows import BATCH, BATCH_BYTES, Rows
from shmarrow.ipc import IpcWriteOptions, open_file
from shmarrow.ipc.tensor import BUNDLE_KEY
from shmarrow.ipc.tensor.bundle import load_tensors, save_tensors
from shmarrow.tensor import SparseTensor, Tensor

_REFUSALS = (ValueError, TypeError, EOFError, MemoryError, OverflowError, SyntaxError, RecursionError, TokenError)
"""The exceptions that numpy raises for invalid headers."""

_EMPTY_ROWS = 1 << 20
"""The most rows of a tensor with zero-size rows, whose number is not bounded by the file size."""

ONLY = "values"
"""The name of an unnamed tensor, as in an npy file."""


@dataclass(frozen=True)
class Tensors:
    """Named tensors.

    Attributes
    ----------
    tensors : mapping of str to ndarray or Tensor
        ndarrays may be structured: one record per row.
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
        return replace(self, tensors={name: self.tensors[name] for name in columns})


# --- reading ----------------------------------------------------------------------------------------------------


def is_bundle(source: Input) -> bool:
    """Whether an Arrow file is a bundle of tensors."""
    try:
        with open_file(source.path()) as reader:
            return BUNDLE_KEY in (reader.metadata or {})
    except ShmarrowError:
        return False  # reading it will raise the error


def read_bundle(source: Input, options: Options) -> Tensors:
    """Read a bundle, mapped."""
    source.whole()
    bundle = load_tensors(source.path())
    words = {key.decode(): value.decode() for key, value in (bundle.metadata or {}).items()}
    return Tensors(dict(bundle.items()), words)


def read_safetensors(source: Input, options: Options) -> Tensors:
    """Read a safetensors file, mapped."""
    source.whole()
    return Tensors(*safetensors.read_safetensors(source.path()))


def _mapped(path: str, where: str) -> Any:
    """Map the array of an npy file."""
    try:
        with np.errstate(over="ignore"):  # sizes that overflow are refused
            found = np.load(path, mmap_mode="r", allow_pickle=False, max_header_size=1 << 20)
        if not isinstance(found, np.ndarray):
            raise ValueError("it is not an npy file")
        if not found.dtype.itemsize:
            raise ValueError(f"elements of type {found.dtype} take no bytes")
    except (*_REFUSALS, OSError) as error:
        raise InvalidData(f"{where}: numpy cannot read it: {str(error) or type(error).__name__}") from None
    return found.view(np.ndarray)


def read_npy(source: Input, options: Options) -> Tensors:
    """Read an npy file, mapped; records become one tensor per field."""
    source.whole()
    found = _mapped(source.file_path(), source.name)
    return Tensors({name: found[name] for name in found.dtype.names} if found.dtype.names else {ONLY: found}, {})


def read_npz(source: Input, options: Options) -> Tensors:
    """Read an npz file; members are unpacked into temporary files and mapped."""
    folder = Path(source.keep(tempfile.TemporaryDirectory(prefix=PREFIX)))
    source.whole()
    found = {}
    try:
        with zipfile.ZipFile(source.file_path()) as archive:
            for number, member in enumerate(archive.infolist()):
                name = member.filename.removesuffix(".npy")
                if options.columns is not None and name not in options.columns:
                    continue
                target = folder / str(number)
                with temporary_errors(), archive.open(member) as packed, target.open("wb") as unpacked:
                    shutil.copyfileobj(packed, unpacked, 1 << 20)
                found[name] = _mapped(str(target), f"{source.name}: {member.filename}")
    except (zipfile.BadZipFile, zlib.error, NotImplementedError, RuntimeError, EOFError) as error:
        raise InvalidData(f"{source.name}: it is not a readable npz file: {error}") from None
    return Tensors(found, {})


# --- columns as tensors -----------------------------------------------------------------------------------------


@contextmanager
def of_rows(rows: Rows, records: bool, name: str) -> Iterator[Tensors]:
    """Convert each column to a tensor, or all to one tensor of records; valid within the block.

    Raises
    ------
    InvalidType
        If a column has nulls, or values that are not numbers, booleans or times.
    """
    with tempfile.TemporaryDirectory(prefix=PREFIX) as folder:
        if len(set(rows.schema.names)) < len(rows.schema.names):
            raise InvalidType("tensors need distinct names; choose columns with --columns")
        empty = rows.empty()
        names = rows.schema.names
        kinds = [_values(empty, number, name)[:0] for number in range(len(names))]
        record = np.dtype([(each, kind.dtype, kind.shape[1:]) for each, kind in zip(names, kinds, strict=True)])
        paths = [Path(folder, str(number)) for number in range(1 if records else len(names))]
        for path in paths:
            path.touch()
        count = 0
        for batch in rows.batches:
            columns = [_values(batch, number, name) for number in range(len(names))]
            if records:
                made = np.empty(batch.num_rows, record)
                for each, values in zip(names, columns, strict=True):
                    made[each] = values
                columns = [made]
            for path, values in zip(paths, columns, strict=True):
                with temporary_errors(), path.open("ab", buffering=0) as file:
                    _write_all(file, np.ascontiguousarray(values).reshape(-1).view(np.uint8))
            count += batch.num_rows
        shapes = [(record, (count,))] if records else [(kind.dtype, (count, *kind.shape[1:])) for kind in kinds]
        metadata = {key.decode(): value.decode() for key, value in (rows.schema.metadata or {}).items()}
        made_names = [ONLY] if records else names
        yield Tensors(
            {each: _gathered(path, *shape) for each, path, shape in zip(made_names, paths, shapes, strict=True)},
            {} if records else metadata,
        )


def _write_all(file: Any, data: Any) -> None:
    while len(data):
        data = data[file.write(data) :]


def _gathered(path: Path, dtype: np.dtype[Any], shape: tuple[int, ...]) -> Any:
    if not path.stat().st_size:
        return np.empty(shape, dtype)
    return np.memmap(path, dtype, "r", shape=shape).view(np.ndarray)


def _values(batch: Any, number: int, name: str) -> Any:
    """Return the values of a column as an ndarray."""
    column, field = batch.column(number), batch.schema.field(number)
    with at("column", field.name), at(f"{name} cannot hold {field.type} as a tensor"):
        if column.null_count:
            raise InvalidType("it has nulls")
        if getattr(field.type, "tz", None):
            raise InvalidType("its time zone would be lost")
        values = column.to_numpy(zero_copy_only=False)
        if values.dtype.kind not in "biufmM":
            raise InvalidType("its values are not numbers, booleans or times")
    return values


# --- tensors as columns -----------------------------------------------------------------------------------------------


def to_rows(found: Tensors) -> Rows:
    """Convert each tensor to a column: more dimensions become fixed-size lists, records one column per field.

    Raises
    ------
    InvalidType
        If the tensors differ in length, or columns cannot hold their elements.
    """
    columns: dict[str, Any] = {}
    for name, value in found.tensors.items():
        values = value.to_numpy() if isinstance(value, Tensor) else value
        if not values.ndim:
            raise InvalidType(f"tensor {name!r} is a scalar, and a table has rows; choose others with --columns")
        columns.update({part: values[part] for part in values.dtype.names} if values.dtype.names else {name: values})
    for name, values in columns.items():
        if not values.nbytes and len(values) > _EMPTY_ROWS:
            raise LimitExceeded(
                f"tensor {name!r} of shape {values.shape} has no elements; at most {_EMPTY_ROWS} such rows are read"
            )
    sizes = {name: len(values) for name, values in columns.items()}
    if len(set(sizes.values())) > 1:
        listed = ", ".join(f"{name!r}: {size}" for name, size in list(sizes.items())[:8])
        raise InvalidType(f"tensors of different lengths cannot be columns of one table ({listed})")
    rows = max(sizes.values(), default=0)
    width = sum(values.dtype.itemsize * values[:1].size for values in columns.values())
    step = max(1, min(BATCH, BATCH_BYTES // max(width, 1)))

    def part(start: int) -> RecordBatch:
        arrays = []
        for name, values in columns.items():
            with at("tensor", name), at("it cannot be a column"):
                arrays.append(array(np.ascontiguousarray(values[start : start + step])))
        return RecordBatch.from_arrays(arrays, names=list(columns))

    done = [0]

    def batches() -> Iterator[RecordBatch]:
        for start in range(0, rows, step):
            yield part(start)
            done[0] = start

    return Rows(part(rows).schema.with_metadata(found.metadata), batches(), lambda: done[0], rows)


# --- writing ----------------------------------------------------------------------------------------------------


def _ndarrays(found: Tensors, name: str) -> dict[str, Any]:
    """Return the tensors as ndarrays that numpy can write without pickling."""
    made = {}
    for each, value in found.tensors.items():
        if isinstance(value, SparseTensor):
            raise InvalidType(f"tensor {each!r}: {name} has no {type(value).__name__}")
        with at("tensor", each), at(f"{name} has no elements of this type"):
            made[each] = value.to_numpy() if isinstance(value, Tensor) else value
        if made[each].dtype.kind == "V" and not made[each].dtype.names:
            raise InvalidType(f"tensor {each!r}: {name} has no elements of type {made[each].dtype}")
    return made


def write_npy(found: Tensors, target: Output, options: Options) -> None:
    """Write a single tensor."""
    arrays = _ndarrays(found, "npy")
    if len(arrays) != 1:
        raise InvalidType(f"npy holds one tensor, found {len(arrays)}")
    with target.file() as file:
        np.lib.format.write_array(file, next(iter(arrays.values())), allow_pickle=False)


def write_npz(found: Tensors, target: Output, options: Options) -> None:
    """Write each tensor as a member, without compression."""
    arrays = _ndarrays(found, "npz")
    with target.file() as file, zipfile.ZipFile(file, "w", zipfile.ZIP_STORED) as archive:
        for name, values in arrays.items():
            with archive.open(f"{name}.npy", "w", force_zip64=True) as member:
                np.lib.format.write_array(member, values, allow_pickle=False)


def _plain(found: Tensors) -> dict[str, Any]:
    """Convert all ndarrays to :class:`Tensor`; records become one tensor per field."""
    made: dict[str, Any] = {}
    for name, value in found.tensors.items():
        if isinstance(value, (Tensor, SparseTensor)):
            made[name] = value
            continue
        parts = {each: value[each] for each in value.dtype.names} if value.dtype.names else {name: value}
        for each, values in parts.items():
            with at("tensor", each):
                made[each] = Tensor.from_numpy(values)
    return made


def write_safetensors(found: Tensors, target: Output, options: Options) -> None:
    """Write a safetensors file."""
    pieces = safetensors.safetensors_pieces(_plain(found), dict(found.metadata))
    with target.file() as file:
        for piece in pieces:
            file.write(piece)


def write_bundle(found: Tensors, target: Output, options: Options) -> None:
    """Write a bundle."""
    codec = None if options.compression == "none" else options.compression
    made = _plain(found)
    with target.file() as file:
        save_tensors(made, file, found.metadata, IpcWriteOptions(codec, options.level))
