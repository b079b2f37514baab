"""Forged batches, of which none is stored, and damaged ones, which cost a simple reader no whole record.

The tests of `quothwire` and `quothlog` have every forgery and damage; these show what the broker does.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from pathlib import Path

import zmq

from kit.broker.brokers import BrokerProcess
from kit.broker.peers import FastPeer, Peers, SimplePeer, code_of, refused, replied
from kit.disk.corruptions import ACTIVE, BATCHES, RECORDS, SEGMENTS, Scene, leave_behind
from kit.disk.damage import flip, with_headers
from kit.disk.logs import encoded
from kit.forged import ABC, forge, ints, padded
from kit.scale import times
from quothd import Broker
from quothwire import batch
from quothwire.batch import BATCH_BYTES_MAX
from quothwire.protocol.messages import Publish

MALFORMED_HEADERS = batch.encode([b"1", b"2"], headers=[b"", b"\x81\xa1a\xa1b"], producer=5, sequence=1)
FORGED: dict[str, bytes] = {
    "nothing": b"",
    "a cut body": forge(ABC, 3)[:-1],
    "two batches": forge(ABC, 3) * 2,
    "a pointer": forge(ABC, 3, base=5),
    "2^32 records": forge(ABC, 2**32 - 1),
    "a body of 4 GiB": forge(ABC, 3, body_bytes=2**32 - 8),
    "a wild offset": forge(padded(ints(0, 2**31 - 1, 2, 3) + b"abc"), 3),
    "malformed headers": MALFORMED_HEADERS,
    "a checksum of the body": encoded([b"x" * 64])[:-1] + b"y",
}
TOO_LARGE = ("2^32 records", "a body of 4 GiB")


def test_a_forged_batch_is_refused_alone_and_creates_no_topic(fast: FastPeer) -> None:
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
        assert code_of(fast.request(Publish(), topic, forge(ints(0, len(value)) + value, 1))) == code
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
        raws.append(forge(ABC, 3))
        answers = fast.answers_to([fast.send(Publish(), topic, raw) for raw in raws])
        assert {code_of(answer) for answer in answers} <= {"", "bad_batch"}
        stored += sum(replied(answer).count for answer in answers if not code_of(answer))
    assert stored > 1
    assert len(fast.read_all(topic)) == stored


# -- damage for simple readers ------------------------------------------------------------------------------

Damage = Callable[[Scene], None]


def flipped(offset: int, *numbers: int) -> Damage:
    """Change a byte of each of these batches."""

    def damage(scene: Scene) -> None:
        for stored in (scene.stored[number] for number in numbers):
            flip(stored.path, stored.start + offset)

    return damage


def without_segment(scene: Scene) -> None:
    """Remove a segment between others."""
    scene.segments[1].unlink()
    scene.index(1).unlink()


HEADER, BODY = 20, 110
EVERY_BATCH = range(SEGMENTS * BATCHES)
DAMAGES: dict[str, tuple[Damage, set[int]]] = {
    "a body": (flipped(BODY, 5), {5}),
    "a header in the active segment": (flipped(HEADER, ACTIVE + 1), {ACTIVE + 1}),
    "all headers": (flipped(HEADER, *EVERY_BATCH), {*EVERY_BATCH}),
    "a missing segment": (without_segment, {4, 5, 6, 7}),
}
"""The damages, each with the numbers of the batches that are lost by it."""


def steps(simple: SimplePeer, limit: int) -> Iterator[tuple[int, int, list[tuple[int, bytes]]]]:
    """Follow the cursors of the replies; yields old and new cursor and the records, none for damage."""
    cursor = 0
    while True:
        status, *rest = simple.ask("read", "t", cursor, limit)
        if status == b"ok":
            following, pairs = int(rest[0]), rest[1:]
            if not pairs:
                assert following == cursor
                return
            yield cursor, following, list(zip(map(int, pairs[::2]), pairs[1::2], strict=True))
        else:
            code, text, following = rest[0], rest[1], int(rest[2])
            assert code == b"damaged"
            assert f"read on after {following}" in text.decode()
            yield cursor, following, []
        assert following > cursor, "every reply moves the cursor"
        cursor = following


def test_a_simple_reader_gets_an_error_for_damage_and_every_intact_record(
    tmp_path: Path, peers: Peers
) -> None:
    """A long poll reports damage at once."""
    left = leave_behind(tmp_path / "left", killed=False)
    for name, (damage, lost) in DAMAGES.items():
        scene = Scene(left, tmp_path / name)
        damage(scene)
        whole = [one for row, one in enumerate(left.published) if row // RECORDS not in lost]
        gone = [one.pointer for row, one in enumerate(left.published) if row // RECORDS in lost]
        with Broker(scene.directory, host="127.0.0.1") as broker:
            simple = peers.simple(broker, zmq.REQ)
            for limit in (1, 2, 100):
                found = list(steps(simple, limit))
                records = [record for _, _, some in found for record in some]
                assert records == [(one.pointer, one.value) for one in whole], limit
                reported = [(before, after) for before, after, some in found if not some]
                assert all(any(before < one <= after for before, after in reported) for one in gone), limit
                assert not any(before < one <= after for before, after in reported for one, _ in records)
            if not whole:
                assert simple.ask("read", "t", 0, 10, 60_000)[1] == b"damaged"
