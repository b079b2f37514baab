"""The log book: every event that the broker writes down, with its level and what it means.

The names are stable, so that somebody may look for them; fields are names, numbers and texts of errors, and
never what a record holds. Whoever embeds a broker finds them in the records of the logger "quothd", as
`event` and `fields`, and decides what becomes of them; `logwriter` is what the daemon does.
"""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Mapping
from typing import Any, NamedTuple

DEBUG, INFO, WARNING, ERROR = logging.DEBUG, logging.INFO, logging.WARNING, logging.ERROR

LOGGER = "quothd"

log = logging.getLogger(LOGGER)


class LogEvent(NamedTuple):
    """A kind of event. spoken: how the daemon says it to a person, with its fields; empty: as any other."""

    level: int
    meaning: str
    spoken: str = ""


EVENTS: dict[str, LogEvent] = {
    # the daemon
    "serving": LogEvent(INFO, "the directory is locked and its topics are listed", "serving {directory}"),
    "listening": LogEvent(INFO, "clients may connect here", "on {urls}"),
    "promise": LogEvent(INFO, "what an acknowledgement is worth", "acknowledged means {durability}: {worth}"),
    "ready": LogEvent(INFO, "it takes requests", "ready {url}"),
    "stopping": LogEvent(INFO, "it was asked to end, or ends by itself", "stopping"),
    "stopped": LogEvent(INFO, "the end", "everything is synced, the directory is unlocked"),
    "unsynced": LogEvent(
        ERROR, "the end, and the disk may not hold all", "not everything is synced: {problem} ({hint})"
    ),
    "refused": LogEvent(ERROR, "it cannot start like this", "{problem}"),
    "reloaded": LogEvent(INFO, "the file was read again, and these keys have changed"),
    "reload_refused": LogEvent(ERROR, "the file was read again and is wrong: nothing has changed"),
    "reload_needless": LogEvent(
        WARNING, "there is no file to read again: the daemon was started without --config"
    ),
    "restart_needed": LogEvent(
        WARNING, "these keys have changed in the file and count from the next start on"
    ),
    "front_end_failed": LogEvent(ERROR, "the loop that serves everybody broke down: the broker ends"),
    "front_end_stalled": LogEvent(INFO, "a disk stalls the front end: another thread takes over"),
    "stalled_work_failed": LogEvent(ERROR, "what a disk had stalled failed in the end"),
    "stall_guard_missing": LogEvent(
        WARNING, "no thread can watch for a stalled front end: it does nothing that a disk could stall"
    ),
    # one topic
    "topic_made": LogEvent(INFO, "a topic was made"),
    "topic_deleted": LogEvent(INFO, "a topic was deleted"),
    "topic_opening": LogEvent(INFO, "how far an opening is that takes long"),
    "topic_opened": LogEvent(DEBUG, "a topic has woken"),
    "topic_slept": LogEvent(DEBUG, "a topic sleeps: synced and closed"),
    "topic_recovered": LogEvent(
        WARNING, "bytes at the end of a log did not check; they are set aside, or stepped over"
    ),
    "records_lost": LogEvent(
        ERROR, "synced records are gone from the end of a log, as its index proves; it goes on above them"
    ),
    "derived_rebuilt": LogEvent(
        INFO, "footers or indexes that a crash kept from the disk were made anew; no record is missing"
    ),
    "topic_failed": LogEvent(ERROR, "something went wrong with a topic; whoever asked is told"),
    "close_failed": LogEvent(ERROR, "a log could not be closed in order"),
    "sync_failed": LogEvent(ERROR, "an fsync failed: the topic takes no writes until a restart"),
    "disk_low": LogEvent(WARNING, "a publish was refused, since too little of the disk is free"),
    "retained": LogEvent(INFO, "retention has removed records"),
    "staged_expired": LogEvent(
        WARNING, "a transaction to which nobody added anything was removed, unpublished"
    ),
    "retention_delayed": LogEvent(WARNING, "retention could not be done now, and is tried again"),
    "stray_ignored": LogEvent(
        WARNING, "a file or folder that is not the broker's lies there and is left alone"
    ),
    "stray_set_aside": LogEvent(
        WARNING, "a file that was called like a segment, and cannot be one of this log, has another name now"
    ),
    "pointers_ahead": LogEvent(
        WARNING,
        "the pointers of a topic run ahead of the clock by more than a minute, so do the times they say",
    ),
    # looking through what nobody reads
    "scrub_failed": LogEvent(WARNING, "sealed segments, or one topic, cannot be checked"),
    "damage_found": LogEvent(
        WARNING, "sealed bytes do not check; `quoth log repair` mends what can be mended"
    ),
    # everybody else
    "message": LogEvent(INFO, "what other libraries log, in their words"),
}

_BARE = re.compile(r"[\w./:~@%+*,-]+", re.ASCII)


def note(event: str, problem: BaseException | None = None, /, **fields: Any) -> None:
    """Write an event down. problem: what nobody foresaw, whose traceback goes with it."""
    level = EVENTS[event].level
    if log.isEnabledFor(level):
        line = line_of(event, fields)
        log.log(level, line, exc_info=problem, stacklevel=2, extra={"event": event, "fields": fields})


def line_of(event: str, fields: Mapping[str, Any]) -> str:
    """An event in one line: event=NAME, then its fields as KEY=VALUE."""
    return " ".join([f"event={event}", *(f"{name}={_shown(value)}" for name, value in fields.items())])


def _shown(value: Any) -> str:
    """A value as one word, or in the quotation marks of JSON, which do no harm to a terminal."""
    text = ",".join(map(str, value)) if isinstance(value, tuple | list) else str(value)
    if _BARE.fullmatch(text):
        return text
    return json.dumps(text, ensure_ascii=not text.isprintable())
