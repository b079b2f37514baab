"""Where a topic lives, and how it is described."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from quothd.topicfile import TopicFile
from quothlog import LogInfo
from quothwire.errors import QuothError
from quothwire.message import TopicInfo


@dataclass(slots=True)
class Place:
    """Where a topic lives. path: None until its folder has been made. problem: see `catalog.Folder`.

    failure: why it takes no writes for as long as this process lives. A log that is opened again after a
    failed write or fsync may read from the page cache what the disk does not hold.
    """

    path: Path | None
    topic: TopicFile
    problem: str = ""
    failure: QuothError | None = None


def topic_info(place: Place, info: LogInfo, states: str | None = None) -> TopicInfo:
    """Everything about a topic, for a reply."""
    counters: dict[str, Any] = dict(info.counters)
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
        counters=counters,
    )
