"""Damage as a simple reader meets it: `damaged` with the cursor to go on with, and every whole record."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import zmq

from kit.broker.peers import Peers, SimplePeer
from kit.disk.corruptions import ACTIVE, BATCHES, RECORDS, SEGMENTS, Left, Scene, leave_behind
from kit.disk.damage import cut, flip, overwrite, zero
from quothd import Broker
from quothwire.protocol.messages import TrimTopic

Damage = Callable[[Scene], None]
ALL = set(range(SEGMENTS * BATCHES))


@pytest.fixture(scope="module")
def left(tmp_path_factory: pytest.TempPathFactory) -> Left:
    """Three segments, left behind by a broker that ended in order."""
    return leave_behind(tmp_path_factory.mktemp("left") / "data", killed=False)


def in_batch(number: int, offset: int) -> Damage:
    """One byte of a batch is changed."""
    return lambda scene: flip(scene.stored[number].path, scene.stored[number].start + offset)


def zeroed(first: int, last: int) -> Damage:
    """Zeros from the middle of one batch to the middle of another one."""

    def damage(scene: Scene) -> None:
        one, other = scene.stored[first], scene.stored[last]
        zero(one.path, (one.start + one.end) // 2, (other.start + other.end) // 2)

    return damage


def headers_of(first: int, last: int) -> Damage:
    """The headers of batches, each by itself."""
    return both(*(in_batch(number, 20) for number in range(first, last + 1)))


def wild_offset(scene: Scene) -> None:
    """An offset that leads out of the batch."""
    overwrite(scene.stored[5].path, scene.stored[5].start + 68, b"\xff\xff\xff\x7f")


def taken_out(scene: Scene) -> None:
    """A batch is not there, and what lay behind it has moved up."""
    cut(scene.stored[5].path, scene.stored[5].start, scene.stored[5].end)


def missing_segment(scene: Scene) -> None:
    """A segment between others is not there."""
    scene.segments[1].unlink()
    scene.index(1).unlink()


def bad_block(row: int) -> Damage:
    """The header block of a segment is damaged."""
    return lambda scene: flip(scene.block(row)[0], 20)


def bad_footer(scene: Scene) -> None:
    """The footer of a sealed segment is damaged."""
    path, start, _ = scene.tail(0, BATCHES)
    flip(path, start + 20)


def both(*damages: Damage) -> Damage:
    """One after the other."""

    def damage(scene: Scene) -> None:
        for one in damages:
            one(scene)

    return damage


LOST: dict[str, tuple[Damage, set[int]]] = {
    "a header": (in_batch(5, 20), {5}),
    "a magic": (in_batch(5, 1), {5}),
    "a body": (in_batch(5, 110), {5}),
    "an offset": (wild_offset, {5}),
    "a header and the body behind it": (
        both(in_batch(5, 20), in_batch(6, 110)),
        {5, 6},
    ),
    "the first header": (in_batch(0, 20), {0}),
    "the first body": (in_batch(0, 110), {0}),
    "the first header of a segment": (in_batch(4, 20), {4}),
    "the last header of a segment": (in_batch(7, 20), {7}),
    "a header in the active segment": (in_batch(ACTIVE + 1, 20), {ACTIVE + 1}),
    "a body in the active segment": (in_batch(ACTIVE + 1, 110), {ACTIVE + 1}),
    "the headers of the last batches": (headers_of(ACTIVE + 1, ACTIVE + 3), {*range(ACTIVE + 1, ACTIVE + 4)}),
    "the headers of the active segment": (headers_of(ACTIVE, ACTIVE + 3), {*range(ACTIVE, ACTIVE + 4)}),
    "the headers of all batches": (headers_of(0, ACTIVE + 3), ALL),
    "zeros over two batches": (zeroed(5, 6), {5, 6}),
    "zeros over a whole segment but its first batch": (zeroed(4, 7), {4, 5, 6, 7}),
    "a batch taken out": (taken_out, {5}),
    "a missing segment": (missing_segment, {4, 5, 6, 7}),
    "the block of a segment": (bad_block(1), set()),
    "the block of a segment and its first header": (
        both(bad_block(1), in_batch(4, 20)),
        {4},
    ),
    "a footer": (bad_footer, set()),
}


def steps(simple: SimplePeer, limit: int) -> Iterator[tuple[int, int, list[tuple[int, bytes]]]]:
    """Read on from what each reply says: the cursor before and after it, and its records, none for damage."""
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
        assert following > cursor, "every reply gets the reader on"
        cursor = following


@pytest.mark.parametrize(("damage", "lost"), LOST.values(), ids=LOST)
def test_a_simple_reader_gets_an_error_for_damage_and_reads_everything_else(
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
            told = [(before, after) for before, after, some in found if not some]
            assert bool(told) == bool(lost), limit
            assert all(any(before < one <= after for before, after in told) for one in gone), limit
            assert not any(before < one <= after for before, after in told for one, _ in records), limit


def test_a_read_that_would_wait_reports_damage_at_once(left: Left, tmp_path: Path, peers: Peers) -> None:
    """What comes behind the damage does not make it any better."""
    scene = Scene(left, tmp_path / "data")
    headers_of(0, ACTIVE + 3)(scene)
    with Broker(scene.directory, host="127.0.0.1") as broker:
        status, code, text, following = peers.simple(broker, zmq.REQ).ask("read", "t", 0, 10, 60_000)
    assert (status, code, int(following)) == (b"error", b"damaged", left.published[-1].pointer)
    assert f"the {len(left.published)} records up to" in text.decode()


def test_what_retention_removed_is_no_damage(peers: Peers, tmp_path: Path) -> None:
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
