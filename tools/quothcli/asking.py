"""Asking before something is destroyed."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from quothcli.exits import complain

Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")]


def is_confirmed(deed: str, what: str, *, yes: bool) -> bool:
    """Ask at the terminal, unless `yes` was typed; False, and said, if the answer is no.

    deed, what: "delete" and "topic 'orders' with 7 records". Raises `BadParameter` without a terminal.
    """
    if yes:
        return True
    if not sys.stdin.isatty():
        raise typer.BadParameter(f"it would {deed} {what}: say --yes to do that")
    if typer.confirm(f"{deed} {what}?", err=True):
        return True
    complain("not_done", "nothing was removed", f"answer y to {deed} it")
    return False
