"""Bundles: many named tensors in one object, such as the weights of a model.

A bundle is an ordinary Arrow IPC file. Between its schema and its only record batch stand the messages of the tensors,
one after another, which readers of files pass over and readers of tensors read; the batch is their index, with a row
for each tensor. Rules kept here:

* opening reads where the tensors start; a name is found by binary search, and its message is the only one that is read.
  Neither depends on the size of the tensors;
* the tensors follow one another from the schema to the index, in the order of the rows: that is checked for all of them
  when the bundle is opened. That each message takes all the room up to the next, so that there is neither overlap nor
  hole, is checked when it is read;
* names are any text, each of them once.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import pairwise
from typing import Any, Self

import numpy as np

from shmarrow import types
from shmarrow.batch import record_batch
from shmarrow.buffer import Bytes, padded
from shmarrow.errors import (
    DEFAULT_LIMITS,
    Closed,
    FieldNotFound,
    InvalidArgument,
    InvalidData,
    InvalidType,
    Limits,
    Unsupported,
)
from shmarrow.ipc.file.reader import RecordBatchFileReader
from shmarrow.ipc.file.writer import RecordBatchFileWriter
from shmarrow.ipc.message.decode import read_message
from shmarrow.ipc.message.framing import read_prefix
from shmarrow.ipc.options import IpcWriteOptions
from shmarrow.ipc.tensor.io import write_payload
from shmarrow.ipc.tensor.messages import READERS, encode_tensor
from shmarrow.sources.source import Sink, Source
from shmarrow.tensor import SparseTensor, Tensor
from shmarrow.tensor.convert import as_tensor
from shmarrow.types import MetadataLike, Schema, as_metadata

BUNDLE_KEY = b"shmarrow:bundle"
BUNDLE_VERSION = b"1"
_SCHEMA = 8  # where the schema's message starts in a file

INDEX = types.schema(
    [
        types.field("name", types.string(), nullable=False),
        types.field("offset", types.int64(), nullable=False),
        types.field("by_name", types.int32(), nullable=False),
    ]
)
"""The index: a tensor's name, where its message starts, and the rows in the order of their names."""


def save_tensors(
    tensors: Mapping[str, Any],
    target: Any,
    metadata: MetadataLike | None = None,
    options: IpcWriteOptions | None = None,
    *,
    overwrite: bool = False,
    mode: int = 0o400,
    durable: bool = False,
) -> int:
    """Write named tensors as one bundle.

    Parameters
    ----------
    tensors : mapping of str to tensor
        Tensors of this package, dense and sparse, ndarrays, and those of torch, JAX, scipy and sparse. Elements that
        lie together are written from where they are.
    target : path, ``shm:NAME`` or file object
        A path or a name appears whole or not at all.
    metadata : mapping, optional
        Of the bundle.
    options : IpcWriteOptions, optional
        As for :func:`shmarrow.ipc.write_tensor`.
    overwrite, mode, durable
        As for :func:`shmarrow.ipc.new_file`.

    Returns
    -------
    int
        The bytes written.

    Raises
    ------
    InvalidType
        If a value is no tensor or a name no string.
    ObjectExists
        If the name is taken and ``overwrite`` is False.

    Examples
    --------
    >>> size = save_tensors({"weight": np.eye(2), "bias": np.zeros(2)}, "layer.tensors")
    >>> with load_tensors("layer.tensors") as layer:
    ...     print(list(layer), layer["weight"])
    ['weight', 'bias'] <Tensor double, shape (2, 2), strides (16, 8)>
    """
    made = {}
    for name, value in tensors.items():
        if not isinstance(name, str):
            raise InvalidType(f"the name of a tensor is a string, found {name!r}")
        made[name] = as_tensor(value)
    given = as_metadata(metadata) or {}
    if BUNDLE_KEY in given:
        raise InvalidArgument(
            f"the key {BUNDLE_KEY.decode()!r} in the metadata is what makes a file a bundle; leave it out"
        )
    sink = Sink(target, overwrite=overwrite, mode=mode, durable=durable)
    with RecordBatchFileWriter(sink, INDEX, options, {**given, BUNDLE_KEY: BUNDLE_VERSION}) as writer:
        offsets = np.empty(len(made), np.int64)
        for row, tensor in enumerate(made.values()):
            plan = encode_tensor(tensor, options, sink.position)
            offsets[row] = sink.position
            write_payload(sink, plan)
        names = list(made)
        columns = {
            "name": names,
            "offset": offsets,
            "by_name": np.array(sorted(range(len(names)), key=lambda row: names[row].encode()), np.int32),
        }
        writer.write(record_batch(columns, schema=INDEX))
    return sink.position


