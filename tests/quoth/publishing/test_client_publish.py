"""Publishing: what is stored and returned, what is refused, and that nothing is stored twice."""

from __future__ import annotations

import threading
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import count
from typing import Any

import pytest

from kit.broker.brokers import BrokerProcess, StartBroker
from kit.broker.peers import refused
from kit.broker.proxies import Meddler, Wire
from kit.client.records import Connect, at_once, publishes, values
from kit.deadlines import eventually
from kit.disk.logs import segments
from quoth import Ack, Client, Disconnected, RequestError
from quothwire.batch import BATCH_BYTES_MAX, BATCH_RECORDS_MAX
from quothwire.headers import HEADERS_BYTES_MAX

# -- what is stored and returned ----------------------------------------------------------------------------


def test_a_publish_returns_the_pointers_of_its_records(client: Client, topic: str) -> None:
    one = client.publish(topic, b"hello")
    assert one == Ack(one.first, one.first, 1, "written", False)
    three = client.publish(topic, (b"a", b"", b"c"), durability="synced")
    assert three == Ack(three.first, three.first + 2, 3, "synced", False)
    assert three.first > one.last
    assert [message[1:3] for message in client.read(topic)] == [
        (one.first, b"hello"),
        (three.first, b"a"),
        (three.first + 1, b""),
        (three.last, b"c"),
    ]


KEYS: list[tuple[Any, list[bytes | None]]] = [
    (None, [None, None, None]),
    (b"k", [b"k", b"k", b"k"]),
    (b"", [b"", b"", b""]),
    ([b"1", None, b""], [b"1", None, b""]),
    ((None, None, b"3"), [None, None, b"3"]),
]
HEADERS: list[tuple[Any, list[dict[str, bytes]]]] = [
    (None, [{}, {}, {}]),
    ({}, [{}, {}, {}]),
    ({"n": b"1"}, [{"n": b"1"}] * 3),
    ([{}, {"ü": b""}, {}], [{}, {"ü": b""}, {}]),
    ([{"a": b"1", "b": b"\x00\xff"}, {}, {}], [{"a": b"1", "b": b"\x00\xff"}, {}, {}]),
]


def test_keys_and_headers_are_for_all_values_or_for_each(client: Client, topic: str) -> None:
    for (key, keys), (headers, maps) in zip(KEYS, HEADERS, strict=True):
        first = client.publish(topic, [b"a", b"b", b"c"], key=key, headers=headers).first
        found = client.read(topic, after=first - 1)
        assert [message.key for message in found] == keys, key
        assert [message.headers for message in found] == maps, headers


def test_the_largest_batches_are_accepted(client: Client, topic: str) -> None:
    assert client.publish(topic, [b""] * BATCH_RECORDS_MAX).count == BATCH_RECORDS_MAX
    large = bytes(BATCH_BYTES_MAX - 64 - 8)
    pointer = client.publish(topic, large).first
    assert client.get(topic, pointer).value == large
    assert client.publish(topic, b"x", headers={"h": bytes(HEADERS_BYTES_MAX - 6)}).count == 1


# -- what is refused ----------------------------------------------------------------------------------------

WRONG: list[tuple[dict[str, Any], str, str]] = [
    ({"value": "text"}, "bad_request", "a value is bytes, not str"),
    ({"value": [b"a", "b"]}, "bad_request", "a value is bytes, not str"),
    ({"value": bytearray(b"a")}, "bad_request", "a value is bytes, not bytearray"),
    ({"value": None}, "bad_request", "a value is bytes, not NoneType"),
    ({"value": []}, "bad_batch", "at least one record"),
    ({"value": b"a", "key": "k"}, "bad_request", "a key is bytes, not str"),
    ({"value": b"a", "key": 1}, "bad_request", "a key is bytes, not int"),
    ({"value": [b"a", b"b"], "key": [b"k"]}, "bad_request", "1 keys for 2 values"),
    ({"value": b"a", "headers": [{}, {}]}, "bad_request", "2 headers for 1 values"),
    ({"value": b"a", "headers": {"n": "v"}}, "bad_request", "values are bytes"),
    ({"value": b"a", "headers": ["n"]}, "bad_request", "headers are a map"),
    ({"value": b"a", "headers": {"n": bytes(HEADERS_BYTES_MAX)}}, "too_large", "at most 65535"),
    ({"value": [b""] * (BATCH_RECORDS_MAX + 1)}, "too_large", "at most 100000"),
    ({"value": bytes(BATCH_BYTES_MAX)}, "too_large", "at most 16777216"),
    ({"value": [bytes(2**20)] * 16}, "too_large", "at most 16777216"),
    ({"value": b"a", "durability": "eternal"}, "bad_request", "eternal"),
    ({"value": b"a", "durability": object()}, "bad_request", ""),
]


