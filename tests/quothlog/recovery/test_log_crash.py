"""Opening after a crash: every whole batch is there, nothing else is, and what did not check is quarantined.

`test_log_corruptions` has what each corruption costs; here are torn ends, adversarial values and other files.
The clock stands still all the while, so a pointer that came a second time would be noticed.
"""

from __future__ import annotations

import contextlib
import random
from collections.abc import Callable, Iterable
from pathlib import Path

import pytest
from xxhash import xxh3_64_intdigest

from kit.clocks import DAY, HOUR
from kit.disk.crashed_log import LOG_ID, TAIL, CrashedLog, assert_goes_on, restamped, torn_files
from kit.disk.damage import zero
from kit.disk.doubles import FaultyDisk
from kit.disk.logs import OpenLog, copy, encoded, fill, salvaged, segments, values, verify_log
from kit.machine.processes import peak_of
from kit.scale import some
from quothlog import Log, file_format
from quothlog.file_format import BLOCK_BYTES, HORIZON_US, Block
from quothlog.recovery import verify
from quothlog.recovery.repair import repair
from quothlog.recovery.verify import Unfinished
from quothlog.storage.clock import SystemClock
from quothlog.storage.filesystem import PosixFileSystem
from quothwire import batch
from quothwire.errors import Conflict, Damaged
from quothwire.record import Record

# -- the end of the last segment ----------------------------------------------------------------------------


def assert_quarantined(crashed_log: CrashedLog, target: Path, expected: list[Record], torn: bytes) -> Log:
    """Verify a log with a torn end, then open it: the bytes are kept in a file, unless all are zeros."""
    path = segments(target)[-1]
    start, end = path.stat().st_size - len(torn), path.stat().st_size
    found = list(verify.records(target))
    assert [one for one in found if isinstance(one, Record)] == expected
    wrong = [one for one in found if not isinstance(one, Record)]
    assert not torn or (wrong[0].path, wrong[0].start, wrong[-1].end) == (path, start, end)
    assert bool(wrong) == bool(torn)
    log = crashed_log.open(target)
    findings, kept = log.findings, torn if any(torn) else b""
    name = f"{path.name}.{start}.torn"
    assert torn_files(target) == ({name: kept} if kept else {})
    assert findings.quarantined == ([name] if kept else [])
    assert (findings.torn_bytes, findings.damaged_bytes) == (len(kept), 0)
    assert findings.zero_bytes == len(torn) - len(kept)
    assert log.end_ordinal == len(expected)
    return log


def test_tail_cut_at_any_byte_is_unfinished_and_quarantined(
    crashed_log: CrashedLog, rng: random.Random
) -> None:
    """The whole batches are there; afterwards verifying finds nothing wrong."""
    data, offsets = crashed_log.tail, crashed_log.offsets
    for cut in some(range(offsets[0], offsets[-1] + 1), rng, 4):
        whole = sum(offset <= cut for offset in offsets) - 1
        expected, torn = crashed_log.upto(crashed_log.before_tail + whole), data[offsets[whole] : cut]
        log = assert_quarantined(crashed_log, crashed_log.with_tail(data[:cut]), expected, torn)
        # of a batch of which not one byte is left nothing can be known
        assert_goes_on(
            crashed_log, log, expected, crashed_log.upto(crashed_log.before_tail + whole + bool(torn))
        )
        assert not any(one.damages for one in verify.summaries(log.directory))


