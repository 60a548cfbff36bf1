# SPDX-License-Identifier: Apache-2.0
"""Bundles: many named tensors in one file, such as model weights.

A bundle is a valid Arrow IPC file. The tensor messages are stored between the schema and the only record batch, where
file readers skip them; the batch is an index with a row per tensor. Invariants:

* opening reads only the index; names are looked up by binary search, and only the requested message is read. The cost
  is independent of the tensors' sizes;
* tensors are contiguous from the schema to the index, in row order; start offsets are checked on opening. That each
  message extends exactly to the next, without overlap or gap, is checked when it is read;
* names are unique, arbitrary strings.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import pairwise
from typing import Any, NamedTuple, Self

import numpy as np

from shmarrow import types
from shmarrow.buffer import Bytes, NDArray, padded
from shmarrow.columns import record_batch
from shmarrow.errors import (
    DEFAULT_LIMITS,
    Closed,
    FieldNotFound,
    InvalidArgument,
    InvalidData,
    InvalidType,
    Limits,
    Unsupported,
    as_limits,
    at,
    counted,
    full_name,
    shown,
)
from shmarrow.ipc.file.footer import BUNDLE_KEY, as_blocks
from shmarrow.ipc.file.reader import RecordBatchFileReader
from shmarrow.ipc.file.writer import RecordBatchFileWriter
from shmarrow.ipc.message.decode import Message, message_at
from shmarrow.ipc.options import IpcWriteOptions
from shmarrow.ipc.random_access import reopened
from shmarrow.ipc.tensor.decode import read_header
from shmarrow.ipc.tensor.writer import encode_tensor, write_payload
from shmarrow.memory import Sink, Source, mapping_of, open_sink, open_source
from shmarrow.pickling import passed_by_handle
from shmarrow.tensor import SparseTensor, Tensor
from shmarrow.tensor.convert import as_tensor
from shmarrow.types import Metadata, MetadataLike, as_metadata

BUNDLE_VERSION = b"1"
_SCHEMA = 8  # offset of the schema message in a file

INDEX = types.schema(
    [
        types.field("name", types.string(), nullable=False),
        types.field("offset", types.int64(), nullable=False),
        types.field("by_name", types.int32(), nullable=False),
    ]
)
"""The index: tensor name, message offset, and the permutation that sorts rows by name."""


def save_tensors(
    tensors: Mapping[str, Any],
    target: Any,
    metadata: MetadataLike | None = None,
    options: IpcWriteOptions | None = None,
    *,
    overwrite: bool | None = None,
    mode: int | None = None,
    durable: bool = False,
) -> int:
    """Write named tensors as one bundle.

    Parameters
    ----------
    tensors : mapping of str to tensor
        Dense and sparse tensors, ndarrays, tensors of torch, JAX, scipy, sparse and pyarrow, and null-free columns with
        a zero-copy numpy form. Contiguous elements are written without an intermediate copy.
    target : path, ``shm:NAME`` or file object
        A path or a name is published atomically.
    metadata : mapping, optional
        Custom metadata of the bundle.
    options : IpcWriteOptions, optional
        As for :func:`shmarrow.ipc.write_tensor`.
    overwrite, mode, durable
        As for :func:`shmarrow.ipc.new_file`.

    Returns
    -------
    int
        The number of bytes written.

    Raises
    ------
    InvalidType
        If a value is not a tensor or a name not a string.
    CopyRequired
        If a column has nulls, or no zero-copy numpy form.
    ObjectExists
        If the name exists and ``overwrite`` is False.

    Examples
    --------
    >>> size = save_tensors({"weight": np.eye(2), "bias": np.zeros(2)}, "layer.tensors")
    >>> with load_tensors("layer.tensors") as layer:
    ...     print(list(layer), layer["weight"])
    ['weight', 'bias'] <Tensor double, shape (2, 2), strides (16, 8)>
    """
    checked, own = _checked(tensors, metadata)
    return _write(checked, own, open_sink(target, overwrite=overwrite, mode=mode, durable=durable), options)


def write_tensors(
    tensors: Mapping[str, Any], sink: Sink, metadata: MetadataLike | None, options: IpcWriteOptions | None
) -> None:
    """Write named tensors as :func:`save_tensors` does, to a sink."""
    _write(*_checked(tensors, metadata), sink, options)


def _checked(
    tensors: Mapping[str, Any], metadata: MetadataLike | None
) -> tuple[dict[str, Tensor | SparseTensor], dict[bytes, bytes]]:
    """Check the tensors, and build the metadata of the file."""
    if not callable(getattr(tensors, "items", None)):
        raise InvalidType(f"expected a mapping of names to tensors, found {full_name(tensors)}")
    checked = {}
    for name, value in tensors.items():
        if not isinstance(name, str):
            raise InvalidType(f"the name of a tensor must be a string, found {shown(name)}")
        try:
            name.encode()
        except UnicodeEncodeError as error:
            raise InvalidArgument(f"the name {name!r} of a tensor cannot be encoded as UTF-8: {error.reason}") from None
        with at("tensor", name):
            checked[name] = as_tensor(value)
    own = as_metadata(metadata) or {}
    if BUNDLE_KEY in own:
        raise InvalidArgument(f"the key {BUNDLE_KEY.decode()!r} in the metadata marks a file as a bundle; leave it out")
    return checked, {**own, BUNDLE_KEY: BUNDLE_VERSION}


def _write(
    tensors: Mapping[str, Tensor | SparseTensor], metadata: MetadataLike, sink: Sink, options: IpcWriteOptions | None
) -> int:
    with RecordBatchFileWriter(sink, INDEX, options, metadata) as writer:
        writer.begin()
        offsets = np.empty(len(tensors), np.int64)
        for row, tensor in enumerate(tensors.values()):
            payload = encode_tensor(tensor, options, sink.size)
            offsets[row] = sink.size
            write_payload(sink, payload)
        names = list(tensors)
        columns = {
            "name": names,
            "offset": offsets,
            "by_name": np.array(sorted(range(len(names)), key=lambda row: names[row].encode()), np.int32),
        }
        writer.write(record_batch(columns, schema=INDEX))
    return sink.size


class NamedTensors(dict[str, Any]):
    """Named tensors with metadata, to be saved as a bundle.

    Attributes
    ----------
    metadata : mapping or None
        The bundle's metadata.
    """

    def __init__(self, tensors: Mapping[str, Any], metadata: MetadataLike | None) -> None:
        super().__init__(tensors)
        self.metadata = metadata


def load_tensors(source: Any, *, limits: Limits = DEFAULT_LIMITS, memory_map: bool = True) -> Bundle:
    """Open a bundle: a mapping of names to tensors, read on access.

    Parameters
    ----------
    source : path, ``shm:NAME``, Segment, file object or bytes-like
        A path or a name is mapped, and tensors are zero-copy views. From a seekable file object that cannot be mapped,
        the index is read on opening and each tensor on access.
    limits : Limits, optional
        Bounds on what is accepted.
    memory_map : bool
        False reads into memory instead of mapping.

    Raises
    ------
    ObjectNotFound
        If the source does not exist.
    InvalidData
        If it is not a bundle, or its tensors overlap, leave gaps or are out of bounds.
    """
    limits = as_limits(limits)
    return Bundle(open_source(source, memory_map), limits)


@passed_by_handle
class Bundle(Mapping[str, Tensor | SparseTensor]):
    """A mapping of names to tensors, read on access; made by :func:`load_tensors`.

    Iterates in the order of saving. A context manager; after closing, any use raises :class:`shmarrow.Closed`. A bundle
    mapped from a path or a name is pickled and copied by name, and reopened.

    Attributes
    ----------
    metadata : mapping of bytes to bytes, or None
        Custom metadata of the bundle.

    Notes
    -----
    Thread safety: may be shared and closed while other threads read, which get their tensors or ``Closed``. Forked
    children have independent copies.
    """

    def __init__(self, source: Source, limits: Limits) -> None:
        self._name = source.name
        self._limits = limits
        self._opened: _Index | None = None
        try:
            reader = RecordBatchFileReader(source, limits)
            self.metadata = _bundle_metadata(reader.metadata or {}, self._name)
            self._opened = _read_index(reader, source, limits)
        except BaseException:
            source.close()
            raise

    def _index(self) -> _Index:
        index = self._opened
        if index is None:
            raise Closed(f"the bundle {self._name} is closed")
        return index

    def __contains__(self, name: object) -> bool:
        return isinstance(name, str) and self._index().find(name) is not None

    def __iter__(self) -> Iterator[str]:
        return (self._index().text(row) for row in range(self._index().length))

    def __len__(self) -> int:
        return self._index().length

    def __getitem__(self, name: str) -> Tensor | SparseTensor:
        """Return a tensor by name, over the bundle's memory.

        Raises
        ------
        FieldNotFound
            If there is no tensor of this name.
        InvalidData
            If its message is invalid or contradicts the index.
        """
        if not isinstance(name, str):
            raise FieldNotFound(f"{self._name}: the names of tensors must be strings, found {shown(name)}")
        index = self._index()
        row = index.find(name)
        if row is None:
            some = ", ".join([shown(index.text(i), 40) for i in range(min(index.length, 8))])
            more = "" if index.length <= 8 else ", ..."
            raise FieldNotFound(
                f"{self._name}: no tensor is named {name!r}; there {'is' if index.length == 1 else 'are'} "
                f"{counted(index.length, 'tensor')}: [{some}{more}]"
            )
        return index.read(row, self._limits)

    def validate(self, *, full: bool = False) -> None:
        """Check every message and the order of names; with ``full``, also all elements and index values."""
        index = self._index()
        order = index.by_name.tolist()
        if sorted(order) != list(range(index.length)):
            raise InvalidData(f"{self._name}: the order of names is not a permutation of {index.length} rows")
        for before, after in pairwise(map(index.name, order)):
            if before >= after:
                raise InvalidData(f"{self._name}: the names {before!r} and {after!r} are not in order, or the same")
        for row in range(index.length):
            index.read(row, self._limits).validate(full=full)

    def to_numpy(self, writable: bool = False) -> dict[str, NDArray]:
        """Return all tensors as ndarrays, sparse tensors converted to dense.

        Parameters
        ----------
        writable : bool
            False returns read-only views of the shared memory. True returns writable arrays over one private
            copy-on-write mapping: changes are not visible elsewhere, and only modified pages take memory. If the bundle
            is not mapped, they are copies.
        """
        index, pages = self._private() if writable else (self._index(), None)
        arrays = {}
        for name, tensor in self._read_all(index):
            if not isinstance(tensor, Tensor):
                arrays[name] = tensor.to_dense()
            else:
                array = tensor.to_numpy(writable and pages is None)
                if pages is not None:
                    array.flags.writeable = True  # its private pages are writable
                arrays[name] = array
        return arrays

    def to_torch(self, device: Any = None, *, writable: bool = True) -> dict[str, Any]:
        """Return all tensors as torch tensors, for ``load_state_dict``.

        Parameters
        ----------
        device : torch.device or str, optional
            The target device; the CPU by default.
        writable : bool
            True returns tensors over one private copy-on-write mapping: changes are not visible elsewhere, and only
            modified pages take memory. If the bundle is not mapped, they are copies. False returns views of the shared
            memory, as :meth:`Tensor.to_torch` does.
        """
        own = writable and str(device) in ("None", "cpu")
        index, pages = self._private() if own else (self._index(), None)
        shared = pages is not None or not writable
        return {name: tensor.to_torch(device, writable=not shared) for name, tensor in self._read_all(index)}

    def to_jax(self, device: Any = None) -> dict[str, Any]:
        """Return all dense tensors as ``jax.Array``; see :meth:`Tensor.to_jax`. Sparse tensors are converted to dense.

        Parameters
        ----------
        device : jax.Device, optional
            The target device; the CPU by default.
        """
        arrays = {}
        for name, tensor in self._read_all(self._index()):
            dense = tensor if isinstance(tensor, Tensor) else Tensor.from_numpy(tensor.to_dense())
            arrays[name] = dense.to_jax(device)
        return arrays

    def _private(self) -> tuple[_Index, Bytes | None]:
        """An index over private pages of the bundle, and the pages; None if it is not mapped."""
        index = self._index()
        mapping = mapping_of(index.source.data)
        pages = None if mapping is None else mapping.private(0, index.source.size)
        return (index if pages is None else index._replace(source=Source(self._name, pages))), pages

    def _read_all(self, index: _Index) -> Iterator[tuple[str, Tensor | SparseTensor]]:
        for row in range(index.length):
            yield index.text(row), index.read(row, self._limits)

    def close(self) -> None:
        """Release the source; existing tensors keep their memory. Calling it again has no effect."""
        index, self._opened = self._opened, None
        if index is not None:
            index.source.close()

    def __enter__(self) -> Self:
        self._index()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __reduce__(self) -> tuple[object, ...]:
        return reopened(load_tensors, self._index().source, self._limits)

    def __repr__(self) -> str:
        index = self._opened
        if index is None:
            return f"<Bundle {self._name!r}, closed>"
        return f"<Bundle {self._name!r}, {counted(index.length, 'tensor')}>"


def _bundle_metadata(metadata: Metadata, name: str) -> Metadata | None:
    """The custom metadata of the bundle, less the file's own keys."""
    version = metadata.get(BUNDLE_KEY)
    if version is None:
        raise InvalidData(f"{name}: this is an Arrow file, not a bundle of tensors; open it with ipc.open_file")
    if version != BUNDLE_VERSION:
        raise Unsupported(f"{name}: a bundle of version {version!r}; version {BUNDLE_VERSION!r} is read")
    return as_metadata({key: value for key, value in metadata.items() if key != BUNDLE_KEY})


