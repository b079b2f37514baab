"""Opens a directory after any crash or damage.

Only the last segment is read, from its checkpoint or its header block to its end, every checksum verified.
FORMAT.md has a table of what may be found there, and what is done about it. Where the log goes on in a new
segment and a full disk has no room for that, it can be read all the same, and the segment is begun later.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cached_property
from itertools import chain, count, islice
from pathlib import Path

from quothlog import file_format, segment
from quothlog.active_segment import ActiveSegment, begin_segment
from quothlog.file_format import Block, Checkpoint, LogPosition
from quothlog.producers import ProducerTable
from quothlog.recovery.derived import has_no_table, rebuild
from quothlog.recovery.false_segments import false_segments_among
from quothlog.recovery.recovery_segment import RecoveryReport, RecoverySegment, cut, finish_cuts
from quothlog.recovery.scan import (
    Found,
    Hole,
    batches,
    is_open,
    newest_pointer_in,
    settled,
    walk,
    without_zeros,
)
from quothlog.sealed import SealedSegments
from quothlog.segment import Segment
from quothlog.storage.clock import Clock
from quothlog.storage.filesystem import (
    DISK_FULL,
    TEMPORARY_SUFFIX,
    File,
    FileSystem,
    durable_names,
    refuse_strange,
    sync_directory,
    sync_file,
)
from quothlog.transactions.commit_plan import finish_plan
from quothwire import batch
from quothwire.errors import Conflict, Damaged, QuothError, error

Watch = Callable[[int, int], None]
"""Called while a log is opened: how many bytes have been looked through, and how many have to be."""
_UNFINISHED_MARK = file_format.MARK_SUFFIX + TEMPORARY_SUFFIX
"""The end of a name of a file that belongs to a forwarder, which does not hold the log's lock."""


@dataclass
class OpenedDirectory:
    """A log's parts. active: None only if its successor has to be begun before anything can be done."""

    sealed: SealedSegments
    active: ActiveSegment | None
    producers: ProducerTable
    findings: RecoveryReport
    successor: RecoverySegment | None = None
    staged: Mapping[str, int] = field(default_factory=dict)
    """Names and sizes of files of batches that are not published."""

    def go_on_if_possible(self, clock: Clock) -> ActiveSegment:
        """Return the segment to write to; the old one if there is no room, or no pointer, for a new one."""
        try:
            return self.go_on(clock)
        except (OSError, Conflict) as problem:
            is_full = isinstance(problem, Conflict) or problem.errno in DISK_FULL
            if not is_full or self.active is None:
                raise
            return self.active

    def go_on(self, clock: Clock) -> ActiveSegment:
        """Return the segment to write to, begun if need be. Raises OSError; may be tried again."""
        active = self.active
        if self.successor is not None:
            snapshot = self.producers.encode(clock.now())
            left, active = self.successor.begin(clock, snapshot, self.findings)
            self.sealed += left
            self.successor = None
        self.active = None  # or its file would stay open for as long as the log, however often that rolls
        assert active is not None
        return active


def open_directory(
    filesystem: FileSystem,
    directory: Path,
    clock: Clock,
    log_id: int,
    others: Collection[str],
    watch: Watch | None = None,
) -> OpenedDirectory:
    """Open the log in a directory, or begin one if there is none.

    log_id: 0 takes the id in the header blocks, or a new one for a new log. Raises `Damaged` if no header
    block has an id, or all have another one; ``storage_failed`` if a segment or the plan is no
    regular file.
    """
    for name in filesystem.strange(directory):
        if file_format.floor_of(name) or name == file_format.PLAN_NAME:
            refuse_strange(filesystem, directory / name)
    files = filesystem.list(directory)
    unknown = sorted(name for name in files if not file_format.is_ours(name) and name not in others)
    findings = RecoveryReport(unknown_files=unknown)
    for name in filter(file_format.is_ours, files):
        unfinished = name.endswith(TEMPORARY_SUFFIX) and not name.endswith(_UNFINISHED_MARK)
        if unfinished or (
            name.endswith(file_format.INDEX_SUFFIX) and file_format.segment_of(name) not in files
        ):
            filesystem.remove(directory / name)
    sync_directory(filesystem, directory)  # who gave a file its name may have died before that was durable
    finish_plan(filesystem, directory, files)
    log_id = _without_false_segments(filesystem, directory, files, log_id, findings, clock)
    files = finish_cuts(filesystem, directory, files)
    staged = {name: size for name, size in files.items() if file_format.staged_name_of(name)}
    findings.quarantined_bytes = sum(size for name, size in files.items() if file_format.is_quarantined(name))
    sizes = file_format.segment_sizes(files)
    if not sizes:
        floor = max(clock.now(), 1)
        log_id = log_id or new_log_id()
        block = Block(log_id, floor, 0, 0, log_id, clock.boot_id(), b"")
        active = begin_segment(filesystem, directory, block)
        return OpenedDirectory(SealedSegments([]), active, ProducerTable(), findings, staged=staged)
    segments = segment.linked(filesystem, directory, log_id, sizes)
    tail = _Tail(filesystem, segments, findings, watch or (lambda _done, _all: None))
    successor = tail.recover(clock.boot_id())
    findings.rebuilt += rebuild(filesystem, segments, clock)
    return OpenedDirectory(
        SealedSegments(segments[:-1]), tail.active, tail.producers, findings, successor, staged
    )


