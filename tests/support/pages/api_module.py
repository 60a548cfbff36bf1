"""The names of the module ``pyarrow`` that are not the same here."""

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
)

_BUILDING: dict[str, Entry] = {
    "arange": Instead("pa.arange(0, 6, 2)", "pa.array(np.arange(0, 6, 2))", "numpy has it, and nothing is copied"),
    "repeat": Instead("pa.repeat(1, 3)", "pa.array(np.repeat(1, 3))", "numpy has it"),
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

_CLASSES: dict[str, Entry] = {
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
    "register_extension_type": Instead(
        "pa.register_extension_type.__name__", "pa.register_extension_type.__name__", "takes the class, not an instance"
    ),
    "ExtensionType": Instead(
        "issubclass(pa.ExtensionType, pa.DataType)",
        "issubclass(pa.ExtensionType, pa.DataType)",
        "subclasses set `extension_name`, and define `serialize` and `deserialize`",
    ),
    "UnknownExtensionType": Out("a type that nobody registered is its storage; the field's metadata name it"),
    "KeyValueMetadata": Out("metadata are immutable mappings of bytes to bytes"),
    **{
        name: Instead(f"pa.{name}.from_dense_numpy(np.eye(2)).shape", f"pa.{name}.from_dense(np.eye(2)).shape", "")
        for name in ("SparseCOOTensor", "SparseCSRMatrix", "SparseCSCMatrix", "SparseCSFTensor")
    },
}

_REST: dict[str, Entry] = {
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

MODULE: dict[str, Entry] = {**_BUILDING, **_CLASSES, **_REST}
