"""Static types: mypy over a file that states types, and the annotations of the public API.

The file of :data:`STATED` says what each expression is; mypy reports those that are something else. The README's first
examples, which people copy, pass as well.
"""

from __future__ import annotations

import inspect
import re
import subprocess
import sys
import typing
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from environment import ROOT

import shmarrow as sa
import shmarrow.store

STATED = """
from typing import Any, assert_type, cast

import numpy as np
import numpy.typing as npt
import shmarrow as sa
from shmarrow import types
from shmarrow.extension import UuidType
from shmarrow.ipc import MappedStreamReader, RecordBatchFileReader, RecordBatchStreamReader
from shmarrow.tensor import SparseTensor

assert_type(sa.int64(), types.IntType)
assert_type(UuidType(), UuidType)
assert_type(sa.binary(16), types.FixedSizeBinaryType)
assert_type(sa.list_("int8"), types.ListType)
assert_type(sa.struct({"a": "int8"}), types.StructType)
assert_type(sa.list_("int8", 3), types.FixedSizeListType)

numbers = cast(sa.PrimitiveArray, sa.array([1, 2], sa.int64()))
assert_type(sa.array([1], "int8"), sa.Array)
assert_type(sa.array([1], size=1, from_pandas=False), sa.Array)

assert_type(numbers.type, sa.DataType)
assert_type(numbers[0:1], sa.PrimitiveArray)
assert_type(numbers.take([0]), sa.PrimitiveArray)
assert_type(numbers.cast("int8"), sa.Array)
assert_type(numbers.is_null(), sa.Array)
assert_type(numbers.to_numpy(), npt.NDArray[Any])
assert_type(sa.concat_arrays([numbers]), sa.PrimitiveArray)
assert_type(sa.ListArray.from_arrays([0, 1], numbers), sa.ListArray)
assert_type(sa.StructArray.from_arrays([numbers], ["a"]), sa.StructArray)
assert_type(cast(sa.StructArray, sa.array([{}], sa.struct([]))).field(0), sa.Array)
encoded = cast(sa.DictionaryArray, sa.array(["a"], sa.dictionary("int8", "string")))
assert_type(encoded.dictionary, sa.Array)
assert_type(cast(sa.ExtensionArray, sa.array([True], sa.bool8())).storage, sa.Array)

batch = sa.record_batch({"a": [1]})
assert_type(batch.columns, list[sa.Array])
assert_type(batch["a"], sa.Array)
assert_type(batch[0:1], sa.RecordBatch)
assert_type(batch.select(["a"]), sa.RecordBatch)
assert_type(batch.to_pydict(), dict[str, list[Any]])
assert_type(batch.schema.field(0).type, sa.DataType)

table = sa.table({"a": [1]})
assert_type(table.column(0), sa.ChunkedArray)
assert_type(table["a"], sa.ChunkedArray)
assert_type(table[0:1], sa.Table)
assert_type(table["a"].chunk(0), sa.Array)
assert_type(table["a"][0:1], sa.ChunkedArray)
assert_type(table["a"].combine_chunks(), sa.Array)
assert_type(table.to_batches(), list[sa.RecordBatch])

assert_type(sa.ipc.open_file("x"), RecordBatchFileReader)
assert_type(sa.ipc.open_stream("x"), RecordBatchStreamReader | MappedStreamReader)
assert_type(sa.ipc.open_file("x").read_all(), sa.Table)
assert_type(sa.ipc.open_file("x").get_batch(0), sa.RecordBatch)
assert_type(sa.ipc.read_tensor("x"), sa.Tensor | SparseTensor)
assert_type(sa.load_tensors("x")["a"], sa.Tensor | SparseTensor)
assert_type(sa.Tensor.from_numpy(np.eye(2)).to_numpy(), npt.NDArray[Any])
assert_type(
    sa.Store("x").get("y"),
    sa.RecordBatch | sa.Table | sa.Array | sa.ChunkedArray | sa.Tensor | SparseTensor | sa.Bundle | npt.NDArray[Any]
    | bytes | bytearray | memoryview | str | int | float | bool,
)
assert_type(sa.Store("x").put("y", numbers), str)

assert_type(sa.array(None), sa.Array)
assert_type(sa.table(None), sa.Table)
assert_type(sa.Table.from_pandas(None), sa.Table)
assert_type(table.for_consumer("spark"), sa.Table)
assert_type(sa.SparseCOOTensor.from_scipy(None), sa.SparseCOOTensor)
"""


