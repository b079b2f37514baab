"""What is published is read, through either protocol: every record once, in order, from any pointer."""

from __future__ import annotations

import time

import pytest

from kit.broker.brokers import BrokerProcess, StartBroker
from kit.broker.peers import Peers, SimplePeer, refused, replied
from kit.client.clients import Client, Connect, read_all
from kit.disk.logs import encoded
from quothwire import batch
from quothwire.headers import encode_headers
from quothwire.pointer import POINTER_MAX
from quothwire.protocol.messages import FETCH_BYTES_MAX, CreateTopic, Publish, Published, RollTopic, TrimTopic


def published(client: Client, topic: str, count: int, start: int = 0) -> list[tuple[int, bytes]]:
    """Publish distinct values one by one; returns them with their pointers."""
    values = [b"value %d" % i for i in range(start, start + count)]
    return [(client.publish(topic, value)[0], value) for value in values]


def test_a_new_broker_knows_no_topic(start_broker: StartBroker, connect_client: Connect) -> None:
    client = connect_client(start_broker())
    assert client.topics() == []
    with refused("unknown_topic"):
        client.read("t")
    assert client.topics() == []


def test_the_first_publish_makes_the_topic(start_broker: StartBroker, connect_client: Connect) -> None:
    """Topics are listed in order, and none hears anything of another."""
    client = connect_client(start_broker())
    second = client.publish("t2", b"two")[0]
    assert client.topics() == ["t2"]
    first = client.publish("t1", b"one")[0]
    assert client.topics() == ["t1", "t2"]
    assert client.topics("t1") == ["t2"]
    assert client.read("t1")[1] == [(first, b"one")]
    assert client.read("t2")[1] == [(second, b"two")]


def test_reading_begins_above_the_pointer(client: Client, topic: str) -> None:
    """The pointer need not exist, 0 is the beginning, and at the end there is nothing."""
    records = published(client, topic, 3)
    for row, (pointer, _) in enumerate(records):
        assert client.read(topic, pointer - 1, limit=1) == (pointer, [records[row]])
        assert client.read(topic, pointer)[1] == records[row + 1 :]
    last = records[-1][0]
    assert client.read(topic, 0)[1] == records
    assert client.read(topic, 1)[1] == records
    assert client.read(topic, last) == (last, [])
    assert client.read(topic, last + 1) == (last + 1, [])


def test_reading_crosses_segments(client: Client, peers: Peers, broker: BrokerProcess, topic: str) -> None:
    """From before, at and behind a border, to the end."""
    fast = peers.fast(broker)
    first = published(client, topic, 2)
    fast.call(RollTopic(), topic)
    second = published(client, topic, 2, start=2)
    fast.call(RollTopic(), topic)
    assert fast.describe(topic).segments == 3
    everything = first + second
    border = second[0][0]
    assert read_all(client, topic, 0, limit=1) == everything
    assert read_all(client, topic, first[-1][0] - 1) == everything[1:]
    assert read_all(client, topic, first[-1][0]) == second
    assert read_all(client, topic, border - 1) == second
    assert read_all(client, topic, border) == second[1:]
    assert client.read(topic, second[-1][0])[1] == []


def test_no_answer_is_empty_while_there_is_more(
    client: Client, peers: Peers, broker: BrokerProcess, topic: str
) -> None:
    """Though each segment holds a single record."""
    fast = peers.fast(broker)
    records = []
    for i in range(12):
        records += published(client, topic, 1, start=i)
        fast.call(RollTopic(), topic)
    after, seen = 0, 0
    while seen < len(records):
        after, found = client.read(topic, after, limit=5)
        assert found, f"nothing above {after}, though {len(records) - seen} records follow"
        assert found == records[seen : seen + len(found)]
        seen += len(found)
    assert client.read(topic, after)[1] == []


def test_rolling_an_empty_segment_does_nothing(peers: Peers, broker: BrokerProcess, topic: str) -> None:
    fast = peers.fast(broker)
    fast.publish(topic, [b"first"])
    assert fast.call(RollTopic(), topic).segments == 2
    for _ in range(3):
        info = fast.call(RollTopic(), topic)
        assert (info.segments, info.states) == (2, "hw")
    fast.publish(topic, [b"second"])
    assert [record.value for record in fast.read_all(topic)] == [b"first", b"second"]


