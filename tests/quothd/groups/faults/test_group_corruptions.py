"""The log of groups with any byte of it changed, or cut anywhere: no record is lost, and the topic serves.

Records may be handed out again, also those that were acknowledged.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from kit.disk.memory_disk import Image, MemoryDisk
from kit.groups.group_topics import GroupTopic, code
from kit.scale import some
from quothlog.groups import group_log
from quothlog.groups.group_log import FOLDER
from quothwire.protocol.group_messages import UpdateGroup
from quothwire.protocol.settlement import Settle, Settlement

PART = 40
"""One in so many places is tried, all of them with QUOTH_LONG=1."""
State = Callable[[GroupTopic], set[int]]


def settle(topic: GroupTopic, kind: Settle, pointers: list[int], rows: list[list[int]]) -> None:
    token = rows[0][0]
    milliseconds = int(kind is Settle.NACK)
    topic.settle(*(Settlement(kind, one, one, token, milliseconds) for one in pointers))


def new(topic: GroupTopic) -> set[int]:
    """A group at work: acks between others, a second attempt, a dead letter that is on its way.

    Returns the records that must not be lost.
    """
    topic.make_group(backoff=[0.0])
    pointers = [pointer for _ in range(3) for pointer in topic.publish(*b"a b c d".split())]
    found = topic.fetch(9)
    settle(topic, Settle.ACK, [pointers[0], pointers[2], pointers[3], pointers[7]], found.rows)
    settle(topic, Settle.NACK, pointers[5:7], found.rows)
    again = topic.fetch(2)
    topic.ack(again.rows[:1])
    topic.holds_letters = True
    settle(topic, Settle.TERM, [pointers[4]], found.rows)
    return {*pointers} - {pointers[0], pointers[2], pointers[3], pointers[7], *again.pointers}


def compacted(topic: GroupTopic) -> set[int]:
    """The same after its log was made short."""
    left = new(topic)
    topic.topic.topic.groups.compact()
    return left


def grown(topic: GroupTopic) -> set[int]:
    """Compacted, with changes behind that, of settings, too."""
    left = compacted(topic)
    topic.call(UpdateGroup("g", {"lease": 20.0}, 1))
    topic.call(UpdateGroup("g", {}, 0))
    found = topic.fetch(2)
    topic.ack(found.rows)
    return left - {*found.pointers}


def moved(topic: GroupTopic) -> set[int]:
    """A group that was moved back and has acknowledged other records then."""
    left = new(topic)
    topic.seek(0)
    found = topic.fetch(3)
    topic.ack(found.rows)
    topic.make_group("h", start=-1)
    return left - {*found.pointers}


@pytest.fixture(autouse=True)
def _compact_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(group_log, "COMPACT_BYTES", 0)
    monkeypatch.setattr(group_log, "COMPACT_FACTOR", 0)


class Damaged:
    """A directory as a broker left it, to be damaged and opened."""

    def __init__(self, directory: Path, state: State) -> None:
        self._disk = MemoryDisk()
        topic = GroupTopic(directory, self._disk)
        self.left = state(topic)
        topic.stop()
        self._directory = directory
        self._files: Image = {path: bytes(content.now) for path, content in self._disk._now.items()}

    @property
    def files(self) -> dict[Path, bytes]:
        return {path: data for path, data in self._files.items() if path.parent.name == FOLDER}

    def check(self, path: Path, data: bytes) -> None:
        """Open it with other bytes in a file: the group hands out all that must not be lost."""
        topic = GroupTopic(self._directory, MemoryDisk({**self._files, path: data}))
        try:
            if code(topic.info) == "unknown_group":
                topic.make_group()
            topic.call(UpdateGroup("g", {}, 0))
            found: set[int] = set()
            while pointers := topic.fetch().pointers:
                found |= {*pointers}
            missing = self.left - found - {*topic.dead_pointers()}
            assert not missing, f"{path.name}: {missing} are lost"
            assert topic.publish(b"more")[0] in topic.fetch().pointers
        finally:
            topic.kill()


STATES: list[State] = [new, compacted, grown, moved]


@pytest.mark.timeout(3_600)
@pytest.mark.parametrize("state", STATES)
def test_no_byte_of_the_log_of_groups_is_needed_for_a_record(
    tmp_path: Path, state: State, rng: random.Random
) -> None:
    damaged = Damaged(tmp_path, state)
    for path, at in some([*_places(damaged)], rng, PART):
        data = bytearray(damaged.files[path])
        data[at] ^= rng.choice((1, 0x10, 0x80, 0xFF))
        damaged.check(path, bytes(data))


@pytest.mark.timeout(3_600)
@pytest.mark.parametrize("state", STATES)
def test_a_log_of_groups_that_ends_anywhere_loses_no_record(
    tmp_path: Path, state: State, rng: random.Random
) -> None:
    damaged = Damaged(tmp_path, state)
    for path, size in some([*_places(damaged)], rng, PART):
        damaged.check(path, damaged.files[path][:size])


@pytest.mark.parametrize("state", STATES)
def test_a_log_of_groups_without_one_of_its_files_loses_no_record(tmp_path: Path, state: State) -> None:
    damaged = Damaged(tmp_path, state)
    for path in damaged.files:
        damaged.check(path, b"")


def _places(damaged: Damaged) -> Iterator[tuple[Path, int]]:
    return ((path, at) for path, data in damaged.files.items() for at in range(len(data)))
