"""Publishing: what is stored and told, what is refused, and that nothing is ever stored twice."""

from __future__ import annotations

import threading
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import count
from pathlib import Path
from typing import Any

import pytest

import quoth
from kit.broker.brokers import BrokerProcess, StartBroker
from kit.broker.peers import refused
from kit.broker.proxies import Meddler, Wire, pass_on
from kit.client.records import Connect, at_once, busy, publishes, values
from kit.deadlines import DEADLINE_S, eventually
from kit.disk.doubles import FaultyDisk
from kit.disk.logs import segments
from quoth import Ack, Client, Disconnected, RequestError, Unavailable
from quoth.core.request_state import RequestState
from quothd import Broker
from quothwire.batch import BATCH_BYTES_MAX, BATCH_RECORDS_MAX
from quothwire.errors import error
from quothwire.headers import HEADERS_BYTES_MAX
from quothwire.protocol.binary_codec import Answer
from quothwire.protocol.messages import Published

# -- what is stored and told --------------------------------------------------------------------------------


def test_one_value_is_stored_and_its_pointer_told(client: Client, topic: str) -> None:
    ack = client.publish(topic, b"hello")
    assert ack == Ack(ack.first, ack.first, 1, "written", False)
    (message,) = client.read(topic)
    assert message == (topic, ack.first, b"hello", None, {})


def test_several_values_get_pointers_that_follow_each_other(client: Client, topic: str) -> None:
    ack = client.publish(topic, [b"a", b"", b"c"])
    assert ack == Ack(ack.first, ack.first + 2, 3, "written", False)
    found = [(message.pointer - ack.first, message.value) for message in client.read(topic)]
    assert found == [(0, b"a"), (1, b""), (2, b"c")]
    assert client.publish(topic, (b"d",)).first > ack.last


def test_topics_do_not_share_records(client: Client, topic: str) -> None:
    """One connection publishes to many topics, each with a count of its own."""
    for i in range(3):
        for name in (topic, f"{topic} 2", f"{topic} ü"):
            client.publish(name, b"%d" % i)
    for name in (topic, f"{topic} 2", f"{topic} ü"):
        assert values(client, name) == [b"0", b"1", b"2"]


@pytest.mark.parametrize(
    ("key", "kept"),
    [
        (None, [None, None, None]),
        (b"k", [b"k", b"k", b"k"]),
        (b"", [b"", b"", b""]),
        ([b"1", None, b""], [b"1", None, b""]),
        ((None, None, b"3"), [None, None, b"3"]),
    ],
)
def test_key_is_for_all_or_for_each(client: Client, topic: str, key: Any, kept: list[bytes | None]) -> None:
    client.publish(topic, [b"a", b"b", b"c"], key=key)
    assert [message.key for message in client.read(topic)] == kept


@pytest.mark.parametrize(
    ("headers", "kept"),
    [
        (None, [{}, {}]),
        ({}, [{}, {}]),
        ({"n": b"1"}, [{"n": b"1"}, {"n": b"1"}]),
        ([{}, {"ü": b""}], [{}, {"ü": b""}]),
        ([{"a": b"1", "b": b"\x00\xff"}, {}], [{"a": b"1", "b": b"\x00\xff"}, {}]),
    ],
)
def test_headers_are_for_all_or_for_each(client: Client, topic: str, headers: Any, kept: list[Any]) -> None:
    client.publish(topic, [b"a", b"b"], headers=headers)
    assert [message.headers for message in client.read(topic)] == kept


def test_durability_that_is_reached_is_told(client: Client, topic: str) -> None:
    assert client.publish(topic, b"a").durability == "written"
    assert client.publish(topic, b"b", durability="synced").durability == "synced"
    client.update_topic(topic, durability="synced")
    assert client.publish(topic, b"c").durability == "synced"
    assert client.publish(topic, b"d", durability="written").durability == "synced"


