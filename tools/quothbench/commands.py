"""`quoth bench`: the commands. The module of each is loaded when it is typed.

They measure on a broker of their own, on a temporary directory that is removed, unless a URL names another
one.
"""

from __future__ import annotations

import typer

from quothcli.cli.command import LazyCommand, show_help
from quothcli.cli.command import app as make_app
from quothcli.cli.exit_status import terminable

COMMANDS = {
    name: LazyCommand(f"quothbench.{module}", sentence)
    for name, (module, sentence) in {
        "ratio": ("instruments.ratio", "Compare with a bare loop in the same language, measured in turn."),
        "table": ("instruments.table", "Measure writing and reading as Poe, the ancestor, did."),
        "api": ("instruments.api", "Measure the methods of the client, blocking and with asyncio."),
        "latency": ("instruments.latency", "Measure how long calls take, and records from publish to tail."),
        "pages": ("instruments.pages", "Measure the dashboard's pages beside many topics and a load."),
        "http": ("instruments.http", "Compare requests to `quoth web` with the same work by quoth.aio."),
        "memory": ("instruments.memory", "Measure what records, topics and waits take, and what grows."),
        "spark": ("spark.command", "Compare what Spark does with topics to what it does with Parquet."),
        "peers": (
            "peers.comparison",
            "Compare with Redis Streams, RabbitMQ Streams and Poe, in turn.",
        ),
        "embedded": (
            "embedded.command",
            "Compare the embedded log with LevelDB, LMDB and plain files.",
        ),
        "group": ("groups.command", "Measure members of groups beside readers and other systems."),
    }.items()
}
"""The module and the purpose of each command."""


def _before(context: typer.Context) -> None:
    """Let SIGTERM end a command as Ctrl-C does, with its broker and its directory."""
    context.with_resource(terminable())
    show_help(context)


app = make_app(_before, "Measure how fast the broker is on this machine.", rows=COMMANDS)
