"""The worker: the thread of one active topic.

It opens the log, does what comes into its inbox, closes the log and ends. What is quick the front end may do
itself, with `serve`, while the thread has nothing to do: that saves two wake-ups, which cost more than the
work. Whoever works at the topic holds its lock.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path

from quothd.config import Config
from quothd.events import Due, Failed, Opening
from quothd.inbox import Inbox
from quothd.job import Job
from quothd.keeper import Keeper, Rest
from quothd.opening import open_topic
from quothd.outbox import Outbox
from quothd.place import Place
from quothd.readers import Readers
from quothd.refusals import breakdown, complain, refusal, shortage
from quothd.stall_guard import STALL_S
from quothd.syncer import Syncer
from quothlog.filesystem import NotDurable
from quothwire.errors import QuothError

BURST_MAX = 256
"""Items taken as one burst: 256 publishes of 1 MiB are the most that one write brings to the disk."""
ALONE_S = 10.0
"""A topic that has held up the front end is left to its own thread for so long."""

Watch = Callable[[str, Callable[[], None]], None]


class Worker:
    """One topic's thread. The dispatcher makes and starts it; `Slept`, `Deleted`, `Failed` are last words."""

    def __init__(
        self, directory: Path, place: Place, config: Config, outbox: Outbox, syncer: Syncer, readers: Readers
    ) -> None:
        self._thread = threading.Thread(target=self._run, name=f"quoth-topic-{place.topic.name}", daemon=True)
        self._lock = threading.Lock()
        self.inbox = Inbox(partial(outbox.post, Due(self)))
        self.topic = place.topic.name
        self._place = replace(place)
        self._directory = directory
        self._config = config
        self._outbox = outbox
        self._syncer = syncer
        self._readers = readers
        self._keeper: Keeper
        self._alone_until = 0.0

    # -- for the front end ------------------------------------------------------------------------------

    def start(self) -> None:
        """Start the thread. That there can be none now is told to the front end like any other end of it."""
        try:
            self._thread.start()
        except (RuntimeError, MemoryError) as problem:
            self._fail(shortage(problem, self.topic), [])

    def serve(self, watch: Watch) -> bool:
        """Do what is quick of what there is to do, in the calling thread; False if the own thread has to.

        What a disk may hold up is done by `watch`.
        """
        if not self._lock.acquire(blocking=False):
            return False
        count = 0
        if time.monotonic() >= self._alone_until:
            count = self._keeper.quick(self.inbox.content())
        if not count:
            self._lock.release()
            return False
        watch(self.topic, partial(self._serve, self.inbox.take_given(count)))
        return True

    def _serve(self, items: list[object]) -> None:
        """Do these items in the front end's thread, which holds the lock."""
        try:
            keeper, began = self._keeper, time.monotonic()
            due = keeper.next_due()
            keeper.work(items)
            if keeper.broken is not None or keeper.next_due() < due:
                self.inbox.put(None)
            now = time.monotonic()
            if now - began >= STALL_S:
                self._alone_until = now + ALONE_S
        finally:
            self._lock.release()

    def configure(self, config: Config) -> None:
        """Go by another configuration from now on."""
        self._config = config
        self.inbox.put(config)

    def rest(self) -> None:
        """Close the log and end, once everything that it was given has been done."""
        self.inbox.hand_over()
        self.inbox.put(Rest())

    def join(self, until: float) -> None:
        """Wait for the end of the thread, at most until the monotonic clock says so."""
        if not self.ended:
            self._thread.join(max(0.0, until - time.monotonic()))

    @property
    def ended(self) -> bool:
        """Is there no thread any more?"""
        return not self._thread.is_alive()

    @property
    def failure(self) -> QuothError | None:
        """Once the thread has ended: why not all that it wrote may be synced, None if it is."""
        return self._place.failure

    # -- the thread -------------------------------------------------------------------------------------

    def _run(self) -> None:
        """Open, work, close; whatever ends it is told to the front end."""
        try:
            keeper = self._open()
        except Exception as problem:
            where = self._place.path or self._directory
            complain(problem, self.topic, where)
            told = refusal(problem, self.topic, where)
            if isinstance(problem, NotDurable):  # the next one would find its pages in memory, and no error
                self._place.failure = self._place.failure or told
            self._fail(told, [])
            return
        due = 0.0
        while not keeper.ended:
            self.inbox.wait(due)
            with self._lock:
                keeper.work(self.inbox.take(BURST_MAX))
                keeper.keep_house()
                if keeper.broken is not None:
                    where = self._place.path or self._directory
                    complain(keeper.broken, self.topic, where)
                    self._fail(breakdown(keeper.broken, self.topic, where), keeper.abandon())
                due = keeper.next_due()

    def _open(self) -> Keeper:
        place = self._place
        log = open_topic(self._directory, place, self._config, self._tell_opening)
        try:
            self._keeper = Keeper(
                self, place, log, self._config, self.inbox, self._outbox, self._syncer, self._readers
            )
            with self._lock:
                self._keeper.begin()
        except BaseException:
            log.discard()
            raise
        return self._keeper

    def _tell_opening(self, done: int, size: int) -> None:
        self._outbox.post(Opening(self, done, size))

    def _fail(self, told: QuothError, jobs: list[Job]) -> None:
        """Tell the front end that the thread ends, and who has not been answered."""
        self._outbox.post(Failed(self, replace(self._place), told, jobs))
