"""Asks the broker for its metrics every few seconds, and keeps them for scrapes and pages.

Each round asks for what has changed, so a hundred thousand topics without a change cost nothing. All topics
are listed at the start, after a restart of the broker, and when their number shows that one was deleted:
page by page, with pauses, so that no publish waits for it.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractAsyncContextManager
from typing import Any, TypeAlias

from quoth.core.calls import ask
from quoth.monitoring.alarms import (
    REFUSED_CODES,
    RULES_TOPIC,
    Alarm,
    Severity,
    broker_alarms,
    refused,
    topic_alarms,
    unreachable,
    worst_first,
)
from quoth.monitoring.thresholds import STANDARD, Thresholds
from quothweb.brokers import BrokerClient
from quothweb.monitoring.history import (
    History,
    TrafficRates,
    TrafficSample,
    durations_since,
    quantile,
    rates_between,
)
from quothweb.problems import WEB_CODES, HttpProblem
from quothweb.service.log_events import note
from quothwire.errors import QuothError
from quothwire.protocol.metric_messages import GetMetrics, Metrics

DEFECT, DEFECT_HINT = "defect", WEB_CODES["defect"].hint
ANSWER_S = 5.0
"""Time that the broker may take for an answer, before a supervisor hears that it gives none."""
PAGE_TOPICS = 200
PAUSE_S = 0.01
"""Between two pages of topics: the broker takes a millisecond for one."""
SILENCE_S = 60.0
"""After so long without an answer, beyond the time between two rounds, the last one says nothing of the
broker."""
LISTED_AGAIN_S, LISTED_AGAIN_PAGE_S = 1.0, 0.3
"""Between two listings of all topics, and more for each page: also while topics are deleted all the time, no
more than a hundredth of the broker's time goes into listings."""

Lend: TypeAlias = "Callable[[], AbstractAsyncContextManager[BrokerClient]]"
Row: TypeAlias = "Mapping[str, Any]"