def test_largest_batches_are_taken(client: Client, topic: str) -> None:
    assert client.publish(topic, [b""] * BATCH_RECORDS_MAX).count == BATCH_RECORDS_MAX
    large = bytes(BATCH_BYTES_MAX - 64 - 8)
    pointer = client.publish(topic, large).first
    assert client.get(topic, pointer).value == large
    assert client.publish(topic, b"x", headers={"h": bytes(HEADERS_BYTES_MAX - 6)}).count == 1


# -- what is refused ----------------------------------------------------------------------------------------

WRONG: dict[str, tuple[dict[str, Any], str, str]] = {
    "str": ({"value": "text"}, "bad_request", "a value is bytes, not str"),
    "str in a list": ({"value": [b"a", "b"]}, "bad_request", "a value is bytes, not str"),
    "bytearray": ({"value": bytearray(b"a")}, "bad_request", "a value is bytes, not bytearray"),
    "None": ({"value": None}, "bad_request", "a value is bytes, not NoneType"),
    "number": ({"value": 5}, "bad_request", "a value is bytes, not int"),
    "None in a list": ({"value": [None]}, "bad_request", "a value is bytes, not NoneType"),
    "no value": ({"value": []}, "bad_batch", "at least one record"),
    "key of str": ({"value": b"a", "key": "k"}, "bad_request", "a key is bytes, not str"),
    "keys of str": ({"value": [b"a"], "key": ["k"]}, "bad_request", "a key is bytes, not str"),
    "key of a number": ({"value": b"a", "key": 1}, "bad_request", "a key is bytes, not int"),
    "too few keys": ({"value": [b"a", b"b"], "key": [b"k"]}, "bad_request", "1 keys for 2 values"),
    "too many headers": ({"value": b"a", "headers": [{}, {}]}, "bad_request", "2 headers for 1 values"),
    "header of str": ({"value": b"a", "headers": {"n": "v"}}, "bad_request", "values are bytes"),
    "header named by bytes": ({"value": b"a", "headers": {b"n": b"v"}}, "bad_request", "names are text"),
    "headers of str": ({"value": b"a", "headers": "n"}, "bad_request", "headers are a map of text to bytes"),
    "headers of a list of str": ({"value": b"a", "headers": ["n"]}, "bad_request", "headers are a map"),
    "headers of a number": ({"value": b"a", "headers": 1}, "bad_request", "headers are a map"),
    "headers too large": (
        {"value": b"a", "headers": {"n": bytes(HEADERS_BYTES_MAX)}}, "too_large", "at most 65535",
    ),
    "too many": ({"value": [b""] * (BATCH_RECORDS_MAX + 1)}, "too_large", "at most 100000"),
    "too large": ({"value": bytes(BATCH_BYTES_MAX)}, "too_large", "at most 16777216"),
    "too large together": ({"value": [bytes(2**20)] * 16}, "too_large", "at most 16777216"),
    "no such durability": ({"value": b"a", "durability": "eternal"}, "bad_request", "eternal"),
}  # fmt: skip


@pytest.mark.parametrize("wrong", WRONG)
def test_wrong_arguments_are_refused_and_nothing_is_stored(client: Client, topic: str, wrong: str) -> None:
    arguments, code, text = WRONG[wrong]
    client.publish(topic, b"before")
    with pytest.raises(RequestError) as caught:
        client.publish(topic, **arguments)
    assert caught.value.code == code
    assert text in caught.value.text
    assert caught.value.hint
    assert client.publish(topic, b"after").duplicate is False
    assert values(client, topic) == [b"before", b"after"]


def test_topic_is_not_made_where_that_is_switched_off(start_broker: StartBroker, connect: Connect) -> None:
    client = connect(start_broker(auto_create=False))
    with refused("unknown_topic"):
        client.publish("t", b"x")
    client.create_topic("t")
    client.publish("t", b"y")
    assert values(client, "t") == [b"y"]


