"""The life of a topic through a broker: created, changed, rolled, trimmed, deleted and created again."""

from __future__ import annotations

from collections import deque
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from kit.broker.brokers import BrokerProcess, StartBroker
from kit.broker.peers import FastPeer, Peers, SimplePeer, code_of, found_in, hibernates, refused, replied
from kit.deadlines import eventually
from kit.machine.processes import listing
from kit.scale import times
from quothd.topics.metadata import FORMER_NAMES
from quothwire.errors import QuothError
from quothwire.protocol.messages import (
    CreateTopic,
    DeleteTopic,
    Fetch,
    GetStatus,
    ListTopics,
    RollTopic,
    Topics,
    Trimmed,
    TrimTopic,
    UpdateTopic,
)
from quothwire.settings import TopicSettings


def names(fast: FastPeer, after: str = "", limit: int = 1_000) -> list[str]:
    """The names of topics."""
    reply = fast.call(ListTopics(after=after, limit=limit))
    assert isinstance(reply, Topics)
    return reply.names


# -- create and update ----------------------------------------------------------------------------------


def test_a_topic_is_created_with_its_settings(fast: FastPeer, topic: str) -> None:
    """The rest has the broker's defaults. The reply describes the topic."""
    info = fast.call(CreateTopic({"max_age": 60.0, "count_limit": 10}), topic)
    assert info.settings == TopicSettings(max_age=60.0, count_limit=10).to_map()
    assert (info.name, info.count, info.first, info.last, info.segments) == (topic, 0, 0, 0, 1)
    assert fast.describe(topic).settings == info.settings
    assert topic in names(fast)


def test_a_topic_is_created_once(fast: FastPeer, topic: str) -> None:
    """Of requests that are sent at once, the first succeeds. A publish creates a topic, too."""
    asked = [fast.send(CreateTopic(), topic) for _ in range(5)]
    assert sorted(map(code_of, fast.answers_to(asked))) == [""] + ["topic_exists"] * 4
    fast.publish(f"{topic}.", [b"x"])
    for name in (topic, f"{topic}."):
        with refused("topic_exists"):
            fast.call(CreateTopic(), name)


BAD_SETTINGS: list[dict[str, Any]] = [
    {"max_agee": 1},
    {"": 1},
    {"max_age": -1},
    {"max_age": "1"},
    {"max_age": True},
    {"max_age": None},
    {"max_age": float("nan")},
    {"max_age": float("inf")},
    {"max_bytes": 1.5},
    {"size_limit": 0},
    {"size_limit": 2**60},
    {"count_limit": -1},
    {"durability": "replicated"},
    {"durability": 1},
]


def test_a_wrong_setting_creates_and_changes_no_topic(fast: FastPeer, topic: str) -> None:
    for settings in BAD_SETTINGS:
        with refused("bad_setting"):
            fast.call(CreateTopic(settings), topic)
        assert topic not in names(fast), settings
    before = fast.call(CreateTopic(), topic).settings
    for settings in BAD_SETTINGS:
        with refused("bad_setting"):
            fast.call(UpdateTopic({"max_age": 5.0, **settings}), topic)
        assert fast.describe(topic).settings == before, settings


def test_the_error_for_an_unknown_setting_suggests_one(fast: FastPeer, topic: str) -> None:
    answer = fast.request(CreateTopic({"max_agee": 1.0}), topic)
    assert isinstance(answer.reply, QuothError)
    assert "did you mean max_age?" in answer.reply.hint


def test_renamed_counters_have_their_former_names_too(fast: FastPeer, topic: str) -> None:
    fast.publish(topic, [b"x"])
    counters = {**fast.status(limit=0).counters, **fast.describe(topic).counters}
    for name, former in FORMER_NAMES.items():
        assert counters.get(name) == counters.get(former)
        assert name in counters or name == "malformed_requests", "only this one appears with its first event"


def test_settings_outlive_restart_and_crash(start_broker: StartBroker, peers: Peers) -> None:
    broker = start_broker()
    fast = peers.fast(broker)
    fast.call(CreateTopic({"max_bytes": 10_000}), "t")
    fast.call(UpdateTopic({"max_age": 100.0, "durability": "synced"}), "t")
    expected = TopicSettings(max_bytes=10_000, max_age=100.0, durability="synced").to_map()
    for end in (broker.kill, broker.terminate):
        end()
        fast.close()
        broker.restart()
        fast = peers.fast(broker)
        assert fast.describe("t").settings == expected


