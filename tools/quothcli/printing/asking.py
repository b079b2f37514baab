"""Asking before something is destroyed."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from quothcli.cli.exit_status import complain

Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")]


def is_confirmed(question: str, *, yes: bool) -> bool:
    """Ask at the terminal, unless `yes` was typed; False, and said, if the answer is no.

    question: a whole one, like "Delete topic 'orders' with 7 records?". Raises `BadParameter` without a
    terminal.
    """
    if yes:
        return True
    if not sys.stdin.isatty():
        raise typer.BadParameter(f"{question} No terminal is there to answer at: --yes says yes")
    if typer.confirm(question, err=True):
        return True
    complain("not_done", "nothing was removed", "answer y to do it")
    return False
