"""Where a topic lives, and how it is described."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import MappingProxyType

from quothd.datadir.topic_file import TopicFile
from quothlog import LogInfo
from quothwire.errors import QuothError
from quothwire.protocol.messages import TopicInfo

_NOTHING: Mapping[str, int] = MappingProxyType({})


@dataclass(slots=True)
class TopicMetadata:
    """Where a topic lives. path: None until its folder has been made. problem: see `catalog.Folder`.

    failure: why it takes no writes for as long as this process lives. A log that is opened again after a
    failed write or fsync may read from the page cache what the disk does not hold. counted: the counters of
    all earlier openings in this process.
    """

    path: Path | None
    topic: TopicFile
    problem: str = ""
    failure: QuothError | None = None
    counted: Mapping[str, int] = field(default_factory=lambda: _NOTHING)

    def informed(self, info: LogInfo) -> LogInfo:
        """How its log stands, with counters that go back to the start of this process."""
        counters = {name: self.counted.get(name, 0) + number for name, number in info.counters.items()}
        return replace(info, counters=counters)


def topic_info(place: TopicMetadata, info: LogInfo, states: str | None = None) -> TopicInfo:
    """Everything about a topic, for a reply."""
    return TopicInfo(
        name=place.topic.name,
        log=place.topic.log_id,
        first=info.first,
        last=info.last,
        count=info.end_ordinal - info.first_ordinal,
        first_ordinal=info.first_ordinal,
        bytes=info.bytes,
        segments=info.segments,
        states=info.states if states is None else states,
        settings=place.topic.settings.to_map(),
        problem=place.problem or (place.failure.text if place.failure else ""),
        counters={**info.counters, **info.gauges},
    )
