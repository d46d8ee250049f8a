"""What a Spark job has of us: `from headrace.spark import publish, register`.

Needs pyspark (`pip install headrace[spark]`). What the functions promise stands in `headrace.connectors.spark.publish`,
`headrace.connectors.spark.publish_changes` and `headrace.sidecar.lake`.
"""

from headrace.connectors.spark.envelope import TableCounts
from headrace.connectors.spark.errors import PublishError
from headrace.connectors.spark.publish import Dataset, Published, Target, publish, publish_version
from headrace.connectors.spark.publish_changes import Changes, publish_changes
from headrace.sidecar.lake.data_source import register

__all__ = [
    "Changes",
    "Dataset",
    "PublishError",
    "Published",
    "TableCounts",
    "Target",
    "publish",
    "publish_changes",
    "publish_version",
    "register",
]