def test_a_topic_may_be_rolled_before_its_first_record(
    peers: Peers, broker: BrokerProcess, topic: str
) -> None:
    """A topic that was created and never written."""
    fast = peers.fast(broker)
    assert fast.call(CreateTopic(), topic).segments == 1
    assert fast.call(RollTopic(), topic).segments == 1
    assert fast.fetch(topic).records == []


@pytest.mark.parametrize("limit", [1, 2, 3, 10, 100, 1_000, 10_000])
def test_a_limit_is_a_limit(client: Client, topic: str, limit: int) -> None:
    """From 1 on; batches are larger and smaller than it."""
    records: list[tuple[int, bytes]] = []
    for count in (1, 5, 1, 40, 3):
        values = [b"%d %d" % (len(records), i) for i in range(count)]
        first, last = client.publish(topic, *values)
        assert last == first + count - 1
        records += zip(range(first, last + 1), values, strict=True)
    after, found = client.read(topic, 0, limit)
    assert found == records[: len(found)]
    assert 1 <= len(found) <= limit
    assert after == found[-1][0]
    assert read_all(client, topic, 0, limit) == records


def test_the_simple_protocol_gives_exactly_the_limit(peers: Peers, broker: BrokerProcess, topic: str) -> None:
    """A batch of a hundred is cut where the limit says."""
    simple = peers.simple(broker)
    first, _ = simple.publish(topic, *[b"%d" % i for i in range(100)])
    for limit in (1, 7, 99, 100):
        following, records = simple.read(topic, first - 1, limit)
        assert [value for _, value in records] == [b"%d" % i for i in range(limit)]
        assert following == first + limit - 1


def test_values_may_be_empty(client: Client, topic: str) -> None:
    """An empty value is a value like any other."""
    client.publish(topic, b"")
    client.publish(topic, b"", b"x", b"")
    assert [value for _, value in read_all(client, topic)] == [b"", b"", b"x", b""]


def test_a_batch_has_consecutive_pointers(client: Client, topic: str) -> None:
    """Strictly rising, those of a batch without a hole, though more than one a microsecond."""
    previous = 0
    for count in (1, 1_000, 1, 2, 500):
        first, last = client.publish(topic, *[b"x"] * count)
        assert previous < first
        assert last == first + count - 1
        previous = last
    pointers = [pointer for pointer, _ in read_all(client, topic, limit=1_000)]
    assert len(pointers) == len(set(pointers)) == 1_504
    assert pointers == sorted(pointers)


