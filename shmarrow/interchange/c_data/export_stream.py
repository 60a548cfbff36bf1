"""``ArrowArrayStream`` from chunked arrays, tables and readers ("The C stream interface").

The callbacks of a stream must be compiled code, see ``structs``. They come from one of two libraries:

* a few batches become a ``nanoarrow`` stream, built with all structures up front. This is used for chunked arrays, and
  for tables and files of at most 16 batches in memory or in a mapping: it needs only nanoarrow, and an error in any
  batch reaches the caller as our exception;
* more batches, batches that must be read or decompressed first, and those of single-pass readers are produced one by
  one on the consumer's demand. ``nanoarrow`` has no stream over an iterator; ``pyarrow`` has one, and imports each
  batch from our capsules. Errors then arrive as the consumer's own type, with our message; exceptions that end the
  program (Ctrl-C, ``sys.exit``) are raised again when the consumer returns, see ``interrupts``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain, islice
from typing import Any

from shmarrow.batch import ColumnView, RecordBatch
from shmarrow.capsules import PyCapsule
from shmarrow.chunked import ChunkedArray
from shmarrow.errors import Failed
from shmarrow.interchange.c_data import interrupts
from shmarrow.interchange.c_data.export_array import (
    Tree,
    array_tree,
    batch_tree,
    capsules,
    in_schema,
    refuse,
    requested,
)
from shmarrow.interchange.c_data.export_schema import placeholder, schema_schema, type_schema
from shmarrow.interchange.c_data.import_schema import type_from_capsule
from shmarrow.optional import optional
from shmarrow.state_machine import READ, SEQUENTIAL, StateMachine
from shmarrow.tables import RecordBatchReader
from shmarrow.types import Schema

_FEW = 16
"""The most batches exported up front."""

_MOST_COLUMNS = 1 << 12
"""The most columns, over all batches, exported up front."""


def export_chunks(array: ChunkedArray, requested_schema: PyCapsule | None = None, **unknown: object) -> PyCapsule:
    """Implement :meth:`ChunkedArray.__arrow_c_stream__`."""
    refuse(unknown)
    if requested_schema is not None:
        array = array.cast(type_from_capsule(requested_schema))
    return _at_once([array_tree(chunk) for chunk in array.chunks], type_schema(array.type))


def export_batches(
    schema: Schema, batches: Iterable[RecordBatch], requested_schema: PyCapsule | None = None, **unknown: object
) -> PyCapsule:
    """Export batches as a stream: up front if they are few and in place, else one by one."""
    refuse(unknown)
    wanted = requested(schema, requested_schema)
    source = iter(batches)
    first = list(islice(source, _FEW + 1))
    few = len(first) == 1 or (len(first) <= _FEW and len(first) * len(wanted) <= _MOST_COLUMNS)
    if few and all(map(_in_place, first)):
        return _at_once([batch_tree(in_schema(batch, wanted)) for batch in first], schema_schema(wanted))
    return _one_by_one(wanted, chain(first, source))


def export_reader(reader: RecordBatchReader, requested_schema: PyCapsule | None = None, **unknown: object) -> PyCapsule:
    """Implement :meth:`RecordBatchReader.__arrow_c_stream__`."""
    refuse(unknown)
    return _one_by_one(requested(reader.schema, requested_schema), reader, reader._fail)


def _in_place(batch: RecordBatch) -> bool:
    """Whether columns are built without reading or decompressing anything."""
    source: Any = batch._source
    while isinstance(source, ColumnView):
        source = source.batch._source
    return source is None or getattr(source, "_direct", False)


def _at_once(trees: Sequence[Tree], schema: Any) -> Any:
    na = optional("nanoarrow")
    # Streams take ownership of the structures, so these are copies; the schema is passed once, not with each batch.
    arrays = [na._array.CArray._import_from_c_capsule(*capsules(tree, placeholder())) for tree in trees]
    own = na._schema.CSchema._import_from_c_capsule(schema.__arrow_c_schema__())
    return na._array_stream.CArrayStream.from_c_arrays(arrays, own, move=True, validate=False).__arrow_c_stream__()


class _Exported:
    """An iterator of pyarrow batches for one consumer; after an error it raises instead of ending."""

    def __init__(
        self, make: Callable[[Any], Any], schema: Schema, batches: Iterator[RecordBatch], fail: Callable[..., None]
    ) -> None:
        self._make = make
        self._schema = schema
        self._batches = batches
        self._fail = fail
        self._states = StateMachine("the stream", SEQUENTIAL, shared=True)

    def __iter__(self) -> Iterator[Any]:
        return self

    def __next__(self) -> Any:
        try:
            self._states.go(READ)
            return self._make(in_schema(next(self._batches), self._schema))
        except StopIteration:
            raise
        except BaseException as error:
            self._states.fail(error)
            self._fail(error)
            if isinstance(error, Exception):
                raise
            interrupts.raise_later(error, _Exported.__next__.__code__)
            raise Failed(f"{type(error).__name__} while a batch was read") from None


def _one_by_one(schema: Schema, batches: Iterable[RecordBatch], fail: Callable[..., None] = lambda _: None) -> Any:
    pa = optional("pyarrow")
    made = _Exported(pa.record_batch, schema, iter(batches), fail)
    return pa.RecordBatchReader.from_batches(pa.schema(schema), made).__arrow_c_stream__()
