"""JSON strings (canonical extension types, "JSON")."""

from __future__ import annotations

import json
from typing import Any

from shmarrow.errors import InvalidArgument, InvalidData
from shmarrow.extension.array import ExtensionArray
from shmarrow.extension.parameters import parameters_of
from shmarrow.types import DataType, ExtensionType


class JsonType(ExtensionType):
    """JSON strings (``arrow.json``)."""

    __slots__ = ()
    extension_name = "arrow.json"

    def __init__(self, storage_type: DataType | str = "string") -> None:
        super().__init__(storage_type)
        if not getattr(self.storage_type, "text", False):
            raise InvalidArgument(
                f"{self.extension_name}: the storage must be string, large_string or string_view, found {storage_type}"
            )

    @classmethod
    def deserialize(cls, storage_type: DataType, serialized: bytes) -> JsonType:
        parameters_of(cls.extension_name, serialized)
        return cls(storage_type)


class JsonArray(ExtensionArray, of=JsonType):
    """Array of JSON strings."""

    __slots__ = ()

    def parse(self) -> list[Any]:
        """Parse the values with ``json.loads``; None for null slots and JSON's ``null``.

        Raises
        ------
        InvalidData
            If a value is not JSON, or nests too deep.
        """
        result: list[Any] = []
        for i, text in enumerate(self.to_pylist()):
            try:
                result.append(None if text is None else json.loads(text))
            except (ValueError, RecursionError) as error:
                found = f"{self._type}: {text[:80]!r} is not JSON: {error}"
                raise InvalidData(found, where=[("row", i)]) from None
        return result

    def _check_values(self) -> None:
        super()._check_values()
        self.parse()


def json_(storage_type: DataType | str = "string") -> JsonType:
    """Create the type of JSON strings."""
    return JsonType(storage_type)
