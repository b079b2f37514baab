"""Transactions on the wire: the producer id of an application, the list of parts, the flags of a batch."""

from __future__ import annotations

import pickle
import random
import struct
from typing import Any

import pytest
from xxhash import xxh3_64_intdigest

from kit.text.wording import code_of, error_of
from quothwire.batch import Flag, check, claimed, encode, parse_header
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
    producer_from,
    producer_of,
    sequence_of,
)

U64 = 2**64 - 1

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


def packed(parts: list[Any]) -> bytes:
    return b"".join(struct.pack("<QQQQ", *part) for part in parts)


def test_parts_are_read_in_the_order_in_which_they_were_written(rng: random.Random) -> None:
    for number_of_parts in (0, 1, 2, 1_000):
        numbers = rng.sample(range(PART_MAX + 1), number_of_parts)
        parts = [
            StagedPart(number, rng.choice((0, U64, rng.getrandbits(64))), n := rng.randint(1, 9), n * 100)
            for number in numbers
        ]
        assert encode_parts(iter(parts)) == packed(parts)
        assert decode_parts(packed(parts), number_of_parts) == parts
    part = StagedPart(3, U64, 2, 5)
    assert pickle.loads(pickle.dumps(part)) == part
    assert type(pickle.loads(pickle.dumps(part))) is StagedPart


@pytest.mark.parametrize(("parts", "code"), BAD_PARTS.values(), ids=BAD_PARTS)
def test_invalid_parts_are_refused_on_both_sides(parts: list[Any], code: str) -> None:
    assert code_of(encode_parts, parts) == code
    assert code_of(decode_parts, packed(parts), len(parts)) == code


def test_parts_that_are_not_four_numbers_and_payloads_of_another_length_are_refused() -> None:
    wrong: tuple[Any, ...] = ([(1, 2, 3)], [(1, 2, 3, "4")], [(1, -1, 1, 1)], [(1, 2**64, 1, 1)], [None])
    for parts in wrong:
        assert code_of(encode_parts, parts) == "bad_request", parts
    payload = packed([(1, 1, 1, 1), (2, 1, 1, 1)])
    for length, number in ((0, 1), (31, 1), (33, 1), (64, 1), (32, 0), (32, 2)):
        assert code_of(decode_parts, payload[:length], number) == "bad_request"


def test_producer_id_is_the_hash_of_the_name_and_ends_in_16_zero_bits_if_it_is_used_once() -> None:
    for name in ("a", "x" * APPLICATION_BYTES_MAX, "é" * 100, "a/b c\n", "0"):
        assert check_application(name) == name
        assert producer_of(name) == xxh3_64_intdigest(name.encode()) > 0
        assert not is_once(producer_of(name))
    for name in (f"~{number}" for number in range(100)):
        assert is_once(producer_of(name))
        assert producer_of(name) >> 16 == xxh3_64_intdigest(name.encode()) >> 16 > 0
    for name in ("", "x" * (APPLICATION_BYTES_MAX + 1), "€" * 67, "half \ud800"):
        problem = error_of(check_application, name)
        assert problem.code == "bad_request"
        assert "application" in problem.text


@pytest.mark.parametrize("digest", [0, 31, 5 << 16])
def test_producer_id_is_never_0_and_says_whether_the_name_is_used_once(digest: int) -> None:
    """For hashes that no known name has."""
    for is_used_once in (False, True):
        producer = producer_from(digest, is_used_once)
        assert producer > 0
        assert is_once(producer) is is_used_once
    assert producer_from(digest, False) == digest | (digest & 0xFFFF == 0)


def test_sequence_follows_the_version_and_is_never_0() -> None:
    assert (sequence_of(0), sequence_of(VERSION_MAX)) == (1, VERSION_MAX + 1)


def test_batch_under_another_producer_belongs_to_no_transaction() -> None:
    whole = encode([b"a", b"b"], [b"k", None], producer=5, sequence=6, flags=Flag.TRANSACTION | Flag.END)
    own = claimed(whole, parse_header(whole, 0), 9, 1, Flag.SPARSE)
    assert check(own).flags == Flag.KEYS | Flag.SPARSE
    assert check(own)[6:8] == (9, 1)
