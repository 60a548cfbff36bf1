"""The names of pyarrow's classes, and of its modules ``types`` and ``ipc``, and what stands for them here."""

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
    same,
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
    "buffers": same("[data is None for data in lists.buffers()]", "[data is None for data in numbers.buffers()]"),
    "cast": same(
        "numbers.cast(pa.int64())",
        'numbers.cast("float32")',
        "numbers.cast(target_type=pa.int16(), safe=True)",
        "words.cast(pa.large_binary())",
        "pa.array([1.5, None]).cast(pa.int8(), safe=False)",
        'structs.cast(pa.struct([("y", pa.large_string()), ("x", pa.int64())]))',
    ),
    "dictionary_encode": same("words.dictionary_encode()", 'words.dictionary_encode(null_encoding="mask")'),
    "drop_null": same("numbers.drop_null()", "lists.drop_null()"),
    "equals": same(
        "numbers.equals(numbers.slice(0))", "numbers.equals(words)", "numbers.equals(other=numbers.slice(1))"
    ),
    "fill_null": same("numbers.fill_null(7)", 'words.fill_null("z")', "mask.fill_null(fill_value=True)"),
    "filter": same(
        "numbers.filter(mask)",
        'numbers.filter(mask, null_selection_behavior="emit_null")',
        "lists.filter([True, False, None, True])",
        "words.filter(np.array([True, True, False, True]))",
    ),
    "from_buffers": same(
        "pa.Array.from_buffers(pa.int8(), 4, numbers.buffers())",
        "pa.Array.from_buffers(pa.int8(), 2, numbers.buffers(), -1, 1)",
        "pa.Array.from_buffers(lists.type, 4, lists.buffers()[:2], null_count=1, children=[lists.values])",
        "pa.Array.from_buffers(type=pa.string(), length=4, buffers=words.buffers(), offset=0)",
    ),
    "from_pandas": same(
        "pa.Array.from_pandas(np.array([1.0, np.nan]))",
        "pa.Array.from_pandas([1, None], mask=np.array([True, False]), type=pa.int8())",
    ),
    "to_pandas": same("numbers.to_pandas()", "words.to_pandas(strings_to_categorical=True)"),
    "get_total_buffer_size": same("pa.array(np.arange(9)).slice(2, 3).get_total_buffer_size()"),
    "is_null": same("numbers.is_null()", "pa.array([1.0, float('nan'), None]).is_null(nan_is_null=True)"),
    "is_valid": same("numbers.is_valid()"),
    "nbytes": same(
        "numbers.nbytes",
        "pa.array(np.arange(9)).slice(2, 3).nbytes",
        "words.slice(2, 1).nbytes",
        "lists.slice(3, 1).nbytes",
    ),
    "null_count": same("numbers.null_count", "numbers.slice(2).null_count"),
    "offset": same("numbers.offset", "numbers.slice(2).offset"),
    "slice": same("numbers.slice(1)", "numbers.slice(10)", "numbers.slice(1, 2)", "numbers.slice(offset=1, length=9)"),
    "take": same("numbers.take([3, 0])", "numbers.take(pa.array([1, None]))", "lists.take(indices=np.array([2, 0]))"),
    "to_numpy": same(
        "pa.array([1, 2], pa.int8()).to_numpy()",
        "pa.array([1, 2]).to_numpy(zero_copy_only=True)",
        "numbers.to_numpy(False)",
        "words.to_numpy(zero_copy_only=False)",
    ),
    "to_pylist": same("numbers.to_pylist()", "lists.to_pylist()", "maps.to_pylist()", "structs.to_pylist()"),
    "to_pylist(*, maps_as_pydicts)": Instead(
        "maps.to_pylist(maps_as_pydicts='lossy')",
        "[pairs and dict(pairs) for pairs in maps.to_pylist()]",
        "a map may hold a key twice, and the pairs say so",
    ),
    "tolist": same("numbers.tolist()"),
    "to_tensor": Instead(
        "pa.array([1.5, 2.5]).to_tensor().to_numpy()",
        "pa.Tensor.from_numpy(pa.array([1.5, 2.5]).to_numpy()).to_numpy()",
        "numpy stands between; nothing is copied",
    ),
    "type": same("numbers.type"),
    "unique": same("words.unique()", "numbers.unique()"),
    "validate": same("numbers.validate()", "numbers.validate(full=True)"),
    "view": same("numbers.view(pa.uint8())", "pa.array([1.5, None]).view(pa.int64())"),
}

