"""Reading what is there: from where, up to where, how much, and what is waited for."""

from __future__ import annotations

import gc
import math
import pickle
import time
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime, timedelta, timezone
from itertools import chain, islice
from typing import Any

import pytest

from kit.broker.brokers import BrokerProcess
from kit.broker.peers import refused
from kit.client.records import Connect
from kit.deadlines import DEADLINE_S, eventually
from quoth import Batch, Client, Message, Messages, RequestError
from quoth.connection.pool import SLOTS_MAX
from quothwire.pointer import POINTER_MAX

BATCHES = ([b"a0", b"a1", b"a2"], [b"b0"], [b"c0", b"c1"], [b"d0", b"d1", b"d2", b"d3"])


@pytest.fixture(params=["one segment", "a segment each"])
def stored(request: pytest.FixtureRequest, client: Client, topic: str) -> list[Message]:
    """Ten records in four batches, in one segment or in four."""
    client.create_topic(topic, count_limit=0 if request.param == "one segment" else 1)
    found: list[Message] = []
    for values in BATCHES:
        first = client.publish(topic, values).first
        found += [Message(topic, first + i, value, None, {}) for i, value in enumerate(values)]
    assert client.topic(topic).segments == (1 if request.param == "one segment" else len(BATCHES))
    return found


# -- from where, up to where, how much ----------------------------------------------------------------------


def test_after_until_and_limit_are_exact_at_every_record(
    client: Client, topic: str, stored: list[Message]
) -> None:
    """In the middle of a batch, just beside a record, and across batches and segments."""
    assert client.read(topic) == client.read(topic, after=0) == client.read(topic, since=0) == stored
    assert client.read(topic, until=0) == []
    assert client.read(topic, until=POINTER_MAX) == stored
    for row, message in enumerate(stored):
        assert client.read(topic, after=message.pointer) == stored[row + 1 :]
        assert client.read(topic, since=message.pointer) == stored[row:]
        assert client.read(topic, after=message.pointer - 1) == stored[row:]
        assert client.read(topic, since=message.pointer + 1) == stored[row + 1 :]
        assert client.read(topic, until=message.pointer) == stored[:row]
        assert client.read(topic, until=message.pointer + 1, limit=3) == stored[: min(row + 1, 3)]
        for limit in (0, 1, 3, 4, 11):
            assert client.read(topic, after=message.pointer, limit=limit) == stored[row + 1 :][:limit]


def test_reads_that_continue_behind_the_last_record_return_each_once(
    client: Client, topic: str, stored: list[Message]
) -> None:
    for limit in (1, 2, 3, 7, 10):
        portions: list[Messages] = []
        after = 0
        while portion := client.read(topic, after=after, limit=limit):
            portions.append(portion)
            after = portion[-1].pointer
        assert list(chain.from_iterable(portions)) == stored
        assert all(len(portion) == limit for portion in portions[:-1])


def test_a_bound_is_a_pointer_a_time_text_or_a_span(
    client: Client, topic: str, stored: list[Message]
) -> None:
    ways: list[Callable[[Message], Any]] = [
        lambda message: message.pointer,
        lambda message: message.time,
        lambda message: message.time.astimezone(timezone(timedelta(hours=-7, minutes=-30))),
        lambda message: message.time.astimezone(timezone(timedelta(hours=2))).isoformat(),
        lambda message: message.time.strftime("%Y-%m-%d %H:%M:%S.%f"),
        lambda message: str(message.pointer),
    ]
    for number, way in enumerate(ways):
        found = client.read(topic, since=way(stored[4]), until=way(stored[7]))
        assert found == stored[4:7], number
    assert client.read(topic, since="-15m") == stored
    assert client.read(topic, since="-1d3h", until="-1h") == []
    assert client.read(topic, since="now") == []
    assert client.read(topic, until="now") == stored


NO_BOUNDS: list[tuple[dict[str, Any], str, str]] = [
    ({"since": datetime(2026, 1, 1)}, "bad_pointer", "no time zone"),
    ({"since": "yesterday"}, "bad_pointer", "yesterday"),
    ({"after": -1}, "bad_pointer", "-1"),
    ({"after": POINTER_MAX + 1}, "bad_pointer", ""),
    ({"after": 1.5}, "bad_pointer", "1.5"),
    ({"after": True}, "bad_pointer", "true"),
    ({"after": "5"}, "bad_pointer", "5"),
    ({"after": 5, "since": 5}, "bad_request", ""),
    ({"until": datetime(2026, 1, 1)}, "bad_pointer", "UTC"),
    ({"until": ""}, "bad_pointer", ""),
    ({"until": 2**60}, "bad_pointer", ""),
    *(({"limit": limit}, "bad_request", "limit is a number of records") for limit in (-1, 1.5, True, "3")),
]


