"""Found by Spark, which imports each module `pyspark_*` and registers its `DefaultSource`: here the format `reput`."""

from reput.spark.short_errors import end_quietly
from reput.spark.source import ReputDataSource as DefaultSource

__all__ = ["DefaultSource"]

end_quietly()  # Spark's process that looks for formats
