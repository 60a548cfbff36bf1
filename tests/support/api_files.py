"""The members of pyarrow's readers, writers, options, tensors and buffers, and what stands for them here."""

from __future__ import annotations

from api_kinds import DEVICE, INSIDE, Entry, Instead, Out, named, same

_OPENED = "pa.ipc.open_stream(stream)"
_FILE = "pa.ipc.open_file(file)"


def _writer(new: str) -> dict[str, Entry]:
    """The members of a writer, made by a function of ``ipc``."""

    def written(call: str) -> str:
        return f"[({call}, writer.close(), list(writer.stats)) for writer in [pa.ipc.{new}(io.BytesIO(), schema)]]"

    return {
        "close": same(f"pa.ipc.{new}(io.BytesIO(), schema).close()"),
        "stats": same(written("writer.write(batch)")),
        "write": same(written("writer.write(batch)"), written("writer.write(table)")),
        "write_batch": same(written("writer.write_batch(batch)"), written('writer.write_batch(batch, {"k": "v"})')),
        "write_table": same(written("writer.write_table(table)"), written("writer.write_table(table, 1)")),
    }


READER: dict[str, Entry] = {
    "cast": same(f'{_OPENED}.cast(pa.schema([("n", pa.int64()), ("s", pa.large_string())])).read_all()'),
    "close": same("table.to_reader().close()"),
    "from_batches": same("pa.RecordBatchReader.from_batches(schema, [batch, batch]).read_all()"),
    "from_stream": same(
        "pa.RecordBatchReader.from_stream(table).read_all()",
        'pa.RecordBatchReader.from_stream(table, schema=pa.schema([("n", pa.int64()), ("s", pa.string())])).read_all()',
    ),
    "iter_batches_with_custom_metadata": same(f"list({_OPENED}.iter_batches_with_custom_metadata())"),
    "read_all": same(f"{_OPENED}.read_all()"),
    "read_next_batch": same("table.to_reader().read_next_batch()"),
    "read_next_batch_with_custom_metadata": same(f"{_OPENED}.read_next_batch_with_custom_metadata()"),
    "read_pandas": Instead(f"{_OPENED}.read_pandas()", f"{_OPENED}.read_all().to_pandas()", "a table is converted"),
    "schema": same(f"{_OPENED}.schema"),
}

STREAM_READER: dict[str, Entry] = {
    "stats": same(f"[(reader.read_all(), list(reader.stats)) for reader in [{_OPENED}]]"),
}

_READ = f"[(reader.read_all(), list(reader.stats)) for reader in [{_FILE}]]"
FILE_READER: dict[str, Entry] = {
    "count_rows": same(f"{_FILE}.count_rows()"),
    "get_batch": same(f"{_FILE}.get_batch(1)"),
    "get_batch_with_custom_metadata": same(f"{_FILE}.get_batch_with_custom_metadata(0)"),
    "get_record_batch": same(f"{_FILE}.get_record_batch(1)"),
    "metadata": same(f"{_FILE}.metadata"),
    "num_record_batches": same(f"{_FILE}.num_record_batches"),
    "read_all": same(f"{_FILE}.read_all()"),
    "read_pandas": Instead(f"{_FILE}.read_pandas()", f"{_FILE}.read_all().to_pandas()", "a table is converted"),
    "schema": same(f"{_FILE}.schema"),
    "stats": Instead(_READ, _READ, "counts what the file has from the beginning; pyarrow counts what was read so far"),
}

