"""Members of groups when something fails: members, the broker, its disk, the wire."""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from itertools import islice
from typing import Any

import pytest

from kit.broker.brokers import BrokerProcess, StartBroker
from kit.broker.peers import refused
from kit.broker.proxies import Meddler, pass_on
from kit.client.records import Connect, numbered, values
from kit.deadlines import DEADLINE_S, eventually, pause
from kit.disk.damage import flip, stored_batches
from quoth import Client, Conflict, Disconnected, Gap, GroupMessage, NotFound
from quothwire.errors import QuothError, error
from quothwire.protocol.binary_codec import Answer, Call
from quothwire.protocol.messages import Operation


def values_of(found: list[GroupMessage]) -> list[bytes]:
    return [message.value for message in found]


def brief(client: Client) -> Client:
    """Let a client try again soon."""
    client._timing.away_pause = 0.02
    return client


# -- members ------------------------------------------------------------------------------------------------


def test_the_records_of_a_dead_member_come_again(
    connect: Connect, client: Client, broker: Any, topic: str
) -> None:
    client.publish(topic, numbered(5))
    dead = connect(broker)
    group = dead.group(topic, "g", backoff=[0.0])
    found = group.fetch(3)
    assert values_of(found) == numbered(3)
    for message in found:
        message.extend(0.05)  # so its lease alone ends soon, and no stall ends that of another member
    dead.close()
    with client.group(topic, "g") as other:
        again = sorted((message.value, message.attempts) for message in islice(other, 5))
        assert again == [(b"0", 2), (b"1", 2), (b"2", 2), (b"3", 1), (b"4", 1)]


def test_a_slow_iteration_keeps_the_leases_of_what_waits(client: Client, topic: str) -> None:
    """Only the record in hand may expire."""
    client.publish(topic, numbered(60))
    with client.group(topic, "g", lease=60.0) as group, client.group(topic, "g") as other:
        iterator = iter(group)
        stock = group._member.stock
        found = [next(one for one in iterator if stock).value]
        assert stock._lot is not None
        stock._lot.seconds = 600.0  # so more than half of the lease is over
        following = next(iterator)

        def left() -> float:
            return next(row.seconds for row in other.pending() if row.last >= following.pointer)

        eventually(lambda: left() > 60.0, "the lease of what waited is extended")
        found += [following.value, *values_of(list(islice(iterator, 10)))]
        assert found == numbered(len(found), int(found[0])), "nothing comes twice"


def test_a_body_that_extends_its_record_keeps_no_expired_ones(client: Client, topic: str) -> None:
    """Records that wait behind it have the lease of before, and go to another member at its end."""
    client.publish(topic, numbered(60))
    with client.group(topic, "g", lease=0.5, backoff=[0.0]) as group, client.group(topic, "g") as other:
        iterator = iter(group)
        list(islice(iterator, 10))

        def is_extended() -> bool:
            try:
                next(iterator).extend(60)
            except Conflict:
                return False  # a stall has outlasted its lease
            return True

        eventually(is_extended, "one is extended in time")
        ends = time.monotonic() + 0.5  # the leases of before, as the member knows them
        taken: list[GroupMessage] = []
        while not any(message.attempts > 1 for message in taken):
            for message in other.fetch(timeout=DEADLINE_S):
                message.ack()
                taken.append(message)
        pause(max(0.0, ends - time.monotonic()))
        client.publish(topic, b"last")
        found = list(iter(lambda: next(iterator).value, b"last"))
        assert not {*found} & {*values_of(taken)}


def test_a_fetch_that_is_given_up_leaves_no_lease_behind(client: Client, topic: str) -> None:
    """The end of a member waits for the fetch that the broker still holds."""
    client.create_topic(topic)
    client._timing.group_wait = DEADLINE_S
    with client.group(topic, "g") as group:
        group._member.begin_fetch(10, 1_000, DEADLINE_S)
        eventually(lambda: [row["name"] for row in group.info().members], "the fetch is there")
        client.publish(topic, b"a")
    with client.group(topic, "g") as group:
        assert values_of(group.fetch(timeout=DEADLINE_S)) == [b"a"]


# -- the broker ---------------------------------------------------------------------------------------------


