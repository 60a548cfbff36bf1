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
from typing import TYPE_CHECKING, Self

import numpy as np

from shmarrow.batch import RecordBatch
from shmarrow.buffer import Bytes
from shmarrow.errors import Closed, IndexOutOfRange, InvalidData, Limits
from shmarrow.ipc.batch.decode import check_zero_copy, dictionary_body, plain_batch, read_batch
from shmarrow.ipc.batch.dictionaries import Dictionary, add_dictionary
from shmarrow.ipc.batch.header import batch_header
from shmarrow.ipc.file.footer import block_row, blocks_of, footer_place, read_block, root_of
from shmarrow.ipc.flatbuffers.tables import ENUMS, STRUCTS
from shmarrow.ipc.message.decode import check_version, read_key_values
from shmarrow.ipc.schema.cache import read_schema
from shmarrow.sources.source import Source
from shmarrow.tables import Table
from shmarrow.types import Metadata, Schema

if TYPE_CHECKING:
    from shmarrow.ipc.batch.projection import Projection

MAGIC = b"ARROW1"
HEAD = 8
_TAIL = 4 + len(MAGIC)
_SIZE = struct.Struct("<i")
_BLOCK = STRUCTS["Block"]
_NO_BLOCKS = np.empty(0, _BLOCK)

Block = tuple[int, int, int]


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
        self._end, length = footer_place(whole, source, limits)
        self._data: Bytes | None = whole[: self._end]  # what blocks may lead to
        self._footer_bytes = whole[self._end : self._end + length]
        self._footer = root_of(self._footer_bytes, source.name, limits)
        version = self._footer["version"]
        if version > ENUMS["MetadataVersion"]["V5"]:  # old writers left theirs out, so it says V1 there
            check_version(version, source.name)
        self._blocks = blocks_of(self._footer["recordBatches"])
        self._full_schema = self._read_schema()
        self._included: Projection | None = None
        if included_fields is not None:
            from shmarrow.ipc.batch.projection import Projection

            self._included = Projection(self._full_schema, included_fields)
        self._dictionaries: _FileDictionaries | None = None

    def _read_schema(self) -> Schema:
        name = self._source.name
        table = self._footer["schema"]
        if table is None:
            raise InvalidData(f"{name}: the footer has no schema")
        where = f"{name}: footer"
        return read_schema(self._footer_bytes, table.position, where, self._limits, self._source.mapped, footer=True)

    @property
    def schema(self) -> Schema:
        """The schema of all batches."""
        return (self._full_schema if self._included is None else self._included.schema).detach()

    @property
    def metadata(self) -> Metadata | None:
        return read_key_values(self._footer["custom_metadata"])

    @property
    def version_name(self) -> str:
        """The metadata version of the file's messages: of the first batch, or of the footer where there is none."""
        if not len(self._blocks):
            return "V4" if self._footer["version"] == ENUMS["MetadataVersion"]["V4"] else "V5"
        message, _ = read_block(
            self._bytes(), block_row(self._blocks[0]), f"{self._source.name}: batch 0", self._limits
        )
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
        block = block_row(self._blocks[index])
        batch = self._plain(data, block, where)
        if batch is None:
            message, body = read_block(data, block, where, self._limits)
            if message.kind != "RecordBatch":
                raise InvalidData(f"{where} is a {message.kind} message, expected a RecordBatch")
            batch = read_batch(message, body, self._full_schema, self.dictionaries, where, self._limits)
        if self._zero_copy_only:
            check_zero_copy(batch, where)
        return batch if self._included is None else self._included.of(batch)

    get_record_batch = get_batch

    def _plain(self, data: Bytes, block: Block, where: str) -> RecordBatch | None:
        """The batch that a block leads to, where its header is plain."""
        offset, metadata_length, body_length = block
        body_at = offset + metadata_length
        if offset < 0 or metadata_length < 16 or body_length < 0 or body_at + body_length > len(data):
            return None
        header = batch_header(data, data.data, offset, metadata_length)
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
        root = root_of(self._footer, self._name, self._limits)
        for i, block in enumerate(blocks_of(root["dictionaries"])):
            where = f"{self._name}: dictionary block {i}"
            message, body = read_block(self._data, block_row(block), where, self._limits)
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
