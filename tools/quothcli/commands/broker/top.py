"""`quoth top`: shows the broker and its busiest topics at intervals."""

from __future__ import annotations

import shutil
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import asdict
from datetime import UTC, datetime
from functools import partial
from itertools import count as counting
from pathlib import Path
from typing import Annotated, Any, NamedTuple

from quoth import Disconnected, QuothError
from quothcli.cli.command import command, group, option
from quothcli.cli.exit_status import terminable
from quothcli.cli.options import WithBroker
from quothcli.cli.quantities import span_option
from quothcli.commands.broker.status import server_text
from quothcli.commands.broker.watch import BrokerView, Sort, TopicRow, Watch
from quothcli.printing.output import Format, Printer
from quothcli.printing.record_printer import end_with_reader
from quothcli.printing.text import bytes_text, printable, span_text

ROWS = 20
"""Topics that are shown where there is no screen."""
_ABOVE = 4
_ANSWER_S = 2.0
"""Time in which a broker answers; else it is shown as away until the next interval."""
_NAME_COLUMNS = 24
"""Columns of a screen that topics' names have at least."""
_URL_COLUMNS = 20
"""Length below which a URL is not cut."""


class _Column(NamedTuple):
    """A column in front of the names. Where there is no room, the highest rank is left out first."""

    heading: str
    layout: str
    rank: int
    text: Callable[[TopicRow], str]


_COLUMNS = (
    _Column("RECORDS/S", ">11", 0, lambda row: _rate(row.records_per_second)),
    _Column("BYTES/S", ">9", 3, lambda row: _size(row.bytes_per_second)),
    _Column("RECORDS", ">15", 4, lambda row: f"{row.records:,}"),
    _Column("BYTES", ">8", 5, lambda row: bytes_text(row.bytes)),
    _Column("AGE", ">9", 2, lambda row: _span_or_dash(row.age)),
    _Column(
        "LAG", ">9", 1, lambda row: _span_or_dash(row.lag_seconds) if row.lag is None else f"{row.lag:,}"
    ),
    _Column("SEGMENTS", "<10", 6, lambda row: _segments(row.states)),
)


app = group()


@command(
    app,
    "top",
    "quoth top",
    "quoth top --sort lag --cursor billing.cursor --interval 5",
    "quoth top --count 1 --format json | jq '.topics[0]'",
)
def top(
    session: WithBroker,
    sort: Annotated[
        Sort, option("--sort", "Order of the topics: rate, bytes (a second), name, age, lag.")
    ] = "rate",
    interval: Annotated[
        float, span_option("--interval", "Time between two views: 500ms, 5s (default: 1s).", 0.1, 86_400)
    ] = 1.0,
    count: Annotated[
        int | None, option("--count N", "End after N intervals (default: go on).", min=1)
    ] = None,
    rows: Annotated[
        int | None, option("--rows N", f"Show N topics (default: a screen of them, else {ROWS}).", min=0)
    ] = None,
    cursor: Annotated[
        Path | None,
        option("--cursor FILE", "The cursor of a consumer (`quoth tail --cursor`), to see its lag."),
    ] = None,
) -> None:
    """Watch the broker and its busiest topics, until Ctrl-C.

    Rates are of the last interval, this command's own requests among them. Age is how long ago the newest
    record was written, lag how many records a consumer's cursor is behind. Hibernating topics stay so; they
    fill the rows that are left, by name. One that was active only within the interval is not noticed. A
    broker that goes away is awaited. Without a terminal a table, or an object, is printed every interval.
    """
    printer = session.printer
    live = printer.form is Format.TEXT and sys.stdout.isatty()
    end_with_reader()
    with (
        suppress(KeyboardInterrupt),
        terminable(),
        session.connect() as client,
        _screen() if live else nullcontext(partial(_print, printer)) as show,
    ):
        client.timeout = min(client.timeout, session.timeout or _ANSWER_S)
        watch = Watch(client, sort, cursor)
        for number in counting():
            screen = max(1, shutil.get_terminal_size().lines - _ABOVE) if live else ROWS
            view = _look(watch, screen if rows is None else rows)
            if number or live:
                show(client.url, view)
            if number == count:
                break
            time.sleep(interval)


