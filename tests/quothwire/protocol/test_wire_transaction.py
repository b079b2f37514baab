"""Transactions on the wire: an application's name and producer, the list of parts, the flags of a batch."""

from __future__ import annotations

import pickle
import random
import struct
from typing import Any

import pytest
from xxhash import xxh3_64_intdigest

from kit.text import vectors
from quothwire.batch import Flag, check, claimed, encode, parse_header
from quothwire.errors import QuothError, RequestError
from quothwire.protocol import transaction
from quothwire.protocol.transaction import (
    APPLICATION_BYTES_MAX,
    BATCHES_MAX,
    PART_MAX,
    VERSION_MAX,
    StagedPart,
    check_application,
    decode_parts,
    encode_parts,
    is_once,
    producer_of,
    sequence_of,
)

U64 = 2**64 - 1
FAST = vectors.load("fast")

BAD_PARTS: dict[str, tuple[list[Any], str]] = {
    "no batch": ([StagedPart(0, 1, 0, 0)], "bad_request"),
    "records without a batch": ([StagedPart(0, 1, 0, 5)], "bad_request"),
    "fewer records than batches": ([StagedPart(0, 1, 3, 2)], "bad_request"),
    "a part above the last": ([StagedPart(PART_MAX + 1, 1, 1, 1)], "too_large"),
    "a part twice": ([StagedPart(4, 1, 1, 1), StagedPart(4, 2, 1, 1)], "bad_request"),
    "the same twice": ([StagedPart(4, 1, 1, 1)] * 2, "bad_request"),
    "a batch too many": ([StagedPart(0, 1, BATCHES_MAX, U64), StagedPart(1, 1, 1, 1)], "too_large"),
    "batches beyond 64 bits": ([StagedPart(i, 1, U64, U64) for i in range(3)], "too_large"),
}


def code_of(problem: pytest.ExceptionInfo[QuothError]) -> str:
    assert len(problem.value.text) < 300
    return problem.value.code


def packed(parts: list[Any]) -> bytes:
    return b"".join(struct.pack("<QQQQ", *part) for part in parts)


def test_parts_lie_as_documented() -> None:
    """In the vectors too, which know nothing of the package."""
    vector = next(one for one in FAST["requests"] if one["name"] == "publish staged")
    payload = bytes.fromhex(vector["payload"])
    assert [struct.unpack_from("<QQQQ", payload, 32 * i) for i in range(2)] == [
        (1, 0x0123456789ABCDEF, 2, 2000),
        (0, U64, 1, 1),
    ]
    assert encode_parts(decode_parts(payload, 2)) == payload


def test_parts_are_read_as_they_were_written_in_their_order(rng: random.Random, seed: int) -> None:
    for count in (0, 1, 2, 1_000):
        numbers = rng.sample(range(PART_MAX + 1), count)
        parts = [
            StagedPart(number, rng.choice((0, U64, rng.getrandbits(64))), n := rng.randint(1, 9), n * 100)
            for number in numbers
        ]
        assert decode_parts(encode_parts(iter(parts)), count) == parts, f"QUOTH_SEED={seed}"


@pytest.mark.parametrize("name", BAD_PARTS)
def test_parts_that_cannot_be_are_refused_on_both_sides(name: str) -> None:
    parts, code = BAD_PARTS[name]
    with pytest.raises(RequestError) as problem:
        encode_parts(parts)
    assert code_of(problem) == code
    with pytest.raises(RequestError) as problem:
        decode_parts(packed(parts), len(parts))
    assert code_of(problem) == code


@pytest.mark.parametrize(
    "parts", [[(1, 2, 3)], [(1, 2, 3, "4")], [StagedPart(1, -1, 1, 1)], [StagedPart(1, 2**64, 1, 1)], [None]]
)
def test_parts_that_are_no_numbers_are_refused(parts: Any) -> None:
    with pytest.raises(RequestError) as problem:
        encode_parts(parts)
    assert code_of(problem) == "bad_request"


@pytest.mark.parametrize(("length", "count"), [(0, 1), (31, 1), (33, 1), (64, 1), (32, 0), (32, 2)])
def test_payload_of_another_length_than_its_parts_is_refused(length: int, count: int) -> None:
    with pytest.raises(RequestError) as problem:
        decode_parts(packed([(1, 1, 1, 1), (2, 1, 1, 1)]).ljust(length, b"\0")[:length], count)
    assert code_of(problem) == "bad_request"


def test_staged_part_can_be_pickled() -> None:
    part = StagedPart(3, U64, 2, 5)
    assert pickle.loads(pickle.dumps(part)) == part
    assert type(pickle.loads(pickle.dumps(part))) is StagedPart


@pytest.mark.parametrize("name", ["", "x" * (APPLICATION_BYTES_MAX + 1), "€" * 67, "half \ud800"])
def test_bad_name_of_an_application_is_refused(name: str) -> None:
    with pytest.raises(RequestError) as problem:
        check_application(name)
    assert code_of(problem) == "bad_request"
    assert "application" in problem.value.text


@pytest.mark.parametrize("name", ["a", "x" * APPLICATION_BYTES_MAX, "é" * 100, "a/b c\n", "0"])
def test_application_has_a_producer_id_that_follows_from_its_name(name: str) -> None:
    assert check_application(name) == name
    assert producer_of(name) == xxh3_64_intdigest(name.encode()) > 0
    assert not is_once(producer_of(name))


def test_name_that_is_used_once_has_another_kind_of_producer_id(rng: random.Random, seed: int) -> None:
    for _ in range(100):
        name = f"~{rng.random()}"
        producer = producer_of(name)
        assert is_once(producer), f"QUOTH_SEED={seed}"
        assert producer >> 16 == xxh3_64_intdigest(name.encode()) >> 16 > 0


def test_no_other_name_is_taken_for_one_that_is_used_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of 65,536 names one would be by its digest alone; nobody finds a name with the digest 0."""
    for digest in (0, 5 << 16):
        monkeypatch.setattr(transaction, "xxh3_64_intdigest", lambda _, digest=digest: digest)
        assert producer_of("a") == digest + 1
        assert not is_once(producer_of("a"))
        assert is_once(producer_of("~a"))
        assert producer_of("~a") > 0


def test_sequence_of_no_version_is_0() -> None:
    assert (sequence_of(0), sequence_of(VERSION_MAX)) == (1, VERSION_MAX + 1)


def test_batch_that_is_sent_on_belongs_to_no_transaction_any_more() -> None:
    whole = encode([b"a", b"b"], [b"k", None], producer=5, sequence=6, flags=Flag.TRANSACTION | Flag.END)
    own = claimed(whole, parse_header(whole, 0), 9, 1, int(Flag.SPARSE))
    assert check(own).flags == Flag.KEYS | Flag.SPARSE
    assert check(own)[6:8] == (9, 1)
