"""Columns in Arrow's layout become the batches that their records become."""

from __future__ import annotations

import random
import struct
from collections.abc import Callable, Sequence
from itertools import accumulate
from typing import Any

import pytest

from quothwire.batch import BATCH_BYTES_MAX, BATCH_RECORDS_MAX, Flag, check, decode, encode
from quothwire.columns import Column, encode_columns
from quothwire.errors import RequestError
from quothwire.headers import encode_headers

TRACE = encode_headers({"trace": b"\x01"})
COUNTS = (1, 2, 7, 8, 9, 63, 64, 65, 128, 129, 1_000)


def column(cells: Sequence[bytes | None], *, validity: bool = True, trailing: bytes = b"") -> Column:
    """The cells as Arrow would hold them; trailing: bytes of a bitmap that lie behind the last record's."""
    there = [cell or b"" for cell in cells]
    offsets = struct.pack(f"<{len(cells) + 1}i", *accumulate(map(len, there), initial=0))
    bits = sum((cell is not None) << i for i, cell in enumerate(cells))
    bitmap = bits.to_bytes((len(cells) + 7) // 8, "little") + trailing if validity else b""
    return Column(offsets, b"".join(there), bitmap)


@pytest.mark.parametrize("count", COUNTS)
@pytest.mark.parametrize("kind", [bytes, bytearray, memoryview])
def test_columns_become_the_batch_that_their_records_become(
    count: int, kind: Callable[[Any], Any], rng: random.Random, seed: int
) -> None:
    values = [rng.randbytes(rng.randrange(20)) for _ in range(count)]
    keys = [rng.choice((None, b"", rng.randbytes(3))) for _ in range(count)]
    headers = [rng.choice((b"", TRACE)) for _ in range(count)]
    for chosen in (
        (values, None, None),
        (values, keys, None),
        (values, None, headers),
        (values, keys, headers),
    ):
        columns: list[Any] = [
            None if cells is None else Column(*(kind(part) for part in column(cells))) for cells in chosen
        ]
        options: dict[str, Any] = {"producer": 7, "sequence": 8, "flags": int(Flag.TRANSACTION)}
        whole = encode_columns(*columns, **options)
        assert whole == encode(*chosen, **options), f"QUOTH_SEED={seed}"
        assert decode(whole)[1:] == chosen


def test_keys_without_a_bitmap_are_all_there() -> None:
    whole = encode_columns(column([b"a", b"b"]), column([b"k", b""], validity=False))
    assert whole == encode([b"a", b"b"], [b"k", b""])


def test_bits_behind_the_last_record_are_left_away() -> None:
    keys = column([b"k", None, b""], trailing=b"\xff" * 8)
    assert encode_columns(column([b"1", b"2", b"3"]), keys) == encode([b"1", b"2", b"3"], [b"k", None, b""])


FITTING = column([b"ab", b"c"])
WRONG: dict[str, tuple[tuple[Column, ...], str]] = {
    "no records": ((Column(bytes(4), b""),), "bad_batch"),
    "no offsets": ((Column(b"", b""),), "bad_batch"),
    "a record too many": ((column([b""] * (BATCH_RECORDS_MAX + 1)),), "too_large"),
    "a byte too many": ((column([bytes(BATCH_BYTES_MAX - 64)]),), "too_large"),
    "offsets cut": ((Column(FITTING.offsets[:-1], FITTING.heap),), "bad_batch"),
    "offsets not from 0": ((Column(struct.pack("<3i", 1, 2, 3), b"abc"),), "bad_batch"),
    "a heap too short": ((Column(FITTING.offsets, b"ab"),), "bad_batch"),
    "a heap too long": ((Column(FITTING.offsets, b"abcd"),), "bad_batch"),
    "keys of fewer records": ((FITTING, column([b"k"])), "bad_batch"),
    "headers of more records": ((FITTING, FITTING, column([b""] * 3)), "bad_batch"),
    "a bitmap too short": ((column([b""] * 9), Column(bytes(40), b"", b"\xff")), "bad_batch"),
}


@pytest.mark.parametrize("name", WRONG)
def test_columns_that_fit_no_batch_are_refused(name: str) -> None:
    columns, code = WRONG[name]
    with pytest.raises(RequestError) as refusal:
        encode_columns(*columns)
    assert refusal.value.code == code


def test_offsets_that_fall_are_seen_by_the_check_of_the_batch() -> None:
    whole = encode_columns(Column(struct.pack("<3i", 0, 9, 2), b"ab"))
    with pytest.raises(RequestError) as refusal:
        check(whole)
    assert refusal.value.code == "bad_batch"
