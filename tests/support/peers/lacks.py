"""Forms and types that a peer does not read: data that the tests check, and that the support page shows.

Invariants:

* a pattern is for ids of samples, ``form/name``, and stands under the reason why, in words that fit after "not";
* every sample that a pattern matches fails with this peer in the locked version, and no other does; what a newer one
  has learned to read is a warning of the tests. A pattern that ends in ``/*`` is about a form, and says nothing about
  types.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase


@dataclass(frozen=True)
class Peer:
    """A reader of Arrow's IPC format."""

    title: str
    package: str | None
    """The Python package whose version counts; None where it is not one."""
    checked: str
    """The version that the list was made with: older ones may lack more."""
    how: str
    lacks: Mapping[str, Sequence[str]] = field(default_factory=dict)
    own_ipc: bool = True
    """False where another peer reads the messages, and this one what is in them."""

    def why_not(self, id: str, forms: bool = True) -> str | None:
        """Why the peer does not read a sample, or None where it does; without ``forms``, why not this type."""
        for reason, patterns in self.lacks.items():
            for pattern in patterns:
                if fnmatchcase(id, pattern) and (forms or not pattern.endswith("/*")):
                    return reason
        return None


_LIST_VIEWS = ("*/list-view*", "*/large-list-view*", "*/spec-list-view*", "*/odd-list-view*")
_RUN_ENDS = ("*/ree-*", "*/spec-run-end*", "*/odd-ree*")
_VIEWS = ("*/binary-view*", "*/string-view*", "*/dictionary-view*", "*/spec-string-view", "*/odd-two-data-buffers")
_DENSE_UNIONS = ("*/dense-union*", "*/union-nested*", "*/spec-dense-union", "*/odd-dense-union*")
_SPARSE_UNIONS = ("*/sparse-union*", "*/struct-union*", "*/spec-sparse-union", "*/odd-sparse-union*")
_TENSORS = {"tensors": ("tensor/*",)}

PEERS: dict[str, Peer] = {
    "shmarrow": Peer("shmarrow", None, "this one", "shmarrow itself"),
    "pyarrow": Peer("C++", "pyarrow", "26.0", "pyarrow"),
    "arro3": Peer(
        "Rust",
        "arro3-io",
        "0.9",
        "arro3, arrow-rs in Python; pyarrow prints what it has read",
        {
            "bytes under nulls that are no UTF-8": ("*/odd-null-slots-hold-bytes",),
            "big-endian data": ("*/big-endian",),
            **_TENSORS,
        },
    ),
    "nanoarrow": Peer(
        "nanoarrow",
        "nanoarrow",
        "0.9",
        "nanoarrow's Python package; pyarrow prints what it has read",
        {
            "files": ("file/*", "file-*/*"),
            "compressed dictionaries": ("stream-lz4/*dictionary-*", "stream-zstd/*dictionary-*"),
            "binary of width 0": ("*/fixed-size-binary-0*",),
            "views": _VIEWS,
            "list views": _LIST_VIEWS,
            "run-end encoding": _RUN_ENDS,
            "dictionary deltas": ("*/dictionary-delta",),
            **_TENSORS,
        },
    ),
    "javascript": Peer(
        "JavaScript",
        None,
        "21.2",
        "the npm package apache-arrow, with the codecs of lz4js and fzstd",
        {
            "list views": _LIST_VIEWS,
            "run-end encoding": _RUN_ENDS,
            "big-endian data": ("*/big-endian",),
            **_TENSORS,
        },
    ),
    "java": Peer(
        "Java",
        "pyspark",
        "4.3",
        "Spark's own arrow-vector, run on Spark's jars",
        {
            "decimals of 32 and 64 bits": ("*/decimal32*", "*/decimal64*"),
            "binary of width 0": ("*/fixed-size-binary-0*",),
            "two fields of one name in a struct": ("*/struct-duplicate-names*",),
            "dictionary deltas in files": ("file/dictionary-delta",),
            "big-endian data": ("*/big-endian",),
            **_TENSORS,
        },
    ),
    "polars": Peer(
        "polars",
        "polars",
        "2.1",
        "its own reader, which comes from arrow2",
        {
            "decimals of 256 bits": ("*/decimal256*",),
            "negative scales": ("*/decimal128-negative-scale*",),
            "time zones that are offsets": ("*/timestamp-ms-offset*",),
            "intervals": ("*/interval-*",),
            "binary of width 0": ("*/fixed-size-binary-0*",),
            "lists of width 0": ("*/fixed-size-list-0*",),
            "list views": _LIST_VIEWS,
            "two fields of one name": ("*/struct-duplicate-names*", "*/names-duplicate"),
            "run-end encoding": _RUN_ENDS,
            "unions": (*_DENSE_UNIONS, *_SPARSE_UNIONS),
            "bytes under nulls that are no UTF-8": ("*/odd-null-slots-hold-bytes",),
            "indices under nulls that are out of range": ("*/spec-dictionary", "*/odd-dictionary-offset"),
            "metadata": ("*/metadata",),
            "dictionary deltas": ("*/dictionary-delta",),
            **_TENSORS,
        },
    ),
    "duckdb": Peer(
        "DuckDB",
        "duckdb",
        "2.0",
        "its scan of Arrow's C stream, behind pyarrow's reader; pyarrow prints the result",
        {
            "floats of 16 bits": ("*/float16*",),
            "decimals of 256 bits": ("*/decimal256*",),
            "negative scales": ("*/decimal128-negative-scale*",),
            "intervals of days and milliseconds": ("*/interval-day-time", "*/interval-day-time-nulls"),
            "nanoseconds of intervals": ("*/interval-month-day-nano", "*/interval-month-day-nano-nulls"),
            "run-end encoded lists": ("*/ree-list*",),
            "run-end encoded dictionaries": ("*/ree-dictionary", "*/ree-dictionary-nulls"),
            "dictionaries of structs": (
                *("*/dictionary-struct", "*/dictionary-struct-nulls", "*/dictionary-struct-all-null"),
                *("*/dictionary-nested", "*/dictionary-nested-nulls", "*/dictionary-nested-all-null"),
            ),
            "dense unions": _DENSE_UNIONS,
            "type codes that do not count from 0": (
                *("*/sparse-union-codes", "*/sparse-union-codes-nulls", "*/sparse-union-codes-all-null"),
                "*/odd-sparse-union-offset",
            ),
            "batches without columns": ("*/columns-none",),
            "metadata": ("*/metadata",),
            **_TENSORS,
        },
        own_ipc=False,
    ),
}
