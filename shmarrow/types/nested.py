# SPDX-License-Identifier: Apache-2.0
"""Nested and encoded types: lists, structs, maps, unions, dictionaries, run-end encoding ("Data Types").

The factories are named as in pyarrow.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, ClassVar, Literal, overload

import numpy as np

from shmarrow.buffer import DType
from shmarrow.errors import InvalidArgument, InvalidType, shown
from shmarrow.types.arguments import as_bool, as_int
from shmarrow.types.base import DataType, Field, FieldsLike, as_field, as_fields, as_type
from shmarrow.types.descriptors import UNION_MODE, check_complete
from shmarrow.types.primitive import IntType

__all__ = [
    "DictionaryType", "EncodedType", "FixedSizeListType", "LargeListType", "LargeListViewType", "ListType",
    "ListViewType", "MapType", "RunEndEncodedType", "StructType", "UnionType", "dense_union", "dictionary",
    "large_list", "large_list_view", "list_", "list_view", "map_", "run_end_encoded", "sparse_union", "struct", "union",
]  # fmt: skip


class _ListLike(DataType, abstract=True):
    """Base class of list types; the child's name does not take part in equality."""

    __slots__ = ("fields",)
    parameters: ClassVar[tuple[str, ...]] = ("value_field",)

    def __init__(self, value: Field | DataType | str) -> None:
        self._set(fields=(as_field(value, "item"),))

    @property
    def value_field(self) -> Field:
        return self.fields[0]

    @property
    def value_type(self) -> DataType:
        return self.fields[0].type

    def _key(self) -> tuple[Any, ...]:
        return (self.fields[0].type, self.fields[0].nullable)

    def _name(self) -> str:
        return f"{self.layout}<{self.value_field}>"


class ListType(_ListLike, members=("List",)):
    """Lists with 32-bit offsets into the child.

    Attributes
    ----------
    value_field : Field
        Field of the elements.
    value_type : DataType
        Type of the elements.
    offset_dtype : numpy.dtype
        dtype of the offsets.
    """

    __slots__ = ()
    offset_dtype = np.dtype("<i4")


class LargeListType(_ListLike, members=("LargeList",)):
    """Lists with 64-bit offsets into the child.

    Attributes
    ----------
    value_field : Field
        Field of the elements.
    value_type : DataType
        Type of the elements.
    offset_dtype : numpy.dtype
        dtype of the offsets.
    """

    __slots__ = ()
    offset_dtype = np.dtype("<i8")


class ListViewType(_ListLike, members=("ListView",)):
    """List views with 32-bit offsets and sizes; lists may be out of order and overlap.

    Attributes
    ----------
    value_field : Field
        Field of the elements.
    value_type : DataType
        Type of the elements.
    offset_dtype : numpy.dtype
        dtype of the offsets and sizes.
    """

    __slots__ = ()
    offset_dtype = np.dtype("<i4")


class LargeListViewType(_ListLike, members=("LargeListView",)):
    """List views with 64-bit offsets and sizes; lists may be out of order and overlap.

    Attributes
    ----------
    value_field : Field
        Field of the elements.
    value_type : DataType
        Type of the elements.
    offset_dtype : numpy.dtype
        dtype of the offsets and sizes.
    """

    __slots__ = ()
    offset_dtype = np.dtype("<i8")


class FixedSizeListType(_ListLike, members=("FixedSizeList",)):
    """Lists of a fixed number of child values.

    Attributes
    ----------
    value_field : Field
        Field of the elements.
    value_type : DataType
        Type of the elements.
    list_size : int
        Length of each list.
    """

    __slots__ = ("list_size",)
    parameters = ("value_field", "list_size")
    list_size: int

    def __init__(self, value: Field | DataType | str, list_size: int) -> None:
        super().__init__(value)
        list_size = as_int(list_size, "the size of a fixed-size list")
        if not 0 <= list_size < 1 << 31:
            raise InvalidArgument(
                f"the size of a fixed-size list must be an int32 of at least 0, found {shown(list_size)}"
            )
        self._set(list_size=list_size)

    def _key(self) -> tuple[Any, ...]:
        return (*super()._key(), self.list_size)

    def _name(self) -> str:
        return f"fixed_size_list<{self.value_field}>[{self.list_size}]"


class StructType(DataType, members=("Struct_",)):
    """Structs: each slot has one value of every child field.

    Attributes
    ----------
    names : list of str
        Names of the child fields.
    """

    __slots__ = ("fields",)
    parameters = ("fields",)

    def __init__(self, fields: FieldsLike) -> None:
        self._set(fields=as_fields(fields))

    @property
    def names(self) -> list[str]:
        return [field.name for field in self.fields]

    def __len__(self) -> int:
        return len(self.fields)

    def __iter__(self) -> Iterator[Field]:
        return iter(self.fields)

    def _name(self) -> str:
        return f"struct<{', '.join(map(str, self.fields))}>"