CHUNKED: dict[str, Entry] = {
    **_SHARED,
    "to_pandas": same("chunks.to_pandas()", "chunks.to_pandas(zero_copy_only=False)"),
    "cast": same("chunks.cast(pa.int64())", 'chunks.cast("float64", safe=True)'),
    "chunk": same("chunks.chunk(2)", "chunks.chunk(i=0)"),
    "chunks": same("chunks.chunks"),
    "combine_chunks": same("chunks.combine_chunks()"),
    "data": Out("an old name of the object itself"),
    "dictionary_encode": same("chunks.dictionary_encode()"),
    "drop_null": same("chunks.drop_null().to_pylist()"),
    "equals": same("chunks.equals(chunks)", "chunks.equals(pa.chunked_array([[1, None, 2, 1]], pa.int32()))"),
    "fill_null": same("chunks.fill_null(5)"),
    "filter": same(
        "chunks.filter(mask).to_pylist()",
        "chunks.filter(mask, 'emit_null').to_pylist()",
        "chunks.filter(pa.chunked_array([[True], [False, True, True]])).to_pylist()",
    ),
    "flatten": same("pa.chunked_array([structs]).flatten()"),
    "format": TEXT,
    "get_total_buffer_size": same("pa.chunked_array([np.arange(4)]).get_total_buffer_size()"),
    "is_null": same("chunks.is_null()", "pa.chunked_array([[1.0], [float('nan')]]).is_null(nan_is_null=True)"),
    "is_valid": same("chunks.is_valid()"),
    "iterchunks": same("list(chunks.iterchunks())"),
    "length": same("chunks.length()"),
    "nbytes": same("pa.chunked_array([np.arange(4)]).slice(1, 2).nbytes"),
    "null_count": same("chunks.null_count"),
    "num_chunks": same("chunks.num_chunks"),
    "slice": same(
        "chunks.slice(1).to_pylist()", "chunks.slice(10).to_pylist()", "chunks.slice(offset=1, length=2).to_pylist()"
    ),
    "take": same("chunks.take([3, 0]).to_pylist()", "chunks.take(pa.array([2, None])).to_pylist()"),
    "to_numpy": same("pa.chunked_array([[1], [2]]).to_numpy()", "chunks.to_numpy(zero_copy_only=False)"),
    "to_pylist": same("chunks.to_pylist()"),
    "type": same("chunks.type"),
    "unify_dictionaries": same(
        "pa.chunked_array([encoded, pa.array(['c', 'a']).dictionary_encode()]).unify_dictionaries()"
    ),
    "unique": same("chunks.unique()"),
    "validate": same("chunks.validate()", "chunks.validate(full=True)"),
}


