"""A data source for Spark that writes through Quoth's sink, with a fault where a test wants one."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

Spoil = Callable[[Any], Any]
"""Makes a worse writer of a writer of Quoth."""


def as_it_is(writer: Any) -> Any:
    """Spoils nothing."""
    return writer


def register(spark: Any, name: str, spoil: Spoil = as_it_is) -> str:
    """Let `format(name)` write to topics in a session; returns the name."""
    from pyspark.cloudpickle import register_pickle_by_value
    from pyspark.sql.datasource import DataSource

    by_value: Callable[[Any], None] = register_pickle_by_value  # Spark's workers know no tests
    by_value(sys.modules[spoil.__module__])

    class Sink(DataSource):
        """Writes as `format("quoth")` does."""

        @classmethod
        def name(cls) -> str:
            """The name of the format."""
            return name

        def writer(self, schema: Any, overwrite: bool) -> Any:
            """See `DataSource.writer`."""
            from quoth.spark.sink.sink import batch_writer

            return spoil(batch_writer(self.options, schema, overwrite))

        def streamWriter(self, schema: Any, overwrite: bool) -> Any:  # noqa: N802
            """See `DataSource.streamWriter`."""
            from quoth.spark.sink.sink import stream_writer

            return spoil(stream_writer(self.options, schema, overwrite))

    spark.dataSource.register(Sink)
    return name
