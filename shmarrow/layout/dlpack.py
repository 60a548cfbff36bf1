# SPDX-License-Identifier: Apache-2.0
"""DLPack: memory of numbers that other libraries use in place, and the way of arrays to torch and JAX.

Invariants:

* many consumers, such as torch, have no read-only tensors, so they get private memory: copy-on-write pages of the
  mapping, or a copy. What never writes, or is asked for explicitly, gets the shared memory itself;
* types that DLPack lacks are refused by name.
"""

from __future__ import annotations

import ctypes
import sys
from typing import Any

import numpy as np

from shmarrow.buffer import NDArray
from shmarrow.errors import CopyRequired, ExportRefused, InvalidData, InvalidType, ShmarrowError, full_name, optional
from shmarrow.memory import private_view
from shmarrow.memory.mappings import copied, writable
from shmarrow.types import DataType

CPU = (1, 0)
"""The device of all memory here."""

_CODES = {
    "bfloat16": 4,
    "float8_e3m4": 7,
    "float8_e4m3": 8,
    "float8_e4m3b11fnuz": 9,
    "float8_e4m3fn": 10,
    "float8_e4m3fnuz": 11,
    "float8_e5m2": 12,
    "float8_e5m2fnuz": 13,
    "float8_e8m0fnu": 14,
}
"""DLPack 1.1 type codes for floats unknown to numpy."""


def export(
    storage: NDArray,
    type: object,
    ml_dtype: str | None = None,
    *,
    stream: Any = None,
    max_version: tuple[int, int] | None = None,
    dl_device: tuple[int, int] | None = None,
    copy: bool | None = None,
) -> Any:
    """Implement :meth:`Tensor.__dlpack__`.

    Parameters
    ----------
    storage : ndarray
        The elements.
    type : object
        Their type, for messages.
    ml_dtype : str, optional
        The name of floats that numpy lacks, if the elements are their bits.
    stream, max_version, dl_device, copy
        As there.
    """
    if dl_device not in (None, CPU):
        raise ExportRefused(
            f"expected the CPU, device {CPU}, found device {dl_device}; move the tensor after importing it"
        )
    _type_code(storage, type, ml_dtype)
    if copy is None:
        array = own_elements(storage)
    elif copy:
        array = copied(storage)
    else:
        private = private_view(storage) if storage.flags.aligned else None
        if private is None:
            raise ExportRefused(
                "the memory is read-only, which DLPack consumers may ignore, and exporting it as writable needs "
                "a copy, which copy=False forbids; to_numpy() returns a read-only view"
            )
        array = private
    return _capsule(array, type, ml_dtype, max_version)


class Exposed:
    """An array exported through DLPack as writable, without copying.

    Only for private memory, or for consumers that never write to it. ``type`` and ``ml_dtype`` as for :func:`export`.
    """

    def __init__(self, array: NDArray, type: object, ml_dtype: str | None = None) -> None:
        if not array.flags.aligned:
            raise ExportRefused(
                f"elements of {array.itemsize} bytes are not aligned to their size; take a copy: to_numpy().copy()"
            )
        self.array = array if array.flags.writeable else np.asarray(_Alias(array))
        self.type = type
        self.ml_dtype = ml_dtype

    def __dlpack_device__(self) -> tuple[int, int]:
        return CPU

    def __dlpack__(self, *, max_version: tuple[int, int] | None = None, **_: object) -> Any:
        return _capsule(self.array, self.type, self.ml_dtype, max_version)


class _Alias:
    """The memory of an array, with an array interface flagged as writable."""

    def __init__(self, array: NDArray) -> None:
        self.array = array
        interface = array.__array_interface__
        self.__array_interface__ = {**interface, "data": (interface["data"][0], False)}


def own_elements(array: NDArray) -> NDArray:
    """The elements in private writable memory, aligned to their size."""
    return writable(array) if array.flags.aligned else copied(array)


def _type_code(array: NDArray, type: object, ml_dtype: str | None) -> int | None:
    """The DLPack type code of elements that numpy cannot export; None for others."""
    code = _CODES.get(ml_dtype or "")
    if ml_dtype is not None and code is None:
        raise ExportRefused(f"DLPack has no type for {ml_dtype}; export `storage`, and reinterpret it")
    if array.dtype.kind not in "biuf":
        step = "storage.view('i8') has the integers" if array.dtype.kind in "mM" else "its storage is an ndarray"
        raise ExportRefused(f"DLPack has no type for {type}; {step}")
    return code


def _capsule(array: NDArray, type: object, ml_dtype: str | None, max_version: tuple[int, int] | None) -> Any:
    """A DLPack capsule over a writable array of stored elements."""
    code = _type_code(array, type, ml_dtype)
    try:
        capsule = array.__dlpack__(max_version=max_version)
    except BufferError as error:
        raise ExportRefused(f"DLPack has no type for {type}: {error}") from None
    return capsule if code is None else _with_type_code(capsule, code)


# Offset of the type code in a managed tensor: after data pointer, device and ndim, which since version 1.0 follow
# version, owner, deleter and flags.
_CODE_OFFSET = {b"dltensor": 20, b"dltensor_versioned": 52}


def _with_type_code(capsule: Any, code: int) -> Any:
    """Patch the type code of a capsule not yet exported."""
    name = _capsule_name(capsule)
    address = _capsule_pointer(capsule, name)
    ctypes.c_uint8.from_address(address + _CODE_OFFSET[name]).value = code
    return capsule