def _tabular(it: str, column: str) -> dict[str, Entry]:
    """Members that record batches and tables share, for one of them by its name in the calls."""
    kind = "pa.RecordBatch" if it == "batch" else "pa.Table"
    return {
        "is_cpu": DEVICE,
        "to_string": TEXT,
        "to_pandas": same(f"{it}.to_pandas()", f"{it}.to_pandas(integer_object_nulls=True)"),
        "sort_by": SORT,
        "from_pandas": same(
            f"{kind}.from_pandas({it}.to_pandas()).to_pydict()",
            f"{kind}.from_pandas({it}.to_pandas(), preserve_index=True).schema.names",
            f"{kind}.from_pandas({it}.to_pandas().set_index('n'), preserve_index=False, columns=['s']).to_pydict()",
        ),
        "add_column": same(
            f'{it}.add_column(1, "x", {column})', f"{it}.add_column(0, field.with_nullable(True), {column})"
        ),
        "append_column": same(
            f'{it}.append_column("x", {column})', f'{it}.append_column(pa.field("x", pa.int8()), {column})'
        ),
        "cast": same(
            f'{it}.cast(pa.schema([("n", pa.int64()), ("s", pa.large_string())]))',
            f"{it}.cast(target_schema=schema, safe=True)",
        ),
        "column": same(f"{it}.column(0)", f'{it}.column("s")'),
        "column_names": same(f"{it}.column_names"),
        "columns": same(f"{it}.columns"),
        "drop_columns": same(f'{it}.drop_columns("n")', f'{it}.drop_columns(["n"])'),
        "drop_null": same(f"{it}.drop_null()"),
        "equals": same(
            f"{it}.equals({it}.slice(0))",
            f"{it}.equals({it}.slice(1))",
            f"{it}.equals({it}.replace_schema_metadata(), check_metadata=True)",
        ),
        "field": same(f"{it}.field(0)", f'{it}.field("s")'),
        "filter": same(
            f"{it}.slice(0, 4).filter(mask)", f"{it}.slice(0, 4).filter(mask, null_selection_behavior='emit_null')"
        ),
        "from_arrays": same(
            f'{kind}.from_arrays([numbers, words], ["a", "b"])',
            f"{kind}.from_arrays([numbers, words], schema=schema)",
            f'{kind}.from_arrays([numbers], names=["a"], metadata={{"k": "w"}})',
            f'{kind}.from_arrays([pa.array([1])], schema=pa.schema([("a", pa.int8())], metadata={{"k": "w"}}))',
        ),
        "from_pydict": same(
            f'{kind}.from_pydict({{"a": [1, None], "b": ["x", "y"]}})',
            f'{kind}.from_pydict({{"s": ["a"], "n": [1]}}, schema=schema)',
            f'{kind}.from_pydict({{"a": [1]}}, metadata={{"k": "w"}})',
        ),
        "from_pylist": same(
            f'{kind}.from_pylist([{{"a": 1, "b": "x"}}, {{"a": None}}])',
            f'{kind}.from_pylist([{{"s": "a", "n": 1}}, {{}}], schema=schema)',
            f'{kind}.from_pylist([{{"a": 1}}], metadata={{"k": "w"}})',
            f"{kind}.from_pylist([])",
        ),
        "from_struct_array": same(f"{kind}.from_struct_array(structs.drop_null())"),
        "get_total_buffer_size": same(
            f'{kind}.from_arrays([pa.array(np.arange(4))] * 2, ["a", "b"]).get_total_buffer_size()'
        ),
        "itercolumns": same(f"list({it}.itercolumns())"),
        "nbytes": same(f"{it}.nbytes", f"{it}.slice(1, 2).nbytes"),
        "num_columns": same(f"{it}.num_columns"),
        "num_rows": same(f"{it}.num_rows"),
        "remove_column": same(f"{it}.remove_column(1)"),
        "rename_columns": Instead(
            f'{it}.rename_columns({{"n": "m"}}).replace_schema_metadata(schema.metadata)',
            f'{it}.rename_columns({{"n": "m"}})',
            "keeps the metadata of the schema",
        ),
        "replace_schema_metadata": same(
            f"{it}.replace_schema_metadata()", f'{it}.replace_schema_metadata({{"k": "w"}})'
        ),
        "schema": same(f"{it}.schema"),
        "select": same(f'{it}.select(["s"])', f"{it}.select([1, 0])"),
        "set_column": same(
            f'{it}.set_column(1, "x", {column})', f'{it}.set_column(0, pa.field("x", pa.int8()), {column})'
        ),
        "shape": same(f"{it}.shape"),
        "slice": same(f"{it}.slice(1)", f"{it}.slice(10)", f"{it}.slice(offset=1, length=2)"),
        "take": same(f"{it}.take([3, 0])", f"{it}.take(pa.array([1, None]))"),
        "to_pydict": same(f"{it}.to_pydict()"),
        "to_pylist": same(f"{it}.to_pylist()"),
        "to_struct_array": same(f"{it}.to_struct_array()"),
        "to_tensor": Instead(
            f'{it}.select(["n"]).to_tensor(null_to_nan=True, row_major=True).shape',
            f'np.asarray({it}.select(["n"])).shape',
            "an ndarray of rows and columns",
        ),
        "validate": same(f"{it}.validate()", f"{it}.validate(full=True)"),
    }


