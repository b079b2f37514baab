"""The quotas of clients, on a real broker: they hold, they are released, and others go on."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

import quoth
from kit.broker.peers import FastPeer, code_of, refused
from kit.clocks import HookedClock
from kit.deadlines import eventually
from kit.text.wording import error_of
from quothd.access.quota import Quota
from quothwire.protocol.group_messages import DescribeGroup, GroupFetch, GroupSettle, OpenGroup
from quothwire.protocol.messages import CreateTopic, DeleteTopic, DescribeTopic, Fetch, Ping, UpdateTopic
from quothwire.protocol.settlement import Settle, Settlement, encode_settlements

FILE = """
[clients.alice]
key = "{{alice}}"
publish = ["*"]
read = ["*"]
group = ["*"]
admin = ["*"]
[clients.alice.quota]
{quota}
[clients.bob]
key = "{{bob}}"
publish = ["*"]
read = ["*"]
"""


def limited(**quota: object) -> str:
    """A clients file with quotas of alice; bob has none."""
    return FILE.format(quota="\n".join(f"{name} = {value!r}" for name, value in quota.items()))


def used(broker: Any, quota: Quota, client: str = "alice") -> int:
    """The amount that the broker counts for a client."""
    found: int = broker.broker._front_end._access.ledger.used(client, quota)
    return found


def test_topics_of_a_client_are_limited_through_deletions_and_restarts(known: Callable[..., Any]) -> None:
    broker = known(limited(topics=2))
    peer, other = broker.fast("alice"), broker.fast("bob")
    peer.publish("a", [b"x"])
    peer.call(CreateTopic(), "b")
    problem = error_of(peer.publish, "c", [b"x"])
    assert problem.code == "quota_exceeded"
    assert "quota topics: client 'alice' may have at most 2 topics" in problem.text
    other.publish("c", [b"x"])
    peer.publish("c", [b"x"])
    peer.call(UpdateTopic({"max_age": 5.0}), "b")
    broker.broker.stop()
    broker = known(limited(topics=2))
    peer = broker.fast("alice")
    with refused("quota_exceeded"):
        peer.publish("d", [b"x"])
    peer.call(DeleteTopic(), "b")
    peer.publish("d", [b"x"])
    assert used(broker, Quota.TOPICS) == 2


def test_a_publish_that_is_refused_counts_no_topic(known: Callable[..., Any]) -> None:
    broker = known(limited(topics=1, topic_creations=1))
    peer = broker.fast("alice")
    answer = peer.request(CreateTopic({"max_age": "wrong"}), "a")
    assert code_of(answer) == "bad_setting"
    peer.publish("b", [b"x"])


def test_bytes_in_the_topics_of_a_client_are_limited(known: Callable[..., Any]) -> None:
    """By each publisher; a trim makes room, in time; another client's topics are not affected."""
    broker = known(limited(store_bytes="100 KiB"), check_interval=0.01)
    peer, other = broker.fast("alice"), broker.fast("bob")
    peer.publish("mine", [b"x" * 200_000])
    other.publish("other", [b"x" * 200_000])
    eventually(lambda: used(broker, Quota.STORE_BYTES) > 200_000, "the topic has reported its size")
    for publisher, topic in ((peer, "mine"), (other, "mine"), (peer, "new")):
        problem = error_of(publisher.publish, topic, [b"x"])
        assert problem.code == "quota_exceeded"
        assert "quota store_bytes: client 'alice' may have at most 100 KiB" in problem.text
    peer.publish("other", [b"x"])
    assert peer.fetch("mine").values == [b"x" * 200_000]
    peer.call(DeleteTopic(), "mine")
    peer.publish("new", [b"x"])


