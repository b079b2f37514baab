"""A record buffer holds and encodes what was added within its limits; compiled it does what Python does."""

from __future__ import annotations

import copy
import gc
import pickle
import random
from operator import length_hint
from typing import Any

import pytest

from kit.broker.peers import refused
from kit.pure import needs_compiled, outcome, pure
from kit.scale import times
from quothwire import batch
from quothwire.headers import HEADERS_BYTES_MAX, encode_headers
from quothwire.record import BUFFER_BYTES_MAX, RECORD_BYTES, Record, RecordBuffer, records_in, records_of

SEEN_MAX = 2**20


class Subclass(bytes):
    """Bytes that lie about themselves."""

    def __len__(self) -> int:
        return 2**62

    def __bool__(self) -> bool:
        return False


class Disguised:
    """An object that claims to be bytes."""

    __class__ = bytes  # type: ignore[assignment]


class Name(str):
    __slots__ = ()


HOSTILE: list[Any] = [
    None, 0, -1, 2**64, 2**64 - 1, 1.5, True, "text", "\udcff", [], (), {}, [b"a"], object(),
    Subclass(b"sub"), Disguised(), bytearray(b"ab"), memoryview(b"abcd")[::2], {"a": "b"}, {1: b""},
    {"\udcff": b""},
    {Name("n"): b"1"}, {"n": Subclass(b"1")}, {"n": bytearray(b"1")}, {"n": bytes(HEADERS_BYTES_MAX)},
    {str(number): b"" for number in range(40)}, [("a", b"b")], b"plain",
]  # fmt: skip


def new_buffer(bytes_max: int = SEEN_MAX) -> RecordBuffer:
    return RecordBuffer(bytes_max, BUFFER_BYTES_MAX)


def random_headers(rng: random.Random) -> Any:
    names = ("", "n", "ä\U0001f600", "x" * 31, "x" * 32, "x" * 300)
    count = rng.choice((0, 1, 2, 15, 16, 17, 40))
    return rng.choice(
        (None, {f"{rng.choice(names)}{i}": rng.randbytes(rng.choice((0, 3, 256))) for i in range(count)})
    )


def test_a_batch_has_the_records_that_were_added() -> None:
    buffer = new_buffer()
    assert buffer.append(b"one") == 1
    assert buffer.append(b"two", b"key") == 2
    assert buffer.append(b"", b"", {"n": b"1"}) == 3
    assert len(buffer) == 3
    encoded = encode_headers({"n": b"1"})
    assert buffer.size == 3 * RECORD_BYTES + 9 + len(encoded)
    columns = [b"one", b"two", b""], [None, b"key", b""], [b"", b"", encoded]
    assert buffer.contents() == columns
    assert buffer.encoded(7, 9, 16) == batch.encode(*columns, producer=7, sequence=9, flags=16)
    assert buffer.append(b"later") == 4
    assert buffer.contents()[0][-1] == b"later"


def test_a_buffer_without_keys_and_headers_has_no_columns_for_them() -> None:
    buffer = new_buffer()
    buffer.append(b"a", None, {})
    assert buffer.contents() == ([b"a"], None, None)


def test_an_empty_buffer_is_no_batch() -> None:
    assert new_buffer().contents() == ([], None, None)
    with refused("bad_batch"):
        new_buffer().encoded()


def test_a_record_beyond_the_limit_is_left_out_and_the_first_one_never_is() -> None:
    buffer = new_buffer(100)
    assert buffer.append(bytes(200)) == 1
    assert buffer.append(b"") == 0
    assert len(buffer) == 1
    buffer.bytes_max = 200 + 2 * RECORD_BYTES
    assert buffer.append(b"") == 2
    assert buffer.append(b"") == 0


def test_a_record_above_the_number_of_records_is_left_out() -> None:
    buffer = RecordBuffer(1_000, 1_000, 2)
    assert [buffer.append(b"") for _ in range(3)] == [1, 2, 0]
    buffer.records_max = 3
    assert (buffer.records_max, buffer.append(b""), buffer.append(b"")) == (3, 3, 0)
    buffer.records_max = 1
    assert (buffer.append(b""), len(buffer)) == (0, 3)
    for wrong in (0, -1, True, None, "9", 1.0, batch.BATCH_RECORDS_MAX + 1, 2**64):
        with refused("bad_setting"):
            buffer.records_max = wrong  # type: ignore[assignment]
    assert buffer.records_max == 1


