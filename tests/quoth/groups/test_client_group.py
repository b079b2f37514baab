"""Members of consumer groups: who gets which record, and what becomes of it."""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from itertools import islice
from typing import Any

import pytest

from kit.broker.peers import refused
from kit.broker.proxies import Meddler, pass_on
from kit.client.records import numbered, values
from kit.deadlines import DEADLINE_S, eventually
from quoth import Client, Conflict, ConsumerGroup, GroupMessage, RequestError
from quothwire.protocol.binary_codec import Answer, Call
from quothwire.protocol.group_messages import GROUPS_MAX
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
        assert group.lag() == (0, 0.0)
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
        third.nack(0.3)
        began = time.monotonic()
        (again,) = group.fetch(timeout=DEADLINE_S)
        assert (again.value, again.attempts) == (b"1", 2)
        (again,) = group.fetch(timeout=DEADLINE_S)
        assert (again.value, again.attempts) == (b"2", 2)
        assert time.monotonic() - began > 0.25
        for message in more:
            message.ack(wait=False)
        found = {(row.first, row.attempts) for row in group.pending()}
        assert found == {(first.pointer, 1), (second.pointer, 2), (third.pointer, 2)}
        assert 3_500 < group.pending()[0].seconds <= 3_600


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
    with client.group(filled, "g", lease=0.2, max_attempts=2, **QUICK) as group:
        kept, lost, late = group.fetch(3)
        kept.extend(60)
        found = fetch_all(group, 9)  # waits for the leases that were not extended
        assert values_of(found)[-2:] == [b"1", b"2"] or {b"1", b"2"} <= {*values_of(found)}
        assert b"0" not in values_of(found)
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


def test_an_interruption_gives_the_record_back_at_once(client: Client, filled: str) -> None:
    fail_at(b"0", client.group(filled, "g", backoff=["1h"]), KeyboardInterrupt("of the test"))
    with client.group(filled, "g") as group:
        assert len(fetch_all(group, 10)) == 10


def test_an_iteration_waits_for_records_and_takes_few_of_them_away(
    client: Client, topic: str, pool: ThreadPoolExecutor
) -> None:
    client.create_topic(topic)
    with client.group(topic, "g") as one, client.group(topic, "g") as other:
        waiting = [pool.submit(lambda group: values_of(list(islice(group, 2))), one)]
        waiting.append(pool.submit(lambda group: values_of(list(islice(group, 2))), other))
        for number in range(4):
            client.publish(topic, b"%d" % number)
        found = [one.result(DEADLINE_S) for one in waiting]
        assert sorted(found[0] + found[1]) == numbered(4)


def test_an_iteration_sends_one_request_for_many_acks(
    connect: Callable[..., Client], meddler: Meddler, topic: str
) -> None:
    client = connect(meddler)
    client.publish(topic, numbered(1_000))
    with client.group(topic, "g") as group:
        assert values_of(list(islice(group, 1_000))) == numbered(1_000)
    calls = [call.operation for call in meddler.requests]
    assert 1 <= calls.count(Operation.GROUP_SETTLE) < 50
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


# -- the whole group ----------------------------------------------------------------------------------------


def test_a_group_begins_where_its_start_says(client: Client, topic: str) -> None:
    first = client.publish(topic, [b"a", b"b"])
    second = client.publish(topic, [b"c"])
    starts: dict[str, tuple[Any, list[bytes]]] = {
        "begin": ("begin", [b"a", b"b", b"c"]),
        "end": ("end", []),
        "pointer": (first.first, [b"b", b"c"]),  # excluded, as `after` of a read
        "time": (client.get(topic, second.first).time, [b"c"]),  # included, as `since`
        "text": ("-1h", [b"a", b"b", b"c"]),
    }
    for name, (start, expected) in starts.items():
        with client.group(topic, name, start=start) as group:
            assert values_of(group.fetch(timeout=0)) == expected, name
            group.seek("end")
            assert group.fetch(timeout=0) == []
            group.seek(start)
            assert values_of(group.fetch(timeout=0)) == expected, name


def test_a_seek_ends_all_leases(client: Client, filled: str) -> None:
    with client.group(filled, "g") as group:
        message = group.fetch(1)[0]
        for other in group:
            if other.value == b"3":
                break
        info = group.seek("begin")
        assert info.generation == 2
        for call in (message.ack, message.nack):
            with refused("lease_lost"):
                call()
        message.ack(wait=False)
        assert group.lag().records == 10
        assert values_of(fetch_all(group, 10)) == numbered(10)