def test_an_iteration_goes_on_with_a_broker_that_is_started_again(
    own_client: Client, own_broker: BrokerProcess, topic: str, pool: ThreadPoolExecutor
) -> None:
    brief(own_client).publish(topic, numbered(20))
    with own_client.group(topic, "g") as group:
        iterator = iter(group)
        found = {*values_of(list(islice(iterator, 4)))}
        own_broker.kill()

        def consume() -> None:
            while len(found) < 20:
                found.add(next(iterator).value)

        waiting = pool.submit(consume)
        own_broker.restart()
        waiting.result(DEADLINE_S)
        assert found == {*numbered(20)}
    with own_client.group(topic, "g") as group:
        eventually(lambda: group.fetch(timeout=0.1) == [], "nothing comes again")


def test_acks_survive_a_broker_that_is_killed(
    own_client: Client, own_broker: BrokerProcess, topic: str
) -> None:
    own_client.publish(topic, numbered(10))
    with own_client.group(topic, "g") as group:
        messages = group.fetch(10)
        for message in messages[::2]:
            message.ack()
        own_broker.kill()
        own_broker.restart()
        assert group.lag().records == 5
        assert values_of(group.fetch(10, timeout=DEADLINE_S)) == numbered(10)[1::2]
        messages[1].ack()  # of a lease that the broker does not know any more
        assert group.lag().records == 4


def test_acks_are_sent_again_to_a_broker_that_comes_back(
    own_client: Client, own_broker: BrokerProcess, topic: str, pool: ThreadPoolExecutor
) -> None:
    own_client.publish(topic, numbered(10))
    with own_client.group(topic, "g") as group:
        messages = group.fetch(10)
        own_broker.kill()
        for message in messages[1:]:
            message.ack(wait=False)
        waiting = pool.submit(messages[0].ack)
        own_broker.restart()
        waiting.result(DEADLINE_S)
        assert group.lag().records == 0


def test_an_ack_without_an_answer_fails_in_time(
    own_broker: BrokerProcess, connect: Connect, topic: str
) -> None:
    client = connect(own_broker)
    client.publish(topic, numbered(2))
    group = client.group(topic, "g")
    message, other = group.fetch(2)
    client.timeout = group._member.queue.timeout = 0.5
    own_broker.kill()
    with pytest.raises(Disconnected):
        message.ack()
    other.ack(wait=False)
    with pytest.raises(Disconnected):
        group.close()
    with pytest.raises(Disconnected):
        client.group(topic, "g").fetch()


def test_a_broker_that_is_busy_is_asked_again(impatient: Client, meddler: Meddler, topic: str) -> None:
    impatient.publish(topic, numbered(3))
    refused_calls: list[Call] = []

    def refuse(asked: Call) -> QuothError | bool:
        if asked.operation in (Operation.GROUP_FETCH, Operation.GROUP_SETTLE) and len(refused_calls) < 3:
            refused_calls.append(asked)
            return error("busy", "of the test")
        return False

    meddler.on_request = refuse
    with impatient.group(topic, "g") as group:
        assert values_of(list(islice(group, 3))) == numbered(3)
        refused_calls.clear()
        group.fetch(timeout=0)
        assert group.lag().records <= 1
    assert len(refused_calls) == 3


def test_the_error_of_an_ack_that_was_not_waited_for_is_raised_by_the_next_call(
    client: Client, topic: str
) -> None:
    client.publish(topic, numbered(3))
    for ending in ("ack", "fetch", "next", "close"):
        group = client.group(topic, "g").__enter__()
        messages = group.fetch(2)
        client.group(topic, "g").delete()
        messages[0].ack(wait=False)
        eventually(partial(getattr, group._member.queue, "problem"), "the error has come")
        with refused("unknown_group"):
            match ending:
                case "ack":
                    messages[1].ack(wait=False)
                case "fetch":
                    group.fetch()
                case "next":
                    next(iter(group))
                case _:
                    group.close()
        group.close()


def test_the_error_of_a_body_is_not_replaced_by_that_of_an_ack(
    client: Client, topic: str, caplog: pytest.LogCaptureFixture
) -> None:
    client.publish(topic, numbered(3))

    def consume() -> None:
        with client.group(topic, "g") as group:
            message = group.fetch(1)[0]
            client.group(topic, "g").delete()
            message.ack(wait=False)
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        consume()
    assert "unknown_group" in caplog.text


def test_an_iteration_ends_when_the_group_or_the_topic_is_deleted(
    client: Client, topic: str, pool: ThreadPoolExecutor
) -> None:
    client.publish(topic, b"a")
    member = client.group(topic, "g")
    deletions: list[Callable[[], object]] = [member.delete, partial(client.delete_topic, topic)]
    for delete in deletions:
        group = client.group(topic, "g")
        iterator = iter(group)
        assert next(iterator).value == b"a"
        waiting = pool.submit(next, iterator, None)
        eventually(partial(_is_finished, client, topic), "it waits for the next one")
        delete()
        with pytest.raises(NotFound):
            waiting.result(DEADLINE_S)
        group.close()


