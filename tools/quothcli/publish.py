"""`quoth pub`: publish a value, or every line of stdin."""

from __future__ import annotations

import os
import sys
from typing import Annotated, Literal

import typer

from quoth import Ack, Client, Producer
from quothcli.command import command
from quothcli.exits import say
from quothcli.lines import portions
from quothcli.options import Chosen, Form, Timeout, Topic, Url, chosen
from quothcli.output import Printer, records_text
from quothcli.progress import progress
from quothwire import pointer as pointers

DELIVERY_TIMEOUT_S = 120.0
"""How long a line of stdin may wait for a broker that is away, unless --timeout says otherwise."""

Durability = Literal["written", "synced"]


def add(app: typer.Typer) -> None:
    """Put `pub` into the command."""
    command(
        app,
        "pub",
        "quoth pub greetings 'hello, world'",
        "quoth pub orders '{\"item\": 7}' --key customer-7 --header source=shop",
        "tail -F /var/log/syslog | quoth pub syslog",
    )(publish)


def publish(
    context: typer.Context,
    topic: Topic,
    value: Annotated[
        str | None,
        typer.Argument(
            metavar="VALUE",
            help="The record's value; without it every line of stdin is a record.",
            show_default=False,
        ),
    ] = None,
    key: Annotated[str | None, typer.Option("--key", metavar="KEY", help="The records' key.")] = None,
    header: Annotated[
        list[str] | None,
        typer.Option("--header", metavar="NAME=VALUE", help="A header of the records; may be repeated."),
    ] = None,
    durability: Annotated[
        str | None,
        typer.Option(
            "--durability",
            metavar="LEVEL",
            help="written (survives the death of the broker) or synced (survives a power cut); "
            "default: the topic's own.",
        ),
    ] = None,
    url: Url = None,
    timeout: Timeout = None,
    form: Form = None,
) -> None:
    """Publish VALUE, or every line of stdin.

    Prints the pointers that the records got. Lines are published without their newline, in batches, as they
    come. A topic that does not exist is made.
    """
    asked = chosen(context, url, timeout, form)
    level = _durability(durability)
    encoded_key = None if key is None else os.fsencode(key)
    headers = dict(map(_header, header or []))
    with asked.connect() as client:
        if value is None:
            ack = _publish_stdin(asked, client, topic, encoded_key, headers, level)
        else:
            ack = client.publish(
                topic, os.fsencode(value), key=encoded_key, headers=headers or None, durability=level
            )
    if ack is None:
        say("quoth: there was nothing on stdin, so nothing was published")
    else:
        _print(Printer(asked.format), topic, ack)


def _publish_stdin(
    asked: Chosen,
    client: Client,
    topic: str,
    key: bytes | None,
    headers: dict[str, bytes],
    level: Durability | None,
) -> Ack | None:
    """Publish every line of stdin; None if there was none. Says how far it came if it does not end well."""
    if sys.stdin.isatty():
        say("quoth: every line becomes a record, Ctrl-D ends")
    producer = client.producer(topic, durability=level, timeout=asked.timeout or DELIVERY_TIMEOUT_S)
    try:
        with producer:
            first = producer.future()
            _send(producer, key, headers)
    except BaseException:
        say(f"quoth: published {records_text(producer.acknowledged)} of stdin")
        raise
    if not producer.acknowledged:
        return None
    ack = first.result(0)
    return Ack(ack.first, producer.last, producer.acknowledged, ack.durability, ack.duplicate)


def _send(producer: Producer, key: bytes | None, headers: dict[str, bytes]) -> None:
    typing = sys.stdin.isatty()
    with progress("publishing", quiet=typing) as advance:
        for lines in portions(sys.stdin.buffer):  # type: ignore[arg-type]  # it is a BufferedReader
            for line in lines:
                producer.send(line, key=key, headers=headers)
            advance(len(lines), sum(map(len, lines)) + len(lines))


def _print(printer: Printer, topic: str, ack: Ack) -> None:
    last = f" to {ack.last}" if ack.last != ack.first else ""
    content = {
        "topic": topic,
        "first": ack.first,
        "last": ack.last,
        "count": ack.count,
        "durability": ack.durability,
        "duplicate": ack.duplicate,
    }
    printer.answer(
        f"{ack.first}{last}\t{pointers.to_text(ack.first)}\t{records_text(ack.count)}, {ack.durability}",
        content,
        ack.last,
    )


def _durability(level: str | None) -> Durability | None:
    match level:
        case None | "written" | "synced":
            return level
        case _:
            raise typer.BadParameter("it is written or synced", param_hint="--durability")


def _header(text: str) -> tuple[str, bytes]:
    name, separator, value = text.partition("=")
    if not name or not separator:
        raise typer.BadParameter(f"{text!r} is not NAME=VALUE", param_hint="--header")
    return name, os.fsencode(value)
