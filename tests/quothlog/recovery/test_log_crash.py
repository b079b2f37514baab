"""Opening after a crash: every whole batch is there, nothing else is, and what did not check is quarantined.

The wreck of a log with several segments and a tail of several batches is damaged in every way, at every byte
of the tail. The clock stands still all the while, so a pointer that came a second time would be noticed.
"""

from __future__ import annotations

import contextlib
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import count
from pathlib import Path

import pytest
from xxhash import xxh3_64_intdigest

from kit.clocks import DAY, HOUR, ManualClock
from kit.disk.doubles import FaultyDisk
from kit.disk.logs import boundaries, copy, encoded, fill, outcome_of, put, salvaged, segments, values
from kit.machine.processes import peak_of
from kit.scale import some
from quothlog import Log, LogOptions, file_format
from quothlog.file_format import HORIZON_US, Block
from quothlog.storage.filesystem import PosixFileSystem
from quothwire import batch
from quothwire.errors import Conflict, Damaged
from quothwire.headers import encode_headers
from quothwire.record import Record

OpenLog = Callable[..., Log]

LOG_ID = 0x51_0123_4567_89AB
PRODUCER = 77
TAIL = 4


@dataclass
class Wreck:
    """A log as a crash left it, and copies of it to be damaged."""

    directory: Path
    clock: ManualClock
    batches: list[list[Record]]
    raws: list[bytes]
    offsets: list[int]
    copies: Iterator[Path]

    @property
    def tail(self) -> bytes:
        """The bytes of the last segment."""
        return segments(self.directory)[-1].read_bytes()

    @property
    def records(self) -> list[Record]:
        """Everything that was appended."""
        return self.upto(len(self.batches))

    @property
    def before_tail(self) -> int:
        """Batches in the segments before the last one."""
        return len(self.batches) - TAIL

    def upto(self, batches: int) -> list[Record]:
        """The records of the first so many batches."""
        return [record for one in self.batches[:batches] for record in one]

    def without(self, lost: int) -> list[Record]:
        """All records but those of one batch of the tail."""
        row = self.before_tail + lost
        return [record for one in self.batches[:row] + self.batches[row + 1 :] for record in one]

    def with_tail(self, data: bytes) -> Path:
        """A copy of the directory with these bytes as its last segment."""
        target = copy(self.directory, next(self.copies))
        segments(target)[-1].write_bytes(data)
        return target

    def open(self, directory: Path) -> Log:
        """Open a copy."""
        return Log.open(
            directory,
            clock=self.clock,
            options=LogOptions(count_limit=9),
            log_id=LOG_ID,
            filesystem=FaultyDisk(syncs=False),
        )


@pytest.fixture
def wreck(tmp_path: Path, directory: Path, clock: ManualClock) -> Wreck:
    """Three segments, the last with a tail of four batches: with keys, headers, and of a producer."""
    clock.tick = 0
    log = Log.open(directory, clock=clock, options=LogOptions(count_limit=9), log_id=LOG_ID)
    raws = []
    for i in range(6):
        raws.append(encoded([b"%d" % i] * 3, PRODUCER, i + 1))
    raws.append(encoded([b"tail"], PRODUCER, 7))
    raws.append(batch.encode([b"", b"v"], [b"key", None], [b"", encode_headers({"h": b"1"})]))
    raws.append(encoded([b"x" * 30], PRODUCER, 8))
    raws.append(encoded([b"last one"], PRODUCER, 9))
    batches = []
    for raw in raws:
        (appended,) = put(log, raw)
        batches.append(list(log.read(appended.first - 1)))
    crashed = copy(directory, tmp_path / "crashed")
    log.close()
    path = segments(crashed)[-1]
    copies = (tmp_path / f"copy{i}" for i in count())
    wreck = Wreck(crashed, clock, batches, raws, boundaries(path, LOG_ID), copies)
    assert len(segments(crashed)) == 3
    assert len(wreck.offsets) == TAIL + 1
    return wreck


def torn_files(directory: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in directory.glob("*.torn")}


def assert_goes_on(wreck: Wreck, log: Log, expected: list[Record], seen: list[Record]) -> None:
    """Check that these records are there, and that no pointer that was seen is allocated again."""
    assert salvaged(log) == expected
    appended = log.append([b"goes", b"on"])
    assert appended.first > max(record.pointer for record in seen)
    log.sync()
    expected = [*expected, *log.read(appended.first - 1)]
    assert salvaged(log) == expected
    log.close()
    with wreck.open(log.directory) as again:
        assert salvaged(again) == expected
        assert again.findings.torn_bytes == 0
        assert again.append(b"more").first > appended.last


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
    """Intact batches are all there; damage is stepped over and told, and never a wrong record."""
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


