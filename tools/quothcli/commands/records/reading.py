"""`quoth tail`, `read` and `get` print records of topics; `count` and `split` tell what a range holds."""

from __future__ import annotations

import math
import sys
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

from typer import BadParameter

from quoth.timestamps import as_pointer
from quothcli.cli.command import argument, command, group, option
from quothcli.cli.exit_status import CommandStatus, say, terminable
from quothcli.cli.options import (
    After,
    Between,
    CursorFile,
    Limit,
    Merge,
    Pointers,
    Since,
    Template,
    Topic,
    Topics,
    Until,
    Wait,
    WithBroker,
    WithBrokerOfRecords,
    start,
)
from quothcli.printing.output import Printer
from quothcli.printing.record_printer import (
    GapReporter,
    MergeReporter,
    RecordPrinter,
    are_several,
    end_with_reader,
    opened,
    print_watermark,
)
from quothcli.printing.rows import line_of
from quothcli.printing.template import template_of
from quothcli.printing.text import bytes_text, records_text, time_or_dash
from quothcli.records.filters import Filtered
from quothcli.records.last import starts_of_last

if TYPE_CHECKING:
    from quoth import Reading
    from quoth.timestamps import Start


LOOK_S = 1.0
"""Time between two looks at a silent merge."""

_Number = Annotated[
    int | None,
    option(
        "-n --number N",
        "Begin with the last N records of each topic, with --merge with the last N of all.",
        min=0,
    ),
]
_Watermark = Annotated[
    bool,
    option(
        "--watermark",
        "With --merge, print up to when all records are printed: as an object between those "
        "of --format json, else on stderr.",
    ),
]


app = group()


