"""One connection to a broker, used by one thread at a time.

libzmq reconnects by itself but drops the requests in flight. A monitor reports when the connection was lost
and made again; then `RequestState` decides what is sent again.

After an outage of any length a link is back within two seconds. With the defaults of the operating system it
would take up to two minutes, since the pauses between attempts double. So each phase of a connection has a
limit:

    connecting      an attempt ends after `CONNECT_MS`, the next one begins `RECONNECT_MAX_MS` later
    handshake       ends after `HANDSHAKE_MS`, later than the broker ends it: a frozen peer accepts, too
    established     ends after `UNACKNOWLEDGED_S` in which the other host acknowledges nothing. There are
                    bytes to acknowledge every `HEARTBEAT_MS`, so a network that drops packets is noticed
                    before TCP's pause between two attempts exceeds 1.6 s; see `quoth.connection.tcp_watch`
    silent          ends after `HEARTBEAT_TIMEOUT_S` if the host acknowledges bytes but the process sends none

A broker with keys may refuse a connection. Then the link is `refused`, and connects again only at `redial`;
see `quoth.connection.handshake`.
"""

from __future__ import annotations

import errno
import math
import os
import struct
import threading
import time
from contextlib import suppress
from typing import Any
from weakref import WeakValueDictionary

import zmq

from quoth.connection.attempts import Attempts
from quoth.connection.endpoint import Endpoint, secure
from quoth.connection.handshake import FAILED, Handshakes
from quoth.core.adaptive_timeout import bounded
from quothwire.batch import Bytes
from quothwire.errors import QuothError, error
from quothwire.protocol import binary_codec
from quothwire.protocol.binary_codec import Answer

RECONNECT_MS, RECONNECT_MAX_MS = 50, 200
"""libzmq adds up to the first of them to each pause."""
CONNECT_MS = 1_500
"""Long enough for the second attempt of the operating system, which follows after a second."""
HANDSHAKE_MS = 3_000
RETRY_S = 0.2
"""Seconds until the next attempt where handshakes fail again and again."""
HEARTBEAT_MS, HEARTBEAT_TIMEOUT_S = 1_000, 15.0
UNACKNOWLEDGED_S, UNACKNOWLEDGED_MAX_S = 2.5, 30.0
WATCH_S = 0.5
"""Seconds between two checks of all links of this process, while a thread waits for one of them."""
UNACKNOWLEDGED_PART = 1 / 12
"""Of the silence that a link allows: a link that is known to be slow may be slow for TCP, too."""
TERMINATE_S = 1.0
COPY_BELOW_BYTES = 64 * 2**10
_NOW, _NOW_AND_MORE = int(zmq.NOBLOCK), int(zmq.NOBLOCK | zmq.SNDMORE)
"""As plain numbers: flags that are members of an enumeration cost 1 us a frame."""
_READABLE = int(zmq.POLLIN)
_GONE = (zmq.ETERM, zmq.ENOTSOCK, errno.EFAULT, errno.ENOTSUP)
"""The errors of libzmq and its binding for a socket that was closed, or a context that was terminated."""
_EVENT = struct.Struct("=Hi")
"""An event of a monitor. pyzmq's own decoder imports asyncio, which takes longer than all of this."""
_EVENTS = zmq.EVENT_HANDSHAKE_SUCCEEDED | zmq.EVENT_DISCONNECTED | zmq.EVENT_CONNECTED | FAILED

Context = zmq.Context[zmq.Socket[bytes]]


