"""The metrics for Prometheus that come from counters of the broker: their names, types and texts.

Names follow Prometheus' rules: a prefix, base units, ``_total`` for what only grows.
"""

from __future__ import annotations

from typing import NamedTuple

PREFIX = "quoth_"


class Metric(NamedTuple):
    """A metric. name: without prefix, and without ``_total``. scale: its number for 1 of the counter."""

    name: str
    help: str
    is_counter: bool = False
    scale: float = 1.0


def _gauge(name: str, text: str, scale: float = 1.0) -> Metric:
    return Metric(name, text, scale=scale)


def _counter(name: str, text: str, scale: float = 1.0) -> Metric:
    return Metric(name, text, is_counter=True, scale=scale)


OF_BROKER = {
    "requests": _counter("requests", "Requests received."),
    "records_in": _counter("records_in", "Records stored, of all topics."),
    "bytes_in": _counter("bytes_in", "Bytes of stored batches, of all topics."),
    "records_out": _counter("records_out", "Records sent to readers and groups, of all topics."),
    "bytes_out": _counter("bytes_out", "Bytes of batches sent to readers and groups, of all topics."),
    "active": _gauge("topics_active", "Topics with a thread."),
    "unopened": _gauge("topics_unopened", "Topics that were not opened yet since the start."),
    "recovery_ms": _gauge(
        "recovery_seconds", "Time from the start of the broker until each topic had been opened once.", 1e-3
    ),
    "waits": _gauge("waits", "Fetches that wait for records."),
    "syncs": _counter("fsyncs", "Fsyncs that topics asked for."),
    "threads": _gauge("threads", "Threads of the broker."),
    "compiled": _gauge("compiled", "1 if the hot path is in C, 0 if it is in Python."),
    "takeovers": _counter(
        "takeovers", "Times that another thread became the front end, since a disk stalled."
    ),
    "announcer_running": _gauge("announcer_running", "1 while new records are announced."),
    "announcements": _counter("announcements", "Announcements sent."),
    "subscriptions": _gauge("subscriptions", "Subscriptions to announcements."),
    "subscribers_closed": _counter("subscribers_closed", "Subscribers whose connections were closed."),
    "replies_dropped": _counter("replies_dropped", "Replies that could not be sent."),
    "replies_unroutable": _counter("replies_unroutable", "Replies to connections that had ended."),
    "malformed_requests": _counter("malformed_requests", "Requests without an envelope."),
    "clock_steps": _counter("clock_steps", "Steps back of the clock."),
    "torn_bytes": _counter("torn_bytes", "Bytes of torn ends found when topics were opened."),
    "damaged_bytes": _counter("damaged_bytes", "Bytes that did not check when topics were opened."),
    "lost_records": _counter("lost_records", "Synced records that were missing when topics were opened."),
    "quarantined_bytes": _gauge("quarantined_bytes", "Bytes in files with torn or damaged bytes."),
    "unknown_files": _gauge("unknown_files", "Files in the directories of logs that belong to none."),
    "dead_letters_delayed": _gauge("dead_letters_delayed", "Groups whose dead letters cannot be written."),
    "pointer_ahead_us_max": _gauge(
        "pointer_ahead_max_seconds",
        "How far the last pointer of a topic lay ahead of the clock at most.",
        1e-6,
    ),
    "disk_free_bytes": _gauge("disk_free_bytes", "Free bytes of the disk of the data directory."),
    "disk_total_bytes": _gauge("disk_total_bytes", "Bytes of that disk."),
    "disk_level": _gauge("disk_level", "0; 1 the disk is low; 2 publishes are refused."),
    "scrub_rounds": _counter("scrub_rounds", "Checks of all sealed segments."),
    "scrubbed_bytes": _gauge("scrubbed_bytes", "Bytes that the current check has read."),
    "scrub_damages": _gauge("scrub_damages", "Damages that the last check found."),
    "scrub_missing_records": _gauge("scrub_missing_records", "Missing records that the last check found."),
    "rules_running": _gauge("rules_running", "1 while the process of the routing rules runs."),
    "rules_restarts": _counter("rules_restarts", "Restarts of the process of the routing rules."),
    "poe_running": _gauge("poe_running", "1 while the process of Poe's protocol runs."),
    "poe_restarts": _counter("poe_restarts", "Restarts of the process of Poe's protocol."),
    "poe_connections": _gauge("poe_connections", "Connections of Poe's clients."),
    "connections": _gauge("connections", "Connections for requests."),
    "connections_max": _gauge("connections_max", "Connections that the broker lets in."),
    "connections_ended": _counter("connections_ended", "Connections that the broker ended."),
    "connections_denied": _counter("connections_denied", "Handshakes with keys that are not known."),
    "handshakes_failed": _counter("handshakes_failed", "Handshakes that failed."),
    "accepts_failed": _counter("accepts_failed", "Connections that lacked descriptors or memory."),
    "reply_bytes": _gauge("reply_bytes", "Bytes of replies that are not read yet."),
    "memory_used": _gauge("memory_used_bytes", "Resident memory of the broker."),
    "memory_max": _gauge("memory_max_bytes", "The limit of that memory, 0 for none."),
    "authenticator_running": _gauge("authenticator_running", "1 while keys are checked."),
    "authenticator_restarts": _counter("authenticator_restarts", "Restarts of the check of keys."),
}
"""By the name of the counter."""