def _without_false_segments(
    filesystem: FileSystem,
    directory: Path,
    files: dict[str, int],
    log_id: int,
    findings: RecoveryReport,
    clock: Clock,
) -> int:
    """Quarantine files that cannot be segments of the log; returns the id of the log, 0 if there is none yet.

    files: names and sizes, kept true. Raises as `open_directory` does, before it renames.
    """
    sizes = file_format.segment_sizes(files)
    log_id = _log_id(filesystem, directory, sorted(sizes), log_id)
    floors = false_segments_among(filesystem, directory, log_id, sizes, clock)
    if not log_id and len(floors) < len(sizes):
        raise error("damaged", f"no segment in {directory} has a header block that checks")
    if floors:
        with durable_names(filesystem, directory):
            for name in map(file_format.segment_name, floors):
                new = next(one for n in count(1) if (one := file_format.damaged_name(name, n)) not in files)
                filesystem.rename(directory / name, directory / new)
                files[new] = files.pop(name)
                findings.false_segments.append(new)
    return log_id


def new_log_id() -> int:
    """A random id, never 0."""
    return secrets.randbits(63) + 1


def _log_id(filesystem: FileSystem, directory: Path, floors: list[int], wanted: int) -> int:
    """The wanted id if a header block has it or none has an id; 0 wanted: the oldest id, 0 if there is none.

    The oldest, since a file of another log that gets into a directory would stand behind it as a rule.
    """
    said = 0
    for floor in floors if not wanted else reversed(floors):
        try:
            said = Segment(filesystem, directory, floor, 0, 0).block.log_id
        except Damaged:
            continue
        if wanted in (0, said):
            return said
    if said:
        raise error("damaged", f"{directory} holds log {said}, not log {wanted}", "open it by its own id")
    return wanted


