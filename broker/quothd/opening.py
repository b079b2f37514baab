"""Opening a topic's log: its folder made if it is new, how far it is told, what was found written down."""

from __future__ import annotations

import contextlib
import logging
import time
from collections.abc import Callable
from pathlib import Path

from quothd import catalog, topicfile
from quothd.config import Config
from quothd.place import Place
from quothlog import Log

TELL_EVERY_S = 0.5

log = logging.getLogger("quothd.opening")


def open_topic(directory: Path, place: Place, config: Config, tell: Callable[[int, int], None]) -> Log:
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
            others=(topicfile.NAME,),
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
        log.warning("stray file ignored topic=%r file=%r", topic.name, name)
    if findings.torn_bytes or findings.damaged_bytes:
        log.warning("damage found topic=%r findings=%s", topic.name, findings)
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
            log.info("opening topic=%r looked_through=%d of=%d bytes", self._topic, done, size)
