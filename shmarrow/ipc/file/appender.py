"""Writing streams and files: the schema first, each dictionary before the batch that uses it, then batches.

A file is a stream between two magic words, with a footer that says where its blocks lie ("IPC File Format").
"""

from __future__ import annotations

from shmarrow.errors import InvalidData
from shmarrow.ipc.file.footer import blocks_of
from shmarrow.ipc.file.reader import HEAD, RecordBatchFileReader
from shmarrow.ipc.file.writer import RecordBatchFileWriter
from shmarrow.ipc.message.decode import read_message
from shmarrow.ipc.options import DEFAULT_OPTIONS, IpcWriteOptions
from shmarrow.ipc.schema.decode import encoded_fields
from shmarrow.ipc.schema.encode import encode_schema
from shmarrow.ipc.schema.lazy import LazySchema
from shmarrow.sources.sinks import Sink


class RecordBatchFileAppender(RecordBatchFileWriter):
    """Adds record batches to a file that exists.

    The file's messages go into a new file as they are, then the new ones, then a footer for all of them; closing puts
    the new file in the place of the old one. Readers of the old one keep it whole, and until the writer is closed
    nothing has changed.
    """

    def __init__(self, reader: RecordBatchFileReader, sink: Sink, options: IpcWriteOptions | None) -> None:
        source = reader.schema.source
        assert isinstance(source, LazySchema)
        self._reader = reader
        fields = encoded_fields([source.wire(i) for i in range(len(source))])
        self._fields = fields
        chosen = (options or DEFAULT_OPTIONS).replace(
            endianness="big" if source.big_endian else "little",
            metadata_version=reader.version_name,
        )
        super().__init__(sink, reader.schema, chosen, reader.metadata)

    def _start(self) -> None:
        reader = self._reader
        blocks = {False: reader._blocks, True: blocks_of(reader._footer["dictionaries"])}
        for dictionary, rows in blocks.items():
            self._blocks[dictionary] = [(int(at), int(meta), int(body)) for at, meta, body in rows.tolist()]
        ends = [sum(row) for rows in self._blocks.values() for row in rows]
        data = reader._bytes()
        first = read_message(data, HEAD, reader._source.name, reader._limits)
        if first is None:
            raise InvalidData(f"{reader._source.name}: no schema message at {HEAD}; rewrite the file to add to it")
        end = max([first[1], *ends])
        self._ids = [field.dictionary_id or 0 for field in self._fields]
        known = reader.dictionaries
        for field in self._fields:
            id = field.dictionary_id
            if id is not None and id in known and field.values is not None:
                self._known[id] = known[id].array(field.values)
        self._encoded = encode_schema(self.schema, self.options, self._ids)
        self._sink.write([data[:end], bytes(-end % 8)])
