"""A model of a broker in memory, which answers questions about ranges record by record."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import accumulate

from quoth import Client
from quoth.message import PointerRange
from quothwire.errors import error
from quothwire.protocol.messages import Advance, Count, TopicInfo


@dataclass
class TopicModel:
    """One topic: the pointers of its records, batch by batch.

    removed, floor: the number of removed records, and the pointer of the last one.
    """

    log: int
    batches: list[list[int]] = field(default_factory=list)
    removed: int = 0
    floor: int = 0
    last: int = 0

    @property
    def kept(self) -> list[int]:
        return [pointer for batch in self.batches for pointer in batch]

    def above(self, after: int, until: int) -> list[int]:
        return [pointer for pointer in self.kept if after < pointer <= until]

    def gone(self, after: int) -> int:
        """Return the upper bound of the number of records that were removed above a pointer."""
        return self.removed if after < self.floor else 0


class BrokerModel(Client):
    """The topics of a broker and its answers. Each record takes 100 bytes."""

    url = "tcp://127.0.0.1:1"

    def __init__(self) -> None:
        self.topic_models: dict[str, TopicModel] = {}
        self.meanwhile: Callable[[], object] | None = None
        """Called once, before the next answer."""
        self._pointer = 1_000
        self._log = 1

    def append(self, topic: str, records: int, first: int | None = None) -> list[int]:
        """Append a batch, whose first pointer may be given; returns its pointers."""
        if topic not in self.topic_models:
            self._log += 1
            self.topic_models[topic] = TopicModel(self._log)
        first = self._pointer + 7 if first is None else first
        self._pointer = first + records - 1
        pointers = list(range(first, first + records))
        topic_model = self.topic_models[topic]
        topic_model.batches.append(pointers)
        topic_model.last = self._pointer
        return pointers

    def trim_batches(self, topic: str, batches: int) -> list[int]:
        topic_model = self.topic_models[topic]
        pointers = [pointer for batch in topic_model.batches[:batches] for pointer in batch]
        topic_model.removed += len(pointers)
        topic_model.floor = max([topic_model.floor, *pointers[-1:]])
        del topic_model.batches[:batches]
        return pointers

    def lose_power(self, topic: str) -> list[int]:
        """Lose the newest batch, whose ordinals are given again; returns its pointers."""
        topic_model = self.topic_models[topic]
        pointers = topic_model.batches.pop()
        topic_model.last = topic_model.kept[-1] if topic_model.batches else pointers[0] - 1
        return pointers

    # -- requests -------------------------------------------------------------------------------------------

    def topics(self) -> list[str]:
        return sorted(self.topic_models)

    def topic(self, topic: str) -> TopicInfo:
        topic_model = self._model_of(topic)
        kept = topic_model.kept
        first = kept[0] if kept else 0
        return TopicInfo(
            topic,
            topic_model.log,
            first,
            topic_model.last,
            len(kept),
            topic_model.removed,
            100 * len(kept),
            1,
            "w",
            {},
        )

    def advance(
        self, topic: str, after: int = 0, *, max_records: int | None = None, max_bytes: int | None = None
    ) -> Advance:
        topic_model = self._model_of(topic)
        assert max_records is None or max_records > 0
        found = topic_model.above(after, topic_model.last)[:max_records]
        if max_bytes is not None:
            first = next((len(batch) for batch in topic_model.batches if found and found[0] in batch), 0)
            found = found[: max(first, max_bytes // 100)]
        begin = topic_model.floor if topic_model.gone(after) else after
        until = found[-1] if found else begin
        return Advance(
            topic_model.log,
            begin,
            until,
            len(found),
            100 * len(found),
            topic_model.gone(after),
            *self._end(topic_model),
        )

    def split(self, topic: str, after: int, until: int, parts: int) -> list[PointerRange]:
        """Divide where a broker does that has all batches in one segment."""
        topic_model = self._model_of(topic)
        after, until = max(after, topic_model.floor), min(until, topic_model.last)
        cut = [[one for one in batch if after < one <= until] for batch in topic_model.batches]
        batches = [batch for batch in cut if batch]
        total = sum(map(len, batches))
        ranges: list[PointerRange] = []
        while batches:
            ends = list(accumulate(map(len, batches)))
            wanted = -(-ends[-1] // (parts - len(ranges)))
            taken = bisect_left(ends, wanted) + 1
            if taken > 1 and wanted < ends[-1] and ends[taken - 1] > 2 * total / parts:
                taken -= 1
            stop = batches[taken - 1][-1] if taken < len(batches) else until
            ranges.append(PointerRange(after, stop, ends[taken - 1], 100 * ends[taken - 1]))
            after = stop
            del batches[:taken]
        return ranges

    def count(self, topic: str, after: int = 0, until: int | None = None) -> Count:
        topic_model = self._model_of(topic)
        found = topic_model.above(after, topic_model.last if until is None else until)
        first, last = (found[0], found[-1]) if found else (0, 0)
        size = 100 * len(found)
        return Count(
            topic_model.log, len(found), size, topic_model.gone(after), first, last, *self._end(topic_model)
        )

    def _model_of(self, topic: str) -> TopicModel:
        if self.meanwhile is not None:
            change, self.meanwhile = self.meanwhile, None
            change()
        if topic not in self.topic_models:
            raise error("unknown_topic", f"there is no topic {topic!r}")
        return self.topic_models[topic]

    def _end(self, topic_model: TopicModel) -> tuple[int, int]:
        return topic_model.last, topic_model.removed + len(topic_model.kept)