_capsule_name = ctypes.pythonapi.PyCapsule_GetName
_capsule_name.restype = ctypes.c_char_p
_capsule_name.argtypes = [ctypes.py_object]
_capsule_pointer = ctypes.pythonapi.PyCapsule_GetPointer
_capsule_pointer.restype = ctypes.c_void_p
_capsule_pointer.argtypes = [ctypes.py_object, ctypes.c_char_p]


# --- other libraries' arrays ------------------------------------------------------------------------------------


def ndarray_of(value: Any) -> NDArray:
    """The elements of another library's array or tensor, in place.

    Raises
    ------
    InvalidType
        If it has no such form.
    InvalidData
        If it is a tensor of torch whose storage lacks some of its elements.
    """
    check_storage(value)
    try:
        return np.asarray(value)
    except ShmarrowError:
        raise
    except (TypeError, ValueError, RuntimeError, NotImplementedError) as error:
        raise InvalidType(f"{full_name(value)} cannot be converted to an ndarray: {error}") from None


def check_storage(value: Any) -> None:
    """Raise InvalidData if the elements of a tensor of torch, or of its parts, reach beyond its storage.

    Storages are freed and shrunk under their tensors, as FSDP does, and torch itself reads what lies there instead.
    """
    torch = sys.modules.get("torch")
    if torch is None or not isinstance(value, torch.Tensor) or value.is_meta or value.is_nested:
        return
    if value.layout is not torch.strided:
        parts = _PARTS.get(str(value.layout).removeprefix("torch."), ())
        for part in [getattr(value.detach(), part)() for part in parts]:
            check_storage(part)
        return
    steps = [(size - 1) * step for size, step in zip(value.shape, value.stride(), strict=True)]
    reach = (value.storage_offset() + sum(steps) + 1) * value.element_size() if value.numel() else 0
    size = value.untyped_storage().nbytes()
    if reach > size:
        raise InvalidData(
            f"the elements of the tensor reach to byte {reach:,} of its storage, which has {size:,}",
            hint="it was freed or shrunk, as FSDP does between uses; gather the parameters first",
        )


_PARTS = {
    "sparse_coo": ("_indices", "_values"),
    "sparse_csr": ("crow_indices", "col_indices", "values"),
    "sparse_csc": ("ccol_indices", "row_indices", "values"),
}
"""The methods that return the dense parts of sparse tensors of torch, by layout."""


# --- arrays -----------------------------------------------------------------------------------------------------


def elements_of(array: Any, copies: bool = False) -> NDArray:
    """Return the values of an array without nulls, in place; with ``copies`` also booleans, which are bits.

    Raises
    ------
    CopyRequired
        If there are nulls, or the values have no zero-copy numpy form.
    """
    if array.null_count:
        raise CopyRequired(f"a tensor cannot hold nulls, and the column has {array.null_count}; replace them first")
    try:
        values: NDArray = array.to_numpy(zero_copy_only=not (copies and array.type.layout == "bool"))
    except CopyRequired:
        text = f"{array.type} cannot be the element type of a tensor"
        raise CopyRequired(text, hint=_instead(array.type)) from None
    return values


def array_to_dlpack(array: Any, **options: Any) -> Any:
    """Implement :meth:`Array.__dlpack__`."""
    return export(elements_of(array, options.get("copy") is not False), array.type, **options)


def to_torch(exported: Exposed | Any, device: Any) -> Any:
    """Make a torch tensor over what an object exports by DLPack, moved to a device if one is given."""
    result = optional("torch").from_dlpack(exported)
    return result if device is None else result.to(device)


def is_cpu(device: Any) -> bool:
    """Whether a device of torch is the CPU."""
    return device is None or optional("torch").device(device).type == "cpu"


def array_to_torch(array: Any, device: Any = None, *, writable: bool = True) -> Any:
    """Implement :meth:`Array.to_torch`."""
    shared = not (writable and is_cpu(device))
    if array.type.layout == "bool" and not array.null_count:
        if not writable and is_cpu(device):
            raise CopyRequired("Arrow stores booleans as bits, torch as bytes: writable=False cannot share them")
        result = optional("torch").from_numpy(array.to_numpy(zero_copy_only=False, writable=True))
        return result if device is None else result.to(device)
    integers = integers_of(array.type)
    if integers:
        raise ExportRefused(f"torch has no type for {array.type}; {integers}.to_torch() gives the integers")
    values = elements_of(array)
    return to_torch(Exposed(values if shared else own_elements(values), array.type), device)


_FORMS = {
    **dict.fromkeys(("binary", "large_binary", "binary_view"), "use dictionary_encode().indices"),
    **dict.fromkeys(("list", "large_list", "list_view", "large_list_view"), "cast it to lists of one length"),
    "bool": "to_numpy(zero_copy_only=False) copies them, as Arrow packs them as bits",
    "dictionary": "use .indices or .dictionary",
    "primitive": "cast it to 'float64'",
    "struct": "use field(name) for one of its columns",
}
"""Alternatives for layouts without tensors."""


def _instead(type: DataType) -> str:
    """The hint that says how to get a tensor from a type without a zero-copy numpy form."""
    while hasattr(type, "list_size"):
        type = type.fields[0].type
    integers = integers_of(type)
    return f"use {integers} for integers" if integers else _FORMS.get(type.layout, "")


def integers_of(type: DataType) -> str:
    """For messages, the call that returns dates and times as integers; empty for other types."""
    temporal = type.descriptor.values in ("date", "time", "timestamp", "timedelta")
    return f"view('int{type.bit_width}')" if temporal else ""
