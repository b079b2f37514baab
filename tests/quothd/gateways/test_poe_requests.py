"""The bytes of Poe's protocol, without a socket: any bytes are requests, need more, or close."""

from __future__ import annotations

import random

import pytest

from kit.gateways.poe import put_frame, read_frame
from kit.gateways.poe_vectors import CASES
from kit.scale import times
from quothd.gateways.poe.protocol import (
    FRAME_BYTES_MAX,
    REPLY_BYTES_MAX,
    PoeClose,
    PoePut,
    PoeRead,
    PoeRecords,
    PoeRequest,
    PoeRequests,
    encode_stored,
)
from quothwire.batch import BATCH_BYTES_MAX, BATCH_RECORDS_MAX, HEADER_BYTES
from quothwire.pointer import POINTER_MAX

SENT = [
    bytes.fromhex(step["send"])
    for case in CASES
    for step in case["steps"]
    if "send" in step and "{" not in step["send"]
]


def found_in(pieces: list[bytes]) -> list[PoeRequest | PoeClose]:
    """Return what is found in the bytes of a connection, up to its end."""
    requests = PoeRequests()
    found: list[PoeRequest | PoeClose] = []
    for piece in pieces:
        requests.receive(piece)
        while (one := requests.next()) is not None:
            found.append(one)
            if isinstance(one, PoeClose):
                return found
    return found


def test_requests_are_the_same_in_pieces_of_any_size(rng: random.Random) -> None:
    for _ in range(times(200, 5_000)):
        data = b"".join(rng.choices(SENT, k=rng.randint(1, 4)))
        whole = found_in([data])
        assert found_in([bytes([one]) for one in data]) == whole
        size = rng.randint(1, 20)
        assert found_in([data[at : at + size] for at in range(0, len(data), size)]) == whole


def test_any_bytes_are_requests_or_need_more_or_close(rng: random.Random) -> None:
    """Nothing else is raised; and what was found ends where a frame ends, whatever follows."""
    for _ in range(times(3_000, 100_000)):
        data = bytearray(b"".join(rng.choices(SENT, k=rng.randint(1, 3))))
        for _ in range(rng.randint(0, 3)):
            data[rng.randrange(len(data))] = rng.choice((0, 1, 2, 3, 255, rng.randrange(256)))
        if rng.random() < 0.2:
            data = bytearray(rng.randbytes(rng.randint(1, 40)))
        found = found_in([bytes(data)])
        for one in found:
            match one:
                case PoeRead(topic, after, limit):
                    assert 0 <= after <= POINTER_MAX
                    assert limit >= 2
                    assert len(topic.encode()) <= 200
                case PoePut(topic, values):
                    assert 1 <= len(topic.encode()) <= 200
                    assert values
                    assert all(values)
                case _:
                    assert one is found[-1]
        if all(not isinstance(one, PoeClose) and one.topic for one in found):  # else a name is left out
            used = b"".join(map(encoded, found))
            assert data.startswith(used)
            assert found_in([bytes(data[len(used) :])]) == []


def encoded(request: PoeRequest | PoeClose) -> bytes:
    if isinstance(request, PoePut):
        return put_frame(request.topic.encode(), request.values)
    assert isinstance(request, PoeRead)
    return read_frame(request.topic.encode(), request.after, request.limit)


def test_what_a_batch_cannot_hold_is_closed_before_its_bytes_are_there() -> None:
    requests = PoeRequests()
    requests.receive((FRAME_BYTES_MAX + 1).to_bytes(4, "big"))
    assert isinstance(requests.next(), PoeClose)
    requests.receive(bytes(1_000))
    assert requests.received == 0
    requests = PoeRequests()
    requests.receive(FRAME_BYTES_MAX.to_bytes(4, "big") + b"\0\2")
    assert requests.next() is None
    assert requests.expected == 4 + FRAME_BYTES_MAX
    requests = PoeRequests()
    requests.receive(FRAME_BYTES_MAX.to_bytes(4, "big") + b"\0\4")
    assert isinstance(requests.next(), PoeClose)


def test_no_put_that_fits_into_a_batch_is_too_large_for_a_frame() -> None:
    topic = b"t" * 200
    for count in (1, BATCH_RECORDS_MAX):
        most = BATCH_BYTES_MAX - HEADER_BYTES - 4 * (count + 1)
        values = [b"v"] * (count - 1) + [bytes(most - count + 1)]
        (found,) = found_in([put_frame(topic, values)])
        assert isinstance(found, PoePut)
        assert found.values == values
    (found,) = found_in([put_frame(b"t", [b"v"] * (BATCH_RECORDS_MAX + 1))])
    assert isinstance(found, PoeClose)


@pytest.mark.parametrize("after", [0, 1, POINTER_MAX])
def test_answers_have_the_bytes_of_poe(after: int) -> None:
    assert encode_stored(after) == bytes.fromhex("000000090003") + after.to_bytes(7, "big")
    records = PoeRecords(3)
    records.add(after, [b"", b"ab"][: 1 if after == POINTER_MAX else 2])
    expected = bytes.fromhex("00000007") + after.to_bytes(7, "big")
    if after < POINTER_MAX:
        expected += bytes.fromhex("00000009") + (after + 1).to_bytes(7, "big") + b"ab"
    assert records.encode() == (2 + len(expected)).to_bytes(4, "big") + b"\0\1" + expected


def test_an_answer_ends_by_its_limit_or_its_size_and_has_one_record_of_any_size() -> None:
    records = PoeRecords(2)
    records.add(7, [b"a"])
    assert not records.is_full
    records.add(9, [b"b", b"c"])
    assert records.is_full
    assert records.encode().endswith((9).to_bytes(7, "big") + b"b")
    large = PoeRecords(100)
    large.add(1, [bytes(REPLY_BYTES_MAX + 1), b"b"])
    assert large.is_full
    assert len(large.encode()) == REPLY_BYTES_MAX + 1 + 11 + 6
    large.add(3, [b"c"])
    assert len(large.encode()) == REPLY_BYTES_MAX + 1 + 11 + 6, "a record was left out before"
    many = PoeRecords(2**32 - 1)
    many.add(1, [bytes(1_000)] * 2_000)
    assert many.is_full
    assert REPLY_BYTES_MAX - 1_100 < len(many.encode()) <= REPLY_BYTES_MAX + 6
