"""Arrow's golden files: where they are, and what reads each form."""

from __future__ import annotations

from pathlib import Path

import shmarrow as sa
from shmarrow.integration.json import read_json

CONTENTS = {
    "0.14.1": "datetime decimal dictionary interval map nested primitive primitive_no_batches primitive_zerolength",
    "1.0.0-bigendian": "dictionary interval nested_large_offsets primitive",
    "1.0.0-littleendian": (
        "custom_metadata datetime decimal decimal256 dictionary dictionary_unsigned duplicate_fieldnames extension "
        "interval map map_non_canonical nested nested_dictionary nested_large_offsets null null_trivial primitive "
        "primitive_large_offsets primitive_no_batches primitive_zerolength recursive_nested union"
    ),
    "2.0.0-compression": "lz4 uncompressible_lz4 zstd",
    "cpp-21.0.0": (
        "binary binary_view binary_zerolength custom_metadata datetime decimal decimal32 dictionary "
        "dictionary_unsigned duplicate_fieldnames extension interval_mdn list_view map nested nested_dictionary "
        "null primitive primitive_no_batches run_end_encoded union"
    ),
}
NAMES = [f"{release}/{content}" for release, contents in CONTENTS.items() for content in contents.split()]

READERS = {
    "arrow_file": lambda name: sa.ipc.open_file(name).read_all(),
    "stream": lambda name: sa.ipc.open_stream(name).read_all(),
    "json.gz": read_json,
}
"""The forms of a content by the ends of their names, and what reads them."""


def path(arrow_testing: Path, name: str, form: str) -> str:
    release, content = name.split("/")
    return str(arrow_testing / "integration" / release / f"generated_{content}.{form}")


def read(arrow_testing: Path, name: str, form: str) -> sa.Table:
    return READERS[form](path(arrow_testing, name, form))
