"""What the systems before this one promised in their own tests, kept by a real broker, under their numbers.

P6 and A9, random operations against a model with crashes in between, stand in test_broker_model.py and
test_log_model.py.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from kit.broker.brokers import BrokerProcess, StartBroker
from kit.scale import times
from quoth import Client, NotFound, TopicInfo
from quothd import Broker
from quothwire.errors import Conflict

Connect = Callable[..., Client]


def _next(client: Client, topic: str, pointer: int) -> tuple[int, bytes] | None:
    """The first record above a pointer."""
    found = client.read(topic, after=pointer, limit=1)
    return (found[0].pointer, found[0].value) if found else None


def _chain(client: Client, topic: str) -> list[bytes]:
    """All records, one read for each."""
    values = []
    pointer = 0
    while (found := _next(client, topic, pointer)) is not None:
        pointer, value = found
        values.append(value)
    return values


def _lasting(info: TopicInfo) -> TopicInfo:
    """What a restart does not change."""
    return replace(info, states="", counters={})


def test_p1_an_unknown_topic_is_not_found(client: Client, topic: str) -> None:
    """P1: a new server is empty."""
    with pytest.raises(NotFound, match="unknown_topic"):
        _next(client, topic, 0)


def test_p2_the_first_write_makes_a_topic_and_topics_do_not_mix(client: Client, topic: str) -> None:
    """P2: write, read back, a second topic, both listed in order."""
    assert topic not in client.topics()
    first = client.publish(topic + "-b", b"for b").last
    second = client.publish(topic + "-a", b"for a").last
    assert [name for name in client.topics() if name.startswith(topic)] == [topic + "-a", topic + "-b"]
    assert _next(client, topic + "-b", 0) == (first, b"for b")
    assert _next(client, topic + "-a", 0) == (second, b"for a")
    assert _next(client, topic + "-a", second) is None


def test_p3_next_is_the_record_above_a_pointer_that_need_not_exist(client: Client, topic: str) -> None:
    """P3: one below the pointer finds it, the pointer itself and one above do not."""
    pointer = client.publish(topic, b"value").last
    assert _next(client, topic, pointer - 1) == (pointer, b"value")
    assert _next(client, topic, pointer) is None
    assert _next(client, topic, pointer + 1) is None


def test_p4_reading_crosses_from_one_segment_to_the_next(client: Client, topic: str) -> None:
    """P4: after a roll the old segment serves what is below its end, the new one what comes."""
    first = client.publish(topic, b"first").last
    assert client.roll(topic).segments == 2
    second = client.publish(topic, b"second").last
    assert _next(client, topic, 0) == _next(client, topic, first - 1) == (first, b"first")
    assert _next(client, topic, first) == (second, b"second")
    assert _next(client, topic, second) is None


def test_p5_crashes_of_old_and_new_segments_change_nothing(
    start_broker: StartBroker, connect: Connect, topic: str
) -> None:
    """P5: the same information after a crash; roll, write, crash: all is read in order."""
    broker = start_broker()
    client = connect(broker)
    client.publish(topic, b"one")
    before = client.topic(topic)
    _crash(broker)
    assert _lasting(client.topic(topic)) == _lasting(before)
    client.roll(topic)
    client.publish(topic, b"two")
    for _ in range(2):
        _crash(broker)
        assert _chain(client, topic) == [b"one", b"two"]
    client.publish(topic, b"three")
    assert _chain(client, topic) == [b"one", b"two", b"three"]


def test_a1_a_chain_of_three(client: Client, topic: str) -> None:
    """A1: put and next, not found on an empty topic and at the end."""
    client.create_topic(topic)
    assert _next(client, topic, 0) is None
    for value in (b"one", b"two", b"three"):
        client.publish(topic, value)
    assert _chain(client, topic) == [b"one", b"two", b"three"]


def test_a2_a_topic_covers_what_lies_from_its_first_to_its_last_pointer(client: Client, topic: str) -> None:
    """A2: at the ends, between, outside, with empty values."""
    first = client.publish(topic, b"").last
    last = client.publish(topic, b"").last
    info = client.topic(topic)
    assert (info.first, info.last) == (first, last)
    assert [client.get(topic, pointer).value for pointer in (first, last)] == [b"", b""]
    for pointer in (first - 1, first + 1, last + 1):
        with pytest.raises(NotFound, match="unknown_record"):
            client.get(topic, pointer)


def test_a3_a_hundred_thousand_records_and_a_sync(client: Client, topic: str) -> None:
    """A3: all of them survive a loss of power once the producer is closed."""
    count = 100_000
    with client.producer(topic, durability="synced") as producer:
        for number in range(count):
            producer.send(b"%d" % number)
    assert producer.acknowledged == client.topic(topic).count == count
    values = [value for batch in client.batches(topic) for value in batch.values]
    assert values == [b"%d" % number for number in range(count)]


def test_a4_a_restart_changes_nothing(start_broker: StartBroker, connect: Connect, topic: str) -> None:
    """A4: the same records and the same information."""
    broker = start_broker(count_limit=7)
    client = connect(broker)
    for number in range(50):
        client.publish(topic, [b"%d" % number] * (number % 5 + 1))
    before, records = client.topic(topic), client.read(topic)
    assert broker.terminate() == 0
    broker.restart()
    assert _lasting(client.topic(topic)) == _lasting(before)
    assert client.read(topic) == records


@pytest.mark.parametrize("durability", ["written", "synced"])
def test_a5_slices_of_every_length_from_every_place(client: Client, topic: str, durability: str) -> None:
    """A5: a slice holds what is there up to its limit, and nothing at the end.

    On a topic that is `synced` only what a sync has reached is there, and no earlier is it acknowledged.
    """
    client.create_topic(topic, durability=durability)
    pointers = [client.publish(topic, b"%d" % number).last for number in range(7)]
    assert [one.pointer for one in client.read(topic)] == pointers
    for limit in range(1, 9):
        for place, after in enumerate([0, *pointers]):
            found = [one.pointer for one in client.read(topic, after=after, limit=limit)]
            assert found == pointers[place : place + limit]


def test_a6_what_is_told_of_a_topic_counts_every_byte(
    client: Client, topic: str, broker: BrokerProcess
) -> None:
    """A6: records, pointers and the size that its segments have on the disk."""
    info = client.create_topic(topic)
    assert (info.count, info.first, info.last) == (0, 0, 0)
    first = client.publish(topic, [b"12345", b"", b"1"]).first
    last = client.publish(topic, b"x").last
    info = client.topic(topic)
    assert (info.count, info.first, info.last) == (4, first, last)
    (folder,) = (one for one in broker.topics_directory.iterdir() if one.name.endswith(f"~{info.log:016x}"))
    assert info.bytes == sum(one.stat().st_size for one in folder.glob("*.seg"))


def test_a7_a_topic_that_was_deleted_begins_empty(client: Client, topic: str) -> None:
    """A7: nothing of it comes back."""
    client.publish(topic, [b"one", b"two"])
    log = client.topic(topic).log
    assert client.delete_topic(topic).records == 2
    client.create_topic(topic)
    assert client.read(topic) == []
    assert client.topic(topic).log != log


def test_a8_a_directory_has_one_owner(broker: BrokerProcess) -> None:
    """A8: a second broker is told the first one's process id, and harms nothing."""
    with pytest.raises(Conflict, match=f"locked.*process {broker.pid}"):
        Broker(broker.directory).start()


def test_q1_what_was_written_is_read(client: Client, topic: str) -> None:
    """Q1: write, flush, read."""
    with client.producer(topic) as producer:
        producer.send(b"This is only a test.")
        producer.flush()
        assert _next(client, topic, 0) == (producer.last, b"This is only a test.")


def test_q2_each_record_is_read_once_and_then_there_is_nothing(client: Client, topic: str) -> None:
    """Q2: write, read, read again at the end of the log, many times, with values that differ."""
    pointer = 0
    for number in range(times(500, 50_000)):
        written = client.publish(topic, b"%d" % number).last
        assert _next(client, topic, pointer) == (written, b"%d" % number)
        pointer = written
        assert _next(client, topic, pointer) is None


def _crash(broker: BrokerProcess) -> None:
    broker.kill()
    broker.restart()
