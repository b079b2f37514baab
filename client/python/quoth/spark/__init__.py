"""Topics in Spark: tables and streams by `format("quoth")`.

import quoth.spark

orders = spark.read.format("quoth").option("subscribe", "orders").option("url", "tcp://127.0.0.1:5555").load()
orders = quoth.spark.read_topic(spark, "orders", since="-15m", columns=["key", "value", "timestamp"])

`README.md` beside this file says more. Needs `pip install 'quoth[spark]'` and Java 17.
"""

from quoth.spark.listener import Lag, LagListener
from quoth.spark.source import QuothDataSource, read_topic

__all__ = ["Lag", "LagListener", "QuothDataSource", "read_topic"]
