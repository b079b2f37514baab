"""The names of the quotas: how much a client, or all of them together, may have or do."""

from __future__ import annotations

from enum import StrEnum

from quothwire.errors import QuothError, error
from quothwire.text.quantity import format_size


class Quota(StrEnum):
    """A quota, by its key in the clients file."""

    TOPICS = "topics"
    """Topics that the client has created, and that exist."""
    TOPIC_CREATIONS = "topic_creations"
    """Topics that it creates in a minute."""
    STORE_BYTES = "store_bytes"
    """Bytes in the topics that it has created, by any publisher."""
    REQUESTS = "requests"
    """Requests in work."""
    REQUEST_BYTES = "request_bytes"
    """Bytes of the requests in work."""
    WAITS = "waits"
    """Fetches that wait for records."""
    CONNECTIONS = "connections"
    GROUPS = "groups"
    """Groups of a topic, above which the client creates none there."""
    PRODUCERS = "producers"
    """Producer ids that write to one topic within a minute."""
    APPLICATIONS = "applications"
    """Applications of which one topic has transactions."""


IN_WORK = (Quota.REQUESTS, Quota.REQUEST_BYTES, Quota.WAITS, Quota.PRODUCERS)
"""Quotas of what ends by itself: beyond them the answer is ``busy``, and the client tries again."""
SIZES = (Quota.STORE_BYTES, Quota.REQUEST_BYTES)
"""Quotas that are counted in bytes."""
_WORDS = {
    Quota.TOPICS: "topics",
    Quota.TOPIC_CREATIONS: "new topics in a minute",
    Quota.STORE_BYTES: "in the topics that it has created",
    Quota.REQUESTS: "requests in work",
    Quota.REQUEST_BYTES: "of requests in work",
    Quota.WAITS: "fetches that wait",
    Quota.CONNECTIONS: "connections",
    Quota.GROUPS: "groups in a topic in which it creates one",
    Quota.PRODUCERS: "producers that write to one topic within a minute",
    Quota.APPLICATIONS: "applications with transactions in one topic",
}


def quota_exceeded(client: str, quota: Quota, limit: int) -> QuothError:
    """Make the error for a quota that is used up. client: its name, empty for all together."""
    whose = f"client {client!r}" if client else "all clients together"
    shown = format_size(limit) if quota in SIZES else f"{limit:,}"
    text = f"quota {quota}: {whose} may have at most {shown} {_WORDS[quota]}"
    return error("busy" if quota in IN_WORK else "quota_exceeded", text)
