"""`quoth bench table`: the table in which Poe, the Erlang ancestor of Quoth, published its rates.

Each client has one call on its way, as in Poe's benchmark, over a socket of its own. Reads go on by pointer
and begin anew at the end of the stored records; with many topics a client takes one after the other. Messages
that are read are counted by the batch and not decoded; Poe's clients decoded theirs.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from enum import StrEnum
from itertools import chain, cycle
from typing import Annotated, Any, NamedTuple

import typer

from quothbench import options
from quothbench.figures import QUANTILES, quantiles
from quothbench.load import driver
from quothbench.load.clients import Clients, Ready, elapsed
from quothbench.load.servers import Target, difference
from quothbench.load.topics import Payload
from quothbench.report import Report, ReportColumn, count, seconds
from quothcli.cli.command import command, group
from quothwire import batch
from quothwire.settings import DURABILITIES

TOPICS = (1, 100)
CLIENTS = (1, 6, 20)
PAYLOAD = Payload(100, 100)
"""The payload of Poe's benchmark."""
WARM_UP_S = 0.5

POE: dict[tuple[object, ...], tuple[int | None, int | None]] = {
    ("write", 1, 1): (None, 9_300),
    ("write", 1, 6): (40_000, 7_900),
    ("write", 6, 6): (None, 30_000),
    ("write", 100, 6): (40_000, None),
    ("write", 1, 20): (60_000, None),
    ("write", 100, 20): (50_000, None),
    ("read", 1, 1): (None, 527_000),
    ("read", 1, 6): (400_000, 756_000),
    ("read", 100, 6): (400_000, None),
    ("read", 1, 20): (3_300_000, None),
    ("read", 100, 20): (3_500_000, None),
    ("alternating", 1, 6): (60_000, None),
    ("alternating", 100, 6): (70_000, None),
    ("alternating", 1, 20): (120_000, None),
    ("alternating", 100, 20): (120_000, None),
}
"""Messages/s by work, topics and clients: in Poe's README, and of Poe under OTP 25 on 2 virtual cores.

Those of the README are of a desktop of 2 cores with 6 clients and of a server of 12 with 20. Poe did not sync
before it answered.
"""
POE_NOTE = "messages/s published in 2013: 6 clients desktop, 20 server (measured: OTP 25, 2 vCPU)"


class Load(StrEnum):
    """The calls of the clients."""

    WRITE = "write"
    READ = "read"
    ALTERNATING = "alternating"


class Row(NamedTuple):
    """One measurement. durability: None for reads, which do not depend on it."""

    work: Load
    topics: int
    clients: int
    durability: str | None


def rows(
    works: Sequence[Load] | None = None,
    topics: Sequence[int] | None = None,
    clients: Sequence[int] | None = None,
    durabilities: Sequence[str] | None = None,
) -> list[Row]:
    """Return every combination. None: all. Reads have one row for all levels."""
    return [
        Row(work, topic_count, client_count, durability)
        for work in works or tuple(Load)
        for topic_count in topics or TOPICS
        for client_count in clients or CLIENTS
        for durability in ([None] if work is Load.READ else durabilities or DURABILITIES)
    ]


class Filled(NamedTuple):
    """A topic and the cursors in front of its stored batches."""

    topic: str
    cursors: list[int]


def poe_text(figures: dict[str, int | None]) -> str:
    """Print the figure that Poe published and, in brackets, the measured one."""
    published, measured = figures["published"], figures["measured"]
    text = "-" if published is None else count(published)
    return text if measured is None else f"{text} ({count(measured)})"


COLUMNS = (
    ReportColumn("work", "work", width=11),
    ReportColumn("topics", "topics", count, 6),
    ReportColumn("clients", "clients", count, 7),
    ReportColumn("durability", "durability", width=10),
    ReportColumn("messages_per_second", "messages/s", count, 10),
    ReportColumn("megabytes_per_second", "MB/s", lambda figure: f"{figure:,.1f}", 7),
    ReportColumn("calls_per_second", "calls/s", count, 7),
    *(ReportColumn(f"{name}_seconds", name, seconds) for name in QUANTILES),
    ReportColumn("broker_microseconds_per_call", "broker us", count),
    ReportColumn("clients_microseconds_per_call", "clients us", count, 10),
    ReportColumn("poe", "Poe", poe_text, 17),
)


