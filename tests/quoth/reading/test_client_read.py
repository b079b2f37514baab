"""Reading what is there: from where, up to where, how much, and what is waited for."""

from __future__ import annotations

import gc
import pickle
import time
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta, timezone
from itertools import chain
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
def told(request: pytest.FixtureRequest, client: Client, topic: str) -> list[Message]:
    """Ten records in four batches, in one segment or in four."""
    client.create_topic(topic, count_limit=0 if request.param == "one segment" else 1)
    found: list[Message] = []
    for values in BATCHES:
        first = client.publish(topic, values).first
        found += [Message(topic, first + i, value, None, {}) for i, value in enumerate(values)]
    assert client.topic(topic).segments == (1 if request.param == "one segment" else len(BATCHES))
    return found


# -- from where ---------------------------------------------------------------------------------------------


def test_everything_is_read_from_the_oldest_on(client: Client, topic: str, told: list[Message]) -> None:
    assert client.read(topic) == told
    assert client.read(topic, after=0) == told
    assert client.read(topic, since=0) == told


def test_after_leaves_its_record_out_and_since_takes_it_in(
    client: Client, topic: str, told: list[Message]
) -> None:
    """At every record, in the middle of a batch too, and just beside it."""
    for row, message in enumerate(told):
        assert client.read(topic, after=message.pointer) == told[row + 1 :]
        assert client.read(topic, since=message.pointer) == told[row:]
        assert client.read(topic, after=message.pointer - 1) == told[row:]
        assert client.read(topic, since=message.pointer + 1) == told[row + 1 :]


def test_until_leaves_its_record_out(client: Client, topic: str, told: list[Message]) -> None:
    for row, message in enumerate(told):
        assert client.read(topic, until=message.pointer) == told[:row]
        assert client.read(topic, until=message.pointer + 1) == told[: row + 1]
    assert client.read(topic, until=0) == []
    assert client.read(topic, until=POINTER_MAX) == told


@pytest.mark.parametrize(
    "as_moment",
    [
        lambda message: message.pointer,
        lambda message: message.time,
        lambda message: message.time.astimezone(timezone(timedelta(hours=-7, minutes=-30))),
        lambda message: message.time.isoformat(),
        lambda message: message.time.astimezone(timezone(timedelta(hours=2))).isoformat(),
        lambda message: message.time.strftime("%Y-%m-%d %H:%M:%S.%f"),
        lambda message: str(message.pointer),
    ],
    ids=[
        "pointer",
        "datetime",
        "datetime elsewhere",
        "text",
        "text elsewhere",
        "text without zone",
        "decimal",
    ],
)
def test_moment_is_a_pointer_a_time_or_text(
    client: Client, topic: str, told: list[Message], as_moment: Callable[[Message], Any]
) -> None:
    assert client.read(topic, since=as_moment(told[4]), until=as_moment(told[7])) == told[4:7]


def test_moments_before_now_are_told_by_spans(client: Client, topic: str, told: list[Message]) -> None:
    assert client.read(topic, since="-15m") == told
    assert client.read(topic, since="-1d3h", until="-1h") == []
    assert client.read(topic, since="now") == []
    assert client.read(topic, until="now") == told
    assert client.read(topic, since=datetime(1970, 1, 1, tzinfo=UTC)) == told


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
]


@pytest.mark.parametrize(
    ("way", "bounds", "code", "text"),
    [
        (way, *one)
        for way in ("read", "batches", "tail")
        for one in NO_BOUNDS
        if way != "tail" or "until" not in one[0]
    ],
)
def test_what_is_no_bound_is_refused(
    client: Client, topic: str, way: str, bounds: dict[str, Any], code: str, text: str
) -> None:
    with pytest.raises(RequestError) as caught:
        getattr(client, way)(topic, **bounds)
    assert caught.value.code == code
    assert text in str(caught.value)


# -- how much -----------------------------------------------------------------------------------------------


def test_limit_is_exact_across_batches_and_segments(client: Client, topic: str, told: list[Message]) -> None:
    for start in range(len(told)):
        after = told[start].pointer
        for limit in range(len(told) + 2):
            assert client.read(topic, after=after, limit=limit) == told[start + 1 :][:limit]


