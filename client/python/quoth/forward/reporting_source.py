"""Shows the progress of a forwarding at the broker of its source, as a named cursor."""

from __future__ import annotations

import math
import time
from collections.abc import Callable

from quoth.forward.source import StoredSource
from quoth.reported_cursor import ReportedCursor
from quothwire.batch import Stored
from quothwire.errors import QuothError

AGAIN_S = 5.0
"""Seconds after a failed report before the next one."""


class ReportingSource:
    """A topic that is forwarded, whose broker shows the progress. Belongs to one thread.

    cursor: of this topic. failed: called with the error of a report, and the seconds before the next one. A
    failure does not end the forwarding, whose progress is kept elsewhere.
    """

    def __init__(
        self, source: StoredSource, cursor: ReportedCursor, failed: Callable[[QuothError, float], object]
    ) -> None:
        self._source = source
        self._cursor = cursor
        self._failed = failed
        self._finished = self._reported = -1
        self._next_at = -math.inf

    @property
    def log_id(self) -> int:
        """The id of the topic's log, 0 until a batch was taken."""
        return self._source.log_id

    def seek(self, after: int) -> None:
        """Continue behind a pointer."""
        self._source.seek(after)

    def wait(self, seconds: float) -> list[Stored]:
        """Return the next batches, as `StoredSource.wait`; repeats a report that has failed."""
        found = self._source.wait(seconds)
        if self._finished != self._reported and time.monotonic() >= self._next_at:
            self._report()
        return found

    def finish(self, pointer: int) -> None:
        """Report that everything up to a pointer is forwarded.

        Raises `Conflict` ``group_exists`` for a group with leases.
        """
        self._finished = pointer
        self._report()

    def _report(self) -> None:
        try:
            self._cursor.report(self._finished)
        except QuothError as problem:
            if problem.code == "group_exists":
                raise
            self._next_at = time.monotonic() + AGAIN_S
            self._failed(problem, AGAIN_S)
        else:
            self._reported = self._finished
