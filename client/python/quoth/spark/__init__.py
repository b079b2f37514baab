"""Topics in Spark: tables and streams by `format("quoth")`, and ranges for tasks that pull them themselves.

import quoth.spark

orders = spark.read.format("quoth").option("subscribe", "orders").option("url", "tcp://127.0.0.1:5555").load()
orders = quoth.spark.read_topic(spark, "orders", since="-15m", columns=["key", "value", "timestamp"])
quoth.spark.foreach_partition(quoth.spark.topic_ranges(spark, "orders", since="-1d"), work)

`README.md` beside this file says more. Needs `pip install 'quoth[spark]'` and Java 17.
"""

from quoth.spark.json_values import from_json, write_corrupt
from quoth.spark.listener import Lag, LagListener
from quoth.spark.sink.foreach_producer import write_partition
from quoth.spark.source.range_reader import TopicRange
from quoth.spark.source.ranges import foreach_partition, map_in_arrow, topic_ranges, topic_ranges_frame
from quoth.spark.source.source import QuothDataSource, read_topic
from quoth.spark.source.sql import register_views, time_options

__all__ = [
    "Lag",
    "LagListener",
    "QuothDataSource",
    "TopicRange",
    "foreach_partition",
    "from_json",
    "map_in_arrow",
    "read_topic",
    "register_views",
    "time_options",
    "topic_ranges",
    "topic_ranges_frame",
    "write_corrupt",
    "write_partition",
]
