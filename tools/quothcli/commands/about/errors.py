"""`quoth errors`: explains the codes of errors, without a broker."""

from __future__ import annotations

from typing import Annotated, Any

from typer import Argument

from quothcli.cli.command import command, group
from quothcli.cli.exit_status import CommandStatus, Refused, status_of
from quothcli.cli.options import WithoutBroker
from quothwire.errors import CODES, error
from quothwire.text.suggestion import nearest

app = group()


@command(app, "errors", "quoth errors", "quoth errors disk_low")
def errors(
    session: WithoutBroker,
    code: Annotated[
        str | None,
        Argument(
            metavar="CODE",
            help="The code of an error; without it, all are explained.",
            autocompletion=lambda incomplete: [one for one in CODES if one.startswith(incomplete)],
        ),
    ] = None,
) -> None:
    """Explain the codes of errors: what happened, what to do.

    No broker is needed. These are the codes of the protocol. An error of the command line itself, usage, has
    its explanation in its text.
    """
    printer = session.printer
    if code is not None and code not in CODES:
        near = nearest(code, CODES)
        hint = f"did you mean {near}?" if near else "`quoth errors` lists them"
        raise Refused("unknown_code", f"no error has the code {code!r}", hint, CommandStatus.NOT_FOUND)
    for name in [code] if code else CODES:
        printer.answer(explained(name), _content(name), name)


def explained(code: str) -> str:
    """Explain a code in lines of text: what happened, what to do, the exit status."""
    row = CODES[code]
    again = "may succeed if tried again" if row.retryable else "fails again if tried again"
    class_name = row.error.__name__
    return (
        f"{code}\n  {row.meaning}\n  hint: {row.hint}\n"
        f"  {again}; quoth.{class_name} in Python; exit status {int(status_of(error(code, '')))}"
    )


def _content(code: str) -> dict[str, Any]:
    row = CODES[code]
    return {
        "code": code,
        "meaning": row.meaning,
        "retryable": row.retryable,
        "hint": row.hint,
        "error": row.error.__name__,
        "exit_status": int(status_of(error(code, ""))),
    }
