"""Reading the file format ("IPC File Format"): a stream between two magic words, and a footer of where its blocks lie.

Rules kept here:

* opening reads the footer's root and nothing more; a batch is found by its block, at a cost that does not depend on
  how many there are;
* dictionaries may lie anywhere in the file; they are read when the first column needs one. There is one for each id,
  and deltas, in the order of the footer;
* every block is checked to lie between the magic and the footer before it is followed.
"""

from __future__ import annotations

import struct
import weakref
from collections.abc import Iterable, Iterator, Mapping
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from shmarrow.batch import RecordBatch
from shmarrow.buffer import Bytes
from shmarrow.errors import Closed, IndexOutOfRange, InvalidData, LimitExceeded, Limits
from shmarrow.ipc import flatbuf
from shmarrow.ipc.batch import check_zero_copy, dictionary_body, plain_batch, read_batch
from shmarrow.ipc.dictionary import Dictionary, add_dictionary
from shmarrow.ipc.flatbuf import ENUMS, STRUCTS, Reader
from shmarrow.ipc.message import Message, check_version, read_key_values, read_message
from shmarrow.ipc.quick import batch_header, footer_header
from shmarrow.ipc.schema_cache import KnownFile, known_file, read_schema, remember_file
from shmarrow.ipc.source import Source
from shmarrow.tables import Table
from shmarrow.types import Metadata, Schema

if TYPE_CHECKING:
    import numpy.typing as npt

    from shmarrow.ipc.projection import Projection

MAGIC = b"ARROW1"
HEAD = 8
_TAIL = 4 + len(MAGIC)
_SIZE = struct.Struct("<i")
_BLOCK = STRUCTS["Block"]
_BLOCK_ROW = struct.Struct("<qi4xq")
_NO_BLOCKS = np.empty(0, _BLOCK)
_FOOTER_HEAD = _HEADER_HEAD = 512
_COPIED_METADATA, _WIDE_METADATA = 1 << 12, 1 << 17

_Block = tuple[int, int, int]


