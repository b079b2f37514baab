"""Forged batches: none is stored, none harms a reader, and a batch within a value stays a value."""

from __future__ import annotations

import random
import struct
from collections.abc import Callable

import pytest
from xxhash import xxh3_64_intdigest

from kit.broker.brokers import BrokerProcess, StartBroker
from kit.broker.peers import FastPeer, Peers, SimplePeer, code_of, refused, replied
from kit.disk.damage import with_headers
from kit.disk.logs import encoded
from kit.scale import times
from quothwire import batch
from quothwire.batch import Flag
from quothwire.errors import QuothError
from quothwire.pointer import POINTER_MAX
from quothwire.protocol.messages import Publish, Published, RollTopic


def forge(
    body: bytes,
    records: int,
    *,
    flags: int = 0,
    kind: int = batch.DATA,
    base: int = 0,
    ordinal: int = 0,
    log_id: int = 0,
    body_bytes: int | None = None,
    magic: bytes = batch.MAGIC,
    version: int = batch.VERSION,
) -> bytes:
    """Return a batch with right checksums and any claims, made from the documented layout alone."""
    check = xxh3_64_intdigest(body, kind << 48 | flags << 32 | records)
    size = len(body) if body_bytes is None else body_bytes
    head = struct.pack(
        "<4sBBHIIQQQQQ", magic, version, kind, flags, size, records, base, ordinal, 0, 0, check
    )
    return head + struct.pack("<Q", xxh3_64_intdigest(head, log_id)) + body


def body_of(*offsets: int, heap: bytes = b"") -> bytes:
    """Return a body of one column, padded."""
    body = struct.pack(f"<{len(offsets)}i", *offsets) + heap
    return body + bytes(-len(body) % 8)


ABC = body_of(0, 1, 2, 3, heap=b"abc")


def keyed(validity: int) -> bytes:
    """Return a body of three values and three keys."""
    offsets = struct.pack("<4i", 0, 1, 2, 3) * 2
    return offsets + struct.pack("<Q", validity) + b"abcxyz" + bytes(2)


FORGED: dict[str, bytes] = {
    "nothing": b"",
    "zeros": bytes(4_096),
    "text": b"hello, is this a batch?",
    "a cut header": forge(ABC, 3)[:63],
    "no body": forge(ABC, 3)[:64],
    "a cut body": forge(ABC, 3)[:-1],
    "a byte too many": forge(ABC, 3) + b"\0",
    "two batches": forge(ABC, 3) * 2,
    "another magic": forge(ABC, 3, magic=b"QUOC"),
    "another version": forge(ABC, 3, version=2),
    "kind 0": forge(ABC, 3, kind=0),
    "kind 2": forge(ABC, 3, kind=2),
    "kind 3": forge(ABC, 3, kind=3),
    "a reserved flag": forge(ABC, 3, flags=32),
    "two numberings": forge(ABC, 3, flags=Flag.SPARSE | Flag.ORDINAL),
    "the compression's flag": forge(ABC, 3, flags=1 << 15),
    "a pointer": forge(ABC, 3, base=5),
    "the last pointer": forge(ABC, 3, base=POINTER_MAX),
    "an ordinal": forge(ABC, 3, ordinal=1),
    "no records": forge(body_of(0), 0),
    "fewer records": forge(ABC, 2),
    "more records": forge(ABC, 4),
    "2^32 records": forge(ABC, 2**32 - 1),
    "100,001 records": forge(body_of(*[0] * 100_002), 100_001),
    "a longer body": forge(ABC, 3, body_bytes=len(ABC) + 8),
    "a body of 4 GiB": forge(ABC, 3, body_bytes=2**32 - 8),
    "an odd body": forge(ABC + b"\0", 3),
    "a first offset of 1": forge(body_of(1, 1, 2, 3, heap=b"abc"), 3),
    "a first offset of -1": forge(body_of(-1, 1, 2, 3, heap=b"abc"), 3),
    "a falling offset": forge(body_of(0, 2, 1, 3, heap=b"abc"), 3),
    "a wild offset": forge(body_of(0, 2**31 - 1, 2, 3, heap=b"abc"), 3),
    "a last offset too far": forge(body_of(0, 1, 2, 2**31 - 1, heap=b"abc"), 3),
    "a negative offset": forge(body_of(0, -(2**31), 2, 3, heap=b"abc"), 3),
    "a heap too short": forge(body_of(0, 1, 2, 30, heap=b"abc"), 3),
    "a heap too long": forge(body_of(0, 1, 2, 3, heap=b"abc" + bytes(20)), 3),
    "padding that is not zero": forge(ABC[:-1] + b"x", 3),
    "keys that are not there": forge(ABC, 3, flags=Flag.KEYS),
    "headers that are not there": forge(ABC, 3, flags=Flag.HEADERS),
    "both": forge(ABC, 3, flags=Flag.KEYS | Flag.HEADERS),
    "sealed by a log": forge(ABC, 3, log_id=1),
    "START alone": encoded([b"v"], producer=5, sequence=1, start=True),
    "SPARSE without a producer": encoded([b"v"], sparse=True),
    "bytes of a key that is null": forge(keyed(0b101), 3, flags=Flag.KEYS),
    "a validity bit too many": forge(keyed(0b1111), 3, flags=Flag.KEYS),
    **{
        f"headers: {name}": batch.encode([b"1", b"2", b"3"], headers=[b"", wrong, b""])
        for name, wrong in {
            "text as value": b"\x81\xa1a\xa1b",
            "a number as name": b"\x81\x01\xc4\x01b",
            "a byte that is never used": b"\xc1",
            "nil": b"\xc0",
            "cut": b"\x81\xa1a\xc4\x05b",
            "above the limit": b"\x81\xa1v\xc5\xff\xfa" + bytes(65_530),
        }.items()
    },
}
TOO_LARGE = ("2^32 records", "100,001 records", "a body of 4 GiB")


