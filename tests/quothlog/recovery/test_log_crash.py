"""Opening after a crash: every whole batch is there, nothing else is, and what did not check is quarantined.

The wreck of a log with several segments and a tail of several batches is damaged in every way, at every byte
of the tail. The clock stands still all the while, so a pointer that came a second time would be noticed.
"""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest

from kit.clocks import DAY, HOUR
from kit.disk.logs import copy, encoded, salvaged, segments
from kit.disk.wreck import LOG_ID, TAIL, Wreck, assert_goes_on, restamped, torn_files
from kit.scale import some
from quothlog import Log, file_format
from quothwire import batch
from quothwire.errors import Damaged
from quothwire.record import Record

OpenLog = Callable[..., Log]


# -- the tail cut, changed, lengthened ----------------------------------------------------------------------


def test_undamaged_wreck_opens_without_a_finding(wreck: Wreck) -> None:
    log = wreck.open(wreck.with_tail(wreck.tail))
    findings = log.findings
    assert (findings.torn_bytes, findings.damaged_bytes, findings.zero_bytes) == (0, 0, 0)
    assert (findings.set_aside, findings.strays) == ([], [])
    assert log.info().end_ordinal == len(wreck.records)
    assert_goes_on(wreck, log, wreck.records, wreck.records)


def test_tail_cut_at_any_byte(wreck: Wreck, rng: random.Random) -> None:
    """The whole batches are there, the torn bytes stand in a file of their own."""
    data, offsets = wreck.tail, wreck.offsets
    for cut in some(range(offsets[0], offsets[-1]), rng, 2):
        log = wreck.open(wreck.with_tail(data[:cut]))
        whole = sum(offset <= cut for offset in offsets) - 1
        torn = data[offsets[whole] : cut]
        name = f"{segments(wreck.directory)[-1].name}.{offsets[whole]}.torn"
        assert torn_files(log.directory) == ({name: torn} if torn else {}), cut
        assert log.findings.set_aside == ([name] if torn else []), cut
        assert (log.findings.torn_bytes, log.findings.damaged_bytes) == (len(torn), 0), cut
        expected = wreck.upto(wreck.before_tail + whole)
        assert log.end_ordinal == len(expected)
        # of a batch of which not one byte is left nothing can be known
        seen = wreck.upto(wreck.before_tail + whole + bool(torn))
        assert_goes_on(wreck, log, expected, seen)


def test_last_segment_cut_inside_its_header_block(wreck: Wreck) -> None:
    """The log goes on behind the segments before it, ordinals included."""
    data = wreck.tail
    for cut in (1, 8, 50, 95, 96, wreck.offsets[0] - 1):  # an empty file is a stray
        log = wreck.open(wreck.with_tail(data[:cut]))
        expected = wreck.upto(wreck.before_tail)
        assert log.end_ordinal == len(expected)
        assert log.findings.damaged_bytes == cut
        assert segments(log.directory)[2].read_bytes() == data[:cut], "it is left as it is"
        assert_goes_on(wreck, log, expected, wreck.records)


@pytest.mark.parametrize("flip", [0x01, 0xFF])
def test_any_byte_of_the_tail_changed(wreck: Wreck, rng: random.Random, flip: int) -> None:
    """Reads return all intact batches and no wrong record, and report damage."""
    data, offsets = wreck.tail, wreck.offsets
    for lost in range(TAIL):
        start, end = offsets[lost], offsets[lost + 1]
        last = lost == TAIL - 1
        for place in some(range(start, end), rng, 3):
            damaged = bytearray(data)
            damaged[place] ^= flip
            log = wreck.open(wreck.with_tail(bytes(damaged)))
            findings = log.findings
            assert findings.damaged_bytes == (0 if last else end - start), place
            assert findings.torn_bytes == (end - start if last else 0), place
            assert list(torn_files(log.directory).values()) == ([damaged[start:]] if last else []), place
            assert_goes_on(wreck, log, wreck.without(lost), wreck.records)


def test_error_for_damage_has_the_cursor_behind_it(wreck: Wreck) -> None:
    """An error with its place, and the reader may go on."""
    data = bytearray(wreck.tail)
    data[wreck.offsets[2] - 1] ^= 1
    log = wreck.open(wreck.with_tail(bytes(data)))
    lost = wreck.batches[wreck.before_tail + 1]
    found: list[Record] = []
    with pytest.raises(Damaged) as problem:
        found.extend(log.read())
    assert found == wreck.upto(wreck.before_tail + 1)
    assert f"{len(lost)} records from pointer {lost[0].pointer}" in problem.value.text
    assert problem.value.hint == f"read on after {lost[-1].pointer}"
    assert list(log.read(lost[-1].pointer)) == wreck.records[-2:]
    log.close()


