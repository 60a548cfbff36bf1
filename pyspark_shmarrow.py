"""The data source `shmarrow`, where Spark looks for data sources."""

from pyspark.sql.datasource import DataSource, DataSourceWriter
from pyspark.sql.types import StructType


class DefaultSource(DataSource):
    """The data source."""

    @classmethod
    def name(cls) -> str:
        return "shmarrow"

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        from shmarrow.spark.source.writer import make_writer

        return make_writer(self.options, schema, overwrite)
