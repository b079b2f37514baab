"""`quoth bench steps`: the command."""

from __future__ import annotations

from typing import Annotated

import typer

from quothbench.commands.options import Directory, folder
from quothbench.instruments.steps import COLUMNS, TRIAL_S, TRIALS, Bench
from quothbench.report import Report
from quothcli.cli.command import command
from quothcli.cli.options import Form
from quothcli.cli.quantities import span
from quothcli.cli.session import chosen
from quothcli.printing.output import Printer
from quothwire.text.quantity import format_span


def add(bench: typer.Typer) -> None:
    """Put the command into its group."""
    command(bench, "steps", "quoth bench steps", "quoth bench steps --trial 500ms")(steps)


def steps(
    context: typer.Context,
    trial: Annotated[
        float,
        typer.Option(
            "--trial",
            metavar="SPAN",
            parser=span("--trial", 0.001, 60),
            help=f"How long a trial takes; a step has nine (default: {format_span(TRIAL_S, short=True)}).",
            show_default=False,
        ),
    ] = TRIAL_S,
    directory: Directory = None,
    form: Form = None,
) -> None:
    """Measure each step of a publish and of a fetch by itself.

    Nanoseconds of a call, or of a record: the median of nine trials, and the shortest one in brackets.
    """
    printer = Printer(chosen(context, form=form).format)
    with folder(directory) as made:
        Bench(
            made, Report(printer, "steps", {"trials": TRIALS, "durability": "written"}, COLUMNS), trial
        ).run()