BATCH: dict[str, Entry] = {
    **_tabular("batch", "numbers"),
    "copy_to": DEVICE,
    "device_type": DEVICE,
    "serialize": Instead(
        "pa.ipc.open_stream(stream).read_next_batch()",
        "pa.ipc.open_stream(stream).read_next_batch()",
        "messages go through streams",
    ),
}

TABLE: dict[str, Entry] = {
    **_tabular("table", "pa.chunked_array([numbers, numbers.slice(0, 2)])"),
    "append_column": Instead(
        'table.append_column("x", [[1, 2], [3, 4, 5, 6]])',
        'table.append_column("x", pa.chunked_array([[1, 2], [3, 4, 5, 6]]))',
        "a list of lists could be lists or chunks and is refused: `pa.array` makes the one of it, `pa.chunked_array` "
        "the other",
    ),
    "combine_chunks": same("table.combine_chunks()"),
    "drop": same('table.drop(["n"])'),
    "flatten": same('pa.table({"s": structs, "n": structs}).flatten()'),
    "from_batches": same("pa.Table.from_batches([batch, batch])", "pa.Table.from_batches([], schema=schema)"),
    "group_by": SORT,
    "join": SORT,
    "join_asof": SORT,
    "to_batches": same("table.to_batches()", "table.to_batches(max_chunksize=3)"),
    "to_reader": same("table.to_reader().read_all()", "[b.num_rows for b in table.to_reader(max_chunksize=3)]"),
    "unify_dictionaries": same(
        'pa.table({"d": pa.chunked_array([encoded, pa.array(["c", "a"]).dictionary_encode()])}).unify_dictionaries()'
    ),
}

SCHEMA: dict[str, Entry] = {
    "add_metadata": Out("an old name of `with_metadata`"),
    "append": same('schema.append(pa.field("x", pa.int8()))'),
    "empty_table": Instead("schema.empty_table()", "pa.Table.from_batches([], schema)", "a schema knows of no tables"),
    "equals": same(
        "schema.equals(schema.remove_metadata())", "schema.equals(schema.remove_metadata(), check_metadata=True)"
    ),
    "field": same("schema.field(1)", 'schema.field("n")'),
    "field_by_name": Out("an old name of `field`"),
    "from_pandas": Instead(
        "pa.Schema.from_pandas(batch.to_pandas()).names",
        "pa.table(batch.to_pandas()).schema.names",
        "one function reads data frames",
    ),
    "get_all_field_indices": same('schema.get_all_field_indices("s")', 'schema.get_all_field_indices("x")'),
    "get_field_index": same('schema.get_field_index("s")', 'schema.get_field_index("x")'),
    "insert": same('schema.insert(1, pa.field("x", pa.int8()))'),
    "metadata": same("schema.metadata", "schema.remove_metadata().metadata"),
    "names": same("schema.names"),
    "pandas_metadata": same(
        "schema.pandas_metadata", 'pa.Table.from_pandas(batch.to_pandas()).schema.pandas_metadata["index_columns"]'
    ),
    "remove": same("schema.remove(0)"),
    "remove_metadata": same("schema.remove_metadata()"),
    "serialize": Out("a stream without batches is a schema: `pa.ipc.new_stream(sink, schema)`"),
    "set": same('schema.set(1, pa.field("x", pa.int8()))'),
    "to_string": TEXT,
    "types": same("schema.types"),
    "with_metadata": same('schema.with_metadata({"k": "w"})'),
}

