"""Compiled functions beside the Python functions that define them: the same outcome for whatever they get."""

from __future__ import annotations

import os
import random
import shutil
import struct
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest
from xxhash import xxh3_64_intdigest

from kit.pure import needs_compiled, outcome, pure
from kit.scale import LONG, times
from quothwire import batch, ingest, native
from quothwire.headers import encode_headers
from quothwire.protocol import binary_codec
from quothwire.protocol.messages import Fetch, Fetched, Operation, Publish, Published

MUTATED = times(5_000, 1_000_000)
WORDS = (0, 1, 7, 255, 256, 65_535, 2**31 - 1, 2**31, 2**32 - 1, 2**32, 2**56 - 1, 2**63, 2**64 - 1)
HOSTILE: list[Any] = [
    None, -1, 2**64, 2**64 - 1, 1.0, True, "text", b"", b"x" * 63, bytearray(64), memoryview(b"ab")[::2],
    memoryview(bytearray(128)), [b"a"], (), {}, object(), [None], ["a"], [bytearray(b"a")], [b"a"] * 3,
]  # fmt: skip


def stamped(header: bytes, log: int) -> bytes:
    """Return 56 bytes of a header with their checksum."""
    return header + struct.pack("<Q", xxh3_64_intdigest(header, log))


def random_column(rng: random.Random, records: int) -> list[bytes]:
    return [rng.randbytes(rng.choice((0, 1, 3, 20))) for _ in range(records)]


def random_batch(rng: random.Random) -> bytes:
    """Return a batch of any kind."""
    records = rng.choice((1, 2, 7, 63, 64, 65, 200))
    keys = [rng.choice((None, b"", b"key")) for _ in range(records)] if rng.random() < 0.5 else None
    headers = None
    if rng.random() < 0.5:
        maps = [{}, {"a": b"1"}, {"name" * 9: b"x" * 300, "": b""}, {"ä\U0001f600": b"\xff"}]
        headers = [encode_headers(rng.choice(maps)) for _ in range(records)]
    flags = rng.choice((0, 4, 12, 16, 24, 32, 96, 8))
    return batch.encode(
        random_column(rng, records),
        keys,
        headers,
        producer=rng.choice((9, flags & 32)),
        sequence=9,
        flags=flags,
    )


def mutated(rng: random.Random, whole: bytes, log: int) -> bytes:
    """Return a batch with a few wrong bytes, often with right checksums around them."""
    changed = bytearray(whole)
    for _ in range(rng.choice((0, 1, 1, 2, 5))):
        at = rng.randrange(min(len(changed), 64 if rng.random() < 0.4 else len(changed)))
        if rng.random() < 0.2 and at + 4 <= len(changed):
            changed[at : at + 4] = struct.pack("<I", rng.choice(WORDS) & 0xFFFFFFFF)
        else:
            changed[at] = rng.choice((0, 1, 0x7F, 0x80, 0xFF, rng.randrange(256)))
    if rng.random() < 0.1:
        del changed[rng.randrange(len(changed)) :]
    if rng.random() < 0.1:
        changed += rng.randbytes(rng.choice((1, 8, 64)))
    if len(changed) < 64:
        return bytes(changed)
    if rng.random() < 0.8:
        kind, flags, records = changed[5], *struct.unpack_from("<H4xI", changed, 6)
        seed = kind << 48 | flags << 32 | records
        changed[48:56] = struct.pack("<Q", xxh3_64_intdigest(bytes(changed[64:]), seed))
    if rng.random() < 0.9:
        changed[:64] = stamped(bytes(changed[:56]), log)
    return bytes(changed)


def in_any_buffer(rng: random.Random, data: bytes) -> Any:
    """Return bytes as one of the types that carry them."""
    kinds = (bytes, bytes, bytearray, memoryview, lambda found: memoryview(bytearray(found)))
    return rng.choice(kinds)(data)


