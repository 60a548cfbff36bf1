"""The members of pyarrow's classes and of its modules ``types`` and ``ipc`` that are not the same here."""

from __future__ import annotations

from api_kinds import (
    COMPUTE,
    DEVICE,
    INSIDE,
    NDARRAY,
    PANDAS,
    SCALARS,
    SORT,
    STRUCTURE,
    TEXT,
    Entry,
    Instead,
    Out,
)

_SHARED: dict[str, Entry] = {
    "is_cpu": DEVICE,
    "to_string": TEXT,
    "sort": SORT,
    "index": COMPUTE,
    "is_nan": COMPUTE,
    "value_counts": COMPUTE,
}
"""Members that arrays and chunked arrays leave out."""

ARRAY: dict[str, Entry] = {
    **_SHARED,
    "copy_to": DEVICE,
    "device_type": DEVICE,
    "from_dlpack": DEVICE,
    "diff": COMPUTE,
    "sum": COMPUTE,
    "statistics": COMPUTE,
    "to_pylist(*, maps_as_pydicts)": Instead(
        "maps.to_pylist(maps_as_pydicts='lossy')",
        "[pairs and dict(pairs) for pairs in maps.to_pylist()]",
        "a map may hold a key twice, and the pairs say so",
    ),
    "to_tensor": Instead(
        "pa.array([1.5, 2.5]).to_tensor().to_numpy()",
        "pa.Tensor.from_numpy(pa.array([1.5, 2.5]).to_numpy()).to_numpy()",
        "numpy stands between; nothing is copied",
    ),
}

CHUNKED: dict[str, Entry] = {
    **_SHARED,
    "data": Out("an old name of the object itself"),
    "format": TEXT,
}


def _tabular(it: str) -> dict[str, Entry]:
    """Members that record batches and tables share, for one of them by its name in the calls."""
    return {
        "is_cpu": DEVICE,
        "to_string": TEXT,
        "sort_by": SORT,
        "rename_columns": Instead(
            f'{it}.rename_columns({{"n": "m"}}).replace_schema_metadata(schema.metadata)',
            f'{it}.rename_columns({{"n": "m"}})',
            "keeps the metadata of the schema",
        ),
        "to_tensor": Instead(
            f'{it}.select(["n"]).to_tensor(null_to_nan=True, row_major=True).shape',
            f'np.asarray({it}.select(["n"])).shape',
            "an ndarray of rows and columns",
        ),
    }


BATCH: dict[str, Entry] = {
    **_tabular("batch"),
    "copy_to": DEVICE,
    "device_type": DEVICE,
    "serialize": Instead(
        "pa.ipc.open_stream(stream).read_next_batch()",
        "pa.ipc.open_stream(stream).read_next_batch()",
        "messages go through streams",
    ),
}

TABLE: dict[str, Entry] = {
    **_tabular("table"),
    "append_column": Instead(
        'table.append_column("x", [[1, 2], [3, 4, 5, 6]])',
        'table.append_column("x", pa.chunked_array([[1, 2], [3, 4, 5, 6]]))',
        "a list of lists could be lists or chunks and is refused: `pa.array` makes the one of it, `pa.chunked_array` "
        "the other",
    ),
    "group_by": SORT,
    "join": SORT,
    "join_asof": SORT,
}

SCHEMA: dict[str, Entry] = {
    "add_metadata": Out("an old name of `with_metadata`"),
    "empty_table": Instead("schema.empty_table()", "pa.Table.from_batches([], schema)", "a schema knows of no tables"),
    "field_by_name": Out("an old name of `field`"),
    "from_pandas": Instead(
        "pa.Schema.from_pandas(batch.to_pandas()).names",
        "pa.table(batch.to_pandas()).schema.names",
        "one function reads data frames",
    ),
    "serialize": Out("a stream without batches is a schema: `pa.ipc.new_stream(sink, schema)`"),
    "to_string": TEXT,
}

DATATYPE: dict[str, Entry] = {
    "has_variadic_buffers": STRUCTURE,
    "id": Out("`pa.types.is_...` tells types apart, and `isinstance`"),
    "num_buffers": STRUCTURE,
    "to_pandas_dtype": Instead("np.dtype(pa.int8().to_pandas_dtype())", "pa.int8().numpy_dtype", "an attribute"),
}

LISTS: dict[str, Entry] = {
    "offsets": Instead("lists.slice(1, 2).offsets", "pa.array(lists.slice(1, 2).offsets)", NDARRAY),
}

_LARGE = "lists.cast(pa.large_list(pa.int16()))"
LARGE_LISTS: dict[str, Entry] = {
    "offsets": Instead(f"{_LARGE}.offsets", f"pa.array({_LARGE}.offsets)", NDARRAY),
}

_VIEWS = "pa.ListViewArray.from_arrays([0, 1, 0], [2, 2, 0], [1, 2, 3])"
VIEWS: dict[str, Entry] = {
    "offsets": Instead(f"{_VIEWS}.offsets", f"pa.array({_VIEWS}.offsets)", NDARRAY),
    "sizes": Instead(f"{_VIEWS}.sizes", f"pa.array({_VIEWS}.sizes)", NDARRAY),
}