def test_reader_is_told_where_to_go_on_behind_damage(wreck: Wreck) -> None:
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


def test_reader_is_told_how_much_is_damaged(wreck: Wreck) -> None:
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
        file_format.Footer(LOG_ID + 1, file_format.Position(wreck.offsets[-1], 1, 1), 1)
    ),
    "a footer for another place": lambda wreck: file_format.encode_footer(
        file_format.Footer(LOG_ID, file_format.Position(wreck.offsets[-2], 1, 1), 1)
    ),
}


def restamped(wreck: Wreck, log_id: int, later: int, ordinal: int | None = None) -> bytes:
    """The last batch with other pointers, perhaps of another log."""
    raw = wreck.tail[wreck.offsets[3] :]
    header = batch.parse_header(raw, LOG_ID)
    ordinal = header.end_ordinal if ordinal is None else ordinal
    header = header._replace(base=header.base + later, ordinal=ordinal)
    return batch.stamp(header, log_id) + raw[batch.HEADER_BYTES :]


@pytest.mark.parametrize("more", TAILS.values(), ids=TAILS)
def test_what_is_no_next_batch_is_quarantined(wreck: Wreck, more: Callable[[Wreck], bytes]) -> None:
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
    told = list(log.read(ours.first - 1))
    assert [record.value for record in told] == [inside, b"behind", encoded([b"not stored"])]
    crashed = copy(log.directory, next(wreck.copies))
    log.close()
    path = segments(crashed)[-1]
    data = path.read_bytes()
    for place in (*range(wreck.offsets[-1], wreck.offsets[-1] + 64), len(data) - 1):
        damaged = bytearray(data)
        damaged[place] ^= 1
        target = copy(crashed, next(wreck.copies))
        segments(target)[-1].write_bytes(damaged)
        assert_goes_on(wreck, wreck.open(target), wreck.records, wreck.records + told)


def test_value_made_to_look_like_the_next_batch_is_never_taken_for_one(wreck: Wreck) -> None:
    """The log's id is no secret: how far a torn batch reaches is believed; nothing in it is searched."""
    log = wreck.open(wreck.with_tail(wreck.tail))
    header = batch.parse_header(wreck.tail, LOG_ID, wreck.offsets[-2])
    body = wreck.tail[wreck.offsets[-2] + batch.HEADER_BYTES : wreck.offsets[-1]]
    forged = batch.stamp(
        header._replace(base=header.base + 300 * DAY, ordinal=header.end_ordinal, sequence=10), LOG_ID
    )
    log.append([bytes(48) + forged + body, b"behind"])
    told = list(log.read(wreck.records[-1].pointer))
    crashed = copy(log.directory, next(wreck.copies))
    log.close()
    data = segments(crashed)[-1].read_bytes()
    changed = bytes(byte ^ (place == len(data) - 20) for place, byte in enumerate(data))
    for tail in (*(data[:cut] for cut in range(wreck.offsets[-1] + batch.HEADER_BYTES, len(data))), changed):
        target = copy(crashed, next(wreck.copies))
        segments(target)[-1].write_bytes(tail)
        log = wreck.open(target)
        assert salvaged(log) == wreck.records
        assert told[-1].pointer < log.append(b"goes on").first < told[-1].pointer + DAY
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


def test_crash_while_setting_aside_is_no_second_loss(wreck: Wreck) -> None:
    """The torn bytes are safe before they are cut off: a copy that is there already is made again."""
    torn = b"torn bytes"
    target = wreck.with_tail(wreck.tail + torn)
    name = f"{segments(target)[-1].name}.{len(wreck.tail)}.torn"
    (target / f"{name}.tmp").write_bytes(b"to")
    (target / name).write_bytes(torn)
    log = wreck.open(target)
    assert torn_files(target) == {name: torn}
    assert_goes_on(wreck, log, wreck.records, wreck.records)


# -- header blocks and footers ------------------------------------------------------------------------------


