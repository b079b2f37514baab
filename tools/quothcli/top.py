"""`quoth top`: the broker and its busiest topics, again and again."""

from __future__ import annotations

import shutil
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from datetime import UTC, datetime
from itertools import count as counting
from pathlib import Path
from typing import Annotated, Any

import typer

from quoth import Disconnected, QuothError
from quothcli.chosen import chosen
from quothcli.command import command
from quothcli.delivery import end_with_reader
from quothcli.exits import Status
from quothcli.formats import Format
from quothcli.options import Form, Timeout, Url
from quothcli.output import Printer, bytes_text, printable
from quothcli.watch import Row, Sort, View, Watch

ROWS = 20
"""Where there is no screen that has room for so many and no more."""
_ABOVE = 3
_ANSWER_S = 2.0
"""A broker that takes longer is shown as away; it is asked again after the interval."""
_HEADINGS = (
    f"{'RECORDS/S':>11} {'BYTES/S':>9} {'RECORDS':>15} {'BYTES':>8} {'AGE':>9} {'LAG':>9}"
    f"  {'SEGMENTS':<10}  TOPIC"
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
        typer.Option("--interval", metavar="SECONDS", min=0.1, max=86_400, help="From one look to the next."),
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
            help="The cursor of a consumer (`quoth tail --cursor`), to see his lag.",
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
        with asked.connect() as client, _screen() if live else _paper(printer) as show:
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
        yield lambda url, view: live.update(
            Text("\n".join(_lines(url, view)), no_wrap=True, overflow="ellipsis"), refresh=True
        )


def _lines(url: str, view: View | QuothError) -> list[str]:
    at = datetime.now(UTC).strftime("%H:%M:%SZ")
    if isinstance(view, QuothError):
        what = "away" if isinstance(view, Disconnected) else "not now"
        return [f"{url}  {at}  {what}: {printable(view.text)}"]
    status = view.status
    return [
        f"{url}  {at}  {status.server}, process {status.pid}, up {_span(status.uptime)}: "
        f"{status.topics:,} topics, {status.active:,} active, {status.waits:,} waiting, "
        f"{_rate(view.requests_per_second)} requests/s, {_rate(view.syncs_per_second)} syncs/s",
        _HEADINGS,
        *map(_line, view.rows),
    ]


def _line(row: Row) -> str:
    size = "-" if row.bytes_per_second is None else bytes_text(row.bytes_per_second)
    age = "-" if row.age is None else _span(row.age)
    lag = "-" if row.lag_seconds is None else _span(row.lag_seconds) if row.lag is None else f"{row.lag:,}"
    letters = " ".join(
        f"{number}{letter}" if number > 1 else letter for letter, number in Counter(row.states).items()
    )
    problem = f"  {printable(row.problem)}" if row.problem else ""
    rates = f"{_rate(row.records_per_second):>11} {size:>9}"
    holds = f"{row.records:>15,} {bytes_text(row.bytes):>8} {age:>9} {lag:>9}"
    return f"{rates} {holds}  {letters:<10}  {printable(row.name)}{problem}"


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


def _span(seconds: float) -> str:
    """A span of time in few letters."""
    for length, unit in ((86_400, "d"), (3_600, "h"), (60, "m")):
        if seconds >= 2 * length:
            return f"{seconds / length:.1f} {unit}"
    return f"{seconds:.1f} s"
