"""Reading several topics: everything once, each topic in its order, and on demand all in that of time."""

from __future__ import annotations

import gc
import random
import weakref
from concurrent.futures import ThreadPoolExecutor
from itertools import islice
from math import inf
from pathlib import Path
from time import process_time

import pytest

import quoth
from kit.broker.brokers import BrokerProcess, StartBroker
from kit.broker.peers import refused
from kit.broker.proxies import Meddler, pass_on
from kit.client.records import Connect
from kit.deadlines import eventually
from kit.disk.damage import flip, stored_batches
from kit.machine.tracing import Fault, Tracer, needs_strace
from kit.scale import times
from quoth import Client, Message, Reading
from quothwire.errors import error
from quothwire.protocol.messages import Operation

RECOVERING = error("recovering", "of the test")

orders = pytest.mark.parametrize("ordered", [True, False], ids=["ordered", "as they come"])


def brief(client: Client) -> Client:
    """Let readings of a client fetch and list topics every fifth of a second."""
    client._timing.tail_wait = client._timing.list_pause = 0.2
    return client


def values_of(reading: Reading, number: int) -> list[bytes]:
    """The next values."""
    return [message.value for message in islice(reading, number)]


def together(reading: Reading, number: float = inf) -> list[Message]:
    """Return so many records, or all, taken in portions: one by one takes long in an event loop."""
    found: list[Message] = []
    for portion in reading.portions():
        found += portion
        if len(found) >= number:
            break
    return found


def pairs(messages: list[Message]) -> list[tuple[int, str]]:
    """Pointers and topics, which is what they are ordered by."""
    return [(message.pointer, message.topic) for message in messages]


@pytest.fixture
def names(topic: str) -> list[str]:
    """The names of two topics."""
    return [f"{topic}.a", f"{topic}.b"]


# -- what is there ------------------------------------------------------------------------------------------


@orders
def test_everything_of_all_topics_is_read_once(client: Client, topic: str, ordered: bool) -> None:
    names = [f"{topic}.{letter}" for letter in "abc"]
    for number in range(20):
        client.publish(names[number % 3], [b"%d" % number] * (number * 20 + 1))
    with client.read_many([f"{topic}.[ab]", names[2]], ordered=ordered) as reading:
        found = together(reading)
    for name in names:
        assert [one for one in found if one.topic == name] == list(client.read(name, limit=10**6))
    assert len(found) == sum(len(client.read(name, limit=10**6)) for name in names)
    if ordered:
        assert pairs(found) == sorted(pairs(found))


def test_records_of_several_answers_are_merged(client: Client, names: list[str]) -> None:
    for _ in range(10):
        for name in names:
            client.publish(name, [b"x" * 1_000] * 500)
    with client.read_many(names, ordered=True) as reading:
        found = pairs(together(reading))
    assert (len(found), found) == (10_000, sorted(found))


def test_reading_begins_and_ends_at_the_given_bounds(client: Client, names: list[str]) -> None:
    acks = [client.publish(names[number % 2], [b"%d" % number] * 3) for number in range(6)]
    with client.read_many(names, after=acks[1].first, until=acks[4].last, ordered=True) as reading:
        assert [message.value for message in reading] == [b"1"] * 2 + [b"2"] * 3 + [b"3"] * 3 + [b"4"] * 2
    with client.read_many(names, since=acks[5].last) as reading:
        assert [message.value for message in reading] == [b"5"]


def test_a_missing_topic_and_a_wrong_name_are_refused(client: Client, topic: str) -> None:
    with refused("unknown_topic"), client.read_many([topic]) as reading:
        list(reading)
    with refused("unknown_topic"):
        client.read_many([f"{topic}.*"])
    with refused("bad_request"):
        client.read_many([])
    with refused("bad_topic"):
        client.tail_many(["a/b"])
    client.publish(f"{topic}*", b"a star")
    client.publish(f"{topic}x", b"another")
    with client.read_many(f"{topic}[*]") as reading:
        assert values_of(reading, 9) == [b"a star"]


