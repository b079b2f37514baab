"""`quoth bench latency`: the time of a call, and from publish to tail.

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
from itertools import count as counting
from itertools import cycle, islice
from statistics import median
from typing import Annotated, NamedTuple

import zmq

import quoth
from quothbench import options
from quothbench.figures import NO_GOAL, QUANTILES, Goal, quantiles
from quothbench.load import driver
from quothbench.load.clients import Clients, Ready, play
from quothbench.load.driver import VALUE
from quothbench.report import Report, ReportColumn, count, factor, goal_columns, seconds
from quothcli.cli.command import command, group
from quothwire import batch
from quothwire.batch import Bytes
from quothwire.pointer import POINTER_MAX
from quothwire.protocol.messages import Fetch, Fetched, Ping, Publish
from quothwire.settings import DURABILITIES

WARM = 50
"""Calls in front of each measurement that do not count."""
STORED = 1_000
"""Records that are fetched, in batches of one."""
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
    ReportColumn("ratio", "ratio", factor, 5),
    *goal_columns(factor, 4),
)


class LatencyBench(NamedTuple):
    """Measures one figure after the other. pair: two clients, one that publishes and one that tails.

    calls: of each closed loop. lasts: seconds of each tail. tail_rate: records a second, beside `IDLE_RATE`.
    """

    on: options.OnBroker
    client: Clients
    pair: Clients
    report: Report
    calls: int
    lasts: float
    tail_rate: float

    def run(self) -> None:
        """Measure everything, a row for each figure."""
        calls, size = WARM + self.calls, len(VALUE)
        for durability in DURABILITIES:
            (topic,) = self.on.topics.make()
            make = partial(driver.publishes, topic, [VALUE], calls, durability)
            self._loop(f"publish of 1 x {size} B", durability, make)
        (topic,) = self.on.topics.make()
        lasts = [self.on.client.publish(topic, VALUE).last for _ in range(STORED)]
        places = list(islice(cycle([0, *lasts[:-1]]), calls))
        self._loop(f"fetch of 1 x {size} B", None, partial(driver.fetches, topic, places, 1, 1))
        self._loop("ping", None, partial(driver.numbered, Ping(), "", calls))
        for rate in (IDLE_RATE, self.tail_rate):
            for way in WAYS:
                self._tailed(way, rate)

    def _loop(self, figure: str, durability: str | None, make: driver.Requests) -> None:
        """Measure one call after the other."""
        (done,) = self.client.run(driver.one_by_one, (self.on.broker.url, make, WARM))
        self._row(figure, done.result, durability)

    def _tailed(self, way: str, rate: float) -> None:
        """Measure records from publish to tail, and the round trips at the same time."""
        calls = max(1, round(rate * self.lasts))
        url, topic, alone = self.on.broker.url, *self.on.topics.make(2)
        producing, tailing = (produce, url, topic, alone, rate, calls), (WAYS[way], url, topic, calls)
        published, tailed = self.pair.run(play, producing, tailing)
        publishes, pings = published.result
        ratio = median(tailed.result) / median(publishes)
        goal = TAIL_GOAL if rate <= IDLE_RATE else NO_GOAL
        self._row(f"to tail, {way}", tailed.result, "written", rate, ratio, goal)
        self._row("  publish", publishes, "written", rate)
        self._row("  ping", pings, None, rate)

    def _row(
        self,
        figure: str,
        took: Sequence[float],
        durability: str | None,
        rate: float | None = None,
        ratio: float | None = None,
        goal: Goal = NO_GOAL,
    ) -> None:
        times = (*quantiles(took).values(), max(took))
        self.report.row(figure, durability, rate, len(took), *times, ratio, *goal)


# -- from publish to tail -----------------------------------------------------------------------------------


def writer(socket: zmq.Socket[bytes], topic: str) -> Callable[[], object]:
    """Return a function that publishes a record that holds the time."""
    producer, sequences = secrets.randbits(63) + 1, counting(1)

    def publish() -> object:
        stamp = _STAMP.pack(time.monotonic_ns())
        payload = batch.encode([stamp], producer=producer, sequence=next(sequences))
        return driver.ask(socket, Publish(), topic, payload)

    return publish


def age(value: bytes) -> float:
    """Return the seconds since the publish of a value began."""
    began: int = _STAMP.unpack(value)[0]
    return (time.monotonic_ns() - began) / 1e9


def produce(
    ready: Ready, url: str, topic: str, other_topic: str, rate: float, calls: int
) -> tuple[list[float], list[float]]:
    """Publish `calls` records that count, `rate` of them a second.

    Returns the seconds of round trips in between: publishes to a topic without readers, and pings.
    """
    with driver.dealer(url) as socket:
        publish_alone = writer(socket, other_topic)
        steps = writer(socket, topic), publish_alone, lambda: driver.ask(socket, Ping())
        publish_alone()
        ready()
        begin = time.monotonic() + LEAD_S
        took: list[list[float]] = [[], [], []]
        for number in range(3 * (TAIL_WARM + calls)):
            time.sleep(max(0.0, begin + number / 3 / rate - time.monotonic()))
            began = time.monotonic()
            steps[number % 3]()
            took[number % 3].append(time.monotonic() - began)
        return took[1][TAIL_WARM:], took[2][TAIL_WARM:]


def _by_long_poll(ready: Ready, url: str, topic: str, calls: int) -> list[float]:
    """Fetch with a wait, again behind the last record; return the seconds of each."""
    with driver.dealer(url) as socket:

        def fetch(request: Fetch) -> tuple[Fetched, Bytes]:
            answer = driver.ask(socket, request, topic)
            assert isinstance(answer.reply, Fetched)
            return answer.reply, answer.payload

        writer(socket, topic)()
        after = fetch(Fetch(after=POINTER_MAX))[0].newest
        ready()
        took: list[float] = []
        while len(took) < TAIL_WARM + calls:
            reply, payload = fetch(Fetch(after=after, wait_ms=WAIT_MS))
            for raw in batch.split(payload, reply.log):
                took += [age(value) for value in batch.decode(raw, reply.log).values]
            after = reply.next
        return took[TAIL_WARM:]


def by_client(ready: Ready, url: str, topic: str, calls: int) -> list[float]:
    """Tail with the Python client; return the seconds of each record."""
    with driver.dealer(url) as socket:
        writer(socket, topic)()
    with quoth.connect(url) as client:
        messages = client.tail(topic)
        ready()
        return [age(message.value) for message in islice(messages, TAIL_WARM + calls)][TAIL_WARM:]


WAYS: dict[str, Callable[..., list[float]]] = {"long poll": _by_long_poll, "client.tail": by_client}
"""The ways to wait for a record."""


app = group()


@command(app, "latency", "quoth bench latency", "quoth bench latency --url tcp://127.0.0.1:5555")
def latency(
    session: options.MeasuredBroker,
    calls: Annotated[int, options.number("calls", "Calls of each closed loop.")] = 2_000,
    tail_rate: Annotated[float, options.number("tail-rate", "Records a second that are tailed.", 0.1)] = 200,
    lasts: Annotated[float, options.seconds("How long each tail lasts.")] = 5,
    directory: options.Directory = None,
) -> None:
    """Measure how long calls take, and records from publish to tail.

    First one call after the other; then records on their way to a process that tails, and the round trips at
    the same time, in which the ratio is counted.
    """
    conditions = {"clients": "1 that calls; 1 that publishes and 1 that tails", "seconds": lasts}
    with options.on_broker(session, directory) as on, Clients(1) as client, Clients(2) as pair:
        report = on.report("latency", conditions, COLUMNS)
        LatencyBench(on, client, pair, report, calls, lasts, tail_rate).run()