class MapType(DataType, members=("Map",)):
    """Maps: lists of key-item pairs.

    Physically a list of structs with two fields; their names do not take part in equality.

    Attributes
    ----------
    keys_sorted : bool
        Whether the keys of each map are in ascending order.
    entries_field : Field
        Field of the entries, a struct of key and item.
    key_field, item_field : Field
        Fields of keys and items.
    key_type, item_type : DataType
        Types of keys and items.
    offset_dtype : numpy.dtype
        dtype of the offsets.
    """

    __slots__ = ("fields", "keys_sorted")
    parameters = ("entries_field", "keys_sorted")
    keys_sorted: bool
    offset_dtype = np.dtype("<i4")

    def __init__(self, entries: Field, keys_sorted: bool = False) -> None:
        if not isinstance(entries.type, StructType) or len(entries.type.fields) != 2:
            raise InvalidArgument(f"the entries of a map must be a struct of two fields, found {entries.type}")
        self._set(fields=(entries,), keys_sorted=as_bool(keys_sorted, "keys_sorted", False))

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


class UnionType(DataType, members=("Union",)):
    """Unions: each slot has a value of one child field, selected by a type id.

    Attributes
    ----------
    mode : str
        ``"dense"`` or ``"sparse"``.
    type_codes : tuple of int
        Type id of each child field.
    """

    __slots__ = ("fields", "mode", "type_codes")
    parameters = ("mode", "fields", "type_codes")
    mode: str
    type_codes: tuple[int, ...]

    def __init__(self, mode: str, fields: FieldsLike, type_codes: Sequence[int] | None = None) -> None:
        if mode not in UNION_MODE.values:
            raise InvalidArgument(f"the mode of a union must be 'sparse' or 'dense', found {shown(mode)}")
        self._set(mode=mode, fields=as_fields(fields))
        type_ids = range(len(self.fields)) if type_codes is None else type_codes
        if isinstance(type_ids, (str, bytes)) or not hasattr(type_ids, "__iter__"):
            raise InvalidType(f"the type codes of a union must be a list of ints, found {shown(type_codes)}")
        codes = tuple([as_int(code, "a type code of a union") for code in type_ids])
        if len(codes) != len(self.fields):
            raise InvalidArgument(
                f"expected {len(self.fields)} type codes, one for each field of the union, found {len(codes)}"
            )
        if len(set(codes)) != len(codes) or not all(0 <= code <= 127 for code in codes):
            raise InvalidArgument(f"the type codes of a union must be distinct and from 0 to 127, found {shown(codes)}")
        self._set(type_codes=codes)

    @property
    def layout(self) -> str:  # type: ignore[override]
        return f"{self.mode}_union"

    def _name(self) -> str:
        inner = ", ".join(f"{field}={code}" for field, code in zip(self.fields, self.type_codes, strict=True))
        return f"{self.mode}_union<{inner}>"


class EncodedType(DataType, abstract=True):
    """Base class of dictionary and run-end encoding, which store repeated values once.

    Attributes
    ----------
    value_type : DataType
        Type of the values.
    """

    __slots__ = ()
    value_type: DataType


class DictionaryType(EncodedType, members=("DictionaryEncoding",)):
    """Indices into a dictionary of distinct values.

    Attributes
    ----------
    index_type : IntType
        The type of the indices.
    value_type : DataType
        The type of the dictionary.
    ordered : bool
        Whether the order of the dictionary has a meaning.
    """

    __slots__ = ("index_type", "ordered", "storage", "value_type")
    storage: DType
    parameters = ("index_type", "value_type", "ordered")
    index_type: IntType
    ordered: bool

    def __init__(self, index_type: DataType | str, value_type: DataType | str, ordered: bool = False) -> None:
        index = as_type(index_type)
        if not isinstance(index, IntType):
            raise InvalidArgument(f"the index type of a dictionary must be an integer, found {index}")
        ordered = as_bool(ordered, "ordered", False)
        self._set(index_type=index, value_type=as_type(value_type), ordered=ordered, storage=index.storage)

    def _name(self) -> str:
        return f"dictionary<values={self.value_type}, indices={self.index_type}, ordered={int(self.ordered)}>"


