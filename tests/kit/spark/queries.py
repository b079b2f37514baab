"""Streaming queries whose rows are kept, batch by batch, by the process that started them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from kit.spark.sparks import JOB_S

Rows = list[Any]


class Queries:
    """Runs of one query, each a restart with the same checkpoint; what a batch brought replaces what an
    earlier run of it did, as an exactly-once sink would have it."""

    def __init__(self, checkpoint: Path) -> None:
        self.checkpoint = checkpoint
        self.batches: dict[int, Rows] = {}
        self.on_batch: Callable[[int], object] = lambda _: None
        """Called with the number of a batch before its rows are taken."""

    def start(self, stream: Any, **trigger: Any) -> Any:
        """Begin a run. trigger: as of `DataStreamWriter.trigger`, AvailableNow unless it says another one."""
        writer = stream.writeStream.foreachBatch(self._keep)
        located = writer.option("checkpointLocation", str(self.checkpoint))
        return located.trigger(**trigger or {"availableNow": True}).start()

    def run(self, stream: Any) -> Any:
        """A run over what is there now; returns the query, which has ended. Raises what it failed with."""
        query = self.start(stream)
        assert query.awaitTermination(JOB_S), "it does not end"
        return query

    @property
    def rows(self) -> Rows:
        """All rows, batch by batch."""
        return [row for number in sorted(self.batches) for row in self.batches[number]]

    @property
    def values(self) -> list[bytes]:
        """The values of all rows in the order of their offsets."""
        return [bytes(row.value) for row in sorted(self.rows, key=lambda row: (row.topic, row.offset))]

    def _keep(self, frame: Any, number: int) -> None:
        self.on_batch(number)
        self.batches[number] = frame.collect()
