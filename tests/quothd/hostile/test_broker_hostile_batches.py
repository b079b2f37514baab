"""Forged batches: none is stored, none harms a reader.

The tests of `quothwire` and `quothlog` have every forgery; these show that the broker refuses them, too.
"""

from __future__ import annotations

import random
import struct

from xxhash import xxh3_64_intdigest

from kit.broker.brokers import BrokerProcess
from kit.broker.peers import FastPeer, Peers, SimplePeer, code_of, refused, replied
from kit.disk.damage import with_headers
from kit.disk.logs import encoded
from kit.scale import times
from quothwire import batch
from quothwire.batch import BATCH_BYTES_MAX
from quothwire.protocol.messages import Publish


def forge(
    body: bytes, records: int, *, flags: int = 0, base: int = 0, body_bytes: int | None = None
) -> bytes:
    """Return a batch with right checksums and any claims, made from the documented layout alone."""
    check = xxh3_64_intdigest(body, batch.DATA << 48 | flags << 32 | records)
    size = len(body) if body_bytes is None else body_bytes
    claims = batch.VERSION, batch.DATA, flags, size, records, base, 0, 0, 0, check
    head = struct.pack("<4sBBHIIQQQQQ", batch.MAGIC, *claims)
    return head + struct.pack("<Q", xxh3_64_intdigest(head, 0)) + body


def body_of(*offsets: int, heap: bytes = b"") -> bytes:
    """Return a body of one column, padded."""
    body = struct.pack(f"<{len(offsets)}i", *offsets) + heap
    return body + bytes(-len(body) % 8)


ABC = body_of(0, 1, 2, 3, heap=b"abc")
MALFORMED_HEADERS = batch.encode([b"1", b"2"], headers=[b"", b"\x81\xa1a\xa1b"], producer=5, sequence=1)
FORGED: dict[str, bytes] = {
    "nothing": b"",
    "a cut body": forge(ABC, 3)[:-1],
    "two batches": forge(ABC, 3) * 2,
    "a pointer": forge(ABC, 3, base=5),
    "2^32 records": forge(ABC, 2**32 - 1),
    "a body of 4 GiB": forge(ABC, 3, body_bytes=2**32 - 8),
    "a wild offset": forge(body_of(0, 2**31 - 1, 2, 3, heap=b"abc"), 3),
    "malformed headers": MALFORMED_HEADERS,
    "a checksum of the body": encoded([b"x" * 64])[:-1] + b"y",
}
TOO_LARGE = ("2^32 records", "a body of 4 GiB")


def test_a_forged_batch_is_refused_makes_no_topic_and_its_neighbours_are_stored(fast: FastPeer) -> None:
    for number, (name, raw) in enumerate(FORGED.items()):
        code, topic = "too_large" if name in TOO_LARGE else "bad_batch", f"t{number}"
        assert code_of(fast.request(Publish(), topic, raw)) == code, name
        with refused("unknown_topic"):
            fast.describe(topic)
        fast.publish(topic, [b"before"])
        asked = [fast.send(Publish(), topic, raw), fast.send_publish(topic, [b"after"])]
        assert [*map(code_of, fast.answers_to(asked))] == [code, ""], name
        assert fast.values(topic) == [b"before", b"after"]


def test_a_simple_reader_gets_the_values_of_records_with_malformed_headers(
    fast: FastPeer, peers: Peers, broker: BrokerProcess, topic: str
) -> None:
    """Logs of former versions may hold any headers, and simple readers get none of them."""
    good = b"\x81\xa1a\xc4\x01b"
    log = fast.call(Publish(), topic, batch.encode([b"1", b"2"], headers=[good, b""])).log
    with_headers(broker.topics_directory, log, good, b"\xc1" * len(good))
    fast.publish(topic, [b"3"])
    assert [one.raw_headers for one in fast.read_all(topic)] == [b"\xc1" * len(good), b"", b""]
    assert [value for _, value in peers.simple(broker).read(topic)[1]] == [b"1", b"2", b"3"]


def test_a_batch_is_too_large_from_one_word_above_the_limit_on_in_both_protocols(
    fast: FastPeer, simple: SimplePeer, topic: str
) -> None:
    """No topic is created."""
    for over, status, code in ((8, b"error", "too_large"), (0, b"ok", "")):
        value = bytes(BATCH_BYTES_MAX + over - 64 - 8)
        found, first, *_ = simple.ask("publish", topic, value)
        assert found == status
        assert not code or first.decode() == code
        body = struct.pack("<2i", 0, len(value)) + value
        assert code_of(fast.request(Publish(), topic, forge(body, 1))) == code
        if code:
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
