"""The events that the broker logs, with their levels and meanings.

Their names are stable, so that programs can search for them. Fields are names, numbers and texts of errors,
never the content of records. The records of the logger "quothd" have them as `event` and `fields`. A program
with an embedded broker configures logging itself; the daemon does it with `quothwire.service.log_writer`.
"""

from __future__ import annotations

import logging
from threading import Timer
from typing import Any

from quothwire.service.log_event import LogEvent, line_of
from quothwire.service.log_writer import LoggingProgram

DEBUG, INFO, WARNING, ERROR = logging.DEBUG, logging.INFO, logging.WARNING, logging.ERROR

LOGGER = "quothd"

log = logging.getLogger(LOGGER)


EVENTS: dict[str, LogEvent] = {
    # the daemon
    "serving": LogEvent(INFO, "the directory is locked and its topics are listed", "serving {directory}"),
    "listening": LogEvent(INFO, "clients may connect here", "on {urls}"),
    "promise": LogEvent(INFO, "durability of new topics", "acknowledged means {durability}: {worth}"),
    "ready": LogEvent(INFO, "the broker answers requests", "ready {url}"),
    "stopping": LogEvent(INFO, "a signal or a failure ends the broker", "stopping"),
    "stopped": LogEvent(INFO, "an orderly end", "everything is synced, the directory is unlocked"),
    "unsynced": LogEvent(ERROR, "an incomplete end", "not everything is synced: {problem} ({hint})"),
    "refused": LogEvent(ERROR, "the broker cannot start", "{problem}"),
    "descriptors_low": LogEvent(
        WARNING, "the process may have few open files and connections: raise LimitNOFILE=, or `ulimit -n`"
    ),
    "reloaded": LogEvent(INFO, "SIGHUP: the daemon has read its file, these keys have changed"),
    "reload_refused": LogEvent(ERROR, "SIGHUP: the configuration is wrong, and no key has changed"),
    "reload_needless": LogEvent(
        WARNING, "SIGHUP: there is no file to read, the daemon was started without --config"
    ),
    "restart_needed": LogEvent(WARNING, "SIGHUP: these keys have changed in the file and need a restart"),
    "front_end_failed": LogEvent(ERROR, "the loop that serves all clients failed: the broker ends"),
    "front_end_short": LogEvent(
        ERROR, "the loop that serves all clients lacked descriptors or memory for something, and goes on"
    ),
    "front_end_stalled": LogEvent(INFO, "a disk stalls the front end: another thread takes over"),
    "stalled_work_failed": LogEvent(ERROR, "work that a disk had stalled has failed"),
    "stall_guard_missing": LogEvent(WARNING, "no thread watches the front end: others do all disk work"),
    "connections_reset": LogEvent(
        WARNING, "libzmq keeps too many connections that have ended: all are ended, and clients connect again"
    ),
    "connection_ended": LogEvent(
        WARNING, "the broker has ended connections: too many, silent, revoked, or with too much memory"
    ),
    "accept_failed": LogEvent(
        ERROR,
        "connections cannot be accepted for want of descriptors or memory, and wait",
    ),
    # keys
    "keys_required": LogEvent(
        INFO,
        "clients need keys, and the broker knows so many",
        "clients need keys; {clients} known, in {file}",
    ),
    "no_clients": LogEvent(WARNING, "the clients file has no client: every one is refused"),
    "connection_denied": LogEvent(WARNING, "a client without a known key was refused"),
    "connections_denied": LogEvent(WARNING, "more of them in the last minute than the log shows"),
    "clients_changed": LogEvent(INFO, "SIGHUP: keys of these clients were added or removed"),
    "authenticator_failed": LogEvent(ERROR, "the thread that checks keys has failed"),
    "authenticator_down": LogEvent(ERROR, "no thread checks keys: new connections are refused, others go on"),
    "authenticator_up": LogEvent(INFO, "keys are checked again: new connections are accepted"),
    "routes_unguarded": LogEvent(
        WARNING, "the next route of libzmq is not known here: a client that claims it may end the broker"
    ),
    "resets_unguarded": LogEvent(
        WARNING, "without compiled functions, clients that are killed with unread requests may end the broker"
    ),
    "memory_watch_failed": LogEvent(ERROR, "a look at the memory of the process failed: it is repeated"),
    "announcer_failed": LogEvent(ERROR, "the thread of the announcements failed: none are sent any more"),
    "subscriber_closed": LogEvent(
        WARNING,
        "a connection with more subscriptions than a limit allows was closed: its client may reduce them",
    ),
    # one topic
    "topic_made": LogEvent(INFO, "a topic was created"),
    "topic_deleted": LogEvent(INFO, "a topic was deleted"),
    "topic_opening": LogEvent(INFO, "progress of a long opening"),
    "topic_opened": LogEvent(DEBUG, "a topic was opened"),
    "topic_slept": LogEvent(DEBUG, "a topic hibernates: it is synced and closed"),
    "topic_recovered": LogEvent(WARNING, "the end of a log is torn or damaged: quarantined or skipped"),
    "records_lost": LogEvent(ERROR, "synced records are lost from the end of a log, as its index proves"),
    "derived_rebuilt": LogEvent(INFO, "footers or indexes were rebuilt after a crash; no record is missing"),
    "group_made": LogEvent(INFO, "a consumer group was created"),
    "group_moved": LogEvent(INFO, "a consumer group goes on at another place: its leases have ended"),
    "groups_not_summarized": LogEvent(
        ERROR, "the log of the groups cannot be read, so the metrics of this topic lack them; tried again"
    ),
    "group_deleted": LogEvent(INFO, "a consumer group was deleted"),
    "group_events_lost": LogEvent(
        ERROR, "the log of the groups is damaged: records whose ack it held are handed out again"
    ),
    "group_log_not_compacted": LogEvent(WARNING, "the log of the groups could not be made shorter"),
    "dead_letter": LogEvent(WARNING, "records that no member could process were given up"),
    "dead_letter_delayed": LogEvent(ERROR, "dead letters cannot be written: their records stay in the group"),
    "topic_failed": LogEvent(ERROR, "an operation on a topic failed; its clients get the error"),
    "close_failed": LogEvent(ERROR, "closing a log failed"),
    "sync_failed": LogEvent(ERROR, "an fsync failed: the topic refuses writes until a restart"),
    "disk_low": LogEvent(WARNING, "a publish was refused: the disk has too little free space"),
    "retained": LogEvent(INFO, "retention has removed records"),
    "staged_expired": LogEvent(WARNING, "a transaction without new batches was removed, unpublished"),
    "retention_delayed": LogEvent(WARNING, "a run of retention failed; the next one tries again"),
    "stray_ignored": LogEvent(WARNING, "an unknown file or folder is left alone"),
    "stray_set_aside": LogEvent(WARNING, "a file with the name of a segment that is none is quarantined"),
    "pointers_ahead": LogEvent(WARNING, "a topic's pointers are more than a minute ahead of the clock"),
    # the background check
    "scrub_failed": LogEvent(WARNING, "sealed segments, or those of one topic, cannot be checked"),
    "damage_found": LogEvent(WARNING, "a sealed segment is damaged; `quoth log repair` repairs what it can"),
    "binding_failed": LogEvent(WARNING, "the client of a new producer id is not on the disk"),
    # the audit
    "audit_failed": LogEvent(ERROR, "audit records cannot be written; their number follows in the file"),
    # the routing rules
    "rules_changed": LogEvent(INFO, "another version of a rule set has effect; 0: it was removed"),
    "rules_group_deleted": LogEvent(INFO, "a group of a former version of a rule set was deleted"),
    "rules_failed": LogEvent(WARNING, "a rule set, or the process that runs them, cannot run"),
    "rules_ended": LogEvent(WARNING, "the process of the rules has ended; it is started again"),
    # Poe's protocol
    "poe_listening": LogEvent(INFO, "clients of Poe may connect here", "Poe's protocol on {url}"),
    "poe_failed": LogEvent(WARNING, "the process of Poe's protocol cannot run"),
    "poe_ended": LogEvent(WARNING, "the process of Poe's protocol has ended; it is started again"),
    "poe_closed": LogEvent(
        WARNING,
        "so many connections of Poe's clients were closed since the last such line; the reason of one",
    ),
    "poe_damaged": LogEvent(WARNING, "a read through Poe's protocol has passed over damaged records"),
    # other libraries
    "message": LogEvent(INFO, "a message of another library"),
}

PROGRAM = LoggingProgram("quothd", EVENTS, Timer)


def note(event: str, problem: BaseException | None = None, /, **fields: Any) -> None:
    """Log an event. problem: an unexpected exception, whose traceback is logged, too."""
    level = EVENTS[event].level
    if log.isEnabledFor(level):
        line = line_of(event, fields)
        log.log(level, line, exc_info=problem, stacklevel=2, extra={"event": event, "fields": fields})
