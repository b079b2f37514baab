"""`quoth check`: alarms of the broker in one line and an exit status, as Nagios and its kin read them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import isfinite
from typing import TYPE_CHECKING, Annotated, Any

from quothcli.cli.command import command, group, option
from quothcli.cli.options import WithBroker
from quothcli.printing.output import Printer
from quothcli.printing.text import printable
from quothwire.errors import QuothError, error
from quothwire.text.quantity import parse_span

if TYPE_CHECKING:
    from quoth import Metrics
    from quoth.monitoring.alarms import Alarm, Severity
    from quoth.monitoring.thresholds import Thresholds

_STATES = {0: "OK", 1: "WARNING", 2: "CRITICAL", 3: "UNKNOWN"}

app = group()


@command(
    app,
    "check",
    "quoth check",
    "quoth check --max-lag 5m --min-free 10%",
    "quoth check --max-lag 1m --group orders/billing",
)
def check(
    session: WithBroker,
    max_lag: Annotated[
        str | None, option("--max-lag SPAN", "Critical if a group's oldest unfinished record is older.")
    ] = None,
    warn_lag: Annotated[
        str | None, option("--warn-lag SPAN", "A warning if it is older than this (default: 5m).")
    ] = None,
    max_lag_records: Annotated[
        int | None, option("--max-lag-records N", "Critical if a group has more unfinished records.", min=0)
    ] = None,
    max_idle: Annotated[
        str | None,
        option(
            "--max-idle SPAN",
            "A warning if a group with unfinished records was not used for longer (default: 7d).",
        ),
    ] = None,
    min_free: Annotated[
        str | None, option("--min-free PERCENT|SIZE", "Critical if less of the disk is free: 10%, 20GiB.")
    ] = None,
    groups: Annotated[
        list[str] | None,
        option("--group TOPIC/GROUP", "Look at this group only; may be given several times (default: all)."),
    ] = None,
) -> int:
    """Check the broker, its topics and groups, and print alarms.

    The first line is the state and the figures, as the checks of Nagios have them; then a line for each alarm
    and one with what to do. Without options only what the broker itself cannot go on with is critical. Exit
    status: 0 no alarm, 1 a warning, 2 critical, or a wrong option, 3 not known. A broker that does not answer
    is critical; one that answers, but tells no metrics, is not known.
    """
    from quoth.monitoring import alarms as judged

    try:
        thresholds = _thresholds(max_lag, warn_lag, max_lag_records, max_idle, min_free, groups)
    except QuothError as problem:
        print(f"QUOTH {_STATES[judged.Severity.UNKNOWN]} - {printable(problem.text)} ({problem.hint})")
        return judged.Severity.UNKNOWN
    metrics: Metrics | None = None
    try:
        with session.connect() as client:
            metrics = client.metrics()
        found = judged.alarms(metrics, thresholds)
        found += [_missing(one) for one in _unknown(metrics, groups or ())]
    except QuothError as problem:
        is_refused = problem.code in judged.REFUSED_CODES
        found = [judged.refused(problem) if is_refused else judged.unreachable(problem.text)]
    severity = judged.worst(found)
    _print(session.printer, severity, found, metrics, thresholds)
    return severity


def _thresholds(
    max_lag: str | None,
    warn_lag: str | None,
    max_lag_records: int | None,
    max_idle: str | None,
    min_free: str | None,
    groups: Sequence[str] | None,
) -> Thresholds:
    """Return the limits that were typed. Raises ``bad_setting`` with the option."""
    from dataclasses import replace

    from quoth.monitoring.thresholds import STANDARD, FreeSpace

    changes: dict[str, Any] = {}
    for name, typed, parse in (
        ("max_lag", max_lag, parse_span),
        ("warn_lag", warn_lag, parse_span),
        ("max_idle", max_idle, parse_span),
        ("min_free", min_free, FreeSpace.parse),
    ):
        if typed is not None:
            try:
                changes[name] = parse(typed)
            except QuothError as problem:
                option_name = f"--{name.replace('_', '-')}"
                raise error(problem.code, f"{option_name}: {problem.text}", problem.hint) from None
    if max_lag_records is not None:
        changes["max_lag_records"] = max_lag_records
    if groups:
        changes["groups"] = frozenset(groups)
    return replace(STANDARD, **changes)


def _unknown(metrics: Metrics, groups: Sequence[str]) -> Iterator[str]:
    """Yield the groups that were named and do not exist."""
    known = {f"{row['name']}/{one['group']}" for row in metrics.rows for one in row.get("groups", ())}
    return (name for name in groups if name not in known)


def _missing(name: str) -> Alarm:
    """Return the alarm for a group that was named and does not exist."""
    from quoth.monitoring.alarms import Alarm, Severity

    return Alarm(Severity.UNKNOWN, "unknown_group", name, "there is no such group, or no right to see it")


def _print(
    printer: Printer,
    severity: Severity,
    found: Sequence[Alarm],
    metrics: Metrics | None,
    thresholds: Thresholds,
) -> None:
    from quoth.monitoring.alarms import KINDS

    state = _STATES[severity]
    first = f"{_subject(found[0])}{found[0].text}" if found else "no alarm"
    more = f", and {len(found) - 1} more" if len(found) > 1 else ""
    figures = dict(_figures(metrics, thresholds)) if metrics is not None else {}
    data = " ".join(f"{name}={value}" for name, value in figures.items())
    lines = [f"QUOTH {state} - {printable(first)}{more}" + (f" | {data}" if data else "")]
    for one in found:
        lines.append(f"{one.severity.name.lower()}: {one.code}: {printable(_subject(one) + one.text)}")
        if one.code in KINDS:
            lines.append(f"    {KINDS[one.code].action}")
    content = {
        "state": state.lower(),
        "alarms": [{**one._asdict(), "severity": one.severity.name.lower()} for one in found],
        "figures": figures,
    }
    printer.answer("\n".join(lines), content, state)


def _subject(alarm: Alarm) -> str:
    return f"{alarm.subject}: " if alarm.subject else ""


def _figures(metrics: Metrics, thresholds: Thresholds) -> Iterator[tuple[str, str]]:
    """Yield the figures with their units and limits, as checks of Nagios print them."""
    from quoth.monitoring.alarms import lag_seconds

    groups = [
        one
        for row in metrics.rows
        for one in row.get("groups", ())
        if thresholds.groups is None or f"{row['name']}/{one['group']}" in thresholds.groups
    ]
    worst = max((lag_seconds(one, metrics.time) for one in groups), default=0.0)
    records = max((one["lag"] for one in groups), default=0)
    yield "lag", f"{worst:.3f}s;{_limit(thresholds.warn_lag)};{_limit(thresholds.max_lag)};0"
    yield "lag_records", f"{records};;{_limit(thresholds.max_lag_records)};0"
    if (free := metrics.counters.get("disk_free_bytes")) is not None:
        total = metrics.counters["disk_total_bytes"]
        yield "free", f"{free}B;;{thresholds.min_free.of(total)}:;0;{total}"
    yield "topics", f"{metrics.topics}"


def _limit(number: float) -> str:
    return f"{number:g}" if isfinite(number) else ""