def _look(watch: Watch, rows_max: int) -> BrokerView | QuothError:
    """Return a view, or the error that prevents it now."""
    try:
        return watch.look(rows_max)
    except QuothError as problem:
        if not problem.retryable:
            raise
        return problem


def _print(printer: Printer, url: str, view: BrokerView | QuothError) -> None:
    """Print a view behind the one before."""
    printer.answer("\n".join([*_lines(url, view), ""]), _content(url, view))


@contextmanager
def _screen() -> Iterator[Callable[[str, BrokerView | QuothError], None]]:
    """Show views on the terminal, one in the place of the other."""
    from rich.live import Live
    from rich.text import Text

    with Live(auto_refresh=False) as live:

        def show(url: str, view: BrokerView | QuothError) -> None:
            width = live.console.width
            lines = _lines(url, view, _columns(width), width)
            live.update(Text("\n".join(lines), no_wrap=True, overflow="ellipsis"), refresh=True)

        yield show


def _lines(
    url: str, view: BrokerView | QuothError, columns: Sequence[_Column] = _COLUMNS, width: int | None = None
) -> list[str]:
    """Lay out a view. width: of the screen, to which a long URL is cut; None: no limit."""
    at = datetime.now(UTC).strftime("%H:%M:%SZ")
    if isinstance(view, QuothError):
        what = "away" if isinstance(view, Disconnected) else "not now"
        return [f"{url}  {at}  {what}: {printable(view.text)}"]
    status = view.status
    broker = f"  {server_text(status)}, up {span_text(status.uptime)}  {at}"
    room = len(url) if width is None else max(_URL_COLUMNS, width - len(broker))
    return [
        (url if len(url) <= room else f"{url[: room - 3]}...") + broker,
        f"{status.topics:,} topics, {status.active:,} active, {status.waits:,} waiting, "
        f"{_rate(view.requests_per_second)} req/s, {_rate(view.syncs_per_second)} syncs/s",
        f"{_heading(columns)}TOPIC",
        *(_line(row, columns) for row in view.rows),
    ]


def _columns(width: int) -> list[_Column]:
    """Choose the columns that leave room for the names."""
    columns = [*_COLUMNS]
    while columns and len(_heading(columns)) + _NAME_COLUMNS > width:
        columns.remove(max(columns, key=lambda column: column.rank))
    return columns


def _heading(columns: Sequence[_Column]) -> str:
    return "".join(f"{column.heading:{column.layout}}  " for column in columns)


def _line(row: TopicRow, columns: Sequence[_Column]) -> str:
    problem = f"  {printable(row.problem)}" if row.problem else ""
    before = "".join(f"{column.text(row):{column.layout}}  " for column in columns)
    return f"{before}{printable(row.name)}{problem}"


def _content(url: str, view: BrokerView | QuothError) -> dict[str, Any]:
    at = {"time": datetime.now(UTC).isoformat().replace("+00:00", "Z"), "url": url}
    if isinstance(view, QuothError):
        return {**at, "away": view.code, "text": view.text}
    status = asdict(view.status)
    del status["states"], status["counters"]
    rates = {"requests_per_second": view.requests_per_second, "syncs_per_second": view.syncs_per_second}
    broker = {**status, "seconds": view.seconds, **rates}
    return {**at, "away": None, "broker": broker, "topics": [asdict(row) for row in view.rows]}


def _rate(rate: float | None) -> str:
    return "-" if rate is None else f"{rate:,.0f}" if rate >= 10 else f"{rate:,.1f}"


def _size(size: float | None) -> str:
    return "-" if size is None else bytes_text(size)


def _segments(states: str) -> str:
    """Count each letter of the states."""
    counts = Counter(states).items()
    return " ".join(f"{number}{letter}" if number > 1 else letter for letter, number in counts)


def _span_or_dash(seconds: float | None) -> str:
    return "-" if seconds is None else span_text(seconds)
