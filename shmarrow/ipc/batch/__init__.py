# SPDX-License-Identifier: Apache-2.0
"""Encoding and decoding of record batches and dictionaries ("RecordBatch message", "Dictionary Messages")."""
