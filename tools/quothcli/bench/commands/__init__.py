"""`quoth bench`: the commands. They measure on a broker of their own, on a temporary directory that vanishes,
unless a URL names another one."""

from __future__ import annotations

import typer

from quothcli.bench.commands import aio, api, latency, memory, peers, ratio, spark, steps, table
from quothcli.command import app as make_app
from quothcli.command import show_help
from quothcli.exits import terminable


def add(app: typer.Typer) -> None:
    """Put `bench` into the command."""
    made = make_app("Measure how fast the broker is on this machine.")
    made.callback(invoke_without_command=True)(_before)
    app.add_typer(made, name="bench")
    for noun in (ratio, table, api, aio, latency, memory, steps, spark, peers):
        noun.add(made)


def _before(context: typer.Context) -> None:
    """Whichever command runs, its broker and its directory do not outlive it."""
    context.with_resource(terminable())
    show_help(context)
