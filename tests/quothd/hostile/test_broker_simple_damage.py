"""Damage for simple readers: the reply `damaged` has the cursor to go on with; every whole record is read.

The tests of `quothlog` and the damage matrix of the client damage every place of a log.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import zmq

from kit.broker.peers import Peers, SimplePeer
from kit.disk.corruptions import ACTIVE, BATCHES, RECORDS, SEGMENTS, Left, Scene, leave_behind
from kit.disk.damage import flip, zero
from quothd import Broker
from quothwire.protocol.messages import TrimTopic

Damage = Callable[[Scene], None]


@pytest.fixture(scope="module")
def left(tmp_path_factory: pytest.TempPathFactory) -> Left:
    """Return the directory of a broker that ended in order, with three segments."""
    return leave_behind(tmp_path_factory.mktemp("left") / "data", killed=False)


def flipped(offset: int, *numbers: int) -> Damage:
    """Change a byte of each of these batches."""

    def damage(scene: Scene) -> None:
        for stored in (scene.stored[number] for number in numbers):
            flip(stored.path, stored.start + offset)

    return damage


def zeroed(scene: Scene) -> None:
    """Write zeros from the middle of batch 5 to the middle of batch 6."""
    one, other = scene.stored[5], scene.stored[6]
    zero(one.path, (one.start + one.end) // 2, (other.start + other.end) // 2)


def without_segment(scene: Scene) -> None:
    """Remove a segment between others."""
    scene.segments[1].unlink()
    scene.index(1).unlink()


def without_block(scene: Scene) -> None:
    """Damage the header block of a segment and its first batch."""
    flip(scene.block(1)[0], 20)
    flipped(20, 4)(scene)


def without_footer(scene: Scene) -> None:
    """Damage the footer of a sealed segment."""
    path, start, _ = scene.tail(0, BATCHES)
    flip(path, start + 20)


HEADER, BODY = 20, 110
EVERY_BATCH = range(SEGMENTS * BATCHES)
DAMAGES: dict[str, tuple[Damage, set[int]]] = {
    "a body": (flipped(BODY, 5), {5}),
    "a header in the active segment": (flipped(HEADER, ACTIVE + 1), {ACTIVE + 1}),
    "all headers": (flipped(HEADER, *EVERY_BATCH), {*EVERY_BATCH}),
    "zeros over two batches": (zeroed, {5, 6}),
    "a missing segment": (without_segment, {4, 5, 6, 7}),
    "the block of a segment and its first header": (without_block, {4}),
    "a footer": (without_footer, set()),
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


@pytest.mark.parametrize(("damage", "lost"), DAMAGES.values(), ids=DAMAGES)
def test_simple_reader_gets_an_error_for_damage_and_every_whole_record(
    left: Left, tmp_path: Path, peers: Peers, damage: Damage, lost: set[int]
) -> None:
    scene = Scene(left, tmp_path / "data")
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
            assert bool(reported) == bool(lost), limit
            assert all(any(before < one <= after for before, after in reported) for one in gone), limit
            assert not any(before < one <= after for before, after in reported for one, _ in records), limit


def test_long_poll_reports_damage_at_once(left: Left, tmp_path: Path, peers: Peers) -> None:
    scene = Scene(left, tmp_path / "data")
    flipped(HEADER, *EVERY_BATCH)(scene)
    with Broker(scene.directory, host="127.0.0.1") as broker:
        status, code, text, following = peers.simple(broker, zmq.REQ).ask("read", "t", 0, 10, 60_000)
    assert (status, code, int(following)) == (b"error", b"damaged", left.published[-1].pointer)
    assert f"the {len(left.published)} records up to" in text.decode()


def test_records_removed_by_retention_are_no_damage(peers: Peers, tmp_path: Path) -> None:
    with Broker(tmp_path / "data", host="127.0.0.1") as broker:
        simple = peers.simple(broker, zmq.REQ)
        first, _ = simple.publish("t", b"old")
        with peers.fast(broker) as fast:
            simple.publish("t", b"older")
            fast.call(TrimTopic(2**56 - 1), "t")
        assert simple.ask("read", "t", 0) == [b"ok", b"0"]
        _, last = simple.publish("t", b"new")
        for after in (0, first):
            assert simple.ask("read", "t", after)[1:] == [b"%d" % last, b"%d" % last, b"new"]