@pytest.mark.parametrize("segment", [0, 1, 2], ids=["the first", "a middle one", "the last"])
def test_any_byte_of_a_header_block_changed(wreck: Wreck, rng: random.Random, segment: int) -> None:
    """The batches behind it are read all the same, in every way, and the log goes on."""
    path = segments(wreck.directory)[segment]
    data = path.read_bytes()
    block = boundaries(path, LOG_ID)[0]
    padding = range(file_format.BLOCK_BYTES + len(file_format.decode_block(data).producers), block)
    for place in some(range(block), rng, 3):
        damaged = bytearray(data)
        damaged[place] ^= 0x41
        target = copy(wreck.directory, next(wreck.copies))
        segments(target)[segment].write_bytes(damaged)
        log = wreck.open(target)
        info = log.info()
        assert (info.first, info.last) == (wreck.records[0].pointer, wreck.records[-1].pointer)
        assert (info.first_ordinal, info.end_ordinal) == (0, len(wreck.records))
        if segment == 2 and place not in padding:
            assert log.findings.damaged_bytes == block
        for i in range(0, len(wreck.records), 5):
            assert list(log.read(wreck.records[i].pointer, limit=4)) == wreck.records[i + 1 : i + 5]
        assert_goes_on(wreck, log, wreck.records, wreck.records)


def test_retries_are_known_behind_a_damaged_header_block(wreck: Wreck) -> None:
    """Never silently accepted a second time."""
    for size in (0, wreck.offsets[0]):
        target = wreck.with_tail(bytes(size) + wreck.tail[size:])
        log = wreck.open(target)
        for raw, told in zip(wreck.raws, wreck.batches, strict=True):
            if batch.parse_header(raw, 0).producer:
                outcome = outcome_of(log, raw)
                assert not isinstance(outcome, str)
                assert (outcome.first, outcome.duplicate) == (told[0].pointer, True)
        log.close()


def test_retention_counts_right_behind_a_damaged_header_block(wreck: Wreck) -> None:
    target = copy(wreck.directory, next(wreck.copies))
    path = segments(target)[1]
    path.write_bytes(bytes(96) + path.read_bytes()[96:])
    with wreck.open(target) as log:
        assert log.trim(wreck.records[9].pointer)[0] == 9
        assert (log.first_ordinal, list(log.read())) == (9, wreck.records[9:])
        assert log.trim(wreck.records[18].pointer)[0] == 9
        assert list(log.read()) == wreck.records[18:]


def test_no_header_block_at_all_is_told_and_can_be_overcome(wreck: Wreck) -> None:
    target = copy(wreck.directory, next(wreck.copies))
    for path in segments(target):
        path.write_bytes(bytes(96) + path.read_bytes()[96:])
    with pytest.raises(Damaged):
        Log.open(target, clock=wreck.clock)
    assert_goes_on(wreck, wreck.open(target), wreck.records, wreck.records)


@pytest.mark.parametrize("segment", [0, 1])
def test_every_byte_of_a_footer_changed(wreck: Wreck, segment: int) -> None:
    """A reader can do without it."""
    data = segments(wreck.directory)[segment].read_bytes()
    for place in range(len(data) - file_format.FOOTER_BYTES, len(data)):
        damaged = bytearray(data)
        damaged[place] ^= 0x41
        target = copy(wreck.directory, next(wreck.copies))
        segments(target)[segment].write_bytes(damaged)
        for index in target.glob("*.idx"):
            index.unlink()
        with wreck.open(target) as log:
            assert list(log.read()) == wreck.records


@pytest.mark.parametrize("cut", [1, 63, 64])
def test_footer_cut_short(wreck: Wreck, cut: int) -> None:
    target = copy(wreck.directory, next(wreck.copies))
    path = segments(target)[1]
    path.write_bytes(path.read_bytes()[:-cut])
    assert_goes_on(wreck, wreck.open(target), wreck.records, wreck.records)


def test_sealed_segment_as_the_last_one_is_not_written_into(wreck: Wreck) -> None:
    """The segment that came after it is gone, and with it what it held; the rest is untouched."""
    target = copy(wreck.directory, next(wreck.copies))
    segments(target)[2].unlink()
    sealed = segments(target)[1].read_bytes()
    log = wreck.open(target)
    assert len(segments(target)) == 3
    assert segments(target)[1].read_bytes() == sealed
    assert_goes_on(wreck, log, wreck.upto(wreck.before_tail), wreck.upto(wreck.before_tail))