class Link:
    """A DEALER with its monitor. `connected` is None until the first handshake."""

    def __init__(
        self,
        context: Context,
        endpoint: Endpoint,
        silence: float = HEARTBEAT_TIMEOUT_S,
        *,
        once: bool = False,
    ) -> None:
        """silence: seconds without a whole message after which the connection is given up.

        once: do not connect again. What is on its way when the connection is lost is never sent then, as it
        would be by the next connection, in front of what was lost.
        """
        self.url = endpoint.url
        self._endpoint = endpoint
        self._silence = silence
        self._once = once
        self.is_over = False
        """True if the connection is lost and is not made again: no request gets an answer any more."""
        self.reconnects = 0
        self.connected: bool | None = True if endpoint.is_inside else None
        self.refused: QuothError | None = None
        """The error ``auth_failed`` if the broker has refused the connection, until `redial`."""
        self.may_have_sent = False
        """True if what was sent since `redial` may have reached the broker."""
        self._handshakes = Handshakes(endpoint)
        self._is_automatic = False
        """True if libzmq has begun to connect again by itself, perhaps long ago. Keys may have changed since
        then, so the failed handshake says nothing."""
        try:
            self.socket: zmq.Socket[bytes] = context.socket(zmq.DEALER)
            self.monitor = self._set_up()
        except zmq.ZMQError as problem:
            raise _no_socket(problem) from None
        self._attempts = Attempts(self.url)
        self._descriptor = -1  # of the TCP socket
        self._polled: list[tuple[Any, int]] = [(self.socket, _READABLE), (self.monitor, _READABLE)]
        self.polled_at = -math.inf
        """When it was last waited for, by the monotonic clock."""
        self.retry_at = math.inf
        """When to connect again after a failed handshake, by the monotonic clock: see `retry`."""
        try:
            self._dial()
        except zmq.ZMQError as problem:
            self.close()
            if problem.errno in _GONE:
                raise _no_socket(problem) from None
            raise error(
                "bad_request", f"{self.url!r}: {problem.strerror}", "like tcp://127.0.0.1:5555"
            ) from None
        WATCH.add(self)

    def also_wait_for(self, fd: int) -> None:
        """Let `wait` also return when a descriptor becomes readable."""
        self._polled.append((fd, _READABLE))

    def send(self, frames: list[bytes]) -> None:
        """Send a request. Raises zmq.Again if the queue is full because no broker is there."""
        send = self.socket.send
        *first, last = frames
        send(b"", _NOW_AND_MORE)
        for frame in first:
            send(frame, _NOW_AND_MORE)
        send(last, _NOW, copy=len(last) < COPY_BELOW_BYTES)

    def wait(self, seconds: float, now: float | None = None) -> bool:
        """Wait for something to happen; True as for `read_events`.

        Returns after `WATCH_S` at the latest. now: the present time by the monotonic clock, if it is known.
        """
        self.polled_at = now = time.monotonic() if now is None else now
        if now >= self.retry_at:
            self.retry()
        if not 0 <= now - WATCH.checked_at < WATCH_S:
            WATCH.check(now)
        seconds = min(max(seconds, 0.0), WATCH_S)
        for ready, _ in zmq.zmq_poll(self._polled, math.ceil(seconds * 1_000)):
            if ready is self.monitor:
                return self.read_events()
        return False

    def end_if_dead(self, *, neglected: bool) -> None:
        """End the connection if the other host acknowledges nothing. Any thread may call it.

        neglected: no link was checked for long, so a connection without any received byte is ended, too.
        """
        descriptor = self._descriptor
        if descriptor < 0:
            return
        # Slow to load, and not needed by short commands.
        from quoth.connection.tcp_watch import end_if_dead

        seconds = bounded(UNACKNOWLEDGED_PART * self._silence, UNACKNOWLEDGED_S, UNACKNOWLEDGED_MAX_S)
        if end_if_dead(descriptor, self.url, seconds, neglected=neglected):
            self._descriptor = -1

    def read_events(self) -> bool:
        """Read the monitor's events; True if a lost connection was made again, or is `refused` now."""
        found = False
        with suppress(zmq.Again):
            while True:
                frame, _ = self.monitor.recv_multipart(zmq.NOBLOCK)
                event, value = _EVENT.unpack_from(frame)
                if event == zmq.EVENT_CONNECTED:
                    self._descriptor = value
                    continue
                if event & FAILED:
                    self._handshakes.failed(event, value)
                    continue
                if event == zmq.EVENT_DISCONNECTED:
                    self._descriptor = -1
                    self._is_automatic |= bool(self.connected)
                    self.is_over |= self._once and bool(self.connected)
                here = event == zmq.EVENT_HANDSHAKE_SUCCEEDED
                found = here and (found or self.connected is False)
                if here:
                    self._handshakes.succeeded()
                    self.may_have_sent = True
                if here or self.connected:
                    self._attempts.restart()
                self.connected = here
        self.reconnects += found
        return (self._handshakes.are_failing and self._is_refused_now()) or found

    def retry(self) -> None:
        """Connect again. libzmq does so by itself, but not after a failed handshake.

        So an idle client, which reads no events, does not try for ever.
        """
        self.retry_at = math.inf
        self._connect()

    def redial(self) -> None:
        """Connect again after the broker has refused the connection. Does nothing else otherwise."""
        if self.refused is not None:
            self.refused = None
            self.may_have_sent = False
            self._dial()

    def auth_failed(self, what: str, *, is_sent: bool) -> QuothError:
        """Return the error for a request of a `refused` link. is_sent: a copy of it has no answer."""
        refused = self.refused
        assert refused is not None
        doubt = "; whether it took effect is not known" if is_sent and self.may_have_sent else ""
        begin = "" if what == "hello" else f"{what}: "  # each client begins with hello, unasked
        return error(refused.code, f"{begin}{refused.text}{doubt}", refused.hint)

    def receive(self) -> Answer | None:
        """Return the next answer, None if there is none now. Skips messages that are no answer."""
        receive = self.socket.recv
        while True:
            try:
                frame = receive(_NOW, copy=False)
            except zmq.Again:
                return None
            frames: list[Bytes] = []
            while frame.more:  # the first one is empty
                frame = receive(_NOW, copy=False)
                frames.append(frame.buffer)
            try:
                return binary_codec.decode_answer(frames)
            except QuothError:
                continue

    def no_answer(self, what: str) -> QuothError:
        """Return the error for a request without an answer at its deadline."""
        if self.connected:
            return error("timed_out", f"{what}: no answer from {self.url} in time")
        tried, hint = self._attempts.describe()
        return error("disconnected", f"{what}: no broker answers at {self.url}: {tried}", hint)

    def _is_refused_now(self) -> bool:
        """Hang up and return True if the broker has refused the connection; else try once more."""
        if self.refused is not None:
            return False
        if self._is_automatic:
            self._hang_up()
            self._dial()
            return False
        handshakes = self._handshakes
        if handshakes.decide():
            handshakes.answered(self._attempts.mechanism())
        self._hang_up()
        if handshakes.reason is not None and not self._endpoint.is_outdated(handshakes.key):
            self.refused = handshakes.reason.error(self.url, handshakes.key)
            return True
        if handshakes.reason is not None:
            self._dial()
        elif handshakes.has_tries:
            self._connect()
        elif not self._once:
            self.retry_at = time.monotonic() + RETRY_S
        return False

    def _dial(self) -> None:
        """Begin to connect: what has failed before does not count."""
        self._is_automatic = False
        self.retry_at = math.inf
        self._handshakes.restart()
        self._connect()

    def _connect(self) -> None:
        """Let libzmq try to connect until something accepts the connection."""
        if (key := self._handshakes.key) is not None:
            secure(self.socket, key, self._handshakes.server_key)
        self.socket.connect(self.url)

    def _hang_up(self) -> None:
        """End the attempts of libzmq, and drop what is queued: the next connection counts as another one."""
        self.connected = False
        with suppress(zmq.ZMQError):  # libzmq has given up by itself
            self.socket.disconnect(self.url)

    def _set_up(self) -> zmq.Socket[bytes]:
        """Set all options; return a monitor of the socket, which holds any number of events.

        The socket holds any number of answers, as many as there were requests: libzmq ends a process that has
        heartbeats and a full queue when the connection is lost.

        The thread of libzmq waits for a monitor that is full, and an idle client reads no events: all other
        sockets of the context would stop with it.
        """
        silence_ms = math.ceil(self._silence * 1_000)
        address = f"inproc://quoth-monitor-{self.socket.FD}"
        monitor: zmq.Socket[bytes] | None = None
        try:
            self.socket.set(zmq.LINGER, 0)
            self.socket.set(zmq.RECONNECT_IVL, -1 if self._once else RECONNECT_MS)
            self.socket.set(zmq.RECONNECT_IVL_MAX, RECONNECT_MAX_MS)
            self.socket.set(zmq.CONNECT_TIMEOUT, CONNECT_MS)
            self.socket.set(zmq.HANDSHAKE_IVL, HANDSHAKE_MS)
            self.socket.set(zmq.TCP_MAXRT, silence_ms)
            self.socket.set(zmq.RCVHWM, 0)
            self.socket.set(zmq.HEARTBEAT_IVL, HEARTBEAT_MS)
            self.socket.set(zmq.HEARTBEAT_TIMEOUT, silence_ms)
            self.socket.set(zmq.IPV6, int("[" in self.url))
            with suppress(zmq.ZMQError):  # before 4.3.5 libzmq goes on by itself
                self.socket.set(zmq.RECONNECT_STOP, zmq.RECONNECT_STOP_HANDSHAKE_FAILED)
            self.socket.monitor(address, _EVENTS)
            monitor = self.socket.context.socket(zmq.PAIR)
            monitor.set(zmq.RCVHWM, 0)
            monitor.connect(address)
        except BaseException:
            if monitor is not None:
                monitor.close(linger=0)
            self.socket.close(linger=0)
            raise
        return monitor

    def close(self) -> None:
        """Close both sockets, also those of a terminated context."""
        self._descriptor = -1
        with suppress(zmq.ZMQError):
            self.socket.disable_monitor()
        self.monitor.close(linger=0)
        self.socket.close(linger=0)


