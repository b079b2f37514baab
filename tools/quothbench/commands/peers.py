"""`quoth bench peers`: the command."""

from __future__ import annotations

from typing import Annotated

import typer

from quothbench.commands.options import PAIRS_MIN, Directory, Pairs, folder
from quothbench.peers import comparison
from quothcli.cli.command import command
from quothcli.cli.exit_status import Status
from quothcli.cli.options import Form
from quothcli.cli.session import chosen
from quothcli.printing.output import Printer


def add(bench: typer.Typer) -> None:
    """Put the command into its group."""
    command(bench, "peers", "quoth bench peers", "quoth bench peers --peer redis --pairs 21")(peers)


def peers(
    context: typer.Context,
    named: Annotated[
        list[comparison.Name] | None,
        typer.Option("--peer", help="Whom to compare with; may be repeated (default: all)."),
    ] = None,
    pairs: Pairs = PAIRS_MIN,
    directory: Directory = None,
    form: Form = None,
) -> int:
    """Compare with Redis Streams and RabbitMQ Streams, in turn.

    Their servers are started on free ports of loopback and end with the command; nothing that runs already is
    touched. One client process does the same work with each system, in the way that is its fastest. Each row
    shows messages a second, the median of the ratios with the smallest and the largest one, and what this
    project demands of itself. A peer is skipped where its server or its Python library is not installed:
    apt install redis-server redis-tools rabbitmq-server; pip install 'quoth[bench]'. A row that cannot be
    measured names its problem, the rows behind it are measured all the same, and the exit status is 1.
    """
    printer = Printer(chosen(context, form=form).format)
    with folder(directory) as made:
        whole = comparison.run(printer, named or list(comparison.Name), made, pairs)
    return Status.DONE if whole else Status.FAILED
