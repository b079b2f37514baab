"""The consumer groups of one open topic: gives each request about them to the part that executes it."""

from __future__ import annotations

from collections.abc import Callable

from quothd.config.config import Config
from quothd.groups.administration import Administration
from quothd.groups.dead_letters import DeadLetters
from quothd.groups.hand_out import HandOuts
from quothd.groups.settling import Settling
from quothd.groups.store import GroupStore
from quothd.groups.summaries import GroupSummaries
from quothd.metrics.group_metrics import GroupMetrics
from quothd.requests.events import DeadLetterDone, EventList, Query, ReadDone, SyncDone
from quothd.requests.pending_request import PendingRequest
from quothd.topics.metadata import TopicMetadata
from quothlog import Log
from quothlog.appender import SyncRequest
from quothlog.storage.clock import Clock
from quothwire.protocol.messages import Operation


class TopicGroups:
    """The consumer groups of one open topic. Owned by the topic.

    is_used: there was a request about groups, so there may be something to do for them. sync, read: see
    `Services`.
    """

    OPERATIONS = Administration.OPERATIONS | {Operation.GROUP_FETCH, Operation.GROUP_SETTLE}

    def __init__(
        self,
        log: Log,
        metadata: TopicMetadata,
        config: Config,
        sync: Callable[[SyncRequest], None],
        read: Callable[[PendingRequest, Query], None],
        events: EventList,
        clock: Clock,
    ) -> None:
        self._store = GroupStore(log, metadata, config, sync, events, clock)
        self._letters = DeadLetters(self._store)
        self._hand_outs = HandOuts(self._store, self._letters, read)
        self._settling = Settling(self._store, self._letters)
        self._administration = Administration(self._store, self._letters)
        self._summaries = GroupSummaries(self._store, self._letters)
        self.is_used = False

    def handle(self, request: PendingRequest, now: float) -> None:
        """Execute a request about groups at a monotonic time, and answer it, now or later."""
        self.is_used = True
        if request.operation is Operation.GROUP_FETCH:
            self._hand_outs.fetch(request, now)
        elif request.operation is Operation.GROUP_SETTLE:
            self._settling.settle(request, now)
        else:
            reply, last = self._administration.handle(request, now)
            self._store.answer(request, reply, last, is_synced=last > 0)

    @property
    def is_quick(self) -> bool:
        """True if fetches and settlements of groups need no disk but for what they append."""
        return self._store.is_open

    @property
    def found_bytes(self) -> int:
        """The bytes that the last fetch has returned."""
        return self._hand_outs.found_bytes

    @property
    def is_at_work(self) -> bool:
        """True while a dead letter is on its way: the topic should not hibernate."""
        return self._letters.is_at_work

    @property
    def delayed(self) -> int:
        """The number of groups whose dead letters cannot be written."""
        return self._letters.delayed

    @property
    def is_syncing(self) -> bool:
        """True while the fsync thread has a request of the log of the groups."""
        return self._store.is_syncing

    def summaries(self) -> tuple[GroupMetrics, ...]:
        """Return the state of the groups, for the metrics."""
        return self._summaries.refresh()

    def finished(self) -> int:
        """Return the pointer up to which all groups have finished all records, durably; 0 without a group.

        Raises `QuothError`, or OSError.
        """
        self.is_used = True
        pointer = min((group.after for group in self._store.table()), default=0)
        if pointer:
            self._store.sync()
        return pointer

    def next_due(self) -> float:
        """Return the monotonic time of the next call of `tick`."""
        return min(self._store.next_sync(), self.letters_due)

    def go_on(self, done: ReadDone, now: float) -> None:
        """Go on with a fetch for which a reader thread has read; then call `take_waiting`.

        Raises what the read raised.
        """
        self._hand_outs.go_on(done, now)

    def finish_letter(self, done: DeadLetterDone, now: float) -> None:
        """Take note of the outcome of a dead letter."""
        self._letters.finish(done, now)

    def finish_sync(self, done: SyncDone, now: float) -> bool:
        """Take note of an fsync of the log of the groups; False for one of another log."""
        if not self._store.owns(done):
            return False
        self._store.finish_sync(done, now)
        return True

    @property
    def letters_due(self) -> float:
        """The monotonic time at which `tick` reads the log for a dead letter."""
        return self._letters.next_due()

    def take_waiting(self) -> list[PendingRequest]:
        """Return the fetches that waited for a read of their group that is done, to be executed again."""
        return self._hand_outs.take_waiting()

    def tick(self, now: float) -> None:
        """Send the dead letters again that are due."""
        self._letters.tick(now)

    def compact(self) -> None:
        """Make their log shorter if it has grown."""
        self._store.compact()

    def settle(self, now: float) -> None:
        """Begin a due fsync; answer the requests and send the dead letters that one has reached."""
        self._store.settle(now, is_urgent=self._letters.wait_for_sync)
        self._letters.leave(now)

    def configure(self, config: Config) -> None:
        """Apply another configuration."""
        self._store.configure(config)

    def close(self, now: float) -> None:
        """Sync and close their log, answer the requests and send the dead letters that waited for that."""
        self._summaries.close()
        self._store.sync_last(now)
        self._letters.leave(now)
        self._store.close(now)

    def discard(self) -> None:
        """Close their log without writing anything."""
        self._store.discard()
