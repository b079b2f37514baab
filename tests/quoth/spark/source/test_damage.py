"""Topics with damaged bytes: a query reads every intact record once, and reports how many are missing."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from kit.broker.brokers import StartBroker
from kit.disk.damage import Stored, stored_batches, zero
from quoth import Client
from quoth.spark.options import Options, parse
from quoth.spark.source.offset_planner import Offset, OffsetPlanner
from quoth.spark.source.partitioning import extents_between, extents_now, partitions
from quoth.spark.source.range_reader import DataLoss, RangeReader, TopicRange

SIZES = (3, 1, 5, 2, 4, 6)
"""Records of each batch."""
DAMAGED = {
    "oldest": {0},
    "in-between": {2, 4},
    "oldest-and-others": {0, 1, 3},
    "all-but-newest": {0, 1, 2, 3, 4},
    "all": {0, 1, 2, 3, 4, 5},
}


class Query:
    """A query with the pointers that it has read, and the losses that it has reported."""

    def __init__(self, client: Client, **given: str) -> None:
        stream = "maxOffsetsPerTrigger" in given
        self.options: Options = parse({"url": client.url, "minPartitions": "3", **given}, stream=stream)
        self.read: list[int] = []
        self.losses: list[DataLoss] = []
        self._client = client

    def table(self) -> Query:
        """Run it over what is there."""
        return self._run(extents_now(self._client, self.options, self.losses.append))

    def stream(self) -> Query:
        """Run it micro-batch by micro-batch, until there is nothing to do."""
        progress = OffsetPlanner(self._client, self.options, self.losses.append)
        start = progress.begin()
        while (end := progress.reach(start, capped=True)) is not start:
            self._run(extents_between(self._client.url, start, end))
            start = Offset.from_json(end.to_json())
        return self

    @property
    def lost(self) -> int:
        """The records that it reports as damaged; it reports no other loss."""
        assert {loss.reason for loss in self.losses} <= {"damaged"}
        return sum(loss.records for loss in self.losses)

    def _run(self, extents: Iterable[TopicRange]) -> Query:
        for task in partitions(self._client, extents, self.options, self.losses.append):
            for one in task:
                tables = RangeReader(one, self.losses.append).arrow(["offset"])
                self.read += [pointer for table in tables for pointer in table.column(0).to_pylist()]
        return self


def test_every_record_is_read_once_or_reported_as_damaged(start_broker: StartBroker, connect: Any) -> None:
    broker = start_broker()
    with connect(broker) as client:
        for topic in DAMAGED:
            for number, size in enumerate(SIZES):
                client.publish(topic, [b"%d" % number * 20] * size)
                if number % 2 == 0 or topic == "all":
                    client.roll(topic)
        logs = {topic: client.topic(topic).log for topic in DAMAGED}
    broker.terminate()
    whole: dict[str, list[Stored]] = {}
    for topic, damaged in DAMAGED.items():
        batches = stored_batches(broker.topics_directory, logs[topic])
        whole[topic] = [one for number, one in enumerate(batches) if number not in damaged]
        for number in damaged:
            zero(batches[number].path, batches[number].start, batches[number].end)
    broker.restart()
    with connect(broker) as client:
        for topic, damaged in DAMAGED.items():
            expected, missing = list(pointers(whole[topic])), sum(SIZES[number] for number in damaged)
            table = Query(client, subscribe=topic).table()
            assert (table.read, table.lost) == (expected, missing), topic
            for limit in ("1", "4", "1000"):
                given = {"startingOffsets": "earliest", "maxOffsetsPerTrigger": limit}
                stream = Query(client, subscribe=topic, **given).stream()
                assert (stream.read, stream.lost) == (expected, missing), (topic, limit)


def pointers(batches: Iterable[Stored]) -> Iterator[int]:
    """The pointers of the records of batches."""
    for one in batches:
        yield from range(one.header.base, one.header.last + 1)