def _read_index(reader: RecordBatchFileReader, source: Source, limits: Limits) -> _Index:
    """Read the index; checks that the messages are between the schema and the index, in row order."""
    name = source.name
    if reader.schema != INDEX or reader.num_record_batches != 1:
        raise InvalidData(
            f"{name}: the index of a bundle is one batch of {INDEX.names}, "
            f"found {reader.num_record_batches} of {reader.schema.names}"
        )
    batch = reader.get_batch(0)
    columns: list[Any] = batch.columns
    names, starts, by_name = columns
    if names.null_count or starts.null_count or by_name.null_count:
        raise InvalidData(f"{name}: a null in the index of a bundle")
    # Each message ends at the start of the next one or the index.
    offsets = np.append(starts.to_numpy(), as_blocks(reader._opened().footer.batches)["offset"][:1])
    first = int(offsets[0])
    located = message_at(source.read(_SCHEMA, max(first, _SCHEMA)), 0, f"{name}: the schema", limits)
    end = _SCHEMA if located is None else _SCHEMA + located.end
    if first != end:
        raise InvalidData(f"{name}: the first message starts at {first}, expected {end}")
    back = offsets[1:] <= offsets[:-1]
    if back.any():
        row = int(back.argmax())
        raise InvalidData(
            f"{name}: the tensor of row {row} starts at {offsets[row]}, the next message at {offsets[row + 1]}"
        )
    return _Index(source, names.offsets, names.data, offsets, by_name.to_numpy(), batch.num_rows)


