"""A source whose rows are tuples, as one in Python is without Arrow. Spark's workers import this module."""

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
    """The table of `QuothDataSource`, with the same options and columns."""

    @classmethod
    def name(cls) -> str:
        """Return the name for `format`."""
        return "quoth_tuples"

    def reader(self, schema: Any) -> BatchReader:
        """Make the reader of a table."""
        return TupleReader(parse(self.options, stream=False), schema)


class TupleReader(BatchReader):
    """Reads the same batches in the same tasks, and makes a tuple of each record."""

    def read(self, partition: Any) -> Iterator[tuple[Any, ...]]:
        """Yield the records of a task, with Kafka's columns."""
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
