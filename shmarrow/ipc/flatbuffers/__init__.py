"""FlatBuffers: declarations of Arrow's tables, a validating reader, a writer."""
