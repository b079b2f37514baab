"""The transactions of one topic: what clients ask for, done with its log, and who waits meanwhile.

Publishing a large one takes as long as the disk needs for all of it. That is done by a thread of its own, in
two steps, each of which says through the inbox that it is done: while the first one syncs gigabytes, the
topic goes on as ever; while the second one writes the headers, those who append wait. They wait as well until
a small one has been synced.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import NamedTuple

from quothd.requests.pending_request import PendingRequest
from quothd.threads.inbox import Inbox
from quothd.topics.failures import shortage
from quothlog import Appended, Log
from quothlog.transactions.commit import Commit
from quothlog.transactions.staging import Amount, Key
from quothlog.transactions.transactions import TransactionState
from quothwire.errors import QuothError
from quothwire.protocol.messages import (
    AbortTransaction,
    GetTransaction,
    Operation,
    PublishStaged,
    Stage,
    Staged,
    TransactionInfo,
)
from quothwire.protocol.transaction import check_application, decode_parts, producer_of

DECIDING = frozenset((Operation.PUBLISH_STAGED, Operation.ABORT))
"""What waits while a thread is at work on a publication."""
APPENDING = frozenset((Operation.PUBLISH, Operation.ROLL, Operation.TRIM, Operation.TRANSACTION)) | DECIDING
"""What waits while nothing else may be appended, or be told to be stored."""


class Stepped(NamedTuple):
    """A step of a publication is done, or has gone wrong."""

    publication: Commit
    problem: Exception | None


class Transactions:
    """What is done with the transactions of one open log. Owned by its keeper."""

    def __init__(self, topic: str, log: Log, inbox: Inbox) -> None:
        self._topic = topic
        self._log = log
        self._inbox = inbox
        self._own = log.transactions()
        self._job: PendingRequest | None = None
        self._held: list[PendingRequest] = []

    @property
    def staged_bytes(self) -> int:
        """Bytes of all batches that are staged."""
        return self._own.staged_bytes

    @property
    def is_at_work(self) -> bool:
        """Is a thread at work on a publication?"""
        return self._job is not None

    # -- what is asked for ----------------------------------------------------------------------------------

    def stage(self, job: PendingRequest) -> Staged:
        """Keep the batch that came with a job. Raises what `stage` of the log does."""
        request: Stage = job.decode()
        application = _application(request)
        one = self._own.stage(
            application,
            request.version,
            request.part,
            request.attempt,
            request.number,
            job.responder.payload(),
        )
        return Staged(one.batches, one.records, one.bytes)

    def publish(self, job: PendingRequest) -> Appended | None:
        """Publish what a job names; None if that is on its way now."""
        request: PublishStaged = job.decode()
        application = _application(request)
        parts = decode_parts(job.responder.payload(), request.parts)
        outcome = self._own.publish(application, request.version, parts, request.newest)
        if isinstance(outcome, Commit):
            try:
                self._step(outcome, outcome.prepare)
            except QuothError as problem:
                raise self._own.withdraw(outcome, problem) from problem
            self._job = job
            return None
        return outcome or Appended(0, 0, 0, False)

    def abort(self, job: PendingRequest) -> TransactionInfo:
        """Remove what is staged for a transaction."""
        request: AbortTransaction = job.decode()
        return self._told(self._own.abort(_application(request), request.version))

    def standing(self, job: PendingRequest) -> TransactionInfo:
        """How a transaction stands."""
        request: GetTransaction = job.decode()
        return self._told(self._own.standing(_application(request), request.version))

    # -- who waits ------------------------------------------------------------------------------------------

    def holds(self, job: PendingRequest) -> bool:
        """Has this job to wait? If so it is kept, in order."""
        waits = job.operation in APPENDING and self._log.is_publishing
        if waits or (job.operation in DECIDING and self._job is not None):
            self._held.append(job)
            return True
        return False

    def release(self) -> list[PendingRequest]:
        """The jobs that need not wait any more, in order."""
        if self._log.is_publishing or self._job is not None:
            return []
        self._own.tidy()
        held, self._held = self._held, []
        return held

    # -- a publication on its way ---------------------------------------------------------------------------

    def go_on(self, done: Stepped) -> tuple[PendingRequest, Appended | QuothError] | None:
        """Take the next step of a publication; the job and what has become of it if there is none."""
        publication, problem = done
        job, self._job = self._job, None
        assert job is not None
        try:
            if problem is not None:
                raise problem
            if publication.active is not None:
                return job, self._own.adopt(publication)
            self._own.place(publication)
            self._step(publication, publication.commit)
        except (OSError, QuothError) as failure:
            return job, self._own.withdraw(publication, failure)
        self._job = job
        return None

    # -- unasked --------------------------------------------------------------------------------------------

    def expire(self) -> Iterator[tuple[Key, Amount]]:
        """Remove what nobody has added to for too long; tells it. Raises OSError."""
        return self._own.expire()

    def due(self) -> int | None:
        """When there will be something to `expire`, as a pointer; None if nothing is staged."""
        return self._own.due()

    # -- inside ---------------------------------------------------------------------------------------------

    def _step(self, publication: Commit, step: Callable[[], None]) -> None:
        """Let a thread take a step."""

        def take() -> None:
            problem = None
            try:
                step()
            except Exception as failure:
                problem = failure
            self._inbox.bring(Stepped(publication, problem))

        try:
            threading.Thread(target=take, name=f"quoth-publish-{self._topic}", daemon=True).start()
        except (RuntimeError, MemoryError) as problem:
            raise shortage(problem, self._topic) from problem

    def _told(self, standing: TransactionState) -> TransactionInfo:
        state, first, records, staged, newest = standing
        last = first + records - 1 if records else 0
        return TransactionInfo(self._log.log_id, state, first, last, records, *staged, newest)


def glance(job: PendingRequest) -> None:
    """Raise what is wrong with a `Stage` as far as it shows without looking at its records."""
    _application(job.decode())


def _application(request: Stage | PublishStaged | AbortTransaction | GetTransaction) -> int:
    return producer_of(check_application(request.application))
