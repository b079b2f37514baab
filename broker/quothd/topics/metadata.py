"""The metadata of a topic: its folder, its settings, its failure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType

from quothd.metrics.group_metrics import GroupMetrics
from quothlog import LogInfo
from quothlog.datadir.topic_file import TopicFile
from quothlog.groups.group_log import GroupTable
from quothwire.errors import QuothError
from quothwire.protocol.messages import TopicInfo

FORMER_NAMES = {
    "takeovers": "relieved",
    "pointer_ahead_us": "borrowed_us",
    "pointer_ahead_us_max": "borrowed_us_max",
    "records_not_visible": "unseen_records",
    "quarantined_bytes": "set_aside_bytes",
    "unknown_files": "stray_files",
    "malformed_requests": "unanswerable",
}
"""The names that counters had before. Replies have both, until the version after the next one."""
_NOTHING: Mapping[str, int] = MappingProxyType({})


def under_both_names(counters: Mapping[str, int]) -> dict[str, int]:
    """Return counters under their names and under their former ones."""
    former = {old: counters[name] for name, old in FORMER_NAMES.items() if name in counters}
    return {**counters, **former}


@dataclass(slots=True, eq=False)
class TopicMetadata:
    """The metadata of one topic, for as long as the process lives. The thread that has the topic's token owns
    it.

    path: None until its folder exists. problem: see `TopicFolder`. failure: why it takes no writes until
    the broker is restarted: a log that is opened again after a failed write or fsync may read from the page
    cache what the disk does not hold. counted: the counters of all earlier openings in this process. groups:
    its consumer groups, None unless they are in memory. groups_failure: as `failure`, of the log of groups.
    group_summaries: the groups as they were when `summarized` was the newest pointer; None: not known yet.
    """

    path: Path | None
    topic: TopicFile
    problem: str = ""
    failure: QuothError | None = None
    counted: Mapping[str, int] = field(default_factory=lambda: _NOTHING)
    groups: GroupTable | None = None
    groups_failure: QuothError | None = None
    group_summaries: tuple[GroupMetrics, ...] | None = None
    summarized: int = 0

    @property
    def problem_text(self) -> str:
        """The problem of the topic, for a reply; "" for none."""
        return self.problem or (self.failure.text if self.failure else "")

    def describe(self, info: LogInfo, states: str | None = None) -> TopicInfo:
        """Return all about the topic, for a reply."""
        return TopicInfo(
            name=self.topic.name,
            log=self.topic.log_id,
            first=info.first,
            last=info.last,
            count=info.end_ordinal - info.first_ordinal,
            first_ordinal=info.first_ordinal,
            bytes=info.bytes,
            segments=info.segments,
            states=info.states if states is None else states,
            settings=self.topic.settings.to_map(),
            problem=self.problem_text,
            counters=under_both_names({**info.counters, **info.gauges}),
        )