@command(
    app,
    "tail",
    "quoth tail greetings",
    "quoth tail orders --since -15m --format json | jq .value",
    "quoth tail orders -n 10",
    "quoth tail orders --since -1d --key customer-1 --grep '(?i)refund'",
    "quoth tail 'orders.*' payments --merge --template '{time:%H:%M:%S} {topic} {key}: {value}'",
    "quoth tail orders --cursor orders.cursor --since -1h >> orders.txt",
)
def tail(
    session: WithBrokerOfRecords,
    passes: Filtered,
    topics: Topics,
    number: _Number = None,
    after: After = None,
    since: Since = None,
    limit: Limit = None,
    merge: Merge = False,
    watermark: _Watermark = False,
    cursor: CursorFile = None,
    wait: Wait = True,
    pointers: Pointers = False,
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
    back, a record comes late. That is reported, and so is a topic that the others wait for.
    """
    if number is not None and (after is not None or since is not None):
        raise BadParameter(
            "it says where to begin, as --after and --since do: give one of them (--limit N: end after N)",
            param_hint="-n",
        )
    if watermark and not merge:
        raise BadParameter("only a --merge has one", param_hint="--watermark")
    begins = number is not None or start(after, since) is not None
    printer = Printer(session.format, template_of(template, session.form))
    is_plain = session.form is not None or template is not None
    in_columns = not is_plain and sys.stdout.isatty()
    line = line_of(printer, with_topic=are_several(topics), in_columns=in_columns, pointers=pointers)
    gaps = GapReporter()
    end_with_reader()
    try:
        with terminable(), opened(cursor, has_beginning=begins) as kept, session.connect(wait=wait) as client:
            behind: Start | None = after
            if number is not None and not (kept is not None and kept.topics):
                behind = starts_of_last(client, topics, number, merged=merge)
            records = RecordPrinter(line, kept, limit, passes)
            if records.is_done:
                return None
            with client.tail_many(
                topics, after=behind, since=since, cursor=kept, ordered=merge, on_gap=gaps
            ) as reading:
                if not reading.topics:
                    say("quoth: no topic matches yet; waiting for one")
                _follow(reading, records, printer if watermark else None, merge=merge)
    except KeyboardInterrupt:
        return CommandStatus.DONE
    return gaps.status


@command(
    app,
    "read",
    "quoth read orders --limit 10",
    "quoth read orders --since -1d --until -1h --format jsonl | jq .key",
    "quoth read orders --format raw > orders.txt",
    "quoth read 'orders.*' --merge --cursor nightly.cursor",
)
def read(
    session: WithBrokerOfRecords,
    passes: Filtered,
    topics: Topics,
    after: After = None,
    since: Since = None,
    until: Until = None,
    limit: Limit = None,
    merge: Merge = False,
    cursor: CursorFile = None,
    template: Template = None,
) -> int | None:
    """Print the records that are there now, oldest first, and end.

    Of several topics each line begins with its topic, and each topic's records keep their order; with --merge
    all of them come in the order of time. With a cursor it prints what has come since the last time. With
    --key, --grep or --header the other records are left out: they do not count for --limit, and are done for
    --cursor.
    """
    begins = start(after, since) is not None
    printer = Printer(session.format, template_of(template, session.form))
    gaps = GapReporter()
    with terminable(), opened(cursor, has_beginning=begins) as kept, session.connect() as client:
        records = RecordPrinter(line_of(printer, with_topic=are_several(topics)), kept, limit, passes)
        if records.is_done:
            return None
        reading = client.read_many(
            topics, after=after, since=since, until=until, cursor=kept, ordered=merge, on_gap=gaps
        )
        with reading, records:
            for messages in reading.portions():
                records.take(messages)
                if records.is_done:
                    break
    return gaps.status


@command(
    app,
    "get",
    "quoth get orders 1767323045000001",
    "quoth get orders 2026-01-02T03:04:05.000001Z --template '{headers[trace]!raw}'",
)
def get(
    session: WithBroker,
    topic: Topic,
    pointer: Annotated[int, argument("POINTER", "The record's pointer, or its time.", parser=as_pointer)],
    template: Template = None,
) -> None:
    """Print the record with exactly this pointer."""
    printer = Printer(session.format, template_of(template, session.form))
    with session.connect() as client:
        printer.message(client.get(topic, pointer))


@command(app, "count", "quoth count orders", "quoth count orders --since -1d --until -1h")
def count(session: WithBroker, between: Between, topic: Topic) -> None:
    """Count records, without reading them.

    Damaged records count, too, though they cannot be read.
    """
    with session.connect() as client:
        found = client.count(topic, *between)
    text = f"{records_text(found.records)}, {bytes_text(found.bytes)}"
    if found.first:
        text += f", {time_or_dash(found.first)} to {time_or_dash(found.last)}"
    if found.gone:
        text += f"; up to {records_text(found.gone)} are not kept any more"
    session.printer.answer(text, {"topic": topic, **asdict(found)}, found.records)


@command(app, "split", "quoth split orders --parts 8", "quoth split orders --parts 8 --format jsonl")
def split(
    session: WithBroker,
    between: Between,
    topic: Topic,
    parts: Annotated[int, option("--parts N", "How many at most.", min=1)],
) -> None:
    """Divide records into parts that are about equal.

    A line a part: the pointer that it begins behind, the pointer of its last record, records, bytes. No batch
    is divided, so the parts are read at full speed: `quoth read TOPIC --after POINTER --limit RECORDS`.
    """
    from quothwire.protocol.messages import PARTS_MAX

    if parts > PARTS_MAX:
        raise BadParameter(f"{parts} is out of range: 1 to {PARTS_MAX}", param_hint="--parts")
    with session.connect() as client:
        found = client.split(topic, *between, parts)
    for one in found:
        text = f"{one.after} {one.until}  {records_text(one.records)}, {bytes_text(one.bytes)}"
        session.printer.answer(text, {"topic": topic, **one._asdict()}, f"{one.after} {one.until}")


def _follow(reading: Reading, records: RecordPrinter, watermarks: Printer | None, *, merge: bool) -> None:
    """Print records as they come. watermarks: prints watermarks."""
    merge_reporter = MergeReporter(reading)
    printed = 0
    with records:
        for messages in reading.portions(LOOK_S if merge else math.inf):
            records.take(messages)
            merge_reporter.look(messages)
            if watermarks is not None and reading.watermark > printed:
                printed = reading.watermark
                print_watermark(watermarks, printed)
            if records.is_done:
                return
