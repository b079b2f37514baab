"""Members of consumer groups: the records that each gets, and what becomes of them."""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from itertools import islice
from typing import Any

import pytest

from kit.broker.proxies import Meddler
from kit.client.records import numbered
from kit.deadlines import DEADLINE_S, eventually
from quoth import Client, Conflict, ConsumerGroup, GroupMessage, RequestError
from quoth.groups.settlements import FLUSH_S
from quothwire.protocol.messages import Operation

FAILURE = ZeroDivisionError("of the test")
QUICK: dict[str, Any] = {"backoff": [0.0]}
"""Settings with which records that are given back come again at once."""


@pytest.fixture
def filled(client: Client, topic: str) -> str:
    """A topic with ten records, in two batches."""
    client.publish(topic, numbered(6), key=b"k", headers={"h": b"v"})
    client.publish(topic, numbered(4, 6))
    return topic


def values_of(found: list[GroupMessage]) -> list[bytes]:
    return [message.value for message in found]


def fetch_all(group: ConsumerGroup, records: int) -> list[GroupMessage]:
    """Fetch so many records, in as many fetches as it takes."""
    found: list[GroupMessage] = []
    while len(found) < records:
        found += group.fetch(records - len(found), timeout=DEADLINE_S)
    return found


def fail_at(
    value: bytes, group: ConsumerGroup, problem: BaseException = FAILURE, *, batches: int = 0
) -> None:
    """Iterate until the body for a value, or for a batch that begins with it, raises an error."""

    def consume() -> None:
        with group:
            given: Any
            for given in group.batches(batches) if batches else group:
                if value == (given.values[0] if batches else given.value):
                    raise problem

    with pytest.raises(type(problem)):
        consume()


# -- fetching and settling ----------------------------------------------------------------------------------


def test_fetched_records_have_the_fields_of_messages(client: Client, filled: str) -> None:
    plain = client.read(filled)
    with client.group(filled, "g") as group:
        found = fetch_all(group, 10)
        assert len(found) == len(plain)
        for message, record in zip(found, plain, strict=True):
            assert (message.topic, message.pointer, message.value) == record[:3]
            assert (message.key, message.headers, message.time) == (record.key, record.headers, record.time)
            assert (message.attempts, message.is_settled) == (1, False)
            message.ack()
            assert message.is_settled
        assert group.lag() == (0, 0.0, 0)
        assert group.checkpoint() == plain[-1].pointer
        assert group.fetch(timeout=0) == []


def test_two_members_share_the_records(client: Client, filled: str) -> None:
    with client.group(filled, "g", member="one") as one, client.group(filled, "g", member="two") as other:
        first, second = one.fetch(5), fetch_all(other, 5)
        assert values_of([*first, *second]) == numbered(10)
        assert [row["name"] for row in one.info().members] == ["two", "one"]
        ranges = one.pending()
        assert {row.member for row in ranges} == {"one", "two"}
        assert all(0 < row.seconds <= 30 and row.attempts == 1 for row in ranges)
    with client.group(filled, "other") as group:
        assert len(fetch_all(group, 10)) == 10


def test_a_record_that_is_given_back_comes_again_after_its_delay(client: Client, filled: str) -> None:
    with client.group(filled, "g", backoff=["1h"]) as group:
        first, second, third, *more = fetch_all(group, 10)
        first.nack()
        second.nack(0)
        began = time.monotonic()
        third.nack(0.3)
        (again,) = group.fetch(1, timeout=DEADLINE_S)
        assert (again.value, again.attempts) == (b"1", 2)
        (again,) = group.fetch(1, timeout=DEADLINE_S)
        assert (again.value, again.attempts) == (b"2", 2)
        assert time.monotonic() - began > 0.25
        for message in more:
            message.ack(wait=False)
        found = {(row.first, row.attempts) for row in group.pending()}
        assert found == {(first.pointer, 1), (second.pointer, 2), (third.pointer, 2)}
        assert 3_500 < group.pending()[0].seconds <= 3_600


def test_a_released_record_comes_again_at_once_and_counts_no_attempt(client: Client, filled: str) -> None:
    with client.group(filled, "g", backoff=["1h"], max_attempts=1) as group:
        for _ in range(3):
            (message,) = group.fetch(1)
            assert (message.value, message.attempts) == (b"0", 1)
            message.release()
        (batch,) = [next(iter(group.batches()))]
        batch.release()
        with pytest.raises(Conflict, match="lease_lost"):
            message.release()
        assert (group.info().redelivered, group.info().in_flight) == (0, 0)


def test_records_that_a_member_has_not_begun_with_count_no_attempt(client: Client, filled: str) -> None:
    """However often members are started and stopped."""
    for start in range(3):
        with client.group(filled, "g", backoff=["1h"], max_attempts=2) as group:
            for message in group:
                assert (message.value, message.attempts) == (b"%d" % start, 1)
                break
    info = client.group(filled, "g").info()
    assert (info.lag, info.redelivered, info.in_flight) == (7, 0, 0)


