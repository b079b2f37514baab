"""The answer to a fetch of a group: batches, in which each record belongs to a lease.

An iteration asks for as many records at once as are handled in a moment: what waits at a member is under a
lease, and no other member has it. So it begins with one record, and asks for more only as long as it handles
them quickly.
"""

from __future__ import annotations

from typing import NamedTuple

from quoth.batch import Batch
from quoth.groups.settlements import HeldLease, LeasedRange
from quoth.message import Gap, OnGap
from quothwire import batch as wire
from quothwire.batch import Header
from quothwire.errors import QuothError
from quothwire.protocol.binary_codec import Answer
from quothwire.protocol.group_messages import GroupFetched
from quothwire.protocol.group_settings import AT_MOST_ONCE

RECORDS_MAX = 1_000
GROWTH = 4
"""The most by which one lot is larger than the one before."""
LOT_S_MAX = 0.25
LEASE_PART = 0.1
"""The part of a lease in which all records of a lot are handled."""
IN_FLIGHT_PART = 2
"""A lot is at most this part of what all members may have."""


class LeasedPart(NamedTuple):
    """Consecutive records of one lease, the first of which follows the pointer `after` there."""

    batch: Batch
    lease: HeldLease
    after: int

    @property
    def until(self) -> int:
        """The pointer of the last one."""
        return self.batch.last

    def cut(self, row: int) -> LeasedPart:
        """Return the part from a row on."""
        batch = self.batch.part(row, len(self.batch))
        return LeasedPart(batch, self.lease, batch.first - 1)


class _Taken:
    """A lease of a lot. after: the pointer up to which its records were taken. ordinal: that of the next
    one, -1 if it is not known."""

    __slots__ = ("after", "lease", "ordinal", "until")

    def __init__(self, row: list[int], generation: int, deadline: float) -> None:
        token, attempts, first, last = row
        self.lease = HeldLease(token, attempts, generation, deadline)
        self.after, self.until = first - 1, last
        self.ordinal = -1

    def overlaps(self, header: Header) -> bool:
        """Return True if the batch has records that were not taken yet."""
        return max(self.after + 1, header.base) <= min(self.until, header.last)


class Lot:
    """The records of one answer, which are decoded as they are taken. Belongs to one thread.

    answered_at: the monotonic time at which the answer came, from which its leases last. damaged: ranges of
    records that do not check, reported and not handed out; the caller acknowledges them.
    """

    def __init__(self, topic: str, answer: Answer, answered_at: float, on_gap: OnGap) -> None:
        reply = answer.reply
        assert isinstance(reply, GroupFetched)
        self.seconds = reply.lease_ms / 1_000
        self.damaged: list[LeasedRange] = []
        self.is_broken = False
        """True if the rest of the answer cannot be read."""
        self._topic = topic
        self._on_gap = on_gap
        self._log = reply.log
        self._view = memoryview(answer.payload)
        self._position = 0
        self._header: Header | None = None
        """That of the batch at the position, which may have more records."""
        deadline = answered_at + self.seconds
        self._leases = [_Taken(row, reply.generation, deadline) for row in reply.leases]
        self._current = 0
        """The lease that the next records belong to, or one behind it."""

    def __bool__(self) -> bool:
        """Return True if it may have more."""
        return not self.is_broken and self._current < len(self._leases)

    def next(self) -> LeasedPart | None:
        """Return the next records; None at the end, or at a batch whose header does not check."""
        while (header := self._next_header()) is not None:
            held = self._lease_of(header)
            if held is None:
                self._position += header.size
                self._header = None
                continue
            part = self._taken(held, header)
            if part is not None:
                return part
        return None

    def left(self) -> list[LeasedRange]:
        """Return the ranges of all that was not taken."""
        left = (LeasedRange(one.lease, one.after, one.until) for one in self._leases[self._current :])
        return [one for one in left if one.after < one.until]

    # -- inside -----------------------------------------------------------------------------------------

    def _next_header(self) -> Header | None:
        """Return the header of the batch with the next records; None if there is none."""
        if self._header is not None or self._position >= len(self._view) or not self:
            return self._header if self else None
        try:
            self._header = wire.parse_header(self._view, self._log, self._position)
        except QuothError:
            self.is_broken = True
        return self._header

    def _lease_of(self, header: Header) -> _Taken | None:
        """Return the next lease that has records of a batch."""
        for row in range(self._current, len(self._leases)):
            if self._leases[row].overlaps(header):
                self._current = row
                return self._leases[row]
        return None

    def _taken(self, held: _Taken, header: Header) -> LeasedPart | None:
        """Take the records of a batch that belong to a lease; None if they do not check."""
        first, last = max(held.after + 1, header.base), min(held.until, header.last)
        after, held.after = held.after, last
        ordinal = header.ordinal + first - header.base
        if 0 <= held.ordinal < ordinal:
            self._report(after, first, ordinal - held.ordinal, held.ordinal)
        held.ordinal = ordinal + last - first + 1
        if last == held.until:
            self._current += 1
        raw = self._view[self._position : self._position + header.size]
        try:
            batch = Batch.of(self._topic, wire.decode(raw, self._log), first - header.base)
        except QuothError:
            self._report(first - 1, last + 1, last - first + 1, ordinal)
            self.damaged.append(LeasedRange(held.lease, after, last))
            return None
        return LeasedPart(batch.head(last - first + 1), held.lease, after)

    def _report(self, after: int, following: int, records: int, ordinal: int) -> None:
        self._on_gap(Gap(self._topic, after, following, records, "damaged", ordinal))


class LotSize:
    """The size of the next lot of an iteration.

    records: that size. is_quick: True if another lot may wait while one is handled.
    """

    def __init__(self, mode: str, lease: float, max_in_flight: int, max_attempts: int) -> None:
        # What waits here when a member ends has no other attempt in such groups.
        self._may_wait = not (mode == AT_MOST_ONCE or max_attempts == 1)
        self._fair = max(1, max_in_flight // IN_FLIGHT_PART)
        self._most = min(RECORDS_MAX, self._fair) if self._may_wait else 1
        self._longest = LEASE_PART * lease
        self.records = 1
        self.is_quick = False

    def handled(self, records: int, seconds: float) -> None:
        """Note that so many records took so many seconds."""
        if records < 1:
            return
        fitting = int(min(LOT_S_MAX, self._longest) * records / max(seconds, 1e-9))
        self.records = max(1, min(fitting, GROWTH * records, self._most))
        self.is_quick = self._may_wait and records <= self._fair and seconds <= self._longest