class _Tail:
    """The last segment on its way to being the active one."""

    def __init__(
        self, filesystem: FileSystem, segments: list[Segment], findings: RecoveryReport, watch: Watch
    ) -> None:
        self._filesystem = filesystem
        self._watch = watch
        self._findings = findings
        *self._earlier, self._segment = segments
        self._file: File = filesystem.open(self._segment.path, append=True)
        self.producers = ProducerTable()
        self.active: ActiveSegment | None = None
        """The segment as it stands; None if its header block does not check."""

    def recover(self, boot_id: bytes) -> RecoverySegment | None:
        """Read it to its end; None if the log can go on in it, else what has to be done before that."""
        try:
            block = self._segment.block
        except Damaged:
            return self._behind_a_damaged_block()
        self.active = active = ActiveSegment(self._filesystem, self._segment.path.parent, block, self._file)
        footer = self._segment.footer(self._file)
        hole = self._replay(active, footer is not None, lost_power=block.boot_id != boot_id)
        is_sealed = footer is not None and footer.end.offset == active.end.offset
        torn = None if is_sealed else hole
        if torn is not None:
            torn = self._cut_zeros(torn)
        end = self._behind_the_lost(self._end_for_readers(active.block.start, active.end))
        if end == active.end and not is_sealed and torn is None and block.boot_id == boot_id:
            sync_file(self._file)
            return None
        highest = max(end.pointer, block.floor - 1)
        if torn is not None:
            highest = max(highest, newest_pointer_in(self._file, torn.start, torn.end, active.log_id))
        return RecoverySegment(
            self._filesystem, self._segment, self._file, end, highest, active, torn,
            empty=not active.records and not self._findings.lost_records,
        )  # fmt: skip

    def _cut_zeros(self, torn: Hole) -> Hole | None:
        """Cut zeros off the end of the file, which are never a batch; returns what is left of a range."""
        left = without_zeros(self._file, torn)
        end = left.end if left is not None else torn.start
        if end < torn.end:
            self._findings.zero_bytes += torn.end - end
            cut(self._file, end)
            self._segment.size = end
        return left

    @cached_property
    def _claim(self) -> Checkpoint | None:
        """The checkpoint in its index: decoded once, because that takes most of the time of an opening."""
        return self._segment.claim()

    def _behind_the_lost(self, end: LogPosition) -> LogPosition:
        """Return where the log has to go on if the segment ends before its checkpoint, which was synced.

        The ordinals and pointers of the lost records are not used again, so readers find the gap.
        """
        point = self._claim
        if point is None or point.end.ordinal <= end.ordinal:
            return end
        found = self._findings
        found.lost_records = point.end.ordinal - max(end.ordinal, point.entries[0].ordinal)
        found.lost_after, found.lost_until = end.pointer, point.end.pointer
        return end._replace(pointer=max(end.pointer, point.end.pointer), ordinal=point.end.ordinal)

    def _end_for_readers(self, start: LogPosition, end: LogPosition) -> LogPosition:
        """Return the boundary above which the log has to go on.

        Readers walk by headers: a misplaced one with a damaged body would hide the batches behind it in this
        segment.
        """
        if not self._findings.damaged_bytes:
            return end
        for found in batches(self._file, start, end.offset, self._segment.log_id):
            _, pointer, ordinal = found.end
            end = end._replace(pointer=max(end.pointer, pointer), ordinal=max(end.ordinal, ordinal))
        return end

    def _replay(self, active: ActiveSegment, is_sealed: bool, *, lost_power: bool) -> Hole | None:
        """Walk from the checkpoint to the end of the file; returns what follows the last whole batch."""
        size, log_id = self._segment.size, active.log_id
        point = _with_producers(self._segment, self._claim)
        if point is not None and segment.last_batch_agrees(self._file, point):
            active.resume(point)
            self.producers = ProducerTable.decode(point.producers)
        else:
            self.producers = ProducerTable.decode(active.block.producers)
            if self._earlier and has_no_table(self._segment):
                self._learn_from_earlier()
        begin = active.end.offset
        self._findings.scanned_bytes = size - begin
        steps = walk(self._file, active.end, size, log_id, bodies=True)
        if not is_sealed:
            steps = settled(steps, active.end.ordinal, lost_power=lost_power)
        for step in steps:
            self._watch(active.end.offset - begin, size - begin)
            if isinstance(step, Found):
                active.take(step.offset, step.header)
                self.producers.learn(step.header)
            elif step.end == size:
                return step
            else:
                self._findings.damaged_bytes += step.end - step.start
        return None

    def _behind_a_damaged_block(self) -> RecoverySegment:
        """Go on above everything in a segment of which only the batches can be read."""
        here = self._segment.start
        if self._earlier:
            here = here._replace(ordinal=max(here.ordinal, self._learn_from_earlier().ordinal))
        size = self._segment.size
        torn = None
        is_sealed = self._segment.footer(self._file) is not None
        steps = walk(self._file, here, size, self._segment.log_id, bodies=True)
        block = islice(steps, 1)  # it stays if a transaction behind it is quarantined
        if not is_sealed:
            steps = settled(steps, here.ordinal, lost_power=False)
        for step in chain(block, steps):
            if isinstance(step, Found):
                here = step.end
                self.producers.learn(step.header)
                self._watch(here.offset, size)
            elif step.end == size and not is_sealed and self._is_open_at(step.start):
                torn = step
            else:
                self._findings.damaged_bytes += step.end - step.start
        newest = newest_pointer_in(self._file, here.offset, size, self._segment.log_id)
        here = self._end_for_readers(self._segment.start, here._replace(pointer=max(here.pointer, newest)))
        here = self._behind_the_lost(here)
        if torn is not None:
            torn = self._cut_zeros(torn)
        return RecoverySegment(
            self._filesystem, self._segment, self._file, here, here.pointer, None, torn, empty=False
        )

    def _is_open_at(self, offset: int) -> bool:
        """Return True if a batch begins there that another one of its transaction has to follow."""
        with suppress(QuothError):
            head = self._file.read(batch.HEADER_BYTES, offset)
            return is_open(batch.parse_header(head, self._segment.log_id))
        return False

    def _learn_from_earlier(self) -> LogPosition:
        """Learn the producers of the segment before, and return its end.

        A segment of a large transaction begins without a table: then learn those before it, too.
        """
        first = len(self._earlier) - 1
        while first and has_no_table(self._earlier[first]) and not _covering(self._earlier[first]):
            first -= 1
        return [self._learn_from(one) for one in self._earlier[first:]][-1]

    def _learn_from(self, before: Segment) -> LogPosition:
        view, point = before.view(), _covering(before)
        if point is not None:
            self.producers = ProducerTable.decode(point.producers)
            return view.end
        if before.has_block and not has_no_table(before):
            self.producers = ProducerTable.decode(before.block.producers)
        for found in batches(view.file, before.start, view.end.offset, before.log_id, below=before.below):
            self.producers.learn(found.header)
        return view.end


def _with_producers(one: Segment, claim: Checkpoint | None) -> Checkpoint | None:
    """The checkpoint in the index of a segment, if it has the producer table: of the segments of a large
    transaction only the last one has."""
    if claim is None or claim.end.offset > one.size:
        return None
    return claim if claim.producers or not has_no_table(one) else None


def _covering(one: Segment) -> Checkpoint | None:
    """The checkpoint of a segment, if it has the producer table behind its last batch."""
    point = _with_producers(one, one.claim())
    return point if point is not None and point.end == one.view().end else None
