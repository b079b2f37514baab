"""Transactions: parts of any client are in the topic all or none, once, in the order of the publish."""

from __future__ import annotations

import pickle
from dataclasses import replace
from typing import Any

import pytest

from kit.broker.brokers import BrokerProcess, StartBroker
from kit.broker.peers import refused
from kit.client.records import Connect, messages, staged, values
from quoth import Ack, Client, StagedPart, Transaction
from quoth.core.outgoing import BATCH_BYTES
from quothwire.errors import QuothError
from quothwire.protocol.transaction import PART_MAX, VERSION_MAX

# -- all or none, once --------------------------------------------------------------------------------------


def test_parts_become_one_stretch_of_pointers_in_the_order_in_which_they_are_named(
    client: Client, topic: str
) -> None:
    before = client.publish(topic, b"before")
    transaction = client.transaction(topic, "app", 7)
    parts = [staged(transaction, number, [b"%d-%d" % (number, i) for i in range(3)]) for number in range(3)]
    assert [part[0::2] for part in parts] == [(0, 1), (1, 1), (2, 1)]
    assert {part.records for part in parts} == {3}
    ack = transaction.publish([parts[2], parts[0], parts[1]])
    assert (ack.count, ack.last - ack.first, ack.durability, ack.duplicate) == (9, 8, "synced", False)
    assert ack.first > before.last
    found = messages(client, topic)[1:]
    assert [one.pointer for one in found] == list(range(ack.first, ack.last + 1))
    assert b" ".join(one.value for one in found) == b"2-0 2-1 2-2 0-0 0-1 0-2 1-0 1-1 1-2"
    assert client.publish(topic, b"after").first > ack.last


def test_nothing_is_read_before_it_is_published(client: Client, topic: str, transaction: Transaction) -> None:
    client.create_topic(topic)
    part = staged(transaction, 0, [b"x"] * 100)
    assert values(client, topic) == []
    assert client.topic(topic).count == 0
    transaction.publish([part])
    assert values(client, topic) == [b"x"] * 100


def test_publishing_again_is_answered_with_the_same_pointers_whatever_parts_are_named(
    client: Client, topic: str, transaction: Transaction
) -> None:
    part = staged(transaction, 0, [b"a", b"b"])
    first = transaction.publish([part])
    for parts in ([part], [], [StagedPart(9, 9, 9, 9)], [part, StagedPart(9, 9, 9, 9)]):
        again = client.transaction(topic, "app", 0).publish(parts)
        assert again == Ack(first.first, first.last, 2, "synced", True)
    assert values(client, topic) == [b"a", b"b"]


def test_only_the_attempt_that_is_named_counts_and_the_others_go(
    client: Client, topic: str, transaction: Transaction
) -> None:
    lost, won, other = (staged(transaction, 0, [text] * 10) for text in (b"lost", b"won", b"other"))
    assert len({lost.attempt, won.attempt, other.attempt}) == 3
    assert (transaction.status().parts, transaction.status().records) == (3, 30)
    transaction.publish([won])
    assert values(client, topic) == [b"won"] * 10
    assert transaction.status().bytes == 0
    assert client.topic(topic).counters["staged_bytes"] == 0


def test_versions_of_an_application_and_applications_are_transactions_of_their_own(
    client: Client, topic: str
) -> None:
    names = [("a", 0), ("a", 1), ("b", 0), ("a" * 200, VERSION_MAX), ("é/ \n", 5), ("~once", 0)]
    for name in names:
        transaction = client.transaction(topic, *name)
        transaction.publish([staged(transaction, PART_MAX, [repr(name).encode()])])
    assert values(client, topic) == [repr(name).encode() for name in names]
    elsewhere = client.transaction(f"{topic}-other", *names[0])
    assert not elsewhere.publish([staged(elsewhere, 0, [b"x"])]).duplicate
    with refused("forgotten_sequence"):
        client.transaction(topic, "é/ \n", 4).status()


def test_values_that_name_a_transaction_and_its_parts_go_to_other_processes(
    connect: Connect, broker: BrokerProcess, topic: str
) -> None:
    """One client writes, another one publishes."""
    one = connect(broker).transaction(topic, "app", 0)
    carried = pickle.loads(pickle.dumps(((one.topic, one.application, one.version), staged(one, 3, [b"x"]))))
    name, part = carried
    other = connect(broker).transaction(*name)
    assert type(part) is StagedPart
    assert other.publish([part]).count == 1
    assert values(connect(broker), topic) == [b"x"]


# -- ends ---------------------------------------------------------------------------------------------------


def test_status_tells_where_a_transaction_is(client: Client, topic: str) -> None:
    client.publish(topic, b"before")
    transaction = client.transaction(topic, "app", 3)
    found = transaction.status()
    assert (found.state, found.bytes, found.count, found.newest_version) == ("unknown", 0, 0, -1)
    part = staged(transaction, 0, [b"x"] * 5)
    found = transaction.status()
    assert (found.state, found.parts, found.batches, found.records) == ("staged", 1, 1, 5)
    assert found.bytes > 64
    assert client.topic(topic).counters["staged_bytes"] == found.bytes
    ack = transaction.publish([part])
    found = transaction.status()
    assert (found.state, found.first, found.last, found.count) == ("published", ack.first, ack.last, 5)
    assert found.newest_version == 3
    assert found.log == client.topic(topic).log
    assert client.transaction(topic, "app", 4).status().newest_version == 3


