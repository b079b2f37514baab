"""Batches and files in the wrong place: they cost themselves, and nothing else.

Blocks of a disk that were mixed up, a copied file, a value that looks like a footer.
"""

from __future__ import annotations

import errno
import shutil
from itertools import pairwise, product
from pathlib import Path

import pytest
from xxhash import xxh3_64_intdigest

from kit.clocks import HOUR, SECOND, START, ManualClock
from kit.disk.damage import flip
from kit.disk.doubles import FaultyDisk
from kit.disk.logs import (
    OpenLog,
    boundaries,
    encoded,
    fill,
    outcome_of,
    put,
    salvaged,
    segments,
    values,
    verify_log,
)
from kit.machine.processes import peak_of
from quothlog import Log, LogOptions, file_format
from quothlog.file_format import Footer, LogPosition
from quothlog.recovery import verify
from quothwire import batch
from quothwire.record import Record

LOG_ID = 0x5151
BATCHES = 20


@pytest.fixture(params=["active", "sealed, with its index", "sealed, without it"])
def stored(request: pytest.FixtureRequest, open_log: OpenLog, directory: Path) -> list[Record]:
    """The records of `BATCHES` equal batches that lie in one segment, of each kind. It is not open."""
    log = open_log(log_id=LOG_ID)
    records = fill(log, BATCHES)
    if request.param != "active":
        log.roll()
        records += fill(log, 1)
    log.close()
    if request.param.endswith("without it"):
        segments(directory)[0].with_suffix(file_format.INDEX_SUFFIX).unlink()
    return records


def put_in_place(directory: Path, moves: dict[int, int]) -> None:
    """Let batches of the first segment stand where others stood: {place: which batch}."""
    path = segments(directory)[0]
    data = path.read_bytes()
    places = list(pairwise(boundaries(path, LOG_ID)))
    changed = bytearray(data)
    for place, which in moves.items():
        changed[slice(*places[place])] = data[slice(*places[which])]
    path.write_bytes(changed)


def assert_lost_only(log: Log, told: list[Record], lost: set[int]) -> None:
    """Every other batch is there, in order, for every reader, now and after one more opening."""
    whole = {record.pointer: record.value for record in told}
    kept = {record.pointer for row, record in enumerate(told) if row not in lost}
    found = [record.pointer for record in salvaged(log)]
    assert found == sorted(found)
    assert kept <= set(found)
    assert all(whole[record.pointer] == record.value for record in salvaged(log))
    for after in (told[0].pointer, told[7].pointer, told[BATCHES - 2].pointer):
        assert {one.pointer for one in salvaged(log, after)} >= {one for one in kept if one > after}
    assert log.append(b"later").first > told[-1].pointer
    log.close()
    assert kept <= {one.pointer for one in verify_log(log.directory)[0]}


PAIRS = [(0, 1), (1, 2), (1, 18), (5, 6), (0, 18), (17, 18), (1, 19), (0, 19), (18, 19)]
MOVES = [
    *({one: other, other: one} for one, other in PAIRS),
    *({place: which} for place, which in product((0, 1, 10, 18, 19), (0, 1, 9, 18, 19)) if place != which),
    {2: 12, 3: 13, 4: 14, 12: 2, 13: 3, 14: 4},
]
"""Two batches that changed places, a batch that was written over another one, blocks of them."""


@pytest.mark.parametrize("moves", MOVES, ids=str)
def test_misplaced_batches_hide_no_others(
    stored: list[Record], open_log: OpenLog, directory: Path, moves: dict[int, int]
) -> None:
    put_in_place(directory, moves)
    assert_lost_only(open_log(), stored, {*moves.keys(), *moves.values()})


# -- footers -------------------------------------------------------------------------------------------------


def ending_in_a_footer(log: Log) -> bytes:
    """A batch whose value ends in what would be this segment's footer, right at the end of the file."""

    def of(end: int) -> bytes:
        footer = Footer(log.log_id, LogPosition(end - file_format.FOOTER_BYTES, START, 5), 0)
        return encoded([b"x" * 72 + file_format.encode_footer(footer)])

    raw = of(log.info().bytes + len(of(10_000)))
    assert raw[-file_format.FOOTER_BYTES :].startswith(b"QUOTHEND")
    return raw