TAILS: dict[str, Callable[[CrashedLog], bytes]] = {
    "one byte": lambda crashed_log: b"x",
    "garbage": lambda crashed_log: random.Random(5).randbytes(3_000),
    "garbage of magics": lambda crashed_log: batch.MAGIC * 500,
    "text": lambda crashed_log: b"2026-01-02 kernel: EXT4-fs error\n" * 9,
    "the last batch again": lambda crashed_log: crashed_log.tail[crashed_log.offsets[3] :],
    "an earlier batch again": lambda crashed_log: crashed_log.tail[
        crashed_log.offsets[0] : crashed_log.offsets[1]
    ],
    "all batches again": lambda crashed_log: crashed_log.tail[crashed_log.offsets[0] :],
    "the header block again": lambda crashed_log: crashed_log.tail[: crashed_log.offsets[0]],
    "a batch without a log": lambda crashed_log: crashed_log.raws[-1],
    "a batch of another log": lambda crashed_log: restamped(crashed_log, LOG_ID + 1, HOUR),
    "a batch with a false ordinal": lambda crashed_log: restamped(crashed_log, LOG_ID, HOUR, ordinal=3),
    "a batch with a false pointer": lambda crashed_log: restamped(crashed_log, LOG_ID, -HOUR),
    "half a batch and zeros": lambda crashed_log: restamped(crashed_log, LOG_ID, 1)[:70] + bytes(500),
    "zeros, then a byte": lambda crashed_log: bytes(4_000) + b"x",
    **{f"{zeros} zeros": lambda _crashed_log, zeros=zeros: bytes(zeros) for zeros in (1, 7, 8, 64, 4_096)},  # type: ignore[misc]
    "the footer of another log": lambda crashed_log: file_format.encode_footer(
        file_format.Footer(LOG_ID + 1, file_format.LogPosition(crashed_log.offsets[-1], 1, 1), 1)
    ),
    "a footer for another place": lambda crashed_log: file_format.encode_footer(
        file_format.Footer(LOG_ID, file_format.LogPosition(crashed_log.offsets[-2], 1, 1), 1)
    ),
}


@pytest.mark.parametrize("more", TAILS.values(), ids=TAILS)
def test_bytes_that_are_no_next_batch_are_quarantined(
    crashed_log: CrashedLog, more: Callable[[CrashedLog], bytes]
) -> None:
    """Neither a repeated batch nor one of another log becomes a record; zeros, which some file systems leave
    behind, are cut off."""
    appended = more(crashed_log)
    target = crashed_log.with_tail(crashed_log.tail + appended)
    log = assert_quarantined(crashed_log, target, crashed_log.records, appended)
    assert log.info().bytes == sum(path.stat().st_size for path in segments(target))
    assert_goes_on(crashed_log, log, crashed_log.records, crashed_log.records)


def test_rubbish_at_the_end_of_this_boot_is_damage(open_log: OpenLog, directory: Path) -> None:
    """Without a loss of power nothing but zeros or the beginning of a batch can stand there."""
    with open_log(clock=SystemClock()) as log:
        fill(log, 2, 4)
    (path,) = segments(directory)
    whole = path.read_bytes()
    for rubbish in (b"x", b"QUOTHING", b"x" * 100, bytes(100) + b"x"):
        path.write_bytes(whole + rubbish)
        _, (found,), _ = verify_log(directory)
        assert found[:4] == (path, len(whole), len(whole) + len(rubbish), -1)
    for unfinished in (bytes(1), bytes(5_000), b"QUOBx"):
        path.write_bytes(whole + unfinished)
        *_, last = verify.records(directory)
        assert last == Unfinished(path, len(whole), len(whole) + len(unfinished))


def test_pointers_in_a_torn_tail_are_not_reused(crashed_log: CrashedLog) -> None:
    """The next pointer lies above any that can be read in the quarantined bytes, or 10 s after a boot."""
    torn = restamped(crashed_log, LOG_ID, 3 * DAY)[:-1]
    with crashed_log.open(crashed_log.with_tail(crashed_log.tail + torn)) as log:
        assert log.append(b"x").first > crashed_log.records[-1].pointer + 3 * DAY
    crashed_log.clock.reboot()
    with crashed_log.open(crashed_log.with_tail(crashed_log.tail[:-1])) as log:
        assert log.append(b"x").first > crashed_log.records[-1].pointer + HORIZON_US


# -- what readers learn about damage, and what it must not lead to ------------------------------------------