def test_a_wrong_bound_is_refused(client: Client, topic: str) -> None:
    ways: dict[str, tuple[Callable[..., object], set[str]]] = {
        "read": (client.read, {"after", "since", "until", "limit"}),
        "batches": (client.batches, {"after", "since", "until"}),
        "tail": (client.tail, {"after", "since"}),
    }
    for way, (call, arguments) in ways.items():
        for bounds, code, text in NO_BOUNDS:
            if arguments.issuperset(bounds):
                with pytest.raises(RequestError) as caught:
                    call(topic, **bounds)
                assert caught.value.code == code, (way, bounds)
                assert text in str(caught.value)


def test_a_read_of_several_fetches_is_complete(client: Client, topic: str) -> None:
    """Values of 8 MiB in all, a fetch brings about one."""
    sent = [b"%d " % i + bytes(2**18) for i in range(32)]
    for value in sent:
        client.publish(topic, value)
    assert [message.value for message in client.read(topic)] == sent
    assert [message.value for message in islice(client.tail(topic, after=0), 32)] == sent
    assert [message.value for message in client.read(topic, limit=30)] == sent[:30]


def test_a_read_without_records_is_empty(client: Client, topic: str) -> None:
    client.create_topic(topic)
    assert client.read(topic) == []
    assert list(client.batches(topic)) == []
    pointer = client.publish(topic, b"a").first
    assert client.read(topic, after=pointer) == []
    assert client.read(topic, after=POINTER_MAX) == []
    assert list(client.batches(topic, after=pointer)) == []


# -- waiting ------------------------------------------------------------------------------------------------


def test_a_timeout_waits_for_the_first_record_or_for_the_topic(
    own_broker: BrokerProcess, connect: Connect, pool: ThreadPoolExecutor, topic: str
) -> None:
    """Also a timeout that is longer than the broker waits."""
    client, other = connect(own_broker), connect(own_broker)
    after = 0
    for timeout in (DEADLINE_S, 86_400.0, math.inf):
        waiting = pool.submit(client.read, topic, after=after, timeout=timeout)
        eventually(lambda: other.status().waits == 1, "it waits")
        after = other.publish(topic, [b"a", b"b"]).last
        assert [message.value for message in waiting.result()] == [b"a", b"b"]
    began = time.monotonic()
    assert [message.value for message in client.read(topic, limit=1, timeout=DEADLINE_S)] == [b"a"]
    assert time.monotonic() - began < DEADLINE_S / 2, "it waits for nothing else"


def test_a_timeout_that_passes_is_no_error_and_a_missing_topic_is(client: Client, topic: str) -> None:
    client.create_topic(topic)
    for seconds in (0.0, 0.2):
        began = time.monotonic()
        assert client.read(topic, timeout=seconds) == []
        assert seconds <= time.monotonic() - began < DEADLINE_S
    with refused("unknown_topic"):
        client.read(f"{topic} too", timeout=0.05)


# -- one record ---------------------------------------------------------------------------------------------


def test_get_returns_exactly_this_record(client: Client, topic: str, stored: list[Message]) -> None:
    for message in stored:
        assert client.get(topic, message.pointer) == message
    present = {message.pointer for message in stored}
    for pointer in {0, 1, stored[0].pointer - 1, stored[-1].pointer + 1, POINTER_MAX} - present:
        with refused("unknown_record"):
            client.get(topic, pointer)
    with refused("bad_pointer"):
        client.get(topic, -1)


# -- batches ------------------------------------------------------------------------------------------------


def test_batches_are_equal_to_the_published_ones(client: Client, topic: str, stored: list[Message]) -> None:
    found = list(client.batches(topic))
    assert [batch.values for batch in found] == list(BATCHES)
    assert [batch.ordinal for batch in found] == [0, 3, 4, 6]
    assert [len(batch) for batch in found] == [3, 1, 2, 4]
    assert [batch.first for batch in found] == [stored[row].pointer for row in (0, 3, 4, 6)]
    assert [batch.last for batch in found] == [stored[row].pointer for row in (2, 3, 5, 9)]
    assert flat(found) == stored
    assert all(batch.keys is None and batch.headers is None for batch in found)


