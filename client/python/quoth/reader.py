"""Reading a topic on: one cursor that moves over batches, and an account of what is not there.

The ordinals in the batches tell exactly what is missing between two of them, whatever took it away.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator

from quoth.batch import Batch
from quoth.channel import Channel
from quoth.message import Gap, Reason
from quothwire import batch as wire
from quothwire.batch import Header
from quothwire.errors import QuothError
from quothwire.message import Fetch, Fetched

OnGap = Callable[[Gap], None]

FETCH_BYTES = 2**20
RECORDS_MAX = 2**32

log = logging.getLogger("quoth")


def log_gap(gap: Gap) -> None:
    """What happens to a gap unless the application says otherwise: a warning in the log."""
    count = "some" if gap.records < 0 else str(gap.records)
    log.warning(
        "%s records are missing topic=%r reason=%s after=%d next=%d",
        count, gap.topic, gap.reason, gap.after, gap.next,
    )  # fmt: skip


class Reader:
    """A cursor on one topic. `after` is the pointer up to which everything has been handed out."""

    def __init__(self, topic: str, after: int, on_gap: OnGap | None) -> None:
        self.topic = topic
        self.after = after
        self.seen = False
        """Has the topic answered once?"""
        self.looking = False
        """Did the last answer hold anything, even if all of it was damaged?"""
        self._on_gap = on_gap or log_gap
        self._log_id = 0
        self._ordinal = -1
        self._careful = False

    def fetch(
        self, channel: Channel, *, wait: float = 0.0, deadline: float, records_max: int = RECORDS_MAX
    ) -> list[Batch]:
        """The next batches, empty if there is nothing above the cursor within `wait` seconds."""
        request = Fetch(
            after=self.after,
            ordinal=self._ordinal,
            records_max=1 if self._careful else min(max(records_max, 1), RECORDS_MAX),
            bytes_max=FETCH_BYTES,
            wait_ms=int(wait * 1_000),
        )
        answer = channel.call(request, self.topic, deadline=deadline, wait=wait)
        assert isinstance(answer.reply, Fetched)
        self.seen = True
        self.looking = bool(answer.payload)
        self._meet(answer.reply)
        return list(self._open(answer.payload, answer.reply))

    def _meet(self, reply: Fetched) -> None:
        """Notice that the topic was made anew, or that records in front of the cursor were removed."""
        if self._log_id not in (0, reply.log):
            self._ordinal = -1
            self._tell(self.after, reply.next, -1, "recreated")
        elif reply.gone and self._ordinal < 0 and self.after:
            self._tell(self.after, reply.next, reply.gone, "trimmed")
        self._log_id = reply.log

    def _open(self, payload: bytes, reply: Fetched) -> Iterator[Batch]:
        view = memoryview(payload)
        reason: Reason = "trimmed" if reply.gone else "damaged"
        position = 0
        opened = False
        self._careful, careful = False, self._careful
        while position < len(view):
            try:
                header = wire.parse_header(view, reply.log, position)
            except QuothError:
                # Damage between two batches: asked for one batch at a time, the broker steps over it.
                self._careful = not careful
                if careful and not opened:
                    self._tell(self.after, reply.next, -1, "damaged")
                    self.after, self._ordinal = reply.next, -1
                return
            opened = True
            found = self._batch(view[position : position + header.size], header, reply.log, reason)
            position += header.size
            reason = "damaged"
            if found is not None and len(found):
                yield found

    def _batch(self, raw: memoryview, header: Header, log_id: int, reason: Reason) -> Batch | None:
        """Decode one batch and move the cursor behind it; None if its body is damaged."""
        if 0 <= self._ordinal < header.ordinal:
            self._tell(self.after, header.base, header.ordinal - self._ordinal, reason)
        before = self.after
        self.after, self._ordinal = header.last, header.end_ordinal
        try:
            columns = wire.decode(raw, log_id)
        except QuothError:
            self._tell(before, header.last + 1, header.records, "damaged")
            return None
        return Batch(self.topic, columns, max(0, before - header.base + 1))

    def _tell(self, after: int, following: int, records: int, reason: Reason) -> None:
        self._on_gap(Gap(self.topic, after, following, records, reason))


def deadline_in(seconds: float) -> float:
    """A deadline by the monotonic clock."""
    return time.monotonic() + seconds
