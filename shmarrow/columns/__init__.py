"""Columns of batches and tables: chunked columns, record batches and tables, on the same operations."""
