"""FlatBuffers: the tables of the wire as data, a checking reader, a writer."""