def test_the_largest_record_and_the_largest_number_of_records_are_batches() -> None:
    large = new_buffer(BUFFER_BYTES_MAX)
    with refused("too_large"):
        large.append(bytes(BUFFER_BYTES_MAX))
    assert large.append(bytes(BUFFER_BYTES_MAX - RECORD_BYTES - 1), b"k") == 1
    assert batch.check(large.encoded()).records == 1
    many = new_buffer(BUFFER_BYTES_MAX)
    for _ in range(batch.BATCH_RECORDS_MAX):
        many.append(b"", b"", None)
    assert many.append(b"") == 0
    assert batch.check(many.encoded()).records == batch.BATCH_RECORDS_MAX


@pytest.mark.parametrize("limit", [0, -1, True, None, "9", 1.0, BUFFER_BYTES_MAX + 1, 2**64])
def test_limits_that_no_batch_can_have_are_refused(limit: Any) -> None:
    with refused("bad_setting"):
        RecordBuffer(limit, 1)
    with refused("bad_setting"):
        RecordBuffer(1, limit)
    buffer = new_buffer(5)
    with refused("bad_setting"):
        buffer.bytes_max = limit
    assert buffer.bytes_max == 5


def test_a_buffer_is_not_copied() -> None:
    for attempt in (copy.copy, copy.deepcopy, pickle.dumps):
        with pytest.raises(TypeError):
            attempt(new_buffer())


def test_headers_may_add_records_while_they_are_encoded() -> None:
    buffer = new_buffer()

    class Adding(dict[str, bytes]):
        def items(self) -> Any:
            for _ in range(100):
                buffer.append(b"inner" * 100, b"k")
            return super().items()

    assert buffer.append(b"outer", None, Adding(n=b"1")) == 101
    values, _, headers = buffer.contents()
    assert values == [b"inner" * 100] * 100 + [b"outer"]
    assert headers == [b""] * 100 + [encode_headers({"n": b"1"})]


@needs_compiled
def test_buffers_do_the_same_in_c_and_in_python(seed: int) -> None:
    rng = random.Random(seed)
    plain = pure("quothwire.record")
    for _ in range(times(150, 20_000)):
        limits = rng.choice((1, 500, 5_000, SEEN_MAX)), rng.choice((400, 5_000, BUFFER_BYTES_MAX))
        compiled, twin = RecordBuffer(*limits), plain.RecordBuffer(*limits)
        kinds = rng.choice(((0, 0), (0.5, 0), (0, 0.3), (0.02, 0.02), (1, 1)))
        for _ in range(rng.choice((0, 1, 64, 65, 300))):
            value = rng.randbytes(rng.choice((0, 1, 20, 300)))
            key = rng.randbytes(rng.choice((0, 5))) if rng.random() < kinds[0] else None
            headers = random_headers(rng) if rng.random() < kinds[1] else None
            if rng.random() < 0.05:
                value, key, headers = (rng.choice(HOSTILE) for _ in range(3))
            given = value, key, headers
            label = f"QUOTH_SEED={seed} {given}"
            assert outcome(compiled.append, *given) == outcome(twin.append, *given), label
            assert (len(compiled), compiled.size) == (len(twin), twin.size), label
        words = (0, 1, 4, 16, 3, 2**16, 2**64 - 1, 2**64, -1, None, True, 1.0)
        identity = [rng.choice(words) for _ in range(3)]
        label = f"QUOTH_SEED={seed} {identity}"
        assert outcome(compiled.encoded, *identity) == outcome(twin.encoded, *identity), label
        assert compiled.contents() == twin.contents(), label


@needs_compiled
def test_headers_are_encoded_to_the_same_bytes_in_c_and_in_python(seed: int) -> None:
    rng = random.Random(seed)
    plain = pure("quothwire.headers")
    for _ in range(times(1_000, 100_000)):
        headers = rng.choice((random_headers(rng), random_headers(rng), rng.choice(HOSTILE)))
        label = f"QUOTH_SEED={seed} {headers}"
        assert outcome(encode_headers, headers) == outcome(plain.encode_headers, headers), label