def test_reading_on_after_the_last_one_gets_everything_once(
    client: Client, topic: str, told: list[Message]
) -> None:
    for limit in range(1, len(told) + 1):
        portions: list[Messages] = []
        after = 0
        while portion := client.read(topic, after=after, limit=limit):
            portions.append(portion)
            after = portion[-1].pointer
        assert list(chain.from_iterable(portions)) == told
        assert all(len(portion) == limit for portion in portions[:-1])


@pytest.mark.parametrize("limit", [-1, 1.5, True, "3"])
def test_a_limit_that_is_no_number_of_records_is_refused(client: Client, topic: str, limit: Any) -> None:
    with pytest.raises(RequestError, match="limit is a number of records from 0 on, not") as told:
        client.read(topic, limit=limit)
    assert told.value.code == "bad_request"


def test_limit_and_until_hold_together(client: Client, topic: str, told: list[Message]) -> None:
    assert client.read(topic, until=told[5].pointer, limit=3) == told[:3]
    assert client.read(topic, until=told[2].pointer, limit=3) == told[:2]


def test_more_than_one_fetch_is_read_through(client: Client, topic: str) -> None:
    """Values of 8 MiB in all, a fetch brings about one."""
    sent = [b"%d " % i + bytes(2**18) for i in range(32)]
    for value in sent:
        client.publish(topic, value)
    assert [message.value for message in client.read(topic)] == sent
    assert [message.value for message in client.read(topic, limit=30)] == sent[:30]


def test_nothing_there_is_no_error(client: Client, topic: str) -> None:
    client.create_topic(topic)
    assert client.read(topic) == []
    assert list(client.batches(topic)) == []
    pointer = client.publish(topic, b"a").first
    assert client.read(topic, after=pointer) == []
    assert client.read(topic, after=POINTER_MAX) == []
    assert list(client.batches(topic, after=pointer)) == []


# -- waiting ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("exists", "timeout"),
    [(True, DEADLINE_S), (False, DEADLINE_S), pytest.param(True, 86_400.0, id="longer than a broker waits")],
)
def test_timeout_waits_for_the_first_record(
    own_broker: BrokerProcess,
    connect: Connect,
    pool: ThreadPoolExecutor,
    topic: str,
    exists: bool,
    timeout: float,
) -> None:
    client, other = connect(own_broker), connect(own_broker)
    after = client.publish(topic, b"old").last if exists else 0
    waiting = pool.submit(client.read, topic, after=after, timeout=timeout)
    eventually(lambda: other.status().waits == 1, "it waits")
    other.publish(topic, [b"a", b"b"])
    assert [message.value for message in waiting.result()] == [b"a", b"b"]


def test_timeout_that_passes_is_no_error_but_a_topic_that_never_came_is(client: Client, topic: str) -> None:
    client.create_topic(topic)
    for seconds in (0.0, 0.05, 0.2):
        began = time.monotonic()
        assert client.read(topic, timeout=seconds) == []
        assert seconds <= time.monotonic() - began < DEADLINE_S
    with refused("unknown_topic"):
        client.read(f"{topic} too", timeout=0.05)


def test_timeout_does_not_wait_where_there_is_something(client: Client, topic: str) -> None:
    client.publish(topic, b"a")
    began = time.monotonic()
    assert [message.value for message in client.read(topic, timeout=DEADLINE_S)] == [b"a"]
    assert time.monotonic() - began < DEADLINE_S / 2


# -- one record ---------------------------------------------------------------------------------------------


def test_get_finds_exactly_this_record(client: Client, topic: str, told: list[Message]) -> None:
    for message in told:
        assert client.get(topic, message.pointer) == message


def test_get_of_a_pointer_that_no_record_has_is_not_found(
    client: Client, topic: str, told: list[Message]
) -> None:
    taken = {message.pointer for message in told}
    for pointer in {0, 1, told[0].pointer - 1, told[-1].pointer + 1, POINTER_MAX} - taken:
        with refused("unknown_record"):
            client.get(topic, pointer)
    with refused("bad_pointer"):
        client.get(topic, -1)


