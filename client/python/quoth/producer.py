"""The producer: gathers records into batches and keeps several on their way, in order, each stored once.

`send` only appends to the batch that is being filled. One thread of the producer's own seals it when it is
full or old enough, and hands it to the `Inflight`, which tells what to send and what has become of it. How
one waits for room and for an end is another matter: `Producer` blocks its thread, `quoth.aio` does not.

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
from types import TracebackType
from typing import Literal, NamedTuple, Self

import zmq

from quoth.connection.connection import Context, Link
from quoth.connection.send_loop import BatchSupply, SendLoop
from quoth.connection.wakeup import PipeWakeup
from quoth.core.deadline import as_seconds
from quoth.core.defaults import BUFFER_MAX as BUFFER_MAX
from quoth.core.inflight import Inflight
from quoth.core.outgoing import RECORD_BYTES, Failure, ProducerBatch, ProducerError
from quoth.message import Ack
from quothwire import batch as wire
from quothwire.errors import QuothError, error
from quothwire.headers import encode_headers
from quothwire.protocol.messages import Publish
from quothwire.settings import DURABILITIES

BUFFER_BYTES_MAX = 64 * 2**20
"""Bytes of those: twice what can be in flight. The record that reaches it is still taken, however large."""
BATCH_BYTES = 2**20
"""A batch leaves when it holds this much, whatever its number of records."""
OVERHEAD_BYTES = 128
"""What a batch takes beside its records: its header, the last offsets, padding."""
INTERRUPTED_S = 1.0
"""How long whoever ends the program, by Ctrl-C say, is kept for what is still on its way."""


class ProducerOptions(NamedTuple):
    """See `Client.producer`. payload_bytes_max: the largest batch that the broker takes."""

    batch: int
    linger: float
    max_buffer: int
    on_full: Literal["block", "raise"]
    durability: Literal["written", "synced"] | None
    timeout: float
    payload_bytes_max: int

    def checked(self) -> ProducerOptions:
        """Those to go by. Raises `RequestError` ``bad_request`` if they make no sense."""
        if not isinstance(self.batch, int) or not 1 <= self.batch <= wire.BATCH_RECORDS_MAX:
            raise error("bad_request", f"batch is 1 to {wire.BATCH_RECORDS_MAX} records, not {self.batch!r}")
        if not isinstance(self.max_buffer, int):
            raise error("bad_request", f"max_buffer is a number of records, not {self.max_buffer!r}")
        if self.on_full not in ("block", "raise"):
            raise error("bad_request", f"on_full is block or raise, not {self.on_full!r}")
        if self.durability is not None and self.durability not in DURABILITIES:
            raise error("bad_request", f"durability is {' or '.join(DURABILITIES)}, not {self.durability!r}")
        return self._replace(
            linger=as_seconds(self.linger, "linger"),
            max_buffer=max(self.max_buffer, self.batch),
            timeout=as_seconds(self.timeout),
        )


class ProducerCore:
    """A stream of records to one topic, with everything but how one waits for it.

    Any thread may call its methods. `_notify` is called, under the lock, by whichever thread has changed
    something that somebody may wait for.
    """

    def __init__(self, context: Context, url: str, topic: str, options: ProducerOptions) -> None:
        options = options.checked()
        self.topic = topic
        self.acknowledged = 0
        """Records that are stored."""
        self.last = 0
        """The newest pointer of those."""
        self._options = options
        self._batch_bytes = min(BATCH_BYTES, options.payload_bytes_max - OVERHEAD_BYTES)
        self._record_bytes_max = options.payload_bytes_max - OVERHEAD_BYTES
        self._batch = options.batch
        self._lock = threading.RLock()
        self._changed = threading.Condition(self._lock)
        self._filling = ProducerBatch(0)
        self._ready: deque[ProducerBatch] = deque()
        self._unsettled: dict[int, ProducerBatch] = {}
        """Everything with records in it that is not settled, oldest first."""
        self._promised: Future[Ack] | None = None
        """For the batch that takes the next record."""
        self._buffered = self._buffered_bytes = 0
        self._flushed = -1
        """The number of the batch up to which nothing lingers."""
        self._failures: list[Failure] = []
        self._closed = False
        self._stopping = False
        self._end: QuothError | None = None
        """Why the thread has ended."""
        self._pid = os.getpid()
        self._pipeline = Inflight(topic, Publish(options.durability or ""), self._settle)
        self._link = Link(context, url)
        self._bell = PipeWakeup()
        self._link.also(self._bell.fd)
        supply = BatchSupply(self._take, self._leaves_at, self._began)
        self._delivery = SendLoop(self._link, self._pipeline, supply, options.timeout)
        self._thread = threading.Thread(target=self._run, name=f"quoth-producer-{topic}", daemon=True)
        self._thread.start()

    # -- for whoever sends and waits --------------------------------------------------------------------

    def _put(
        self, value: bytes, *, key: bytes | None = None, headers: Mapping[str, bytes] | None = None
    ) -> None:
        """Put a record into the batch that is being filled.

        Waits while the buffer is full, or raises `Unavailable` ``busy``, as `on_full` says. What became of
        it is told by `flush`, or by `future`.
        """
        if not isinstance(value, bytes):
            raise error("bad_request", f"a value is bytes, not {type(value).__name__}", "encode it")
        if key is not None and not isinstance(key, bytes):
            raise error("bad_request", f"a key is bytes or None, not {type(key).__name__}", "encode it")
        encoded = b"" if headers is None else encode_headers(headers)
        size = RECORD_BYTES + len(value) + len(key or b"") + len(encoded)
        if size > self._record_bytes_max:
            raise error("too_large", f"a record of {size} bytes")
        self._stay_at_home()
        with self._lock:
            if self._closed or self._end is not None or not self._has_room():
                self._need_room()
            filling = self._filling
            if filling.size + size > self._batch_bytes and filling.values:
                filling = self._seal()
            if not filling.values:
                filling.began = time.monotonic()
                self._unsettled[filling.number] = filling
                self._bell.ring()
            filling.add(value, key, encoded, size)
            if self._promised is not None:
                filling.futures.append(self._promised)
                self._promised = None
            self._buffered += 1
            self._buffered_bytes += size
            if len(filling.values) >= self._batch:
                self._seal()

    def _future(self) -> Future[Ack]:
        """What will become of the next record that is sent, and of the batch that it will be in."""
        self._stay_at_home()
        with self._changed:
            self._check()
            if self._promised is None:
                self._promised = Future()
                self._promised.set_running_or_notify_cancel()  # what is sent cannot be cancelled
            return self._promised

    def _begin_flush(self) -> int:
        """Let everything leave that was sent so far; returns up to where that is. See `_is_settled`."""
        self._stay_at_home()
        with self._changed:
            if self._closed:
                self._check()
            return self._let_leave()

    def _end_flush(self, *, done: bool) -> None:
        """Tell what could not be delivered, and whether there was time for all of it."""
        with self._changed:
            self._tell_failures()
            self._check()
            if not done:
                raise error("timed_out", f"{self._buffered} records are still on their way")

    def _begin_close(self) -> int:
        """Take nothing more, let everything leave; returns up to where that is. See `_is_settled`."""
        with self._changed:
            self._closed = True
            self._notify()
            return self._let_leave()

    def _is_settled(self, number: int) -> bool:
        """Is everything decided up to there, whatever other threads go on sending?"""
        with self._changed:
            return self._end is not None or next(iter(self._unsettled), number + 1) > number

    def _end_thread(self) -> None:
        """End the thread; what is not decided by now has failed."""
        self._stopping = True
        self._bell.ring()
        self._thread.join()
        self._bell.close()

    def _stay_at_home(self) -> None:
        """Before any lock is taken: in a forked child it may be held for ever, and the thread is missing."""
        if os.getpid() != self._pid:
            raise error("closed", "a producer stays with the process that made it", "make one here")

    # -- under the lock ---------------------------------------------------------------------------------

    def _check(self) -> None:
        if self._closed:
            raise error("closed", "the producer is closed")
        if self._end is not None:
            raise self._end

    def _has_room(self) -> bool:
        return self._buffered < self._options.max_buffer and self._buffered_bytes < BUFFER_BYTES_MAX

    def _need_room(self) -> None:
        self._check()
        if not self._has_room():
            self._wait_for_room()

    def _wait_for_room(self) -> None:
        raise self._busy("wait in the producer")

    def _busy(self, what_they_do: str) -> QuothError:
        return error("busy", f"{self._buffered} records {what_they_do}; this one was not taken")

    def _notify(self) -> None:
        self._changed.notify_all()

    def _let_leave(self) -> int:
        self._flushed = self._filling.number
        self._bell.ring()
        return self._flushed

    def _seal(self) -> ProducerBatch:
        """Close the batch that is being filled and begin another."""
        self._ready.append(self._filling)
        self._filling = ProducerBatch(self._filling.number + 1)
        self._bell.ring()
        return self._filling

    def _tell_failures(self) -> None:
        failures, self._failures = self._failures, []
        if failures:
            raise ProducerError(failures)

    def _take(self, now: float, may_leave: Callable[[ProducerBatch], bool]) -> ProducerBatch | None:
        """See `BatchSupply`."""
        with self._changed:
            filling = self._filling
            due = filling.number <= self._flushed or now - filling.began >= self._options.linger
            if filling.values and due and not self._ready:
                self._seal()
            if not self._ready or not may_leave(self._ready[0]):
                return None
            return self._ready.popleft()

    def _leaves_at(self) -> float:
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
                self._delivery.turn()
                self._bell.hush()
            problem = error("closed", "the producer was closed before it was delivered")
        except zmq.ContextTerminated:
            problem = error("closed", "the client or the broker in this process was closed")
        except BaseException as defect:
            problem = error("internal", f"the producer's thread ended: {defect!r}", "please report this")
        finally:
            self._link.close()
        self._finish(problem)

    def _settle(self, done: ProducerBatch, outcome: Ack | Failure) -> None:
        """A batch is stored, or never will be. Whoever flushed goes on when its futures are done."""
        with self._changed:
            self._buffered -= len(done.values)
            self._buffered_bytes -= done.size
            if isinstance(outcome, Ack):
                self.acknowledged += outcome.count
                self.last = max(self.last, outcome.last)
            else:
                self._failures.append(outcome)
            self._notify()
        done.tell(outcome)
        with self._changed:
            del self._unsettled[done.number]
            self._notify()

    def _finish(self, problem: QuothError) -> None:
        """The thread ends: whatever was sent may have arrived, the rest never will."""
        self._pipeline.give_up(problem)
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

    `send` may be called by any thread; records of one thread keep their order. Closeable, or leaving the
    `with` block, delivers everything and raises `ProducerError` with what could not be delivered. Only a
    `KeyboardInterrupt` or another end of the program leaves the block after a second, whatever is left.
    """

    send = ProducerCore._put
    future = ProducerCore._future

    def flush(self, timeout: float | None = None) -> None:
        """Return when everything that was sent before is stored.

        Raises `ProducerError` with what could not be delivered, which is told once; `Disconnected`
        ``timed_out`` if it is not decided within `timeout` seconds, in which case it is still on its way.
        """
        patience = None if timeout is None else as_seconds(timeout)
        self._end_flush(done=self._wait_until_settled(self._begin_flush(), patience))

    def close(self, timeout: float | None = None) -> None:
        """Take nothing more, flush, and end the thread. Does nothing the second time.

        Raises `ProducerError` with what could not be delivered, also with what was not decided within
        `timeout` seconds.
        """
        patience = None if timeout is None else as_seconds(timeout)
        if os.getpid() != self._pid:
            return
        with self._changed:
            if self._closed:
                return
            number = self._begin_close()
        try:
            self._wait_until_settled(number, patience)
        finally:
            self._end_thread()
        with self._changed:
            self._tell_failures()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None or issubclass(kind, Exception):
            self.close()
            return
        with suppress(ProducerError):
            self.close(INTERRUPTED_S)

    def _wait_until_settled(self, number: int, patience: float | None) -> bool:
        with self._changed:
            return self._changed.wait_for(lambda: self._is_settled(number), patience)

    def _wait_for_room(self) -> None:
        if self._options.on_full == "raise":
            super()._wait_for_room()
        room = self._changed.wait_for(
            lambda: self._has_room() or self._end or self._closed, self._options.timeout
        )
        self._check()
        if not room:
            raise self._busy("wait and wait")
