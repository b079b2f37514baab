"""`quoth transaction`: how a transaction stands, and the end of one that nobody will publish."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

from quothcli.cli.command import command, group
from quothcli.cli.exit_status import Status, complain
from quothcli.cli.options import Form, Timeout, Topic, Url
from quothcli.cli.session import chosen
from quothcli.printing.output import Printer, bytes_text, moment_text, records_text
from quothwire.protocol.transaction import VERSION_MAX

if TYPE_CHECKING:
    from quoth import TransactionInfo


Application = Annotated[str, typer.Argument(metavar="APPLICATION", help="Who writes: its own name for it.")]
Version = Annotated[
    int,
    typer.Argument(
        metavar="VERSION",
        help="Which of its transactions.",
        min=0,
        max=VERSION_MAX,
    ),
]


def add(app: typer.Typer) -> None:
    """Put `transaction` and its commands into the command."""
    transaction = group("Show and abort transactions, which a topic gets whole or not.")
    app.add_typer(transaction, name="transaction")
    command(transaction, "status", "quoth transaction status orders etl/orders 7")(status)
    command(transaction, "abort", "quoth transaction abort orders etl/orders 7")(abort)


def status(
    context: typer.Context,
    topic: Topic,
    application: Application,
    version: Version,
    url: Url = None,
    timeout: Timeout = None,
    form: Form = None,
) -> None:
    """Show how a transaction stands: published, staged or unknown."""
    asked = chosen(context, url, timeout, form)
    with asked.connect() as client:
        found = client.transaction(topic, application, version).status()
    Printer(asked.format).answer(_text(found), _content(topic, application, version, found), found.state)


def abort(
    context: typer.Context,
    topic: Topic,
    application: Application,
    version: Version,
    url: Url = None,
    timeout: Timeout = None,
    form: Form = None,
) -> int | None:
    """Remove what is staged of a transaction.

    An application that is still writing it has to stage it again. What is published stays.
    """
    asked = chosen(context, url, timeout, form)
    with asked.connect() as client:
        found = client.transaction(topic, application, version).abort()
    content = _content(topic, application, version, found)
    if found.state == "published":
        Printer(asked.format).answer("", content)
        complain("already_published", _text(found), "nothing was removed; its records stay")
        return Status.FAILED
    text = f"removed {records_text(found.records)}, {bytes_text(found.bytes)}"
    Printer(asked.format).answer(text, content, found.records)
    return None


def _content(topic: str, application: str, version: int, found: TransactionInfo) -> dict[str, object]:
    return {"topic": topic, "application": application, "version": version, **asdict(found)}


def _text(found: TransactionInfo) -> str:
    """How it stands, for people."""
    if found.state == "published":
        where = f"{found.first} to {found.last}, {moment_text(found.first)}"
        return f"published: {records_text(found.count)}, {where}"
    if found.state == "staged":
        of = f"{_counted(found.batches, 'batch', 'batches')} of {_counted(found.parts, 'part', 'parts')}"
        return f"staged: {records_text(found.records)}, {bytes_text(found.bytes)}, in {of}"
    newest = "none" if found.newest_version < 0 else f"{found.newest_version}"
    return f"{found.state}; the newest version that is published: {newest}"


def _counted(count: int, one: str, several: str) -> str:
    return f"{count:,} {one if count == 1 else several}"
