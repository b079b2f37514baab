"""The records that a member has at hand: fetched, and not handed out to the application yet."""

from __future__ import annotations

import time
from typing import TypeVar

from quoth.groups.leased import LeasedBatch, LeasedMessage
from quoth.groups.lot import LeasedPart, Lot
from quoth.groups.settlements import LeasedRange, SettlementQueue
from quothwire.protocol.settlement import Settle

M = TypeVar("M", bound=LeasedMessage)
B = TypeVar("B", bound=LeasedBatch)
UNREADABLE = "a batch in the answer of the broker does not check"


class LeasedStock:
    """Records of one lot. Belongs to one thread at a time.

    handed_out: the number of those handed out. released: the number of records of all lots that were not.
    """

    def __init__(self, queue: SettlementQueue) -> None:
        self.handed_out = self.released = 0
        self._queue = queue
        self._lot: Lot | None = None
        self._part: LeasedPart | None = None
        self._row = 0

    def __bool__(self) -> bool:
        """Return True if it may have more."""
        return self._part is not None or bool(self._lot)

    def open(self, lot: Lot) -> None:
        """Go on with another lot."""
        self._lot, self.handed_out = lot, 0

    def next_message(self, kind: type[M]) -> M | None:
        """Return the next record, None if there is none."""
        while (part := self._next_part()) is not None:
            row = self._row
            if self._is_held(part):
                self._row += 1
                self.handed_out += 1
                if self._row == len(part.batch.values):
                    self._part = None
                return kind._of(self._queue, part, row)
            self._part = None
        return None

    def next_batch(self, kind: type[B]) -> B | None:
        """Return the next batch, None if there is none."""
        while (part := self._next_part()) is not None:
            is_held, row = self._is_held(part), self._row
            self._part = None
            if is_held:
                part = part.cut(row) if row else part
                self.handed_out += len(part.batch.values)
                return kind(self._queue, part)
        return None

    def release(self) -> None:
        """Give all of it back, as if it had not been handed out."""
        while (part := self._next_part()) is not None:
            records = LeasedRange(part.lease, self._after(part), part.until)
            if records.lease.token:
                self._queue.put(Settle.RELEASE, records)
            self.released += len(part.batch.values) - self._row
            self._part = None

    def keep(self, seconds_max: float) -> float:
        """Extend the leases of all that is at hand if less than half of them is left.

        Returns the seconds until the next call, at most so many.
        """
        left = self._left()
        if not left or not left[0].lease.token or self._lot is None:
            return seconds_max
        now, seconds = time.monotonic(), self._lot.seconds
        if 0 < left[0].lease.deadline - now < seconds / 2:
            for records in left:
                self._queue.put(Settle.EXTEND, records, milliseconds=round(seconds * 1_000))
                records.lease.deadline = now + seconds
        return min(seconds_max, seconds / 4)

    # -- inside -----------------------------------------------------------------------------------------

    def _next_part(self) -> LeasedPart | None:
        if self._part is None and self._lot is not None:
            self._part, self._row = self._lot.next(), 0
            self._settle_unreadable(self._lot)
            if self._part is None:
                self._lot = None
        return self._part

    def _settle_unreadable(self, lot: Lot) -> None:
        """Step over batches that do not check. Behind a broken header everything is given back."""
        for records in lot.damaged:
            if records.lease.token:
                self._queue.put(Settle.ACK, records)
        lot.damaged.clear()
        if lot.is_broken:
            for records in lot.left():
                if records.lease.token:
                    self._queue.put(Settle.NACK, records, reason=UNREADABLE)

    def _is_held(self, part: LeasedPart) -> bool:
        """Return True if a part is under its lease. Without a token there is none to lose."""
        lease = part.lease
        if lease.generation <= self._queue.outdated:
            return False
        if not lease.token:
            return True
        assert self._lot is not None, "the part is of it"
        now = time.monotonic()
        if lease.deadline - now < self._lot.seconds / 2:
            self.keep(0.0)
        return lease.deadline > now

    def _left(self) -> list[LeasedRange]:
        """Return what is at hand."""
        left = self._lot.left() if self._lot is not None else []
        part = self._part
        if part is not None:
            left.insert(0, LeasedRange(part.lease, self._after(part), part.until))
        return left

    def _after(self, part: LeasedPart) -> int:
        """Return the pointer of the record before the next one of a part."""
        return part.batch.first + self._row - 1 if self._row else part.after
