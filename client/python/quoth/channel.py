"""One connection to a broker, used by one thread at a time: send a request, wait for its reply.

libzmq reconnects by itself but forgets what was on its way, so a monitor tells when the connection was lost
and found again, and the request is sent once more. That is safe: reading changes nothing, a publish is
recognised by its producer id and sequence, and a deletion names the log that it means.
"""

from __future__ import annotations

import errno
import math
import random
import secrets
import time
from collections.abc import Callable
from contextlib import suppress
from typing import NamedTuple

import zmq
from zmq.utils.monitor import recv_monitor_message

from quothwire import codec
from quothwire.codec import Answer
from quothwire.errors import BrokerFailure, QuothError, error
from quothwire.message import Publish, Published, Request

RESEND_S = 5.0
"""Silence after which a request is sent again although the connection looks healthy."""
BACKOFF_S, BACKOFF_MAX_S = 0.005, 0.5
RECONNECT_MS, RECONNECT_MAX_MS = 50, 1_000
HEARTBEAT_MS, HEARTBEAT_TIMEOUT_MS = 5_000, 15_000
COPY_BELOW_BYTES = 64 * 2**10
RETRIED = frozenset(("busy", "recovering", "stopping"))
"""Refusals that pass by themselves. The broker did not look at the request, so nothing of this copy was
stored; what became of an earlier one they do not tell."""
FORGOTTEN = frozenset(("unknown_producer", "out_of_sequence"))
"""Said to a producer all of whose earlier batches are settled: the broker does not have them any more. The
topic was made anew, the producer was forgotten, or a loss of power or damage took them."""
_NOW, _NOW_AND_MORE = int(zmq.NOBLOCK), int(zmq.NOBLOCK | zmq.SNDMORE)
"""As plain numbers: flags that are members of an enumeration cost 1 us a frame."""
_GONE = (zmq.ETERM, errno.EFAULT, errno.ENOTSUP)
"""What libzmq and its binding say about a context that was terminated."""
_EVENTS = zmq.EVENT_HANDSHAKE_SUCCEEDED | zmq.EVENT_DISCONNECTED

Context = zmq.Context[zmq.Socket[bytes]]


class Link:
    """A DEALER with its monitor. `connected` is None until the first handshake."""

    def __init__(self, context: Context, url: str) -> None:
        self.url = url
        self.reconnects = 0
        self.connected: bool | None = True if url.startswith("inproc:") else None
        try:
            self.socket: zmq.Socket[bytes] = context.socket(zmq.DEALER)
            self._monitor = self._set_up()
        except zmq.ZMQError as problem:
            raise _no_socket(problem) from None
        self._poller = zmq.Poller()
        self._poller.register(self.socket, zmq.POLLIN)
        self._poller.register(self._monitor, zmq.POLLIN)
        try:
            self.socket.connect(url)
        except zmq.ZMQError as problem:
            self.close()
            if problem.errno in _GONE:
                raise _no_socket(problem) from None
            raise error("bad_request", f"{url!r}: {problem.strerror}", "like tcp://127.0.0.1:5555") from None

    def also(self, fd: int) -> None:
        """Let `wait` return when this descriptor becomes readable, too."""
        self._poller.register(fd, zmq.POLLIN)

    def send(self, frames: list[bytes]) -> None:
        """Send a request. Raises zmq.Again when the queue to a broker that is away is full."""
        send = self.socket.send
        *first, last = frames
        send(b"", _NOW_AND_MORE)
        for frame in first:
            send(frame, _NOW_AND_MORE)
        send(last, _NOW, copy=len(last) < COPY_BELOW_BYTES)

    def wait(self, seconds: float) -> bool:
        """Wait for something to happen; True if a lost connection was found again meanwhile."""
        ready = dict(self._poller.poll(math.ceil(max(0.0, seconds) * 1_000)))
        if self._monitor not in ready:
            return False
        found = False
        with suppress(zmq.Again):
            while True:
                event = recv_monitor_message(self._monitor, zmq.NOBLOCK)["event"]
                here = event == zmq.EVENT_HANDSHAKE_SUCCEEDED
                found = here and (found or self.connected is False)
                self.connected = here
        self.reconnects += found
        return found

    def receive(self) -> Answer | None:
        """The next answer, None if there is none now. What is none of our protocol is passed over."""
        while True:
            try:
                frames = self.socket.recv_multipart(zmq.NOBLOCK, copy=False)
            except zmq.Again:
                return None
            with suppress(QuothError):
                return codec.decode_answer([frame.buffer for frame in frames[1:]])

    def nobody(self, what: str) -> QuothError:
        """The error for a deadline that passed."""
        if self.connected:
            return error("timed_out", f"{what}: no answer from {self.url} in time")
        return error("disconnected", f"{what}: no broker answers at {self.url}")

    def _set_up(self) -> zmq.Socket[bytes]:
        """Set all options; returns the monitor."""
        try:
            self.socket.set(zmq.LINGER, 0)
            self.socket.set(zmq.RECONNECT_IVL, RECONNECT_MS)
            self.socket.set(zmq.RECONNECT_IVL_MAX, RECONNECT_MAX_MS)
            self.socket.set(zmq.HEARTBEAT_IVL, HEARTBEAT_MS)
            self.socket.set(zmq.HEARTBEAT_TIMEOUT, HEARTBEAT_TIMEOUT_MS)
            self.socket.set(zmq.IPV6, int("[" in self.url))
            return self.socket.get_monitor_socket(_EVENTS)
        except zmq.ZMQError:
            self.socket.close(linger=0)
            raise

    def close(self) -> None:
        """Close both sockets, also those of a context that is gone."""
        with suppress(zmq.ZMQError):
            self.socket.disable_monitor()
        self._monitor.close(linger=0)
        self.socket.close(linger=0)