def test_batch_above_the_limit_of_this_broker_is_refused_at_once(
    start_broker: StartBroker, connect: Connect
) -> None:
    """libzmq would cut the connection again and again, and the outcome would be unknown."""
    client = connect(start_broker(frame_bytes_max=10_000))
    with pytest.raises(RequestError) as caught:
        client.publish("t", bytes(10_000))
    assert caught.value.code == "too_large"
    assert "10000" in caught.value.text
    client.publish("t", bytes(9_000))
    assert values(client, "t") == [bytes(9_000)]


def test_full_disk_is_told_at_once_and_nothing_is_stored(
    own_broker: BrokerProcess, own_client: Client
) -> None:
    own_client.publish("t", b"one")
    own_broker.terminate()
    own_broker.restart(disk_free_min=2**60)
    with pytest.raises(Unavailable) as caught:
        own_client.publish("t", b"two")
    assert caught.value.code == "disk_low"
    own_broker.terminate()
    own_broker.restart(disk_free_min=0)
    own_client.publish("t", b"three")
    assert values(own_client, "t") == [b"one", b"three"]


# -- never twice --------------------------------------------------------------------------------------------


def test_lost_reply_is_asked_for_again_and_the_records_are_stored_once(
    meddler: Meddler, impatient: Client, topic: str
) -> None:
    numbers = count()
    meddler.on_reply = lambda call, _: publishes(call) and next(numbers) == 0
    ack = impatient.publish(topic, [b"a", b"b"])
    assert (ack.duplicate, ack.count) == (True, 2)
    assert not impatient.publish(topic, b"c").duplicate
    assert values(impatient, topic) == [b"a", b"b", b"c"]
    assert impatient.read(topic)[0].pointer == ack.first


def test_lost_request_is_sent_again(meddler: Meddler, impatient: Client, topic: str) -> None:
    numbers = count()
    meddler.on_request = lambda call: next(numbers) == 0
    assert not impatient.publish(topic, b"a").duplicate
    assert values(impatient, topic) == [b"a"]


def test_connection_that_is_cut_before_the_reply_stores_once(
    wire: Wire, connect: Connect, client: Client, pool: ThreadPoolExecutor, topic: str
) -> None:
    cut_off, witness = connect(wire), client
    sent: list[bytes] = []
    for number in range(3):
        sent.append(b"%d" % number)
        wire.turn_deaf()
        publishing = pool.submit(cut_off.publish, topic, sent[-1])
        eventually(lambda: topic in witness.topics() and values(witness, topic) == sent, "stored")
        assert not publishing.done()
        wire.cut()
        assert publishing.result().duplicate
    assert values(cut_off, topic) == sent


@pytest.mark.parametrize("when", ["before it is stored", "after it is stored"])
def test_broker_killed_between_request_and_reply_stores_once(
    start_broker: StartBroker, connect: Connect, pool: ThreadPoolExecutor, when: str
) -> None:
    broker = start_broker()
    with Wire(broker.url) as wire:
        client, witness = connect(wire), connect(broker)
        client.publish("t", b"before")
        wire.turn_deaf()
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
        assert values(witness, "t") == [b"before", b"a", b"b"]
        client.publish("t", b"c")
        assert values(witness, "t") == [b"before", b"a", b"b", b"c"]


def test_outcome_is_unknown_when_the_broker_stays_away(
    start_broker: StartBroker, connect: Connect, pool: ThreadPoolExecutor
) -> None:
    broker = start_broker()
    with Wire(broker.url) as wire:
        client, witness = connect(wire), connect(broker)
        wire.turn_deaf()
        publishing: Future[Ack] = pool.submit(client.publish, "t", b"a", timeout=0.5)
        eventually(lambda: "t" in witness.topics() and values(witness, "t"), "stored")
        with pytest.raises(Disconnected) as caught:
            publishing.result()
        assert caught.value.code == "timed_out"
        assert "not known" in caught.value.hint
        wire.cut()
        client.publish("t", b"b")
        assert values(witness, "t") == [b"a", b"b"]


