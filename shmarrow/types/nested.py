"""Fields, and types with children: lists, structs, maps, unions, dictionaries, run ends ("Data Types")."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, ClassVar

import numpy as np

from shmarrow.errors import InvalidArgument
from shmarrow.types.base import DataType, as_type
from shmarrow.types.field import Field, FieldsLike, as_field, as_fields
from shmarrow.types.primitive import IntType


class _ListLike(DataType):
    """A run of child values in each slot; the name of the child is not part of the type's identity."""

    __slots__ = ("fields",)
    parameters: ClassVar[tuple[str, ...]] = ("value_field",)
    NAME: ClassVar[str]
    FORMAT: ClassVar[str]

    def __init__(self, value: Field | DataType | str) -> None:
        self.fields = (as_field(value, "item"),)

    @property
    def value_field(self) -> Field:
        return self.fields[0]

    @property
    def value_type(self) -> DataType:
        return self.fields[0].type

    def _key(self) -> tuple[Any, ...]:
        return (self.fields[0].type, self.fields[0].nullable)

    @property
    def format(self) -> str:
        return self.FORMAT

    def _name(self) -> str:
        return f"{self.NAME}<{self.value_field}>"


class ListType(_ListLike):
    """Lists by 32-bit offsets into the child."""

    __slots__ = ()
    layout = "list"
    NAME = "list"
    FORMAT = "+l"
    offset_dtype = np.dtype("<i4")


class LargeListType(_ListLike):
    """Lists by 64-bit offsets into the child."""

    __slots__ = ()
    layout = "large_list"
    NAME = "large_list"
    FORMAT = "+L"
    offset_dtype = np.dtype("<i8")


class ListViewType(_ListLike):
    """Lists by 32-bit offset and size each, in any order and overlapping."""

    __slots__ = ()
    layout = "list_view"
    NAME = "list_view"
    FORMAT = "+vl"
    offset_dtype = np.dtype("<i4")


class LargeListViewType(_ListLike):
    """Lists by 64-bit offset and size each, in any order and overlapping."""

    __slots__ = ()
    layout = "large_list_view"
    NAME = "large_list_view"
    FORMAT = "+vL"
    offset_dtype = np.dtype("<i8")


class FixedSizeListType(_ListLike):
    """The same number of child values in each slot."""

    __slots__ = ("list_size",)
    layout = "fixed_size_list"
    parameters = ("value_field", "list_size")

    def __init__(self, value: Field | DataType | str, list_size: int) -> None:
        super().__init__(value)
        if not 0 <= list_size < 1 << 31:
            raise InvalidArgument(f"the size of a fixed-size list is an int32 of at least 0, found {list_size}")
        self.list_size = list_size

    def _key(self) -> tuple[Any, ...]:
        return (*super()._key(), self.list_size)

    @property
    def format(self) -> str:
        return f"+w:{self.list_size}"

    def _name(self) -> str:
        return f"fixed_size_list<{self.value_field}>[{self.list_size}]"


class StructType(DataType):
    """One value of each child field in each slot."""

    __slots__ = ("fields",)
    layout = "struct"
    parameters = ("fields",)
    format = "+s"

    def __init__(self, fields: FieldsLike) -> None:
        self.fields = as_fields(fields)

    @property
    def names(self) -> list[str]:
        return [field.name for field in self.fields]

    def __len__(self) -> int:
        return len(self.fields)

    def __iter__(self) -> Iterator[Field]:
        return iter(self.fields)

    def _name(self) -> str:
        return f"struct<{', '.join(map(str, self.fields))}>"


