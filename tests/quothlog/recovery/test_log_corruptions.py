"""Each corruption of a log and its cost, the same through opening, offline verification and repair.

The crashed log has two sealed segments with three batches of three records each, and a tail of four
batches. The clock stands still all the while, so a pointer that came a second time would be noticed.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

import pytest

from kit.disk import damage
from kit.disk.crashed_log import LOG_ID, CrashedLog, assert_goes_on, restamped, torn_files
from kit.disk.damage import cut, flip, insert, overwrite, truncate
from kit.disk.logs import boundaries, copy, salvaged, segments
from kit.scale import some
from quothlog.file_format import FOOTER_BYTES
from quothlog.recovery.repair import repair
from quothlog.recovery.verify import Damage, Unfinished, Wrong, records, summaries
from quothwire.batch import HEADER_BYTES
from quothwire.record import Record


class Scene:
    """A copy of the crashed log to be damaged. spans: the file, start and end of each batch, as they were."""

    def __init__(self, crashed_log: CrashedLog) -> None:
        self.crashed_log = crashed_log
        self.directory = copy(crashed_log.directory, next(crashed_log.copies))
        self.paths = segments(self.directory)
        self.spans = [
            (path, start, end) for path in self.paths for start, end in pairwise(boundaries(path, LOG_ID))
        ]

    def raw(self, number: int) -> bytes:
        path, start, end = self.spans[number]
        return path.read_bytes()[start:end]

    def block(self, row: int) -> int:
        """Return the size of a header block."""
        return next(start for path, start, _ in self.spans if path == self.paths[row])


Change = Callable[[Scene], object]


def flip_in(number: int, offset: int) -> Change:
    """Change one byte of a batch. offset: from its start, or from its end if it is negative."""

    def change(scene: Scene) -> None:
        path, start, end = scene.spans[number]
        flip(path, (end if offset < 0 else start) + offset)

    return change


def fill(first: int, last: int, byte: bytes) -> Change:
    """Write over some batches of one segment."""

    def change(scene: Scene) -> None:
        path, start, _ = scene.spans[first]
        overwrite(path, start, byte * (scene.spans[last][2] - start))

    return change


def before(number: int, data: Callable[[Scene], bytes]) -> Change:
    return lambda scene: insert(*scene.spans[number][:2], data(scene))


def swap(one: int, other: int) -> Change:
    return lambda scene: damage.swap(scene.spans[one][0], scene.spans[one][1:], scene.spans[other][1:])


def together(*changes: Change) -> Change:
    return lambda scene: [change(scene) for change in changes]


def end_at(row: int, size: Callable[[Scene], int]) -> Change:
    return lambda scene: truncate(scene.paths[row], size(scene))


def emptied(row: int, byte: bytes = b"\0") -> Change:
    return lambda scene: overwrite(scene.paths[row], 0, byte * scene.paths[row].stat().st_size)


def no_index(scene: Scene) -> None:
    for path in scene.directory.glob("*.idx"):
        path.unlink()


def size_of(row: int, less: int) -> Callable[[Scene], int]:
    return lambda scene: scene.paths[row].stat().st_size - less


UNFINISHED = "unfinished"
Reported = tuple[int, str, int]


class Corruption(NamedTuple):
    """A change, the batches that it costs, and (segment, kind, missing records) as verifying reports it.

    last: batches of which a pointer is left somewhere, so that none of theirs is given out again.
    """

    change: Change
    lost: set[int]
    reported: list[Reported]
    last: int = 10


BLOCK, FOOTER, BYTES, BODY, CUT = Wrong.BLOCK, Wrong.FOOTER, Wrong.BYTES, Wrong.BODY, Wrong.CUT
CORRUPTIONS: dict[str, Corruption] = {
    "nothing": Corruption(lambda scene: None, set(), []),
    "no index": Corruption(no_index, set(), []),
    "a sealed header": Corruption(flip_in(1, 20), {1}, [(0, BYTES, 3)]),
    "a sealed body": Corruption(flip_in(4, -3), {4}, [(1, BODY, 3)]),
    "the first batch": Corruption(fill(0, 0, b"\0"), {0}, [(0, BYTES, 3)]),
    "the first batch of a sealed segment": Corruption(fill(3, 3, b"\xaa"), {3}, [(1, BYTES, 3)]),
    "the last batch of a sealed segment": Corruption(fill(5, 5, b"\xaa"), {5}, [(1, BYTES, 3)]),
    "all batches of a sealed segment": Corruption(fill(3, 5, b"\xaa"), {3, 4, 5}, [(1, BYTES, 9)]),
    "an active header": Corruption(flip_in(7, 20), {7}, [(2, BYTES, 2)]),
    "an active body": Corruption(flip_in(8, -3), {8}, [(2, BODY, 1)]),
    "all batches of the active segment": Corruption(
        fill(6, 9, b"\xaa"), {6, 7, 8, 9}, [(2, UNFINISHED, 0)], last=6
    ),
    "the header of the last batch": Corruption(flip_in(9, 20), {9}, [(2, UNFINISHED, 0)]),
    "the body of the last batch": Corruption(flip_in(9, -3), {9}, [(2, BODY, 1)]),
    "the first header block": Corruption(lambda scene: flip(scene.paths[0], 20), set(), [(0, BLOCK, -1)]),
    "a sealed header block": Corruption(lambda scene: flip(scene.paths[1], 30), set(), [(1, BLOCK, 0)]),
    "the active header block": Corruption(lambda scene: flip(scene.paths[2], 20), set(), [(2, BLOCK, 0)]),
    "a header block and the batch behind it": Corruption(
        together(lambda scene: flip(scene.paths[1], 20), flip_in(3, 9)), {3}, [(1, BLOCK, 3)]
    ),
    "no header block at all": Corruption(
        lambda scene: cut(scene.paths[1], 0, scene.block(1)), set(), [(1, BLOCK, 0), (1, FOOTER, 0)]
    ),
    "an active segment cut in its header block": Corruption(
        end_at(2, lambda scene: 50), {6, 7, 8, 9}, [(2, BLOCK, -1)]
    ),
    "a sealed segment of zeros": Corruption(emptied(1), {3, 4, 5}, [(1, BLOCK, 9)]),
    "the first segment of rubbish": Corruption(emptied(0, b"x"), {0, 1, 2}, [(0, BLOCK, -1)]),
    "an active segment of zeros": Corruption(emptied(2), {6, 7, 8, 9}, [(2, BLOCK, -1)]),
    "no first segment": Corruption(lambda scene: scene.paths[0].unlink(), {0, 1, 2}, []),
    "no middle segment": Corruption(
        lambda scene: scene.paths[1].unlink(), {3, 4, 5}, [(2, Wrong.SEGMENT, 9)]
    ),
    "no last segment": Corruption(lambda scene: scene.paths[2].unlink(), {6, 7, 8, 9}, [], last=6),
    "a footer": Corruption(lambda scene: flip(scene.paths[1], size_of(1, 9)(scene)), set(), [(1, FOOTER, 0)]),
    "a footer cut short": Corruption(end_at(0, size_of(0, 1)), set(), [(0, FOOTER, 0)]),
    "no footer": Corruption(end_at(1, size_of(1, FOOTER_BYTES)), set(), []),
    "a sealed segment cut between two batches": Corruption(
        end_at(0, lambda scene: scene.spans[2][1]), {2}, [(0, Wrong.RECORDS, 3)]
    ),
    "a sealed segment cut in a batch": Corruption(
        end_at(0, lambda scene: scene.spans[1][1] + 80), {1, 2}, [(0, CUT, 6)]
    ),
    "garbage between": Corruption(
        before(8, lambda scene: random.Random(7).randbytes(777)), set(), [(2, BYTES, 0)]
    ),
    "zeros between": Corruption(
        before(1, lambda scene: bytes(5_000)), set(), [(0, BYTES, 0), (0, FOOTER, 0)]
    ),
    "a batch once more": Corruption(
        before(5, lambda scene: scene.raw(3)), set(), [(1, Wrong.REPEATED, 0), (1, FOOTER, 0)]
    ),
    "an active batch once more": Corruption(
        before(8, lambda scene: scene.raw(6)), set(), [(2, Wrong.REPEATED, 0)]
    ),
    "a batch of another log between": Corruption(
        before(8, lambda scene: restamped(scene.crashed_log, LOG_ID + 1, 0)), set(), [(2, BYTES, 0)]
    ),
    "half a batch between": Corruption(before(8, lambda scene: scene.raw(7)[:-9]), set(), [(2, CUT, 0)]),
    "bytes removed": Corruption(
        lambda scene: cut(scene.paths[0], scene.spans[0][2] - 16, scene.spans[0][2] - 8),
        {0, 1},
        [(0, BODY, 3), (0, BYTES, 3), (0, FOOTER, 0)],
    ),
    "two batches swapped": Corruption(swap(3, 4), {3}, [(1, Wrong.RECORDS, 3), (1, Wrong.REPEATED, 0)]),
    "a batch instead of another": Corruption(
        lambda scene: overwrite(*scene.spans[4][:2], scene.raw(3)), {4}, [(1, Wrong.DISPLACED, 3)]
    ),
}


def reported_by_verify(directory: Path, paths: list[Path]) -> tuple[list[Record], list[Reported]]:
    """Read a log without its lock: the records, and what is wrong between them."""
    found = list(records(directory, log_id=LOG_ID))
    wrong = [one for one in found if not isinstance(one, Record)]
    in_summaries = [one for summary in summaries(directory, log_id=LOG_ID) for one in summary.damages]
    assert in_summaries == [one for one in wrong if isinstance(one, Damage)]
    reported = [
        (paths.index(one.path), one.kind, one.records)
        if isinstance(one, Damage)
        else (paths.index(one.path), UNFINISHED, 0)
        for one in wrong
    ]
    return [one for one in found if isinstance(one, Record)], reported


def is_kept(directory: Path, path: Path, content: bytes) -> bool:
    """Return True if all bytes that a segment had are in it, or in quarantine."""
    kept = [one.read_bytes() for one in directory.glob(f"{path.name}.*")]
    if not path.exists():  # without its torn end it held nothing
        return any(content.endswith(one) for one in kept)
    left = path.read_bytes()  # a footer may have come behind it, or in place of a damaged one
    torn = [end + one for one in kept for end in (left, left[:-FOOTER_BYTES])]
    return left.startswith((content, content[:-FOOTER_BYTES])) or content in (*kept, *torn)


@pytest.mark.parametrize("corruption", CORRUPTIONS.values(), ids=CORRUPTIONS)
def test_corruption_costs_the_same_in_opening_verification_and_repair(
    crashed_log: CrashedLog, corruption: Corruption
) -> None:
    scene = Scene(crashed_log)
    corruption.change(scene)
    left = [record for i, one in enumerate(crashed_log.batches) if i not in corruption.lost for record in one]
    assert reported_by_verify(scene.directory, scene.paths) == (left, corruption.reported)

    mended = copy(scene.directory, next(crashed_log.copies))
    contents = {path.name: path.read_bytes() for path in segments(mended)}
    list(repair(mended, log_id=LOG_ID, clock=crashed_log.clock))
    assert all(is_kept(mended, mended / name, content) for name, content in contents.items())
    found = list(summaries(mended))
    assert not [damage for one in found for damage in one.damages if damage.end > damage.start]
    assert all(one.indexed or not one.sealed for one in found)
    missing = sum(damage.records for one in found for damage in one.damages)
    expected = sum(number for *_, number in corruption.reported if number > 0)
    assert missing == (0 if torn_files(mended) else expected), (
        "a loss of what was synced is reported for good"
    )
    assert not any(one.kept for one in repair(mended, clock=crashed_log.clock))
    with crashed_log.open(mended) as log:
        assert salvaged(log) == left

    log = crashed_log.open(scene.directory)
    if 9 not in corruption.lost:
        info = log.info()
        assert (info.last, info.end_ordinal) == (crashed_log.records[-1].pointer, len(crashed_log.records))
    assert_goes_on(crashed_log, log, left, crashed_log.upto(corruption.last))


def test_changed_byte_costs_only_its_batch(crashed_log: CrashedLog, rng: random.Random) -> None:
    """Whichever byte of whichever batch it is; `verify` reports its place, and opening keeps the bytes."""
    scene = Scene(crashed_log)
    no_index(scene)
    for number, (path, start, end) in enumerate(scene.spans):
        left = [record for i, one in enumerate(crashed_log.batches) if i != number for record in one]
        whole = path.read_bytes()
        inside = some(range(start + 1, end - 1), rng, 8)
        for place in sorted({start, start + HEADER_BYTES, end - 1, *inside}):
            flip(path, place, rng.choice((0x01, 0xFF)))
            found = list(records(scene.directory))
            assert [one for one in found if isinstance(one, Record)] == left, place
            (wrong,) = (one for one in found if isinstance(one, Damage | Unfinished))
            assert (wrong.path, wrong.start, wrong.end) == (path, start, end), place
            if place % 4 == 0:
                log = crashed_log.open(copy(scene.directory, next(crashed_log.copies)))
                findings, size = log.findings, end - start
                is_active, is_last = number >= crashed_log.before_tail, number == len(crashed_log.batches) - 1
                assert findings.damaged_bytes == (size if is_active and not is_last else 0), place
                assert findings.torn_bytes == (size if is_last else 0), place
                assert_goes_on(crashed_log, log, left, crashed_log.records)
            path.write_bytes(whole)


@pytest.mark.parametrize("row", range(3))
def test_changed_byte_of_a_header_block_or_a_footer_costs_no_batch(
    crashed_log: CrashedLog, rng: random.Random, row: int
) -> None:
    """The batches are read in every way, and the log goes on."""
    scene = Scene(crashed_log)
    path, block = scene.paths[row], scene.block(row)
    size = path.stat().st_size
    footer = range(size - FOOTER_BYTES, size) if row < 2 else range(0)
    for place in (*some(range(block), rng, 12), *some(footer, rng, 8)):
        target = copy(scene.directory, next(crashed_log.copies))
        flip(segments(target)[row], place, 0x41)
        log = crashed_log.open(target)
        info = log.info()
        assert (info.first, info.last) == (crashed_log.records[0].pointer, crashed_log.records[-1].pointer)
        assert (info.first_ordinal, info.end_ordinal) == (0, len(crashed_log.records))
        for i in range(0, len(crashed_log.records), 5):
            assert (
                list(log.read(crashed_log.records[i].pointer, limit=4)) == crashed_log.records[i + 1 : i + 5]
            )
        assert_goes_on(crashed_log, log, crashed_log.records, crashed_log.records)
