"""The calls of the C library against a real broker, and against Python's client."""

from __future__ import annotations

import random
from pathlib import Path

import msgpack
import pytest

import quoth
from kit.broker.brokers import BrokerProcess, StartBroker
from kit.client.numbered import numbered
from kit.disk.damage import flip, stored_batches
from kit.machine.cprograms import Calls, MakeCalls
from kit.scale import times
from quoth.message import Message

RECORDS = times(20_000, 1_000_000)
POINTER_LAST = 2**56 - 1
TRIMMED, DAMAGED, RECREATED, AHEAD = 1, 2, 3, 4


def hexed(content: bytes | None) -> str:
    """Return bytes as the program reads and prints them."""
    return "~" if content is None else content.hex() or "-"


def as_line(message: Message) -> str:
    """Return a message of Python as the program prints one."""
    headers = msgpack.packb(dict(message.headers)) if message.headers else None
    return f"record {message.pointer} {hexed(message.value)}:{hexed(message.key)}:{hexed(headers)}"


def without_headers(line: str) -> str:
    """Leave out the headers of a record, which are absent or empty where it has none."""
    return line.rpartition(":")[0]


def read_all(broker: BrokerProcess, topic: str) -> list[Message]:
    """Return all records of a topic."""
    with quoth.connect(broker.url) as client:
        return [message for batch in client.batches(topic) for message in batch]


def publish(broker: BrokerProcess, topic: str, *values: bytes) -> quoth.Ack:
    """Publish values as one batch."""
    with quoth.connect(broker.url) as client:
        return client.publish(topic, list(values))


# -- publishing ---------------------------------------------------------------------------------------------


def test_a_batch_with_keys_and_headers_is_stored(calls: Calls, broker: BrokerProcess, topic: str) -> None:
    headers = msgpack.packb({"source": b"c", "é": b""})
    (line,) = calls("publish", topic, 2, "6f6e65:~:~", f"-:6b6579:{headers.hex()}", "7468726565:-:~")
    word, first, last, count, durability, duplicate = line.split()
    assert (word, count, durability, duplicate) == ("ok", "3", "2", "0")
    found = read_all(broker, topic)
    assert [message.pointer for message in found] == list(range(int(first), int(last) + 1))
    assert [(message.value, message.key, dict(message.headers)) for message in found] == [
        (b"one", None, {}),
        (b"", b"key", {"source": b"c", "é": b""}),
        (b"three", b"", {}),
    ]


@pytest.mark.parametrize("durability", [0, 1, 2])
def test_the_level_that_is_reached_is_told(calls: Calls, topic: str, durability: int) -> None:
    (line,) = calls("publish", topic, durability, "00:~:~")
    assert line.split()[4] == str(durability or 1)


def test_wrong_publishes_are_refused_and_the_client_goes_on(calls: Calls, topic: str) -> None:
    assert calls("publish", topic, 0) == ["error bad_request 0 a batch without a record"]
    assert calls("publish", "-", 0, "00:~:~") == ["error bad_topic 0 a topic's name of 0 bytes"]
    assert calls("publish", "x" * 201, 0, "00:~:~") == ["error bad_topic 0 a topic's name of 201 bytes"]
    assert calls("publish", "a/b", 0, "00:~:~")[0].startswith("error bad_topic 0 ")
    assert calls("publish", topic, 0, "00:~:c1") == [
        "error bad_request 0 headers that are no map of text to binary"
    ]
    assert calls("publish", topic, 7, "00:~:~")[0].startswith("error bad_request 0 ")
    assert calls("publish", topic, 0, "00" * (16 * 2**20) + ":~:~")[0].startswith("error too_large 0 ")
    assert calls("publish", topic, 0, "00:~:~")[0].startswith("ok ")
    assert calls("publish", topic, 0, "00:~:~")[0].startswith("ok ")


def test_publishing_goes_on_after_the_topic_was_deleted(
    calls: Calls, broker: BrokerProcess, topic: str
) -> None:
    """The producer id is not known any more: it begins a new one."""
    for _ in range(2):
        assert calls("publish", topic, 0, "00:~:~")[0].startswith("ok ")
    with quoth.connect(broker.url) as client:
        client.delete_topic(topic)
    assert calls("publish", topic, 0, "01:~:~")[0].startswith("ok ")
    assert [message.value for message in read_all(broker, topic)] == [b"\1"]