def test_damage_in_a_sealed_segment_costs_its_batch_alone(wreck: Wreck) -> None:
    """Whichever byte of whichever batch it is."""
    path = segments(wreck.directory)[0]
    data, offsets = path.read_bytes(), boundaries(path, LOG_ID)
    for lost in range(3):
        expected = [record for i, one in enumerate(wreck.batches) if i != lost for record in one]
        for place in range(offsets[lost], offsets[lost + 1], 3):
            damaged = bytearray(data)
            damaged[place] ^= 0x10
            target = copy(wreck.directory, next(wreck.copies))
            segments(target)[0].write_bytes(damaged)
            with wreck.open(target) as log:
                assert salvaged(log) == expected


def test_opening_under_a_false_id_is_refused_and_changes_nothing(wreck: Wreck) -> None:
    """Or a second log would begin among the first one's segments."""
    target = wreck.with_tail(wreck.tail)
    before = {path.name: path.read_bytes() for path in target.iterdir()}
    with pytest.raises(Damaged, match=f"holds log {LOG_ID}, not log 5"):
        Log.open(target, clock=wreck.clock, log_id=5)
    assert {path.name for path in target.iterdir()} == set(before)
    assert all((target / name).read_bytes() == data for name, data in before.items() if name != "lock")
    assert_goes_on(wreck, wreck.open(target), wreck.records, wreck.records)


class Overtaken(PosixFileSystem):
    """A disk on which another process begins the log right after the first look at the directory."""

    def list(self, path: Path) -> dict[str, int]:
        files = super().list(path)
        with contextlib.suppress(Conflict), Log.open(path) as other:
            other.append(b"first")
        return files


def test_log_that_another_process_began_just_before_is_that_log(open_log: OpenLog) -> None:
    """Two programs begin a log at the same moment: there is one log."""
    log = open_log(filesystem=Overtaken())
    told = fill(log, 1)
    log.close()
    again = open_log()
    assert list(again.read())[-1:] == told
    assert len(list(again.read())) == again.end_ordinal


# -- strays and leftovers -----------------------------------------------------------------------------------


def test_strays_are_left_alone_and_told(wreck: Wreck) -> None:
    target = wreck.with_tail(wreck.tail)
    (target / "lost+found").mkdir()
    names = [".DS_Store", "README", "1.seg", "000000000000000001.seg", "00000000000000001.segment", "x.tmp"]
    for name in names:
        (target / name).write_bytes(b"stray")
    (target / "link").symlink_to(target / "README")
    log = wreck.open(target)
    assert log.findings.strays == sorted(names)
    assert log.info().gauges["stray_files"] == len(names)
    assert_goes_on(wreck, log, wreck.records, wreck.records)
    assert all((target / name).read_bytes() == b"stray" for name in names)


def test_files_that_somebody_else_owns_are_no_strays(open_log: OpenLog, directory: Path) -> None:
    directory.mkdir()
    (directory / "topic.json").write_bytes(b"{}")
    (directory / "other").write_bytes(b"")
    assert open_log(others=["topic.json"]).findings.strays == ["other"]


def test_what_was_unfinished_is_removed(wreck: Wreck) -> None:
    """Half-made files of a crash between the making and the renaming."""
    target = wreck.with_tail(wreck.tail)
    name = segments(target)[-1].name
    halves = [f"{name}.tmp", f"{name[:-4]}.idx.tmp", "09999999999999999.seg.tmp", f"{name}.96.torn.tmp"]
    for half in halves:
        (target / half).write_bytes(b"half")
    log = wreck.open(target)
    assert not list(target.glob("*.tmp"))
    assert_goes_on(wreck, log, wreck.records, wreck.records)


def test_index_whose_segment_is_gone_is_removed(wreck: Wreck) -> None:
    """A crash between the two removals of a trim; the indexes of segments that are there stay."""
    target = wreck.with_tail(wreck.tail)
    kept = {path.name for path in target.glob("*.idx")}
    (target / "00000000000000007.idx").write_bytes(b"of a segment that was trimmed")
    log = wreck.open(target)
    assert {path.name for path in target.glob("*.idx")} == kept
    assert_goes_on(wreck, log, wreck.records, wreck.records)


def test_segment_of_another_log_gives_no_records(wreck: Wreck, tmp_path: Path) -> None:
    target = wreck.with_tail(wreck.tail)
    with Log.open(tmp_path / "other", clock=ManualClock(wreck.clock.now() - DAY), log_id=5) as other:
        other.append(b"not ours")
    foreign = segments(other.directory)[0]
    (target / foreign.name).write_bytes(foreign.read_bytes())
    with wreck.open(target) as log:
        assert salvaged(log) == wreck.records
        assert log.first_ordinal == 0


