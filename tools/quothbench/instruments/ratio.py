"""`quoth bench ratio`: the bare loop and Quoth in turn, driven by the same code.

One client, `WINDOW` requests on their way, all of them encoded beforehand. The last two rows compare clients
instead: libquoth with a bare DEALER in C, on the broker.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from statistics import median
from typing import Annotated, NamedTuple

import typer

import quoth
from quoth.reader import FETCH_BYTES
from quothbench import options
from quothbench.figures import Goal, alternate, spreads
from quothbench.load import c_client, driver
from quothbench.load.clients import Clients, elapsed
from quothbench.load.driver import BATCH, VALUE, WINDOW
from quothbench.load.keys import BenchKeys, make_keys
from quothbench.load.servers import Target, bare_loop, difference, own_broker
from quothbench.load.topics import cursors, fill
from quothbench.report import Report, ReportColumn, count, factor, goal_columns, spread
from quothcli.cli.command import command, group
from quothcli.cli.options import WithoutBroker
from quothcli.printing.progress import progress


class Writes(NamedTuple):
    """Publishes of the same size. calls: of one measurement."""

    name: str
    records: int
    value: bytes
    calls: int
    goal: Goal


class ReadRow(NamedTuple):
    """Reads of `batches` batches of 100 records of 100 bytes each. calls: of one measurement.

    bytes_max: the limit in the request. Small reads ask as the Python client does, far above their size.
    """

    name: str
    batches: int
    bytes_max: int
    calls: int
    sealed: bool
    goal: Goal


WRITES = (
    Writes("write 100 x 100 B", 100, VALUE, 8_000, Goal(0.92, 1.05)),
    Writes("write 1,000 x 1 kB", 1_000, VALUE * 10, 100, Goal(0.80, 0.95)),
)
READS = (
    ReadRow("read 100 x 100 B", 1, FETCH_BYTES, 8_000, False, Goal(0.90, 1.0)),
    ReadRow("read 100 x 100 B, sealed", 1, FETCH_BYTES, 8_000, True, Goal(0.90, 1.0)),
    ReadRow("read 1 MB", 100, 100 * len(BATCH), 400, False, Goal(0.95, 1.0)),
    ReadRow("read 1 MB, sealed", 100, 100 * len(BATCH), 400, True, Goal(0.95, 1.0)),
)
CPU_GOAL = Goal(1.1, 0.95)
TRIP_GOAL = Goal(1.6, 1.35)
C_GOAL = Goal(0.85, 0.95)
TRIP = "publish of 1 x 100 B, p50"
C_CLIENT = "C client, write", "C client, read"
"""The rows of libquoth: batches of 100 x 100 B, read with fetches of 1 MiB."""
FIGURES = (*(one.name for one in (*WRITES, *READS)), TRIP, *C_CLIENT)
TRIPS = 1_000
STORED = 4_000
"""Batches to read: 42 MB, which fit into one segment and are in the page cache."""

COLUMNS = (
    ReportColumn("figure", "figure", width=25),
    ReportColumn("unit", "unit"),
    ReportColumn("bare", "bare", lambda figure: count(figure.median)),
    ReportColumn("quoth", "quoth", lambda figure: count(figure.median)),
    ReportColumn("ratio", "ratio", spread, 17),
    *goal_columns(factor, 5),
)


class Sample(NamedTuple):
    """One measurement. figure: in the unit of its row. cpu: microseconds of the server for a call, or 0."""

    figure: float
    cpu: float = 0.0


Measure = Callable[[Target], Sample]


class RatioBench(NamedTuple):
    """Measures one figure after the other. directory: for the files of the bare loop. stored: batches.

    keys: of both servers and the clients, None for none.
    """

    broker: Target
    clients: Clients
    directory: Path
    report: Report
    pairs: int
    stored: int = STORED
    keys: BenchKeys | None = None

    def run(self, figures: Collection[str], program: Path | None = None) -> None:
        """Measure the named ones of `FIGURES`, a row for each. program: None leaves out those of libquoth."""
        for row in (*WRITES, *READS):
            if row.name in figures:
                self.writes(row) if isinstance(row, Writes) else self.reads(row)
        if TRIP in figures:
            make = partial(driver.publishes, "trips", [VALUE], TRIPS)
            self._row(TRIP, "us", self._alternate(lambda server: self._trip(server, make)), TRIP_GOAL)
        if program is not None and not set(C_CLIENT).isdisjoint(figures):
            self.c_client(program, figures)

    def c_client(
        self, program: Path, figures: Collection[str] = C_CLIENT, batches: int = c_client.BATCHES
    ) -> None:
        """Measure libquoth beside a bare DEALER. batches: of one measurement."""
        found = c_client.measure(program, self.broker.url, "c-client", self.pairs, batches, self._key_file)
        for name, pairs in zip(C_CLIENT, found, strict=True):
            if name in figures:
                self.report.row(name, "batches/s", *spreads(pairs), *C_GOAL)

    def writes(self, row: Writes) -> None:
        """Measure publishes."""
        make = partial(driver.publishes, row.name, [row.value] * row.records, row.calls)
        pairs = self._alternate(lambda server: self._rate(server, row.calls, make))
        self._row(row.name, "calls/s", pairs, row.goal)
        costs = [(Sample(bare.cpu), Sample(quoth.cpu)) for bare, quoth in pairs]
        if row.name == WRITES[0].name and all(one.figure for pair in costs for one in pair):
            self._row("  processor a call", "us", costs, CPU_GOAL)

    def reads(self, row: ReadRow) -> None:
        """Store records and measure reads of them."""
        stored_at = self._store(row.name, sealed=row.sealed)
        file = self.directory / "stored"
        file.write_bytes(bytes(len(BATCH) * self.stored))
        places = [number % (self.stored // row.batches) * row.batches for number in range(row.calls)]
        after, ordinals = [stored_at[place] for place in places], [100 * place for place in places]
        make = partial(driver.fetches, row.name, after, 100 * row.batches, row.bytes_max, ordinals)
        size = row.batches * len(BATCH)
        pairs = self._alternate(lambda server: self._rate(server, row.calls, make, size), file, size)
        self._row(row.name, "calls/s", pairs, row.goal)

    def _store(self, topic: str, *, sealed: bool) -> list[int]:
        """Store the records to read; return the cursor in front of each batch."""
        with progress("storing what is read") as advance:
            fill(self.broker.url, topic, [VALUE] * 100, self.stored, advance, self._key_file)
        with quoth.connect(self.broker.url, key=self._key_file or None) as client:
            if sealed:
                client.roll(topic)
            return cursors(client, topic)

    @property
    def _key_file(self) -> str:
        """The key file of the clients, empty for none."""
        return "" if self.keys is None else self.keys.client

    def _trip(self, server: Target, make: driver.Requests) -> Sample:
        (done,) = self.clients.run(driver.one_by_one, (server.url, make, 0, self._key_file))
        return Sample(median(done.result) * 1e6)

    def _rate(self, server: Target, calls: int, make: driver.Requests, reply_bytes: int = 0) -> Sample:
        before = server.cpu()
        done = self.clients.run(driver.windowed, (server.url, make, 0, reply_bytes, self._key_file))
        used = difference(server.cpu(), before) or 0.0
        return Sample(calls / elapsed(done), used / calls * 1e6)

    def _alternate(
        self, measure: Measure, file: Path | None = None, read_bytes: int = 0
    ) -> list[tuple[Sample, Sample]]:
        """Measure a bare loop on a file and the broker in turn."""
        own = "" if self.keys is None else self.keys.server
        with bare_loop(file or self.directory / "written", read_bytes, own) as bare:
            return alternate(partial(measure, bare), partial(measure, self.broker), self.pairs)

    def _row(self, name: str, unit: str, samples: Sequence[tuple[Sample, Sample]], goal: Goal) -> None:
        pairs = [(bare.figure, quoth.figure) for bare, quoth in samples]
        self.report.row(name, unit, *spreads(pairs), *goal)


app = group()


@command(
    app,
    "ratio",
    "quoth bench ratio",
    "quoth bench ratio --pairs 21 --format json",
    "quoth bench ratio --figure 'read 1 MB' --figure publish",
)
def ratio(
    session: WithoutBroker,
    pairs: options.Pairs = options.PAIRS_MIN,
    begins: Annotated[
        list[str] | None,
        typer.Option(
            "--figure",
            metavar="TEXT",
            help="Only rows whose names begin like this; may be repeated (default: all).",
        ),
    ] = None,
    directory: options.Directory = None,
    curve: Annotated[
        bool,
        typer.Option(
            "--curve",
            help="Let both servers want keys and encrypt (CURVE); a run without it shows the price.",
        ),
    ] = False,
) -> None:
    """Compare with a bare loop in the same language, measured in turn.

    The bare loop is a thread with a ROUTER socket and a file, and nothing else: nothing in Python can be
    faster. Each row shows the medians, the median of the ratios with the smallest and the largest one, and
    what this project demands of itself. The last two rows compare libquoth with a bare DEALER in C that makes
    the same exchange with the broker; they are left out where it cannot be built.
    """
    figures = figures_that_begin(begins or [""])
    conditions: dict[str, object] = {
        "durability": "written",
        "window": f"{WINDOW} requests on their way, 1 client",
        "pairs": pairs,
        "keys": curve,
    }
    with ExitStack() as stack:
        made = stack.enter_context(options.folder(directory))
        keys = make_keys(made) if curve else None
        settings = {} if keys is None else keys.settings
        broker = stack.enter_context(own_broker(made / "data", **settings))
        clients = stack.enter_context(Clients(1))
        program = None
        if not set(C_CLIENT).isdisjoint(figures):
            program, conditions["c_client"] = _built(made / "c")
        report = Report(session.printer, "ratio", conditions, COLUMNS)
        RatioBench(broker, clients, made, report, pairs, keys=keys).run(figures, program)


def _built(folder: Path) -> tuple[Path | None, str]:
    """Build the benchmark in C if that is possible here; return it, and what the report says of it."""
    try:
        with progress("building libquoth"):
            return c_client.build(folder), "built from the source tree"
    except c_client.NotBuilt as reason:
        return None, f"skipped: {reason}"


def figures_that_begin(begins: Sequence[str]) -> list[str]:
    """Return the figures whose names begin like one of these. Raises typer.BadParameter if one has none."""
    for begin in begins:
        if not any(name.startswith(begin) for name in FIGURES):
            names = "; ".join(FIGURES)
            raise typer.BadParameter(f"no row begins with {begin!r}, only {names}", param_hint="--figure")
    return [name for name in FIGURES if name.startswith(tuple(begins))]
