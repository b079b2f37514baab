"""Decides which topics are open, which wait for that, and which close for them.

At most `workers_max` topics are active. While others wait, the one that has been idle for longest hibernates;
if none is idle, the one that has been open for longest gets no more requests, and hibernates once it has
answered those it has.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator

from quothd.frontend.registry import RegistryEntry, State, Transition
from quothd.requests.events import Close
from quothd.threads.executor import Executor
from quothd.topics.metadata import TopicMetadata

OPEN_S = 0.05
"""A topic stays open this long though others wait: ten times the cost of a change."""


class Scheduler:
    """Opens and closes topics. Owned by the front end's thread.

    activate: starts the thread of a topic. active, waiting: topics by name. unopened: those that have not
    been opened since the start.
    """

    def __init__(self, workers_max: int, activate: Callable[[TopicMetadata], Executor]) -> None:
        self.workers_max = workers_max
        self._activate = activate
        self.active: OrderedDict[str, RegistryEntry] = OrderedDict()
        self.waiting: OrderedDict[str, RegistryEntry] = OrderedDict()
        self._leaving: list[Executor] = []
        self.unopened: list[RegistryEntry] = []
        self._opening: RegistryEntry | None = None

    @property
    def executors(self) -> Iterator[Executor]:
        """The executors of the active topics."""
        return (entry.executor for entry in self.active.values() if entry.executor is not None)

    # -- one topic ------------------------------------------------------------------------------------------

    def need(self, entry: RegistryEntry, now: float) -> None:
        """Open a topic as soon as possible, unless it is on its way."""
        if entry.state is State.HIBERNATING:
            self.waiting[entry.name] = entry
        entry.step(Transition.NEEDED)
        self.assign(now)

    def hibernate(self, entry: RegistryEntry) -> None:
        """Close a topic that is open."""
        assert entry.executor is not None
        entry.step(Transition.HIBERNATED)
        entry.executor.send(Close())

    def released(self, entry: RegistryEntry, transition: Transition, now: float) -> None:
        """The log of a topic is closed: open it again if there are requests, and others that wait."""
        assert entry.executor is not None
        entry.step(transition)
        self._leaving = [*(one for one in self._leaving if one.thread.is_alive), entry.executor]
        entry.executor, entry.makes_way, entry.in_work = None, False, 0
        self.active.pop(entry.name, None)
        if entry.queued and entry.state is State.HIBERNATING:
            self.need(entry, now)
        self.assign(now)

    # -- all topics -----------------------------------------------------------------------------------------

    def assign(self, now: float) -> None:
        """Open topics that wait, as many as may be active; if there are more, close idle ones."""
        while self.waiting and len(self.active) < self.workers_max:
            _, entry = self.waiting.popitem(last=False)
            entry.step(Transition.STARTED)
            entry.opening_since, entry.scanned = now, (0, 0)
            self.active[entry.name] = entry
            entry.executor = self._activate(entry.metadata)
        if not self.waiting:
            return
        closing = sum(one.state is State.CLOSING for one in self.active.values())
        idle = [one for one in self.active.values() if one.state is State.OPEN and not one.outstanding]
        for entry in sorted(idle, key=lambda one: one.used)[: max(0, len(self.waiting) - closing)]:
            self.hibernate(entry)

    def tick(self, now: float) -> float | None:
        """Execute what is due; returns the monotonic time of the next call, None if none is needed."""
        self._open_next(now)
        if not self.waiting:
            return None
        self.assign(now)  # a reload may have raised `workers_max`
        self._make_way(now)
        return now + OPEN_S

    def open_all(self, entries: Iterable[RegistryEntry]) -> None:
        """Open these topics one after the other: until then their retention is not known."""
        self.unopened = [*entries][::-1]

    def drain(self) -> None:
        """Open no topic that no client asks for."""
        self.unopened.clear()

    def drained(self) -> bool:
        """Close the topics that have answered everything; true once all are closed."""
        for entry in list(self.active.values()):
            if entry.state is State.OPEN and not entry.outstanding:
                self.hibernate(entry)
        return not self.active and not self.waiting

    def finish(self) -> None:
        """Let every topic close its log; their events reach the front end no more."""
        for entry in self.active.values():
            if entry.executor is not None and entry.state is not State.CLOSING:
                entry.executor.finish()

    def join(self, until: float, now: Callable[[], float]) -> tuple[list[str], list[str]]:
        """Wait for the threads of all topics until the monotonic clock says so.

        Returns the topics whose threads are still at work then, and those that have ended without a last
        fsync.
        """
        executors = [*self.executors]
        for executor in (*executors, *self._leaving):
            executor.thread.join(until - now())
        at_work = [one.thread.name for one in (*executors, *self._leaving) if one.thread.is_alive]
        unsynced = [
            one.thread.name for one in executors if not one.thread.is_alive and one.thread.metadata.failure
        ]
        return at_work, unsynced

    # -- inside ---------------------------------------------------------------------------------------------

    def _make_way(self, now: float) -> None:
        """Close the topics that have been open for longest, once they have answered the requests they
        have."""
        leaving = sum(one.makes_way or one.state is State.CLOSING for one in self.active.values())
        busy = [one for one in self.active.values() if one.state is State.OPEN and not one.makes_way]
        for entry in sorted(busy, key=lambda one: one.opening_since)[: max(0, len(self.waiting) - leaving)]:
            if now - entry.opening_since >= OPEN_S:
                entry.makes_way = True
                if not entry.in_work:
                    self.hibernate(entry)

    def _open_next(self, now: float) -> None:
        """Open the next topic that has not been opened since the start."""
        while self.unopened and len(self.active) < self.workers_max:
            if self._opening is not None and self._opening.state in (State.QUEUED, State.OPENING):
                return
            entry = self.unopened.pop()
            if entry.state is State.HIBERNATING and entry.info is None:
                self._opening = entry
                self.need(entry, now)