def test_error_for_damage_has_the_number_of_its_records(wreck: Wreck) -> None:
    """Damaged records before an extract are counted apart from removed ones."""
    data = bytearray(wreck.tail)
    data[wreck.offsets[1] + 9] ^= 1
    log = wreck.open(wreck.with_tail(bytes(data)))
    lost, cursor = wreck.batches[wreck.before_tail + 1], wreck.batches[wreck.before_tail][-1].pointer
    found = log.fetch(cursor)
    assert found is not None
    ordinal = len(wreck.upto(wreck.before_tail + 1))
    for known in (ordinal, -1):
        assert log.loss(cursor, known, found) == (len(lost), len(lost))
    log.trim(wreck.records[9].pointer)
    found = log.fetch(0)
    assert found is not None
    assert log.loss(0, 0, found) == (9, 0)
    log.close()


TAILS: dict[str, Callable[[Wreck], bytes]] = {
    "one byte": lambda wreck: b"x",
    "garbage": lambda wreck: random.Random(5).randbytes(3_000),
    "garbage of magics": lambda wreck: batch.MAGIC * 500,
    "text": lambda wreck: b"2026-01-02 kernel: EXT4-fs error\n" * 9,
    "the last batch again": lambda wreck: wreck.tail[wreck.offsets[3] :],
    "an earlier batch again": lambda wreck: wreck.tail[wreck.offsets[0] : wreck.offsets[1]],
    "all batches again": lambda wreck: wreck.tail[wreck.offsets[0] :],
    "the header block again": lambda wreck: wreck.tail[: wreck.offsets[0]],
    "a batch without a log": lambda wreck: wreck.raws[-1],
    "a batch of another log": lambda wreck: restamped(wreck, LOG_ID + 1, HOUR),
    "a batch with a false ordinal": lambda wreck: restamped(wreck, LOG_ID, HOUR, ordinal=3),
    "a batch with a false pointer": lambda wreck: restamped(wreck, LOG_ID, -HOUR),
    "half a batch and zeros": lambda wreck: restamped(wreck, LOG_ID, 1)[:70] + bytes(500),
    "zeros, then a byte": lambda wreck: bytes(4_000) + b"x",
    "the footer of another log": lambda wreck: file_format.encode_footer(
        file_format.Footer(LOG_ID + 1, file_format.LogPosition(wreck.offsets[-1], 1, 1), 1)
    ),
    "a footer for another place": lambda wreck: file_format.encode_footer(
        file_format.Footer(LOG_ID, file_format.LogPosition(wreck.offsets[-2], 1, 1), 1)
    ),
}


@pytest.mark.parametrize("more", TAILS.values(), ids=TAILS)
def test_bytes_that_are_no_next_batch_are_quarantined(wreck: Wreck, more: Callable[[Wreck], bytes]) -> None:
    """Neither a repeated batch nor one of another log nor anything else becomes a record."""
    appended = more(wreck)
    log = wreck.open(wreck.with_tail(wreck.tail + appended))
    assert list(torn_files(log.directory).values()) == [appended]
    assert log.findings.torn_bytes == len(appended)
    assert_goes_on(wreck, log, wreck.records, wreck.records)


@pytest.mark.parametrize("zeros", [1, 7, 8, 64, 4_096, 2**20 + 5])
def test_zeros_are_no_data(wreck: Wreck, zeros: int) -> None:
    """Some file systems leave them behind; they are cut off, and there is nothing to keep of them."""
    log = wreck.open(wreck.with_tail(wreck.tail + bytes(zeros)))
    assert torn_files(log.directory) == {}
    assert (log.findings.zero_bytes, log.findings.torn_bytes) == (zeros, 0)
    assert segments(log.directory)[-1].stat().st_size == len(wreck.tail)
    assert_goes_on(wreck, log, wreck.records, wreck.records)


def test_zeros_behind_the_last_batch_are_gone_from_all_sizes_after_a_loss_of_power(wreck: Wreck) -> None:
    wreck.clock.reboot()
    log = wreck.open(wreck.with_tail(wreck.tail + bytes(4_096)))
    assert log.info().bytes == sum(path.stat().st_size for path in segments(log.directory))
    assert_goes_on(wreck, log, wreck.records, wreck.records)


def test_pointers_in_a_torn_tail_are_not_given_out_again(wreck: Wreck) -> None:
    """The next pointer lies above any that can be read in the quarantined bytes."""
    far = 3 * DAY
    torn = restamped(wreck, LOG_ID, far)[:-1]
    log = wreck.open(wreck.with_tail(wreck.tail + torn))
    assert log.append(b"x").first > wreck.records[-1].pointer + far
    log.close()


