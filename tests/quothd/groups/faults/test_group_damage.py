"""A log of groups in which any byte is wrong, or that ends anywhere: nothing counts as finished that is not.

Records may be handed out again. QUOTH_LONG=1 tries every byte and every length of a short one.
"""

from __future__ import annotations

import random
import shutil
from pathlib import Path
from typing import NamedTuple

import pytest

import quoth
from kit.deadlines import eventually
from kit.disk.logs import size_of
from kit.scale import times
from quoth import Client, ConsumerGroup
from quothd import Broker
from quothlog.groups import group_log
from quothlog.groups.group_log import FOLDER
from quothwire.errors import NotFound

RECORDS = 40
FLIPS, CUTS = times(25, 5_000), times(12, 2_000)
"""As many places as a log of groups has that was not compacted, in the long form."""
COMPACT_BYTES = 2**16
"""Instead of a MiB, which takes seconds to write."""
WRITTEN_BYTES = 2 * COMPACT_BYTES
GROUPS = ("plain", "moved", "cursor")


class Left(NamedTuple):
    """The directory that a broker left behind, the pointers of its records, and those that are finished.

    earlier: those that were finished before a group was moved back.
    """

    directory: Path
    pointers: list[int]
    finished: dict[str, set[int]]
    earlier: dict[str, set[int]]

    @property
    def files(self) -> list[Path]:
        return files_of(self.directory)


def files_of(directory: Path) -> list[Path]:
    """Return the files of the log of the groups."""
    (folder,) = directory.glob(f"topics/t~*/{FOLDER}")
    return sorted(path for path in folder.iterdir() if path.suffix in (".seg", ".idx"))


def _settle_some(group: ConsumerGroup, chance: random.Random) -> set[int]:
    """Acknowledge some of what a group hands out, and give some back; returns the acknowledged pointers."""
    acked = set()
    for message in chance.sample(found := group.fetch(12, 0.0), len(found)):
        if chance.random() < 0.6:
            message.ack()
            acked.add(message.pointer)
        elif chance.random() < 0.5:
            message.nack(0)
    return acked


def _leave(directory: Path, chance: random.Random, *, compacted: bool) -> Left:
    """Let a broker leave a directory behind, with groups in different states."""
    finished: dict[str, set[int]] = {}
    with Broker(directory, check_interval=0.01) as broker, quoth.connect(broker) as client:
        pointers: list[int] = []
        while len(pointers) < RECORDS:
            ack = client.publish("t", [b"x"] * chance.choice((1, 2, 7)))
            pointers += range(ack.first, ack.last + 1)
        with client.group("t", "plain", backoff=(0,)) as plain, client.group("t", "moved") as moved:
            finished["plain"] = _settle_some(plain, chance) | _settle_some(plain, chance)
            earlier = {"moved": _settle_some(moved, chance)}
            moved.seek("begin")
            finished["moved"] = _settle_some(moved, chance)
            if compacted:
                _compact(client, directory)
            finished["plain"] |= _settle_some(plain, chance)
        cursor = client.cursor("t", "cursor")
        cursor.commit(pointers[RECORDS // 2])
        finished["cursor"] = {pointer for pointer in pointers if pointer <= pointers[RECORDS // 2]}
        client.group("t", "removed").info()
        client.group("t", "removed").delete()
    left = Left(directory, pointers, finished, earlier)
    if compacted:
        assert _size(left.files) < WRITTEN_BYTES * 3 // 4
    return left


def _compact(client: Client, directory: Path) -> None:
    """Let the log of the groups grow until it is compacted, by settings that change."""
    group, size = client.group("t", "filler"), 0
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(group_log, "COMPACT_BYTES", COMPACT_BYTES)
        while size < WRITTEN_BYTES:
            group.update(backoff=[float(size % 97)] * 32)
            size += 2 * 300
        eventually(lambda: _size(files_of(directory)) < WRITTEN_BYTES // 2, "the log is compacted")
    group.delete()


def _size(files: list[Path]) -> int:
    return sum(map(size_of, files))


def _unfinished(directory: Path, pointers: list[int]) -> dict[str, set[int]]:
    """Open a directory; returns the records that each group has not finished, by handing all of them out."""
    found: dict[str, set[int]] = {}
    with Broker(directory) as broker, quoth.connect(broker) as client:
        for name in GROUPS:
            try:
                found[name] = _handed_out(client, name, pointers)
            except NotFound:
                found[name] = {*pointers}  # it has to be created again, and begins at the beginning
        assert len(client.read("t")) == len(pointers), "the topic serves its records"
    return found


def _handed_out(client: Client, name: str, pointers: list[int]) -> set[int]:
    if name == "cursor":
        at = client.group("t", name, mode="cursor", create=False).info().cursor
        return {pointer for pointer in pointers if pointer > at}
    got: set[int] = set()
    with client.group("t", name, create=False) as group:
        while messages := group.fetch(100, 0.0):
            got |= {message.pointer for message in messages}
    return got


class Check:
    """Changes one file of a copy, and compares what groups hand out with what they have to."""

    def __init__(self, left: Left, directory: Path) -> None:
        self._left = left
        self._copy = directory / "copy"

    def __call__(self, file: Path, data: bytes | bytearray, finished: dict[str, set[int]]) -> None:
        left, copy = self._left, self._copy
        shutil.copytree(left.directory, copy)
        (copy / file.relative_to(left.directory)).write_bytes(data)
        for name, unfinished in _unfinished(copy, left.pointers).items():
            assert {*left.pointers} - finished[name] <= unfinished, f"{name} finishes too much"
        shutil.rmtree(copy)


@pytest.fixture
def check(left: Left, tmp_path: Path) -> Check:
    return Check(left, tmp_path)


@pytest.fixture(params=[False, True], ids=["grown", "compacted"])
def left(request: pytest.FixtureRequest, tmp_path: Path, seed: int) -> Left:
    return _leave(tmp_path / "left", random.Random(seed), compacted=request.param)


def test_a_whole_log_of_groups_hands_out_exactly_what_is_not_finished(left: Left) -> None:
    for name, unfinished in _unfinished(left.directory, left.pointers).items():
        assert unfinished == {*left.pointers} - left.finished[name], name


@pytest.mark.timeout(1_800)
def test_no_flipped_byte_of_a_log_of_groups_finishes_a_record(left: Left, check: Check, seed: int) -> None:
    places = [(file, at) for file in left.files for at in range(file.stat().st_size)]
    for file, at in random.Random(seed).sample(places, min(FLIPS, len(places))):
        data = bytearray(file.read_bytes())
        data[at] ^= 0x10
        check(file, data, left.finished)


@pytest.mark.timeout(1_800)
def test_no_cut_of_a_log_of_groups_finishes_a_record(left: Left, check: Check, seed: int) -> None:
    """A group whose move is cut off is where it was before."""
    ever = {name: pointers | left.earlier.get(name, set()) for name, pointers in left.finished.items()}
    places = [(file, size) for file in left.files for size in range(file.stat().st_size)]
    for file, size in random.Random(seed).sample(places, min(CUTS, len(places))):
        check(file, file.read_bytes()[:size], ever)
