# SPDX-License-Identifier: Apache-2.0
"""Explanations of all parts of an Arrow object, in plain sentences for readers who are new to the format."""

from __future__ import annotations

from shmarrow.ipc.flatbuffers.tables import UNIONS

KINDS: dict[str, str] = {
    "magic": "The string ARROW1, which marks an Arrow file. It is at both ends, so a file that was cut short is "
    "recognized.",
    "message": "A message: metadata that describes it and, for data, a body with the buffers.",
    "footer": "The table of contents of a file: the schema once more, and the position of every record batch and "
    "dictionary batch. With it a reader goes to any batch directly.",
    "prefix": "The start of a message: the continuation marker FF FF FF FF, then the length of the metadata, 4 bytes "
    "each. Before Arrow 0.15 there was no marker.",
    "root": "The start of a FlatBuffer: the distance in bytes from here to its outermost table, where reading begins.",
    "table": "A FlatBuffers table, a record of named fields. It starts with the distance to its vtable, which locates "
    "the fields; fields with default values are left out.",
    "vtable": "The layout of a FlatBuffers table: the size of the vtable, the size of the table, and the offset of "
    "each field in the table, 2 bytes each. Offset 0 means that the field is left out.",
    "vector": "A FlatBuffers vector: the number of elements in 4 bytes, then the elements. Tables and strings are "
    "stored elsewhere, and the vector holds the distances to them.",
    "string": "A FlatBuffers string: its length in 4 bytes, the text in UTF-8, and a zero byte.",
    "block": "Pointers to messages: for each, its offset in the file, the length of its metadata and the length of its "
    "body.",
    "length": "The uncompressed length of the buffer that follows, in 8 bytes; -1 means that it is not compressed.",
    "buffer": "A contiguous run of bytes with data of a column or tensor, used in place unless it is compressed.",
    "padding": "Unused bytes, zero by convention, that align the next part, usually to 8 or 64 bytes, so that it can "
    "be read in place.",
    "end": "The end-of-stream marker: a message prefix with a metadata length of 0. No messages follow.",
    "size": "The length of the footer, in 4 bytes. Readers of a file start at its end: with the magic string, this "
    "length, and the footer.",
    "gap": "Bytes between messages that nothing refers to. Readers skip them.",
    "overlap": "Bytes that belong to another part, too: two messages, tables or buffers share them.",
    "unknown": "Bytes without an explanation: nothing refers to them, or they break the format.",
}
"""The kinds of regions and what each is."""

_TYPE = "A FlatBuffers table with the type of a column or tensor: {}, and the parameters of the type, if any."

