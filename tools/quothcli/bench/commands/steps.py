"""`quoth bench steps`: the command."""

from __future__ import annotations

from typing import Annotated

import typer

from quothcli.bench.options import Directory, folder
from quothcli.bench.report import Report
from quothcli.bench.steps import COLUMNS, TRIAL_S, TRIALS, Bench
from quothcli.chosen import chosen
from quothcli.command import command
from quothcli.options import Form
from quothcli.output import Printer


def add(bench: typer.Typer) -> None:
    """Put the command into its group."""
    command(bench, "steps", "quoth bench steps", "quoth bench steps --trial 0.5")(steps)


def steps(
    context: typer.Context,
    trial: Annotated[
        float,
        typer.Option("--trial", metavar="S", min=0.001, max=60, help="Seconds of a trial; a step has nine."),
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