def frames_of(rng: random.Random) -> Iterator[list[bytes]]:
    """Yield requests and replies, right ones and such with wrong bytes."""
    messages: list[Any] = [
        Publish(""), Publish("synced"), Fetch(), Fetch(rng.choice(WORDS), rng.choice((-1, 5)), until=3),
    ]  # fmt: skip
    replies: list[Any] = [
        Published(rng.choice(WORDS), 1, 2, 2, "written", rng.random() < 0.5),
        Fetched(rng.choice(WORDS), rng.choice(WORDS), 0, 9, 9, rng.choice((0, 3))),
    ]
    frames = binary_codec.encode_request(
        rng.choice(messages), rng.choice(WORDS), "topic", rng.choice((None, b"x"))
    )
    answer = binary_codec.encode_reply(
        rng.choice((Operation.PUBLISH, Operation.FETCH)), rng.choice(WORDS), rng.choice(replies), None
    )
    for whole in (frames, [bytes(frame) for frame in answer]):
        yield whole
        changed = [bytearray(frame) for frame in whole]
        frame = rng.choice(changed)
        if frame:
            frame[rng.randrange(len(frame))] = rng.choice((0, 0x80, 0xC0, 0xFF, rng.randrange(256)))
        if rng.random() < 0.2:
            changed.insert(rng.randrange(len(changed) + 1), bytearray(rng.choice((b"", b"\x80", b"x"))))
        if rng.random() < 0.2:
            del changed[rng.randrange(len(changed))]
        yield [bytes(one) for one in changed]


def test_compiled_functions_are_in_use_unless_they_are_turned_off() -> None:
    if os.environ.get(native.SWITCH) == "0":
        assert native.implementation() == "Python: QUOTH_NATIVE=0"
        assert type(batch.check).__name__ == "function"
    elif shutil.which("cc"):
        assert native.implementation() == "C"
        assert type(batch.check).__name__ != "function"


def test_the_switch_turns_compiled_functions_off() -> None:
    program = (
        "from quothwire import batch, native; print(native.implementation(), type(batch.check).__name__)"
    )
    told = subprocess.run(
        [sys.executable, "-c", program],
        env={**os.environ, native.SWITCH: "0"},
        capture_output=True,
        text=True,
        check=True,
    )
    assert told.stdout == "Python: QUOTH_NATIVE=0 function\n"


@needs_compiled
def test_mutated_batches_have_the_same_outcome_in_c_and_in_python(seed: int) -> None:
    rng = random.Random(seed)
    plain, plain_ingest = pure("quothwire.batch"), pure("quothwire.ingest")
    whole = random_batch(rng)
    accepted = 0
    for number in range(MUTATED):
        if not number % 50:
            whole = random_batch(rng)
        log = rng.choice((0, 0, 7, 2**64 - 1))
        data = in_any_buffer(rng, mutated(rng, whole, log))
        label = f"QUOTH_SEED={seed} {number} {bytes(data).hex()}"
        found = outcome(batch.decode, data, log)
        assert found == outcome(plain.decode, data, log), label
        header = outcome(batch.check, data, log)
        assert header == outcome(plain.check, data, log), label
        if len(header) == 9:
            accepted += 1
            checked = batch.check(data, log)
            expected = outcome(plain_ingest.check_new, data, checked)
            assert outcome(ingest.check_new, data, checked) == expected, label
        assert outcome(batch.parse_header, data, log) == outcome(plain.parse_header, data, log), label
    assert MUTATED * 0.05 < accepted < MUTATED * 0.9


@needs_compiled
def test_rows_of_batches_are_walked_and_split_alike_in_c_and_in_python(rng: random.Random) -> None:
    plain = pure("quothwire.batch")
    for _ in range(times(200, 20_000)):
        log, pointer, ordinal = 9, rng.choice((1, 2**55)), rng.choice((0, 2**63, 2**64 - 300))
        row, parts = b"", []
        for _ in range(rng.randrange(1, 6)):
            raw = random_batch(rng)
            header = batch.parse_header(raw, 0).placed(pointer, min(ordinal, 2**64 - 1))
            parts.append(batch.stamp(header, log) + raw[64:])
            pointer += header.records + rng.choice((0, 0, 5))
            ordinal += header.records + (rng.random() < 0.1)
        row = b"".join(parts)
        if rng.random() < 0.3:
            row = mutated(rng, row, log)
        first = batch.parse_header(parts[0], log)
        ends = (rng.choice((2**56 - 1, first.last)), rng.choice((2**64 - 1, first.end_ordinal)))
        bounds = (log, rng.choice((0, first.base - 1, first.base)), first.ordinal, *ends)
        data = in_any_buffer(rng, row)
        assert outcome(batch.whole, data, *bounds) == outcome(plain.whole, data, *bounds)
        assert outcome(batch.split, data, log) == outcome(plain.split, data, log)


