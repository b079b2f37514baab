"""Workers that speak the simple protocol: a group in text frames, with what other clients see of it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import zmq

from kit.broker.peers import FastPeer, Peers, SimplePeer, refused
from kit.deadlines import eventually
from kit.disk.damage import flip, stored_batches
from quothd import Broker
from quothwire import batch
from quothwire.protocol.group_messages import (
    DeleteGroup,
    DescribeGroup,
    ListGroups,
    ListPending,
    OpenGroup,
    SeekGroup,
)
from quothwire.protocol.messages import Publish, Published

WAIT_MS = 20_000
AT_ONCE = {"backoff": [0.0]}


class Leased(NamedTuple):
    """A reply to a group.fetch. rows: pointer, attempts and value of each record."""

    lease: bytes
    rows: list[tuple[int, int, bytes]]

    @property
    def pointers(self) -> list[int]:
        return [pointer for pointer, _, _ in self.rows]

    @property
    def values(self) -> list[bytes]:
        return [value for _, _, value in self.rows]


class Worker:
    """A member of the group ``g`` of a topic, on a REQ socket."""

    def __init__(self, peer: SimplePeer, topic: str) -> None:
        self.peer = peer
        self._topic = topic

    def fetch(self, limit: int = 100, wait_ms: int = 0, *lease_ms: int) -> Leased:
        return leased(self.peer.call("group.fetch", self._topic, "g", limit, wait_ms, *lease_ms))

    def settle(self, word: str, found: Leased, *pointers: int) -> int:
        """Settle some records, or all of a reply; returns their number."""
        frames = pointers or found.pointers
        (count,) = self.peer.call(f"group.{word}", self._topic, "g", found.lease, *frames)
        return int(count)


def leased(frames: list[bytes]) -> Leased:
    lease, *rest = frames
    rows = zip(map(int, rest[::3]), map(int, rest[1::3]), rest[2::3], strict=True)
    return Leased(lease, list(rows))


@pytest.fixture
def worker(peers: Peers, broker: Any, topic: str) -> Worker:
    return Worker(peers.simple(broker, zmq.REQ), topic)


@pytest.fixture
def broker_of(tmp_path: Path) -> Iterator[Callable[..., Broker]]:
    """Start a broker in this process, with more arguments of `Broker`; it ends with the test."""
    started: list[Broker] = []

    def start(**settings: Any) -> Broker:
        started.append(Broker(tmp_path / "data", host="127.0.0.1", **settings))
        started[-1].start()
        return started[-1]

    yield start
    for one in started:
        one.stop()


# -- a worker -----------------------------------------------------------------------------------------------


def test_a_worker_needs_nothing_but_fetches_and_acks(worker: Worker, fast: FastPeer, topic: str) -> None:
    """The first fetch makes the topic and the group, from the beginning; by default it returns a record."""
    assert worker.fetch().rows == []
    published = fast.publish(topic, [b"one", b"", b"three"])
    done = []
    while (found := leased(worker.peer.call("group.fetch", topic, "g"))).rows:
        ((pointer, attempts, value),) = found.rows
        assert attempts == 1
        done.append((pointer, value))
        assert worker.settle("ack", found) == 1
    assert done == list(enumerate([b"one", b"", b"three"], published.first))
    info = fast.call(DescribeGroup("g"), topic)
    assert (info.lag, info.pending, info.after) == (0, 0, published.last)


def test_an_ack_counts_what_was_not_finished_before(worker: Worker, fast: FastPeer, topic: str) -> None:
    fast.publish(topic, [b"%d" % number for number in range(10)])
    found = worker.fetch()
    first, *_, last = found.pointers
    assert worker.settle("ack", found, first, first + 1, last, first) == 3
    assert worker.settle("ack", found) == 7
    assert worker.settle("ack", found) == 0


def test_records_of_one_reply_have_one_lease_whenever_they_were_handed_out(
    worker: Worker, fast: FastPeer, topic: str
) -> None:
    fast.call(OpenGroup("g", settings=AT_ONCE), topic)
    fast.publish(topic, [b"%d" % number for number in range(6)])
    before = worker.fetch(4)
    assert worker.settle("nack", before, before.pointers[0], before.pointers[2]) == 2
    found = worker.fetch()
    assert sorted(found.rows) == [
        (before.pointers[0], 2, b"0"),
        (before.pointers[2], 2, b"2"),
        (before.pointers[3] + 1, 1, b"4"),
        (before.pointers[3] + 2, 1, b"5"),
    ]
    assert worker.settle("nack", found) == 4
    assert worker.settle("nack", before) == 2, "those that it had still"


def test_an_extension_lasts_as_long_as_the_fetch_has_asked_for(
    worker: Worker, fast: FastPeer, topic: str
) -> None:
    fast.publish(topic, [b"x", b"y"])
    found = worker.fetch(2, 0, 400_000)
    assert worker.settle("ack", found, found.pointers[0]) == 1
    assert worker.settle("extend", found) == 1
    ((first, last, attempts, left_ms, _),) = fast.call(ListPending("g"), topic).ranges
    assert (first, last, attempts) == (found.pointers[1], found.pointers[1], 1)
    assert 390_000 < left_ms <= 400_000, "the lease of the group is 30 s"


def test_a_release_does_not_count_as_an_attempt(worker: Worker, fast: FastPeer, topic: str) -> None:
    fast.call(OpenGroup("g", settings={"max_attempts": 2, "backoff": [600.0]}), topic)
    fast.publish(topic, [b"x", b"y"])
    for _ in range(3):
        found = worker.fetch()
        assert [(attempts, value) for _, attempts, value in found.rows] == [(1, b"x"), (1, b"y")]
        assert worker.settle("release", found) == 2
    assert worker.settle("release", found) == 0, "the lease has ended"


def test_a_terminated_record_becomes_a_dead_letter(worker: Worker, fast: FastPeer, topic: str) -> None:
    fast.publish(topic, [b"x", b"y"])
    found = worker.fetch()
    assert worker.settle("term", found, found.pointers[1]) == 1
    letter = letter_in(fast, f"{topic}.g.dead")
    assert letter.value == b"y"
    assert letter.headers["quoth-pointer"] == b"%d" % found.pointers[1]


def letter_in(fast: FastPeer, topic: str) -> Any:
    """The only record of a topic of dead letters, once it is there."""
    (record,) = fast.fetch(topic, wait_ms=WAIT_MS).records
    return record


# -- a lease that is lost -----------------------------------------------------------------------------------


def test_a_late_ack_finishes_records_and_a_late_nack_does_nothing(
    worker: Worker, fast: FastPeer, topic: str
) -> None:
    fast.call(OpenGroup("g", settings=AT_ONCE), topic)
    fast.publish(topic, [b"x", b"y"])
    late = worker.fetch(100, 0, 1)
    again = worker.fetch(100, WAIT_MS)
    assert [attempts for _, attempts, _ in again.rows] == [2, 2]
    for word in ("nack", "release", "extend", "term"):
        assert worker.settle(word, late) == 0
    assert worker.settle("ack", late, late.pointers[0]) == 1
    assert worker.settle("nack", again) == 1, "the other one"


def test_a_seek_ends_every_lease(worker: Worker, fast: FastPeer, topic: str) -> None:
    """An ack from before would finish records that are to be handed out once more."""
    fast.publish(topic, [b"x", b"y"])
    before = worker.fetch()
    fast.call(SeekGroup("g", 0), topic)
    for word in ("ack", "nack", "release", "extend", "term"):
        assert worker.settle(word, before) == 0
    assert worker.fetch().values == [b"x", b"y"]


def test_records_of_a_group_that_hands_out_once_are_finished_at_once(
    worker: Worker, fast: FastPeer, topic: str
) -> None:
    fast.call(OpenGroup("g", settings={"mode": "at_most_once"}), topic)
    fast.publish(topic, [b"x"])
    found = worker.fetch()
    assert found.values == [b"x"]
    assert worker.settle("ack", found) == 0
    with refused("bad_request"):
        worker.settle("nack", found)
    assert worker.fetch().rows == []


# -- topics and groups --------------------------------------------------------------------------------------


def test_a_fetch_waits_for_a_publish(worker: Worker, peers: Peers, broker: Any, topic: str) -> None:
    worker.peer.send("group.fetch", topic, "g", 1, WAIT_MS)
    fast = peers.fast(broker)
    eventually(lambda: fast.status().waits == 1, "it waits")
    fast.publish(topic, [b"x"])
    status, *frames = worker.peer.receive()
    assert (status, leased(frames).values) == (b"ok", [b"x"])


def test_a_group_that_is_deleted_is_not_made_again_by_a_fetch_that_waits(
    worker: Worker, fast: FastPeer, topic: str
) -> None:
    worker.fetch()
    worker.peer.send("group.fetch", topic, "g", 1, WAIT_MS)
    eventually(lambda: fast.status().waits == 1, "it waits")
    fast.call(DeleteGroup("g"), topic)
    assert worker.peer.receive()[:2] == [b"error", b"unknown_group"]
    assert fast.call(ListGroups(), topic).groups == []
    with refused("unknown_group"):
        worker.settle("ack", Leased(b"0-0-0", [(1, 1, b"")]))


def test_a_fetch_makes_no_topic_where_publishes_make_none(
    broker_of: Callable[..., Broker], peers: Peers
) -> None:
    simple = peers.simple(broker_of(auto_create=False))
    with refused("unknown_topic"):
        simple.call("group.fetch", "t", "g")
    assert simple.topics() == []


def test_a_wrong_request_makes_neither_topic_nor_group(
    broker_of: Callable[..., Broker], peers: Peers
) -> None:
    broker = broker_of()
    simple, fast = peers.simple(broker), peers.fast(broker)
    for code, *frames in (
        ("bad_group", "t", "a/b"),
        ("bad_group", "t", ""),
        ("bad_group", "t", b"\xff"),
        ("bad_group", "t", "x" * 101),
        ("bad_request", "t", "g", 0),
        ("too_large", "t", "g", 1_001),
        ("too_large", "t", "g", 1, 600_001),
        ("too_large", "t", "g", 1, 0, 43_200_001),
        ("bad_topic", "x" * 190, "x" * 100),
        ("bad_topic", "a/b", "g"),
    ):
        with refused(code):
            simple.call("group.fetch", *frames)
    assert simple.topics() == []
    fast.publish("t", [b"x"])
    with refused("bad_group"):
        simple.call("group.fetch", "t", "a/b")
    fast.call(OpenGroup("c", settings={"mode": "cursor"}), "t")
    with refused("bad_request"):
        simple.call("group.fetch", "t", "c")
    assert [one["group"] for one in fast.call(ListGroups(), "t").groups] == ["c"]


# -- records that a reply leaves out ------------------------------------------------------------------------


def test_a_reply_has_no_record_whose_key_another_member_has(
    worker: Worker, fast: FastPeer, topic: str
) -> None:
    fast.call(OpenGroup("g", settings={"key_order": True}), topic)
    fast.call(Publish(), topic, batch.encode([b"1", b"2", b"3"], [b"a", b"a", b"b"]))
    found = worker.fetch()
    assert sorted(found.values) == [b"1", b"3"]
    assert worker.settle("ack", found) == 2
    assert worker.fetch().values == [b"2"]


def damaged_broker(
    broker_of: Callable[..., Broker], peers: Peers, tmp_path: Path
) -> tuple[Broker, Published, Published]:
    """Start a broker with a damaged batch of two records in the topic ``t``, and a sound one behind it."""
    broker = broker_of()
    fast = peers.fast(broker)
    damaged, sound = fast.publish("t", [b"one", b"two"]), fast.publish("t", [b"three"])
    broker.stop()
    stored, *_ = stored_batches(tmp_path / "data" / "topics", damaged.log)
    flip(stored.path, stored.end - 1)
    return broker_of(), damaged, sound


def test_damaged_records_are_told_once_nothing_else_is_left(
    broker_of: Callable[..., Broker], peers: Peers, tmp_path: Path
) -> None:
    """The frames of the error settle them; as dead letters they have no value."""
    broker, damaged, sound = damaged_broker(broker_of, peers, tmp_path)
    fast, worker = peers.fast(broker), Worker(peers.simple(broker, zmq.REQ), "t")
    fast.call(OpenGroup("g", settings=AT_ONCE), "t")
    assert worker.fetch(100, 0, 1).rows == [(sound.first, 1, b"three")]
    status, code, _, lease, *pointers = worker.peer.ask("group.fetch", "t", "g", 2, WAIT_MS)
    assert (status, code, [*map(int, pointers)]) == (b"error", b"damaged", [damaged.first, damaged.last])
    assert worker.peer.call("group.ack", "t", "g", lease, pointers[0]) == [b"1"]
    assert worker.peer.call("group.term", "t", "g", lease, pointers[1]) == [b"1"]
    letter = letter_in(fast, "t.g.dead")
    assert (letter.value, letter.headers["quoth-pointer"]) == (b"", pointers[1])


@pytest.mark.parametrize("limit", [2, 3])
def test_damaged_records_of_a_group_that_hands_out_once_do_not_come_again(
    broker_of: Callable[..., Broker], peers: Peers, tmp_path: Path, limit: int
) -> None:
    broker, damaged, sound = damaged_broker(broker_of, peers, tmp_path)
    peers.fast(broker).call(OpenGroup("g", settings={"mode": "at_most_once"}), "t")
    worker = Worker(peers.simple(broker, zmq.REQ), "t")
    if limit == 2:
        status, code, _, _, *pointers = worker.peer.ask("group.fetch", "t", "g", limit)
        assert (status, code, [*map(int, pointers)]) == (b"error", b"damaged", [damaged.first, damaged.last])
    assert worker.fetch(limit).rows == [(sound.first, 1, b"three")]
    assert worker.fetch().rows == []
