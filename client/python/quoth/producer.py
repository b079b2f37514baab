"""The producer: collects records into batches and keeps several in flight, in order, each stored once.

`send` only appends to the batch that is being filled. A thread of the producer closes it when it is full or
old enough, and puts it in flight. `ProducerCore` is all of that; `Producer` waits by blocking its thread, and
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
from typing import Self

import zmq

from quoth.connection.connection import Context, Link, PipeWakeup
from quoth.connection.send_loop import BatchSupply, SendLoop
from quoth.core.inflight import Inflight
from quoth.core.options import BUFFER_MAX as BUFFER_MAX
from quoth.core.options import Timing, as_seconds
from quoth.core.outgoing import (
    BATCH_BYTES,
    OVERHEAD_BYTES,
    RECORD_BYTES,
    Failure,
    ProducerBatch,
    ProducerError,
)
from quoth.core.streams import ProducerOptions
from quoth.message import Ack
from quothwire.errors import QuothError, error
from quothwire.headers import encode_headers
from quothwire.protocol.messages import Publish


class ProducerCore:
    """A producer without its ways of waiting. Any thread may call its methods.

    `_notify` is called, under the lock, by each thread that has changed what another one may wait for.
    """

    def __init__(self, context: Context, url: str, options: ProducerOptions, timing: Timing) -> None:
        self.topic = topic = options.topic
        self.acknowledged = 0
        """The number of records that are stored."""
        self.last = 0
        """The newest pointer of a stored record."""
        self._options = options
        self._timing = timing
        self._batch_bytes = min(BATCH_BYTES, options.payload_bytes_max - OVERHEAD_BYTES)
        self._record_bytes_max = options.payload_bytes_max - OVERHEAD_BYTES
        self._batch = options.batch
        self._lock = threading.RLock()
        self._changed = threading.Condition(self._lock)
        self._filling = ProducerBatch(0)
        self._ready: deque[ProducerBatch] = deque()
        self._unsettled: dict[int, ProducerBatch] = {}
        """All batches with records that are not settled, oldest first."""
        self._promised: Future[Ack] | None = None
        """The future of the batch that takes the next record."""
        self._buffered = self._buffered_bytes = 0
        self._flushed = -1
        """The number of the batch up to which no batch waits to be filled."""
        self._failures: list[Failure] = []
        self._closed = False
        self._stopping = False
        self._end: QuothError | None = None
        """The error with which the thread has ended."""
        self._pid = os.getpid()
        self._inflight = Inflight(topic, Publish(options.durability or ""), self._settle)
        self._link = Link(context, url)
        self._wakeup = PipeWakeup()
        self._link.also_wait_for(self._wakeup.fd)
        supply = BatchSupply(self._take, self._next_at, self._began)
        self._send_loop = SendLoop(self._link, self._inflight, supply, options.timeout, timing)
        self._thread = threading.Thread(target=self._run, name=f"quoth-producer-{topic}", daemon=True)
        self._thread.start()

    # -- sending and waiting ----------------------------------------------------------------------------

    def _put(
        self, value: bytes, *, key: bytes | None = None, headers: Mapping[str, bytes] | None = None
    ) -> None:
        """Append a record to the batch that is being filled.

        Waits while the buffer is full, or raises `Unavailable` ``busy``, as `on_full` says. `flush` and
        `future` report whether it was delivered.
        """
        if not isinstance(value, bytes):
            raise error("bad_request", f"a value is bytes, not {type(value).__name__}", "encode it")
        if key is not None and not isinstance(key, bytes):
            raise error("bad_request", f"a key is bytes or None, not {type(key).__name__}", "encode it")
        encoded = b"" if headers is None else encode_headers(headers)
        size = RECORD_BYTES + len(value) + len(key or b"") + len(encoded)
        if size > self._record_bytes_max:
            raise error("too_large", f"a record of {size} bytes")
        self._check_process()
        with self._lock:
            if self._closed or self._end is not None or not self._has_room():
                self._check()
                self._wait_for_room()
            filling = self._filling
            if filling.size + size > self._batch_bytes and filling.values:
                filling = self._seal()
            if not filling.values:
                filling.began = time.monotonic()
                self._unsettled[filling.number] = filling
                self._wakeup.wake()
            filling.add(value, key, encoded, size)
            if self._promised is not None:
                filling.futures.append(self._promised)
                self._promised = None
            self._buffered += 1
            self._buffered_bytes += size
            if len(filling.values) >= self._batch:
                self._seal()

    def _future(self) -> Future[Ack]:
        """Return the future of the next record that is sent, and so of its batch."""
        self._check_process()
        with self._changed:
            self._check()
            if self._promised is None:
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
                raise error("timed_out", f"{self._buffered} records are still on their way")

    def _begin_close(self) -> int:
        """Take nothing more and send everything; returns the last batch's number for `_is_settled`."""
        with self._changed:
            self._closed = True
            self._notify()
            return self._flush_all()

    def _is_settled(self, number: int) -> bool:
        """Return True if all batches up to this one are settled, whatever other threads go on sending."""
        with self._changed:
            return self._end is not None or next(iter(self._unsettled), number + 1) > number

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

    def _has_room(self) -> bool:
        options = self._options
        return self._buffered < options.max_buffer and self._buffered_bytes < options.buffer_bytes_max

    def _wait_for_room(self) -> None:
        raise self._busy("wait in the producer")

    def _busy(self, state: str) -> QuothError:
        return error("busy", f"{self._buffered} records {state}; this one was not taken")

    def _notify(self) -> None:
        self._changed.notify_all()

    def _flush_all(self) -> int:
        self._flushed = self._filling.number
        self._wakeup.wake()
        return self._flushed

    def _seal(self) -> ProducerBatch:
        """Close the batch that is being filled and begin another one."""
        self._ready.append(self._filling)
        self._filling = ProducerBatch(self._filling.number + 1)
        self._wakeup.wake()
        return self._filling

    def _raise_failures(self) -> None:
        failures, self._failures = self._failures, []
        if failures:
            raise ProducerError(failures)

    def _take(self, now: float, may_send: Callable[[ProducerBatch], bool]) -> ProducerBatch | None:
        """See `BatchSupply`."""
        with self._changed:
            filling = self._filling
            due = filling.number <= self._flushed or now - filling.began >= self._options.linger
            if filling.values and due and not self._ready:
                self._seal()
            if not self._ready or not may_send(self._ready[0]):
                return None
            return self._ready.popleft()

    def _next_at(self) -> float:
        """See `BatchSupply`."""
        filling = self._filling
        if self._ready:
            return 0.0
        return filling.began + self._options.linger if filling.values else math.inf

    def _began(self) -> float:
        """See `BatchSupply`."""
        waiting = self._ready[0] if self._ready else self._filling
        return waiting.began if waiting.values else math.inf

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
            self._buffered -= len(done.values)
            self._buffered_bytes -= done.size
            if isinstance(outcome, Ack):
                self.acknowledged += outcome.count
                self.last = max(self.last, outcome.last)
            else:
                self._failures.append(outcome)
            self._notify()
        done.complete(outcome)
        with self._changed:
            del self._unsettled[done.number]
            self._notify()

    def _finish(self, problem: QuothError) -> None:
        """Fail everything as the thread ends: batches in flight may have arrived, the others never will."""
        self._inflight.give_up(problem)
        with self._changed:
            self._end = problem
            left, promised = list(self._unsettled.values()), self._promised
        for outgoing in left:
            self._settle(outgoing, outgoing.failure("refused", problem))
        if promised is not None:
            promised.set_exception(problem)
        with self._changed:
            self._notify()


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
        room = self._changed.wait_for(
            lambda: self._has_room() or self._end or self._closed, self._options.timeout
        )
        self._check()
        if not room:
            raise self._busy("wait and wait")
