"""`quoth bench latency`: the time of a call, alone and on a schedule, and from publish to tail.

A tailed value holds the time at which its publish began, by the monotonic clock, which all processes of a
machine share. It has arrived when the consumer holds the value, checked and decoded. In between the producer
publishes to a topic without readers, and pings, so that round trips are measured at the same time and in the
same way, encoding included.
"""

from __future__ import annotations

import secrets
import struct
import time
from collections.abc import Callable, Sequence
from functools import partial
from itertools import islice
from statistics import median
from typing import Annotated, Any, NamedTuple

import zmq

import quoth
from quothbench import options
from quothbench.figures import QUANTILES, Goal, quantiles
from quothbench.load import driver, schedule
from quothbench.load.clients import Clients, Ready
from quothbench.load.rates import Payload
from quothbench.load.topics import BenchTopics
from quothbench.report import Report, ReportColumn, count, factor, goal_columns, seconds
from quothcli.cli.command import command, group
from quothwire import batch
from quothwire.batch import Bytes
from quothwire.errors import error
from quothwire.pointer import POINTER_MAX
from quothwire.protocol.messages import Fetch, Fetched, Ping, Publish
from quothwire.settings import DURABILITIES

Requests = Callable[[], list[driver.Frames]]

WARM = 50
"""Calls in front of each measurement that do not count."""
STORED = 1_000
"""Records that are fetched, in batches of one."""
RATES = (100.0, 1_000.0, 5_000.0)
"""Scheduled calls a second."""
IDLE_RATE = 20.0
"""Records a second between which a broker is idle."""
TAIL_GOAL = Goal(3.0, 2.0)
"""Round trips of a publish, from its beginning until the record has reached a tail of an idle broker."""
TAIL_WARM = 3
"""Records in front of each tail that do not count."""
LEAD_S = 0.1
"""Seconds between the beginning of the consumer's wait and the first publish."""
WAIT_MS = 10_000
_STAMP = struct.Struct("<q92x")

COLUMNS = (
    ReportColumn("figure", "figure", width=29),
    ReportColumn("durability", "level", width=7),
    ReportColumn("rate", "rate/s", count, 6),
    ReportColumn("calls", "calls", count, 6),
    *(ReportColumn(f"{name}_seconds", name, seconds) for name in (*QUANTILES, "max")),
    ReportColumn("late", "late", count, 5),
    ReportColumn("held", "held", count, 5),
    ReportColumn("ratio", "ratio", factor, 5),
    *goal_columns(factor, 4),
)


class LatencyPlan(NamedTuple):
    """The amount of work.

    calls: of each closed loop. records, size: of a publish. rates: of calls a second. lasts: seconds of each
    schedule and of each tail. tail_rate: records a second, beside `IDLE_RATE`.
    """

    calls: int
    records: int
    size: int
    rates: Sequence[float]
    lasts: float
    tail_rate: float