def test_bytes_of_a_topic_that_hibernates_count_after_a_restart(known: Callable[..., Any]) -> None:
    broker = known(limited())
    broker.fast("alice").publish("mine", [b"x" * 200_000])
    broker.broker.stop()
    broker = known(limited(store_bytes="100 KiB"))
    eventually(lambda: used(broker, Quota.STORE_BYTES) > 200_000, "the topic has been opened")
    with refused("quota_exceeded"):
        broker.fast("alice").publish("mine", [b"x"])


@pytest.mark.parametrize("quota", [{"requests": 2}, {"request_bytes": 3_000}])
def test_requests_in_work_are_limited_and_others_go_on(
    known: Callable[..., Any], quota: dict[str, object]
) -> None:
    """A client that gets ``busy`` sends them again, as any client does."""
    broker = known(limited(**quota))
    peer, other = broker.fast("alice"), broker.fast("bob")
    peer.publish("t", [b"x"], "synced")
    codes = pipelined(peer)
    assert "busy" in codes
    assert "" in codes
    assert pipelined(other) == [""] * 100
    assert (used(broker, Quota.REQUESTS), used(broker, Quota.REQUEST_BYTES)) == (0, 0)
    peer.publish("t", [b"x"])


def pipelined(peer: FastPeer) -> list[str]:
    """The codes of a hundred publishes that are on their way at once."""
    asked = [peer.send_publish("t", [b"x" * 1_000], "synced") for _ in range(100)]
    return [*map(code_of, peer.answers_to(asked))]


def test_waits_of_a_client_are_limited_and_end_in_every_way(known: Callable[..., Any]) -> None:
    clock = HookedClock()
    broker = known(limited(waits=2), clock=clock)
    peer, other = broker.fast("alice"), broker.fast("bob")
    newest = other.publish("t", [b"x"]).last
    for end in ("a publish", "time", "a deletion"):
        waiting = Fetch(after=newest, wait_ms=60_000)
        asked = [peer.send(waiting, "t") for _ in range(3)]
        assert code_of(peer.answer_to(asked[2])) == "busy"
        assert used(broker, Quota.WAITS) == 2
        held = other.send(waiting, "t")
        if end == "a publish":
            newest = other.publish("t", [b"x"]).last
        elif end == "time":
            other.call(DescribeTopic(), "t")  # behind the fetch, which waits now
            clock.ahead += 61.0
            other.call(Ping())  # the broker looks at the clock
        else:
            peer.call(DeleteTopic(), "t")
        codes = [code_of(one) for one in peer.answers_to(asked[:2])]
        assert codes == (["unknown_topic"] * 2 if end == "a deletion" else ["", ""])
        assert used(broker, Quota.WAITS) == 0
        other.answer_to(held)


def test_dead_letter_topics_count_for_the_client_whose_topic_they_come_from(
    known: Callable[..., Any],
) -> None:
    """Without that, groups would give a client topics beyond its quota."""
    broker = known(limited(topics=2))
    peer = broker.fast("alice")
    newest = peer.publish("jobs", [b"x"]).last
    for group in ("one", "two"):
        peer.call(OpenGroup(group, settings={"max_attempts": 1}), "jobs")
        (lease,) = peer.call(GroupFetch(group), "jobs").leases
        row = Settlement(Settle.TERM, newest, newest, lease[0])
        peer.call(GroupSettle(group, 1), "jobs", encode_settlements([row]))
        if group == "one":
            eventually(lambda: used(broker, Quota.TOPICS) == 2, "the letters have a topic")
    eventually(lambda: "quota topics" in peer.call(DescribeGroup("two"), "jobs").problem, "the group says so")
    assert code_of(peer.request(DescribeTopic(), "jobs.two.dead")) == "unknown_topic"


def test_a_client_creates_no_group_in_a_topic_that_has_as_many_as_its_quota(
    known: Callable[..., Any],
) -> None:
    broker = known(limited(groups=2))
    peer = broker.fast("alice")
    for group in ("one", "two"):
        peer.call(OpenGroup(group), "jobs")
    with refused("quota_exceeded"):
        peer.call(OpenGroup("three"), "jobs")
    with refused("quota_exceeded"):
        broker.simple("alice").call("group.fetch", "jobs", "three")
    peer.call(OpenGroup("two"), "jobs")
    peer.call(OpenGroup("one"), "other")
    broker.owner.call(OpenGroup("three"), "jobs")