def _larger(entry: Entry) -> Entry:
    """An entry for list views as one for those with 64-bit offsets."""
    return type(entry)(*[part.replace("ListView", "LargeListView") for part in entry])


LARGE_VIEWS: dict[str, Entry] = {name: _larger(entry) for name, entry in VIEWS.items()}

MAPS: dict[str, Entry] = {
    "flatten": Instead("maps.values", "maps.flatten()", "pyarrow's refuses maps"),
    "offsets": Instead("maps.offsets", "pa.array(maps.offsets)", NDARRAY),
    "value_lengths": Instead("pa.array([1, None, 2], pa.int32())", "maps.value_lengths()", "pyarrow's refuses maps"),
    "value_parent_indices": Instead("pa.array([0, 2, 2])", "maps.value_parent_indices()", "pyarrow's refuses maps"),
}

RUNS: dict[str, Entry] = {
    "find_physical_length": STRUCTURE,
    "find_physical_offset": STRUCTURE,
}

_DENSE = "pa.UnionArray.from_dense(pa.array([0, 1, 1], pa.int8()), pa.array([0, 0, 1], pa.int32()), [numbers, words]"
UNIONS: dict[str, Entry] = {
    "child": Out("an old name of `field`"),
    "offsets": Instead(f"{_DENSE}).offsets", f"pa.array({_DENSE}).offsets)", NDARRAY),
    "type_codes": Instead(f"{_DENSE}).type_codes", f"pa.array({_DENSE}).type_ids)", NDARRAY),
}

STRUCT_TYPES: dict[str, Entry] = {
    "fields": Instead("structs.type.fields", "list(structs.type.fields)", "a tuple"),
    "get_all_field_indices": Instead(
        'structs.type.get_all_field_indices("y")',
        '[i for i, name in enumerate(structs.type.names) if name == "y"]',
        "`names` is a list",
    ),
    "get_field_index": Instead(
        'structs.type.get_field_index("y")', 'structs.type.names.index("y")', "`names` is a list"
    ),
}


BOOLEANS: dict[str, Entry] = {"true_count": COMPUTE, "false_count": COMPUTE}
BINARIES: dict[str, Entry] = {"total_values_length": STRUCTURE}

TYPES: dict[str, Entry] = {
    "is_boolean_value": SCALARS,
    "is_float_value": SCALARS,
    "is_integer_value": SCALARS,
    **dict.fromkeys(["IntEnum", "TypesEnum", "doc", "lib"], INSIDE),
}
IPC: dict[str, Entry] = {
    "read_tensor": Instead("pa.ipc.read_tensor.__name__", "pa.ipc.read_tensor.__name__", "takes names, paths, bytes"),
    "write_tensor": Instead("pa.ipc.write_tensor.__name__", "pa.ipc.write_tensor.__name__", "takes names and files"),
    "get_tensor_size": Instead(
        "pa.ipc.get_tensor_size.__name__", "pa.ipc.get_tensor_size.__name__", "with more padding before the tensor"
    ),
    "ReadStats": Instead("list(pa.ipc.ReadStats._fields)", "list(pa.ipc.IpcStats._fields)", "one class for both"),
    "WriteStats": Instead("list(pa.ipc.WriteStats._fields)", "list(pa.ipc.IpcStats._fields)", "one class for both"),
    "IpcReadOptions": Out("what a reader accepts is set by `Limits`, and which columns it reads by `included_fields`"),
    "RecordBatchReader": Out("of the module itself"),
    **dict.fromkeys(
        [
            "Message",
            "MessageReader",
            "read_message",
            "read_record_batch",
            "read_schema",
            "get_record_batch_size",
        ],
        Out("messages are read and written as parts of streams and files; `shmarrow inspect` shows them"),
    ),
    **dict.fromkeys(["serialize_pandas", "deserialize_pandas"], PANDAS),
    **dict.fromkeys(["MetadataVersion", "Alignment", "lib", "os", "pa"], INSIDE),
}

CLASSES: dict[str, dict[str, Entry]] = {
    "Array": ARRAY,
    "ChunkedArray": CHUNKED,
    "RecordBatch": BATCH,
    "Table": TABLE,
    "Schema": SCHEMA,
    "DataType": DATATYPE,
    "BooleanArray": BOOLEANS,
    "BinaryArray": BINARIES,
    "LargeBinaryArray": BINARIES,
    "ListArray": LISTS,
    "LargeListArray": LARGE_LISTS,
    "ListViewArray": VIEWS,
    "LargeListViewArray": LARGE_VIEWS,
    "MapArray": MAPS,
    "UnionArray": UNIONS,
    "RunEndEncodedArray": RUNS,
    "StructType": STRUCT_TYPES,
    "types": TYPES,
    "ipc": IPC,
}
"""The tables by the class or module of pyarrow; what a class inherits stands with the class that has it."""
