"""The producer: collects records into batches and keeps several in flight, in order, each stored once.

`send` only appends to the batch that is being filled, without a lock where that is compiled; the first record
and the last one of a batch take the lock. A thread of the producer closes a batch when it is full or old
enough, and puts it in flight. `ProducerCore` is all of that; `Producer` waits by blocking its thread, and
`quoth.aio` without blocking the event loop.

    filling --full, old enough or flushed--> ready --> in flight --> settled: an `Ack` or a `Failure`
"""

from __future__ import annotations

import math
import os
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from contextlib import suppress
from functools import partial
from typing import Self
from weakref import WeakSet

import zmq

from quoth.connection.connection import Context, Link, PipeWakeup
from quoth.connection.endpoint import Endpoint
from quoth.connection.send_loop import BatchSupply, SendLoop
from quoth.core.inflight import Inflight
from quoth.core.options import BUFFER_MAX as BUFFER_MAX
from quoth.core.options import Timing, as_seconds
from quoth.core.outgoing import (
    BATCH_BYTES,
    OVERHEAD_BYTES,
    Failure,
    ProducerBatch,
    ProducerError,
)
from quoth.core.streams import ProducerOptions
from quoth.message import Ack
from quoth.tracing import appending
from quothwire.batch import BATCH_RECORDS_MAX
from quothwire.errors import QuothError, error
from quothwire.protocol.messages import Publish
from quothwire.record import RecordBuffer


