"""Transactions: parts that anybody stages are in the topic all or none, once, in the order asked for."""

from __future__ import annotations

import pickle
import random
import struct
from collections.abc import Callable
from dataclasses import replace
from itertools import accumulate
from typing import Any

import pytest

from kit.broker.brokers import BrokerProcess, StartBroker
from kit.broker.peers import refused
from quoth import Ack, Client, Message, StagedPart, Transaction
from quoth.core.outgoing import BATCH_BYTES
from quothwire.columns import Column
from quothwire.errors import QuothError
from quothwire.protocol.transaction import PART_MAX, VERSION_MAX

Connect = Callable[..., Client]
KIB = 2**10


def column(*cells: bytes | None) -> Column:
    """Cells in Arrow's layout."""
    there = [cell or b"" for cell in cells]
    offsets = struct.pack(f"<{len(cells) + 1}i", *accumulate(map(len, there), initial=0))
    validity = sum((cell is not None) << i for i, cell in enumerate(cells))
    return Column(offsets, b"".join(there), validity.to_bytes((len(cells) + 7) // 8, "little"))


def messages(client: Client, topic: str) -> list[Message]:
    """Everything in a topic."""
    return [message for batch in client.batches(topic) for message in batch]


def values(client: Client, topic: str) -> list[bytes]:
    """All values of a topic."""
    return [value for batch in client.batches(topic) for value in batch.values]


def staged(transaction: Transaction, number: int, *portions: list[bytes]) -> StagedPart:
    """A part that one attempt has staged, written in portions."""
    with transaction.part(number) as writer:
        for portion in portions:
            writer.write(portion)
        return writer.finish()


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


def test_nothing_is_read_before_it_is_published(client: Client, topic: str) -> None:
    client.create_topic(topic)
    transaction = client.transaction(topic, "app", 0)
    part = staged(transaction, 0, [b"x"] * 100)
    assert values(client, topic) == []
    assert client.topic(topic).count == 0
    assert values(client, topic) == []
    transaction.publish([part])
    assert values(client, topic) == [b"x"] * 100


def test_publishing_again_is_answered_with_the_same_pointers_whatever_parts_are_named(
    client: Client, topic: str
) -> None:
    transaction = client.transaction(topic, "app", 0)
    part = staged(transaction, 0, [b"a", b"b"])
    first = transaction.publish([part])
    for parts in ([part], [], [StagedPart(9, 9, 9, 9)], [part, StagedPart(9, 9, 9, 9)]):
        again = client.transaction(topic, "app", 0).publish(parts)
        assert again == Ack(first.first, first.last, 2, "synced", True)
    assert values(client, topic) == [b"a", b"b"]


def test_only_the_attempt_that_is_named_counts_and_the_others_go(client: Client, topic: str) -> None:
    transaction = client.transaction(topic, "app", 0)
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
    with refused("forgotten_sequence"):
        client.transaction(topic, "é/ \n", 4).status()


def test_same_name_on_another_topic_is_another_transaction(client: Client, topic: str) -> None:
    for name in (topic, f"{topic}-other"):
        transaction = client.transaction(name, "app", 0)
        assert not transaction.publish([staged(transaction, 0, [b"x"])]).duplicate


def test_values_that_name_a_transaction_and_its_parts_go_to_other_processes(
    connect: Connect, broker: BrokerProcess, topic: str
) -> None:
    """What is written by one client is published by another one."""
    one = connect(broker).transaction(topic, "app", 0)
    carried = pickle.loads(pickle.dumps(((one.topic, one.application, one.version), staged(one, 3, [b"x"]))))
    name, part = carried
    other = connect(broker).transaction(*name)
    assert type(part) is StagedPart
    assert other.publish([part]).count == 1
    assert values(connect(broker), topic) == [b"x"]


# -- what a writer takes ------------------------------------------------------------------------------------


def test_writer_takes_what_a_publish_takes(client: Client, topic: str) -> None:
    transaction = client.transaction(topic, "app", 0)
    with transaction.part(0) as writer:
        writer.write(b"alone")
        writer.write([b"a", b"b"], key=[b"k", None])
        writer.write([b"c", b""], key=b"", headers={"h": b"1"})
        writer.write(b"d", headers={})
        writer.write([])
        part = writer.finish()
    assert part[2:] == (1, 6)
    transaction.publish([part])
    assert [one[2:] for one in messages(client, topic)] == [
        (b"alone", None, {}),
        (b"a", b"k", {}),
        (b"b", None, {}),
        (b"c", b"", {"h": b"1"}),
        (b"", b"", {"h": b"1"}),
        (b"d", None, {}),
    ]


def test_columns_stand_between_what_is_written_before_and_behind_them(client: Client, topic: str) -> None:
    transaction = client.transaction(topic, "app", 0)
    with transaction.part(0) as writer:
        writer.append(column(b"1", b""), column(b"k", None))
        writer.write(b"2")
        writer.append(column(b"3"))
        writer.append(column(b"4"))
        part = writer.finish()
    assert part[2:] == (4, 5)
    transaction.publish([part])
    assert [(one.value, one.key) for one in messages(client, topic)] == [
        (b"1", b"k"),
        (b"", None),
        (b"2", None),
        (b"3", None),
        (b"4", None),
    ]


def test_batches_of_a_mebibyte_leave_however_it_is_written(
    client: Client, topic: str, rng: random.Random, seed: int
) -> None:
    sent = [rng.randbytes(rng.choice((0, 10, 1_000, 50_000))) for _ in range(500)]
    transaction = client.transaction(topic, "app", 0)
    parts = []
    for number, width in enumerate((1, 7, 500)):
        portions = [sent[i : i + width] for i in range(0, len(sent), width)]
        parts.append(staged(transaction, number, *portions))
    assert len({part[2:] for part in parts}) == 1, f"QUOTH_SEED={seed}: they are cut otherwise"
    size = sum(map(len, sent)) + 13 * len(sent)
    assert size / BATCH_BYTES <= parts[0].batches <= 1 + size / (BATCH_BYTES - 50_013)
    transaction.publish(parts)
    assert values(client, topic) == sent * 3, f"QUOTH_SEED={seed}"


def test_record_that_is_too_large_is_refused_and_the_part_goes_on(client: Client, topic: str) -> None:
    transaction = client.transaction(topic, "app", 0)
    largest = bytes(16 * 2**20 - KIB)
    with transaction.part(0) as writer:
        writer.write(b"a")
        for wrong in (bytes(16 * 2**20), [b"not this", bytes(17 * 2**20)]):
            with refused("too_large"):
                writer.write(wrong)
        with refused("too_large"):
            writer.append(column(bytes(16 * 2**20)))
        writer.write([b"b", largest, b"c"])
        part = writer.finish()
    transaction.publish([part])
    assert [len(value) for value in values(client, topic)] == [1, 1, len(largest), 1]


@pytest.mark.parametrize(
    "wrong",
    ["text", None, 5, [b"a", "b"], [None], [bytearray(b"a")]],
    ids=repr,
)
def test_writer_refuses_what_are_no_values_and_goes_on(client: Client, topic: str, wrong: Any) -> None:
    transaction = client.transaction(topic, "app", 0)
    with transaction.part(0) as writer:
        writer.write(b"a")
        with refused("bad_request"):
            writer.write(wrong)
        with refused("bad_request"):
            writer.write([b"a", b"b"], key=[b"k"])
        with refused("bad_batch"):
            writer.append(Column(b"", b""))
        writer.write(b"b")
        part = writer.finish()
    transaction.publish([part])
    assert values(client, topic) == [b"a", b"b"]


def test_part_without_records_is_left_out(client: Client, topic: str) -> None:
    transaction = client.transaction(topic, "app", 0)
    empty = staged(transaction, 0)
    assert empty[2:] == (0, 0)
    ack = transaction.publish([empty, staged(transaction, 1, [b"x"]), staged(transaction, 2, [])])
    assert ack.count == 1


def test_publishing_nothing_stores_and_remembers_nothing(client: Client, topic: str) -> None:
    transaction = client.transaction(topic, "app", 0)
    staged(transaction, 0, [b"not published"])
    assert transaction.publish([]).count == 0
    assert transaction.status().state == "unknown"
    assert values(client, topic) == []
    assert transaction.publish([staged(transaction, 0, [b"x"])]).count == 1


def test_writer_that_is_finished_or_closed_takes_nothing_more(client: Client, topic: str) -> None:
    transaction = client.transaction(topic, "app", 0)
    with transaction.part(0) as left:
        left.write(b"x")
    finished = transaction.part(0)
    finished.finish()
    for writer in (left, finished):
        with refused("closed"):
            writer.write(b"x")
        with refused("closed"):
            writer.append(column(b"x"))
        with refused("closed"):
            writer.finish()
        writer.close()


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


def test_abort_removes_what_is_staged_and_nothing_that_is_published(client: Client, topic: str) -> None:
    client.publish(topic, b"before")
    transaction = client.transaction(topic, "app", 0)
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
def test_writer_learns_that_what_it_has_staged_is_gone(client: Client, topic: str, taken: str) -> None:
    client.create_topic(topic)
    transaction = client.transaction(topic, "app", 0)
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


def test_parts_that_are_not_there_are_named_and_those_that_are_stay(client: Client, topic: str) -> None:
    transaction = client.transaction(topic, "app", 0)
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


def test_published_version_takes_nothing_more(client: Client, topic: str) -> None:
    transaction = client.transaction(topic, "app", 0)
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


def test_topic_that_does_not_exist(client: Client, topic: str) -> None:
    transaction = client.transaction(topic, "app", 0)
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


# -- bad arguments ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "code"),
    [
        (("", "app", 0), "bad_topic"),
        (("a/b", "app", 0), "bad_topic"),
        (("t", "", 0), "bad_request"),
        (("t", "x" * 201, 0), "bad_request"),
        (("t", "half \ud800", 0), "bad_request"),
        (("t", None, 0), "bad_request"),
        (("t", b"app", 0), "bad_request"),
        (("t", "app", -1), "bad_request"),
        (("t", "app", VERSION_MAX + 1), "bad_request"),
        (("t", "app", True), "bad_request"),
        (("t", "app", 1.0), "bad_request"),
        (("t", "app", None), "bad_request"),
        (("t", "app", "7" * 10_000), "bad_request"),
    ],
    ids=lambda part: repr(part)[:40],
)
def test_name_that_names_no_transaction_is_refused(client: Client, name: Any, code: str) -> None:
    with pytest.raises(QuothError) as problem:
        client.transaction(*name)
    assert problem.value.code == code
    assert len(str(problem.value)) < 400


@pytest.mark.parametrize("number", [-1, PART_MAX + 1, True, None, "0", 0.0], ids=repr)
def test_number_that_is_no_part_is_refused(client: Client, topic: str, number: Any) -> None:
    with refused("bad_request"):
        client.transaction(topic, "app", 0).part(number)
    with refused("bad_request"):
        client.transaction(topic, "app", 0).part(0, timeout="soon")  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "parts",
    [
        [None],
        [(0, 1, 1, 1)],
        [b"part"],
        [StagedPart(0, 1, 1, 1)] * 2,
        [StagedPart(-1, 1, 1, 1)],
        [StagedPart(0, 2**64, 1, 1)],
        [StagedPart("0", 1, 1, 1)],  # type: ignore[arg-type]
        [StagedPart(0, 1, 2, 1)],
    ],
    ids=lambda parts: repr(parts)[:60],
)
def test_parts_that_are_none_are_refused_before_anything_is_asked(
    client: Client, topic: str, parts: Any
) -> None:
    with refused("bad_request"):
        client.transaction(topic, "app", 0).publish(parts)


def test_more_batches_than_a_transaction_may_have_are_refused(client: Client, topic: str) -> None:
    with pytest.raises(QuothError) as problem:
        client.transaction(topic, "app", 0).publish([StagedPart(i, 1, 2**14, 2**14) for i in range(2)])
    assert problem.value.code == "too_large"
    assert "nothing was published" in problem.value.hint