def test_damage_is_reported_with_its_records_and_the_next_cursor(crashed_log: CrashedLog) -> None:
    """Damaged records before an extract are counted apart from removed ones."""
    data = bytearray(crashed_log.tail)
    data[crashed_log.offsets[2] - 1] ^= 1
    lost, before = (
        crashed_log.batches[crashed_log.before_tail + 1],
        crashed_log.upto(crashed_log.before_tail + 1),
    )
    found: list[Record] = []
    with crashed_log.open(crashed_log.with_tail(bytes(data))) as log:
        with pytest.raises(Damaged) as problem:
            found.extend(log.read())
        assert found == before
        assert f"{len(lost)} records from pointer {lost[0].pointer}" in problem.value.text
        assert problem.value.hint == f"read on after {lost[-1].pointer}"
        assert list(log.read(lost[-1].pointer)) == crashed_log.records[-2:]
    data = bytearray(crashed_log.tail)
    data[crashed_log.offsets[1] + 9] ^= 1
    with crashed_log.open(crashed_log.with_tail(bytes(data))) as log:
        extract = log.fetch(before[-1].pointer)
        assert extract is not None
        for ordinal in (len(before), -1):
            assert log.loss(before[-1].pointer, ordinal, extract) == (2, 2)
        log.trim(crashed_log.records[9].pointer)
        extract = log.fetch(0)
        assert extract is not None
        assert log.loss(0, 0, extract) == (9, 0)


def test_batch_inside_a_value_is_a_value(crashed_log: CrashedLog, rng: random.Random) -> None:
    """Header checksums are seeded with the log's id and places are in order."""
    log = crashed_log.open(crashed_log.with_tail(crashed_log.tail))
    inside = segments(log.directory)[-1].read_bytes()[crashed_log.offsets[1] :]
    ours = log.append([inside, b"behind", encoded([b"not stored"])])
    stored = list(log.read(ours.first - 1))
    assert [record.value for record in stored] == [inside, b"behind", encoded([b"not stored"])]
    crashed = copy(log.directory, next(crashed_log.copies))
    log.close()
    path = segments(crashed)[-1]
    data = path.read_bytes()
    for place in (*some(range(crashed_log.offsets[-1], crashed_log.offsets[-1] + 64), rng, 4), len(data) - 1):
        damaged = bytearray(data)
        damaged[place] ^= 1
        target = copy(crashed, next(crashed_log.copies))
        segments(target)[-1].write_bytes(damaged)
        assert_goes_on(
            crashed_log, crashed_log.open(target), crashed_log.records, crashed_log.records + stored
        )


def test_value_that_looks_like_the_next_batch_stays_a_value(
    crashed_log: CrashedLog, rng: random.Random
) -> None:
    """The log's id is no secret: how far a torn batch reaches is believed; nothing in it is searched."""
    log = crashed_log.open(crashed_log.with_tail(crashed_log.tail))
    header = batch.parse_header(crashed_log.tail, LOG_ID, crashed_log.offsets[-2])
    body = crashed_log.tail[crashed_log.offsets[-2] + batch.HEADER_BYTES : crashed_log.offsets[-1]]
    forged = batch.stamp(
        header._replace(base=header.base + 300 * DAY, ordinal=header.end_ordinal, sequence=10), LOG_ID
    )
    log.append([bytes(48) + forged + body, b"behind"])
    stored = list(log.read(crashed_log.records[-1].pointer))
    crashed = copy(log.directory, next(crashed_log.copies))
    log.close()
    data = segments(crashed)[-1].read_bytes()
    changed = bytes(byte ^ (place == len(data) - 20) for place, byte in enumerate(data))
    cuts = some(range(crashed_log.offsets[-1] + batch.HEADER_BYTES, len(data)), rng, 8)
    for tail in (*(data[:cut] for cut in cuts), changed):
        target = copy(crashed, next(crashed_log.copies))
        segments(target)[-1].write_bytes(tail)
        log = crashed_log.open(target)
        assert salvaged(log) == crashed_log.records
        assert stored[-1].pointer < log.append(b"goes on").first < stored[-1].pointer + DAY
        log.close()


# -- header blocks, ids, other files ------------------------------------------------------------------------


