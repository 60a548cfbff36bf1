# SPDX-License-Identifier: Apache-2.0
"""Extension types and their registry ("Extension Types").

Invariants:

* on the wire, an extension type is its storage type and two entries of the field's metadata, ``ARROW:extension:name``
  and ``ARROW:extension:metadata``. If the name is not registered, or the storage type or parameters do not fit the
  registered type, the column keeps its storage type and the entries are preserved;
* in memory, an extension array has the buffers and children of its storage, so an extension type delegates
  ``layout``, ``storage`` and ``fields`` to its storage type, and code that walks buffers needs no special case;
* a failing ``deserialize`` never stops reading.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, ClassVar

from shmarrow.buffer import DType
from shmarrow.errors import InvalidArgument, InvalidData, InvalidType, ShmarrowError, shown
from shmarrow.memory import fork_safe_lock
from shmarrow.types.arguments import Metadata
from shmarrow.types.base import DataType, Field, as_type
from shmarrow.types.descriptors import TypeDescriptor
from shmarrow.types.nested import DictionaryType

__all__ = [
    "METADATA_KEY",
    "NAME_KEY",
    "ExtensionType",
    "extension_type",
    "generation",
    "has_dictionary",
    "has_floats",
    "provide_extension_type",
    "register_extension_type",
    "storage_field",
    "storage_of",
    "types_in",
    "unregister_extension_type",
]

NAME_KEY = b"ARROW:extension:name"
METADATA_KEY = b"ARROW:extension:metadata"


class _Freezing(type):
    """Metaclass that makes instances immutable once ``__init__`` returns."""

    def __call__(cls, *arguments: Any, **keywords: Any) -> Any:
        instance = super().__call__(*arguments, **keywords)
        object.__setattr__(instance, "_made", True)
        return instance


class ExtensionType(DataType, abstract=True, metaclass=_Freezing):
    """Base class of extension types; a subclass has a name and serializes its parameters.

    A subclass sets its attributes in ``__init__``; afterwards the type is immutable.

    Parameters
    ----------
    storage_type : DataType
        Type of the values in memory; not an extension type.

    Attributes
    ----------
    extension_name : str
        Name that the type is registered under, set by subclasses. The prefix ``arrow.`` is reserved for Arrow.
    array_class : type
        Class of the type's arrays: :class:`shmarrow.ExtensionArray` or a subclass with custom accessors.
    """

    __slots__ = ("_made", "storage_type")

    extension_name: ClassVar[str] = ""
    array_class: ClassVar[Any] = None

    def __init__(self, storage_type: DataType | str) -> None:
        storage = as_type(storage_type)
        inner = storage.value_type if isinstance(storage, DictionaryType) else storage
        if isinstance(inner, ExtensionType):
            raise InvalidArgument(f"{self.extension_name}: the storage cannot be an extension type, found {storage}")
        self.storage_type = storage

    def serialize(self) -> bytes:
        """Serialize the parameters, without those of the storage type; empty if there are none."""
        return b""

    @classmethod
    def deserialize(cls, storage_type: DataType, serialized: bytes) -> ExtensionType:
        """Create the type from its storage type and the bytes of :meth:`serialize`.

        If it raises any exception, a column being read keeps its storage type.
        """
        return cls(storage_type)

    def to_python(self, value: Any) -> Any:
        """Convert a storage value, never None, to the extension's Python value."""
        return value

    def from_python(self, value: Any) -> Any:
        """Convert an extension value, never None, to the storage's Python value."""
        return value

    def __setattr__(self, name: str, value: Any) -> None:
        if hasattr(self, "_made"):
            super().__setattr__(name, value)
        object.__setattr__(self, name, value)

    # --- delegated to the storage type ---

    def __init_subclass__(cls) -> None:
        """Skip claiming descriptors; extension types have none."""

    @property
    def descriptor(self) -> TypeDescriptor:  # type: ignore[override]
        return self.storage_type.descriptor

    @property
    def layout(self) -> str:  # type: ignore[override]
        return self.storage_type.layout

    @property
    def storage(self) -> DType | None:  # type: ignore[override]
        return self.storage_type.storage

    @property
    def fields(self) -> tuple[Field, ...]:  # type: ignore[override]
        return self.storage_type.fields

    @property
    def numpy_dtype(self) -> DType | None:  # type: ignore[override]
        return self.storage_type.numpy_dtype

    @property
    def format(self) -> str:
        return self.storage_type.format

    @property
    def bit_width(self) -> int:
        return self.storage_type.bit_width

    # --- as a value ---

    def _key(self) -> tuple[Any, ...]:
        return (self.storage_type, self.serialize())

    def _name(self) -> str:
        return f"extension<{self.extension_name}>"

    def __reduce__(self) -> tuple[object, ...]:
        return _rebuild, (type(self), self.storage_type, self.serialize())


def _rebuild(cls: type[ExtensionType], storage_type: DataType, serialized: bytes) -> ExtensionType:
    try:
        return cls.deserialize(storage_type, serialized)
    except ShmarrowError:
        raise
    except Exception as error:
        text = f"{cls.extension_name} over {storage_type}: deserialize({shown(serialized)}) raised {shown(error)}"
        raise InvalidData(text) from error