class ProducerCore:
    """A producer without its ways of waiting. Any thread may call its methods.

    `_notify` is called, under the lock, by each thread that has changed what another one may wait for.
    """

    def __init__(
        self, context: Context, endpoint: Endpoint, options: ProducerOptions, timing: Timing
    ) -> None:
        self.topic = topic = options.topic
        self.acknowledged = 0
        """The number of records that are stored."""
        self.last = 0
        """The newest pointer of a stored record."""
        self.failure: QuothError | None = None
        """The error that `send` raises: ``auth_failed`` until `flush` has reported it, or the one that has
        ended the stream, see `on_failure`."""
        self._options = options
        self._timing = timing
        self._record_bytes_max = max(1, options.payload_bytes_max - OVERHEAD_BYTES)
        self._batch_bytes = min(BATCH_BYTES, self._record_bytes_max)
        self._batch = min(options.batch, BATCH_RECORDS_MAX)
        self._lock = threading.RLock()
        self._changed = threading.Condition(self._lock)
        self._filling = self._new_batch(0)
        self._append: Callable[[bytes, bytes | None, Mapping[str, bytes] | None], int] = _append_nothing
        """Appends a record to the batch that is being filled, and returns the number of its records. Returns
        0, and appends nothing, where the record is one for `_attend`."""
        self._ready: deque[ProducerBatch] = deque()
        self._unsettled: dict[int, ProducerBatch] = {}
        """All batches with records that are not settled, oldest first."""
        self._promised: Future[Ack] | None = None
        """The future of the batch that takes the next record."""
        self._sealed_records = self._sealed_bytes = 0
        """Of all batches that are not settled, beside the one that is being filled."""
        self._flushed = -1
        """The number of the batch up to which no batch waits to be filled."""
        self._failures: list[Failure] = []
        self._closed = False
        self._stopping = False
        self._end: QuothError | None = None
        """The error with which the thread ends: nothing more is taken."""
        self._is_finished = False
        """True once the thread has settled everything, so that a flush can report all failures."""
        self._pid = os.getpid()
        self._inflight = Inflight(
            topic, Publish(options.durability or ""), self._settle, stops=options.on_failure == "stop"
        )
        self._link = Link(context, endpoint)
        self._wakeup = PipeWakeup()
        self._link.also_wait_for(self._wakeup.fd)
        supply = BatchSupply(self._take, self._next_at, self._began)
        self._send_loop = SendLoop(self._link, self._inflight, supply, options.timeout, timing)
        self._thread = threading.Thread(target=self._run, name=f"quoth-producer-{topic}", daemon=True)
        self._thread.start()
        _PRODUCERS.add(self)

    # -- sending and waiting ----------------------------------------------------------------------------

    def _put(
        self, value: bytes, *, key: bytes | None = None, headers: Mapping[str, bytes] | None = None
    ) -> None:
        """Append a record to the batch that is being filled.

        Waits while the buffer is full, or raises `Unavailable` ``busy``, as `on_full` says. Raises the error
        that a refused key, or a failed batch, has left. `flush` and `future` report whether it was delivered.
        """
        count = self._append(value, key, headers)
        if not 0 < count < self._batch:
            self._attend(value, key, headers, is_taken=bool(count))

    def _future(self) -> Future[Ack]:
        """Return the future of the next record that is sent, and so of its batch."""
        self._check_process()
        with self._changed:
            self._check()
            if self._promised is None:
                self._append = _append_nothing
                self._promised = Future()
                self._promised.set_running_or_notify_cancel()  # a record that is sent cannot be cancelled
            return self._promised

    def _begin_flush(self) -> int:
        """Send everything so far at once; returns the last batch's number for `_is_settled`."""
        self._check_process()
        with self._changed:
            if self._closed:
                self._check()
            return self._flush_all()

    def _end_flush(self, *, done: bool) -> None:
        """Raise the failures, and ``timed_out`` if the time was not enough."""
        with self._changed:
            self._raise_failures()
            self._check()
            if not done:
                raise error("timed_out", f"{self._records} records are still on their way")

    def _begin_close(self) -> int:
        """Take nothing more and send everything; returns the last batch's number for `_is_settled`."""
        with self._changed:
            self._closed = True
            self._append = _append_nothing
            self._notify()
            return self._flush_all()

    def _is_settled(self, number: int) -> bool:
        """Return True if all batches up to this one are settled, whatever other threads go on sending."""
        with self._changed:
            return self._is_finished or next(iter(self._unsettled), number + 1) > number

    def _end_thread(self) -> None:
        """End the thread. Batches that are not settled by now fail."""
        self._stopping = True
        self._wakeup.wake()
        self._thread.join()
        self._wakeup.close()

    def _check_process(self) -> None:
        """Refuse a forked child: it has no thread, and the lock may be held for ever there."""
        if os.getpid() != self._pid:
            raise error("closed", "a producer stays with the process that made it", "make one here")

    # -- under the lock ---------------------------------------------------------------------------------

    def _check(self) -> None:
        if self._closed:
            raise error("closed", "the producer is closed")
        if self._end is not None:
            raise self._end

    @property
    def _records(self) -> int:
        """The number of records in the buffer."""
        return self._sealed_records + len(self._filling.records)

    @property
    def _is_over(self) -> bool:
        return self._closed or self._end is not None or self.failure is not None

    def _check_sending(self) -> None:
        self._check()
        if self.failure is not None:
            raise self.failure

    def _has_room(self) -> bool:
        size = self._sealed_bytes + self._filling.records.size
        return self._records < self._options.max_buffer and size < self._options.buffer_bytes_max

    def _attend(
        self, value: bytes, key: bytes | None, headers: Mapping[str, bytes] | None, *, is_taken: bool
    ) -> None:
        """Append a record that `_append` did not take, and close a batch that is complete."""
        self._check_process()
        with self._lock:
            if not is_taken:
                if self._is_over or not self._has_room():
                    self._check_sending()
                    self._wait_for_room()
                while not appending(self._filling.records.append)(value, key, headers):
                    self._seal()
                self._open()
            if len(self._filling.records) >= self._batch:
                self._seal()

    def _open(self) -> None:
        """Let `_append` append to the batch that is being filled, which has a record."""
        filling = self._filling
        if filling.number not in self._unsettled:
            filling.began = time.monotonic()
            self._unsettled[filling.number] = filling
            self._wakeup.wake()
        if self._promised is not None:
            filling.futures.append(self._promised)
            self._promised = None
        self._limit()
        append = filling.records.append
        self._append = appending(append if RecordBuffer.is_atomic else partial(self._append_locked, append))

    def _append_locked(self, append: Callable[..., int], *record: object) -> int:
        with self._lock:
            return append(*record)

    def _limit(self) -> None:
        """Limit the batch that is being filled to the room in the buffer."""
        records, options = self._filling.records, self._options
        records.records_max = min(self._batch, max(1, options.max_buffer - self._sealed_records))
        records.bytes_max = min(self._batch_bytes, max(1, options.buffer_bytes_max - self._sealed_bytes))

    def _wait_for_room(self) -> None:
        raise self._busy("wait in the producer")

    def _busy(self, state: str) -> QuothError:
        return error("busy", f"{self._records} records {state}; this one was not taken")

    def _notify(self) -> None:
        self._changed.notify_all()

    def _flush_all(self) -> int:
        self._flushed = self._filling.number
        self._wakeup.wake()
        return self._flushed

    def _seal(self) -> None:
        """Close the batch that is being filled and begin another one."""
        full = self._filling
        full.records.seal()
        self._append = _append_nothing
        self._sealed_records += len(full.records)
        self._sealed_bytes += full.records.size
        self._ready.append(full)
        self._filling = self._new_batch(full.number + 1)
        self._wakeup.wake()

    def _new_batch(self, number: int) -> ProducerBatch:
        return ProducerBatch(number, RecordBuffer(self._batch_bytes, self._record_bytes_max))

    def _raise_failures(self) -> None:
        failures, self._failures = self._failures, []
        self.failure = self._inflight.ended
        if failures:
            raise ProducerError(failures)

    def _take(self, now: float, may_send: Callable[[ProducerBatch], bool]) -> ProducerBatch | None:
        """See `BatchSupply`."""
        with self._changed:
            filling = self._filling
            due = filling.number <= self._flushed or now - filling.began >= self._options.linger
            if len(filling.records) and due and not self._ready:
                self._seal()
            if not self._ready or not may_send(self._ready[0]):
                return None
            return self._ready.popleft()

    def _next_at(self) -> float:
        """See `BatchSupply`."""
        filling = self._filling
        if self._ready:
            return 0.0
        return filling.began + self._options.linger if len(filling.records) else math.inf

    def _began(self) -> float:
        """See `BatchSupply`."""
        waiting = self._ready[0] if self._ready else self._filling
        return waiting.began if len(waiting.records) else math.inf

    # -- the thread -------------------------------------------------------------------------------------

    def _run(self) -> None:
        try:
            while not self._stopping:
                self._send_loop.turn()
                self._wakeup.clear()
            problem = error("closed", "the producer was closed before it was delivered")
        except zmq.ContextTerminated:
            problem = error("closed", "the client or the broker in this process was closed")
        except BaseException as defect:
            problem = error("internal", f"the producer's thread ended: {defect!r}", "please report this")
        finally:
            self._link.close()
        self._finish(problem)

    def _settle(self, done: ProducerBatch, outcome: Ack | Failure) -> None:
        """Note the outcome of a batch. A flush returns only once the futures are done."""
        with self._changed:
            self._sealed_records -= len(done.records)
            self._sealed_bytes -= done.records.size
            self._limit()
            if isinstance(outcome, Ack):
                self.acknowledged += outcome.count
                self.last = max(self.last, outcome.last)
            else:
                self._failures.append(outcome)
                ended = self._inflight.ended
                if ended is not None or outcome.error.code == "auth_failed":
                    self.failure, self._append = ended or outcome.error, _append_nothing
            self._notify()
        done.complete(outcome)
        with self._changed:
            del self._unsettled[done.number]
            self._notify()

    def _finish(self, problem: QuothError) -> None:
        """Fail everything as the thread ends: batches in flight may have arrived, the others never will."""
        with self._changed:
            self._end = problem
            if len(self._filling.records):
                self._seal()
        try:
            self._inflight.give_up(problem)
            for outgoing in list(self._unsettled.values()):
                self._settle(outgoing, outgoing.failure("refused", problem))
            if self._promised is not None:
                self._promised.set_exception(problem)
        finally:
            with self._changed:
                self._is_finished = True
                self._notify()