class _Index(NamedTuple):
    """The source and index columns of an open bundle. Names are untrusted until checked."""

    source: Source
    name_offsets: NDArray
    name_data: Bytes
    offsets: NDArray
    by_name: NDArray
    length: int

    def name(self, row: int) -> bytes:
        """The UTF-8 name of a row."""
        start, end = self.name_offsets[row : row + 2].tolist()
        return self.name_data[max(start, 0) : max(end, 0)].tobytes()

    def text(self, row: int) -> str:
        """The name of a row."""
        try:
            return self.name(row).decode()
        except UnicodeDecodeError as error:
            raise InvalidData(f"{self.source.name}: the name of row {row} is not UTF-8: {error.reason}") from None

    def find(self, name: str) -> int | None:
        """The row of a name."""
        coded = name.encode(errors="surrogatepass")  # a name with surrogates never matches
        low, high = 0, self.length
        while low < high:
            middle = (low + high) // 2
            row = int(self.by_name[middle])
            if not 0 <= row < self.length:
                raise InvalidData(f"{self.source.name}: row {row} in the order of names, of {self.length} rows")
            other = self.name(row)
            if other == coded:
                return row
            low, high = (middle + 1, high) if other < coded else (low, middle)
        return None

    def read(self, row: int, limits: Limits) -> Tensor | SparseTensor:
        """Read the tensor of a row, whose message must extend to the next one."""
        where = f"{self.source.name}: the tensor {self.text(row)!r}"
        start, end = self.offsets[row : row + 2].tolist()
        data = self.source.read(start, end)
        located = message_at(data, 0, where, limits, parse=read_header)
        if located is None or located.end != len(data):
            raise InvalidData(
                f"{where}: expected a message over all of [{start}, {end}), "
                f"found {'none' if located is None else f'one up to {start + located.end}'}"
            )
        header = located.message
        if isinstance(header, Message):
            raise InvalidData(f"{where} is a {header.kind} message, expected a Tensor or a SparseTensor")
        if padded(header.data_end) != header.body_length:
            raise InvalidData(f"{where}: the elements end at {header.data_end} of a body of {header.body_length} bytes")
        return header.over(data[located.body :])