# --- the registry -----------------------------------------------------------------------------------------------

_REGISTRY: dict[bytes, Callable[[], type[ExtensionType]]] = {}
"""Loader of the class of each registered type, by name; Arrow's canonical types are imported on first use."""

_LOCK = fork_safe_lock()
_generation = 0


def provide_extension_type(name: str, load: Callable[[], type[ExtensionType]]) -> None:
    """Register a type whose class is loaded when its name first occurs in data; for the canonical types."""
    _REGISTRY[name.encode()] = load


def generation() -> int:
    """Return a number that changes with the registry; types read under another generation may be stale."""
    return _generation


def register_extension_type(cls: type[ExtensionType]) -> None:
    """Register an extension type; columns with its name that are read from now on have this type.

    Parameters
    ----------
    cls : type
        A subclass of :class:`ExtensionType` with an ``extension_name``.

    Raises
    ------
    InvalidType
        If ``cls`` is not a subclass of ExtensionType.
    InvalidArgument
        If it has no name, or the name is already registered.
    """
    global _generation
    if not (isinstance(cls, type) and issubclass(cls, ExtensionType)):
        raise InvalidType(f"expected a subclass of ExtensionType, found {shown(cls)}")
    name = cls.extension_name
    if not isinstance(name, str) or not name:
        raise InvalidArgument(f"{cls.__name__}.extension_name must be a non-empty string, found {shown(name)}")
    with _LOCK:
        if name.encode() in _REGISTRY:
            raise InvalidArgument(
                f"the extension name {name!r} is registered; call unregister_extension_type({name!r}) first"
            )
        _REGISTRY[name.encode()] = lambda: cls
        _generation += 1


def unregister_extension_type(name: str) -> None:
    """Unregister an extension type; columns with its name that are read from now on have their storage type.

    Raises
    ------
    InvalidArgument
        If the name is not registered.
    """
    global _generation
    with _LOCK:
        if not isinstance(name, str) or _REGISTRY.pop(name.encode(), None) is None:
            names = sorted(names.decode() for names in _REGISTRY)
            raise InvalidArgument(f"no extension type is registered as {shown(name)}; registered: {names}")
        _generation += 1


# --- fields -----------------------------------------------------------------------------------------------------


def extension_type(storage: DataType, metadata: Metadata | None) -> tuple[DataType, Metadata | None]:
    """Return the extension type named by a field's metadata, or its storage type, and the remaining metadata.

    On the wire, an extension type over a dictionary and a dictionary with extension values look the same; the former
    is tried first.
    """
    name = None if metadata is None else metadata.get(NAME_KEY)
    if name is None or name not in _REGISTRY:
        return storage, metadata
    assert metadata is not None
    serialized = metadata.get(METADATA_KEY, b"")
    type: DataType | None = _fitting(name, storage, serialized)
    if type is None and isinstance(storage, DictionaryType):
        values = _fitting(name, storage.value_type, serialized)
        type = None if values is None else DictionaryType(storage.index_type, values, storage.ordered)
    if type is None:
        return storage, metadata
    left = {key: value for key, value in metadata.items() if key not in (NAME_KEY, METADATA_KEY)}
    return type, left or None


def _fitting(name: bytes, storage: DataType, serialized: bytes) -> ExtensionType | None:
    """The registered type over this storage, or None if it does not fit."""
    load = _REGISTRY.get(name)
    if load is None:  # unregistered by another thread meanwhile
        return None
    cls = load()
    try:
        type = cls.deserialize(storage, serialized)
    except Exception:  # user code over untrusted bytes: any exception means that they do not fit
        return None
    return type if isinstance(type, ExtensionType) and type.storage_type == storage else None


def storage_of(type: Any) -> Any:
    """Return the storage type of an extension type; of any other type, the type itself."""
    return type.storage_type if isinstance(type, ExtensionType) else type


def types_in(type: DataType) -> Iterator[DataType]:
    """Iterate over a type and all types in it: those of its fields and of a dictionary's values, at any depth."""
    yield type
    stored = storage_of(type)
    for each in [stored.value_type] if isinstance(stored, DictionaryType) else [field.type for field in stored.fields]:
        yield from types_in(each)


def has_dictionary(type: Any) -> bool:
    """Return whether values of the type, at any depth, are in dictionaries."""
    return any(isinstance(storage_of(each), DictionaryType) for each in types_in(type))


def has_floats(type: Any) -> bool:
    """Return whether values of the type may be or contain NaN, which is not equal to anything."""
    return any(each.storage is not None and each.storage.kind == "f" for each in types_in(type))


def storage_field(field: Field) -> Field:
    """Return the field as serialized: its storage type, with the extension's entries in the metadata."""
    type: Any = field.type
    if isinstance(type, ExtensionType):
        storage = type.storage_type
    elif isinstance(type, DictionaryType) and isinstance(type.value_type, ExtensionType):
        storage = DictionaryType(type.index_type, type.value_type.storage_type, type.ordered)
        type = type.value_type
    else:
        return field
    entries = {NAME_KEY: type.extension_name.encode(), METADATA_KEY: type.serialize()}
    return Field(field.name, storage, field.nullable, {**(field.metadata or {}), **entries})
