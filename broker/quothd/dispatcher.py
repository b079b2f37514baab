"""Which topic, which worker, or wait: everything the front end decides, without a socket.

It runs in the front end's thread and gets the time as an argument. Requests come in as jobs, events come back
from the workers, frames go out through `send`. Every job that is accepted is answered exactly once.
"""

from __future__ import annotations

import heapq
import math
import time
from bisect import bisect_right, insort
from collections import Counter
from collections.abc import Callable
from pathlib import Path

from quothd.catalog import Folder
from quothd.config import Config
from quothd.entry import Entry
from quothd.events import (
    Answered,
    Changed,
    Deleted,
    DiskLow,
    Due,
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
from quothd.job import Job
from quothd.lifecycle import Happening, State
from quothd.logbook import note
from quothd.outbox import Outbox
from quothd.place import Place, topic_info
from quothd.publishing import check_first
from quothd.readers import Readers
from quothd.retention import RETRY_US
from quothd.stall_guard import StallGuard
from quothd.syncer import Syncer
from quothd.topicfile import TopicFile
from quothd.turns import Turns
from quothd.waits import Waits
from quothd.worker import Worker
from quothlog import LogInfo
from quothlog.recovery import new_log_id
from quothwire.codec import Frames
from quothwire.errors import QuothError, error
from quothwire.fields import REPLY_BYTES_MAX
from quothwire.message import Fetched, Operation

Send = Callable[[Frames], None]
Announce = Callable[[str, int], None]

STATES_BYTES_MAX = REPLY_BYTES_MAX // 2
"""Names and letters in one status: topics with thousands of segments make it shorter, not larger."""

DISK_LOW_S = 10.0
"""Whoever is refused tries again; when nobody has been for so long, nobody knows how the disk is."""

SUMS = ("clock_steps", "torn_bytes", "damaged_bytes", "lost_records", "set_aside_bytes", "stray_files")
"""Counters and gauges of topics that are summed up in the status."""

_MAKES_TOPIC = (Operation.PUBLISH, Operation.STAGE, Operation.CREATE)
_READS = (Operation.FETCH, Operation.ADVANCE, Operation.SPLIT, Operation.COUNT)


class Dispatcher:
    """The topics, their workers and who waits for them. Owned by the front end's thread."""

    def __init__(
        self,
        directory: Path,
        config: Config,
        folders: list[Folder],
        outbox: Outbox,
        send: Send,
        announce: Announce,
        guard: StallGuard,
    ) -> None:
        self._guard = guard
        self.waits = Waits()
        self._directory = directory
        self._config = config
        self._outbox = outbox
        self._send = send
        self._announce = announce
        self._syncer = Syncer()
        self._readers = Readers()
        self._entries: dict[str, Entry] = {}
        self._names: list[bytes] = []
        self._turns = Turns(config.workers_max, self._make_worker)
        self._retention: list[tuple[int, str]] = []
        self._held_bytes = 0
        self._due: dict[Entry, None] = {}
        self._totals: Counter[str] = Counter()
        self._stopping = False
        self._disk_low_at = -math.inf
        for folder in folders:
            self._enter(Entry(Place(folder.path, folder.topic, folder.problem), is_new=False))
        self._turns.open_unasked(self._entries.values())

    def start(self) -> None:
        """Start the threads that all topics share."""
        self._syncer.start()
        self._readers.start()

    def configure(self, config: Config) -> None:
        """Go by another configuration from now on, as every worker does once it has done what it is at."""
        if config.staged_max_age != self._config.staged_max_age:
            self._look_for_staged()
        self._config = config
        self._turns.workers_max = config.workers_max
        for worker in self._turns.workers:
            worker.configure(config)

    def _look_for_staged(self) -> None:
        """Open the sleeping topics with staged batches: these may expire at another time now."""
        for entry in self._entries.values():
            if entry.state is State.ASLEEP and entry.info is not None and entry.info.gauges["staged_bytes"]:
                self._retain_at(entry, time.time_ns() // 1_000)

    def _make_worker(self, place: Place) -> Worker:
        return Worker(self._directory, place, self._config, self._outbox, self._syncer, self._readers)

    # -- requests ---------------------------------------------------------------------------------------

    def submit(self, job: Job, now: float) -> None:
        """Take a request for a topic. Whatever is wrong with it becomes its answer."""
        try:
            self._accept(job, now)
        except QuothError as problem:
            self._send(job.caller.refuse(problem))

    def _accept(self, job: Job, now: float) -> None:
        if self._stopping:
            raise error("stopping", "the broker is shutting down")
        if self._held_bytes + job.size > self._config.request_bytes_max:
            raise error("busy", f"requests of {self._held_bytes} bytes are in work")
        entry = self._entries.get(job.topic)
        if entry is None:
            if job.operation is Operation.FETCH:
                self._await_topic(job, now)
                return
            entry = self._make(job)
        elif entry.deletion is not None:
            raise error("busy", f"topic {job.topic!r} is being deleted")
        elif job.operation is Operation.CREATE:
            raise error("topic_exists", f"topic {job.topic!r} exists")
        if entry.outstanding >= self._config.topic_requests_max:
            raise error("busy", f"{entry.outstanding} requests of topic {job.topic!r} are in work")
        if entry.worker is None and self._answer_asleep(entry, job, now):
            return
        recovering = (
            entry.state is State.OPENING and now - entry.opening_since > self._config.recovering_after
        )
        if recovering and job.operation in _READS:
            raise error("recovering", entry.recovery(now))
        entry.outstanding += 1
        self._held_bytes += job.size
        if job.operation is Operation.DELETE:
            entry.deletion = job
            self._delete_if_done(entry, now)
        else:
            self._hand_over(entry, job, now)

    def _make(self, job: Job) -> Entry:
        """The entry of a topic that does not exist yet; the worker will make its folder."""
        settings = self._config.topic_settings()
        may_make = job.operation is Operation.CREATE or self._config.auto_create
        if job.operation not in _MAKES_TOPIC or not may_make:
            raise error("unknown_topic", f"there is no topic {job.topic!r}")
        if job.operation is Operation.CREATE:
            settings = settings.changed(job.decode().settings)
        else:
            check_first(job)  # so that a publish that is refused does not leave an empty topic behind
        if len(self._entries) >= self._config.topics_max:
            raise error("topics_max", f"there are {len(self._entries)} topics already")
        entry = Entry(Place(None, TopicFile(job.topic, new_log_id(), settings)), is_new=True)
        self._enter(entry)
        return entry

    def _await_topic(self, job: Job, now: float) -> None:
        """A reader that is willing to wait may come before the first publish; one that knew it is told."""
        job.begin_fetch(now)
        if not job.deadline or job.request.ordinal >= 0:
            raise error("unknown_topic", f"there is no topic {job.topic!r}")
        self._park(job)

    def _answer_asleep(self, entry: Entry, job: Job, now: float) -> bool:
        """Answer what can be answered without waking the topic."""
        if entry.info is None or entry.state is not State.ASLEEP:
            return False
        if job.operation is Operation.DESCRIBE:
            job.decode()
            self._send(job.caller.reply(topic_info(entry.place, entry.info, entry.states())))
            return True
        if job.operation is not Operation.FETCH:
            return False
        job.begin_fetch(now)
        if job.after < entry.newest:
            return False
        if job.deadline:
            self._park(job)
        else:
            self._send(self._nothing(entry, job))
        return True

    def _hand_over(self, entry: Entry, job: Job, now: float) -> None:
        entry.used = now
        if entry.state is State.AWAKE and entry.worker is not None and not entry.makes_way:
            entry.in_work += 1
            entry.worker.inbox.given.append(job)
            self._due[entry] = None
        else:
            entry.pending.append(job)
            self._turns.need(entry, now)

    def hand_over(self, until: float) -> bool:
        """Do what is quick of what was given to the workers, let them have the rest; True if more may follow.

        It ends once the monotonic clock says `until`. A topic stays on the list until nothing is left that
        was given: this thread may lose the front.
        """
        served = False
        may_serve = self._guard.is_there()
        for entry in [*self._due]:
            if entry.worker is not None:
                inbox = entry.worker.inbox
                if may_serve and entry.state is State.AWAKE and entry.worker.serve(self._guard.watch):
                    served = True
                    if time.monotonic() >= until:
                        break
                    if inbox.content():
                        continue
                else:
                    inbox.hand_over()
            del self._due[entry]
        return served

    def _delete_if_done(self, entry: Entry, now: float) -> None:
        """Let the deletion go once it is the only job that is left."""
        if entry.deletion is not None and entry.outstanding == 1 and entry.deletion not in entry.pending:
            self._hand_over(entry, entry.deletion, now)

    def _park(self, job: Job) -> None:
        if len(self.waits) >= self._config.waits_max:
            self._send(job.caller.refuse(error("busy", f"{len(self.waits)} requests are waiting")))
        else:
            self.waits.park(job)

    def _nothing(self, entry: Entry, job: Job) -> Frames:
        reply = Fetched(entry.place.topic.log_id, job.request.after, entry.newest, 0, entry.end_ordinal)
        return job.caller.reply(reply)

    # -- events -----------------------------------------------------------------------------------------

    def take(self, event: Event, now: float) -> None:
        """Take what a worker says. Words of a worker that has been replaced only count as answers."""
        entry = self._entries.get(event.worker.topic)
        if entry is not None and entry.worker is not event.worker:
            entry = None
        match event:
            case Answered():
                self._send(event.frames)
                self._done(entry, event.job, now)
            case Due():
                if entry is not None:
                    self._due[entry] = None
            case Parked():
                self._done(entry, event.job, now)
                self._park(event.job)
                if entry is not None and event.job.after < entry.newest:
                    self._wake_waiting(entry, now)
            case _ if entry is not None:
                self._take_own(entry, event, now)

    def _take_own(self, entry: Entry, event: Event, now: float) -> None:
        match event:
            case Progress():
                entry.newest, entry.end_ordinal = event.newest, event.end_ordinal
                self._announce(entry.name, event.newest)
                self._wake_waiting(entry, now)
            case Opening():
                entry.looked_through = (event.done, event.size)
            case Opened():
                self._opened(entry, event, now)
            case Informed():
                self._learn(entry, event)
            case Changed():
                entry.place = event.place
            case DiskLow():
                self._disk_low_at = now
            case Idle():
                if entry.state is State.AWAKE and not entry.outstanding:
                    self._turns.rest(entry)
            case Slept():
                note("topic_slept", topic=entry.name)
                entry.place = event.place
                self._learn(entry, event)
                self._turns.took(entry, Happening.SLEPT, now)
            case Deleted():
                note("topic_deleted", topic=entry.name)
                self._turns.took(entry, Happening.DELETED, now)
                self._forget(entry, error("unknown_topic", f"topic {entry.name!r} was deleted"))
                self._send(event.frames)
                self._done(None, event.job, now)
            case Failed():
                self._fail(entry, event, now)

    def _opened(self, entry: Entry, event: Opened, now: float) -> None:
        assert entry.worker is not None
        entry.step(Happening.OPENED)
        note("topic_made" if entry.is_new else "topic_opened", topic=entry.name)
        entry.is_new = False
        entry.place = event.place
        self._learn(entry, event)
        pending, entry.pending = entry.pending, []
        for job in pending:
            self._hand_over(entry, job, now)
        entry.worker.inbox.hand_over()  # its thread is awake: what waited for it is done there
        self._due.pop(entry, None)
        self._wake_waiting(entry, now)
        if not entry.outstanding:
            self._turns.rest(entry)

    def _done(self, entry: Entry | None, job: Job, now: float) -> None:
        self._held_bytes -= job.size
        if entry is not None:
            entry.outstanding -= 1
            entry.in_work -= 1
            if entry.deletion is job:
                entry.deletion = None
            self._delete_if_done(entry, now)
            if entry.makes_way and not entry.in_work:
                self._turns.rest(entry)
            if not entry.outstanding:
                self._wake_waiting(entry, now)
                self._turns.give(now)

    def _learn(self, entry: Entry, event: Opened | Informed | Slept) -> None:
        self._sum_up(entry.info, -1)
        self._sum_up(event.info, 1)
        entry.learn(event.info)
        self._retain_at(entry, event.retention_due)

    def _retain_at(self, entry: Entry, due: int | None) -> None:
        if due is not None and due != entry.retention_at:
            heapq.heappush(self._retention, (due, entry.name))
        entry.retention_at = due

    def _fail(self, entry: Entry, event: Failed, now: float) -> None:
        """A worker ended by itself: its jobs get the reason, the next request opens the topic anew."""
        assert entry.worker is not None
        jobs = {*event.jobs, *entry.worker.inbox.leftover(), *entry.pending}
        if entry.deletion is not None:
            jobs.add(entry.deletion)
        entry.place, entry.pending, entry.deletion = event.place, [], None
        for job in jobs:
            self._send(job.caller.refuse(event.problem))
            self._held_bytes -= job.size
            entry.outstanding -= 1
        if event.problem.code == "disk_low":
            self._disk_low_at = now
        self._turns.took(entry, Happening.FAILED, now)
        if entry.is_new:
            self._forget(entry, event.problem)
        elif event.problem.retryable:  # it could not even be opened, so its retention is still to be done
            self._retain_at(entry, time.time_ns() // 1_000 + RETRY_US)

    def _wake_waiting(self, entry: Entry, now: float) -> None:
        """Go on with the fetches that something new is there for, no more of them than the topic takes."""
        if entry.deletion is None:
            room = self._config.topic_requests_max - entry.outstanding
            for job in self.waits.take_ready(entry.name, entry.newest, room):
                self.submit(job, now)

    def _enter(self, entry: Entry) -> None:
        self._entries[entry.name] = entry
        insort(self._names, entry.name.encode())

    def _forget(self, entry: Entry, problem: QuothError) -> None:
        """The topic does not exist any more: tell whoever waits for it."""
        self._sum_up(entry.info, -1)
        del self._entries[entry.name]
        self._names.remove(entry.name.encode())
        for job in self.waits.take_topic(entry.name):
            self._send(job.caller.refuse(problem))

    # -- time -------------------------------------------------------------------------------------------

    def tick(self, now: float) -> float | None:
        """Do what is due; returns when to come back at the latest, by the monotonic clock."""
        for job in self.waits.take_expired(now):
            self._expire(job)
        self._retain(now)
        dues = (self._turns.tick(now), self.waits.next_deadline())
        return min((due for due in dues if due is not None), default=None)

    def _expire(self, job: Job) -> None:
        entry = self._entries.get(job.topic)
        if entry is None:
            self._send(job.caller.refuse(error("unknown_topic", f"there is no topic {job.topic!r}")))
        else:
            self._send(self._nothing(entry, job))

    def _retain(self, now: float) -> None:
        """Wake the sleeping topics whose retention is due; those that are awake look after themselves."""
        clock = time.time_ns() // 1_000
        while self._retention and self._retention[0][0] <= clock:
            due, name = heapq.heappop(self._retention)
            entry = self._entries.get(name)
            if entry is not None and entry.retention_at == due:
                entry.retention_at = None
                if entry.state is State.ASLEEP:
                    self._turns.need(entry, now)

    # -- the broker as a whole --------------------------------------------------------------------------

    def names(self, after: str, limit: int) -> list[str]:
        """Names of topics above `after`, in the order of their bytes."""
        start = bisect_right(self._names, after.encode()) if after else 0
        return [name.decode() for name in self._names[start : start + limit]]

    def states(self, after: str, limit: int) -> dict[str, str]:
        """The letters of topics above `after`, as many as fit into one reply."""
        states: dict[str, str] = {}
        room = STATES_BYTES_MAX
        for name in self.names(after, limit):
            letters = self._entries[name].states()
            room -= len(name.encode()) + len(letters)
            if room < 0 and states:
                break
            states[name] = letters
        return states

    @property
    def topics(self) -> int:
        """How many topics there are."""
        return len(self._entries)

    @property
    def unopened(self) -> int:
        """How many topics have not been opened since the start."""
        return self._turns.unopened

    def is_disk_low(self, now: float) -> bool:
        """Has a publish been refused in the last `DISK_LOW_S`, since too little of the disk is free?"""
        return now - self._disk_low_at < DISK_LOW_S

    @property
    def active(self) -> int:
        """How many topics have a worker."""
        return self._turns.active

    def totals(self) -> dict[str, int]:
        """What somebody should know of, over all topics that have been opened since the start."""
        return {name: self._totals[name] for name in (*SUMS, "borrowed_us_max")}

    def _sum_up(self, info: LogInfo | None, sign: int) -> None:
        if info is not None:
            told = {**info.counters, **info.gauges}
            for name in SUMS:
                self._totals[name] += sign * told[name]
            self._totals["borrowed_us_max"] = max(self._totals["borrowed_us_max"], told["borrowed_us"])

    @property
    def syncs(self) -> int:
        """How many fsyncs the sync thread has run."""
        return self._syncer.runs

    def drain(self) -> None:
        """Take nothing more; tell who waits."""
        self._stopping = True
        self._turns.drain()
        for job in self.waits.take_all():
            self._send(job.caller.refuse(error("stopping", "the broker is shutting down")))

    def drained(self) -> bool:
        """Send the topics that have answered everything to sleep; are all asleep?"""
        return self._turns.drained()

    def stop(self, until: float) -> tuple[list[str], list[str]]:
        """End all threads, until the monotonic clock says so; there is no other call after this one.

        Returns the topics that are still at work then, and those of which not everything is synced though
        they are not. For the former the shared threads go on as well.
        """
        at_work, unsynced = self._turns.end(until)
        failed = [entry.name for entry in self._entries.values() if entry.place.failure is not None]
        if not at_work:
            self._syncer.stop(until)
            self._readers.stop(until)
        return at_work, sorted({*unsynced, *failed} - {*at_work})
