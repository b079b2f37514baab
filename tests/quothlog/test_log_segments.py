"""Segments: when a new one begins, what is in them, and that no reader notices."""

from __future__ import annotations

import threading
from bisect import bisect_left, bisect_right
from itertools import pairwise
from pathlib import Path
from queue import SimpleQueue

import pytest

from kit.deadlines import eventually
from kit.disk.logs import OpenLog, boundaries, encoded, fill, put, segments, values
from kit.machine.processes import needs_proc, open_files
from quothlog import Log, LogOptions, file_format
from quothlog.file_format import Checkpoint, Footer, LogPosition
from quothlog.index import SparseIndex
from quothlog.reading.read_request import ReadRequest
from quothlog.reading.segment_reader import Extract
from quothlog.sealed import VIEWS_MAX
from quothlog.segment import Segment
from quothlog.storage.filesystem import PosixFileSystem
from quothwire import batch


def test_count_limit_is_exact(open_log: OpenLog) -> None:
    log = open_log(options=LogOptions(count_limit=10))
    fill(log, 10)
    assert log.info().segments == 1
    fill(log, 1)
    assert log.info().segments == 2
    fill(log, 1, records=9)
    assert log.info().segments == 2
    fill(log, 1, records=25)
    assert log.info().segments == 3, "a batch above the limit has a segment of its own"
    fill(log, 1)
    assert log.info().segments == 4


def test_size_limit_is_exact(open_log: OpenLog, directory: Path) -> None:
    """No segment is larger, unless one batch alone is, and the next batch would not have fitted."""
    log = open_log(options=LogOptions(size_limit=1_000))
    sizes = [10, 744, 10, 672, 10, 200, 500, 900, 10, 3_000, 10, 10, 450]
    for size in sizes:
        log.append(bytes(size))
    offsets = [boundaries(path, log.log_id) for path in segments(directory)]
    assert all(one[-1] <= 1_000 or len(one) == 2 for one in offsets)
    assert all(one[-1] + following[1] - following[0] > 1_000 for one, following in pairwise(offsets))
    assert offsets[0][-1] == 1_000
    assert offsets[1][-1] + offsets[2][1] - offsets[2][0] == 1_008, "eight bytes too many"
    assert [len(value) for value in values(log)] == sizes


def test_rolling_an_empty_segment_does_nothing(open_log: OpenLog, directory: Path) -> None:
    log = open_log()
    before = segments(directory)
    assert [log.roll() for _ in range(3)] == [False] * 3
    fill(log, 1)
    assert log.roll() is True
    assert [log.roll() for _ in range(3)] == [False] * 3
    assert len(segments(directory)) == len(before) + 1
    log.close()
    log = open_log()
    assert log.roll() is False
    fill(log, 1)
    assert len(values(log)) == 2


@needs_proc
def test_rolling_leaves_no_file_open(log: Log, directory: Path) -> None:
    """Not of the segment that it began with either: a removed file takes its room until it is closed."""
    log.append(b"first")
    before = len(open_files(directory))
    assert before > 0
    for _ in range(3):
        log.roll()
        log.trim(log.append(b"next").last)
        assert len(open_files(directory)) <= before


@pytest.mark.parametrize("offset", [2**31, 2**32, 2**40 - 1, 2**40, 2**40 + 8, 2**62])
def test_offsets_of_64_bits_are_stored(offset: int) -> None:
    """64 bits wherever an offset is kept."""
    start, far = LogPosition(96, 5, 0), LogPosition(offset, 2**56 - 2, 2**50)
    index = SparseIndex([start])
    index.note(far)
    assert index.positions() == [start, far]
    assert index.before(2**56 - 2) == far
    assert index.before(2**56 - 3) == start
    assert index.leap(offset, 2**50) == far
    assert index.leap(offset - 1, 2**50) == index.leap(offset, 2**50 - 1) == start
    footer = Footer(9, far, 8)
    assert file_format.decode_footer(file_format.encode_footer(footer)) == footer
    point = Checkpoint(9, 5, far, 8, offset - 96, 7, [start, far], b"table")
    assert file_format.decode_checkpoint(file_format.encode_checkpoint(point)) == point


# -- reading in other threads, while the owner writes, rolls and removes -------------------------------------


class Restless(Segment):
    """A segment that another thread lets rest at the very moment at which it has been loaded."""

    def __setattr__(self, name: str, value: object) -> None:
        super().__setattr__(name, value)
        if name == "kept_view" and value is not None:
            self.rest()


def test_read_survives_the_release_of_its_segment_at_any_time(open_log: OpenLog, directory: Path) -> None:
    """A request that races with going to sleep is served."""
    log = open_log()
    stored = fill(log, 3)
    log.roll()
    path = segments(directory)[0]
    restless = Restless(PosixFileSystem(), directory, int(path.stem), log.log_id, path.stat().st_size)
    restless.keep()
    found = ReadRequest(restless, None, 0, 0, 10, 10_000).read()
    assert found is not None
    assert found.next == stored[-1].pointer
    assert restless.kept_view is None


def test_readers_in_other_threads_get_all_written_records(open_log: OpenLog) -> None:
    """An extract is whole batches, or its segment is gone, whatever the owner does meanwhile."""
    log = open_log(options=LogOptions(count_limit=20))
    asked: SimpleQueue[tuple[ReadRequest, int] | None] = SimpleQueue()
    answered: SimpleQueue[tuple[ReadRequest, int, Extract | Exception | None]] = SimpleQueue()

    def read() -> None:
        while (one := asked.get()) is not None:
            try:
                answered.put((*one, one[0].read()))
            except Exception as problem:
                answered.put((*one, problem))

    readers = [threading.Thread(target=read) for _ in range(2)]
    for reader in readers:
        reader.start()
    lookups, first, oldest = 0, 0, 0
    lasts: list[int] = []
    for i in range(1_000):
        (appended,) = put(log, encoded([b"%d" % i] * (i % 3 + 1)))
        lasts.append(appended.last)
        first = first or appended.first
        cursor = first - 1 + (appended.first - first) * (i % 7) // 7
        place = log.lookup(cursor, bytes_max=2_000)
        if place is not None and place.sealed:
            lookups += 1
            asked.put((place, max(bisect_right(lasts, cursor), oldest)))
        if i % 50 == 49:
            log.rest()
        if i % 300 == 299:
            eventually(asked.empty, "the readers keep up: most records are read before they are removed")
            log.trim(first + (appended.first - first) // 2)
            oldest = bisect_left(lasts, log.info().first)
    for _ in readers:
        asked.put(None)
    for reader in readers:
        reader.join()
    gone = 0
    for _ in range(lookups):
        place, row, found = answered.get()
        if found is None:
            gone += 1
            continue
        assert isinstance(found, Extract), found
        headers = [batch.check(raw, log.log_id) for raw in batch.split(found.data, log.log_id)]
        assert [header.last for header in headers] == lasts[row : row + len(headers)]
        assert headers[-1].last == found.next <= place.beyond
    assert lookups > 500
    assert gone < lookups / 2


def test_late_readers_leave_no_more_files_open_than_the_limit(open_log: OpenLog) -> None:
    """The owner may have let a segment rest between the lookup and the reading of another thread."""
    log = open_log(options=LogOptions(count_limit=1))
    stored = fill(log, 3 * VIEWS_MAX)
    lookups = [log.lookup(record.pointer - 1) for record in stored]
    for lookup in lookups:
        assert lookup is not None
        assert lookup.read() is not None
    assert log.info().states.count("r") == VIEWS_MAX
    log.rest()
    assert log.info().states.count("r") == 0
