"""Settlements of records: collected, and many of them sent in one request.

    put ──► rows ──due──► request in flight ──answered──► the waiters of its rows

Rows are due after `FLUSH_S`, at once if something waits for them. Consecutive records of one lease that are
acknowledged one after the other are one row.
"""

from __future__ import annotations

import math
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Generator, Iterator
from dataclasses import dataclass, replace
from operator import attrgetter
from typing import NamedTuple, Protocol, TypeAlias, TypeVar

from quoth.core.request_state import RequestState
from quothwire.errors import QuothError, error
from quothwire.protocol.binary_codec import Answer
from quothwire.protocol.group_messages import GroupSettle, GroupSettled
from quothwire.protocol.settlement import ROWS_MAX, Settle, Settlement, encode_settlements

T = TypeVar("T")
GIVEN_BACK_MS = 1
"""In a nack: the records may be handed out again at once."""
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


class Wait(NamedTuple):
    """A wait for a waiter, for so many seconds at most. waiter: None to let the time pass."""

    waiter: Waiter | None
    seconds: float


GroupCall: TypeAlias = Generator[Wait, bool, T]
"""Work of a member that waits. The driver sends in True if the waiter is done."""


@dataclass(slots=True)
class HeldLease:
    """A lease of this member. token: 0 in a group that has none, of mode ``at_most_once``.

    deadline: the monotonic time of its end, as far as is known here.
    """

    token: int
    attempts: int
    generation: int
    deadline: float


class LeasedRange(NamedTuple):
    """Records of one lease in (after, until]."""

    lease: HeldLease
    after: int
    until: int


@dataclass(slots=True)
class _Row:
    """A settlement of the records in (after, until]. deadline: of its request, at least."""

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


_Outcome = tuple[Waiter, QuothError | None]


@dataclass(slots=True)
class _Packed:
    """The rows of a request, and the settlements that were sent for them."""

    generation: int
    rows: list[_Row]
    sent: list[Settlement]

    def is_outdated_by(self, outcome: Answer | QuothError) -> bool:
        """Return True if the group was moved before: then no row has an effect, and an ack is lost, too.

        The number of lost ranges does not show it: a row may be lost in several parts.
        """
        reply = outcome.reply if isinstance(outcome, Answer) else None
        lost = reply.lost if isinstance(reply, GroupSettled) else []
        return any(row.kind is Settle.ACK and [row.first, row.last] in lost for row in self.sent)

    def outcomes(self, request: RequestState, outcome: Answer | QuothError) -> Iterator[_Outcome]:
        """Yield the waiters with the outcomes of their rows.

        A row that the answer to one of several copies calls lost may have been executed by an earlier copy.
        """
        waited = [(row, row.waiter) for row in self.rows if row.waiter is not None]
        problem = problem_of(outcome)
        if problem is not None or not waited:
            yield from ((waiter, problem) for _, waiter in waited)
            return
        assert isinstance(outcome, Answer), "it is no error"
        assert isinstance(outcome.reply, GroupSettled)
        lost = {(first, last) for first, last in outcome.reply.lost}
        may_be_done = (Settle.NACK, Settle.TERM, Settle.RELEASE) if request.unanswered > 0 else ()
        for row, waiter in waited:
            is_lost = (row.after + 1, row.until) in lost and row.kind not in may_be_done
            is_lost = self.is_outdated_by(outcome) if row.kind is Settle.ACK else is_lost
            yield waiter, _lost(row) if is_lost else None


