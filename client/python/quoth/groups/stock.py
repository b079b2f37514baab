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
GIVEN_BACK_MS = 1
"""In a row: the records may be handed out again at once."""
NOT_BEGUN = "its member has not begun with it"
UNREADABLE = "a batch in the answer of the broker does not check"


class LeasedStock:
    """Records of one lot. Belongs to one thread at a time. handed_out: the number of those handed out."""

    def __init__(self, queue: SettlementQueue) -> None:
        self.handed_out = 0
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
                return kind.of(self._queue, part, row)
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

    def give_back(self) -> None:
        """Give all of it back."""
        for records in self._left():
            if records.lease.token:
                self._queue.put(Settle.NACK, records, milliseconds=GIVEN_BACK_MS, reason=NOT_BEGUN)
        self._lot = self._part = None

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
        """Return True if a part is under its lease. Extends the leases of all that is at hand in time.

        In a group of mode ``at_most_once`` there is none to lose.
        """
        lease = part.lease
        if lease.generation <= self._queue.outdated:
            return False
        if not lease.token:
            return True
        assert self._lot is not None, "the part is of it"
        now, seconds = time.monotonic(), self._lot.seconds
        if lease.deadline <= now:
            return False
        if lease.deadline - now < seconds / 2:
            for records in self._left():
                self._queue.put(Settle.EXTEND, records, milliseconds=round(seconds * 1_000))
                records.lease.deadline = now + seconds
        return True

    def _left(self) -> list[LeasedRange]:
        """Return what is at hand."""
        left = self._lot.left() if self._lot is not None else []
        part = self._part
        if part is not None:
            after = part.batch.first + self._row - 1 if self._row else part.after
            left.insert(0, LeasedRange(part.lease, after, part.until))
        return left
