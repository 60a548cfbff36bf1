"""The doors to others: each partner has a file, and none is imported before data goes through its door.

Importing this package gives arrays, batches, tables and types their ``from_...`` and ``to_...`` methods.
"""

from shmarrow.interchange import pyarrow as pyarrow
