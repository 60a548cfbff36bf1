# ruff: noqa: F401
"""Modules that are imported on first use: in ``late.layout.codes``, on the first access to it.

Functions reach through here what most processes do not need, and what stands below their own module in the order of
imports, as in ``late.layout.codes.of_runs(...)``. The imports are for type checkers, which know no other modules here.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import shmarrow.build.frames
    import shmarrow.build.pandas
    import shmarrow.casts.ndarray
    import shmarrow.casts.python
    import shmarrow.casts.storage
    import shmarrow.casts.time
    import shmarrow.casts.to_python
    import shmarrow.interchange.handles
    import shmarrow.interchange.handles.tensors
    import shmarrow.interchange.handles.unavailable
    import shmarrow.interchange.jax
    import shmarrow.interchange.pandas
    import shmarrow.interchange.pyarrow_tensors
    import shmarrow.interchange.pydata_sparse
    import shmarrow.interchange.scipy
    import shmarrow.interchange.torch
    import shmarrow.ipc.batch.codecs
    import shmarrow.ipc.batch.dictionaries
    import shmarrow.ipc.file.appender
    import shmarrow.ipc.file.row_counts
    import shmarrow.ipc.file.writer
    import shmarrow.ipc.stream.reader
    import shmarrow.ipc.stream.state
    import shmarrow.ipc.stream.writer
    import shmarrow.ipc.tensor.bundle
    import shmarrow.ipc.tensor.decode_sparse
    import shmarrow.layout.arguments
    import shmarrow.layout.array
    import shmarrow.layout.choose
    import shmarrow.layout.codes
    import shmarrow.layout.dictionary
    import shmarrow.layout.from_numpy
    import shmarrow.layout.from_values
    import shmarrow.layout.items
    import shmarrow.layout.making
    import shmarrow.layout.offsets
    import shmarrow.layout.run_end_encoded
    import shmarrow.layout.selection
    import shmarrow.layout.sizes
    import shmarrow.layout.struct
    import shmarrow.sources.formats
    import shmarrow.sources.pipes
    import shmarrow.sources.ranges
    import shmarrow.sources.sequential
    import shmarrow.store.attach
    import shmarrow.tensor.dense
    import shmarrow.types.dtypes
    import shmarrow.types.primitive
    import shmarrow.types.zones
    from shmarrow import build as build
    from shmarrow import casts as casts
    from shmarrow import chunking as chunking
    from shmarrow import column_names as column_names
    from shmarrow import display as display
    from shmarrow import extension as extension
    from shmarrow import interchange as interchange
    from shmarrow import ipc as ipc
    from shmarrow import layout as layout
    from shmarrow import sources as sources
    from shmarrow import store as store
    from shmarrow import tables as tables
    from shmarrow import tabular as tabular
    from shmarrow import tensor as tensor
    from shmarrow import types as types


class _Package:
    """A package, whose names, and modules, are imported when they are asked for."""

    def __init__(self, path: str) -> None:
        self._path = path

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        found = getattr(import_module(self._path), name, None)
        if found is None:
            found = import_module(f"{self._path}.{name}")
        if hasattr(found, "__path__"):
            found = _Package(found.__name__)
        setattr(self, name, found)
        return found


_PACKAGE = _Package("shmarrow")

if not TYPE_CHECKING:

    def __getattr__(name: str) -> Any:
        return globals().setdefault(name, _PACKAGE.__getattr__(name))