def test_a_rejected_record_is_a_dead_letter_with_the_reason(client: Client, filled: str) -> None:
    with client.group(filled, "g") as group:
        message = group.fetch(1)[0]
        message.term("cannot be read")
        letters = f"{filled}.g.dead"
        eventually(lambda: letters in client.topics() and client.read(letters), "there is a letter")
        (letter,) = client.read(letters)
        assert (letter.value, letter.headers["quoth-reason"]) == (b"0", b"cannot be read")
        eventually(lambda: group.checkpoint() == message.pointer, "it is finished")
        assert group.info().dead == 1


def test_a_lease_lasts_as_long_as_it_is_extended(client: Client, filled: str) -> None:
    with client.group(filled, "g", **QUICK) as group:
        kept, lost, late = group.fetch(3)
        kept.extend(60)
        longest, *others = group.pending()
        assert (longest.first, longest.last) == (kept.pointer, kept.pointer)
        assert 30 < longest.seconds <= 60
        assert all(row.seconds <= 30 for row in others)
        for message in (lost, late):
            message.extend(0.05)
        found = fetch_all(group, 9)  # waits for the end of these two
        assert sorted(values_of(found)) == numbered(9, 1)
        for call in (lost.extend, lost.nack):
            with pytest.raises(Conflict, match="lease_lost"):
                call(1.0)
        with pytest.raises(Conflict, match="lease_lost"):
            lost.term()
        late.ack()  # counts all the same
        kept.ack()
        assert late.pointer not in [row.first for row in group.pending()]


def test_acks_that_are_not_waited_for_are_sent_soon_and_before_other_calls(
    client: Client, filled: str
) -> None:
    with client.group(filled, "g") as group, client.group(filled, "g") as other:
        for message in fetch_all(group, 10):
            message.ack(wait=False)
        assert group.lag().records == 0
        assert other.fetch(timeout=0) == []
        group.seek("begin")
        for message in fetch_all(group, 10):
            message.ack(wait=False)
        eventually(lambda: other.lag().records == 0, "they were sent without another call")


def test_records_are_settled_by_any_thread(client: Client, filled: str, pool: ThreadPoolExecutor) -> None:
    with client.group(filled, "g") as group:
        for done in [pool.submit(message.ack) for message in fetch_all(group, 10)]:
            done.result()
        assert group.lag().records == 0


def test_a_group_of_mode_at_most_once_has_no_leases(client: Client, filled: str) -> None:
    with client.group(filled, "g", mode="at_most_once") as group:
        message, other = group.fetch(2)
        assert group.lag().records == 8
        message.ack()
        assert message.is_settled
        calls: list[Callable[[], None]] = [other.nack, partial(other.extend, 1), other.term]
        for call in calls:
            with pytest.raises(RequestError, match="at_most_once"):
                call()
        assert values_of(list(islice(group, 3))) == numbered(3, 2)
        with client.group(filled, "g") as another:
            assert next(iter(another)).value == b"5"
        assert values_of(list(islice(group, 4))) == numbered(4, 6)  # no one has taken more than it handled


# -- iterating ----------------------------------------------------------------------------------------------


def test_leaving_the_body_acknowledges(client: Client, filled: str) -> None:
    with client.group(filled, "g") as group:
        for number, message in enumerate(group):
            assert message.value == b"%d" % number
            assert group.lag().records == 10 - number
            if number == 4:
                break
        assert group.lag().records == 5
        for message in group:
            if message.value == b"7":
                break
    with client.group(filled, "g") as group:
        assert group.lag().records == 2
        assert values_of(fetch_all(group, 2)) == [b"8", b"9"]
        assert [message.attempts for message in group.fetch(timeout=0)] == []


def test_a_body_may_settle_its_record_itself(client: Client, filled: str) -> None:
    with client.group(filled, "g", backoff=["1h"]) as group:
        for message in group:
            if message.value == b"3":
                message.nack()
            if message.value == b"5":
                message.ack()
            if message.value == b"9":
                break
        (pending,) = group.pending()
        assert group.lag().records == 1
        assert client.get(filled, pending.first).value == b"3"


def test_an_exception_gives_the_record_back_and_those_that_were_not_begun(
    client: Client, filled: str
) -> None:
    fail_at(b"2", client.group(filled, "g", backoff=["1h"]))
    with client.group(filled, "g") as group:
        assert values_of(fetch_all(group, 7)) == numbered(7, 3)
        failed = group.pending()[0]
        assert (failed.member, failed.attempts) == ("", 1)
        assert failed.seconds > 3_000


def test_the_error_of_a_body_is_the_reason_of_the_dead_letter(client: Client, filled: str) -> None:
    fail_at(b"0", client.group(filled, "g", max_attempts=1))
    letters = f"{filled}.g.dead"
    eventually(lambda: letters in client.topics() and client.read(letters), "there is a letter")
    (letter,) = client.read(letters)
    assert letter.headers["quoth-reason"] == b"ZeroDivisionError: of the test"


class Untold(Exception):
    """An error that has no text."""

    def __str__(self) -> str:
        raise ZeroDivisionError


