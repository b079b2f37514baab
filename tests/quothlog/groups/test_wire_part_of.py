"""A part of a batch: what its log would have stored if the records had come by themselves."""

from __future__ import annotations

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from kit.disk.logs import stamped
from kit.scale import times
from kit.text.wording import code_of
from quothwire.batch import HEADER_BYTES, Flag, check, decode, encode, parse_header
from quothwire.columns import part_of
from quothwire.headers import encode_headers

LOG_ID, BASE, ORDINAL = 77, 1_000_000, 500
small = st.binary(max_size=9)
headers = st.sampled_from(
    [b"", encode_headers({"a": b""}), encode_headers({"trace": b"\x01", "b": b"x" * 40})]
)


@st.composite
def batches(draw: st.DrawFn) -> tuple[dict[str, Any], int, int]:
    """The columns of a batch, and the first and the last record of a part, as a range."""
    count = draw(st.sampled_from([1, 2, 3, 7, 8, 9, 17, 63, 64, 65, 130]))
    columns: dict[str, Any] = {"values": draw(st.lists(small, min_size=count, max_size=count))}
    if draw(st.booleans()):
        columns["keys"] = draw(st.lists(st.none() | small, min_size=count, max_size=count))
    if draw(st.booleans()):
        columns["headers"] = draw(st.lists(headers, min_size=count, max_size=count))
    start = draw(st.integers(0, count - 1))
    return columns, start, draw(st.integers(start + 1, count))


@settings(max_examples=times(300, 20_000))
@given(batches(), st.booleans())
def test_a_part_is_the_batch_of_its_records(
    given_: tuple[dict[str, Any], int, int], of_producer: bool
) -> None:
    """With their pointers and ordinals; the producer's sequence is that of the whole batch."""
    columns, start, end = given_
    producer: dict[str, Any] = (
        {"producer": 5, "sequence": 9, "flags": int(Flag.SPARSE)} if of_producer else {}
    )
    whole = stamped(encode(**columns, **producer), LOG_ID, BASE, ORDINAL)
    part = part_of(parse_header(whole, LOG_ID), memoryview(whole), start, end, LOG_ID)
    alone = encode(**{name: column[start:end] for name, column in columns.items()})
    assert part == stamped(alone, LOG_ID, BASE + start, ORDINAL + start)
    check(part, LOG_ID)
    found, all_ = decode(part, LOG_ID), decode(whole, LOG_ID)
    for mine, others in zip(found[1:], all_[1:], strict=True):
        assert mine == (others[start:end] if others is not None else None)


@settings(max_examples=times(100, 5_000))
@given(batches(), st.data())
def test_no_part_is_made_of_a_batch_that_is_damaged(
    given_: tuple[dict[str, Any], int, int], data: st.DataObject
) -> None:
    """A part with a checksum of its own would hide the damage."""
    columns, start, end = given_
    whole = bytearray(stamped(encode(**columns), LOG_ID, BASE, ORDINAL))
    header = parse_header(whole, LOG_ID)
    at = data.draw(st.integers(HEADER_BYTES, len(whole) - 1), label="at")
    whole[at] ^= data.draw(st.integers(1, 255), label="bits")
    assert code_of(part_of, header, bytes(whole), start, end, LOG_ID) == "bad_batch"
