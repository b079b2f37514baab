"""Batches with right checksums and wrong content: the decoder compares each claim with the bytes.

The vectors have more of them, which other clients refuse, too.
"""

from __future__ import annotations

import random
import struct
from collections.abc import Callable, Collection
from typing import Any

import pytest

from kit.forged import ABC, forge, ints, padded
from kit.text.wording import code_of, error_of
from quothwire import batch

KEYS, HEADERS, SPARSE, START, ORDINAL = 1, 2, 4, 8, 16
POINTER_MAX = 2**56 - 1
LOG = 0xA5A5_0000_1234_5678
MIB = 2**20


def word(bits: int) -> bytes:
    return bits.to_bytes(8, "little")


INT_MAX, INT_MIN = 2**31 - 1, -(2**31)

ACCEPTED: dict[str, tuple[bytes, list[bytes], list[bytes | None] | None]] = {
    "plain": (forge(ABC, 3), [b"a", b"b", b"c"], None),
    "every flag": (
        forge(padded(ints(0, 1, 0, 1, 0, 1) + word(1) + b"vkh"), 1, KEYS | HEADERS | SPARSE | START),
        [b"v"],
        [b"k"],
    ),
    "sequences that count records": (forge(ABC, 3, ORDINAL | START), [b"a", b"b", b"c"], None),
    "the last pointer": (forge(ABC, 3, base=POINTER_MAX - 2), [b"a", b"b", b"c"], None),
    "a null key that has bytes": (forge(padded(ints(0, 1, 0, 1) + word(0) + b"vk"), 1, KEYS), [b"v"], [None]),
    "bits beyond the last record": (
        forge(padded(ints(0, 1, 0, 1) + word(2**64 - 1) + b"vk"), 1, KEYS),
        [b"v"],
        [b"k"],
    ),
}
REFUSED: dict[str, bytes] = {
    # offsets of values
    "offset the smallest number": forge(padded(ints(0, INT_MIN, 2, 3) + b"abc"), 3),
    "last offset short of the heap": forge(ints(0, 1, 2, 3) + b"abc" + bytes(13), 3),
    "middle offset beyond the heap": forge(padded(ints(0, 1, INT_MAX, 3) + b"abc"), 3),
    # offsets of keys and headers
    "key offsets fall": forge(padded(ints(0, 1, 2, 0, 2, 1) + word(3) + b"vvk"), 2, KEYS),
    "value offset takes the keys too": forge(padded(ints(0, 9, 0, 1) + word(1) + b"vk"), 1, KEYS),
    "two columns add up by an overflow": forge(
        padded(ints(0, INT_MAX, 0, INT_MIN + 3) + word(1) + b"vk"), 1, KEYS
    ),
    "header offsets not from 0": forge(padded(ints(0, 1, 1, 1) + b"vh"), 1, HEADERS),
    "header offset beyond the heap": forge(padded(ints(0, 1, 0, 2**20) + b"vh"), 1, HEADERS),
    "flag of headers without headers": forge(ABC, 3, HEADERS),
    "keys without their flag": forge(padded(ints(0, 1, 0, 1) + word(1) + b"vk"), 1),
    "bitmap of one byte": forge(padded(ints(0, 1, 0, 1) + b"\x01vk"), 1, KEYS),
    # counts and lengths
    "a record, no body": forge(b"", 1),
    "2**31 records": forge(ABC, 2**31),
    "body shorter than claimed": forge(ABC, 3, body_bytes=len(ABC) + 8),
    "body longer than claimed": forge(ABC, 3, body_bytes=len(ABC) - 8),
    "body of 4 GiB claimed": forge(ABC, 3, body_bytes=2**32 - 1),
    "body claimed one step above the limit": forge(ABC, 3, body_bytes=16 * MIB - 56),
    "body not a multiple of 8": forge(ints(0, 3) + b"abc", 1),
    "padding of eight too many": forge(ABC + bytes(8), 3),
    # header
    "pointer of 64 bits": forge(ABC, 3, base=2**64 - 1),
    "pointer that wraps": forge(ABC, 3, base=2**64 - 2),
    "all 16 flags": forge(ABC, 3, 0xFFFF),
    # no batch at all
    "nothing": b"",
    **{f"{count} zeros": bytes(count) for count in (1, 63, 65, 4_096)},
}

TOO_LARGE = frozenset(
    REFUSED[name]
    for name in ("2**31 records", "body of 4 GiB claimed", "body claimed one step above the limit")
)
"""Counts above their limits. The same mistake has this code in the simple protocol."""


@pytest.mark.parametrize(("whole", "values", "keys"), ACCEPTED.values(), ids=ACCEPTED)
def test_batch_that_the_layout_allows_is_read(
    whole: bytes, values: list[bytes], keys: list[bytes | None] | None
) -> None:
    decoded = batch.decode(whole)
    assert (decoded.values, decoded.keys) == (values, keys)


@pytest.mark.parametrize("whole", REFUSED.values(), ids=REFUSED)
def test_batch_that_the_layout_forbids_is_refused_without_memory(
    whole: bytes, peak_bytes: Callable[..., int]
) -> None:
    for read in (batch.check, batch.decode):
        assert code_of(read, whole) == ("too_large" if whole in TOO_LARGE else "bad_batch")
    assert peak_bytes(batch.decode, whole) < 2**17


