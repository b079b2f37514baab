"""The keeper: what is done with one active topic's log, asked and unasked.

It takes what has gathered as one burst, so that publishes share one write, and tells the front end at the end
what came of all of it. It has no thread of its own: it works in the worker's or in the front end's, one at a
time. Nothing else touches the topic's log, apart from lookups in sealed segments (the readers) and fsync
tickets (the sync thread), whose outcomes come back through the inbox.

An acknowledgement leaves once the level that was asked for is reached and the record can be read: at once for
`written`, after a shared fsync for `synced` and for pointers beyond the log's horizon.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import replace

from quothd.config.config import Config
from quothd.datadir import catalog
from quothd.datadir.topic_file import TopicFile
from quothd.requests.event_list import Voice
from quothd.requests.events import (
    Changed,
    Deleted,
    DiskLow,
    Idle,
    Informed,
    Opened,
    Sender,
    Slept,
)
from quothd.requests.pending_request import PendingRequest
from quothd.service.log_events import note
from quothd.threads.fsync_thread import FsyncThread, Synced
from quothd.threads.inbox import Inbox
from quothd.threads.outbox import Outbox
from quothd.threads.reader_pool import Looked, ReaderPool
from quothd.topics.append_burst import Waiting, acknowledged, append_jobs
from quothd.topics.failures import complain, refusal
from quothd.topics.fetch import Reads
from quothd.topics.metadata import TopicMetadata, topic_info
from quothd.topics.retention import Retention
from quothd.topics.transactions import Stepped, Transactions
from quothlog import Appended, Log, LogInfo
from quothlog.storage.filesystem import NotDurable
from quothwire.errors import QuothError, error
from quothwire.protocol.messages import Operation, Trimmed
from quothwire.protocol.operations import Reply

QUICK_ITEMS_MAX = 128
QUICK_BYTES_MAX = 2**19
"""So many publishes and fetches together are done within 2 ms, unless the disk has them wait. A fetch is
taken to bring what the last one has brought, and one is quick whatever it brings."""


class Rest:
    """The front end's word to close the log and end."""