def test_a_producers_records_come_back_in_python(calls: Calls, broker: BrokerProcess, topic: str) -> None:
    (line,) = calls("produce", topic, 0, RECORDS)
    assert line.split()[:3] == ["ok", str(RECORDS), "0"]
    count = 0
    with quoth.connect(broker.url) as client:
        for batch in client.batches(topic):
            for message in batch:
                assert (message.value, message.key, message.headers) == numbered(count)
                count += 1
        assert client.topic(topic).last == int(line.split()[3])
    assert count == RECORDS


def test_records_of_python_come_back_in_c(calls: Calls, broker: BrokerProcess, topic: str) -> None:
    with quoth.connect(broker.url) as client, client.producer(topic) as producer:
        for number in range(RECORDS):
            record = numbered(number)
            producer.send(record.value, key=record.key, headers=record.headers)
    assert calls("consume", topic, 0, RECORDS) == [f"ok {RECORDS}"]


@pytest.mark.parametrize("batch", [1, 7, 1_000])
@pytest.mark.parametrize("window", [1, 32])
def test_a_producer_keeps_the_order_in_batches_of_any_size(
    calls: Calls, topic: str, batch: int, window: int
) -> None:
    (line,) = calls("produce", topic, 0, 2_000, batch, window)
    assert line.split()[:3] == ["ok", "2000", "0"]
    assert calls("consume", topic, 0, 2_000) == ["ok 2000"]


def test_a_producer_keeps_the_order_while_the_broker_is_busy(
    make_calls: MakeCalls, start_broker: StartBroker, topic: str
) -> None:
    broker = start_broker(topic_requests_max=1)
    calls = make_calls(broker.url)
    (line,) = calls("produce", topic, 0, 3_000, 10)
    assert line.split()[:3] == ["ok", "3000", "0"]
    assert calls("consume", topic, 0, 3_000) == ["ok 3000"]
    assert calls("count", topic, 0, POINTER_LAST)[0].split()[1] == "3000"


def test_a_batch_that_is_refused_fails_alone(make_calls: MakeCalls, broker: BrokerProcess) -> None:
    calls = make_calls(broker.url)
    failed, *rest = calls("produce", "a/b", 0, 3, 1, 1)
    assert failed == "failed 0 1 bad_topic 0"
    assert rest[-1].startswith("error bad_topic 0 ")
    assert calls("ping")[0].startswith("ok ")


# -- reading ------------------------------------------------------------------------------------------------


def test_records_are_read_as_python_reads_them(
    calls: Calls, broker: BrokerProcess, topic: str, rng: random.Random
) -> None:
    calls("produce", topic, 0, 3_000, 100)
    found = read_all(broker, topic)
    pointers = [message.pointer for message in found]
    for _ in range(20):
        after, until = sorted(rng.sample([0, *pointers, pointers[-1] + 5], 2))
        limit = rng.choice([0, 1, 150, 5_000])
        fetch_bytes = rng.choice([0, 1, 50_000])
        expected = [message for message in found if after < message.pointer <= until][: limit or None]
        *lines, end = calls("read", topic, after, 0, until, limit, 0, fetch_bytes)
        assert list(map(without_headers, lines)) == [without_headers(as_line(one)) for one in expected]
        cursor = int(end.split()[1])
        assert cursor >= (expected[-1].pointer if expected else after)


def test_a_time_is_included(calls: Calls, broker: BrokerProcess, topic: str) -> None:
    ack = publish(broker, topic, b"1", b"2", b"3")
    *lines, _ = calls("read", topic, 0, ack.first + 1, 0, 0, 0)
    assert [line.split()[1] for line in lines] == [str(ack.first + 1), str(ack.last)]


def test_a_position_goes_on_where_it_was(calls: Calls, broker: BrokerProcess, topic: str) -> None:
    ack = publish(broker, topic, b"1", b"2", b"3")
    *lines, end = calls("read", topic, 0, 0, 0, 2, 0)
    _, cursor, log, ordinal = end.split()
    assert (len(lines), cursor, ordinal) == (2, str(ack.first + 1), "2")
    line, end = calls("read", topic, cursor, 0, 0, 0, 0, 0, log, ordinal)
    assert line == f"record {ack.last} 33:~:~"
    assert end.split()[1:] == [str(ack.last), log, "3"]


def test_reading_waits_for_a_topic_and_for_records(calls: Calls, broker: BrokerProcess, topic: str) -> None:
    assert calls("read", topic, 0, 0, 0, 0, 0)[0].startswith("error unknown_topic 0 ")
    assert calls("read", topic, 0, 0, 0, 0, 20)[0].startswith("end 0 0 ")
    calls.begin("tail", topic, 0, 0, 0, 3, 5_000)
    first = publish(broker, topic, b"1")
    assert calls.line() == f"record {first.first} 31:~:~"
    second = publish(broker, topic, b"2", b"3")
    assert calls.take() == [f"record {second.first} 32:~:~", f"record {second.last} 33:~:~", "end"]