def test_retention_counts_right_behind_a_damaged_header_block(crashed_log: CrashedLog) -> None:
    target = copy(crashed_log.directory, next(crashed_log.copies))
    path = segments(target)[1]
    path.write_bytes(bytes(96) + path.read_bytes()[96:])
    with crashed_log.open(target) as log:
        assert log.trim(crashed_log.records[9].pointer)[0] == 9
        assert (log.first_ordinal, list(log.read())) == (9, crashed_log.records[9:])
        assert log.trim(crashed_log.records[18].pointer)[0] == 9
        assert list(log.read()) == crashed_log.records[18:]


def test_log_without_any_header_block_needs_its_id(crashed_log: CrashedLog) -> None:
    """Without one nothing says which log it is, so nothing is done."""
    target = copy(crashed_log.directory, next(crashed_log.copies))
    for path in segments(target):
        zero(path, 0, BLOCK_BYTES)
    looks: list[Callable[[Path], Iterable[object]]] = [verify.records, verify.summaries, repair]
    for look in looks:
        with pytest.raises(Damaged):
            list(look(target))
    with pytest.raises(Damaged):
        Log.open(target)
    list(repair(mended := copy(target, next(crashed_log.copies)), log_id=LOG_ID))
    assert not any(one.unmended for one in verify.summaries(mended))
    for directory in (mended, target):
        assert_goes_on(crashed_log, crashed_log.open(directory), crashed_log.records, crashed_log.records)


def test_opening_under_a_false_id_is_refused_and_changes_nothing(crashed_log: CrashedLog) -> None:
    """Or a second log would begin among the first one's segments."""
    target = crashed_log.with_tail(crashed_log.tail)
    before = {path.name: path.read_bytes() for path in target.iterdir()}
    with pytest.raises(Damaged, match=f"holds log {LOG_ID}, not log 5"):
        Log.open(target, clock=crashed_log.clock, log_id=5)
    assert {path.name for path in target.iterdir()} == set(before)
    assert all((target / name).read_bytes() == data for name, data in before.items() if name != "lock")
    assert_goes_on(crashed_log, crashed_log.open(target), crashed_log.records, crashed_log.records)


class Overtaken(PosixFileSystem):
    """A disk on which another process begins the log right after the first look at the directory."""

    def list(self, path: Path) -> dict[str, int]:
        files = super().list(path)
        with contextlib.suppress(Conflict), Log.open(path) as other:
            other.append(b"first")
        return files


def test_log_that_another_process_has_just_created_is_opened(open_log: OpenLog) -> None:
    """Two programs begin a log at the same moment: there is one log."""
    log = open_log(filesystem=Overtaken())
    stored = fill(log, 1)
    log.close()
    again = open_log()
    assert list(again.read())[-1:] == stored
    assert len(list(again.read())) == again.end_ordinal


def test_other_files_are_kept_and_reported_and_leftovers_are_removed(crashed_log: CrashedLog) -> None:
    """Leftovers are half-made files, and an index whose segment was trimmed."""
    target = crashed_log.with_tail(crashed_log.tail)
    kept = [path.name for path in target.glob("*.idx")]
    name = segments(target)[-1].name
    leftovers = [f"{name}.tmp", f"{name[:-4]}.idx.tmp", "09999999999999999.seg.tmp", f"{name}.96.torn.tmp"]
    leftovers.append("00000000000000007.idx")
    unknown = [".DS_Store", "README", "1.seg", "000000000000000001.seg", "00000000000000001.segment", "x.tmp"]
    for other in (*leftovers, *unknown, "topic.json"):
        (target / other).write_bytes(b"other")
    (target / "lost+found").mkdir()
    (target / "link").symlink_to(target / "README")
    with Log.open(target, clock=crashed_log.clock, others=["topic.json"]) as log:
        assert log.findings.unknown_files == sorted(unknown)
        assert log.info().gauges["unknown_files"] == len(unknown)
        assert salvaged(log) == crashed_log.records
    assert not [other for other in leftovers if (target / other).exists()]
    assert all((target / other).exists() for other in kept)
    assert all((target / other).read_bytes() == b"other" for other in unknown)


# -- memory and time ----------------------------------------------------------------------------------------