class BrokerObserver:
    """The last known state of the broker. Belongs to the event loop.

    metrics: the last reply, None before the first one. topics: the rows of all topics by name, as far as they
    were listed. rates: those of the topics that have changed in the last round. failure: why the last round
    has failed, None if it has not. answered_at: the monotonic time of the last answer, 0 before the first
    one. rounds: how many were answered in full. metrics_problem: why the broker, which answers, has told no
    metrics in the last round, None if it has; it may be of a release without metrics.
    """

    def __init__(self, lend: Lend, interval: float, thresholds: Thresholds = STANDARD) -> None:
        self.metrics: Metrics | None = None
        self.topics: dict[str, Row] = {}
        self.rates: dict[str, TrafficRates] = {}
        self.history = History()
        self.failure: QuothError | None = None
        self.metrics_problem: QuothError | None = None
        self.answered_at = 0.0
        self.rounds = 0
        self.interval = interval
        self._lend = lend
        self._thresholds = thresholds
        self._serial = 0
        self._is_listed = False
        self._listing_due = 0.0
        self._lagging: set[str] = set()
        self._topic_alarms: dict[str, list[Alarm]] = {}

    @property
    def is_complete(self) -> bool:
        """True if all topics were listed, so that sums over them are right."""
        return self._is_listed

    @property
    def age(self) -> float:
        """The seconds since the last answer of the broker; infinite before the first one."""
        return time.monotonic() - self.answered_at if self.answered_at else float("inf")

    @property
    def is_reachable(self) -> bool:
        """True if the broker has answered in the last rounds, and not too long ago."""
        return self.failure is None and self.age <= self.interval + SILENCE_S

    def alarms(self) -> list[Alarm]:
        """Return the alarms, the worst first."""
        found = [one for alarms in self._topic_alarms.values() for one in alarms]
        if self.failure is not None:
            found.append(unreachable(self.failure.text))
        elif self.metrics_problem is not None:
            found.append(refused(self.metrics_problem, Severity.WARNING))
        if self.metrics is not None:
            counters, has_rules = self.metrics.counters, RULES_TOPIC in self.topics
            found += broker_alarms(counters, self._thresholds, has_rules=has_rules)
        return worst_first(found)

    def names(self) -> list[str]:
        """Return the names of all topics in order."""
        return sorted(self.topics)

    def lagging_groups(self) -> Iterator[tuple[str, Row]]:
        """Yield the groups that have records to finish, each with the name of its topic."""
        for name in self._lagging:
            for group in self.topics[name].get("groups", ()):
                if group["lag"]:
                    yield name, group

    async def run(self) -> None:
        """Observe for ever."""
        while True:
            began = time.monotonic()
            await self.observe()
            await asyncio.sleep(max(0.0, self.interval - (time.monotonic() - began)))

    async def observe(self) -> None:
        """Execute one round; a failure is kept, and the last state stays."""
        try:
            async with self._lend() as client:
                await self._update(client)
                if self._needs_listing():
                    await self._list(client)
                self._judge_lagging()
        except QuothError as problem:
            if problem.code in REFUSED_CODES:
                self._take_refused(problem)
            else:
                self._fail(problem)
        except HttpProblem as problem:  # there is no client to ask with
            self._fail(QuothError(problem.code, problem.text, problem.hint))
        except Exception as problem:
            if self.failure is None or self.failure.code != DEFECT:
                note("request_failed", problem, path="metrics of the broker")
            self.failure = QuothError(DEFECT, "the metrics of the broker cannot be read", DEFECT_HINT)
        else:
            if self.failure is not None:
                note("broker_answers", url=client.url)
            self.failure = self.metrics_problem = None
            self.rounds += 1

    def _take_refused(self, problem: QuothError) -> None:
        """Take note of an answer without metrics. What was known of the broker is of another time, or another
        broker."""
        if self.metrics_problem is None or self.metrics_problem.code != problem.code:
            note("metrics_refused", problem=problem.text)
        self.failure, self.metrics_problem, self.metrics = None, problem, None
        self.answered_at = time.monotonic()
        self._forget()

    def _fail(self, problem: QuothError) -> None:
        if self.failure is None:
            note("broker_unreachable", problem=problem.text)
        self.failure = problem

    # -- one round ------------------------------------------------------------------------------------------

    async def _update(self, client: BrokerClient) -> None:
        """Ask for what has changed since the last round."""
        before = self.metrics
        found = await self._ask(
            client, GetMetrics(since=self._serial, limit=PAGE_TOPICS if self._serial else 0)
        )
        if before is not None and found.uptime < before.uptime:
            self._forget()
            before = None
        since = before.time if before is not None else found.time
        self.metrics, self.rates = found, {}
        self._sample(before, found)
        self._take(found, since)
        while found.more and self._serial:
            await asyncio.sleep(PAUSE_S)
            found = await self._ask(client, GetMetrics(since=found.serial, limit=PAGE_TOPICS))
            self._take(found, since)
        if self._serial:
            self._serial = found.serial

    def _take(self, found: Metrics, since: int) -> None:
        """Take rows that have changed. since: the time of the last round."""
        assert self.metrics is not None, "the broker has answered"
        seconds = (self.metrics.time - since) / 1e6
        for row in found.rows:
            name = row["name"]
            rates = rates_between(_amounts_before(self.topics.get(name), row, since), row, seconds)
            if any(rates):
                self.rates[name] = rates
                self.history.add_topic(name, TrafficSample(found.time, rates))
            self.topics[name] = row
            self._judge(row, found.time)

    def _sample(self, before: Metrics | None, found: Metrics) -> None:
        """Add a sample of the whole broker."""
        if before is None:
            return
        p50 = p99 = None
        if (publishes := found.requests.get("publish")) is not None:
            counts = durations_since(before.requests.get("publish"), publishes)
            p50, p99 = (quantile(publishes["buckets"], counts, share) for share in (0.5, 0.99))
        rates = rates_between(before.counters, found.counters, (found.time - before.time) / 1e6)
        self.history.broker.append(TrafficSample(found.time, rates, p50, p99))

    async def _ask(self, client: BrokerClient, request: GetMetrics) -> Metrics:
        timeout = min(client.timeout, ANSWER_S)
        found = await client.execute(ask(Metrics, request, timeout=timeout))
        self.answered_at = time.monotonic()
        return found

    # -- all topics -----------------------------------------------------------------------------------------

    def _needs_listing(self) -> bool:
        assert self.metrics is not None, "the broker has answered"
        is_due = time.monotonic() >= self._listing_due
        return not self._is_listed or (is_due and self.metrics.topics != len(self.topics))

    async def _list(self, client: BrokerClient) -> None:
        """List all topics. What changes meanwhile comes in the next round."""
        rows: dict[str, Row] = {}
        found = await self._ask(client, GetMetrics(limit=PAGE_TOPICS))
        serial = found.serial
        rows |= {row["name"]: row for row in found.rows}
        while found.more:
            await asyncio.sleep(PAUSE_S)
            found = await self._ask(client, GetMetrics(found.rows[-1]["name"], limit=PAGE_TOPICS))
            rows |= {row["name"]: row for row in found.rows}
        self.topics, self._serial, self._is_listed = rows, serial, True
        pages = len(rows) // PAGE_TOPICS
        self._listing_due = time.monotonic() + LISTED_AGAIN_S + LISTED_AGAIN_PAGE_S * pages
        self._lagging, self._topic_alarms = set(), {}
        for row in rows.values():
            self._judge(row, found.time)

    def _forget(self) -> None:
        """Begin anew: the broker was started again."""
        self.topics, self.rates, self._serial = {}, {}, 0
        self._is_listed, self._listing_due = False, 0.0
        self._lagging, self._topic_alarms = set(), {}
        self.history.clear()

    # -- alarms ---------------------------------------------------------------------------------------------

    def _judge(self, row: Row, now: int) -> None:
        """Take note of the alarms of a topic, and whether they may change with time alone."""
        name = row["name"]
        if found := [*topic_alarms((row,), now, self._thresholds)]:
            self._topic_alarms[name] = found
        else:
            self._topic_alarms.pop(name, None)
        if any(group["lag"] for group in row.get("groups", ())):
            self._lagging.add(name)
        else:
            self._lagging.discard(name)

    def _judge_lagging(self) -> None:
        assert self.metrics is not None, "the broker has answered"
        for name in [*self._lagging]:
            self._judge(self.topics[name], self.metrics.time)


def _amounts_before(before: Row | None, row: Row, since: int) -> Row | None:
    """Return the amounts of a topic in the last round, None if they are not known. since: its time.

    They are 0 for a topic that was not open since the start of the broker, whose row has none, and for one
    whose records are all newer.
    """
    if before is not None and before["log"] == row["log"]:
        return before
    return {} if row.get("first", 0) > since else None
