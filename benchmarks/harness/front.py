"""The rows of the results that are chosen for users: the README's table, and those of the page on performance."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from harness.figures import line, show, times


class Shown(NamedTuple):
    """A row for users: where it is found, the peer, and how both are called.

    ``why`` is said of it where we are faster, and ``advice`` where we are slower.
    """

    group: str
    name: str
    peer: str
    what: str
    instead: str
    why: str = ""
    advice: str = ""
    readme: bool = False


TABLE_OF = "a table of numbers and text"
BOTH_MAP = "both map what is there"
TINY = "LMDB for tiny values; or one object of many rows"
NUMPY = "pass numpy arrays, Series or pyarrow arrays"

ROWS = (
    Shown("alternatives", "8 processes have a table of numbers and text of 256 MiB and read all of it: memory",
          "diskcache", "8 readers of a 256 MiB table: memory of all", "diskcache",
          "all map the same pages", "", True),
    Shown("alternatives", "8 processes have a table of numbers and text of 256 MiB and read all of it: memory",
          "ray", "8 readers of a 256 MiB table: memory of all", "Ray and its servers", "there are no servers"),
    Shown("alternatives", "a process that replaces a table of 64 MiB is killed", "ray",
          "a writer is killed, until others have its table", "Ray, put again, as it is lost",
          "objects do not belong to processes", "", True),
    Shown("alternatives", f"get {TABLE_OF}, 1,024 MiB", "polars",
          "get a 1 GiB table of numbers and text", "Polars' `read_ipc`",
          "only what is asked for is decoded", "", True),
    Shown("alternatives", f"get {TABLE_OF}, 1,024 MiB", "ray",
          "get a 1 GiB table of numbers and text", "Ray", BOTH_MAP, "both map it; Ray's reference says where it is"),
    Shown("alternatives", f"put {TABLE_OF}, 1,024 MiB", "ray",
          "put a 1 GiB table of numbers and text", "Ray", "one copy",
          "fill it in place with `new_draft`; Ray writes into memory that it has mapped already"),
    Shown("alternatives", f"put {TABLE_OF}, 1,024 MiB", "lmdb",
          "put a 1 GiB table of numbers and text", "LMDB", "one copy instead of two"),
    Shown("processes", "a batch of 1024 MiB as an argument of a Pool", "pickled",
          "pass a 1 GiB batch to a worker process", "pickle", "only a handle is sent; the worker maps the object", "",
          True),
    Shown("interchange", "a mapped file of 123 MiB of text as a polars DataFrame", "polars scan_ipc",
          "a 123 MiB file of text as a Polars DataFrame", "Polars' `scan_ipc`", "text is checked where it lies", "",
          True),
    Shown("scan", "schema and first rows of 2,000 files", "pyarrow dataset",
          "schema and first rows of 2,000 files", "pyarrow's dataset", "the other files are not opened", ""),
    Shown("opening", "open, one column by index; 10,000 columns, schema not seen before", "pyarrow",
          "open a file of 10,000 columns and read one", "pyarrow", "the fields of other columns are not decoded", "",
          True),
    Shown("scale", "1 TB, 100,000 batches: open in a fresh process", "pyarrow",
          "open a file of 1 TB, and one of its batches", "pyarrow", "only the footer and one batch are read"),
    Shown("values", "validate fully 10,000,000 strings, ASCII", "pyarrow",
          "check 10 million strings", "pyarrow", "whole buffers are checked at once", ""),
    Shown("tensors", "open 1,000 tensors and have one", "safetensors",
          "open 1,000 tensors in one object and use one", "safetensors", "the others are not decoded", "", True),
    Shown("interchange", "a mapped file of 1024 MiB of numbers as a polars DataFrame", "polars scan_ipc",
          "a 1 GiB file of numbers as a Polars DataFrame", "Polars' `scan_ipc`", "numbers need no check"),
    Shown("tensors", "1,024 MiB between processes: name to first element", "pickle, queue",
          "a 1 GiB tensor to another process", "pickle and a queue", "the tensor is mapped"),
    Shown("alternatives", f"put {TABLE_OF}, 1 MiB", "pyarrow",
          "put a 1 MiB table of numbers and text", "a file by pyarrow", "",
          "write batches into one file, or rows into one object"),
    Shown("alternatives", f"get {TABLE_OF}, 1 MiB", "lmdb",
          "get a 1 MiB table of numbers and text", "LMDB", "", "attach objects once, and keep them",
          True),
    Shown("opening", "open, one column by index; 5 columns, schema not seen before", "pyarrow",
          "open a small file and read a column", "pyarrow", "its schema is decoded when it is asked for",
          "keep the file open, or use one file of many batches"),
    Shown("writing", "write a batch of 5 columns, schema not seen before", "pyarrow",
          "write a small file", "pyarrow", "", "write many batches with one writer"),
    Shown("writing", "write 1,024 MiB of float64, 16 columns", "pyarrow",
          "write 1 GiB into shared memory", "pyarrow", *["the memory's speed is the limit of both"] * 2),
    Shown("opening", "read_all of a mapped stream of 10,000 batches of 8 rows, 5 columns", "pyarrow",
          "read a stream of 10,000 batches of 8 rows", "pyarrow", "", "write larger batches"),
    Shown("interchange", "a mapped file of 123 MiB of text as a polars DataFrame", "pyarrow",
          "a 123 MiB file of text as a Polars DataFrame", "pyarrow, unchecked", "",
          "text is checked, as Polars may crash on invalid text; objects of a store are checked once"),
    Shown("interchange", "export of a batch of 10 columns, opened each time", "pyarrow",
          "export a batch of 10 columns", "pyarrow", "", "export tables, or larger batches"),
    Shown("store", "get 800 bytes, an ndarray, of 1,000 names", "lmdb",
          "get 800 bytes from a store of 1,000 objects", "LMDB", "", TINY),
    Shown("store", "put 800 bytes, an ndarray, beside 1,000 names", "lmdb",
          "put 800 bytes beside 1,000 objects", "LMDB", "", "LMDB for tiny values; or collect rows into batches"),
    Shown("store", "8 readers, 4 writers, 80 kB: gets", "lmdb",
          "80 kB objects, 8 readers beside 4 writers", "LMDB", "", "attach objects once, and keep them"),
    Shown("objects", "put, until a process that waits has the first value", "semaphore",
          "publish an object to a waiting process", "a semaphore and `SharedMemory`", "",
          "`sa.Ring` for a steady rate"),
    Shown("rings", "800 bytes, filled in place", "by hand",
          "a frame of 800 bytes to a waiting process", "a ring made by hand", "", "larger frames, of several rows"),
    Shown("building", "build 1,000,000 string from a list", "pyarrow",
          "build 1 million strings from a list", "pyarrow", "", NUMPY),
    Shown("building", "time64: from a list", "pyarrow",
          "build 1 million `datetime.time` from a list", "pyarrow", "", "pass a numpy array of integers, and cast"),
    Shown("scan", "group by string, 2 of 12 columns, 8 files: later", "polars scan_ipc",
          "group 8 files by a column of text", "Polars' `scan_ipc`", "buffers are mapped",
          "keep text as `string_view`: Polars copies `string`"),
    Shown("scan", "count_rows of 2,000 files", "pyarrow dataset",
          "count the rows of 2,000 files", "pyarrow's dataset", "", "one file of many batches"),
    Shown("values", "string_view: to string", "pyarrow",
          "cast short texts from `string_view` to `string`", "pyarrow", "", "keep them as `string_view`"),
)  # fmt: skip
"""What users do most, the most telling first; wins and losses alike. Eight are in the README."""

SHOWN = 10
"""Rows of each of the two tables of the page on performance."""


class Figure(NamedTuple):
    """A row for users with its figures; the spread is that of the rounds' ratios, where there are several."""

    what: str
    instead: str
    ours: str
    theirs: str
    ratio: float
    spread: str
    why: str
    advice: str