_accepted = INDEX


def _is_index(schema: Schema) -> bool:
    """Whether a schema is that of an index. Schemas are kept by their bytes, so most are the one seen before."""
    global _accepted
    if schema is not _accepted:
        if schema != INDEX:
            return False
        _accepted = schema
    return True


def load_tensors(source: Any, *, limits: Limits = DEFAULT_LIMITS, memory_map: bool = True) -> Bundle:
    """Open a bundle: a mapping of names to tensors, each read when it is asked for.

    Parameters
    ----------
    source : path, ``shm:NAME``, Segment, file object or bytes-like
        A path or a name is mapped; the tensors point into the mapping and keep it alive.
    limits : Limits, optional
        Bounds on what is accepted.
    memory_map : bool
        False reads a path's bytes into memory instead.

    Raises
    ------
    ObjectNotFound
        If there is nothing of this name.
    InvalidData
        If it is no bundle, or its tensors overlap, leave holes or lie outside.
    """
    return Bundle(Source(source, memory_map), limits)


class Bundle(Mapping[str, Tensor | SparseTensor]):
    """Named tensors, each read when it is asked for; made by :func:`load_tensors`.

    A mapping in the order in which the tensors were saved, and a context manager.

    Attributes
    ----------
    metadata : dict of bytes to bytes, or None
        The metadata of the bundle.
    """

    def __init__(self, source: Source, limits: Limits) -> None:
        self._name = source.name
        self._limits = limits
        reader = RecordBatchFileReader(source, limits)
        metadata = dict(reader.metadata or {})
        version = metadata.pop(BUNDLE_KEY, None)
        if version is None:
            raise InvalidData(f"{self._name}: an Arrow file, but no bundle of tensors; ipc.open_file reads it")
        if version != BUNDLE_VERSION:
            raise Unsupported(f"{self._name}: a bundle of version {version!r}; version {BUNDLE_VERSION!r} is read")
        self.metadata = metadata or None
        if not _is_index(reader.schema) or reader.num_record_batches != 1:
            raise InvalidData(
                f"{self._name}: the index of a bundle is one batch of {INDEX.names}, "
                f"found {reader.num_record_batches} of {reader.schema.names}"
            )
        self._data: Bytes | None = source.all()
        batch = reader.get_batch(0)
        self._length = batch.num_rows
        columns = [batch.column(i) for i in range(len(INDEX))]
        if any(column.null_count for column in columns):
            raise InvalidData(f"{self._name}: a null in the index of a bundle")
        _, ends, text = columns[0].buffers()
        self._ends = ends.view("<i4")
        self._text = memoryview(text if text is not None else b"")
        self._by_name = columns[2].to_numpy()
        # Each message ends where the next one, or the index, starts.
        self._starts = np.append(columns[1].to_numpy(), reader._blocks["offset"][:1])
        self._check_starts()

    def _check_starts(self) -> None:
        """Check that the messages stand between the schema and the index in the order of their rows."""
        prefix = read_prefix(self._bytes(), _SCHEMA, self._name, self._limits)
        first = _SCHEMA if prefix is None else _SCHEMA + sum(prefix)
        if int(self._starts[0]) != first:
            raise InvalidData(f"{self._name}: the first message starts at {self._starts[0]}, expected {first}")
        back = self._starts[1:] <= self._starts[:-1]
        if back.any():
            row = int(back.argmax())
            raise InvalidData(
                f"{self._name}: the tensor of row {row} starts at {self._starts[row]}, and what follows it does at "
                f"{self._starts[row + 1]}"
            )

    def _bytes(self) -> Bytes:
        if self._data is None:
            raise Closed(f"the bundle {self._name} is closed")
        return self._data

    # --- names ---

    def _name_at(self, row: int) -> bytes:
        return bytes(self._text[max(int(self._ends[row]), 0) : max(int(self._ends[row + 1]), 0)])

    def _find(self, name: str) -> int | None:
        """The row of a name."""
        wanted = name.encode()
        low, high = 0, self._length
        while low < high:
            middle = (low + high) // 2
            row = int(self._by_name[middle])
            if not 0 <= row < self._length:
                raise InvalidData(f"{self._name}: row {row} in the order of names, of {self._length} rows")
            found = self._name_at(row)
            if found == wanted:
                return row
            if found < wanted:
                low = middle + 1
            else:
                high = middle
        return None

    def __contains__(self, name: object) -> bool:
        return isinstance(name, str) and self._find(name) is not None

    def __iter__(self) -> Iterator[str]:
        for row in range(self._length):
            yield self._text_at(row)

    def _text_at(self, row: int) -> str:
        try:
            return self._name_at(row).decode()
        except UnicodeDecodeError as error:
            raise InvalidData(f"{self._name}: the name of row {row} is not UTF-8: {error.reason}") from None

    def __len__(self) -> int:
        return self._length

    # --- tensors ---

    def __getitem__(self, name: str) -> Any:
        """The tensor of a name, over the bundle's memory.

        Raises
        ------
        FieldNotFound
            If there is none of this name.
        InvalidData
            If its message breaks the format, or is not what the index says.
        """
        if not isinstance(name, str):
            raise FieldNotFound(f"{self._name}: the names of tensors are strings, found {name!r}")
        self._bytes()
        row = self._find(name)
        if row is None:
            raise FieldNotFound(f"{self._name}: no tensor {name!r} among {self._length}")
        return self._read(row)

    def _read(self, row: int) -> Any:
        where = f"{self._name}: the tensor {self._text_at(row)!r}"
        start, end = int(self._starts[row]), int(self._starts[row + 1])
        data = self._bytes()[start:end]
        found = read_message(data, 0, where, self._limits)
        if found is None or found[1] + found[0].body_length != end - start:
            raise InvalidData(f"{where}: expected a message over all of [{start}, {end}), found a shorter one")
        message = found[0]
        if message.kind not in READERS:
            raise InvalidData(f"{where} is a {message.kind} message, expected a Tensor or a SparseTensor")
        tensor = READERS[message.kind](message, data[found[1] :], where)
        offset, length = message.header["data"].item()
        if padded(offset + length) != message.body_length:
            raise InvalidData(
                f"{where}: the elements end at {offset + length} of a body of {message.body_length} bytes"
            )
        return tensor

    def validate(self, *, full: bool = False) -> None:
        """Check every message, and the order of names; with ``full`` also the elements and all indices' values."""
        order = self._by_name
        if sorted(order.tolist()) != list(range(self._length)):
            raise InvalidData(f"{self._name}: the order of names is no permutation of {self._length} rows")
        names = [self._name_at(row) for row in order]
        for before, after in pairwise(names):
            if before >= after:
                raise InvalidData(f"{self._name}: the names {before!r} and {after!r} are not in order, or the same")
        for row in range(self._length):
            self._read(row).validate(full=full)

    def to_numpy(self) -> dict[str, Any]:
        """All dense tensors as ndarrays over the bundle's memory, and the sparse ones expanded."""
        return {
            name: tensor.to_numpy() if isinstance(tensor, Tensor) else tensor.to_dense()
            for name, tensor in self.items()
        }

    def to_torch(self, device: Any = None) -> dict[str, Any]:
        """All tensors in torch, for ``load_state_dict``; on the CPU over the bundle's memory, which is read-only."""
        return {name: tensor.to_torch(device) for name, tensor in self.items()}

    # --- the end ---

    def close(self) -> None:
        """Let go of the bundle; tensors that were handed out keep their mapping alive."""
        self._data = None
        self._text = memoryview(b"")
        self._length = 0

    def __enter__(self) -> Self:
        self._bytes()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<Bundle {self._name!r}, {self._length} tensors>" if self._data is not None else "<Bundle, closed>"