def test_settings_pause_and_deletion(client: Client, filled: str) -> None:
    with client.group(filled, "g", max_attempts=7) as group:
        assert group.pause().paused
        assert group.fetch(timeout=0) == []
        assert not group.resume().paused
        assert len(fetch_all(group, 10)) == 10
        info = group.update(lease="2s", backoff=["1s", 5], dead_letter=None)
        assert (info.settings["lease"], info.settings["backoff"], info.settings["dead_letter"]) == (
            2,
            [1, 5],
            "",
        )
        assert info.settings["max_attempts"] == 7
        with refused("bad_setting"):
            group.update(lease=0)
        lag = group.lag()
        assert lag.records == 10
        assert 0 < lag.seconds < DEADLINE_S
        assert group.delete().pending == 10
        with refused("unknown_group"):
            group.fetch()
        with refused("unknown_group"):
            group.delete()


def test_an_existing_group_has_to_have_the_settings_that_are_named(client: Client, topic: str) -> None:
    client.create_topic(topic)
    with client.group(topic, "g", lease=5, max_in_flight=7) as group:
        assert group.info().settings["max_in_flight"] == 7
    with client.group(topic, "g", lease="5s") as group:
        assert group.info().settings["max_in_flight"] == 7
    with refused("group_exists"):
        client.group(topic, "g", lease=6).info()
    with refused("unknown_group"):
        client.group(topic, "other", create=False).info()
    assert [one.group for one in client.groups(topic)] == ["g"]


WRONG: list[dict[str, Any]] = [
    {"name": "a/b"},
    {"name": ""},
    {"start": -1},
    {"start": "yesterday-ish"},
    {"start": 1.5},
    {"mode": "never"},
    {"lease": "soon"},
    {"max_in_flight": 0},
    {"leese": 3},
    {"member": ""},
    {"member": "x" * 201},
    {"member": 7},
]


@pytest.mark.parametrize("wrong", WRONG, ids=str)
def test_wrong_arguments_are_refused_before_anything_is_sent(client: Client, topic: str, wrong: Any) -> None:
    with pytest.raises(RequestError):
        client.group(topic, **{"name": "g", **wrong})
    assert topic not in client.topics()


def test_wrong_arguments_of_calls(client: Client, filled: str) -> None:
    with client.group(filled, "g") as group:
        message = group.fetch(1)[0]
        wrongs: list[Any] = [0, -1, True, "1", 2**33]
        for wrong in wrongs:
            with refused("bad_request"):
                group.fetch(wrong)
            with refused("bad_request"):
                group.batches(wrong)
        for seconds in ("1", None, float("nan"), 50_000):
            with refused("bad_request"):
                message.extend(seconds)  # type: ignore[arg-type]
        with refused("bad_request"):
            message.nack("1")  # type: ignore[arg-type]
        message.ack()


def test_groups_and_cursors_are_listed(client: Client, topic: str) -> None:
    client.create_topic(topic)
    assert client.groups(topic) == []
    names = [f"g{number:03}" for number in range(GROUPS_MAX + 1)]
    for name in names:
        client.group(topic, name).info()
    found = client.groups(topic)
    assert [one.group for one in found] == names
    assert (found[0].settings["mode"], found[0].paused) == ("at_least_once", False)


def test_members_have_names_of_their_own(client: Client, topic: str) -> None:
    one, other = client.group(topic, "g"), client.group(topic, "g")
    assert one.member != other.member
    assert one.member.count(":") == 1


def test_a_closed_member_does_nothing_more(client: Client, filled: str) -> None:
    with client.group(filled, "g") as group:
        message = group.fetch(1)[0]
    group.close()
    for call in (message.ack, group.fetch, lambda: next(iter(group))):
        with refused("closed"):
            call()
    assert group.lag().records == 10
    group.delete()


def test_settlements_of_lost_answers_are_sent_again(impatient: Client, meddler: Meddler, topic: str) -> None:
    impatient.publish(topic, numbered(3))
    with impatient.group(topic, "g", backoff=["1h"]) as group:
        first, second, third = fetch_all(group, 3)
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


def test_a_fetch_whose_answer_is_lost_is_sent_again(impatient: Client, meddler: Meddler, topic: str) -> None:
    """The records of the lost answer come again when their lease has expired."""
    impatient.publish(topic, numbered(3))
    lost: list[Call] = []

    def lose(asked: Call, _: Answer) -> bool:
        is_first = asked.operation is Operation.GROUP_FETCH and not lost
        lost.extend([asked] if is_first else [])
        return is_first

    meddler.on_reply = lose
    with impatient.group(topic, "g", lease=0.2, **QUICK) as group:
        found = fetch_all(group, 3)
        assert sorted(values_of(found)) == numbered(3)
        assert {message.attempts for message in found} == {2}
        assert lost
        assert values(impatient, topic) == numbered(3)
