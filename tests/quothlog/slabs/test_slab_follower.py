"""Following slabs: each record comes once, whole, as soon as it is there."""

from __future__ import annotations

import random
import subprocess
import sys
from pathlib import Path

import pytest

from kit.disk.doubles import FaultyDisk, Kind
from kit.scale import times
from quothlog.slabs import SlabFollower, SlabGap, SlabReader, SlabRecord, SlabWriter
from quothlog.slabs.slab_format import encode_record, slab_name
from quothwire.errors import BrokerFailure, Damaged, QuothError

WRITER = """
import random, sys
from quothlog.slabs import SlabWriter
rng = random.Random(sys.argv[2])
with SlabWriter(sys.argv[1], 5_000) as writer:
    for number in range(int(sys.argv[3])):
        writer.write(b"%d " % number + bytes(rng.randrange(200)))
        if rng.random() < 0.02:
            writer.flush()
"""


def test_records_of_a_writer_at_work_come_once_and_in_order(directory: Path) -> None:
    directory.mkdir()
    seed, count = random.randrange(2**32), times(4_000, 100_000)
    print("seed", seed)
    follower = SlabFollower(directory)
    arguments = [sys.executable, "-c", WRITER, str(directory), str(seed), str(count)]
    with subprocess.Popen(arguments) as writer:
        at = number = 0
        while number < count:
            taken = follower.wait(30)
            assert taken, (number, writer.poll())
            for found in taken:
                assert isinstance(found, SlabRecord)
                assert (found.address, int(found.value.split()[0])) == (at, number)
                at, number = found.next, number + 1
        assert writer.wait(30) == 0
    assert follower.take() == []
    assert at == follower.address == SlabReader(directory).end


def test_half_a_record_is_not_returned_wherever_it_is_cut(directory: Path) -> None:
    """Its writer has a buffer of 4,096 bytes. The original returns an error there, and loses its way."""
    directory.mkdir()
    record = encode_record(b"value")
    path = directory / slab_name(0)
    path.write_bytes(b"")
    follower = SlabFollower(directory)
    with path.open("ab", buffering=0) as file:
        for number in range(3):
            for index in range(len(record)):
                assert follower.take() == []
                assert follower.unfinished == index
                file.write(record[index : index + 1])
            assert follower.take() == [SlabRecord(number * len(record), b"value")]


def test_the_end_is_no_reason_to_return_a_slab_again(directory: Path) -> None:
    with SlabWriter(directory, 10**6) as writer:
        follower = SlabFollower(directory)
        for number in range(5):
            assert follower.take() == []
            address = writer.write(b"%d" % number)
            writer.flush()
            assert follower.take() == [SlabRecord(address, b"%d" % number)]
        resumed = SlabFollower(directory, follower.address)
        address = writer.write(b"later")
        writer.flush()
        assert follower.take() == resumed.take() == [SlabRecord(address, b"later")]


def test_removed_slabs_are_a_gap_and_what_follows_is_returned(directory: Path) -> None:
    with SlabWriter(directory, 20) as writer:
        follower = SlabFollower(directory)
        writer.write(b"a" * 20)
        (first,) = follower.take()
        for letter in (b"b", b"c", b"d"):
            writer.write(letter * 20)
        for address in (0, 28, 56):
            (directory / slab_name(address)).unlink()
        gap, last = follower.take() + follower.take()
        assert isinstance(gap, SlabGap)
        assert (gap.address, gap.next, gap.reason) == (first.next, 84, "missing")
        assert last == SlabRecord(84, b"d" * 20)
        assert follower.take() == []


class RacingDisk(FaultyDisk):
    """Misses a slab in its first listing, as one that is made meanwhile may be missed beside a later one."""

    def __init__(self, missed: str) -> None:
        super().__init__()
        self._missed = missed

    def list(self, path: Path) -> dict[str, int]:
        found = super().list(path)
        found.pop(self._missed, None)
        self._missed = ""
        return found


def test_a_slab_that_one_listing_has_missed_is_no_gap(directory: Path) -> None:
    with SlabWriter(directory, 20) as writer:
        for letter in (b"a", b"b", b"c"):
            writer.write(letter * 20)
    follower = SlabFollower(directory, filesystem=RacingDisk(slab_name(28)))
    found = [one for _ in range(3) for one in follower.take()]
    assert found == [SlabRecord(28 * row, letter * 20) for row, letter in enumerate((b"a", b"b", b"c"))]


def test_a_torn_end_becomes_a_gap_once_something_follows(directory: Path) -> None:
    with SlabWriter(directory) as writer:
        writer.write(b"first")
    with (directory / slab_name(0)).open("ab") as file:
        file.write(encode_record(b"torn")[:-1])
    follower = SlabFollower(directory)
    assert follower.take() == [SlabRecord(0, b"first")]
    assert (follower.take(), follower.unfinished) == ([], 11)
    with SlabWriter(directory) as writer:
        assert [type(one) for one in follower.take()] == [SlabGap]
        writer.write(b"second")
        writer.flush()
        assert follower.take() == [SlabRecord(24, b"second")]