class RunEndEncodedType(EncodedType, members=("RunEndEncoded",)):
    """Run-end encoding: the end and the value of each run of equal values.

    Attributes
    ----------
    run_ends_field, values_field : Field
        Child fields.
    run_end_type : DataType
        Type of the run ends: int16, int32 or int64.
    value_type : DataType
        Type of the values.
    """

    __slots__ = ("fields",)
    parameters = ("run_ends_field", "values_field")

    def __init__(self, run_ends: Field | DataType | str, values: Field | DataType | str) -> None:
        ends = run_ends if isinstance(run_ends, Field) else Field("run_ends", as_type(run_ends), nullable=False)
        if not isinstance(ends.type, IntType) or not ends.type.signed or ends.type.bits == 8:
            raise InvalidArgument(f"run ends must be int16, int32 or int64, found {ends.type}")
        self._set(fields=(ends, as_field(values, "values")))

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
    def value_type(self) -> DataType:  # type: ignore[override]
        return self.fields[1].type

    def _name(self) -> str:
        return f"run_end_encoded<run_ends: {self.run_end_type}, values: {self.value_type}>"


check_complete()


@overload
def list_(value_type: Field | DataType | str, list_size: Literal[-1] = -1) -> ListType: ...  # type: ignore[overload-overlap]


@overload
def list_(value_type: Field | DataType | str, list_size: int) -> FixedSizeListType: ...


def list_(value_type: Field | DataType | str, list_size: int = -1) -> ListType | FixedSizeListType:
    """Create a list type.

    Parameters
    ----------
    value_type : Field, DataType or str
        Field or type of the elements.
    list_size : int
        Length of each list of a fixed-size list type; -1 for variable lengths.

    Raises
    ------
    InvalidType
        If ``value_type`` is neither a field nor a type.
    InvalidArgument
        If the type name is unknown, or the size is out of range.
    """
    list_size = as_int(list_size, "the size of a fixed-size list")
    return ListType(value_type) if list_size == -1 else FixedSizeListType(value_type, list_size)


def large_list(value_type: Field | DataType | str) -> LargeListType:
    """Create a list type with 64-bit offsets."""
    return LargeListType(value_type)


def list_view(value_type: Field | DataType | str) -> ListViewType:
    """Create a list-view type with 32-bit offsets and sizes."""
    return ListViewType(value_type)


def large_list_view(value_type: Field | DataType | str) -> LargeListViewType:
    """Create a list-view type with 64-bit offsets and sizes."""
    return LargeListViewType(value_type)


def struct(fields: FieldsLike) -> StructType:
    """Create a struct type from fields, (name, type) pairs, or a mapping of names to types."""
    return StructType(fields)


def map_(key_type: Field | DataType | str, item_type: Field | DataType | str, keys_sorted: bool = False) -> MapType:
    """Create a map type.

    Parameters
    ----------
    key_type : Field, DataType or str
        Field or type of the keys; keys are never null.
    item_type : Field, DataType or str
        Field or type of the items.
    keys_sorted : bool
        Whether the keys of each map are sorted.

    Raises
    ------
    InvalidType
        If ``key_type`` or ``item_type`` is neither a field nor a type.
    InvalidArgument
        If a type name is unknown.
    """
    key = key_type if isinstance(key_type, Field) else Field("key", as_type(key_type), nullable=False)
    entries = Field("entries", StructType([key, as_field(item_type, "value")]), nullable=False)
    return MapType(entries, keys_sorted)


def dictionary(index_type: DataType | str, value_type: DataType | str, ordered: bool = False) -> DictionaryType:
    """Create a dictionary-encoded type.

    Parameters
    ----------
    index_type : DataType or str
        Integer type of the indices, which limits the size of the dictionary.
    value_type : DataType or str
        Type of the values.
    ordered : bool
        Whether the order of the dictionary's values is meaningful.

    Raises
    ------
    InvalidType
        If ``index_type`` or ``value_type`` is not a type.
    InvalidArgument
        If a type name is unknown, or the index type is not an integer type.
    """
    return DictionaryType(index_type, value_type, ordered)


def union(fields: FieldsLike, mode: str, type_codes: Sequence[int] | None = None) -> UnionType:
    """Create a union type of mode ``"sparse"`` or ``"dense"``; type codes default to 0 to n - 1."""
    return UnionType(mode, fields, type_codes)


def sparse_union(fields: FieldsLike, type_codes: Sequence[int] | None = None) -> UnionType:
    """Create a sparse union type, whose children all have the length of the union."""
    return UnionType("sparse", fields, type_codes)


def dense_union(fields: FieldsLike, type_codes: Sequence[int] | None = None) -> UnionType:
    """Create a dense union type, whose children hold only the values in use, located by offsets."""
    return UnionType("dense", fields, type_codes)


def run_end_encoded(run_end_type: Field | DataType | str, value_type: Field | DataType | str) -> RunEndEncodedType:
    """Create a run-end-encoded type with run ends of 16, 32 or 64 bits."""
    return RunEndEncodedType(run_end_type, value_type)