WRITE_OPTIONS: dict[str, Entry] = {
    "allow_64bit": Out("arrays of any length are written"),
    "compression": same('pa.ipc.IpcWriteOptions(compression="lz4").compression'),
    "emit_dictionary_deltas": same("pa.ipc.IpcWriteOptions(emit_dictionary_deltas=True).emit_dictionary_deltas"),
    "metadata_version": Instead(
        "pa.ipc.IpcWriteOptions(metadata_version=pa.ipc.MetadataVersion.V4).metadata_version.name",
        'pa.ipc.IpcWriteOptions(metadata_version="V4").metadata_version',
        "a string",
    ),
    "unify_dictionaries": same("pa.ipc.IpcWriteOptions(unify_dictionaries=True).unify_dictionaries"),
    "use_legacy_format": same("pa.ipc.IpcWriteOptions(use_legacy_format=True).use_legacy_format"),
    "use_threads": same("pa.ipc.IpcWriteOptions(use_threads=False).use_threads"),
}

READ_OPTIONS: dict[str, Entry] = {
    "ensure_alignment": Out(
        "numpy reads values at any address; `validate(full=True)` names buffers that are not aligned"
    ),
    "ensure_native_endian": Out("values always have the byte order of the machine"),
    "included_fields": Instead(
        "pa.ipc.open_file(file, options=pa.ipc.IpcReadOptions(included_fields=[1])).read_all()",
        "pa.ipc.open_file(file, included_fields=[1]).read_all()",
        "an argument of `open_file` and `open_stream`",
    ),
    "use_threads": Out("threads decompress where that is faster"),
}

MESSAGE: dict[str, Entry] = named(
    "body equals metadata metadata_version serialize serialize_to type",
    Out("no messages to hold: `pa.ipc.StreamDecoder` gives an event for each, `shmarrow xray` shows their bytes"),
)

BUFFER: dict[str, Entry] = {
    "address": same("numbers.buffers()[1].address > 0"),
    **named("device device_type is_cpu memory_manager", DEVICE),
    "device": Instead(
        "numbers.buffers()[1].device is None", "numbers.buffers()[1].device is None", "numpy's attribute: `cpu`"
    ),
    "equals": Instead(
        "numbers.buffers()[1].equals(numbers.buffers()[1])",
        "np.array_equal(numbers.buffers()[1], numbers.buffers()[1])",
        "a buffer is an ndarray of bytes",
    ),
    "hex": Instead("numbers.buffers()[1].hex()", "bytes(numbers.buffers()[1]).hex().encode()", "bytes have it"),
    "is_mutable": Instead(
        "pa.py_buffer(b'a').is_mutable", "numbers.buffers()[1].flags.writeable", "of any ndarray; a buffer is read-only"
    ),
    "parent": Out("`base`, as in numpy"),
    "size": same("numbers.buffers()[1].size"),
    "slice": Instead(
        "numbers.buffers()[1].slice(1, 2).to_pybytes()",
        "numbers.buffers()[1][1:3].tobytes()",
        "a buffer is an ndarray of bytes",
    ),
    "to_pybytes": same("numbers.buffers()[1].to_pybytes()"),
}


def _any_tensor(it: str) -> dict[str, Entry]:
    """Members that dense and sparse tensors share, for one of them by its name in the calls."""
    mutable = f"isinstance({it}.is_mutable, bool)"
    return {
        "dim_name": same(f"{it}.dim_name(1)"),
        "dim_names": same(f"{it}.dim_names"),
        "equals": same(f"{it}.equals({it})"),
        "is_mutable": Instead(
            mutable, mutable, "never true: elements are read-only; what is to be written to is copied"
        ),
        "ndim": same(f"{it}.ndim"),
        "shape": same(f"{it}.shape"),
        "size": same(f"{it}.size"),
        "type": same(f"{it}.type"),
    }


TENSOR: dict[str, Entry] = {
    **_any_tensor("tensor"),
    "from_dlpack": Instead(
        "pa.Tensor.from_dlpack(np.arange(3)).to_numpy().tolist()",
        "pa.Tensor.from_numpy(np.from_dlpack(np.arange(3))).to_numpy().tolist()",
        "numpy reads DLPack; nothing is copied",
    ),
    "from_numpy": same('pa.Tensor.from_numpy(np.eye(2), dim_names=["x", "y"]).to_numpy().tolist()'),
    "is_contiguous": same("tensor.is_contiguous", "pa.Tensor.from_numpy(np.eye(4)[::2]).is_contiguous"),
    "strides": same("tensor.strides"),
    "to_numpy": same("tensor.to_numpy().tolist()"),
}