class Keeper:
    """One open log and the requests for it. `Slept` and `Deleted` are its last words.

    ended: nothing more is done here. broken: what nobody foresaw, after which nothing more may be done.
    """

    def __init__(
        self,
        worker: Sender,
        place: TopicMetadata,
        log: Log,
        config: Config,
        inbox: Inbox,
        outbox: Outbox,
        syncer: FsyncThread,
        readers: ReaderPool,
    ) -> None:
        self.ended = False
        self.broken: Exception | None = None
        self._worker = worker
        self._place = place
        self._log = log
        self._config = config
        self._inbox = inbox
        self._voice = Voice(worker, outbox)
        self._syncer = syncer
        self._reads = Reads(log, readers, inbox.bring, self._voice)
        self._burst: deque[object] = deque()
        self._publishes: list[PendingRequest] = []
        self._waiting: list[Waiting] = []
        self._ticket_out = False
        self._unsynced_since = 0.0
        self._last_used = time.monotonic()
        self._last_check = self._last_used
        self._transactions = Transactions(worker.topic, log, inbox)
        self._retention = Retention(worker.topic, log, self._transactions)
        self._is_short = False
        self._actions: dict[Operation, Callable[[PendingRequest], None]] = {
            **self._reads.actions,
            Operation.DESCRIBE: self._describe,
            Operation.CREATE: self._describe,
            Operation.UPDATE: self._update,
            Operation.TRIM: self._trim,
            Operation.ROLL: self._roll,
            Operation.DELETE: self._delete,
            Operation.STAGE: lambda job: self._reply(job, self._transactions.stage(job)),
            Operation.PUBLISH_STAGED: self._publish_staged,
            Operation.ABORT: lambda job: self._reply(job, self._transactions.abort(job)),
            Operation.TRANSACTION: lambda job: self._reply(job, self._transactions.standing(job)),
        }

    # -- what a thread may do here, one at a time -------------------------------------------------------

    def begin(self) -> None:
        """Do the retention that has become due meanwhile, and say that the log is open."""
        self._retention.run()
        self._voice.say(Opened(self._worker, replace(self._place), self._info(), self._retention.due()))
        self._voice.speak()

    def work(self, items: Iterable[object]) -> None:
        """Do what is asked for, and begin the fsync that somebody waits for. `broken` if that raises."""
        self._burst.extend(items)
        if self.ended or self.broken is not None:
            return
        try:
            self._work()
            if not self.ended:
                self._voice.progress(self._log.newest, self._log.end_ordinal)
                self._sync_if_due(time.monotonic())
        except Exception as problem:
            self.broken = problem
        self._voice.speak()

    def keep_house(self) -> None:
        """Do what is due unasked: retention, telling how the log stands or that nothing is asked."""
        if self.ended or self.broken is not None:
            return
        try:
            self._keep_house(time.monotonic())
        except Exception as problem:
            self.broken = problem
        self._voice.speak()

    def next_due(self) -> float:
        """When there will be something to do unasked, by the monotonic clock."""
        due = self._last_check + self._config.check_interval
        if not self._voice.unanswered:
            due = min(due, self._last_used + self._config.worker_timeout)
        if self._unsynced_since and not self._ticket_out:
            due = min(due, self._unsynced_since + self._config.sync_interval)
        return due

    def quick(self, items: Iterable[object]) -> int:
        """How many of these, from the first on, will be done in a moment, as far as can be told."""
        if self.ended or self.broken is not None or self._unsynced_share() > 1:
            return 0
        count = written = found = 0
        written_max = min(QUICK_BYTES_MAX, self._log.room)
        for item in items:
            if isinstance(item, PendingRequest):
                if item.operation is Operation.PUBLISH:
                    written += item.size
                elif item.operation is Operation.FETCH:
                    found += self._reads.found_bytes
                else:
                    break
            if isinstance(item, Rest | Stepped) or written > written_max or count == QUICK_ITEMS_MAX:
                break
            if count and found > QUICK_BYTES_MAX:
                break
            count += 1
        return count

    def abandon(self) -> list[PendingRequest]:
        """Close what can be closed, whatever state it is in; returns the jobs that are not answered."""
        self.ended = True
        try:
            self._place.counted = self._info().counters
            self._drop_ticket()
            self._log.close()
        except Exception as problem:
            note("close_failed", problem, topic=self._worker.topic)
        self._place.failure = self._log.failure
        self._voice.speak()
        return [item for item in (*self._voice.unanswered, *self._burst) if isinstance(item, PendingRequest)]

    # -- inside -----------------------------------------------------------------------------------------

    def _work(self) -> None:
        while self._burst and not self.ended:
            item = self._burst[0]
            if isinstance(item, PendingRequest) and self._transactions.holds(item):
                self._voice.owe(item)
                self._burst.popleft()
            elif isinstance(item, PendingRequest) and item.operation is Operation.PUBLISH:
                self._voice.owe(item)
                self._publishes.append(item)
                self._burst.popleft()
            else:
                self._append()  # if this breaks down, the item is still where it is looked for
                self._take(self._burst.popleft())
        self._append()

    def _take(self, item: object) -> None:
        match item:
            case PendingRequest():
                self._voice.owe(item)
                self._do(item)
            case Synced():
                self._finish_sync(item)
            case Looked():
                self._guard(item.job, lambda _: self._reads.go_on(item))
            case Stepped():
                self._go_on(item)
            case Config():
                self._configure(item)
            case Rest():
                self._rest()
            case None:  # a nudge
                pass
            case _:
                raise AssertionError(f"{item!r} in an inbox")

    def _configure(self, config: Config) -> None:
        """Go by another configuration from now on."""
        self._config = config
        self._log.options = config.log_options(self._place.topic.settings, keep_all=bool(self._place.problem))

    def _keep_house(self, now: float) -> None:
        if now - self._last_check >= self._config.check_interval:
            self._last_check = now
            self._retention.run()
            self._inform()
        if now - self._last_used >= self._config.worker_timeout and not self._voice.unanswered:
            self._last_used = now
            self._voice.say(Idle(self._worker))

    # -- requests ---------------------------------------------------------------------------------------

    def _do(self, job: PendingRequest) -> None:
        """Do what a job asks for."""
        self._last_used = time.monotonic() if job.operation is not Operation.DESCRIBE else self._last_used
        self._guard(job, self._actions[job.operation])

    def _guard(self, job: PendingRequest, action: Callable[[PendingRequest], None]) -> None:
        """Whatever goes wrong with one job is its answer and nobody else's."""
        try:
            action(job)
        except QuothError as problem:
            self._tell_if_short(problem)
            self._voice.refuse(job, problem)
        except OSError as problem:
            complain(problem, self._worker.topic, self._log.directory)
            self._voice.refuse(job, refusal(problem, self._worker.topic, self._log.directory))

    def _append(self) -> None:
        """Append all publishes of the burst."""
        jobs, self._publishes = self._publishes, []
        if not jobs:
            return
        self._last_used = time.monotonic()
        self._reads.writes.note(sum(job.size for job in jobs))
        self._make_room()
        for job, outcome, durability in append_jobs(self._log, jobs):
            self._acknowledge(job, outcome, durability)

    def _acknowledge(self, job: PendingRequest, outcome: Appended | QuothError, durability: str) -> None:
        if isinstance(outcome, QuothError):
            self._tell_if_short(outcome)
            self._voice.refuse(job, outcome)
            return
        self._is_short = False
        settings = self._place.topic.settings
        reply = acknowledged(self._log.log_id, outcome, settings.durability, durability)
        self._unsynced_since = self._unsynced_since or time.monotonic()
        if outcome.last > (self._log.synced_pointer if reply.durability == "synced" else self._log.newest):
            self._waiting.append(Waiting(job, reply))
        else:
            self._voice.answer(job, job.responder.reply(reply))

    def _tell_if_short(self, problem: QuothError) -> None:
        """Tell that the disk is low: the front end each time, the log once until it is not any more."""
        if problem.code == "disk_low":
            self._voice.say(DiskLow(self._worker))
            if not self._is_short:
                note("disk_low", topic=self._worker.topic, problem=problem.text)
            self._is_short = True

    def _make_room(self) -> None:
        """Above the limits of what a loss of power may take, writers wait for an fsync right here."""
        if self._unsynced_share() > 1:
            try:
                self._log.sync()
            except QuothError as problem:
                note("sync_failed", topic=self._worker.topic, problem=problem)
            self._release()

    def _unsynced_share(self) -> float:
        """How much is not synced, of what a loss of power may take; from half on the sync thread begins."""
        log, config = self._log, self._config
        return max(
            log.unsynced_bytes / config.unsynced_bytes_max, log.unsynced_records / config.buffer_count_max
        )

    # -- transactions -----------------------------------------------------------------------------------

    def _publish_staged(self, job: PendingRequest) -> None:
        appended = self._transactions.publish(job)
        if appended is not None:
            self._acknowledge(job, appended, "synced")

    def _go_on(self, stepped: Stepped) -> None:
        """Go on with a publication after a step of it."""
        done = self._transactions.go_on(stepped)
        if done is not None:
            self._acknowledge(*done, "synced")
            self._release()

    def _reply(self, job: PendingRequest, reply: Reply) -> None:
        self._voice.answer(job, job.responder.reply(reply))

    # -- what is done to the topic ------------------------------------------------------------------------

    def _describe(self, job: PendingRequest) -> None:
        job.decode()
        self._place.failure = self._log.failure
        self._reply(job, topic_info(self._place, self._info()))

    def _update(self, job: PendingRequest) -> None:
        place = self._place
        changed = place.topic.settings.changed(job.decode().settings)
        topic = TopicFile(place.topic.name, place.topic.log_id, changed)
        assert place.path is not None
        catalog.save(place.path, topic)
        place.topic, place.problem = topic, ""
        self._log.options = self._config.log_options(changed)
        self._retention.run()
        self._voice.say(Changed(self._worker, replace(place)))
        self._describe(job)

    def _trim(self, job: PendingRequest) -> None:
        records, size = self._log.trim(job.decode().before)
        self._reply(job, Trimmed(records, size, self._info().first))
        self._inform()

    def _roll(self, job: PendingRequest) -> None:
        job.decode()
        self._log.roll()
        self._release()
        self._describe(job)

    def _delete(self, job: PendingRequest) -> None:
        """Delete the topic. The dispatcher has seen to it that this is the last job."""
        log_id = job.decode().log
        if log_id not in (0, self._log.log_id):
            raise error("unknown_topic", f"topic {self._worker.topic!r} is another one now, with another log")
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
        self.ended = True
        removed = Trimmed(info.end_ordinal - info.first_ordinal, info.bytes, 0)
        self._voice.say(Deleted(self._worker, job, job.responder.reply(removed)))

    # -- syncing ----------------------------------------------------------------------------------------

    def _sync_if_due(self, now: float) -> None:
        if self._ticket_out or not self._unsynced_since:
            return
        if self._log.failure is not None or not self._log.unsynced_bytes:
            self._release()
            self._unsynced_since = 0.0
        elif self._is_sync_due(now):
            self._unsynced_since = 0.0
            self._ticket_out = True
            self._syncer.submit(self._log.begin_sync(), self._inbox)

    def _is_sync_due(self, now: float) -> bool:
        is_long = now - self._unsynced_since >= self._config.sync_interval
        return is_long or bool(self._waiting) or self._unsynced_share() > 0.5

    def _finish_sync(self, synced: Synced) -> None:
        self._ticket_out = False
        if synced.problem is not None:
            note("sync_failed", topic=self._worker.topic, problem=synced.problem)
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
                self._voice.answer(one.job, one.job.responder.reply(one.reply))
            elif self._log.failure is not None:
                self._voice.refuse(one.job, self._log.failure)
            else:
                self._waiting.append(one)
        self._burst.extendleft(reversed(self._transactions.release()))

    def _drop_ticket(self) -> None:
        """Wait for the sync thread to be done with this log."""
        self._inbox.direct = True
        while self._ticket_out or self._transactions.is_at_work:
            if not self._burst:
                self._inbox.wait(time.monotonic() + self._config.check_interval)
                self._burst.extend(self._inbox.take(1))
                continue
            item = self._burst.popleft()
            if isinstance(item, Synced):
                self._finish_sync(item)
            elif isinstance(item, Stepped):
                self._go_on(item)
            elif isinstance(item, PendingRequest):
                self._voice.owe(item)

    # -- telling the front end --------------------------------------------------------------------------

    def _info(self) -> LogInfo:
        info = self._log.info()
        gauges = {**info.gauges, "staged_bytes": self._transactions.staged_bytes}
        return self._place.informed(replace(info, gauges=gauges))

    def _inform(self) -> None:
        self._voice.say(Informed(self._worker, self._info(), self._retention.due()))

    def _rest(self) -> None:
        """Close the log: everything synced, every acknowledgement sent."""
        self._drop_ticket()
        if self._log.failure is None:
            self._log.sync()
        self._release()
        info, due = self._info(), self._retention.due()
        self._log.close()
        self._place.failure, self._place.counted = self._log.failure, info.counters
        self.ended = True
        self._voice.progress(self._log.newest, self._log.end_ordinal)
        self._voice.say(Slept(self._worker, replace(self._place), info, due))
