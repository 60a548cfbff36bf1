"""The names of the module ``pyarrow``, and what stands for them here."""

from __future__ import annotations

from api_kinds import (
    BY_KIND,
    BY_LAYOUT,
    CODECS,
    COMPUTE,
    DEVICE,
    FILES,
    INSIDE,
    PANDAS,
    POOL,
    PYTHON_VALUE,
    SCALARS,
    SORT,
    Entry,
    Instead,
    Out,
    classes,
    named,
    same,
)

_BUILDING: dict[str, Entry] = {
    "array": same(
        "pa.array([1, None, 3])",
        "pa.array([1, 2, 3], pa.int8(), [True, False, False])",
        "pa.array((n for n in [1.5, None]), size=2)",
        'pa.array([1, 2], type="int16", mask=np.array([False, True]))',
        "pa.array(np.arange(3, dtype='u2'))",
        "pa.array(np.array([1.0, np.nan]), from_pandas=True)",
        "pa.array([[1], None, []])",
        'pa.array([{"x": 1}, None], safe=True)',
    ),
    "arange": Instead("pa.arange(0, 6, 2)", "pa.array(np.arange(0, 6, 2))", "numpy has it, and nothing is copied"),
    "chunked_array": same("pa.chunked_array([[1, 2], [], [None]])", 'pa.chunked_array([["a"]], pa.large_string())'),
    "concat_arrays": same("pa.concat_arrays([numbers, numbers])"),
    "concat_batches": same("pa.concat_batches([batch, batch])"),
    "concat_tables": same(
        "pa.concat_tables([table, table])",
        'pa.concat_tables([table, pa.table({"n": pa.array([1], pa.int8())})], promote_options="default")',
    ),
    "infer_type": same("pa.infer_type([1, None])", 'pa.infer_type([[{"x": b"a"}]])'),
    "nulls": same("pa.nulls(2)", "pa.nulls(2, pa.int8())", "pa.nulls(2, type=pa.list_(pa.string()))"),
    "repeat": Instead("pa.repeat(1, 3)", "pa.array(np.repeat(1, 3))", "numpy has it"),
    "record_batch": same(
        'pa.record_batch({"a": [1], "b": ["x"]})',
        'pa.record_batch([numbers, words], ["a", "b"])',
        "pa.record_batch([numbers, words], schema=schema)",
        'pa.record_batch([numbers, words], names=["a", "b"], metadata={"k": "w"})',
    ),
    "table": same(
        'pa.table({"a": [1], "b": ["x"]})',
        'pa.table([numbers, words], ["a", "b"])',
        'pa.table({"s": words, "n": numbers}, schema=schema)',
        'pa.table({"a": [1]}, metadata={"k": "w"})',
        "pa.table([numbers, words], schema=schema)",
    ),
    "schema": same(
        'pa.schema([("a", pa.int8()), field])', 'pa.schema({"a": "int8"}, metadata={"k": "v"})', "pa.schema(schema)"
    ),
    "field": same(
        'pa.field("a", pa.int8())',
        'pa.field("a", "int8", False, {"k": "v"})',
        'pa.field("a", type=pa.null(), nullable=True)',
    ),
    "unify_schemas": same(
        'pa.unify_schemas([schema, pa.schema([("t", pa.int8())])])',
        'pa.unify_schemas([pa.schema([("a", pa.null())]), pa.schema([("a", pa.int8())])], promote_options="default")',
    ),
    "from_numpy_dtype": Instead(
        'pa.from_numpy_dtype("M8[ms]")', 'pa.types.from_numpy_dtype(np.dtype("M8[ms]"))', "it is in `types`"
    ),
    "type_for_alias": Instead(
        'pa.type_for_alias("int8")', 'pa.types.as_type("int8")', "where a type is expected, its name will do"
    ),
    "scalar": SCALARS,
    "NA": Instead("pa.NA.as_py()", "None", PYTHON_VALUE),
    "NULL": Instead("pa.NULL.as_py()", "None", PYTHON_VALUE),
    "*Scalar": SCALARS,
    "MonthDayNano": Instead("pa.MonthDayNano([1, 2, 3])", "pa.MonthDayNano(1, 2, 3)", "an ordinary named tuple"),
}

