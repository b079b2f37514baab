"""Reading a topic on: one cursor that moves over batches, and an account of what is not there.

The ordinals in the batches tell exactly what is missing between two of them, whatever took it away; what is
missing in front of the first one the broker tells.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Iterator

from quoth.batch import Batch
from quoth.channel import Channel
from quoth.deadline import deadline_in
from quoth.message import Gap, Message, OnGap
from quothwire import batch as wire
from quothwire.batch import Header
from quothwire.errors import QuothError
from quothwire.message import WAIT_MS_MAX, Fetch, Fetched

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
    """A cursor on one topic. `after` is the pointer up to which everything has been handed out or told."""

    def __init__(self, topic: str, after: int, on_gap: OnGap | None) -> None:
        self.topic = topic
        self.after = after
        self.seen = False
        """Has the topic answered once?"""
        self.looking = False
        """Is there more to look at, even if all of the last answer was damaged?"""
        self._on_gap = on_gap or log_gap
        self._log_id = 0
        self._ordinal = -1
        self._old_after = -1
        """Where the cursor stood in a topic of the same name that is no more, until that has been told."""

    def go_to_end(self, reply: Fetched) -> None:
        """Begin behind the newest record."""
        self.after, self._ordinal, self._log_id = reply.newest, reply.end, reply.log
        self.seen = True

    def fetch(
        self, channel: Channel, *, wait: float = 0.0, timeout: float, records_max: int = RECORDS_MAX
    ) -> Iterator[Batch]:
        """The next batches, none if there is nothing above the cursor within `wait` seconds.

        timeout: seconds that the broker may take beyond that. The cursor moves, and gaps are told, while the
        batches are taken.
        """
        wait_ms = min(math.ceil(wait * 1_000), WAIT_MS_MAX)
        request = Fetch(
            after=self.after,
            ordinal=self._ordinal,
            records_max=min(max(records_max, 1), RECORDS_MAX),
            bytes_max=FETCH_BYTES,
            wait_ms=wait_ms,
        )
        wait = wait_ms / 1_000
        answer = channel.call(request, self.topic, deadline=deadline_in(wait + timeout), wait=wait)
        reply = answer.reply
        assert isinstance(reply, Fetched)
        self.seen = True
        if self._log_id not in (0, reply.log):
            # Made anew: none of its records has been read, wherever the cursor stood in the old one.
            self._old_after = self.after
            self.after, self._ordinal, self._log_id = 0, -1, reply.log
            self.looking = True
            return iter(())
        self._log_id = reply.log
        self.looking = bool(answer.payload)
        if not self.looking and reply.newest == self.after:
            self._ordinal = reply.end
        return self._open(answer.payload, reply)

    def messages(self, found: Batch) -> Iterator[Message]:
        """The records of a batch that can be read; the others are told as gaps."""
        return found.readable(self._on_gap)

    def _open(self, payload: bytes, reply: Fetched) -> Iterator[Batch]:
        view = memoryview(payload)
        position = 0
        while position < len(view):
            try:
                header = wire.parse_header(view, reply.log, position)
            except QuothError:
                if not position:  # not even the first one: step over all of it
                    self._tell(reply.next, -1, self._ordinal)
                    self._ordinal = -1
                return
            if not position:
                self._tell_front(header, reply)
            found = self._batch(view[position : position + header.size], header)
            position += header.size
            if found is not None and len(found):
                yield found

    def _tell_front(self, first: Header, reply: Fetched) -> None:
        """Tell what is missing between the cursor and the first batch of a reply."""
        damaged, removed = reply.damaged, reply.gone - reply.damaged
        ordinal = self._ordinal
        if self._old_after >= 0:
            self._on_gap(Gap(self.topic, self._old_after, first.base, -1, "recreated"))
            self._old_after = -1
        if self._ordinal >= 0:
            missing = max(0, first.ordinal - self._ordinal)
            damaged = min(damaged, missing)
            removed = missing - damaged
            self._ordinal = first.ordinal
        elif self.after:
            # The cursor may stand anywhere, so nobody knows how many of them it had passed.
            damaged, removed = -bool(damaged), -bool(removed)
        else:
            removed = 0  # from the oldest one on, and what was before is no loss
            ordinal = first.ordinal - damaged
        before = self.after
        if removed or damaged:
            self.after = max(before, first.base - 1)
        if removed:
            self._on_gap(Gap(self.topic, before, first.base, removed, "trimmed", ordinal))
        if damaged:
            self._on_gap(Gap(self.topic, before, first.base, damaged, "damaged", _behind(ordinal, removed)))

    def _batch(self, raw: memoryview, header: Header) -> Batch | None:
        """Decode one batch and move the cursor behind it; None if its body is damaged."""
        if 0 <= self._ordinal < header.ordinal:
            self._tell(header.base - 1, header.ordinal - self._ordinal, self._ordinal)
        before = max(self.after, header.base - 1)
        self._ordinal = header.end_ordinal
        if header.last <= before:
            return None
        try:
            columns = wire.decode(raw, self._log_id)
        except QuothError:
            self._tell(header.last, header.last - before, header.ordinal + before + 1 - header.base)
            return None
        self.after = header.last
        return Batch(self.topic, columns, before - header.base + 1)

    def _tell(self, last: int, records: int, ordinal: int) -> None:
        """Tell that everything up to the pointer `last` is damaged, and step over it."""
        before, self.after = self.after, max(self.after, last)
        self._on_gap(Gap(self.topic, before, last + 1, records, "damaged", ordinal))


def _behind(ordinal: int, records: int) -> int:
    """The ordinal so many records further, as far as that is known."""
    return ordinal + records if ordinal >= 0 and records >= 0 else -1