def figures(rows: Iterable[Mapping[str, Any]], chosen: Iterable[Shown]) -> list[Figure]:
    """The chosen rows that were measured, in their order."""
    known = list(rows)
    return [figure for shown in chosen if (figure := _figure(known, shown)) is not None]


def _figure(rows: Iterable[Mapping[str, Any]], shown: Shown) -> Figure | None:
    same = [
        row
        for row in rows
        if row["group"] == shown.group and row["name"].startswith(shown.name) and shown.peer in row["peers"]
    ]
    if not same:
        return None
    row = next((row for row in same if row["peer"] == shown.peer), same[0])
    theirs, unit = row["peers"][shown.peer], row["unit"]
    ratio, spread = theirs / row["ours"], ""
    if row["peer"] == shown.peer:
        ratio = row["ratio"]
        spread = f"{times(row['low'])} to {times(row['high'])}" if row["low"] != row["high"] else ""
    ours, peers = show(row["ours"], unit), show(theirs, unit)
    return Figure(shown.what, shown.instead, ours, peers, ratio, spread, shown.why, shown.advice)


def ordered(found: Iterable[Figure]) -> list[Figure]:
    """The largest ratio first."""
    return sorted(found, key=lambda each: -each.ratio)


def fast(rows: Iterable[Mapping[str, Any]], chosen: Iterable[Shown] = ROWS) -> list[Figure]:
    """The first ten rows in which we are faster."""
    return ordered([each for each in figures(rows, chosen) if each.ratio >= 1][:SHOWN])


def slow(rows: Iterable[Mapping[str, Any]], chosen: Iterable[Shown] = ROWS) -> list[Figure]:
    """The ten rows in which we are the furthest behind."""
    return ordered(each for each in figures(rows, chosen) if each.ratio < 1)[-SHOWN:]


def short(rows: Iterable[Mapping[str, Any]]) -> list[Figure]:
    """The rows of the README."""
    return ordered(figures(rows, [shown for shown in ROWS if shown.readme]))


HEADINGS = line(["what", "shmarrow", "instead", "ratio"])


def table(rows: Iterable[Mapping[str, Any]]) -> str:
    """The README's table."""
    lines = [HEADINGS, line(["---"] * 4)]
    for each in short(rows):
        lines.append(line([each.what, each.ours, f"{each.instead} {each.theirs}", times(each.ratio)]))
    return "\n".join(lines) + "\n"
