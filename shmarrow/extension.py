"""Extension types ("Extension Types"): a type with a name and parameters of its own, over a storage type.

Rules kept here:

* on the wire an extension type is its storage type and two entries of the field's metadata,
  ``ARROW:extension:name`` and ``ARROW:extension:metadata``; a type that is not registered passes through as its storage with those entries kept.
"""

from __future__ import annotations

from shmarrow.types import DataType, Field, Metadata

NAME_KEY = b"ARROW:extension:name"
METADATA_KEY = b"ARROW:extension:metadata"


def extension_type(storage: DataType, metadata: Metadata | None) -> tuple[DataType, Metadata | None]:
    """The type that a field's metadata say its storage stands for, and the metadata that are left."""
    return storage, metadata


def storage_field(field: Field) -> Field:
    """The field as it goes on the wire: its storage type, with the extension's entries in the metadata."""
    return field
