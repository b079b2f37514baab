"""A reader beside a writer: a thread, a process, a writer that died, a log that is damaged."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Iterable
from itertools import pairwise
from pathlib import Path

import pytest

from kit.clocks import ManualClock
from kit.deadlines import DEADLINE_S
from kit.disk.damage import flip
from kit.disk.logs import OpenLog, fill, segments
from quothlog import Log, LogOptions, Missing, Reader
from quothlog.file_format import BLOCK_BYTES, FOOTER_MAGIC
from quothlog.reading.directory_watch import DirectoryWatch
from quothlog.reading.log_batch import LogBatch
from quothwire.errors import QuothError
from quothwire.headers import readable_headers
from quothwire.record import Record

WRITER = """
import random, sys
from quothlog import Log, LogOptions
rng = random.Random(int(sys.argv[2]))
log = Log.open(sys.argv[1], options=LogOptions(count_limit=50))
number = log.end_ordinal
print("ready", flush=True)
while True:
    count = rng.randint(1, 9)
    log.append([b"%d" % (number + i) for i in range(count)], keys=[b"k"] * count)
    number += count
    if rng.random() < 0.05:
        log.sync()
"""
"""Writes numbers until it is killed."""


def values_of(records: list[Record]) -> list[bytes]:
    return [record.value for record in records]


def unexpected(missing: Missing) -> None:
    raise AssertionError(missing)


def read_all(directory: Path, after: int = 0) -> list[Record]:
    with Reader(directory, after, on_missing=unexpected) as reader:
        return list(reader)


def test_reader_begins_behind_any_pointer_also_inside_a_batch(open_log: OpenLog, directory: Path) -> None:
    log = open_log(options=LogOptions(count_limit=7))
    records = fill(log, 5, 4)
    for skip, record in enumerate(records, 1):
        for pointer in (record.pointer, record.pointer + 1):
            expected = [one for one in records[skip:] if one.pointer > pointer]
            assert read_all(directory, pointer) == expected
        reader = Reader(directory, on_missing=unexpected)
        reader.seek(record.pointer)
        assert list(reader) == records[skip:]
        reader.close()


def test_reader_at_the_end_raises_no_error_and_reads_later_records_once(log: Log, directory: Path) -> None:
    """Reading at the end gives nothing, and then exactly what was written since: also the same values."""
    with Reader(directory, on_missing=unexpected) as reader:
        assert reader.read() == []
        for _ in range(5):
            log.append([b"same"])
            assert values_of(reader.read()) == [b"same"]
            assert reader.read() == []
        log.append([b"a", b"b", b"c"])
        assert values_of(reader.read(2)) == [b"a", b"b"]
        log.roll()
        log.append([b"d"])
        assert values_of(list(reader)) == [b"c", b"d"]
        assert reader.pointer == log.newest


def test_seek_to_end_reads_new_records_only(log: Log, directory: Path) -> None:
    log.append([b"old"])
    with Reader(directory, on_missing=unexpected) as reader:
        reader.seek_to_end()
        assert reader.pointer == log.newest
        assert reader.read(timeout=0.01) == []
        log.append([b"new"])
        assert values_of(reader.read()) == [b"new"]
        log.roll()
        reader.seek_to_end()
        assert reader.read() == []
        log.append([b"newer"])
        assert values_of(reader.read()) == [b"newer"]


def test_folder_without_a_log_is_an_empty_log(directory: Path, open_log: OpenLog) -> None:
    with pytest.raises(FileNotFoundError):
        Reader(directory)
    directory.mkdir()
    with Reader(directory, on_missing=unexpected) as reader:
        assert reader.read() == []
        open_log().append([b"first"])
        assert values_of(reader.read()) == [b"first"]


def test_tail_ends_after_its_silence_only(log: Log, directory: Path) -> None:
    log.append([b"a"])
    with Reader(directory, on_missing=unexpected) as reader:
        assert values_of(list(reader.tail(timeout=0.0))) == [b"a"]
        began = time.monotonic()
        assert list(reader.tail(timeout=0.05)) == []
        assert time.monotonic() - began >= 0.05


def test_reader_follows_a_writer_that_is_killed_repeatedly(
    directory: Path, seed: int, rng: random.Random
) -> None:
    """A reader beside a writer that is killed again and again sees what each opening finds."""
    directory.mkdir()
    seen: list[Record] = []
    with Reader(directory, on_missing=unexpected) as reader:
        for life in range(4):
            command = [sys.executable, "-c", WRITER, str(directory), str(seed + life)]
            with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
                assert process.stdout is not None
                process.stdout.readline()
                target = len(seen) + rng.randint(1, 400)
                try:
                    for record in reader.tail(DEADLINE_S):
                        seen.append(record)
                        if len(seen) >= target:
                            break
                finally:
                    os.kill(process.pid, signal.SIGKILL)
            seen += reader
    with Log.open(directory) as log:
        assert seen == list(log.read())
    assert values_of(seen) == [b"%d" % number for number in range(len(seen))]
    assert all(a.pointer < b.pointer for a, b in pairwise(seen))


def test_torn_end_of_a_dead_writer_is_the_end_until_it_is_cut_off(open_log: OpenLog, directory: Path) -> None:
    log = open_log()
    log.append([b"whole"])
    log.sync()
    log.append([b"torn" * 100])
    log.discard()
    path = segments(directory)[-1]
    for cut in (1, 50, 300):
        os.truncate(path, path.stat().st_size - cut)
        assert values_of(read_all(directory)) == [b"whole"]
    with Reader(directory, on_missing=unexpected) as reader:
        assert values_of(list(reader)) == [b"whole"]
        log = open_log()
        assert reader.read() == []
        log.append([b"after"])
        assert values_of(list(reader)) == [b"after"]
    assert list(log.read()) == read_all(directory)


def test_reader_reports_damage_and_skips_it(open_log: OpenLog, directory: Path) -> None:
    log = open_log(options=LogOptions(count_limit=6))
    records = fill(log, 8, 3)
    log.close()
    path = segments(directory)[1]
    flip(path, path.read_bytes().index(records[7].value))
    gaps: list[Missing] = []
    with Reader(directory, on_missing=gaps.append) as reader:
        assert list(reader) == records[:6] + records[9:]
    (missing,) = gaps
    assert missing.reason == "damaged"
    assert (missing.records, missing.ordinal) == (3, 6)
    assert missing.after < records[6].pointer <= records[8].pointer < missing.next
    assert str(path) in missing.text


def test_damage_at_the_end_is_reported_once_a_batch_follows_it(open_log: OpenLog, directory: Path) -> None:
    log = open_log()
    log.append([b"a"])
    log.append([b"b"])
    path = segments(directory)[-1]
    flip(path, path.read_bytes().index(b"b", BLOCK_BYTES + 96))
    missing: list[Missing] = []
    with Reader(directory, on_missing=missing.append) as reader:
        assert values_of(list(reader)) == [b"a"]
        assert not missing
        log.append([b"c"])
        assert values_of(list(reader)) == [b"c"]
    assert [(one.reason, one.records, one.ordinal) for one in missing] == [("damaged", 1, 1)]


def test_damage_of_unknown_extent_is_reported_once(open_log: OpenLog, directory: Path) -> None:
    """The end of a segment and the beginning of the next one: the next batch shows how many there were."""
    log = open_log(options=LogOptions(count_limit=4))
    log.append(b"0")
    gaps: list[Missing] = []
    with Reader(directory, on_missing=gaps.append) as reader:
        assert values_of(list(reader)) == [b"0"]
        pointers = [log.append(b"%d" % number).first for number in range(1, 12)]
        first, second, _ = segments(directory)
        footer = first.read_bytes().rindex(FOOTER_MAGIC)
        for path, offset in ((first, footer - 8), (first, footer + 20), (second, 20)):
            flip(path, offset)
        assert values_of(list(reader)) == [b"%d" % number for number in range(1, 12) if number != 3]
    (missing,) = gaps
    assert (missing.reason, missing.records) == ("damaged", 1)
    assert missing.after < pointers[2] < missing.next
    assert str(directory) in missing.text


def test_reader_in_progress_reports_exactly_the_records_that_retention_removed(
    open_log: OpenLog, directory: Path
) -> None:
    log = open_log(options=LogOptions(count_limit=2))
    records = fill(log, 12, size=1)
    missing: list[Missing] = []
    with Reader(directory, on_missing=missing.append) as reader:
        assert values_of(reader.read(1)) == [b"0"]
        reader.seek(reader.pointer)
        assert values_of(reader.read(1)) == [b"1"]
        log.trim(records[9].pointer)
        rest = values_of(list(reader))
        gone = sum(one.records for one in missing)
        assert [b"%d" % number for number in range(2, 12)][gone:] == rest
        assert gone > 0
        assert {one.reason for one in missing} == {"trimmed"}
    assert values_of(read_all(directory)) == [b"8", b"9", b"10", b"11"]


def test_resumed_reader_reports_that_retention_removed_records(open_log: OpenLog, directory: Path) -> None:
    """Their number is unknown then; a reader that has had all of them gets no report."""
    log = open_log(options=LogOptions(count_limit=2))
    records = fill(log, 12, size=1)
    log.trim(records[8].pointer)
    missing: list[Missing] = []
    with Reader(directory, records[3].pointer, on_missing=missing.append) as reader:
        assert list(reader) == records[8:]
    assert missing == [Missing(records[3].pointer, records[8].pointer, -1, -1, "trimmed")]
    assert read_all(directory, records[7].pointer) == records[8:]


def test_another_log_in_the_same_place_is_refused(open_log: OpenLog, directory: Path) -> None:
    log = open_log()
    log.append([b"a"])
    log.close()
    with Reader(directory, on_missing=unexpected) as reader:
        assert values_of(list(reader)) == [b"a"]
        for path in directory.iterdir():
            path.unlink()
        open_log().append([b"stranger"])
        with pytest.raises(QuothError, match="another log"):
            list(reader)


# -- when a directory is listed again ------------------------------------------------------------------------


def settle(directory: Path) -> None:
    """As if nothing had happened there for long."""
    os.utime(directory, (1, 1))


def test_listing_of_an_unchanged_directory_is_reused(tmp_path: Path) -> None:
    settle(tmp_path)
    clock = ManualClock()
    names = DirectoryWatch(tmp_path, clock)
    assert [names.may_differ(), names.may_differ()] == [True, False]
    file = tmp_path / "file"
    for change in (file.touch, file.unlink):
        change()
        clock.set(tmp_path.stat().st_mtime_ns // 1_000)
        assert [names.may_differ(), names.may_differ()] == [True, True], "one more within the same tick"
        settle(tmp_path)
        assert [names.may_differ(), names.may_differ()] == [True, False]
    names.forget()
    assert names.may_differ()
    tmp_path.rmdir()
    with pytest.raises(FileNotFoundError):
        names.may_differ()


def test_reader_of_a_settled_directory_sees_the_log_roll(open_log: OpenLog, directory: Path) -> None:
    log = open_log()
    with Reader(directory) as reader:
        for number in range(3):
            log.append([b"%d" % number])
            assert [record.value for record in reader] == [b"%d" % number]
            settle(directory)
            assert reader.read() == []
            log.roll()


def rows_of(batches: Iterable[LogBatch]) -> list[tuple[int, bytes, bytes | None, dict[str, bytes]]]:
    """Return the records of columns one by one."""
    rows: list[tuple[int, bytes, bytes | None, dict[str, bytes]]] = []
    for one in batches:
        keys, headers = one.keys or [None] * len(one.values), one.headers or [b""] * len(one.values)
        rows += zip(
            range(one.first, one.last + 1), one.values, keys, map(readable_headers, headers), strict=True
        )
    return rows


def test_columns_hold_the_same_records_from_any_pointer(log: Log, directory: Path) -> None:
    log.append([b"a", b"b", b"c"], keys=[None, b"k", b""], headers=[{}, {"n": b"1"}, {}])
    log.append([b"d", b"e"])
    log.append(b"f", keys=[b"l"])
    records = list(log.read())
    expected = [(one.pointer, one.value, one.key, dict(one.headers)) for one in records]
    for skip in range(len(records) + 1):
        after = records[skip - 1].pointer if skip else 0
        assert rows_of(log.batches(after)) == expected[skip:]
        with Reader(directory, after, on_missing=unexpected) as reader:
            assert rows_of(reader.batches()) == expected[skip:]
            assert reader.pointer == log.newest
        with Reader(directory, on_missing=unexpected) as reader:
            assert reader.read(skip) == records[:skip]
            assert rows_of(reader.batches()) == expected[skip:]
            assert list(reader) == []
    ordinals = [
        number for one in log.batches(records[0].pointer) for number in (one.ordinal, len(one.values))
    ]
    assert ordinals == [1, 2, 3, 2, 5, 1]


def test_pointer_follows_each_way_of_reading(log: Log, directory: Path) -> None:
    records = fill(log, 4, 3)
    with Reader(directory, on_missing=unexpected) as reader:
        assert reader.pointer == 0
        for record, own in zip(records[:5], reader, strict=False):
            assert own == record
            assert reader.pointer == record.pointer
        taken = reader.pointer
        assert reader.read(3) == [one for one in records if one.pointer > taken][:3]
        first = next(reader.batches())
        assert reader.pointer == first.last
        assert list(reader) == [one for one in records if one.pointer > first.last]
        assert reader.pointer == log.newest


def test_iterator_goes_on_where_its_reader_seeks_to(log: Log, directory: Path) -> None:
    records = fill(log, 4, 3)
    with Reader(directory, on_missing=unexpected) as reader:
        running = iter(reader)
        assert next(running) == records[0]
        reader.seek(records[6].pointer)
        assert reader.pointer == records[6].pointer
        assert next(running) == records[7]
        reader.seek(0)
        assert list(running) == records
