"""The producer: gathers records into batches and keeps several on their way, in order, each stored once.

`send` only appends to the batch that is being filled. One thread of the producer's own seals it when it is
full or old enough, gives it the next sequence, sends it, and waits for acknowledgements. The broker takes
sequences without a hole only, so whatever is lost, refused or overtaken is sent again in order:

    waiting --sealed--> ready --sent--> in flight --acknowledged--> done
                                           |  ^
                             refused for   |  | everything in flight again, in order,
                             now, or lost  +--+ under the same sequences
                                           |
                             refused for good: it failed; the later ones move up by one sequence
"""

from __future__ import annotations

import secrets
import threading
import time
from collections import deque
from collections.abc import Mapping
from concurrent.futures import Future
from dataclasses import dataclass, field
from types import TracebackType
from typing import Literal, Self

import zmq

from quoth.bell import Bell
from quoth.channel import BACKOFF_MAX_S, BACKOFF_S, RESEND_S, Context, Link, new_producer_id
from quoth.message import Ack
from quothwire import batch as wire
from quothwire import codec
from quothwire.errors import QuothError, error
from quothwire.message import Publish, Published

BUFFER_MAX = 100_000
"""Records that wait or are in flight: 20 MB of 100-byte records, a second of a busy producer."""
IN_FLIGHT_MAX = 32
"""Half of the results that a broker remembers for one producer, so that every retry is recognised."""
BATCH_BYTES = 2**20
"""A batch leaves when it holds this much, whatever its number of records."""
PASSING = frozenset(("busy", "recovering", "stopping", "out_of_sequence", "disk_low"))
"""Refusals that pass by themselves: nothing was stored, the same batch is sent again."""


@dataclass(frozen=True)
class Failure:
    """A batch that was not delivered.

    outcome: ``refused``, it is certain that nothing of it was stored; ``unknown``, it may have been.
    """

    values: list[bytes]
    keys: list[bytes | None]
    headers: list[bytes]
    outcome: Literal["refused", "unknown"]
    error: QuothError


class ProducerError(QuothError):
    """Some batches were not delivered. `failures` holds exactly those, in the order they were sent."""

    def __init__(self, failures: list[Failure]) -> None:
        first = failures[0].error
        records = sum(len(one.values) for one in failures)
        super().__init__(first.code, f"{records} records were not delivered: {first.text}", first.hint)
        self.failures = failures


@dataclass(eq=False)
class _Outgoing:
    """A batch on its way."""

    values: list[bytes] = field(default_factory=list)
    keys: list[bytes | None] = field(default_factory=list)
    headers: list[bytes] = field(default_factory=list)
    size: int = 0
    future: Future[Ack] | None = None
    began: float = 0.0
    sequence: int = 0
    payload: bytes = b""

    def encode(self, producer: int, sequence: int) -> None:
        """Make the bytes to send; a retry sends the same ones."""
        self.sequence = sequence
        self.payload = wire.encode(
            self.values,
            self.keys if any(key is not None for key in self.keys) else None,
            self.headers if any(self.headers) else None,
            producer=producer,
            sequence=sequence,
        )


