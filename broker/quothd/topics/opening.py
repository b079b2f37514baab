"""Opening a topic's log: its folder made if it is new, how far it is told, what was found written down."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable
from pathlib import Path

from quothd.config.config import Config
from quothd.datadir import catalog, topic_file
from quothd.service.log_events import note
from quothd.topics.metadata import TopicMetadata
from quothlog import Log
from quothlog.appending.pointer_allocator import AHEAD_US

TELL_EVERY_S = 0.5


def open_topic(
    directory: Path, place: TopicMetadata, config: Config, tell: Callable[[int, int], None]
) -> Log:
    """Open the log of a topic, whose place is filled in if it has none yet.

    tell: called now and then with the bytes that were looked through and those that have to be. Raises what
    `Log.open` and `catalog.make` do; a new topic leaves nothing behind then.
    """
    topic, is_new = place.topic, place.path is None
    path = place.path = place.path or catalog.make(directory, topic, config.disk_free_min)
    try:
        opened = Log.open(
            path,
            options=config.log_options(topic.settings, keep_all=bool(place.problem)),
            log_id=topic.log_id,
            others=(topic_file.NAME,),
            watch=_Telling(topic.name, tell),
        )
    except BaseException:
        if is_new:  # the next request will make another folder
            with contextlib.suppress(OSError):
                path = catalog.retire(path)
            catalog.remove(path)
        raise
    if place.failure is not None:
        opened.fail(place.failure)
    findings = opened.findings
    for name in findings.strays:
        note("stray_ignored", topic=topic.name, file=name)
    for name in findings.strays_set_aside:
        note("stray_set_aside", topic=topic.name, file=name)
    if (ahead := opened.ahead_us) > AHEAD_US:
        note("pointers_ahead", topic=topic.name, seconds=ahead // 1_000_000)
    if findings.torn_bytes or findings.damaged_bytes:
        found = {name: findings.counters()[name] for name in ("torn_bytes", "damaged_bytes")}
        note("topic_recovered", topic=topic.name, **found, set_aside=findings.set_aside)
    if findings.rebuilt:
        note("derived_rebuilt", topic=topic.name, segments=findings.rebuilt)
    if findings.lost_records:
        lost = {"records": findings.lost_records, "after": findings.lost_after, "until": findings.lost_until}
        note("records_lost", topic=topic.name, **lost)
    return opened


class _Telling:
    """Hands on how far an opening is, not more often than anybody looks."""

    def __init__(self, topic: str, tell: Callable[[int, int], None]) -> None:
        self._topic = topic
        self._tell = tell
        self._due = time.monotonic() + TELL_EVERY_S

    def __call__(self, done: int, size: int) -> None:
        now = time.monotonic()
        if now >= self._due:
            self._due = now + TELL_EVERY_S
            self._tell(done, size)
            note("topic_opening", topic=self._topic, bytes_done=done, bytes=size)
