"""`quoth pipeline`: the jobs that run on Spark."""

from __future__ import annotations

import typer

from quothcli.command import group
from quothcli.pipeline import archive, audit, replay, stats


def add(app: typer.Typer) -> None:
    """Put `pipeline` and its commands into the command."""
    made = group("Jobs on Spark: look after topics too large for one process.")
    app.add_typer(made, name="pipeline")
    for noun in (audit, archive, replay, stats):
        noun.add(made)
