"""`quoth top`: the broker and its busiest topics, again and again."""

from __future__ import annotations

import shutil
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from datetime import UTC, datetime
from itertools import count as counting
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import typer

from quoth import Disconnected, QuothError
from quothcli.cli.command import command
from quothcli.cli.exit_status import Status, terminable
from quothcli.cli.options import Form, Timeout, Url
from quothcli.cli.quantities import span
from quothcli.cli.session import chosen
from quothcli.commands.broker.watch import Row, Sort, View, Watch
from quothcli.printing.formats import Format
from quothcli.printing.output import Printer, bytes_text, printable
from quothcli.printing.record_printer import end_with_reader
from quothwire.text.quantity import format_span

ROWS = 20
"""Where there is no screen that has room for so many and no more."""
_ABOVE = 4
_ANSWER_S = 2.0
"""A broker that takes longer is shown as away; it is asked again after the interval."""
_NAME_COLUMNS = 24
"""So much of a topic's name is to be seen on a screen, whatever else is not."""
_URL_COLUMNS = 20
"""A URL is not cut below this length."""


class _Column(NamedTuple):
    """A column in front of the names; the highest rank goes first where there is no room."""

    heading: str
    layout: str
    rank: int
    text: Callable[[Row], str]


_COLUMNS = (
    _Column("RECORDS/S", ">11", 0, lambda row: _rate(row.records_per_second)),
    _Column("BYTES/S", ">9", 3, lambda row: _size(row.bytes_per_second)),
    _Column("RECORDS", ">15", 4, lambda row: f"{row.records:,}"),
    _Column("BYTES", ">8", 5, lambda row: bytes_text(row.bytes)),
    _Column("AGE", ">9", 2, lambda row: _span_or_not(row.age)),
    _Column("LAG", ">9", 1, lambda row: _span_or_not(row.lag_seconds) if row.lag is None else f"{row.lag:,}"),
    _Column("SEGMENTS", "<10", 6, lambda row: _segments(row.states)),
)


def add(app: typer.Typer) -> None:
    """Put `top` into the command."""
    command(
        app,
        "top",
        "quoth top",
        "quoth top --sort lag --cursor billing.cursor --interval 5",
        "quoth top --count 1 --format json | jq '.topics[0]'",
    )(top)


def top(
    context: typer.Context,
    sort: Annotated[
        Sort, typer.Option("--sort", help="What stands above: rate, bytes (a second), name, age, lag.")
    ] = Sort.RATE,
    interval: Annotated[
        float,
        typer.Option(
            "--interval",
            metavar="SPAN",
            parser=span("--interval", 0.1, 86_400),
            help="From one look to the next: 500ms, 5s (default: 1s).",
            show_default=False,
        ),
    ] = 1.0,
    count: Annotated[
        int | None,
        typer.Option("--count", metavar="N", min=1, help="End after N intervals (default: go on)."),
    ] = None,
    rows: Annotated[
        int | None,
        typer.Option(
            "--rows", metavar="N", min=0, help=f"Show N topics (default: a screen of them, else {ROWS})."
        ),
    ] = None,
    cursor: Annotated[
        Path | None,
        typer.Option(
            "--cursor",
            metavar="FILE",
            help="The cursor of a consumer (`quoth tail --cursor`), to see its lag.",
        ),
    ] = None,
    url: Url = None,
    timeout: Timeout = None,
    form: Form = None,
) -> int:
    """Watch the broker and its busiest topics, until Ctrl-C.

    Rates are of the last interval, this command's own requests among them. Age is how long ago the newest
    record was written, lag how many records a consumer's cursor is behind. Topics that sleep are not woken;
    they fill the rows that are left, by name. One that woke and slept again within the interval is not
    noticed. A broker that goes away is waited for. Elsewhere than on a terminal a table, or an object, is
    printed every interval.
    """
    asked = chosen(context, url, timeout, form)
    printer = Printer(asked.format)
    live = printer.form is Format.TEXT and sys.stdout.isatty()
    end_with_reader()
    try:
        with terminable(), asked.connect() as client, _screen() if live else _paper(printer) as show:
            client.timeout = min(client.timeout, asked.timeout or _ANSWER_S)
            watch = Watch(client, sort, cursor)
            for number in counting():
                view = _look(watch, _rows(live) if rows is None else rows)
                if number or live:
                    show(client.url, view)
                if number == count:
                    break
                time.sleep(interval)
    except KeyboardInterrupt:
        pass
    return Status.DONE


