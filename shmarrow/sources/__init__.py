"""Where bytes come from and where they go: paths, shared memory, file objects, buffers."""
