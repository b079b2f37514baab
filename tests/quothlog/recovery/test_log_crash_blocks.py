"""Opening after damage to header blocks and footers, with unknown files beside, and within little memory."""

from __future__ import annotations

import contextlib
import random
from collections.abc import Callable
from pathlib import Path

import pytest
from xxhash import xxh3_64_intdigest

from kit.clocks import DAY, ManualClock
from kit.disk.logs import boundaries, copy, fill, salvaged, segments, values
from kit.disk.wreck import LOG_ID, Wreck, assert_goes_on
from kit.machine.processes import peak_of
from kit.scale import some
from quothlog import Log, file_format
from quothlog.file_format import HORIZON_US, Block
from quothlog.storage.filesystem import PosixFileSystem
from quothwire import batch
from quothwire.errors import Conflict, Damaged
from quothwire.record import Record

OpenLog = Callable[..., Log]


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


def test_retention_counts_right_behind_a_damaged_header_block(wreck: Wreck) -> None:
    target = copy(wreck.directory, next(wreck.copies))
    path = segments(target)[1]
    path.write_bytes(bytes(96) + path.read_bytes()[96:])
    with wreck.open(target) as log:
        assert log.trim(wreck.records[9].pointer)[0] == 9
        assert (log.first_ordinal, list(log.read())) == (9, wreck.records[9:])
        assert log.trim(wreck.records[18].pointer)[0] == 9
        assert list(log.read()) == wreck.records[18:]


def test_log_without_any_header_block_is_reported_and_can_be_repaired(wreck: Wreck) -> None:
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
    stored = fill(log, 1)
    log.close()
    again = open_log()
    assert list(again.read())[-1:] == stored
    assert len(list(again.read())) == again.end_ordinal


# -- strays and leftovers -----------------------------------------------------------------------------------


def test_unknown_files_are_kept_and_reported(wreck: Wreck) -> None:
    target = wreck.with_tail(wreck.tail)
    (target / "lost+found").mkdir()
    names = [".DS_Store", "README", "1.seg", "000000000000000001.seg", "00000000000000001.segment", "x.tmp"]
    for name in names:
        (target / name).write_bytes(b"stray")
    (target / "link").symlink_to(target / "README")
    log = wreck.open(target)
    assert log.findings.strays == sorted(names)
    assert log.info().gauges["unknown_files"] == len(names)
    assert_goes_on(wreck, log, wreck.records, wreck.records)
    assert all((target / name).read_bytes() == b"stray" for name in names)


def test_files_of_other_programs_are_not_unknown(open_log: OpenLog, directory: Path) -> None:
    directory.mkdir()
    (directory / "topic.json").write_bytes(b"{}")
    (directory / "other").write_bytes(b"")
    assert open_log(others=["topic.json"]).findings.strays == ["other"]


def test_unfinished_files_are_removed(wreck: Wreck) -> None:
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


def peak_of_opening(wreck: Wreck, target: Path, expected: list[Record]) -> int:
    """Open and read a log; returns the most bytes that this takes at a time."""

    def look() -> None:
        with wreck.open(target) as log:
            assert salvaged(log) == expected

    return peak_of(look)


@pytest.mark.parametrize("body_bytes", [16 * 2**20, 2**31, 2**32 - 8])
def test_corrupt_length_of_a_batch_allocates_nothing(wreck: Wreck, body_bytes: int) -> None:
    """Even if the checksum of the header matches."""
    raw = wreck.tail[wreck.offsets[3] :]
    header = batch.parse_header(raw, LOG_ID)
    lying = batch.stamp(header._replace(body_bytes=body_bytes), LOG_ID) + raw[batch.HEADER_BYTES :]
    target = wreck.with_tail(wreck.tail[: wreck.offsets[3]] + lying)
    assert peak_of_opening(wreck, target, wreck.without(3)) < 4 * 2**20


def test_corrupt_length_of_a_producer_table_allocates_nothing(wreck: Wreck) -> None:
    for table_bytes in (2**63, 2**40, 15 * 2**20):
        block = bytearray(file_format.encode_block(Block(LOG_ID, 1, 0, 0, 0, bytes(16), b"")))
        block[72:80] = table_bytes.to_bytes(8, "little")
        block[88:96] = xxh3_64_intdigest(bytes(block[:88])).to_bytes(8, "little")
        target = wreck.with_tail(bytes(block) + wreck.tail[wreck.offsets[0] :])
        assert peak_of_opening(wreck, target, wreck.records) < 4 * 2**20


def test_large_index_file_is_not_read(wreck: Wreck) -> None:
    target = wreck.with_tail(wreck.tail)
    for path in target.glob("*.idx"):
        with path.open("ab") as file:
            file.truncate(2**34)
    assert peak_of_opening(wreck, target, wreck.records) < 4 * 2**20


@pytest.mark.parametrize("end", [b"", b"\xff"], ids=["zeros", "zeros and one byte"])
def test_large_tail_is_scanned_and_quarantined_in_pieces(wreck: Wreck, end: bytes) -> None:
    """A preallocated segment costs neither memory nor, if it holds nothing, a copy."""
    target = wreck.with_tail(wreck.tail)
    path = segments(target)[-1]
    with path.open("ab") as file:
        file.truncate(48 * 2**20)
        file.write(end)
    assert peak_of_opening(wreck, target, wreck.records) < 6 * 2**20
    assert path.stat().st_size == len(wreck.tail)
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
    log._lock.release()
    again = open_log()
    assert again.findings.scanned_bytes == again.info().bytes - before
    assert len(values(again)) == 1_001


def test_new_boot_after_a_torn_tail_adds_its_own_ten_seconds(wreck: Wreck) -> None:
    wreck.clock.reboot()
    log = wreck.open(wreck.with_tail(wreck.tail[:-1]))
    assert log.append(b"x").first > wreck.records[-1].pointer + HORIZON_US
    log.close()


def test_problem_of_a_log_is_raised_as_a_quoth_error(wreck: Wreck) -> None:
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