def test_a_tail_without_waiting_begins_behind_the_newest_record(
    calls: Calls, broker: BrokerProcess, topic: str
) -> None:
    publish(broker, topic, b"old")
    newest = 2**64 - 1
    (end,) = calls("read", topic, newest, 0, 0, 0, 0)
    assert end.startswith("end ")
    before = int(end.split()[1])
    calls.begin("tail", topic, before, 0, 0, 1, -1)
    ack = publish(broker, topic, b"new")
    assert calls.take() == [f"record {ack.first} 6e6577:~:~", "end"]


def test_removed_records_are_reported(calls: Calls, broker: BrokerProcess, topic: str) -> None:
    with quoth.connect(broker.url) as client:
        first = client.publish(topic, [b"1", b"2"])
        client.roll(topic)
        second = client.publish(topic, b"3")
        log = client.topic(topic).log
        client.trim(topic, second.first)
    record, end = calls("read", topic, 0, 0, 0, 0, 0)
    assert record == f"record {second.first} 33:~:~"
    gap, *_ = calls("read", topic, first.first, 0, 0, 0, 0, 0, log, 1)
    assert gap == f"gap {TRIMMED} {first.first} {second.first} 1 1"
    gap, *_ = calls("read", topic, first.first, 0, 0, 0, 0)
    assert gap == f"gap {TRIMMED} {first.first} {second.first} -1 -1"
    assert end.split()[3] == "3"


def test_damage_is_reported_and_skipped(calls: Calls, broker: BrokerProcess, topic: str) -> None:
    """In the header of a batch and in the body of another one."""
    acks = [publish(broker, topic, b"%d" % number, b"more") for number in range(5)]
    with quoth.connect(broker.url) as client:
        _, second, _, fourth, _ = stored_batches(broker.topics_directory, client.topic(topic).log)
    flip(second.path, second.start + 20)
    flip(fourth.path, fourth.start + 74)
    found = calls("read", topic, 0, 0, 0, 0, 0)
    assert [line.split()[1] for line in found if line.startswith("record")] == [
        str(pointer) for ack in acks[::2] for pointer in (ack.first, ack.last)
    ]
    gaps = [list(map(int, line.split()[1:])) for line in found if line.startswith("gap")]
    assert [(reason, records, ordinal) for reason, _, _, records, ordinal in gaps] == [
        (DAMAGED, 2, 2),
        (DAMAGED, 2, 6),
    ]
    python: list[quoth.Gap] = []
    with quoth.connect(broker.url) as client:
        list(client.batches(topic, on_gap=python.append))
    assert [(gap.after, gap.next) for gap in python] == [
        (after, following) for _, after, following, _, _ in gaps
    ]


def test_another_topic_of_the_name_and_a_cursor_that_is_ahead_are_reported(
    calls: Calls, broker: BrokerProcess, topic: str
) -> None:
    ack = publish(broker, topic, b"1")
    with quoth.connect(broker.url) as client:
        log = client.topic(topic).log
        client.delete_topic(topic)
    again = publish(broker, topic, b"2")
    found = calls("read", topic, ack.first, 0, 0, 0, 0, 0, log, 1)
    assert found[0] == f"gap {RECREATED} {ack.first} {again.first} -1 -1"
    assert found[1] == f"record {again.first} 32:~:~"
    ahead = again.first + 1_000_000_000
    gap, end = calls("read", topic, ahead, 0, 0, 0, 20)
    assert gap == f"gap {AHEAD} {again.first} {ahead + 1} 0 1"
    assert end.startswith(f"end {ahead} ")


def test_headers_that_cannot_be_decoded_come_with_their_record(
    calls: Calls, broker: BrokerProcess, topic: str, tmp_path: Path
) -> None:
    from kit.disk.damage import MAP, NO_MAP, with_headers

    with quoth.connect(broker.url) as client:
        client.publish(topic, b"value", headers={"checked": b"later"})
        log = client.topic(topic).log
    with_headers(broker.topics_directory, log, MAP, NO_MAP)
    record, _ = calls("read", topic, 0, 0, 0, 0, 0)
    assert record.endswith(f" {b'value'.hex()}:~:{NO_MAP.hex()}")


# -- topics and ranges --------------------------------------------------------------------------------------


