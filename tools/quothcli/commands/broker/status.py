"""`quoth status` and `quoth ping`: the broker's topics and totals, and whether it answers."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from quothcli.cli.command import command
from quothcli.cli.exit_status import say
from quothcli.cli.options import Form, Timeout, Url
from quothcli.cli.session import chosen
from quothcli.commands.broker.watch import lag_of
from quothcli.printing.formats import Format
from quothcli.printing.output import Printer, bytes_text, cells_of, padded, printable
from quothwire.text.quantity import format_size, format_span

if TYPE_CHECKING:
    from quoth import Client, Status, TopicInfo
    from quoth.cursor import Position


_WRONG = (
    "torn_bytes", "damaged_bytes", "lost_records", "set_aside_bytes", "scrub_damages", "scrub_missing_records"
)  # fmt: skip
"""Counters that `quoth status` reports unless they are 0."""


ROWS_MAX = 1_000
"""Each takes a question to the broker."""
_NAME_MAX = 24
"""A longer name moves the columns behind it."""
_HEADINGS = ("TOPIC", "RECORDS", "BYTES", "OLDEST", "NEWEST", "LAG", "KEEPS")
_LAYOUT = " {:>13} {:>7} {:>6} {:>6} {:>7}  {}"
"""Of the columns behind the name."""


def add(app: typer.Typer) -> None:
    """Put `status` and `ping` into the command."""
    command(app, "status", "quoth status", "quoth status --format json | jq .counters")(status)
    command(app, "ping", "quoth ping", "quoth ping --timeout 1 || quoth serve")(ping)


def status(
    context: typer.Context,
    rows: Annotated[
        int, typer.Option("--rows", metavar="N", min=0, help="Show N topics, by name.")
    ] = ROWS_MAX,
    cursor: Annotated[
        Path | None,
        typer.Option("--cursor", metavar="FILE", help="The cursor of a consumer, to see its lag."),
    ] = None,
    url: Url = None,
    timeout: Timeout = None,
    form: Form = None,
) -> None:
    """Show all topics in a table: what each holds and keeps.

    OLDEST and NEWEST are the ages of the oldest and the newest record that is kept. LAG is how many records
    the consumer of --cursor FILE is behind, or how long if that is not known; without FILE there is none.
    KEEPS is the retention: the age and the size above which the oldest records are removed. The totals go
    to stderr. --format json prints one object, with the topics in its list "rows". No topic is woken.
    """
    asked = chosen(context, url, timeout, form)
    if cursor is not None and asked.format is Format.RAW:
        raise typer.BadParameter(
            "raw prints names only: use text or json to see a lag", param_hint="--cursor"
        )
    printer = Printer(asked.format)
    with asked.connect() as client:
        found = client.status()
        names = list(found.states)[:rows]
        if asked.format is Format.JSON:
            printer.object(
                {**asdict(found), "rows": [_object(*row) for row in _described(client, names, cursor)]}
            )
            return
        if asked.format is Format.RAW:
            for name in names:
                printer.answer(name, {}, name)
        else:
            _print_table(printer, _described(client, names, cursor))
    printer.flush()
    if more := len(found.states) - len(names):
        say(f"quoth: {more:,} more topics; --rows {len(found.states)} shows all")
    say(
        f"{found.topics:,} topics, {found.active:,} active, {found.waits:,} waiting; {found.server}, "
        f"process {found.pid}, up {format_span(found.uptime, short=True, rough=True)}, {found.directory}"
    )
    if said := damage_text(found):
        say(f"quoth: something was damaged: {said}; `quoth log verify {found.directory}` tells more")


def _described(
    client: Client, names: Sequence[str], cursor: Path | None
) -> Iterator[tuple[TopicInfo, Position | None]]:
    """Yield each topic and how far the cursor has got in it, without topics that were deleted meanwhile."""
    from quoth import NotFound

    done = _positions_in(cursor) if cursor is not None else {}
    for name in names:
        try:
            yield client.topic(name), done.get(name)
        except NotFound:
            continue


def _positions_in(cursor: Path) -> Mapping[str, Position]:
    from quoth.cursor import positions_in  # loaded only if a cursor is given

    return positions_in(cursor)


def _object(info: TopicInfo, done: Position | None) -> dict[str, Any]:
    """Make the object of a topic, with the lag in records and in seconds; None if they are not known."""
    records, seconds = lag_of(info, done)
    return {**asdict(info), "lag": records, "lag_seconds": seconds}


def _print_table(printer: Printer, rows: Iterable[tuple[TopicInfo, Position | None]]) -> None:
    """Print a line for each topic, below the headings; nothing if there is none."""
    lines = [_cells(info, done, time.time()) for info, done in rows]
    width = min(_NAME_MAX, max([len("TOPIC"), *(cells_of(name) for name, *_ in lines)]))
    for name, *others in [_HEADINGS, *lines] if lines else []:
        printer.line((padded(name, width) + _LAYOUT.format(*others)).rstrip())


def _cells(info: TopicInfo, done: Position | None, now: float) -> tuple[str, ...]:
    records, seconds = lag_of(info, done)
    lag = f"{records:,}" if records is not None else "-" if seconds is None else _span(seconds)
    ages = [
        "-" if not pointer else _span(max(0.0, now - pointer / 1e6)) for pointer in (info.first, info.last)
    ]
    kept = [_span(info.settings["max_age"])] if info.settings.get("max_age") else []
    if info.settings.get("max_bytes"):
        kept.append(format_size(info.settings["max_bytes"]).replace(" ", ""))
    problem = f"  {printable(info.problem)}" if info.problem else ""
    keeps = " ".join(kept) or "all"
    size = bytes_text(info.bytes)
    return printable(info.name), f"{info.count:,}", size, *ages, lag, keeps + problem


def _span(seconds: float) -> str:
    return format_span(seconds, short=True, rough=True)


def damage_text(found: Status) -> str:
    """Name the broker's counters of damage that are not 0; empty if all are."""
    wrong = {name: found.counters.get(name, 0) for name in _WRONG}
    return ", ".join(f"{name} {number:,}" for name, number in wrong.items() if number)


def ping(context: typer.Context, url: Url = None, timeout: Timeout = None, form: Form = None) -> None:
    """Measure one round trip to the broker.

    The exit status is 4 if the broker does not answer.
    """
    asked = chosen(context, url, timeout, form)
    with asked.connect() as client:
        seconds = client.ping()
    Printer(asked.format).answer(
        f"{asked.address} answers in {seconds * 1e3:.3f} ms",
        {"url": asked.address, "seconds": seconds},
        f"{seconds:.6f}",
    )
