"""Messages and batches under a lease, and the calls that settle them.

A client makes methods of the calls, which return a waiter for the outcome.
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from dataclasses import replace
from typing import Self, TypeAlias

from quoth.batch import Batch
from quoth.groups.lot import LeasedPart
from quoth.groups.options import as_milliseconds, as_reason
from quoth.groups.settlements import HeldLease, LeasedRange, SettlementQueue, Waiter
from quoth.message import Message
from quothwire.errors import error
from quothwire.protocol.settlement import MILLISECONDS_MAX, Settle

SettleCall: TypeAlias = Waiter | None
"""A waiter for the outcome of a settlement; None for one that is not waited for."""
_NOTHING: dict[str, bytes] = {}


class Leased:
    """Records under a lease: those above the pointer `_after` of it, up to `_until`.

    is_settled: it was acknowledged, given back, released or rejected here.
    """

    __slots__ = ()
    is_settled: bool
    _queue: SettlementQueue
    _lease: HeldLease
    _after: int

    @property
    def attempts(self) -> int:
        """The number of their hand-outs, with this one."""
        return self._lease.attempts

    @property
    def generation(self) -> int:
        """The generation of the group, which rises with every seek."""
        return self._lease.generation

    @property
    def _group(self) -> str:
        """The name of the group."""
        return self._queue.group

    @property
    def _until(self) -> int:
        raise NotImplementedError

    def _note_settled(self) -> None:
        """Set `is_settled`."""
        raise NotImplementedError

    def _note_extended(self, lease: HeldLease) -> None:
        """Set `_lease`."""
        raise NotImplementedError

    def _settle(
        self, kind: Settle, milliseconds: int = 0, reason: str = "", *, waiter: Waiter | None = None
    ) -> SettleCall:
        """Add a row about them to the queue, unless they have no lease."""
        if kind is Settle.EXTEND:
            # Other records of the lease are not extended.
            deadline = max(self._lease.deadline, time.monotonic() + milliseconds / 1_000)
            self._note_extended(replace(self._lease, deadline=deadline))
        else:
            self._note_settled()
        if not self._lease.token:
            return None
        records = LeasedRange(self._lease, self._after, self._until)
        self._queue.put(kind, records, milliseconds=milliseconds, reason=reason, waiter=waiter)
        return waiter

    def _wait_for(self, kind: Settle, milliseconds: int = 0, reason: str = "") -> SettleCall:
        """Settle records that need a lease for it."""
        self._queue.check()
        if not self._lease.token:
            text = f"{kind.name.lower()}: in a group of mode at_most_once no record has a lease"
            raise error("bad_request", text, "records of such a group are finished when they are handed out")
        return self._settle(kind, milliseconds, reason, waiter=self._queue.new_waiter())


def ack(leased: Leased, *, wait: bool = True) -> SettleCall:
    """Finish the records: no member gets them again, even if their lease has expired by now.

    Returns once that has the durability of the group. wait: False to return at once; it is sent a few
    milliseconds later, together with others, and an error is raised by a later call of the group, or at the
    end of its ``with`` block. Does nothing in mode ``at_most_once``. Raises `Conflict` ``lease_lost`` if the
    group was moved to another place meanwhile, `Disconnected` if no answer comes; it is sent again then until
    the lease ends.
    """
    leased._queue.check()
    return leased._settle(Settle.ACK, waiter=leased._queue.new_waiter() if wait else None)


def nack(leased: Leased, delay: float | None = None, *, reason: str = "") -> SettleCall:
    """Give the records back, to be handed out again after `delay` seconds.

    delay: None for the group's backoff. reason: for the dead letter, if it was their last attempt. Raises
    `Conflict` ``lease_lost`` if the member does not have the lease any more.
    """
    milliseconds = 0 if delay is None else min(1 + as_milliseconds(delay, "delay"), MILLISECONDS_MAX)
    return leased._wait_for(Settle.NACK, milliseconds, as_reason(reason))


def release(leased: Leased) -> SettleCall:
    """Give the records back with which no work has begun, to be handed out again at once.

    This hand-out does not count as one of their attempts. Raises `Conflict` ``lease_lost`` if the member does
    not have the lease any more.
    """
    return leased._wait_for(Settle.RELEASE)


def extend(leased: Leased, seconds: float) -> SettleCall:
    """Keep the lease for so many seconds from now on.

    Raises `Conflict` ``lease_lost`` if the member does not have it any more: another one may have the
    records now.
    """
    return leased._wait_for(Settle.EXTEND, _extension(seconds))


def term(leased: Leased, reason: str = "") -> SettleCall:
    """Reject the records: they become dead letters now, with the reason as a header.

    Raises `Conflict` ``lease_lost`` if the member does not have the lease any more.
    """
    return leased._wait_for(Settle.TERM, reason=as_reason(reason))


def _extension(seconds: float) -> int:
    """Return the milliseconds of an extension; 0 would be the lease of the group."""
    return max(1, as_milliseconds(seconds, "seconds"))


# -- several at once ----------------------------------------------------------------------------------------


def settle_all(records: Iterable[Leased], kind: Settle, milliseconds: int = 0, reason: str = "") -> None:
    """Settle records in as few requests as possible, without waiting for an answer.

    What has no lease needs nothing. An error is raised by a later call of the group, or at its end.
    """
    for one in records:
        one._settle(kind, milliseconds, reason)


def extend_all(records: Iterable[Leased], seconds: float) -> list[SettleCall]:
    """Extend the leases of records in as few requests as possible; returns a waiter for each."""
    milliseconds = _extension(seconds)
    return [one._settle(Settle.EXTEND, milliseconds, waiter=one._queue.new_waiter()) for one in records]


class LeasedMessage(Leased, Message):
    """One record under a lease."""

    @classmethod
    def _of(cls, queue: SettlementQueue, part: LeasedPart, row: int) -> Self:
        """Return the record of a row."""
        batch, lease, after = part
        headers = batch.headers
        columns = (
            batch.topic,
            batch.first + row,
            batch.values[row],
            batch.keys[row] if batch.keys else None,
            headers[row] if headers else _NOTHING,
        )
        made = tuple.__new__(cls, columns)
        made.is_settled = False
        made._queue, made._lease = queue, lease
        made._after = columns[1] - 1 if row else after
        return made

    @property
    def _until(self) -> int:
        return self.pointer

    def _note_settled(self) -> None:
        self.is_settled = True

    def _note_extended(self, lease: HeldLease) -> None:
        self._lease = lease


class LeasedBatch(Leased, Batch):
    """Consecutive records under one lease, settled together. Its messages are plain ones."""

    __slots__ = ("_after", "_lease", "_queue", "is_settled")

    def __init__(self, queue: SettlementQueue, part: LeasedPart) -> None:
        batch, self._lease, self._after = part
        super().__init__(batch.topic, batch.first, batch.ordinal, batch.values, batch.keys, batch._encoded)
        self._queue = queue
        self.is_settled = False

    @property
    def _until(self) -> int:
        return self.last

    def _note_settled(self) -> None:
        self.is_settled = True

    def _note_extended(self, lease: HeldLease) -> None:
        self._lease = lease