@pytest.mark.parametrize("name", FORGED)
def test_forged_batch_is_refused_and_its_neighbours_are_stored(fast: FastPeer, topic: str, name: str) -> None:
    raw = FORGED[name]
    fast.publish(topic, [b"before"])
    asked = [fast.send(Publish(), topic, raw), fast.send_publish(topic, [b"after"])]
    codes = list(map(code_of, fast.answers_to(asked)))
    assert codes == ["too_large" if name in TOO_LARGE else "bad_batch", ""]
    assert fast.values(topic) == [b"before", b"after"]


def test_batch_with_any_byte_changed_or_cut_off_is_refused(fast: FastPeer, topic: str) -> None:
    whole = batch.encode([b"one", b"", b"three"], [b"k", None, b""], [b"", b"", b""], producer=3, sequence=1)
    damaged = [whole[:i] + bytes([whole[i] ^ 0x41]) + whole[i + 1 :] for i in range(len(whole))]
    damaged += [whole[:i] for i in range(len(whole))]
    asked = [fast.send(Publish(), topic, raw) for raw in damaged]
    assert {code_of(answer) for answer in fast.answers_to(asked)} == {"bad_batch"}
    assert not fast.call(Publish(), topic, whole).duplicate
    assert len(fast.read_all(topic)) == 3


def test_stored_batch_is_refused_when_published_again(fast: FastPeer, topic: str) -> None:
    """Only the log assigns pointers, so that even its own batches are refused."""
    fast.publish(topic, [b"x", b"y"])
    stored = bytes(fast.answer_to(fast.send_fetch(topic)).payload)
    for target in (topic, topic + "-other"):
        with refused("bad_batch"):
            fast.call(Publish(), target, stored)
    assert len(fast.read_all(topic)) == 2


def test_value_may_be_any_bytes(fast: FastPeer, topic: str, rng: random.Random) -> None:
    stored = forge(ABC, 3, base=1)
    values = [
        stored,
        batch.MAGIC * 1_000,
        b"QUOTHLOG" + bytes(88),
        b"QUOTHEND" + bytes(56),
        bytes(10_000),
        b"\xff" * 1_000,
        rng.randbytes(100_000),
    ]
    fast.publish(topic, values)
    fast.call(RollTopic(), topic)
    fast.publish(topic, values)
    assert fast.values(topic) == values * 2