def test_topics_are_made_changed_listed_and_deleted(make_calls: MakeCalls, start_broker: StartBroker) -> None:
    broker = start_broker()
    calls = make_calls(broker.url)
    (made,) = calls("create", "é", 2, 86_400.5, 2**40, 2**20, 1_000, 60)
    assert made.split()[7:] == ["2", "86400.5", str(2**40), str(2**20), "1000", "60", "0"]
    assert calls("create", "é")[0].startswith("error topic_exists 0 ")
    (changed,) = calls("update", "é", 0, -1, 5)
    assert changed.split()[7:10] == ["2", "86400.5", "5"]
    assert calls("update", "é", 0, -1, -1, 0)[0].startswith("error bad_setting 0 ")
    calls("publish", "a", 0, "00:~:~")
    assert calls("list") == ["topic a", "topic é", "ok"]
    assert calls("list", 1) == ["topic a", "ok"]
    assert calls("describe", "a")[0].split()[5:7] == ["1", "1"]
    assert calls("describe", "a")[0].split()[-1] == "1", "a producer"
    assert calls("roll", "a")[0].split()[6] == "2"
    assert calls("delete", "é")[0].startswith("ok 0 ")
    assert calls("delete", "é")[0].startswith("error unknown_topic 0 ")
    last = int(calls("describe", "a")[0].split()[4])
    (trimmed,) = calls("trim", "a", last + 1)
    assert (trimmed.split()[1], trimmed.split()[3]) == ("1", "0")
    assert calls("status")[0].split()[:4] == ["ok", str(broker.pid), "1", "1"]
    assert calls("hello")[0].startswith("ok quoth")


def test_ranges_are_those_of_python(calls: Calls, broker: BrokerProcess, topic: str) -> None:
    calls("produce", topic, 0, 1_000, 10)
    with quoth.connect(broker.url) as client:
        counted = client.count(topic)
        split = client.split(topic, 0, counted.last, 7)
        reached = client.advance(topic, max_records=123)
    assert calls("count", topic, 0, POINTER_LAST) == [
        f"ok {counted.records} {counted.bytes} {counted.first} {counted.last} {counted.newest} {counted.end}"
    ]
    *ranges, end = calls("split", topic, 0, counted.last, 7)
    assert ranges == ["range " + " ".join(map(str, one)) for one in split]
    assert end == f"end {len(split)}"
    assert calls("advance", topic, 0, 123, 0) == [
        f"range {reached.after} {reached.until} {reached.records} {reached.bytes}"
        f" {reached.newest} {reached.end}"
    ]


# -- transactions -------------------------------------------------------------------------------------------


def test_a_transaction_of_parts_by_c_and_by_python(calls: Calls, broker: BrokerProcess, topic: str) -> None:
    (first,) = calls("stage", topic, "etl", 7, 0, 0, 20_000)
    with quoth.connect(broker.url) as client, client.transaction(topic, "etl", 7).part(1) as writer:
        for number in range(20_000, 20_100):
            record = numbered(number)
            writer.write(record.value, key=record.key, headers=record.headers)
        second = ",".join(map(str, writer.finish()))
    (empty,) = calls("stage", topic, "etl", 7, 2, 0, 0)
    parts = first.split()[1], second, empty.split()[1]
    assert calls("inspect", topic, "etl", 7) == ["ok 1 0 0 0 2 20100 -1"]
    assert calls("commit", topic, "etl", 7, 5, *parts)[0].startswith("error newest_differs 0 ")
    (ack,) = calls("commit", topic, "etl", 7, -1, *parts)
    (again,) = calls("commit", topic, "etl", 7, -2, *parts)
    assert ack.split()[3:] == ["20100", "2", "0"]
    assert again.split() == [*ack.split()[:5], "1"]
    assert calls("consume", topic, 0, 20_100) == ["ok 20100"]
    assert calls("inspect", topic, "etl", 7)[0].split()[4] == "20100"
    assert calls("stage", topic, "etl", 7, 0, 0, 1)[0].startswith("error already_published 0 ")


def test_an_aborted_transaction_leaves_nothing(calls: Calls, topic: str) -> None:
    (part,) = calls("stage", topic, "~once", 0, 0, 0, 100)
    assert calls("abort", topic, "~once", 0) == ["ok 0 0 0 0 1 100 -1"]
    assert calls("commit", topic, "~once", 0, -2, part.split()[1])[0].startswith("error not_staged 0 ")
    assert calls("inspect", topic, "~once", 0) == ["ok 0 0 0 0 0 0 -1"]