class Question(NamedTuple):
    """A request that has been sent. what: how it is called in an error."""

    correlation: int
    frames: list[bytes]
    what: str


class Channel:
    """A link for one request at a time, with the producer ids that its publishes carry.

    unheard: copies of the last request that no answer came for; each of them may have taken effect.
    """

    def __init__(self, context: Context, url: str) -> None:
        self.unheard = 0
        self._link = Link(context, url)
        self._correlation = secrets.randbits(32)
        self._sequences: dict[str, tuple[int, int]] = {}

    def call(
        self,
        request: Request,
        topic: str = "",
        payload: bytes | None = None,
        *,
        deadline: float,
        wait: float = 0.0,
    ) -> Answer:
        """Ask and wait for the answer, see `ask` and `answer`."""
        now = time.monotonic()
        return self._settle(self.ask(request, topic, payload), deadline, wait, now)

    def ask(self, request: Request, topic: str = "", payload: bytes | None = None) -> Question:
        """Send a request. The answer to the one before, if nobody has waited for it, will be passed over."""
        self._correlation += 1
        self.unheard = 0
        self._link.wait(0.0)  # what has happened to the connection so far is no reason to send twice
        frames = codec.encode_request(request, self._correlation, topic, payload)
        self._send(frames)
        return Question(self._correlation, frames, f"{type(request).__name__} {topic}".strip())

    def expects(self, question: Question) -> bool:
        """Is this what was asked here last, and nobody has waited for it yet?"""
        return self.unheard > 0 and question.correlation == self._correlation

    def answer(self, question: Question, *, deadline: float, wait: float = 0.0) -> Answer:
        """Wait for the answer to what was asked last.

        deadline: by the monotonic clock. wait: seconds that the broker itself may take to answer. Raises the
        error that the broker answered, or `Disconnected` at the deadline: the outcome is not known then.
        """
        return self._settle(question, deadline, wait, time.monotonic())

    def publish(
        self, request: Publish, topic: str, encode: Callable[[int, int], bytes], deadline: float
    ) -> Published:
        """Publish a batch, which is stored once whatever happens to the connection.

        encode: makes its bytes for a producer id and a sequence. Raises as `call` does, and `Disconnected`
        also where a refusal does not tell what became of an earlier copy.
        """
        try:
            return self._publish(request, topic, encode, deadline)
        except QuothError as problem:
            if problem.code not in FORGOTTEN:
                raise
        del self._sequences[topic]
        return self._publish(request, topic, encode, deadline)

    def close(self) -> None:
        """Close it."""
        self._link.close()

    def _publish(
        self, request: Publish, topic: str, encode: Callable[[int, int], bytes], deadline: float
    ) -> Published:
        producer, stored = self._sequences.setdefault(topic, (new_producer_id(), 0))
        payload = encode(producer, stored + 1)
        try:
            reply = self.call(request, topic, payload, deadline=deadline).reply
        except BrokerFailure:
            del self._sequences[topic]  # it may have been written before the disk failed
            raise
        except QuothError as problem:
            if self.unheard and problem.code in RETRIED:
                text = f"it was sent again after a silence, and then refused: {problem.text}"
                raise error("timed_out", text) from problem
            raise
        assert isinstance(reply, Published)
        self._sequences[topic] = (producer, stored + 1)
        return reply

    def _settle(self, question: Question, deadline: float, wait: float, now: float) -> Answer:
        """See `answer`. now: when waiting begins, or earlier."""
        backoff = BACKOFF_S
        answer = self._wait(question, deadline, wait, now)
        while isinstance(answer.reply, QuothError):
            until = time.monotonic() + random.uniform(0.5, 1.0) * backoff
            if answer.reply.code not in RETRIED or until > deadline:
                raise answer.reply
            backoff = min(2 * backoff, BACKOFF_MAX_S)
            # An earlier copy may still be answered, and better.
            answer = self._later(until) or self._again(question, deadline, wait)
        return answer

    def _send(self, frames: list[bytes]) -> None:
        with suppress(zmq.Again):
            self._link.send(frames)
            self.unheard += 1

    def _again(self, question: Question, deadline: float, wait: float) -> Answer:
        now = time.monotonic()
        self._send(question.frames)
        return self._wait(question, deadline, wait, now)

    def _wait(self, question: Question, deadline: float, wait: float, now: float) -> Answer:
        """Wait for the answer to what has been sent, and send it again if it may have been lost."""
        link = self._link
        resend_at = now + wait + RESEND_S
        while True:
            lost = link.wait(min(deadline, resend_at) - now)
            if (answer := self._received()) is not None:
                return answer
            now = time.monotonic()
            if now >= deadline:
                raise link.nobody(question.what)
            if now >= resend_at:
                # While nobody is there copies would only queue up: being found again is the time to send.
                lost = lost or bool(link.connected)
                resend_at = now + RESEND_S
            if lost:
                self._send(question.frames)
                resend_at = now + wait + RESEND_S

    def _later(self, until: float) -> Answer | None:
        """Wait for an answer without asking again."""
        while (left := until - time.monotonic()) > 0:
            self._link.wait(left)
            if (answer := self._received()) is not None:
                return answer
        return None

    def _received(self) -> Answer | None:
        while (answer := self._link.receive()) is not None:
            if answer.correlation == self._correlation:
                self.unheard -= 1
                return answer
        return None


def _no_socket(problem: zmq.ZMQError) -> QuothError:
    if problem.errno in _GONE:
        return error("closed", "the client or the broker in this process was closed")
    return error("disconnected", f"no socket can be made: {problem.strerror}", "close some clients")


def new_producer_id() -> int:
    """A random id, never 0."""
    return secrets.randbits(63) + 1
