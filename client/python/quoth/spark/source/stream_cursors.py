"""Shows the progress of a stream at the broker: a named cursor in each topic.

The checkpoint of the query decides which records it reads; nothing here changes that.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable

from quoth.reported_cursor import REPORT_S, ReportedCursor, refuse_leases
from quoth.spark.connections import client
from quoth.spark.options import Options
from quoth.spark.source.offset_planner import Offset
from quothwire.errors import Disconnected, QuothError

log = logging.getLogger("quoth.spark")


class StreamCursors:
    """The cursors of a stream, none without the option `group`. Belongs to the process that plans it."""

    def __init__(self, options: Options) -> None:
        self._options = options
        self._group = options.group
        self._checked: set[str] = set()
        self._cursors: dict[str, ReportedCursor] = {}

    def check(self, topics: Iterable[str]) -> None:
        """Look for the group in new topics. Raises `Conflict` ``group_exists`` if it has leases there."""
        if self._group is None:
            return
        for topic in topics:
            if topic not in self._checked:
                refuse_leases(self._options.connect(), topic, self._group)
                self._checked.add(topic)

    def commit(self, end: Offset) -> None:
        """Move the cursors to the end of a micro-batch that Spark has committed; not to the initial offset.

        Failures are logged, and the next commit makes up for them. Raises ``group_exists`` for a group with
        leases that was created since `check`.
        """
        if self._group is None or end.initial:
            return
        for topic, position in end.topics.items():
            try:
                self._cursor_of(topic, self._group).report(position.next - 1)
            except QuothError as problem:
                if problem.code == "group_exists":
                    raise
                log.warning("cursor %r of topic %r: not committed: %s", self._group, topic, problem)
                if isinstance(problem, Disconnected):
                    return  # the others would wait as long

    def _cursor_of(self, topic: str, group: str) -> ReportedCursor:
        """Return the cursor of a topic. Raises `Disconnected` if the first one finds no broker."""
        if topic not in self._cursors:
            broker = client(self._options.url, min(self._options.timeout, REPORT_S), self._options.key)
            self._cursors[topic] = ReportedCursor(broker, topic, group)
        return self._cursors[topic]
