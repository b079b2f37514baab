"""Describes a topic in a reply about metrics."""

from __future__ import annotations

from typing import Any, Protocol, TypeAlias

from quothd.metrics.group_metrics import GroupMetrics
from quothd.metrics.measures import Traffic
from quothd.topics.metadata import TopicMetadata
from quothlog import LogInfo

COUNTERS = ("lost_records", "damaged_bytes", "torn_bytes", "clock_steps")
GAUGES = (
    "pointer_ahead_us",
    "quarantined_bytes",
    "staged_bytes",
    "records_not_visible",
    "dead_letters_delayed",
)
Groups: TypeAlias = tuple[GroupMetrics, ...]
ROW_BYTES, GROUP_BYTES = 500, 220
"""What a topic and a group take in a reply, beside their names."""


class KnownTopic(Protocol):
    """A topic as the front end knows it. See `RegistryEntry`."""

    metadata: TopicMetadata
    info: LogInfo | None
    traffic: Traffic
    groups: Groups
    serial: int

    @property
    def name(self) -> str:
        """The topic's name."""

    @property
    def is_active(self) -> bool:
        """True while it has a thread."""


def row_bytes(entry: KnownTopic, groups: Groups) -> int:
    """Return an upper bound of the bytes of a row with some groups."""
    size = len(entry.name.encode())
    return ROW_BYTES + size + sum(GROUP_BYTES + len(one.group.encode()) for one in groups)


def row_of(entry: KnownTopic, groups: Groups) -> dict[str, Any]:
    """Return the row of a topic with some of its groups. One that was never opened has its name and its id
    alone.
    """
    metadata, info = entry.metadata, entry.info
    row: dict[str, Any] = {"name": entry.name, "log": metadata.topic.log_id}
    if info is None:
        return row
    counted = {**info.counters, **info.gauges}
    return {
        **row,
        "first": info.first,
        "last": info.last,
        "count": info.end_ordinal - info.first_ordinal,
        "end": info.end_ordinal,
        "bytes": info.bytes,
        "segments": info.segments,
        "open": entry.is_active,
        "durability": metadata.topic.settings.durability,
        "problem": metadata.problem_text,
        **entry.traffic._asdict(),
        **{name: counted[name] for name in (*COUNTERS, *GAUGES)},
        "groups": [_group_row(entry, one) for one in groups],
    }


def _group_row(entry: KnownTopic, summary: GroupMetrics) -> dict[str, Any]:
    """Return the row of a group. While the topic hibernates, members may wait at the front end."""
    groups = entry.metadata.groups if not entry.is_active else None
    group = groups.by_name.get(summary.group) if groups is not None else None
    row = summary._asdict()
    return row if group is None else {**row, "used": max(group.used, summary.used)}
