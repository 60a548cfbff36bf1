"""The members of pyarrow's readers, writers, options, tensors and buffers that are not the same here."""

from __future__ import annotations

from api_kinds import DEVICE, INSIDE, Entry, Instead, Out, named

_OPENED = "pa.ipc.open_stream(stream)"
_FILE = "pa.ipc.open_file(file)"


READER: dict[str, Entry] = {
    "read_pandas": Instead(f"{_OPENED}.read_pandas()", f"{_OPENED}.read_all().to_pandas()", "a table is converted"),
}

_READ = f"[(reader.read_all(), list(reader.stats)) for reader in [{_FILE}]]"
FILE_READER: dict[str, Entry] = {
    "read_pandas": Instead(f"{_FILE}.read_pandas()", f"{_FILE}.read_all().to_pandas()", "a table is converted"),
    "stats": Instead(_READ, _READ, "counts what the file has from the beginning; pyarrow counts what was read so far"),
}

WRITE_OPTIONS: dict[str, Entry] = {
    "allow_64bit": Out("arrays of any length are written"),
    "metadata_version": Instead(
        "pa.ipc.IpcWriteOptions(metadata_version=pa.ipc.MetadataVersion.V4).metadata_version.name",
        'pa.ipc.IpcWriteOptions(metadata_version="V4").metadata_version',
        "a string",
    ),
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
    "slice": Instead(
        "numbers.buffers()[1].slice(1, 2).to_pybytes()",
        "numbers.buffers()[1][1:3].tobytes()",
        "a buffer is an ndarray of bytes",
    ),
}


def _any_tensor(it: str) -> dict[str, Entry]:
    """The member that dense and sparse tensors share, for one of them by its name in the calls."""
    mutable = f"isinstance({it}.is_mutable, bool)"
    reason = "never true: elements are read-only; what is to be written to is copied"
    return {"is_mutable": Instead(mutable, mutable, reason)}


TENSOR: dict[str, Entry] = {
    **_any_tensor("tensor"),
    "from_dlpack": Instead(
        "pa.Tensor.from_dlpack(np.arange(3)).to_numpy().tolist()",
        "pa.Tensor.from_numpy(np.from_dlpack(np.arange(3))).to_numpy().tolist()",
        "numpy reads DLPack; nothing is copied",
    ),
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
        "from_tensor": Instead(
            f"pa.{cls}.from_tensor(tensor).to_tensor().to_numpy().tolist()",
            f"pa.{cls}.from_dense(tensor).to_dense().tolist()",
            "takes ndarrays and tensors",
        ),
        "to_numpy": Instead(parts, parts, "the values have one dimension; pyarrow's have two"),
        "to_tensor": Instead(dense, f"{it}.to_dense().tolist()", "an ndarray"),
        **more,
    }


COO = _sparse(
    "coo",
    "SparseCOOTensor",
    has_canonical_format=Instead("coo.has_canonical_format", "coo.is_canonical", "of every class of sparse tensors"),
)
CSR = _sparse("csr", "SparseCSRMatrix")
CSC = _sparse("csc", "SparseCSCMatrix")
CSF = _sparse("csf", "SparseCSFTensor")

FIXED_SHAPE: dict[str, Entry] = {
    "from_tensor": Instead(
        "pa.FixedShapeTensorArray.from_tensor(tensor).type.shape",
        "pa.FixedShapeTensorArray.from_numpy_ndarray(tensor.to_numpy()).type.shape",
        "numpy stands between; nothing is copied",
    ),
    "to_tensor": Instead(
        "pa.FixedShapeTensorArray.from_numpy_ndarray(np.eye(3)).to_tensor().to_numpy().tolist()",
        "pa.Tensor.from_array(pa.FixedShapeTensorArray.from_numpy_ndarray(np.eye(3))).to_numpy().tolist()",
        "of any column that has the form of an ndarray",
    ),
}

_UUIDS = 'pa.array([b"0123456789abcdef"], pa.binary(16))'
EXTENSION_TYPE: dict[str, Entry] = {
    "wrap_array": Instead(
        f"pa.uuid().wrap_array({_UUIDS})",
        f"pa.ExtensionArray.from_storage(pa.uuid(), {_UUIDS})",
        "a class method of arrays",
    ),
}
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

FILES: dict[str, dict[str, Entry]] = {
    "RecordBatchReader": READER,
    "ipc.RecordBatchFileReader": FILE_READER,
    "ipc.IpcWriteOptions": WRITE_OPTIONS,
    "ipc.IpcReadOptions": READ_OPTIONS,
    "ipc.Message": MESSAGE,
    "Buffer": BUFFER,
    "Tensor": TENSOR,
    "SparseCOOTensor": COO,
    "SparseCSRMatrix": CSR,
    "SparseCSCMatrix": CSC,
    "SparseCSFTensor": CSF,
    "FixedShapeTensorArray": FIXED_SHAPE,
    "Bool8Array": BOOL8,
    "BaseExtensionType": EXTENSION_TYPE,
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