def test_an_update_holds_for_the_next_record_and_changes_nothing_else(fast: FastPeer, topic: str) -> None:
    published = fast.publish(topic, [bytes(1_000)])
    info = fast.call(UpdateTopic({"count_limit": 1}), topic)
    assert (info.log, info.last, info.count) == (published.log, published.last, 1)
    assert info.settings == TopicSettings(count_limit=1).to_map()
    for _ in range(3):
        fast.publish(topic, [b"x"])
    assert fast.describe(topic).segments == 4
    assert [record.value for record in fast.read_all(topic)] == [bytes(1_000), b"x", b"x", b"x"]


@pytest.mark.parametrize(
    ("settings", "segments"),
    [({"count_limit": 10}, 10), ({"size_limit": 1_000}, 12), ({"count_limit": 100}, 1)],
)
def test_segments_are_as_large_as_they_may_be(
    fast: FastPeer, topic: str, settings: dict[str, Any], segments: int
) -> None:
    """The limits hold exactly for requests that come at once. Header block and batch have 96 bytes each."""
    fast.call(CreateTopic(settings), topic)
    for answer in fast.answers_to([fast.send_publish(topic, [bytes(17)]) for _ in range(100)]):
        replied(answer)
    assert fast.describe(topic).segments == segments
    assert len(fast.read_all(topic)) == 100


# -- listings -----------------------------------------------------------------------------


def test_a_publish_creates_no_topic_without_auto_create(start_broker: StartBroker, peers: Peers) -> None:
    broker = start_broker(auto_create=False)
    fast, simple = peers.fast(broker), peers.simple(broker)
    with refused("unknown_topic"):
        fast.publish("t", [b"x"])
    with refused("unknown_topic"):
        simple.publish("t", b"x")
    assert names(fast) == []
    fast.call(CreateTopic(), "t")
    fast.publish("t", [b"x"])
    simple.publish("t", b"y")
    assert fast.fetch("t", 0).values == [b"x", b"y"]


def test_topics_max_bounds_the_topics(start_broker: StartBroker, peers: Peers) -> None:
    """A deletion makes room for another one."""
    broker = start_broker(topics_max=3)
    fast = peers.fast(broker)
    for row in range(3):
        fast.publish(f"t{row}", [b"x"])
    for make in (lambda: fast.publish("t3", [b"x"]), lambda: fast.call(CreateTopic(), "t3")):
        with refused("topics_max"):
            make()
    assert names(fast) == ["t0", "t1", "t2"]
    assert len([name for name in listing(broker.topics_directory) if "/" not in name]) == 3
    fast.publish("t1", [b"y"])
    fast.call(DeleteTopic(), "t1")
    fast.publish("t3", [b"x"])
    assert names(fast) == ["t0", "t2", "t3"]


def test_listings_and_the_status_have_pages(start_broker: StartBroker, peers: Peers) -> None:
    """Pages of any size are in the order of the names' bytes, through both protocols."""
    broker = start_broker()
    fast, simple = peers.fast(broker), peers.simple(broker)
    made = [f"t{i}" for i in range(30)] + ["Z", "ä", "a b", "😀"]
    for name in made:
        fast.publish(name, [b"x"])
    expected = sorted(made, key=str.encode)
    assert simple.topics() == names(fast) == expected
    for limit in (1, 7, 1_000):
        found: list[str] = []
        while page := names(fast, found[-1] if found else "", limit):
            assert len(page) <= limit
            found += page
        assert found == expected
    assert simple.topics("t5") == names(fast, "t5") == expected[expected.index("t5") + 1 :]
    assert names(fast, "no such topic") == [name for name in expected if name.encode() > b"no such topic"]
    status = fast.call(GetStatus(after="t1", limit=2))
    assert list(status.states) == expected[expected.index("t1") + 1 :][:2]
    assert (status.topics, status.pid) == (len(made), broker.pid)
    assert status.directory == str(broker.directory.resolve())
    assert fast.status(limit=0).states == {}


# -- delete ---------------------------------------------------------------------------------------------


def test_a_deleted_topic_is_gone(start_broker: StartBroker, peers: Peers) -> None:
    """No reply and no folder has it, before and after a crash."""
    broker = start_broker()
    fast = peers.fast(broker)
    fast.publish("t", [b"1", b"2"])
    fast.call(RollTopic(), "t")
    fast.publish("t", [b"3"])
    fast.publish("other", [b"x"])
    reply = fast.call(DeleteTopic(), "t")
    assert isinstance(reply, Trimmed)
    assert (reply.records, reply.first) == (3, 0)
    assert reply.bytes > 0
    for ask in (Fetch(), RollTopic(), DeleteTopic(), TrimTopic(1), UpdateTopic()):
        with refused("unknown_topic"):
            fast.call(ask, "t")
    assert names(fast) == ["other"]
    assert [path.name.partition("~")[0] for path in broker.topics_directory.iterdir()] == ["other"]
    broker.kill()
    fast.close()
    fast = peers.fast(broker.restart())
    assert names(fast) == ["other"]


