# SPDX-License-Identifier: Apache-2.0
"""Recognition of file formats by their first bytes, and by the suffixes of names where these say nothing."""

from __future__ import annotations

import os
import stat
from contextlib import suppress
from typing import Any, NamedTuple

from shmarrow.errors import InvalidData
from shmarrow.memory.locks import open_unlocked

HEAD = 264
"""Number of leading bytes needed to recognise all formats."""

SUFFIXES = {
    "arrow": (".arrow", ".ipc", ".feather"),
    "arrows": (".arrows",),
    "parquet": (".parquet", ".pq"),
    "csv": (".csv", ".csv.gz"),
    "json": (".json", ".jsonl", ".ndjson", ".jsonl.gz"),
    "orc": (".orc",),
    "tensors": (".tensors",),
    "safetensors": (".safetensors",),
}
"""The suffixes of each format that is converted; ``tensors`` is the bundle of :func:`shmarrow.save_tensors`."""
OTHERS = (*SUFFIXES["json"], ".md", ".txt", ".html", ".yaml", ".yml", ".log", ".crc")
"""The suffixes of files that lie beside data, and are none."""
OF_PYARROW = ("parquet", "csv", "json", "orc")
"""The formats of rows that pyarrow reads."""
FOREIGN = (*[suffix for each in (*OF_PYARROW, "safetensors") for suffix in SUFFIXES[each]], ".npy", ".npz")
"""The suffixes of other formats than Arrow's."""


class Format(NamedTuple):
    """A format.

    Attributes
    ----------
    magic : bytes
        The magic bytes.
    name : str
        The name; empty for bytes that are not recognised.
    reader : str or None
        How to read it, as a clause: ``"numpy.load reads it"``.
    kind : str
        One of :data:`SUFFIXES` (of Arrow data ``"arrow"`` for files, ``"arrows"`` for messages), ``"ring"``, or
        empty for what is not read here.
    offset : int
        Offset of the magic bytes.
    """

    magic: bytes
    name: str
    reader: str | None = None
    kind: str = ""
    offset: int = 0


_POLARS_OR = "{} or polars.{} reads it".format

FORMATS = (
    Format(b"ARROW1", "an Arrow file", "ipc.open_file reads it", "arrow"),
    Format(b"\xff\xff\xff\xff", "an Arrow stream or tensor", "ipc.open_stream or ipc.read_tensor reads it", "arrows"),
    Format(b"ustar", "a tar archive", "unpack it first", offset=257),
    Format(b"shmaring", "a ring of frames", "shmarrow.Ring opens it", "ring"),
    Format(b"PAR1", "a Parquet file", _POLARS_OR("pyarrow.parquet.read_table", "read_parquet"), "parquet"),
    Format(b"PARE", "an encrypted Parquet file", "pyarrow.parquet.read_table reads it, with decryption_properties"),
    Format(b"FEA1", "a Feather file of version 1", "pyarrow.feather.read_table reads it"),
    Format(b"ORC", "an ORC file", "pyarrow.orc.read_table reads it", "orc"),
    Format(b"Obj\x01", "an Avro file", "polars.read_avro reads it"),
    Format(b"\x93NUMPY", "a NumPy array (.npy)", "numpy.load reads it"),
    Format(b"\x89HDF\r\n\x1a\n", "an HDF5 file", "h5py.File reads it"),
    Format(b"CDF\x01", "a netCDF file", "scipy.io.netcdf_file reads it"),
    Format(b"SQLite f", "an SQLite database", "sqlite3.connect opens it"),
    Format(b"DUCK", "a DuckDB database", "duckdb.connect opens it", offset=8),
    Format(b"\x1f\x8b\x08", "gzip data", "pass gzip.open(path)"),
    Format(b"BZh", "bzip2 data", "pass bz2.open(path)"),
    Format(b"\xfd7zX", "xz data", "pass lzma.open(path)"),
    Format(b"\x28\xb5\x2f\xfd", "Zstandard data", "pass zstandard.open(path)"),
    Format(b"\x04\x22\x4d\x18", "an LZ4 frame", "pass lz4.frame.open(path)"),
    Format(b"\xff\x06\x00\x00sNaP", "Snappy data", "decompress it first"),
    Format(b"%PDF", "a PDF"),
    Format(b"\x7fELF", "a program"),
)
"""All formats, in the order to try."""

