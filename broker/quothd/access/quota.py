"""The names of the quotas: how much a client, or all of them together, may have or do."""

from __future__ import annotations

from enum import StrEnum


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


IN_WORK = (Quota.REQUESTS, Quota.REQUEST_BYTES, Quota.WAITS)
"""Quotas of what ends by itself: beyond them the answer is ``busy``, and the client tries again."""
SIZES = (Quota.STORE_BYTES, Quota.REQUEST_BYTES)
"""Quotas that are counted in bytes."""
