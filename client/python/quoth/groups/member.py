"""One member of a group, without sockets and clocks of its own: its fetches, what it has at hand, its acks.

    begin_fetch ──► request ──answered──► lot ──► messages or batches, one after the other ──► settlements

The driver sends what is `leaving`, at `due` at the latest, and brings the outcomes to `take`. Methods that
have to wait are generators of what they wait for.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Generator
from dataclasses import dataclass
from typing import NamedTuple, TypeAlias, TypeVar

from quoth.core.options import Timing
from quoth.core.request_state import RequestState
from quoth.groups.leased import Leased, LeasedBatch, LeasedMessage
from quoth.groups.lot import LeasedPart, LeasedRange, Lot
from quoth.groups.lot_size import LotSize
from quoth.groups.options import GroupOptions
from quoth.groups.settlements import HeldLease, SettlementQueue, Waiter, problem_of
from quoth.message import Gap
from quoth.reader import log_gap
from quothwire.errors import QuothError, error
from quothwire.protocol.binary_codec import Answer
from quothwire.protocol.group_messages import GroupFetch, GroupFetched, GroupInfo
from quothwire.protocol.settlement import Settle

T = TypeVar("T")
M = TypeVar("M", bound=LeasedMessage)
B = TypeVar("B", bound=LeasedBatch)
GIVEN_BACK_MS = 1
"""In a row: the records may be handed out again at once."""
NOT_BEGUN = "its member has not begun with it"
UNREADABLE = "a batch in the answer of the broker does not check"


class Wait(NamedTuple):
    """What to wait for, and for how many seconds at most. waiter: None to wait for nothing but the time."""

    waiter: Waiter | None
    seconds: float


GroupCall: TypeAlias = Generator[Wait, bool, T]
"""Work of a member that waits. The driver sends in True if the waiter is done."""


@dataclass(slots=True)
class _FetchInFlight:
    """A fetch that was begun. answered_at: the monotonic time at which its outcome came."""

    request: RequestState
    waiter: Waiter
    is_sent: bool = False
    outcome: Answer | QuothError | None = None
    answered_at: float = 0.0


class GroupMember:
    """A member of a group. Settlements come from any thread, everything else from one at a time.

    new_waiter: makes a future of the client. wake: lets the driver look for what is leaving. timeout: seconds
    that a request may take.
    """

    def __init__(
        self,
        options: GroupOptions,
        timeout: float,
        timing: Timing,
        new_waiter: Callable[[], Waiter],
    ) -> None:
        self.options = options
        self.timeout = timeout
        self.timing = timing
        self.new_waiter = new_waiter
        self.wake: Callable[[], None] = _do_nothing
        self.queue = SettlementQueue(options.topic, options.name, timeout)
        self.size = LotSize("", 0.0, 1, 1)
        """That of the next lot of an iteration."""
        self.current: Leased | None = None
        """What an iteration has handed out last: it is acknowledged when its body is left."""
        self._is_left = False
        """True if the iteration was left with it."""
        self._seen = 0
        """All records up to this pointer were handed out to some member."""
        self._end: QuothError | None = None
        self._fetch: _FetchInFlight | None = None
        self._lot: Lot | None = None
        self._part: LeasedPart | None = None
        self._row = 0
        self._handed_out = 0
        """Records of the lot."""
        self._began = 0.0

    # -- for the driver ---------------------------------------------------------------------------------

    @property
    def due(self) -> float:
        """The monotonic time at which something is leaving; infinity for nothing."""
        fetch = self._fetch
        return -math.inf if fetch is not None and not fetch.is_sent else self.queue.due

    def leaving(self, now: float) -> list[RequestState]:
        """Return the requests to be sent now: settlements, then the fetch for which they make room."""
        fetch = self._fetch
        if fetch is None or fetch.is_sent:
            return self.queue.leaving(now)
        self.queue.flush()
        fetch.is_sent = True
        return [*self.queue.leaving(now), fetch.request]

    def take(self, request: RequestState, outcome: Answer | QuothError, now: float) -> None:
        """Take the outcome of a request: an answer, which may be an error, or the error that none came."""
        fetch = self._fetch
        if fetch is None or request is not fetch.request:
            self.queue.take(request, outcome)
            return
        fetch.outcome, fetch.answered_at = outcome, now
        if not fetch.waiter.done():
            fetch.waiter.set_result(problem_of(outcome))

    def end(self, problem: QuothError) -> None:
        """Let all that waits, and all later calls, fail with an error."""
        self._end = self._end or problem
        self.queue.fail(problem)
        fetch = self._fetch
        if fetch is not None and fetch.outcome is None:
            self.take(fetch.request, problem, time.monotonic())

    # -- settling ---------------------------------------------------------------------------------------

    def check(self) -> None:
        """Raise the error with which it has ended, or that of an earlier settlement."""
        self.queue.raise_problem()
        if self._end is not None:
            raise self._end

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
    ) -> None:
        """Settle the records in (after, until]: see `SettlementQueue.put`."""
        if self.queue.put(kind, lease, after, until, milliseconds=milliseconds, reason=reason, waiter=waiter):
            self.wake()

    def begin_body(self, given: Leased) -> None:
        """Take note of what an iteration hands out."""
        self.current, self._is_left = given, False

    def leave_iteration(self) -> None:
        """Take note that the loop of an iteration was left, by a break or by an error."""
        self._is_left = True

    def finish_left(self) -> None:
        """Acknowledge what an iteration has handed out last, unless its body may still be executed."""
        if self._is_left:
            self.finish_current()

    def finish_current(self) -> None:
        """Acknowledge what an iteration has handed out last."""
        current, self.current = self.current, None
        if current is not None and not current.is_settled and current._lease.token:
            current._note_settled()
            if self.queue.put(Settle.ACK, current._lease, current._after, current._until):
                self.wake()

    def fail_current(self, problem: BaseException) -> None:
        """Give back what an iteration has handed out last: its body has raised an error."""
        current, self.current = self.current, None
        if current is not None and not current.is_settled and current._lease.token:
            is_its_fault = isinstance(problem, Exception)
            milliseconds = 0 if is_its_fault else GIVEN_BACK_MS
            current._settle(Settle.NACK, milliseconds, described(problem))

    def awaited(self, waiter: Waiter | None) -> GroupCall[None]:
        """Wait for the outcome of a settlement. Raises its error, or that no answer has come."""
        if waiter is None:
            return
        if not (yield Wait(waiter, self.timeout)):
            options = self.options
            text = f"group_settle {options.topic} {options.name}: no answer in time"
            raise error("timed_out", text, "it is sent again until the lease ends")
        problem: QuothError | None = waiter.result()
        if problem is not None:
            raise problem

    def settled(self, seconds: float) -> GroupCall[bool]:
        """Wait until all settlements of before have an answer; returns False after so many seconds."""
        waiter = self.new_waiter()
        if self.queue.flush(waiter):
            self.wake()
        return (yield Wait(waiter, seconds))

    # -- fetching ---------------------------------------------------------------------------------------

    def configure(self, info: GroupInfo) -> None:
        """Take note of the group's settings and place."""
        settings = info.settings
        limits = settings["max_in_flight"], settings["max_attempts"]
        self.size = LotSize(settings["mode"], settings["lease"], *limits)
        self._seen = max(self._seen, info.cursor)

    def filled(
        self, records: int, bytes_max: int, deadline: float, *, patiently: bool = False
    ) -> GroupCall[bool]:
        """Fetch until something is at hand; returns False if nothing is by then.

        patiently: wait also for a broker that is not there.
        """
        while not self._is_stocked():
            self.check()
            wait = min(max(deadline - time.monotonic(), 0.0), self.timing.group_wait)
            fetch = self.begin_fetch(records, bytes_max, wait)
            yield Wait(fetch.waiter, math.inf)
            try:
                self._open(fetch)
            except QuothError as problem:
                if not (patiently and problem.retryable):
                    raise
                yield Wait(None, self.timing.away_pause)
            if not self._is_stocked() and time.monotonic() >= deadline:
                return False
        return True

    def begin_fetch(self, records: int, bytes_max: int, wait: float) -> _FetchInFlight:
        """Return the fetch that is in flight; begin one if there is none."""
        if self._fetch is None:
            options = self.options
            asked = GroupFetch(
                options.name,
                options.member,
                records_max=records,
                bytes_max=bytes_max,
                wait_ms=math.ceil(wait * 1_000),
            )
            deadline = time.monotonic() + wait + self.timeout
            request = RequestState(asked, options.topic, deadline=deadline, wait=wait)
            self._fetch = _FetchInFlight(request, self.new_waiter())
            self.wake()
        elif self._fetch.outcome is None and self.queue.flush():
            self.wake()
        return self._fetch

    def drained(self, seconds: float) -> GroupCall[None]:
        """Wait for a fetch that is in flight, whose records are given back."""
        fetch = self._fetch
        if fetch is None or not (yield Wait(fetch.waiter, seconds)):
            return
        try:
            self._open(fetch)
        except QuothError:
            return
        self.give_back()
        yield from self.settled(seconds)

    # -- handing out ------------------------------------------------------------------------------------

    def next_message(self, kind: type[M]) -> M | None:
        """Return the next record that is at hand, None if there is none."""
        while (part := self._next_part()) is not None:
            row = self._row
            if self._is_held(part):
                self._row += 1
                self._handed_out += 1
                if self._row == len(part.batch.values):
                    self._part = None
                return kind.of(self, part, row)
            self._part = None
        return None

    def next_batch(self, kind: type[B]) -> B | None:
        """Return the next batch that is at hand, None if there is none."""
        while (part := self._next_part()) is not None:
            row, self._part = self._row, None
            if self._is_held(part):
                part = part.cut(row) if row else part
                self._handed_out += len(part.batch.values)
                return kind(self, part)
        return None

    def give_back(self) -> None:
        """Give back what was fetched and not handed out."""
        for lease, after, until in self._left():
            if lease.token:
                self.put(Settle.NACK, lease, after, until, milliseconds=GIVEN_BACK_MS, reason=NOT_BEGUN)
        self._lot = self._part = None

    # -- inside -----------------------------------------------------------------------------------------

    def _is_stocked(self) -> bool:
        return self._part is not None or bool(self._lot)

    def _open(self, fetch: _FetchInFlight) -> None:
        """Take the records of a fetch. Raises its error."""
        self._fetch = None
        outcome = fetch.outcome
        problem = problem_of(outcome) if outcome is not None else None
        if problem is not None:
            raise problem
        assert isinstance(outcome, Answer), "it was waited for"
        now = time.monotonic()
        self.size.handled(self._handed_out, now - self._began)
        self._began, self._handed_out = now, 0
        reply = outcome.reply
        assert isinstance(reply, GroupFetched)
        self._report_gone(reply)
        self._lot = Lot(self.options.topic, outcome, fetch.answered_at, self.options.on_gap or log_gap)

    def _report_gone(self, reply: GroupFetched) -> None:
        """Report records that no member of the group can get any more."""
        seen = max((last for *_, last in reply.leases), default=reply.newest if reply.gone else 0)
        before, self._seen = self._seen, max(self._seen, seen)
        if not reply.gone:
            return
        following = min((first for _, _, first, _ in reply.leases if first > before), default=self._seen + 1)
        trimmed = reply.gone - reply.damaged
        on_gap = self.options.on_gap or log_gap
        if trimmed:
            on_gap(Gap(self.options.topic, before, following, trimmed, "trimmed"))
        if reply.damaged:
            on_gap(Gap(self.options.topic, before, following, reply.damaged, "damaged"))

    def _next_part(self) -> LeasedPart | None:
        if self._part is None and self._lot is not None:
            lot = self._lot
            self._part, self._row = lot.next(), 0
            for lease, after, until in lot.damaged:
                if lease.token:
                    self.put(Settle.ACK, lease, after, until)
            lot.damaged.clear()
            if self._part is None:
                for lease, after, until in lot.rest():
                    if lease.token:
                        self.put(Settle.NACK, lease, after, until, reason=UNREADABLE)
                self._lot = None
        return self._part

    def _is_held(self, part: LeasedPart) -> bool:
        """Return True if a part is under its lease. Extends the leases of all that is at hand in time."""
        lease = part.lease
        if not lease.token:
            return True
        assert self._lot is not None, "the part is of it"
        now, seconds = time.monotonic(), self._lot.seconds
        if lease.deadline <= now:
            return False
        if lease.deadline - now < seconds / 2:
            for held, after, until in self._left():
                self.put(Settle.EXTEND, held, after, until, milliseconds=round(seconds * 1_000))
                held.deadline = now + seconds
        return True

    def _left(self) -> list[LeasedRange]:
        """Return what is at hand."""
        left = self._lot.waiting() if self._lot is not None else []
        part = self._part
        if part is not None:
            after = part.batch.first + self._row - 1 if self._row else part.after
            left.insert(0, LeasedRange(part.lease, after, part.until))
        return left


def described(problem: BaseException) -> str:
    """Return an error as the reason of a dead letter."""
    return f"{type(problem).__name__}: {problem}"


def _do_nothing() -> None:
    pass
