"""Reads of published records through either protocol: each once, in order, from any pointer."""

from __future__ import annotations

import time

import pytest

from kit.broker.brokers import BrokerProcess, StartBroker
from kit.broker.peers import FastPeer, Peers, SimplePeer, refused, replied
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


def test_the_first_publish_makes_a_topic(start_broker: StartBroker, connect_client: Connect) -> None:
    """Topics are listed in order, and none has records of another. Reading makes none."""
    client = connect_client(start_broker())
    with refused("unknown_topic"):
        client.read("t")
    assert client.topics() == []
    second = client.publish("t2", b"two")[0]
    assert client.topics() == ["t2"]
    first = client.publish("t1", b"one")[0]
    assert client.topics() == ["t1", "t2"]
    assert client.topics("t1") == ["t2"]
    assert client.read("t1")[1] == [(first, b"one")]
    assert client.read("t2")[1] == [(second, b"two")]


def test_a_read_begins_above_its_pointer(client: Client, topic: str) -> None:
    """The pointer need not exist; 0 is the beginning, the end has no records, and so has the future."""
    records = published(client, topic, 3)
    for row, (pointer, _) in enumerate(records):
        assert client.read(topic, pointer - 1, limit=1) == (pointer, [records[row]])
        assert client.read(topic, pointer)[1] == records[row + 1 :]
    for after in (0, 1):
        assert client.read(topic, after)[1] == records
    last = records[-1][0]
    for after in (last, last + 1, 2**55, POINTER_MAX - 1, POINTER_MAX):
        assert client.read(topic, after) == (after, [])


def test_a_read_crosses_segments(client: Client, fast: FastPeer, topic: str) -> None:
    """From before, at and behind each border. No answer is empty while there is more."""
    records: list[tuple[int, bytes]] = []
    for count in (2, 2, *[1] * 12):
        records += published(client, topic, count, start=len(records))
        fast.call(RollTopic(), topic)
    assert fast.describe(topic).segments == 15
    for row, (pointer, _) in enumerate(records):
        assert read_all(client, topic, pointer - 1, limit=5) == records[row:]
        assert read_all(client, topic, pointer, limit=1) == records[row + 1 :]


def test_rolling_an_empty_segment_does_nothing(fast: FastPeer, topic: str) -> None:
    """Neither before the first record nor behind a sealed segment."""
    assert fast.call(CreateTopic(), topic).segments == 1
    assert fast.call(RollTopic(), topic).segments == 1
    fast.publish(topic, [b"first"])
    for _ in range(4):
        info = fast.call(RollTopic(), topic)
        assert (info.segments, info.states) == (2, "hw")
    fast.publish(topic, [b"second"])
    assert [record.value for record in fast.read_all(topic)] == [b"first", b"second"]


def test_a_read_returns_at_most_its_limit(client: Client, topic: str) -> None:
    """Limits from 1 on, below and above the size of a batch."""
    records: list[tuple[int, bytes]] = []
    for count in (1, 5, 1, 40, 3):
        values = [b"%d %d" % (len(records), i) for i in range(count)]
        first, last = client.publish(topic, *values)
        assert last == first + count - 1
        records += zip(range(first, last + 1), values, strict=True)
    for limit in (1, 2, 3, 10, 100, 1_000, 10_000):
        after, found = client.read(topic, 0, limit)
        assert found == records[: len(found)]
        assert 1 <= len(found) <= limit
        assert after == found[-1][0]
        assert read_all(client, topic, 0, limit) == records


def test_the_simple_protocol_cuts_a_batch_at_the_limit(simple: SimplePeer, topic: str) -> None:
    values = [b"%d" % i for i in range(100)]
    first, _ = simple.publish(topic, *values)
    for limit in (1, 7, 99, 100):
        expected = list(zip(range(first, first + limit), values, strict=False))
        assert simple.read(topic, first - 1, limit) == (first + limit - 1, expected)


def test_an_empty_value_is_a_value(client: Client, topic: str) -> None:
    client.publish(topic, b"")
    client.publish(topic, b"", b"x", b"")
    assert [value for _, value in read_all(client, topic)] == [b"", b"", b"x", b""]


def test_a_batch_has_consecutive_pointers(client: Client, topic: str) -> None:
    """Pointers rise strictly from batch to batch, with more than one record a microsecond, too."""
    previous, expected = 0, list[int]()
    for count in (1, 1_000, 1, 2, 500):
        first, last = client.publish(topic, *[b"x"] * count)
        assert previous < first
        assert last == first + count - 1
        previous = last
        expected += range(first, last + 1)
    assert [pointer for pointer, _ in read_all(client, topic, limit=1_000)] == expected


