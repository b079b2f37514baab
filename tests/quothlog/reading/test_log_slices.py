"""Slices: whatever range is asked for, its bytes make the records that a plain list of them has there."""

from __future__ import annotations

import mmap
import os
import random
import secrets
from bisect import bisect_right
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from itertools import product
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kit.broker.peers import refused
from kit.broker.transactions import Loader
from kit.clocks import ManualClock
from kit.disk.damage import batches_in, flip
from kit.disk.doubles import FaultyDisk
from kit.disk.logs import OpenLog, fill, put, segments, stamped
from kit.scale import times
from quothlog import FileRange, Log, LogOptions, LogSlice, decode
from quothwire import batch
from quothwire.errors import Damaged, QuothError
from quothwire.pointer import POINTER_MAX
from quothwire.record import Record
from quothwire.settings import DURABILITIES, Durability

LEVELS: tuple[Durability | None, ...] = (None, *DURABILITIES)
WIDE = 2**30


@contextmanager
def grown(seed: int) -> Iterator[tuple[Log, list[Record]]]:
    """A log of several segments with transactions and an unsynced end, and all records that it holds."""
    rng = random.Random(seed)
    options = LogOptions(size_limit=rng.choice((400, 2_000, 2**20)), synced_reads=rng.random() < 0.5)
    clock = ManualClock(tick=rng.choice((1, 1_000)))
    disk = FaultyDisk(syncs=False)
    with (
        TemporaryDirectory(prefix="quoth-slices-") as at,
        Log.open(at, options=options, clock=clock, filesystem=disk) as log,
    ):
        loader, records = Loader(log), list[Record]()
        for version in range(rng.randrange(1, 14)):
            contents = [rng.randbytes(rng.choice((0, 1, 30))) for _ in range(rng.choice((1, 1, 2, 3, 10)))]
            if rng.random() < 0.2:
                appended = loader.publish(version, [loader.stage(version, 0, [contents])])
            else:
                (appended,) = put(log, batch.encode(contents))
            records += [Record(appended.first + row, one, None, {}) for row, one in enumerate(contents)]
            if rng.random() < 0.3:
                rng.choice((log.sync, log.roll))()
        if rng.random() < 0.3:
            log.trim(rng.choice(records).pointer)
        yield log, records[log.first_ordinal :]


def seen_by(log: Log, records: list[Record], level: Durability | None) -> list[Record]:
    """The records that a read of a level sees."""
    unsynced = log.unsynced_records
    if level == "synced" or (level is None and log.options.synced_reads):
        return records[: len(records) - unsynced]
    return records


def within(records: list[Record], after: int, until: int) -> list[Record]:
    return records[bisect_right(records, after, key=_pointer) : bisect_right(records, until, key=_pointer)]


def _pointer(record: Record) -> int:
    return record.pointer


def cursors(records: list[Record], rng: random.Random) -> list[int]:
    """Pointers of records, and in front of and behind them."""
    near = {one.pointer + step for one in records for step in (-1, 0, 1)}
    return sorted({0, 1, POINTER_MAX, *rng.sample(sorted(near), min(len(near), 12))})


def content(rows: list[FileRange]) -> bytes:
    """The bytes that a program sends which knows the files and nothing else."""
    found = b""
    for path, offset, length in rows:
        with path.open("rb") as file:
            found += os.pread(file.fileno(), length, offset)
    return found


seeds = given(st.integers(0, 2**32 - 1))


@settings(max_examples=times(30, 1_000))
@seeds
def test_every_range_decodes_to_its_records(seed: int) -> None:
    with grown(seed) as (log, records):
        places = cursors(records, random.Random(seed))
        for after, until, level in product(places, places, LEVELS):
            if until < after:
                continue
            seen = seen_by(log, records, level)
            expected = within(seen, after, until)
            piece = log.slice(after, until, durability=level, bytes_max=WIDE)
            assert decode(piece) == expected
            assert decode(piece.data, log.log_id, after=after, until=until) == expected
            assert content(log.file_ranges(after, until, durability=level)) == piece.data
            assert (bool(piece), piece.count, piece.after) == (bool(expected), len(expected), after)
            ends = (expected[0].pointer, expected[-1].pointer) if expected else (0, 0)
            assert (piece.first, piece.last) == ends
            newest = seen[-1].pointer if seen else log.appender.active.start.pointer
            assert piece.next == (until if until <= newest else max(after, piece.last))