def measure(
    on: options.OnBroker, report: Report, rows: Sequence[Row], payload: Payload, lasts: float
) -> None:
    """Measure one row after the other, each for so many seconds."""
    crews: dict[int, Clients] = {}
    with ExitStack() as stack:
        for row in rows:
            if row.clients not in crews:
                crews[row.clients] = stack.enter_context(Clients(row.clients))
            names = on.topics.make(row.topics, row.durability or "written")
            cursors = [[]] * len(names) if row.work is Load.WRITE else on.topics.fill(names, payload)
            filled = list(map(Filled, names, cursors))
            shares: list[tuple[Any, ...]] = []
            for number in range(row.clients):
                first = number * row.topics // row.clients  # the clients begin at different topics
                shares.append((on.broker.url, row.work, filled[first:] + filled[:first], payload, lasts))
            figures = _measure(crews[row.clients], on.broker, payload, shares)
            on.topics.delete(names)
            poe = POE.get(row[:3]) if payload == PAYLOAD and row.durability != "synced" else None
            report.row(*row, *figures, poe and dict(zip(("published", "measured"), poe, strict=True)))


def _measure(
    clients: Clients, broker: Target, payload: Payload, shares: Sequence[tuple[Any, ...]]
) -> list[float | None]:
    """Let all clients work together; return the rates, the quantiles and the processor time of a call."""
    used: list[float | None] = []
    done = clients.run(_call, *shares, at_begin=lambda: used.append(broker.cpu()))
    broker_s = difference(broker.cpu(), used[0])
    took = [call for one in done for call in one.result]
    calls = len(took) / elapsed(done)
    messages = calls * payload.records
    return [
        messages,
        messages * payload.size / 1e6,
        calls,
        *quantiles(took).values(),
        broker_s / len(took) * 1e6 if broker_s else None,  # the system counts in steps of 10 ms
        sum(one.cpu for one in done) / len(took) * 1e6,
    ]


def _call(
    ready: Ready, url: str, work: Load, filled: Sequence[Filled], payload: Payload, lasts: float
) -> list[float]:
    endless = requests(work, filled, payload)
    with driver.dealer(url) as socket:
        driver.round_trips(socket, endless, min(WARM_UP_S, lasts))
        ready()
        return driver.round_trips(socket, endless, lasts)


def requests(work: Load, filled: Sequence[Filled], payload: Payload) -> Iterator[driver.Frames]:
    """Yield the requests of one client, without end: of one topic after the other, again and again."""
    values = payload.values
    size = len(batch.encode(values))
    writes = [driver.endless_publishes(one.topic, values) for one in filled]
    reads = [cycle(driver.fetches(one.topic, one.cursors, payload.records, size)) for one in filled]
    turns: Sequence[Iterator[driver.Frames]]
    match work:
        case Load.WRITE:
            turns = writes
        case Load.READ:
            turns = reads
        case Load.ALTERNATING:
            turns = list(chain.from_iterable(zip(writes, reads, strict=True)))
    return map(next, cycle(turns))


app = group()


@command(
    app,
    "table",
    "quoth bench table",
    "quoth bench table --work write --topics 1 --clients 6 --seconds 10",
    "quoth bench table --work read --url tcp://127.0.0.1:5555",
)
def table(
    session: options.MeasuredBroker,
    works: Annotated[
        list[Load] | None,
        typer.Option("--work", help="What the clients do; may be repeated (default: all)."),
    ] = None,
    topics: Annotated[
        list[int] | None, options.number("topics", "Topics; may be repeated (default: 1 and 100).")
    ] = None,
    clients: Annotated[
        list[int] | None,
        options.number("clients", "Client processes; may be repeated (default: 1, 6 and 20)."),
    ] = None,
    durability: options.Levels = None,
    records: options.Records = PAYLOAD.records,
    size: options.Size = PAYLOAD.size,
    lasts: Annotated[float, options.seconds("How long a row is measured.")] = 2.0,
    directory: options.Directory = None,
) -> None:
    """Measure writing and reading as Poe, the ancestor, did.

    Each client has one call on its way. The last column is Poe's table of 2013, for the payload that it was
    measured with: messages/s on a desktop with 6 clients and a server with 20; in brackets what it reached
    on 2 virtual cores. Alternating counts what is written and what is read.
    """
    payload = Payload(records, size)
    conditions = {"batch": records, "value_bytes": size, "seconds": lasts, "poe": POE_NOTE}
    with options.on_broker(session, directory) as on:
        report = on.report("table", conditions, COLUMNS)
        measure(on, report, rows(works, topics, clients, durability), payload, lasts)