_PICKLE = tuple([b"\x80" + bytes([protocol]) for protocol in range(2, 6)])
_ZIP = b"PK\x03\x04"
_ZIPPED = (
    Format(b".npy", "a NumPy archive (.npz)", "numpy.load reads it"),
    Format(b"data.pkl", "a PyTorch checkpoint", "torch.load reads it"),
    Format(b"[Content_Types].xml", "an Excel workbook", "pandas.read_excel reads it"),
)
"""ZIP-based formats, by the end of the first name in the archive."""
_TEXT = frozenset(b"\t\n\r") | frozenset(range(32, 127))
_BOM = b"\xef\xbb\xbf"
_UNCLEAR = ("text", "text, such as CSV", "JSON text", "gzip data")
"""Names of formats in which rows may be written as text, of which the suffix tells more."""


def recognized(data: Any, name: str = "") -> Format:
    """The format of bytes; one without a name if they are not recognised.

    Parameters
    ----------
    data : bytes-like
        The first bytes, of which up to :data:`HEAD` are looked at; four suffice for most formats.
    name : str, optional
        The name of the file, whose suffix tells what text is, and what bytes are that are not recognised.
    """
    head = bytes(data[:HEAD])
    form = next((each for each in FORMATS if head.startswith(each.magic, each.offset)), None) or _by_structure(head)
    kind = by_suffix(name)
    if form.name and not (form.name in _UNCLEAR and kind in ("csv", "json")):
        return form
    text = form.name if form.name != "text" else {"csv": "text, such as CSV", "json": "JSON text"}[kind]
    return form._replace(name=text, kind=kind)


def unexpected(expected: str, data: Any) -> InvalidData:
    """The error for bytes that are not what was expected, a sentence that goes on with what they are and what reads it.

    Parameters
    ----------
    expected : str
        The beginning of the sentence: where the bytes are, and what was expected there.
    data : bytes-like
        The bytes, or the first ones.
    """
    head = bytes(data[:HEAD])
    form = recognized(head)
    found = form.name or (f"bytes that start with {head[:8]!r}" if head else "an empty file")
    return InvalidData(f"{expected}, found {found}", hint=form.reader)


def by_suffix(name: str) -> str:
    """The format that the suffix of a name stands for, empty if it stands for none."""
    return next((format for format, suffixes in SUFFIXES.items() if name.lower().endswith(suffixes)), "")


def head_of(path: str, size: int = HEAD) -> bytes:
    """The first bytes of a regular file; none of a link, or if there is no such file, or it cannot be read."""
    with suppress(OSError, ValueError):
        fd = open_unlocked(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        try:
            return os.pread(fd, size, 0) if stat.S_ISREG(os.fstat(fd).st_mode) else b""
        finally:
            os.close(fd)
    return b""


def _by_structure(head: bytes) -> Format:
    """Recognise formats without fixed magic bytes."""
    if head.startswith(_ZIP):
        first = head[30 : 30 + int.from_bytes(head[26:28], "little")]
        other = Format(_ZIP, "a ZIP archive", "unpack it first")
        return next((form for form in _ZIPPED if first.endswith(form.magic)), other)
    if head.startswith(_PICKLE):
        return Format(b"", "a pickle", "pickle.load or pandas.read_pickle reads it, if you trust where it comes from")
    if head[4:8] == bytes(4) and head[8:10] in (b'{"', b"{}", b"{ "):
        return Format(b"", "a safetensors file", "safetensors.safe_open or shmarrow convert reads it", "safetensors")
    text = head.removeprefix(_BOM)
    if len(head) >= 4 and (text is not head or _TEXT.issuperset(text[:4])):
        return _text(text.lstrip())
    return Format(b"", "")


def _text(text: bytes) -> Format:
    if text[:1] in (b"{", b"["):
        return Format(b"", "JSON text", _POLARS_OR("pyarrow.json.read_json", "read_ndjson"))
    if text[:1] == b"<":
        return Format(b"", "HTML or XML text", "it may be an error page that was saved in place of the data")
    if text.startswith(b"version https://git-lfs"):
        return Format(b"", "a Git LFS pointer", "git lfs pull fetches the file")
    line = text.partition(b"\n")[0]
    if any(mark in line for mark in (b",", b";", b"\t", b"|")):
        return Format(b"", "text, such as CSV", _POLARS_OR("pyarrow.csv.read_csv", "read_csv"))
    return Format(b"", "text")