@pytest.mark.parametrize(
    ("problem", "reason"), [(ValueError("file \udcff"), b"ValueError: file \\udcff"), (Untold(), b"Untold")]
)
def test_an_error_whose_text_cannot_be_sent_gives_the_record_back(
    client: Client, filled: str, problem: Exception, reason: bytes
) -> None:
    fail_at(b"0", client.group(filled, "g", max_attempts=1), problem)
    letters = f"{filled}.g.dead"
    eventually(lambda: letters in client.topics() and client.read(letters), "there is a letter")
    assert client.read(letters)[0].headers["quoth-reason"] == reason


def test_an_interruption_gives_the_record_back_at_once(client: Client, filled: str) -> None:
    fail_at(b"0", client.group(filled, "g", backoff=["1h"]), KeyboardInterrupt("of the test"))
    with client.group(filled, "g") as group:
        assert len(fetch_all(group, 10)) == 10


def test_iterations_wait_for_records_and_leave_some_to_others(
    client: Client, topic: str, pool: ThreadPoolExecutor
) -> None:
    client.create_topic(topic)
    published: list[bytes] = []

    def publish() -> bool:
        published.append(b"%d" % len(published))
        client.publish(topic, published[-1])
        return all(one.done() for one in waiting)

    with client.group(topic, "g") as one, client.group(topic, "g") as other:
        waiting = [
            pool.submit(lambda group: values_of(list(islice(group, 2))), group) for group in (one, other)
        ]
        eventually(publish, "both have records")
        found = [value for one in waiting for value in one.result()]
        assert len({*found}) == 4
        assert {*found} <= {*published}


def test_an_iteration_sends_one_request_for_many_acks(
    connect: Callable[..., Client], meddler: Meddler, topic: str
) -> None:
    client = connect(meddler)
    client.publish(topic, numbered(1_000))
    began = time.monotonic()
    with client.group(topic, "g") as group:
        assert values_of(list(islice(group, 1_000))) == numbered(1_000)
    calls = [call.operation for call in meddler.requests]
    assert 1 <= calls.count(Operation.GROUP_SETTLE) <= 2 + (time.monotonic() - began) / FLUSH_S
    assert calls.count(Operation.GROUP_FETCH) < 50
    with client.group(topic, "g") as group:
        assert group.lag().records == 0


def test_with_one_record_in_flight_the_order_is_strict(
    client: Client, filled: str, pool: ThreadPoolExecutor
) -> None:
    found: list[bytes] = []

    def take() -> None:
        with client.group(filled, "g", max_in_flight=1) as group:
            while messages := group.fetch(timeout=0.2):
                for message in messages:
                    found.append(message.value)
                    message.ack()

    for done in [pool.submit(take) for _ in range(3)]:
        done.result()
    assert found == numbered(10)


def test_records_of_one_key_come_one_after_the_other(client: Client, topic: str) -> None:
    """The answers hold whole batches, in which most records are not leased."""
    client.publish(topic, numbered(6), key=[b"a", b"a", b"b", b"a", b"b", b"c"])
    with client.group(topic, "g", key_order=True) as group:
        found = []
        for expected in ([b"0", b"2", b"5"], [b"1", b"4"], [b"3"]):
            messages = group.fetch(10, timeout=DEADLINE_S)
            assert values_of(messages) == expected
            found += messages
            for message in messages:
                message.ack()
        assert group.lag().records == 0


# -- batches ------------------------------------------------------------------------------------------------


def test_batches_have_columns_and_are_settled_as_one(client: Client, filled: str) -> None:
    plain = list(client.batches(filled))
    with client.group(filled, "g", **QUICK) as group:
        found = []
        for batch in group.batches():
            found.append((batch.first, batch.last, batch.values, batch.keys, batch.headers, batch.ordinal))
            assert batch.attempts == 1
            if len(found) == 2:
                break
        assert found == [
            (one.first, one.last, one.values, one.keys, one.headers, one.ordinal) for one in plain
        ]
        assert group.lag().records == 0
    with client.group(filled, "other", **QUICK) as group:
        batch = next(iter(group.batches(3)))
        assert batch.values == numbered(3)
        batch.extend(60)
        batch.nack(0)
        batch = next(iter(group.batches(2)))
        assert (batch.values, batch.attempts) == (numbered(2), 2)
        batch.term("bad")
        eventually(lambda: group.info().dead == 2, "they are dead letters")


def test_an_exception_gives_a_batch_back_and_those_that_were_fetched(client: Client, topic: str) -> None:
    for number in range(20):
        client.publish(topic, numbered(10, 10 * number))
    fail_at(b"90", client.group(topic, "g", **QUICK), batches=20)
    with client.group(topic, "g") as group:
        assert sorted(map(int, values_of(fetch_all(group, 110)))) == list(range(90, 200))


def test_all_ways_go_on_with_what_another_one_has_left(client: Client, topic: str) -> None:
    client.publish(topic, numbered(400))
    with client.group(topic, "g") as group:
        found = values_of(list(islice(group, 30)))
        found += values_of(fetch_all(group, 10))
        found += next(iter(group.batches(10))).values
        found += values_of(list(islice(group, 20)))
        found += values_of(fetch_all(group, 400 - len(found)))
        assert found == numbered(400)
