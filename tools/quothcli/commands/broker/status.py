"""`quoth status` and `quoth ping`: the topics and totals of a broker, and a round trip to it."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from typer import BadParameter

from quothcli.cli.command import command, group, option
from quothcli.cli.exit_status import say
from quothcli.cli.options import WithBroker
from quothcli.commands.broker.watch import lag_of, positions_of, topics_of
from quothcli.printing.output import Format, Printer
from quothcli.printing.text import bytes_text, cells_of, padded, printable, span_text
from quothwire.text.quantity import format_size

if TYPE_CHECKING:
    from quoth import Client, Status, TopicInfo


_HOT_PATHS = {0: " in Python", 1: " in C"}
"""The broker's hot path, by its counter `compiled`."""
_WRONG = (
    "torn_bytes", "damaged_bytes", "lost_records", "quarantined_bytes", "scrub_damages",
    "scrub_missing_records",
)  # fmt: skip
"""Counters that `quoth status` reports unless they are 0."""
ROWS_MAX = 1_000
"""Topics that are shown by default; each takes a request."""
_SIZES = ("store_bytes", "request_bytes")
"""Quotas that are counted in bytes."""
_NAME_MAX = 24
"""Width of the column of names; a longer name moves the others."""
_HEADINGS = ("TOPIC", "RECORDS", "BYTES", "OLDEST", "NEWEST", "LAG", "KEEPS")
_LAYOUT = " {:>13} {:>7} {:>6} {:>6} {:>7}  {}"
"""Layout of the columns behind the name."""


app = group()


@command(app, "status", "quoth status", "quoth status --format json | jq .counters")
def status(
    session: WithBroker,
    rows: Annotated[int, option("--rows N", "Show N topics, by name.", min=0)] = ROWS_MAX,
    cursor: Annotated[
        Path | None, option("--cursor FILE", "The cursor of a consumer, to see its lag.")
    ] = None,
) -> None:
    """Show all topics in a table: what each holds and keeps.

    OLDEST and NEWEST are the ages of the oldest and the newest record that is kept. LAG is how many records
    the consumer of --cursor FILE is behind, or how long if that is not known; without FILE there is none.
    KEEPS is the retention: the age and the size above which the oldest records are removed. The totals go
    to stderr, and what each client has of its quotas, which only an admin of all topics sees of others.
    --format json prints one object, with the topics in its list "rows". No topic is opened for it.
    """
    if cursor is not None and session.format is Format.RAW:
        raise BadParameter("raw prints names only: use text or json to see a lag", param_hint="--cursor")
    printer = session.printer
    with session.connect() as client:
        found = client.status()
        names = list(found.states)[:rows]
        if printer.form is Format.RAW:
            for name in names:
                printer.line(name)
        else:
            described = _described(client, names, cursor)
            if printer.form is Format.JSON:
                printer.object({**asdict(found), "rows": [_object(*row) for row in described]})
                return
            _print_table(printer, described)
    printer.flush()
    if more := len(found.states) - len(names):
        say(f"quoth: {more:,} more topics; --rows {len(found.states)} shows all")
    say(
        f"{found.topics:,} topics, {found.active:,} active, {found.waits:,} waiting; {found.server}"
        f"{_HOT_PATHS.get(found.counters.get('compiled', -1), '')}, "
        + (f"process {found.pid}, " if found.pid else "")  # only an admin of all topics sees it
        + f"up {span_text(found.uptime)}"
        + (f", {found.directory}" if found.directory else "")
    )
    for name, amounts in found.clients.items():
        if text := quotas_text(amounts):
            say(f"client {name}: {text}")
    if damage := damage_text(found):
        say(f"quoth: something was damaged: {damage}; `quoth log verify {found.directory}` tells more")
    if letters := letters_text(found):
        say(f"quoth: {letters}; `quoth group ls` tells why")
    if problem := announcer_text(found):
        say(f"quoth: {problem}; restart the broker")


def _described(
    client: Client, names: Sequence[str], cursor: Path | None
) -> Iterator[tuple[TopicInfo, int | None, float | None]]:
    """Yield each topic and the records and seconds that the cursor is behind, None if unknown."""
    done = positions_of(cursor)
    return ((info, *lag_of(info, done.get(name))) for name, info in topics_of(client, names))


def _object(info: TopicInfo, records: int | None, seconds: float | None) -> dict[str, Any]:
    return {**asdict(info), "lag": records, "lag_seconds": seconds}


def _print_table(printer: Printer, rows: Iterable[tuple[TopicInfo, int | None, float | None]]) -> None:
    """Print a line for each topic, below the headings; nothing if there is none."""
    lines = [_columns(*row, time.time()) for row in rows]
    width = min(_NAME_MAX, max([len("TOPIC"), *(cells_of(name) for name, *_ in lines)]))
    for name, *others in [_HEADINGS, *lines] if lines else []:
        printer.line((padded(name, width) + _LAYOUT.format(*others)).rstrip())


def _columns(info: TopicInfo, records: int | None, seconds: float | None, now: float) -> tuple[str, ...]:
    lag = f"{records:,}" if records is not None else "-" if seconds is None else span_text(seconds)
    ages = [span_text(max(0.0, now - at / 1e6)) if at else "-" for at in (info.first, info.last)]
    kept = [span_text(info.settings["max_age"])] if info.settings.get("max_age") else []
    if info.settings.get("max_bytes"):
        kept.append(format_size(info.settings["max_bytes"]).replace(" ", ""))
    keeps = (" ".join(kept) or "all") + (f"  {printable(info.problem)}" if info.problem else "")
    return printable(info.name), f"{info.count:,}", bytes_text(info.bytes), *ages, lag, keeps


def quotas_text(amounts: dict[str, list[int]]) -> str:
    """List what a client has, and its limits; leaves out what is neither in use nor limited."""
    parts = []
    for quota, (used, limit) in amounts.items():
        if used or limit >= 0:
            shown = [bytes_text(one) if quota in _SIZES else f"{one:,}" for one in (used, limit)]
            parts.append(f"{quota} {' of '.join(shown if limit >= 0 else shown[:1])}")
    return ", ".join(parts)


def server_text(status: Status) -> str:
    """Name the broker's version and process, which only an admin of all topics sees."""
    return f"{status.server}, process {status.pid}" if status.pid else status.server


def damage_text(found: Status) -> str:
    """List the counters of damage that are not 0."""
    wrong = {name: found.counters.get(name, 0) for name in _WRONG}
    return ", ".join(f"{name} {number:,}" for name, number in wrong.items() if number)


def letters_text(found: Status) -> str:
    """Say of how many groups no dead letters can be written; empty for none."""
    groups = found.counters.get("dead_letters_delayed", 0)
    return f"the dead letters of {groups:,} group{'s' * (groups != 1)} cannot be written" if groups else ""


def announcer_text(found: Status) -> str:
    """Say that no announcements are sent any more; empty if they are."""
    has_failed = found.counters.get("announcer_running", 1) == 0
    return "the thread of the announcements has failed: readers get records later" if has_failed else ""


@command(app, "ping", "quoth ping", "quoth ping --timeout 1 || quoth serve")
def ping(session: WithBroker) -> None:
    """Measure one round trip to the broker.

    The exit status is 4 if the broker does not answer.
    """
    with session.connect() as client:
        seconds = client.ping()
    session.printer.answer(
        f"{session.broker.url} answers in {seconds * 1e3:.3f} ms",
        {"url": session.broker.url, "seconds": seconds},
        f"{seconds:.6f}",
    )