def test_claim_of_a_header_takes_no_memory(peak_bytes: Callable[..., int]) -> None:
    for body_bytes in (0, 8, 16 * MIB - 64, 2**32 - 8):
        for records in (0, 1, 100_000, 2**32 - 1):
            whole = forge(b"", records, KEYS | HEADERS, body_bytes=body_bytes, log_id=LOG) + ABC
            for read in (batch.parse_header, batch.split, batch.check, batch.decode):
                assert peak_bytes(read, whole, LOG) < 2**16
            above = records > 100_000 or body_bytes > 16 * MIB - 64
            assert code_of(batch.check, whole, LOG) == ("too_large" if above else "bad_batch")


def test_header_alone_is_refused_for_its_claims() -> None:
    """A reader that reads the header first can trust the size in it."""
    assert batch.parse_header(forge(ABC, 3), 0).records == 3
    claims: dict[str, list[dict[str, Any]]] = {
        "too_large": [{"body_bytes": 16 * MIB - 56}, {"body_bytes": 2**32 - 8}, {"records": 100_001}],
        "bad_batch": [
            {"body_bytes": 12},
            {"records": 0},
            {"base": POINTER_MAX - 1},
            {"flags": 32},
            {"kind": 3},
        ],
    }
    for code, wrongs in claims.items():
        for wrong in wrongs:
            assert code_of(batch.parse_header, forge(ABC, **{"records": 3, **wrong}), 0) == code


def body_of(whole: bytes | bytearray, found: bytes | None = None) -> memoryview:
    """Return the body of a batch, of which only the bytes `found` were read."""
    return batch.body_of(whole if found is None else found, batch.parse_header(whole, 0))


def test_body_is_returned_without_a_check_of_its_offsets() -> None:
    falling = padded(ints(0, 2, 1, 3) + b"abc")
    whole = forge(falling, 3)
    assert body_of(whole) == falling
    assert "offsets do not rise" in error_of(batch.check, whole).text
    assert "body's checksum" in error_of(body_of, whole[:-1] + b"\1").text
    for cut in (64, len(whole) - 8, len(whole) - 1):
        text = f"{cut} bytes where the header says {len(whole)}"
        assert error_of(body_of, whole, whole[:cut]).text == text


def test_checksum_of_the_body_covers_count_and_flags() -> None:
    """The log stamps the header again, which would hide a damaged count."""
    header = batch.check(forge(ABC, 3))
    for other in (header._replace(records=2), header._replace(flags=SPARSE)):
        assert "body's checksum" in error_of(batch.check, batch.stamp(other, 0) + ABC).text


def by_hand(whole: bytes, records: int, flags: int) -> tuple[list[bytes], list[bytes | None] | None]:
    """Cut values and keys out of an accepted batch as the layout is documented."""
    column = 4 * (records + 1)
    count = 1 + bool(flags & KEYS) + bool(flags & HEADERS)
    heap = 64 + column * count + ((records + 63) // 64 * 8 if flags & KEYS else 0)
    ends = struct.unpack_from(f"<{records + 1}i", whole, 64)
    values = [whole[heap + ends[i] : heap + ends[i + 1]] for i in range(records)]
    if not flags & KEYS:
        return values, None
    heap += ends[-1]
    ends = struct.unpack_from(f"<{records + 1}i", whole, 64 + column)
    bitmap = int.from_bytes(whole[64 + column * count :][: (records + 7) // 8], "little")
    return values, [
        whole[heap + ends[i] : heap + ends[i + 1]] if bitmap >> i & 1 else None for i in range(records)
    ]


def test_any_body_with_right_checksums_is_read_or_refused(
    rng: random.Random, settle: Callable[[Any, Any, Collection[str], str], Any]
) -> None:
    taken = 0
    for attempt in range(6_000):
        records, flags = rng.randint(1, 6), rng.randrange(4)
        whole = _forged(rng, records, flags)
        decoded = settle(batch.decode, whole, {"bad_batch"}, f"attempt {attempt}")
        if decoded is not None:
            taken += 1
            assert (decoded.values, decoded.keys) == by_hand(whole, records, flags)
    assert 500 < taken < 5_500, f"{taken} accepted: this no longer tries both outcomes"


def _forged(rng: random.Random, records: int, flags: int) -> bytes:
    """Return a valid batch or, more often, one with changed offsets or overwritten bytes of the body."""
    heaps = b""
    offsets: list[int] = []
    for _ in range(1 + bool(flags & KEYS) + bool(flags & HEADERS)):
        ends = sorted(rng.randrange(6) for _ in range(records))
        offsets += [0, *ends]
        heaps += rng.randbytes(ends[-1])
    for _ in range(rng.choice((0, 1, 1, 2))):
        offsets[rng.randrange(len(offsets))] += rng.choice((-9, -2, -1, 1, 2, 8, 2**29))
    bitmap = rng.randbytes(8) if flags & KEYS else b""
    body = bytearray(padded(ints(*offsets) + bitmap + heaps))
    for _ in range(rng.choice((0, 0, 1))):
        body[rng.randrange(len(body))] = rng.randrange(256)
    return forge(bytes(body), records, flags)
