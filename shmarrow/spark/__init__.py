"""Spark: its Python workers put what they computed into shared memory, and any process on the host attaches to it.

:func:`share` runs inside Spark, with ``mapInArrow``: each partition becomes one Arrow file, and only a line about it,
its :class:`Handle`, travels back. Handles are small and picklable. :meth:`SharedFrame.map` takes them into another job,
whose workers attach to the very same memory.

Nothing here runs a server, and nothing here imports Spark before it is used.
"""

from shmarrow.spark.frame import SharedFrame, remove, share
from shmarrow.spark.handle import Handle
from shmarrow.spark.session import check_java, local_session

__all__ = ["Handle", "SharedFrame", "check_java", "local_session", "remove", "share"]
