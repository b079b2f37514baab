"""Finds the alarms in the metrics of a broker.

Each kind of alarm has a row in `KINDS`: what it means and what to do, as `systemd/OPERATIONS.md` has it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from enum import IntEnum
from types import MappingProxyType
from typing import Any, NamedTuple

from quoth.monitoring.thresholds import STANDARD, Thresholds
from quothwire.errors import QuothError
from quothwire.protocol.metric_messages import Metrics
from quothwire.text.quantity import format_size, format_span

AHEAD_US = 60_000_000
"""A pointer further ahead of the clock than this is reported by the broker, too."""
MEMORY_WARNING, MEMORY_CRITICAL = 0.55, 0.7
"""Parts of `memory_max`. Above the second one the broker refuses requests."""
CONNECTIONS_WARNING = 0.9
READ_ONLY, LOW = 2, 1
"""Levels of the disk."""
RULES_TOPIC = "quoth.rules"
REFUSED_CODES = frozenset(("unknown_operation", "unsupported_version", "denied", "auth_failed"))
"""Codes of a broker that answers, and tells no metrics. `unknown_operation`: of a release that has none."""


class Severity(IntEnum):
    """Severities of alarms. The numbers are the exit statuses of Nagios' checks."""

    FINE = 0
    WARNING = 1
    CRITICAL = 2
    UNKNOWN = 3


_FROM_WORST = (Severity.CRITICAL, Severity.UNKNOWN, Severity.WARNING)


class AlarmKind(NamedTuple):
    """A kind of alarm: its meaning, and what to do."""

    meaning: str
    action: str


KINDS: Mapping[str, AlarmKind] = MappingProxyType(
    {
        "unreachable": AlarmKind(
            "The broker does not answer.",
            "`systemctl status quothd`, then its log; clients wait and go on when it is back.",
        ),
        "metrics_unknown": AlarmKind(
            "The broker answers, but refuses to tell its metrics, so that no other alarm is known.",
            "An older broker has none: upgrade it. Otherwise look whether it knows the key, and its rights.",
        ),
        "disk_full": AlarmKind(
            "Less than `disk_free_min` is free: publishes are refused, reads and trims go on.",
            "Free space on the disk, or shorten the retention of large topics; publishing resumes by itself.",
        ),
        "disk_low": AlarmKind(
            "The disk has less free space than you want, or than twice `disk_free_min`.",
            "Look which topics grow (`quoth top`), set `max_age` or `max_bytes`, or give the disk more room.",
        ),
        "memory_high": AlarmKind(
            "Much of `memory_max` is used: the broker ends connections that hold most, or refuses requests.",
            "Look for clients that do not read their replies; raise `memory_max` together with `MemoryMax=`.",
        ),
        "connections_high": AlarmKind(
            "Nearly `connections_max` connections are open; more are ended.",
            "Look for clients that open a connection for each request; raise `LimitNOFILE=` of the unit.",
        ),
        "topic_failed": AlarmKind(
            "A topic takes no writes after a failed write or fsync, or its settings file is damaged.",
            "Check the disk (`dmesg`), `quoth log verify`, then restart the broker; reads go on meanwhile.",
        ),
        "records_lost": AlarmKind(
            "Records that were synced are missing from a topic.",
            "`quoth log verify` names them; restore them from a backup or an archive.",
        ),
        "damage_found": AlarmKind(
            "Stored bytes do not match their checksum; readers step over them.",
            "`quoth log verify`, then `quoth log repair` with the broker stopped; look at the disk.",
        ),
        "quarantined": AlarmKind(
            "Torn or damaged bytes were put aside in files that end in .torn or .damaged.",
            "Torn bytes are usual after a power cut, and hold nothing that was synced. Delete the files.",
        ),
        "pointer_ahead": AlarmKind(
            "Pointers of a topic run ahead of the clock by more than a minute.",
            "The clock was set back, or more than a record a microsecond comes: check the time service.",
        ),
        "group_lag": AlarmKind(
            "A group is behind: its oldest unfinished record is older than the limit, or there are too many.",
            "Are its members running (`quoth group info`)? Add members, or look why they are slow.",
        ),
        "group_unused": AlarmKind(
            "A group has unfinished records, and no member has asked for a long time.",
            "Start a member, or delete the group; with `retention = until_acked` it keeps records.",
        ),
        "dead_letters_delayed": AlarmKind(
            "Dead letters of a group cannot be written; their records stay pending.",
            "`quoth group info` has the reason; the broker tries again every 5 seconds.",
        ),
        "announcer_down": AlarmKind(
            "New records are not announced; consumers poll and get them later.",
            "Restart the broker; `announcer_failed` in its log has the reason.",
        ),
        "authenticator_down": AlarmKind(
            "No thread checks keys: new connections are refused, existing ones go on.",
            "It is started again by itself; if that does not help, restart the broker.",
        ),
        "rules_down": AlarmKind(
            "There are rule sets, and the process that executes them does not run.",
            "`quoth rule ls` and `rules_failed` in the broker's log; the daemon starts it again.",
        ),
        "opening": AlarmKind(
            "Topics were not opened yet since the start; after a crash their logs are scanned.",
            "Wait; reads of a topic that takes long are answered with `recovering`.",
        ),
    }
)
"""Every kind of alarm by its code."""


