# SPDX-License-Identifier: Apache-2.0
"""Metadata, and conversion of the arguments of types and schemas: bools, ints, strings."""

from __future__ import annotations

from collections.abc import Mapping
from operator import index
from typing import Any, NoReturn

import numpy as np

from shmarrow.errors import InvalidArgument, InvalidType, shown

__all__ = ["FrozenMetadata", "Metadata", "MetadataLike", "as_metadata"]

Metadata = Mapping[bytes, bytes]
MetadataLike = Mapping[Any, Any]


class FrozenMetadata(dict[bytes, bytes]):
    """Immutable, ordered metadata of a schema, field, batch or footer: a mapping of bytes to bytes.

    Equal to a dict with the same items; ``dict(metadata)`` makes a mutable copy.

    Notes
    -----
    Thread safety: immutable.
    """

    __slots__ = ()

    def _refuse(self, *arguments: Any, **keywords: Any) -> NoReturn:
        """Raise InvalidType: metadata are immutable."""
        raise InvalidType("metadata is immutable; pass a changed copy, dict(metadata), to with_metadata()")

    __setitem__ = __delitem__ = __ior__ = _refuse
    clear = pop = popitem = setdefault = update = _refuse

    def __hash__(self) -> int:  # type: ignore[override]
        return hash(frozenset(self.items()))

    def __copy__(self) -> FrozenMetadata:
        return self

    def __deepcopy__(self, memo: Any) -> FrozenMetadata:
        return self

    def __reduce__(self) -> tuple[object, ...]:
        return FrozenMetadata, (dict(self),)


def as_metadata(metadata: MetadataLike | None) -> Metadata | None:
    """Return metadata with keys and values as bytes; None if empty.

    Raises
    ------
    InvalidType
        If a key or value is neither a string nor bytes.
    InvalidArgument
        If a string cannot be encoded as UTF-8.
    """
    if metadata is None or type(metadata) is FrozenMetadata:
        return metadata or None
    if not isinstance(metadata, Mapping):
        raise InvalidType(f"metadata must be a mapping of strings or bytes, found {type(metadata).__name__}")
    result = {}
    for key, value in metadata.items():
        pair = [as_utf8(part, "metadata") if isinstance(part, str) else part for part in (key, value)]
        if not all(isinstance(part, bytes) for part in pair):
            raise InvalidType(f"metadata keys and values must be strings or bytes, found {shown(key)}: {value!r}")
        result[pair[0]] = pair[1]
    return FrozenMetadata(result) if result else None


def as_bool(value: Any, what: str, default: bool) -> bool:
    """Return a bool, or the default for None; InvalidType for anything else."""
    if value.__class__ is bool:
        return bool(value)
    if value is None:
        return default
    if isinstance(value, np.bool_):
        return bool(value)
    raise InvalidType(f"{what} must be True or False, found {shown(value)}")


def as_int(value: Any, what: str) -> int:
    """Return an int; InvalidType for anything else, including bools."""
    if value.__class__ is int:
        return int(value)
    try:
        if isinstance(value, (bool, np.bool_)):
            raise TypeError
        return index(value)
    except TypeError:
        raise InvalidType(f"{what} must be an int, found {shown(value)}") from None


def as_positive(value: Any, what: str) -> int:
    """Return an int of at least 1; InvalidType or InvalidArgument for anything else."""
    number = as_int(value, what)
    if number < 1:
        raise InvalidArgument(f"{what} must be at least 1, found {number}")
    return number


def as_utf8(value: str, what: str) -> bytes:
    """Encode a string as UTF-8.

    Raises
    ------
    InvalidArgument
        If the string contains surrogates.
    """
    try:
        return value.encode()
    except UnicodeEncodeError as error:
        raise InvalidArgument(
            f"{what} {shown(value)} cannot be encoded as UTF-8: {error.reason} at position {error.start}"
        ) from None