def _sparse(it: str, cls: str, **more: Entry) -> dict[str, Entry]:
    """The members of a class of sparse tensors."""
    parts = f"[np.asarray(part).reshape(-1).tolist() for part in {it}.to_numpy()[:1]]"
    dense = f"{it}.to_tensor().to_numpy().tolist()"
    return {
        **_any_tensor(it),
        "from_dense_numpy": Instead(
            f"pa.{cls}.from_dense_numpy(np.eye(2)).to_tensor().to_numpy().tolist()",
            f"pa.{cls}.from_dense(np.eye(2)).to_dense().tolist()",
            "takes ndarrays and tensors",
        ),
        "from_numpy": same(f"{it}.non_zero_length"),
        "from_tensor": Instead(
            f"pa.{cls}.from_tensor(tensor).to_tensor().to_numpy().tolist()",
            f"pa.{cls}.from_dense(tensor).to_dense().tolist()",
            "takes ndarrays and tensors",
        ),
        "non_zero_length": same(f"{it}.non_zero_length"),
        "to_numpy": Instead(parts, parts, "the values have one dimension; pyarrow's have two"),
        "to_tensor": Instead(dense, f"{it}.to_dense().tolist()", "an ndarray"),
        **more,
    }


def _scipy(it: str, cls: str) -> dict[str, Entry]:
    return {
        "from_scipy": same(f"pa.{cls}.from_scipy({it}.to_scipy()).non_zero_length"),
        "to_scipy": same(f"{it}.to_scipy().toarray().tolist()"),
    }


COO = _sparse(
    "coo",
    "SparseCOOTensor",
    **_scipy("coo", "SparseCOOTensor"),
    from_pydata_sparse=same("pa.SparseCOOTensor.from_pydata_sparse(coo.to_pydata_sparse()).non_zero_length"),
    to_pydata_sparse=same("coo.to_pydata_sparse().todense().tolist()"),
    has_canonical_format=Instead("coo.has_canonical_format", "coo.is_canonical", "of every class of sparse tensors"),
)
CSR = _sparse("csr", "SparseCSRMatrix", **_scipy("csr", "SparseCSRMatrix"))
CSC = _sparse("csc", "SparseCSCMatrix", **_scipy("csc", "SparseCSCMatrix"))
CSF = _sparse("csf", "SparseCSFTensor")

FIXED_SHAPE: dict[str, Entry] = {
    "from_numpy_ndarray": same("pa.FixedShapeTensorArray.from_numpy_ndarray(np.ones((2, 2, 3))).type.shape"),
    "from_tensor": Instead(
        "pa.FixedShapeTensorArray.from_tensor(tensor).type.shape",
        "pa.FixedShapeTensorArray.from_numpy_ndarray(tensor.to_numpy()).type.shape",
        "numpy stands between; nothing is copied",
    ),
    "to_numpy_ndarray": same("pa.FixedShapeTensorArray.from_numpy_ndarray(np.eye(3)).to_numpy_ndarray().tolist()"),
    "to_tensor": Instead(
        "pa.FixedShapeTensorArray.from_numpy_ndarray(np.eye(3)).to_tensor().to_numpy().tolist()",
        "pa.Tensor.from_array(pa.FixedShapeTensorArray.from_numpy_ndarray(np.eye(3))).to_numpy().tolist()",
        "of any column that has the form of an ndarray",
    ),
}

_SHAPE = 'pa.fixed_shape_tensor(pa.int8(), (2, 3), dim_names=["a", "b"], permutation=[1, 0])'
FIXED_SHAPE_TYPE: dict[str, Entry] = {
    name: same(f"{_SHAPE}.{name}") for name in ["dim_names", "permutation", "shape", "value_type"]
}

