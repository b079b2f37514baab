"""The I/O thread: it owns the sockets of one event loop's client.

The loop never polls a socket, and no call has a thread of its own. The loop puts tickets into an inbox and
wakes the thread, which gives them back when they are settled, all of a burst at once.

    loop   ask ──► inbox ──► thread: link, link, ... ──► broker
           outcome ◄── loop bridge ◄── thread ◄─────────
"""

from __future__ import annotations

import math
import os
import secrets
import threading
import time
from asyncio import AbstractEventLoop, Future, get_running_loop, shield
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from typing import Any
from weakref import finalize

import zmq

import quoth.connection.tcp_watch  # noqa: F401  # now: a thread may find no descriptor to load it
from quoth.connection.channel import LinkRequests
from quoth.connection.connection import WATCH, Context, Link, PipeWakeup, closed
from quoth.connection.endpoint import Endpoint
from quoth.core.options import Timing
from quoth.core.request_state import RequestState
from quothwire.errors import QuothError, error
from quothwire.protocol.binary_codec import Answer

ASKED_MAX = 32
"""Requests on one connection at a time: a broker keeps 64 replies for a client that is slow to take them."""
LINKS_MAX = 64
"""Connections of four descriptors each. More than 2,048 requests at once share them all the same."""
CHECK_S = 1.0
"""Seconds between two checks whether the loop is closed, if nothing else happens."""


class Ticket:
    """A request and its outcome. Belongs to the loop, except for the request, which belongs to the thread."""

    __slots__ = ("on_settled", "outcome", "request", "waiter")

    def __init__(self, request: RequestState, on_settled: Callable[[Ticket], None] | None) -> None:
        self.request = request
        self.outcome: Answer | QuothError | None = None
        self.waiter: Future[None] | None = None
        self.on_settled = on_settled

    def settle(self, outcome: Answer | QuothError) -> None:
        """Set the outcome, unless it is set already."""
        if self.outcome is None:
            self.outcome = outcome
            if self.waiter is not None and not self.waiter.done():
                self.waiter.set_result(None)
            if self.on_settled is not None:
                self.on_settled(self)


class LoopBridge:
    """Calls of any thread, which the loop makes in the same order; it is woken once for all of a burst."""

    def __init__(self, loop: AbstractEventLoop) -> None:
        self.loop = loop
        self._calls: deque[tuple[Callable[..., object], tuple[Any, ...]]] = deque()
        self._woken = False

    def put(self, call: Callable[..., object], *arguments: Any) -> None:
        """Let the loop make a call soon; never, if it is closed."""
        self._calls.append((call, arguments))
        if not self._woken:
            self._woken = True
            with suppress(RuntimeError):  # the loop is closed, and no task waits in it
                self.loop.call_soon_threadsafe(self._make_calls)

    def _make_calls(self) -> None:
        self._woken = False
        for _ in range(len(self._calls)):
            call, arguments = self._calls.popleft()
            call(*arguments)


