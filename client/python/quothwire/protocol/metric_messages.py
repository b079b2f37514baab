"""The request for the metrics of a broker, and its reply."""

from __future__ import annotations

from typing import Annotated, Any

from quothwire.protocol.messages import Number, Operation, Pointer, Request
from quothwire.protocol.value import Range, Value

TOPICS_SHOWN_MAX = 1_000
"""Topics in one reply. `GetMetrics.after` or `since` continues it."""


class Metrics(Value):
    """Amounts and durations of the broker since its start, and some of its topics.

    time: the broker's clock. uptime: seconds. serial: the `since` of the next request. topics: how many there
    are. counters: as in `Status`, each under one name. errors: refused requests by code. requests: by
    operation, the durations of requests from their acceptance to their answer. durations: others by name:
    append, fsync, opening. Each is a map of `buckets` (seconds, upper bounds), `counts` (one more than
    buckets, not cumulative) and `sum`. rows: a map for each topic, see `client/PROTOCOL.md`, with its groups.
    more: go on with the last name, or with `serial`: there may be further ones, even behind a reply without
    rows.
    """

    server: str
    time: Pointer
    uptime: float
    serial: Number
    topics: Number
    counters: dict[str, Any]
    errors: dict[str, Any]
    requests: dict[str, Any]
    durations: dict[str, Any]
    rows: list[dict[str, Any]]
    more: bool


class GetMetrics(Request, operation=Operation.METRICS, reply=Metrics):
    """Ask for the metrics, with some topics: those with names above `after`, in the order of names.

    since: the serial of an earlier reply: only the topics that have changed since, in the order of their
    changes; 0: all of them. limit: topics in the reply. Opens none of them.
    """

    after: str = ""
    since: Number = 0
    limit: Annotated[int, Range(0, TOPICS_SHOWN_MAX)] = 100