def test_wrong_arguments_are_refused_and_nothing_is_stored(client: Client, topic: str) -> None:
    client.publish(topic, b"before")
    for arguments, code, text in WRONG:
        with pytest.raises(RequestError) as caught:
            client.publish(topic, **arguments)
        assert caught.value.code == code, text
        assert text in caught.value.text
        assert caught.value.hint
    assert client.publish(topic, b"after").duplicate is False
    assert values(client, topic) == [b"before", b"after"]


def test_a_batch_above_the_limit_of_this_broker_is_refused_at_once(
    start_broker: StartBroker, connect: Connect
) -> None:
    """libzmq would cut the connection again and again, and the outcome would be unknown."""
    client = connect(start_broker(frame_bytes_max=10_000))
    with pytest.raises(RequestError, match="10000") as caught:
        client.publish("t", bytes(10_000))
    assert caught.value.code == "too_large"
    with client.producer("t", linger=60) as producer:
        for number in range(1_000):
            producer.send(b"%d" % number, key=b"k", headers={"n": b"v"})
        with refused("too_large"):
            producer.send(bytes(10_000))
        producer.send(bytes(9_000))
    client.publish("t", bytes(9_000))
    assert values(client, "t") == [*(b"%d" % number for number in range(1_000)), bytes(9_000), bytes(9_000)]


# -- never twice --------------------------------------------------------------------------------------------


def test_a_publish_whose_reply_is_lost_is_stored_once(
    meddler: Meddler, impatient: Client, topic: str
) -> None:
    numbers = count()
    meddler.on_reply = lambda call, _: publishes(call) and next(numbers) == 0
    ack = impatient.publish(topic, [b"a", b"b"])
    assert (ack.duplicate, ack.count) == (True, 2)
    assert not impatient.publish(topic, b"c").duplicate
    assert values(impatient, topic) == [b"a", b"b", b"c"]
    assert impatient.read(topic)[0].pointer == ack.first


@pytest.mark.parametrize("when", ["before it is stored", "after it is stored"])
def test_a_publish_during_which_the_broker_is_killed_is_stored_once(
    start_broker: StartBroker, connect: Connect, pool: ThreadPoolExecutor, when: str
) -> None:
    broker = start_broker()
    with Wire(broker.url) as wire:
        client, witness = connect(wire), connect(broker)
        client.publish("t", b"before")
        wire.lose_answers()
        if when == "before it is stored":
            broker.freeze()
        publishing = pool.submit(client.publish, "t", [b"a", b"b"])
        if when == "after it is stored":
            eventually(lambda: len(values(witness, "t")) == 3, "stored")
        broker.kill()
        wire.cut()
        broker.restart()
        ack = publishing.result()
        assert ack.duplicate is (when == "after it is stored")
        client.publish("t", b"c")
        assert values(witness, "t") == [b"before", b"a", b"b", b"c"]


def test_the_outcome_is_unknown_when_the_broker_stays_away(
    wire: Wire, connect: Connect, client: Client, pool: ThreadPoolExecutor, topic: str
) -> None:
    cut_off, witness = connect(wire), client
    wire.lose_answers()
    publishing: Future[Ack] = pool.submit(cut_off.publish, topic, b"a", timeout=0.5)
    eventually(lambda: topic in witness.topics() and values(witness, topic), "stored")
    with pytest.raises(Disconnected) as caught:
        publishing.result()
    assert caught.value.code == "timed_out"
    assert "not known" in caught.value.hint
    wire.cut()
    cut_off.publish(topic, b"b")
    assert values(witness, topic) == [b"a", b"b"]


def test_more_publishers_than_the_broker_accepts_at_once_all_succeed(
    start_broker: StartBroker, connect: Connect
) -> None:
    """Some of their requests are refused as `busy`."""
    client = connect(start_broker(topic_requests_max=1))
    together = threading.Barrier(8)

    def work(me: int) -> None:
        together.wait()
        for i in range(20):
            client.publish("t", b"%d %d" % (me, i))

    at_once(8, work)
    assert sorted(values(client, "t")) == sorted(b"%d %d" % (me, i) for me in range(8) for i in range(20))


# -- when the broker does not know what it knew -------------------------------------------------------------


def test_publishing_continues_in_a_recreated_topic(client: Client, topic: str) -> None:
    for number in range(3):
        for name in (topic, f"{topic} 2"):
            client.publish(name, b"a")
            client.publish(name, b"b %d" % number)
            assert values(client, name) == [b"a", b"b %d" % number]
        for name in (topic, f"{topic} 2"):
            client.delete_topic(name)


def test_publishing_continues_after_a_loss(own_broker: BrokerProcess, own_client: Client) -> None:
    """A power cut took an acknowledged batch: the broker waits for a sequence that does not come again."""
    for value in (b"a", b"b", b"c"):
        own_client.publish("t", value)
    own_broker.kill()
    (folder,) = own_broker.topics_directory.iterdir()
    (segment,) = segments(folder)
    with segment.open("r+b") as file:
        file.truncate(segment.stat().st_size - 8)
    own_broker.restart()
    own_client.publish("t", b"d")
    own_client.publish("t", b"e")
    assert values(own_client, "t") == [b"a", b"b", b"d", b"e"]