class Alarm(NamedTuple):
    """An alarm. code: a key of `KINDS`. subject: the topic, TOPIC/GROUP, or "" for the broker."""

    severity: Severity
    code: str
    subject: str
    text: str


def alarms(metrics: Metrics, thresholds: Thresholds = STANDARD) -> list[Alarm]:
    """Return the alarms in metrics of a broker and all of its topics, the worst first."""
    names = {row["name"] for row in metrics.rows}
    found = broker_alarms(metrics.counters, thresholds, has_rules=RULES_TOPIC in names)
    return worst_first([*found, *topic_alarms(metrics.rows, metrics.time, thresholds)])


def worst_first(found: Iterable[Alarm]) -> list[Alarm]:
    """Return alarms in the order of their severity."""
    return sorted(found, key=lambda one: (_FROM_WORST.index(one.severity), one.code, one.subject))


def topic_alarms(rows: Iterable[Mapping[str, Any]], now: int, thresholds: Thresholds) -> Iterator[Alarm]:
    """Yield the alarms of topics and their groups. now: the broker's clock."""
    for row in rows:
        yield from _of_topic(row)
        for group in row.get("groups", ()):
            name = f"{row['name']}/{group['group']}"
            if thresholds.groups is None or name in thresholds.groups:
                yield from _of_group(name, group, now, thresholds)


def unreachable(text: str) -> Alarm:
    """Return the alarm for a broker that does not answer."""
    return Alarm(Severity.CRITICAL, "unreachable", "", text)


def refused(problem: QuothError, severity: Severity = Severity.UNKNOWN) -> Alarm:
    """Return the alarm for a broker that answers a request for its metrics with one of `REFUSED_CODES`."""
    text = f"the broker answers, but tells no metrics: {problem.text}"
    return Alarm(severity, "metrics_unknown", "", text)


def lag_seconds(group: Mapping[str, Any], now: int) -> float:
    """Return how old the oldest unfinished record of a group is, 0 if there is none."""
    return max(0.0, (now - group["oldest"]) / 1e6) if group["lag"] and group["oldest"] else 0.0


def worst(found: Iterable[Alarm]) -> Severity:
    """Return the highest severity: what is known to be critical comes before what is not known."""
    severities = {one.severity for one in found}
    return next((one for one in _FROM_WORST if one in severities), Severity.FINE)


# -- the broker ---------------------------------------------------------------------------------------------


