"""Things without number: topics, groups and fetches that wait, each up to its limit and no further."""

from __future__ import annotations

from kit.broker.brokers import StartBroker
from kit.broker.peers import Peers, code_of, hibernate
from kit.deadlines import eventually
from kit.machine.processes import listing
from kit.scale import times
from quothwire.protocol.group_messages import OpenGroup
from quothwire.protocol.messages import CreateTopic, Fetch, Publish

MOST = 100


def test_topics_beyond_the_limit_are_refused_and_create_no_file(
    start_broker: StartBroker, peers: Peers
) -> None:
    """However they are asked for; existing ones go on."""
    broker = start_broker(topics_max=MOST, worker_timeout=0.1)
    fast, simple = peers.fast(broker), peers.simple(broker)
    asked = [fast.send(CreateTopic(), f"t{number}") for number in range(times(1_000, 100_000))]
    codes = [code_of(answer) for answer in fast.answers_to(asked)]
    assert codes == [""] * MOST + ["topics_max"] * (len(asked) - MOST)
    hibernate(fast)
    files = listing(broker.directory)
    asked = [fast.send_publish(f"u{number}", [b"x"]) for number in range(times(1_000, 100_000))]
    assert {code_of(answer) for answer in fast.answers_to(asked)} == {"topics_max"}
    for number in range(100):
        assert simple.ask("publish", f"v{number}", b"x")[1] == b"topics_max"
        assert simple.ask("group.fetch", f"v{number}", "g")[1] == b"topics_max"
    assert listing(broker.directory) == files
    fast.publish("t0", [b"x"])
    assert fast.values("t0") == [b"x"]


def test_groups_beyond_the_limit_are_refused(start_broker: StartBroker, peers: Peers) -> None:
    broker = start_broker(groups_max=MOST)
    fast = peers.fast(broker)
    fast.publish("t", [b"x"])
    asked = [fast.send(OpenGroup(f"g{number}"), "t") for number in range(1_000)]
    codes = [code_of(answer) for answer in fast.answers_to(asked)]
    assert codes[:MOST] == [""] * MOST
    assert "" not in codes[MOST:]
    fast.call(OpenGroup("g0"), "t")


def test_fetches_that_wait_end_with_their_connection(start_broker: StartBroker, peers: Peers) -> None:
    """A client that is gone takes no room from others."""
    broker = start_broker(waits_max=MOST)
    fast, greedy = peers.fast(broker), peers.fast(broker)
    last = fast.publish("t", [b"x"]).last
    for _ in range(MOST):
        greedy.send(Fetch(after=last, wait_ms=600_000), "t")
    eventually(lambda: fast.status(limit=0).waits == MOST, "as many wait as may")
    greedy.close()
    eventually(lambda: fast.status(limit=0).waits == 0, "they have ended")


def test_fetches_that_wait_beyond_the_limit_are_refused_and_no_others(
    start_broker: StartBroker, peers: Peers
) -> None:
    broker = start_broker(waits_max=MOST)
    fast, greedy = peers.fast(broker), peers.fast(broker)
    last = fast.publish("t", [b"x"]).last
    for _ in range(2 * MOST):
        greedy.send(Fetch(after=last, wait_ms=600_000), "t")
    eventually(lambda: fast.status(limit=0).waits == MOST, "as many wait as may")
    assert code_of(fast.request(Fetch(after=last, wait_ms=600_000), "t")) == "busy"
    assert fast.fetch("t").values == [b"x"]
    assert code_of(fast.request(Publish(), "t", b"")) == "bad_batch"
    fast.publish("t", [b"y"])
    eventually(lambda: fast.status(limit=0).waits == 0, "all are answered")
