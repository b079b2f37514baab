"""Limits of the process: on the size of a file, and on the number of its descriptors."""

from __future__ import annotations

import pytest

import quoth
from kit.broker.brokers import StartBroker
from kit.broker.peers import Peers, code_of, refused
from kit.deadlines import eventually
from kit.disk.logs import encoded
from kit.machine.processes import descriptors_left, file_bytes, listing, needs_prlimit
from quoth import Unavailable
from quothwire.protocol.messages import CreateTopic, Publish, RollTopic

LIMIT = 64 * 2**10

pytestmark = needs_prlimit


def test_a_request_above_the_limit_of_a_file_names_the_limit_and_stores_nothing(
    start_broker: StartBroker,
) -> None:
    """The error is another one than that of a full disk."""
    broker = start_broker()
    with quoth.connect(broker.url) as client:
        client.publish("t", b"before")
        with file_bytes(broker.pid, LIMIT):
            with pytest.raises(Unavailable) as caught:
                client.publish("t", b"x" * 2 * LIMIT)
            assert caught.value.code == "disk_low"
            assert "a file of this process holds at most 64 KiB (RLIMIT_FSIZE)" in caught.value.text
            assert "the disk is not full" in caught.value.text
            assert "LimitFSIZE=" in str(caught.value.hint)
        with file_bytes(broker.pid, 0), pytest.raises(Unavailable, match="RLIMIT_FSIZE"):
            client.create_topic("new")
        client.publish("t", b"x" * 2 * LIMIT)
        assert [len(message.value) for message in client.read("t")] == [6, 2 * LIMIT]


def test_a_broker_without_descriptors_is_busy_only_where_a_file_has_to_be_opened(
    start_broker: StartBroker, peers: Peers
) -> None:
    broker = start_broker(sync_interval=60, check_interval=60)
    with peers.fast(broker) as fast:
        for topic in ("hibernating", "open"):
            fast.publish(topic, [b"before"])
    assert broker.terminate() == 0
    fast = peers.fast(broker.restart(worker_timeout=60))
    eventually(
        lambda: (fast.status().active, fast.status().counters["unopened"]) == (0, 0), "all topics hibernate"
    )
    fast.publish("open", [b"before"])
    files = listing(broker.topics_directory)
    with descriptors_left(broker.pid, 0):
        for topic in ("hibernating", "new"):
            with refused("busy"):
                fast.publish(topic, [b"x"])
        for request, topic in ((CreateTopic(), "new"), (RollTopic(), "open"), (RollTopic(), "hibernating")):
            with refused("busy"):
                fast.call(request, topic)
        for durability in ("written", "synced"):
            fast.publish("open", [b"x"], durability)
    assert listing(broker.topics_directory) == files
    for left in range(1, 7):
        with descriptors_left(broker.pid, left):
            assert code_of(fast.request(Publish(), "hibernating", encoded([b"y"]))) in ("", "busy")
    assert fast.call(RollTopic(), "open").segments == 2
    fast.publish("new", [b"x"])
    fast.publish("hibernating", [b"after"])
    assert fast.values("open") == [b"before", b"before", b"x", b"x"]
    assert fast.values("hibernating")[-1] == b"after"
