"""The worker: the thread that owns one active topic.

Its only door is its inbox. It takes what has gathered there as one burst, so that publishes share one write,
and tells the front end at the end what came of all of it. Nothing else touches the topic's log, apart from
lookups in sealed segments (the readers) and fsync tickets (the sync thread), whose outcomes come back in the
inbox too.

An acknowledgement leaves once the level that was asked for is reached and the record can be read: at once for
`written`, after a shared fsync for `synced` and for pointers beyond the log's horizon.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from quothd import catalog
from quothd.config import Config
from quothd.events import (
    Answered,
    Changed,
    Deleted,
    Event,
    Failed,
    Idle,
    Informed,
    Opened,
    Opening,
    Parked,
    Progress,
    Slept,
)
from quothd.inbox import Inbox
from quothd.job import Job
from quothd.opening import open_topic
from quothd.outbox import Outbox
from quothd.place import Place, topic_info
from quothd.publishing import Waiting, acknowledged, append_jobs
from quothd.readers import Looked, Readers, Writes
from quothd.refusals import breakdown, refusal, shortage
from quothd.router import COPY_BELOW_BYTES
from quothd.syncer import Synced, Syncer
from quothd.topicfile import TopicFile
from quothlog import Appended, Log, LogInfo
from quothlog.extract import Extract
from quothlog.filesystem import NotDurable
from quothwire.errors import QuothError, error
from quothwire.message import FETCH_BYTES_MAX, Fetched, Operation, Trimmed

BURST_MAX = 256
"""Items taken as one burst: 256 publishes of 1 MiB are the most that one write brings to the disk."""

RETENTION_RETRY_US = 10_000_000
"""Retention that a full or failed disk keeps from being done wakes its topic no more often than this."""

log = logging.getLogger("quothd.worker")


class _Rest:
    """The front end's word to close the log and end."""