class SettlementQueue:
    """The settlements of one member without an answer. Any thread may call it.

    timeout: the least seconds for which a row is sent again while no answer comes; it is until its lease ends
    if that is later. new_waiter: makes a future of the client. wake: lets the driver look for what is due.
    problem: the first error of acks that nothing waited for, until it is raised. Without the others, leases
    expire. group: the name of the group.
    """

    def __init__(self, topic: str, group: str, timeout: float, new_waiter: Callable[[], Waiter]) -> None:
        self.new_waiter = new_waiter
        self.timeout = timeout
        self.wake: Callable[[], None] = _do_nothing
        self.problem: QuothError | None = None
        self.outdated = 0
        """Leases up to this generation are of no use: the group was moved to another place."""
        self._end: QuothError | None = None
        self._topic = topic
        self.group = group
        self._lock = threading.RLock()  # a record may be settled by a destructor
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
    def unanswered(self) -> int:
        """The number of acks without an answer."""
        with self._lock:
            packed = (one.rows for one in self._inflight.values())
            return sum(row.kind is Settle.ACK for rows in (*self._rows.values(), *packed) for row in rows)

    def put(
        self,
        kind: Settle,
        records: LeasedRange,
        *,
        milliseconds: int = 0,
        reason: str = "",
        waiter: Waiter | None = None,
    ) -> None:
        """Add a row about some records."""
        lease, after, until = records
        token = lease.token
        with self._lock:
            last = self._last
            is_plain = kind is Settle.ACK and waiter is None
            if is_plain and last is not None and last.until == after and last.token == token:
                last.until = until
                return
            now = time.monotonic()
            deadline = max(lease.deadline, now + self.timeout)
            row = _Row(kind, after, until, token, milliseconds, deadline, waiter)
            self._rows[lease.generation, reason[:REASON_CHARACTERS_MAX]].append(row)
            self._last = row if is_plain else None
            self._hasten(now if waiter is not None else now + FLUSH_S)
            if self._end is not None:
                self.end(self._end)

    def flush(self, waiter: Waiter | None = None) -> None:
        """Make all rows due. waiter: has the result None once all rows of before have an answer."""
        with self._lock:
            self._pack()
            if waiter is not None and self._inflight:
                self._barriers.append((set(self._inflight), waiter))
            elif waiter is not None:
                waiter.set_result(None)
            if self._leaving:
                self._hasten(-math.inf)

    def check(self) -> None:
        """Raise the error of acks that nothing waited for, once, or the error with which the member ended."""
        if self.problem is not None:
            problem, self.problem = self.problem, None
            raise problem
        if self._end is not None:
            raise self._end

    def awaited(self, waiter: Waiter | None) -> GroupCall[None]:
        """Wait for the outcome of a row. Raises its error, or that no answer has come."""
        if waiter is None:
            return
        if not (yield Wait(waiter, self.timeout)):
            text = f"group_settle {self._topic} {self.group}: no answer in time"
            raise error("timed_out", text, "it is sent again until the lease ends")
        problem = waiter.result()
        if problem is not None:
            raise problem

    def settled(self, seconds: float) -> GroupCall[bool]:
        """Wait until all rows of before have an answer; returns False after so many seconds."""
        waiter = self.new_waiter()
        self.flush(waiter)
        return (yield Wait(waiter, seconds))

    # -- for the driver ---------------------------------------------------------------------------------

    @property
    def due(self) -> float:
        """The monotonic time at which something is to be sent; infinity if there is nothing."""
        return self._due

    def leaving(self, now: float) -> list[RequestState]:
        """Return the requests that are to be sent now."""
        if self._due > now:
            return []
        with self._lock:
            self._pack()
            self._due = math.inf
            leaving, self._leaving = self._leaving, []
            return leaving

    def take(self, request: RequestState, outcome: Answer | QuothError) -> None:
        """Take the outcome of a request."""
        with self._lock:
            packed = self._inflight.pop(request)
            done = list(packed.outcomes(request, outcome))
            if packed.is_outdated_by(outcome):
                self.outdated = max(self.outdated, packed.generation)
            if self.problem is None and any(map(_is_plain_ack, packed.rows)):
                self.problem = problem_of(outcome)
            for left, waiter in self._barriers:
                left.discard(request)
                done += [(waiter, None)] if not left else []
            self._barriers = [barrier for barrier in self._barriers if barrier[0]]
        for waiter, result in done:
            if not waiter.done():
                waiter.set_result(result)

    def end(self, problem: QuothError) -> None:
        """Give all rows up, and those that come later. Releases the driver."""
        with self._lock:
            self._end, self.wake = problem, _do_nothing
            self._pack()
            self._leaving, self._due = [], math.inf
            inflight = list(self._inflight)
        for request in inflight:
            self.take(request, problem)

    # -- under the lock ---------------------------------------------------------------------------------

    def _hasten(self, due: float) -> None:
        is_earlier = due < self._due
        self._due = min(self._due, due)
        if is_earlier:
            self.wake()

    def _pack(self) -> None:
        """Make requests of all rows."""
        self._last = None
        for (generation, reason), rows in self._rows.items():
            for packed in _requests_of(generation, rows):
                request = RequestState(
                    GroupSettle(self.group, len(packed.sent), generation, reason),
                    self._topic,
                    encode_settlements(packed.sent),
                    deadline=max(row.deadline for row in packed.rows),
                )
                self._leaving.append(request)
                self._inflight[request] = packed
        self._rows.clear()


def problem_of(outcome: Answer | QuothError) -> QuothError | None:
    """Return the error of a request, None if it was carried out."""
    found = outcome.reply if isinstance(outcome, Answer) else outcome
    return found if isinstance(found, QuothError) else None


def _is_plain_ack(row: _Row) -> bool:
    return row.kind is Settle.ACK and row.waiter is None


def _requests_of(generation: int, rows: list[_Row]) -> list[_Packed]:
    """Divide rows among requests, in which they are in order and do not overlap.

    Acks of consecutive records of one lease become one settlement.
    """
    packed: list[_Packed] = []
    ends: list[_Row] = []
    for row in sorted(rows, key=attrgetter("after")) if len(rows) > 1 else rows:
        for number, (request, end) in enumerate(zip(packed, ends, strict=True)):
            if end.until <= row.after and len(request.sent) < ROWS_MAX:
                request.rows.append(row)
                if (end.kind, end.until, end.token) == (
                    Settle.ACK,
                    row.after,
                    row.token,
                ) and row.kind is Settle.ACK:
                    ends[number] = replace(end, until=row.until)
                    request.sent[-1] = ends[number].settlement
                else:
                    ends[number] = row
                    request.sent.append(row.settlement)
                break
        else:
            packed.append(_Packed(generation, [row], [row.settlement]))
            ends.append(row)
    return packed


def _lost(row: _Row) -> QuothError:
    """Return the error of a row whose lease the member does not have any more."""
    records = f"{row.after + 1}" if row.until == row.after + 1 else f"{row.after + 1} to {row.until}"
    return error("lease_lost", f"{row.kind.name.lower()} of {records}: the member has no lease of it now")


def _do_nothing() -> None:
    pass
