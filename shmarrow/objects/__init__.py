# SPDX-License-Identifier: Apache-2.0
"""Encoding of Python and Arrow values as Arrow objects, and decoding.

Values are stored as standard Arrow IPC, readable by any implementation; nothing is pickled:

==============================================  =======================================================
value                                           bytes
==============================================  =======================================================
RecordBatch, Table, Array, ChunkedArray         a file; a stream where batches have different
                                                dictionaries, which a file cannot hold
Tensor, ndarray, bytes, bytearray, memoryview,  a Tensor message, of UTF-8 for a str, of one element for a number
str, int, float, bool
SparseTensor                                    a SparseTensor message
mapping of names to tensors                     a bundle: a file with the tensors between its messages
==============================================  =======================================================

Values with the same encoding are told apart by the key ``shmarrow:kind`` in the metadata of the file, the stream's
first batch or the tensor; a mark that does not match its object is ignored.

``encode``, not needed for reading, is imported lazily.
"""

from shmarrow.objects.decode import decode
from shmarrow.objects.kinds import KIND, RECORD_BATCH, Stored

__all__ = ["KIND", "RECORD_BATCH", "Stored", "decode"]
