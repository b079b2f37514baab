"""What became of records: collected, and many of them sent in one request.

    put ──► rows ──due──► request in flight ──answered──► the waiters of its rows

Rows are due after `FLUSH_S`, at once if something waits for them. Consecutive records of one lease that are
acknowledged one after the other are one row.
"""

from __future__ import annotations

import math
import threading
import time
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, replace
from operator import attrgetter
from typing import Protocol

from quoth.core.request_state import RequestState
from quothwire.errors import QuothError, error
from quothwire.protocol.binary_codec import Answer
from quothwire.protocol.group_messages import GroupSettle, GroupSettled
from quothwire.protocol.settlement import ROWS_MAX, Settle, Settlement, encode_settlements

FLUSH_S = 0.005
"""Seconds for which a row that nothing waits for is kept, to be sent with others."""
REASON_CHARACTERS_MAX = 1_000
"""As many of them as the broker keeps."""


class Waiter(Protocol):
    """A future of either client. Its result is the error, None for success."""

    def done(self) -> bool:
        """Return True if it has a result, or was cancelled."""

    def set_result(self, result: QuothError | None, /) -> None:
        """Set the result."""

    def result(self) -> QuothError | None:
        """Return the result."""


@dataclass(slots=True)
class HeldLease:
    """A lease of this member. token: 0 in a group that has none, of mode ``at_most_once``.

    deadline: the monotonic time of its end, as far as is known here.
    """

    token: int
    attempts: int
    generation: int
    deadline: float


@dataclass(slots=True)
class _Row:
    """Records in (after, until]. deadline: of the request that it is sent in, at least."""

    kind: Settle
    after: int
    until: int
    token: int
    milliseconds: int
    deadline: float
    waiter: Waiter | None

    @property
    def settlement(self) -> Settlement:
        """The row as it is sent."""
        return Settlement(self.kind, self.after + 1, self.until, self.token, self.milliseconds)


@dataclass(slots=True)
class _Packed:
    """The rows of a request, and what was sent for them."""

    rows: list[_Row]
    sent: list[Settlement]

    def outcomes(self, request: RequestState, outcome: Answer | QuothError) -> Iterator[_Outcome]:
        """Yield the waiters with what became of their rows.

        What is lost by the answer to one of several copies may have been done by an earlier copy.
        """
        waited = [(row, row.waiter) for row in self.rows if row.waiter is not None]
        problem = problem_of(outcome)
        if problem is None and waited:
            assert isinstance(outcome, Answer), "it is no error"
            assert isinstance(outcome.reply, GroupSettled)
            lost = {(first, last) for first, last in outcome.reply.lost}
            is_outdated = len(outcome.reply.lost) == len(self.sent)
            may_be_done = () if request.unanswered <= 0 else (Settle.NACK, Settle.TERM)
        for row, waiter in waited:
            if problem is not None:
                yield waiter, problem
            elif row.kind is Settle.ACK:
                yield waiter, _lost(row) if is_outdated else None
            else:
                is_lost = (row.after + 1, row.until) in lost and row.kind not in may_be_done
                yield waiter, _lost(row) if is_lost else None


_Outcome = tuple[Waiter, QuothError | None]


