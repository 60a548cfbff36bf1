"""Decoding of encapsulated messages ("Encapsulated message format").

A message is a prefix, metadata as a FlatBuffer, padding, and a body. Pure functions; ``framing`` reads the prefix,
``encode`` is the inverse. Metadata versions V4 and V5 are read, all others rejected.
"""

from typing import NamedTuple

from shmarrow.buffer import Bytes
from shmarrow.errors import DEFAULT_LIMITS, InvalidData, Limits, Unsupported
from shmarrow.ipc.flatbuffers.reader import Reader, TableVector, TableView
from shmarrow.ipc.flatbuffers.tables import ENUMS
from shmarrow.ipc.message.framing import read_prefix
from shmarrow.types import Metadata
from shmarrow.types.base import FrozenMetadata

_VERSIONS = {number: name for name, number in ENUMS["MetadataVersion"].items()}
READ_VERSIONS = ("V4", "V5")


class Message(NamedTuple):
    """A message with parsed metadata.

    Attributes
    ----------
    kind : str
        ``Schema``, ``RecordBatch``, ``DictionaryBatch``, ``Tensor`` or ``SparseTensor``.
    header : TableView
        The table of that kind.
    version : int
        The metadata version, 3 for V4 and 4 for V5.
    body_length : int
        Size of the body in bytes.
    table : TableView
        The Message table.
    metadata : uint8 ndarray
        The raw metadata.
    """

    kind: str
    header: TableView
    version: int
    body_length: int
    table: TableView
    metadata: Bytes

    @property
    def custom_metadata(self) -> Metadata | None:
        """The message's custom metadata."""
        return read_key_values(self.table["custom_metadata"])


def parse_metadata(metadata: Bytes, where: str, limits: Limits = DEFAULT_LIMITS) -> Message:
    """Parse the metadata of a message."""
    table = Reader(metadata, where, limits).root("Message")
    version = table["version"]
    check_version(version, where)
    kind, header = table["header"]
    if header is None:
        raise InvalidData(f"{where}: the message header has an unknown kind, found {kind}")
    body_length = table["bodyLength"]
    if body_length < 0:
        raise InvalidData(f"{where}: the message declares a body of {body_length} bytes")
    return Message(kind, header, version, body_length, table, metadata)


def check_version(version: int, where: str) -> None:
    """Reject metadata versions other than V4 and V5."""
    name = _VERSIONS.get(version, f"number {version}, later than V5" if version > 4 else f"number {version}")
    if name not in READ_VERSIONS:
        raise Unsupported(f"{where}: metadata version {name}; versions V4 and V5 are read")


def read_message(data: Bytes, offset: int, where: str, limits: Limits = DEFAULT_LIMITS) -> tuple[Message, int] | None:
    """The message at ``offset``, which must be complete, and the offset of its body; None at the end of the stream.

    Raises
    ------
    InvalidData
        If the message is truncated or invalid.
    """
    prefix = read_prefix(data, offset, where, limits)
    if prefix is None:
        return None
    start = offset + prefix[0]
    end = start + prefix[1]
    if end > len(data):
        raise InvalidData(f"{where}: the metadata at {offset} needs [{start}, {end}) but there are {len(data)} bytes")
    message = parse_metadata(data[start:end], where, limits)
    if message.body_length > len(data) - end:
        raise InvalidData(
            f"{where}: the body of the message at {offset} needs [{end}, {end + message.body_length}) "
            f"but there are {len(data)} bytes"
        )
    return message, end


def read_key_values(vector: TableVector, reader: Reader | None = None) -> Metadata | None:
    """Read metadata from a vector of KeyValue tables; None if empty.

    Parameters
    ----------
    vector : TableVector
        The vector.
    reader : Reader, optional
        The operation this is part of; a new one by default.
    """
    if not len(vector):
        return None
    tables = vector.within(reader or vector.reader.operation())
    return FrozenMetadata({item["key"] or b"": item["value"] or b"" for item in tables})
