"""Spark's rate of reading a topic, beside that of the same rows in Parquet and of rows made one by one.

All three go to a sink that takes everything and does nothing: what is measured is how rows come into Spark.
The values are random: Parquet keeps what repeats only once.
"""

from __future__ import annotations

import random
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import quoth
from quoth.spark import QuothDataSource, connections, read_topic
from quoth.spark.options import parse
from quoth.spark.source import BatchReader
from quothcli.bench.figures import Spread, rotate
from quothcli.bench.report import Column, Report, count, spread

BATCH = 1_000
"""Messages of a stored batch, as a producer makes them."""
COLUMNS = (
    Column("source", "source", width=10),
    Column("rows_per_second", "rows/s", count, 10),
    Column("ratio", "topic/this", spread, 18),
)


class TupleSource(QuothDataSource):
    """A topic whose rows are tuples, one by one: what a source in Python is without Arrow."""

    @classmethod
    def name(cls) -> str:
        """What stands in `format`."""
        return "quoth_tuples"

    def reader(self, schema: Any) -> BatchReader:
        """Of a table."""
        return TupleReader(parse(self.options, stream=False), schema)


class TupleReader(BatchReader):
    """Makes a tuple of every message."""

    def read(self, partition: Any) -> Iterator[Any]:
        """The records of a task's portions, with Kafka's columns."""
        client = connections.client(self.options.url)
        for portion in partition.value or ():
            for batch in client.batches(portion.topic, after=portion.after, until=portion.until + 1):
                for one in batch:
                    if portion.after < one.pointer <= portion.until:
                        yield one.key, one.value, one.topic, 0, one.pointer, one.time, 1


def fill(client: quoth.Client, topic: str, rows: int, size: int) -> None:
    """Store so many records of so many bytes."""
    values = random.Random(1)
    with client.producer(topic, batch=BATCH) as producer:
        for _ in range(rows):
            producer.send(values.randbytes(size))


class Bench:
    """The three, on one topic. parts: tasks of each reading."""

    def __init__(self, spark: Any, url: str, topic: str, folder: Path, report: Report, parts: int) -> None:
        spark.dataSource.register(TupleSource)
        self._report = report
        from_topic = read_topic(spark, topic, url=url, parts=parts)
        parquet = str(folder / "parquet")
        from_topic.repartition(parts).write.parquet(parquet)
        tuples = spark.read.format(TupleSource.name()).options(
            url=url, subscribe=topic, minPartitions=str(parts)
        )
        self._frames = {
            "topic": from_topic,
            "parquet": spark.read.parquet(parquet),
            "tuples": tuples.load(),
        }
        self._rows = from_topic.count()

    def run(self, rounds: int) -> None:
        """Measure them in turn, and report the medians of their rates and of the ratios."""
        seconds = rotate([partial(_seconds, frame) for frame in self._frames.values()], rounds)
        for row, name in enumerate(self._frames):
            rates = Spread.of([self._rows / one[row] for one in seconds])
            ratio = Spread.of([one[row] / one[0] for one in seconds])
            self._report.row(name, rates.median, ratio if row else None)


def _seconds(frame: Any) -> float:
    """How long all rows of a frame take."""
    began = time.perf_counter()
    frame.write.format("noop").mode("overwrite").save()
    return time.perf_counter() - began
