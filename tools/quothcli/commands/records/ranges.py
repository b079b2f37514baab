"""`quoth count` and `quoth split`: count and divide a range of a topic without reading it."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated

from typer import BadParameter

from quothcli.cli.command import command, group, option
from quothcli.cli.options import Between, Topic, WithBroker
from quothcli.printing.text import bytes_text, records_text, time_or_dash

app = group()


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
