"""Recognition of other file formats by their magic bytes, for error messages.

Only used after opening failed, so it costs nothing otherwise.
"""

from __future__ import annotations

from typing import NamedTuple

HEAD = 264
"""Number of leading bytes needed to recognise all formats."""


class Format(NamedTuple):
    """A format.

    Attributes
    ----------
    magic : bytes
        The magic bytes.
    name : str
        The name.
    reader : str
        How to read it, as a clause: ``"numpy.load reads it"``.
    offset : int
        Offset of the magic bytes.
    """

    magic: bytes
    name: str
    reader: str
    offset: int = 0


_POLARS_OR = "{} or polars.{} reads it".format

FORMATS = (
    Format(b"ustar", "a tar archive", "unpack it first", 257),
    Format(b"ARROW1", "an Arrow file", "ipc.open_file reads it"),
    Format(b"shmaring", "a ring of frames", "shmarrow.Ring opens it"),
    Format(b"PAR1", "a Parquet file", _POLARS_OR("pyarrow.parquet.read_table", "read_parquet")),
    Format(b"PARE", "an encrypted Parquet file", "pyarrow.parquet.read_table reads it, with decryption_properties"),
    Format(b"FEA1", "a Feather file of version 1", "pyarrow.feather.read_table reads it"),
    Format(b"ORC", "an ORC file", "pyarrow.orc.read_table reads it"),
    Format(b"Obj\x01", "an Avro file", "polars.read_avro reads it"),
    Format(b"\x93NUMPY", "a NumPy array (.npy)", "numpy.load reads it"),
    Format(b"\x89HDF\r\n\x1a\n", "an HDF5 file", "h5py.File reads it"),
    Format(b"CDF\x01", "a netCDF file", "scipy.io.netcdf_file reads it"),
    Format(b"SQLite f", "an SQLite database", "sqlite3.connect opens it"),
    Format(b"DUCK", "a DuckDB database", "duckdb.connect opens it", 8),
    Format(b"\x1f\x8b\x08", "gzip data", "pass gzip.open(path)"),
    Format(b"BZh", "bzip2 data", "pass bz2.open(path)"),
    Format(b"\xfd7zX", "xz data", "pass lzma.open(path)"),
    Format(b"\x28\xb5\x2f\xfd", "Zstandard data", "pass zstandard.open(path)"),
    Format(b"\x04\x22\x4d\x18", "an LZ4 frame", "pass lz4.frame.open(path)"),
    Format(b"\xff\x06\x00\x00sNaP", "Snappy data", "decompress it first"),
    Format(b"%PDF", "a PDF", ""),
    Format(b"\x7fELF", "a program", ""),
)
"""All formats, in the order to try."""

_PICKLE = tuple([b"\x80" + bytes([protocol]) for protocol in range(2, 6)])
_ZIP = b"PK\x03\x04"
_ZIPPED = (
    (b".npy", "a NumPy archive (.npz)", "numpy.load reads it"),
    (b"data.pkl", "a PyTorch checkpoint", "torch.load reads it"),
    (b"[Content_Types].xml", "an Excel workbook", "pandas.read_excel reads it"),
)
"""ZIP-based formats, by the first name in the archive."""
_TEXT = frozenset(b"\t\n\r") | frozenset(range(32, 127))
_BOM = b"\xef\xbb\xbf"


def recognized(head: bytes) -> tuple[str, str | None]:
    """The format of bytes, empty if not recognised; and the hint that says how to read it.

    Parameters
    ----------
    head : bytes
        The first bytes, up to :data:`HEAD`; four suffice for most formats.
    """
    form = next((each for each in FORMATS if head.startswith(each.magic, each.offset)), None)
    name, reader = (form.name, form.reader) if form else _by_structure(head)
    return name, reader or None


def _by_structure(head: bytes) -> tuple[str, str]:
    """Recognise formats without fixed magic bytes."""
    if head.startswith(_ZIP):
        first = head[30 : 30 + int.from_bytes(head[26:28], "little")]
        return next((row[1:] for row in _ZIPPED if first.endswith(row[0])), ("a ZIP archive", "unpack it first"))
    if head.startswith(_PICKLE):
        return "a pickle", "pickle.load or pandas.read_pickle reads it, if you trust where it comes from"
    if head[4:8] == bytes(4) and head[8:10] in (b'{"', b"{}", b"{ "):
        return "a safetensors file", "safetensors.safe_open or shmarrow convert reads it"
    text = head.removeprefix(_BOM)
    if len(head) >= 4 and (text is not head or _TEXT.issuperset(text[:4])):
        return _text(text.lstrip())
    return "", ""


def _text(text: bytes) -> tuple[str, str]:
    if text[:1] in (b"{", b"["):
        return "JSON text", _POLARS_OR("pyarrow.json.read_json", "read_ndjson")
    if text[:1] == b"<":
        return "HTML or XML text", "it may be an error page that was saved in place of the data"
    if text.startswith(b"version https://git-lfs"):
        return "a Git LFS pointer", "git lfs pull fetches the file"
    line = text.partition(b"\n")[0]
    if any(mark in line for mark in (b",", b";", b"\t", b"|")):
        return "text, such as CSV", _POLARS_OR("pyarrow.csv.read_csv", "read_csv")
    return "text", ""