FIELD: dict[str, Entry] = {
    "equals": same(
        "field.equals(field.remove_metadata())", "field.equals(field.remove_metadata(), check_metadata=True)"
    ),
    "flatten": same(
        "field.flatten()",
        'pa.field("f", structs.type).flatten()',
        'pa.field("f", pa.struct([field]), False, {"k": "v"}).flatten()',
    ),
    "metadata": same("field.metadata"),
    "name": same("field.name"),
    "nullable": same("field.nullable"),
    "remove_metadata": same("field.remove_metadata()"),
    "type": same("field.type"),
    "with_metadata": same('field.with_metadata({"k": "w"})'),
    "with_name": same('field.with_name("m")'),
    "with_nullable": same("field.with_nullable(True)"),
    "with_type": same("field.with_type(pa.string())"),
}

DATATYPE: dict[str, Entry] = {
    "bit_width": same("pa.bool_().bit_width", "pa.decimal128(5).bit_width"),
    "byte_width": same("pa.int32().byte_width", "pa.binary(3).byte_width"),
    "equals": same("pa.int8().equals(pa.int8())", "pa.int8().equals(pa.int16())"),
    "field": same("structs.type.field(1)", 'structs.type.field("x")', "lists.type.field(0)"),
    "has_variadic_buffers": STRUCTURE,
    "id": Out("`pa.types.is_...` tells types apart, and `isinstance`"),
    "num_buffers": STRUCTURE,
    "num_fields": same("structs.type.num_fields", "pa.int8().num_fields"),
    "to_pandas_dtype": Instead("np.dtype(pa.int8().to_pandas_dtype())", "pa.int8().numpy_dtype", "an attribute"),
}

LISTS: dict[str, Entry] = {
    "flatten": same("lists.flatten()", "lists.slice(2).flatten()"),
    "from_arrays": same(
        "pa.ListArray.from_arrays([0, 2, 2, 3], [1, 2, 3])",
        "pa.ListArray.from_arrays(pa.array([0, 2, 3]), numbers)",
        "pa.ListArray.from_arrays(pa.array([0, 2, 3], pa.int32()), pa.array([1, 2, 3]), mask=masked)",
        "pa.ListArray.from_arrays([0, 1], pa.array([1], pa.int8()), type=pa.list_(pa.field('x', pa.int8())))",
        "pa.ListArray.from_arrays(pa.array([0, None, 3]), [1, 2, 3])",
    ),
    "offsets": Instead("lists.slice(1, 2).offsets", "pa.array(lists.slice(1, 2).offsets)", NDARRAY),
    "value_lengths": same("lists.value_lengths()"),
    "value_parent_indices": same("lists.value_parent_indices()"),
    "values": same("lists.values", "lists.slice(3).values"),
}

_LARGE = "lists.cast(pa.large_list(pa.int16()))"
LARGE_LISTS: dict[str, Entry] = {
    "flatten": same(f"{_LARGE}.flatten()"),
    "from_arrays": same("pa.LargeListArray.from_arrays([0, 2, 2, 3], [1, 2, 3])"),
    "offsets": Instead(f"{_LARGE}.offsets", f"pa.array({_LARGE}.offsets)", NDARRAY),
    "value_lengths": same(f"{_LARGE}.value_lengths()"),
    "value_parent_indices": same(f"{_LARGE}.value_parent_indices()"),
    "values": same(f"{_LARGE}.values"),
}

