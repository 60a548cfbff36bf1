"""Writing streams and files: the schema first, each dictionary before the batch that uses it, then batches.

A file is a stream between two magic words, with a footer that says where its blocks lie ("IPC File Format").
"""

from __future__ import annotations

import struct

import numpy as np

from shmarrow.ipc.batch.encode import IpcPayload
from shmarrow.ipc.file.reader import HEAD, MAGIC
from shmarrow.ipc.flatbuffers import builder as flatbuf_writer
from shmarrow.ipc.flatbuffers.tables import ENUMS, STRUCTS
from shmarrow.ipc.message.encode import key_values
from shmarrow.ipc.message.framing import end_of_stream
from shmarrow.ipc.options import IpcWriteOptions
from shmarrow.ipc.stream.writer import BatchWriter
from shmarrow.sources.source import Sink
from shmarrow.types import MetadataLike, Schema, as_metadata

_SIZE = struct.Struct("<i")


class RecordBatchFileWriter(BatchWriter):
    """Writes the file format: a stream, and a footer that says where its blocks are."""

    replaces = False

    def __init__(
        self, sink: Sink, schema: Schema, options: IpcWriteOptions | None, metadata: MetadataLike | None = None
    ) -> None:
        self._metadata = as_metadata(metadata)
        self._blocks: dict[bool, list[tuple[int, int, int]]] = {False: [], True: []}
        super().__init__(sink, schema, options)

    def _start(self) -> None:
        self._sink.write([MAGIC + bytes(HEAD - len(MAGIC))])
        super()._start()

    def _write_payload(self, plan: IpcPayload, dictionary: bool) -> None:
        position = self._sink.position
        super()._write_payload(plan, dictionary)
        self._blocks[dictionary].append((position, len(plan.metadata), plan.body_length))

    def _finish(self) -> None:
        builder, schema = self._encoded.start()
        values = {
            "version": ENUMS["MetadataVersion"][self.options.metadata_version],
            "schema": schema,
            "dictionaries": np.array(self._blocks[True], STRUCTS["Block"]),
            "recordBatches": np.array(self._blocks[False], STRUCTS["Block"]),
            "custom_metadata": key_values(self._metadata),
        }
        footer = flatbuf_writer.finish(builder, flatbuf_writer.add_table(builder, "Footer", values))
        self._sink.write([end_of_stream(self.options), footer, _SIZE.pack(len(footer)), MAGIC])
