"""Opening a directory after anything that may have happened to it.

Only the last segment is read: from its checkpoint, if that checks, else from its header block, to the end of
the file, every checksum verified. What follows the last whole batch is set aside in a file of its own and
cut off, unless it is all zeros, which some file systems leave behind; damage that whole batches follow is
stepped over and reported. Earlier segments are looked at when they are read.

Bytes that were set aside may have been a batch that somebody saw, its pointer not readable any more. So the
log goes on in a new segment then, 10 s of pointers further, as it does after a loss of power.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from quothlog import layout, segment
from quothlog.clock import Clock
from quothlog.filesystem import File, FileSystem, write_durably
from quothlog.layout import Block, Position
from quothlog.pointers import HORIZON_US
from quothlog.producers import ProducerTable
from quothlog.scan import Found, Hole, newest_pointer_in, walk
from quothlog.segment import ActiveSegment, Segment
from quothwire import batch
from quothwire.errors import QuothError, error

_COPY_BYTES = 2**20


@dataclass
class Findings:
    """What opening a log found and did."""

    strays: list[str] = field(default_factory=list)
    """Names of files that are not a log's: left alone."""
    set_aside: list[str] = field(default_factory=list)
    """Names of files that bytes were set aside in."""
    torn_bytes: int = 0
    zero_bytes: int = 0
    damaged_bytes: int = 0
    """Bytes inside the last segment that are no batch, with whole batches behind them."""
    scanned_bytes: int = 0


@dataclass
class Opened:
    """A log's parts, ready to go on."""

    sealed: list[Segment]
    active: ActiveSegment
    producers: ProducerTable
    findings: Findings


def open_directory(
    filesystem: FileSystem, directory: Path, clock: Clock, log_id: int, others: Collection[str], new_id: int
) -> Opened:
    """Open the log in a directory, or begin one if there is none.

    log_id: 0 takes the id that the segments say, or `new_id` for a log that is begun. Raises `Damaged` if no
    segment says an id, or all that say one say another.
    """
    files = filesystem.list(directory)
    strays = sorted(name for name in files if not layout.is_ours(name) and name not in others)
    findings = Findings(strays=strays)
    for name in filter(layout.is_ours, files):
        unfinished = name.endswith(layout.TEMPORARY_SUFFIX)
        if unfinished or (name.endswith(layout.INDEX_SUFFIX) and layout.segment_of(name) not in files):
            filesystem.remove(directory / name)
    sizes = {floor: size for name, size in files.items() if (floor := layout.floor_of(name))}
    floors = sorted(sizes)
    if not floors:
        floor = max(clock.now(), 1)
        log_id = log_id or new_id
        block = Block(log_id, floor, 0, 0, log_id, clock.boot_id(), b"")
        return Opened([], segment.begin(filesystem, directory, block), ProducerTable(), findings)
    log_id = _log_id(filesystem, directory, floors, log_id)
    segments = [Segment(filesystem, directory, floor, log_id, sizes[floor]) for floor in floors]
    tail = _Tail(filesystem, segments, findings)
    active = tail.recover(clock)
    if active is tail.active or tail.empty:
        segments.pop()
    return Opened(segments, active, tail.producers, findings)


def _log_id(filesystem: FileSystem, directory: Path, floors: list[int], wanted: int) -> int:
    """The wanted id if a segment says it, or if none says any; the newest one that is said if any will do."""
    said = 0
    for floor in reversed(floors):
        try:
            said = Segment(filesystem, directory, floor, 0, 0).block.log_id
        except QuothError:
            continue
        if wanted in (0, said):
            return said
    if said:
        raise error("damaged", f"{directory} holds log {said}, not log {wanted}", "open it by its own id")
    if not wanted:
        raise error("damaged", f"no segment in {directory} has a header block that checks")
    return wanted