@settings(max_examples=times(40, 1_000))
@seeds
def test_slices_that_follow_each_other_hold_every_record_once(seed: int) -> None:
    with grown(seed) as (log, records):
        rng = random.Random(seed)
        level = rng.choice(LEVELS)
        seen = seen_by(log, records, level)
        records_max, bytes_max = rng.choice((1, 2, 7, WIDE)), rng.choice((1, 300, 1_000, WIDE))
        cursor, pieces = 0, list[LogSlice]()
        limits = {"records_max": records_max, "bytes_max": bytes_max}
        while piece := log.slice(cursor, durability=level, **limits):
            if bytes_max == WIDE:
                assert piece.count == min(records_max, len(seen) - sum(one.count for one in pieces))
            one_batch = batch.parse_header(piece.data, log.log_id).size
            assert piece.count <= records_max
            assert len(piece.data) <= max(bytes_max, one_batch)
            assert piece.ordinal == log.first_ordinal + sum(one.count for one in pieces)
            pieces.append(piece)
            cursor = piece.next
        assert [one for piece in pieces for one in decode(piece)] == seen
        assert decode(b"".join(piece.data for piece in pieces), log.log_id) == seen
        assert (piece.data, piece.ordinal, piece.next) == (b"", -1, cursor)


@settings(max_examples=times(40, 1_000))
@seeds
def test_advance_and_covers_say_what_the_records_say(seed: int) -> None:
    with grown(seed) as (log, records):
        for level in LEVELS:
            seen = seen_by(log, records, level)
            low, high = (seen[0].pointer, seen[-1].pointer) if seen else (1, 0)
            for after in cursors(records, random.Random(seed)):
                assert log.covers(after, durability=level) == (low <= after <= high)
                assert log.advance(after, 0, durability=level) == after
                left = within(seen, after, POINTER_MAX)
                for count in (1, 2, 5, 2**62):
                    reached = left[:count][-1].pointer if left else after
                    assert log.advance(after, count, durability=level) == reached


def test_empty_log_has_no_slice_and_covers_nothing(log: Log) -> None:
    piece = log.slice(0)
    assert not piece
    assert (piece.data, piece.next, decode(piece), log.file_ranges(0)) == (b"", 0, [], [])
    assert [log.covers(pointer) for pointer in (0, 1, POINTER_MAX)] == [False] * 3
    assert log.advance(0, 5) == 0


def test_a_batch_that_reaches_over_both_ends_comes_whole_and_is_trimmed(log: Log) -> None:
    """The example of the module."""
    records = [one for count in (3, 4, 2) for one in fill(log, 1, count)]
    pointers = [one.pointer for one in records]
    piece = log.slice(pointers[4], pointers[7])
    sizes = [batch.parse_header(raw, log.log_id).records for raw in batch.split(piece.data, log.log_id)]
    assert sizes == [4, 2]
    assert decode(piece) == records[5:8]
    assert decode(piece.data, log.log_id) == records[3:]
    assert (piece.first, piece.last, piece.next, piece.count) == (pointers[5], pointers[7], pointers[7], 3)


def test_ranges_of_files_can_be_mapped_while_the_log_is_written(log: Log) -> None:
    records = fill(log, 3, 5)
    (row,) = log.file_ranges(0)
    fill(log, 3, 5)
    start = row.offset // mmap.ALLOCATIONGRANULARITY * mmap.ALLOCATIONGRANULARITY
    skip = row.offset - start
    with (
        row.path.open("rb") as file,
        mmap.mmap(file.fileno(), skip + row.length, offset=start, access=mmap.ACCESS_READ) as mapped,
    ):
        assert decode(mapped[skip:], log.log_id) == records


def test_slice_goes_on_behind_removed_segments(open_log: OpenLog) -> None:
    log = open_log(options=LogOptions(count_limit=2))
    records = fill(log, 10)
    log.trim(records[6].pointer)
    kept = [one for one in records if one.pointer > log.slice(0).first - 1]
    assert 0 < len(kept) < len(records)
    assert decode(log.slice(0)) == kept
    assert log.slice(0).ordinal == len(records) - len(kept)
    gone = log.slice(records[0].pointer, records[1].pointer)
    assert (bool(gone), gone.next) == (False, records[1].pointer)
    assert not log.covers(records[0].pointer)


@pytest.mark.parametrize(
    ("named", "code"),
    [
        ({"after": -1}, "bad_pointer"),
        ({"after": POINTER_MAX + 1}, "bad_pointer"),
        ({"after": 0, "until": POINTER_MAX + 1}, "bad_pointer"),
        ({"after": 5, "until": 4}, "bad_request"),
        ({"after": 0, "records_max": 0}, "bad_request"),
        ({"after": 0, "bytes_max": -5}, "bad_request"),
        ({"after": 0, "durability": "lax"}, "bad_request"),
    ],
)
def test_wrong_slice_is_refused(log: Log, named: dict[str, Any], code: str) -> None:
    fill(log, 2)
    with refused(code):
        log.slice(**named)
    if not named.keys() & {"records_max", "bytes_max"}:
        with refused(code):
            log.file_ranges(**named)


