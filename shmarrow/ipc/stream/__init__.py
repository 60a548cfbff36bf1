"""The streaming format ("IPC Streaming Format"): a decoder without I/O, a reader, a writer."""
