"""Keeps the last minutes of rates and latencies, for charts."""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

SAMPLES = 450
"""Samples of the broker: a quarter of an hour, if one is taken every two seconds."""
TOPIC_SAMPLES, TOPICS_MAX = 150, 200
"""Samples of one topic, and topics with samples: those that changed last."""
AMOUNTS = ("records_in", "bytes_in", "records_out", "bytes_out")


class TrafficRates(NamedTuple):
    """Amounts in a second."""

    records_in: float = 0.0
    bytes_in: float = 0.0
    records_out: float = 0.0
    bytes_out: float = 0.0


class TrafficSample(NamedTuple):
    """The state at one time. time: the broker's clock as a pointer.

    publish_p50, publish_p99: seconds of the publishes since the sample before, None without any.
    """

    time: int
    rates: TrafficRates
    publish_p50: float | None = None
    publish_p99: float | None = None


def rates_between(before: Mapping[str, Any] | None, after: Mapping[str, Any], seconds: float) -> TrafficRates:
    """Return the rates between two states of the same counters, 0 if they have fallen."""
    if before is None or seconds <= 0 or any(after.get(name, 0) < before.get(name, 0) for name in AMOUNTS):
        return TrafficRates()
    return TrafficRates(*((after.get(name, 0) - before.get(name, 0)) / seconds for name in AMOUNTS))


def quantile(buckets: Sequence[float], counts: Sequence[int], share: float) -> float | None:
    """Estimate a quantile of durations, in seconds; None if there are none.

    It is interpolated in its bucket, as Prometheus does. counts: not cumulative, one more than buckets.
    """
    total = sum(counts)
    if not total:
        return None
    rank, below, low = share * total, 0, 0.0
    for high, count in zip(buckets, counts, strict=False):
        if below + count >= rank:
            return low + (high - low) * (rank - below) / count if count else low
        below, low = below + count, high
    return low


def durations_since(before: Mapping[str, Any] | None, after: Mapping[str, Any]) -> list[int]:
    """Return the durations in each bucket that were added since an earlier state of the same histogram."""
    counts: list[int] = after["counts"]
    if before is None or any(new < old for new, old in zip(counts, before["counts"], strict=True)):
        return counts
    return [new - old for new, old in zip(counts, before["counts"], strict=True)]


class History:
    """Samples of the broker and of the topics that changed last. Belongs to the event loop."""

    def __init__(self) -> None:
        self.broker: deque[TrafficSample] = deque(maxlen=SAMPLES)
        self._topics: OrderedDict[str, deque[TrafficSample]] = OrderedDict()

    def add_topic(self, name: str, sample: TrafficSample) -> None:
        """Add a sample of a topic."""
        samples = self._topics.pop(name, None) or deque(maxlen=TOPIC_SAMPLES)
        samples.append(sample)
        self._topics[name] = samples
        if len(self._topics) > TOPICS_MAX:
            self._topics.popitem(last=False)

    def of_topic(self, name: str) -> list[TrafficSample]:
        """Return the samples of a topic, the oldest first."""
        return [*self._topics.get(name, ())]

    def recent(self, since: int) -> Iterator[tuple[str, list[TrafficSample]]]:
        """Yield the topics with samples behind a time, and these."""
        for name, samples in self._topics.items():
            if samples[-1].time > since:
                yield name, [one for one in samples if one.time > since]

    def clear(self) -> None:
        """Forget all samples: the broker was started again."""
        self.broker.clear()
        self._topics.clear()
