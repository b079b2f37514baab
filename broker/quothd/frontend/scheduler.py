"""Decides which topics are open, which wait for that, and which close for them.

At most `workers_max` topics are active. While others wait, the one that has been idle for longest hibernates;
if none is idle, the one that has been open for longest gets no more requests, and hibernates once it has
answered those it has.

New topics wait apart from those that exist. They start in turn with those. At most `OPENING_MAX` of them open
at once. At most `NEW_MAX` are active, and no more than a quarter of `workers_max`: beyond that share only new
topics close for new topics. A topic counts as new for `NEW_S` after its creation. While `CREATIONS_MAX` wait,
requests that create are refused.
"""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator

from quothd.config.config import Config
from quothd.frontend.registry import RegistryEntry
from quothd.frontend.topic_states import State, Transition
from quothd.requests.events import Close
from quothd.threads.executor import Executor
from quothd.topics.metadata import TopicMetadata
from quothwire.errors import error

OPEN_S = 0.05
"""A topic stays open this long though others wait: ten times the cost of a change."""
NEW_S = 1.0
"""A topic that is open for longer than this after its creation is like any other one."""
NEW_MAX, OPENING_MAX = 8, 2
"""New topics that are active at once, and that open at once: their threads compete with the front end for the
interpreter."""
CREATIONS_MAX = 1_000
"""New topics that wait for their opening: about as many as a disk makes in a few seconds."""


class Scheduler:
    """Opens and closes topics. Owned by the front end's thread.

    activate: starts the thread of a topic. active: topics by name. unopened: those that have not been opened
    since the start.
    """

    def __init__(self, workers_max: int, activate: Callable[[TopicMetadata], Executor]) -> None:
        self.workers_max = workers_max
        self._activate = activate
        self.active: OrderedDict[str, RegistryEntry] = OrderedDict()
        self._waiting: OrderedDict[str, RegistryEntry] = OrderedDict()
        self._creations: OrderedDict[str, RegistryEntry] = OrderedDict()
        self._created_last = False
        self._leaving: list[Executor] = []
        self.unopened: list[RegistryEntry] = []
        self._opening: RegistryEntry | None = None

    @property
    def executors(self) -> Iterator[Executor]:
        """The executors of the active topics."""
        return (entry.executor for entry in self.active.values() if entry.executor is not None)

    @property
    def waiting(self) -> int:
        """The number of topics that wait for their opening."""
        return len(self._waiting) + len(self._creations)

    def check_creation(self) -> None:
        """Raise ``busy`` if too many new topics wait for their opening."""
        if len(self._creations) >= CREATIONS_MAX:
            raise error("busy", f"{len(self._creations)} new topics wait for their creation")

    def configure(self, workers_max: int, config: Config) -> None:
        """Apply another configuration; each active topic does so after what it is at."""
        self.workers_max = workers_max
        for executor in self.executors:
            executor.send(config)

    # -- one topic ------------------------------------------------------------------------------------------

    def need(self, entry: RegistryEntry, now: float) -> None:
        """Open a topic as soon as possible, unless it is on its way."""
        if entry.state is State.HIBERNATING:
            (self._creations if entry.is_new else self._waiting)[entry.name] = entry
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
        while len(self.active) < self.workers_max and (entry := self._next_waiting(now)) is not None:
            entry.step(Transition.STARTED)
            entry.opening_since, entry.scanned, entry.was_new = now, (0, 0), entry.is_new
            self.active[entry.name] = entry
            entry.executor = self._activate(entry.metadata)
        if not self.waiting:
            return
        idle = [one for one in self.active.values() if one.state is State.OPEN and not one.outstanding]
        for entry in self._to_close(sorted(idle, key=lambda one: one.used), now):
            self.hibernate(entry)

    def tick(self, now: float) -> float:
        """Execute what is due; returns the monotonic time of the next call, infinity if none is needed."""
        if self.unopened:
            self._open_next(now)
        if not (self._waiting or self._creations):
            return math.inf
        self.assign(now)  # a reload may have raised `workers_max`
        self._make_way(now)
        return now + OPEN_S

    def open_all(self, entries: Iterable[RegistryEntry]) -> None:
        """Open these topics one after the other: until then their retention is not known."""
        self.unopened = [*entries][::-1]

    @property
    def is_opening_all(self) -> bool:
        """True until each topic has been opened once since the start."""
        return bool(self.unopened) or self._is_opening_one

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
        busy = [
            one
            for one in self.active.values()
            if one.state is State.OPEN and not one.makes_way and now - one.opening_since >= OPEN_S
        ]
        for entry in self._to_close(sorted(busy, key=lambda one: one.opening_since), now):
            entry.makes_way = True
            if not entry.in_work:
                self.hibernate(entry)

    def _next_waiting(self, now: float) -> RegistryEntry | None:
        """Remove and return the topic that is opened next: a new one and another one in turn."""
        opening = sum(one.is_new and one.state is State.OPENING for one in self.active.values())
        may_create = bool(self._creations) and opening < OPENING_MAX and self._new_room(now) > 0
        if may_create and not (self._waiting and self._created_last):
            self._created_last = True
            return self._creations.popitem(last=False)[1]
        self._created_last = False
        return self._waiting.popitem(last=False)[1] if self._waiting else None

    def _new_room(self, now: float) -> int:
        """Return how many more new topics may be active."""
        share = max(1, min(NEW_MAX, self.workers_max // 4))
        return share - sum(_is_new(one, now) for one in self.active.values())

    def _to_close(self, candidates: list[RegistryEntry], now: float) -> list[RegistryEntry]:
        """Return those of the candidates that close for topics that wait, the new ones first.

        A new topic closes for any that waits, another one not for those beyond the share of the new ones.
        """
        if len(self.active) < self.workers_max and self._new_room(now) > 0:
            return []  # what waits does so for openings
        leaving = sum(one.makes_way or one.state is State.CLOSING for one in self.active.values())
        entitled = len(self._waiting) + min(len(self._creations), max(0, self._new_room(now)))
        new = [one for one in candidates if _is_new(one, now)]
        new = new[: max(0, self.waiting - leaving)]
        others = [one for one in candidates if not _is_new(one, now)]
        return [*new, *others[: max(0, entitled - leaving - len(new))]]

    @property
    def _is_opening_one(self) -> bool:
        """True while a topic is on its way that no client asks for."""
        return self._opening is not None and self._opening.state in (State.QUEUED, State.OPENING)

    def _open_next(self, now: float) -> None:
        """Open the next topic that has not been opened since the start."""
        while self.unopened and len(self.active) < self.workers_max:
            if self._is_opening_one:
                return
            entry = self.unopened.pop()
            if entry.state is State.HIBERNATING and entry.info is None:
                self._opening = entry
                self.need(entry, now)


def _is_new(entry: RegistryEntry, now: float) -> bool:
    """Return True if an active topic counts to the share of the new ones."""
    return entry.was_new and (entry.state is not State.OPEN or now - entry.opening_since < NEW_S)
