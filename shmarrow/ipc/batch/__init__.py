"""Encoding and decoding of record batches and dictionaries ("RecordBatch message", "Dictionary Messages")."""