@needs_compiled
def test_records_are_encoded_to_the_same_bytes_in_c_and_in_python(rng: random.Random) -> None:
    plain = pure("quothwire.batch")
    for _ in range(times(300, 30_000)):
        records = rng.choice((0, 1, 2, 64, 65, 300))
        values: Any = random_column(rng, records)
        keys = rng.choice((None, [rng.choice((None, b"", b"k")) for _ in range(records)]))
        headers = rng.choice((None, random_column(rng, records), random_column(rng, 1)))
        named = {
            "producer": rng.choice(WORDS),
            "sequence": rng.choice(WORDS),
            "flags": rng.choice((0, 4, 12, 32)),
        }
        values = rng.choice((list, tuple))(values)
        assert outcome(batch.encode, values, keys, headers, **named) == outcome(
            plain.encode, values, keys, headers, **named
        )
        header = batch.Header(1, 3, *(rng.choice(WORDS) for _ in range(7)))
        assert outcome(batch.stamp, header, 5) == outcome(plain.stamp, plain.Header(*header), 5)


@needs_compiled
def test_messages_are_coded_alike_in_c_and_in_python(seed: int, rng: random.Random) -> None:
    plain = pure("quothwire.protocol.binary_codec")
    for _ in range(times(1_000, 100_000)):
        for frames in frames_of(rng):
            label = f"QUOTH_SEED={seed} {[frame.hex() for frame in frames]}"
            call = outcome(binary_codec.decode_call, frames)
            assert call == outcome(plain.decode_call, frames), label
            if len(call) == 5:
                made = binary_codec.decode_call(frames)
                expected = outcome(plain.decode_arguments, plain.Call(*made))
                assert outcome(binary_codec.decode_arguments, made) == expected, label
            views = [memoryview(frame) for frame in frames]
            found, expected = outcome(binary_codec.decode_answer, views), outcome(plain.decode_answer, views)
            assert str(found) == str(expected), label


@needs_compiled
def test_messages_are_encoded_to_the_same_frames_in_c_and_in_python(rng: random.Random) -> None:
    plain = pure("quothwire.protocol.binary_codec")
    odd: list[Any] = [*WORDS, -1, -(2**63), 2**64, True, 1.5, None, "written", "\ud800", b"x"]
    for _ in range(times(2_000, 200_000)):
        request: Any = rng.choice((Publish(rng.choice(odd)), Fetch(*(rng.choice(odd) for _ in range(6)))))
        asked = request, rng.choice(odd), rng.choice(("", "topic", "\udcff", None)), rng.choice((None, b""))
        assert outcome(binary_codec.encode_request, *asked) == outcome(plain.encode_request, *asked)
        fields = [rng.choice(odd) for _ in range(6)]
        reply: Any = rng.choice((Published(*fields), Fetched(*fields)))
        answered = (
            rng.choice((Operation.PUBLISH, 4, 300, -1)),
            rng.choice(WORDS),
            reply,
            rng.choice((None, b"")),
        )
        assert outcome(binary_codec.encode_reply, *answered) == outcome(plain.encode_reply, *answered)


@needs_compiled
@pytest.mark.parametrize(
    ("module", "name", "arguments"),
    [
        ("quothwire.batch", "check", 2),
        ("quothwire.batch", "decode", 2),
        ("quothwire.batch", "parse_header", 3),
        ("quothwire.batch", "split", 2),
        ("quothwire.batch", "whole", 4),
        ("quothwire.batch", "stamp", 2),
        ("quothwire.batch", "is_body_of", 2),
        ("quothwire.batch", "encode", 3),
        ("quothwire.ingest", "check_new", 2),
        ("quothwire.protocol.binary_codec", "encode_request", 4),
        ("quothwire.protocol.binary_codec", "encode_reply", 4),
        ("quothwire.protocol.binary_codec", "decode_call", 1),
        ("quothwire.protocol.binary_codec", "decode_arguments", 1),
        ("quothwire.protocol.binary_codec", "decode_answer", 1),
    ],
)
def test_arguments_of_wrong_types_have_the_same_outcome_in_c_and_in_python(
    module: str, name: str, arguments: int, rng: random.Random
) -> None:
    compiled = getattr({"quothwire.batch": batch, "quothwire.ingest": ingest}.get(module, binary_codec), name)
    plain = getattr(pure(module), name)
    good: list[Any] = [batch.encode([b"a"]), 0, batch.check(batch.encode([b"a"])), [b"a"], Fetch(), "topic"]
    for _ in range(2_000 if LONG else 300):
        given = [rng.choice([*HOSTILE, *good]) for _ in range(arguments)]
        assert outcome(compiled, *given) == outcome(plain, *given), given