# -- what comes ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("durability", ["written", "synced"])
def test_records_of_concurrent_publishers_come_in_the_order_of_time(
    start_broker: StartBroker, connect: Connect, rng: random.Random, durability: str
) -> None:
    broker = start_broker(durability=durability)
    client = connect(broker)
    names = [f"t.{number}" for number in range(5)]
    for name in [*names, "t.idle"]:
        client.create_topic(name)
    plans = {name: [rng.randint(1, 300) for _ in range(times(20, 400))] for name in names}

    def publish(name: str) -> None:
        for count in plans[name]:
            client.publish(name, [b"x"] * count)

    total = sum(map(sum, plans.values()))
    with client.tail_many("t.*", ordered=True) as tail, ThreadPoolExecutor() as pool:
        done = [pool.submit(publish, name) for name in names]
        found = pairs(together(tail, total))
        assert [one.result() for one in done] == [None] * len(names)
        assert found == sorted(found)
        assert tail.late == 0
        assert tail.watermark >= found[-1][0] - 1


def test_pointers_that_run_ahead_of_the_clock_are_waited_for(client: Client, names: list[str]) -> None:
    """A hundred thousand records at once take a tenth of a second of pointers; others come in between."""
    client.publish(names[1], b"old")
    with client.tail_many(names, after=0, ordered=True) as tail:
        published = 1

        def comes_between() -> bool:
            """A machine that is slow for a moment may come too late for that."""
            nonlocal published
            ahead = client.publish(names[0], [b"x"] * 100_000)
            between = client.publish(names[1], b"y")
            published += 100_001
            return between.first < ahead.last

        eventually(comes_between, "one comes in between")
        found = pairs(together(tail, published))
    assert found == sorted(found)


@needs_strace
def test_a_record_that_waits_for_its_sync_is_waited_for(
    start_broker: StartBroker, connect: Connect, pool: ThreadPoolExecutor, tmp_path: Path
) -> None:
    """The record has its pointer already, and is not visible."""
    broker = start_broker()
    client, other = connect(broker), connect(broker)
    client.create_topic("synced", durability="synced")
    client.create_topic("written")
    with client.tail_many(["synced", "written"], ordered=True) as tail:
        for_long = Fault("fdatasync", 1, "delay_enter=60000000", lasting=True)  # until the tracer leaves
        with Tracer(broker.pid, tmp_path / "trace", for_long):
            published = pool.submit(client.publish, "synced", b"older")
            eventually(
                lambda: other.topic("synced").counters["records_not_visible"] == 1, "it waits for its sync"
            )
            other.publish("written", b"younger")
            assert next(tail.portions(0.2)) == []
        assert values_of(tail, 2) == [b"older", b"younger"]
        assert published.result().durability == "synced"
        assert tail.late == 0


@orders
def test_topics_that_are_created_during_a_reading_are_included(
    client: Client, topic: str, ordered: bool
) -> None:
    client.publish(f"{topic}.a", b"old")
    with brief(client).tail_many([f"{topic}.*"], ordered=ordered) as tail:
        for number in range(3):
            client.publish(f"{topic}.{number}", b"%d" % number)
            client.publish(f"{topic}.a", b"a %d" % number)
        found = values_of(tail, 6)
    expected = [value for number in range(3) for value in (b"%d" % number, b"a %d" % number)]
    assert found == expected if ordered else sorted(found) == sorted(expected)


def test_a_named_topic_that_does_not_exist_yet_delays_no_record(client: Client, names: list[str]) -> None:
    with brief(client).tail_many(names, ordered=True) as tail:
        for number in range(3):
            client.publish(names[0], b"%d" % number)
            assert values_of(tail, 1) == [b"%d" % number]
        client.publish(names[1], b"first")
        client.publish(names[0], b"then")
        assert values_of(tail, 2) == [b"first", b"then"]


@orders
def test_a_matching_topic_that_is_deleted_is_left_out_and_may_come_again(
    client: Client, topic: str, ordered: bool, names: list[str]
) -> None:
    for name in names:
        client.publish(name, b"old")
    with brief(client).tail_many(f"{topic}.*", after=0, ordered=ordered) as tail:
        assert values_of(tail, 2) == [b"old"] * 2
        client.delete_topic(names[1])
        client.publish(names[0], b"alone")
        assert values_of(tail, 1) == [b"alone"]
        client.publish(names[1], b"anew")
        assert values_of(tail, 1) == [b"anew"]