_TYPES: dict[str, Entry] = {
    **{
        name: same(f"pa.{name}()")
        for name in named(
            "null bool_ int8 int16 int32 int64 uint8 uint16 uint32 uint64 float16 float32 float64 date32 date64 "
            "string utf8 large_string large_utf8 large_binary binary_view string_view "
            "month_day_nano_interval json_ uuid bool8",
            SCALARS,
        )
    },
    "binary": same("pa.binary()", "pa.binary(3)"),
    "time32": same('pa.time32("s")', 'pa.time32(unit="ms")'),
    "time64": same('pa.time64("us")', 'pa.time64("ns")'),
    "timestamp": same('pa.timestamp("s")', 'pa.timestamp("ns", "Europe/Oslo")', 'pa.timestamp("us", tz="+07:30")'),
    "duration": same('pa.duration("ms")'),
    "decimal32": same("pa.decimal32(9, 2)", "pa.decimal32(5)"),
    "decimal64": same("pa.decimal64(18, 2)", "pa.decimal64(5)"),
    "decimal128": same("pa.decimal128(38, 2)", "pa.decimal128(5, -2)"),
    "decimal256": same("pa.decimal256(76, 2)", "pa.decimal256(precision=5, scale=1)"),
    "list_": same("pa.list_(pa.int8())", "pa.list_(field)", "pa.list_(pa.int8(), 2)"),
    "large_list": same("pa.large_list(pa.int8())"),
    "list_view": same("pa.list_view(pa.int8())"),
    "large_list_view": same("pa.large_list_view(pa.int8())"),
    "map_": same("pa.map_(pa.string(), pa.int8())", "pa.map_(pa.string(), pa.int8(), keys_sorted=True)"),
    "struct": same('pa.struct([("a", pa.int8()), field])', 'pa.struct({"a": pa.int8()})'),
    "dictionary": same("pa.dictionary(pa.int8(), pa.string())", "pa.dictionary(pa.int8(), pa.string(), ordered=True)"),
    "run_end_encoded": same("pa.run_end_encoded(pa.int16(), pa.string())"),
    "union": same('pa.union([field], "dense")', 'pa.union([field], mode="sparse", type_codes=[5])'),
    "dense_union": same("pa.dense_union([field])", "pa.dense_union([field], [5])"),
    "sparse_union": same("pa.sparse_union([field])", "pa.sparse_union([field], [5])"),
    "fixed_shape_tensor": same(
        "pa.fixed_shape_tensor(pa.int8(), (2, 3))", 'pa.fixed_shape_tensor(pa.int8(), [2, 3], ["a", "b"], [1, 0])'
    ),
    "opaque": same('pa.opaque(pa.binary(), "point", "somebody")'),
    "register_extension_type": Instead(
        "pa.register_extension_type.__name__", "pa.register_extension_type.__name__", "takes the class, not an instance"
    ),
    "unregister_extension_type": same("pa.unregister_extension_type.__name__"),
}

