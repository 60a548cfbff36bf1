# SPDX-License-Identifier: Apache-2.0
"""Columns of batches and tables: chunked columns, record batches and tables, on the same operations."""

from __future__ import annotations

from typing import TYPE_CHECKING

from shmarrow.lazy import lazy

if TYPE_CHECKING:
    from shmarrow.columns.batch import ColumnView as ColumnView
    from shmarrow.columns.batch import RecordBatch as RecordBatch
    from shmarrow.columns.batch import read_record_batch as read_record_batch
    from shmarrow.columns.batch import record_batch as record_batch
    from shmarrow.columns.chunked import ChunkedArray as ChunkedArray
    from shmarrow.columns.chunked import read_chunked_array as read_chunked_array
    from shmarrow.columns.names import checked_schema as checked_schema
    from shmarrow.columns.names import fields_at as fields_at
    from shmarrow.columns.names import included as included
    from shmarrow.columns.names import several as several
    from shmarrow.columns.table import RecordBatchReader as RecordBatchReader
    from shmarrow.columns.table import RecordBatchWithMetadata as RecordBatchWithMetadata
    from shmarrow.columns.table import Table as Table
    from shmarrow.columns.table import batches_for as batches_for
    from shmarrow.columns.table import concat_batches as concat_batches
    from shmarrow.columns.table import own_batch as own_batch
    from shmarrow.columns.table import read_table as read_table
    from shmarrow.columns.table import rows_of as rows_of
    from shmarrow.columns.table import with_metadata as with_metadata
    from shmarrow.columns.tabular import frame_in_schema as frame_in_schema
    from shmarrow.columns.tabular import from_any as from_any
    from shmarrow.columns.tabular import from_frame as from_frame

if not TYPE_CHECKING:
    __getattr__, __dir__ = lazy(
        __name__,
        {
            ".batch": "ColumnView RecordBatch read_record_batch record_batch",
            ".chunked": "ChunkedArray read_chunked_array",
            ".names": "checked_schema fields_at included several",
            ".table": "RecordBatchReader RecordBatchWithMetadata Table batches_for concat_batches own_batch read_table "
            "rows_of with_metadata",
            ".tabular": "frame_in_schema from_any from_frame",
        },
    )
