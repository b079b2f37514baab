"""`quoth tail`, `quoth read` and `quoth get`: records of topics, on stdout."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Annotated

import typer

from quothcli.cli.command import command
from quothcli.cli.exit_status import Status, say, terminable
from quothcli.cli.options import (
    After,
    CursorFile,
    Form,
    Limit,
    Merge,
    Since,
    Template,
    Timeout,
    Topic,
    Topics,
    Until,
    Url,
    moment,
    start,
)
from quothcli.cli.session import chosen
from quothcli.printing.output import Printer
from quothcli.printing.record_printer import (
    Delivery,
    Gaps,
    Holds,
    are_several,
    end_with_reader,
    opened,
    tell_watermark,
)
from quothcli.printing.rows import Rows, are_for_a_terminal, has_colour
from quothcli.printing.template import chosen_template
from quothcli.records.filters import Grep, Headers, Key, wanted
from quothcli.records.last import starts_of_last

if TYPE_CHECKING:
    from quoth import Message, Reading
    from quoth.timestamps import Start


BEAT_S = 1.0
"""How often a merge that is silent is looked at."""

_Number = Annotated[
    int | None,
    typer.Option(
        "-n",
        "--number",
        metavar="N",
        min=0,
        help="Begin with the last N records of each topic, with --merge with the last N of all.",
    ),
]
_Watermark = Annotated[
    bool,
    typer.Option(
        "--watermark",
        help="With --merge, tell up to when everything has been printed: as an object between those "
        "of --format json, else on stderr.",
    ),
]
_Wait = Annotated[
    bool,
    typer.Option(
        "--wait/--no-wait", help="Wait for a broker that is not there yet (default: yes).", show_default=False
    ),
]
_Pointers = Annotated[bool, typer.Option("--pointers", help="On a terminal, show pointers, too.")]


def add(app: typer.Typer) -> None:
    """Put `tail`, `read` and `get` into the command."""
    command(
        app,
        "tail",
        "quoth tail greetings",
        "quoth tail orders --since -15m --format json | jq .value",
        "quoth tail orders -n 10",
        "quoth tail orders --since -1d --key customer-1 --grep '(?i)refund'",
        "quoth tail 'orders.*' payments --merge --template '{time:%H:%M:%S} {topic} {key}: {value}'",
        "quoth tail orders --cursor orders.cursor --since -1h >> orders.txt",
    )(tail)
    command(
        app,
        "read",
        "quoth read orders --limit 10",
        "quoth read orders --since -1d --until -1h --format jsonl | jq .key",
        "quoth read orders --format raw > orders.txt",
        "quoth read 'orders.*' --merge --cursor nightly.cursor",
    )(read)
    command(
        app,
        "get",
        "quoth get orders 1767323045000001",
        "quoth get orders 2026-01-02T03:04:05.000001Z --template '{headers[trace]!raw}'",
    )(get)


def tail(
    context: typer.Context,
    topics: Topics,
    number: _Number = None,
    after: After = None,
    since: Since = None,
    limit: Limit = None,
    key: Key = None,
    grep: Grep = None,
    headers: Headers = None,
    merge: Merge = False,
    watermark: _Watermark = False,
    cursor: CursorFile = None,
    wait: _Wait = True,
    pointers: _Pointers = False,
    url: Url = None,
    timeout: Timeout = None,
    form: Form = None,
    template: Template = None,
) -> int | None:
    """Print records as they come, until Ctrl-C.

    It begins now, or where an option says, and goes on from there. It waits for a topic that does not exist
    yet, and for a broker that is not there yet or goes away for a while. A terminal shows the time, the key
    and the value in columns, with a line where the date changes; a pipe gets what --format text prints.

    With --key, --grep or --header the other records are left out: they do not count for --limit, and are done
    for --cursor. -n counts them, as `tail -n N -f FILE | grep` does.

    With --cursor it goes on behind what it has written before; of a topic that FILE does not know it prints
    all. The cursor moves when a record is written to the pipe, even if the reader stops early: use --limit 5,
    not `| head -5`.

    With --merge a record is printed once no topic can have an older one to come. That takes milliseconds,
    more with hundreds of topics; equal times go by the topics' names. Only where the broker's clock steps
    back, a record comes late. That is said, and so is what holds up the others for long.
    """
    asked = chosen(context, url, timeout, form)
    if number is not None and (after is not None or since is not None):
        raise typer.BadParameter(
            "it says where to begin, as --after and --since do: give one of them (--limit N: end after N)",
            param_hint="-n",
        )
    if watermark and not merge:
        raise typer.BadParameter("only a --merge has one", param_hint="--watermark")
    chosen_records = wanted(key, grep, headers)
    begins = number is not None or start(after, since) is not None
    printer = Printer(asked.format, chosen_template(template, asked.form))
    is_plain = asked.form is not None or template is not None
    line = _line(printer, topics, in_columns=not is_plain and are_for_a_terminal(), pointers=pointers)
    gaps = Gaps()
    end_with_reader()
    try:
        with terminable(), opened(cursor, has_beginning=begins) as kept, asked.connect(wait=wait) as client:
            behind: Start | None = moment(after)
            if number is not None and not (kept is not None and kept.topics):
                behind = starts_of_last(client, topics, number, merged=merge)
            delivery = Delivery(line, kept, limit, chosen_records)
            if delivery.is_done:
                return None
            with client.tail_many(
                topics, after=behind, since=moment(since), cursor=kept, ordered=merge, on_gap=gaps
            ) as reading:
                if not reading.topics:
                    say("quoth: no topic matches yet; waiting for one")
                _follow(reading, delivery, printer if watermark else None, merge=merge)
    except KeyboardInterrupt:
        return Status.DONE
    return gaps.status


def read(
    context: typer.Context,
    topics: Topics,
    after: After = None,
    since: Since = None,
    until: Until = None,
    limit: Limit = None,
    key: Key = None,
    grep: Grep = None,
    headers: Headers = None,
    merge: Merge = False,
    cursor: CursorFile = None,
    url: Url = None,
    timeout: Timeout = None,
    form: Form = None,
    template: Template = None,
) -> int | None:
    """Print the records that are there now, oldest first, and end.

    Of several topics each line begins with its topic, and each topic's records keep their order; with --merge
    all of them come in the order of time. With a cursor it prints what has come since the last time. With
    --key, --grep or --header the other records are left out: they do not count for --limit, and are done for
    --cursor.
    """
    asked = chosen(context, url, timeout, form)
    chosen_records = wanted(key, grep, headers)
    begins, end = start(after, since) is not None, moment(until)
    printer = Printer(asked.format, chosen_template(template, asked.form))
    gaps = Gaps()
    with terminable(), opened(cursor, has_beginning=begins) as kept, asked.connect() as client:
        delivery = Delivery(_line(printer, topics), kept, limit, chosen_records)
        if delivery.is_done:
            return None
        behind, at = moment(after), moment(since)
        reading = client.read_many(
            topics, after=behind, since=at, until=end, cursor=kept, ordered=merge, on_gap=gaps
        )
        with reading, delivery:
            for messages in reading.portions():
                delivery.take(messages)
                if delivery.is_done:
                    break
    return gaps.status


def get(
    context: typer.Context,
    topic: Topic,
    pointer: Annotated[str, typer.Argument(metavar="POINTER", help="The record's pointer, or its time.")],
    url: Url = None,
    timeout: Timeout = None,
    form: Form = None,
    template: Template = None,
) -> int | None:
    """Print the record with exactly this pointer."""
    asked = chosen(context, url, timeout, form)
    printer = Printer(asked.format, chosen_template(template, asked.form))
    exactly = moment(pointer) or 0
    with asked.connect() as client:
        printer.message(client.get(topic, exactly))
    return None


def _line(
    printer: Printer, topics: Sequence[str], *, in_columns: bool = False, pointers: bool = False
) -> Callable[[Message], bytes]:
    """How a record is printed."""
    several = are_several(topics)
    if in_columns:
        return Rows(pointers=pointers, with_topic=several, colour=has_colour())
    return partial(printer.encoded, with_topic=several)


def _follow(reading: Reading, delivery: Delivery, marks: Printer | None, *, merge: bool) -> None:
    """Print what comes. marks: prints watermarks."""
    holds = Holds(reading)
    told = 0
    with delivery:
        for messages in reading.portions(BEAT_S if merge else math.inf):
            delivery.take(messages)
            holds.look(messages)
            if marks is not None and reading.watermark > told:
                told = reading.watermark
                tell_watermark(marks, told)
            if delivery.is_done:
                return
