# SPDX-License-Identifier: Apache-2.0
"""Where Spark finds the data source ``shmarrow``: it looks into every module whose name begins with ``pyspark_``.

Spark imports all of them when the first source that is not its own is asked for, and one that fails hides the others.
So nothing is imported here before the source is used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSource

if TYPE_CHECKING:
    from pyspark.sql.datasource import (
        DataSourceReader,
        DataSourceStreamReader,
        DataSourceStreamWriter,
        DataSourceWriter,
    )
    from pyspark.sql.types import StructType


class DefaultSource(DataSource):
    """Arrow files and streams, and objects of stores: ``format("shmarrow")``."""

    @classmethod
    def name(cls) -> str:
        """What the format is called."""
        return "shmarrow"

    def schema(self) -> StructType:
        """The schema of all files together."""
        from shmarrow.spark.source_reader import schema_of

        return schema_of(self.options)

    def reader(self, schema: StructType) -> DataSourceReader:
        """What plans and reads the columns of a schema."""
        from shmarrow.spark.source_reader import QueryReader

        return QueryReader(self.options, schema)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        """What writes the rows of a DataFrame into a directory."""
        from shmarrow.spark.source_writer import JobWriter

        return JobWriter(self.options, schema, overwrite)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        """What reads the files of a directory as they appear."""
        from shmarrow.spark.source_reader import StreamReader

        return StreamReader(self.options, schema)

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:
        """What writes each batch of a stream into a directory of its own."""
        from pyspark.sql import datasource

        from shmarrow.errors import MissingExtra

        if not hasattr(datasource, "DataSourceStreamArrowWriter"):
            raise MissingExtra('writeStream.format("shmarrow") needs pyspark 4.1 or newer')
        from shmarrow.spark.source_writer import StreamWriter

        return StreamWriter(self.options, schema, overwrite)
