"""A case: a type, values of it and, where values do not determine it, the memory layout.

The bytes of a physical array are written as the specification shows them: hexadecimal, ``..`` where a byte is not
specified, and None for a validity bitmap that is left out.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from shmarrow.build import array
from shmarrow.layout import Array, concat_arrays, make_array
from shmarrow.types import DataType


@dataclass(frozen=True)
class Physical:
    """The memory layout of an array (Columnar.rst, "Physical Memory Layout"), its buffers in the layout's order."""

    length: int
    buffers: Sequence[str | None]
    null_count: int = 0
    children: Sequence[Physical] = ()
    dictionary: Physical | None = None
    offset: int = 0

    def array(self, type: Any) -> Array:
        """Make the array over these bytes; unspecified bytes are 0xAA."""
        buffers: list[Any] = [None if text is None else np.frombuffer(to_bytes(text), "u1") for text in self.buffers]
        children = [child.array(field.type) for child, field in zip(self.children, type.fields, strict=True)]
        dictionary = None if self.dictionary is None else self.dictionary.array(type.value_type)
        return make_array(type, self.length, buffers, self.null_count, self.offset, children, dictionary)


def to_bytes(text: str) -> bytes:
    """Return the bytes of a physical buffer."""
    return bytes.fromhex(text.replace("..", "aa"))


def pack(format: str, *numbers: Any) -> str:
    """Return numbers as little-endian hexadecimal bytes; None stands for unspecified bytes."""
    size = struct.calcsize(f"<{format}")
    return " ".join(".." * size if number is None else struct.pack(f"<{format}", number).hex() for number in numbers)


def text(value: str | bytes) -> str:
    """Return characters as hexadecimal bytes."""
    return (value.encode() if isinstance(value, str) else value).hex()


@dataclass(frozen=True)
class Case:
    """A type with values as ``Array.to_pylist`` returns them, and the layout where they do not determine it.

    ``from_values`` is False where the same values have several layouts, and ``shmarrow.array`` gives another one.
    """

    name: str
    type: DataType
    values: list[Any] = field(repr=False)
    physical: Physical | None = field(default=None, repr=False)
    from_values: bool = True

    def __str__(self) -> str:
        return self.name

    def array(self) -> Array:
        """Make the array of this case."""
        return array(self.values, self.type) if self.physical is None else self.physical.array(self.type)

    def repeated(self) -> tuple[Any, list[Any]]:
        """An array of more than 40 slots, and its values; nothing at all stays nothing."""
        times = 44 // max(len(self.values), 1) + 1 if self.values else 1
        return concat_arrays([self.array()] * times), self.values * times

    @property
    def writable(self) -> bool:
        """Whether IPC can express the type: a dictionary's values cannot be dictionary-encoded themselves."""
        return not self.name.startswith("dictionary-dictionary")