# -- memory and time ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("body_bytes", [16 * 2**20, 2**31, 2**32 - 8])
def test_corrupt_length_of_a_batch_allocates_nothing(wreck: Wreck, body_bytes: int) -> None:
    """Even if the checksum of the header matches."""
    raw = wreck.tail[wreck.offsets[3] :]
    header = batch.parse_header(raw, LOG_ID)
    lying = batch.stamp(header._replace(body_bytes=body_bytes), LOG_ID) + raw[batch.HEADER_BYTES :]
    target = wreck.with_tail(wreck.tail[: wreck.offsets[3]] + lying)

    def look() -> None:
        with wreck.open(target) as log:
            assert salvaged(log) == wreck.without(3)

    assert peak_of(look) < 4 * 2**20


def test_corrupt_length_of_a_producer_table_allocates_nothing(wreck: Wreck) -> None:
    for table_bytes in (2**63, 2**40, 15 * 2**20):
        block = bytearray(file_format.encode_block(Block(LOG_ID, 1, 0, 0, 0, bytes(16), b"")))
        block[72:80] = table_bytes.to_bytes(8, "little")
        block[88:96] = xxh3_64_intdigest(bytes(block[:88])).to_bytes(8, "little")
        target = wreck.with_tail(bytes(block) + wreck.tail[wreck.offsets[0] :])

        def look(target: Path = target) -> None:
            with wreck.open(target) as log:
                assert salvaged(log) == wreck.records

        assert peak_of(look) < 4 * 2**20


def test_large_index_file_is_not_read(wreck: Wreck) -> None:
    target = wreck.with_tail(wreck.tail)
    for path in target.glob("*.idx"):
        with path.open("ab") as file:
            file.truncate(2**34)

    def look() -> None:
        with wreck.open(target) as log:
            assert salvaged(log) == wreck.records

    assert peak_of(look) < 4 * 2**20


@pytest.mark.parametrize("end", [b"", b"\xff"], ids=["zeros", "zeros and one byte"])
def test_large_tail_is_walked_and_set_aside_in_pieces(wreck: Wreck, end: bytes) -> None:
    """A preallocated segment costs neither memory nor, if it holds nothing, a copy."""
    target = wreck.with_tail(wreck.tail)
    path = segments(target)[-1]
    with path.open("ab") as file:
        file.truncate(48 * 2**20)
        file.write(end)

    def look() -> None:
        with wreck.open(target) as log:
            assert salvaged(log) == wreck.records
            assert bool(log.findings.torn_bytes) == bool(end)

    assert peak_of(look) < 6 * 2**20
    assert path.stat().st_size == len(wreck.tail)
    for torn in target.glob("*.torn"):
        torn.unlink()


def test_opening_reads_the_last_segment_from_its_checkpoint_only(open_log: OpenLog) -> None:
    """A clean start looks at nothing twice, one after a crash only at what came since."""
    log = open_log()
    for _ in range(20):
        log.append([bytes(1_000)] * 50)
    log.close()
    log = open_log()
    assert log.findings.scanned_bytes == 0
    before = log.info().bytes
    log.append(bytes(1_000))
    log.sync()
    log._lock.release()
    again = open_log()
    assert again.findings.scanned_bytes == again.info().bytes - before
    assert len(values(again)) == 1_001


def test_new_boot_after_a_torn_tail_adds_its_own_ten_seconds(wreck: Wreck) -> None:
    wreck.clock.reboot()
    log = wreck.open(wreck.with_tail(wreck.tail[:-1]))
    assert log.append(b"x").first > wreck.records[-1].pointer + HORIZON_US
    log.close()


def test_problem_of_a_log_is_an_error_of_ours(wreck: Wreck) -> None:
    """Nothing but documented errors comes out of a directory full of noise."""
    rng = random.Random(20260102)
    for _ in range(60):
        target = copy(wreck.directory, next(wreck.copies))
        for path in sorted(target.iterdir()):
            data = bytearray(path.read_bytes())
            for _ in range(rng.randrange(4)):
                if data:
                    data[rng.randrange(len(data))] ^= rng.randrange(1, 256)
            path.write_bytes(data[: rng.choice((len(data), len(data), rng.randint(0, len(data))))])
        known = {record.pointer: record for record in wreck.records}
        with contextlib.suppress(Damaged), wreck.open(target) as log:
            assert all(known[record.pointer] == record for record in salvaged(log))
            log.append(b"x")
