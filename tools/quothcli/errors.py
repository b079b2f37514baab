"""`quoth errors`: what the codes of errors mean and what to do, without a broker."""

from __future__ import annotations

import inspect
from difflib import get_close_matches
from typing import Annotated

import typer

from quothcli.chosen import chosen
from quothcli.command import command
from quothcli.exits import Refused, Status, status_of
from quothcli.options import Form
from quothcli.output import Printer
from quothwire.errors import CODES, error


def add(app: typer.Typer) -> None:
    """Put `errors` into the command."""
    command(app, "errors", "quoth errors", "quoth errors disk_low")(errors)


def errors(
    context: typer.Context,
    code: Annotated[
        str | None,
        typer.Argument(
            metavar="CODE",
            help="The code of an error; without it all are told.",
            autocompletion=lambda incomplete: [one for one in CODES if one.startswith(incomplete)],
        ),
    ] = None,
    form: Form = None,
) -> None:
    """Explain the codes of errors: what happened, what to do.

    A broker need not run. These are the codes of the protocol; what a command refuses by itself says so in
    full.
    """
    printer = Printer(chosen(context, form=form).format)
    if code is not None and code not in CODES:
        near = get_close_matches(code, CODES, n=1)
        hint = f"did you mean {near[0]}?" if near else "`quoth errors` lists them"
        raise Refused("unknown_code", f"no error has the code {code!r}", hint, Status.NOT_FOUND)
    for name in [code] if code else CODES:
        _print(printer, name)


def _print(printer: Printer, code: str) -> None:
    row = CODES[code]
    meaning = (inspect.getdoc(row.error) or "").replace("\n", " ")
    status = int(status_of(error(code, "")))
    content = {
        "code": code,
        "meaning": meaning,
        "retryable": row.retryable,
        "hint": row.hint,
        "exit_status": status,
    }
    again = "may succeed if tried again" if row.retryable else "fails again if tried again"
    printer.answer(f"{code}\n  {meaning}\n  hint: {row.hint}\n  {again}; exit status {status}", content, code)
