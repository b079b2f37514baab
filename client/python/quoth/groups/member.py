"""One member of a group, without sockets: its fetches, the records at hand, its settlements.

    begin_fetch ──► request ──answered──► stock ──► messages or batches, one after the other ──► settlements

The driver sends what is `leaving`, at `due` at the latest, and brings the outcomes to `take`. Methods that
have to wait are generators of what they wait for.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass

from quoth.core.options import Timing
from quoth.core.request_state import RequestState
from quoth.groups.leased import Leased
from quoth.groups.lot import Lot, LotSize
from quoth.groups.options import GroupOptions, reason_of
from quoth.groups.settlements import GIVEN_BACK_MS, GroupCall, SettlementQueue, Wait, Waiter
from quoth.groups.stock import LeasedStock
from quoth.message import Gap, Reason
from quoth.reader import log_gap
from quothwire.errors import QuothError, error
from quothwire.protocol.binary_codec import Answer
from quothwire.protocol.group_messages import GroupFetch, GroupFetched, GroupInfo
from quothwire.protocol.settlement import Settle

SENT_S = 0.1
"""The longest wait until a fetch is sent, which normally takes 0.1 ms."""


@dataclass(slots=True)
class FetchInFlight:
    """A fetch that was begun.

    waiter, sent: done once it has an outcome, and once it was sent. answered_at: the monotonic time at which
    its outcome came.
    """

    request: RequestState
    waiter: Waiter
    sent: Waiter
    is_sent: bool = False
    outcome: Answer | QuothError | None = None
    answered_at: float = 0.0


class GroupMember:
    """A member of a group. The queue takes settlements from any thread; the rest is for one at a time.

    new_waiter: makes a future of the client. timeout: seconds that a request may take.
    """

    def __init__(
        self, options: GroupOptions, timeout: float, timing: Timing, new_waiter: Callable[[], Waiter]
    ) -> None:
        self.options = options
        self.timeout = timeout
        self.timing = timing
        self.queue = SettlementQueue(options.topic, options.name, timeout, new_waiter)
        self.stock = LeasedStock(self.queue)
        self.size = LotSize("", 0.0, 1, 1)
        """That of the next lot of an iteration."""
        self._on_gap = options.on_gap or log_gap
        self._fetch: FetchInFlight | None = None
        self._opened_at = 0.0
        """The monotonic time at which the lot came to the stock."""
        self._seen = self._generation = 0
        """All records up to this pointer were handed out to some member, in this generation of the group."""
        self._is_closing = False
        self._current: Leased | None = None
        """The records that an iteration has handed out last, and whose body may still be executed."""
        self._is_left = False
        """True if the iteration was left with them."""

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

    def note_sent(self) -> None:
        """Take note that everything that was leaving is on its way."""
        fetch = self._fetch
        if fetch is not None and fetch.is_sent and not fetch.sent.done():
            fetch.sent.set_result(None)

    def take(self, request: RequestState, outcome: Answer | QuothError, now: float) -> None:
        """Take the outcome of a request: an answer, which may be an error, or the error that none came."""
        fetch = self._fetch
        if fetch is None or request is not fetch.request:
            self.queue.take(request, outcome)
            return
        fetch.outcome, fetch.answered_at = outcome, now
        for waiter in (fetch.sent, fetch.waiter):
            if not waiter.done():
                waiter.set_result(None)

    def end(self, problem: QuothError) -> None:
        """Let everything that waits, and all later calls, fail with an error."""
        self.queue.end(problem)
        fetch = self._fetch
        if fetch is not None and fetch.outcome is None:
            self.take(fetch.request, problem, time.monotonic())

    # -- the body of an iteration -----------------------------------------------------------------------

    def begin_body(self, given: Leased) -> None:
        """Take note of the records that an iteration hands out."""
        self._current, self._is_left = given, False

    def leave_iteration(self) -> None:
        """Take note that the loop of an iteration was left, by a break or by an error."""
        self._is_left = True

    def begin_closing(self) -> None:
        """Let waits for records fail, so that the end of the member takes what they would have brought."""
        self._is_closing = True

    def check(self) -> None:
        """Raise the error of an earlier ack, or ``closed``."""
        self.queue.check()
        if self._is_closing:
            raise error("closed", "the member of the group was closed")

    def finish_left(self) -> None:
        """Acknowledge the records in hand unless their body may still be executed."""
        if self._is_left:
            self.finish_current()

    def finish_current(self) -> None:
        """Acknowledge the records in hand: their body was left."""
        current, self._current = self._current, None
        if current is not None and not current.is_settled:
            current._settle(Settle.ACK)

    def fail_current(self, problem: BaseException) -> None:
        """Give the records in hand back: their body has raised an error."""
        current, self._current = self._current, None
        if current is not None and not current.is_settled:
            milliseconds = 0 if isinstance(problem, Exception) else GIVEN_BACK_MS
            current._settle(Settle.NACK, milliseconds, reason_of(problem))

    # -- fetching ---------------------------------------------------------------------------------------

    def configure(self, info: GroupInfo) -> None:
        """Take note of the group's settings and place."""
        settings = info.settings
        limits = settings["max_in_flight"], settings["max_attempts"]
        self.size = LotSize(settings["mode"], settings["lease"], *limits)
        self._enter(info.generation)
        self._seen = max(self._seen, info.cursor)

    def next_size(self) -> int:
        """Return the size of the next lot, now that the last one was handled."""
        self.size.handled(self.stock.handed_out, time.monotonic() - self._opened_at)
        self.stock.handed_out = 0
        return self.size.records

    def filled(
        self,
        records: int,
        bytes_max: int,
        deadline: float,
        *,
        patiently: bool = False,
        answered: float = math.inf,
    ) -> GroupCall[bool]:
        """Fetch until something is at hand; returns False if nothing is by then.

        patiently: wait also for a broker that is not there. answered: the longest wait for one answer.
        """
        while not self.stock:
            self.check()
            wait = min(max(deadline - time.monotonic(), 0.0), self.timing.group_wait)
            fetch = self.begin_fetch(records, bytes_max, wait)
            if not (yield Wait(fetch.waiter, answered)):
                return False
            self.check()
            try:
                self._open(fetch)
            except QuothError as problem:
                if not (patiently and problem.retryable) or problem.code == "closed":
                    raise
                yield Wait(None, self.timing.away_pause)
            if not self.stock and time.monotonic() >= deadline:
                return False
        return True

    def begin_fetch(self, records: int, bytes_max: int, wait: float = 0.0) -> FetchInFlight:
        """Return the fetch that is in flight; begin one if there is none."""
        if self._fetch is not None:
            self.queue.flush()  # it may wait for that
            return self._fetch
        options = self.options
        wait_ms = math.ceil(wait * 1_000)
        asked = GroupFetch(options.name, options.member, records, bytes_max, wait_ms)
        deadline = time.monotonic() + wait + self.timeout
        request = RequestState(asked, options.topic, deadline=deadline, wait=wait)
        self._fetch = FetchInFlight(request, self.queue.new_waiter(), self.queue.new_waiter())
        self.queue.wake()
        return self._fetch

    def fetch_ahead(self, records: int, bytes_max: int) -> GroupCall[None]:
        """Begin a fetch of the next lot if the records of the last one were handled quickly.

        Waits until it is sent: else the driver could be kept from that by the work on this lot.
        """
        if self.size.is_quick:
            yield Wait(self.begin_fetch(records, bytes_max).sent, SENT_S)

    def drained(self, seconds: float) -> GroupCall[None]:
        """Wait for a fetch that is in flight, and release its records."""
        fetch = self._fetch
        if fetch is None or not (yield Wait(fetch.waiter, seconds)):
            return
        try:
            self._open(fetch)
        except QuothError:
            return
        self.stock.release()

    # -- inside -----------------------------------------------------------------------------------------

    def _open(self, fetch: FetchInFlight) -> None:
        """Take the records of a fetch to the stock. Raises its error."""
        self._fetch = None
        outcome = fetch.outcome
        if isinstance(outcome, QuothError):
            raise outcome
        assert isinstance(outcome, Answer), "it was waited for"
        if isinstance(outcome.reply, QuothError):
            raise outcome.reply
        self._opened_at = time.monotonic()
        assert isinstance(outcome.reply, GroupFetched)
        self.stock.open(Lot(self.options.topic, outcome, fetch.answered_at, self._on_gap))
        self._report_gone(outcome.reply)  # which may raise an error of the application

    def _report_gone(self, reply: GroupFetched) -> None:
        """Report records that no member of the group can get any more."""
        self._enter(reply.generation)
        before = self._seen
        self._seen = max((before, *(last for *_, last in reply.leases)))
        if not reply.gone:
            return
        firsts = [first for _, _, first, _ in reply.leases if first > before]
        following = min(firsts) if firsts else max(reply.newest, before) + 1
        counts: dict[Reason, int] = {"trimmed": reply.gone - reply.damaged, "damaged": reply.damaged}
        for reason, records in counts.items():
            if records:
                self._on_gap(Gap(self.options.topic, before, following, records, reason))

    def _enter(self, generation: int) -> None:
        """Begin another generation: a group that was moved hands out records again. 0: it is not known."""
        if generation not in (0, self._generation):
            self._seen, self._generation = 0, generation
