"""The alarms in metrics of a broker: a table of what raises each of them, and of what does not."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from kit.text.wording import error_of
from quoth.monitoring.alarms import KINDS, Severity, alarms, refused, unreachable, worst
from quoth.monitoring.thresholds import STANDARD, FreeSpace, Thresholds
from quothwire.errors import error
from quothwire.protocol.metric_messages import Metrics

NOW = 1_767_323_045_000_000
SECOND = 1_000_000
OPERATIONS = Path(__file__).parents[3] / "systemd/OPERATIONS.md"
COUNTERS = {
    "disk_free_bytes": 50 * 2**30, "disk_total_bytes": 100 * 2**30, "disk_level": 0, "memory_used": 2**28,
    "memory_max": 2**30, "connections": 10, "connections_max": 1_000, "announcer_running": 1,
    "scrub_damages": 0, "scrub_missing_records": 0, "unopened": 0, "rules_running": 0,
}  # fmt: skip
GROUP = {
    "group": "billing", "mode": "at_least_once", "paused": False, "lag": 3, "oldest": NOW - 2 * SECOND,
    "pending": 0, "in_flight": 0, "redelivered": 0, "dead": 0, "gone": 0, "used": NOW - SECOND, "problem": "",
}  # fmt: skip
ROW = {
    "name": "orders", "log": 7, "problem": "", "lost_records": 0, "damaged_bytes": 0, "torn_bytes": 0,
    "quarantined_bytes": 0, "pointer_ahead_us": 0, "dead_letters_delayed": 0, "groups": [GROUP],
}  # fmt: skip
FINE = Metrics("quothd 1", NOW, 1.0, 5, 1, COUNTERS, {}, {}, {}, [ROW], False)


def of_broker(**counters: int) -> Metrics:
    return replace(FINE, counters={**COUNTERS, **counters})


def of_topic(**values: Any) -> Metrics:
    return replace(FINE, rows=[{**ROW, **values}])


def of_group(**values: Any) -> Metrics:
    return of_topic(groups=[{**GROUP, **values}])


W, C = Severity.WARNING, Severity.CRITICAL
LIMITS = Thresholds(
    max_lag=300, warn_lag=60, max_lag_records=1_000, max_idle=3_600, min_free=FreeSpace(share=0.1)
)
RAISED: list[tuple[str, Metrics, Severity, str, str]] = [
    ("a full disk", of_broker(disk_level=2, disk_free_bytes=1), C, "disk_full", ""),
    ("a low disk", of_broker(disk_level=1), W, "disk_low", ""),
    ("less than was asked for", of_broker(disk_free_bytes=9 * 2**30), C, "disk_low", ""),
    ("much memory", of_broker(memory_used=600 * 2**20), W, "memory_high", ""),
    ("more memory", of_broker(memory_used=750 * 2**20), C, "memory_high", ""),
    ("many connections", of_broker(connections=950), W, "connections_high", ""),
    ("no announcer", of_broker(announcer_running=0), C, "announcer_down", ""),
    ("no authenticator", of_broker(authenticator_running=0), C, "authenticator_down", ""),
    ("damage in a sealed segment", of_broker(scrub_damages=1), C, "damage_found", ""),
    ("records missing in a sealed segment", of_broker(scrub_missing_records=1), C, "damage_found", ""),
    ("topics that are not open yet", of_broker(unopened=3), W, "opening", ""),
    ("rules that do not run", of_topic(name="quoth.rules", groups=[]), C, "rules_down", ""),
    ("a topic that takes no writes", of_topic(problem="EIO"), C, "topic_failed", "orders"),
    ("lost records", of_topic(lost_records=2), C, "records_lost", "orders"),
    ("damaged bytes", of_topic(damaged_bytes=2), C, "damage_found", "orders"),
    ("files put aside", of_topic(quarantined_bytes=2), W, "quarantined", "orders"),
    ("pointers ahead", of_topic(pointer_ahead_us=61 * SECOND), W, "pointer_ahead", "orders"),
    ("letters that wait", of_topic(dead_letters_delayed=1), C, "dead_letters_delayed", "orders"),
    ("an old record", of_group(oldest=NOW - 301 * SECOND), C, "group_lag", "orders/billing"),
    ("a record that gets old", of_group(oldest=NOW - 61 * SECOND), W, "group_lag", "orders/billing"),
    ("many records", of_group(lag=1_001), C, "group_lag", "orders/billing"),
    ("an unused group", of_group(used=NOW - 3_601 * SECOND), W, "group_unused", "orders/billing"),
    (
        "a cursor far behind",
        of_group(mode="cursor", oldest=NOW - 301 * SECOND),
        C,
        "group_lag",
        "orders/billing",
    ),
]
SILENT: list[tuple[str, Metrics]] = [
    ("a broker that is well", FINE),
    ("no lag", of_group(lag=0, oldest=0, used=NOW - 9_999 * SECOND)),
    ("a clock that is behind", of_group(oldest=NOW + 5 * SECOND)),
    ("a cursor that rests", of_group(mode="cursor", oldest=NOW - 61 * SECOND, used=NOW - 9_999 * SECOND)),
    ("a client without rights on all topics", replace(FINE, counters={})),
    ("a topic that was never opened", replace(FINE, rows=[{"name": "orders", "log": 7}])),
    ("a disk that is not known", replace(FINE, counters={"connections": 1})),
]


@pytest.mark.parametrize(
    ("metrics", "severity", "code", "subject"), [one[1:] for one in RAISED], ids=[one[0] for one in RAISED]
)
def test_raises_one_alarm_with_its_severity(
    metrics: Metrics, severity: Severity, code: str, subject: str
) -> None:
    (alarm,) = alarms(metrics, LIMITS)
    assert (alarm.severity, alarm.code, alarm.subject) == (severity, code, subject)
    assert alarm.text
    assert code in KINDS


@pytest.mark.parametrize("metrics", [one[1] for one in SILENT], ids=[one[0] for one in SILENT])
def test_raises_no_alarm(metrics: Metrics) -> None:
    assert alarms(metrics, LIMITS) == []
    assert alarms(metrics, STANDARD) == []


def test_alarms_come_in_the_order_of_their_severity() -> None:
    found = alarms(
        replace(of_group(oldest=NOW - 61 * SECOND), counters={**COUNTERS, "disk_level": 2}), LIMITS
    )
    assert [one.code for one in found] == ["disk_full", "group_lag"]
    assert worst(found) is Severity.CRITICAL
    assert worst([]) is Severity.FINE


def test_only_chosen_groups_count() -> None:
    late = of_group(oldest=NOW - 301 * SECOND)
    for name, count in (("orders/billing", 1), ("orders/other", 0)):
        assert len(alarms(late, replace(LIMITS, groups=frozenset((name,))))) == count


def test_each_kind_is_raised_and_documented() -> None:
    raised = {one[3] for one in RAISED} | {unreachable("x").code, refused(error("denied", "x")).code}
    assert raised == set(KINDS)
    text = OPERATIONS.read_text(encoding="utf-8")
    missing = [
        code for code, kind in KINDS.items() if f"| `{code}` | {kind.meaning} | {kind.action} |" not in text
    ]
    assert missing == [], "systemd/OPERATIONS.md has a row for each kind"


@pytest.mark.parametrize(
    ("given", "free"),
    [("10%", 10 * 2**30), ("0.5 %", 2**29), ("20GiB", 20 * 2**30), ("100%", 100 * 2**30), ("0", 0)],
)
def test_free_space_is_a_share_or_a_size(given: str, free: int) -> None:
    assert abs(FreeSpace.parse(given).of(100 * 2**30) - free) <= 2**29


@pytest.mark.parametrize("given", ["", "%", "ten%", "-1%", "101%", "nan%", "a lot"])
def test_what_is_no_free_space_is_refused(given: str) -> None:
    assert error_of(FreeSpace.parse, given).code == "bad_setting"