class MapType(DataType):
    """Lists of key and item pairs.

    Physically a list of structs of two fields; the names of all three are not part of the type's identity.
    """

    __slots__ = ("fields", "keys_sorted")
    layout = "map"
    parameters = ("entries_field", "keys_sorted")
    format = "+m"
    offset_dtype = np.dtype("<i4")

    def __init__(self, entries: Field, keys_sorted: bool = False) -> None:
        if not isinstance(entries.type, StructType) or len(entries.type.fields) != 2:
            raise InvalidArgument(f"the entries of a map are a struct of two fields, found {entries.type}")
        self.fields = (entries,)
        self.keys_sorted = keys_sorted

    @property
    def entries_field(self) -> Field:
        return self.fields[0]

    @property
    def key_field(self) -> Field:
        return self.fields[0].type.fields[0]

    @property
    def item_field(self) -> Field:
        return self.fields[0].type.fields[1]

    @property
    def key_type(self) -> DataType:
        return self.key_field.type

    @property
    def item_type(self) -> DataType:
        return self.item_field.type

    def _key(self) -> tuple[Any, ...]:
        key, item = self.key_field, self.item_field
        return (key.type, key.nullable, item.type, item.nullable, self.keys_sorted)

    def _name(self) -> str:
        names = (self.entries_field.name, self.key_field.name, self.item_field.name)
        tail = ", keys_sorted" if self.keys_sorted else ""
        if names != ("entries", "key", "value"):
            tail += f" ({self.entries_field.name}: {self.key_field.name}, {self.item_field.name})"
        return f"map<{self.key_type}, {self.item_type}{tail}>"


class UnionType(DataType):
    """In each slot a value of one of the child fields, chosen by a type id."""

    __slots__ = ("fields", "mode", "type_codes")
    parameters = ("mode", "fields", "type_codes")

    def __init__(self, mode: str, fields: FieldsLike, type_codes: Sequence[int] | None = None) -> None:
        if mode not in ("sparse", "dense"):
            raise InvalidArgument(f"the mode of a union is 'sparse' or 'dense', found {mode!r}")
        self.mode = mode
        self.fields = as_fields(fields)
        codes = tuple(range(len(self.fields)) if type_codes is None else [int(code) for code in type_codes])
        if len(codes) != len(self.fields):
            raise InvalidArgument(f"a union of {len(self.fields)} fields has as many type codes, found {len(codes)}")
        if len(set(codes)) != len(codes) or not all(0 <= code <= 127 for code in codes):
            found = list(codes)[:200]
            raise InvalidArgument(f"the type codes of a union are distinct numbers from 0 to 127, found {found}")
        self.type_codes = codes

    @property
    def layout(self) -> str:  # type: ignore[override]
        return f"{self.mode}_union"

    @property
    def format(self) -> str:
        return f"+u{self.mode[0]}:" + ",".join(map(str, self.type_codes))

    def _name(self) -> str:
        inner = ", ".join(f"{field}={code}" for field, code in zip(self.fields, self.type_codes, strict=True))
        return f"{self.mode}_union<{inner}>"


class DictionaryType(DataType):
    """Indices into a dictionary of distinct values."""

    __slots__ = ("index_type", "ordered", "storage", "value_type")
    layout = "dictionary"
    parameters = ("index_type", "value_type", "ordered")

    def __init__(self, index_type: DataType | str, value_type: DataType | str, ordered: bool = False) -> None:
        index = as_type(index_type)
        if not isinstance(index, IntType):
            raise InvalidArgument(f"the index type of a dictionary is an integer, found {index}")
        self.index_type = index
        self.value_type = as_type(value_type)
        self.ordered = bool(ordered)
        self.storage = index.storage

    @property
    def format(self) -> str:
        return self.index_type.format

    def _name(self) -> str:
        return f"dictionary<values={self.value_type}, indices={self.index_type}, ordered={int(self.ordered)}>"


class RunEndEncodedType(DataType):
    """Runs of equal values: where each run ends, and its value."""

    __slots__ = ("fields",)
    layout = "run_end_encoded"
    parameters = ("run_ends_field", "values_field")
    format = "+r"

    def __init__(self, run_ends: Field | DataType | str, values: Field | DataType | str) -> None:
        ends = run_ends if isinstance(run_ends, Field) else Field("run_ends", as_type(run_ends), nullable=False)
        if not isinstance(ends.type, IntType) or not ends.type.signed or ends.type.bits == 8:
            raise InvalidArgument(f"run ends are int16, int32 or int64, found {ends.type}")
        self.fields = (ends, as_field(values, "values"))

    @property
    def run_ends_field(self) -> Field:
        return self.fields[0]

    @property
    def values_field(self) -> Field:
        return self.fields[1]

    @property
    def run_end_type(self) -> DataType:
        return self.fields[0].type

    @property
    def value_type(self) -> DataType:
        return self.fields[1].type

    def _name(self) -> str:
        return f"run_end_encoded<run_ends: {self.run_end_type}, values: {self.value_type}>"
