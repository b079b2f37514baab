"""Pending fetches, which end with the next record or at their deadline."""

from __future__ import annotations

import time
from collections import Counter

from kit.broker.brokers import BrokerProcess, StartBroker
from kit.broker.peers import FastPeer, Peers, found_in, hibernates
from kit.client.clients import Client
from kit.deadlines import eventually
from kit.machine.processes import descriptors, needs_proc, threads
from kit.scale import times


def waiting(fast: FastPeer, count: int) -> None:
    """Wait until so many fetches are pending."""
    eventually(lambda: fast.status(limit=0).waits == count, f"{count} fetches are pending")


def test_a_pending_fetch_is_answered_by_the_next_publish(
    fast: FastPeer, peers: Peers, broker: BrokerProcess, topic: str
) -> None:
    """Long before its deadline. Requests of the same connection overtake it, and a reader may leave."""
    reader, gone = peers.fast(broker), peers.fast(broker)
    after = fast.publish(topic, [b"0"]).last
    gone.send_fetch(topic, after, wait_ms=60_000)
    waiting(fast, 1)
    gone.close()
    for i in range(1, 20):
        asked, quick = reader.send_fetch(topic, after, wait_ms=60_000), reader.send_fetch(topic)
        first = reader.receive()
        assert (first.correlation, len(found_in(first).values)) == (quick, i)
        waiting(fast, 1 + (i == 1))
        fast.publish(topic, [b"%d" % i])
        found = found_in(reader.answer_to(asked), after)
        assert found.values == [b"%d" % i]
        after = found.reply.next
    waiting(fast, 0)


def test_a_pending_fetch_ends_at_its_deadline(client: Client, topic: str) -> None:
    """Without records and without an error."""
    _, last = client.publish(topic, b"x")
    for wait_ms in (0, 1, 100):
        began = time.monotonic()
        assert client.read(topic, last, wait_ms=wait_ms) == (last, [])
        took = time.monotonic() - began
        assert wait_ms / 1_000 <= took < wait_ms / 1_000 + 5


@needs_proc
def test_many_pending_fetches_cost_no_thread_and_open_no_topic(
    start_broker: StartBroker, peers: Peers
) -> None:
    """Thousands on hibernating topics: publishes answer some of them, the deadline others."""
    count = times(2_000, 100_000)
    broker = start_broker(worker_timeout=0.05)
    fast = peers.fast(broker)
    lasts = [fast.publish(f"t{i}", [b"x"]).last for i in range(10)]
    eventually(lambda: hibernates(fast), "all topics hibernate")
    before = descriptors(broker.pid), threads(broker.pid)
    reader = peers.fast(broker)
    asked = [reader.send_fetch(f"t{i % 10}", lasts[i % 10], wait_ms=600_000) for i in range(count)]
    waiting(fast, count)
    assert fast.status(limit=0).active == 0
    eventually(lambda: descriptors(broker.pid) <= before[0] + 1, "no more than the reader's connection")
    eventually(lambda: threads(broker.pid) <= before[1], "no thread is left")
    fast.publish("t3", [b"news"])
    for answer in reader.answers_to(asked[3::10]):
        assert found_in(answer, lasts[3]).values == [b"news"]
    assert fast.status(limit=0).waits == count - count // 10
    short = [reader.send_fetch("t5", lasts[5], wait_ms=200) for _ in range(count // 10)]
    found = Counter(len(found_in(answer).records) for answer in reader.answers_to(short))
    assert found == {0: count // 10}
    left = [one for row, one in enumerate(asked) if row % 10 != 3]
    for row in range(10):
        fast.publish(f"t{row}", [b"more"])
    for i, answer in enumerate(reader.answers_to(left, 60)):
        assert found_in(answer).records, i
    assert fast.status(limit=0).waits == 0