class RecordBatchFileReader:
    """Reads a file: any batch at random, each column when it is asked for, nothing copied.

    Attributes
    ----------
    metadata : dict of bytes to bytes, or None
        The footer's own metadata.
    """

    def __init__(
        self,
        source: Source,
        limits: Limits,
        zero_copy_only: bool = False,
        included_fields: Iterable[int | str] | None = None,
    ) -> None:
        self._source = source
        self._limits = limits
        self._zero_copy_only = zero_copy_only
        whole = source.all()
        identity = source.sealed_identity
        known = known_file(identity, limits)
        if known is None:
            self._end, length = _footer_place(whole, source, limits)
            root = footer_header(whole[self._end : self._end + min(length, _FOOTER_HEAD)].tobytes(), length)
        else:
            self._end, length, root, self._full_schema = known.footer, known.footer_size, known.root, known.schema
        self._data: Bytes | None = whole[: self._end]  # what blocks may lead to
        self._footer_bytes = whole[self._end : self._end + length]
        self._root: flatbuf.TableView | None = None
        position: int | None = None
        self._blocks_at: int | None = None
        if root is not None:
            _, start, count, position = root
            found = np.ndarray(count, _BLOCK, self._footer_bytes, start) if count else _NO_BLOCKS
            self._blocks: npt.NDArray[Any] = found
            self._blocks_at = self._end + start
        else:
            version = self._footer["version"]
            if version > ENUMS["MetadataVersion"]["V5"]:  # old writers left theirs out, so it says V1 there
                check_version(version, source.name)
            self._blocks = blocks_of(self._footer["recordBatches"])
        if known is None:
            self._full_schema = self._read_schema(position)
            remember_file(identity, limits, KnownFile(self._end, length, root, self._full_schema))
        self._included: Projection | None = None
        if included_fields is not None:
            from shmarrow.ipc.projection import Projection

            self._included = Projection(self._full_schema, included_fields)
        self._dictionaries: _FileDictionaries | None = None

    @property
    def _footer(self) -> flatbuf.TableView:
        """The footer's root table."""
        if self._root is None:
            self._root = _root_of(self._footer_bytes, self._source.name, self._limits)
        return self._root

    def _read_schema(self, position: int | None) -> Schema:
        name = self._source.name
        if position is None:
            table = self._footer["schema"]
            if table is None:
                raise InvalidData(f"{name}: the footer has no schema")
            position = table.position
        mapped = self._source.mapped
        return read_schema(self._footer_bytes, position, f"{name}: footer", self._limits, mapped, footer=True)

    @property
    def schema(self) -> Schema:
        """The schema of all batches."""
        return (self._full_schema if self._included is None else self._included.schema).kept()

    @property
    def metadata(self) -> Metadata | None:
        return read_key_values(self._footer["custom_metadata"])

    @property
    def version_name(self) -> str:
        """The metadata version of the file's messages: of the first batch, or of the footer where there is none."""
        if not len(self._blocks):
            return "V4" if self._footer["version"] == ENUMS["MetadataVersion"]["V4"] else "V5"
        message, _ = _read_block(self._bytes(), self._block(0), f"{self._source.name}: batch 0", self._limits)
        return "V4" if message.version == ENUMS["MetadataVersion"]["V4"] else "V5"

    @property
    def dictionaries(self) -> Mapping[int, Dictionary]:
        """The file's dictionaries by id."""
        if self._dictionaries is None:
            self._dictionaries = _FileDictionaries(
                self._bytes(), self._footer_bytes, self._full_schema, self._source.name, self._limits
            )
        return self._dictionaries

    @property
    def num_record_batches(self) -> int:
        """How many batches the file has."""
        return len(self._blocks)

    def _bytes(self) -> Bytes:
        if self._data is None:
            raise Closed(f"the reader of {self._source.name} is closed")
        return self._data

    def get_batch(self, index: int) -> RecordBatch:
        """A batch by its number, from 0; negative numbers count from the end.

        Raises
        ------
        IndexOutOfRange
            If there are fewer batches.
        InvalidData
            If its block or message breaks the format.
        """
        count = len(self._blocks)
        if not -count <= index < count:
            raise IndexOutOfRange(f"no batch {index}: {self._source.name} has {count}")
        index += count if index < 0 else 0
        what = f"batch {index}"
        where = f"{self._source.name}: {what}"
        data = self._bytes()
        block = self._block(index)
        batch = self._plain(data, block, where)
        if batch is None:
            message, body = _read_block(data, block, where, self._limits)
            if message.kind != "RecordBatch":
                raise InvalidData(f"{where} is a {message.kind} message, expected a RecordBatch")
            batch = read_batch(message, body, self._full_schema, self.dictionaries, where, self._limits)
        if self._zero_copy_only:
            check_zero_copy(batch, where)
        return batch if self._included is None else self._included.of(batch)

    get_record_batch = get_batch

    def _block(self, index: int) -> _Block:
        """The place of a batch; where the file is large, without touching a page of it for that."""
        if self._blocks_at is None:
            return _row(self._blocks[index])
        found = self._source.peek(self._blocks_at + _BLOCK.itemsize * index, _BLOCK.itemsize)
        offset, metadata_length, body_length = _BLOCK_ROW.unpack(found)
        return offset, metadata_length, body_length

    def _plain(self, data: Bytes, block: _Block, where: str) -> RecordBatch | None:
        """The batch that a block leads to, where its header is plain."""
        offset, metadata_length, body_length = block
        body_at = offset + metadata_length
        if offset < 0 or metadata_length < 16 or body_length < 0 or body_at + body_length > len(data):
            return None
        large = self._source.large
        if large and metadata_length <= _COPIED_METADATA:
            own = np.frombuffer(self._source.peek(offset, metadata_length), np.uint8)
            header = batch_header(own, own.data, 0, metadata_length)
        elif not large or metadata_length < _WIDE_METADATA:
            header = batch_header(data, data.data, offset, metadata_length)
        else:
            head = memoryview(self._source.peek(offset, _HEADER_HEAD))
            header = batch_header(data, head, offset, metadata_length, self._source.peek)
        if header is None or header.body_length != body_length or metadata_length > self._limits.metadata_bytes:
            return None
        body = data[body_at : body_at + body_length]
        return plain_batch(header, body, self._full_schema, self.dictionaries, where, self._limits)

    def __len__(self) -> int:
        return len(self._blocks)

    def __getitem__(self, index: int) -> RecordBatch:
        return self.get_batch(index)

    def __iter__(self) -> Iterator[RecordBatch]:
        for i in range(len(self._blocks)):
            yield self.get_batch(i)

    def read_all(self) -> Table:
        """All batches, as a table; copies nothing."""
        return Table(self.schema, list(self))

    def close(self) -> None:
        """Let go of the file; arrays and batches that were handed out keep their mapping alive."""
        self._data = None
        self._source.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class _FileDictionaries(Mapping[int, Dictionary]):
    """The dictionaries of a file by id, read when the first one is asked for.

    Batches that outlive their reader hold it, so it holds the bytes and not the reader.
    """

    def __init__(self, data: Bytes, footer: Bytes, schema: Schema, name: str, limits: Limits) -> None:
        self._data = data
        self._footer = footer
        self._schema = schema
        self._name = name
        self._limits = limits
        self._known: dict[int, Dictionary] | None = None

    def _read(self) -> dict[int, Dictionary]:
        if self._known is not None:
            return self._known
        known: dict[int, Dictionary] = {}
        total = 0
        root = _root_of(self._footer, self._name, self._limits)
        for i, block in enumerate(blocks_of(root["dictionaries"])):
            where = f"{self._name}: dictionary block {i}"
            message, body = _read_block(self._data, _row(block), where, self._limits)
            total += len(body)
            if total > len(self._data):
                raise InvalidData(f"{where}: the blocks overlap, they add up to {total} of {len(self._data)} bytes")
            if message.kind != "DictionaryBatch":
                raise InvalidData(f"{where} is a {message.kind} message, expected a DictionaryBatch")
            # Dictionaries within dictionaries may lie anywhere, so each is given all of them, through a reference
            # that does not hold this object in a cycle.
            found = weakref.proxy(self)
            content, id, delta = dictionary_body(message, body, self._schema, found, self._name, self._limits)
            if id in known and not delta:
                raise InvalidData(f"{where} replaces dictionary {id}; a file holds one of each id, and deltas")
            add_dictionary(known, id, content, delta, where, self._limits)
        self._known = known
        return known

    def __getitem__(self, id: int) -> Dictionary:
        return self._read()[id]

    def __iter__(self) -> Iterator[int]:
        return iter(self._read())

    def __len__(self) -> int:
        return len(self._read())


