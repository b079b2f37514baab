"""`quoth bench table`: the table in which Poe, the Erlang ancestor, told how fast it was.

Each client has one call on its way, as in Poe's benchmark, over a socket of its own. Reads go on by pointer
and begin anew at the end of what was stored before; with many topics a client takes one after the other.
Messages that are read are counted by the batch, not decoded; Poe's clients took theirs apart.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from enum import StrEnum
from itertools import chain, cycle
from typing import Any, NamedTuple

from quothbench.load import driver, rates
from quothbench.load.clients import Clients
from quothbench.load.rates import Got, Payload, Rates, Tally, tally
from quothbench.load.target import Target
from quothbench.load.topics import Topics
from quothbench.report import Column, Report, count
from quothwire import batch
from quothwire.settings import DURABILITIES

TOPICS = (1, 100)
CLIENTS = (1, 6, 20)
PAYLOAD = Payload(100, 100)
"""What Poe was measured with."""
WARM_UP_S = 0.5

PUBLISHED = {
    ("write", 1, 6): 40_000,
    ("write", 100, 6): 40_000,
    ("write", 1, 20): 60_000,
    ("write", 100, 20): 50_000,
    ("read", 1, 6): 400_000,
    ("read", 100, 6): 400_000,
    ("read", 1, 20): 3_300_000,
    ("read", 100, 20): 3_500_000,
    ("alternating", 1, 6): 60_000,
    ("alternating", 100, 6): 70_000,
    ("alternating", 1, 20): 120_000,
    ("alternating", 100, 20): 120_000,
}
"""Messages/s in Poe's README, by work, topics, clients: 6 on a desktop of 2 cores, 20 on a server of 12."""
MEASURED = {
    ("write", 1, 1): 9_300,
    ("write", 1, 6): 7_900,
    ("write", 6, 6): 30_000,
    ("read", 1, 1): 527_000,
    ("read", 1, 6): 756_000,
}
"""Messages/s of Poe under OTP 25 on 2 virtual cores."""
POE_NOTE = "messages/s published in 2013: 6 clients desktop, 20 server (measured: OTP 25, 2 vCPU)"


class Work(StrEnum):
    """What clients do."""

    WRITE = "write"
    READ = "read"
    ALTERNATING = "alternating"


class Row(NamedTuple):
    """What is measured at once. durability: None for reads, which do not depend on it."""

    work: Work
    topics: int
    clients: int
    durability: str | None


class Choice(NamedTuple):
    """Which rows there are: every combination of these."""

    works: Sequence[Work] = tuple(Work)
    topics: Sequence[int] = TOPICS
    clients: Sequence[int] = CLIENTS
    durabilities: Sequence[str] = DURABILITIES

    def rows(self) -> list[Row]:
        """The rows; what only reads is measured once for all levels."""
        return [
            Row(work, topics, clients, durability)
            for work in self.works
            for topics in self.topics
            for clients in self.clients
            for durability in ([None] if work is Work.READ else self.durabilities)
        ]


class Place(NamedTuple):
    """A topic and the cursors in front of the batches that were stored in it."""

    topic: str
    cursors: list[int]


def poe_text(figures: dict[str, int | None]) -> str:
    """What Poe published and, in brackets, what it was measured with."""
    published, measured = figures["published"], figures["measured"]
    text = "-" if published is None else count(published)
    return text if measured is None else f"{text} ({count(measured)})"


COLUMNS = (
    Column("work", "work", width=11),
    Column("topics", "topics", count, 6),
    Column("clients", "clients", count, 7),
    Column("durability", "durability", width=10),
    *rates.COLUMNS,
    Column("broker_microseconds_per_call", "broker us", count),
    Column("clients_microseconds_per_call", "clients us", count, 10),
    Column("poe", "Poe", poe_text, 17),
)


class Bench:
    """Measures one row after the other, each for so many seconds."""

    def __init__(
        self, target: Target, topics: Topics, report: Report, payload: Payload, seconds: float
    ) -> None:
        self._target = target
        self._topics = topics
        self._report = report
        self._payload = payload
        self._seconds = seconds

    def run(self, choice: Choice) -> None:
        """Measure the rows that were chosen."""
        crews: dict[int, Clients] = {}
        with ExitStack() as stack:
            for row in choice.rows():
                if row.clients not in crews:
                    crews[row.clients] = stack.enter_context(Clients(row.clients))
                self._tell(row, self._measure(row, crews[row.clients]))

    def _measure(self, row: Row, clients: Clients) -> Rates:
        names = self._topics.make(row.topics, row.durability or "written")
        cursors = [[]] * len(names) if row.work is Work.WRITE else self._topics.fill(names)
        places = list(map(Place, names, cursors))
        shares: list[tuple[Any, ...]] = []
        for number in range(row.clients):
            first = number * row.topics // row.clients  # they are not all at the same topic
            turned = places[first:] + places[:first]
            shares.append((self._target, row.work, turned, self._payload, self._seconds))
        done = clients.run(_call, *shares)
        self._topics.delete(names)
        return Rates.of(done)

    def _tell(self, row: Row, measured: Rates) -> None:
        self._report.row(
            *row,
            *measured.figures(self._payload.size),
            *measured.costs(len(measured.took)),
            self._poe(row),
        )

    def _poe(self, row: Row) -> dict[str, int | None] | None:
        """What Poe did there; it did not sync before it answered."""
        if self._payload != PAYLOAD or row.durability == "synced":
            return None
        figures = {"published": PUBLISHED.get(row[:3]), "measured": MEASURED.get(row[:3])}
        return figures if any(figures.values()) else None


def _call(
    ready: Callable[[], None],
    target: Target,
    work: Work,
    places: Sequence[Place],
    payload: Payload,
    seconds: float,
) -> Tally:
    requests = _requests(work, places, payload)
    with driver.dealer(target.url) as socket:

        def for_seconds(seconds: float) -> Got:
            took = driver.round_trips(socket, requests, seconds)
            return len(took) * payload.records, took

        return tally(
            ready, target, lambda: for_seconds(min(WARM_UP_S, seconds)), lambda: for_seconds(seconds)
        )


def _requests(work: Work, places: Sequence[Place], payload: Payload) -> Iterator[driver.Frames]:
    """The calls of one client, without an end."""
    values = payload.values
    size = len(batch.encode(values))
    writes = _in_turn([driver.endless_publishes(place.topic, values) for place in places])
    reads = _in_turn(
        [cycle(driver.fetches(place.topic, place.cursors, payload.records, size)) for place in places]
    )
    match work:
        case Work.WRITE:
            return writes
        case Work.READ:
            return reads
        case Work.ALTERNATING:
            return chain.from_iterable(zip(writes, reads, strict=True))


def _in_turn(several: Sequence[Iterator[driver.Frames]]) -> Iterator[driver.Frames]:
    """One of each, again and again."""
    return map(next, cycle(several))
