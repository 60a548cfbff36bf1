"""A table of embeddings in pandas UDFs: in memory once for all Python workers of a host.

``broadcast`` puts the table into shared memory. In a worker, ``.value`` is a numpy array over that memory: having it
takes no time, and eight workers need no more memory than one. With ``sc.broadcast`` each worker unpickles a copy.

Run it with ``python examples/embeddings.py``; it needs ``pip install 'shmarrow[spark]'`` and Java 17.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
from local_session import local_session

from shmarrow.spark import HostBroadcast, broadcast


def similarity(embeddings: HostBroadcast, query: np.ndarray) -> Any:
    """A UDF for columns of token numbers: how similar a text is to a query, the cosine of their mean embeddings."""
    from pyspark.sql.functions import pandas_udf

    direction = query / np.linalg.norm(query)

    @pandas_udf("float")  # type: ignore[call-overload]
    def cosine(texts: pd.Series) -> pd.Series:
        table = embeddings.value
        lengths = texts.str.len().to_numpy()
        starts = np.cumsum(lengths) - lengths
        sums = np.add.reduceat(table[np.concatenate(texts.to_numpy())], starts)
        return pd.Series(sums @ direction / np.linalg.norm(sums, axis=1))

    return cosine


def nearest(spark: Any, texts: Any, table: np.ndarray, query: np.ndarray, count: int) -> list[int]:
    """The texts that are most similar to a query, the best first.

    Parameters
    ----------
    spark : SparkSession
        Any session.
    texts : DataFrame
        With the columns ``id`` and ``tokens``, an array of int; no text is empty.
    table : ndarray of float32, shape (tokens, dimensions)
        A row for each token.
    query : ndarray of float32, shape (dimensions,)
        What to look for.
    count : int
        How many texts.
    """
    with broadcast(table, spark) as embeddings:  # removed from memory at the end
        scored = texts.select("id", similarity(embeddings, query)("tokens").alias("score"))
        return [row["id"] for row in scored.orderBy("score", ascending=False).limit(count).collect()]


def main() -> None:
    """20,000 texts and 100,000 embeddings, made up."""
    spark = local_session(workers=2)
    table = np.random.default_rng(1).standard_normal((100_000, 128), dtype=np.float32)
    texts = spark.range(20_000).selectExpr("id", "transform(sequence(1, 12), i -> int(hash(id, i) & 65535)) AS tokens")
    seventh = texts.where("id = 7").first()["tokens"]
    print("most similar to text 7:", nearest(spark, texts, table, table[seventh].sum(axis=0), 5))
    spark.stop()


if __name__ == "__main__":
    main()
