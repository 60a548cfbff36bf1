"""``shmarrow convert``: from one file format to another, batch by batch.

Rules kept here:

* the target appears whole or not at all, whatever ends the command; what is temporary is called
  ``shmarrow-convert-...``;
* standard output carries data or the report, never both: with ``-`` as the target the report is left out;
* the exit status is that of the store's commands: 3 where the source is not there, 4 where the target exists, 5 where
  there is no room, 1 for other errors, 2 after wrong usage.
"""

from __future__ import annotations

import argparse
import errno
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from types import FrameType
from typing import TYPE_CHECKING, Any, NoReturn

from shmarrow.cli.progress import bar
from shmarrow.cli.report import print_json, reporting
from shmarrow.errors import InvalidArgument, ObjectExists, StorageError

if TYPE_CHECKING:
    from shmarrow.batch import RecordBatch

CODECS = ("lz4", "zstd", "none")

_FORMATS = """\
formats, by suffix:
  arrow        .arrow .ipc       Arrow IPC file
  arrows       .arrows           Arrow IPC stream
  feather      .feather          version 2 is an Arrow IPC file; version 1 is read
  parquet      .parquet .pq
  csv, tsv     .csv .tsv         with a header; types are inferred from the first 16 MiB
  jsonl        .jsonl .ndjson    one JSON object a line
  safetensors  .safetensors
  npy, npz     .npy .npz
  tensors      .tensors          a bundle of named tensors (shmarrow.save_tensors)

Parquet, CSV, JSON lines and Feather version 1 need pyarrow (shmarrow[arrow]).
Tensors of one length become columns of a table; columns of numbers without nulls become tensors."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The arguments of the command."""
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.epilog = _FORMATS
    parser.add_argument("source", metavar="IN", help="what to read: a path, shm:NAME, or - for standard input")
    parser.add_argument("target", metavar="OUT", help="what to write: a path, shm:NAME, or - for standard output")
    parser.add_argument("--from", dest="source_format", metavar="FORMAT", help="the format of IN; else recognized")
    parser.add_argument("--to", dest="target_format", metavar="FORMAT", help="the format of OUT; else by its suffix")
    parser.add_argument("-f", "--force", "--overwrite", action="store_true", help="replace OUT if it exists")
    parser.add_argument("--columns", metavar="A,B", help="convert these columns or tensors only, in this order")
    parser.add_argument("--rows-per-batch", type=int, metavar="N", help="cut the rows into batches (row groups) of N")
    parser.add_argument("--compress", choices=CODECS, help="compression of arrow, arrows, feather, parquet, tensors")
    parser.add_argument("--level", type=int, help="level of the compression")
    parser.add_argument(
        "--types", metavar="A=TYPE,...", help="types of columns of CSV or JSON, such as id=string,x=double"
    )
    parser.add_argument("--null", action="append", default=[], metavar="TEXT", help="what is null in CSV, such as NA")
    parser.add_argument("--json", action="store_true", help="print the report and errors as JSON")


@reporting
def run(arguments: argparse.Namespace) -> int:
    """Convert one file; gives the exit status."""
    from shmarrow.interchange import files

    options = _options(arguments)
    source_format = files.by_name(arguments.source_format) if arguments.source_format else None
    target_format = files.by_name(arguments.target_format) if arguments.target_format else None
    name = arguments.target
    with (
        _stopped_by_sigterm(),
        files.open_input(arguments.source) as source,
    ):
        content = files.read(source, source_format or files.of_input(source), options)
        target_format = target_format or files.of_output(name, content)
        total = getattr(content, "total", 0) or None
        try:
            with (
                bar(f"{source.name} → {name}", total) as progress,
                files.open_output(name, arguments.force) as target,
            ):
                counted = _Counted(content, progress)
                files.write(counted.content, target, target_format, options)
                size = target.size
        except ObjectExists:
            raise ObjectExists(
                errno.EEXIST, f"cannot create {name!r}: the name is taken; --force replaces it"
            ) from None
        except StorageError as error:
            if error.errno == errno.EPIPE and name == "-":
                raise BrokenPipeError from None  # whoever reads has seen enough
            raise
    if name == "-":
        return 0
    if arguments.json:
        print_json({"target": name, "format": target_format.name, counted.what: counted.count, "bytes": size})
    else:
        print(f"{name}: {counted.count} {counted.what}, {size} bytes")
    return 0


def _options(arguments: argparse.Namespace) -> Any:
    from shmarrow.interchange.files import Options
    from shmarrow.types import field

    if arguments.rows_per_batch is not None and arguments.rows_per_batch < 1:
        raise InvalidArgument(f"--rows-per-batch is at least 1, found {arguments.rows_per_batch}")
    if arguments.level is not None and arguments.compress in (None, "none"):
        raise InvalidArgument("--level needs --compress lz4 or zstd")
    types = {}
    for each in arguments.types.split(",") if arguments.types else ():
        name, equals, type_name = each.rpartition("=")
        if not equals:
            raise InvalidArgument(f"--types has the form NAME=TYPE,NAME=TYPE, found {each!r}")
        types[name] = field(name, type_name).type
    return Options(
        columns=arguments.columns.split(",") if arguments.columns is not None else None,
        rows_per_batch=arguments.rows_per_batch,
        compression=arguments.compress,
        level=arguments.level,
        types=types,
        nulls=tuple(arguments.null),
    )


class _Counted:
    """What is converted, with what was counted on its way.

    Attributes
    ----------
    content : Rows or Tensors
        The same, watched.
    what : str
        ``"rows"`` or ``"tensors"``.
    count : int
        How many of them came by.
    """

    def __init__(self, content: Any, progress: Callable[[int], None]) -> None:
        self._progress = progress
        tensors = getattr(content, "tensors", None)
        self.what = "rows" if tensors is None else "tensors"
        self.count = 0 if tensors is None else len(tensors)
        self._rows = content
        self.content = replace(content, batches=self._watched()) if tensors is None else content

    def _watched(self) -> Iterator[RecordBatch]:
        for batch in self._rows.batches:
            yield batch
            self.count += batch.num_rows
            self._progress(self._rows.done())


@contextmanager
def _stopped_by_sigterm() -> Iterator[None]:
    """SIGTERM ends the block as Ctrl-C does: what is temporary is removed."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def stop(number: int, frame: FrameType | None) -> NoReturn:
        sys.exit(128 + number)

    before = signal.signal(signal.SIGTERM, stop)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
