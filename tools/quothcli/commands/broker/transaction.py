"""`quoth transaction`: shows the state of a transaction, and aborts one that is not published."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

from quothcli.cli.command import argument, command, group
from quothcli.cli.exit_status import Refused
from quothcli.cli.options import Topic, WithBroker
from quothcli.printing.text import bytes_text, counted, records_text, time_or_dash
from quothwire.protocol.transaction import VERSION_MAX

if TYPE_CHECKING:
    from quoth import TransactionInfo


Application = Annotated[str, argument("APPLICATION", "The name of the application that writes.")]
Version = Annotated[int, argument("VERSION", "Which of its transactions.", min=0, max=VERSION_MAX)]


app = group("Show and abort transactions, which a topic gets whole or not.")


@command(app, "status", "quoth transaction status orders etl/orders 7")
def status(session: WithBroker, topic: Topic, application: Application, version: Version) -> None:
    """Show the state of a transaction: published, staged or unknown."""
    with session.connect() as client:
        found = client.transaction(topic, application, version).status()
    session.printer.answer(_text(found), _content(topic, application, version, found), found.state)


@command(app, "abort", "quoth transaction abort orders etl/orders 7")
def abort(session: WithBroker, topic: Topic, application: Application, version: Version) -> None:
    """Remove the staged records of a transaction.

    An application that is still writing it has to stage it again. Published records stay.
    """
    with session.connect() as client:
        found = client.transaction(topic, application, version).abort()
    content = _content(topic, application, version, found)
    if found.state == "published":
        session.printer.answer("", content)
        raise Refused("already_published", _text(found), "nothing was removed; its records stay")
    text = f"removed {records_text(found.records)}, {bytes_text(found.bytes)}"
    session.printer.answer(text, content, found.records)


def _content(topic: str, application: str, version: int, found: TransactionInfo) -> dict[str, object]:
    return {"topic": topic, "application": application, "version": version, **asdict(found)}


def _text(found: TransactionInfo) -> str:
    """Describe the state for people."""
    if found.state == "published":
        where = f"{found.first} to {found.last}, {time_or_dash(found.first)}"
        return f"published: {records_text(found.count)}, {where}"
    if found.state == "staged":
        of = f"{counted(found.batches, 'batch', 'batches')} of {counted(found.parts, 'part')}"
        return f"staged: {records_text(found.records)}, {bytes_text(found.bytes)}, in {of}"
    newest = "none" if found.newest_version < 0 else f"{found.newest_version}"
    return f"{found.state}; the newest version that is published: {newest}"