class Worker:
    """One topic's thread. The dispatcher makes and starts it; `Slept`, `Deleted`, `Failed` are last words."""

    def __init__(
        self, directory: Path, place: Place, config: Config, outbox: Outbox, syncer: Syncer, readers: Readers
    ) -> None:
        self._thread = threading.Thread(target=self._run, name=f"quoth-topic-{place.topic.name}", daemon=True)
        self.inbox = Inbox()
        self.topic = place.topic.name
        self._place = replace(place)
        self._directory = directory
        self._config = config
        self._outbox = outbox
        self._syncer = syncer
        self._readers = readers
        self._log: Log
        self._burst: deque[object] = deque()
        self._said: list[Event] = []
        self._unanswered: dict[Job, None] = {}
        self._publishes: list[Job] = []
        self._waiting: list[Waiting] = []
        self._ticket_out = False
        self._unsynced_since = 0.0
        self._last_used = time.monotonic()
        self._writes = Writes()
        self._last_check = self._last_used
        self._told = (0, 0)
        self._retained = False
        self._ending = False
        self._actions: dict[Operation, Callable[[Job], None]] = {
            Operation.FETCH: self._fetch,
            Operation.DESCRIBE: self._describe,
            Operation.CREATE: self._describe,
            Operation.UPDATE: self._update,
            Operation.TRIM: self._trim,
            Operation.ROLL: self._roll,
            Operation.DELETE: self._delete,
        }

    # -- the thread -------------------------------------------------------------------------------------

    def start(self) -> None:
        """Start the thread. That there can be none now is told to the front end like any other end of it."""
        try:
            self._thread.start()
        except (RuntimeError, MemoryError) as problem:
            self._fail(shortage(problem, self.topic))

    def rest(self) -> None:
        """Close the log and end, once everything that it was given has been done."""
        self.inbox.hand_over()
        self.inbox.put(_Rest())

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

    def _run(self) -> None:
        """Open, work, close; whatever ends it is told to the front end."""
        try:
            self._open()
        except Exception as problem:
            self._complain(problem)
            told = refusal(problem, self.topic)
            if isinstance(problem, NotDurable):  # the next one would find its pages in memory, and no error
                self._place.failure = self._place.failure or told
            self._fail(told)
            return
        try:
            while not self._ending:
                self._gather()
                self._work()
        except Exception as problem:
            self._complain(problem)
            self._abandon()
            self._fail(breakdown(problem, self.topic))

    def _open(self) -> None:
        place = self._place
        self._log = open_topic(self._directory, place, self._config, self._tell_opening)
        try:
            self._told = (self._log.newest, self._log.end_ordinal)
            self._retain()
            self._say(Opened(self, replace(place), self._info(), self._retention_due()))
            self._speak()
        except BaseException:
            self._log.discard()
            raise

    def _tell_opening(self, done: int, size: int) -> None:
        self._say(Opening(self, done, size))
        self._speak()

    def _gather(self) -> None:
        """Take what is in the inbox, waiting no longer than until there is something to do unasked."""
        now = time.monotonic()
        wake = self._last_check + self._config.check_interval
        if not self._unanswered:
            wake = min(wake, self._last_used + self._config.worker_timeout)
        if self._unsynced_since and not self._ticket_out:
            wake = min(wake, self._unsynced_since + self._config.sync_interval)
        self.inbox.take(self._burst, BURST_MAX, max(0.0, wake - now))

    def _work(self) -> None:
        while self._burst and not self._ending:
            item = self._burst[0]
            if isinstance(item, Job) and item.operation is Operation.PUBLISH:
                self._unanswered[item] = None
                self._publishes.append(item)
                self._burst.popleft()
            else:
                self._append()  # if this ends the thread, the item is still where it is looked for
                self._take(self._burst.popleft())
        self._append()
        if not self._ending:
            self._tell_progress()
            self._speak()
            self._keep_house()
        self._speak()

    def _take(self, item: object) -> None:
        match item:
            case Job():
                self._unanswered[item] = None
                self._do(item)
            case Synced():
                self._finish_sync(item)
            case Looked():
                self._continue(item)
            case _Rest():
                self._rest()
            case _:
                raise AssertionError(f"{item!r} in an inbox")

    def _keep_house(self) -> None:
        """What is done unasked: sync, retention, telling that nothing is asked."""
        now = time.monotonic()
        self._sync_if_due(now)
        if now - self._last_check >= self._config.check_interval:
            self._last_check = now
            self._retain()
            self._inform()
        if now - self._last_used >= self._config.worker_timeout and not self._unanswered:
            self._last_used = now
            self._say(Idle(self))

    def _retain(self) -> None:
        self._retained = False
        if self._log.failure is not None:
            return
        try:
            records, size = self._log.retain()
        except (OSError, QuothError) as problem:
            log.warning("retention has to wait topic=%r problem=%s", self.topic, problem)
            return
        self._retained = True
        if records:
            log.info("retention topic=%r records=%d bytes=%d", self.topic, records, size)

    def _retention_due(self) -> int | None:
        """When to look at the retention again; once it could not be done, not at once."""
        due = self._log.retention_due()
        if due is None or self._retained:
            return due
        return max(due, time.time_ns() // 1_000 + RETENTION_RETRY_US)

    # -- requests ---------------------------------------------------------------------------------------

    def _do(self, job: Job) -> None:
        """Do what a job asks for."""
        self._last_used = time.monotonic() if job.operation is not Operation.DESCRIBE else self._last_used
        self._guard(job, self._actions[job.operation])

    def _guard(self, job: Job, action: Callable[[Job], None]) -> None:
        """Whatever goes wrong with one job is its answer and nobody else's."""
        try:
            action(job)
        except QuothError as problem:
            self._refuse(job, problem)
        except OSError as problem:
            self._complain(problem)
            self._refuse(job, refusal(problem, self.topic))

    def _append(self) -> None:
        """Append all publishes of the burst."""
        jobs, self._publishes = self._publishes, []
        if not jobs:
            return
        self._last_used = time.monotonic()
        self._writes.note(sum(job.size for job in jobs))
        self._make_room()
        for job, outcome, durability in append_jobs(self._log, jobs):
            self._acknowledge(job, outcome, durability)

    def _acknowledge(self, job: Job, outcome: Appended | QuothError, durability: str) -> None:
        if isinstance(outcome, QuothError):
            self._refuse(job, outcome)
            return
        settings = self._place.topic.settings
        reply = acknowledged(self._log.log_id, outcome, settings.durability, durability)
        self._unsynced_since = self._unsynced_since or time.monotonic()
        if outcome.last > (self._log.synced_pointer if reply.durability == "synced" else self._log.newest):
            self._waiting.append(Waiting(job, reply))
        else:
            self._answer(job, job.caller.reply(reply))

    def _make_room(self) -> None:
        """Above the limits of what a loss of power may take, writers wait for an fsync right here."""
        over = self._log.unsynced_bytes > self._config.unsynced_bytes_max
        if over or self._log.unsynced_records > self._config.buffer_count_max:
            try:
                self._log.sync()
            except QuothError:
                log.exception("sync failed topic=%r", self.topic)
            self._release()

    def _fetch(self, job: Job) -> None:
        request = job.decode()
        if job.after < 0:
            job.begin_fetch(time.monotonic())
        lookup = self._log.lookup(job.after, request.records_max, min(request.bytes_max, FETCH_BYTES_MAX))
        if lookup is None:
            self._nothing(job)
        elif lookup.sealed:
            self._readers.submit(job, self._writes.make_way(lookup), self.inbox.put)
        else:
            self._found(job, lookup.read())

    def _continue(self, looked: Looked) -> None:
        """Go on with a fetch after a reader has looked into a sealed segment."""

        def action(job: Job) -> None:
            if looked.problem is not None:
                raise looked.problem
            if looked.found is not None:
                self._found(job, looked.found)
            else:
                job.after = looked.lookup.beyond
                self._fetch(job)

        self._guard(looked.job, action)

    def _found(self, job: Job, found: Extract | None) -> None:
        if found is None:
            self._nothing(job)
            return
        request = job.request
        gone, damaged = self._log.loss(request.after, request.ordinal, found)
        newest, end = self._log.newest, self._log.end_ordinal
        reply = Fetched(self._log.log_id, found.next, newest, gone, end, damaged)
        self._answer(job, job.caller.reply(reply, found.data))

    def _nothing(self, job: Job) -> None:
        if job.deadline:
            job.after = max(job.after, self._log.newest)  # what lies below is gone, so it is no news
            del self._unanswered[job]
            self._say(Parked(self, job))
            return
        newest, end = self._log.newest, self._log.end_ordinal
        reply = Fetched(self._log.log_id, job.request.after, newest, 0, end)
        self._answer(job, job.caller.reply(reply))

    def _describe(self, job: Job) -> None:
        job.decode()
        self._place.failure = self._log.failure
        self._answer(job, job.caller.reply(topic_info(self._place, self._info())))

    def _update(self, job: Job) -> None:
        place = self._place
        changed = place.topic.settings.changed(job.decode().settings)
        topic = TopicFile(place.topic.name, place.topic.log_id, changed)
        assert place.path is not None
        catalog.save(place.path, topic)
        place.topic, place.problem = topic, ""
        self._log.options = self._config.log_options(changed)
        self._retain()
        self._say(Changed(self, replace(place)))
        self._describe(job)

    def _trim(self, job: Job) -> None:
        records, size = self._log.trim(job.decode().before)
        self._answer(job, job.caller.reply(Trimmed(records, size, self._info().first)))
        self._inform()

    def _roll(self, job: Job) -> None:
        job.decode()
        self._log.roll()
        self._release()
        self._describe(job)

    def _delete(self, job: Job) -> None:
        """Delete the topic. The dispatcher has seen to it that this is the last job."""
        log_id = job.decode().log
        if log_id not in (0, self._log.log_id):
            raise error("unknown_topic", f"topic {self.topic!r} is another one now, with another log")
        info = self._info()
        assert self._place.path is not None
        try:
            gone = catalog.retire(self._place.path)
        except NotDurable as problem:  # what is written from now on might go with it at the next start
            self._log.fail(problem)
            raise
        self._drop_ticket()
        self._log.discard()
        catalog.remove(gone)
        self._ending = True
        removed = Trimmed(info.end_ordinal - info.first_ordinal, info.bytes, 0)
        self._say(Deleted(self, job, job.caller.reply(removed)))

    # -- syncing ----------------------------------------------------------------------------------------

    def _sync_if_due(self, now: float) -> None:
        if self._ticket_out or not self._unsynced_since:
            return
        if self._log.failure is not None or not self._log.unsynced_bytes:
            self._release()
            self._unsynced_since = 0.0
        elif self._waiting or now - self._unsynced_since >= self._config.sync_interval:
            self._unsynced_since = 0.0
            self._ticket_out = True
            self._syncer.submit(self._log.begin_sync(), self.inbox)

    def _finish_sync(self, synced: Synced) -> None:
        self._ticket_out = False
        if synced.problem is not None:
            log.error("sync failed topic=%r problem=%s", self.topic, synced.problem)
            self._log.fail(synced.problem)
        else:
            self._log.finish_sync(synced.ticket)
        if self._log.unsynced_bytes:
            self._unsynced_since = self._unsynced_since or time.monotonic()
        self._release()

    def _release(self) -> None:
        """Acknowledge what an fsync has reached; after a failed one nobody gets a promise."""
        waiting, self._waiting = self._waiting, []
        for one in waiting:
            if one.reply.last <= self._log.synced_pointer:
                self._answer(one.job, one.job.caller.reply(one.reply))
            elif self._log.failure is not None:
                self._refuse(one.job, self._log.failure)
            else:
                self._waiting.append(one)

    def _drop_ticket(self) -> None:
        """Wait for the sync thread to be done with this log."""
        while self._ticket_out:
            item = self._burst.popleft() if self._burst else self.inbox.get()
            if isinstance(item, Synced):
                self._finish_sync(item)
            elif isinstance(item, Job):
                self._unanswered[item] = None

    # -- telling the front end --------------------------------------------------------------------------

    def _answer(self, job: Job, frames: list[bytes]) -> None:
        del self._unanswered[job]
        self._say(Answered(self, job, frames))
        if len(frames[-1]) >= COPY_BELOW_BYTES:  # a burst of these would fill the memory
            self._speak()

    def _say(self, event: Event) -> None:
        """Tell the front end something, at the end of the burst."""
        self._said.append(event)

    def _speak(self) -> None:
        """Tell the front end what there is to tell, all at once: that wakes it once."""
        if self._said:
            self._outbox.post(*self._said)
            self._said = []

    def _refuse(self, job: Job, problem: QuothError) -> None:
        self._answer(job, job.caller.refuse(problem))

    def _tell_progress(self) -> None:
        standing = (self._log.newest, self._log.end_ordinal)
        if standing != self._told:
            self._told = standing
            self._say(Progress(self, *standing))

    def _info(self) -> LogInfo:
        return self._place.informed(self._log.info())

    def _inform(self) -> None:
        self._say(Informed(self, self._info(), self._retention_due()))

    def _rest(self) -> None:
        """Close the log: everything synced, every acknowledgement sent."""
        self._drop_ticket()
        if self._log.failure is None:
            self._log.sync()
        self._release()
        info, due = self._info(), self._retention_due()
        self._log.close()
        self._place.failure, self._place.counted = self._log.failure, info.counters
        self._ending = True
        self._tell_progress()
        self._say(Slept(self, replace(self._place), info, due))

    def _abandon(self) -> None:
        """Close what can be closed, whatever state it is in."""
        try:
            self._place.counted = self._info().counters
            self._drop_ticket()
            self._log.close()
        except Exception:
            log.exception("closing failed topic=%r", self.topic)
        self._place.failure = self._log.failure

    def _complain(self, problem: Exception) -> None:
        """Write down what went wrong, with the way to it if nobody foresaw it."""
        told = refusal(problem, self.topic)
        foreseen = isinstance(problem, QuothError) or told.retryable
        log.error("went wrong topic=%r problem=%s", self.topic, told, exc_info=None if foreseen else problem)

    def _fail(self, told: QuothError) -> None:
        """Tell the front end that the thread ends, and who has not been answered."""
        jobs = [item for item in (*self._unanswered, *self._burst) if isinstance(item, Job)]
        self._say(Failed(self, replace(self._place), told, jobs))
        self._speak()