class Producer:
    """A stream of records to one topic, made by `Client.producer`.

    `send` may be called by any thread; records of one thread keep their order. Closing, or leaving the
    `with` block, delivers everything and raises `ProducerError` with what could not be delivered.
    """

    def __init__(
        self,
        context: Context,
        url: str,
        topic: str,
        batch: int,
        linger: float,
        max_buffer: int,
        on_full: str,
        durability: str | None,
        timeout: float,
    ) -> None:
        if not 1 <= batch <= wire.BATCH_RECORDS_MAX:
            raise error("bad_request", f"batch is 1 to {wire.BATCH_RECORDS_MAX} records, not {batch}")
        if on_full not in ("block", "raise"):
            raise error("bad_request", f"on_full is block or raise, not {on_full!r}")
        self.topic = topic
        self.acknowledged = 0
        """Records that are stored."""
        self._url = url
        self._batch = batch
        self._linger = linger
        self._max_buffer = max(max_buffer, batch)
        self._on_full = on_full
        self._timeout = timeout
        self._request = Publish(durability or "")
        self._changed = threading.Condition()
        self._filling = _Outgoing()
        self._ready: deque[_Outgoing] = deque()
        self._in_flight: deque[_Outgoing] = deque()
        self._buffered = 0
        self._failures: list[Failure] = []
        self._hurry = False
        self._closing = False
        self._crash: BaseException | None = None
        self._bell = Bell()
        self._link = Link(context, url)
        self._link.also(self._bell.fd)
        self._producer = new_producer_id()
        self._sequence = 0
        self._again_at = 0.0
        self._heard_at = time.monotonic()
        self._backoff = BACKOFF_S
        self._correlation = secrets.randbits(16) << 32
        self._thread = threading.Thread(target=self._run, name=f"quoth-producer-{topic}", daemon=True)
        self._thread.start()

    # -- for the application ----------------------------------------------------------------------------

    def send(
        self, value: bytes, *, key: bytes | None = None, headers: Mapping[str, bytes] | None = None
    ) -> None:
        """Put a record into the batch that is being filled.

        Waits while the buffer is full, or raises `Unavailable` ``busy``, as `on_full` says. What became of
        it is told by `flush`, or by `future`.
        """
        if not isinstance(value, bytes):
            raise error("bad_request", f"a value is bytes, not {type(value).__name__}", "encode it")
        size = len(value) + len(key or b"")
        encoded = wire.encode_headers(headers) if headers else b""
        if size + len(encoded) > wire.BATCH_BYTES_MAX - 256:
            raise error("too_large", f"a record of {size} bytes")
        with self._changed:
            self._need_room()
            filling = self._filling
            if filling.values and filling.size + size > BATCH_BYTES:
                filling = self._seal()
            if not filling.values:
                filling.began = time.monotonic()
                self._bell.ring()
            filling.values.append(value)
            filling.keys.append(key)
            filling.headers.append(encoded)
            filling.size += size + len(encoded)
            self._buffered += 1
            if len(filling.values) >= self._batch:
                self._seal()

    def future(self) -> Future[Ack]:
        """What will become of the batch that is being filled; the next record that is sent is in it."""
        with self._changed:
            self._check()
            if self._filling.future is None:
                self._filling.future = Future()
            return self._filling.future

    def flush(self, timeout: float | None = None) -> None:
        """Return when everything that was sent is stored.

        Raises `ProducerError` with what could not be delivered, which is told once; `Disconnected`
        ``timed_out`` if it is not decided within `timeout` seconds, in which case it is still on its way.
        """
        with self._changed:
            self._check()
            self._hurry = True
            self._bell.ring()
            done = self._changed.wait_for(lambda: not self._buffered or self._crash, timeout)
            self._hurry = False
            self._check()
            failures, self._failures = self._failures, []
        if failures:
            raise ProducerError(failures)
        if not done:
            raise error("timed_out", f"{self._buffered} records are still on their way")

    def close(self, timeout: float | None = None) -> None:
        """Flush and end the thread. Does nothing the second time."""
        if self._closing:
            return
        try:
            self.flush(timeout)
        finally:
            with self._changed:
                self._closing = True
                self._bell.ring()
                self._changed.notify_all()
            self._thread.join()
            self._bell.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    # -- under the lock ---------------------------------------------------------------------------------

    def _check(self) -> None:
        if self._crash is not None:
            raise error("closed", f"the producer's thread ended: {self._crash!r}") from self._crash
        if self._closing:
            raise error("closed", "the producer is closed")

    def _need_room(self) -> None:
        self._check()
        if self._buffered < self._max_buffer:
            return
        if self._on_full == "raise":
            raise error("busy", f"{self._buffered} records wait in the producer")
        room = self._changed.wait_for(
            lambda: self._buffered < self._max_buffer or self._crash or self._closing, self._timeout
        )
        self._check()
        if not room:
            raise error("timed_out", f"{self._buffered} records wait in the producer; this one was not taken")

    def _seal(self) -> _Outgoing:
        """Close the batch that is being filled and begin another."""
        self._ready.append(self._filling)
        self._filling = _Outgoing()
        self._bell.ring()
        return self._filling

    def _next_ready(self, now: float) -> _Outgoing | None:
        with self._changed:
            filling = self._filling
            due = self._hurry or self._closing or now - filling.began >= self._linger
            if filling.values and due and not self._ready:
                self._seal()
            return self._ready.popleft() if self._ready else None

    def _settle(self, done: _Outgoing, outcome: Ack | Failure) -> None:
        """A batch is stored, or never will be."""
        with self._changed:
            self._buffered -= len(done.values)
            if isinstance(outcome, Ack):
                self.acknowledged += outcome.count
            else:
                self._failures.append(outcome)
            self._changed.notify_all()
        if done.future is not None:
            if isinstance(outcome, Ack):
                done.future.set_result(outcome)
            else:
                done.future.set_exception(outcome.error)

    # -- the thread -------------------------------------------------------------------------------------

    def _run(self) -> None:
        try:
            while not self._closing:
                now = time.monotonic()
                self._fill_window(now)
                if self._link.wait(self._pause(now)):
                    self._again_at = time.monotonic()
                self._bell.hush()
                self._take_answers()
                self._look_at_clock(time.monotonic())
        except zmq.ContextTerminated:
            self._end(error("closed", "the client or the broker in this process was closed"))
        except BaseException as problem:
            self._end(problem)
        finally:
            self._link.close()

    def _end(self, problem: BaseException) -> None:
        with self._changed:
            if not self._closing:
                self._crash = problem
            self._changed.notify_all()

    def _pause(self, now: float) -> float:
        """How long there is nothing to do unless something comes."""
        moments = [now + 1.0]
        if self._again_at:
            moments.append(self._again_at)
        elif len(self._in_flight) < IN_FLIGHT_MAX:
            if self._ready:
                return 0.0
            if self._filling.values:
                moments.append(self._filling.began + self._linger)
        return min(moments) - now

    def _fill_window(self, now: float) -> None:
        while not self._again_at and len(self._in_flight) < IN_FLIGHT_MAX:
            outgoing = self._next_ready(now)
            if outgoing is None:
                return
            try:
                outgoing.encode(self._producer, self._sequence + 1)
            except QuothError as problem:
                self._settle(outgoing, _failure(outgoing, "refused", problem))
                continue
            self._sequence += 1
            self._in_flight.append(outgoing)
            self._send(outgoing)

    def _send(self, outgoing: _Outgoing) -> None:
        frames = codec.encode_request(
            self._request, self._correlation + outgoing.sequence, self.topic, outgoing.payload
        )
        try:
            self._link.send(frames)
        except zmq.Again:
            self._again_at = time.monotonic() + self._backoff

    def _take_answers(self) -> None:
        while (answer := self._link.receive()) is not None:
            self._heard_at = time.monotonic()
            sequence = answer.correlation - self._correlation
            outgoing = next((one for one in self._in_flight if one.sequence == sequence), None)
            if outgoing is None:
                continue
            reply = answer.reply
            if isinstance(reply, Published):
                self._in_flight.remove(outgoing)
                self._backoff = BACKOFF_S
                ack = Ack(reply.first, reply.last, reply.count, reply.durability, reply.duplicate)
                self._settle(outgoing, ack)
            elif isinstance(reply, QuothError):
                self._refused(outgoing, reply)

    def _refused(self, outgoing: _Outgoing, problem: QuothError) -> None:
        if problem.code in PASSING:
            if not self._again_at:
                self._again_at = time.monotonic() + self._backoff
                self._backoff = min(2 * self._backoff, BACKOFF_MAX_S)
        elif outgoing is not self._in_flight[0]:
            # Earlier ones are not decided yet; it will be refused again when it is its turn.
            self._again_at = self._again_at or time.monotonic() + self._backoff
        elif problem.code == "unknown_producer" and outgoing.sequence > 1:
            self._begin_anew()
        else:
            self._in_flight.popleft()
            self._settle(outgoing, _failure(outgoing, "refused", problem))
            self._begin_anew()

    def _begin_anew(self) -> None:
        """Give everything in flight, none of which is stored, new sequences of a new producer id."""
        self._producer = new_producer_id()
        self._correlation += 2**32
        self._sequence = 0
        for outgoing in self._in_flight:
            self._sequence += 1
            outgoing.encode(self._producer, self._sequence)
        self._again_at = time.monotonic()

    def _look_at_clock(self, now: float) -> None:
        if not self._in_flight:
            self._again_at = 0.0
            self._heard_at = now
            return
        if now - self._heard_at > RESEND_S:
            self._again_at = self._heard_at = now
        if now - self._in_flight[0].began > self._timeout:
            self._give_up()
        elif self._again_at and now >= self._again_at:
            self._again_at = 0.0
            for outgoing in self._in_flight:
                self._send(outgoing)

    def _give_up(self) -> None:
        """The oldest one is too old. Later ones may be stored or not, so all of them are unknown."""
        problem = self._link.nobody(f"producer {self.topic}")
        given_up = list(self._in_flight)
        self._in_flight.clear()
        self._begin_anew()
        for outgoing in given_up:
            self._settle(outgoing, _failure(outgoing, "unknown", problem))


def _failure(outgoing: _Outgoing, outcome: Literal["refused", "unknown"], problem: QuothError) -> Failure:
    return Failure(outgoing.values, outgoing.keys, outgoing.headers, outcome, problem)
