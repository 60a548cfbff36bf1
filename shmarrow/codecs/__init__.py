"""Codecs: from values to the bytes of one Arrow object, and back.

Every value becomes what Arrow has for it, so that any Arrow implementation reads it; nothing is pickled:

==============================================  =======================================================
value                                           bytes
==============================================  =======================================================
RecordBatch, Table, Array, ChunkedArray         a file; a stream where batches have different
                                                dictionaries, which a file cannot hold
str, int, float, bool                           a file of one row and one column
Tensor, ndarray, bytes, bytearray, memoryview   a Tensor message
SparseTensor                                    a SparseTensor message
mapping of names to tensors                     a bundle: a file with the tensors between its messages
==============================================  =======================================================

Which of the values of one row it was says the key ``shmarrow:kind`` in the metadata of the file, of a stream's first
batch or of the tensor; a mark that does not fit what it marks is ignored.

``encode`` and ``describe``, which those who get need not, are imported late.
"""

from shmarrow.codecs.decode import decode
from shmarrow.codecs.kinds import KIND, RECORD_BATCH, Stored

__all__ = ["KIND", "RECORD_BATCH", "Stored", "decode"]
