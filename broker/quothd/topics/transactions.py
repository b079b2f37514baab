"""Executes the requests about transactions of one topic, and keeps the requests that wait for a commit.

A thread of its own commits a large transaction in two steps, after each of which `CommitStepDone` comes back.
While the first one syncs gigabytes, the topic goes on as ever; while the second one writes the headers,
requests that append wait. They wait as well until a small transaction is synced.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar

from quothd.requests.events import CommitStepDone, EventList
from quothd.requests.pending_request import PendingRequest
from quothd.topics.bindings import Bindings, BoundKind, Identity
from quothlog import Appended, Log
from quothlog.transactions.commit import Commit
from quothlog.transactions.transactions import TransactionState
from quothwire.errors import QuothError
from quothwire.protocol.messages import (
    AbortTransaction,
    GetTransaction,
    Operation,
    PublishStaged,
    Reply,
    Stage,
    Staged,
    TransactionInfo,
)
from quothwire.protocol.transaction import check_application, decode_parts, producer_of

DECIDING = frozenset((Operation.PUBLISH_STAGED, Operation.ABORT))
"""Operations that wait while a thread works on a commit."""
APPENDING = frozenset((Operation.PUBLISH, Operation.ROLL, Operation.TRIM, Operation.TRANSACTION)) | DECIDING
"""Operations that wait while nothing may be appended, or reported as stored."""


class Transactions:
    """The transactions of one open log. Owned by its topic.

    log_transactions: those of the log. bindings: of its producers and applications to clients. start: see
    `Services.step`.
    """

    def __init__(
        self, log: Log, start: Callable[[Commit, Callable[[], None]], None], events: EventList
    ) -> None:
        self._log = log
        self._events = events
        self._start = start
        self.log_transactions = log.transactions()
        self.bindings = Bindings(log, self.log_transactions)
        self._committing: PendingRequest | None = None
        self._held: list[PendingRequest] = []

    @property
    def is_at_work(self) -> bool:
        """True while a thread works on a commit."""
        return self._committing is not None

    # -- requests -------------------------------------------------------------------------------------------

    def handle(self, request: PendingRequest) -> Reply:
        """Execute a request that needs no other thread; returns the reply. Raises `QuothError`."""
        return self._ACTIONS[request.operation](self, request)

    def _stage(self, request: PendingRequest) -> Staged:
        """Stage the batch that came with a request. Raises what `stage` of the log does."""
        decoded: Stage = request.decode()
        application = application_of(decoded)
        if request.client is not None:
            self.bindings.admit(request.client, Identity(BoundKind.APPLICATION, application))
        attempt = decoded.version, decoded.part, decoded.attempt, decoded.number
        try:
            raw = request.responder.payload()
            one = self.log_transactions.stage(application, *attempt, raw)
            self._events.measures.bytes_in += len(raw)
        finally:
            if self.bindings.fresh:
                self.bindings.save()
        return Staged(one.batches, one.records, one.bytes)

    def publish(self, request: PendingRequest) -> Appended | None:
        """Publish what a request names; None if a commit has begun."""
        decoded: PublishStaged = request.decode()
        application = self._checked(request)
        parts = decode_parts(request.responder.payload(), decoded.parts)
        outcome = self.log_transactions.publish(application, decoded.version, parts, decoded.newest)
        if isinstance(outcome, Commit):
            try:
                self._start(outcome, outcome.prepare)
            except QuothError as problem:
                raise self.log_transactions.withdraw(outcome, problem) from problem
            self._committing = request
            return None
        return self._counted(outcome) if outcome is not None else Appended(0, 0, 0, False)

    def _abort(self, request: PendingRequest) -> TransactionInfo:
        """Remove the staged batches of a transaction."""
        application = self._checked(request)
        return self._described(self.log_transactions.abort(application, request.message.version))

    def _state(self, request: PendingRequest) -> TransactionInfo:
        """The state of a transaction."""
        decoded: GetTransaction = request.decode()
        return self._described(self.log_transactions.standing(application_of(decoded), decoded.version))

    _ACTIONS: ClassVar[dict[Operation, Callable[[Transactions, PendingRequest], Reply]]] = {
        Operation.STAGE: _stage,
        Operation.ABORT: _abort,
        Operation.TRANSACTION: _state,
    }
    OPERATIONS = frozenset(_ACTIONS)

    # -- requests that wait ---------------------------------------------------------------------------------

    def holds(self, request: PendingRequest) -> bool:
        """Keep a request that has to wait for a commit, in order; False if it need not wait."""
        waits = request.operation in APPENDING and self._log.appender.is_publishing
        if waits or (request.operation in DECIDING and self._committing is not None):
            self._held.append(request)
            return True
        return False

    def release(self) -> list[PendingRequest]:
        """Return the requests that need not wait any more, in order."""
        if self._log.appender.is_publishing or self._committing is not None:
            return []
        self.log_transactions.tidy()
        held, self._held = self._held, []
        return held

    # -- a commit under way ---------------------------------------------------------------------------------

    def go_on(self, done: CommitStepDone) -> tuple[PendingRequest, Appended | QuothError] | None:
        """Take the next step of a commit; the request and its outcome if there is none."""
        commit, problem = done
        request, self._committing = self._committing, None
        assert request is not None
        try:
            if problem is not None:
                raise problem
            if commit.active is not None:
                return request, self._counted(self.log_transactions.adopt(commit))
            self.log_transactions.place(commit)
            self._start(commit, commit.commit)
        except (OSError, QuothError) as failure:
            return request, self.log_transactions.withdraw(commit, failure)
        self._committing = request
        return None

    def _checked(self, request: PendingRequest) -> int:
        """Return the application of a request. Raises ``denied`` if another client has begun it."""
        application = application_of(request.decode())
        if request.client is not None:
            self.bindings.check(request.client, Identity(BoundKind.APPLICATION, application))
        return application

    def _counted(self, outcome: Appended) -> Appended:
        """Count the records of a transaction that was published; their bytes were counted when staged."""
        if not outcome.duplicate:
            self._events.measures.records_in += outcome.count
        return outcome

    def _described(self, standing: TransactionState) -> TransactionInfo:
        state, first, records, staged, newest = standing
        last = first + records - 1 if records else 0
        return TransactionInfo(self._log.log_id, state, first, last, records, *staged, newest)


def application_of(request: Stage | PublishStaged | AbortTransaction | GetTransaction) -> int:
    """The id of the application that a request names. Raises ``bad_request``."""
    return producer_of(check_application(request.application))