def test_copies_behind_the_end_of_the_index_are_read_where_their_originals_are_damaged(
    open_log: OpenLog, directory: Path
) -> None:
    log = open_log(log_id=LOG_ID)
    records = fill(log, 8)
    log.roll()
    records += fill(log, 1)
    log.close()
    path = segments(directory)[0]
    places = boundaries(path, LOG_ID)
    data = path.read_bytes()
    copies, rest = data[places[5] : places[8]], data[places[8] :]
    path.write_bytes(data[: places[8]] + copies + rest)
    flip(path, places[5])
    for place in (6, 7):  # the header of the last one agrees with the index
        flip(path, places[place] + batch.HEADER_BYTES)
    log = open_log(log_id=LOG_ID)
    for row in range(len(records)):
        assert salvaged(log, records[row].pointer) == records[row + 1 :]


def test_value_that_looks_like_a_footer_is_a_value(open_log: OpenLog, directory: Path) -> None:
    """The log's id is no secret: what a whole batch covers is no footer."""
    log = open_log()
    fill(log, 1)
    put(log, ending_in_a_footer(log))
    records = list(log.read())
    log.sync()
    log.discard()
    log = open_log()
    assert (log.findings.torn_bytes, list(log.read())) == (0, records)
    assert verify_log(directory)[0] == records
    (summary,) = verify.summaries(directory)
    assert (summary.damages, summary.records) == ((), 2)


def test_block_that_could_not_be_read_once_leaves_damage_what_it_is(
    open_log: OpenLog, directory: Path
) -> None:
    """A first batch that does not check is not taken for one that retention has removed."""
    with open_log(options=LogOptions(count_limit=4)) as log:
        fill(log, 8)
    path = segments(directory)[0]
    flip(path, boundaries(path, log.log_id)[0])
    disk = FaultyDisk()
    log = open_log(filesystem=disk)
    found = log.fetch(0)
    assert found is not None
    disk.fail("open")
    for _ in range(2):
        assert log.loss(0, 0, found) == (1, 1)
    assert disk.struck_any


def test_value_that_looks_like_the_missing_footer_is_a_value(open_log: OpenLog, directory: Path) -> None:
    disk = FaultyDisk()
    log = open_log(filesystem=disk)
    fill(log, 1)
    put(log, ending_in_a_footer(log))
    disk.fail("write", 2, errno.ENOSPC)
    assert log.roll()
    disk.heal()
    log.append(b"behind")
    records = list(log.read())
    assert len(records) == 3
    log.rest()
    assert list(log.read()) == records
    assert verify_log(directory)[0] == records


# -- files ---------------------------------------------------------------------------------------------------


# -- what damage must not lead to ----------------------------------------------------------------------------


def test_pointer_behind_two_damaged_batches_is_not_reused(
    open_log: OpenLog, directory: Path, clock: ManualClock
) -> None:
    """Also if a value behind them holds an old batch of this very log."""
    log = open_log()
    fill(log, 1)
    path = segments(directory)[0]
    start, end = boundaries(path, log.log_id)
    old = path.read_bytes()[start:end]
    clock.set(START + HOUR)
    lost = log.append(b"lost").first
    log.append(b"a copy of the first: " + old)
    log.sync()
    log.discard()
    _, one, other, _ = boundaries(path, log.log_id)
    flip(path, one + batch.HEADER_BYTES + 2)
    flip(path, other + 9)
    clock.set(START + 2 * SECOND)
    log = open_log()
    assert log.append(b"new").first > lost


def test_retries_are_recognised_without_a_header_block_and_an_index(
    open_log: OpenLog, directory: Path
) -> None:
    """An index changes nothing but time, also where it would be of help."""
    log = open_log()
    raws = [encoded([b"%d" % i], 7, i + 1) for i in range(4)]
    first = put(log, *raws[:2])
    log.roll()
    first += put(log, *raws[2:3])
    log.roll()
    first += put(log, *raws[3:])
    log.close()
    flip(segments(directory)[-1], 20)
    for index in directory.glob(f"*{file_format.INDEX_SUFFIX}"):
        index.unlink()
    log = open_log()
    for raw, told in zip(raws, first, strict=True):
        outcome = outcome_of(log, raw)
        assert not isinstance(outcome, str)
        assert (outcome.first, outcome.duplicate) == (told.first, True)
    assert len(values(log)) == 4


