"""The position of a tail, and the stored cursor that follows it.

A record is done when the loop that got it asks for the next one. So the record at which a loop is left, by an
error, a `break` or a crash, comes again.
"""

from __future__ import annotations

import math
import os
import time
from collections.abc import Iterable, Iterator

from quoth.batch import Batch
from quoth.core.options import Timing
from quoth.core.request_state import ClientCall
from quoth.cursor import Cursor, Position
from quoth.message import Message, OnGap
from quoth.reader import NEWEST, RecordReader
from quoth.timestamps import Timestamp
from quoth.timestamps import cursor as beginning_at
from quothwire.closing import Closeable
from quothwire.errors import QuothError

CursorFile = Cursor | str | os.PathLike[str]
"""A cursor, or the path of its file."""


class TailState(Closeable):
    """The reader of a tail, and its stored cursor if it has one. Belongs to one thread.

    cursor: has precedence over `after` and `since`. A topic that it does not know is read from its beginning;
    `after` and `since` say where a new cursor begins. A file is opened here, and closed by `close`.
    Raises what `Cursor` raises, and `RequestError` for a wrong beginning.
    """

    def __init__(
        self,
        topic: str,
        after: int | None,
        since: Timestamp | None,
        cursor: CursorFile | None,
        on_gap: OnGap | None,
        timing: Timing,
        durability: str = "",
    ) -> None:
        self._timing = timing
        begin = beginning_at(after, since, NEWEST)
        self._owned = None if cursor is None or isinstance(cursor, Cursor) else Cursor(cursor)
        self._cursor = cursor if isinstance(cursor, Cursor) else self._owned
        self._saved_at = -math.inf
        is_new = self._cursor is None or not self._cursor.topics
        self.reader = RecordReader(topic, begin if is_new else 0, on_gap)
        self.reader.is_time, self.reader.durability = since is not None, durability
        position = self._cursor.position(topic) if self._cursor is not None else None
        if position is not None:
            self.reader.resume(*position)

    @property
    def is_placed(self) -> bool:
        """True if the beginning is known; else the reader has to find the topic's end."""
        return self.reader.after != NEWEST

    def begin(self) -> None:
        """Put the beginning of the tail into a new cursor."""
        if self._cursor is not None:
            reader = self.reader
            self._cursor.begin(reader.topic, Position(reader.after, reader.log_id, reader.ordinal))

    def follow(self, timeout: float) -> ClientCall[Iterator[Batch]]:
        """Fetch as `BatchCursor.fetch_ahead`: the broker holds the fetch until there is more.

        With a cursor the next fetch returns soon, to save it.
        """
        timing = self._timing
        wait = self.reader.first_wait(timing.tail_wait)
        prefetch_wait = min(timing.tail_wait, math.inf if self._cursor is None else timing.save_pause)
        return self.reader.fetch_ahead(wait=wait, timeout=timeout, prefetch_wait=prefetch_wait)

    def pause_after(self, problem: QuothError) -> float:
        """Return the seconds after which the tail tries again. Raises an error that does not pass."""
        if problem.code == "unknown_topic" and not self.reader.has_answered:
            return 0.0  # the broker has waited for it
        if not problem.retryable:
            raise problem
        return self._timing.away_pause

    def messages(self, found: Batch) -> Iterable[Message]:
        """Return the records of a batch; each moves the cursor when the next one is requested."""
        if self._cursor is None:
            return found
        self._cursor.expect(found, self.reader.log_id)
        return self._advancing(found, self._cursor)

    def save(self) -> None:
        """Save the cursor unless it was saved just now. Raises OSError."""
        if self._cursor is not None and time.monotonic() - self._saved_at >= self._timing.save_pause:
            self._cursor.save()
            self._saved_at = time.monotonic()

    def close(self) -> None:
        """Save and close a cursor that was opened here. Does nothing the second time."""
        owned, self._owned = self._owned, None
        if owned is not None:
            owned.close()

    @staticmethod
    def _advancing(messages: Iterable[Message], cursor: Cursor) -> Iterator[Message]:
        for message in messages:
            yield message
            cursor.advance(message)
