"""Damage for simple readers: the reply `damaged` has the cursor to go on with; every whole record is read.

The tests of `quothlog` and the damage matrix of the client damage every place of a log.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import zmq

from kit.broker.peers import Peers, SimplePeer
from kit.disk.corruptions import ACTIVE, BATCHES, RECORDS, SEGMENTS, Scene, leave_behind
from kit.disk.damage import flip
from quothd import Broker

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


def test_a_simple_reader_gets_an_error_for_damage_and_every_whole_record(
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
