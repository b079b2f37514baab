"""A log of several segments as a crash left it, to be damaged and opened."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import count
from pathlib import Path

from kit.clocks import ManualClock
from kit.disk.doubles import FaultyDisk
from kit.disk.logs import boundaries, copy, encoded, put, salvaged, segments, stamped
from quothlog import Log, LogOptions
from quothwire import batch
from quothwire.headers import encode_headers
from quothwire.record import Record

LOG_ID = 0x51_0123_4567_89AB
PRODUCER = 77
TAIL = 4


@dataclass
class CrashedLog:
    """A log as a crash left it, and copies of it to be damaged."""

    directory: Path
    clock: ManualClock
    batches: list[list[Record]]
    raws: list[bytes]
    offsets: list[int]
    copies: Iterator[Path]

    @property
    def tail(self) -> bytes:
        return segments(self.directory)[-1].read_bytes()

    @property
    def records(self) -> list[Record]:
        return self.upto(len(self.batches))

    @property
    def before_tail(self) -> int:
        return len(self.batches) - TAIL

    def upto(self, batches: int) -> list[Record]:
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
        return Log.open(
            directory,
            clock=self.clock,
            options=LogOptions(count_limit=9),
            log_id=LOG_ID,
            filesystem=FaultyDisk(syncs=False),
        )


def make_crashed_log(tmp_path: Path, directory: Path, clock: ManualClock) -> CrashedLog:
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
    crashed_log = CrashedLog(crashed, clock, batches, raws, boundaries(path, LOG_ID), copies)
    assert len(segments(crashed)) == 3
    assert len(crashed_log.offsets) == TAIL + 1
    return crashed_log


def torn_files(directory: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in directory.glob("*.torn")}


def assert_goes_on(crashed_log: CrashedLog, log: Log, expected: list[Record], seen: list[Record]) -> None:
    """Check that these records are there, and that no pointer that was seen is allocated again."""
    assert salvaged(log) == expected
    appended = log.append([b"goes", b"on"])
    assert appended.first > max(record.pointer for record in seen)
    log.sync()
    expected = [*expected, *log.read(appended.first - 1)]
    assert salvaged(log) == expected
    log.close()
    with crashed_log.open(log.directory) as again:
        assert salvaged(again) == expected
        assert again.findings.torn_bytes == 0
        assert again.append(b"more").first > appended.last


def restamped(crashed_log: CrashedLog, log_id: int, later: int, ordinal: int | None = None) -> bytes:
    """The last batch with other pointers, perhaps of another log."""
    header = batch.parse_header(crashed_log.tail, LOG_ID, crashed_log.offsets[3])
    ordinal = header.end_ordinal if ordinal is None else ordinal
    return stamped(crashed_log.raws[-1], log_id, header.base + later, ordinal)
