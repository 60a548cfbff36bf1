"""shmarrow: a memory-mapped, shared-memory Arrow store that needs no server."""

__version__ = "0.1.0"
