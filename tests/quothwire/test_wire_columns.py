"""Columns in Arrow's layout: the same batch as from their records, and the same columns from the batch."""

from __future__ import annotations

import random
import struct
from collections.abc import Callable, Sequence
from itertools import accumulate
from typing import Any

import pytest

from kit.text.wording import code_of
from quothwire.batch import BATCH_BYTES_MAX, BATCH_RECORDS_MAX, Flag, check, decode, encode, parse_header
from quothwire.columns import Column, columns_of, encode_columns
from quothwire.headers import encode_headers

TRACE = encode_headers({"trace": b"\x01"})
COUNTS = (1, 2, 7, 8, 9, 63, 64, 65, 128, 129, 1_000)


def column(cells: Sequence[bytes | None], *, validity: bool = True, trailing: bytes = b"") -> Column:
    """Return the cells as Arrow has them. trailing: bytes of the bitmap behind the last record."""
    present = [cell or b"" for cell in cells]
    offsets = struct.pack(f"<{len(cells) + 1}i", *accumulate(map(len, present), initial=0))
    bits = sum((cell is not None) << i for i, cell in enumerate(cells))
    bitmap = bits.to_bytes((len(cells) + 7) // 8, "little") + trailing if validity else b""
    return Column(offsets, b"".join(present), bitmap)


@pytest.mark.parametrize("kind", [bytes, bytearray, memoryview])
def test_columns_become_the_batch_of_their_records_and_come_back(
    kind: Callable[[Any], Any], rng: random.Random
) -> None:
    options: dict[str, Any] = {"producer": 7, "sequence": 8, "flags": Flag.TRANSACTION}
    for count in COUNTS:
        values = [rng.randbytes(rng.randrange(20)) for _ in range(count)]
        keys = [rng.choice((None, b"", rng.randbytes(3))) for _ in range(count)]
        headers = [rng.choice((b"", TRACE, rng.randbytes(rng.randrange(9)))) for _ in range(count)]
        for chosen in (
            (values, None, None),
            (values, keys, None),
            (values, None, headers),
            (values, keys, headers),
        ):
            columns: list[Any] = [
                None if cells is None else Column(*(kind(part) for part in column(cells))) for cells in chosen
            ]
            whole = encode_columns(*columns, **options)
            assert whole == encode(*chosen, **options)
            assert decode(whole)[1:] == chosen
            cut = columns_of(parse_header(whole, 0), memoryview(whole))
            assert [one and (one.offsets, one.heap) for one in cut] == [
                one and (one.offsets, one.heap) for one in columns
            ]
            if cut.keys is not None:
                assert bytes(cut.keys.validity).rstrip(b"\0") == bytes(columns[1].validity).rstrip(b"\0")


def test_keys_without_a_bitmap_are_all_present() -> None:
    whole = encode_columns(column([b"a", b"b"]), column([b"k", b""], validity=False))
    assert whole == encode([b"a", b"b"], [b"k", b""])


def test_bits_behind_the_last_record_are_ignored() -> None:
    keys = column([b"k", None, b""], trailing=b"\xff" * 8)
    assert encode_columns(column([b"1", b"2", b"3"]), keys) == encode([b"1", b"2", b"3"], [b"k", None, b""])


VALID = column([b"ab", b"c"])
INVALID: dict[str, tuple[tuple[Column, ...], str]] = {
    "no records": ((Column(bytes(4), b""),), "bad_batch"),
    "no offsets": ((Column(b"", b""),), "bad_batch"),
    "a record too many": ((column([b""] * (BATCH_RECORDS_MAX + 1)),), "too_large"),
    "a byte too many": ((column([bytes(BATCH_BYTES_MAX - 64)]),), "too_large"),
    "offsets cut": ((Column(VALID.offsets[:-1], VALID.heap),), "bad_batch"),
    "offsets not from 0": ((Column(struct.pack("<3i", 1, 2, 3), b"abc"),), "bad_batch"),
    "a heap too short": ((Column(VALID.offsets, b"ab"),), "bad_batch"),
    "a heap too long": ((Column(VALID.offsets, b"abcd"),), "bad_batch"),
    "keys of fewer records": ((VALID, column([b"k"])), "bad_batch"),
    "headers of more records": ((VALID, VALID, column([b""] * 3)), "bad_batch"),
    "a bitmap too short": ((column([b""] * 9), Column(bytes(40), b"", b"\xff")), "bad_batch"),
}


@pytest.mark.parametrize(("columns", "code"), INVALID.values(), ids=INVALID)
def test_columns_that_make_no_batch_are_refused(columns: tuple[Column, ...], code: str) -> None:
    assert code_of(encode_columns, *columns) == code


def test_offsets_that_fall_are_found_by_the_check_of_the_batch() -> None:
    assert code_of(check, encode_columns(Column(struct.pack("<3i", 0, 9, 2), b"ab"))) == "bad_batch"
