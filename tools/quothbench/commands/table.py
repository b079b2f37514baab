"""`quoth bench table`: the command."""

from __future__ import annotations

from typing import Annotated

import typer

import quoth
from quothbench.commands.options import Broker, Directory, Level, Levels, Records, Seconds, Size, target
from quothbench.instruments.table import CLIENTS, COLUMNS, PAYLOAD, POE_NOTE, TOPICS, Bench, Choice, Work
from quothbench.load.rates import SECONDS, Payload
from quothbench.load.topics import Topics
from quothbench.report import Report
from quothcli.cli.command import command
from quothcli.cli.options import Form
from quothcli.cli.session import chosen
from quothcli.printing.output import Printer


def add(bench: typer.Typer) -> None:
    """Put the command into its group."""
    command(
        bench,
        "table",
        "quoth bench table",
        "quoth bench table --work write --topics 1 --clients 6 --seconds 10",
        "quoth bench table --work read --url tcp://127.0.0.1:5555",
    )(table)


def table(
    context: typer.Context,
    works: Annotated[
        list[Work] | None,
        typer.Option("--work", help="What the clients do; may be repeated (default: all)."),
    ] = None,
    topics: Annotated[
        list[int] | None,
        typer.Option("--topics", metavar="N", min=1, help="Topics; may be repeated (default: 1 and 100)."),
    ] = None,
    clients: Annotated[
        list[int] | None,
        typer.Option(
            "--clients", metavar="N", min=1, help="Client processes; may be repeated (default: 1, 6 and 20)."
        ),
    ] = None,
    durability: Levels = None,
    records: Records = PAYLOAD.records,
    size: Size = PAYLOAD.size,
    seconds: Seconds = SECONDS,
    url: Broker = None,
    directory: Directory = None,
    form: Form = None,
) -> None:
    """Measure writing and reading as Poe, the ancestor, did.

    Each client has one call on its way. The last column is Poe's table of 2013, for the payload that it was
    measured with: messages/s on a desktop with 6 clients and a server with 20; in brackets what it reached
    on 2 virtual cores. Alternating counts what is written and what is read.
    """
    asked = chosen(context, url, form=form)
    payload = Payload(records, size)
    choice = Choice(works or tuple(Work), topics or TOPICS, clients or CLIENTS, durability or tuple(Level))
    conditions = {"batch": records, "value_bytes": size, "seconds": seconds, "poe": POE_NOTE}
    with (
        target(asked, directory) as broker,
        quoth.connect(broker.url) as client,
        Topics(client, payload) as made,
    ):
        where = {"broker": broker.url, "directory": client.status().directory}
        report = Report(Printer(asked.format), "table", {**conditions, **where}, COLUMNS)
        Bench(broker, made, report, payload, seconds).run(choice)