def _look(watch: Watch, rows_max: int) -> View | QuothError:
    """A look, or why there is none now."""
    try:
        return watch.look(rows_max)
    except QuothError as problem:
        if not problem.retryable:
            raise
        return problem


def _rows(live: bool) -> int:
    return max(1, shutil.get_terminal_size().lines - _ABOVE) if live else ROWS


Show = Callable[[str, View | QuothError], None]


@contextmanager
def _paper(printer: Printer) -> Iterator[Show]:
    """Views, one behind the other."""

    def show(url: str, view: View | QuothError) -> None:
        printer.answer("\n".join([*_lines(url, view), ""]), _content(url, view))
        printer.flush()

    yield show


@contextmanager
def _screen() -> Iterator[Show]:
    """Views, one in the place of the other."""
    from rich.live import Live
    from rich.text import Text

    with Live(auto_refresh=False) as live:

        def show(url: str, view: View | QuothError) -> None:
            width = live.console.width
            lines = _lines(url, view, _columns(width), width)
            live.update(Text("\n".join(lines), no_wrap=True, overflow="ellipsis"), refresh=True)

        yield show


def _lines(
    url: str, view: View | QuothError, columns: Sequence[_Column] = _COLUMNS, width: int | None = None
) -> list[str]:
    """Lay out a view. width: of the screen, for which a long URL is cut; None: there is no limit."""
    at = datetime.now(UTC).strftime("%H:%M:%SZ")
    if isinstance(view, QuothError):
        what = "away" if isinstance(view, Disconnected) else "not now"
        return [f"{url}  {at}  {what}: {printable(view.text)}"]
    status = view.status
    broker = f"  {status.server}, process {status.pid}, up {_span(status.uptime)}  {at}"
    room = len(url) if width is None else max(_URL_COLUMNS, width - len(broker))
    return [
        (url if len(url) <= room else f"{url[: room - 3]}...") + broker,
        f"{status.topics:,} topics, {status.active:,} active, {status.waits:,} waiting, "
        f"{_rate(view.requests_per_second)} req/s, {_rate(view.syncs_per_second)} syncs/s",
        f"{_heading(columns)}TOPIC",
        *(_line(row, columns) for row in view.rows),
    ]


def _columns(width: int) -> list[_Column]:
    """Those that leave room for the names."""
    columns = [*_COLUMNS]
    while columns and len(_heading(columns)) + _NAME_COLUMNS > width:
        columns.remove(max(columns, key=lambda column: column.rank))
    return columns


def _heading(columns: Sequence[_Column]) -> str:
    return "".join(f"{column.heading:{column.layout}}  " for column in columns)


def _line(row: Row, columns: Sequence[_Column]) -> str:
    problem = f"  {printable(row.problem)}" if row.problem else ""
    before = "".join(f"{column.text(row):{column.layout}}  " for column in columns)
    return f"{before}{printable(row.name)}{problem}"


def _content(url: str, view: View | QuothError) -> dict[str, Any]:
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
    """How many there are of each letter."""
    counts = Counter(states).items()
    return " ".join(f"{number}{letter}" if number > 1 else letter for letter, number in counts)


def _span_or_not(seconds: float | None) -> str:
    return "-" if seconds is None else _span(seconds)


def _span(seconds: float) -> str:
    return format_span(seconds, short=True, rough=True)