_PRODUCERS: WeakSet[ProducerCore] = WeakSet()


def _append_nothing(_value: bytes, _key: bytes | None, _headers: Mapping[str, bytes] | None) -> int:
    return 0


def _leave_parent() -> None:
    """Let the producers of a parent process append nothing here."""
    for one in list(_PRODUCERS):
        one._append = _append_nothing


os.register_at_fork(after_in_child=_leave_parent)


class Producer(ProducerCore):
    """A stream of records to one topic, made by `Client.producer`.

    Any thread may call `send`; records of one thread keep their order. Closing it, or leaving the `with`
    block, delivers everything and raises `ProducerError` with the batches that could not be delivered. A
    `KeyboardInterrupt` or another end of the program leaves the block after a second, whatever is in flight.
    """

    send = ProducerCore._put
    future = ProducerCore._future

    def flush(self, timeout: float | None = None) -> None:
        """Wait until everything that was sent before is stored.

        Raises `ProducerError` with the batches that could not be delivered, each once; `Disconnected`
        ``timed_out`` after `timeout` seconds, in which case the rest is still in flight.
        """
        seconds = None if timeout is None else as_seconds(timeout)
        self._end_flush(done=self._wait_until_settled(self._begin_flush(), seconds))

    def close(self, timeout: float | None = None) -> None:
        """Take nothing more, flush, and end the thread. Does nothing the second time.

        Raises `ProducerError` with the batches that could not be delivered, or not within `timeout` seconds.
        """
        seconds = None if timeout is None else as_seconds(timeout)
        if os.getpid() != self._pid:
            return
        with self._changed:
            if self._closed:
                return
            number = self._begin_close()
        try:
            self._wait_until_settled(number, seconds)
        finally:
            self._end_thread()
        with self._changed:
            self._raise_failures()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is None or issubclass(kind, Exception):
            self.close()
            return
        with suppress(ProducerError):
            self.close(self._timing.interrupted)

    def _wait_until_settled(self, number: int, seconds: float | None) -> bool:
        with self._changed:
            return self._changed.wait_for(lambda: self._is_settled(number), seconds)

    def _wait_for_room(self) -> None:
        if self._options.on_full == "raise":
            super()._wait_for_room()
        room = self._changed.wait_for(lambda: self._is_over or self._has_room(), self._options.timeout)
        self._check_sending()
        if not room:
            raise self._busy("wait and wait")
