"""Handlers of records: subscriptions, which `Client.run` executes until it is stopped.

dispatcher, one for each subscription
    record ──► free worker: handler(record) ──returns──► ack
                                            └─raises───► nack, and an entry in the log
"""

from __future__ import annotations

import logging
import signal
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from inspect import isasyncgenfunction, isawaitable, iscoroutinefunction, isgeneratorfunction
from queue import SimpleQueue
from select import select
from typing import Any, NamedTuple, TypeAlias, TypeVar
from weakref import finalize

from quoth.connection.connection import PipeWakeup
from quoth.groups.calls import taken
from quoth.groups.group import ConsumerGroup, GroupMessage
from quoth.groups.leased import LeasedMessage
from quoth.groups.options import GroupOptions, SubscriptionOptions, reason_of
from quoth.tracing import handling
from quothwire.errors import error
from quothwire.protocol.settlement import Settle

Handler: TypeAlias = Callable[[Any], Any]
"""A function that is called with each record. Its result is not used; an exception gives the record back."""
H = TypeVar("H", bound=Handler)
FREE_S = 1.0
"""The longest wait for a free worker before the leases of the records at hand are checked."""
SIGNALS = signal.SIGINT, signal.SIGTERM


class SubscriptionCounts(NamedTuple):
    """Records of a subscription in one run.

    handled: the handler has returned. failed: it has raised an error. left: fetched, and given back at the
    end, without a call of the handler.
    """

    topic: str
    group: str
    handled: int
    failed: int
    left: int


class Subscription:
    """A handler of the records of a group, with the counts of one run. Any thread may call `settle`.

    may_wait: the handler may be a coroutine function. Raises ``bad_request`` for one of which a call executes
    nothing.
    """

    def __init__(self, options: SubscriptionOptions, handler: Handler, *, may_wait: bool = False) -> None:
        if not callable(handler):
            raise error("bad_request", f"a handler is a function, not {handler!r:.100}")
        if isgeneratorfunction(handler) or isasyncgenfunction(handler):
            raise error("bad_request", f"a handler is no generator: a call of {handler!r:.100} does nothing")
        if iscoroutinefunction(handler) and not may_wait:
            text = f"a handler is no coroutine function here: a call of {handler!r:.100} does nothing"
            raise error("bad_request", text, "connect by quoth.aio for such a handler")
        self.group = options.group
        self.concurrency = options.concurrency
        self.handler = handler
        self._lock = threading.Lock()
        self.begin()

    def begin(self) -> None:
        """Begin another run."""
        self.handled = self.failed = self.left = 0

    @property
    def counts(self) -> SubscriptionCounts:
        """The counts of the run."""
        return SubscriptionCounts(self.group.topic, self.group.name, self.handled, self.failed, self.left)

    def succeed(self, message: LeasedMessage) -> None:
        """Take note that the handler of a record has returned."""
        with self._lock:
            self.handled += 1
        if not message.is_settled:
            message._settle(Settle.ACK)

    def fail(self, message: LeasedMessage, problem: BaseException) -> None:
        """Take note that the handler of a record has raised an error, and log it."""
        with self._lock:
            self.failed += 1
        if not message.is_settled:
            message._settle(Settle.NACK, reason=reason_of(problem))
        text = "a handler has failed topic=%r group=%r pointer=%d attempts=%d"
        values = self.group.topic, self.group.name, message.pointer, message.attempts
        logging.getLogger("quoth").error(text, *values, exc_info=problem)


class SubscriptionRun:
    """One run of some subscriptions. Any thread, and a signal handler, may call `stop`."""

    def __init__(
        self, subscriptions: Iterable[Subscription], group_of: Callable[[GroupOptions], ConsumerGroup]
    ) -> None:
        self._subscriptions = begun(subscriptions)
        self._group_of = group_of
        self._is_stopping = False
        self._problem: BaseException | None = None
        self._wakeup = PipeWakeup()
        finalize(self, self._wakeup.close)

    def stop(self) -> None:
        """Take no more records. Handlers that are executed go on."""
        self._is_stopping = True
        self._wakeup.wake()

    def execute(self) -> list[SubscriptionCounts]:
        """Execute the handlers until it is stopped. Raises the error that has ended a subscription."""
        threads: list[threading.Thread] = []
        try:
            with stopped_by_signals(self.stop):
                for one in self._subscriptions:
                    threads.append(_start("quoth-dispatch", self._dispatch, one))
                while not self._is_stopping:
                    select([self._wakeup.fd], [], [])
            for thread in threads:  # not after an interrupt: handlers may never end
                thread.join()
        finally:
            self._is_stopping = True
        if self._problem is not None:
            raise self._problem
        return [one.counts for one in self._subscriptions]

    def _dispatch(self, subscription: Subscription) -> None:
        """Execute one subscription."""
        try:
            with self._group_of(subscription.group) as group:
                self._hand_out(subscription, group)
            subscription.left = group._member.stock.released
        except BaseException as problem:
            self._problem = self._problem or problem
            self.stop()

    def _hand_out(self, subscription: Subscription, group: ConsumerGroup) -> None:
        """Give records to workers; returns once these have finished."""
        free = threading.Semaphore(subscription.concurrency)
        given: SimpleQueue[GroupMessage | None] = SimpleQueue()
        workers: list[threading.Thread] = []
        try:
            for _ in range(subscription.concurrency):
                workers.append(_start("quoth-handler", _work, subscription, given, free))
            while not self._is_stopping:
                is_free = free.acquire(timeout=group._member.stock.keep(FREE_S))
                if is_free and not self._is_stopping:
                    message = group._drive(taken(group))
                    if message is None:
                        free.release()
                    else:
                        given.put(message)
        finally:
            for _ in workers:
                given.put(None)
            for worker in workers:
                worker.join()


def begun(subscriptions: Iterable[Subscription]) -> list[Subscription]:
    """Return subscriptions that begin another run. Raises ``bad_request`` if there are none."""
    found = list(subscriptions)
    if not found:
        raise error("bad_request", "nothing is subscribed", "`subscribe` registers a handler")
    for one in found:
        one.begin()
    return found


def _work(
    subscription: Subscription, given: SimpleQueue[GroupMessage | None], free: threading.Semaphore
) -> None:
    """Execute the handler of a subscription for one record after the other."""
    while (message := given.get()) is not None:
        try:
            with handling(message):
                if isawaitable(subscription.handler(message)):
                    raise TypeError("the handler returned something to await, which only quoth.aio does")
        except BaseException as problem:
            subscription.fail(message, problem)
        else:
            subscription.succeed(message)
        free.release()


def _start(name: str, target: Callable[..., None], *arguments: object) -> threading.Thread:
    thread = threading.Thread(target=target, args=arguments, name=name, daemon=True)
    thread.start()
    return thread


@contextmanager
def stopped_by_signals(stop: Callable[[], object]) -> Iterator[None]:
    """Let the first signal stop a run; the next one has its usual effect. In the main thread alone."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    previous = {number: signal.getsignal(number) for number in SIGNALS}

    def restore() -> None:
        for number, handler in previous.items():
            signal.signal(number, handler)

    def hear(*_: object) -> None:
        restore()
        stop()

    for number in SIGNALS:
        signal.signal(number, hear)
    try:
        yield
    finally:
        restore()