PARTS: dict[str, str] = {
    # messages
    "schema": "The first message: the names and types of the columns. It has no body.",
    "dictionary batch": "A message with the distinct values of dictionary-encoded columns, which store indices into "
    "them instead of the values.",
    "record batch": "A message with some of the rows: the metadata lists the position and length of each buffer, and "
    "the body holds the buffers, column by column.",
    "record batch, bundle": "The index of the bundle, a record batch with one row per tensor: its name and where its "
    "message starts.",
    "tensor": "A message with a multi-dimensional array: the metadata gives its type, shape and strides, and the body "
    "holds its elements.",
    "sparse tensor": "A message with a multi-dimensional array that is mostly zero: the body holds only the other "
    "elements, and an index of their coordinates.",
    "metadata": "The description of the message, as a FlatBuffer: the kind of message and, for data, where each "
    "buffer is in the body.",
    "metadata, footer": "The content of the footer, as a FlatBuffer: the schema and pointers to the messages.",
    "body": "The data of the message: its buffers, one after another, aligned by padding.",
    "column": "The buffers of one column in this batch, with those of its children if the type is nested.",
    "left out": "This page leaves out the details of these bytes, to stay small.",
    "parts narrower than a pixel": "Several parts that are too small to be drawn one by one at this scale.",
    # buffers of columns
    "validity buffer": "The validity bitmap: one bit per value, lowest bit of each byte first. 1 means that the value "
    "is present, 0 that it is null.",
    "values buffer": "The values in slots of equal width, one after another; booleans take one bit each. The slot of a "
    "null is unspecified.",
    "indices buffer": "For each value, its index in the dictionary, whose values are in a dictionary batch.",
    "offsets buffer": "Where each value starts in the data buffer, in bytes. A value ends where the next one starts, "
    "so there is one offset more than values.",
    "offsets buffer, List Layout": "Where each list starts in the child column, in elements. A list ends where the "
    "next one starts, so there is one offset more than lists.",
    "offsets buffer, ListView Layout": "Where each list starts in the child column, in elements. The sizes buffer "
    "gives the lengths, so lists may be in any order and share elements.",
    "offsets buffer, Dense Union": "For each value, its position in the child column that its type id selects.",
    "sizes buffer": "The length of each list, in elements of the child column.",
    "type_ids buffer": "One byte per value of a union: the type id, which selects the child column with the value.",
    "views buffer": "One view of 16 bytes per value, with its length in front. Up to 12 bytes are stored in the view "
    "itself; of longer values the view has the first 4 bytes and the position in a data buffer.",
    "data buffer": "The bytes of all values, one after another without separators. The offsets buffer locates them.",
    "data buffer, Variadic buffers": "The bytes of values that are longer than 12 bytes. Views point to them; a column "
    "of views can have any number of such buffers.",
    "compressed buffer": "Batches of this object are compressed: a buffer starts with its uncompressed length in 8 "
    "bytes (-1: not compressed) and has to be decompressed first.",
    # buffers of tensors
    "elements buffer": "The elements of the tensor. Its shape and strides locate each of them.",
    "elements buffer, Sparse Tensor": "The non-zero elements of the tensor, in the order of its index.",
    "indices buffer, Sparse Tensor": "Coordinates of the non-zero elements: of all dimensions (COO), of the one that "
    "is not compressed (CSR, CSC), or of one level of the tree (CSF).",
    "indptr buffer": "Where the indices of each row (CSR), column (CSC) or node of the tree (CSF) start; the end is "
    "where the next ones start.",
    # FlatBuffers
    "FlatBuffers file identifier": "Four letters that some writers put in front of a FlatBuffer, to mark its content.",
    "table Message": "A FlatBuffers table, the outermost of the metadata: the version of the format, the kind of "
    "message, and the length of the body.",
    "table Schema": "A FlatBuffers table with the fields (columns), the byte order and custom metadata.",
    "table Field": "A FlatBuffers table that describes a column or a child of one: name, type, children, and whether "
    "nulls are allowed.",
    "table KeyValue": "A FlatBuffers table with one entry of the custom metadata, which any application may add.",
    "table RecordBatch": "A FlatBuffers table that describes the body: the number of rows, the nodes (length and null "
    "count of each field) and the position of each buffer.",
    "table DictionaryBatch": "A FlatBuffers table with the id of the dictionary, the description of its values, and "
    "whether they extend an earlier dictionary.",
    "table DictionaryEncoding": "A FlatBuffers table that marks a column as dictionary-encoded: the id of the "
    "dictionary and the type of the indices.",
    "table BodyCompression": "A FlatBuffers table with the codec that compresses each buffer of the body.",
    "table Footer": "A FlatBuffers table with the schema and pointers to all dictionary and record batches.",
    "table Tensor": "A FlatBuffers table with the type, shape and strides of the tensor and the position of its "
    "elements.",
    "table TensorDim": "A FlatBuffers table with the size of one dimension of the tensor, and its name, if any.",
    "table SparseTensor": "A FlatBuffers table with the type and shape of the tensor, the number of its non-zero "
    "elements, and the form of its index.",
    "vector RecordBatch.nodes": "A FlatBuffers vector with 16 bytes per field, parents before their children: the "
    "number of values and the number of nulls.",
    "vector RecordBatch.buffers": "A FlatBuffers vector with 16 bytes per buffer: its offset from the start of the "
    "body, and its length without padding.",
    "vector RecordBatch.variadicBufferCounts": "A FlatBuffers vector with the number of data buffers of each column of "
    "views.",
    **{f"table {member}": _TYPE.format(member) for member in UNIONS["Type"]},
}
"""Sentences for parts that the page tells apart: ``NAME`` or, before it, ``NAME, CONTEXT``.

The context of a buffer is the chapter of the specification; that of another part is its parent, or the kind of the
object.
"""
