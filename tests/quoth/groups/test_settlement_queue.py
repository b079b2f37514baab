"""The queue of settlements: the rows that it sends, and the outcomes of those that are waited for."""

from __future__ import annotations

import math
import random
from concurrent.futures import Future

import pytest

from kit.broker.peers import refused
from kit.clocks import ManualClock
from quoth.core.request_state import RequestState
from quoth.groups import settlements
from quoth.groups.settlements import FLUSH_S, HeldLease, LeasedRange, SettlementQueue
from quothwire.errors import QuothError, error
from quothwire.protocol.binary_codec import Answer
from quothwire.protocol.group_messages import GroupSettle, GroupSettled
from quothwire.protocol.settlement import ROWS_MAX, Settle, Settlement, decode_settlements

ONE, OTHER = HeldLease(7, 1, 1, math.inf), HeldLease(8, 1, 1, math.inf)
Outcome = Future[QuothError | None]


class Queue(SettlementQueue):
    """A queue, and the settlements that its requests have."""

    def __init__(self) -> None:
        super().__init__("t", "g", 10.0, Future)
        self.wakeups = 0
        self.wake = self._count
        self.requests: list[RequestState] = []

    def settle(
        self,
        kind: Settle,
        after: int,
        until: int,
        lease: HeldLease = ONE,
        reason: str = "",
        *,
        wait: bool = True,
    ) -> Outcome:
        waiter = Outcome()
        self.put(kind, LeasedRange(lease, after, until), reason=reason, waiter=waiter if wait else None)
        return waiter

    def ack(self, after: int, until: int, lease: HeldLease = ONE) -> None:
        self.settle(Settle.ACK, after, until, lease, wait=False)

    def sent(self) -> list[list[Settlement]]:
        """Send everything; returns the rows of each request."""
        self.flush()
        self.requests = self.leaving(0.0)
        return [decode_settlements(one._payload or b"", asked(one).rows) for one in self.requests]

    def answer(self, lost: list[list[int]], number: int = 0, unanswered: int = 0) -> None:
        request = self.requests[number]
        request.unanswered = unanswered
        self.take(request, Answer(0, GroupSettled(0, 0, lost, "written"), b""))

    def _count(self) -> None:
        self.wakeups += 1


def asked(request: RequestState) -> GroupSettle:
    found = request._request
    assert isinstance(found, GroupSettle)
    return found


@pytest.fixture
def queue() -> Queue:
    return Queue()


def rows(*bounds: tuple[int, int], token: int = 7) -> list[Settlement]:
    return [Settlement(Settle.ACK, first, last, token) for first, last in bounds]


# -- rows ---------------------------------------------------------------------------------------------------


def test_acks_of_consecutive_records_are_one_row(queue: Queue) -> None:
    for pointer in range(10, 20):
        queue.ack(pointer - 1, pointer)
    queue.ack(19, 25)  # the first record behind 19 in the same lease
    assert queue.wakeups == 1
    assert queue.unanswered == 1
    assert queue.sent() == [rows((10, 25))]


def test_acks_in_any_order_are_as_few_rows_as_possible(queue: Queue, rng: random.Random) -> None:
    pointers = [*range(10, 20), *range(30, 40)]
    rng.shuffle(pointers)
    for pointer in pointers:
        queue.ack(pointer - 1, pointer)
    assert queue.sent() == [rows((10, 19), (30, 39))]


def test_rows_of_different_leases_stay_apart(queue: Queue) -> None:
    queue.ack(9, 10)
    queue.ack(10, 11, OTHER)
    queue.ack(11, 12)
    one, other, last = rows((10, 10)), rows((11, 11), token=8), rows((12, 12))
    assert queue.sent() == [[*one, *other, *last]]


def test_rows_of_a_request_are_in_order_and_do_not_overlap(queue: Queue) -> None:
    """A broker refuses others: `decode_settlements` checks it."""
    queue.settle(Settle.EXTEND, 4, 10)
    queue.ack(4, 5)
    queue.settle(Settle.NACK, 1, 2)
    queue.ack(4, 5, OTHER)
    first, *more = queue.sent()
    assert [row.kind for row in first] == [Settle.NACK, Settle.EXTEND]
    assert more == [rows((5, 5)), rows((5, 5), token=8)]


def test_a_request_has_rows_of_one_generation_and_one_reason(queue: Queue) -> None:
    queue.settle(Settle.TERM, 1, 2, reason="bad")
    queue.settle(Settle.TERM, 2, 3, reason="worse")
    queue.ack(3, 4)
    queue.ack(4, 5, HeldLease(8, 1, 2, math.inf))
    assert list(map(len, queue.sent())) == [1, 1, 1, 1]
    found = [(asked(one).generation, asked(one).reason) for one in queue.requests]
    assert found == [(1, "bad"), (1, "worse"), (1, ""), (2, "")]


