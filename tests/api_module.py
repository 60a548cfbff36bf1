"""The names of the module ``pyarrow``, and what stands for them here."""

from __future__ import annotations

from api_kinds import (
    BY_KIND, BY_LAYOUT, CODECS, COMPUTE, DEVICE, FILES, INSIDE, PANDAS, POOL, PYTHON_VALUE, SCALARS, SORT, Class, Entry,
    Instead, Out, same,
)  # fmt: skip

MODULE: dict[str, Entry] = {
    # arrays, batches, tables
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
        'pa.field("a", pa.int8())', 'pa.field("a", "int8", False, {"k": "v"})', 'pa.field("a", type=pa.null(), nullable=True)'
    ),
    "unify_schemas": same(
        'pa.unify_schemas([schema, pa.schema([("t", pa.int8())])])',
        'pa.unify_schemas([pa.schema([("a", pa.null())]), pa.schema([("a", pa.int8())])], promote_options="default")',
    ),
    "from_numpy_dtype": Instead(
        'pa.from_numpy_dtype("M8[ms]")', 'pa.types.from_numpy_dtype(np.dtype("M8[ms]"))', "with the other functions of types"
    ),
    "type_for_alias": Instead('pa.type_for_alias("int8")', 'pa.types.as_type("int8")', "wherever a type is expected, its name will do"),
    "scalar": SCALARS,
    "NA": Instead("pa.NA.as_py()", "None", PYTHON_VALUE),
    "NULL": Instead("pa.NULL.as_py()", "None", PYTHON_VALUE),
    "*Scalar": SCALARS,
    "py_buffer": Instead('pa.py_buffer(b"abc")', 'np.frombuffer(b"abc", "u1")', "buffers are anything with Python's buffer protocol"),
    "Buffer": same("[isinstance(data, pa.Buffer) for data in numbers.buffers()]"),
    "MonthDayNano": Instead(
        "pa.MonthDayNano([1, 2, 3])", "pa.MonthDayNano(1, 2, 3)", "a named tuple as Python's own"
    ),
    # factories of types
    **{
        name: same(f"pa.{name}()")
        for name in (
            "null bool_ int8 int16 int32 int64 uint8 uint16 uint32 uint64 float16 float32 float64 date32 date64 string utf8 "
            "large_string large_utf8 large_binary binary_view string_view month_day_nano_interval json_ uuid bool8"
        ).split()
    },
    "binary": same("pa.binary()", "pa.binary(3)"),
    "time32": same('pa.time32("s")', 'pa.time32(unit="ms")'),
    "time64": same('pa.time64("us")', 'pa.time64("ns")'),
    "timestamp": same('pa.timestamp("s")', 'pa.timestamp("ns", "Europe/Oslo")', 'pa.timestamp("us", tz="+07:30")'),
    "duration": same('pa.duration("ms")'),
    **{f"decimal{bits}": same(f"pa.decimal{bits}(9, 2)", f"pa.decimal{bits}(5)", f"pa.decimal{bits}(5, -2)") for bits in (32, 64, 128, 256)},
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
    # classes of arrays
    "Array": same("isinstance(numbers, pa.Array)"),
    "ChunkedArray": same("isinstance(chunks, pa.ChunkedArray)"),
    "RecordBatch": same("isinstance(batch, pa.RecordBatch)"),
    "Table": same("isinstance(table, pa.Table)"),
    "Schema": same("isinstance(schema, pa.Schema)"),
    "Field": same("isinstance(field, pa.Field)"),
    "DataType": same("isinstance(pa.int8(), pa.DataType)"),
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
    **{
        name: Class(example, name, ours, BY_LAYOUT)
        for name, example, ours in [
            *[(f"{kind}{bits}Array", f"pa.array([1], pa.{kind.lower()}{bits}())", "PrimitiveArray") for kind in ("Int", "UInt") for bits in (8, 16, 32, 64)],
            ("NumericArray", "numbers", "PrimitiveArray"),
            ("IntegerArray", "numbers", "PrimitiveArray"),
            ("FloatingPointArray", "pa.array([1.5])", "PrimitiveArray"),
            ("HalfFloatArray", "pa.nulls(1, pa.float16())", "PrimitiveArray"),
            ("FloatArray", "pa.nulls(1, pa.float32())", "PrimitiveArray"),
            ("DoubleArray", "pa.nulls(1, pa.float64())", "PrimitiveArray"),
            *[(f"Decimal{bits}Array", f"pa.nulls(1, pa.decimal{bits}(5))", "PrimitiveArray") for bits in (32, 64, 128, 256)],
            ("Date32Array", "pa.nulls(1, pa.date32())", "PrimitiveArray"),
            ("Date64Array", "pa.nulls(1, pa.date64())", "PrimitiveArray"),
            ("Time32Array", 'pa.nulls(1, pa.time32("s"))', "PrimitiveArray"),
            ("Time64Array", 'pa.nulls(1, pa.time64("us"))', "PrimitiveArray"),
            ("TimestampArray", 'pa.nulls(1, pa.timestamp("s"))', "PrimitiveArray"),
            ("DurationArray", 'pa.nulls(1, pa.duration("s"))', "PrimitiveArray"),
            ("MonthDayNanoIntervalArray", "pa.nulls(1, pa.month_day_nano_interval())", "PrimitiveArray"),
            ("FixedSizeBinaryArray", "pa.nulls(1, pa.binary(3))", "PrimitiveArray"),
            ("StringArray", "words", "BinaryArray"),
            ("LargeStringArray", "pa.nulls(1, pa.large_string())", "BinaryArray"),
            ("LargeBinaryArray", "pa.nulls(1, pa.large_binary())", "BinaryArray"),
            ("StringViewArray", "pa.nulls(1, pa.string_view())", "BinaryViewArray"),
            ("UuidArray", "pa.nulls(1, pa.uuid())", "ExtensionArray"),
            ("JsonArray", "pa.nulls(1, pa.json_())", "ExtensionArray"),
            ("Bool8Array", "pa.nulls(1, pa.bool8())", "ExtensionArray"),
            ("OpaqueArray", 'pa.nulls(1, pa.opaque(pa.int8(), "a", "b"))', "ExtensionArray"),
        ]
    },
    # classes of types
    **{
        name: Class(example, name, f"types.{ours}", BY_KIND)
        for name, example, ours in [
            *[(f"Decimal{bits}Type", f"pa.decimal{bits}(5)", "DecimalType") for bits in (32, 64, 128, 256)],
            ("Time32Type", 'pa.time32("s")', "TimeType"),
            ("Time64Type", 'pa.time64("us")', "TimeType"),
            ("TimestampType", 'pa.timestamp("s")', "TimestampType"),
            ("DurationType", 'pa.duration("s")', "DurationType"),
            ("FixedSizeBinaryType", "pa.binary(3)", "FixedSizeBinaryType"),
            ("ListType", "lists.type", "ListType"),
            ("LargeListType", "pa.large_list(field)", "LargeListType"),
            ("ListViewType", "pa.list_view(field)", "ListViewType"),
            ("LargeListViewType", "pa.large_list_view(field)", "LargeListViewType"),
            ("FixedSizeListType", "pairs.type", "FixedSizeListType"),
            ("MapType", "maps.type", "MapType"),
            ("StructType", "structs.type", "StructType"),
            ("UnionType", "pa.dense_union([field])", "UnionType"),
            ("DenseUnionType", "pa.dense_union([field])", "UnionType"),
            ("SparseUnionType", "pa.sparse_union([field])", "UnionType"),
            ("DictionaryType", "encoded.type", "DictionaryType"),
            ("RunEndEncodedType", "pa.run_end_encoded(pa.int16(), pa.int8())", "RunEndEncodedType"),
        ]
    },
    **{
        name: Class(example, name, "ExtensionType", "the classes stand in `shmarrow.extension`")
        for name, example in [
            ("BaseExtensionType", "pa.uuid()"),
            ("UuidType", "pa.uuid()"),
            ("JsonType", "pa.json_()"),
            ("Bool8Type", "pa.bool8()"),
            ("OpaqueType", 'pa.opaque(pa.int8(), "a", "b")'),
            ("FixedShapeTensorType", "pa.fixed_shape_tensor(pa.int8(), [2])"),
        ]
    },
    "ExtensionType": Instead("issubclass(pa.ExtensionType, pa.DataType)", "issubclass(pa.ExtensionType, pa.DataType)", "subclasses give `extension_name` as an attribute, and `serialize` and `deserialize` without the prefix"),
    "UnknownExtensionType": Out("a type that nobody registered is its storage, with the name in the metadata of the field"),
    "register_extension_type": Out("takes the class, not an instance"),
    "unregister_extension_type": same(),
    "KeyValueMetadata": Out("metadata are immutable mappings of bytes to bytes"),
    # tensors
    "Tensor": same("pa.Tensor.from_numpy(np.arange(6).reshape(2, 3)).shape"),
    "SparseCOOTensor": same("pa.SparseCOOTensor.from_dense_numpy(np.eye(2)).shape"),
    "SparseCSRMatrix": same("pa.SparseCSRMatrix.from_dense_numpy(np.eye(2)).shape"),
    "SparseCSCMatrix": same("pa.SparseCSCMatrix.from_dense_numpy(np.eye(2)).shape"),
    "SparseCSFTensor": same("pa.SparseCSFTensor.from_dense_numpy(np.eye(2)).shape"),
    # errors
    "Arrow*": Out("errors of its own: `ShmarrowError` and its subclasses, which are Python's ValueError, TypeError, KeyError and so on as well"),
    # readers and writers
    "ipc": same("pa.ipc.open_stream(stream).schema"),
    "types": same("pa.types.is_integer(pa.int8())"),
    **{
        name: Out("of `pa.ipc`")
        for name in [
            "RecordBatchReader", "RecordBatchFileReader", "RecordBatchFileWriter", "RecordBatchStreamReader",
            "RecordBatchStreamWriter", "Message", "MessageReader", "MetadataVersion",
        ]
    },
    **dict.fromkeys(
        [
            "BufferOutputStream", "BufferReader", "BufferedInputStream", "BufferedOutputStream", "CompressedInputStream",
            "CompressedOutputStream", "FixedSizeBufferWriter", "MemoryMappedFile", "MockOutputStream", "NativeFile", "OSFile",
            "PythonFile", "TransformInputStream", "create_memory_map", "input_stream", "memory_map", "output_stream",
            "transcoding_input_stream", "CacheOptions", "have_libhdfs",
        ],
        FILES,
    ),
    **dict.fromkeys(["Codec", "compress", "decompress"], CODECS),
    **dict.fromkeys(["*MemoryPool", "*_memory_pool", "supported_memory_backends", "log_memory_allocations", "total_allocated_bytes", "jemalloc_set_decay_ms", "allocate_buffer", "ResizableBuffer", "foreign_buffer"], POOL),
    **dict.fromkeys(["Device", "DeviceAllocationType", "MemoryManager", "default_cpu_memory_manager"], DEVICE),
    **dict.fromkeys(["serialize_pandas", "deserialize_pandas"], PANDAS),
    "TableGroupBy": SORT,
    "compute": COMPUTE,
    **dict.fromkeys(
        [
            "BuildInfo", "CppBuildInfo", "DictionaryMemo", "RuntimeInfo", "VersionInfo", "build_info", "cpp_build_info",
            "cpp_version", "cpp_version_info", "cpu_count", "create_library_symlinks", "enable_signal_handlers", "get_include",
            "get_libraries", "get_library_dirs", "io_thread_count", "is_opentelemetry_enabled", "lib", "runtime_info",
            "set_cpu_count", "set_io_thread_count", "set_timezone_db_path", "show_info", "show_versions", "util", "vendored",
        ],
        INSIDE,
    ),
}  # fmt: skip