def test_batches_begin_exactly_and_end_with_the_batch(
    client: Client, topic: str, stored: list[Message]
) -> None:
    ends = [3, 3, 3, 4, 6, 6, 10, 10, 10, 10]
    for row, message in enumerate(stored):
        assert flat(client.batches(topic, after=message.pointer)) == stored[row + 1 :]
        assert flat(client.batches(topic, since=message.pointer)) == stored[row:]
        assert flat(client.batches(topic, until=message.pointer + 1)) == stored[: ends[row]]


def flat(batches: Iterable[Batch]) -> list[Message]:
    """The messages of batches."""
    return [message for batch in batches for message in batch.messages()]


def test_columns_of_a_cut_batch_fit_together(client: Client, topic: str) -> None:
    first = client.publish(
        topic, [b"a", b"b", b"c"], key=[b"1", None, b"3"], headers=[{"n": b"1"}, {}, {"n": b"3"}]
    ).first
    for skip in range(3):
        (batch,) = client.batches(topic, after=first + skip - 1)
        assert batch.values == [b"a", b"b", b"c"][skip:]
        assert batch.keys == [b"1", None, b"3"][skip:]
        assert batch.headers == [{"n": b"1"}, {}, {"n": b"3"}][skip:]
        assert (batch.first, batch.last, batch.ordinal) == (first + skip, first + 2, skip)
        rows = [batch.message(row) for row in range(len(batch))]
        assert rows == batch.messages() == client.read(topic, after=first + skip - 1)


def test_messages_are_used_like_a_list(client: Client, topic: str) -> None:
    client.publish(topic, [b"a", b"b", b"c"], key=[b"1", None, b"3"])
    client.publish(topic, [b"d"], headers={"n": b"1"})
    client.publish(topic, [b"e", b"f", b"g"])
    everything = [message for batch in client.batches(topic) for message in batch]
    for limit in (1, 5, 6, 7, 8):
        rows = everything[:limit]
        found = client.read(topic, limit=limit)
        assert found == rows
        assert found == client.read(topic, limit=limit)
        assert found != rows[:-1]
        assert found != [*rows[:-1], rows[-1]._replace(value=b"another")]
        assert (len(found), bool(found), repr(found)) == (len(rows), True, repr(rows))
        assert [found[at] for at in range(-len(rows), len(rows))] == rows + rows
        assert (found[1:-1], found[::-2], list(reversed(found))) == (rows[1:-1], rows[::-2], rows[::-1])
        assert rows[-1] in found
        assert found.index(rows[-1]) == len(rows) - 1
        for beyond in (len(rows), -len(rows) - 1):
            with pytest.raises(IndexError):
                found[beyond]
        assert pickle.loads(pickle.dumps(found)) == rows


def test_a_message_does_not_keep_its_batch_in_memory(client: Client, topic: str) -> None:
    first = client.publish(topic, [bytes(1_000)] * 100).first
    for found in (client.read(topic, limit=1), client.read(topic, until=first + 1)):
        assert len(found) == 1
        assert len(pickle.dumps(found)) < 2_000


def test_batches_end_at_the_end_of_the_topic_at_that_time(client: Client, topic: str) -> None:
    """Batches that are stored during the iteration are there, too."""
    client.publish(topic, b"a")
    found = []
    for batch in client.batches(topic):
        found += batch.values
        if len(found) < 5:
            client.publish(topic, b"%d" % len(found))
    assert found == [b"a", b"1", b"2", b"3", b"4"]


def test_an_iterator_may_be_collected_at_any_moment(
    pooled: Client, topic: str, stored: list[Message]
) -> None:
    """Even while its own thread gives out connections, which is when it gives back its own."""
    left = pooled.batches(topic)
    assert next(left).first == stored[0].pointer
    cycle: list[object] = [left]
    cycle.append(cycle)
    assert len(pooled._pool._slots) == 1
    del left, cycle
    with pooled._pool._lock:
        gc.collect()
    assert not pooled._pool._slots
    assert pooled.read(topic, limit=1) == stored[:1]


def test_many_iterators_at_once_share_their_connections(pooled: Client, topic: str) -> None:
    """As when many topics are merged: there are descriptors for some of them only."""
    names = [f"{topic}-{number}" for number in range(SLOTS_MAX + 10)]
    for name in names:
        pooled.publish(name, [b"x", name.encode()])
        pooled.publish(name, b"y")
    several = [pooled.tail(name, after=0) for name in names]
    for row in ("x", None, "y"):
        for name, one in zip(names, several, strict=True):
            assert next(one).value == (row or name).encode()
    assert len(pooled._pool._slots) <= SLOTS_MAX
    assert len(pooled._pool._idle) <= 3