def test_a_topic_created_again_has_another_log(fast: FastPeer, topic: str) -> None:
    """Its pointers are above those of the deleted one."""
    old = fast.publish(topic, [b"old"])
    fast.call(DeleteTopic(), topic)
    new = fast.publish(topic, [b"new"])
    assert new.log != old.log
    assert new.first > old.last
    found = fast.fetch(topic, 0)
    assert (found.reply.log, found.values) == (new.log, [b"new"])
    assert fast.describe(topic).log == new.log


def test_a_deletion_of_a_log_spares_another_one_of_the_name(fast: FastPeer, topic: str) -> None:
    """A deletion that was sent twice leaves alone a topic that was created between."""
    old = fast.publish(topic, [b"old"])
    fast.call(DeleteTopic(old.log), topic)
    fast.publish(topic, [b"new"])
    with refused("unknown_topic"):
        fast.call(DeleteTopic(old.log), topic)
    assert fast.fetch(topic, 0).values == [b"new"]
    assert fast.call(DeleteTopic(), topic).records == 1


def test_a_waiting_reader_learns_of_a_deletion_and_can_go_on_in_the_next_topic(
    fast: FastPeer, peers: Peers, broker: BrokerProcess, topic: str
) -> None:
    reader = peers.fast(broker)
    last = fast.publish(topic, [b"old"]).last
    asked = reader.send_fetch(topic, last, wait_ms=60_000)
    eventually(lambda: fast.status(limit=0).waits == 1, "the fetch waits")
    fast.call(DeleteTopic(), topic)
    with refused("unknown_topic"):
        found_in(reader.answer_to(asked))
    asked = reader.send_fetch(topic, last, wait_ms=60_000)
    eventually(lambda: fast.status(limit=0).waits == 1, "the fetch waits")
    fast.publish(topic, [b"new"])
    assert found_in(reader.answer_to(asked), last).values == [b"new"]


def test_a_deletion_comes_after_the_requests_before_it(fast: FastPeer, topic: str) -> None:
    asked = [fast.send_publish(topic, [b"%d" % i]) for i in range(100)]
    reads = [fast.send_fetch(topic, 0) for _ in range(10)]
    deletion = fast.send(DeleteTopic(), topic)
    for answer in fast.answers_to(asked):
        replied(answer)
    for answer in fast.answers_to(reads):
        assert found_in(answer).records
    assert fast.answer_to(deletion).reply.records == 100  # type: ignore[union-attr]


def test_a_publish_during_a_deletion_is_busy_or_creates_a_topic(fast: FastPeer, topic: str) -> None:
    """Acknowledged records stay."""
    for _ in range(20):
        fast.publish(topic, [bytes(1_000)])
        deletion = fast.send(DeleteTopic(), topic)
        asked = [fast.send_publish(topic, [b"%d" % i]) for i in range(20)]
        replied(fast.answer_to(deletion))
        codes = list(map(code_of, fast.answers_to(asked)))
        assert set(codes) <= {"", "busy"}
        found = fast.read_all(topic) if topic in names(fast) else []
        assert len(found) == codes.count("")
        fast.request(DeleteTopic(), topic)


def test_a_hibernating_topic_is_deleted(start_broker: StartBroker, peers: Peers) -> None:
    broker = start_broker(worker_timeout=0.05)
    fast = peers.fast(broker)
    fast.publish("t", [b"x"])
    eventually(lambda: hibernates(fast), "it hibernates")
    assert fast.call(DeleteTopic(), "t").records == 1
    assert names(fast) == []


def test_topics_created_and_deleted_by_many_leave_no_trace(start_broker: StartBroker, peers: Peers) -> None:
    broker = start_broker()

    def create_and_delete(number: int) -> None:
        with FastPeer(peers.context, broker.url) as fast:
            for _ in range(times(30, 500)):
                fast.publish(f"t{number}", [b"x"])
                fast.call(DeleteTopic(), f"t{number}")

    with ThreadPoolExecutor() as pool:
        deque(pool.map(create_and_delete, range(4)), 0)
    fast = peers.fast(broker)
    assert names(fast) == []
    assert listing(broker.topics_directory) == []
    eventually(lambda: hibernates(fast), "no worker is left")