class IOThread:
    """One thread and its connections, for one event loop, which calls its public methods."""

    def __init__(self, context: Context | None, endpoint: Endpoint, timing: Timing) -> None:
        self.endpoint = endpoint
        self.timing = timing
        self.links_max, self.asked_max = LINKS_MAX, ASKED_MAX
        self.bridge = LoopBridge(get_running_loop())
        self.context: Context = context or zmq.Context()
        self._owns_context = context is None
        self._pid = os.getpid()
        self._correlation = secrets.randbits(32)
        self._inbox: deque[tuple[Callable[[Ticket], None], Ticket]] = deque()
        self._wakeup = PipeWakeup()
        finalize(self, self._wakeup.close).atexit = False  # not before: the owner may still wake it
        self._woken = False
        self._stopping = False
        self._end: tuple[str, ...] = ()
        """The error with which the thread has ended: code, text and perhaps a hint."""
        self._ended: Future[None] = self.bridge.loop.create_future()
        self._links: list[LinkRequests] = []
        self._stale: set[LinkRequests] = set()
        """Those whose queue holds a request that was given up while no broker was there: a later connection
        would send it."""
        self._tickets: dict[RequestState, Ticket] = {}
        """The tickets of all requests in flight."""
        self._poller = zmq.Poller()
        self._poller.register(self._wakeup.fd, zmq.POLLIN)
        self._thread = threading.Thread(target=self._run, name="quoth-aio", daemon=True)
        self._thread.start()

    # -- for the loop -----------------------------------------------------------------------------------

    def check(self) -> None:
        """Raise ``closed`` if the thread has ended, ``bad_request`` in another loop."""
        if os.getpid() != self._pid:
            raise error("closed", "an asyncio client stays with the process that made it", "connect here")
        if self._end:
            raise error(*self._end)
        if get_running_loop() is not self.bridge.loop:
            raise error("bad_request", "this client belongs to another event loop", "connect in this one")

    @property
    def is_stopping(self) -> bool:
        """True if it takes no more requests."""
        return self._stopping or bool(self._end)

    @property
    def connected(self) -> bool:
        """True if the broker is there, as far as is known."""
        return any(requests.link.connected for requests in tuple(self._links))

    def ask(self, request: RequestState, on_settled: Callable[[Ticket], None] | None = None) -> Ticket:
        """Send a request; the loop calls `on_settled` with its outcome.

        Raises what `check` raises, and ``bad_request`` for what cannot be encoded.
        """
        self.check()
        self._correlation += 1
        request.begin(self._correlation, time.monotonic(), self.timing.resend)
        ticket = Ticket(request, on_settled)
        self._put(self._send_first, ticket)
        return ticket

    async def outcome(self, ticket: Ticket) -> Answer | QuothError:
        """Wait for the outcome of a request: an answer, which may be an error, or the error that none came.

        A task that is cancelled here may wait again.
        """
        while ticket.outcome is None:
            ticket.waiter = self.bridge.loop.create_future()
            await ticket.waiter
        return ticket.outcome

    def update_due(self, ticket: Ticket) -> None:
        """Note that a request is due earlier than when it was sent."""
        if ticket.outcome is None:
            self._put(self._note_due, ticket)

    def drop(self, ticket: Ticket) -> None:
        """Give a request up. Any thread may call it."""
        if ticket.outcome is None:
            self._put(self._forget, ticket)

    def stop(self) -> None:
        """Let the thread end. Any thread may call it; see `ended`."""
        self._stopping = True
        if not self._end:
            self._wakeup.wake()

    async def ended(self) -> None:
        """Wait until the thread has ended and its connections are closed."""
        if os.getpid() != self._pid or get_running_loop() is not self.bridge.loop:
            return  # it ends by itself
        await shield(self._ended)
        self._thread.join()

    def _put(self, action: Callable[[Ticket], None], ticket: Ticket) -> None:
        self._inbox.append((action, ticket))
        if self._end:  # it may have ended before it found this
            ticket.settle(error(*self._end))
        elif not self._woken:
            self._woken = True
            self._wakeup.wake()

    # -- the thread -------------------------------------------------------------------------------------

    def _run(self) -> None:
        try:
            while not self._stopping and not self.bridge.loop.is_closed():
                ready = dict(self._poller.poll(self._pause()))
                if self._wakeup.fd in ready:
                    self._take_inbox()
                for requests in self._links:
                    self._take_answers(requests, ready)
                WATCH.check(time.monotonic())
                for requests in self._stale:
                    self._renew(requests)
                self._stale.clear()
            self._finish("closed", "the client is closed")
        except zmq.ContextTerminated:
            self._finish("closed", closed().text)
        except BaseException as defect:
            self._finish("internal", f"the client's thread ended: {defect!r}", "please report this")

    def _pause(self) -> int:
        """Return the milliseconds for which there is nothing to do unless an answer comes."""
        due = min((requests.due for requests in self._links), default=math.inf)
        return math.ceil(max(0.0, min(due - time.monotonic(), CHECK_S)) * 1_000)

    def _take_inbox(self) -> None:
        self._wakeup.clear()
        self._woken = False
        while self._inbox:
            action, ticket = self._inbox.popleft()
            action(ticket)

    def _take_answers(self, requests: LinkRequests, ready: dict[object, int]) -> None:
        link = requests.link
        found = link.monitor in ready and link.read_events()
        now = time.monotonic()  # before the answers are taken: then none comes too late
        if now >= link.retry_at:
            link.retry()
        if not found and now < requests.due and link.socket not in ready:
            return
        for request, outcome in requests.take(now, found=found):
            if isinstance(outcome, QuothError) and not link.connected:
                self._stale.add(requests)
            self._settle(self._tickets.pop(request), outcome)

    def _send_first(self, ticket: Ticket) -> None:
        try:
            requests = self._requests_with_room()
        except QuothError as problem:
            self._settle(ticket, problem)
            return
        self._tickets[ticket.request] = ticket
        requests.send(ticket.request)

    def _note_due(self, ticket: Ticket) -> None:
        for requests in self._links:
            if ticket.request.correlation in requests.asked:
                requests.due = min(requests.due, ticket.request.due)

    def _forget(self, ticket: Ticket) -> None:
        self._tickets.pop(ticket.request, None)
        for requests in self._links:
            if requests.asked.pop(ticket.request.correlation, None) and not requests.link.connected:
                self._stale.add(requests)

    def _requests_with_room(self) -> LinkRequests:
        """Return the requests of a link that takes one more. Raises `QuothError` if no link can be made."""
        for requests in self._links:
            if len(requests.asked) < self.asked_max:
                return requests
        if len(self._links) == self.links_max:
            return min(self._links, key=lambda requests: len(requests.asked))
        requests = LinkRequests(self._link())
        self._links.append(requests)
        return requests

    def _link(self) -> Link:
        link = Link(self.context, self.endpoint)
        for socket in (link.socket, link.monitor):
            self._poller.register(socket, zmq.POLLIN)
        return link

    def _renew(self, requests: LinkRequests) -> None:
        """Replace a stale connection, and send the pending requests again."""
        for socket in (requests.link.socket, requests.link.monitor):
            self._poller.unregister(socket)
        requests.link.close()
        try:
            requests.link = self._link()
        except QuothError as problem:
            self._links.remove(requests)
            for request in requests.asked.values():
                self._settle(self._tickets.pop(request), problem)
            return
        for request in requests.asked.values():
            requests.send(request)

    def _settle(self, ticket: Ticket, outcome: Answer | QuothError) -> None:
        self.bridge.put(ticket.settle, outcome)

    def _finish(self, *end: str) -> None:
        """End the thread: close the connections and settle all tickets with an error."""
        self._end = end
        for requests in self._links:
            requests.link.close()
        for ticket in self._tickets.values():
            self._settle(ticket, error(*end))
        while self._inbox:
            _, ticket = self._inbox.popleft()
            self._settle(ticket, error(*end))
        if self._owns_context:
            self.context.term()  # ends producers, too
        self.bridge.put(self._ended.set_result, None)
