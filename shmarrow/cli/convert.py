# SPDX-License-Identifier: Apache-2.0
"""``shmarrow convert``: from one file format to another.

Standard output carries data or the report, never both: with ``-`` as the target the report is left out.
"""

from __future__ import annotations

import argparse
import errno
from contextlib import ExitStack

from shmarrow.cli.command import COLUMNS, JSON, OVERWRITE, WrongUsage, argument, command, progress_line, render, whole
from shmarrow.cli.targets import pipe_in, pipe_out
from shmarrow.errors import InvalidArgument, StorageError, counted, printable, recast
from shmarrow.ipc.compression import CODECS

_FORMATS = """\
formats, by suffix:
  arrow        .arrow .ipc .feather       Arrow IPC file
  arrows       .arrows                    Arrow IPC stream
  parquet      .parquet .pq
  csv          .csv                       with a header; types are inferred from the first 4 MiB
  json         .jsonl .ndjson .json       one object per line; types as for csv; read only
  orc          .orc                       read only
  tensors      .tensors                   a bundle of named tensors (shmarrow.save_tensors)
  safetensors  .safetensors               tensors, too

Parquet, CSV, JSON and ORC need pyarrow (shmarrow[arrow])."""


@command(
    argument("source", metavar="IN", help="what to read: a path, shm:NAME, a directory, a pattern, or -"),
    argument("target", metavar="OUT", help="what to write: a path, shm:NAME, or - for standard output"),
    argument("--from", dest="source_format", metavar="FORMAT", help="the format of IN; default: detected"),
    argument("--to", dest="target_format", metavar="FORMAT", help="the format of OUT; default: from its suffix"),
    OVERWRITE,
    COLUMNS,
    argument("--delimiter", metavar="CHARACTER", help="what separates the values of CSV; default: a comma"),
    argument("--types", metavar="A=TYPE,…", help="types of columns of CSV and JSON lines: zip=string,at=date32"),
    argument("--partition-by", metavar="A,B", help="write a directory, with one below it for each value"),
    argument("--max-rows-per-file", type=whole(1), metavar="N", help="write a directory of files of at most N rows"),
    argument("--mode", choices=("error", "append", "overwrite"), help="what becomes of a directory that has files"),
    argument("--rows-per-batch", type=int, metavar="N", help="write batches (row groups) of N rows"),
    argument("--compress", choices=(*CODECS, "none"), help="codec for arrow, arrows, parquet and tensors"),
    argument("--statistics", action="store_true", help="record bounds of each batch, by which scans skip batches"),
    argument("--level", type=int, metavar="N", help="compression level"),
    JSON,
    epilog=_FORMATS,
)
def convert(arguments: argparse.Namespace) -> int:
    """Convert one file and return the exit status."""
    from shmarrow.interchange import convert as interchange

    name = arguments.target
    with ExitStack() as stack:
        text = f"{printable(arguments.source)} → {printable(name)}"
        progress = stack.enter_context(progress_line(text, None, unit="rows"))
        try:
            made = interchange.convert(
                pipe_in(arguments.source, stack) or arguments.source,
                pipe_out(name, stack) or name,
                source_format=arguments.source_format,
                target_format=arguments.target_format,
                columns=arguments.columns.split(",") if arguments.columns is not None else None,
                delimiter=arguments.delimiter,
                types=None if arguments.types is None else _types(arguments.types),
                rows_per_batch=arguments.rows_per_batch,
                compression=arguments.compress,
                compression_level=arguments.level,
                statistics=arguments.statistics,
                overwrite=arguments.overwrite or None,
                partition_by=[] if arguments.partition_by is None else arguments.partition_by.split(","),
                max_rows_per_file=arguments.max_rows_per_file,
                mode=arguments.mode,
                progress=progress,
            )
        except InvalidArgument as error:
            raise recast(WrongUsage, error) from None
        except StorageError as error:
            if error.errno == errno.EPIPE and name == "-":
                raise BrokenPipeError from None  # whoever reads has seen enough
            raise
    if name == "-":
        return 0
    what, count = ("row", made.rows) if made.tensors is None else ("tensor", made.tensors)
    document = {"target": name, "format": made.format, f"{what}s": count, "bytes": made.nbytes}
    text = f"{printable(name)}: {counted(count or 0, what)}, {counted(made.nbytes, 'byte')}"
    render(arguments.json, document, text)
    return 0


def _types(text: str) -> dict[str, str]:
    """The types of ``--types``."""
    pairs = [part.rpartition("=") for part in text.split(",")]
    if not all(name and type for name, _, type in pairs):
        raise WrongUsage(f"--types expects NAME=TYPE, separated by commas, found {text!r}")
    return {name: type for name, _, type in pairs}