def peak_of_opening(crashed_log: CrashedLog, target: Path, lost: int = TAIL) -> int:
    """Open and read a log; returns the most bytes that this takes at a time."""

    def look() -> None:
        with crashed_log.open(target) as log:
            assert salvaged(log) == crashed_log.without(lost)

    return peak_of(look)


def test_corrupt_lengths_and_large_indexes_allocate_nothing(crashed_log: CrashedLog) -> None:
    """Even if the checksum of a header matches."""
    raw = crashed_log.tail[crashed_log.offsets[3] :]
    header = batch.parse_header(raw, LOG_ID)
    for body_bytes in (16 * 2**20, 2**31, 2**32 - 8):
        lying = batch.stamp(header._replace(body_bytes=body_bytes), LOG_ID) + raw[batch.HEADER_BYTES :]
        target = crashed_log.with_tail(crashed_log.tail[: crashed_log.offsets[3]] + lying)
        assert peak_of_opening(crashed_log, target, lost=3) < 4 * 2**20, body_bytes
    for table_bytes in (2**63, 2**40, 15 * 2**20):
        block = bytearray(file_format.encode_block(Block(LOG_ID, 1, 0, 0, 0, bytes(16), b"")))
        block[72:80] = table_bytes.to_bytes(8, "little")
        block[88:96] = xxh3_64_intdigest(bytes(block[:88])).to_bytes(8, "little")
        target = crashed_log.with_tail(bytes(block) + crashed_log.tail[crashed_log.offsets[0] :])
        assert peak_of_opening(crashed_log, target) < 4 * 2**20, table_bytes
    target = crashed_log.with_tail(crashed_log.tail)
    for path in target.glob("*.idx"):
        with path.open("ab") as file:
            file.truncate(2**34)
    assert peak_of_opening(crashed_log, target) < 4 * 2**20


@pytest.mark.parametrize("end", [b"", b"\xff"], ids=["zeros", "zeros and one byte"])
def test_large_tail_is_scanned_and_quarantined_in_pieces(crashed_log: CrashedLog, end: bytes) -> None:
    """A preallocated segment costs neither memory nor, if it holds nothing, a copy."""
    target = crashed_log.with_tail(crashed_log.tail)
    path = segments(target)[-1]
    with path.open("ab") as file:
        file.truncate(48 * 2**20)
        file.write(end)
    assert peak_of_opening(crashed_log, target) < 6 * 2**20
    assert path.stat().st_size == len(crashed_log.tail)
    torn = list(target.glob("*.torn"))
    assert len(torn) == len(end)
    for one in torn:
        one.unlink()  # 48 MiB


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
    log.discard()
    again = open_log()
    assert again.findings.scanned_bytes == again.info().bytes - before
    assert len(values(again)) == 1_001


def test_problem_of_a_log_is_raised_as_a_quoth_error(crashed_log: CrashedLog, rng: random.Random) -> None:
    """Nothing but documented errors comes out of a directory full of noise, with the log's id and without."""
    outcomes = set()
    for number in range(60):
        # a record that was lost leaves its pointer to the next one, since the clock stands still
        known = {record.pointer: record for record in crashed_log.records}
        target = copy(crashed_log.directory, next(crashed_log.copies))
        for path in sorted(target.iterdir()):
            data = bytearray(path.read_bytes())
            for _ in range(rng.randrange(4)):
                if data:
                    data[rng.randrange(len(data))] ^= rng.randrange(1, 256)
            path.write_bytes(data[: rng.choice((len(data), len(data), rng.randint(0, len(data))))])
        if number % 2:
            for path in segments(target):
                zero(path, 0, min(BLOCK_BYTES, path.stat().st_size))
        disk = FaultyDisk(syncs=False)
        for log_id in (0, LOG_ID):
            try:
                with Log.open(target, clock=crashed_log.clock, log_id=log_id, filesystem=disk) as log:
                    assert all(known[record.pointer] == record for record in salvaged(log))
                    appended = log.append(b"x")
                    known[appended.first] = Record(appended.first, b"x", None, {})
                outcomes.add("opened")
            except Damaged:
                outcomes.add("damaged")
    assert outcomes == {"opened", "damaged"}
