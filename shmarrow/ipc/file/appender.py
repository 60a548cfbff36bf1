"""Appending record batches to an existing file."""

from __future__ import annotations

from shmarrow.buffer import NDArray
from shmarrow.errors import InvalidData
from shmarrow.ipc.file.footer import HEAD
from shmarrow.ipc.file.reader import RecordBatchFileReader
from shmarrow.ipc.file.writer import RecordBatchFileWriter
from shmarrow.ipc.flatbuffers.tables import ENUMS
from shmarrow.ipc.message.decode import message_at
from shmarrow.ipc.options import IpcWriteOptions
from shmarrow.ipc.schema.decode import encoded_fields
from shmarrow.ipc.schema.encode import encode_schema
from shmarrow.ipc.schema.lazy import LazySchema
from shmarrow.writer import Sink


class RecordBatchFileAppender(RecordBatchFileWriter):
    """Appends record batches to an existing file; made by :func:`append_file`.

    Copies the old messages to a new file, followed by the new ones and a common footer; closing atomically replaces the
    old file. Existing readers keep the old version. The old file stays open and mapped until the writer is closed, so
    its inode cannot be reused and a concurrent replacement is detected.
    """

    def __init__(self, reader: RecordBatchFileReader, sink: Sink, options: IpcWriteOptions | None) -> None:
        self._reader = reader
        super().__init__(sink, reader.schema, options, reader.metadata)

    def _start(self) -> None:
        reader = self._reader
        self.options = self.options.replace(
            endianness="big" if LazySchema.of(reader.schema).big_endian else "little",
            metadata_version=_version_name(reader),
        )
        file = reader._opened().file
        for name, blocks in (("recordBatches", file.footer.batches), ("dictionaries", file.footer.dictionaries)):
            _check_blocks(blocks, len(file.data), f"{file.name}: {name}")
            self._blocks[name] = [(at, meta, body) for at, meta, body in blocks.tolist()]
        statistics = reader.statistics
        if statistics is not None:
            from shmarrow.ipc.file.statistics import Collector

            self._statistics = Collector(self.schema, statistics.schema.names)
            self._statistics.resume(statistics)
        self._row_counts = reader._opened().read_rows()  # from the batches: the old footer's counts are hints
        first = message_at(file.data, HEAD, file.name, file.limits)
        if first is None:
            raise InvalidData(f"{file.name}: no schema message at {HEAD}; rewrite the file before appending to it")
        end = max([first.body, *[sum(block) for blocks in self._blocks.values() for block in blocks]])
        source = LazySchema.of(reader.schema)
        fields = encoded_fields([source.layout(i) for i in range(len(source))])
        self._ids = [field.dictionary_id or 0 for field in fields]
        for field in fields:
            id = field.dictionary_id
            if id is not None and id in reader.dictionaries and field.values is not None:
                self._last_written[id] = reader.dictionaries[id].array(field.values)
        self._encoded = encode_schema(self.schema, self.options, self._ids)
        self._sink.write([file.data[:end], bytes(-end % 8)])

    def _drop(self) -> None:
        super()._drop()
        self._reader.close()


def _check_blocks(blocks: NDArray, end: int, where: str) -> None:
    """Reject blocks that exceed the bytes before the footer: in the new file they would point into the new batches."""
    starts, metadata, bodies = (blocks[name] for name in ("offset", "metaDataLength", "bodyLength"))
    bad = (starts < HEAD) | (starts > end) | (metadata < 8) | (bodies < 0) | (bodies > end - starts - metadata)
    if bad.any():
        number = int(bad.argmax())
        offset, size, body = blocks[number].item()
        raise InvalidData(
            f"{where}: block {number} needs {size} bytes of metadata and {body} of body from {offset} on, but messages "
            f"are in [{HEAD}, {end}); cannot append to a corrupt file"
        )


def _version_name(reader: RecordBatchFileReader) -> str:
    """The metadata version of the file's first batch, or of the footer if it has no batches."""
    file = reader._opened().file
    version = file.footer.version
    if len(file.footer.batches):
        message, _ = file.message(file.footer.batches[0], f"{file.name}: batch 0")
        version = message.version
    return "V4" if version == ENUMS["MetadataVersion"]["V4"] else "V5"
