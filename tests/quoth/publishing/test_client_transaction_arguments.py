"""The arguments of transactions, and what a part writer takes."""

from __future__ import annotations

import random
import struct
from itertools import accumulate
from typing import Any

import pytest

from kit.broker.peers import refused
from kit.client.records import messages, staged, values
from quoth import Client, StagedPart, Transaction
from quoth.core.outgoing import BATCH_BYTES
from quothwire.columns import Column
from quothwire.errors import QuothError
from quothwire.protocol.transaction import PART_MAX, VERSION_MAX

KIB = 2**10


def column(*cells: bytes | None) -> Column:
    """Cells in Arrow's layout."""
    there = [cell or b"" for cell in cells]
    offsets = struct.pack(f"<{len(cells) + 1}i", *accumulate(map(len, there), initial=0))
    validity = sum((cell is not None) << i for i, cell in enumerate(cells))
    return Column(offsets, b"".join(there), validity.to_bytes((len(cells) + 7) // 8, "little"))


# -- what a writer takes ------------------------------------------------------------------------------------


def test_writer_takes_what_a_publish_takes(client: Client, topic: str, transaction: Transaction) -> None:
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


def test_columns_stand_between_what_is_written_before_and_behind_them(
    client: Client, topic: str, transaction: Transaction
) -> None:
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
    client: Client, topic: str, rng: random.Random, seed: int, transaction: Transaction
) -> None:
    sent = [rng.randbytes(rng.choice((0, 10, 1_000, 50_000))) for _ in range(500)]
    parts = []
    for number, width in enumerate((1, 7, 500)):
        portions = [sent[i : i + width] for i in range(0, len(sent), width)]
        parts.append(staged(transaction, number, *portions))
    assert len({part[2:] for part in parts}) == 1, f"QUOTH_SEED={seed}: they are cut otherwise"
    size = sum(map(len, sent)) + 13 * len(sent)
    assert size / BATCH_BYTES <= parts[0].batches <= 1 + size / (BATCH_BYTES - 50_013)
    transaction.publish(parts)
    assert values(client, topic) == sent * 3, f"QUOTH_SEED={seed}"


def test_record_that_is_too_large_is_refused_and_the_part_goes_on(
    client: Client, topic: str, transaction: Transaction
) -> None:
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
def test_writer_refuses_what_are_no_values_and_goes_on(
    transaction: Transaction, client: Client, topic: str, wrong: Any
) -> None:
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


def test_part_without_records_is_left_out(transaction: Transaction) -> None:
    empty = staged(transaction, 0)
    assert empty[2:] == (0, 0)
    ack = transaction.publish([empty, staged(transaction, 1, [b"x"]), staged(transaction, 2, [])])
    assert ack.count == 1


def test_publishing_nothing_stores_and_remembers_nothing(
    client: Client, topic: str, transaction: Transaction
) -> None:
    staged(transaction, 0, [b"not published"])
    assert transaction.publish([]).count == 0
    assert transaction.status().state == "unknown"
    assert values(client, topic) == []
    assert transaction.publish([staged(transaction, 0, [b"x"])]).count == 1


def test_writer_that_is_finished_or_closed_takes_nothing_more(transaction: Transaction) -> None:
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
