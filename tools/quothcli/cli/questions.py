"""Questions at the terminal, before something is removed."""

from __future__ import annotations

import sys

import typer
from typer import BadParameter

from quothcli.cli.exit_status import Refused


def confirm(question: str, *, yes: bool) -> None:
    """Ask at the terminal, unless `yes` was typed. Raises `Refused` ``not_done`` for a no.

    question: a whole one, like "Delete topic 'orders' with 7 records?". Raises `BadParameter` without a
    terminal.
    """
    if yes:
        return
    if not sys.stdin.isatty():
        raise BadParameter(f"{question} No terminal is there to answer at: --yes says yes")
    if not typer.confirm(question, err=True):
        raise Refused("not_done", "nothing was removed", "answer y to do it")
