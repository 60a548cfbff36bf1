"""Batches that are filled where they will be read: their columns are writable ndarrays inside the final object.

Rules kept here:

* the whole object is laid out and its space reserved before the first column is handed out, so a full file system is an
  error of `create` and never a signal later;
* what has no ndarray of its own in the format, bits, is filled in memory of its own and written at the end: truth
  values and validity. It lies behind the columns, and a validity that was not asked for takes no space;
* the metadata have their place from the start, and are written last.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping
from types import TracebackType
from typing import TYPE_CHECKING, Any, NamedTuple, Self

import numpy as np

from shmarrow import bitmap
from shmarrow.buffer import PADDING, Bytes, padded
from shmarrow.codecs import RECORD_BATCH
from shmarrow.errors import Closed, FieldNotFound, InvalidArgument, InvalidData, InvalidType, Unsupported
from shmarrow.ipc.file.writer import RecordBatchFileWriter
from shmarrow.ipc.flatbuffers.tables import STRUCTS
from shmarrow.ipc.message.encode import batch_message
from shmarrow.ipc.options import DEFAULT_OPTIONS
from shmarrow.layout.listing import LISTING
from shmarrow.segment import SegmentWriter
from shmarrow.sources import open_sink
from shmarrow.types import DataType, Field, Schema
from shmarrow.types.extension import ExtensionType

if TYPE_CHECKING:
    import numpy.typing as npt

_SIZE = struct.Struct("<i")
_BINARY = ("binary", "large_binary")
_NESTED = ("struct", "fixed_size_list")
_FLAT = ("primitive", "bool", "null")


class VariableSize(NamedTuple):
    """A column of strings or bytes that is being filled.

    Attributes
    ----------
    offsets : ndarray
        int32, or int64 for the large types, of shape (rows + 1,), zeros at first: slot ``i`` holds the bytes from
        ``offsets[i]`` to ``offsets[i + 1]``.
    data : uint8 ndarray
        The bytes of all slots.
    """

    offsets: npt.NDArray[Any]
    data: Bytes


class _Node:
    """A field of the schema, or a child of one, and its buffers."""

    __slots__ = ("data", "field", "length", "offsets", "path", "starts", "type", "valid", "values")

    def __init__(self, path: str, field: Field, length: int) -> None:
        self.path = path
        self.field = field
        self.type = storage_of(field.type)
        self.length = length
        self.valid: npt.NDArray[np.bool_] | None = None
        self.values: npt.NDArray[Any] | None = None
        self.offsets: npt.NDArray[Any] | None = None
        self.data: Bytes | None = None
        # Where its buffers that are filled in place lie in the body, by role, and how long they are.
        self.starts: dict[str, tuple[int, int]] = {}


class _DraftFile(RecordBatchFileWriter):
    """A file of one batch, whose place is taken first and whose metadata come last."""

    def __init__(self, writer: SegmentWriter, schema: Schema) -> None:
        self._writer = writer
        super().__init__(open_sink(writer), schema, DEFAULT_OPTIONS, RECORD_BATCH)
        self.start = self._sink.position

    def allocate(self, metadata: int, body: int) -> Bytes:
        return self._sink.allocate(metadata + body)[metadata:]

    def end(self, metadata: bytes, tail: list[Any], rows: int) -> None:
        """Write what was not filled in place, and publish."""
        allocated = self._sink.position - self.start - len(metadata)
        self._sink.write(tail)
        self._writer.write_at(self.start, [metadata])
        body = allocated + sum(map(len, tail))
        self._blocks["recordBatches"].append((self.start, len(metadata), body))
        self._row_counts = [(1, rows)]
        self.close()


class Draft:
    """A record batch that is filled in place; made by :meth:`Store.create`.

    As a context manager it publishes the batch at the end of the block, and discards it on an exception.
    ``draft[path]`` is a column: a writable ndarray for columns whose slots have a fixed width, a :class:`VariableSize`
    for strings and bytes. The columns of a struct have the path ``"struct.child"``; a fixed-size list is an ndarray of
    one more dimension.

    Attributes
    ----------
    name : str
        The name that the batch gets.
    schema : Schema
        Its fields.
    num_rows : int
        Its rows.

    Examples
    --------
    >>> import tempfile, shmarrow as sa
    >>> store = sa.Store(tempfile.mkdtemp())
    >>> schema = sa.schema([("x", sa.float64()), ("s", sa.string())])
    >>> with store.create("squares", schema, 3, bytes={"s": 6}) as draft:
    ...     draft["x"][:] = [0, 1, 4]
    ...     draft["s"].offsets[:] = [0, 2, 4, 6]
    ...     draft["s"].data[:] = np.frombuffer(b"abcdef", np.uint8)
    ...     draft.valid("x")[1] = False
    >>> store.get("squares").to_pydict()
    {'x': [0.0, None, 4.0], 's': ['ab', 'cd', 'ef']}
    """

    def __init__(
        self, name: str, writer: SegmentWriter, schema: Schema, num_rows: int, sizes: Mapping[str, int]
    ) -> None:
        self.name = name
        self.schema = schema
        self.num_rows = num_rows
        self._nodes = [node for field in schema.fields for node in _nodes(field.name, field, num_rows)]
        self._by_path = {node.path: node for node in self._nodes}
        if len(self._by_path) < len(self._nodes):
            raise InvalidArgument("columns are filled by their names, and two have the same one; put a batch instead")
        _check_sizes(sizes, self._nodes)
        allocated = _place(self._nodes, sizes)
        self._file = _DraftFile(writer, schema)
        self._reserved = 0
        try:
            # Nulls are counted at the end, and change no byte but those of their counts.
            reserved = len(self._metadata([(0, 0)] * self._buffers, 1))
            body = self._file.allocate(reserved, allocated)
        except BaseException:
            self._file.abort()
            raise
        self._reserved = reserved
        self._allocated = allocated
        self._open = True
        for node in reversed(self._nodes):
            self._map(node, body)

    def _map(self, node: _Node, body: Bytes) -> None:
        """Make the ndarrays that are filled; those of children are there already."""
        type = node.type
        parts = {role: body[start : start + size] for role, (start, size) in node.starts.items()}
        if type.layout in _BINARY:
            node.offsets = parts["offsets"].view("<i4" if type.layout == "binary" else "<i8")
            node.data = parts["data"]
        elif type.layout == "bool":
            node.values = np.zeros(node.length, np.bool_)
        elif type.layout == "primitive" and type.storage is not None:
            flat = parts["values"].view(type.storage.base).reshape(node.length, *type.storage.shape)
            dtype = type.numpy_dtype
            node.values = flat if dtype is None or dtype.itemsize != type.storage.itemsize else flat.view(dtype)
        elif type.layout == "fixed_size_list":
            inner = self._by_path[f"{node.path}.{type.fields[0].name}"].values
            if inner is not None:
                node.values = inner.reshape(node.length, _list_size(type), *inner.shape[1:])

    @property
    def _buffers(self) -> int:
        return sum([len(LISTING[node.type.layout].buffers) for node in self._nodes])

    def _metadata(self, buffers: list[tuple[int, int]], body: int) -> bytes:
        nodes = [(node.length, _null_count(node)) for node in self._nodes]
        header = {
            "length": self.num_rows,
            "nodes": np.array(nodes, STRUCTS["FieldNode"]),
            "buffers": np.array(buffers, STRUCTS["Buffer"]),
        }
        metadata = batch_message(header, body, None, DEFAULT_OPTIONS, self._file.start)
        gap = max(self._reserved - len(metadata), 0)  # a body of no bytes is not mentioned
        return metadata if not gap else metadata[:4] + _SIZE.pack(self._reserved - 8) + metadata[8:] + bytes(gap)

    # --- filling ---

    @property
    def columns(self) -> list[str]:
        """The paths of all columns that can be filled."""
        return [node.path for node in self._nodes if node.values is not None or node.offsets is not None]

    def __getitem__(self, path: str) -> Any:
        node = self._node(path)
        if node.offsets is not None and node.data is not None:
            return VariableSize(node.offsets, node.data)
        if node.values is None:
            raise FieldNotFound(f"{path!r} is {node.field.type}, which has no values of its own; see Draft.columns")
        return node.values

    def __iter__(self) -> Iterator[str]:
        return iter(self.columns)

    def valid(self, path: str) -> npt.NDArray[np.bool_]:
        """Which slots of a column are valid: a writable bool ndarray of shape (slots,), all True at first.

        Raises
        ------
        InvalidArgument
            If the field is not nullable.
        """
        node = self._node(path)
        if not node.field.nullable or not LISTING[node.type.layout].has_validity:
            raise InvalidArgument(f"column {path!r} ({node.field}) can have no nulls")
        if node.valid is None:
            node.valid = np.ones(node.length, np.bool_)
        return node.valid

    def _node(self, path: str) -> _Node:
        if not self._open:
            raise Closed(f"the draft {self.name!r} was published or discarded; create a new one")
        node = self._by_path.get(path)
        if node is None:
            raise FieldNotFound(f"no column {path!r} in the draft {self.name!r}; there are {', '.join(self.columns)}")
        return node

    # --- the end ---

    def publish(self) -> None:
        """Give the batch its name. Arrays that were handed out become read-only; slices of them must not be written to.

        Raises
        ------
        InvalidData
            If the offsets of a column are not in order or lead out of its bytes. Nothing is published then.
        ObjectExists
            If another object took the name.
        """
        if not self._open:
            raise Closed(f"the draft {self.name!r} was published or discarded; create a new one")
        self._open = False
        try:
            buffers, tail = self._finish()
            metadata = self._metadata(buffers, self._allocated + sum(map(len, tail)))
            self._file.end(metadata, tail, self.num_rows)
        except BaseException:
            self._file.abort()
            raise

    def _finish(self) -> tuple[list[tuple[int, int]], list[Any]]:
        """Where all buffers lie in the body, and what is written behind those that were filled in place."""
        buffers: list[tuple[int, int]] = []
        tail: list[Any] = []
        end = self._allocated
        for node in self._nodes:
            _check_offsets(node)
            for row in LISTING[node.type.layout].buffers:
                bits = node.valid if row.role == "validity" else node.values if row.bits == 1 else None
                if row.role == "validity" and not _null_count(node):
                    buffers.append((0, 0))
                elif bits is None:
                    buffers.append(node.starts[row.role])
                else:
                    data = bitmap.pack(bits)
                    tail += [data, PADDING[: -len(data) % len(PADDING)]]
                    buffers.append((end, len(data)))
                    end += padded(len(data))
            for filled in (node.values, node.offsets, node.data):
                if filled is not None:
                    filled.flags.writeable = False
        return buffers, tail

    def discard(self) -> None:
        """Drop the batch; nothing of it is left. Safe to call again."""
        if self._open:
            self._open = False
            self._file.abort()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is not None:
            self.discard()
        elif self._open:
            self.publish()

    def __repr__(self) -> str:
        return f"<Draft {self.name!r}, {self.num_rows} rows{'' if self._open else ', closed'}>"


def _nodes(path: str, field: Field, length: int) -> Iterator[_Node]:
    """A field and its children, as the format orders them."""
    type = storage_of(field.type)
    layout = type.layout
    if layout not in (*_FLAT, *_BINARY, *_NESTED):
        raise Unsupported(
            f"column {path!r}: {field.type} is not filled in place, as its size is known only from its values; "
            "use put or writer"
        )
    yield _Node(path, field, length)
    step = _list_size(type) if layout == "fixed_size_list" else 1
    for child in type.fields:
        yield from _nodes(f"{path}.{child.name}", child, length * step)


def storage_of(type: DataType) -> DataType:
    """The type that values lie in memory as: that of an extension type's storage."""
    return type.storage_type if isinstance(type, ExtensionType) else type