def damage(broker: BrokerProcess, topic: str, change: Callable[[bytes], bytes]) -> None:
    """Change the newest segment of a topic and leave no checkpoint, as a crash does."""
    segment = max(broker.topics_directory.glob(f"{topic}~*/*.seg"))
    segment.write_bytes(change(segment.read_bytes()))
    segment.with_suffix(".idx").unlink(missing_ok=True)


def test_batch_in_a_value_is_not_read_when_the_tail_is_torn(start_broker: StartBroker, peers: Peers) -> None:
    """Clients know the log id, so that a value can hold what looks like the next batch of the log."""
    broker = start_broker()
    fast = peers.fast(broker)
    outer: dict[str, tuple[int, int]] = {}
    for cut in (1, 7, 64, 100):
        for far in (False, True):
            topic = f"{cut}-{far}"
            first = fast.publish(topic, [b"before"])
            base = POINTER_MAX - 2 if far else first.last + 60_000_000
            inner = forge(body_of(0, 1, 2, 3, heap=b"bad"), 3, base=base, ordinal=1, log_id=first.log)
            outer[topic] = cut, fast.publish(topic, [inner + bytes(200)]).last
    broker.kill()
    for topic, (cut, _) in outer.items():
        damage(broker, topic, lambda data, cut=cut: data[:-cut])  # type: ignore[misc]
    fast.close()
    fast = peers.fast(broker.restart())
    for topic, (_, last) in outer.items():
        assert fast.values(topic) == [b"before"]
        again = fast.publish(topic, [b"after"])
        assert last < again.first < last + 3_600_000_000
        assert fast.values(topic) == [b"before", b"after"]


def test_batch_in_a_value_is_not_read_when_the_outer_batch_is_damaged(
    start_broker: StartBroker, peers: Peers
) -> None:
    broker = start_broker()
    fast = peers.fast(broker)
    stored: dict[str, tuple[Published, Published, Published]] = {}
    for place in (70, 100, 200):
        topic = f"{place}"
        first = fast.publish(topic, [b"before"])
        inner = forge(body_of(0, 1, 2, 3, heap=b"bad"), 3, base=first.last + 1, ordinal=1, log_id=first.log)
        outer = fast.publish(topic, [bytes(300) + inner + bytes(300)])
        stored[topic] = first, outer, fast.publish(topic, [b"behind"])
        assert first.last + 3 < outer.first, "the hidden pointers have to lie between those of the neighbours"
    broker.kill()
    for topic, (_, outer, _) in stored.items():

        def spoil(data: bytes, place: int = int(topic), base: int = outer.first) -> bytes:
            at = data.index(base.to_bytes(8, "little")) - 16 + place
            return data[:at] + bytes([data[at] ^ 0xFF]) + data[at + 1 :]

        damage(broker, topic, spoil)
    fast.close()
    fast = peers.fast(broker.restart())
    for topic, (first, outer, last) in stored.items():
        answer = fast.answer_to(fast.send_fetch(topic))
        _, damaged, behind = batch.split(answer.payload, first.log)
        assert batch.parse_header(damaged, first.log).base == outer.first
        with refused("bad_batch"):
            batch.check(damaged, first.log)
        assert batch.decode(behind, first.log).values == [b"behind"]
        assert fast.publish(topic, [b"after"]).first > last.last


TAILS = {
    "zeros": bytes(1_000),
    "a-magic": b"QUOB",
    "noise": b"noise" * 50,
    "a-batch": encoded([b"x"]),
    "ones": b"\xff" * 64,
}


def test_bytes_that_a_crash_left_behind_the_last_batch_are_no_records(
    start_broker: StartBroker, peers: Peers
) -> None:
    broker = start_broker()
    fast = peers.fast(broker)
    for topic in TAILS:
        fast.publish(topic, [b"1", b"2"])
    broker.kill()
    for topic, tail in TAILS.items():
        damage(broker, topic, lambda data, tail=tail: data + tail)  # type: ignore[misc]
    fast.close()
    fast = peers.fast(broker.restart())
    for topic in TAILS:
        assert fast.values(topic) == [b"1", b"2"]
        fast.publish(topic, [b"3"])
        assert fast.values(topic) == [b"1", b"2", b"3"]