def test_abort_removes_what_is_staged_and_nothing_that_is_published(
    client: Client, topic: str, transaction: Transaction
) -> None:
    client.publish(topic, b"before")
    part = staged(transaction, 0, [b"x"] * 5)
    found = transaction.abort()
    assert (found.state, found.parts, found.records) == ("unknown", 1, 5)
    assert transaction.abort().records == 0
    with pytest.raises(QuothError) as problem:
        transaction.publish([part])
    assert problem.value.code == "not_staged"
    assert not problem.value.retryable
    assert "part 0" in problem.value.text
    assert values(client, topic) == [b"before"]
    ack = transaction.publish([staged(transaction, 0, [b"y"])])
    found = transaction.abort()
    assert (found.state, found.first, found.records) == ("published", ack.first, 0)
    assert values(client, topic) == [b"before", b"y"]


@pytest.mark.parametrize("taken", ["aborted", "deleted"])
def test_writer_learns_that_what_it_has_staged_is_gone(
    client: Client, topic: str, taken: str, transaction: Transaction
) -> None:
    client.create_topic(topic)
    writer = transaction.part(0)
    for _ in range(20):
        writer.write(bytes(BATCH_BYTES))
    if taken == "aborted":
        transaction.abort()
    else:
        client.delete_topic(topic)
    with pytest.raises(QuothError) as problem:
        writer.write([bytes(BATCH_BYTES)] * 20)
    assert problem.value.code == "not_staged"
    assert "part 0" in problem.value.text
    assert "gone" in problem.value.text
    with refused("not_staged"):
        writer.write(b"x")
    again = staged(transaction, 0, [b"x"])
    transaction.publish([again])
    assert values(client, topic) == [b"x"]


def test_parts_that_are_not_there_are_named_and_those_that_are_stay(
    client: Client, topic: str, transaction: Transaction
) -> None:
    good = staged(transaction, 0, [b"x"] * 3)
    for wrong in (
        StagedPart(5, 1, 1, 1),
        good._replace(attempt=1),
        good._replace(batches=2),
        good._replace(records=2),
        good._replace(records=4),
    ):
        with pytest.raises(QuothError) as problem:
            transaction.publish([wrong])
        assert problem.value.code == "not_staged"
        assert f"part {wrong.part}" in problem.value.text
    assert values(client, topic) == []
    assert transaction.publish([good]).count == 3


def test_published_version_takes_nothing_more(client: Client, topic: str, transaction: Transaction) -> None:
    transaction.publish([staged(transaction, 0, [b"x"])])
    with transaction.part(1) as writer:
        writer.write(b"y")
        with pytest.raises(QuothError) as problem:
            writer.finish()
    assert problem.value.code == "already_published"
    assert "part 1 of version 0 of 'app'" in problem.value.text
    assert client.topic(topic).counters["staged_bytes"] == 0


def test_version_below_the_newest_is_refused_unless_it_is_known(client: Client, topic: str) -> None:
    acks = {}
    for version in range(0, 140, 2):
        transaction = client.transaction(topic, "app", version)
        acks[version] = transaction.publish([staged(transaction, 0, [b"%d" % version])])
    for version in (20, 138):
        again = client.transaction(topic, "app", version).publish([])
        assert (again.first, again.duplicate) == (acks[version].first, True)
    for version in (0, 137):
        with refused("forgotten_sequence"):
            client.transaction(topic, "app", version).publish([StagedPart(0, 0, 1, 1)])
        with refused("forgotten_sequence"):
            staged(client.transaction(topic, "app", version), 0, [b"x"])
    assert values(client, topic) == [b"%d" % version for version in acks]


def test_of_several_who_go_on_from_the_same_version_one_publishes(client: Client, topic: str) -> None:
    one, other = (client.transaction(topic, "app", version) for version in (5, 6))
    parts = [[staged(transaction, 0, [b"%d" % transaction.version])] for transaction in (one, other)]
    with refused("newest_differs"):
        one.publish(parts[0], newest=4)
    ack = one.publish(parts[0], newest=-1)
    with refused("newest_differs"):
        other.publish(parts[1], newest=-1)
    assert other.status().state == "staged"
    assert one.publish(parts[0], newest=-1) == replace(ack, duplicate=True)
    other.publish(parts[1], newest=5)
    assert values(client, topic) == [b"5", b"6"]


@pytest.mark.parametrize(
    ("newest", "code"), [(-3, "bad_request"), (VERSION_MAX + 1, "too_large"), ("5", "bad_request")]
)
def test_what_cannot_be_a_newest_version_is_refused(
    client: Client, topic: str, newest: Any, code: str
) -> None:
    transaction = client.transaction(topic, "app", 5)
    with refused(code):
        transaction.publish([staged(transaction, 0, [b"5"])], newest=newest)


def test_topic_that_does_not_exist(transaction: Transaction) -> None:
    for ask in (transaction.status, transaction.abort, lambda: transaction.publish([])):
        with refused("unknown_topic"):
            ask()
    part = staged(transaction, 0, [b"x"])
    assert transaction.publish([part]).count == 1


def test_staged_bytes_have_a_limit_that_a_publish_or_an_abort_makes_room_under(
    start_broker: StartBroker, connect: Connect
) -> None:
    client = connect(start_broker(staged_bytes_max=16 * 2**20))
    full, small = client.transaction("t", "full", 0), client.transaction("t", "small", 0)
    part = staged(small, 0, [b"x"])
    with pytest.raises(QuothError) as problem:
        staged(full, 0, [bytes(BATCH_BYTES)] * 20)
    assert problem.value.code == "staged_max"
    assert not problem.value.retryable
    assert "staged_bytes_max" in problem.value.hint
    assert small.publish([part]).count == 1
    assert full.abort().batches > 0
    assert full.publish([staged(full, 0, [bytes(BATCH_BYTES)] * 8)]).count == 8