_SOME_VIEWS = "pa.ListViewArray.from_arrays([0, 1, 0], [2, 2, 0], [1, 2, 3])"
_VIEWS = "pa.array([[1, 2], None, [], [3]], pa.list_view(pa.int16()))"
VIEWS: dict[str, Entry] = {
    "flatten": same(f"{_VIEWS}.flatten()"),
    "from_arrays": same(
        "pa.ListViewArray.from_arrays([0, 1, 0], [2, 2, 0], [1, 2, 3])",
        "pa.ListViewArray.from_arrays([0, 1], [2, 2], pa.array([1, 2, 3]), mask=masked)",
    ),
    "offsets": Instead(f"{_SOME_VIEWS}.offsets", f"pa.array({_SOME_VIEWS}.offsets)", NDARRAY),
    "sizes": Instead(f"{_SOME_VIEWS}.sizes", f"pa.array({_SOME_VIEWS}.sizes)", NDARRAY),
    "value_lengths": same(f"{_VIEWS}.value_lengths()"),
    "value_parent_indices": same(f"{_VIEWS}.value_parent_indices()"),
    "values": same(f"{_VIEWS}.values"),
}


def _larger(entry: Entry) -> Entry:
    """An entry for list views as one for those with 64-bit offsets."""
    made = [
        tuple(_larger_call(call) for call in part) if isinstance(part, tuple) else _larger_call(part) for part in entry
    ]
    return type(entry)(*made)


def _larger_call(call: str) -> str:
    return call.replace("list_view", "large_list_view").replace("ListView", "LargeListView")


LARGE_VIEWS: dict[str, Entry] = {name: _larger(entry) for name, entry in VIEWS.items()}

FIXED_SIZE_LISTS: dict[str, Entry] = {
    "flatten": same("pairs.flatten()"),
    "from_arrays": same(
        "pa.FixedSizeListArray.from_arrays([1, 2, 3, 4], 2)",
        "pa.FixedSizeListArray.from_arrays(pa.array([1, 2]), type=pa.list_(pa.int64(), 1), mask=masked)",
    ),
    "value_lengths": same("pairs.value_lengths()"),
    "value_parent_indices": same("pairs.value_parent_indices()"),
    "values": same("pairs.values", "pairs.slice(2).values"),
}

MAPS: dict[str, Entry] = {
    "flatten": Instead("maps.values", "maps.flatten()", "pyarrow's refuses maps"),
    "from_arrays": same(
        'pa.MapArray.from_arrays([0, 2, 3], ["a", "b", "c"], [1, 2, None])',
        'pa.MapArray.from_arrays(pa.array([0, 1, 2], pa.int32()), ["a", "b"], [1, 2], mask=masked)',
        'pa.MapArray.from_arrays([0, 1], ["a"], pa.array([1], pa.int8()), maps.type)',
    ),
    "items": same("maps.items"),
    "keys": same("maps.keys"),
    "offsets": Instead("maps.offsets", "pa.array(maps.offsets)", NDARRAY),
    "value_lengths": Instead("pa.array([1, None, 2], pa.int32())", "maps.value_lengths()", "pyarrow's refuses maps"),
    "value_parent_indices": Instead("pa.array([0, 2, 2])", "maps.value_parent_indices()", "pyarrow's refuses maps"),
    "values": same("maps.values"),
}

STRUCTS: dict[str, Entry] = {
    "field": same('structs.drop_null().field("y")', "structs.slice(2).field(0)"),
    "flatten": same("structs.flatten()"),
    "from_arrays": same(
        'pa.StructArray.from_arrays([numbers, words], ["a", "b"])',
        'pa.StructArray.from_arrays([numbers, words], names=["a", "b"], mask=pa.array([True, False, False, False]))',
        'pa.StructArray.from_arrays([numbers, words], fields=[pa.field("a", pa.int8()), pa.field("b", pa.string())])',
        "pa.StructArray.from_arrays([numbers, words], type=structs.type)",
    ),
}