# -- brokers and wires that fail ----------------------------------------------------------------------------


def test_a_topic_that_delays_the_others_is_named_with_the_reason_and_uses_no_processor(
    meddler: Meddler, connect: Connect, client: Client, names: list[str]
) -> None:
    for name in names:
        client.publish(name, b"old")
    with brief(connect(meddler)).tail_many(names, ordered=True) as tail:
        meddler.on_request = lambda call: (
            call.topic == names[1].encode() and call.operation is Operation.FETCH and RECOVERING
        )
        client.publish(names[1], b"older")
        client.publish(names[0], b"younger")
        for portion in tail.portions(0.1):
            assert portion == []
            if tail.waiting_for == {names[1]: RECOVERING.text}:
                break
        before = process_time()
        assert next(tail.portions(1.0)) == []
        assert process_time() - before < 0.5, "it costs nothing"
        meddler.on_request = pass_on
        assert values_of(tail, 2) == [b"older", b"younger"]
        assert (tail.waiting_for, tail.late) == ({}, 0)


def test_records_not_taken_from_a_portion_come_later(
    client: Client, broker: BrokerProcess, topic: str
) -> None:
    """A loop that is left and another one together miss nothing."""
    for value in (b"a", b"b", b"c"):
        client.publish(topic, value)
    _, damaged, _ = stored_batches(broker.topics_directory, client.topic(topic).log)
    flip(damaged.path, damaged.end - 8)
    with client.tail_many(topic, after=0, on_gap=lambda _: None) as tail:
        assert [one.value for one in next(tail.portions())] == [b"a"]
        assert [one.value for one in next(tail.portions())] == [b"c"]


def test_a_reading_without_a_broker_raises_disconnected(
    own_broker: BrokerProcess, own_client: Client
) -> None:
    own_client.publish("a", b"1")
    own_client.timeout = 0.5
    with own_client.read_many("a") as reading:
        own_broker.kill()
        with refused("disconnected"):
            next(reading)


def test_closing_a_client_ends_a_reading_without_waiting_for_it(client: Client, topic: str) -> None:
    client.publish(topic, [b"a", b"b"])
    tail = client.tail_many(topic, after=0)
    assert values_of(tail, 1) == [b"a"]
    client.close()
    with refused("closed"):
        for _ in tail.portions(0.1):
            pass
    tail.close()
    tail.close()


# -- silence ------------------------------------------------------------------------------------------------


def test_a_reading_that_is_dropped_is_freed_at_once(broker: BrokerProcess, topic: str) -> None:
    """Its socket and its context do not wait for the garbage collector."""
    with quoth.connect(broker.url) as client:
        client.publish(topic, b"x")
        reading = client.tail_many(topic, after=0)
        assert next(reading).value == b"x"
        dropped = weakref.ref(reading)
        gc.disable()
        try:
            del reading
            assert dropped() is None
        finally:
            gc.enable()


def test_portion_without_a_timeout_holds_the_records_that_have_come(client: Client, topic: str) -> None:
    client.publish(topic, b"a")
    with client.tail_many(topic, after=0) as tail:
        found = eventually(lambda: next(tail.portions(0)), "it has come")
        assert [one.value for one in found] == [b"a"]
        with refused("bad_request"):
            next(tail.portions(float("nan")))


# -- the watermark ------------------------------------------------------------------------------------------


def test_the_watermark_advances_without_records(client: Client, names: list[str]) -> None:
    """An application can close a window of time by it without another record."""
    ack = client.publish(names[0], b"a")
    with client.tail_many(names, after=0, ordered=True) as tail:
        for portion in tail.portions(0.05):
            if not portion and tail.watermark > ack.last + 100_000:
                break
        later = client.publish(names[1], b"b")
        assert later.first > tail.watermark
        assert values_of(tail, 1) == [b"b"]
