"""``shmarrow convert``: from a safetensors file to a bundle, and back."""

from __future__ import annotations

import argparse
import sys

from shmarrow.errors import InvalidArgument
from shmarrow.interchange.safetensors import read_safetensors, write_safetensors
from shmarrow.ipc import load_tensors, save_tensors

SUFFIX = ".safetensors"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The arguments of the command."""
    parser.add_argument("source", help=f"a file whose name ends in {SUFFIX}, or a bundle: a path or shm:NAME")
    parser.add_argument("target", help=f"a bundle, or a file whose name ends in {SUFFIX}")
    parser.add_argument("--overwrite", action="store_true", help="replace what has the target's name")


def run(arguments: argparse.Namespace) -> int:
    """Convert one file; gives the exit status."""
    source, target = arguments.source, arguments.target
    if source.endswith(SUFFIX) == target.endswith(SUFFIX):
        raise InvalidArgument(
            f"one of the two names ends in {SUFFIX}, the other is a bundle's; found {source!r}, {target!r}"
        )
    if source.endswith(SUFFIX):
        tensors, metadata = read_safetensors(source)
        size = save_tensors(tensors, target, metadata, overwrite=arguments.overwrite, mode=0o644)
        count = len(tensors)
    else:
        with load_tensors(source) as bundle:
            words = {key.decode(): value.decode() for key, value in (bundle.metadata or {}).items()}
            size = write_safetensors(bundle, target, words, overwrite=arguments.overwrite)
            count = len(bundle)
    print(f"{target}: {count} tensors, {size} bytes", file=sys.stdout)
    return 0
