"""A source whose rows are tuples: what one written in Python is without Arrow. Spark's workers import it."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import repeat
from typing import Any

from quoth.spark import QuothDataSource
from quoth.spark.options import parse
from quoth.spark.source.arrow import LOG_APPEND_TIME, PARTITION
from quoth.spark.source.range_reader import RangeReader
from quoth.spark.source.source import BatchReader
from quothwire.pointer import to_datetime


class TupleSource(QuothDataSource):
    """The table that `QuothDataSource` makes of a topic, with the same options and columns."""

    @classmethod
    def name(cls) -> str:
        """What stands in `format`."""
        return "quoth_tuples"

    def reader(self, schema: Any) -> BatchReader:
        """Of a table."""
        return TupleReader(parse(self.options, stream=False), schema)


class TupleReader(BatchReader):
    """Reads the same batches, of the same tasks, and makes a tuple of each record."""

    def read(self, partition: Any) -> Iterator[tuple[Any, ...]]:
        """The records of a task, with Kafka's columns."""
        for one in partition.value or ():
            for batch in RangeReader(one).batches():
                pointers = range(batch.first, batch.last + 1)
                yield from zip(
                    batch.keys or repeat(None),
                    batch.values,
                    repeat(one.topic),
                    repeat(PARTITION),
                    pointers,
                    map(to_datetime, pointers),
                    repeat(LOG_APPEND_TIME),
                    strict=False,
                )
