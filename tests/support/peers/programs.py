"""Peers that are programs: each reads all samples in one process, and prints what it found as lines of JSON.

Invariants: the programs print values as they are stored, which is written down in ``read.mjs``; what they print is
made Python values here, by the sample's schema.
"""

from __future__ import annotations

import datetime as dt
import json
import os
import shutil
import subprocess
from collections.abc import Callable, Iterable
from decimal import Context, Decimal
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest

import shmarrow as sa
from peers import Sample
from peers.python import Read
from shmarrow import types

HERE = Path(__file__).parent


def run(command: list[str], samples: Iterable[Sample], folder: Path) -> dict[str, Read | str]:
    """Return what a program read from each sample, by its id: columns, or an error."""
    by_file = {}
    for number, sample in enumerate(samples):
        by_file[f"{number:05d}"] = sample
        (folder / f"{number:05d}").write_bytes(sample.data)
    (folder / "list.txt").write_text("\n".join(by_file))
    ran = subprocess.run([*command, str(folder)], capture_output=True, text=True)
    assert ran.returncode == 0, f"{' '.join(command)} failed:\n{ran.stderr[-2000:]}"
    found: dict[str, Read | str] = {}
    for line in ran.stdout.splitlines():
        said = json.loads(line)
        sample = by_file[said["name"]]
        found[sample.id] = said["error"] if "error" in said else _read(sample, said)
    assert len(found) == len(by_file), f"{len(by_file)} samples, but {len(found)} answers:\n{ran.stderr[-2000:]}"
    return found


def _read(sample: Sample, said: dict[str, Any]) -> Read | str:
    try:
        fields = zip(sample.schema.fields, said["columns"], strict=True)
        return Read([[value_of(f.type, item) for item in column] for f, column in fields], said["metadata"])
    except (TypeError, ValueError, KeyError, ArithmeticError) as error:
        return f"{error!r} where the values were {str(said['columns'])[:200]}"


# --- values ---------------------------------------------------------------------------------------------------------

EPOCH = dt.datetime(1970, 1, 1)
SECONDS = {"day": Fraction(86400), **{unit: Fraction(1, 1000**n) for n, unit in enumerate(("s", "ms", "us", "ns"))}}


def _span(count: int, unit: str) -> dt.timedelta:
    return dt.timedelta(microseconds=int(count * SECONDS[unit] * 10**6))


def _moment(type: Any, count: int) -> dt.datetime:
    moment = EPOCH + _span(count, type.unit)
    return moment if type.tz is None else moment.replace(tzinfo=dt.UTC)


def _time(type: Any, count: int) -> dt.time:
    return (EPOCH + _span(count, type.unit)).time()


def _struct(type: Any, items: list[Any]) -> Any:
    pairs = [(f.name, value_of(f.type, item)) for f, item in zip(type.fields, items, strict=True)]
    return dict(pairs) if len(dict(pairs)) == len(pairs) else pairs


def _union(type: Any, item: list[Any]) -> Any:
    code, value = item
    return value_of(type.fields[type.type_codes.index(code)].type, value)


def _list(type: Any, items: list[Any]) -> list[Any]:
    return [value_of(type.value_type, item) for item in items]


def _binary(type: Any, item: str) -> str | bytes:
    return item if getattr(type, "text", False) else bytes.fromhex(item)


VALUES: dict[Any, Callable[[Any, Any], Any]] = {
    types.FloatType: lambda type, item: float(item),
    types.DecimalType: lambda type, item: Decimal(item).scaleb(-type.scale, Context(prec=100)),
    types.DateType: lambda type, item: (EPOCH + _span(item, type.unit)).date(),
    types.TimeType: _time,
    types.TimestampType: _moment,
    types.DurationType: lambda type, item: _span(item, type.unit),
    types.IntervalType: lambda type, item: item if type.unit == "month" else tuple(item),
    types.BinaryType: _binary,
    types.LargeBinaryType: _binary,
    types.BinaryViewType: _binary,
    types.FixedSizeBinaryType: _binary,
    types.ListType: _list,
    types.LargeListType: _list,
    types.ListViewType: _list,
    types.LargeListViewType: _list,
    types.FixedSizeListType: _list,
    types.StructType: _struct,
    types.MapType: lambda type, items: [
        (value_of(type.key_type, key), value_of(type.item_type, item)) for key, item in items
    ],
    types.UnionType: _union,
    types.DictionaryType: lambda type, item: value_of(type.value_type, item),
    types.RunEndEncodedType: lambda type, item: value_of(type.value_type, item),
}


def value_of(type: Any, item: Any) -> Any:
    """The Python value of what a program printed."""
    if item is None:
        return None
    if isinstance(type, sa.ExtensionType):
        return value_of(type.storage_type, item)
    make = VALUES.get(type.__class__)
    return item if make is None else make(type, item)


# --- the programs ---------------------------------------------------------------------------------------------------

JAVASCRIPT = HERE / "node_modules" / "apache-arrow"


def version_of_javascript() -> str:
    """The version of Arrow for JavaScript; skips where it or node is not installed."""
    if shutil.which("node") is None:
        pytest.skip("Arrow for JavaScript needs node on PATH (Debian: nodejs)")
    if not JAVASCRIPT.is_dir():
        pytest.skip("Arrow for JavaScript is not installed: run npm install in tests/support/peers, as make test does")
    return str(json.loads((JAVASCRIPT / "package.json").read_text())["version"])


def node() -> list[str]:
    """The command that reads with Arrow for JavaScript."""
    return ["node", str(HERE / "read.mjs")]


def java() -> list[str]:
    """The command that reads with Spark's jars, compiled by the compiler that is among them."""
    import pyspark

    jars = Path(pyspark.__file__).parent / "jars"
    program = str(Path(os.environ["JAVA_HOME"], "bin", "java")) if os.environ.get("JAVA_HOME") else "java"
    opened = "--add-opens=java.base/java.nio=ALL-UNNAMED"
    return [program, opened, "-cp", f"{jars}/*", "org.codehaus.janino.SimpleCompiler", str(HERE / "Read.java"), "Read"]