def _is_finished(client: Client, topic: str) -> bool:
    return not client.group(topic, "g").pending()


def test_settlements_of_lost_answers_are_sent_again(impatient: Client, meddler: Meddler, topic: str) -> None:
    impatient.publish(topic, numbered(3))
    with impatient.group(topic, "g", backoff=["1h"]) as group:
        first, second, third = group.fetch(3)
        for call in (first.ack, second.nack, third.term):
            lost: list[Call] = []

            def lose(asked: Call, _: Answer, lost: list[Call] = lost) -> bool:
                is_first = asked.operation is Operation.GROUP_SETTLE and not lost
                lost += [asked] if is_first else []
                return is_first

            meddler.on_reply = lose
            call()
            assert lost
        meddler.on_reply = pass_on
        assert [row.first for row in group.pending()][:1] == [second.pointer]


def test_a_fetch_whose_answer_is_lost_is_sent_again(
    impatient: Client, meddler: Meddler, client: Client, topic: str
) -> None:
    """The records of the lost answer come again when their lease has expired."""
    impatient.publish(topic, numbered(3))
    lost: list[Call] = []

    def lose(asked: Call, _: Answer) -> bool:
        is_first = asked.operation is Operation.GROUP_FETCH and not lost
        if is_first:
            lost.append(asked)
            client.group(topic, "g").update(lease=60.0)  # of the next hand-out, so that no stall outlasts it
        return is_first

    meddler.on_reply = lose
    with impatient.group(topic, "g", lease=0.2, backoff=[0.0]) as group:
        found = group.fetch(3)
        assert sorted(values_of(found)) == numbered(3)
        assert {message.attempts for message in found} == {2}
        assert lost
        assert values(impatient, topic) == numbered(3)


# -- lost records -------------------------------------------------------------------------------------------


def test_records_that_retention_has_removed_are_reported(client: Client, topic: str) -> None:
    client.create_topic(topic, count_limit=5)
    acks = [client.publish(topic, numbered(5, 5 * number)) for number in range(4)]
    gaps: list[Gap] = []
    with client.group(topic, "g", on_gap=gaps.append, backoff=[0.0]) as group:
        assert values_of(group.fetch(3)) == numbered(3)
        client.trim(topic, acks[2].first)
        found: list[GroupMessage] = []
        while len(found) < 10:
            found += group.fetch(timeout=DEADLINE_S)
        assert values_of(found) == numbered(10, 10)
        assert sum(gap.records for gap in gaps) in (7, 10)
        assert {(gap.topic, gap.reason) for gap in gaps} == {(topic, "trimmed")}
        assert gaps[0].next == acks[2].first


def test_a_gap_may_end_the_consumption(client: Client, topic: str) -> None:
    client.create_topic(topic, count_limit=1)
    client.publish(topic, b"a")
    last = client.publish(topic, b"b")

    def refuse(gap: Gap) -> None:
        raise ZeroDivisionError(gap)

    group = client.group(topic, "g", on_gap=refuse)
    group.info()
    client.trim(topic, last.first)
    with pytest.raises(ZeroDivisionError):
        group.fetch()
    group.close()
    with client.group(topic, "g") as other:  # the lease of what was fetched has not to expire
        assert values_of(other.fetch(timeout=DEADLINE_S)) == [b"b"]


def test_a_batch_that_does_not_check_is_reported_and_stepped_over(
    start_broker: StartBroker, connect: Connect, topic: str
) -> None:
    broker = start_broker()
    client = connect(broker)
    for number in range(3):
        client.publish(topic, numbered(4, 4 * number))
    log_id = client.topic(topic).log
    broker.kill()
    flip(*damaged(broker, log_id))
    broker.restart()
    gaps: list[Gap] = []
    with client.group(topic, "g", on_gap=gaps.append) as group:
        for message in group:
            if message.value == b"11":
                break
        assert group.lag().records == 0
    assert {gap.reason for gap in gaps} == {"damaged"}
    assert sum(gap.records for gap in gaps) == 4


def damaged(broker: BrokerProcess, log_id: int) -> tuple[Any, int]:
    """Return the place of the last byte of a body in the middle."""
    stored = stored_batches(broker.topics_directory, log_id)[1]
    return stored.path, stored.end - 9