DICTIONARIES: dict[str, Entry] = {
    "dictionary": same("encoded.dictionary"),
    "dictionary_decode": same("encoded.dictionary_decode()"),
    "from_arrays": same(
        'pa.DictionaryArray.from_arrays([0, 1, None], ["a", "b"])',
        "pa.DictionaryArray.from_arrays(np.array([0, 2]), words, mask=np.array([True, False]), ordered=True)",
        'pa.DictionaryArray.from_arrays(np.array([0, 1]), ["a", "b"], safe=True)',
    ),
    "indices": same("encoded.indices"),
}

_RUNS = "pa.RunEndEncodedArray.from_arrays([2, 5], [1, None])"
RUNS: dict[str, Entry] = {
    "find_physical_length": STRUCTURE,
    "find_physical_offset": STRUCTURE,
    "from_arrays": same(
        "pa.RunEndEncodedArray.from_arrays([2, 5], ['a', None]).to_pylist()",
        "pa.RunEndEncodedArray.from_arrays([2, 5], words.slice(0, 2), pa.run_end_encoded(pa.int16(), pa.string()))",
    ),
    "run_ends": same(f"{_RUNS}.run_ends.to_pylist()"),
    "values": same(f"{_RUNS}.values.to_pylist()"),
}

_DENSE = "pa.UnionArray.from_dense(pa.array([0, 1, 1], pa.int8()), pa.array([0, 0, 1], pa.int32()), [numbers, words]"
UNIONS: dict[str, Entry] = {
    "child": Out("an old name of `field`"),
    "field": same(f"{_DENSE}).field(1)"),
    "from_dense": same(f"{_DENSE})", f'{_DENSE}, ["n", "s"], [0, 1])'),
    "from_sparse": same(
        "pa.UnionArray.from_sparse(pa.array([0, 1, 1, 0], pa.int8()), [numbers, words])",
        'pa.UnionArray.from_sparse(pa.array([7, 5, 5, 7], pa.int8()), [numbers, words], ["n", "s"], [7, 5])',
    ),
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
    "names": same("structs.type.names"),
}

MAP_TYPES: dict[str, Entry] = {
    name: same(f"maps.type.{name}") for name in ["item_field", "item_type", "key_field", "key_type", "keys_sorted"]
}
LIST_TYPES: dict[str, Entry] = {name: same(f"pairs.type.{name}") for name in ["list_size", "value_field", "value_type"]}
DICTIONARY_TYPES: dict[str, Entry] = {
    name: same(f"encoded.type.{name}") for name in ["index_type", "ordered", "value_type"]
}
RUN_TYPES: dict[str, Entry] = {
    name: same(f"pa.run_end_encoded(pa.int16(), pa.int8()).{name}") for name in ["run_end_type", "value_type"]
}
UNION_TYPES: dict[str, Entry] = {name: same(f"pa.dense_union([field], [5]).{name}") for name in ["mode", "type_codes"]}
TIMESTAMP_TYPES: dict[str, Entry] = {name: same(f'pa.timestamp("ms", "UTC").{name}') for name in ["unit", "tz"]}
DECIMAL_TYPES: dict[str, Entry] = {name: same(f"pa.decimal128(9, 2).{name}") for name in ["precision", "scale"]}

PARAMETERS: dict[str, tuple[str, str]] = {
    "Decimal32Type": ("pa.decimal32(9, 2)", "precision scale"),
    "Decimal64Type": ("pa.decimal64(9, 2)", "precision scale"),
    "Decimal256Type": ("pa.decimal256(9, 2)", "precision scale"),
    "Time32Type": ('pa.time32("ms")', "unit"),
    "Time64Type": ('pa.time64("us")', "unit"),
    "DurationType": ('pa.duration("us")', "unit"),
    "ListType": ("pa.list_(pa.int8())", "value_field value_type"),
    "LargeListType": ("pa.large_list(pa.int8())", "value_field value_type"),
    "ListViewType": ("pa.list_view(pa.int8())", "value_field value_type"),
    "LargeListViewType": ("pa.large_list_view(pa.int8())", "value_field value_type"),
}
"""Classes of types by an example, and its parameters."""