def _list_size(type: Any) -> int:
    size: int = type.list_size
    return size


def _check_sizes(sizes: Mapping[str, int], nodes: list[_Node]) -> None:
    variable = {node.path for node in nodes if node.type.layout in _BINARY}
    if variable != set(sizes):
        raise InvalidArgument(
            f"expected bytes for the columns of variable size, {sorted(variable)}, found {sorted(sizes)}"
        )
    for path, size in sizes.items():
        if not isinstance(size, int) or size < 0:
            raise InvalidArgument(f"column {path!r}: the number of bytes is 0 or more, found {size!r}")


def _place(nodes: list[_Node], sizes: Mapping[str, int]) -> int:
    """Give the buffers that are filled in place their place; the bytes that they take."""
    end = 0
    for node in nodes:
        for row in LISTING[node.type.layout].buffers:
            if row.role == "validity" or row.bits == 1:
                continue
            size = (
                sizes[node.path]
                if row.bits < 0
                else (node.length + row.extra) * (row.bits >> 3 or node.type.byte_width)
            )
            node.starts[row.role] = end, size
            end += padded(size)
    return end


def _null_count(node: _Node) -> int:
    if node.type.layout == "null":
        return node.length
    return 0 if node.valid is None else node.length - int(np.count_nonzero(node.valid))


def _check_offsets(node: _Node) -> None:
    offsets, data = node.offsets, node.data
    if offsets is None or data is None:
        return
    if offsets[0] < 0 or offsets[-1] > len(data) or bool((offsets[1:] < offsets[:-1]).any()):
        raise InvalidData(
            f"column {node.path!r}: offsets go up from 0 to at most {len(data)}, the bytes that it was created with; "
            f"found {offsets[0]} to {offsets[-1]}, lowest {offsets.min()}, highest {offsets.max()}"
        )


def checked_rows(schema: Any, num_rows: Any) -> None:
    """Check what a draft is made of.

    Raises
    ------
    InvalidType, InvalidArgument
        If it is not a schema, or not a number of rows.
    """
    if not isinstance(schema, Schema):
        raise InvalidType(f"expected a Schema, found {type(schema).__name__}")
    if not isinstance(num_rows, int) or num_rows < 0:
        raise InvalidArgument(f"the number of rows is 0 or more, found {num_rows!r}")
