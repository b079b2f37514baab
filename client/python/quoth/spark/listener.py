"""Reports the lag of streaming queries, by topic, whenever Spark reports progress."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from pyspark.sql.streaming.listener import (
    QueryProgressEvent,
    QueryStartedEvent,
    QueryTerminatedEvent,
    StreamingQueryListener,
)

from quoth.spark.source.offset_planner import Offset
from quothwire.errors import QuothError

log = logging.getLogger("quoth.spark")


class Lag(NamedTuple):
    """The lag of a query in a topic after a micro-batch.

    query: its name, or its id if it has none. records: not read yet. seconds: between the newest record and
    the last one read. lost: records that were lost since the query began, see `failOnDataLoss`.
    """

    query: str
    batch: int
    topic: str
    records: int
    seconds: float
    lost: int


def log_lag(lag: Lag) -> None:
    """Write a lag to the log."""
    log.info("query=%s batch=%d topic=%r behind_records=%d behind_seconds=%.3f lost=%d", *lag)


class LagListener(StreamingQueryListener):
    """Reports the lag of the queries of a session: `spark.streams.addListener(LagListener())`.

    tell: called for each topic after each micro-batch, in a thread of Spark. Its exceptions are logged and do
    not end the query.
    """

    def __init__(self, tell: Callable[[Lag], None] = log_lag) -> None:
        self._tell = tell

    def onQueryProgress(self, event: QueryProgressEvent) -> None:  # noqa: N802
        """Report the lags after a micro-batch."""
        try:
            for lag in lags(event.progress):
                self._tell(lag)
        except Exception:
            log.exception("the lag of a query could not be reported")

    def onQueryStarted(self, event: QueryStartedEvent) -> None:  # noqa: N802
        """Ignore the event."""

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:  # noqa: N802
        """Ignore the event."""


def lags(progress: Any) -> Iterator[Lag]:
    """The lags in a `StreamingQueryProgress`, such as `query.lastProgress`; other formats have none."""
    for source in progress.sources:
        try:
            end, latest = (
                Offset.from_json(json.loads(one)) for one in (source.endOffset, source.latestOffset)
            )
        except (QuothError, TypeError, ValueError):
            continue  # another format
        for topic, newest in latest.topics.items():
            if topic not in end.topics:
                continue
            read = end.topics[topic]
            records = max(0, newest.ordinal - read.ordinal)
            seconds = max(0, newest.next - read.next) / 1e6 if records else 0.0
            query = progress.name or str(progress.id)
            yield Lag(query, progress.batchId, topic, records, seconds, read.lost)
