"""`quoth bench`: the commands. They measure on a broker of their own, on a temporary directory that vanishes,
unless a URL names another one."""

from __future__ import annotations

import typer

from quothcli.cli.command import Row, show_help
from quothcli.cli.command import app as make_app
from quothcli.cli.exit_status import terminable

COMMANDS = {
    name: Row(f"quothbench.commands.{name}", sentence)
    for name, sentence in {
        "ratio": "Compare with a bare loop in the same language, measured in turn.",
        "table": "Measure writing and reading as Poe, the ancestor, did.",
        "api": "Measure what a Python program gets from the client's methods.",
        "aio": "Compare quoth.aio with quoth and with bare zmq.asyncio.",
        "latency": "Measure how long calls take, and records from publish to tail.",
        "memory": "Measure what records, topics and waits take, and what grows.",
        "steps": "Measure each step of a publish and of a fetch by itself.",
        "spark": "Compare what Spark does with topics to what it does with Parquet.",
        "peers": "Compare with Redis Streams and RabbitMQ Streams, in turn.",
    }.items()
}
"""What each command is for; its module has its name and is loaded when it is typed."""


def add(app: typer.Typer) -> None:
    """Put `bench` into the command."""
    made = make_app(_before, "Measure how fast the broker is on this machine.", rows=COMMANDS)
    app.add_typer(made, name="bench")


def _before(context: typer.Context) -> None:
    """Whichever command runs, its broker and its directory do not outlive it."""
    context.with_resource(terminable())
    show_help(context)
