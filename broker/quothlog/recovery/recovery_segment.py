"""The segment in which a log continues if its last one must not be written any more.

It begins 10 s above every pointer that a reader may have seen. Torn bytes are quarantined first: copied into
a file of their own, and cut off only once nothing is appended to the old segment any more. So a crash in
between leaves a log that goes on above them at the next opening.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from quothlog import file_format
from quothlog.active_segment import ActiveSegment, begin_segment
from quothlog.file_format import HORIZON_US, Block, LogPosition
from quothlog.recovery.scan import Hole, parts, same_bytes
from quothlog.segment import Segment
from quothlog.storage.clock import Clock
from quothlog.storage.filesystem import File, FileSystem, sync_file, write_durably
from quothwire.errors import error
from quothwire.pointer import POINTER_MAX


@dataclass
class RecoveryReport:
    """The findings and the changes of an opening."""

    unknown_files: list[str] = field(default_factory=list)
    """Names of files that are not a log's: left alone."""
    quarantined: list[str] = field(default_factory=list)
    """Names of the files into which this opening has copied torn bytes."""
    false_segments: list[str] = field(default_factory=list)
    """Names that this opening has given to files that were named like segments and are none: quarantined."""
    quarantined_bytes: int = 0
    """Bytes of all quarantined files, of this opening and of earlier ones."""
    torn_bytes: int = 0
    zero_bytes: int = 0
    damaged_bytes: int = 0
    """Bytes inside the last segment that are no batch, with whole batches behind them."""
    lost_records: int = 0
    """Records that were synced and are gone from the end of the last segment, as its index proves."""
    lost_after: int = 0
    """The last pointer in front of the lost records."""
    lost_until: int = 0
    """The highest pointer of the lost records, 0 if none are lost."""
    rebuilt: list[str] = field(default_factory=list)
    """Names of segments whose footer or index this opening has rebuilt: no record was missing."""
    scanned_bytes: int = 0

    def counters(self) -> dict[str, int]:
        """Return the amounts of damage, by name."""
        return {
            "torn_bytes": self.torn_bytes,
            "damaged_bytes": self.damaged_bytes,
            "lost_records": self.lost_records,
        }

    def gauges(self) -> dict[str, int]:
        """Return the amounts of files that a person should look at, by name."""
        return {"quarantined_bytes": self.quarantined_bytes, "unknown_files": len(self.unknown_files)}


@dataclass
class RecoverySegment:
    """The segment that has to be begun before the log takes writes. `begin` may be tried again if it fails.

    end: where the log goes on behind the last segment. highest: a pointer above all that may have been seen.
    replayed: the last segment as it was read, None without its header block. torn: the bytes to quarantine
    from its end. empty: it holds no records and can be removed.
    """

    filesystem: FileSystem
    last: Segment
    file: File
    end: LogPosition
    highest: int
    replayed: ActiveSegment | None
    torn: Hole | None
    empty: bool

    @property
    def bytes_min(self) -> int:
        """Bytes that it takes at least: the quarantined ones, and a header block."""
        torn = self.torn.end - self.torn.start if self.torn is not None else 0
        return torn + file_format.BLOCK_BYTES

    def begin(
        self, clock: Clock, producers: bytes, findings: RecoveryReport
    ) -> tuple[list[Segment], ActiveSegment]:
        """Begin the new segment; returns the last one unless it was removed, and the new one.

        Raises OSError, or `Conflict` ``pointers_exhausted``.
        """
        floor = max(self.highest, self.last.floor - 1) + 1 + HORIZON_US
        if floor > POINTER_MAX:
            raise error("pointers_exhausted", f"the log would have to go on at pointer {floor}")
        sync_file(self.file)
        if self.torn is not None:
            self._copy(self.torn, findings)
        block = Block(
            log_id=self.last.log_id,
            floor=floor,
            previous=self.end.pointer,
            ordinal=self.end.ordinal,
            chain=self.replayed.chain if self.replayed is not None else 0,
            boot_id=clock.boot_id(),
            producers=producers,
        )
        active = begin_segment(self.filesystem, self.last.path.parent, block)
        if self.torn is not None:
            cut(self.file, self.torn.start)
            self.last.size = self.torn.start
        self.last.below = block.floor
        self.file.close()
        if self.empty:
            self.last.remove()
        elif self.replayed is not None and self.replayed.end == self.end:  # else its index proves a loss
            with suppress(OSError):
                self.replayed.write_checkpoint(producers, durably=False)
        return [] if self.empty else [self.last], active

    def _copy(self, torn: Hole, findings: RecoveryReport) -> None:
        path = self.last.path.with_name(file_format.torn_name(self.last.path.name, torn.start))
        there = self.filesystem.list(path.parent).get(path.name, 0)  # a copy that was broken off
        write_durably(self.filesystem, path, parts(self.file, torn))
        if path.name not in findings.quarantined:
            findings.quarantined.append(path.name)
            findings.torn_bytes += torn.end - torn.start
            findings.quarantined_bytes += torn.end - torn.start - there


def cut(file: File, size: int) -> None:
    """Cut a file, durably."""
    file.truncate(size)
    sync_file(file)


def finish_cuts(filesystem: FileSystem, directory: Path, files: Mapping[str, int]) -> dict[str, int]:
    """Cut off quarantined bytes from segments that others follow, where a crash has prevented that.

    files: names and sizes; returned as they are afterwards.
    """
    sizes = dict(files)
    last = max((name for name in files if file_format.floor_of(name)), default="")
    for name in files:
        source, offset = file_format.torn_from(name)
        if source in files and source != last and files[source] - offset == files[name] > 0:
            file, copy = filesystem.open(directory / source, append=True), filesystem.open(directory / name)
            torn, copied = Hole(offset, files[source]), Hole(0, files[name])
            if same_bytes(file, torn, copy, copied):
                cut(file, offset)
                sizes[source] = offset
            file.close()
            copy.close()
    return sizes
