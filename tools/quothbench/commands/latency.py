"""`quoth bench latency`: the command."""

from __future__ import annotations

from typing import Annotated

import typer

import quoth
from quothbench.commands.options import SECONDS_MAX, Broker, Directory, Records, Size, target
from quothbench.instruments.latency import COLUMNS, RATES, Bench, Plan
from quothbench.load import schedule
from quothbench.load.clients import Clients
from quothbench.load.rates import Payload
from quothbench.load.topics import Topics
from quothbench.report import Report
from quothcli.cli.command import command
from quothcli.cli.options import Form
from quothcli.cli.quantities import span
from quothcli.cli.session import chosen
from quothcli.printing.output import Printer
from quothwire.errors import error

ENCODED_BYTES_MAX = 2**30
"""Requests of one measurement, which are encoded beforehand."""


def add(bench: typer.Typer) -> None:
    """Put the command into its group."""
    command(
        bench, "latency", "quoth bench latency", "quoth bench latency --rate 500 --url tcp://127.0.0.1:5555"
    )(latency)


def latency(
    context: typer.Context,
    calls: Annotated[
        int, typer.Option("--calls", metavar="N", min=1, help="Calls of each closed loop.")
    ] = 2_000,
    records: Records = 1,
    size: Size = 100,
    rates: Annotated[
        list[float] | None,
        typer.Option(
            "--rate",
            metavar="N",
            min=0.1,
            help="Scheduled calls a second; may be repeated (default: 100, 1000 and 5000).",
        ),
    ] = None,
    tail_rate: Annotated[
        float, typer.Option("--tail-rate", metavar="N", min=0.1, help="Records a second that are tailed.")
    ] = 200,
    lasts: Annotated[
        float,
        typer.Option(
            "--seconds",
            metavar="SPAN",
            parser=span("--seconds", 0.01, SECONDS_MAX),
            help="How long each schedule and each tail lasts (default: 5s).",
            show_default=False,
        ),
    ] = 5,
    url: Broker = None,
    directory: Directory = None,
    form: Form = None,
) -> None:
    """Measure how long calls take, and records from publish to tail.

    First one call after the other; then publishes at times that were decided beforehand, and their time
    counts from when they were due; then records on their way to a process that tails, and the round trips of
    the same moments, in which the ratio is counted. late: calls that were sent more than 100 us behind their
    time; held: those that waited because too many were on their way.
    """
    plan = Plan(calls, records, size, rates or RATES, lasts, tail_rate)
    most = max(calls, *(rate * lasts for rate in plan.rates)) * records * size
    if most > ENCODED_BYTES_MAX:
        raise error("too_large", f"requests of {most:,.0f} bytes would have to be held", "make fewer of them")
    asked = chosen(context, url, form=form)
    with (
        target(asked, directory) as broker,
        quoth.connect(broker.url) as caller,
        Topics(caller, Payload(records, size)) as topics,
        Clients(1) as client,
        Clients(2) as pair,
    ):
        conditions = {
            "broker": broker.url,
            "directory": caller.status().directory,
            "clients": "1 that calls; 1 that publishes and 1 that tails",
            "in_flight": f"1 call in a loop, up to {schedule.ON_THEIR_WAY_MAX:,} on a schedule",
            "seconds": lasts,
        }
        report = Report(Printer(asked.format), "latency", conditions, COLUMNS)
        Bench(broker.url, client, pair, topics, report, plan).run()