def test_a_reload_changes_the_quotas(known: Callable[..., Any]) -> None:
    broker = known(limited(topics=1))
    peer = broker.fast("alice")
    peer.publish("a", [b"x"])
    with refused("quota_exceeded"):
        peer.publish("b", [b"x"])
    broker.reload(limited(topics=2))
    peer.publish("b", [b"x"])
    broker.reload(limited(topics=0))
    with refused("quota_exceeded"):
        peer.publish("c", [b"x"])


def test_connections_of_a_client_are_limited_and_the_newest_learns_why_it_is_ended(
    known: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The others go on; one that leaves makes room; none is counted for the broker's own process."""
    monkeypatch.setattr("quothd.connections.connection_table.GOODBYE_S", 600.0)
    clock = HookedClock()
    broker = known(limited(connections=2), clock=clock)
    peers = [broker.fast("alice"), broker.simple("alice")]
    peers[0].publish("t", [b"x"])
    peers[1].call("ping")
    beyond = broker.fast("alice")
    for _ in range(2):
        problem = error_of(beyond.publish, "t", [b"x"])
        assert problem.code == "quota_exceeded"
        assert "quota connections: client 'alice' may have at most 2 connections" in problem.text
    with refused("quota_exceeded"):
        broker.simple("alice").call("ping")
    clock.ahead += 601.0
    eventually(
        lambda: broker.owner.status(limit=0).counters.get("connections_ended", 0) >= 2, "they are ended"
    )
    assert used(broker, Quota.CONNECTIONS) == 2
    beyond.close()
    peers[0].publish("t", [b"x"])
    broker.fast("bob").publish("t", [b"x"])
    peers[1].close()
    eventually(lambda: used(broker, Quota.CONNECTIONS) == 1, "it has left")
    broker.fast("alice").publish("t", [b"x"])


def test_a_program_beyond_the_quota_of_connections_gets_an_error(known: Callable[..., Any]) -> None:
    """At once, and not as a broker that does not answer; it works once another one has left."""
    broker = known(limited(connections=1))
    first = broker.fast("alice")
    first.publish("t", [b"x"])
    problem = error_of(partial(quoth.connect, broker.broker.urls[0], key=broker.keys["alice"]))
    assert problem.code == "quota_exceeded"
    assert "quota connections: client 'alice'" in problem.text
    first.close()
    eventually(lambda: used(broker, Quota.CONNECTIONS) == 0, "it has left")
    with quoth.connect(broker.broker.urls[0], key=broker.keys["alice"]) as client:
        assert client.publish("t", b"y")


def test_a_status_shows_quotas_and_what_is_used_of_them(known: Callable[..., Any]) -> None:
    """Of all clients for an operator, as many as asked for; of itself for any other client."""
    broker = known(limited(topics=3, connections=2), check_interval=600.0, worker_timeout=600.0)
    alice, bob = broker.fast("alice"), broker.fast("bob")
    alice.publish("t", [b"x"])
    bob.publish("u", [b"x"])
    eventually(lambda: used(broker, Quota.REQUESTS) == 0, "the publish is done")
    for operator in (alice, broker.owner):
        found = operator.status().clients
        assert list(found) == ["alice", "bob", "quoth.rules"]
        assert (found["alice"]["topics"], found["alice"]["connections"]) == ([1, 3], [1, 2])
        assert (found["bob"]["topics"], found["bob"]["connections"]) == ([1, -1], [1, -1])
        assert list(operator.status(limit=1).clients) == ["alice"]
        assert operator.status(limit=0).clients == {}
    assert bob.status().clients == {"bob": found["bob"]}