def test_a_directory_that_is_not_there_is_an_error_and_an_empty_one_an_empty_log(directory: Path) -> None:
    with pytest.raises(FileNotFoundError):
        SlabFollower(directory)
    directory.mkdir()
    follower = SlabFollower(directory)
    assert follower.wait(0) == []
    with SlabWriter(directory) as writer:
        writer.write(b"first")
    assert follower.wait(0) == [SlabRecord(0, b"first")]
    (directory / slab_name(0)).unlink()
    directory.rmdir()
    with pytest.raises(FileNotFoundError):
        follower.take()


def test_another_log_in_the_directory_is_an_error(directory: Path) -> None:
    with SlabWriter(directory) as writer:
        writer.write(b"first")
    follower = SlabFollower(directory)
    assert len(follower.take()) == 1
    (directory / slab_name(0)).rename(directory.parent / "old")
    assert follower.take() == []
    with SlabWriter(directory):
        for _ in range(2):
            with pytest.raises(Damaged, match="ends at address 0 now, before 13"):
                follower.take()
    follower.close()
    with pytest.raises(QuothError, match="closed"):
        follower.take()


def test_only_what_is_on_the_disk_is_returned_if_that_is_asked_for(directory: Path) -> None:
    with SlabWriter(directory) as writer:
        writer.write(b"first")
    disk = FaultyDisk()
    follower = SlabFollower(directory, durable=True, filesystem=disk)
    assert follower.take() == [SlabRecord(0, b"first")]
    assert disk.count("sync") == 1
    assert disk.count("sync_directory") == 1


@pytest.mark.parametrize("kind", ["sync", "sync_directory"])
def test_nothing_is_durable_after_a_sync_that_failed(directory: Path, kind: Kind) -> None:
    """The system reports it once, and the next sync succeeds, whether the bytes are on the disk or not."""
    directory.mkdir()
    disk = FaultyDisk()
    follower = SlabFollower(directory, durable=True, filesystem=disk)
    with SlabWriter(directory) as writer:
        writer.write(b"first")
    disk.fail(kind)
    for _ in range(3):
        with pytest.raises(BrokerFailure, match=r"storage_failed.*slab: .* may not survive a loss of power"):
            follower.take()
    disk.heal()
    assert SlabFollower(directory, durable=True, filesystem=disk).take() == [SlabRecord(0, b"first")]


def test_an_address_at_which_reading_ended_is_resumed_whatever_follows(directory: Path) -> None:
    """A half-written record whose value holds records is taken for damage; later bytes make it whole."""
    directory.mkdir()
    path = directory / slab_name(0)
    inner = [encode_record(b"inner %d" % row) for row in range(9)]
    outer = encode_record(b"".join(inner))
    begin = encode_record(b"one") + encode_record(b"torn")[:9]
    path.write_bytes(begin + outer[:-30])
    follower = SlabFollower(directory)
    *_, last = [one for _ in range(3) for one in follower.take()]
    assert last == SlabRecord(last.address, b"inner 6")
    with path.open("ab") as file:
        file.write(outer[-30:] + encode_record(b"later"))
    with pytest.raises(QuothError, match=r"bad_request.* is within "):
        SlabFollower(directory, follower.address)
    resumed = SlabFollower(directory, follower.address, resume=True)
    assert resumed.address == last.next
    values = [one.value for one in resumed.take() if isinstance(one, SlabRecord)]
    assert values == [b"inner 7", b"inner 8", b"later"]
    with pytest.raises(QuothError, match=r"bad_request.* beyond the end"):
        SlabFollower(directory, path.stat().st_size + 1, resume=True)


def test_every_address_at_which_reading_ended_gives_the_rest(directory: Path) -> None:
    """Slabs that are missing, empty and overlapping, and damage; the first bytes of a slab are not read."""
    directory.mkdir()
    record = encode_record(b"value")
    contents = {30: record * 3 + b"\5\0\0\0xx", 75: b"", 80: record * 4, 100: record * 4, 200: record + b"?"}
    for address, content in contents.items():
        (directory / slab_name(address)).write_bytes(content)
    everything = list(SlabReader(directory, finished=True))
    for row, one in enumerate(everything):
        rest = list(SlabReader(directory, one.next, resume=True, finished=True))
        expected = [two for two in everything[row + 1 :] if two.next > one.next]
        assert [two for two in rest if two.next > one.next] == expected
    damaged = bytes(1_000)
    path = directory / slab_name(200)
    path.write_bytes(damaged + record)
    assert SlabFollower(directory, 1_200, resume=True).take() == [SlabRecord(1_200, b"value")]