def test_refusal_behind_a_lost_reply_leaves_the_outcome_unknown(
    meddler: Meddler, impatient: Client, topic: str
) -> None:
    """The first copy was stored, and a broker that is busy does not look."""
    numbers = count()
    meddler.on_reply = lambda call, answer: isinstance(answer.reply, Published)
    meddler.on_request = lambda call: publishes(call) and next(numbers) > 0 and busy(call)
    with refused("timed_out"):
        impatient.publish(topic, b"a", timeout=0.5)
    meddler.on_request = meddler.on_reply = pass_on
    impatient.publish(topic, b"b")
    assert values(impatient, topic) == [b"a", b"b"]


@pytest.mark.parametrize("code", ["busy", "recovering", "stopping"])
def test_passing_refusal_is_tried_again_until_it_passes(
    meddler: Meddler, connect: Connect, topic: str, code: str
) -> None:
    client = connect(meddler)
    numbers = count()
    meddler.on_request = lambda call: error(code, "of the test") if next(numbers) < 5 else False
    assert not client.publish(topic, b"a").duplicate
    assert next(numbers) == 6
    assert values(client, topic) == [b"a"]


def test_passing_refusal_is_raised_at_the_deadline_and_nothing_is_stored(
    meddler: Meddler, connect: Connect, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The deadline passes when the fifth copy has been refused."""
    client = connect(meddler)
    refusals, is_settled_by = count(1), RequestState.is_settled_by

    def take(request: RequestState, answer: Answer, now: float) -> bool:
        return is_settled_by(request, answer, now + 2 * DEADLINE_S * (next(refusals) == 5))

    monkeypatch.setattr(RequestState, "is_settled_by", take)
    meddler.on_request = busy
    with refused("busy"):
        client.publish(topic, b"a", timeout=2 * DEADLINE_S)
    assert next(refusals) == 6
    meddler.on_request = pass_on
    client.publish(topic, b"b")
    assert values(client, topic) == [b"b"]


def test_more_publishers_than_the_broker_takes_at_once_all_succeed(
    start_broker: StartBroker, connect: Connect
) -> None:
    client = connect(start_broker(topic_requests_max=1))
    together = threading.Barrier(8)

    def work(me: int) -> None:
        together.wait()
        for i in range(20):
            client.publish("t", b"%d %d" % (me, i))

    at_once(8, work)
    assert sorted(values(client, "t")) == sorted(b"%d %d" % (me, i) for me in range(8) for i in range(20))


# -- when the broker does not know what it knew -------------------------------------------------------------


def test_publishing_goes_on_in_a_topic_that_was_made_anew(client: Client, topic: str) -> None:
    for number in range(3):
        client.publish(topic, b"a")
        client.publish(topic, b"b %d" % number)
        assert values(client, topic) == [b"a", b"b %d" % number]
        client.delete_topic(topic)


def test_publishing_goes_on_after_a_loss(own_broker: BrokerProcess, own_client: Client) -> None:
    """A loss of power took what was acknowledged: the broker waits for a sequence that comes no more."""
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


def test_failing_disk_leaves_the_outcome_unknown(tmp_path: Path) -> None:
    """Nothing is acknowledged, though it may be there: the write came through, the fsync did not."""
    disk = FaultyDisk()
    with Broker(tmp_path, filesystem=disk) as broker, quoth.connect(broker) as client:
        client.publish("t", b"a", durability="synced")
        disk.fail("sync", lasting=True)
        with refused("storage_failed"):
            client.publish("t", b"b", durability="synced")
        disk.heal()
        assert [message.value for message in client.read("t")][:1] == [b"a"]
        with refused("storage_failed"):
            client.publish("t", b"c")
    with Broker(tmp_path) as broker, quoth.connect(broker) as client:
        client.publish("t", b"d")
        assert values(client, "t") in ([b"a", b"d"], [b"a", b"b", b"d"])