@needs_compiled
def test_records_are_made_alike_in_c_and_in_python(seed: int) -> None:
    rng = random.Random(seed)
    plain = pure("quothwire.record").records_of
    odd: list[Any] = [0, 1, 99, 100, 101, 2**56, 2**63, 2**64, -1, -(2**64), None, True, 1.5]
    for number in range(times(500, 50_000)):
        count = rng.choice((1, 2, 65))
        columns: list[Any] = [[rng.choice((b"", b"v", *HOSTILE)) for _ in range(count)]]
        columns += [rng.choice((None, [rng.choice((None, b"k")) for _ in range(count)]))]
        columns += [rng.choice((None, [rng.choice((b"", b"\x81\xa1a\xc4\x01b")) for _ in range(count)]))]
        header = batch.Header(1, 0, 0, count, rng.choice((0, 1, 100, 2**56 - 1, 2**63, -5)), 0, 0, 0, 0)
        fields: list[Any] = [header, *columns]
        if rng.random() < 0.3:
            fields[rng.randrange(4)] = rng.choice([*HOSTILE, [b"a"] * (count + 1), (b"a",) * count, []])
        decoded = batch.DecodedBatch(*fields)
        after = rng.choice(odd)
        label = f"QUOTH_SEED={seed} {number} {decoded} {after}"
        expected = seen(plain, decoded, after)
        assert seen(records_of, decoded, after) == expected, label
        assert seen(lambda *given: list(records_in(*given)), decoded, after) == expected, label


def test_a_record_that_is_held_stays_as_it_is(seed: int) -> None:
    """One that is not may be filled again for a later record."""
    rng = random.Random(seed)
    for _ in range(times(200, 20_000)):
        count, share = rng.randrange(1, 60), rng.random()
        keys = rng.choice((None, [rng.choice((None, b"key")) for _ in range(count)]))
        headers = rng.choice((None, [encode_headers({"n": b"%d" % row}) for row in range(count)]))
        decoded = batch.decode(batch.encode([b"%d" % row for row in range(count)], keys, headers))
        kept: list[tuple[int, Any]] = []
        for row, record in enumerate(records_in(decoded, -1)):
            if rng.random() < share:
                kept.append((row, rng.choice((record, [record], {row: record}))))
        expected = records_of(decoded, -1)
        for row, held in kept:
            found = held if isinstance(held, Record) else held[0 if isinstance(held, list) else row]
            assert found == expected[row], f"QUOTH_SEED={seed} {row} of {count}"


def test_records_know_how_many_of_them_are_left() -> None:
    records = records_in(batch.decode(batch.encode([b"a", b"b", b"c"])), 0)
    assert length_hint(records) == 2
    next(records)
    assert length_hint(records) == 1
    assert [record.value for record in records] == [b"c"]
    assert (length_hint(records), next(records, None)) == (0, None)


def seen(make: Any, *given: Any) -> Any:
    """Return the outcome of a call, with headers as text, so that those of both modules compare."""
    found = outcome(make, *given)
    return [(*row[:3], repr(row[3])) for row in found] if isinstance(found, list) else found


@needs_compiled
def test_the_collector_does_not_visit_records_that_lead_nowhere() -> None:
    made = records_of(batch.decode(batch.encode([b"a", b"b"], [None, b"k"])), -1)
    assert not any(map(gc.is_tracked, made))
    gc.collect()
    assert made == [Record(0, b"a", None, {}), Record(1, b"b", b"k", {})]
    own = batch.DecodedBatch(batch.Header(1, 0, 0, 1, 1, 0, 0, 0, 0), [made], None, None)  # type: ignore[list-item]
    assert gc.is_tracked(records_of(own)[0])


def test_a_sealed_buffer_takes_nothing_until_it_is_unsealed() -> None:
    buffer = new_buffer()
    buffer.append(b"a")
    buffer.seal()
    assert buffer.append(b"b") == 0
    assert buffer.contents()[0] == [b"a"]
    buffer.unseal()
    assert buffer.append(b"c") == 2
    assert buffer.contents()[0] == [b"a", b"c"]


def test_a_buffer_that_is_sealed_while_headers_are_encoded_takes_nothing() -> None:
    buffer = new_buffer()

    class Sealing(dict[str, bytes]):
        def items(self) -> Any:
            buffer.seal()
            return super().items()

    assert buffer.append(b"a", None, Sealing(n=b"1")) == 0
    assert len(buffer) == 0
