"""Transactions: parts of any client are in the topic all or none, once, in the order of the publish.

The broker's tests hold the states of a transaction; these hold what a client adds to them.
"""

from __future__ import annotations

import pickle
import struct
from itertools import accumulate
from typing import Any

import pytest

from kit.broker.brokers import BrokerProcess
from kit.broker.peers import refused
from kit.client.records import Connect, messages, staged, values
from quoth import Ack, Client, StagedPart, Transaction
from quoth.core.outgoing import BATCH_BYTES
from quothwire.columns import Column
from quothwire.errors import QuothError
from quothwire.protocol.transaction import PART_MAX, VERSION_MAX

KIB = 2**10

# -- all or none, once --------------------------------------------------------------------------------------


def test_parts_become_consecutive_pointers_in_the_order_in_which_they_are_named(
    client: Client, topic: str
) -> None:
    before = client.publish(topic, b"before")
    transaction = client.transaction(topic, "app", 7)
    assert transaction.status().state == "unknown"
    parts = [staged(transaction, number, [b"%d-%d" % (number, i) for i in range(3)]) for number in range(3)]
    lost = staged(transaction, 0, [b"lost"])
    assert [part[0::2] for part in parts] == [(0, 1), (1, 1), (2, 1)]
    assert {part.records for part in parts} == {3}
    found = transaction.status()
    assert (found.state, found.parts, found.batches, found.records) == ("staged", 4, 4, 10)
    ack = transaction.publish([parts[2], parts[0], parts[1]])
    assert (ack.count, ack.last - ack.first, ack.durability, ack.duplicate) == (9, 8, "synced", False)
    assert ack.first > before.last
    read = messages(client, topic)[1:]
    assert [one.pointer for one in read] == list(range(ack.first, ack.last + 1))
    assert b" ".join(one.value for one in read) == b"2-0 2-1 2-2 0-0 0-1 0-2 1-0 1-1 1-2"
    found = transaction.status()
    assert (found.state, found.first, found.last, found.count) == ("published", ack.first, ack.last, 9)
    assert (found.newest_version, found.log) == (7, client.topic(topic).log)
    for again in ([parts[0]], [], [lost], [StagedPart(9, 9, 9, 9)]):
        assert transaction.publish(again) == Ack(ack.first, ack.last, 9, "synced", True)
    assert client.publish(topic, b"after").first > ack.last


def test_nothing_is_read_before_it_is_published(client: Client, topic: str, transaction: Transaction) -> None:
    client.create_topic(topic)
    part = staged(transaction, 0, [b"x"] * 100)
    assert values(client, topic) == []
    assert client.topic(topic).count == 0
    transaction.publish([part])
    assert values(client, topic) == [b"x"] * 100


def test_one_client_stages_and_another_one_publishes(
    connect: Connect, broker: BrokerProcess, topic: str
) -> None:
    one = connect(broker).transaction(topic, "app", 0)
    name, part = pickle.loads(
        pickle.dumps(((one.topic, one.application, one.version), staged(one, 3, [b"x"])))
    )
    other = connect(broker)
    assert type(part) is StagedPart
    assert other.transaction(*name).publish([part]).count == 1
    assert values(other, topic) == [b"x"]


def test_one_of_several_publishes_after_the_same_newest_version_succeeds(client: Client, topic: str) -> None:
    one, other = (client.transaction(topic, "app", version) for version in (5, 6))
    parts = [[staged(transaction, 0, [b"%d" % transaction.version])] for transaction in (one, other)]
    for newest, code in ((4, "newest_differs"), (-3, "bad_request"), (VERSION_MAX + 1, "too_large")):
        with refused(code):
            one.publish(parts[0], newest=newest)
    one.publish(parts[0], newest=-1)
    with refused("newest_differs"):
        other.publish(parts[1], newest=-1)
    assert other.status().state == "staged"
    other.publish(parts[1], newest=5)
    assert values(client, topic) == [b"5", b"6"]


@pytest.mark.parametrize("gone", ["aborted", "deleted"])
def test_a_writer_reports_that_its_staged_batches_are_gone(
    client: Client, topic: str, gone: str, transaction: Transaction
) -> None:
    client.create_topic(topic)
    writer = transaction.part(0)
    for _ in range(20):
        writer.write(bytes(BATCH_BYTES))
    if gone == "aborted":
        assert transaction.abort().parts == 1
    else:
        client.delete_topic(topic)
    with pytest.raises(QuothError, match=r"part 0.*gone") as problem:
        writer.write([bytes(BATCH_BYTES)] * 20)
    assert problem.value.code == "not_staged"
    with refused("not_staged"):
        writer.write(b"x")
    transaction.publish([staged(transaction, 0, [b"x"])])
    assert values(client, topic) == [b"x"]


