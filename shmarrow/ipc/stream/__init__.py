"""The streaming format ("IPC Streaming Format"): sans-I/O decoder, readers, writer."""
