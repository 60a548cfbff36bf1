"""The file format ("IPC File Format"): footer, reader, writer, appender."""