def broker_alarms(counters: Mapping[str, int], thresholds: Thresholds, *, has_rules: bool) -> Iterator[Alarm]:
    """Yield the alarms in the counters of a broker; a client without rights on all topics has none.

    has_rules: there is a topic of rule sets.
    """
    yield from _of_disk(counters, thresholds)
    used, limit = counters.get("memory_used", 0), counters.get("memory_max", 0)
    if limit and used > MEMORY_WARNING * limit:
        severity = Severity.CRITICAL if used > MEMORY_CRITICAL * limit else Severity.WARNING
        text = f"{format_size(used, rough=True)} of {format_size(limit, rough=True)} are used"
        yield Alarm(severity, "memory_high", "", text)
    connections, most = counters.get("connections", 0), counters.get("connections_max", 0)
    if most and connections > CONNECTIONS_WARNING * most:
        yield Alarm(Severity.WARNING, "connections_high", "", f"{connections} of {most} connections")
    for name, code in (
        ("announcer_running", "announcer_down"),
        ("authenticator_running", "authenticator_down"),
    ):
        if counters.get(name) == 0:
            yield Alarm(Severity.CRITICAL, code, "", KINDS[code].meaning.rstrip("."))
    if damages := counters.get("scrub_damages", 0) + counters.get("scrub_missing_records", 0):
        yield Alarm(Severity.CRITICAL, "damage_found", "", f"the last check of all segments found {damages}")
    if has_rules and counters.get("rules_running") == 0:
        yield Alarm(Severity.CRITICAL, "rules_down", "", "the process of the routing rules does not run")
    if unopened := counters.get("unopened", 0):
        yield Alarm(Severity.WARNING, "opening", "", f"{unopened} topics are to be opened")


def _of_disk(counters: Mapping[str, int], thresholds: Thresholds) -> Iterator[Alarm]:
    free, total = counters.get("disk_free_bytes"), counters.get("disk_total_bytes", 0)
    if free is None:
        return
    share = f" ({100 * free / total:.1f} %)" if total else ""
    text = f"{format_size(free, rough=True)}{share} of the disk are free"
    level = counters.get("disk_level", 0)
    if level == READ_ONLY:
        yield Alarm(Severity.CRITICAL, "disk_full", "", f"{text}: publishes are refused")
    elif free < thresholds.min_free.of(total):
        yield Alarm(Severity.CRITICAL, "disk_low", "", f"{text}, less than {thresholds.min_free}")
    elif level == LOW:
        yield Alarm(Severity.WARNING, "disk_low", "", text)


# -- topics and groups --------------------------------------------------------------------------------------


def _of_topic(row: Mapping[str, Any]) -> Iterator[Alarm]:
    name = row["name"]
    if problem := row.get("problem"):
        yield Alarm(Severity.CRITICAL, "topic_failed", name, problem)
    if lost := row.get("lost_records"):
        yield Alarm(Severity.CRITICAL, "records_lost", name, f"{lost:,} synced records are missing")
    if damaged := row.get("damaged_bytes"):
        yield Alarm(Severity.CRITICAL, "damage_found", name, f"{format_size(damaged)} do not check")
    if quarantined := row.get("quarantined_bytes"):
        yield Alarm(
            Severity.WARNING, "quarantined", name, f"{format_size(quarantined)} lie in files beside it"
        )
    if (ahead := row.get("pointer_ahead_us", 0)) > AHEAD_US:
        text = f"{format_span(ahead // 1_000_000)} ahead of the clock"
        yield Alarm(Severity.WARNING, "pointer_ahead", name, text)
    if delayed := row.get("dead_letters_delayed"):
        yield Alarm(Severity.CRITICAL, "dead_letters_delayed", name, f"{delayed} groups cannot write theirs")


def _of_group(name: str, group: Mapping[str, Any], now: int, thresholds: Thresholds) -> Iterator[Alarm]:
    """Yield the alarms of a group. For a cursor only limits that are critical count."""
    records, seconds = group["lag"], lag_seconds(group, now)
    if not records:
        return
    is_reader = group["mode"] == "cursor"
    behind = f"{records:,} records behind, the oldest {format_span(round(seconds), rough=True)} old"
    if seconds > thresholds.max_lag or records > thresholds.max_lag_records:
        yield Alarm(Severity.CRITICAL, "group_lag", name, behind)
    elif seconds > thresholds.warn_lag and not is_reader:
        yield Alarm(Severity.WARNING, "group_lag", name, behind)
    idle = max(0.0, (now - group["used"]) / 1e6)
    if idle > thresholds.max_idle and not is_reader:
        text = f"not used for {format_span(round(idle), rough=True)}"
        yield Alarm(Severity.WARNING, "group_unused", name, text)
