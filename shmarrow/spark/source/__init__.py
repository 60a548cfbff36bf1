"""The data source `shmarrow` of Spark."""