def test_a_missing_part_is_named_and_staged_parts_are_kept(
    client: Client, topic: str, transaction: Transaction
) -> None:
    good = staged(transaction, 0, [b"x"] * 3)
    for wrong in (StagedPart(5, 1, 1, 1), good._replace(attempt=1), good._replace(records=4)):
        with pytest.raises(QuothError, match=f"part {wrong.part}") as problem:
            transaction.publish([wrong])
        assert problem.value.code == "not_staged"
        assert not problem.value.retryable
    assert values(client, topic) == []
    assert transaction.publish([good]).count == 3
    with transaction.part(1) as writer:
        writer.write(b"y")
        with pytest.raises(QuothError, match="part 1 of version 0 of 'app'") as problem:
            writer.finish()
    assert problem.value.code == "already_published"


# -- what a writer accepts ----------------------------------------------------------------------------------


def column(*cells: bytes | None) -> Column:
    """Cells in Arrow's layout."""
    there = [cell or b"" for cell in cells]
    offsets = struct.pack(f"<{len(cells) + 1}i", *accumulate(map(len, there), initial=0))
    validity = sum((cell is not None) << i for i, cell in enumerate(cells))
    return Column(offsets, b"".join(there), validity.to_bytes((len(cells) + 7) // 8, "little"))


def test_a_writer_accepts_the_arguments_of_a_publish_and_columns(
    client: Client, topic: str, transaction: Transaction
) -> None:
    with transaction.part(0) as writer:
        writer.write(b"alone")
        writer.write([b"a", b"b"], key=[b"k", None])
        writer.write([b"c", b""], key=b"", headers={"h": b"1"})
        writer.append(column(b"1", b""), column(b"k", None))
        writer.write(b"d", headers={})
        writer.write([])
        writer.append(column(b"3"))
        writer.append(column(b"4"))
        part = writer.finish()
    assert part[2:] == (5, 10)
    transaction.publish([part])
    assert [one[2:] for one in messages(client, topic)] == [
        (b"alone", None, {}),
        (b"a", b"k", {}),
        (b"b", None, {}),
        (b"c", b"", {"h": b"1"}),
        (b"", b"", {"h": b"1"}),
        (b"1", b"k", {}),
        (b"", None, {}),
        (b"d", None, {}),
        (b"3", None, {}),
        (b"4", None, {}),
    ]


def test_a_writer_continues_after_a_refused_write(
    transaction: Transaction, client: Client, topic: str
) -> None:
    largest = bytes(16 * 2**20 - KIB)
    wrong: list[tuple[Any, str]] = [
        *((value, "bad_request") for value in ("text", None, 5, [b"a", "b"], [None], [bytearray(b"a")])),
        (bytes(16 * 2**20), "too_large"),
        ([b"not this", bytes(17 * 2**20)], "too_large"),
    ]
    with transaction.part(0) as writer:
        writer.write(b"a")
        for value, code in wrong:
            with refused(code):
                writer.write(value)
        with refused("bad_request"):
            writer.write([b"a", b"b"], key=[b"k"])
        with refused("bad_batch"):
            writer.append(Column(b"", b""))
        with refused("too_large"):
            writer.append(column(bytes(16 * 2**20)))
        writer.write([b"b", largest, b"c"])
        part = writer.finish()
    transaction.publish([part])
    assert values(client, topic) == [b"a", b"b", largest, b"c"]


def test_empty_parts_and_publishes_store_nothing(
    client: Client, topic: str, transaction: Transaction
) -> None:
    empty = staged(transaction, 0)
    assert empty[2:] == (0, 0)
    for ask in (transaction.status, transaction.abort, lambda: transaction.publish([])):
        with refused("unknown_topic"):
            ask()
    staged(transaction, 0, [b"not published"])
    assert transaction.publish([]).count == 0
    assert transaction.status().state == "unknown"
    parts = [empty, staged(transaction, 1, [b"x"]), staged(transaction, 2, [])]
    assert transaction.publish(parts).count == 1


def test_a_writer_that_is_finished_or_closed_accepts_nothing(transaction: Transaction) -> None:
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


# -- bad arguments ------------------------------------------------------------------------------------------

NAMES: list[tuple[Any, str]] = [
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
]
PARTS: list[Any] = [
    [None],
    [(0, 1, 1, 1)],
    [b"part"],
    [StagedPart(0, 1, 1, 1)] * 2,
    [StagedPart(-1, 1, 1, 1)],
    [StagedPart(0, 2**64, 1, 1)],
    [StagedPart("0", 1, 1, 1)],  # type: ignore[arg-type]
    [StagedPart(0, 1, 2, 1)],
]


def test_wrong_arguments_are_refused_before_a_request(client: Client, transaction: Transaction) -> None:
    for name, code in NAMES:
        with pytest.raises(QuothError) as problem:
            client.transaction(*name)
        assert problem.value.code == code, name
        assert len(str(problem.value)) < 400
    for number in (-1, PART_MAX + 1, True, None, "0", 0.0):
        with refused("bad_request"):
            transaction.part(number)  # type: ignore[arg-type]
    with refused("bad_request"):
        transaction.part(0, timeout="soon")  # type: ignore[arg-type]
    for parts in PARTS:
        with refused("bad_request"):
            transaction.publish(parts)
    with refused("too_large"):
        transaction.publish([StagedPart(i, 1, 2**14, 2**14) for i in range(2)])
