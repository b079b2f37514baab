"""`quoth tail`, `quoth read` and `quoth get`: records of a topic, on stdout."""

from __future__ import annotations

import os
import select
import stat
import sys
import threading
from collections.abc import Iterator
from itertools import islice
from typing import Annotated

import typer

from quoth import Client, Gap, Message
from quothcli.command import command
from quothcli.exits import Status, say
from quothcli.options import After, Form, Limit, Since, Timeout, Topic, Url, chosen, moment, start
from quothcli.output import Printer, ordinals_text, records_text
from quothwire.pointer import POINTER_MAX


def add(app: typer.Typer) -> None:
    """Put `tail`, `read` and `get` into the command."""
    command(
        app,
        "tail",
        "quoth tail greetings",
        "quoth tail orders --since -15m --format json | jq .value",
        "quoth tail orders --after 0 -n 10",
    )(tail)
    command(
        app,
        "read",
        "quoth read orders --limit 10",
        "quoth read orders --since -1d --until -1h --format json",
        "quoth read orders --format raw > orders.txt",
    )(read)
    command(app, "get", "quoth get orders 1767323045000001")(get)


def tail(
    context: typer.Context,
    topic: Topic,
    after: After = None,
    since: Since = None,
    number: Annotated[
        int | None, typer.Option("-n", "--number", metavar="N", min=1, help="Stop after N records.")
    ] = None,
    url: Url = None,
    timeout: Timeout = None,
    form: Form = None,
) -> int | None:
    """Print records as they come, until Ctrl-C.

    It begins now unless it is told where. It waits for a topic that does not exist yet, and for a broker
    that goes away for a while.
    """
    asked = chosen(context, url, timeout, form)
    begin = start(after, since)
    printer = Printer(asked.format)
    gaps = _Gaps()
    end_with_reader()
    try:
        with asked.connect() as client:
            for count, message in enumerate(client.tail(topic, after=begin, on_gap=gaps), 1):
                printer.message(message)
                printer.flush()  # who waits for records wants each of them now
                if count == number:
                    break
    except KeyboardInterrupt:
        return Status.DONE
    return gaps.status


def read(
    context: typer.Context,
    topic: Topic,
    after: After = None,
    since: Since = None,
    until: Annotated[
        str | None,
        typer.Option("--until", metavar="TIME", help="Stop before this time, given as for --since."),
    ] = None,
    limit: Limit = None,
    url: Url = None,
    timeout: Timeout = None,
    form: Form = None,
) -> int | None:
    """Print the records that are there now, oldest first, and end."""
    asked = chosen(context, url, timeout, form)
    begin, end = start(after, since), moment(until)
    printer = Printer(asked.format)
    gaps = _Gaps()
    with asked.connect() as client:
        for messages in _portions(client, topic, begin or 0, end, limit, gaps):
            printer.messages(messages)
    return gaps.status


def get(
    context: typer.Context,
    topic: Topic,
    pointer: Annotated[str, typer.Argument(metavar="POINTER", help="The record's pointer, or its time.")],
    url: Url = None,
    timeout: Timeout = None,
    form: Form = None,
) -> int | None:
    """Print the record with exactly this pointer."""
    asked = chosen(context, url, timeout, form)
    wanted = moment(pointer) or 0
    with asked.connect() as client:
        Printer(asked.format).message(client.get(topic, wanted))
    return None


class _Gaps:
    """Says on stderr what is missing between the records. Damage makes the command fail in the end."""

    def __init__(self) -> None:
        self.status = Status.DONE

    def __call__(self, gap: Gap) -> None:
        """A gap was found."""
        if gap.reason == "recreated":
            say(f"quoth: topic {gap.topic!r} was deleted and made anew: older records are gone")
        else:
            count = "an unknown number of records" if gap.records < 0 else records_text(gap.records)
            where = f"behind pointer {gap.after}, resumes at pointer {gap.next}"
            say(f"quoth: {count} gone, {gap.reason}: {where}{ordinals_text(gap.ordinal, gap.records)}")
        if gap.reason == "damaged":
            self.status = Status.FAILED


def _portions(
    client: Client, topic: str, after: int, until: int | None, limit: int | None, gaps: _Gaps
) -> Iterator[list[Message]]:
    """The records behind a cursor and before a time, as many at once as the broker sends."""
    end = POINTER_MAX if until is None else until - 1
    left = limit
    if left == 0:
        return
    for batch in client.batches(topic, after=after, until=until, on_gap=gaps):
        messages = list(islice(batch.readable(gaps), left))
        if batch.last > end:
            messages = [message for message in messages if message.pointer <= end]
        yield messages
        if left is not None:
            left -= len(messages)
            if left <= 0:
                return


def end_with_reader() -> None:
    """End this process when whoever reads its output has gone, even while there is nothing to print."""
    try:
        if not stat.S_ISFIFO(os.fstat(sys.stdout.fileno()).st_mode):
            return
    except OSError:
        return
    threading.Thread(target=_wait_for_reader, daemon=True).start()


def _wait_for_reader() -> None:
    poller = select.poll()
    poller.register(sys.stdout.fileno(), 0)  # nothing but POLLERR, which cannot be left out
    poller.poll()
    os._exit(Status.DONE)