# -- segments that are not there, or are not what their names say ------------------------------------


@pytest.mark.parametrize("problem", ["removed", "of a newer version", "a directory"])
def test_segment_that_cannot_be_read_hides_no_other_segment(
    open_log: OpenLog, directory: Path, problem: str
) -> None:
    """Nor the one before it, whose end it would show."""
    with open_log(options=LogOptions(count_limit=2)) as log:
        records = fill(log, 10)
    third = segments(directory)[2]
    if problem == "of a newer version":
        block = bytearray(third.read_bytes()[: file_format.BLOCK_BYTES])
        block[8:12] = (7).to_bytes(4, "little")
        block[88:96] = xxh3_64_intdigest(bytes(block[:88])).to_bytes(8, "little")
        third.write_bytes(bytes(block) + third.read_bytes()[file_format.BLOCK_BYTES :])
    log = open_log()
    if problem != "of a newer version":
        third.unlink()
    if problem == "a directory":
        third.mkdir()
    for row in (0, 1, 3, 4):
        after = records[2 * row].pointer - 1
        found = log.fetch(after, bytes_max=1)
        assert found is not None
        assert found.ordinal == 2 * row


def test_misplaced_segment_before_all_others_changes_no_count(open_log: OpenLog, directory: Path) -> None:
    """Trimmed records are no damage, and a trim never removes less than nothing."""
    with open_log(options=LogOptions(count_limit=2)) as log:
        appended = fill(log, 10)
        log.trim(appended[4].pointer)
    newest = segments(directory)[-1]
    shutil.copy(newest, directory / f"{appended[0].pointer - 5:017d}.seg")
    log = open_log()
    assert log.first_ordinal == 4
    found = log.fetch(0)
    assert found is not None
    assert log.loss(0, 0, found).damaged == 0
    records, _ = log.trim(appended[6].pointer)
    assert records == 2
    assert log.first_ordinal == 6
    assert list(log.read()) == appended[6:]


def test_header_blocks_of_a_long_history_are_not_kept_in_memory(open_log: OpenLog, directory: Path) -> None:
    """Each takes up to 4.5 MiB, for a thousand producers and as many applications."""
    with open_log() as log:
        put(log, *(encoded([b"x"], producer=number + 1, sequence=1) for number in range(900)))
        for _ in range(60):
            log.roll()
            log.append(b"x")
        block_bytes = segments(directory)[-1].stat().st_size
    log = open_log()
    assert peak_of(lambda: sum(1 for _ in log.read())) < 20 * block_bytes


def test_cut_batch_at_the_end_shows_that_the_one_before_it_is_misplaced(
    open_log: OpenLog, directory: Path
) -> None:
    """The last batch of three stands first and is broken, the second one is cut: the first one is whole."""
    log = open_log(log_id=LOG_ID)
    records = fill(log, 3)
    log.roll()
    records += fill(log, 1)
    log.close()
    path = segments(directory)[0]
    data = path.read_bytes()
    first, second, third = (data[slice(*place)] for place in pairwise(boundaries(path, LOG_ID)))
    broken = third[:-8] + bytes([third[-8] ^ 1]) + third[-7:]
    block = data[: boundaries(path, LOG_ID)[0]]
    path.write_bytes(block + broken + first + second[: batch.HEADER_BYTES])
    found = salvaged(open_log())
    assert [record.value for record in found] == [records[0].value, records[3].value]


def test_copy_named_within_a_segment_hides_no_record_of_it(open_log: OpenLog, directory: Path) -> None:
    """A copy of another segment: whatever the cursor, a read goes on in the segment around its name."""
    with open_log(options=LogOptions(count_limit=4)) as log:
        records = fill(log, 12)
    shutil.copy(segments(directory)[1], directory / file_format.segment_name(records[1].pointer + 1))
    log = open_log()
    for row, record in enumerate(records):
        assert list(log.read(record.pointer)) == records[row + 1 :]
        assert verify_log(directory, record.pointer)[0] == records[row + 1 :]