class PipeWakeup:
    """A pipe by which any thread ends the wait of a thread that polls its descriptor."""

    def __init__(self) -> None:
        self.fd, self._end = os.pipe()
        for fd in (self.fd, self._end):
            os.set_blocking(fd, False)

    def wake(self) -> None:
        """End the wait of the thread that polls."""
        with suppress(BlockingIOError):
            os.write(self._end, b"\0")

    def clear(self) -> None:
        """Read the bytes of earlier wakeups."""
        with suppress(BlockingIOError):
            os.read(self.fd, 4_096)

    def close(self) -> None:
        """Close the pipe."""
        os.close(self.fd)
        os.close(self._end)


class LinkWatch:
    """All links of this process. A thread that waits for one of them checks the others, too.

    So after an outage a thread with several links finds none whose next attempt is seconds away. If no thread
    has waited for a while there may be such links: all that a client sees of the other host's attempts is
    that no answer to a heartbeat has come.
    """

    def __init__(self) -> None:
        self._links: WeakValueDictionary[int, Link] = WeakValueDictionary()
        self.checked_at = time.monotonic()

    def add(self, link: Link) -> None:
        """Check this link from now on."""
        self._links[id(link)] = link

    def check(self, now: float) -> None:
        """End the connections that are dead, unless they were checked less than `WATCH_S` ago."""
        seconds = now - self.checked_at
        if 0 <= seconds < WATCH_S:  # negative after a check by another clock
            return
        self.checked_at = now
        for one in self._links.valuerefs():
            if (link := one()) is not None:
                link.end_if_dead(neglected=seconds > UNACKNOWLEDGED_S)


WATCH = LinkWatch()


def terminate(context: Context) -> None:
    """Terminate a context: other threads that wait in it get ContextTerminated.

    Waits for them, but not for ever: a socket that Ctrl-C has left half made is never closed.
    """
    ending = threading.Thread(target=context.term, name="quoth-end", daemon=True)
    ending.start()
    ending.join(TERMINATE_S)


def closed() -> QuothError:
    """Return the error of a client that was closed, or whose broker in this process was."""
    return error("closed", "the client or the broker in this process was closed")


def as_quoth_error(problem: zmq.ZMQError) -> Exception:
    """Return ``closed`` if another thread has closed the context or the socket, else the error itself."""
    return closed() if problem.errno in _GONE else problem


def _no_socket(problem: zmq.ZMQError) -> QuothError:
    if problem.errno in _GONE:
        return closed()
    return error("disconnected", f"no socket can be made: {problem.strerror}", "close some clients")