def test_message_tells_its_time(client: Client, topic: str) -> None:
    """The pointer is the time, exact to the microsecond."""
    before = datetime.now(UTC)
    pointer = client.publish(topic, b"a").first
    after = datetime.now(UTC)
    (message,) = client.read(topic)
    assert before <= message.time <= after
    assert message.time.tzinfo is UTC
    assert (message.time - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(microseconds=1) == pointer


# -- batches ------------------------------------------------------------------------------------------------


def test_batches_are_what_was_published(client: Client, topic: str, told: list[Message]) -> None:
    found = list(client.batches(topic))
    assert [batch.values for batch in found] == list(BATCHES)
    assert [batch.ordinal for batch in found] == [0, 3, 4, 6]
    assert [len(batch) for batch in found] == [3, 1, 2, 4]
    assert [batch.first for batch in found] == [told[row].pointer for row in (0, 3, 4, 6)]
    assert [batch.last for batch in found] == [told[row].pointer for row in (2, 3, 5, 9)]
    assert flat(found) == told
    assert all(batch.keys is None and batch.headers is None for batch in found)


def test_batches_begin_exactly_and_end_with_the_batch(
    client: Client, topic: str, told: list[Message]
) -> None:
    ends = [3, 3, 3, 4, 6, 6, 10, 10, 10, 10]
    for row, message in enumerate(told):
        assert flat(client.batches(topic, after=message.pointer)) == told[row + 1 :]
        assert flat(client.batches(topic, since=message.pointer)) == told[row:]
        assert flat(client.batches(topic, until=message.pointer + 1)) == told[: ends[row]]


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


@pytest.mark.parametrize("limit", [1, 5, 6, 7, 8, 100])
def test_what_was_read_is_used_like_a_list(client: Client, topic: str, limit: int) -> None:
    client.publish(topic, [b"a", b"b", b"c"], key=[b"1", None, b"3"])
    client.publish(topic, [b"d"], headers={"n": b"1"})
    client.publish(topic, [b"e", b"f", b"g"])
    rows = [message for batch in client.batches(topic) for message in batch][:limit]
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


def test_what_was_read_does_not_hold_on_to_the_rest_of_its_batch(client: Client, topic: str) -> None:
    first = client.publish(topic, [bytes(1_000)] * 100).first
    for found in (client.read(topic, limit=1), client.read(topic, until=first + 1)):
        assert len(found) == 1
        assert len(pickle.dumps(found)) < 2_000


def test_batches_end_where_the_topic_ends_by_then(client: Client, topic: str) -> None:
    """Batches that are stored during the iteration are there, too."""
    client.publish(topic, b"a")
    found = []
    for batch in client.batches(topic):
        found += batch.values
        if len(found) < 5:
            client.publish(topic, b"%d" % len(found))
    assert found == [b"a", b"1", b"2", b"3", b"4"]


def test_an_iterator_may_be_collected_at_any_moment(pooled: Client, topic: str, told: list[Message]) -> None:
    """Even while its own thread gives out connections, which is when it gives back its own."""
    left = pooled.batches(topic)
    assert next(left).first == told[0].pointer
    cycle: list[object] = [left]
    cycle.append(cycle)
    assert len(pooled._pool._slots) == 1
    del left, cycle
    with pooled._pool._lock:
        gc.collect()
    assert not pooled._pool._slots
    assert pooled.read(topic, limit=1) == told[:1]


def test_many_iterators_at_once_share_their_connections(pooled: Client, topic: str) -> None:
    """As when many topics are merged: there are descriptors for some of them only."""
    names = [f"{topic}-{number}" for number in range(100)]
    for name in names:
        pooled.publish(name, [b"x", name.encode()])
        pooled.publish(name, b"y")
    several = [pooled.tail(name, after=0) for name in names]
    for row in ("x", None, "y"):
        for name, one in zip(names, several, strict=True):
            assert next(one).value == (row or name).encode()
    assert len(pooled._pool._slots) <= SLOTS_MAX
    assert len(pooled._pool._idle) <= 3


def test_batches_that_are_left_early_hold_nothing(pooled: Client, topic: str, told: list[Message]) -> None:
    """An iterator keeps its connection, on which more is coming, until it is collected."""
    left = [pooled.batches(topic) for _ in range(20)]
    assert [next(one).first for one in left] == [told[0].pointer] * 20
    assert len(pooled._pool._slots) == 20
    left.clear()
    gc.collect()
    assert not pooled._pool._slots
    idle = len(pooled._pool._idle)
    assert pooled.read(topic, limit=1) == told[:1]  # whatever was on its way to them
    assert len(pooled._pool._idle) == idle
