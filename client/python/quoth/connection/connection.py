"""One connection to a broker, used by one thread at a time: send a request, wait for its reply.

libzmq reconnects by itself but forgets what was on its way, so a monitor tells when the connection was lost
and found again. What is to be done then the `RequestState` says.

After an outage, however long, a link is back within two seconds. An operating system left alone would take up
to two minutes: it doubles its pauses between attempts. So each phase of a connection has its own limit:

    connecting      an attempt ends after `CONNECT_MS`, the next one begins `RECONNECT_MAX_MS` later
    handshake       ends after `HANDSHAKE_MS`, as at the broker: a peer that is frozen takes connections, too
    established     a host that acknowledges nothing ends it after `UNACKNOWLEDGED_S`, and there are bytes to
                    acknowledge every `HEARTBEAT_MS`: so a network that swallows them is noticed. It ends
                    before TCP's pause between two attempts exceeds 1.6 s; see `quoth.connection.tcp_watch`
    silent          a host that acknowledges bytes for a process that says nothing, or reads nothing:
                    `HEARTBEAT_TIMEOUT_S`
"""

from __future__ import annotations

import errno
import math
import os
import struct
import threading
import time
from contextlib import suppress
from typing import TypeVar
from weakref import WeakValueDictionary

import zmq

from quoth.connection.attempts import Attempts
from quoth.core.adaptive_timeout import bounded
from quoth.core.idempotence import Sequences
from quoth.core.request_state import ClientCall, RequestState
from quothwire.errors import QuothError, error
from quothwire.protocol import binary_codec
from quothwire.protocol.binary_codec import Answer

RECONNECT_MS, RECONNECT_MAX_MS = 50, 200
"""libzmq adds up to the first of them to each pause."""
CONNECT_MS = 1_500
"""Long enough for the second attempt of the operating system, which follows after a second."""
HANDSHAKE_MS = 3_000
HEARTBEAT_MS, HEARTBEAT_TIMEOUT_S = 1_000, 15.0
UNACKNOWLEDGED_S, UNACKNOWLEDGED_MAX_S = 2.5, 30.0
WATCH_S = 0.5
"""How often the links of this process are looked at for that, as long as one of them is waited for."""
UNACKNOWLEDGED_PART = 1 / 12
"""Of the silence that a link bears: one that is known to be slow may be so for TCP, too."""
TERMINATE_S = 1.0
COPY_BELOW_BYTES = 64 * 2**10
_NOW, _NOW_AND_MORE = int(zmq.NOBLOCK), int(zmq.NOBLOCK | zmq.SNDMORE)
"""As plain numbers: flags that are members of an enumeration cost 1 us a frame."""
_GONE = (zmq.ETERM, errno.EFAULT, errno.ENOTSUP)
"""What libzmq and its binding say about a context that was terminated."""
_EVENT = struct.Struct("=Hi")
"""What a monitor tells. pyzmq's own way to read it imports asyncio, which takes longer than all of this."""
_EVENTS = zmq.EVENT_HANDSHAKE_SUCCEEDED | zmq.EVENT_DISCONNECTED | zmq.EVENT_CONNECTED

Context = zmq.Context[zmq.Socket[bytes]]
T = TypeVar("T")