def test_a_pointer_is_a_time(client: Client, topic: str) -> None:
    """A read from a time returns the records that were published after it."""
    client.publish(topic, b"before")
    moment = time.time_ns() // 1_000 + 1
    while time.time_ns() // 1_000 <= moment:
        pass
    pointer, _ = client.publish(topic, b"after")
    assert abs(pointer - time.time_ns() // 1_000) < 60_000_000
    assert client.read(topic, moment)[1] == [(pointer, b"after")]


def test_replies_have_the_oldest_and_the_newest_pointer(client: Client, fast: FastPeer, topic: str) -> None:
    records = published(client, topic, 3)
    info = fast.describe(topic)
    assert (info.first, info.last, info.count) == (records[0][0], records[-1][0], 3)
    reply = fast.fetch(topic, records[0][0]).reply
    assert (reply.newest, reply.end, reply.gone) == (records[-1][0], 3, 0)


def test_a_cursor_below_the_oldest_record_goes_on_there(client: Client, fast: FastPeer, topic: str) -> None:
    """The reply has the number of records that are gone."""
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


NO_NUMBERS = (b"a", b"1.5", b"+1", b" 1", b"1 ", b"0x1", b"", "\u0661".encode(), b"-0", b"-1")
NO_READS: dict[str, list[tuple[bytes | int, ...]]] = {
    "bad_pointer": [(after, 1, 0) for after in (POINTER_MAX + 1, 2**63, 2**64 - 1, 10**19, 10**20)],
    "too_large": [*((0, limit, 0) for limit in (10_001, 2**31, 2**63, 10**19)), (0, 1, 600_001)],
    "bad_request": [(0, 0, 0), *(row for n in NO_NUMBERS for row in ((n, 1, 0), (0, n, 0), (0, 1, n)))],
}


@pytest.mark.parametrize("code", NO_READS)
def test_a_number_that_is_no_decimal_or_out_of_range_is_refused(
    simple: SimplePeer, topic: str, code: str
) -> None:
    simple.publish(topic, b"x")
    for frames in NO_READS[code]:
        with refused(code):
            simple.call("read", topic, *frames)
    assert len(simple.read(topic)[1]) == 1


def test_a_publish_without_values_is_refused_and_makes_no_topic(simple: SimplePeer, topic: str) -> None:
    with refused("bad_request"):
        simple.call("publish", topic)
    assert topic not in simple.topics()
    simple.publish(topic, b"x")
    with refused("bad_request"):
        simple.call("publish", topic)
    assert len(simple.read(topic)[1]) == 1


def test_a_publish_without_a_batch_is_refused_and_makes_no_topic(fast: FastPeer, topic: str) -> None:
    for payload in (None, b"", bytes(64), bytes(4_096)):
        with refused("bad_batch"):
            fast.call(Publish(), topic, payload)
        with refused("unknown_topic"):
            fast.describe(topic)


def test_a_value_above_the_limit_of_a_batch_is_refused(client: Client, topic: str) -> None:
    """The largest one below it is stored."""
    largest = batch.BATCH_BYTES_MAX - batch.HEADER_BYTES - 8
    with refused("too_large"):
        client.publish(topic, bytes(largest + 1))
    client.publish(topic, b"small")
    first, _ = client.publish(topic, bytes(largest))
    assert client.read(topic, first - 1, limit=1) == (first, [(first, bytes(largest))])


def test_a_large_value_is_read_with_any_limit(fast: FastPeer, topic: str) -> None:
    """A reply has at least one batch, so no reader stops in front of it."""
    values = [b"before", bytes(5 * 2**20), b"behind"]
    for value in values:
        fast.publish(topic, [value])
    assert [record.value for record in fast.read_all(topic, bytes_max=1)] == values


@pytest.mark.parametrize(
    ("size", "count", "limits"), [(1_000, 20, (1_100, 5_000, 12_345)), (2**20, 10, (2**32,))]
)
def test_a_reply_is_bounded_by_bytes_max_and_by_the_broker(
    fast: FastPeer, topic: str, size: int, count: int, limits: tuple[int, ...]
) -> None:
    for _ in range(count):
        fast.publish(topic, [bytes(size)])
    for bytes_max in limits:
        answer = fast.answer_to(fast.send_fetch(topic, 0, bytes_max=bytes_max))
        replied(answer)
        bound = min(bytes_max, FETCH_BYTES_MAX)
        assert bound - 2.2 * size < len(answer.payload) <= bound
    assert len(fast.read_all(topic, bytes_max=limits[-1])) == count


def test_batches_of_many_writers_stay_whole(peers: Peers, broker: BrokerProcess, topic: str) -> None:
    """Each is stored in one piece and in its writer's order, though segments are smaller than a burst."""
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
    simple: SimplePeer, fast: FastPeer, topic: str
) -> None:
    """Each reply has the pointers of its own values, also where the broker makes one batch of many."""
    for i in range(500):
        simple.send("publish", topic, *[b"%d %d" % (i, j) for j in range(1 + i % 3)])
    expected: dict[int, bytes] = {}
    for i in range(500):
        status, first, last = simple.receive()
        assert status == b"ok"
        for j, pointer in enumerate(range(int(first), int(last) + 1)):
            expected[pointer] = b"%d %d" % (i, j)
    stored = read_all(simple, topic, limit=10_000)
    assert stored == list(expected.items())
    assert fast.fetch(topic).batches < 100, "every single record became a batch"


def test_publishing_while_the_topic_rolls_loses_nothing(
    peers: Peers, broker: BrokerProcess, topic: str
) -> None:
    """A reader that is always at the end reads every record once and in order."""
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


def test_keys_and_headers_are_served_as_they_were_received(fast: FastPeer, topic: str) -> None:
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