def test_a_request_has_as_many_rows_as_a_broker_takes(queue: Queue) -> None:
    for number in range(ROWS_MAX + 1):
        queue.ack(2 * number, 2 * number + 1)
    assert list(map(len, queue.sent())) == [ROWS_MAX, 1]


def test_rows_are_due_after_a_moment_and_at_once_if_something_waits(
    queue: Queue, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(settlements, "time", clock := ManualClock())
    assert queue.due == math.inf
    queue.ack(1, 2)
    assert queue.due == clock.monotonic() + FLUSH_S
    assert queue.leaving(clock.monotonic()) == []
    queue.settle(Settle.NACK, 2, 3)
    assert queue.due == clock.monotonic()
    assert queue.wakeups == 2
    assert len(queue.leaving(clock.monotonic())) == 1
    assert queue.due == math.inf


# -- outcomes -----------------------------------------------------------------------------------------------


def test_a_row_without_a_lease_is_lost_and_the_others_are_not(queue: Queue) -> None:
    lost, kept = queue.settle(Settle.EXTEND, 1, 2), queue.settle(Settle.NACK, 2, 3)
    acknowledged = queue.settle(Settle.ACK, 3, 4)
    queue.sent()
    queue.answer([[2, 2]])
    assert (kept.result(0), acknowledged.result(0)) == (None, None)
    problem = lost.result(0)
    assert problem is not None
    assert problem.code == "lease_lost"
    assert "extend of 2:" in problem.text


def test_acks_of_an_earlier_generation_are_lost_if_something_waits_for_them(queue: Queue) -> None:
    waiting = queue.settle(Settle.ACK, 1, 2)
    queue.ack(2, 3)
    queue.sent()
    queue.answer([[2, 3]])
    problem = waiting.result(0)
    assert problem is not None
    assert problem.code == "lease_lost"
    queue.check()  # an iteration goes on behind the new place


def test_an_ack_beside_a_row_that_is_lost_in_parts_is_not_lost(queue: Queue) -> None:
    """Other members have acknowledged two records of the batch late; the group was not moved."""
    batch, acknowledged = queue.settle(Settle.NACK, 0, 5), queue.settle(Settle.ACK, 8, 9)
    queue.sent()
    queue.answer([[2, 2], [4, 4]])
    assert (batch.result(0), acknowledged.result(0)) == (None, None)
    assert queue.outdated == 0


def test_a_row_that_an_unanswered_copy_may_have_executed_is_not_lost(queue: Queue) -> None:
    nack, extension = queue.settle(Settle.NACK, 1, 2), queue.settle(Settle.EXTEND, 3, 4)
    queue.sent()
    queue.answer([[2, 2], [4, 4]], unanswered=1)
    assert nack.result(0) is None
    problem = extension.result(0)  # had it been extended, the copy would have extended it again
    assert problem is not None
    assert problem.code == "lease_lost"


def test_an_error_is_raised_where_it_is_waited_for_or_by_the_next_call(queue: Queue) -> None:
    waiting = queue.settle(Settle.ACK, 1, 2)
    queue.sent()
    queue.take(queue.requests[0], error("unknown_group", "of the test"))
    assert waiting.result(0) is not None
    queue.check()
    queue.ack(2, 3)
    queue.sent()
    queue.take(queue.requests[0], Answer(0, error("unknown_group", "of the test"), b""))
    with refused("unknown_group"):
        queue.check()
    queue.check()


def test_a_flush_is_done_when_all_rows_of_before_have_an_answer(queue: Queue) -> None:
    done = Outcome()
    queue.flush(done)
    assert done.done()
    queue.ack(1, 2)
    queue.sent()
    first = queue.requests[0]
    queue.settle(Settle.NACK, 2, 3)
    done = Outcome()
    queue.flush(done)
    queue.sent()
    assert len(queue.requests) == 1
    queue.ack(3, 4)
    queue.answer([])
    assert not done.done()
    queue.requests = [first]
    queue.answer([])
    assert done.done()
    assert queue.unanswered == 1


def test_everything_fails_at_the_end_and_afterwards(queue: Queue) -> None:
    waiting, later = queue.settle(Settle.ACK, 1, 2), Outcome()
    queue.flush(later)
    queue.end(error("closed", "of the test"))
    assert waiting.done()
    assert later.done()
    problem = queue.settle(Settle.ACK, 2, 3).result(0)
    assert problem is not None
    assert problem.code == "closed"
    with refused("closed"):
        queue.check()