class LatencyBench(NamedTuple):
    """Measures one figure after the other. pair: two clients, one that publishes and one that tails."""

    url: str
    client: Clients
    pair: Clients
    topics: BenchTopics
    report: Report
    plan: LatencyPlan

    def run(self) -> None:
        """Measure everything, a row for each figure."""
        plan = self.plan
        publish = f"publish of {plan.records:,} x {plan.size:,} B"
        values = [bytes(plan.size)] * plan.records
        for durability in DURABILITIES:
            topic, calls = *self.topics.make(), WARM + plan.calls
            self._loop(publish, durability, partial(driver.publishes, topic, values, calls, durability))
        self._loop(f"fetch of 1 x {plan.size:,} B", None, self._fetches())
        self._loop("ping", None, partial(driver.numbered, Ping(), "", WARM + plan.calls))
        for durability in DURABILITIES:
            for rate in plan.rates:
                self._scheduled(f"{publish}, scheduled", durability, rate, values)
        for rate in (IDLE_RATE, plan.tail_rate):
            for way in WAYS:
                self._tailed(way, rate)

    def _loop(self, figure: str, durability: str | None, make: Requests) -> None:
        """Measure one call after the other. make: encodes the requests, in the client."""
        (done,) = self.client.run(_round_trips, (self.url, make))
        self._row(figure, done.result, durability)

    def _fetches(self) -> Requests:
        """Store records; make requests that fetch one after the other, again and again."""
        (topic,) = self.topics.make()
        with quoth.connect(self.url) as client:
            lasts = [client.publish(topic, bytes(self.plan.size)).last for _ in range(STORED)]
        cursors = [0, *lasts[:-1]]
        places = [cursors[number % STORED] for number in range(WARM + self.plan.calls)]
        return partial(driver.fetches, topic, places, 1, 1)

    def _scheduled(self, figure: str, durability: str, rate: float, values: list[bytes]) -> None:
        """Measure publishes at times that were decided beforehand."""
        calls = max(1, round(rate * self.plan.lasts))
        arguments = (self.url, *self.topics.make(), values, calls, durability, rate)
        (done,) = self.client.run(_schedule, arguments)
        kept: schedule.ScheduleResult = done.result
        self._row(figure, kept.took, durability, rate, kept.late, kept.held)

    def _tailed(self, way: str, rate: float) -> None:
        """Measure records from publish to tail, and the round trips at the same time."""
        calls = max(1, round(rate * self.plan.lasts))
        tailed_topic, alone = self.topics.make(2)
        published, tailed = self.pair.run(
            _play,
            (_produce, self.url, tailed_topic, alone, rate, calls),
            (WAYS[way], self.url, tailed_topic, calls),
        )
        trips: Trips = published.result
        ratio = median(tailed.result) / median(trips.publishes)
        goal = TAIL_GOAL if rate <= IDLE_RATE else Goal()
        self._row(f"to tail, {way}", tailed.result, "written", rate, None, None, ratio, *goal)
        self._row("  publish", trips.publishes, "written", rate)
        self._row("  ping", trips.pings, None, rate)

    def _row(
        self,
        figure: str,
        took: Sequence[float],
        durability: str | None,
        rate: float | None = None,
        *others: Any,
    ) -> None:
        """Print a row. others: the columns behind the quantiles, as far as they are known."""
        cells = (figure, durability, rate, len(took), *quantiles(took).values(), max(took), *others)
        self.report.row(*cells, *[None] * (len(COLUMNS) - len(cells)))


def _round_trips(ready: Ready, url: str, make: Requests) -> list[float]:
    requests = make()
    with driver.dealer(url) as socket:
        driver.round_trips(socket, requests[:WARM])
        ready()
        return driver.round_trips(socket, requests[WARM:])


def _schedule(
    ready: Ready, url: str, topic: str, values: list[bytes], calls: int, durability: str, rate: float
) -> schedule.ScheduleResult:
    with driver.dealer(url) as socket:
        driver.round_trips(socket, driver.publishes(topic, values, WARM, durability))
        requests = driver.publishes(topic, values, calls, durability)
        ready()
        return schedule.keep(socket, requests, rate)


# -- from publish to tail -----------------------------------------------------------------------------------


class Trips(NamedTuple):
    """Seconds of each round trip of the producer: publishes to a topic without readers, and pings."""

    publishes: list[float]
    pings: list[float]


class _Writer:
    """Publishes single records of 100 bytes that hold the time."""

    def __init__(self, socket: zmq.Socket[bytes], topic: str) -> None:
        self._socket = socket
        self._topic = topic
        self._producer = secrets.randbits(63) + 1
        self._sequence = 0

    def publish(self) -> float:
        """Publish one; return the seconds until it was acknowledged."""
        began = time.monotonic_ns()
        self._sequence += 1
        payload = batch.encode([_STAMP.pack(began)], producer=self._producer, sequence=self._sequence)
        driver.ask(self._socket, Publish(), self._topic, payload)
        return (time.monotonic_ns() - began) / 1e9


class _Arrivals:
    """Records behind those that a topic held at first, and the seconds of each."""

    def __init__(self, socket: zmq.Socket[bytes], topic: str) -> None:
        self.took: list[float] = []
        self._socket = socket
        self._topic = topic
        self._after = self._ask(Fetch(after=POINTER_MAX))[0].newest

    def fetch(self) -> None:
        """Wait for new records and fetch them."""
        reply, payload = self._ask(Fetch(after=self._after, wait_ms=WAIT_MS))
        for raw in batch.split(payload, reply.log):
            self.took += [_age(value) for value in batch.decode(raw, reply.log).values]
        self._after = reply.next

    def _ask(self, request: Fetch) -> tuple[Fetched, Bytes]:
        answer = driver.ask(self._socket, request, self._topic)
        assert isinstance(answer.reply, Fetched)
        return answer.reply, answer.payload


def _age(value: bytes) -> float:
    """Return the seconds since the publish of a value began."""
    began: int = _STAMP.unpack(value)[0]
    return (time.monotonic_ns() - began) / 1e9


