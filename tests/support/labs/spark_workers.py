"""The daemon that Spark's workers are forked from in tests: what takes a second to import, it imports once for all.

Nothing of shmarrow is: what a worker of ours loads, and when, is as in production.
"""

from __future__ import annotations

import warnings

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    import numpy
    import pandas
    import pyarrow.compute
    import pyspark.daemon
    import pyspark.sql.pandas.types
    import pyspark.worker

__all__ = ["numpy", "pandas", "pyarrow"]

if __name__ == "__main__":
    pyspark.daemon.manager()
