"""``shmarrow convert``: from one file format to another, batch by batch.

Invariants:

* the target appears whole or not at all, whatever ends the command; temporary files are named
  ``shmarrow-convert-...``;
* standard output carries data or the report, never both: with ``-`` as the target the report is left out;
* the exit status is that of the store's commands: 3 where the source is not there, 4 where the target exists, 5 where
  there is no room, 1 for other errors, 2 after wrong usage.
"""

from __future__ import annotations

import argparse
import errno
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from types import FrameType
from typing import TYPE_CHECKING, Any, NoReturn

from shmarrow.cli.progress import bar
from shmarrow.cli.report import WrongUsage, print_json, reporting
from shmarrow.errors import InvalidArgument, InvalidType, ObjectExists, StorageError, counted, printable, recast
from shmarrow.ipc.compression import CODECS

if TYPE_CHECKING:
    from shmarrow.batch import RecordBatch

_GRACE = 1.0
"""Seconds after which a signal ends the process if no Python handler ran."""

_FORMATS = """\
formats, by suffix:
  arrow        .arrow .ipc       Arrow IPC file
  arrows       .arrows           Arrow IPC stream
  feather      .feather          version 2, which is an Arrow IPC file
  parquet      .parquet .pq
  csv, tsv     .csv .tsv         with a header; types are inferred from the first 16 MiB
  jsonl        .jsonl .ndjson    one JSON object per line
  safetensors  .safetensors
  npy, npz     .npy .npz
  tensors      .tensors          a bundle of named tensors (shmarrow.save_tensors)

Parquet, CSV and JSON lines need pyarrow (shmarrow[arrow]).
Tensors of one length become columns of a table; columns of numbers without nulls become tensors."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command."""
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.epilog = _FORMATS
    parser.add_argument("source", metavar="IN", help="what to read: a path, shm:NAME, or - for standard input")
    parser.add_argument("target", metavar="OUT", help="what to write: a path, shm:NAME, or - for standard output")
    parser.add_argument("--from", dest="source_format", metavar="FORMAT", help="the format of IN; default: detected")
    parser.add_argument(
        "--to", dest="target_format", metavar="FORMAT", help="the format of OUT; default: from its suffix"
    )
    parser.add_argument("-f", "--force", "--overwrite", action="store_true", help="replace OUT if it exists")
    parser.add_argument("--columns", metavar="A,B", help="only these columns or tensors, in this order")
    parser.add_argument("--rows-per-batch", type=int, metavar="N", help="write batches (row groups) of N rows")
    parser.add_argument(
        "--compress", choices=(*CODECS, "none"), help="codec for arrow, arrows, feather, parquet and tensors"
    )
    parser.add_argument("--level", type=int, metavar="N", help="compression level")
    parser.add_argument(
        "--types", metavar="A=TYPE,...", help="column types for CSV and JSON, such as id=string,x=double"
    )
    parser.add_argument(
        "--null",
        action="append",
        default=[],
        metavar="TEXT",
        help="text for null in CSV, such as NA; repeatable",
    )
    parser.add_argument("--json", action="store_true", help="print the report and errors as JSON")


@reporting
def run(arguments: argparse.Namespace) -> int:
    """Convert one file and return the exit status."""
    from shmarrow.interchange import files

    with _usage():
        options = _options(arguments)
        source_format = files.by_name(arguments.source_format) if arguments.source_format else None
        target_format = files.by_name(arguments.target_format) if arguments.target_format else None
    name = arguments.target
    with (
        _stopped_by_signals(),
        files.open_input(arguments.source) as source,
    ):
        source_format = source_format or files.of_input(source)
        with _usage():
            files.check_reading(source_format, options)
        content = files.read(source, source_format, options)
        with _usage():
            target_format = target_format or files.of_output(name, content)
            files.check_writing(target_format, options)
        content = files.as_held(content, target_format)
        total = getattr(content, "total", 0) or None
        try:
            with (
                bar(f"{printable(source.name)} → {printable(name)}", total) as progress,
                files.open_output(name, arguments.force) as target,
            ):
                made = _Counted(content, target_format.holds is files.Rows, progress)
                files.write(made.content, target, target_format, options)
                size = target.size
        except ObjectExists as error:
            error.hint = "--force replaces it"
            raise
        except StorageError as error:
            if error.errno == errno.EPIPE and name == "-":
                raise BrokenPipeError from None  # whoever reads has seen enough
            raise
    if name == "-":
        return 0
    if arguments.json:
        print_json({"target": name, "format": target_format.name, f"{made.what}s": made.count, "bytes": size})
    else:
        print(f"{printable(name)}: {counted(made.count, made.what)}, {counted(size, 'byte')}")
    return 0


