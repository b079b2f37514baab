"""The same rows as a topic and as Parquet. Nothing in them repeats: Parquet would keep it once."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any, NamedTuple

from quoth import Client
from quoth.spark import read_topic
from quothcli.printing.progress import progress
from quothwire.errors import error

BATCH = 1_000
"""Rows of a stored batch, as a producer makes them."""


class Rows(NamedTuple):
    """Where rows are. total: how many. bytes: stored ones of the topic."""

    url: str
    topic: str
    parquet: str
    total: int
    bytes: int

    def check(self, count: int, where: str) -> None:
        """Raise an error unless so many are all."""
        if count != self.total:
            raise error("internal", f"{where}: {count:,} rows instead of {self.total:,}")


def fill(client: Client, topic: str, count: int, size: int) -> None:
    """Store so many random values of so many bytes. Raises what the broker refuses."""
    drawn = random.Random(1)
    with progress("storing rows") as advance:
        for begin in range(0, count, BATCH):
            records = min(BATCH, count - begin)
            heap = drawn.randbytes(records * size)
            client.publish(topic, [heap[at : at + size] for at in range(0, len(heap), size)])
            advance(records, len(heap))


def kept_as_parquet(spark: Any, client: Client, topic: str, folder: Path, tasks: int) -> Rows:
    """Copy a topic to Parquet, one file for each task."""
    counted = client.count(topic)
    rows = Rows(client.url, topic, str(folder / "rows.parquet"), counted.records, counted.bytes)
    read_topic(spark, topic, url=client.url, parts=tasks).write.parquet(rows.parquet)
    rows.check(spark.read.parquet(rows.parquet).count(), "Parquet")
    return rows
