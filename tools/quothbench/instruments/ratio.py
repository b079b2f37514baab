"""`quoth bench ratio`: the bare loop and Quoth in turn, driven by the same lines.

One client, `WINDOW` requests on their way, all of them encoded beforehand.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

import quoth
from quoth.reader import FETCH_BYTES
from quothbench.figures import Goal, Spread, alternate
from quothbench.load import driver
from quothbench.load.bare import Bare, bare_loop
from quothbench.load.clients import Clients, Work, cpu_seconds, elapsed
from quothbench.load.driver import VALUE, WINDOW
from quothbench.load.target import Target
from quothbench.load.topics import cursors, fill
from quothbench.report import Column, Report, factor, goal_columns, spread
from quothcli.printing.progress import progress
from quothwire import batch


class Writes(NamedTuple):
    """Publishes of the same size. calls: of one measurement."""

    name: str
    records: int
    value: bytes
    calls: int
    goal: Goal


class Reads(NamedTuple):
    """Reads of `batches` batches of 100 records of 100 bytes each. calls: of one measurement.

    bytes_max: what is asked for at most; small reads ask like the Python client, whose own limit they stay
    far below.
    """

    name: str
    batches: int
    bytes_max: int
    calls: int
    sealed: bool
    goal: Goal


BATCH_BYTES = len(batch.encode([VALUE] * 100))
WRITES = (
    Writes("write 100 x 100 B", 100, VALUE, 8_000, Goal(0.70, 0.85)),
    Writes("write 1,000 x 1 kB", 1_000, VALUE * 10, 100, Goal(0.80, 0.95)),
)
READS = (
    Reads("read 100 x 100 B", 1, FETCH_BYTES, 8_000, False, Goal(0.75, 0.90)),
    Reads("read 100 x 100 B, sealed", 1, FETCH_BYTES, 8_000, True, Goal(0.75, 0.90)),
    Reads("read 1 MB", 100, 100 * BATCH_BYTES, 400, False, Goal(0.90, 0.97)),
    Reads("read 1 MB, sealed", 100, 100 * BATCH_BYTES, 400, True, Goal(0.90, 0.97)),
)
CPU_GOAL = Goal(1.5, 1.2)
TRIP_GOAL = Goal(2.0, 1.5)
TRIP = "publish of 1 x 100 B, p50"
FIGURES = (*(one.name for one in WRITES), *(one.name for one in READS), TRIP)
TRIPS = 1_000
STORED = 4_000
"""Batches that reads read: 42 MB, which fit into one segment and are in the page cache."""

COLUMNS = (
    Column("figure", "figure", width=25),
    Column("unit", "unit"),
    Column("bare", "bare", lambda figure: f"{figure.median:,.0f}"),
    Column("quoth", "quoth", lambda figure: f"{figure.median:,.0f}"),
    Column("ratio", "ratio", spread, 17),
    *goal_columns(factor, 5),
)


class Sample(NamedTuple):
    """One measurement. figure: in the unit of its row. cpu: microseconds of the server for a call, or 0."""

    figure: float
    cpu: float = 0.0


class Bench:
    """Measures one thing after the other. directory: for the files of the bare loop."""

    def __init__(self, broker: Target, clients: Clients, directory: Path, report: Report, pairs: int) -> None:
        self._broker = broker
        self._clients = clients
        self._directory = directory
        self._report = report
        self._pairs = pairs

    def run(self, figures: Collection[str] = FIGURES) -> None:
        """Measure what is named of `FIGURES`, a row for each."""
        for writes in WRITES:
            if writes.name in figures:
                self._writes(writes)
        for reads in READS:
            if reads.name in figures:
                self._reads(reads)
        if TRIP in figures:
            self._trips()

    def _writes(self, writes: Writes) -> None:
        def measure(server: Target | Bare) -> Sample:
            values = [writes.value] * writes.records
            return self._rate(server, writes.calls, _write, writes.name, values, writes.calls)

        with bare_loop(self._directory / "written") as bare:
            pairs = self._alternate(bare, measure)
        self._tell(writes.name, "calls/s", pairs, writes.goal)
        costs = [(Sample(one.cpu), Sample(other.cpu)) for one, other in pairs]
        if writes is WRITES[0] and all(one.figure for pair in costs for one in pair):
            self._tell("  processor a call", "us", costs, CPU_GOAL)

    def _reads(self, reads: Reads) -> None:
        stored_at = self._store(reads.name, sealed=reads.sealed)
        size = reads.batches * BATCH_BYTES
        stored = self._directory / "stored"
        stored.write_bytes(bytes(BATCH_BYTES * STORED))
        distinct = STORED // reads.batches
        places = [number % distinct * reads.batches for number in range(reads.calls)]
        requests = driver.fetches(
            reads.name,
            [stored_at[place] for place in places],
            100 * reads.batches,
            reads.bytes_max,
            [100 * place for place in places],
        )

        def measure(server: Target | Bare) -> Sample:
            return self._rate(server, reads.calls, _read, requests, size)

        with bare_loop(stored, size) as bare:
            self._tell(reads.name, "calls/s", self._alternate(bare, measure), reads.goal)

    def _trips(self) -> None:
        def measure(server: Target | Bare) -> Sample:
            (done,) = self._clients.run(_trip, (server.url, "trips", TRIPS))
            return Sample(median(done.result) * 1e6)

        with bare_loop(self._directory / "written") as bare:
            self._tell(TRIP, "us", self._alternate(bare, measure), TRIP_GOAL)

    def _store(self, topic: str, *, sealed: bool) -> list[int]:
        """Store what will be read; returns the cursor in front of each batch."""
        with progress("storing what is read") as advance:
            fill(self._broker.url, topic, [VALUE] * 100, STORED, advance)
        with quoth.connect(self._broker.url) as client:
            if sealed:
                client.roll(topic)
            return cursors(client, topic)

    def _rate(self, server: Target | Bare, calls: int, work: Work, *arguments: Any) -> Sample:
        before = cpu_seconds(server.pid)
        done = self._clients.run(work, (server.url, *arguments))
        after = cpu_seconds(server.pid)
        used = (after - before) / calls * 1e6 if after and before else 0.0
        return Sample(calls / elapsed(done), used)

    def _alternate(
        self, bare: Bare, measure: Callable[[Target | Bare], Sample]
    ) -> list[tuple[Sample, Sample]]:
        return alternate(lambda: measure(bare), lambda: measure(self._broker), self._pairs)

    def _tell(self, name: str, unit: str, pairs: Sequence[tuple[Sample, Sample]], goal: Goal) -> None:
        self._report.row(
            name,
            unit,
            Spread.of([bare.figure for bare, _ in pairs]),
            Spread.of([broker.figure for _, broker in pairs]),
            Spread.of([broker.figure / bare.figure for bare, broker in pairs]),
            *goal,
        )


def _write(ready: Callable[[], None], url: str, topic: str, values: list[bytes], calls: int) -> None:
    requests = driver.publishes(topic, values, calls)
    with driver.dealer(url) as socket:
        ready()
        driver.keep_window(socket, requests, WINDOW)


def _read(ready: Callable[[], None], url: str, requests: list[driver.Frames], reply_bytes: int) -> None:
    with driver.dealer(url) as socket:
        ready()
        driver.keep_window(socket, requests, WINDOW, reply_bytes)


def _trip(ready: Callable[[], None], url: str, topic: str, calls: int) -> list[float]:
    requests = driver.publishes(topic, [VALUE], calls)
    with driver.dealer(url) as socket:
        ready()
        return driver.round_trips(socket, requests)