class Link:
    """A DEALER with its monitor. `connected` is None until the first handshake."""

    def __init__(self, context: Context, url: str, silence: float = HEARTBEAT_TIMEOUT_S) -> None:
        """silence: seconds after which a connection is given up on which nothing whole arrives."""
        self.url = url
        self._silence = silence
        self.reconnects = 0
        self.connected: bool | None = True if url.startswith("inproc:") else None
        try:
            self.socket: zmq.Socket[bytes] = context.socket(zmq.DEALER)
            self.monitor = self._set_up()
        except zmq.ZMQError as problem:
            raise _no_socket(problem) from None
        self._attempts = Attempts(url)
        self._descriptor = -1  # of the connection's own socket
        self._poller = zmq.Poller()
        self._poller.register(self.socket, zmq.POLLIN)
        self._poller.register(self.monitor, zmq.POLLIN)
        try:
            self.socket.connect(url)
        except zmq.ZMQError as problem:
            self.close()
            if problem.errno in _GONE:
                raise _no_socket(problem) from None
            raise error("bad_request", f"{url!r}: {problem.strerror}", "like tcp://127.0.0.1:5555") from None
        WATCH.add(self)

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
        """Wait for something to happen; True if a lost connection was found again meanwhile.

        It may return earlier, after `WATCH_S`, when nothing has happened.
        """
        WATCH.look(time.monotonic())
        seconds = max(0.0, min(seconds, WATCH_S))
        ready = dict(self._poller.poll(math.ceil(seconds * 1_000)))
        return self.monitor in ready and self.look()

    def end_if_dead(self, *, neglected: bool) -> None:
        """End the connection if the other host acknowledges nothing. Any thread may call it.

        neglected: no link was looked at for long, so a connection over which nothing has come is ended, too.
        """
        descriptor = self._descriptor
        if descriptor < 0:
            return
        # It takes time to load, and short commands never need it.
        from quoth.connection.tcp_watch import end_if_dead

        if end_if_dead(descriptor, self.url, _unacknowledged(self._silence), neglected=neglected):
            self._descriptor = -1

    def look(self) -> bool:
        """Take note of what the monitor tells; True if a lost connection was found again."""
        found = False
        with suppress(zmq.Again):
            while True:
                told, _ = self.monitor.recv_multipart(zmq.NOBLOCK)
                event, value = _EVENT.unpack_from(told)
                if event == zmq.EVENT_CONNECTED:
                    self._descriptor = value
                    continue
                if event == zmq.EVENT_DISCONNECTED:
                    self._descriptor = -1
                here = event == zmq.EVENT_HANDSHAKE_SUCCEEDED
                found = here and (found or self.connected is False)
                if here or self.connected:
                    self._attempts.restart()
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
                return binary_codec.decode_answer([frame.buffer for frame in frames[1:]])

    def nobody(self, what: str) -> QuothError:
        """The error for a deadline that passed."""
        if self.connected:
            return error("timed_out", f"{what}: no answer from {self.url} in time")
        tried, hint = self._attempts.told()
        return error("disconnected", f"{what}: no broker answers at {self.url}: {tried}", hint)

    def _monitored(self) -> zmq.Socket[bytes]:
        """Begin to monitor the socket. The monitor holds any number of events.

        libzmq's own thread waits for a monitor that is full, and an idle client reads none: all other sockets
        of the context would stand still with it.
        """
        address = f"inproc://quoth-monitor-{self.socket.FD}"
        self.socket.monitor(address, _EVENTS)
        monitor: zmq.Socket[bytes] = self.socket.context.socket(zmq.PAIR)
        monitor.set(zmq.RCVHWM, 0)
        monitor.connect(address)
        return monitor

    def _set_up(self) -> zmq.Socket[bytes]:
        """Set all options; returns the monitor."""
        try:
            self.socket.set(zmq.LINGER, 0)
            self.socket.set(zmq.RECONNECT_IVL, RECONNECT_MS)
            self.socket.set(zmq.RECONNECT_IVL_MAX, RECONNECT_MAX_MS)
            self.socket.set(zmq.CONNECT_TIMEOUT, CONNECT_MS)
            self.socket.set(zmq.HANDSHAKE_IVL, HANDSHAKE_MS)
            self.socket.set(zmq.TCP_MAXRT, math.ceil(self._silence * 1_000))
            self.socket.set(zmq.HEARTBEAT_IVL, HEARTBEAT_MS)
            self.socket.set(zmq.HEARTBEAT_TIMEOUT, math.ceil(self._silence * 1_000))
            self.socket.set(zmq.IPV6, int("[" in self.url))
            return self._monitored()
        except BaseException:
            self.socket.close(linger=0)
            raise

    def close(self) -> None:
        """Close both sockets, also those of a context that is gone."""
        self._descriptor = -1
        with suppress(zmq.ZMQError):
            self.socket.disable_monitor()
        self.monitor.close(linger=0)
        self.socket.close(linger=0)


