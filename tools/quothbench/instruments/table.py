"""`quoth bench table`: the table in which Poe, the Erlang ancestor of Quoth, published its rates.

Each client has one call on its way, as in Poe's benchmark, over a socket of its own; `poe_calls` has the
calls. Messages that are read are counted by the batch and not decoded; Poe's clients decoded theirs.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from typing import Annotated, Any, NamedTuple

import typer

from quothbench import options
from quothbench.figures import QUANTILES, quantiles
from quothbench.instruments.poe_calls import CallTimes, ClientCalls, Load
from quothbench.load import driver
from quothbench.load.clients import Clients, Ready, elapsed
from quothbench.load.servers import Target, difference
from quothbench.load.topics import Payload
from quothbench.report import Report, ReportColumn, count, published, seconds
from quothcli.cli.command import command, group
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
before it answered. `write_mini` was not published.
"""
POE_READ = {Load.READ_WRAP: Load.READ}
"""The README has one figure for both kinds of reads; the configuration beside it has `read_wrap`."""
POE_NOTE = "messages/s published in 2013: 6 clients desktop, 20 server (measured: OTP 25, 2 vCPU)"


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
        for durability in (durabilities or DURABILITIES if work.writes else [None])
    ]


def poe(row: Row, payload: Payload) -> dict[str, int | None] | None:
    """Return what Poe reached with the same work and payload, None where that was not measured."""
    if payload != PAYLOAD or row.durability == "synced":
        return None
    found = POE.get((POE_READ.get(row.work, row.work), row.topics, row.clients))
    return found and dict(zip(("published", "measured"), found, strict=True))


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
    ReportColumn("caught_up", "caught up", count),
    ReportColumn("poe", "Poe", published, 17),
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
            sent = row.work.payload(payload)
            names = on.topics.make(row.topics, row.durability or "written")
            if row.work.reads:
                on.topics.fill(names, sent)
            shares: list[tuple[Any, ...]] = []
            for number in range(row.clients):
                first = number * row.topics // row.clients  # the clients begin at different topics
                shares.append((on.broker.url, row.work, names[first:] + names[:first], sent, lasts))
            figures = _measure(crews[row.clients], on.broker, sent, shares)
            on.topics.delete(names)
            report.row(*row, *figures, poe(row, sent))


def _measure(
    clients: Clients, broker: Target, payload: Payload, shares: Sequence[tuple[Any, ...]]
) -> list[float | None]:
    """Let all clients work together; return the figures behind those of a `Row`, up to the empty reads."""
    used: list[float | None] = []
    done = clients.run(_call, *shares, at_begin=lambda: used.append(broker.cpu()))
    broker_s = difference(broker.cpu(), used[0])
    results: list[CallTimes] = [one.result for one in done]
    took = [call for one in results for call in one.took]
    messages = sum(one.messages for one in results) / elapsed(done)
    return [
        messages,
        messages * payload.size / 1e6,
        len(took) / elapsed(done),
        *quantiles(took).values(),
        broker_s / len(took) * 1e6 if broker_s else None,  # the system counts in steps of 10 ms
        sum(one.cpu for one in done) / len(took) * 1e6,
        sum(one.caught_up for one in results),
    ]


def _call(
    ready: Ready, url: str, work: Load, topics: Sequence[str], payload: Payload, lasts: float
) -> CallTimes:
    with driver.dealer(url) as socket:
        ClientCalls(work, topics, payload).measure(socket, min(WARM_UP_S, lasts))
        ready()
        return ClientCalls(work, topics, payload).measure(socket, lasts)


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

    Each client has one call on its way, and reads on by a pointer of its own in each topic. `read` ends when
    it has caught up with all of them, `read_wrap` goes back to pointer 0 there, for as long as a row is
    measured: `caught up` counts the calls that found nothing. `write_mini` has messages of 1 byte.
    Alternating counts what is written and what is read. The last column is Poe's table of 2013, for the
    payload that it was measured with: messages/s on a desktop with 6 clients and a server with 20; in
    brackets what it reached on 2 virtual cores. Poe published one figure for both kinds of reads.
    """
    payload = Payload(records, size)
    conditions = {"batch": records, "value_bytes": size, "seconds": lasts, "poe": POE_NOTE}
    with options.on_broker(session, directory) as on:
        report = on.report("table", conditions, COLUMNS)
        measure(on, report, rows(works, topics, clients, durability), payload, lasts)
