"""Writing files ("IPC File Format"): a stream between two magic words, and a footer that says where its blocks lie."""

from __future__ import annotations

import numpy as np

from shmarrow.ipc.batch.encode import IpcPayload
from shmarrow.ipc.file.footer import HEAD, MAGIC, ROW_COUNTS, SIZE, Block, RowCounts, add_rows, encode_row_counts
from shmarrow.ipc.flatbuffers import builder as flatbuf_writer
from shmarrow.ipc.flatbuffers.tables import ENUMS, STRUCTS
from shmarrow.ipc.message.encode import key_values
from shmarrow.ipc.message.framing import end_of_stream
from shmarrow.ipc.options import IpcWriteOptions
from shmarrow.ipc.stream.writer import BatchWriter
from shmarrow.sources.sinks import Sink
from shmarrow.types import MetadataLike, Schema, as_metadata


class RecordBatchFileWriter(BatchWriter):
    """Writes the file format: a stream, and a footer that says where its blocks are; made by :func:`new_file`.

    Where there are several batches, the footer's metadata get one key more than the user's, with the number of rows of
    each batch; readers of shmarrow do not show it.
    """

    replaces = False

    def __init__(
        self, sink: Sink, schema: Schema, options: IpcWriteOptions | None, metadata: MetadataLike | None = None
    ) -> None:
        self._metadata = as_metadata(metadata)
        self._blocks: dict[str, list[Block]] = {"dictionaries": [], "recordBatches": []}
        self._row_counts: RowCounts = []
        super().__init__(sink, schema, options)

    def _start(self) -> None:
        self._sink.write([MAGIC + bytes(HEAD - len(MAGIC))])
        super()._start()

    def _add_block(self, position: int, payload: IpcPayload, rows: int | None) -> None:
        block = position, len(payload.metadata), payload.body_length
        self._blocks["dictionaries" if rows is None else "recordBatches"].append(block)
        if rows is not None:
            add_rows(self._row_counts, rows)

    def _finish(self) -> None:
        builder, schema = self._encoded.start()
        metadata = dict(self._metadata or {})
        if len(self._blocks["recordBatches"]) > 1:  # the metadata of one batch are read as fast
            metadata[ROW_COUNTS] = encode_row_counts(self._row_counts)
        values = {
            "version": ENUMS["MetadataVersion"][self.options.metadata_version],
            "schema": schema,
            **{name: np.array(blocks, STRUCTS["Block"]) for name, blocks in self._blocks.items()},
            "custom_metadata": key_values(metadata),
        }
        footer = flatbuf_writer.finish(builder, flatbuf_writer.add_table(builder, "Footer", values))
        self._sink.write([end_of_stream(self.options), footer, SIZE.pack(len(footer)), MAGIC])