BOOLEANS: dict[str, Entry] = {"true_count": COMPUTE, "false_count": COMPUTE}
BINARIES: dict[str, Entry] = {"total_values_length": STRUCTURE}

TYPES: dict[str, Entry] = {
    "is_boolean_value": SCALARS,
    "is_float_value": SCALARS,
    "is_integer_value": SCALARS,
    **dict.fromkeys(["IntEnum", "TypesEnum", "doc", "lib"], INSIDE),
}
"""Every other ``is_...`` is called with each type, see below."""

IPC: dict[str, Entry] = {
    "new_file": same("pa.ipc.open_file(file).num_record_batches"),
    "new_stream": same("pa.ipc.open_stream(stream).read_all()"),
    "open_file": same(
        "pa.ipc.open_file(file).get_batch(0)", "pa.ipc.open_file(file).schema", "pa.ipc.open_file(file).read_all()"
    ),
    "open_stream": same("[b for b in pa.ipc.open_stream(stream)]", "pa.ipc.open_stream(stream).schema"),
    "read_tensor": Instead("pa.ipc.read_tensor.__name__", "pa.ipc.read_tensor.__name__", "takes names, paths, bytes"),
    "write_tensor": Instead("pa.ipc.write_tensor.__name__", "pa.ipc.write_tensor.__name__", "takes names and files"),
    "get_tensor_size": Instead(
        "pa.ipc.get_tensor_size.__name__", "pa.ipc.get_tensor_size.__name__", "with more padding before the tensor"
    ),
    "IpcWriteOptions": same('pa.ipc.IpcWriteOptions(compression="zstd", emit_dictionary_deltas=True).compression'),
    "ReadStats": Instead("list(pa.ipc.ReadStats._fields)", "list(pa.ipc.IpcStats._fields)", "one class for both"),
    "WriteStats": Instead("list(pa.ipc.WriteStats._fields)", "list(pa.ipc.IpcStats._fields)", "one class for both"),
    "IpcReadOptions": Out("what a reader accepts is set by `Limits`, and which columns it reads by `included_fields`"),
    **{
        name: same(f"pa.ipc.{name}.__name__")
        for name in [
            "RecordBatchFileReader",
            "RecordBatchFileWriter",
            "RecordBatchStreamReader",
            "RecordBatchStreamWriter",
        ]
    },
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
    "Field": FIELD,
    "DataType": DATATYPE,
    "BooleanArray": BOOLEANS,
    "BinaryArray": BINARIES,
    "LargeBinaryArray": BINARIES,
    "ListArray": LISTS,
    "LargeListArray": LARGE_LISTS,
    "ListViewArray": VIEWS,
    "LargeListViewArray": LARGE_VIEWS,
    "FixedSizeListArray": FIXED_SIZE_LISTS,
    "MapArray": MAPS,
    "StructArray": STRUCTS,
    "UnionArray": UNIONS,
    "DictionaryArray": DICTIONARIES,
    "RunEndEncodedArray": RUNS,
    "Decimal128Type": DECIMAL_TYPES,
    "TimestampType": TIMESTAMP_TYPES,
    "FixedSizeListType": LIST_TYPES,
    "MapType": MAP_TYPES,
    "StructType": STRUCT_TYPES,
    "UnionType": UNION_TYPES,
    "DictionaryType": DICTIONARY_TYPES,
    "RunEndEncodedType": RUN_TYPES,
    **{
        kind: {name: same(f"{example}.{name}") for name in names.split()}
        for kind, (example, names) in PARAMETERS.items()
    },
    "types": TYPES,
    "ipc": IPC,
}
"""The tables by the class or module of pyarrow; methods that a class inherits stand with the class that has them."""
