"""How many tasks a session runs at a time, whether it is a classic one or one of Spark Connect."""

from __future__ import annotations

from typing import Any

_MANY = 2**20


def context_of(spark: Any) -> Any | None:
    """The SparkContext of a session, or the context itself; None for a session of Spark Connect."""
    return spark if hasattr(spark, "parallelize") else getattr(spark, "sparkContext", None)


def parallelism(spark: Any) -> int:
    """Return how many tasks run at a time; counted by a short job where Spark Connect does not say it."""
    context = context_of(spark)
    if context is not None:
        return int(context.defaultParallelism)
    parts = spark.range(_MANY).selectExpr("spark_partition_id() AS part").distinct().count()
    return int(parts)