def test_damage_in_the_middle_is_stepped_over_whatever_it_is(wreck: Wreck) -> None:
    """Bytes lost, bytes put in between, a batch twice."""
    data, offsets = wreck.tail, wreck.offsets
    between = {
        "garbage": random.Random(7).randbytes(777),
        "zeros": bytes(5_000),
        "an earlier batch": data[offsets[0] : offsets[1]],
        "a batch of another log": restamped(wreck, LOG_ID + 1, 0),
        "half a batch": data[offsets[1] : offsets[2] - 9],
    }
    for name, middle in between.items():
        damaged = data[: offsets[2]] + middle + data[offsets[2] :]
        log = wreck.open(wreck.with_tail(damaged))
        assert log.findings.damaged_bytes == len(middle), name
        assert list(log.read()) == wreck.records, name
        assert_goes_on(wreck, log, wreck.records, wreck.records)
    for lost in range(1, 30):
        log = wreck.open(wreck.with_tail(data[: offsets[1] + 20] + data[offsets[1] + 20 + lost :]))
        assert_goes_on(wreck, log, wreck.without(1), wreck.records)


def test_fetch_never_serves_damaged_headers_or_a_batch_twice(wreck: Wreck) -> None:
    """An extract ends before a damaged place, and the next one begins behind it."""
    data, offsets = wreck.tail, wreck.offsets
    twice = data[: offsets[2]] + data[offsets[0] : offsets[1]] + data[offsets[2] :]
    with wreck.open(wreck.with_tail(twice)) as log:
        for sealed in (False, True):
            found = log.fetch(wreck.records[17].pointer)
            assert found is not None
            assert found.data == data[offsets[0] : offsets[2]]
            assert found.next == wreck.batches[wreck.before_tail + 1][-1].pointer
            found = log.fetch(found.next)
            assert found is not None
            assert found.data == data[offsets[2] : offsets[4]]
            assert sealed or log.roll()


def test_batch_inside_a_value_is_a_value(wreck: Wreck) -> None:
    """Header checksums are seeded with the log's id and places are in order."""
    log = wreck.open(wreck.with_tail(wreck.tail))
    inside = segments(log.directory)[-1].read_bytes()[wreck.offsets[1] :]
    ours = log.append([inside, b"behind", encoded([b"not stored"])])
    stored = list(log.read(ours.first - 1))
    assert [record.value for record in stored] == [inside, b"behind", encoded([b"not stored"])]
    crashed = copy(log.directory, next(wreck.copies))
    log.close()
    path = segments(crashed)[-1]
    data = path.read_bytes()
    for place in (*range(wreck.offsets[-1], wreck.offsets[-1] + 64), len(data) - 1):
        damaged = bytearray(data)
        damaged[place] ^= 1
        target = copy(crashed, next(wreck.copies))
        segments(target)[-1].write_bytes(damaged)
        assert_goes_on(wreck, wreck.open(target), wreck.records, wreck.records + stored)


def test_value_that_looks_like_the_next_batch_stays_a_value(wreck: Wreck) -> None:
    """The log's id is no secret: how far a torn batch reaches is believed; nothing in it is searched."""
    log = wreck.open(wreck.with_tail(wreck.tail))
    header = batch.parse_header(wreck.tail, LOG_ID, wreck.offsets[-2])
    body = wreck.tail[wreck.offsets[-2] + batch.HEADER_BYTES : wreck.offsets[-1]]
    forged = batch.stamp(
        header._replace(base=header.base + 300 * DAY, ordinal=header.end_ordinal, sequence=10), LOG_ID
    )
    log.append([bytes(48) + forged + body, b"behind"])
    stored = list(log.read(wreck.records[-1].pointer))
    crashed = copy(log.directory, next(wreck.copies))
    log.close()
    data = segments(crashed)[-1].read_bytes()
    changed = bytes(byte ^ (place == len(data) - 20) for place, byte in enumerate(data))
    for tail in (*(data[:cut] for cut in range(wreck.offsets[-1] + batch.HEADER_BYTES, len(data))), changed):
        target = copy(crashed, next(wreck.copies))
        segments(target)[-1].write_bytes(tail)
        log = wreck.open(target)
        assert salvaged(log) == wreck.records
        assert stored[-1].pointer < log.append(b"goes on").first < stored[-1].pointer + DAY
        log.close()


def test_wreck_upon_wreck_keeps_every_torn_byte(wreck: Wreck) -> None:
    target = wreck.with_tail(wreck.tail)
    kept: list[bytes] = []
    for i in range(5):
        torn = b"torn %d" % i
        with segments(target)[-1].open("ab") as file:
            file.write(torn)
        kept.append(torn)
        log = wreck.open(target)
        assert sorted(torn_files(target).values()) == sorted(kept)
        assert salvaged(log) == wreck.records
        log._lock.release()


def test_crash_within_a_quarantine_is_no_second_loss(wreck: Wreck) -> None:
    """The torn bytes are safe before they are cut off: a copy that is there already is made again."""
    torn = b"torn bytes"
    target = wreck.with_tail(wreck.tail + torn)
    name = f"{segments(target)[-1].name}.{len(wreck.tail)}.torn"
    (target / f"{name}.tmp").write_bytes(b"to")
    (target / name).write_bytes(torn)
    log = wreck.open(target)
    assert torn_files(target) == {name: torn}
    assert_goes_on(wreck, log, wreck.records, wreck.records)