OF_TOPIC = {
    "records_in": _counter("topic_records_in", "Records stored."),
    "bytes_in": _counter("topic_bytes_in", "Bytes of stored batches."),
    "records_out": _counter("topic_records_out", "Records sent to readers and groups."),
    "bytes_out": _counter("topic_bytes_out", "Bytes of batches sent to readers and groups."),
    "bytes": _gauge("topic_size_bytes", "Bytes of the topic's segments."),
    "count": _gauge("topic_records", "Records that the topic holds."),
    "segments": _gauge("topic_segments", "Segments of the topic."),
    "first": _gauge("topic_first_pointer_seconds", "Time of the oldest record, 0 for none.", 1e-6),
    "last": _gauge("topic_last_pointer_seconds", "Time of the newest record, 0 for none.", 1e-6),
    "pointer_ahead_us": _gauge(
        "topic_pointer_ahead_seconds", "How far the last pointer is ahead of the clock.", 1e-6
    ),
    "quarantined_bytes": _gauge("topic_quarantined_bytes", "Bytes in files with torn or damaged bytes."),
    "lost_records": _counter("topic_lost_records", "Synced records that were missing when it was opened."),
    "damaged_bytes": _counter("topic_damaged_bytes", "Bytes that did not check when it was opened."),
    "staged_bytes": _gauge("topic_staged_bytes", "Bytes of transactions that are not published."),
    "open": _gauge("topic_open", "1 while the topic has a thread, 0 while it hibernates."),
}
OF_GROUP = {
    "lag": _gauge("group_lag_records", "Records that are not finished."),
    "pending": _gauge("group_pending_records", "Records that were handed out and are not finished."),
    "in_flight": _gauge("group_in_flight_records", "Records under a lease."),
    "redelivered": _counter("group_redelivered_records", "Records handed out again."),
    "dead": _counter("group_dead_letters", "Records that became dead letters."),
    "gone": _counter("group_gone_records", "Records that were removed or damaged before they were finished."),
    "paused": _gauge("group_paused", "1 while the group is paused."),
}
"""The same for a topic and for a group, by the key of its row. Other metrics of a group need a clock."""
DURATIONS = {
    "append": Metric("append_seconds", "Writes of the publishes that came together, checks included."),
    "fsync": Metric("fsync_seconds", "Fsyncs."),
    "opening": Metric("topic_opening_seconds", "Openings of topics, recovery included."),
}
REQUESTS = Metric("request_seconds", "Requests, from their acceptance for a topic to their answer.")