# -- trim and delete, while another client reads ---------------------------------------------------------


def test_a_trim_removes_whole_segments_below_its_pointer(fast: FastPeer, topic: str) -> None:
    """The active segment, too."""
    fast.call(CreateTopic({"count_limit": 10}), topic)
    pointers = [fast.publish(topic, [b"%d" % i]).first for i in range(35)]
    assert fast.call(TrimTopic(before=0), topic).records == 0
    assert fast.call(TrimTopic(before=pointers[0]), topic).records == 0
    trimmed = fast.call(TrimTopic(before=pointers[15]), topic)
    assert (trimmed.records, trimmed.first) == (10, pointers[10])
    assert [record.pointer for record in fast.read_all(topic)] == pointers[10:]
    trimmed = fast.call(TrimTopic(before=pointers[-1] + 1), topic)
    assert (trimmed.records, trimmed.first) == (25, 0)
    assert fast.read_all(topic) == []
    assert fast.publish(topic, [b"on"]).first > pointers[-1]
    assert fast.describe(topic).first_ordinal == 35


@pytest.mark.parametrize(("before", "code"), [(2**56, "bad_pointer"), (-1, "bad_request")])
def test_a_trim_out_of_range_is_refused(fast: FastPeer, topic: str, before: int, code: str) -> None:
    fast.publish(topic, [b"x"])
    with refused(code):
        fast.call(TrimTopic(before), topic)
    assert len(fast.read_all(topic)) == 1


def test_readers_during_a_trim_get_records_in_order_up_to_the_last(
    fast: FastPeer, peers: Peers, broker: BrokerProcess, topic: str
) -> None:
    reader = peers.fast(broker)
    fast.call(CreateTopic({"count_limit": 5}), topic)
    for row in range(times(15, 200)):
        pointers = [fast.publish(topic, [b"%d" % i]).first for i in range(100)]
        reads = [reader.send_fetch(topic, pointers[i] - 1, records_max=1) for i in range(0, 95, 2)]
        trim = fast.send(TrimTopic(before=pointers[90]), topic)
        more = [reader.send_fetch(topic, pointers[i] - 1, records_max=1) for i in range(0, 95, 2)]
        assert replied(fast.answer_to(trim)).records >= 80
        for i, answer in zip([*range(0, 95, 2)] * 2, reader.answers_to(reads + more), strict=True):
            found = found_in(answer, pointers[i] - 1)
            assert found.records, f"nothing above record {i} in round {row}"
            assert found.records[0].pointer in pointers[i:]
        assert [record.pointer for record in reader.read_all(topic)] == pointers[-10:]
        fast.call(TrimTopic(before=2**55), topic)


def test_a_read_during_a_deletion_succeeds_or_is_refused_as_unknown_or_busy(
    fast: FastPeer, peers: Peers, broker: BrokerProcess, topic: str
) -> None:
    reader = peers.fast(broker)
    for _ in range(times(15, 200)):
        fast.call(CreateTopic({"count_limit": 5}), topic)
        for answer in fast.answers_to([fast.send_publish(topic, [b"%d" % i]) for i in range(30)]):
            replied(answer)
        reads = [reader.send_fetch(topic, 0) for _ in range(30)]
        deletion = fast.send(DeleteTopic(), topic)
        reads += [reader.send_fetch(topic, 0, wait_ms=1) for _ in range(30)]
        replied(fast.answer_to(deletion))
        for answer in reader.answers_to(reads):
            if code_of(answer):
                assert code_of(answer) in ("unknown_topic", "busy")
            else:
                assert found_in(answer).values[0] == b"0"


def test_the_simple_protocol_reads_a_topic_through_its_life(
    fast: FastPeer, simple: SimplePeer, topic: str
) -> None:
    fast.call(CreateTopic({"count_limit": 1}), topic)
    assert simple.read(topic) == (0, [])
    first, _ = simple.publish(topic, b"1")
    second, _ = simple.publish(topic, b"2")
    fast.call(TrimTopic(before=second), topic)
    assert simple.read(topic, first - 1)[1] == [(second, b"2")]
    fast.call(DeleteTopic(), topic)
    with refused("unknown_topic"):
        simple.read(topic)
    third, _ = simple.publish(topic, b"3")
    assert simple.read(topic, first)[1] == [(third, b"3")]