def _root_of(footer: Bytes, name: str, limits: Limits) -> flatbuf.TableView:
    return Reader(footer, f"{name}: footer", limits).root("Footer")


def _row(block: Any) -> _Block:
    offset, metadata_length, body_length = block.item()
    return offset, metadata_length, body_length


def _read_block(data: Bytes, block: _Block, where: str, limits: Limits) -> tuple[Message, Bytes]:
    """The message that a block leads to, and its body; ``data`` ends where the footer starts."""
    offset, metadata_length, body_length = block
    if offset < 0 or metadata_length < 8 or body_length < 0 or offset + metadata_length + body_length > len(data):
        raise InvalidData(
            f"{where} needs [{offset}, {offset + metadata_length + body_length}), "
            f"{metadata_length} bytes of it metadata, but the footer starts at {len(data)}"
        )
    found = read_message(data, offset, where, limits)
    if found is None:
        raise InvalidData(f"{where}: its block leads to an end of stream at {offset}")
    message, start = found
    if start != offset + metadata_length or message.body_length != body_length:
        raise InvalidData(
            f"{where}: the footer says {metadata_length} bytes of metadata and {body_length} of body, "
            f"the message {start - offset} and {message.body_length}"
        )
    return message, data[start : start + body_length]


def _footer_place(data: Bytes, source: Source, limits: Limits) -> tuple[int, int]:
    """Where the footer starts, and its size."""
    size = len(data)
    name = source.name
    if size < HEAD + _TAIL:
        raise InvalidData(f"{name}: an Arrow file has at least {HEAD + _TAIL} bytes, found {size}")
    head, end = source.peek(0, len(MAGIC)), source.peek(size - _TAIL, _TAIL)
    tail = end[4:]
    if head != MAGIC:
        raise InvalidData(f"{name}: no Arrow file: expected {MAGIC!r} at its start, found {head!r}; is it a stream?")
    if tail != MAGIC:
        raise InvalidData(
            f"{name}: the file is cut: expected {MAGIC!r} at its end, [{size - 6}, {size}), found {tail!r}"
        )
    (length,) = _SIZE.unpack_from(end)
    start = size - _TAIL - length
    if length <= 0 or start < HEAD:
        raise InvalidData(f"{name}: the footer says that it has {length} bytes, but {size - _TAIL - HEAD} are there")
    if length > limits.metadata_bytes:
        raise LimitExceeded(
            f"{name}: a footer of {length} bytes, more than Limits.metadata_bytes = {limits.metadata_bytes}"
        )
    return start, int(length)


def blocks_of(vector: npt.NDArray[Any] | None) -> npt.NDArray[Any]:
    """The blocks that a footer's slot lists."""
    return _NO_BLOCKS if vector is None else vector