_CLASSES: dict[str, Entry] = {
    "Array": same("isinstance(numbers, pa.Array)"),
    "ChunkedArray": same("isinstance(chunks, pa.ChunkedArray)"),
    "RecordBatch": same("isinstance(batch, pa.RecordBatch)"),
    "Table": same("isinstance(table, pa.Table)"),
    "Schema": same("isinstance(schema, pa.Schema)"),
    "Field": same("isinstance(field, pa.Field)"),
    "DataType": same("isinstance(pa.int8(), pa.DataType)"),
    "RecordBatchReader": same("isinstance(table.to_reader(), pa.RecordBatchReader)"),
    "Buffer": same("[isinstance(data, pa.Buffer) for data in numbers.buffers()]"),
    "BooleanArray": same("isinstance(mask, pa.BooleanArray)"),
    "ListArray": same("isinstance(lists, pa.ListArray)"),
    "LargeListArray": same("isinstance(lists.cast(pa.large_list(pa.int16())), pa.LargeListArray)"),
    "ListViewArray": same("isinstance(pa.nulls(1, pa.list_view(pa.int16())), pa.ListViewArray)"),
    "LargeListViewArray": same("isinstance(pa.nulls(1, pa.large_list_view(pa.int16())), pa.LargeListViewArray)"),
    "FixedSizeListArray": same("isinstance(pairs, pa.FixedSizeListArray)"),
    "MapArray": same("isinstance(maps, pa.MapArray)", "isinstance(maps, pa.ListArray)"),
    "StructArray": same("isinstance(structs, pa.StructArray)"),
    "UnionArray": same("isinstance(pa.nulls(1, pa.dense_union([field.with_nullable(True)])), pa.UnionArray)"),
    "DictionaryArray": same("isinstance(encoded, pa.DictionaryArray)"),
    "RunEndEncodedArray": same("isinstance(pa.RunEndEncodedArray.from_arrays([1], [1]), pa.RunEndEncodedArray)"),
    "NullArray": same("isinstance(pa.nulls(1), pa.NullArray)"),
    "BinaryArray": same('isinstance(pa.array([b"a"]), pa.BinaryArray)'),
    "BinaryViewArray": same('isinstance(pa.array([b"a"], pa.binary_view()), pa.BinaryViewArray)'),
    "ExtensionArray": same("isinstance(pa.nulls(1, pa.uuid()), pa.ExtensionArray)"),
    "FixedShapeTensorArray": same(
        "isinstance(pa.nulls(1, pa.fixed_shape_tensor(pa.int8(), [2])), pa.FixedShapeTensorArray)"
    ),
    **classes(
        "PrimitiveArray",
        BY_LAYOUT,
        *[(f"Int{bits}Array", f"pa.nulls(1, pa.int{bits}())") for bits in (8, 16, 32, 64)],
        *[(f"UInt{bits}Array", f"pa.nulls(1, pa.uint{bits}())") for bits in (8, 16, 32, 64)],
        ("NumericArray", "numbers"),
        ("IntegerArray", "numbers"),
        ("FloatingPointArray", "pa.array([1.5])"),
        ("HalfFloatArray", "pa.nulls(1, pa.float16())"),
        ("FloatArray", "pa.nulls(1, pa.float32())"),
        ("DoubleArray", "pa.nulls(1, pa.float64())"),
        *[(f"Decimal{bits}Array", f"pa.nulls(1, pa.decimal{bits}(5))") for bits in (32, 64, 128, 256)],
        ("Date32Array", "pa.nulls(1, pa.date32())"),
        ("Date64Array", "pa.nulls(1, pa.date64())"),
        ("Time32Array", 'pa.nulls(1, pa.time32("s"))'),
        ("Time64Array", 'pa.nulls(1, pa.time64("us"))'),
        ("TimestampArray", 'pa.nulls(1, pa.timestamp("s"))'),
        ("DurationArray", 'pa.nulls(1, pa.duration("s"))'),
        ("MonthDayNanoIntervalArray", "pa.nulls(1, pa.month_day_nano_interval())"),
        ("FixedSizeBinaryArray", "pa.nulls(1, pa.binary(3))"),
    ),
    **classes(
        "BinaryArray",
        BY_LAYOUT,
        ("StringArray", "words"),
        ("LargeStringArray", "pa.nulls(1, pa.large_string())"),
        ("LargeBinaryArray", "pa.nulls(1, pa.large_binary())"),
    ),
    **classes("BinaryViewArray", BY_LAYOUT, ("StringViewArray", "pa.nulls(1, pa.string_view())")),
    **classes(
        "ExtensionArray",
        BY_LAYOUT,
        ("UuidArray", "pa.nulls(1, pa.uuid())"),
        ("JsonArray", "pa.nulls(1, pa.json_())"),
        ("Bool8Array", "pa.nulls(1, pa.bool8())"),
        ("OpaqueArray", 'pa.nulls(1, pa.opaque(pa.int8(), "a", "b"))'),
    ),
    **classes("types.DecimalType", BY_KIND, *[(f"Decimal{n}Type", f"pa.decimal{n}(5)") for n in (32, 64, 128, 256)]),
    **classes("types.TimeType", BY_KIND, ("Time32Type", 'pa.time32("s")'), ("Time64Type", 'pa.time64("us")')),
    **classes("types.TimestampType", BY_KIND, ("TimestampType", 'pa.timestamp("s")')),
    **classes("types.DurationType", BY_KIND, ("DurationType", 'pa.duration("s")')),
    **classes("types.FixedSizeBinaryType", BY_KIND, ("FixedSizeBinaryType", "pa.binary(3)")),
    **classes("types.ListType", BY_KIND, ("ListType", "lists.type")),
    **classes("types.LargeListType", BY_KIND, ("LargeListType", "pa.large_list(field)")),
    **classes("types.ListViewType", BY_KIND, ("ListViewType", "pa.list_view(field)")),
    **classes("types.LargeListViewType", BY_KIND, ("LargeListViewType", "pa.large_list_view(field)")),
    **classes("types.FixedSizeListType", BY_KIND, ("FixedSizeListType", "pairs.type")),
    **classes("types.MapType", BY_KIND, ("MapType", "maps.type")),
    **classes("types.StructType", BY_KIND, ("StructType", "structs.type")),
    **classes(
        "types.UnionType",
        BY_KIND,
        ("UnionType", "pa.dense_union([field])"),
        ("DenseUnionType", "pa.dense_union([field])"),
        ("SparseUnionType", "pa.sparse_union([field])"),
    ),
    **classes("types.DictionaryType", BY_KIND, ("DictionaryType", "encoded.type")),
    **classes("types.RunEndEncodedType", BY_KIND, ("RunEndEncodedType", "pa.run_end_encoded(pa.int16(), pa.int8())")),
    **classes(
        "ExtensionType",
        "each type has a class of its own in `shmarrow.extension`",
        ("BaseExtensionType", "pa.uuid()"),
        ("UuidType", "pa.uuid()"),
        ("JsonType", "pa.json_()"),
        ("Bool8Type", "pa.bool8()"),
        ("OpaqueType", 'pa.opaque(pa.int8(), "a", "b")'),
        ("FixedShapeTensorType", "pa.fixed_shape_tensor(pa.int8(), [2])"),
    ),
    "ExtensionType": Instead(
        "issubclass(pa.ExtensionType, pa.DataType)",
        "issubclass(pa.ExtensionType, pa.DataType)",
        "subclasses set `extension_name`, and define `serialize` and `deserialize`",
    ),
    "UnknownExtensionType": Out("a type that nobody registered is its storage; the field's metadata name it"),
    "KeyValueMetadata": Out("metadata are immutable mappings of bytes to bytes"),
    "Tensor": same("pa.Tensor.from_numpy(np.arange(6).reshape(2, 3)).shape"),
    **{
        name: Instead(f"pa.{name}.from_dense_numpy(np.eye(2)).shape", f"pa.{name}.from_dense(np.eye(2)).shape", "")
        for name in ("SparseCOOTensor", "SparseCSRMatrix", "SparseCSCMatrix", "SparseCSFTensor")
    },
}

