"""Turns: which topics have a worker, which wait for one, and who makes way for them.

At most `workers_max` topics are active. While others wait, the idlest goes to sleep; if none is idle, the one
that has had its worker longest gets no new requests and sleeps once it has answered those it has.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator

from quothd.frontend.lifecycle import State, Transition
from quothd.frontend.registry import RegistryEntry
from quothd.threads.topic_thread import Worker
from quothd.topics.metadata import TopicMetadata

TURN_S = 0.05
"""A topic keeps its worker this long though others wait for one: ten times what a change costs."""


class Scheduler:
    """Gives workers to entries and takes them back. Owned by the front end's thread.

    workers_max: where it is lowered, topics that are active stay so until they have nothing to do.
    """

    def __init__(self, workers_max: int, make_worker: Callable[[TopicMetadata], Worker]) -> None:
        self.workers_max = workers_max
        self._make_worker = make_worker
        self._active: OrderedDict[str, RegistryEntry] = OrderedDict()
        self._queue: OrderedDict[str, RegistryEntry] = OrderedDict()
        self._leaving: list[Worker] = []
        self._unopened: list[RegistryEntry] = []
        self._opening: RegistryEntry | None = None

    @property
    def workers(self) -> Iterator[Worker]:
        """Those of the active topics."""
        return (entry.worker for entry in self._active.values() if entry.worker is not None)

    @property
    def active(self) -> int:
        """How many topics have a worker."""
        return len(self._active)

    @property
    def unopened(self) -> int:
        """How many topics have not been opened since the start."""
        return len(self._unopened)

    # -- one topic --------------------------------------------------------------------------------------

    def need(self, entry: RegistryEntry, now: float) -> None:
        """There is something to do for a topic: see to it that it gets a worker."""
        if entry.state is State.ASLEEP:
            self._queue[entry.name] = entry
        entry.step(Transition.NEEDED)
        self.give(now)

    def rest(self, entry: RegistryEntry) -> None:
        """Let the worker of a topic that is awake close the log and end."""
        assert entry.worker is not None
        entry.step(Transition.RESTED)
        entry.worker.rest()

    def took(self, entry: RegistryEntry, happening: Transition, now: float) -> None:
        """Its worker has said its last word: go on without it, or with another one if there is more to do."""
        assert entry.worker is not None
        entry.step(happening)
        self._leaving = [*(one for one in self._leaving if not one.ended), entry.worker]
        entry.worker, entry.makes_way, entry.in_work = None, False, 0
        self._active.pop(entry.name, None)
        if entry.pending and entry.state is State.ASLEEP:
            self.need(entry, now)
        self.give(now)

    # -- all of them ------------------------------------------------------------------------------------

    def give(self, now: float) -> None:
        """Give workers to the topics that wait for one; if there are none left, the idlest goes to sleep."""
        while self._queue and len(self._active) < self.workers_max:
            _, entry = self._queue.popitem(last=False)
            entry.step(Transition.STARTED)
            entry.opening_since, entry.looked_through = now, (0, 0)
            self._active[entry.name] = entry
            entry.worker = self._make_worker(entry.place)
            entry.worker.start()
        if not self._queue:
            return
        closing = sum(one.state is State.CLOSING for one in self._active.values())
        idle = [one for one in self._active.values() if one.state is State.AWAKE and not one.outstanding]
        for entry in sorted(idle, key=lambda one: one.used)[: max(0, len(self._queue) - closing)]:
            self.rest(entry)

    def tick(self, now: float) -> float | None:
        """Do what is due; returns when to come back, None if nothing will be due by itself."""
        self._open_next(now)
        if not self._queue:
            return None
        self._make_way(now)
        return now + TURN_S

    def open_unasked(self, entries: Iterable[RegistryEntry]) -> None:
        """Open these topics in the background: until then nothing is known of their retention."""
        self._unopened = [*entries][::-1]

    def drain(self) -> None:
        """Open nothing more that nobody has asked for."""
        self._unopened.clear()

    def drained(self) -> bool:
        """Send the topics that have answered everything to sleep; are all asleep?"""
        for entry in list(self._active.values()):
            if entry.state is State.AWAKE and not entry.outstanding:
                self.rest(entry)
        return not self._active and not self._queue

    def end(self, until: float) -> tuple[list[str], list[str]]:
        """Let every worker close its log and end, until the monotonic clock says so.

        Returns the topics that are still at work then, and those that have ended without a last fsync.
        """
        workers = [*self.workers]
        for entry in self._active.values():
            if entry.worker is not None and entry.state is not State.CLOSING:
                entry.worker.rest()
        for worker in (*workers, *self._leaving):
            worker.join(until)
        at_work = [worker.topic for worker in (*workers, *self._leaving) if not worker.ended]
        return at_work, [worker.topic for worker in workers if worker.ended and worker.failure is not None]

    # -- inside -----------------------------------------------------------------------------------------

    def _make_way(self, now: float) -> None:
        """Where all workers are busy: who has had his for long gets no more jobs and rests when done."""
        leaving = sum(one.makes_way or one.state is State.CLOSING for one in self._active.values())
        busy = [one for one in self._active.values() if one.state is State.AWAKE and not one.makes_way]
        for entry in sorted(busy, key=lambda one: one.opening_since)[: max(0, len(self._queue) - leaving)]:
            if now - entry.opening_since >= TURN_S:
                entry.makes_way = True
                if not entry.in_work:
                    self.rest(entry)

    def _open_next(self, now: float) -> None:
        """Open the topics that nobody has asked for since the start, one after the other."""
        while self._unopened and len(self._active) < self.workers_max:
            if self._opening is not None and self._opening.state in (State.QUEUED, State.OPENING):
                return
            entry = self._unopened.pop()
            if entry.state is State.ASLEEP and entry.info is None:
                self._opening = entry
                self.need(entry, now)