class LinkWatch:
    """All links of this process. A thread that waits for one of them looks at the others, too.

    So a thread that has several links does not find one after an outage whose next attempt is seconds away.
    Where no thread has waited for a while, there may be such links: all that a client learns of the other
    host's attempts is that no answer to a heartbeat has come.
    """

    def __init__(self) -> None:
        self._links: WeakValueDictionary[int, Link] = WeakValueDictionary()
        self._looked_at = time.monotonic()

    def add(self, link: Link) -> None:
        """Look at this one from now on."""
        self._links[id(link)] = link

    def look(self, now: float) -> None:
        """End the connections that are dead; looks every `WATCH_S` at most."""
        seconds = now - self._looked_at
        if 0 <= seconds < WATCH_S:  # negative by a thread that goes by another clock than the last one
            return
        self._looked_at = now
        for one in self._links.valuerefs():
            if (link := one()) is not None:
                link.end_if_dead(neglected=seconds > UNACKNOWLEDGED_S)


WATCH = LinkWatch()


def _unacknowledged(silence: float) -> float:
    """Seconds after which a link is given up whose host acknowledges nothing."""
    return bounded(UNACKNOWLEDGED_PART * silence, UNACKNOWLEDGED_S, UNACKNOWLEDGED_MAX_S)


def terminate(context: Context) -> None:
    """End a context: what other threads wait for in it ends with ContextTerminated.

    It waits for them, but not for ever: nobody closes a socket that Ctrl-C has left half made.
    """
    ending = threading.Thread(target=context.term, name="quoth-end", daemon=True)
    ending.start()
    ending.join(TERMINATE_S)


class Channel:
    """A link for one request at a time, with the producer ids that its publishes carry."""

    def __init__(self, context: Context, url: str) -> None:
        self.sequences = Sequences()
        self._link = Link(context, url)
        self._correlation = int.from_bytes(os.urandom(4))
        self._asked: RequestState | None = None

    def run(self, steps: ClientCall[T]) -> T:
        """Take the steps of a call, and return what they come to."""
        try:
            exchange = next(steps)
            while True:
                try:
                    answer = self.settle(exchange)
                except QuothError as problem:
                    exchange = steps.throw(problem)
                else:
                    exchange = steps.send(answer)
        except StopIteration as end:
            result: T = end.value
            return result

    def ask(self, exchange: RequestState) -> float:
        """Send a request; returns when. What still comes to the one before is passed over."""
        self._correlation += 1
        self._link.wait(0.0)  # what has happened to the connection so far is no reason to send twice
        now = time.monotonic()
        exchange.begin(self._correlation, now)
        self._asked = exchange
        self._send(exchange)
        return now

    def settle(self, exchange: RequestState) -> Answer:
        """Wait for the answer to a request; it is sent now unless it was what was sent last.

        Raises the error that the broker answered, or `Disconnected` at the deadline: the outcome is not known
        then.
        """
        is_asked = exchange is self._asked and exchange.unheard > 0
        now = time.monotonic() if is_asked else self.ask(exchange)
        link = self._link
        while True:
            found = link.wait(exchange.due - now)
            now = time.monotonic()  # what has come by then is taken before it is given up
            answer = self._received(exchange.correlation)
            if answer is not None:
                if exchange.is_settled_by(answer, now):
                    return _without_error(answer)
            elif exchange.is_over(now):
                raise link.nobody(exchange.what)
            elif exchange.is_to_be_sent(now, found=found, connected=bool(link.connected)):
                self._send(exchange)

    def close(self) -> None:
        """Close it."""
        self._link.close()

    def _send(self, exchange: RequestState) -> None:
        with suppress(zmq.Again):
            self._link.send(exchange.frames)
            exchange.unheard += 1

    def _received(self, correlation: int) -> Answer | None:
        while (answer := self._link.receive()) is not None:
            if answer.correlation == correlation:
                return answer
        return None


def _without_error(answer: Answer) -> Answer:
    if isinstance(answer.reply, QuothError):
        raise answer.reply
    return answer


def _no_socket(problem: zmq.ZMQError) -> QuothError:
    if problem.errno in _GONE:
        return error("closed", "the client or the broker in this process was closed")
    return error("disconnected", f"no socket can be made: {problem.strerror}", "close some clients")
