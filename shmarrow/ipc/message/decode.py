"""Encapsulated messages: a prefix, metadata as a FlatBuffer, padding, and a body ("Encapsulated message format").

Pure functions from bytes to messages; ``framing`` reads the prefix, ``encode`` has the way back. Rules kept here:

* metadata versions 4 and 5 are read, all others are refused by their name.
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
    """A message whose metadata was parsed.

    Attributes
    ----------
    kind : str
        ``Schema``, ``RecordBatch``, ``DictionaryBatch``, ``Tensor`` or ``SparseTensor``.
    header : TableView
        The table of that kind.
    version : int
        The metadata version, 3 for V4 and 4 for V5.
    body_length : int
        Bytes of the body.
    table : TableView
        The Message table itself.
    metadata : uint8 ndarray
        The bytes of the metadata.
    """

    kind: str
    header: TableView
    version: int
    body_length: int
    table: TableView
    metadata: Bytes

    @property
    def custom_metadata(self) -> Metadata | None:
        """The message's own metadata."""
        return read_key_values(self.table["custom_metadata"])


def parse_metadata(metadata: Bytes, where: str, limits: Limits = DEFAULT_LIMITS) -> Message:
    """A message from the bytes of its metadata."""
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
    """Versions 4 and 5 are read."""
    name = _VERSIONS.get(version, f"number {version}, later than V5" if version > 4 else f"number {version}")
    if name not in READ_VERSIONS:
        raise Unsupported(f"{where}: metadata version {name}; versions V4 and V5 are read")


def read_message(data: Bytes, offset: int, where: str, limits: Limits = DEFAULT_LIMITS) -> tuple[Message, int] | None:
    """The message at ``offset`` and the offset of its body, all of it within ``data``; None at the end of the stream.

    Raises
    ------
    InvalidData
        If the message is cut, or breaks the format.
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
    """Metadata from a vector of KeyValue tables; None where there are none.

    Parameters
    ----------
    vector : TableVector
        The vector.
    reader : Reader, optional
        The operation that this is a part of; one of its own where it is not given.
    """
    if not len(vector):
        return None
    tables = vector.within(reader or vector.reader.operation())
    return FrozenMetadata({item["key"] or b"": item["value"] or b"" for item in tables})