class SettlementQueue:
    """The settlements of one member without an answer. Any thread may call it.

    timeout: the least seconds for which a row is sent again while no answer comes; it is until its lease ends
    if that is later. problem: the first error of rows that nothing waited for, until it is raised.
    """

    def __init__(self, topic: str, group: str, timeout: float) -> None:
        self.problem: QuothError | None = None
        self._topic = topic
        self._group = group
        self._timeout = timeout
        self._lock = threading.RLock()  # a message may be settled by a destructor
        self._due = math.inf
        self._last: _Row | None = None
        """The row that the next ack may become a part of."""
        self._rows: defaultdict[tuple[int, str], list[_Row]] = defaultdict(list)
        """Rows that are not packed yet, by the generation of their leases and their reason."""
        self._leaving: list[RequestState] = []
        """Requests that are packed and not sent yet."""
        self._inflight: dict[RequestState, _Packed] = {}
        """All that are packed and have no answer."""
        self._barriers: list[tuple[set[RequestState], Waiter]] = []

    @property
    def due(self) -> float:
        """The monotonic time at which something is to be sent; infinity if there is nothing."""
        return self._due

    @property
    def unanswered(self) -> int:
        """The number of rows without an answer."""
        with self._lock:
            packed = (one.rows for one in self._inflight.values())
            return sum(map(len, (*self._rows.values(), *packed)))

    def put(
        self,
        kind: Settle,
        lease: HeldLease,
        after: int,
        until: int,
        *,
        milliseconds: int = 0,
        reason: str = "",
        waiter: Waiter | None = None,
    ) -> bool:
        """Add a row about the records in (after, until]; returns True if something is due earlier now."""
        token = lease.token
        with self._lock:
            last = self._last
            is_plain = kind is Settle.ACK and waiter is None
            if is_plain and last is not None and last.until == after and last.token == token:
                last.until = until
                return False
            now = time.monotonic()
            deadline = max(lease.deadline, now + self._timeout)
            row = _Row(kind, after, until, token, milliseconds, deadline, waiter)
            self._rows[lease.generation, reason[:REASON_CHARACTERS_MAX]].append(row)
            self._last = row if is_plain else None
            return self._hasten(now if waiter is not None else now + FLUSH_S)

    def flush(self, waiter: Waiter | None = None) -> bool:
        """Make all rows due; returns True if something is due earlier now.

        waiter: has the result None once all rows of before have an answer.
        """
        with self._lock:
            self._pack()
            if waiter is not None and self._inflight:
                self._barriers.append((set(self._inflight), waiter))
            elif waiter is not None:
                waiter.set_result(None)
            return bool(self._leaving) and self._hasten(-math.inf)

    def leaving(self, now: float) -> list[RequestState]:
        """Return the requests that are to be sent now."""
        if self._due > now:
            return []
        with self._lock:
            self._pack()
            self._due = math.inf
            leaving, self._leaving = self._leaving, []
            return leaving

    def take(self, request: RequestState, outcome: Answer | QuothError) -> bool:
        """Take the outcome of a request; returns False if it is not one of this queue."""
        with self._lock:
            packed = self._inflight.pop(request, None)
            if packed is None:
                return False
            done = list(packed.outcomes(request, outcome))
            if self.problem is None and any(row.waiter is None for row in packed.rows):
                self.problem = problem_of(outcome)
            for left, waiter in self._barriers:
                left.discard(request)
                done += [(waiter, None)] if not left else []
            self._barriers = [barrier for barrier in self._barriers if barrier[0]]
        for waiter, result in done:
            if not waiter.done():
                waiter.set_result(result)
        return True

    def fail(self, problem: QuothError) -> None:
        """Give all rows up."""
        with self._lock:
            self._pack()
            self._leaving = []
            self._due = math.inf
            inflight = list(self._inflight)
        for request in inflight:
            self.take(request, problem)

    def raise_problem(self) -> None:
        """Raise the error of rows that nothing waited for, once."""
        if self.problem is not None:
            problem, self.problem = self.problem, None
            raise problem

    # -- under the lock ---------------------------------------------------------------------------------

    def _hasten(self, due: float) -> bool:
        is_earlier = due < self._due
        self._due = min(self._due, due)
        return is_earlier

    def _pack(self) -> None:
        """Make requests of all rows."""
        self._last = None
        for (generation, reason), rows in self._rows.items():
            for begin in range(0, len(rows), ROWS_MAX):
                part = rows[begin : begin + ROWS_MAX]
                sent = _coalesced(part)
                self._leaving.append(
                    RequestState(
                        GroupSettle(self._group, len(sent), generation, reason),
                        self._topic,
                        encode_settlements(sent),
                        deadline=max(row.deadline for row in part),
                    )
                )
                self._inflight[self._leaving[-1]] = _Packed(part, sent)
        self._rows.clear()


def problem_of(outcome: Answer | QuothError) -> QuothError | None:
    """Return the error of a request, None if it was carried out."""
    found = outcome.reply if isinstance(outcome, Answer) else outcome
    return found if isinstance(found, QuothError) else None


def _coalesced(rows: list[_Row]) -> list[Settlement]:
    """Return rows as they are sent: acks of consecutive records of one lease are one."""
    found = [row.settlement for row in rows if row.kind is not Settle.ACK]
    merged: _Row | None = None
    for row in sorted((row for row in rows if row.kind is Settle.ACK), key=attrgetter("after")):
        if merged is not None and merged.until == row.after and merged.token == row.token:
            merged = replace(merged, until=row.until)
            found[-1] = merged.settlement
        else:
            merged = row
            found.append(row.settlement)
    return found


def _lost(row: _Row) -> QuothError:
    """Return the error of a row whose lease the member does not have any more."""
    records = f"{row.after + 1}" if row.until == row.after + 1 else f"{row.after + 1} to {row.until}"
    return error("lease_lost", f"{row.kind.name.lower()} of {records}: the member has no lease of it now")
