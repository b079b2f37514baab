"""`quoth bench ratio`: the command."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

import typer

from quothbench.commands.options import PAIRS_MIN, Directory, Pairs, folder
from quothbench.instruments.ratio import COLUMNS, FIGURES, Bench
from quothbench.load.clients import Clients
from quothbench.load.driver import WINDOW
from quothbench.load.target import own_broker
from quothbench.report import Report
from quothcli.cli.command import command
from quothcli.cli.options import Form
from quothcli.cli.session import chosen
from quothcli.printing.output import Printer


def add(bench: typer.Typer) -> None:
    """Put the command into its group."""
    command(
        bench,
        "ratio",
        "quoth bench ratio",
        "quoth bench ratio --pairs 21 --format json",
        "quoth bench ratio --figure 'read 1 MB' --figure publish",
    )(ratio)


def ratio(
    context: typer.Context,
    pairs: Pairs = PAIRS_MIN,
    begins: Annotated[
        list[str] | None,
        typer.Option(
            "--figure",
            metavar="TEXT",
            help="Only rows whose names begin like this; may be repeated (default: all).",
        ),
    ] = None,
    directory: Directory = None,
    form: Form = None,
) -> None:
    """Compare with a bare loop in the same language, measured in turn.

    The bare loop is a thread with a ROUTER socket and a file, and nothing else: nothing in Python can be
    faster. Each row shows the medians, the median of the ratios with the smallest and the largest one, and
    what this project demands of itself.
    """
    figures = _figures(begins or [""])
    printer = Printer(chosen(context, form=form).format)
    with folder(directory) as made, own_broker(made / "data") as broker, Clients(1) as clients:
        conditions = {
            "durability": "written",
            "window": f"{WINDOW} requests on their way, 1 client",
            "pairs": pairs,
        }
        report = Report(printer, "ratio", conditions, COLUMNS)
        Bench(broker, clients, made, report, pairs).run(figures)


def _figures(begins: Sequence[str]) -> list[str]:
    """The figures whose names begin like one of these. Raises typer.BadParameter if there is none for one."""
    for begin in begins:
        if not any(name.startswith(begin) for name in FIGURES):
            names = "; ".join(FIGURES)
            raise typer.BadParameter(f"no row begins with {begin!r}, only {names}", param_hint="--figure")
    return [name for name in FIGURES if name.startswith(tuple(begins))]