def test_a_pointer_is_a_time(client: Client, topic: str) -> None:
    """Reading from a moment gives what came after it."""
    client.publish(topic, b"before")
    moment = time.time_ns() // 1_000 + 1
    while time.time_ns() // 1_000 <= moment:
        pass
    pointer, _ = client.publish(topic, b"after")
    assert abs(pointer - time.time_ns() // 1_000) < 60_000_000
    assert client.read(topic, moment)[1] == [(pointer, b"after")]


def test_the_marks_tell_oldest_and_newest(
    client: Client, peers: Peers, broker: BrokerProcess, topic: str
) -> None:
    """Low and high watermark, in a description and in every fetch."""
    records = published(client, topic, 3)
    fast = peers.fast(broker)
    info = fast.describe(topic)
    assert (info.first, info.last, info.count) == (records[0][0], records[-1][0], 3)
    reply = fast.fetch(topic, records[0][0]).reply
    assert (reply.newest, reply.end, reply.gone) == (records[-1][0], 3, 0)


def test_a_cursor_below_the_oldest_record_resumes_there(
    client: Client, peers: Peers, broker: BrokerProcess, topic: str
) -> None:
    """And the client learns how many records are gone."""
    fast = peers.fast(broker)
    lost = published(client, topic, 3)
    fast.call(RollTopic(), topic)
    kept = published(client, topic, 2, start=3)
    trimmed = fast.call(TrimTopic(before=kept[0][0]), topic)
    assert (trimmed.records, trimmed.first) == (3, kept[0][0])
    for after, gone in ((0, 3), (1, 3), (lost[0][0], 2), (lost[2][0], 0)):
        found = fast.fetch(topic, after, ordinal=3 - gone)
        assert [(one.pointer, one.value) for one in found.records] == kept
        assert found.reply.gone == gone
    assert fast.fetch(topic, 0).reply.gone == 3
    assert read_all(client, topic) == kept


@pytest.mark.parametrize("after", [POINTER_MAX, POINTER_MAX - 1, 2**55])
def test_a_pointer_in_the_future_is_the_end(client: Client, topic: str, after: int) -> None:
    """It never wraps to the beginning."""
    client.publish(topic, b"x")
    assert client.read(topic, after) == (after, [])


@pytest.mark.parametrize(
    ("after", "code"),
    [
        (POINTER_MAX + 1, "bad_pointer"),
        (2**63, "bad_pointer"),
        (2**64 - 1, "bad_pointer"),
        (10**19, "bad_pointer"),
        (-1, "bad_request"),
        (10**20, "bad_pointer"),
    ],
)
def test_a_pointer_out_of_range_is_refused(simple: SimplePeer, topic: str, after: int, code: str) -> None:
    """Through the simple protocol."""
    simple.publish(topic, b"x")
    with refused(code):
        simple.read(topic, after)
    assert len(simple.read(topic)[1]) == 1


@pytest.mark.parametrize("value", [b"a", b"1.5", b"+1", b" 1", b"1 ", b"0x1", b"", "\u0661".encode(), b"-0"])
def test_a_number_is_a_decimal(simple: SimplePeer, topic: str, value: bytes) -> None:
    """Nothing that merely looks like a number is one."""
    simple.publish(topic, b"x")
    for frames in ((value, b"1", b"0"), (b"0", value, b"0"), (b"0", b"1", value)):
        with refused("bad_request"):
            simple.call("read", topic, *frames)


@pytest.mark.parametrize("limit", [0, 10_001, 2**31, 2**63, 10**19])
def test_a_limit_out_of_range_is_refused(simple: SimplePeer, topic: str, limit: int) -> None:
    """0 and what is too large are errors, never everything or nothing."""
    simple.publish(topic, b"x")
    with refused("too_large" if limit else "bad_request"):
        simple.read(topic, 0, limit)
    with refused("too_large"):
        simple.read(topic, 0, 1, wait_ms=600_001)


def test_a_publish_without_values_is_refused(simple: SimplePeer, topic: str) -> None:
    """With a reply, and without making a topic."""
    with refused("bad_request"):
        simple.call("publish", topic)
    assert topic not in simple.topics()
    simple.publish(topic, b"x")
    with refused("bad_request"):
        simple.call("publish", topic)
    assert len(simple.read(topic)[1]) == 1


def test_a_fast_publish_without_a_batch_is_refused(peers: Peers, broker: BrokerProcess, topic: str) -> None:
    """Neither a missing nor an empty payload makes a topic."""
    fast = peers.fast(broker)
    for payload in (None, b"", bytes(64), bytes(4_096)):
        with refused("bad_batch"):
            fast.call(Publish(), topic, payload)
        with refused("unknown_topic"):
            fast.describe(topic)


def test_a_value_that_is_too_large_is_refused(client: Client, topic: str) -> None:
    """At the batch's limit, with everything else unharmed; just below it is taken."""
    largest = batch.BATCH_BYTES_MAX - batch.HEADER_BYTES - 8
    with refused("too_large"):
        client.publish(topic, bytes(largest + 1))
    client.publish(topic, b"small")
    first, _ = client.publish(topic, bytes(largest))
    assert client.read(topic, first - 1, limit=1) == (first, [(first, bytes(largest))])


def test_a_large_value_is_read_whatever_the_limit(peers: Peers, broker: BrokerProcess, topic: str) -> None:
    """At least one batch is sent, so no reader is ever stuck in front of it."""
    fast = peers.fast(broker)
    fast.publish(topic, [b"before"])
    fast.publish(topic, [bytes(5 * 2**20)])
    fast.publish(topic, [b"behind"])
    sizes = [len(record.value) for record in fast.read_all(topic, bytes_max=1)]
    assert sizes == [6, 5 * 2**20, 6]


def test_a_reply_is_bounded_whatever_is_asked(peers: Peers, broker: BrokerProcess, topic: str) -> None:
    """Who asks for four gigabytes gets what is worth sending at once."""
    fast = peers.fast(broker)
    for _ in range(10):
        fast.publish(topic, [bytes(2**20)])
    answer = fast.answer_to(fast.send_fetch(topic, 0, bytes_max=2**32))
    replied(answer)
    assert 2**20 < len(answer.payload) <= FETCH_BYTES_MAX
    assert len(fast.read_all(topic, bytes_max=2**32)) == 10


def test_bytes_max_is_kept(peers: Peers, broker: BrokerProcess, topic: str) -> None:
    """Above the first batch."""
    fast = peers.fast(broker)
    for _ in range(20):
        fast.publish(topic, [bytes(1_000)])
    for bytes_max in (1_100, 5_000, 12_345):
        answer = fast.answer_to(fast.send_fetch(topic, 0, bytes_max=bytes_max))
        replied(answer)
        assert len(answer.payload) <= bytes_max
        assert len(answer.payload) > bytes_max - 2 * 1_100


def test_batches_of_many_writers_stay_whole(peers: Peers, broker: BrokerProcess, topic: str) -> None:
    """Each in one piece and in its writer's order, though the segments are smaller than a burst."""
    writers = [peers.fast(broker) for _ in range(4)]
    writers[0].call(CreateTopic({"count_limit": 25}), topic)
    asked: dict[int, list[int]] = {}
    for number in range(50):
        for row, writer in enumerate(writers):
            values = [b"%d %d %d" % (row, number, i) for i in range(7)]
            asked.setdefault(row, []).append(writer.send_publish(topic, values))
    expected: dict[int, list[bytes]] = {}
    for row, writer in enumerate(writers):
        for number, answer in enumerate(writer.answers_to(asked[row])):
            reply = replied(answer)
            assert isinstance(reply, Published)
            for i in range(7):
                expected[reply.first + i] = [b"%d %d %d" % (row, number, i)]
    records = writers[0].read_all(topic)
    assert {record.pointer: [record.value] for record in records} == expected
    for row in range(4):
        own = [record.value for record in records if record.value.startswith(b"%d " % row)]
        assert own == [b"%d %d %d" % (row, number, i) for number in range(50) for i in range(7)]


def test_simple_publishes_of_one_burst_keep_their_order(
    peers: Peers, broker: BrokerProcess, topic: str
) -> None:
    """Each gets the pointers of its own values, also where the broker made one batch of many."""
    simple = peers.simple(broker)
    for i in range(500):
        simple.send("publish", topic, *[b"%d %d" % (i, j) for j in range(1 + i % 3)])
    told: dict[int, bytes] = {}
    for i in range(500):
        status, first, last = simple.receive()
        assert status == b"ok"
        for j, pointer in enumerate(range(int(first), int(last) + 1)):
            told[pointer] = b"%d %d" % (i, j)
    stored = read_all(simple, topic, limit=10_000)
    assert dict(stored) == told
    assert [value for _, value in stored] == list(told.values())
    found = peers.fast(broker).fetch(topic)
    assert found.batches < 100, "every single record became a batch"


def test_publishing_while_the_topic_rolls_loses_nothing(
    peers: Peers, broker: BrokerProcess, topic: str
) -> None:
    """A reader that is always at the end sees every record once and in order, whatever rolls."""
    writer, roller, reader = peers.fast(broker), peers.fast(broker), peers.fast(broker)
    writer.publish(topic, [b"0"])
    sent = [writer.send_publish(topic, [b"%d" % i]) for i in range(1, 400)]
    rolls = [roller.send(RollTopic(), topic) for _ in range(60)]
    seen: list[int] = []
    after = 0
    while len(seen) < 400:
        found = reader.fetch(topic, after, wait_ms=5_000, records_max=30)
        assert found.records, f"nothing came after {len(seen)} records"
        seen += [int(record.value) for record in found.records]
        after = found.reply.next
    assert seen == list(range(400))
    for answer in writer.answers_to(sent) + roller.answers_to(rolls):
        replied(answer)
    assert reader.describe(topic).count == 400


def test_keys_and_headers_travel_unchanged(peers: Peers, broker: BrokerProcess, topic: str) -> None:
    """What a batch holds is served as it was received."""
    fast = peers.fast(broker)
    headers = [encode_headers({"kind": b"test", "é": bytes(range(256))}), b""]
    raw = batch.encode([b"one", b"two"], [b"key", None], headers)
    reply = fast.call(Publish(), topic, raw)
    found = fast.fetch(topic)
    assert [record.key for record in found.records] == [b"key", None]
    assert found.records[0].headers == {"kind": b"test", "é": bytes(range(256))}
    assert found.records[1].headers == {}
    answer = fast.answer_to(fast.send_fetch(topic))
    assert answer.payload[batch.HEADER_BYTES :] == raw[batch.HEADER_BYTES :]
    assert batch.parse_header(answer.payload, reply.log).base == reply.first
    assert encoded([b"one"]) != raw