def test_every_read_refuses_a_level_that_does_not_exist(log: Log) -> None:
    unknown: Any = "strict"
    for ask in (log.read, log.batches, log.fetch, log.survey, log.covers, log.lookup, log.slice):
        with refused("bad_request"):
            ask(0, durability=unknown)
    with refused("bad_request"):
        log.advance(0, 1, durability=unknown)
    with refused("bad_request"):
        log.advance(0, -1)


# -- bytes that are wrong -----------------------------------------------------------------------------------


def test_damaged_body_names_the_pointer_to_go_on_after(log: Log, directory: Path) -> None:
    records = fill(log, 5, 3)
    (path,) = segments(directory)
    damaged = batches_in([path], log.log_id)[2]
    flip(path, damaged.end - 1)
    piece = log.slice(0)
    assert piece.count == len(records)
    with pytest.raises(Damaged) as caught:
        decode(piece)
    assert caught.value.hint == f"read on after {damaged.header.last}"
    assert decode(piece.data, log.log_id, after=damaged.header.last) == records[9:]
    assert decode(piece.data, log.log_id, until=damaged.header.base - 1) == records[:6]


def test_slice_ends_in_front_of_a_damaged_header_and_the_next_one_shows_the_hole(
    log: Log, directory: Path
) -> None:
    records = fill(log, 5, 3)
    (path,) = segments(directory)
    flip(path, batches_in([path], log.log_id)[2].start + 20)
    first = log.slice(0)
    second = log.slice(first.next)
    assert (decode(first), decode(second)) == (records[:6], records[9:])
    assert second.ordinal - (first.ordinal + first.count) == 3
    rows = content(log.file_ranges(0))
    with pytest.raises(Damaged, match="damaged: byte"):
        decode(rows, log.log_id)
    assert decode(rows, log.log_id, until=records[5].pointer) == records[:6]


def test_bytes_of_another_log_or_in_another_order_are_damaged(log: Log) -> None:
    fill(log, 2, 3)
    one, two = (bytes(raw) for raw in batch.split(log.slice(0).data, log.log_id))
    assert len(decode(one + one + two + two, log.log_id)) == 6
    for raw, log_id in ((two + one, log.log_id), (one, log.log_id + 1), (one, 0), (one[:-8], log.log_id)):
        with pytest.raises(Damaged):
            decode(raw, log_id)
    overlapping = stamped(batch.encode([b"x"]), log.log_id, batch.parse_header(one, log.log_id).last)
    with pytest.raises(Damaged, match="behind pointer"):
        decode(one + overlapping, log.log_id)


@settings(max_examples=times(300, 20_000))
@given(st.binary(max_size=300), st.integers(0, 2**64 - 1), st.integers(0, POINTER_MAX))
def test_any_bytes_are_records_or_damaged(raw: bytes, log_id: int, after: int) -> None:
    found: list[Record] = []
    with suppress(Damaged):
        found = decode(raw, log_id, after=after)
    assert found == []


def test_changed_bytes_are_records_or_damaged(log: Log) -> None:
    seed = int(os.environ.get("QUOTH_SEED", secrets.randbits(32)))
    print(f"QUOTH_SEED={seed}")
    rng = random.Random(seed)
    records = fill(log, 4, 3)
    stored = log.slice(0).data
    for _ in range(times(2_000, 100_000)):
        raw = bytearray(stored)
        for _ in range(rng.randint(1, 3)):
            raw[rng.randrange(len(raw))] = rng.randrange(256)
        cut = raw[: rng.randint(0, len(raw))] + stored[: rng.choice((0, 0, 64, 200))]
        try:
            found = decode(bytes(cut), log.log_id)
        except Damaged:
            continue
        assert found == records[: len(found)]


def test_decode_takes_every_kind_of_buffer(log: Log) -> None:
    records = fill(log, 3, 2)
    raw = log.slice(0).data
    for one in (raw, bytearray(raw), memoryview(raw), memoryview(raw).cast("Q")):
        assert decode(one, log.log_id) == records
    extract = log.fetch(0)
    assert extract is not None
    assert decode(extract.data, log.log_id) == records


def test_error_of_decode_is_of_the_documented_class() -> None:
    with pytest.raises(QuothError, match="byte 0") as caught:
        decode(b"nothing" * 20, 5)
    assert (caught.value.code, type(caught.value)) == ("damaged", Damaged)
    assert "no batches of log 5" in caught.value.hint
