"""Where a tail begins, and the cursor in which it keeps what is done.

A record is done when the loop that got it asks for the next one. So the record at which a loop is left, by an
error, a `break` or a crash, comes again.
"""

from __future__ import annotations

import math
import os
import time
from collections.abc import Iterable, Iterator

from quoth.batch import Batch
from quoth.core.request_state import ClientCall
from quoth.cursor import Cursor, Position
from quoth.message import Message, OnGap
from quoth.reader import NEWEST, RecordReader
from quoth.timestamps import Timestamp
from quoth.timestamps import cursor as beginning_at
from quothwire.closing import Closeable

SAVE_S = 0.2
"""A cursor is saved no more often, since a save waits for the disk: a crash repeats the work of so long. When
nothing has come for that time, all that is done is saved."""

CursorFile = Cursor | str | os.PathLike[str]
"""A cursor, or the file that keeps it."""


class TailState(Closeable):
    """The reader of a tail, and its cursor if it has one. Belongs to one thread.

    cursor: where to go on, whatever `after` and `since` say. A topic that it does not know is read from its
    beginning; they say where it begins with a new cursor. A file is opened here, and closed by `close`.
    Raises what `Cursor` raises, and `RequestError` for a beginning that makes no sense.
    """

    def __init__(
        self,
        topic: str,
        after: int | None,
        since: Timestamp | None,
        cursor: CursorFile | None,
        on_gap: OnGap | None,
    ) -> None:
        begin = beginning_at(after, since, NEWEST)
        self._owned = None if cursor is None or isinstance(cursor, Cursor) else Cursor(cursor)
        self._cursor = cursor if isinstance(cursor, Cursor) else self._owned
        self._saved_at = -math.inf
        is_new = self._cursor is None or not self._cursor.topics
        self.reader = RecordReader(topic, begin if is_new else 0, on_gap)
        self.reader.is_time = since is not None
        position = self._cursor.position(topic) if self._cursor is not None else None
        if position is not None:
            self.reader.resume(*position)

    @property
    def is_placed(self) -> bool:
        """Is it known where it begins? Else the reader has to find the topic's end."""
        return self.reader.after != NEWEST

    def begin(self) -> None:
        """Keep in a new cursor where the tail begins."""
        if self._cursor is not None:
            reader = self.reader
            self._cursor.begin(reader.topic, Position(reader.after, reader.log_id, reader.ordinal))

    def follow(self, timeout: float) -> ClientCall[Iterator[Batch]]:
        """See `Passage.follow`. With a cursor it goes on soon after what has come, to save that."""
        return self.reader.follow(timeout, math.inf if self._cursor is None else SAVE_S)

    def messages(self, found: Batch) -> Iterable[Message]:
        """The records of a batch; each moves the cursor when the one behind it is asked for."""
        if self._cursor is None:
            return found
        self._cursor.expect(found, self.reader.log_id)
        return self._advancing(found, self._cursor)

    def save(self) -> None:
        """Save the cursor, unless that was done just now. Raises OSError."""
        if self._cursor is not None and time.monotonic() - self._saved_at >= SAVE_S:
            self._cursor.save()
            self._saved_at = time.monotonic()

    def close(self) -> None:
        """Close the cursor if it was opened here, which saves it. Does nothing the second time."""
        owned, self._owned = self._owned, None
        if owned is not None:
            owned.close()

    @staticmethod
    def _advancing(messages: Iterable[Message], cursor: Cursor) -> Iterator[Message]:
        for message in messages:
            yield message
            cursor.advance(message)
