"""The log of a topic's groups, in the folder `groups` of the topic: what is finished, durably.

It is a log as any other one, of the events in `events`. Once it has grown to a multiple of what the groups
need, a snapshot of each is appended in a new segment, and the older segments are removed. So opening it takes
a time that follows from the state, not from the number of records that were ever acknowledged.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from xxhash import xxh3_64_intdigest

from quothlog.groups import events
from quothlog.groups.events import Replay
from quothlog.groups.group_state import GroupState
from quothlog.log import Log
from quothlog.retention import LogOptions
from quothlog.storage.clock import Clock
from quothlog.storage.filesystem import FileSystem
from quothwire import batch
from quothwire.closing import Closeable
from quothwire.errors import QuothError

FOLDER = "groups"
COMPACT_BYTES = 2**20
"""The log is compacted when it has so much, and `COMPACT_FACTOR` times what its groups need now."""
COMPACT_FACTOR = 8
_GROUP_BYTES, _SPAN_BYTES = 512, 64
"""What a snapshot needs at most for a group, and for each of its spans, both copies together."""
_SNAPSHOT_BATCH_BYTES = 2**20
_COPIES = 2
_SEGMENT_BYTES = 2**40


class GroupTable:
    """The groups of a topic, by name. last_number: of any group that there was."""

    def __init__(self, groups: Iterable[GroupState] = ()) -> None:
        self.by_name = {group.name: group for group in groups}
        self.last_number = max((group.number for group in self.by_name.values()), default=0)

    def __iter__(self) -> Iterator[GroupState]:
        return iter(self.by_name.values())

    def __len__(self) -> int:
        return len(self.by_name)


class GroupLog(Closeable):
    """The open log of a topic's groups. Owned by the thread that has the topic's token.

    log: the log itself, to sync it in another thread. lost: records of it that do not check, when it was
    read.
    """

    def __init__(self, log: Log) -> None:
        self.log = log
        self.lost = 0
        self._bytes = log.info().bytes
        self._compacted = 0
        """Its bytes after it was compacted."""

    @classmethod
    def open(
        cls, topic: Path, log_id: int, filesystem: FileSystem, clock: Clock, disk_free_min: int
    ) -> GroupLog:
        """Open the log in a topic's folder, or begin it; raises as `Log.open` does.

        log_id: that of the topic's log.
        """
        options = LogOptions(size_limit=_SEGMENT_BYTES, disk_free_min=disk_free_min)
        own_id = group_log_id(log_id)
        log = Log.open(topic / FOLDER, options=options, log_id=own_id, filesystem=filesystem, clock=clock)
        try:
            return cls(log)
        except BaseException:
            log.discard()
            raise

    @staticmethod
    def exists(topic: Path, filesystem: FileSystem) -> bool:
        """Return True if a topic has a log of groups."""
        try:
            return bool(filesystem.list(topic / FOLDER))
        except FileNotFoundError:
            return False

    def load(self, now: float) -> GroupTable:
        """Read the groups, which go on at a monotonic time, without what is damaged. Raises OSError."""
        replay = Replay()
        after, ordinal = 0, self.log.first_ordinal
        while (found := self.log.fetch(after)) is not None:
            self.lost += max(0, found.ordinal - ordinal)
            for raw in batch.split(found.data, self.log.log_id):
                header = batch.parse_header(raw, self.log.log_id)
                ordinal = header.end_ordinal
                try:
                    values = batch.decode(raw, self.log.log_id).values
                except QuothError:
                    self.lost += header.records
                    continue
                for event in values:
                    replay.apply(event, header.base)
            after = found.next
        self.lost += replay.failed
        table = GroupTable(replay.finish(now))
        table.last_number = max(table.last_number, replay.last_number)
        return table

    def append(self, changes: Sequence[bytes], *, twice: bool = False) -> int:
        """Append events as one batch; returns the pointer to wait for.

        Raises `QuothError`; then none is stored. twice: in two batches, with one write, so that damage in
        one place leaves them readable.
        """
        raw = batch.encode(changes)
        outcomes = self.log.append_batches([raw] * (_COPIES if twice else 1))
        outcome = outcomes[-1]
        if isinstance(outcome, QuothError):
            raise outcome
        self._bytes += len(raw) * len(outcomes)
        return outcome.last

    def compact(self, table: GroupTable) -> bool:
        """Replace the log by snapshots of the groups if it has grown enough.

        Raises `QuothError`, or OSError.
        """
        needed = sum(_GROUP_BYTES + _SPAN_BYTES * len(group.spans) for group in table)
        if self._bytes < max(COMPACT_BYTES, COMPACT_FACTOR * needed, 2 * self._compacted):
            return False
        self.log.roll()
        first = 0
        for changes in _in_batches(_all_of(table)):
            last = self.append(changes, twice=True)
            first = first or last - _COPIES * len(changes) + 1
        self.log.sync()
        self.log.trim(first or self.log.newest + 1)
        self._bytes = self._compacted = self.log.info().bytes
        return True

    def close(self) -> None:
        """Sync and close."""
        self.log.close()


def group_log_id(log_id: int) -> int:
    """Return the id of the log of the groups of the topic whose log has this id."""
    return xxh3_64_intdigest(b"groups", log_id) or 1


def _all_of(table: GroupTable) -> Iterator[bytes]:
    """Yield the events that give the groups, and the highest number that a group had."""
    if all(group.number < table.last_number for group in table) and table.last_number:
        yield events.removed(table.last_number)
    yield from map(events.snapshot, table)


def _in_batches(snapshots: Iterable[bytes]) -> Iterator[list[bytes]]:
    changes: list[bytes] = []
    size = 0
    for one in snapshots:
        if changes and size + len(one) > _SNAPSHOT_BATCH_BYTES:
            yield changes
            changes, size = [], 0
        changes.append(one)
        size += len(one)
    if changes:
        yield changes