def _ping(socket: zmq.Socket[bytes]) -> float:
    began = time.monotonic()
    driver.ask(socket, Ping())
    return time.monotonic() - began


def _sleep_until(due: float) -> None:
    time.sleep(max(0.0, due - time.monotonic()))


def _play(ready: Ready, part: Callable[..., Any], *arguments: Any) -> Any:
    """Run the part of one of two clients."""
    return part(ready, *arguments)


def _produce(ready: Ready, url: str, topic: str, other_topic: str, rate: float, calls: int) -> Trips:
    """Publish `calls` records that count, `rate` of them a second, and measure round trips in between."""
    with driver.dealer(url) as socket:
        tailed, alone = _Writer(socket, topic), _Writer(socket, other_topic)
        trips = Trips([], [])
        alone.publish()
        ready()
        begin = time.monotonic() + LEAD_S
        for number in range(TAIL_WARM + calls):
            _sleep_until(begin + number / rate)
            tailed.publish()
            _sleep_until(begin + (number + 1 / 3) / rate)
            trips.publishes.append(alone.publish())
            _sleep_until(begin + (number + 2 / 3) / rate)
            trips.pings.append(_ping(socket))
        return Trips(trips.publishes[TAIL_WARM:], trips.pings[TAIL_WARM:])


def _by_long_poll(ready: Ready, url: str, topic: str, calls: int) -> list[float]:
    """Fetch with a wait, again behind the last record; return the seconds of each."""
    with driver.dealer(url) as socket:
        _Writer(socket, topic).publish()
        arrivals = _Arrivals(socket, topic)
        ready()
        while len(arrivals.took) < TAIL_WARM + calls:
            arrivals.fetch()
        return arrivals.took[TAIL_WARM:]


def _by_client(ready: Ready, url: str, topic: str, calls: int) -> list[float]:
    """Tail with the Python client; return the seconds of each record."""
    with driver.dealer(url) as socket:
        _Writer(socket, topic).publish()
    with quoth.connect(url) as client:
        messages = client.tail(topic)
        ready()
        return [_age(message.value) for message in islice(messages, TAIL_WARM + calls)][TAIL_WARM:]


WAYS: dict[str, Callable[..., list[float]]] = {"long poll": _by_long_poll, "client.tail": _by_client}
"""The ways to wait for a record."""
ENCODED_BYTES_MAX = 2**30
"""Requests of one measurement, which are encoded beforehand."""


app = group()


@command(app, "latency", "quoth bench latency", "quoth bench latency --rate 500 --url tcp://127.0.0.1:5555")
def latency(
    session: options.MeasuredBroker,
    calls: Annotated[int, options.number("calls", "Calls of each closed loop.")] = 2_000,
    records: options.Records = 1,
    size: options.Size = 100,
    rates: Annotated[
        list[float] | None,
        options.number(
            "rate", "Scheduled calls a second; may be repeated (default: 100, 1000 and 5000).", 0.1
        ),
    ] = None,
    tail_rate: Annotated[float, options.number("tail-rate", "Records a second that are tailed.", 0.1)] = 200,
    lasts: Annotated[
        float,
        options.seconds("How long each schedule and each tail lasts (default: 5s).", show_default=False),
    ] = 5,
    directory: options.Directory = None,
) -> None:
    """Measure how long calls take, and records from publish to tail.

    First one call after the other; then publishes at times that were decided beforehand, and their time
    counts from when they were due; then records on their way to a process that tails, and the round trips at
    the same time, in which the ratio is counted. late: calls that were sent more than 100 us behind their
    time; held: those that waited because too many were on their way.
    """
    plan = LatencyPlan(calls, records, size, rates or RATES, lasts, tail_rate)
    most = max(calls, *(rate * lasts for rate in plan.rates)) * records * size
    if most > ENCODED_BYTES_MAX:
        raise error("too_large", f"requests of {most:,.0f} bytes would have to be held", "make fewer of them")
    conditions = {
        "clients": "1 that calls; 1 that publishes and 1 that tails",
        "in_flight": f"1 call in a loop, up to {schedule.ON_THEIR_WAY_MAX:,} on a schedule",
        "seconds": lasts,
    }
    with (
        options.on_broker(session, directory, Payload(records, size)) as on,
        Clients(1) as client,
        Clients(2) as pair,
    ):
        report = on.report("latency", conditions, COLUMNS)
        LatencyBench(on.broker.url, client, pair, on.topics, report, plan).run()
