"""`quoth bench api`: the command."""

from __future__ import annotations

from typing import Annotated

import typer

import quoth
from quothbench.commands.options import SECONDS_MAX, Broker, Directory, Level, Levels, Records, Size, target
from quothbench.instruments.api import COLUMNS, PAYLOAD, Bench, Budget
from quothbench.load.clients import Clients
from quothbench.load.rates import SECONDS, Payload
from quothbench.load.topics import Topics
from quothbench.report import Report
from quothcli.cli.command import command
from quothcli.cli.options import Form
from quothcli.cli.quantities import span
from quothcli.cli.session import chosen
from quothcli.printing.output import Printer
from quothwire.text.quantity import format_span


def add(bench: typer.Typer) -> None:
    """Put the command into its group."""
    command(bench, "api", "quoth bench api", "quoth bench api --durability written --size 1000")(api)


def api(
    context: typer.Context,
    records: Records = PAYLOAD.records,
    size: Size = PAYLOAD.size,
    seconds: Annotated[
        float | None,
        typer.Option(
            "--seconds",
            metavar="SPAN",
            parser=span("--seconds", 0.01, SECONDS_MAX),
            help=f"How long a row is measured (default: {format_span(SECONDS, short=True)}).",
        ),
    ] = None,
    messages: Annotated[
        int | None,
        typer.Option("--messages", metavar="N", min=1, help="Measure N messages of a client, not a time."),
    ] = None,
    durability: Levels = None,
    count: Annotated[int, typer.Option("--clients", metavar="N", min=1, help="Client processes.")] = 1,
    url: Broker = None,
    directory: Directory = None,
    form: Form = None,
) -> None:
    """Measure what a Python program gets from the client's methods.

    Processor time is that of a message. Where several calls are on their way at once, or a call goes on for
    ever, there is no time of a call.
    """
    if seconds is not None and messages is not None:
        raise typer.BadParameter("it is measured for a time or for a number", param_hint="--messages")
    asked = chosen(context, url, form=form)
    payload = Payload(records, size)
    budget = Budget(messages=messages) if messages else Budget(seconds or SECONDS)
    conditions = {"clients": count, "batch": records, "value_bytes": size}
    amount = {"messages": messages} if messages else {"seconds": budget.seconds}
    with (
        target(asked, directory) as broker,
        quoth.connect(broker.url) as client,
        Topics(client, payload) as made,
        Clients(count) as clients,
    ):
        where = {"broker": broker.url, "directory": client.status().directory}
        report = Report(Printer(asked.format), "api", {**conditions, **amount, **where}, COLUMNS)
        Bench(broker, clients, made, report, payload).run(durability or tuple(Level), budget)