_REST: dict[str, Entry] = {
    "ipc": same("pa.ipc.open_stream(stream).schema"),
    "types": same("pa.types.is_integer(pa.int8())"),
    "py_buffer": Instead('bytes(pa.py_buffer(b"abc"))', 'b"abc"', "a buffer is anything with Python's buffer protocol"),
    "Arrow*": Out("`ShmarrowError` and its subclasses, each of which is one of Python's errors too"),
    **named(
        "RecordBatchFileReader RecordBatchFileWriter RecordBatchStreamReader RecordBatchStreamWriter "
        "Message MessageReader MetadataVersion",
        Out("see `ipc`"),
    ),
    **named(
        "BufferOutputStream BufferReader BufferedInputStream BufferedOutputStream CompressedInputStream "
        "CompressedOutputStream FixedSizeBufferWriter MemoryMappedFile MockOutputStream NativeFile OSFile PythonFile "
        "TransformInputStream create_memory_map input_stream memory_map output_stream transcoding_input_stream "
        "CacheOptions have_libhdfs",
        FILES,
    ),
    **named("Codec compress decompress", CODECS),
    **named(
        "*MemoryPool *_memory_pool supported_memory_backends log_memory_allocations total_allocated_bytes "
        "jemalloc_set_decay_ms allocate_buffer ResizableBuffer foreign_buffer",
        POOL,
    ),
    **named("Device DeviceAllocationType MemoryManager default_cpu_memory_manager", DEVICE),
    **named("serialize_pandas deserialize_pandas pandas_compat", PANDAS),
    "TableGroupBy": SORT,
    "compute": COMPUTE,
    **named(
        "BuildInfo CppBuildInfo DictionaryMemo RuntimeInfo VersionInfo build_info cpp_build_info cpp_version "
        "cpp_version_info cpu_count create_library_symlinks enable_signal_handlers get_include get_libraries "
        "get_library_dirs io_thread_count is_opentelemetry_enabled lib runtime_info set_cpu_count set_io_thread_count "
        "set_timezone_db_path show_info show_versions util vendored",
        INSIDE,
    ),
}

MODULE: dict[str, Entry] = {**_BUILDING, **_TYPES, **_CLASSES, **_REST}
"""All public names of the module."""
