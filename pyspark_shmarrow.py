"""Where Spark finds the data source ``shmarrow``: it looks into every module whose name begins with ``pyspark_``.

Spark imports all of them when the first source that is not its own is asked for, and one that fails hides the others.
So nothing is imported here before the source is used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NoReturn

from pyspark.sql.datasource import DataSource

if TYPE_CHECKING:
    from pyspark.sql.datasource import DataSourceReader, DataSourceWriter
    from pyspark.sql.types import StructType


class DefaultSource(DataSource):
    """Arrow files and streams, and objects of stores: ``format("shmarrow")``."""

    @classmethod
    def name(cls) -> str:
        """What the format is called."""
        return "shmarrow"

    def schema(self) -> StructType:
        """The schema of all files together."""
        from shmarrow.spark.source.reader import schema_of

        return schema_of(self.options)

    def reader(self, schema: StructType) -> DataSourceReader:
        """What plans and reads the columns of a schema."""
        from shmarrow.spark.source.reader import reader_of

        return reader_of(self.options, schema)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        """What writes the rows of a DataFrame into a directory."""
        from shmarrow.spark.source.writer import make_writer

        return make_writer(self.options, schema, overwrite)

    def streamReader(self, schema: StructType) -> NoReturn:
        """Refuse to read a stream."""
        from shmarrow.errors import Unsupported

        raise Unsupported('format("shmarrow") cannot be read as a stream; read what is there with spark.read')

    def streamWriter(self, schema: StructType, overwrite: bool) -> NoReturn:
        """Refuse to write a stream, and say what can."""
        from shmarrow.errors import Unsupported

        raise Unsupported(
            'format("shmarrow") cannot be written as a stream; write each of its batches: df.writeStream.foreachBatch('
            'lambda batch, number: batch.write.format("shmarrow").mode("append").option("txnAppId", name)'
            '.option("txnVersion", str(number)).save(path))'
        )
