"""`quoth bench latency`: what a call takes, alone and on a schedule, and a record until it reaches a tail."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from statistics import median
from typing import Any, NamedTuple

import quoth
from quothbench.figures import QUANTILES, Goal, quantiles
from quothbench.instruments import tailing
from quothbench.load import driver, schedule
from quothbench.load.clients import Clients
from quothbench.load.topics import Topics
from quothbench.report import Column, Report, count, factor, goal_columns, seconds
from quothwire.protocol.messages import Ping
from quothwire.settings import DURABILITIES

WARM = 50
"""Calls in front of each measurement that do not count."""
STORED = 1_000
"""Records that are fetched, in batches of one."""
RATES = (100.0, 1_000.0, 5_000.0)
"""Scheduled calls a second."""
IDLE_RATE = 20.0
"""Records a second at which a broker is idle in between."""
TAIL_GOAL = Goal(3.0, 2.0)
"""Round trips of a publish, from its beginning until the record has reached a tail of an idle broker."""
WAYS: dict[str, Callable[..., list[float]]] = {
    "announcement, fetch": tailing.by_announcement,
    "parked fetch": tailing.by_wait,
    "client.tail": tailing.by_client,
}

COLUMNS = (
    Column("figure", "figure", width=29),
    Column("durability", "level", width=7),
    Column("rate", "rate/s", count, 6),
    Column("calls", "calls", count, 6),
    *(Column(f"{name}_seconds", name, seconds) for name in (*QUANTILES, "max")),
    Column("late", "late", count, 5),
    Column("held", "held", count, 5),
    Column("ratio", "ratio", factor, 5),
    *goal_columns(factor, 4),
)


class Plan(NamedTuple):
    """How much is measured.

    calls: of each closed loop. records, size: of a publish. rates: of calls a second. lasts: seconds of
    each schedule and of each tail. tail_rate: records a second, beside `IDLE_RATE`.
    """

    calls: int
    records: int
    size: int
    rates: Sequence[float]
    lasts: float
    tail_rate: float


class Bench:
    """Measures one thing after the other. pair: two clients, of which one publishes and the other tails."""

    def __init__(
        self, url: str, client: Clients, pair: Clients, topics: Topics, report: Report, plan: Plan
    ) -> None:
        self._url = url
        self._client = client
        self._pair = pair
        self._report = report
        self._plan = plan
        self._values = [bytes(plan.size)] * plan.records
        self._publish = f"publish of {plan.records:,} x {plan.size:,} B"
        self._topics = topics

    def run(self) -> None:
        """Measure everything, a row for each figure."""
        calls = self._plan.calls
        for durability in DURABILITIES:
            (topic,) = self._topics.make(1)
            self._loop(self._publish, durability, _publish, topic, self._values, calls, durability)
        self._loop(f"fetch of 1 x {self._plan.size:,} B", None, _fetch, *self._stored(), calls)
        self._loop("ping", None, _ping, calls)
        for durability in DURABILITIES:
            for rate in self._plan.rates:
                self._scheduled(durability, rate)
        for rate in (IDLE_RATE, self._plan.tail_rate):
            for way in WAYS:
                self._tailed(way, rate)

    def _loop(self, figure: str, durability: str | None, work: Callable[..., Any], *arguments: Any) -> None:
        """One call after the other."""
        (done,) = self._client.run(work, (self._url, *arguments))
        self._tell(figure, done.result, durability)

    def _scheduled(self, durability: str, rate: float) -> None:
        """Publishes at times that were decided beforehand."""
        calls = max(1, round(rate * self._plan.lasts))
        arguments = (self._url, *self._topics.make(1), self._values, calls, durability, rate)
        (done,) = self._client.run(_schedule, arguments)
        kept: schedule.Kept = done.result
        self._tell(f"{self._publish}, scheduled", kept.took, durability, rate, kept.late, kept.held)

    def _tailed(self, way: str, rate: float) -> None:
        """From publish to tail, and the round trips of the same moments."""
        calls = max(1, round(rate * self._plan.lasts))
        tailed_topic, alone = self._topics.make(2)
        published, tailed = self._pair.run(
            tailing.play,
            (tailing.produce, self._url, tailed_topic, alone, rate, calls),
            (WAYS[way], self._url, tailed_topic, calls),
        )
        trips: tailing.Trips = published.result
        ratio = median(tailed.result) / median(trips.publishes)
        goal = TAIL_GOAL if rate <= IDLE_RATE else Goal()
        self._tell(f"to tail, {way}", tailed.result, "written", rate, None, None, ratio, *goal)
        self._tell("  publish", trips.publishes, "written", rate)
        self._tell("  ping", trips.pings, None, rate)

    def _stored(self) -> tuple[str, list[int]]:
        """Store what will be fetched; returns the topic and the cursor in front of each record."""
        (topic,) = self._topics.make(1)
        with quoth.connect(self._url) as client:
            lasts = [client.publish(topic, bytes(self._plan.size)).last for _ in range(STORED)]
        return topic, [0, *lasts[:-1]]

    def _tell(
        self,
        figure: str,
        took: Sequence[float],
        durability: str | None,
        rate: float | None = None,
        *rest: Any,
    ) -> None:
        """Print a row. rest: the columns behind the quantiles, as far as there are any."""
        told = (figure, durability, rate, len(took), *quantiles(took).values(), max(took), *rest)
        self._report.row(*told, *[None] * (len(COLUMNS) - len(told)))


def _publish(
    ready: Callable[[], None], url: str, topic: str, values: list[bytes], calls: int, durability: str
) -> list[float]:
    return _round_trips(ready, url, driver.publishes(topic, values, WARM + calls, durability))


def _fetch(ready: Callable[[], None], url: str, topic: str, cursors: list[int], calls: int) -> list[float]:
    places = [cursors[number % len(cursors)] for number in range(WARM + calls)]
    return _round_trips(ready, url, driver.fetches(topic, places, 1, 1))


def _ping(ready: Callable[[], None], url: str, calls: int) -> list[float]:
    return _round_trips(ready, url, driver.requests(Ping(), "", WARM + calls))


def _round_trips(ready: Callable[[], None], url: str, requests: list[driver.Frames]) -> list[float]:
    with driver.dealer(url) as socket:
        driver.round_trips(socket, requests[:WARM])
        ready()
        return driver.round_trips(socket, requests[WARM:])


def _schedule(
    ready: Callable[[], None],
    url: str,
    topic: str,
    values: list[bytes],
    calls: int,
    durability: str,
    rate: float,
) -> schedule.Kept:
    with driver.dealer(url) as socket:
        driver.round_trips(socket, driver.publishes(topic, values, WARM, durability))
        requests = driver.publishes(topic, values, calls, durability)
        ready()
        return schedule.keep(socket, requests, rate)