_UUIDS = 'pa.array([b"0123456789abcdef"], pa.binary(16))'
EXTENSION: dict[str, Entry] = {
    "from_storage": same(f"pa.ExtensionArray.from_storage(pa.uuid(), {_UUIDS})"),
    "storage": same(f"pa.ExtensionArray.from_storage(pa.uuid(), {_UUIDS}).storage"),
}
EXTENSION_TYPE: dict[str, Entry] = {
    "extension_name": same("pa.uuid().extension_name"),
    "storage_type": same("pa.uuid().storage_type"),
    "wrap_array": Instead(
        f"pa.uuid().wrap_array({_UUIDS})",
        f"pa.ExtensionArray.from_storage(pa.uuid(), {_UUIDS})",
        "a class method of arrays",
    ),
}
_OPAQUE = 'pa.opaque(pa.binary(), "point", "somebody")'
OPAQUE_TYPE: dict[str, Entry] = {name: same(f"{_OPAQUE}.{name}") for name in ["type_name", "vendor_name"]}
BOOL8: dict[str, Entry] = {
    "from_numpy": Instead(
        'pa.Bool8Array.from_numpy(np.array([1, 0], "i1"))',
        'pa.ExtensionArray.from_storage(pa.bool8(), pa.array(np.array([1, 0], "i1")))',
        "one class of arrays for all extension types",
    )
}

SPAN: dict[str, Entry] = {
    **{
        name: Instead(f"pa.MonthDayNano([1, 2, 3]).{name}", f"pa.MonthDayNano(1, 2, 3).{name}", "a named tuple")
        for name in ["months", "days", "nanoseconds"]
    },
    **named("n_fields n_sequence_fields n_unnamed_fields", INSIDE),
}

_COUNTS = [
    "num_messages",
    "num_record_batches",
    "num_dictionary_batches",
    "num_dictionary_deltas",
    "num_replaced_dictionaries",
]

FILES: dict[str, dict[str, Entry]] = {
    "RecordBatchReader": READER,
    "ipc.RecordBatchStreamReader": STREAM_READER,
    "ipc.RecordBatchFileReader": FILE_READER,
    "ipc.RecordBatchStreamWriter": _writer("new_stream"),
    "ipc.RecordBatchFileWriter": _writer("new_file"),
    "ipc.IpcWriteOptions": WRITE_OPTIONS,
    "ipc.IpcReadOptions": READ_OPTIONS,
    "ipc.ReadStats": {name: same(f"{_OPENED}.stats.{name}") for name in _COUNTS},
    "ipc.WriteStats": {
        name: same(f"[(w.write(batch), w.stats.{name}) for w in [pa.ipc.new_stream(io.BytesIO(), schema)]]")
        for name in _COUNTS
    },
    "ipc.Message": MESSAGE,
    "Buffer": BUFFER,
    "Tensor": TENSOR,
    "SparseCOOTensor": COO,
    "SparseCSRMatrix": CSR,
    "SparseCSCMatrix": CSC,
    "SparseCSFTensor": CSF,
    "ExtensionArray": EXTENSION,
    "FixedShapeTensorArray": FIXED_SHAPE,
    "Bool8Array": BOOL8,
    "BaseExtensionType": EXTENSION_TYPE,
    "FixedShapeTensorType": FIXED_SHAPE_TYPE,
    "OpaqueType": OPAQUE_TYPE,
    "MonthDayNano": SPAN,
}
"""The tables by the class of pyarrow."""

NOTES = (
    "A reader of pyarrow is read once. `open_stream` of a path, a name or bytes also has random access: `reader[i]`, "
    "`len(reader)`, `num_rows`.",
    'Options are immutable: `options.replace(compression="zstd")` returns others. `Limits` says what a reader accepts.',
    "From Python 3.12 on, `memoryview(tensor)` works too; before, `memoryview(tensor.to_numpy())`.",
)
"""Notes of the page."""
