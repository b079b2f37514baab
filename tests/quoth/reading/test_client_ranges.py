"""Ranges through a client: counts, advances and splits, and the stored batches of a range."""

from __future__ import annotations

import random
from collections.abc import Iterable

from kit.broker.peers import refused
from kit.broker.proxies import Meddler
from kit.client.records import Connect
from quoth import Ack, Client, Gap, PointerRange, StoredBatch
from quothwire import batch
from quothwire.protocol.messages import Operation
from quothwire.record import records_of


def filled(client: Client, topic: str) -> list[int]:
    """Some segments of batches of several sizes; the pointers of their records."""
    pointers: list[int] = []
    for row in range(12):
        ack: Ack = client.publish(topic, [b"value %d" % i for i in range(1 + row % 5)])
        pointers += range(ack.first, ack.last + 1)
        if row % 4 == 3:
            client.roll(topic)
    return pointers


def pointers_of(found: Iterable[StoredBatch]) -> list[int]:
    """The pointers of all records in stored batches."""
    return [record.pointer for one in found for record in records_of(batch.decode(one.data, one.log))]


def test_parts_of_a_topic_hold_each_record_once(client: Client, topic: str, seed: int) -> None:
    """Advance as a stream does, split as its tasks are, read each part as it is stored."""
    rng, pointers = random.Random(seed), filled(client, topic)
    read: list[int] = []
    after = 0
    while (step := client.advance(topic, after, max_records=rng.randrange(1, 15))).records:
        parts = client.split(topic, step.after, step.until, rng.randrange(1, 5))
        assert sum(one.records for one in parts) == step.records
        for part in parts:
            found = pointers_of(client.stored(topic, after=part.after, until=part.until))
            within = [one for one in found if part.after < one <= part.until]
            assert len(within) == part.records
            read += within
        after = step.until
    assert read == pointers


def test_a_range_is_counted(client: Client, topic: str) -> None:
    pointers = filled(client, topic)
    assert client.count(topic).records == len(pointers)
    counted = client.count(topic, pointers[3], pointers[9])
    assert (counted.records, counted.first, counted.last) == (6, pointers[4], pointers[9])
    assert client.advance(topic, max_bytes=1).records == 1
    (one,) = client.split(topic, 0, pointers[-1], 1)
    assert one == PointerRange(0, pointers[-1], len(pointers), client.count(topic).bytes)


def test_stored_batches_are_fetched_in_chunks_of_mebibytes(
    meddler: Meddler, connect: Connect, topic: str
) -> None:
    client = connect(meddler)
    for _ in range(32):
        client.publish(topic, [bytes(250_000)])
    meddler.requests.clear()
    assert len(list(client.stored(topic))) == 32
    fetched = [one for one in meddler.requests if one.operation is Operation.FETCH]
    assert len(fetched) <= 4


def test_stored_batches_end_at_the_last_one(client: Client, topic: str) -> None:
    pointers = filled(client, topic)
    assert pointers_of(client.stored(topic)) == pointers
    assert pointers_of(client.stored(topic, after=pointers[-1])) == []
    assert pointers_of(client.stored(topic, after=pointers[-1], wait=0.01)) == []
    assert [one.header.base for one in client.stored(topic, after=pointers[1], until=pointers[2])] == [
        pointers[1]
    ], "the batch in which the range begins and ends"


def test_an_invalid_range_is_refused_by_the_client(client: Client, topic: str) -> None:
    client.publish(topic, b"x")
    for code, call in {
        "bad_request": (
            lambda: client.stored(topic, after=2, until=1),
            lambda: client.split(topic, 2, 1, 1),
            lambda: client.advance(topic, max_records=2**64),
            lambda: client.stored(topic, wait=float("nan")),
        ),
        "bad_pointer": (
            lambda: client.stored(topic, after=-1),
            lambda: client.count(topic, 0, 2**56),
            lambda: client.advance(topic, -1),
        ),
    }.items():
        for one in call:
            with refused(code):
                one()


def test_records_removed_from_a_range_are_a_gap(client: Client, topic: str) -> None:
    """Part of it, and all of it."""
    pointers = filled(client, topic)
    first_kept = client.trim(topic, pointers[15]).first
    assert first_kept > pointers[3]
    gaps: list[Gap] = []
    list(client.stored(topic, after=pointers[3], until=pointers[-1], on_gap=gaps.append))
    assert [(gap.reason, gap.after, gap.next) for gap in gaps] == [("trimmed", pointers[3], first_kept)]
    gaps.clear()
    assert list(client.stored(topic, after=pointers[0], until=pointers[3], on_gap=gaps.append)) == []
    assert [(gap.reason, gap.after, gap.next) for gap in gaps] == [("trimmed", pointers[0], pointers[3] + 1)]
