"""`quoth bench aio`: the command."""

from __future__ import annotations

from typing import Annotated

import typer

import quoth
from quothbench.commands.options import PAIRS_MIN, SECONDS_MAX, Broker, Directory, Level, Levels, Size, target
from quothbench.instruments.aio import COLUMNS, Bench
from quothbench.instruments.api import Budget
from quothbench.load.clients import Clients
from quothbench.load.rates import Payload
from quothbench.load.topics import Topics
from quothbench.report import Report
from quothcli.cli.command import command
from quothcli.cli.options import Form
from quothcli.cli.quantities import span
from quothcli.cli.session import chosen
from quothcli.printing.output import Printer

RECORDS = 1_000
"""Messages of a batch, as a producer makes them."""


def add(bench: typer.Typer) -> None:
    """Put the command into its group."""
    command(bench, "aio", "quoth bench aio", "quoth bench aio --rounds 21 --durability written")(aio)


def aio(
    context: typer.Context,
    size: Size = 100,
    seconds: Annotated[
        float,
        typer.Option(
            "--seconds",
            metavar="SPAN",
            parser=span("--seconds", 0.01, SECONDS_MAX),
            help="How long each measurement takes.",
        ),
    ] = 0.5,
    rounds: Annotated[
        int, typer.Option("--rounds", metavar="N", min=1, help="Measurements of each of the three.")
    ] = PAIRS_MIN,
    durability: Levels = None,
    url: Broker = None,
    directory: Directory = None,
    form: Form = None,
) -> None:
    """Compare quoth.aio with quoth and with bare zmq.asyncio.

    The three are measured in turn. Each row shows the medians of their rates, and the median of the ratios of
    quoth.aio to each of the others with the smallest and the largest one. The bare socket sends what was
    encoded beforehand, decodes what it gets and cares for nothing else.
    """
    asked = chosen(context, url, form=form)
    payload = Payload(RECORDS, size)
    conditions = {"value_bytes": size, "seconds": seconds, "rounds": rounds}
    with (
        target(asked, directory) as broker,
        quoth.connect(broker.url) as client,
        Topics(client, payload) as made,
        Clients(1) as clients,
    ):
        where = {"broker": broker.url, "directory": client.status().directory}
        report = Report(Printer(asked.format), "aio", {**conditions, **where}, COLUMNS)
        bench = Bench(broker, clients, made, report, payload.values)
        bench.run(durability or tuple(Level), Budget(seconds), rounds)
