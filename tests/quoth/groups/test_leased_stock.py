"""The records at hand: leases that run out, damage, and what is given back."""

from __future__ import annotations

import time
from concurrent.futures import Future

import pytest

from quoth import Gap, GroupBatch, GroupMessage
from quoth.groups.lot import Lot
from quoth.groups.settlements import SettlementQueue
from quoth.groups.stock import LeasedStock
from quothwire import batch
from quothwire.batch import HEADER_BYTES
from quothwire.protocol.binary_codec import Answer
from quothwire.protocol.group_messages import GroupFetched, GroupSettle
from quothwire.protocol.settlement import Settle, Settlement, decode_settlements

LOG = 99
ACK, NACK, EXTEND, _, RELEASE = Settle


class Queue(SettlementQueue):
    """A queue that shows the rows in it."""

    def sent(self) -> list[Settlement]:
        self.flush()
        found: list[Settlement] = []
        for request in self.leaving(0.0):
            asked = request._request
            assert isinstance(asked, GroupSettle)
            found += decode_settlements(request._payload or b"", asked.rows)
        return sorted(found, key=lambda row: row.first)


@pytest.fixture
def queue() -> Queue:
    return Queue("t", "g", 10.0, Future)


def stored(base: int, records: int) -> bytes:
    made = batch.encode([b"%d" % pointer for pointer in range(base, base + records)])
    header = batch.parse_header(made, 0).placed(base, base)
    return batch.stamp(header, LOG) + made[HEADER_BYTES:]


def stock_of(queue: Queue, *batches: bytes, age: float = 0.0, lease_ms: int = 30_000) -> LeasedStock:
    """The records 10 to 12 under one lease and 20 to 24 under another, which are so many seconds old."""
    rows = [[1, 1, 10, 12], [2, 1, 20, 24]]
    reply = GroupFetched(LOG, 1, rows, lease_ms, 0, 0, 1_000, 1_000)
    payload = b"".join(batches) or stored(10, 3) + stored(20, 5)
    gaps: list[Gap] = []
    stock = LeasedStock(queue)
    stock.open(Lot("t", Answer(0, reply, payload), time.monotonic() - age, gaps.append))
    return stock


def pointers(stock: LeasedStock, number: int = 100) -> list[int]:
    found: list[int] = []
    while len(found) < number and (message := stock.next_message(GroupMessage)) is not None:
        found.append(message.pointer)
    return found


def test_records_and_batches_come_in_turn(queue: Queue) -> None:
    stock = stock_of(queue)
    assert pointers(stock, 1) == [10]
    rest = stock.next_batch(GroupBatch)
    assert rest is not None
    assert (rest.first, rest.last, rest.values) == (11, 12, [b"11", b"12"])
    rest._settle(ACK)
    assert pointers(stock, 2) == [20, 21]
    assert stock
    assert pointers(stock) == [22, 23, 24]
    assert not stock
    assert queue.sent() == [Settlement(ACK, 11, 12, 1)]


def test_what_was_not_handed_out_is_released(queue: Queue) -> None:
    stock = stock_of(queue)
    pointers(stock, 1)
    stock.release()
    assert not stock
    assert stock.released == 7
    assert queue.sent() == [
        Settlement(RELEASE, 11, 12, 1),
        Settlement(RELEASE, 20, 24, 2),
    ]


def test_expired_records_are_not_handed_out(queue: Queue) -> None:
    stock = stock_of(queue, age=31.0)
    assert pointers(stock) == []
    assert not stock
    assert queue.sent() == []


def test_leases_of_records_that_wait_are_extended_when_half_is_left(queue: Queue) -> None:
    stock = stock_of(queue, age=16.0)
    assert pointers(stock, 2) == [10, 11]
    assert queue.sent() == [Settlement(EXTEND, 10, 12, 1, 30_000), Settlement(EXTEND, 20, 24, 2, 30_000)]
    assert stock.keep(1.0) == 1.0
    assert queue.sent() == []
    stock = stock_of(queue, age=11.0, lease_ms=20_000)
    assert stock.keep(10.0) == 5.0
    assert len(queue.sent()) == 2


def test_an_extended_record_extends_no_other_one_of_its_lease(queue: Queue) -> None:
    stock = stock_of(queue)
    first = stock.next_message(GroupMessage)
    assert first is not None
    ends = first._lease.deadline
    first._settle(EXTEND, 3_600_000)
    assert first._lease.deadline > ends + 3_000
    rest = stock.next_batch(GroupBatch)
    assert rest is not None
    assert rest._lease.deadline == ends


def test_leases_of_an_earlier_generation_are_of_no_use(queue: Queue) -> None:
    stock = stock_of(queue)
    assert pointers(stock, 2) == [10, 11]
    queue.outdated = 1
    assert pointers(stock) == []
    assert queue.sent() == []


def test_a_batch_that_does_not_check_is_acknowledged(queue: Queue) -> None:
    bad = bytearray(stored(20, 5))
    bad[-1] ^= 1
    stock = stock_of(queue, stored(10, 3), bytes(bad))
    assert pointers(stock) == [10, 11, 12]
    assert queue.sent() == [Settlement(ACK, 20, 24, 2)]


def test_an_answer_that_cannot_be_read_is_given_back_after_the_backoff(queue: Queue) -> None:
    stock = stock_of(queue, b"\0" * 100)
    assert pointers(stock) == []
    assert queue.sent() == [Settlement(NACK, 10, 12, 1), Settlement(NACK, 20, 24, 2)]
    assert not stock