class _Tail:
    """The last segment on its way to being the active one."""

    def __init__(self, filesystem: FileSystem, segments: list[Segment], findings: Findings) -> None:
        self._filesystem = filesystem
        self._findings = findings
        self._before = segments[-2] if len(segments) > 1 else None
        self.segment = segments[-1]
        self.file: File = filesystem.open(self.segment.path, append=True)
        self.producers = ProducerTable()
        self.active: ActiveSegment | None = None
        self.empty = False

    def recover(self, clock: Clock) -> ActiveSegment:
        """The segment to go on writing: this one, or a new one above everything in it."""
        try:
            block = self.segment.block
        except QuothError:
            return self._go_on_above(self._readable_end(), 0, clock)
        footer = self.segment.footer(self.file)
        active = ActiveSegment(
            self._filesystem, self.segment.path, block, self.file, block.start, block.chain
        )
        torn = self._replay(active, footer.end.offset if footer else self.segment.size)
        self.empty = not active.records
        if footer or torn is not None or block.boot_id != clock.boot_id():
            end = active.end._replace(pointer=max(active.end.pointer, block.floor - 1, torn or 0))
            return self._go_on_above(end, active.chain, clock, previous=active.end.pointer)
        self.file.sync()
        self.active = active
        return active

    def _replay(self, active: ActiveSegment, data_end: int) -> int | None:
        """Walk from the checkpoint to the end; returns what `_set_aside` did if it had to be called."""
        point = self.segment.checkpoint()
        if point is not None and point.end.offset <= data_end and segment.last_batch_agrees(self.file, point):
            active.resume(point)
            self.producers = ProducerTable.decode(point.producers)
        else:
            self.producers = ProducerTable.decode(active.block.producers)
        log_id = active.log_id
        self._findings.scanned_bytes = data_end - active.end.offset
        for step in walk(self.file, active.end, data_end, log_id, bodies=True):
            if isinstance(step, Hole):
                if step.end == data_end:
                    return self._set_aside(step)
                self._findings.damaged_bytes += step.end - step.start
                continue
            active.take(step, batch.stamp(step.header, log_id))
            self.producers.store(step.header)
            self.producers.commit()
        return None

    def _set_aside(self, hole: Hole) -> int | None:
        """Copy what follows the last whole batch into a file, durably, then cut it off.

        Returns the highest pointer that can be read in it, 0 if there is none; None if it was all zeros.
        """
        newest = None
        if any(part.count(0) != len(part) for part in self._parts(hole)):
            newest = newest_pointer_in(self.file, hole.start, hole.end, self.segment.log_id)
            name = f"{self.segment.path.name}.{hole.start}{layout.TORN_SUFFIX}"
            write_durably(self._filesystem, self.segment.path.with_name(name), self._parts(hole))
            self._findings.set_aside.append(name)
            self._findings.torn_bytes += hole.end - hole.start
        else:
            self._findings.zero_bytes += hole.end - hole.start
        self.file.truncate(hole.start)
        self.file.sync()
        self.segment.size = hole.start
        return newest

    def _parts(self, hole: Hole) -> Iterator[bytes]:
        for offset in range(hole.start, hole.end, _COPY_BYTES):
            yield self.file.read(min(_COPY_BYTES, hole.end - offset), offset)

    def _readable_end(self) -> Position:
        """Where the log stands after a last segment whose header block does not check."""
        here = self.segment.start
        if self._before is not None:
            point = self._before.checkpoint()
            end = self._before.view().end
            self._before.rest()
            here = here._replace(ordinal=max(here.ordinal, end.ordinal))
            if point is not None and point.end == end:
                self.producers = ProducerTable.decode(point.producers)
        for step in walk(self.file, here, self.segment.size, self.segment.log_id, bodies=True):
            if isinstance(step, Found):
                here = step.end
                self.producers.store(step.header)
                self.producers.commit()
            else:
                self._findings.damaged_bytes += step.end - step.start
        newest = newest_pointer_in(self.file, here.offset, self.segment.size, self.segment.log_id)
        return here._replace(pointer=max(here.pointer, newest))

    def _go_on_above(
        self, end: Position, chain: int, clock: Clock, previous: int | None = None
    ) -> ActiveSegment:
        self.file.sync()
        self.file.close()
        block = Block(
            log_id=self.segment.log_id,
            floor=max(end.pointer, self.segment.floor - 1) + 1 + HORIZON_US,
            previous=end.pointer if previous is None else previous,
            ordinal=end.ordinal,
            chain=chain,
            boot_id=clock.boot_id(),
            producers=self.producers.encode(clock.now()),
        )
        active = segment.begin(self._filesystem, self.segment.path.parent, block)
        if self.empty:
            self.segment.remove()
        return active
