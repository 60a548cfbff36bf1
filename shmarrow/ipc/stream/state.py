# SPDX-License-Identifier: Apache-2.0
"""The state of a stream after some of its messages ("IPC Streaming Format").

A :class:`StreamState` is immutable, and each message gives the next one. Whoever reads a stream has one state, and
replaces it by one assignment per message: an exception at any time, from a signal handler for example, leaves the old
state or the new one, so the message can be read again and nothing has to be undone.
"""

from __future__ import annotations

from functools import partial
from typing import Any, NamedTuple

from shmarrow.columns import RecordBatch
from shmarrow.errors import InvalidData, Limits, Unsupported
from shmarrow.ipc.batch.decode import BatchHeader, dictionary_body, open_batch
from shmarrow.ipc.batch.dictionaries import Dictionary, DictionaryBudget, LayeredMap
from shmarrow.ipc.message.decode import Message
from shmarrow.ipc.schema.lazy import LazySchema, inner_dictionaries, read_schema
from shmarrow.types import Schema


class IpcStats(NamedTuple):
    """Numbers of messages read or written, by kind.

    Attributes
    ----------
    num_messages : int
        All messages, with the schema.
    num_record_batches : int
        Record batches.
    num_dictionary_batches : int
        Dictionaries, deltas and replacements included.
    num_dictionary_deltas : int
        Those that extend the dictionary of their id.
    num_replaced_dictionaries : int
        Those that replace an earlier one of their id.
    """

    num_messages: int
    num_record_batches: int
    num_dictionary_batches: int
    num_dictionary_deltas: int
    num_replaced_dictionaries: int


class StreamState(NamedTuple):
    """The state of a stream after some of its messages; immutable.

    Attributes
    ----------
    offset : int
        Bytes of the messages so far; the offset of the next one.
    batches : int
        Number of record batches so far.
    where : str
        Describes the stream in errors.
    limits : Limits
        Bounds on what is accepted.
    budget : DictionaryBudget
        Memory of the stream's decoded dictionaries.
    schema : Schema or None
        The schema, once read.
    dictionaries : LayeredMap of Dictionary
        The current version of each dictionary.
    dictionary_batches, deltas, replaced : int
        Number of dictionary batches, those that extend a dictionary, and those that replace one.
    ended : bool
        Whether the stream has ended.
    """

    offset: int
    batches: int
    where: str
    limits: Limits
    budget: DictionaryBudget
    schema: Schema | None = None
    dictionaries: LayeredMap[Dictionary] = LayeredMap()
    dictionary_batches: int = 0
    deltas: int = 0
    replaced: int = 0
    ended: bool = False

    @property
    def stats(self) -> IpcStats:
        """Number of messages so far, by kind."""
        messages = (self.schema is not None) + self.dictionary_batches + self.batches
        return IpcStats(messages, self.batches, self.dictionary_batches, self.deltas, self.replaced)

    def after(self, message: BatchHeader | Message, body: Any, end: int) -> StreamState:
        """The state after a message that ends at offset ``end``; decodes no values.

        Raises
        ------
        InvalidData
            If the message is invalid, or must not follow those before it.
        Unsupported
            If it is a tensor.
        """
        if isinstance(message, BatchHeader):
            if self.schema is None:
                raise self._no_schema("RecordBatch")
            return _state((end, self.batches + 1, *self[2:]))
        kind = message.kind
        if kind == "Schema":
            if self.schema is not None:
                raise InvalidData(f"{self.where}: a second schema in one stream")
            header = message.header
            schema = read_schema(header.reader.data, header.position, header.reader.where, self.limits)
            return self._replace(offset=end, schema=schema)
        if kind != "DictionaryBatch":
            raise Unsupported(
                f"{self.where}: a {kind} message in a stream of record batches; ipc.read_tensors reads it"
            )
        if self.schema is None:
            raise self._no_schema(kind)
        content, id, delta = dictionary_body(message, body, self.schema, self._inner(message), self.where, self.limits)
        earlier = self.dictionaries.get(id)
        if delta and earlier is None:
            raise InvalidData(f"{self.where}: a delta for dictionary {id}, which does not precede it")
        dictionary = Dictionary(id, content, earlier if delta else None, self.offset, self.budget)
        return self._replace(
            offset=end,
            dictionaries=self.dictionaries.with_entry(id, dictionary),
            dictionary_batches=self.dictionary_batches + 1,
            deltas=self.deltas + delta,
            replaced=self.replaced + (earlier is not None and not delta),
        )

    def batch(self, header: BatchHeader | Message, body: Any) -> RecordBatch:
        """The record batch of the next message, with the dictionaries as they are now; columns are built on access."""
        where = f"{self.where}: batch {self.batches}"
        assert self.schema is not None  # else there is no state after it
        return open_batch(header, body, self.schema, self.dictionaries, where, self.limits)

    def _no_schema(self, kind: str) -> InvalidData:
        return InvalidData(f"{self.where}: the stream begins with a {kind}, expected a Schema")

    def _inner(self, message: Message) -> dict[int, Dictionary]:
        """The dictionaries that the values of a dictionary batch refer to, as they are now."""
        assert self.schema is not None
        source = LazySchema.of(self.schema)
        values = source.dictionary_layouts().get(message.header["id"]) if source.nested_dictionaries else None
        if values is None:
            return {}
        inner = {id: self.dictionaries.get(id) for id in inner_dictionaries(values)}
        return {id: dictionary for id, dictionary in inner.items() if dictionary is not None}


_state = partial(tuple.__new__, StreamState)