@contextmanager
def _usage() -> Iterator[None]:
    """Report invalid arguments in the block as wrong usage."""
    try:
        yield
    except (InvalidArgument, InvalidType) as error:
        raise recast(WrongUsage, error) from None


def _options(arguments: argparse.Namespace) -> Any:
    from shmarrow.interchange.files import Options
    from shmarrow.types import field

    if arguments.rows_per_batch is not None and arguments.rows_per_batch < 1:
        raise InvalidArgument(f"--rows-per-batch expects at least 1, found {arguments.rows_per_batch}")
    if arguments.level is not None and arguments.compress in (None, "none"):
        raise InvalidArgument(f"--level needs --compress {' or '.join(CODECS)}")
    types = {}
    for each in arguments.types.split(",") if arguments.types else ():
        name, equals, type_name = each.rpartition("=")
        if not equals:
            raise InvalidArgument(f"--types expects NAME=TYPE,NAME=TYPE, found {each!r}")
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
    """The content of a conversion, with a count of what was written.

    Attributes
    ----------
    content : Rows or Tensors
        What is written, watched.
    what : str
        What the target consists of: ``"row"`` or ``"tensor"``.
    count : int
        How many of them; of rows, those that came by so far.
    """

    def __init__(self, content: Any, as_rows: bool, progress: Callable[[int], None]) -> None:
        from shmarrow.interchange.files import Rows

        self._progress = progress
        self._rows = content
        self.what = "row" if as_rows else "tensor"
        self.count = 0
        self.content = content
        if isinstance(content, Rows):
            self.count = 0 if as_rows else len(content.schema)
            self.content = replace(content, batches=self._watched(as_rows))
        else:
            self.count = len(content.tensors)

    def _watched(self, as_rows: bool) -> Iterator[RecordBatch]:
        for batch in self._rows.batches:
            yield batch
            self.count += batch.num_rows if as_rows else 0
            self._progress(self._rows.done())


@contextmanager
def _stopped_by_signals() -> Iterator[None]:
    """SIGTERM and SIGHUP end the block as Ctrl-C does: temporary files are removed.

    Python's handlers run only between bytecodes. Where pyarrow does not come back within a second of the signal, a
    thread ends the process; then temporary files with names stay.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    heard = threading.Event()

    def terminate(number: int, frame: FrameType | None) -> NoReturn:
        heard.set()
        sys.exit(128 + number)

    def interrupt(number: int, frame: FrameType | None) -> NoReturn:
        heard.set()
        raise KeyboardInterrupt

    reading, writing = os.pipe()
    os.set_blocking(writing, False)
    thread = threading.Thread(target=_end_after_grace, args=(reading, heard), daemon=True)
    thread.start()
    handlers = {
        number: signal.signal(number, handler)
        for number, handler in ((signal.SIGTERM, terminate), (signal.SIGHUP, terminate), (signal.SIGINT, interrupt))
        if signal.getsignal(number) != signal.SIG_IGN
    }
    wakeup = signal.set_wakeup_fd(writing, warn_on_full_buffer=False)
    try:
        yield
    finally:
        signal.set_wakeup_fd(wakeup)
        for number, before in handlers.items():
            signal.signal(number, before)
        heard.set()
        os.close(writing)
        thread.join()
        os.close(reading)


def _end_after_grace(signals: int, heard: threading.Event) -> None:
    """End the process a second after a signal that was not handled; signals arrive as bytes through a pipe."""
    while number := os.read(signals, 1):
        if number[0] in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT) and not heard.wait(_GRACE):
            os._exit(128 + number[0])
