"""A data directory that a broker left behind, and everything that may happen to its files.

Twelve batches of three records lie in three segments, the last of which was being written. Where several
corruptions come together, each finds its place by where it was at first, and changes what is there by then.
"""

from __future__ import annotations

import random
import shutil
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

import quoth
from kit.broker.brokers import BrokerProcess
from kit.disk.damage import (
    cut,
    flip,
    in_place,
    insert,
    overwrite,
    stored_batches,
    swap,
    swap_files,
    truncate,
    zero,
)
from kit.disk.logs import segments
from quoth import Messages
from quothwire.batch import HEADER_BYTES

SEGMENTS, BATCHES, RECORDS = 3, 4, 3
ACTIVE = (SEGMENTS - 1) * BATCHES
"""The first batch of the segment that was being written."""


class Left(NamedTuple):
    """The directory that a broker left behind: a topic `t`, its records and batches, and another topic."""

    directory: Path
    log_id: int
    published: Messages
    others: Messages
    written: list[bytes]

    @property
    def batch_of(self) -> dict[int, int]:
        """The batch that each pointer is in."""
        return {message.pointer: row // RECORDS for row, message in enumerate(self.published)}


def leave_behind(directory: Path, *, killed: bool) -> Left:
    """Let a broker that is killed, or ended in order, leave a directory behind."""
    broker = BrokerProcess(directory)
    ids: dict[str, int] = {}
    try:
        broker.start()
        with quoth.connect(broker.url) as client:
            for topic in ("t", "other"):
                ids[topic] = client.create_topic(topic, count_limit=BATCHES * RECORDS).log
                for number in range(SEGMENTS * BATCHES):
                    values = [b"%d.%d " % (number, row) + b"x" * (number * 29 % 70) for row in range(RECORDS)]
                    client.publish(topic, values, key=b"of " + topic.encode())
            published, others = client.read("t"), client.read("other")
        broker.kill() if killed else broker.terminate()
    finally:
        broker.close()
    stored = stored_batches(broker.topics_directory, ids["t"])
    written = [one.path.read_bytes()[one.start : one.end] for one in stored]
    return Left(directory, ids["t"], published, others, written)


class Scene:
    """A copy of what a broker left behind, to be damaged and then served."""

    def __init__(self, left: Left, directory: Path) -> None:
        shutil.copytree(left.directory, directory)
        self.left = left
        self.directory = directory
        (self.folder,) = directory.glob(f"topics/*~{left.log_id:016x}")
        (self.other,) = directory.glob("topics/other~*")
        self.stored = stored_batches(directory / "topics", left.log_id)
        self.segments = segments(self.folder)
        self._blocks = [path.read_bytes()[: self.block(row)[2]] for row, path in enumerate(self.segments)]

    @property
    def settings(self) -> Path:
        return self.folder / "topic.json"

    def index(self, row: int) -> Path:
        return self.segments[row].with_suffix(".idx")

    def block(self, row: int) -> ByteRange:
        first = self.stored[row * BATCHES]
        return first.path, 0, first.start

    def tail(self, row: int, number: int) -> ByteRange:
        """All of a segment from one of its batches on; from the one that it does not have, its footer."""
        one = self.stored[row * BATCHES + number - 1]
        return one.path, one.end, _size(one.path)

    def whole(self) -> set[int]:
        """The batches that are whole and in their place."""
        found = set()
        for row, path in enumerate(self.segments):
            if path.exists():
                first = row * BATCHES
                written = self.left.written[first : first + BATCHES]
                data, log_id = path.read_bytes(), self.left.log_id
                needed = in_place(data, written, log_id)
                if self.index(row).exists():
                    needed &= in_place(data, written, log_id, self.block(row)[2])
                    last = self.stored[first + BATCHES - 1]
                    if first == ACTIVE and data.startswith(written[-1][:HEADER_BYTES], last.start):
                        # Opening believes the index, and quarantines what lies behind its end.
                        needed &= in_place(data[: last.end], written, log_id)
                found |= {first + one for one in needed}
        return found

    def has_block(self, row: int) -> bool:
        """Return True if the header block of a segment is as it was."""
        path = self.segments[row]
        return path.exists() and path.read_bytes().startswith(self._blocks[row])


Corruption = Callable[[Scene, random.Random], object]
ByteRange = tuple[Path, int, int]
ByteChange = Callable[[Path, int, int, random.Random], None]


# -- changes of a range of bytes ----------------------------------------------------------------------------


def _flip(path: Path, start: int, end: int, rng: random.Random) -> None:
    for _ in range(rng.randint(1, 3)):
        flip(path, rng.randrange(start, end), rng.randrange(1, 256))


def _overwrite(path: Path, start: int, end: int, rng: random.Random) -> None:
    begin, stop = _part(start, end, rng)
    overwrite(path, begin, rng.randbytes(stop - begin))


def _double(path: Path, start: int, end: int, rng: random.Random) -> None:
    begin, stop = _part(start, end, rng)
    insert(path, rng.choice((begin, stop)), path.read_bytes()[begin:stop])


def _swap(path: Path, start: int, end: int, rng: random.Random) -> None:
    a, b, c, d = sorted(rng.sample(range(start, end + 1), 4))
    swap(path, (a, b), (c, d))


def _part(start: int, end: int, rng: random.Random) -> tuple[int, int]:
    """Some of a range, or all of it."""
    if rng.random() < 0.2:
        return start, end
    begin, stop = sorted(rng.sample(range(start, end + 1), 2))
    return begin, stop


BYTE_CHANGES: dict[str, ByteChange] = {
    "flip": _flip,
    "zero": lambda path, start, end, rng: zero(path, *_part(start, end, rng)),
    "overwrite": _overwrite,
    "cut": lambda path, start, end, rng: cut(path, *_part(start, end, rng)),
    "truncate": lambda path, start, end, rng: truncate(path, rng.randrange(start, end)),
    "double": _double,
    "swap": _swap,
}


def _batch(number: int, start: int = 0, end: int | None = None) -> Callable[[Scene], ByteRange]:
    def byte_range(scene: Scene) -> ByteRange:
        one = scene.stored[number]
        return one.path, one.start + start, one.end if end is None else one.start + end

    return byte_range


def _between(number: int, other: int) -> Callable[[Scene], ByteRange]:
    """From within a batch to within a later one of the same segment."""

    def byte_range(scene: Scene) -> ByteRange:
        one, last = scene.stored[number], scene.stored[other]
        return one.path, (one.start + one.end) // 2, (last.start + last.end) // 2

    return byte_range


PLACES: dict[str, Callable[[Scene], ByteRange]] = {
    "the first batch": _batch(0),
    "the header of a sealed batch": _batch(5, 0, HEADER_BYTES),
    "the body of a sealed batch": _batch(5, HEADER_BYTES),
    "the first batch of a sealed segment": _batch(4),
    "the last batch of a sealed segment": _batch(7),
    "three sealed batches": _between(4, 6),
    "the first batch of the active segment": _batch(8),
    "the header of an active batch": _batch(9, 0, HEADER_BYTES),
    "the body of an active batch": _batch(9, HEADER_BYTES),
    "three active batches": _between(8, 10),
    "the last batch": _batch(11),
    "the first header block": lambda scene: scene.block(0),
    "the second header block": lambda scene: scene.block(1),
    "the active header block": lambda scene: scene.block(2),
    "a footer": lambda scene: scene.tail(1, BATCHES),
    "the end of a segment": lambda scene: scene.tail(0, 3),
    "an index": lambda scene: (scene.index(1), 0, _size(scene.index(1))),
    "a whole segment": lambda scene: (scene.segments[1], 0, _size(scene.segments[1])),
    "the whole active segment": lambda scene: (scene.segments[2], 0, _size(scene.segments[2])),
}


def change_bytes(how: str, place: str) -> Corruption:
    """Apply one of the `BYTE_CHANGES` to one of the `PLACES`, if there is anything left of it."""

    def corrupt(scene: Scene, rng: random.Random) -> None:
        path, start, end = PLACES[place](scene)
        end = min(end, _size(path))
        if end - start > 3:
            BYTE_CHANGES[how](path, start, end, rng)

    return corrupt


def _size(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0


EVERY_BYTE_CHANGE: dict[str, Corruption] = {
    f"{how} {place}": change_bytes(how, place) for how in BYTE_CHANGES for place in PLACES
}


# -- corruptions of whole batches and files -----------------------------------------------------------------


def _if_there(corrupt: Callable[[Scene], object]) -> Corruption:
    """Corrupt files that may be gone by now."""

    def do(scene: Scene, rng: random.Random) -> None:
        with suppress(FileNotFoundError):
            corrupt(scene)

    return do


def _swap_batches(one: int, other: int) -> Corruption:
    def corrupt(scene: Scene) -> None:
        first, second = scene.stored[one], scene.stored[other]
        swap(first.path, (first.start, first.end), (second.start, second.end))

    return _if_there(corrupt)


def _double_batch(one: int, before: int, *, instead: bool = False) -> Corruption:
    def corrupt(scene: Scene) -> None:
        place = scene.stored[before]
        end = place.end if instead else place.start
        cut(place.path, place.start, end, scene.left.written[one])

    return _if_there(corrupt)


def _delete_segments(*rows: int) -> Corruption:
    """The indexes are left."""

    def corrupt(scene: Scene, rng: random.Random) -> None:
        for row in rows:
            scene.segments[row].unlink(missing_ok=True)

    return corrupt


def foreign_newest(scene: Scene, rng: random.Random) -> None:
    """A segment of another topic lies behind all others."""
    floor = scene.left.published[-1].pointer + 5
    shutil.copy(segments(scene.other)[1], scene.folder / f"{floor:017d}.seg")


def _to_each_index(act: Callable[[Path], object]) -> Corruption:
    def corrupt(scene: Scene, rng: random.Random) -> None:
        for path in scene.folder.glob("*.idx"):
            act(path)

    return corrupt


def _foreign_indexes(scene: Scene) -> None:
    for row, other in enumerate(sorted(scene.other.glob("*.idx"))):
        shutil.copy(other, scene.index(row))


WITHOUT_LOSS: dict[str, Corruption] = {
    "no index": _to_each_index(Path.unlink),
    "empty indexes": _to_each_index(lambda path: truncate(path, 0)),
    "swapped indexes": _if_there(lambda scene: swap_files(scene.index(0), scene.index(1))),
    "indexes of another topic": _if_there(_foreign_indexes),
    "one index for all": _if_there(
        lambda scene: [shutil.copy(scene.index(1), scene.index(row)) for row in (0, 2)]
    ),
    **{
        f"batch {one} once more before batch {before}": _double_batch(one, before)
        for one, before in ((5, 5), (5, 6), (4, 7), (8, 11), (9, 10), (0, 5), (3, 11))
    },
}
"""Corruptions that cost no batch."""

MISPLACED: dict[str, Corruption] = {
    **{
        f"batches {one} and {other} swapped": _swap_batches(one, other)
        for one, other in ((0, 1), (0, 3), (4, 5), (4, 6), (5, 6), (4, 7), (8, 9), (8, 10), (8, 11), (10, 11))
    },
    **{
        f"batch {one} instead of batch {other}": _double_batch(one, other, instead=True)
        for one, other in ((4, 5), (5, 4), (4, 7), (7, 4), (9, 8), (8, 11), (11, 8), (1, 9))
    },
    **{
        f"no segment {' '.join(map(str, rows))}": _delete_segments(*rows)
        for rows in ((0,), (1,), (2,), (0, 1), (1, 2))
    },
}
"""Corruptions that cost batches, or move them."""


TOO_EARLY: dict[str, Corruption] = {
    "batch 9 once more before batch 1": _double_batch(9, 1),
    "batch 11 once more before batch 4": _double_batch(11, 4),
}
"""Corruptions that cost nothing as long as their segment has more batches behind them."""


# -- corruptions of the settings ----------------------------------------------------------------------------


SETTINGS: dict[str, Corruption] = {
    "no settings": lambda scene, rng: scene.settings.unlink(),
    "empty settings": lambda scene, rng: truncate(scene.settings, 0),
    "garbage as settings": lambda scene, rng: scene.settings.write_bytes(
        rng.randbytes(rng.choice((1, 100, 100_000)))
    ),
    "nested settings": lambda scene, rng: scene.settings.write_bytes(b"[" * 60_000),
    "cut settings": lambda scene, rng: truncate(scene.settings, rng.randrange(_size(scene.settings))),
}
"""Corruptions that make the settings of the topic unreadable. One of them at a time."""

EVERY_CORRUPTION: dict[str, Corruption] = {
    **EVERY_BYTE_CHANGE,
    **WITHOUT_LOSS,
    **MISPLACED,
    **TOO_EARLY,
    **SETTINGS,
    "a newest segment of another topic": foreign_newest,
}
