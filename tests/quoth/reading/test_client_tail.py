"""Tailing a topic: every record once and in order, whatever happens to the broker, the topic and the wire."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from itertools import count, islice

import pytest

from kit.broker.brokers import BrokerProcess, StartBroker
from kit.broker.peers import refused
from kit.broker.proxies import Meddler, pass_on
from kit.client.records import Connect
from kit.deadlines import DEADLINE_S, eventually, hold
from kit.disk.damage import with_headers
from quoth import Client, Gap, Message, NotFound
from quothwire.errors import error
from quothwire.headers import encode_headers
from quothwire.pointer import POINTER_MAX
from quothwire.protocol.messages import Operation


def brief(client: Client) -> Client:
    """Let tails of a client ask again every fifth of a second, and soon after an error."""
    client._timing.tail_wait, client._timing.away_pause = 0.2, 0.02
    return client


def values_of(tail: Iterator[Message], number: int) -> list[bytes]:
    """The next values."""
    return [message.value for message in islice(tail, number)]


FOLLOW: dict[str, Callable[..., Iterator[Message]]] = {
    "tail": lambda client, topic, **how: client.tail(topic, **how),
    "tail_many": lambda client, topic, **how: client.tail_many(topic, **how),
    "ordered": lambda client, topic, **how: client.tail_many(topic, ordered=True, **how),
}
every_way = pytest.mark.parametrize("way", FOLLOW)

# -- from where ---------------------------------------------------------------------------------------------


@every_way
def test_a_tail_begins_at_its_creation(client: Client, topic: str, way: str) -> None:
    client.publish(topic, [b"old", b"older"])
    tail = FOLLOW[way](client, topic)
    for number in range(3):
        client.publish(topic, [b"%d" % number, b"more"])
        assert values_of(tail, 2) == [b"%d" % number, b"more"]


def test_tail_begins_behind_a_cursor_or_at_a_time(client: Client, topic: str) -> None:
    ack = client.publish(topic, [b"a", b"b", b"c"])
    later = client.publish(topic, b"d")
    assert values_of(client.tail(topic, after=0), 4) == [b"a", b"b", b"c", b"d"]
    assert values_of(client.tail(topic, after=ack.first), 3) == [b"b", b"c", b"d"]
    assert values_of(client.tail(topic, since=ack.last), 2) == [b"c", b"d"]
    assert values_of(client.tail(topic, since="-1h"), 4) == [b"a", b"b", b"c", b"d"]
    tail = client.tail(topic, after=later.last)
    client.publish(topic, b"e")
    assert values_of(tail, 1) == [b"e"]


@every_way
def test_a_tail_waits_for_a_topic_that_does_not_exist_yet(
    client: Client, pool: ThreadPoolExecutor, topic: str, way: str
) -> None:
    tails = [FOLLOW[way](client, topic, **how) for how in ({}, {"after": 0}, {"since": "-1h"})]
    waiting = [pool.submit(values_of, tail, 3) for tail in tails]
    client.publish(topic, [b"a", b"b"])
    client.publish(topic, b"c")
    assert [one.result() for one in waiting] == [[b"a", b"b", b"c"]] * 3


def fetches(meddler: Meddler) -> int:
    """Return the number of fetches."""
    return sum(call.operation is Operation.FETCH for call in meddler.requests)


def asks_again(meddler: Meddler) -> None:
    """Wait until that was done a few times more."""
    before = fetches(meddler)
    eventually(lambda: fetches(meddler) >= before + 3, "it asked again")


# -- silence ------------------------------------------------------------------------------------------------


def test_a_tail_continues_after_silence_and_temporary_errors(
    meddler: Meddler, connect: Connect, client: Client, pool: ThreadPoolExecutor, topic: str
) -> None:
    """The silence is longer than a broker waits; an error lasts longer than the timeout of a request."""
    impatient = brief(connect(meddler))
    tail = impatient.tail(topic)
    impatient.timeout = 0.1
    errors = [error(code, "of the test") for code in ("busy", "recovering", "stopping")]
    for number, problem in enumerate((False, *errors)):
        waiting = pool.submit(values_of, tail, 1)
        meddler.on_request = partial(lambda problem, _: problem, problem)
        asks_again(meddler)
        meddler.on_request = pass_on
        client.publish(topic, b"%d" % number)
        assert waiting.result() == [b"%d" % number]


# -- a broker that goes and comes ---------------------------------------------------------------------------


@every_way
def test_restarts_lose_and_repeat_no_record_of_a_tail(
    start_broker: StartBroker, connect: Connect, pool: ThreadPoolExecutor, way: str
) -> None:
    broker = start_broker()
    client, other = connect(broker), connect(broker)
    gaps: list[Gap] = []
    tail = FOLLOW[way](client, "t", on_gap=gaps.append)
    number = count()
    for _ in range(2):
        waiting = pool.submit(values_of, tail, 20)
        sent = [b"%d" % next(number) for _ in range(20)]
        for value in sent[:10]:
            other.publish("t", value)
        broker.kill()
        broker.restart()
        for value in sent[10:]:
            other.publish("t", value)
        assert waiting.result() == sent
    assert gaps == []


def test_broker_that_is_away_for_long_is_waited_for(
    start_broker: StartBroker, connect: Connect, pool: ThreadPoolExecutor
) -> None:
    """Longer than any request waits for its answer."""
    broker = start_broker()
    client, other = brief(connect(broker)), connect(broker)
    other.publish("t", b"old")
    tail = client.tail("t")
    client.timeout = 0.1
    waiting = pool.submit(values_of, tail, 1)
    broker.kill()
    hold(lambda: not waiting.done(), "several of its requests run into their timeout", 1.0)
    client.timeout = DEADLINE_S
    broker.restart()
    other.publish("t", b"new")
    assert waiting.result() == [b"new"]


# -- a topic that goes and comes ----------------------------------------------------------------------------


@every_way
def test_deleting_the_topic_ends_a_tail_that_waits(
    own_broker: BrokerProcess, connect: Connect, pool: ThreadPoolExecutor, topic: str, way: str
) -> None:
    client, other = connect(own_broker), connect(own_broker)
    client.publish(topic, b"a")
    tail = FOLLOW[way](client, topic, after=0)
    assert values_of(tail, 1) == [b"a"]
    waiting = pool.submit(next, tail)
    eventually(lambda: other.status().waits == 1, "it waits")
    other.delete_topic(topic)
    problem = waiting.exception()
    assert isinstance(problem, NotFound)
    assert problem.code == "unknown_topic"


@pytest.mark.parametrize("begun", [True, False], ids=["begun", "not begun"])
def test_a_topic_that_was_deleted_ends_a_tail_and_one_that_was_created_again_is_a_gap(
    client: Client, topic: str, begun: bool
) -> None:
    client.publish(topic, [b"old"] * 10)
    gaps: list[Gap] = []
    ended, tail = (client.tail(topic, after=0 if begun else None, on_gap=gaps.append) for _ in range(2))
    if begun:
        next(ended)
    cursor = list(islice(tail, 10))[-1].pointer if begun else client.topic(topic).last
    client.delete_topic(topic)
    with refused("unknown_topic"):
        list(islice(ended, 10))
    ack = client.publish(topic, [b"a", b"b"])
    assert gaps == []
    assert values_of(tail, 2) == [b"a", b"b"]
    assert gaps == [Gap(topic, cursor, ack.first, -1, "recreated")]
    client.publish(topic, b"c")
    assert values_of(tail, 1) == [b"c"]
    assert len(gaps) == 1


# -- records that are removed in front of the cursor --------------------------------------------------------


def test_records_trimmed_before_a_tail_are_reported_with_the_next_record(client: Client, topic: str) -> None:
    acks = [client.publish(topic, b"%d" % number) for number in range(5)]
    gaps: list[Gap] = []
    tail = client.tail(topic, after=0, on_gap=gaps.append)
    client.trim(topic, "now")
    client.publish(topic, b"new")
    assert values_of(tail, 1) == [b"new"]
    assert gaps == []  # from the oldest one on, and what was before is no loss
    tail = client.tail(topic, after=acks[-1].last, on_gap=gaps.append)
    assert values_of(tail, 1) == [b"new"]
    assert gaps == []
    end = client.topic(topic).last
    tail = client.tail(topic, on_gap=gaps.append)
    client.publish(topic, [b"x", b"y", b"z"])
    client.trim(topic, "now")
    first = client.publish(topic, b"last").first
    assert values_of(tail, 1) == [b"last"]
    assert gaps == [Gap(topic, end, first, 3, "trimmed", 6)]


class Stop(Exception):
    """Raised by an application that wants no record behind a cursor above the newest record."""


@every_way
@pytest.mark.timeout(20.0)  # two thirds of the time for which a broker holds a fetch that finds nothing
def test_a_cursor_above_the_newest_record_is_reported_before_a_tail_waits(
    client: Client, topic: str, way: str
) -> None:
    """As after a restore, or by a mistake: it might wait for ever otherwise. A read reports it, too."""
    last = client.publish(topic, [b"a", b"b", b"c"]).last
    gaps: list[Gap] = []

    def stop(gap: Gap) -> None:
        gaps.append(gap)
        raise Stop

    with pytest.raises(Stop):
        next(FOLLOW[way](client, topic, after=POINTER_MAX - 1, on_gap=stop))
    assert len(client.read(topic, after=POINTER_MAX - 1, on_gap=gaps.append)) == 0
    assert gaps == [Gap(topic, last, POINTER_MAX, 0, "ahead", 3)] * 2
    assert len(client.read(topic, after=last, on_gap=gaps.append)) == 0
    assert len(gaps) == 2


# -- records that only others can read ----------------------------------------------------------------------


def test_malformed_headers_are_returned_as_bytes_with_an_intact_value(
    client: Client, broker: BrokerProcess, topic: str
) -> None:
    """An older broker stored whatever a producer wrote there."""
    acked = client.publish(topic, [b"a", b"b", b"c"], headers=[{}, {"n": b"0123"}, {"n": b"v"}])
    good, bad = encode_headers({"n": b"0123"}), b"\x81\xa1n\xa5text!"
    with_headers(broker.topics_directory, client.topic(topic).log, good, bad)
    client.publish(topic, b"d")
    gaps: list[Gap] = []
    first, _ = client.batches(topic)
    ways = {
        "tail": list(islice(client.tail(topic, after=0, on_gap=gaps.append), 4)),
        "read": list(client.read(topic, on_gap=gaps.append)),
        "slice": [*client.read(topic, limit=3), *client.read(topic, after=acked.last)],
        "batches": [*first.messages(), *client.read(topic, after=acked.last)],
        "get": [*(client.get(topic, acked.first + row) for row in range(3)), client.read(topic)[3]],
        "several": list(client.read_many([topic], on_gap=gaps.append)),
        "in order": list(client.read_many([topic], ordered=True, on_gap=gaps.append)),
    }
    for way, found in ways.items():
        assert [one.value for one in found] == [b"a", b"b", b"c", b"d"], way
        assert [dict(one.headers) for one in found] == [{}, {}, {"n": b"v"}, {}], way
        assert [one.raw_headers for one in found] == [b"", bad, b"", b""], way
        assert ["is text, not binary" in one.headers_problem for one in found] == [False, True, False, False]
    assert gaps == []


def test_closed_tail_yields_nothing(pooled: Client, topic: str) -> None:
    pooled.publish(topic, [b"a", b"b"])
    tail = pooled.tail(topic, after=0)
    next(tail)
    tail.close()  # type: ignore[attr-defined]
    assert list(tail) == []
    assert len(pooled._pool._idle) == 1