def test_mypy_agrees(tmp_path: Path) -> None:
    pytest.importorskip("mypy", reason="mypy is not installed")
    path = tmp_path / "stated.py"
    path.write_text(STATED, encoding="utf-8")
    blocks = re.findall(r"^```python\n(.*?)^```$", (ROOT / "README.md").read_text(), re.MULTILINE | re.DOTALL)
    copied = tmp_path / "readme.py"
    copied.write_text("".join(blocks[:2]), encoding="utf-8")  # the others need other libraries
    command = [sys.executable, "-m", "mypy", "--config-file", ROOT / "pyproject.toml", path, copied]
    ran = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=300, check=False)
    lines = STATED.splitlines()
    places = [(int(line), text) for line, text in re.findall(r"stated\.py:(\d+): error: (.*)", ran.stdout)]
    assert [(lines[number - 1], text) for number, text in places] == []
    assert ran.returncode == 0, ran.stdout + ran.stderr


# --- annotations ------------------------------------------------------------------------------------------------

PYTHON = "a Python value of whatever type the column has"
PARTNER = "an object of a package that is imported when it is needed, and may not be installed"
LAYOUT = "an array of another layout, whose class is made from this one"
ALLOWED = {
    "Array.__getitem__": PYTHON,
    "Array.__iter__": PYTHON,
    "Array.to_pylist": PYTHON,
    "Array.tolist": PYTHON,
    "ChunkedArray.__getitem__": PYTHON,
    "ChunkedArray.__iter__": PYTHON,
    "ChunkedArray.to_pylist": PYTHON,
    "Array.dictionary_encode": LAYOUT,
    "Array.run_end_encode": LAYOUT,
    "JsonArray.parse": PYTHON,
    "ExtensionType.to_python": PYTHON,
    "ExtensionType.from_python": PYTHON,
    "Tensor.__getitem__": "a tensor, or an element of whatever type the tensor has: the key decides",
    "Tensor.__iter__": "tensors, or elements of whatever type the tensor has: its number of dimensions decides",
    "Draft.__getitem__": "an ndarray, or one of offsets and one of bytes: the type of the column decides",
    "Tensor.__dlpack__": "a capsule",
    "Ring.__next__": "a batch or a tensor: the ring decides",
    "open": "a reader, a tensor or a bundle: what is there decides",
    "storage_of": "a type: the one given decides of which class",
    "Ring.__anext__": "a batch or a tensor: the ring decides",
    "Bundle.to_jax": PARTNER,
    "Bundle.to_torch": PARTNER,
}
"""The public functions whose results no type says more of, and why."""

MODULES = (sa, sa.ipc, sa.segment, sa.interchange, sa.types, sa.extension, sa.store)
VAGUE = ("Any", "list[Any]", "dict[str, Any]", "Iterator[Any]", "tuple[Any, ...]", "Callable[[Any], Any]")
VAGUE_CALLABLE = re.compile(r"(?:ClassVar\[)?Callable\[.*, Any\]\]?")
"""The declared types of attributes that hold a function."""
PICKLING = ("__reduce__", "__reduce_ex__", "__getattr__", "__deepcopy__")


def public(module: ModuleType) -> Iterator[tuple[str, Any]]:
    names = getattr(module, "__all__", [name for name in vars(module) if not name.startswith("_")])
    for name in names:
        found = getattr(module, name)
        if getattr(found, "__module__", "").startswith("shmarrow"):
            yield name, found


def vague(name: str, member: Any) -> bool:
    """Whether the annotations of a function or a property say nothing of what it returns."""
    member = getattr(member, "__func__", member)
    member = member.fget if isinstance(member, property) else member
    if not inspect.isfunction(member) or not member.__module__.startswith("shmarrow"):
        return False
    told = [member, *typing.get_overloads(member)][1:] or [member]
    returned = [str(each.__annotations__.get("return", "Any")) for each in told]
    return name not in PICKLING and any(text in VAGUE for text in returned)


def members(cls: type) -> Iterator[str]:
    """The public functions of a class that say nothing of what they return, by the class that first declares them."""
    for home in cls.__mro__:
        if not home.__module__.startswith("shmarrow"):
            continue
        declared = inspect.get_annotations(home)
        own = [name for name in vars(home) if name not in declared and vague(name, vars(home)[name])]
        stated = [name for name, text in declared.items() if VAGUE_CALLABLE.fullmatch(str(text))]
        for name in own + stated:
            first = [base for base in home.__mro__ if name in vars(base) or name in inspect.get_annotations(base)][-1]
            if not name.startswith("_") or name.endswith("__"):
                yield f"{first.__name__}.{name}"


def found() -> set[str]:
    result: set[str] = set()
    for module in MODULES:
        for name, each in public(module):
            if inspect.isclass(each):
                result.update(members(each))
            elif vague(name, each):
                result.add(name)
    return result


def test_no_public_function_returns_anything_at_all() -> None:
    assert found() == set(ALLOWED)