def test_publish_with_malformed_headers_gets_an_error_that_names_the_record(
    fast: FastPeer, topic: str
) -> None:
    wrong = batch.encode([b"1", b"2", b"3"], headers=[b"", b"", b"\x81\xa1a\xa1b"], producer=5, sequence=1)
    with pytest.raises(QuothError, match=r"record 2 of 3, .*the value of 'a' is text, not binary"):
        fast.call(Publish(), topic, wrong)
    right = batch.encode([b"1"], headers=[b"\x81\xa1a\xc4\x01b"], producer=5, sequence=1)
    assert not fast.call(Publish(), topic, right).duplicate, "the sequence was not taken"
    assert [(one.value, one.headers) for one in fast.read_all(topic)] == [(b"1", {"a": b"b"})]


def test_simple_reader_gets_the_values_of_records_with_malformed_headers(
    fast: FastPeer, peers: Peers, broker: BrokerProcess, topic: str
) -> None:
    """Logs of former versions may hold any headers, and simple readers get none of them."""
    good = b"\x81\xa1a\xc4\x01b"
    log = fast.call(Publish(), topic, batch.encode([b"1", b"2"], headers=[good, b""])).log
    with_headers(broker.topics_directory, log, good, b"\xc1" * len(good))
    fast.publish(topic, [b"3"])
    assert [one.raw_headers for one in fast.read_all(topic)] == [b"\xc1" * len(good), b"", b""]
    assert [value for _, value in peers.simple(broker).read(topic)[1]] == [b"1", b"2", b"3"]


@pytest.mark.parametrize("size", [16 * 2**20, 16 * 2**20 + 8])
def test_batch_is_too_large_from_one_word_above_the_limit_on_in_both_protocols(
    fast: FastPeer, simple: SimplePeer, topic: str, size: int
) -> None:
    value = bytes(size - 64 - 8)
    code = b"" if size == 16 * 2**20 else b"too_large"
    status, first, *_ = simple.ask("publish", topic, value)
    assert status == (b"error" if code else b"ok")
    assert first == code or not code
    body = struct.pack("<2i", 0, len(value)) + value
    assert code_of(fast.request(Publish(), topic, forge(body, 1))) == code.decode()


FIRST = {
    "a header": FORGED["START alone"],
    "a pointer": FORGED["a pointer"],
    "a sequence alone": batch.encode([b"1"], sequence=1),
    "the headers of a record": batch.encode([b"1", b"2"], headers=[b"", b"\x81\xa1a\xa1b"]),
    "a checksum of the body": batch.encode([b"x" * 64])[:-1] + b"y",
}


@pytest.mark.parametrize("raw", FIRST.values(), ids=FIRST)
def test_first_publish_that_is_refused_leaves_no_topic(fast: FastPeer, topic: str, raw: bytes) -> None:
    with refused("bad_batch"):
        fast.call(Publish(), topic, raw)
    with refused("unknown_topic"):
        fast.describe(topic)


def test_first_simple_publish_that_is_too_large_leaves_no_topic(
    fast: FastPeer, simple: SimplePeer, topic: str
) -> None:
    assert simple.ask("publish", topic, bytes(16 * 2**20))[:2] == [b"error", b"too_large"]
    with refused("unknown_topic"):
        fast.describe(topic)


def test_random_batches_are_stored_whole_or_refused(fast: FastPeer, topic: str, rng: random.Random) -> None:
    fast.publish(topic, [b"x"])
    stored = 1
    for _ in range(times(20, 500)):
        raws = [rng.randbytes(rng.randrange(300)) for _ in range(10)]
        for _ in range(30):
            body = rng.randbytes(8 * rng.randrange(6)) + bytes(8 * rng.randrange(6))
            raws.append(forge(body, rng.randrange(5), flags=rng.choice((0, 0, 0, 1, 2, 3, 7))))
        answers = fast.answers_to([fast.send(Publish(), topic, raw) for raw in raws])
        assert {code_of(answer) for answer in answers} <= {"", "bad_batch"}
        stored += sum(replied(answer).count for answer in answers if not code_of(answer))
    assert len(fast.read_all(topic)) == stored
